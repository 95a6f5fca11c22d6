//! Goal: the queues choose what a naive reading of ETICA's section 4.2 chooses, block for block.
//!
//! Method: the naive version keeps a list of all known blocks in the order of their last use,
//! searches it from end to end for everything, and computes popularities with `f64::exp`. Both get
//! the same random accesses, and go through the same rounds.

use forebay_replacement::{QueueParameters, Queues};

const PARTS: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Candidate,
    Flash,
    Leaving,
    Entering,
}

#[derive(Clone, Debug)]
struct Block {
    key: u64,
    value: u64,
    halvings: u32,
    place: Place,
    /// Its class when it was last used or changed its place, and the time of that.
    rank: (i64, u64),
}

/// All known blocks, the most recently used first.
struct Naive {
    blocks: Vec<Block>,
    parameters: QueueParameters,
    flash: u64,
    size: usize,
    halvings: u32,
    intervals: u32,
    now: u64,
}

impl Naive {
    fn new(flash: u32, most: u32, parameters: QueueParameters) -> Naive {
        let size = most as usize + (flash as usize * parameters.history as usize / 100).max(1);
        let flash = u64::from(flash);
        Naive { blocks: Vec::new(), parameters, flash, size, halvings: 0, intervals: 0, now: 0 }
    }

    fn at(&self, key: u64) -> Option<usize> {
        self.blocks.iter().position(|b| b.key == key)
    }

    /// Computes the class: four to an octave of the value in units of before the first halving.
    fn ranked(&mut self, mut block: Block) -> Block {
        let octave = (block.value as f64).log2().floor();
        let quarter = ((block.value as f64 / octave.exp2() - 1.0) * 4.0).floor();
        let class = 4 * i64::from(block.halvings) + 4 * octave as i64 + quarter as i64;
        self.now += 1;
        block.rank = (class.max(4 * i64::from(self.halvings) - 1), self.now);
        block
    }

    fn access(&mut self, key: u64) {
        let Some(at) = self.at(key) else { return self.add(key, Place::Candidate) };
        let part = self.size.div_ceil(PARTS);
        let distance = (at / part * part) as f64;
        let weight = (256.0 * (-distance / self.flash as f64).exp()).floor().max(1.0) as u64;
        let mut block = self.blocks.remove(at);
        let faded = self.halvings - block.halvings;
        block.value = if faded < 32 { block.value >> faded } else { 0 } + weight;
        block.halvings = self.halvings;
        if block.place == Place::Leaving {
            block.place = Place::Flash;
        }
        let block = self.ranked(block);
        self.blocks.insert(0, block);
    }

    fn add(&mut self, key: u64, place: Place) {
        if self.blocks.len() == self.size {
            let Some(least) = self.least(Place::Candidate) else { return };
            self.blocks.remove(least);
        }
        let block = Block { key, value: 1, halvings: self.halvings, place, rank: (0, 0) };
        let block = self.ranked(block);
        self.blocks.insert(0, block);
    }

    fn put(&mut self, key: u64, place: Place) {
        match self.at(key) {
            Some(at) => {
                let mut block = self.blocks[at].clone();
                block.place = place;
                self.blocks[at] = self.ranked(block);
            }
            None if place == Place::Flash => self.add(key, place),
            None => {}
        }
    }

    fn positions(&self, place: Place) -> impl Iterator<Item = usize> + '_ {
        (0..self.blocks.len()).filter(move |&at| self.blocks[at].place == place)
    }

    fn least(&self, place: Place) -> Option<usize> {
        self.positions(place).min_by_key(|&at| self.blocks[at].rank)
    }

    fn most(&self, place: Place) -> Option<usize> {
        self.positions(place).max_by_key(|&at| self.blocks[at].rank)
    }

    fn share(&self, place: Place) -> usize {
        (self.positions(place).count() * self.parameters.share as usize).div_ceil(100)
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % n
    }
}

