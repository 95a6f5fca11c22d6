//! Whose a socket's file is, and who else may open it.

use std::ffi::CString;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::Path;

use forebay_config::FileMode;

use crate::error::ServeError;

/// Bytes for the names and numbers of a user or a group with all its members.
const ENTRY_BYTES: usize = 64 << 10;

/// Mode, owner and group of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ownership {
    mode: u32,
    owner: Option<u32>,
    group: Option<u32>,
}

impl Default for Ownership {
    /// This user's only.
    fn default() -> Self {
        Ownership { mode: 0o600, owner: None, group: None }
    }
}

impl Ownership {
    /// Looks up users and groups that are given by name.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn find(
        mode: FileMode,
        owner: Option<&str>,
        group: Option<&str>,
    ) -> Result<Ownership, ServeError> {
        let unknown = |what, name: &str| ServeError::NoSuch { what, name: name.to_owned() };
        // (To the system the last number means to leave it as it is.)
        let numbered = |id: &u32| *id != u32::MAX;
        let owner =
            owner.map(|name| user(name).filter(numbered).ok_or_else(|| unknown("user", name)));
        let group =
            group.map(|name| group_of(name).filter(numbered).ok_or_else(|| unknown("group", name)));
        Ok(Ownership { mode: mode.bits(), owner: owner.transpose()?, group: group.transpose()? })
    }

    /// Gives a file that only this user can open.
    ///
    /// # Errors
    /// If the system refuses it.
    pub fn give(&self, path: &Path) -> Result<(), ServeError> {
        let failed = |source| ServeError::Ownership { path: path.to_owned(), source };
        if self.owner.is_some() || self.group.is_some() {
            lchown(path, self.owner, self.group).map_err(failed)?;
        }
        fs::set_permissions(path, Permissions::from_mode(self.mode)).map_err(failed)
    }
}

fn user(name: &str) -> Option<u32> {
    name.parse().ok().or_else(|| {
        let (c_name, mut room) = (CString::new(name).ok()?, vec![0; ENTRY_BYTES]);
        let mut found = std::ptr::null_mut();
        // SAFETY: the entry is plain data, filled in by the call; all pointers outlive it.
        unsafe {
            let mut entry: libc::passwd = std::mem::zeroed();
            let (at, bytes) = (room.as_mut_ptr(), room.len());
            libc::getpwnam_r(c_name.as_ptr(), &mut entry, at, bytes, &mut found);
            (!found.is_null()).then_some(entry.pw_uid)
        }
    })
}

fn group_of(name: &str) -> Option<u32> {
    name.parse().ok().or_else(|| {
        let (c_name, mut room) = (CString::new(name).ok()?, vec![0; ENTRY_BYTES]);
        let mut found = std::ptr::null_mut();
        // SAFETY: as above.
        unsafe {
            let mut entry: libc::group = std::mem::zeroed();
            let (at, bytes) = (room.as_mut_ptr(), room.len());
            libc::getgrnam_r(c_name.as_ptr(), &mut entry, at, bytes, &mut found);
            (!found.is_null()).then_some(entry.gr_gid)
        }
    })
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
