//! Opens files that a process that has just ended still seems to hold.
//!
//! The kernel dismantles the io_uring of a killed process after the process has ended. Until then,
//! files that were registered with it stay locked: for milliseconds, or longer under load.

use std::path::Path;
use std::time::{Duration, Instant};

use forebay_device::file::{Notice, OpenError, OpenOptions, Target};

use crate::error::EngineError;

/// How long to wait for the locks of a process that no longer exists.
const ENDED_HOLDER_WAIT_MAX: Duration = Duration::from_secs(5);
const POLL_PERIOD: Duration = Duration::from_millis(20);

/// Like [`Target::open`], but waits while the holder is a process that has ended.
///
/// # Errors
/// As [`Target::open`]; a live holder is reported at once.
pub(crate) fn open(options: &OpenOptions) -> Result<(Target, Vec<Notice>), OpenError> {
    let patient_until = Instant::now() + ENDED_HOLDER_WAIT_MAX;
    loop {
        match Target::open(options) {
            Err(OpenError::InUse { holder, .. })
                if has_ended(&holder) && Instant::now() < patient_until =>
            {
                std::thread::sleep(POLL_PERIOD);
            }
            other => return other,
        }
    }
}

/// Like [`open`], for an item of a configuration: the error for a missing file without a size names
/// the item.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_or_name(
    options: &OpenOptions,
    what: impl FnOnce() -> String,
) -> Result<(Target, Vec<Notice>), EngineError> {
    open(options).map_err(|error| {
        let is_device = matches!(error, OpenError::NoDevice { .. });
        match options.create.is_none() && !is_device && !options.path.exists() {
            true => EngineError::Absent { what: what(), path: options.path.clone() },
            false => error.into(),
        }
    })
}

/// Whether the holder is described as a process that does not exist, or is not described because it
/// released the file meanwhile.
fn has_ended(holder: &str) -> bool {
    if holder.contains("another process or the kernel") {
        return true;
    }
    let Some((_, after)) = holder.split_once("process ") else { return false };
    let number: String = after.chars().take_while(char::is_ascii_digit).collect();
    !number.is_empty() && !Path::new("/proc").join(number).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_processes_that_are_gone_are_waited_for() {
        assert!(!has_ended(&format!("process {} (x)", std::process::id())));
        assert!(!has_ended("a file system mounted at /mnt"));
        // Above the largest number that Linux gives to a process.
        assert!(has_ended("process 4194305 ()"));
    }
}
