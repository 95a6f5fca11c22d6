//! Messages that operators get without asking.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use forebay_block::Volume;
use forebay_cache::{Cache, PROBE_PERIOD};
use forebay_effect::IoError;

use crate::backing_stores::StoreFailure;
use crate::engine::Engine;
use crate::options::VolumeDescription;

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
    held: BTreeMap<Volume, Repeats>,
    overdue: Repeats,
    jammed: bool,
    lasting: Vec<LastingFault>,
}

/// What an operator should be told of, or that it has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// What became of an order.
    News(OrderNews),
    /// Operations on a backing store failed.
    Failing {
        /// Name of the volume.
        volume: String,
        /// Operations that failed since the last message.
        operations: u64,
        /// Why the last of them failed.
        why: StoreFailure,
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
        why: IoError,
    },
    /// Writes to a volume fail, because the session with the NBD server of its backing store has ended.
    Disconnected {
        /// Name of the volume.
        volume: String,
        /// Why the session ended.
        why: String,
    },
    /// Requests to a volume are still held back after a quiesce, because the header of its backing store could not be
    /// written, or what is cached of the volume could not be dropped. [`Engine::end_overdue_quiesce`] and
    /// [`Engine::resume`] try the store again.
    Held {
        /// Name of the volume.
        volume: String,
        /// What failed last.
        why: String,
        /// Whether the session with the NBD server of the store has ended, so that only a restart helps.
        disconnected: bool,
    },
    /// Requests to a volume that were still held back after a quiesce continue.
    Released {
        /// Name of the volume.
        volume: String,
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
    /// A fault that lasts until the next start, or until a client repairs it.
    Lasting(LastingFault),
}

/// What became of an order that has ended.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OrderNews {
    /// The end of a quiesce found stores that have changed.
    #[error(
        "during the quiesce, other programs changed the backing stores of these volumes: {}; their \
         cached data was dropped", volumes.join(", ")
    )]
    StoresChanged {
        /// Names of the volumes.
        volumes: Vec<String>,
    },
    /// The end of a quiesce could not find out in time whether stores have changed.
    #[error(
        "after the quiesce, the backing stores of these volumes did not answer, or took too long to \
         read: {}; their cached data was dropped", volumes.join(", ")
    )]
    StoresSilent {
        /// Names of the volumes.
        volumes: Vec<String>,
    },
    /// The end of a quiesce could not find out whether stores have changed.
    #[error(
        "after the quiesce, the backing stores of these volumes could not be read: {}; their cached \
         data was dropped", volumes.join(", ")
    )]
    StoresUnread {
        /// Names of the volumes.
        volumes: Vec<String>,
    },
}

impl OrderNews {
    /// Names of the volumes that the news is about.
    pub fn volumes(&self) -> &[String] {
        match self {
            OrderNews::StoresChanged { volumes }
            | OrderNews::StoresSilent { volumes }
            | OrderNews::StoresUnread { volumes } => volumes,
        }
    }
}

/// A fault that lasts until the next start, or until a client repairs it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LastingFault {
    /// The cache has given up its flash.
    #[error("{0}")]
    FlashGivenUp(FlashGivenUp),
    /// Newest data cannot be read from flash.
    #[error("{0}")]
    Unreadable(UnreadableBlocks),
}

/// A cache has given up its flash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlashGivenUp {
    /// Names of the volumes that still depend on flash: it holds dirty data for them.
    pub dependent: Vec<String>,
}

impl FlashGivenUp {
    /// Which volumes still depend on the flash of a cache that has given it up.
    pub(crate) fn of(cache: &Cache, volumes: &[VolumeDescription]) -> Option<FlashGivenUp> {
        let depends = |v: &&VolumeDescription| !cache.passes_through(v.volume);
        cache.has_given_up().then(|| FlashGivenUp {
            dependent: volumes.iter().filter(depends).map(|v| v.name.clone()).collect(),
        })
    }
}

impl fmt::Display for FlashGivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the server will not write to flash until the next start, because flash has failed or \
             too many of its blocks cannot be read. ",
        )?;
        match self.dependent.as_slice() {
            [] => f.write_str(
                "All volumes run without flash: they are cached in memory only, and writes go \
                 through to their backing stores",
            ),
            dependent => write!(
                f,
                "These volumes still depend on flash: {}. Their flushes, and their writes to blocks \
                 that flash holds, wait for flush.give_up_after and then fail; all other requests \
                 are served. Keep the device: it holds dirty data",
                dependent.join(", ")
            ),
        }
    }
}

