//! Admission policies: which blocks that leave memory, or are written, may enter flash.
//!
//! Flash wears with every write, and a block that is read only once is not worth the write. A
//! policy counts the accesses to a block: by frame while it is in memory, and by key afterwards, in
//! the [`History`] of a fixed number of blocks that left. The answers depend only on the calls: no
//! clock, no randomness from the machine.
//!
//! ```
//! use forebay_replacement::{Admission, AdmissionKind, AdmissionParameters, Offer};
//!
//! let nhit = AdmissionParameters::new(AdmissionKind::Nhit);
//! let mut admission = Admission::new(4, 100, &nhit).expect("nhit keeps state");
//! let offer = Offer::default();
//! admission.enter(0, 7, false, true);
//! assert!(!admission.admits(Some(0), 7, offer), "block 7 was used once");
//! admission.leave(0, 7);
//! admission.enter(0, 7, false, true);
//! assert!(admission.admits(Some(0), 7, offer), "and now twice");
//! ```

mod budget;
mod history;
mod pace;
mod popularity;
mod smq;

use core::fmt;

use crate::hash::mix;
use crate::parameters::Parameter;
use budget::Budget;
use history::History;
use pace::Pace;
use popularity::Popularity;
use smq::Smq;

/// Maximum number of parameters of a policy.
const PARAMETERS_MAX: usize = 2;

/// Generates, from one line per policy, [`AdmissionKind`] with its names, ideas, sources and
/// parameters.
macro_rules! registry {
    ($($(#[doc = $idea:literal])+ $policy:ident = $name:literal, $source:literal, $parameters:expr;)+) => {
        /// The available admission policies.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        pub enum AdmissionKind {
            $($(#[doc = $idea])+ $policy,)+
        }

        impl AdmissionKind {
            /// All policies.
            pub const ALL: &'static [AdmissionKind] = &[$(AdmissionKind::$policy),+];

            /// Its name in configurations.
            pub const fn name(self) -> &'static str {
                match self { $(AdmissionKind::$policy => $name,)+ }
            }

            /// Its idea, in a sentence.
            pub fn idea(self) -> &'static str {
                match self { $(AdmissionKind::$policy => concat!($($idea),+).trim_ascii_start(),)+ }
            }

            /// Its idea, line by line.
            pub const fn idea_lines(self) -> &'static [&'static str] {
                match self { $(AdmissionKind::$policy => &[$($idea),+],)+ }
            }

            /// Where it comes from.
            pub const fn source(self) -> &'static str {
                match self { $(AdmissionKind::$policy => $source,)+ }
            }

            /// Its parameters.
            pub const fn parameters(self) -> &'static [Parameter] {
                match self { $(AdmissionKind::$policy => $parameters,)+ }
            }
        }
    };
}

registry! {
    /// Every block enters.
    Always = "always", "folklore", &[];
    /// A block enters at its Nth access; N is `hits`, 2 by default.
    Nhit = "nhit", "Open CAS Linux, promotion policy nhit; Ajdari 2023", &[HITS, HISTORY];
    /// Like `nhit`, with an N that adapts to the load. Each second, N doubles (up to `hits`) if reads from flash
    /// are no faster than reads from the backing stores, and halves if they are at least twice as fast.
    Adaptive = "adaptive", "nhit, with N set from read latencies", &[MOST_HITS, HISTORY];
    /// With each access, a group of 16 adjacent blocks moves up in a queue of 64 levels; it moves down when
    /// other groups overtake it. Blocks enter if their group is in the upper levels.
    Smq = "smq", "Linux dm-cache, stochastic multi-queue", &[HISTORY];
    /// A block enters if it is among the most frequently used of the recently used blocks; `top` limits the
    /// share of them that may enter.
    Popularity = "popularity", "nhit, with N set from the use counts of recently used blocks", &[TOP, HISTORY];
    /// Blocks enter at random, with the given `probability`.
    Random = "random", "folklore; CacheLib's random reject admission", &[PROBABILITY];
    /// Blocks enter at random, with a probability that adapts so that, over hours, writes to flash match
    /// `writes_per_day`.
    WriteBudget = "write-budget", "Berg et al., OSDI 2020 (CacheLib's dynamic random admission)", &[WRITES_PER_DAY];
}

