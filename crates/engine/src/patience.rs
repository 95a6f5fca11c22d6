//! How long the engine waits for others: for files of a process that has just ended, and for stores that do not
//! answer.
//!
//! The kernel dismantles the io_uring of a killed process after the process has ended. Until then,
//! files that were registered with it stay locked: for milliseconds, or longer under load.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
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

/// When a store last answered. A busy store takes long for many reads; one that hangs answers none.
#[derive(Debug)]
pub(crate) struct Answers {
    began: Instant,
    /// Milliseconds from then to the last answer.
    last_ms: AtomicU64,
}

impl Default for Answers {
    fn default() -> Answers {
        Answers { began: Instant::now(), last_ms: AtomicU64::new(0) }
    }
}

impl Answers {
    /// The store has answered, whatever it said.
    pub fn note(&self) {
        self.last_ms.store(self.began.elapsed().as_millis() as u64, Ordering::Release);
    }

    /// How long it has been silent since `from` at the earliest.
    pub fn silence(&self, from: Instant) -> Duration {
        let last = self.began + Duration::from_millis(self.last_ms.load(Ordering::Acquire));
        last.max(from).elapsed()
    }
}

/// How long a question to stores waits for their answers.
pub(crate) struct Patience<'a> {
    /// A store that answers nothing for so long is waited for no longer.
    pub silence: Duration,
    /// No store is waited for longer than this.
    pub total: Duration,
    /// If this is false, no store is waited for longer than `silence` in all.
    pub goes_on: &'a dyn Fn() -> bool,
}

impl Patience<'_> {
    /// Whether a store that has answered at these times since the question at `asked` is waited for.
    pub fn waits_for(&self, answers: &Answers, asked: Instant) -> bool {
        let total = if (self.goes_on)() { self.total } else { self.silence };
        answers.silence(asked) < self.silence && asked.elapsed() < total
    }
}

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
    fn a_store_is_given_up_when_it_is_silent_and_not_when_it_takes_long() {
        let (answers, now) = (Answers::default(), Instant::now());
        let asked = now.checked_sub(Duration::from_secs(60)).unwrap_or(now);
        let of = |seconds| Duration::from_secs(seconds);
        let (on, off) = (|| true, || false);
        let patience = |total, goes_on| Patience {
            silence: Duration::from_secs(10),
            total: of(total),
            goes_on,
        };
        answers.note();
        assert!(patience(300, &on).waits_for(&answers, now));
        if asked < now {
            assert!(patience(300, &on).waits_for(&answers, asked), "it has just answered");
            assert!(!patience(50, &on).waits_for(&answers, asked), "all of it took too long");
            assert!(!patience(300, &off).waits_for(&answers, asked), "nobody waits any more");
            let silent = Answers { began: asked, last_ms: AtomicU64::new(0) };
            assert!(!patience(300, &on).waits_for(&silent, asked), "it has never answered");
            assert!(
                patience(300, &on).waits_for(&silent, now),
                "its silence counts from the question"
            );
        }
    }

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
