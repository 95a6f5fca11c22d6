//! ETICA's queues choose, once in an interval of requests, the blocks that leave flash and those
//! that enter it.
//!
//! A table holds the blocks that are on flash and other blocks that were used, the *candidates*,
//! each with its popularity: the sum over its accesses of exp(−d / size), where d is the number of
//! other blocks of the table that were used since the previous access, and size is the number of
//! blocks that flash holds. At the end of an interval, a share of the blocks on flash leave it, the
//! least popular first. Then a share of the candidates enter, the most popular first, as far as
//! there is free room.
//!
//! The paper leaves some questions open. The answers here:
//!
//! - *Which accesses count.* Those that flash would answer: all writes, and the reads that memory
//!   does not answer. The caller reports no others, so distances count only accesses that reach
//!   flash.
//! - *How long an access counts.* Popularity is halved every `half_life` intervals.
//! - *Memory* is fixed: the table has room for all blocks of flash and for `history` percent as
//!   many candidates. A new candidate replaces the least popular one.
//! - *Precision.* Distances are rounded down to multiples of a [32nd](PARTS) of the table.
//!   Popularities are compared by classes, four to an octave; in one class, the block that was used
//!   longest ago is the least popular. A first access is worth a 256th of one that immediately
//!   follows another.
//!
//! An access takes constant time: the order by recency is cut into parts of equal size, whose ends
//! move by one entry, and halving moves the classes instead of the blocks.
//!
//! Source: Ahmadian et al., *ETICA*, section 4.2. Performs badly if the set of popular blocks changes
//! within an interval.

use crate::ghosts::Ghosts;
use crate::links::{Links, List};
use crate::parameters::Parameter;

/// Number of parts into which the table is cut by recency.
pub const PARTS: usize = 32;
/// Popularity of an access that immediately follows another to the same block.
const UNIT: u64 = 256;
/// Number of popularity classes per octave.
const STEPS: u32 = 4;
/// Number of classes with a list: those of all 32-bit values.
const CLASSES: u32 = 32 * STEPS;
const NONE: u32 = u32::MAX;

/// The parameters of the queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueParameters {
    /// Number of requests in an interval.
    pub interval: u32,
    /// Maximum percentage of the blocks on flash that leave it in an interval, and of the
    /// candidates that enter.
    pub share: u32,
    /// Number of candidates that are remembered, as a percentage of the blocks that flash holds.
    pub history: u32,
    /// Number of intervals after which popularity is halved; 0 for never.
    pub half_life: u32,
}

impl QueueParameters {
    /// Number of requests in an interval.
    pub const INTERVAL: Parameter = Parameter {
        name: "interval",
        unit: "requests",
        default: 1000,
        min: 1,
        max: 1_000_000_000,
        meaning: "requests per round; at the end of each round, blocks leave and enter flash",
    };
    /// Share of the blocks that leave and enter.
    pub const SHARE: Parameter = Parameter {
        name: "share",
        unit: "percent",
        default: 5,
        min: 1,
        max: 100,
        meaning: "share of the blocks on flash that are evicted per round, least popular first, \
                  and share of the candidates that are admitted, most popular first",
    };
    /// Number of candidates that are remembered.
    pub const HISTORY: Parameter = Parameter {
        name: "history",
        unit: "percent",
        default: 100,
        min: 1,
        max: 1000,
        meaning: "number of candidates remembered, as a share of the blocks that flash holds",
    };
    /// How soon popularity is halved.
    pub const HALF_LIFE: Parameter = Parameter {
        name: "half_life",
        unit: "intervals",
        default: 16,
        min: 0,
        max: 1_000_000,
        meaning: "number of rounds after which popularity is halved; 0 for never",
    };
}

impl Default for QueueParameters {
    fn default() -> QueueParameters {
        QueueParameters {
            interval: QueueParameters::INTERVAL.default,
            share: QueueParameters::SHARE.default,
            history: QueueParameters::HISTORY.default,
            half_life: QueueParameters::HALF_LIFE.default,
        }
    }
}

