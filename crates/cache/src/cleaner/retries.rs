//! How often cleanings have failed in a row, and when the next one may begin.

use forebay_block::Nanos;
use forebay_effect::IoError;

use super::FAILURES_MAX;

/// First pause after a failure; it doubles up to the last.
const PAUSE_FIRST: Nanos = Nanos(100_000_000);
const PAUSE_LAST: Nanos = Nanos(5_000_000_000);

/// See the module.
#[derive(Debug)]
pub(super) struct Retries {
    /// Consecutive failures, and the last error.
    failures: u32,
    error: IoError,
    /// Consecutive attempts to reclaim a region with unreadable records.
    unreadable: u32,
    /// The end of the pause.
    retry_at: Option<Nanos>,
}

impl Retries {
    pub fn new() -> Retries {
        Retries { failures: 0, error: IoError::Device, unreadable: 0, retry_at: None }
    }

    /// A cleaning has succeeded in writing to stores.
    pub fn note_written(&mut self) {
        self.failures = 0;
    }

    /// A region was reclaimed.
    pub fn note_reclaimed(&mut self) {
        self.unreadable = 0;
    }

    /// A cleaning has failed.
    pub fn note_failed(&mut self, error: IoError) {
        self.failures += 1;
        self.error = error;
    }

    /// A cleaning has failed that counts as no failure.
    pub fn note_error(&mut self, error: IoError) {
        self.error = error;
    }

    /// The region to reclaim holds records that cannot be read.
    pub fn note_unreadable(&mut self) {
        self.unreadable += 1;
    }

    /// No cleaning begins for a time, which grows with the failures in a row.
    pub fn pause(&mut self, now: Nanos) {
        let attempts = self.failures.max(self.unreadable).max(1) - 1;
        let pause = PAUSE_FIRST.0 << attempts.min(16);
        self.retry_at = Some(now.saturating_add(Nanos(pause.min(PAUSE_LAST.0))));
    }

    /// Ends the pause.
    pub fn retry_now(&mut self) {
        self.retry_at = None;
    }

    /// Earlier failures do not count any more.
    pub fn forgive(&mut self) {
        (self.failures, self.unreadable) = (0, 0);
    }

    /// The last error.
    pub fn error(&self) -> IoError {
        self.error
    }

    /// Whether [`FAILURES_MAX`] cleanings in a row have failed.
    pub fn fails(&self) -> bool {
        self.failures >= FAILURES_MAX
    }

    /// Whether [`FAILURES_MAX`] attempts in a row have found unreadable records.
    pub fn reads_in_vain(&self) -> bool {
        self.unreadable >= FAILURES_MAX
    }

    /// Whether one more attempt that finds unreadable records makes [`Retries::reads_in_vain`].
    pub fn reads_in_vain_next(&self) -> bool {
        self.unreadable + 1 >= FAILURES_MAX
    }

    #[inline]
    pub fn is_paused(&self) -> bool {
        self.retry_at.is_some()
    }

    /// The end of the pause.
    pub fn timeout(&self) -> Option<Nanos> {
        self.retry_at
    }

    /// The time may have come.
    pub fn handle_timeout(&mut self, now: Nanos) {
        self.retry_at = self.retry_at.filter(|&at| at > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_with_each_failure_in_a_row_up_to_the_last() {
        let mut retries = Retries::new();
        let mut pauses = Vec::new();
        for _ in 0..8 {
            retries.note_failed(IoError::NoSpace);
            retries.pause(Nanos(0));
            pauses.push(retries.timeout().unwrap().0 / 1_000_000);
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert!(retries.fails() && retries.error() == IoError::NoSpace);
        retries.note_written();
        retries.note_unreadable();
        retries.pause(Nanos(0));
        assert!(!retries.fails() && retries.timeout() == Some(PAUSE_FIRST));
    }

    #[test]
    fn a_pause_ends_at_its_time_and_not_before() {
        let mut retries = Retries::new();
        retries.note_unreadable();
        retries.pause(Nanos(7));
        let end = retries.timeout().unwrap();
        retries.handle_timeout(Nanos(end.0 - 1));
        assert!(retries.is_paused());
        retries.handle_timeout(end);
        assert!(!retries.is_paused());
    }
}
