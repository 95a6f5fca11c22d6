//! The life cycle of a cache, from before its start to the end of its stop.
//!
//! Each method named after an event moves the cache to the next phase. Events in any other phase are bugs, and
//! panic. The stages of a stop that concern nobody else are in [`Stop`](crate::stop::Stop).
//!
//! | phase | event | next phase |
//! | --- | --- | --- |
//! | `New` | `Start` | `Starting` |
//! | `New` | `Serve` | `Ready` |
//! | `New` | `CloseLog` | `Closing` |
//! | `New` | `EndCleaning` | `Ending` |
//! | `Starting` | `Disown` | `Disowning` |
//! | `Starting` | `Serve` | `Ready` |
//! | `Starting` | `Fail` | `Failed` |
//! | `Disowning` | `Serve` | `Ready` |
//! | `Disowning` | `Fail` | `Failed` |
//! | `Failed` | `Fail` | `Failed` |
//! | `Ready` | `BeginStop` | `Stopping` |
//! | `Stopping` | `CloseLog` | `Closing` |
//! | `Stopping` | `EndCleaning` | `Ending` |
//! | `Closing` | `EndCleaning` | `Ending` |
//! | `Ending` | `EndStop` | `Stopped` |
//!
//! A cache without flash has no log to read or to close: it skips `Starting`, `Disowning` and `Closing`. A stop
//! before the start also skips what concerns requests.
//!
//! What the phases allow:
//!
//! | phase | serve | clean | stamp | tend late |
//! | --- | --- | --- | --- | --- |
//! | `New` | - | yes | - | - |
//! | `Starting` | - | yes | - | - |
//! | `Disowning` | - | yes | yes | - |
//! | `Ready` | yes | yes | yes | yes |
//! | `Stopping` | - | yes | yes | yes |
//! | `Closing` | - | yes | yes | - |
//! | `Ending` | - | - | yes | - |
//! | `Stopped` | - | - | - | - |
//! | `Failed` | - | - | - | - |

use core::fmt::Debug;

/// The phases, in the order in which a cache goes through them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum LifePhase {
    /// Not started.
    New,
    /// The log is being read.
    Starting,
    /// The log is open; records without a place are being disowned.
    Disowning,
    /// Requests are served.
    Ready,
    /// A stop has begun: requests in flight end, and dirty data leave memory and, if requested, flash.
    Stopping,
    /// The log writes its clean mark.
    Closing,
    /// Nothing is cleaned any more; work that was begun ends.
    Ending,
    /// The stop has ended.
    Stopped,
    /// The start has failed.
    Failed,
}

/// What moves a cache to another phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LifeEvent {
    Start,
    Disown,
    Serve,
    Fail,
    BeginStop,
    CloseLog,
    EndCleaning,
    EndStop,
}

impl LifePhase {
    /// The phase after an event; `None` if the event is not possible in this phase.
    fn after(self, event: LifeEvent) -> Option<LifePhase> {
        Some(match (self, event) {
            (Self::New, LifeEvent::Start) => Self::Starting,
            (Self::Starting, LifeEvent::Disown) => Self::Disowning,
            (Self::New | Self::Starting | Self::Disowning, LifeEvent::Serve) => Self::Ready,
            // Reading the log goes on after the first reason to refuse, and may find another.
            (Self::Starting | Self::Disowning | Self::Failed, LifeEvent::Fail) => Self::Failed,
            (Self::Ready, LifeEvent::BeginStop) => Self::Stopping,
            (Self::New | Self::Stopping, LifeEvent::CloseLog) => Self::Closing,
            (Self::New | Self::Stopping | Self::Closing, LifeEvent::EndCleaning) => Self::Ending,
            (Self::Ending, LifeEvent::EndStop) => Self::Stopped,
            _ => return None,
        })
    }
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Lifecycle {
    phase: LifePhase,
    /// The operator has said that a stop will follow. This can be in any phase.
    stop_announced: bool,
}

impl Lifecycle {
    /// A cache that is not started.
    pub const NEW: Lifecycle = Lifecycle { phase: LifePhase::New, stop_announced: false };

