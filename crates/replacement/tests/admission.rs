//! Compares admission policies, decision for decision, with naive ones written from their
//! definitions. The memory and the flash tier behind it are lists.

use forebay_replacement::{Admission, AdmissionKind, AdmissionParameters, Offer};
use proptest::prelude::*;

/// A policy written from its definition, without a table, frames or links.
trait Naive {
    /// Records a client's access to a block that memory has or gets. `known`: it comes from flash.
    fn access(&mut self, key: u64, resident: bool, known: bool);
    /// Whether a block enters flash that leaves memory and that flash does not have.
    fn admits(&mut self, key: u64) -> bool;
    /// Records that a block has left memory.
    fn left(&mut self, key: u64);
}

/// A block enters at its N-th access; the last `size` blocks that left are remembered.
struct Nhit {
    hits: u32,
    size: usize,
    resident: Vec<(u64, u32)>,
    /// The blocks that left with their counts, the oldest first.
    left: Vec<(u64, u32)>,
}

impl Naive for Nhit {
    fn access(&mut self, key: u64, resident: bool, known: bool) {
        if resident {
            self.resident.iter_mut().filter(|(k, _)| *k == key).for_each(|(_, count)| *count += 1);
            return;
        }
        let before = self.left.iter().position(|(k, _)| *k == key);
        let count = 1 + before.map_or(0, |at| self.left.remove(at).1);
        self.resident.push((key, if known { count.max(self.hits) } else { count }));
    }
    fn admits(&mut self, key: u64) -> bool {
        self.resident.iter().any(|&(k, count)| k == key && count >= self.hits)
    }
    fn left(&mut self, key: u64) {
        let at = self.resident.iter().position(|(k, _)| *k == key).expect("it was there");
        let gone = self.resident.remove(at);
        if self.left.len() == self.size {
            self.left.remove(0);
        }
        self.left.push(gone);
    }
}

/// 64 levels of spots of 16 blocks, each level with its oldest spot first.
struct Smq {
    size: usize,
    levels: Vec<Vec<u64>>,
    from: usize,
    jump: usize,
    accesses: usize,
    foreseen: usize,
}

impl Naive for Smq {
    fn access(&mut self, key: u64, _resident: bool, _known: bool) {
        let key = key / 16;
        let share = self.size.div_ceil(64);
        let at = self.levels.iter().position(|level| level.contains(&key));
        match at {
            None => {
                if self.levels.iter().map(Vec::len).sum::<usize>() == self.size {
                    let lowest = self.levels.iter_mut().find(|level| !level.is_empty());
                    lowest.expect("it is full").remove(0);
                }
                self.levels[0].push(key);
            }
            Some(from) => {
                self.levels[from].retain(|&k| k != key);
                let to = (from + self.jump).min(63);
                if to > from && self.levels[to].len() >= share {
                    let down = self.levels[to].remove(0);
                    self.levels[from].push(down);
                }
                self.levels[to].push(key);
            }
        }
        self.accesses += 1;
        self.foreseen += usize::from(at.is_some_and(|level| level >= 48));
        if self.accesses == self.size {
            (self.from, self.jump) = match self.foreseen as f64 / self.accesses as f64 {
                share if share < 0.125 => (56, 4),
                share if share < 0.5 => (48, 2),
                _ => (32, 1),
            };
            (self.accesses, self.foreseen) = (0, 0);
        }
    }
    fn admits(&mut self, key: u64) -> bool {
        self.levels[self.from..].iter().any(|level| level.contains(&(key / 16)))
    }
    fn left(&mut self, _key: u64) {}
}

/// The most recently used blocks with their counts, the one used longest ago first.
struct Popularity {
    size: usize,
    top: usize,
    table: Vec<(u64, u32)>,
    accesses: usize,
}

impl Popularity {
    fn new(top: u32, size: usize) -> Popularity {
        Popularity { size, top: top as usize, table: Vec::new(), accesses: 0 }
    }
}

impl Naive for Popularity {
    fn access(&mut self, key: u64, _resident: bool, _known: bool) {
        let before = self.table.iter().position(|&(k, _)| k == key);
        let before = before.map_or(0, |at| self.table.remove(at).1);
        if self.table.len() == self.size {
            self.table.remove(0);
        }
        self.table.push((key, (before + 1).min(255)));
        self.accesses += 1;
        if self.accesses == 10 * self.size {
            self.accesses = 0;
            self.table.iter_mut().for_each(|(_, count)| *count /= 2);
        }
    }
    fn admits(&mut self, key: u64) -> bool {
        let Some(&(_, own)) = self.table.iter().find(|&&(k, _)| k == key) else { return false };
        let as_often = self.table.iter().filter(|&&(_, count)| count >= own).count();
        as_often as f64 / self.table.len() as f64 <= self.top as f64 / 100.0
    }
    fn left(&mut self, _key: u64) {}
}

