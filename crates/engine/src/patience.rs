//! Opens files that a process that has just ended still seems to hold.
//!
//! The kernel dismantles the io_uring of a killed process after the process has ended. Until then,
//! files that were registered with it stay locked: for milliseconds, or longer under load.

use std::time::{Duration, Instant};

use forebay_device::file::{Notice, OpenError, OpenOptions, Target};

use crate::error::EngineError;

/// How long to wait for the locks of a process that no longer exists.
const ENDED_HOLDER_WAIT_MAX: Duration = Duration::from_secs(5);
/// The kernel tells nobody when it lets a file go.
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
                if holder.has_ended() && Instant::now() < patient_until =>
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