    fn move_on(&mut self, event: LifeEvent) {
        let Some(next) = self.phase.after(event) else {
            panic!("{event:?} is not possible in the phase {:?}", self.phase);
        };
        self.phase = next;
    }

    /// The log begins to be read.
    pub fn start(&mut self) {
        self.move_on(LifeEvent::Start);
    }

    /// The log is open, and records are to be disowned before requests are served.
    pub fn disown(&mut self) {
        self.move_on(LifeEvent::Disown);
    }

    /// The start has succeeded.
    pub fn serve(&mut self) {
        self.move_on(LifeEvent::Serve);
    }

    /// The start has failed; it may fail for several reasons.
    pub fn fail(&mut self) {
        self.move_on(LifeEvent::Fail);
    }

    /// The operator says that a stop will follow.
    pub fn announce_stop(&mut self) {
        self.stop_announced = true;
    }

    /// A stop begins while requests are served.
    pub fn begin_stop(&mut self) {
        self.move_on(LifeEvent::BeginStop);
    }

    /// The log begins to close.
    pub fn close_log(&mut self) {
        self.move_on(LifeEvent::CloseLog);
    }

    /// The log has closed, or there is none to close.
    pub fn end_cleaning(&mut self) {
        self.move_on(LifeEvent::EndCleaning);
    }

    /// The stop has ended.
    pub fn end_stop(&mut self) {
        self.move_on(LifeEvent::EndStop);
    }

    /// The phase, for a report.
    pub fn phase(self) -> impl Debug {
        self.phase
    }

    /// Whether it was neither started nor stopped.
    pub fn is_new(self) -> bool {
        self.phase == LifePhase::New
    }

    /// Whether the log is being read.
    #[inline]
    pub fn is_starting(self) -> bool {
        self.phase == LifePhase::Starting
    }

    /// Whether requests are served.
    #[inline]
    pub fn is_ready(self) -> bool {
        self.phase == LifePhase::Ready
    }

    /// Whether no new request is served any more: a stop has begun, or the start has failed.
    #[inline]
    pub fn is_past_service(self) -> bool {
        self.phase > LifePhase::Ready
    }

    /// Whether the last step of a stop is in progress.
    #[inline]
    pub fn is_ending(self) -> bool {
        self.phase == LifePhase::Ending
    }

    /// Whether a stop has ended.
    pub fn is_stopped(self) -> bool {
        self.phase == LifePhase::Stopped
    }

    /// Whether the start has failed.
    #[inline]
    pub fn has_failed(self) -> bool {
        self.phase == LifePhase::Failed
    }

    /// Whether a stop has been announced or has begun: requests that wait for stores that fail do not wait longer.
    #[inline]
    pub fn is_stop_near(self) -> bool {
        self.stop_announced || self.is_past_service() && !self.has_failed()
    }

    /// Whether requests are served and no stop is announced. Only then may anything wait for data that cannot be
    /// destaged, because a start and a stop have to end. (No stop need be near during a start.)
    #[inline]
    pub fn stays_in_service(self) -> bool {
        self.is_ready() && !self.stop_announced
    }

    /// Whether the cleaning of a region may begin. (No part asks for one before the log is open.)
    pub fn may_clean(self) -> bool {
        self.phase < LifePhase::Ending
    }

    /// Whether stamps may be ordered. Disowned records may need room that waits for a stamp, and work that
    /// was begun may order stamps until the stop has ended.
    pub fn may_stamp(self) -> bool {
        (LifePhase::Disowning..=LifePhase::Ending).contains(&self.phase)
    }