const HITS: Parameter = Parameter {
    name: "hits",
    unit: "accesses",
    default: 2,
    min: 1,
    max: 255,
    meaning: "number of accesses, including the current one, that a block needs to enter flash",
};

const MOST_HITS: Parameter = Parameter {
    name: "hits",
    unit: "accesses",
    default: 16,
    min: 1,
    max: 255,
    meaning: "maximum number of accesses that the policy requires before a block enters flash",
};

const HISTORY: Parameter = Parameter {
    name: "history",
    unit: "percent",
    default: 100,
    min: 1,
    max: 1000,
    meaning: "size of the history: the number of blocks outside memory that the policy can remember, as a \
              percentage of the blocks that flash can hold",
};

const TOP: Parameter = Parameter {
    name: "top",
    unit: "percent",
    default: 50,
    min: 1,
    max: 100,
    meaning: "maximum share of the recently used blocks that may enter flash, starting with the most frequently used",
};

const PROBABILITY: Parameter = Parameter {
    name: "probability",
    unit: "millionths",
    default: 500_000,
    min: 0,
    max: 1_000_000,
    meaning: "probability that a block enters flash",
};

const WRITES_PER_DAY: Parameter = Parameter {
    name: "writes_per_day",
    unit: "thousandths",
    default: 1000,
    min: 1,
    max: 1_000_000,
    meaning: "drive writes per day that the policy allows, in thousandths",
};

impl AdmissionKind {
    /// Whether its decisions depend on time, so that it cannot be simulated without.
    pub const fn needs_time(self) -> bool {
        matches!(self, AdmissionKind::WriteBudget | AdmissionKind::Adaptive)
    }

    /// Whether its decisions depend on how long reads take ([`Offer::flash`], [`Offer::stores`]).
    pub const fn goes_by_load(self) -> bool {
        matches!(self, AdmissionKind::Adaptive)
    }
}

impl fmt::Display for AdmissionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An admission policy and the values of its parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdmissionParameters {
    kind: AdmissionKind,
    values: [u32; PARAMETERS_MAX],
}

impl AdmissionParameters {
    /// A policy with the default values of its parameters.
    pub const fn new(kind: AdmissionKind) -> AdmissionParameters {
        let mut values = [0; PARAMETERS_MAX];
        let all = kind.parameters();
        assert!(all.len() <= PARAMETERS_MAX, "PARAMETERS_MAX is too small");
        let mut i = 0;
        while i < all.len() {
            values[i] = all[i].default;
            i += 1;
        }
        AdmissionParameters { kind, values }
    }

    /// The policy.
    pub fn kind(&self) -> AdmissionKind {
        self.kind
    }

    /// Sets a parameter; returns `false` if the policy has none with this name.
    ///
    /// # Errors
    /// If the value is outside the parameter's range; the error describes the range.
    pub fn set(&mut self, name: &str, value: u32) -> Result<bool, String> {
        let all = self.kind.parameters();
        let Some(index) = all.iter().position(|p| p.name == name) else { return Ok(false) };
        let Parameter { min, max, unit, .. } = all[index];
        if !(min..=max).contains(&value) {
            return Err(format!("must be from {min} to {max} {unit}"));
        }
        self.values[index] = value;
        Ok(true)
    }

    /// The value of a parameter, if the policy has it.
    pub fn get(&self, name: &str) -> Option<u32> {
        let index = self.kind.parameters().iter().position(|p| p.name == name)?;
        Some(self.values[index])
    }

    /// Number of blocks that the policy remembers after they left, for a flash tier that holds
    /// `blocks`.
    fn history(&self, blocks: u32) -> u32 {
        let share = u64::from(self.get(HISTORY.name).unwrap_or(0));
        u32::try_from(u64::from(blocks) * share / 100).unwrap_or(u32::MAX).max(1)
    }
}

