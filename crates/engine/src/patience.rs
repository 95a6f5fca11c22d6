//! Opens what others may still hold: files of a process that has just ended, and exports of a server that does
//! not answer.
//!
//! The kernel dismantles the io_uring of a killed process after the process has ended. Until then,
//! files that were registered with it stay locked: for milliseconds, or longer under load.

use std::ops::ControlFlow;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use forebay_device::file::{Notice, OpenError, OpenOptions, Target};

use crate::error::EngineError;

/// How long to wait for the locks of a process that no longer exists.
const ENDED_HOLDER_WAIT_MAX: Duration = Duration::from_secs(5);
/// The kernel tells nobody when it lets a file go.
const POLL_PERIOD: Duration = Duration::from_millis(20);

/// How often a start that waits asks whether to go on.
const PROGRESS_PERIOD: Duration = Duration::from_millis(100);

/// Whether a start that waits goes on.
pub(crate) type Progress<'a> = dyn FnMut() -> ControlFlow<EngineError> + 'a;

/// Does `work` in a thread, and calls `progress` ten times a second meanwhile. If that ends the wait, the thread
/// is left alone: its server may never answer.
///
/// # Errors
/// As `work`, and the error of `progress`.
pub(crate) fn wait_for<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
    progress: &mut Progress<'_>,
) -> Result<T, EngineError> {
    let (ends, ended) = channel();
    let thread = std::thread::Builder::new().name("forebay-open".into());
    // (If nobody waits any more, the result is dropped.)
    let thread = thread.spawn(move || drop(ends.send(work())));
    let thread = thread.map_err(|error| EngineError::System("start a thread", error))?;
    loop {
        match ended.recv_timeout(PROGRESS_PERIOD) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) => {
                if let ControlFlow::Break(error) = progress() {
                    return Err(error);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                let panic = thread.join().expect_err("the thread has ended without a result");
                std::panic::resume_unwind(panic);
            }
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_for_what_never_comes_ends_when_it_is_told_to() {
        let (keep, never) = channel::<()>();
        let mut asked = 0;
        let wait_for_ever = move || {
            never.recv().unwrap_or(());
            Ok(())
        };
        let waited = wait_for(wait_for_ever, &mut || {
            asked += 1;
            if asked == 3 {
                ControlFlow::Break(EngineError::StartEnded)
            } else {
                ControlFlow::Continue(())
            }
        });
        assert!(matches!(waited, Err(EngineError::StartEnded)));
        drop(keep);
        let go_on = &mut || ControlFlow::Continue(());
        assert_eq!(wait_for(|| Ok(7), go_on).unwrap(), 7);
        assert!(matches!(
            wait_for::<()>(|| Err(EngineError::Quiesced), go_on),
            Err(EngineError::Quiesced)
        ));
    }
}
