//! `[replacement]`, `[admission]`, `[etica]`, `[bypass]`, `[flush]`, `[workers]`.

use std::collections::BTreeMap;

use forebay_replacement::{
    AdmissionKind, AdmissionParameters, Kind, ParameterError, Parameters, QueueParameters,
};

use crate::schema::{Choice, Value, choice, choose, section};
use crate::{Size, TimeSpan};

section! {
    /// Which block is evicted when space is needed.
    pub struct Replacement {
        /// The policy of the first tier, memory. For flash, set `flash.replacement`.
        policy: ReplacementPolicy = "lru";
        /// Parameters of the policy, by name; parameters that are not listed keep their defaults.
        parameters: BTreeMap<String, u32> = {};
    }
}

/// The replacement policy for memory: a policy of `forebay_replacement`, by its name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReplacementPolicy(pub Kind);

const POLICIES: [Choice; Kind::ALL.len()] = {
    let mut choices = [Choice { name: "", doc: &[] }; Kind::ALL.len()];
    let mut n = 0;
    while n < choices.len() {
        let kind = Kind::ALL[n];
        choices[n] = Choice { name: kind.name(), doc: kind.idea_lines() };
        n += 1;
    }
    choices
};

impl Value for ReplacementPolicy {
    const WORD: &'static str = "replacement policy";
    const CHOICES: &'static [Choice] = &POLICIES;
}

impl ReplacementPolicy {
    /// The name in the configuration file.
    pub const fn name(self) -> &'static str {
        self.0.name()
    }
}

impl core::str::FromStr for ReplacementPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        choose(Self::WORD, Self::CHOICES, text).map(|index| ReplacementPolicy(Kind::ALL[index]))
    }
}

impl core::fmt::Display for ReplacementPolicy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

crate::schema::read_from_text!(ReplacementPolicy);

impl Replacement {
    /// The policy with its parameters.
    ///
    /// # Errors
    /// Returns the name of a parameter that the policy does not have or that is out of range, and
    /// the error.
    pub fn parameters(&self) -> Result<Parameters, (&str, ParameterError)> {
        Parameters::from_names(self.policy.0, &self.parameters)
    }
}

section! {
    /// Which blocks may enter flash. The policy decides what happens to blocks that leave memory and, under
    /// write-back with `acknowledge = "flash"`, to blocks that are written. A dirty block that is not
    /// admitted goes to the backing store, and its write is acknowledged once the store has completed it. A
    /// newer version of a block that is on flash always goes to flash, and so does data that a client's flush
    /// must make durable.
    pub struct Admission {
        /// The admission policy.
        policy: AdmissionPolicy = "always";
        /// Whether the policy also applies to dirty blocks.
        written: Written = "ask";
        /// Under `nhit`, the number of accesses that a block needs to enter; under `adaptive`, the maximum of
        /// this number: 1 to 255. Unset means 2, or 16 under `adaptive`.
        hits: Option<u32> = unset;
        /// Under `random`, the probability that a block enters: 0 to 1. Unset means 0.5.
        probability: Option<f64> = unset;
        /// Drive writes per day that `write-budget` allows, averaged over hours: how many times a day flash
        /// may be written in full, from 0.001 to 1000. All writes to flash count. Unset means 1.
        writes_per_day: Option<f64> = unset;
        /// Under `popularity`, the maximum share of recently used blocks that may enter, starting with the most
        /// frequently used: 0.01 to 1. Unset means 0.5.
        top: Option<f64> = unset;
        /// How many blocks `nhit`, `adaptive` and `popularity` remember after the blocks leave memory, as a
        /// share of the blocks that flash can hold: 0.01 to 10. Each remembered block takes 25 to 29 bytes of
        /// memory. `smq` remembers groups of 16 adjacent blocks instead: the groups cover four times as many
        /// blocks as this share, and take 7 to 8 bytes of memory per block of the share. Unset means 1.
        history: Option<f64> = unset;
    }
}

section! {
    /// The queues of the relation `etica`, which choose the blocks that flash keeps. They take a fixed amount
    /// of memory: about 45 bytes for each block that flash can hold, and as much for each remembered block
    /// that is not on flash.
    pub struct Etica {
        /// Number of requests per round. At the end of a round, some blocks leave flash and others enter it.
        interval: u32 = 1000;
        /// At the end of each round, this share of the blocks on flash leaves (the least popular blocks), and
        /// this share of the other remembered blocks enters (the most popular blocks, until flash is full):
        /// 0.01 to 1.
        share: f64 = 0.05;
        /// How many blocks that are not on flash are remembered, as a share of the blocks that flash can
        /// hold: 0.01 to 10.
        history: f64 = 1.0;
        /// Number of rounds after which popularity is halved; 0 for never.
        half_life: u32 = 16;
    }
}

impl Etica {
    /// The parameters of the queues.
    ///
    /// # Errors
    /// Returns the keys that are out of range, with their ranges.
    pub fn parameters(&self) -> Result<QueueParameters, Vec<(&'static str, String)>> {
        let percent = |share: f64| (share * 100.0).round().clamp(0.0, 1e6) as u32;
        let parameters = QueueParameters {
            interval: self.interval,
            share: percent(self.share),
            history: percent(self.history),
            half_life: self.half_life,
        };
        let (share, history) = (QueueParameters::SHARE, QueueParameters::HISTORY);
        let wrong: Vec<_> = [
            (QueueParameters::INTERVAL, parameters.interval, 1),
            (share, parameters.share, 100),
            (history, parameters.history, 100),
            (QueueParameters::HALF_LIFE, parameters.half_life, 1),
        ]
        .into_iter()
        .filter(|(p, value, _)| !(p.min..=p.max).contains(value))
        .map(|(p, _, unit)| {
            let [min, max] = [p.min, p.max].map(|n| f64::from(n) / f64::from(unit));
            (p.name, format!("must be from {min} to {max}"))
        })
        .collect();
        if wrong.is_empty() { Ok(parameters) } else { Err(wrong) }
    }
}