/// Where a block of the table is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Candidate,
    Flash,
    /// Chosen to leave flash.
    Leaving,
    /// Chosen to enter flash.
    Entering,
}

/// The popularity of a block when it was last changed, and the number of halvings until then.
#[derive(Clone, Copy, Debug, Default)]
struct Popularity {
    value: u32,
    halvings: u32,
}

/// Blocks by class of popularity.
#[derive(Debug)]
struct Classes {
    /// A ring with a list for each class.
    lists: [List; CLASSES as usize],
    /// The lists that are not empty, as bits.
    occupied: u128,
    /// Blocks whose class has fallen below all classes with a list, the least popular at the back.
    below: List,
    len: u32,
}

/// The stage of the current round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// No round: requests are counted.
    Counting,
    Evicting {
        left: u32,
    },
    Promoting {
        left: u32,
        begun: bool,
    },
    /// The blocks chosen to enter are in flight.
    Settling,
}

/// See the module.
#[derive(Debug)]
pub struct Queues {
    parameters: QueueParameters,
    /// The known blocks, in order of their last use.
    table: Ghosts<1>,
    size: u32,
    /// The popularity of each entry of the table.
    popularity: Box<[Popularity]>,
    places: Box<[Place]>,
    /// The part of the order in which each entry is.
    parts: Box<[u8]>,
    /// The first entry of each part.
    firsts: [u32; PARTS],
    /// Number of entries in a part.
    part: u32,
    /// What an access to an entry of each part adds.
    weights: [u32; PARTS],
    links: Links,
    candidates: Classes,
    on_flash: Classes,
    leaving: List,
    entering: List,
    halvings: u32,
    /// Intervals since the last halving.
    intervals: u32,
    requests: u32,
    stage: Stage,
    stopped: bool,
}

impl Classes {
    const EMPTY: Classes =
        Classes { lists: [List::EMPTY; CLASSES as usize], occupied: 0, below: List::EMPTY, len: 0 };

    fn push(&mut self, links: &mut Links, entry: u32, class: Option<u32>) {
        match class {
            Some(class) => {
                links.push_front(&mut self.lists[class as usize], entry);
                self.occupied |= 1 << class;
            }
            None => links.push_front(&mut self.below, entry),
        }
        self.len += 1;
    }

    fn remove(&mut self, links: &mut Links, entry: u32, class: Option<u32>) {
        match class {
            Some(class) => {
                let list = &mut self.lists[class as usize];
                links.remove(list, entry);
                self.occupied &= !(u128::from(list.is_empty()) << class);
            }
            None => links.remove(&mut self.below, entry),
        }
        self.len -= 1;
    }

    /// The least popular block; `lowest` is the lowest class of the ring.
    fn least(&self, lowest: u32) -> Option<u32> {
        let n = self.occupied.rotate_right(lowest).trailing_zeros();
        let class = ((lowest + n) % CLASSES) as usize;
        self.below.back().or_else(|| (n < CLASSES).then(|| self.lists[class].back()).flatten())
    }

    /// The most popular block.
    fn most(&self, lowest: u32) -> Option<u32> {
        let n = self.occupied.rotate_right(lowest).leading_zeros();
        if n == CLASSES {
            return self.below.front();
        }
        self.lists[((lowest + CLASSES - 1 - n) % CLASSES) as usize].front()
    }

    /// Moves the lowest octave of classes below all others.
    fn sink(&mut self, links: &mut Links, lowest: u32) {
        for class in lowest..lowest + STEPS {
            let mut list = core::mem::take(&mut self.lists[class as usize]);
            links.append(&mut list, &mut self.below);
            self.below = list;
            self.occupied &= !(1 << class);
        }
    }
}

