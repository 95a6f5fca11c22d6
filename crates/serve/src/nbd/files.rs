//! How many connections the limit on open files allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::ServeError;

/// File descriptors of a connection: its socket and its doorbell.
const OF_CONNECTION: u64 = 2;
/// File descriptors of a volume: its backing store, and another to look for holes in it.
const OF_VOLUME: u64 = 2;
/// File descriptors of everything else: operators, the flash tier, and files that are opened only
/// now and then.
const OF_ELSE: u64 = 96;

/// Returns how many connections are possible, at most `wanted`, in addition to `volumes` volumes
/// that are not open yet. Raises the limit on open files if necessary, as far as the system allows.
///
/// # Errors
/// If no connection is possible.
pub(crate) fn allow_connections(wanted: u32, volumes: usize) -> Result<u32, ServeError> {
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    let others = open + OF_ELSE + OF_VOLUME * volumes as u64;
    let limit = raise_limit(others + OF_CONNECTION * u64::from(wanted));
    match within(limit, others) {
        0 => Err(ServeError::FewFiles { limit, least: others + OF_CONNECTION }),
        most => Ok(wanted.min(most)),
    }
}

/// How many connections are possible if `limit` files may be open and everything else needs
/// `others`.
fn within(limit: u64, others: u64) -> u32 {
    let free = limit.saturating_sub(others);
    u32::try_from(free / OF_CONNECTION).unwrap_or(u32::MAX)
}

/// Raises the limit on open files to `wanted`, as far as the system allows. Returns the limit in
/// force.
fn raise_limit(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current else { return u64::MAX };
    let raised = wanted.min(limit.maximum.unwrap_or(u64::MAX));
    let more = Rlimit { current: Some(raised), ..limit };
    let has_more = current < wanted && setrlimit(Resource::Nofile, more).is_ok();
    if has_more { raised } else { current }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_connections_as_the_limit_of_open_files_allows() {
        assert_eq!(within(64, 120), 0);
        assert_eq!(within(121, 120), 0);
        assert_eq!(within(122, 120), 1);
        assert_eq!(within(256, 120), 68);
        assert_eq!(within(u64::MAX, 120), u32::MAX);
        assert_eq!(allow_connections(4, 2).unwrap(), 4);
    }
}
