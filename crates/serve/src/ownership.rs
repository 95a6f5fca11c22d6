//! The owner and mode of a socket's file.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::Path;

use forebay_config::FileMode;
use nix::unistd::{Group, User};

use crate::error::ServeError;

/// Mode, owner and group of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ownership {
    mode: u32,
    owner: Option<u32>,
    group: Option<u32>,
}

impl Default for Ownership {
    /// Only this user can open the file.
    fn default() -> Self {
        Ownership { mode: 0o600, owner: None, group: None }
    }
}

impl Ownership {
    /// Looks up users and groups that are given by name.
    ///
    /// # Errors
    /// If no user or group has the name.
    pub fn find(
        mode: FileMode,
        owner: Option<&str>,
        group: Option<&str>,
    ) -> Result<Ownership, ServeError> {
        let unknown = |what, name: &str| ServeError::NoSuch { what, name: name.to_owned() };
        // The system takes the largest number to mean "leave it unchanged".
        let numbered = |id: &u32| *id != u32::MAX;
        let owner =
            owner.map(|name| user(name).filter(numbered).ok_or_else(|| unknown("user", name)));
        let group =
            group.map(|name| group_of(name).filter(numbered).ok_or_else(|| unknown("group", name)));
        Ok(Ownership { mode: mode.bits(), owner: owner.transpose()?, group: group.transpose()? })
    }

    /// Sets the owner, group and mode of a file that only this user can open so far.
    ///
    /// # Errors
    /// If the system refuses the change.
    pub fn give(&self, path: &Path) -> Result<(), ServeError> {
        let failed = |source| ServeError::Ownership { path: path.to_owned(), source };
        if self.owner.is_some() || self.group.is_some() {
            lchown(path, self.owner, self.group).map_err(failed)?;
        }
        fs::set_permissions(path, Permissions::from_mode(self.mode)).map_err(failed)
    }
}

fn user(name: &str) -> Option<u32> {
    name.parse().ok().or_else(|| Some(User::from_name(name).ok()??.uid.as_raw()))
}

fn group_of(name: &str) -> Option<u32> {
    name.parse().ok().or_else(|| Some(Group::from_name(name).ok()??.gid.as_raw()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_go_by_name_or_by_number() {
        let mode = FileMode(0o660);
        let found = Ownership::find(mode, Some("root"), Some("root")).unwrap();
        assert_eq!(found, Ownership { mode: 0o660, owner: Some(0), group: Some(0) });
        let found = Ownership::find(mode, Some("1234"), Some("5678")).unwrap();
        assert_eq!((found.owner, found.group), (Some(1234), Some(5678)));
        let error = Ownership::find(mode, None, Some("no such group")).unwrap_err();
        assert!(error.to_string().contains("no such group"), "{error}");
    }
}