    /// Whether dirty data may be destaged to late stores apart from other cleanings: while requests need
    /// the room, or a stop may.
    pub fn may_tend_late(self) -> bool {
        matches!(self.phase, LifePhase::Ready | LifePhase::Stopping)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASES: [LifePhase; 9] = [
        LifePhase::New,
        LifePhase::Starting,
        LifePhase::Disowning,
        LifePhase::Ready,
        LifePhase::Stopping,
        LifePhase::Closing,
        LifePhase::Ending,
        LifePhase::Stopped,
        LifePhase::Failed,
    ];
    const EVENTS: [LifeEvent; 8] = [
        LifeEvent::Start,
        LifeEvent::Disown,
        LifeEvent::Serve,
        LifeEvent::Fail,
        LifeEvent::BeginStop,
        LifeEvent::CloseLog,
        LifeEvent::EndCleaning,
        LifeEvent::EndStop,
    ];

    /// The rows of the table with this heading in the module's documentation, as cells without backticks.
    fn table(heading: &str) -> Vec<Vec<&'static str>> {
        let lines = include_str!("lifecycle.rs").lines();
        let rows = lines.skip_while(|line| !line.starts_with(heading)).skip(2);
        let rows = rows.map_while(|line| line.strip_prefix("//! | ")?.strip_suffix(" |"));
        rows.map(|row| row.split(" | ").map(|cell| cell.trim_matches('`')).collect()).collect()
    }

    #[test]
    fn phases_follow_each_other_as_the_table_says() {
        let mut table = table("//! | phase | event |");
        for phase in PHASES {
            for event in EVENTS {
                if let Some(next) = phase.after(event) {
                    let row = [phase, next].map(|phase| format!("{phase:?}"));
                    let row = [&*row[0], &format!("{event:?}"), &*row[1]];
                    let at = table.iter().position(|cells| *cells == row);
                    table.remove(at.unwrap_or_else(|| panic!("the table lacks {row:?}")));
                }
            }
        }
        assert!(table.is_empty(), "not possible: {table:?}");
    }

    #[test]
    fn phases_allow_what_the_table_says() {
        let table = table("//! | phase | serve |");
        let rows = PHASES.map(|phase| {
            let life = Lifecycle { phase, stop_announced: false };
            let may = [life.is_ready(), life.may_clean(), life.may_stamp(), life.may_tend_late()];
            let may = may.map(|may| if may { "yes" } else { "-" });
            (format!("{phase:?}"), may)
        });
        let rows: Vec<Vec<&str>> =
            rows.iter().map(|(phase, may)| [&[&**phase], &may[..]].concat()).collect();
        assert_eq!(table, rows);
    }

    #[test]
    fn a_stop_is_near_once_it_is_announced_or_begins() {
        for phase in PHASES {
            let life = |stop_announced| Lifecycle { phase, stop_announced };
            assert!(life(true).is_stop_near(), "{phase:?}");
            let begun = life(false).is_past_service() && phase != LifePhase::Failed;
            assert_eq!(life(false).is_stop_near(), begun, "{phase:?}");
        }
    }

    #[test]
    fn a_cache_stays_in_service_while_it_serves_and_no_stop_is_announced() {
        for phase in PHASES {
            let life = |stop_announced| Lifecycle { phase, stop_announced };
            assert!(!life(true).stays_in_service(), "{phase:?}");
            assert_eq!(life(false).stays_in_service(), phase == LifePhase::Ready, "{phase:?}");
        }
    }

    #[test]
    fn an_announcement_before_the_start_still_counts_when_the_cache_serves() {
        let mut life = Lifecycle::NEW;
        life.announce_stop();
        life.start();
        life.serve();
        assert!(life.is_ready() && life.is_stop_near());
    }

    #[test]
    #[should_panic(expected = "Serve is not possible in the phase Failed")]
    fn a_start_that_failed_does_not_serve() {
        let mut life = Lifecycle::NEW;
        life.start();
        life.fail();
        life.serve();
    }
}
