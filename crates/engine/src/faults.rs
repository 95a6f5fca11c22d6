//! Messages that operators get without asking.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use forebay_block::Volume;
use forebay_cache::PROBE_PERIOD;

use crate::engine::Engine;
use crate::options::VolumeDescription;
use crate::status;

/// Most unreadable blocks that a message names.
const UNREADABLE_SHOWN: usize = 10;

/// Pauses between messages of one kind: the first and the last; each is twice the previous one.
const PAUSES: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(3600)];

/// The faults that [`Engine::faults`] has reported.
#[derive(Clone, Debug, Default)]
pub struct Reported {
    errors: Vec<(u64, Repeats)>,
    unstamped: BTreeMap<Volume, Repeats>,
    suspended: Vec<bool>,
    jammed: bool,
    lasting: Vec<String>,
}

/// What an operator should be told of, or that it has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// What became of an order, in words.
    News(String),
    /// Operations on a backing store failed.
    Failing {
        /// Name of the volume.
        volume: String,
        /// Operations that failed since the last message.
        operations: u64,
        /// Why the last of them failed.
        why: String,
    },
    /// The header of a backing store could not be written when Forebay updated its stamp.
    Unstamped {
        /// Name of the volume.
        volume: String,
        /// Why the last write failed.
        why: String,
    },
    /// Writes to a volume fail at once, because its backing store has failed for too long. The store is tried again
    /// every [`PROBE_PERIOD`], and by [`Engine::retry_stores`].
    Suspended {
        /// Name of the volume.
        volume: String,
        /// Why its backing store fails.
        why: String,
    },
    /// Writes to a volume fail, because the session with the NBD server of its backing store has ended.
    Disconnected {
        /// Name of the volume.
        volume: String,
        /// Why the session ended.
        why: String,
    },
    /// A backing store that was suspended accepts writes again.
    Resumed {
        /// Name of the volume.
        volume: String,
    },
    /// Flash is full of dirty blocks that cannot be destaged.
    Jammed {
        /// Names of the volumes whose backing stores fail.
        failing: Vec<String>,
    },
    /// Flash has room again.
    Unjammed,
    /// A fault that lasts until the next start, or until a client repairs it, in words.
    Lasting(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::News(words) | Fault::Lasting(words) => f.write_str(words),
            Fault::Failing { volume, operations: 1, why } => write!(
                f,
                "an operation on the backing store of volume {volume} failed because {why}"
            ),
            Fault::Failing { volume, operations, why } => write!(
                f,
                "{operations} operations on the backing store of volume {volume} failed, the last \
                 one because {why}"
            ),
            Fault::Unstamped { volume, why } => write!(
                f,
                "the header of the backing store of volume {volume} was not updated: {why}. Forebay \
                 tries again. Until it succeeds, dirty data of the volume stays on flash"
            ),
            Fault::Suspended { volume, why } => write!(
                f,
                "writes to volume {volume} are failing: its backing store has failed for longer than \
                 flush.give_up_after ({why}). Dirty data is kept. Forebay retries every {} seconds",
                PROBE_PERIOD.0 / 1_000_000_000
            ),
            Fault::Disconnected { volume, why } => write!(
                f,
                "writes to volume {volume} are failing: {why}. Dirty data is kept. Forebay does not \
                 reconnect: restart the server once its NBD server is back"
            ),
            Fault::Resumed { volume } => {
                write!(f, "the backing store of volume {volume} accepts writes again")
            }
            Fault::Jammed { failing } => write!(
                f,
                "flash is full of dirty blocks of failing backing stores (volumes {}): on all \
                 volumes, writes to blocks that flash holds fail until one of these stores accepts \
                 writes again",
                failing.join(", ")
            ),
            Fault::Unjammed => f.write_str("flash has room for writes to all volumes again"),
        }
    }
}

/// How often a message about a lasting fault is repeated: less and less often.
#[derive(Clone, Copy, Debug, Default)]
struct Repeats {
    /// When it was last reported, and the pause after that.
    last: Option<(Instant, Duration)>,
}

impl Repeats {
    /// Whether to report the fault now. After a long silence it counts as new.
    fn allow(&mut self, now: Instant) -> bool {
        let [first, most] = PAUSES;
        let pause = match self.last {
            None => first,
            Some((at, pause)) if now < at + pause => return false,
            Some((at, pause)) if now > at + 4 * pause => first,
            Some((_, pause)) => (2 * pause).min(most),
        };
        self.last = Some((now, pause));
        true
    }
}

