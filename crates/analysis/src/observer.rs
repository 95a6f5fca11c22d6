//! The caller's view of the work: it sees the progress, receives notes, and can stop the work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Note;

/// The unit that a [`Meter`] counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Requests, points, operations.
    Count,
    /// Bytes.
    Bytes,
}

/// Shows the progress of one part of the work; dropped when that part ends.
pub trait Meter: Send + Sync {
    /// Adds `n` units to those done.
    fn inc(&self, n: u64);

    /// Sets the number of units done to `n`.
    fn set(&self, n: u64);
}

/// Observes the work on an answer. [`Unobserved`] shows no progress, but can stop the work.
pub trait Observer: Sync {
    /// The stop flag: once it is set, the work soon ends with [`Interrupted`].
    fn stop_flag(&self) -> &Arc<AtomicBool>;

    /// Called when a part of the work begins. `total` is its number of units, if known.
    fn begin(&self, label: &str, unit: Unit, total: Option<u64>) -> Box<dyn Meter> {
        let _ = (label, unit, total);
        Box::new(Unseen)
    }

    /// Called with a note that the reader of the answer should see.
    fn note(&self, note: Note) {
        let _ = note;
    }

    /// Stops the work if the flag is set: call `observer.check()?` in a loop.
    ///
    /// # Errors
    /// Once the flag is set.
    fn check(&self) -> Result<(), Interrupted> {
        if self.stop_flag().load(Ordering::Relaxed) { Err(Interrupted) } else { Ok(()) }
    }
}

/// The work was stopped by its observer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("stopped by a signal before the work was done")
    }
}

impl std::error::Error for Interrupted {}

/// Shows no progress and no notes. Another thread can set the flag to stop the work.
///
/// ```
/// use std::sync::atomic::Ordering;
/// use forebay_analysis::{Interrupted, Observer, Unobserved};
///
/// let observer = Unobserved::default();
/// assert_eq!(observer.check(), Ok(()));
/// observer.0.store(true, Ordering::Relaxed);
/// assert_eq!(observer.check(), Err(Interrupted));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Unobserved(pub Arc<AtomicBool>);

impl Observer for Unobserved {
    fn stop_flag(&self) -> &Arc<AtomicBool> {
        &self.0
    }
}

struct Unseen;

impl Meter for Unseen {
    fn inc(&self, _: u64) {}

    fn set(&self, _: u64) {}
}