/// Drives both policies with a memory of `frames` blocks and a flash of `flash` blocks, both FIFO.
/// Returns the number of blocks admitted, and that of blocks refused.
fn drive(
    naive: &mut dyn Naive,
    parameters: &AdmissionParameters,
    (frames, flash): (usize, usize),
    keys: impl IntoIterator<Item = u64>,
) -> (u32, u32) {
    let mut admission = Admission::new(frames as u32, flash as u32, parameters).expect("a state");
    let bytes = admission.metadata_bytes();
    let mut memory: Vec<Option<u64>> = vec![None; frames];
    let (mut hand, mut on_flash) = (0, Vec::new());
    let (mut entered, mut refused) = (0, 0);
    for key in keys {
        if let Some(frame) = memory.iter().position(|&k| k == Some(key)) {
            naive.access(key, true, false);
            admission.on_access(frame as u32, key);
            continue;
        }
        let frame = hand;
        hand = (hand + 1) % frames;
        if let Some(old) = memory[frame] {
            let known = on_flash.contains(&old);
            if !known {
                let expected = naive.admits(old);
                let admitted = admission.admits(Some(frame as u32), old, Offer::default());
                assert_eq!(admitted, expected, "block {old}");
                if admitted {
                    on_flash.push(old);
                    entered += 1;
                    if on_flash.len() > flash {
                        on_flash.remove(0);
                    }
                } else {
                    refused += 1;
                }
            }
            // (A block on flash is remembered, too, even if it was not remembered when it came in.)
            admission.leave(frame as u32, old);
            naive.left(old);
        }
        let known = on_flash.contains(&key);
        naive.access(key, false, known);
        admission.enter(frame as u32, key, known, true);
        memory[frame] = Some(key);
    }
    assert_eq!(admission.metadata_bytes(), bytes, "memory is fixed");
    (entered, refused)
}

/// Random keys, of which the small ones are frequent.
fn skewed(seed: u64, n: u64, keys: u64) -> impl Iterator<Item = u64> {
    let mut x = seed | 1;
    (0..n).map(move |_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let share = (x % 1_000_003) as f64 / 1_000_003.0;
        (share.powi(3) * keys as f64) as u64
    })
}

proptest! {
    #[test]
    fn nhit_decides_as_its_definition(
        seed in any::<u64>(), hits in 1u32..6, history in 10u32..300, frames in 1usize..20, flash in 1usize..60,
    ) {
        let mut parameters = AdmissionParameters::new(AdmissionKind::Nhit);
        parameters.set("hits", hits).unwrap();
        parameters.set("history", history).unwrap();
        let size = (flash * history as usize / 100).max(1);
        let mut naive = Nhit { hits, size, resident: Vec::new(), left: Vec::new() };
        drive(&mut naive, &parameters, (frames, flash), skewed(seed, 1500, 150));
    }

    #[test]
    fn popularity_decides_as_its_definition(
        seed in any::<u64>(), top in 1u32..=100, history in 10u32..300, frames in 1usize..20, flash in 1usize..60,
    ) {
        let mut parameters = AdmissionParameters::new(AdmissionKind::Popularity);
        parameters.set("top", top).unwrap();
        parameters.set("history", history).unwrap();
        let size = (flash * history as usize / 100).max(1) + frames;
        let mut naive = Popularity::new(top, size);
        drive(&mut naive, &parameters, (frames, flash), skewed(seed, 3000, 150));
    }

    #[test]
    fn a_write_is_answered_under_popularity_as_after_its_access(
        seed in any::<u64>(), top in 1u32..=100, flash in 1u32..60,
    ) {
        let mut parameters = AdmissionParameters::new(AdmissionKind::Popularity);
        parameters.set("top", top).unwrap();
        let mut admission = Admission::new(1, flash, &parameters).unwrap();
        let size = flash as usize + 1;
        let mut naive = Popularity::new(top, size);
        // (Ends with the access at which counts are halved.)
        for key in skewed(seed, 10 * u64::from(flash), 150) {
            let asked = admission.admits_write(None, key, Offer::default());
            naive.access(key, false, false);
            prop_assert_eq!(asked, naive.admits(key));
            admission.on_write_around(key);
            prop_assert_eq!(admission.admits(None, key, Offer::default()), naive.admits(key));
        }
    }

    #[test]
    fn smq_decides_as_its_definition(
        seed in any::<u64>(), history in 50u32..400, frames in 1usize..20, flash in 1usize..200,
    ) {
        let mut parameters = AdmissionParameters::new(AdmissionKind::Smq);
        parameters.set("history", history).unwrap();
        let size = (flash * history as usize / 100).max(1);
        let size = size.div_ceil(4);
        let (levels, from) = (vec![Vec::new(); 64], 32);
        let mut naive = Smq { size, levels, from, jump: 1, accesses: 0, foreseen: 0 };
        drive(&mut naive, &parameters, (frames, flash), skewed(seed, 3000, 3000));
    }
}