section! {
    /// Which requests bypass the cache. Blocks that the cache holds are never bypassed: reads hit
    /// them, and writes to them are handled as they would be without a bypass. One exception: under
    /// write-back, a write that bypasses the cache drops a clean block that is only in memory.
    pub struct Bypass {
        /// A read that continues a sequential stream of at least this size is not cached. Unset means that no
        /// read bypasses the cache.
        reads: Option<Size> = unset;
        /// A write that continues a sequential stream of at least this size goes to the backing store. Unset
        /// means that no write bypasses the cache for this reason.
        writes: Option<Size> = unset;
        /// A write goes to the backing store while at least this much of its volume is dirty. Unset means
        /// that no write bypasses the cache for this reason.
        dirty: Option<Size> = unset;
    }
}

choice! {
    /// Which dirty blocks may enter flash.
    pub enum Written: "rule for written blocks" {
        /// Dirty blocks enter if the policy admits them.
        Ask = "ask",
        /// All dirty blocks enter: the policy applies only to clean blocks. With the policy `random` and a
        /// probability of 0, flash caches only writes.
        Enter = "enter",
        /// No dirty block enters if it can go to the backing store. With the policy `always`, flash caches
        /// only reads.
        Avoid = "avoid",
    }
}

/// The admission policy for flash: a policy of `forebay_replacement`, by its name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AdmissionPolicy(pub AdmissionKind);

const ADMISSION_POLICIES: [Choice; AdmissionKind::ALL.len()] = {
    let mut choices = [Choice { name: "", doc: &[] }; AdmissionKind::ALL.len()];
    let mut n = 0;
    while n < choices.len() {
        let kind = AdmissionKind::ALL[n];
        choices[n] = Choice { name: kind.name(), doc: kind.idea_lines() };
        n += 1;
    }
    choices
};

impl Value for AdmissionPolicy {
    const WORD: &'static str = "admission policy";
    const CHOICES: &'static [Choice] = &ADMISSION_POLICIES;
}

impl core::str::FromStr for AdmissionPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let index = choose(Self::WORD, Self::CHOICES, text)?;
        Ok(AdmissionPolicy(AdmissionKind::ALL[index]))
    }
}

impl core::fmt::Display for AdmissionPolicy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

crate::schema::read_from_text!(AdmissionPolicy);

impl Admission {
    /// The policy with its parameters.
    ///
    /// # Errors
    /// Returns each key that is out of range or that the policy does not have, with the reason.
    pub fn parameters(&self) -> Result<AdmissionParameters, Vec<(&'static str, String)>> {
        let kind = self.policy.0;
        let mut parameters = AdmissionParameters::new(kind);
        let mut wrong = Vec::new();
        // The key, its value, and the factor that makes it a whole number.
        for (key, value, scale) in [
            ("hits", self.hits.map(f64::from), 1.0),
            ("probability", self.probability, 1e6),
            ("writes_per_day", self.writes_per_day, 1e3),
            ("top", self.top, 1e2),
            ("history", self.history, 1e2),
        ] {
            let Some(value) = value else { continue };
            let Some(p) = kind.parameters().iter().find(|p| p.name == key) else {
                wrong.push((key, format!("has no effect with the admission policy `{kind}`")));
                continue;
            };
            let (least, most) = (f64::from(p.min) / scale, f64::from(p.max) / scale);
            if (least..=most).contains(&value) {
                // The value was just checked against the same range.
                let set = parameters.set(key, (value * scale).round() as u32);
                debug_assert!(set.is_ok(), "{key} = {value}: {set:?}");
            } else {
                wrong.push((key, format!("must be from {least} to {most}")));
            }
        }
        if wrong.is_empty() { Ok(parameters) } else { Err(wrong) }
    }
}

section! {
    /// When dirty blocks are written to the backing store.
    pub struct Flush {
        /// What happens to dirty blocks when the server stops.
        on_stop: OnStop = "destage";
        /// Maximum number of writes in flight from flash to the backing stores, for each shard. A write
        /// covers one block or several adjacent blocks.
        parallel: u32 = 32;
        /// How long a backing store may have been failing while writes wait for flash space that it keeps from
        /// becoming free. After this time, writes to the store's volume fail until the store accepts an operation
        /// again; reads continue, and dirty data stays on flash. 0 means no limit.
        give_up_after: TimeSpan = "60s";
        /// Interval at which Forebay updates the headers of the backing stores and of the flash tier while
        /// anything changes: at least 10ms. Each header records the state of the other side. At startup,
        /// Forebay can therefore detect that one side is an older copy, unless the copy was made after the
        /// last update.
        stamp_every: TimeSpan = "5s";
    }
}

choice! {
    /// What happens to dirty blocks when the server stops.
    pub enum OnStop: "stop mode" {
        /// Dirty blocks are destaged to the backing stores, which then hold the newest data of all blocks.
        Destage = "destage",
        /// Dirty blocks stay on flash, where they are durable, and the server continues with them when it
        /// next starts. Stopping is quick. Requires a `[flash]` section.
        Keep = "keep",
    }
}

section! {
    /// How the work is distributed over processors.
    pub struct Workers {
        /// Number of shards of the cache, 1 to 64. 0 means 1. Each shard has its own part of memory and replaces
        /// blocks independently. Keep 1, except to measure how many hits such a division costs: more shards add no
        /// parallelism, because one lock protects all of them.
        shards: u32 = 0;
        /// Maximum number of requests in progress; further requests wait outside the cache.
        requests_max: u32 = 1024;
    }
}