/// Blocks whose newest data cannot be read from flash: at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnreadableBlocks {
    /// Some of them: the names of their volumes, and their numbers.
    pub shown: Vec<(String, u64)>,
    /// Number of the others.
    pub more: u64,
}

impl fmt::Display for UnreadableBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the newest data ")?;
        for (n, (volume, block)) in self.shown.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}of block {block} of volume {volume}")?;
        }
        if self.more > 0 {
            write!(f, " and {} more", self.more)?;
        }
        f.write_str(
            " cannot be read from flash; reads fail until the data is overwritten or trimmed",
        )
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::News(news) => news.fmt(f),
            Fault::Lasting(fault) => fault.fmt(f),
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
                "the header of the backing store of volume {volume} could not be updated: {why}. \
                 Forebay keeps retrying. Until it succeeds, the dirty data of the volume stays on \
                 flash"
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
            Fault::Held { volume, why, disconnected } => {
                write!(
                    f,
                    "requests to volume {volume} are still held back after the quiesce, because the header of its \
                     backing store could not be written, or cached data could not be dropped: {why}. "
                )?;
                f.write_str(match disconnected {
                    false => "Forebay retries every second",
                    true => {
                        "Forebay does not reconnect: restart the server once its NBD server is back"
                    }
                })
            }
            Fault::Released { volume } => {
                write!(f, "requests to volume {volume} have resumed after the quiesce")
            }
            Fault::Resumed { volume } => {
                write!(f, "the backing store of volume {volume} accepts writes again")
            }
            Fault::Jammed { failing } => write!(
                f,
                "flash is full of dirty blocks whose backing stores are failing (volume{} {}): on all \
                 volumes, writes to blocks that flash holds fail until one of these stores accepts \
                 writes again",
                if failing.len() == 1 { "" } else { "s" },
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
    /// Whether to report now that [`Engine::end_overdue_quiesce`] has failed: less and less often while it keeps
    /// failing.
    pub fn allows_overdue(&mut self) -> bool {
        self.overdue.allow(Instant::now())
    }

    /// What has not been reported of an engine, which counts as reported from now on.
    pub(crate) fn report(&mut self, engine: &Engine) -> Vec<Fault> {
        let reported = self;
        let mut faults: Vec<Fault> = engine.take_news().into_iter().map(Fault::News).collect();
        let mut core = engine.shared.lock_anyway();
        core.unstamped.take_untold(|volume, why| {
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
                let why = engine.stores.failure(volume.volume, failure);
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
                    (Some(why), None) => Fault::Suspended { volume, why },
                    (None, _) => Fault::Resumed { volume },
                });
                *reported = suspended.is_some();
            }
        }
        for of in engine.volumes() {
            match core.holds().held().get(&of.volume) {
                Some(why) if reported.held.entry(of.volume).or_default().allow(Instant::now()) => {
                    let disconnected = engine.stores.session_failure(of.volume).is_some();
                    let (volume, why) = (of.name.clone(), why.clone());
                    faults.push(Fault::Held { volume, why, disconnected });
                }
                None if reported.held.remove(&of.volume).is_some() => {
                    faults.push(Fault::Released { volume: of.name.clone() });
                }
                _ => {}
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
        let given_up = FlashGivenUp::of(core.cache(), engine.volumes());
        drop(core);
        let given_up = given_up.map(LastingFault::FlashGivenUp);
        let unreadable = unreadable(engine).map(LastingFault::Unreadable);
        for fault in given_up.into_iter().chain(unreadable) {
            if !reported.lasting.contains(&fault) {
                reported.lasting.push(fault.clone());
                faults.push(Fault::Lasting(fault));
            }
        }
        faults
    }
}

/// The blocks that cannot be read from flash, if any.
pub(crate) fn unreadable(engine: &Engine) -> Option<UnreadableBlocks> {
    let blocks: Vec<_> = engine.shared.lock_anyway().cache().unreadable().collect();
    let name = |volume: Volume| {
        let of = engine.volumes().iter().find(|v| v.volume == volume);
        of.map_or_else(|| volume.0.to_string(), |v| v.name.clone())
    };
    let (shown, more) = blocks.split_at(blocks.len().min(UNREADABLE_SHOWN));
    let shown: Vec<_> = shown.iter().map(|&(volume, block)| (name(volume), block)).collect();
    (!shown.is_empty()).then_some(UnreadableBlocks { shown, more: more.len() as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failed_operation_is_no_plural() {
        let said = |operations| {
            let why = StoreFailure::Session("the device is full".to_owned());
            let volume = "a".to_owned();
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