/// The inputs of a decision other than the block.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Offer {
    /// The current time, in nanoseconds since an arbitrary origin.
    pub now: u64,
    /// Total number of bytes written to flash so far.
    pub written: u64,
    /// Capacity of flash in bytes.
    pub size: u64,
    /// Number of seconds that were measured so far.
    pub second: u64,
    /// Mean latency of reads from flash in the last of these seconds, in nanoseconds; 0 if there
    /// were none.
    pub flash: u64,
    /// Mean latency of reads from the backing stores in the last of these seconds, in nanoseconds;
    /// 0 if there were none.
    pub stores: u64,
}

/// An admission policy with its state; [`AdmissionKind::Always`] needs none.
#[derive(Debug)]
pub struct Admission {
    /// Number of accesses to the block in each frame since the policy has known it, up to 255.
    counts: Box<[u8]>,
    policy: AdmissionState,
}

#[derive(Debug)]
enum AdmissionState {
    Nhit { hits: u8, history: History, pace: Option<Pace> },
    Smq(Box<Smq>),
    Popularity(Popularity),
    Random { threshold: u64, drawn: u64 },
    Budget(Budget),
}

impl Admission {
    /// A policy for blocks in `frames` frames, in front of a flash tier that holds `blocks`. `None`
    /// if all blocks enter.
    pub fn new(frames: u32, blocks: u32, parameters: &AdmissionParameters) -> Option<Admission> {
        let value = |p: Parameter| parameters.get(p.name).unwrap_or(p.default);
        let policy = match parameters.kind() {
            AdmissionKind::Always => return None,
            AdmissionKind::Nhit => AdmissionState::Nhit {
                hits: value(HITS) as u8,
                history: History::new(parameters.history(blocks)),
                pace: None,
            },
            AdmissionKind::Adaptive => AdmissionState::Nhit {
                hits: 1,
                history: History::new(parameters.history(blocks)),
                pace: Some(Pace::new(value(MOST_HITS) as u8)),
            },
            AdmissionKind::Smq => {
                AdmissionState::Smq(Box::new(Smq::new(parameters.history(blocks))))
            }
            AdmissionKind::Popularity => {
                let size = parameters.history(blocks).saturating_add(frames);
                AdmissionState::Popularity(Popularity::new(size, value(TOP)))
            }
            AdmissionKind::Random => AdmissionState::Random {
                threshold: threshold(u64::from(value(PROBABILITY))),
                drawn: 0,
            },
            AdmissionKind::WriteBudget => {
                AdmissionState::Budget(Budget::new(u64::from(value(WRITES_PER_DAY))))
            }
        };
        let counts = matches!(policy, AdmissionState::Nhit { .. }).then_some(frames).unwrap_or(0);
        Some(Admission { counts: vec![0; counts as usize].into(), policy })
    }

    /// Records that a block comes into a frame. `known`: flash holds it, so it was admitted before.
    /// `access`: a client's access, which has not been counted yet, brings it in.
    #[inline]
    pub fn enter(&mut self, frame: u32, key: u64, known: bool, access: bool) {
        match &mut self.policy {
            AdmissionState::Nhit { hits, history, .. } => {
                let before = history.take(key).unwrap_or(0);
                let count = before.saturating_add(u8::from(access));
                self.counts[frame as usize] = if known { count.max(*hits) } else { count };
            }
            AdmissionState::Smq(smq) if access => smq.access(key),
            AdmissionState::Popularity(table) if access => table.access(key),
            _ => {}
        }
    }

    /// Records a client's access that finds the block in its frame.
    #[inline]
    pub fn on_access(&mut self, frame: u32, key: u64) {
        match &mut self.policy {
            AdmissionState::Nhit { .. } => {
                let count = &mut self.counts[frame as usize];
                *count = count.saturating_add(1);
            }
            AdmissionState::Smq(smq) => smq.access(key),
            AdmissionState::Popularity(table) => table.access(key),
            _ => {}
        }
    }