#[test]
fn the_random_cases_have_both_answers_often() {
    let mut parameters = AdmissionParameters::new(AdmissionKind::Nhit);
    parameters.set("hits", 3).unwrap();
    let mut naive = Nhit { hits: 3, size: 60, resident: Vec::new(), left: Vec::new() };
    let (entered, refused) = drive(&mut naive, &parameters, (10, 60), skewed(1, 20_000, 300));
    assert!(entered > 200 && refused > 200, "{entered} {refused}");
    let parameters = AdmissionParameters::new(AdmissionKind::Popularity);
    let mut naive = Popularity::new(50, 70);
    let (entered, refused) = drive(&mut naive, &parameters, (10, 60), skewed(1, 20_000, 300));
    assert!(entered > 200 && refused > 200, "{entered} {refused}");
    let parameters = AdmissionParameters::new(AdmissionKind::Smq);
    let levels = vec![Vec::new(); 64];
    let mut naive = Smq { size: 32, levels, from: 32, jump: 1, accesses: 0, foreseen: 0 };
    let (entered, refused) = drive(&mut naive, &parameters, (10, 128), skewed(1, 20_000, 3000));
    assert!(entered > 20 && refused > 200, "{entered} {refused}");
}

#[test]
fn a_write_counts_before_it_is_told() {
    let parameters = AdmissionParameters::new(AdmissionKind::Nhit);
    let mut admission = Admission::new(2, 10, &parameters).unwrap();
    let offer = Offer::default();
    assert!(!admission.admits_write(None, 1, offer), "the first access");
    admission.enter(0, 1, false, true);
    assert!(admission.admits_write(Some(0), 1, offer), "the second one");
    admission.leave(0, 1);
    assert!(admission.admits_write(None, 1, offer), "from the history");
    // A query changes nothing.
    assert!(!admission.admits_write(None, 2, offer) && !admission.admits_write(None, 2, offer));
}

#[test]
fn adaptive_asks_for_more_accesses_while_flash_is_slow() {
    let mut parameters = AdmissionParameters::new(AdmissionKind::Adaptive);
    parameters.set("hits", 4).unwrap();
    let mut admission = Admission::new(1, 10, &parameters).unwrap();
    let offer = |second, flash, stores| Offer { second, flash, stores, ..Offer::default() };
    admission.enter(0, 1, false, true);
    assert!(admission.admits(Some(0), 1, offer(0, 0, 0)), "one access is enough at first");
    assert!(!admission.admits(Some(0), 1, offer(1, 5, 5)), "two");
    admission.on_access(0, 1);
    assert!(admission.admits(Some(0), 1, offer(1, 5, 5)));
    assert!(
        !admission.admits_write(Some(0), 1, offer(2, 5, 5)),
        "four, and this would be the third"
    );
    admission.on_access(0, 1);
    assert!(!admission.admits(Some(0), 1, offer(2, 5, 5)));
    assert!(admission.admits_write(Some(0), 1, offer(3, 5, 5)), "four are the most");
    assert!(admission.admits(Some(0), 1, offer(4, 2, 5)), "two again");
    assert!(AdmissionKind::Adaptive.needs_time() && !AdmissionKind::Nhit.needs_time());
}

#[test]
fn a_random_share_is_as_large_as_it_is_said_to_be() {
    for millionths in [0, 100_000, 500_000, 1_000_000] {
        let mut parameters = AdmissionParameters::new(AdmissionKind::Random);
        parameters.set("probability", millionths).unwrap();
        let mut admission = Admission::new(1, 1, &parameters).unwrap();
        let n = 100_000;
        let admitted = (0..n).filter(|&key| admission.admits(Some(0), key, Offer::default()));
        let share = admitted.count() as f64 / n as f64;
        assert!((share - f64::from(millionths) / 1e6).abs() < 0.01, "{millionths}: {share}");
    }
}

#[test]
fn every_policy_has_words_and_parameters_their_ranges() {
    for &kind in AdmissionKind::ALL {
        assert!(!kind.idea().is_empty() && !kind.source().is_empty());
        for p in kind.parameters() {
            let mut parameters = AdmissionParameters::new(kind);
            assert_eq!(parameters.get(p.name), Some(p.default));
            assert_eq!(parameters.set(p.name, p.max), Ok(true));
            assert_eq!(parameters.get(p.name), Some(p.max));
            assert_eq!(parameters.set("no such", 1), Ok(false));
            if p.min > 0 {
                assert!(parameters.set(p.name, p.min - 1).unwrap_err().starts_with("must be"));
            }
        }
        let state = Admission::new(4, 4, &AdmissionParameters::new(kind));
        assert_eq!(state.is_none(), kind == AdmissionKind::Always);
    }
}
