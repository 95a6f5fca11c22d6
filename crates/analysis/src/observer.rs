//! The caller who waits for an answer: sees the progress, learns what is doubtful, and may stop the work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Note;

/// What a [`Meter`] counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Requests, points, operations.
    Count,
    /// Bytes.
    Bytes,
}

/// Shows how far one part of the work is; it is dropped when that part ends.
pub trait Meter: Send + Sync {
    /// `n` more units are done.
    fn inc(&self, n: u64);

    /// `n` units are done in all.
    fn set(&self, n: u64);
}

/// Waits for an answer. [`Unobserved`] sees nothing and can stop the work.
pub trait Observer: Sync {
    /// The work ends with [`Interrupted`] soon after this flag is set.
    fn stop_flag(&self) -> &Arc<AtomicBool>;

    /// A part of the work begins, of `total` units where their number is known.
    fn begin(&self, label: &str, unit: Unit, total: Option<u64>) -> Box<dyn Meter> {
        let _ = (label, unit, total);
        Box::new(Unseen)
    }

    /// Something that the reader of the answer should know.
    fn note(&self, note: Note) {
        let _ = note;
    }

    /// Ends the work if it is to end: `observer.check()?` in a loop.
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

/// Shows nothing and says nothing; another thread may set the flag to end the work.
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