    /// Whether a block that a client writes, and that may be in a frame, enters flash. Under nhit
    /// and popularity this access, which has not been counted yet, counts.
    pub fn admits_write(&mut self, frame: Option<u32>, key: u64, offer: Offer) -> bool {
        self.follow(offer);
        match &mut self.policy {
            AdmissionState::Nhit { hits, history, .. } => {
                let count = frame.map_or_else(
                    || history.get(key).unwrap_or(0),
                    |frame| self.counts[frame as usize],
                );
                count.saturating_add(1) >= *hits
            }
            AdmissionState::Popularity(table) => table.admits_next(key),
            _ => self.admits(frame, key, offer),
        }
    }

    /// Whether the block, which is not on flash, enters it.
    pub fn admits(&mut self, frame: Option<u32>, key: u64, offer: Offer) -> bool {
        self.follow(offer);
        match &mut self.policy {
            AdmissionState::Nhit { hits, .. } => {
                frame.is_some_and(|frame| self.counts[frame as usize] >= *hits)
            }
            AdmissionState::Smq(smq) => smq.admits(key),
            AdmissionState::Popularity(table) => table.admits(key),
            AdmissionState::Random { threshold, drawn } => {
                *drawn += 1;
                mix(*drawn) >> 32 < *threshold
            }
            AdmissionState::Budget(budget) => budget.admits(offer),
        }
    }

    /// Adapts the required number of accesses to the load.
    fn follow(&mut self, offer: Offer) {
        if let AdmissionState::Nhit { hits, pace: Some(pace), .. } = &mut self.policy {
            *hits = pace.next(*hits, offer);
        }
    }

    /// Records that the block leaves its frame and that flash does not hold it.
    #[inline]
    pub fn leave(&mut self, frame: u32, key: u64) {
        if let AdmissionState::Nhit { history, .. } = &mut self.policy {
            history.put(key, self.counts[frame as usize]);
        }
    }

    /// Records that flash loses a block, which is not in a frame.
    pub fn lose(&mut self, key: u64) {
        if let AdmissionState::Nhit { hits, history, .. } = &mut self.policy {
            history.put(key, *hits);
        }
    }

    /// Records a client's access that reads a block from flash through a frame in which it does not
    /// stay.
    pub fn on_read_through(&mut self, key: u64) {
        match &mut self.policy {
            AdmissionState::Smq(smq) => smq.access(key),
            AdmissionState::Popularity(table) => table.access(key),
            _ => {}
        }
    }

    /// Records a client's access to a block that flash does not hold and that does not enter a
    /// frame.
    pub fn on_write_around(&mut self, key: u64) {
        match &mut self.policy {
            AdmissionState::Nhit { history, .. } => {
                let before = history.take(key).unwrap_or(0);
                history.put(key, before.saturating_add(1));
            }
            AdmissionState::Smq(smq) => smq.access(key),
            AdmissionState::Popularity(table) => table.access(key),
            _ => {}
        }
    }

    /// The memory in bytes.
    pub fn metadata_bytes(&self) -> u64 {
        let own = match &self.policy {
            AdmissionState::Nhit { history, .. } => history.metadata_bytes(),
            AdmissionState::Smq(smq) => smq.metadata_bytes(),
            AdmissionState::Popularity(table) => table.metadata_bytes(),
            AdmissionState::Random { .. } | AdmissionState::Budget(_) => 0,
        };
        own + size_of_val(&*self.counts) as u64
    }
}

/// The limit that 32 random bits are below with this probability, in millionths.
fn threshold(millionths: u64) -> u64 {
    (millionths << 32) / 1_000_000
}

impl Default for AdmissionParameters {
    /// Every block enters.
    fn default() -> AdmissionParameters {
        AdmissionParameters::new(AdmissionKind::Always)
    }
}