impl Reported {
    /// What has not been reported of an engine, which counts as reported from now on.
    pub(crate) fn report(&mut self, engine: &Engine) -> Vec<Fault> {
        let reported = self;
        let mut faults: Vec<Fault> = engine.take_news().into_iter().map(Fault::News).collect();
        let mut core = engine.shared.lock_anyway();
        core.take_unstamped(|volume, why| {
            let repeats = reported.unstamped.entry(volume).or_default();
            let told = repeats.allow(Instant::now());
            if told && let Some(of) = engine.volumes().iter().find(|v| v.volume == volume) {
                let (volume, why) = (of.name.clone(), why.to_owned());
                faults.push(Fault::Unstamped { volume, why });
            }
            told
        });
        reported.errors.resize(engine.volumes().len(), (0, Repeats::default()));
        for (volume, (reported, repeats)) in engine.volumes().iter().zip(&mut reported.errors) {
            let errors = core.cache().volume_stats(volume.volume).map_or(0, |s| s.backing_errors);
            let failure = core.cache().last_backing_failure(volume.volume);
            if let (Some(failure), true) = (failure, errors > *reported)
                && repeats.allow(Instant::now())
            {
                let why = engine.stores.why(volume.volume, failure);
                let operations = errors - *reported;
                faults.push(Fault::Failing { volume: volume.name.clone(), operations, why });
                *reported = errors;
            }
        }
        reported.suspended.resize(engine.volumes().len(), false);
        for (volume, reported) in engine.volumes().iter().zip(&mut reported.suspended) {
            let suspended = core.cache().suspended(volume.volume);
            if suspended.is_some() != *reported {
                let session_failure = engine.stores.session_failure(volume.volume);
                let volume = volume.name.clone();
                faults.push(match (suspended, session_failure) {
                    (Some(_), Some(why)) => Fault::Disconnected { volume, why },
                    (Some(why), None) => Fault::Suspended { volume, why: why.to_string() },
                    (None, _) => Fault::Resumed { volume },
                });
                *reported = suspended.is_some();
            }
        }
        if core.cache().is_jammed() != reported.jammed {
            reported.jammed = !reported.jammed;
            let fails = |v: &&VolumeDescription| core.cache().is_known_to_fail(v.volume);
            let failing = engine.volumes().iter().filter(fails).map(|v| v.name.clone()).collect();
            faults.push(match reported.jammed {
                true => Fault::Jammed { failing },
                false => Fault::Unjammed,
            });
        }
        let given_up = status::given_up(core.cache(), engine.volumes());
        drop(core);
        let lasting = given_up.into_iter().chain(unreadable(engine));
        for fault in lasting {
            if !reported.lasting.contains(&fault) {
                reported.lasting.push(fault.clone());
                faults.push(Fault::Lasting(fault));
            }
        }
        faults
    }
}

/// The blocks that cannot be read from flash, in words, if any.
pub(crate) fn unreadable(engine: &Engine) -> Option<String> {
    let blocks: Vec<_> = engine.shared.lock_anyway().cache().unreadable().collect();
    let name = |volume: Volume| {
        let of = engine.volumes().iter().find(|v| v.volume == volume);
        of.map_or_else(|| volume.0.to_string(), |v| v.name.clone())
    };
    let (shown, more) = blocks.split_at(blocks.len().min(UNREADABLE_SHOWN));
    let (first, _) = shown.split_first()?;
    let mut text = format!("the newest data of block {} of volume {}", first.1, name(first.0));
    for &(volume, block) in &shown[1..] {
        text += &format!(", of block {block} of volume {}", name(volume));
    }
    if !more.is_empty() {
        text += &format!(" and {} more", more.len());
    }
    Some(text + " cannot be read from flash until you write or trim it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failed_operation_is_no_plural() {
        let said = |operations| {
            let (volume, why) = ("a".to_owned(), "the device is full".to_owned());
            Fault::Failing { volume, operations, why }.to_string()
        };
        let says = "operation on the backing store of volume a failed because the device is full";
        assert_eq!(said(1), format!("an {says}"));
        assert!(said(2).starts_with("2 operations on "), "{}", said(2));
    }

    #[test]
    fn what_goes_on_is_said_ever_more_rarely_and_is_news_after_a_silence() {
        let (start, mut repeats) = (Instant::now(), Repeats::default());
        let mut said = Vec::new();
        // A failure every second for a day.
        for second in 0..86_400 {
            if repeats.allow(start + Duration::from_secs(second)) {
                said.push(second);
            }
        }
        assert_eq!(said[..6], [0, 5, 15, 35, 75, 155]);
        assert!(said.len() < 40, "{} messages a day", said.len());
        assert!(said.windows(2).all(|pair| pair[1] - pair[0] <= 3600));
        let later = start + Duration::from_secs(200_000);
        assert!(repeats.allow(later), "at once");
        assert!(repeats.allow(later + Duration::from_secs(5)));
    }
}