/// Runs the due round in both. Returns the number of blocks that have left flash, and that of those
/// that entered.
fn round(queues: &mut Queues, naive: &mut Naive, free: u32, random: &mut Random) -> [usize; 2] {
    naive.intervals += 1;
    if naive.intervals == naive.parameters.half_life {
        (naive.intervals, naive.halvings) = (0, naive.halvings + 1);
    }
    let mut left = Vec::new();
    for _ in 0..naive.share(Place::Flash) {
        let key = naive.blocks[naive.least(Place::Flash).unwrap()].key;
        naive.put(key, Place::Leaving);
        left.push(key);
    }
    let chosen: Vec<_> = std::iter::from_fn(|| queues.next_eviction()).collect();
    assert_eq!(chosen, left, "what leaves flash");
    let most = naive.share(Place::Candidate);
    // Some blocks do not leave at once.
    let stay: Vec<_> = left.iter().copied().filter(|_| random.below(8) == 0).collect();
    for &key in left.iter().filter(|key| !stay.contains(key)) {
        naive.put(key, Place::Candidate);
        queues.leaves_flash(key);
    }
    let mut entered = Vec::new();
    for n in 0..most {
        let room = free as usize > n;
        let Some(at) = naive.most(Place::Candidate).filter(|_| room) else { break };
        let key = naive.blocks[at].key;
        naive.put(key, Place::Entering);
        entered.push(key);
    }
    assert!(queues.is_promoting() && queues.is_busy());
    let chosen: Vec<_> = std::iter::from_fn(|| queues.next_promotion(free)).collect();
    assert_eq!(chosen, entered, "what enters flash");
    for &key in &entered {
        assert_eq!(queues.oldest_entering(), Some(key));
        match random.below(5) {
            0 => {
                naive.put(key, Place::Candidate);
                queues.leaves_flash(key);
            }
            _ => {
                naive.put(key, Place::Flash);
                queues.enters_flash(key);
            }
        }
    }
    assert!(queues.end() && !queues.is_busy());
    // The blocks that stayed are needed again, or may be chosen again.
    for key in stay {
        naive.put(key, Place::Flash);
        queues.enters_flash(key);
    }
    [left.len(), entered.len()]
}

fn compare(flash: u32, most: u32, keys: u64, parameters: QueueParameters, seed: u64) {
    let (mut queues, mut random) = (Queues::new(flash, most, parameters), Random(seed));
    let mut naive = Naive::new(flash, most, parameters);
    let bytes = queues.memory_bytes();
    let mut moved = [0, 0];
    for n in 0..20_000_u64 {
        // The set of popular blocks moves.
        let key = n / 4000 + random.below(keys) * random.below(keys) / keys;
        naive.access(key);
        queues.access(key);
        queues.count_request();
        assert_eq!(queues.is_busy(), (n + 1) % u64::from(parameters.interval) == 0);
        if queues.is_busy() {
            let free = flash.saturating_sub(naive.positions(Place::Flash).count() as u32);
            let [left, entered] = round(&mut queues, &mut naive, free, &mut random);
            moved = [moved[0] + left, moved[1] + entered];
        }
        let of = |place| naive.positions(place).count() as u32;
        let known = (of(Place::Flash) + of(Place::Leaving), of(Place::Candidate));
        assert_eq!(queues.known(), known);
    }
    assert!(moved[0] > 50 && moved[1] > 50, "{moved:?}");
    assert_eq!(queues.memory_bytes(), bytes, "memory is fixed");
}

#[test]
fn the_queues_choose_what_a_list_of_all_blocks_chooses() {
    let all = QueueParameters::default();
    for (n, half_life) in [1, 2, 7, 0].into_iter().enumerate() {
        let small = QueueParameters { interval: 20, share: 10, history: 200, half_life };
        compare(10, 12, 60, small, n as u64);
        let large = QueueParameters { interval: 100, half_life, ..all };
        compare(100, 120, 500, large, 10 + n as u64);
        // Fewer blocks than the table holds, and larger shares.
        compare(150, 150, 200, QueueParameters { share: 50, ..large }, 20 + n as u64);
    }
}

#[test]
fn a_block_that_is_used_often_outweighs_one_that_was_used_once() {
    let parameters = QueueParameters { interval: 10, share: 5, history: 100, half_life: 1 };
    let mut queues = Queues::new(100, 100, parameters);
    for key in [1, 2, 3, 4, 5, 3, 3, 6, 7, 8] {
        queues.access(key);
        queues.count_request();
    }
    assert_eq!(queues.next_eviction(), None, "flash is empty");
    assert_eq!(queues.next_promotion(100), Some(3));
    assert_eq!(queues.next_promotion(100), None, "one is a twentieth of eight");
}

#[test]
fn nothing_enters_without_room_and_a_stop_ends_the_round() {
    let parameters = QueueParameters { interval: 2, share: 100, history: 100, half_life: 1 };
    let mut queues = Queues::new(4, 4, parameters);
    for key in [1, 2] {
        queues.access(key);
        queues.count_request();
    }
    assert_eq!(queues.next_eviction(), None);
    assert_eq!(queues.next_promotion(1), Some(2), "of two that are alike, the one used last");
    assert_eq!(queues.next_promotion(1), None, "it has the room");
    assert_eq!(queues.oldest_entering(), Some(2));
    queues.stop();
    assert!(!queues.is_busy());
    (0..10).for_each(|_| queues.count_request());
    assert!(!queues.is_busy());
}