impl Queues {
    /// Queues for a flash tier that holds `blocks`, and temporarily up to `most`.
    pub fn new(blocks: u32, most: u32, parameters: QueueParameters) -> Queues {
        let blocks = blocks.max(1);
        let history = u64::from(blocks) * u64::from(parameters.history) / 100;
        let size = (u64::from(most) + history.max(1)).min(u64::from(u32::MAX / 2)) as u32;
        let table = Ghosts::new(size);
        let entries = table.entries() as usize;
        let part = size.div_ceil(PARTS as u32);
        let weight = |n: usize| weight(n as u64 * u64::from(part), blocks.into());
        Queues {
            parameters,
            table,
            size,
            popularity: vec![Popularity::default(); entries].into(),
            places: vec![Place::Candidate; entries].into(),
            parts: vec![0; entries].into(),
            firsts: [NONE; PARTS],
            part,
            weights: core::array::from_fn(weight),
            links: Links::new(entries as u32),
            candidates: Classes::EMPTY,
            on_flash: Classes::EMPTY,
            leaving: List::EMPTY,
            entering: List::EMPTY,
            halvings: 0,
            intervals: 0,
            requests: 0,
            stage: Stage::Counting,
            stopped: false,
        }
    }

    /// The memory in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let own = size_of_val(&*self.popularity)
            + size_of_val(&*self.places)
            + size_of_val(&*self.parts)
            + size_of::<Queues>();
        self.table.memory_bytes() + self.links.memory_bytes() + own as u64
    }

    // ---- popularity ----

    /// Records a client's access that memory does not answer.
    pub fn access(&mut self, key: u64) {
        let Some(entry) = self.table.entry(key) else {
            self.insert(key, Place::Candidate);
            return;
        };
        self.unlist(entry);
        let weight = self.weights[usize::from(self.parts[entry as usize])];
        let Popularity { value, halvings } = self.popularity[entry as usize];
        let kept = value.checked_shr(self.halvings - halvings).unwrap_or(0);
        self.set_popularity(entry, kept.saturating_add(weight));
        self.renew(entry);
        // A block that is used after it was chosen to leave may stay.
        if self.places[entry as usize] == Place::Leaving {
            self.places[entry as usize] = Place::Flash;
        }
        self.list(entry);
    }

    /// Records that flash has the block from now on.
    pub fn enters_flash(&mut self, key: u64) {
        match self.table.entry(key) {
            Some(entry) => self.move_to(entry, Place::Flash),
            None => self.insert(key, Place::Flash),
        }
    }

    /// Records that flash does not have the block any more.
    pub fn leaves_flash(&mut self, key: u64) {
        if let Some(entry) = self.table.entry(key) {
            self.move_to(entry, Place::Candidate);
        }
    }

    /// Number of known blocks on flash, and of candidates.
    pub fn known(&self) -> (u32, u32) {
        (self.on_flash.len + self.leaving.len(), self.candidates.len + self.entering.len())
    }

    fn insert(&mut self, key: u64, place: Place) {
        if self.table.len(0) >= self.size {
            let Some(least) = self.candidates.least(self.lowest()) else { return };
            self.unlist(least);
            self.close_gap(least);
            self.table.remove(self.table.key(least));
        }
        let entry = self.table.push(0, key);
        self.open_gap();
        self.parts[entry as usize] = 0;
        self.places[entry as usize] = place;
        self.set_popularity(entry, 1);
        self.list(entry);
    }

    fn set_popularity(&mut self, entry: u32, value: u32) {
        self.popularity[entry as usize] = Popularity { value, halvings: self.halvings };
    }

    fn move_to(&mut self, entry: u32, place: Place) {
        self.unlist(entry);
        self.places[entry as usize] = place;
        self.list(entry);
    }

    /// The lowest class of the ring.
    fn lowest(&self) -> u32 {
        (u64::from(self.halvings) * u64::from(STEPS) % u64::from(CLASSES)) as u32
    }

    /// The list of an entry's class; `None` if it has fallen below all lists.
    fn class(&self, entry: u32) -> Option<u32> {
        let Popularity { value, halvings } = self.popularity[entry as usize];
        let octave = value.ilog2();
        let class =
            octave * STEPS + ((u64::from(value) * u64::from(STEPS)) >> octave) as u32 % STEPS;
        let fallen = u64::from(self.halvings - halvings) * u64::from(STEPS);
        (u64::from(class) >= fallen)
            .then(|| (self.lowest() + (u64::from(class) - fallen) as u32) % CLASSES)
    }

    fn list(&mut self, entry: u32) {
        let class = self.class(entry);
        match self.places[entry as usize] {
            Place::Candidate => self.candidates.push(&mut self.links, entry, class),
            Place::Flash => self.on_flash.push(&mut self.links, entry, class),
            Place::Leaving => self.links.push_front(&mut self.leaving, entry),
            Place::Entering => self.links.push_front(&mut self.entering, entry),
        }
    }

    fn unlist(&mut self, entry: u32) {
        let class = self.class(entry);
        match self.places[entry as usize] {
            Place::Candidate => self.candidates.remove(&mut self.links, entry, class),
            Place::Flash => self.on_flash.remove(&mut self.links, entry, class),
            Place::Leaving => self.links.remove(&mut self.leaving, entry),
            Place::Entering => self.links.remove(&mut self.entering, entry),
        }
    }

    // ---- parts of the order by recency ----

    /// Adjusts the parts after an insertion at the front: the last entry of each part moves to the
    /// next part.
    fn open_gap(&mut self) {
        for n in 1..PARTS {
            let first = match self.firsts[n] {
                NONE if self.table.len(0) > n as u32 * self.part => self.table.oldest(0),
                NONE => return,
                first => self.table.neighbours(first)[0],
            };
            self.set_first(n, first);
        }
    }

    /// Adjusts the parts before the removal of an entry: the first entry of each part behind it
    /// moves to the previous part.
    fn close_gap(&mut self, entry: u32) {
        let part = usize::from(self.parts[entry as usize]);
        for n in part.max(1)..PARTS {
            let first = self.firsts[n];
            if first == NONE {
                return;
            }
            if n > part || first == entry {
                self.parts[first as usize] = n as u8 - 1;
                self.set_first(n, self.table.neighbours(first)[1]);
            }
        }
    }

    /// Moves an entry to the front: the last entry of each part before it moves to the next part.
    fn renew(&mut self, entry: u32) {
        for n in 1..=usize::from(self.parts[entry as usize]) {
            self.set_first(n, self.table.neighbours(self.firsts[n])[0]);
        }
        self.parts[entry as usize] = 0;
        self.table.renew(0, entry);
    }

    fn set_first(&mut self, part: usize, entry: Option<u32>) {
        self.firsts[part] = entry.unwrap_or(NONE);
        if let Some(entry) = entry {
            self.parts[entry as usize] = part as u8;
        }
    }

    // ---- rounds ----

    /// Counts a client's request. At the end of an interval a round begins, if the previous one is
    /// over.
    #[inline]
    pub fn count_request(&mut self) {
        self.requests = self.requests.saturating_add(1);
        if self.requests >= self.parameters.interval && self.stage == Stage::Counting {
            self.begin();
        }
    }

    /// Ends the current round and begins no others.
    pub fn stop(&mut self) {
        self.stopped = true;
        self.stage = Stage::Counting;
    }

    /// Whether a round is in progress.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.stage != Stage::Counting
    }

    fn begin(&mut self) {
        self.requests = 0;
        if self.stopped {
            return;
        }
        self.intervals += 1;
        if self.intervals == self.parameters.half_life {
            self.intervals = 0;
            let lowest = self.lowest();
            self.candidates.sink(&mut self.links, lowest);
            self.on_flash.sink(&mut self.links, lowest);
            self.halvings += 1;
        }
        self.stage = Stage::Evicting { left: self.share_of(self.on_flash.len) };
    }

    fn share_of(&self, blocks: u32) -> u32 {
        (u64::from(blocks) * u64::from(self.parameters.share)).div_ceil(100) as u32
    }

    /// Chooses the next block to leave flash; `None` if this round has chosen all of them.
    pub fn next_eviction(&mut self) -> Option<u64> {
        let Stage::Evicting { left } = self.stage else { return None };
        let least = (left > 0).then(|| self.on_flash.least(self.lowest())).flatten();
        let Some(entry) = least else {
            self.stage =
                Stage::Promoting { left: self.share_of(self.candidates.len), begun: false };
            return None;
        };
        self.stage = Stage::Evicting { left: left - 1 };
        self.move_to(entry, Place::Leaving);
        Some(self.table.key(entry))
    }

    /// The next of the blocks chosen to leave flash, round robin.
    pub fn next_leaving(&mut self) -> Option<u64> {
        let entry = self.leaving.back()?;
        self.links.move_to_front(&mut self.leaving, entry);
        Some(self.table.key(entry))
    }

    /// Chooses the next block to enter flash, which has room for `free` blocks, including those
    /// that are entering. `None` if this round has chosen all of them.
    pub fn next_promotion(&mut self, free: u32) -> Option<u64> {
        let Stage::Promoting { left, begun } = self.stage else { return None };
        let room = left > 0 && free > self.entering.len();
        let Some(entry) = room.then(|| self.candidates.most(self.lowest())).flatten() else {
            self.stage = Stage::Settling;
            return None;
        };
        self.stage = Stage::Promoting { left: left - 1, begun };
        self.move_to(entry, Place::Entering);
        Some(self.table.key(entry))
    }

    /// Takes back the last choice of [`next_promotion`](Self::next_promotion), which will choose
    /// the block again.
    pub fn put_back(&mut self, key: u64) {
        if let Stage::Promoting { left, .. } = &mut self.stage {
            *left += 1;
        }
        self.leaves_flash(key);
    }

    /// Among the blocks chosen to enter flash, the one chosen first.
    pub fn oldest_entering(&self) -> Option<u64> {
        self.entering.back().map(|entry| self.table.key(entry))
    }

    /// Whether the round is choosing the blocks that enter flash.
    pub fn is_promoting(&self) -> bool {
        matches!(self.stage, Stage::Promoting { .. })
    }

    /// Whether the choice of the blocks that enter begins with this call: true once in a round.
    pub fn begins_promoting(&mut self) -> bool {
        let Stage::Promoting { begun, .. } = &mut self.stage else { return false };
        !core::mem::replace(begun, true)
    }

    /// Ends the round if all blocks have been chosen; the caller has none in flight. Returns
    /// whether this call ended it.
    pub fn end(&mut self) -> bool {
        debug_assert!(self.entering.is_empty());
        let ends = self.stage == Stage::Settling;
        if ends {
            self.stage = Stage::Counting;
        }
        ends
    }
}

/// [`UNIT`] times exp(−distance / size), at least 1. The result is the same on every machine.
fn weight(distance: u64, size: u64) -> u32 {
    const ONE: u64 = 1 << 32;
    let times = |a: u64, b: u64| ((u128::from(a) * u128::from(b)) >> 32) as u64;
    // exp(−x) is the 256th power of exp(−x / 256), for which five terms of the series suffice.
    let y = ((u128::from(distance) << 24) / u128::from(size)).min(u128::from(ONE / 8)) as u64;
    let (y2, y3, y4) = (times(y, y), times(times(y, y), y), times(times(y, y), times(y, y)));
    let root = ONE - y + y2 / 2 - y3 / 6 + y4 / 24;
    let power = (0..8).fold(root, |root, _| times(root, root));
    (times(power, UNIT).max(1)) as u32
}
