//! Compares curves of contents with a simple content-addressed cache, and with curves of blocks.

use std::collections::HashMap;

use forebay_block::{BlockSize, Flags, Nanos, Op, Request, Volume};
use forebay_locality::{
    ContentLocality, Distance, LocalityError, LocalityOptions, ReuseHistogram, Scope,
    WorkloadLocality,
};
use proptest::prelude::*;

/// A block access: volume, block, whether it is a write, and the content if known.
type Access = (u32, u64, bool, Option<u128>);

fn request(&(volume, block, write, _): &Access) -> Request {
    let op = if write { Op::Write } else { Op::Read };
    let (volume, time, flags) = (Volume(volume), Nanos(0), Flags::NONE);
    Request { time, volume, op, flags, offset: block * 4096, length: 4096 }
}

fn measure(distance: Distance, accesses: &[Access]) -> ReuseHistogram {
    let mut contents = ContentLocality::new(BlockSize::KIB_4, distance, Scope::Together).unwrap();
    for access in accesses {
        contents.add(&request(access), &[access.3]).unwrap();
    }
    contents.finish().unwrap().all.unwrap()
}

/// Unknown contents have names above this.
const UNKNOWN: u128 = 1 << 100;

/// The content of each block, and at most `size` contents in LRU order: those that the cache holds.
struct Cache {
    size: usize,
    held: Vec<u128>,
    blocks: HashMap<(u32, u64), u128>,
    unknown: u128,
}

impl Cache {
    fn new(size: usize) -> Cache {
        Cache { size, held: Vec::new(), blocks: HashMap::new(), unknown: UNKNOWN }
    }

    /// Returns the place of the content before the access, if it is a hit.
    fn access(&mut self, &(volume, block, write, content): &Access) -> Option<usize> {
        let before = self.blocks.get(&(volume, block)).copied();
        let revealed = before.filter(|&b| !write && b >= UNKNOWN && content.is_some());
        let content = content.or(before.filter(|_| !write)).unwrap_or_else(|| {
            self.unknown += 1;
            self.unknown
        });
        self.blocks.insert((volume, block), content);
        let measured = revealed.unwrap_or(content);
        let place = self.held.iter().position(|&other| other == measured);
        self.held.retain(|&other| other != measured && other != content);
        self.held.insert(0, content);
        self.held.truncate(self.size);
        if let Some(before) = before
            && !self.blocks.values().any(|&other| other == before)
        {
            self.held.retain(|&other| other != before);
        }
        place.filter(|_| write || before == Some(measured))
    }
}

/// Returns the numbers of reads and of writes for which `hit` is true.
fn hits(accesses: &[Access], mut hit: impl FnMut(&Access) -> bool) -> (u64, u64) {
    let (mut reads, mut writes) = (0, 0);
    for access in accesses {
        let counter = if access.2 { &mut writes } else { &mut reads };
        *counter += u64::from(hit(access));
    }
    (reads, writes)
}

fn access() -> impl Strategy<Value = Access> {
    let content = prop_oneof![1 => Just(None), 9 => (0..12u128).prop_map(Some)];
    (0..2u32, 0..20u64, any::<bool>(), content)
}

proptest! {
    #[test]
    fn distances_are_places_in_the_stack_of_contents_that_blocks_hold(
        accesses in prop::collection::vec(access(), 1..300)
    ) {
        let trd = measure(Distance::Trd, &accesses);
        let urd = measure(Distance::Urd, &accesses);
        prop_assert_eq!(trd.accesses(), accesses.len() as u64);
        for size in 1..40 {
            let mut stack = Cache::new(usize::MAX);
            let hit = |access: &Access| stack.access(access).is_some_and(|place| place < size);
            let (reads, writes) = hits(&accesses, hit);
            let size = size as u64;
            prop_assert_eq!(trd.hits(Op::Read, size), reads, "reads, {} contents", size);
            prop_assert_eq!(trd.hits(Op::Write, size), writes, "writes, {} contents", size);
            prop_assert_eq!(urd.hits(Op::Read, size), reads);
            prop_assert_eq!(urd.hits(Op::Write, size), 0);
        }
    }

    #[test]
    fn a_content_addressed_cache_has_at_most_the_hits_of_the_curve_and_without_overwrites_all(
        accesses in prop::collection::vec(access(), 1..300), overwrites in any::<bool>(),
    ) {
        let fixed = |&(volume, block, write, _): &Access| {
            (volume, block, write, Some(u128::from(block % 7)))
        };
        let accesses: Vec<Access> =
            if overwrites { accesses } else { accesses.iter().map(fixed).collect() };
        let trd = measure(Distance::Trd, &accesses);
        for size in 1..20 {
            let mut cache = Cache::new(size);
            let (reads, writes) = hits(&accesses, |access| cache.access(access).is_some());
            let promised = (trd.hits(Op::Read, size as u64), trd.hits(Op::Write, size as u64));
            prop_assert!(reads <= promised.0 && writes <= promised.1);
            prop_assert!(overwrites || (reads, writes) == promised);
        }
    }

    #[test]
    fn without_overwrites_contents_never_hit_less_than_sectors(
        blocks in prop::collection::vec((0..2u32, 0..40u64, any::<bool>(), any::<bool>()), 1..400),
        kinds in 1..40u128, partial in any::<bool>(),
    ) {
        // The content of a block never changes, and some blocks have equal contents. Some reads do
        // not report it.
        let content = |volume, block| u128::from(u64::from(volume) * 17 + block * 31) % kinds;
        let accesses: Vec<Access> = (blocks.iter())
            .map(|&(v, b, write, told)| (v, b, write, (!partial || write || told).then(|| content(v, b))))
            .collect();
        let mut sectors = WorkloadLocality::new(LocalityOptions::default()).unwrap();
        accesses.iter().for_each(|access| sectors.add(&request(access)).unwrap());
        let sectors = sectors.finish().unwrap().all.unwrap();
        let contents = measure(Distance::Trd, &accesses);
        // A write to a block whose content is unknown counts as a write of a different content.
        let told = accesses.iter().all(|access| access.3.is_some());
        prop_assert!(!told || contents.distinct_blocks <= sectors.distinct_blocks);
        for size in 1..90 {
            prop_assert!(contents.hits(Op::Read, size) >= sectors.hits(Op::Read, size));
            // A write of the content that a block has already is a hit, unless that content is not
            // known.
            let [content, sector] = [&contents, &sectors].map(|h| h.hits(Op::Write, size));
            prop_assert!(!told || content >= sector);
        }
    }

    #[test]
    fn contents_that_are_all_different_hit_as_sectors_do(
        blocks in prop::collection::vec((0..2u32, 0..40u64, any::<bool>()), 1..400),
    ) {
        let accesses: Vec<Access> = (blocks.iter())
            .map(|&(v, b, write)| (v, b, write, Some(u128::from(v) << 64 | u128::from(b))))
            .collect();
        let mut sectors = WorkloadLocality::new(LocalityOptions::default()).unwrap();
        accesses.iter().for_each(|access| sectors.add(&request(access)).unwrap());
        prop_assert_eq!(sectors.finish().unwrap().all.unwrap(), measure(Distance::Trd, &accesses));
    }
}

#[test]
fn each_volume_has_contents_of_its_own() {
    let options = (BlockSize::KIB_4, Distance::Trd, Scope::Both);
    let mut contents = ContentLocality::new(options.0, options.1, options.2).unwrap();
    for access in [(0, 0, true, Some(7)), (1, 0, true, Some(7)), (1, 0, false, Some(7))] {
        contents.add(&request(&access), &[access.3]).unwrap();
    }
    let found = contents.finish().unwrap();
    assert_eq!(found.all.unwrap().hits(Op::Write, 1), 1);
    let own = &found.volumes[&Volume(1)];
    assert_eq!((own.hits(Op::Write, 1), own.hits(Op::Read, 1)), (0, 1));
}

#[test]
fn distances_of_policies_that_forget_blocks_are_refused() {
    use Distance::{LruReadOnly, LruWriteOnly, PodReadOnly, PodWriteOnly};
    for distance in [PodReadOnly, PodWriteOnly, LruReadOnly, LruWriteOnly] {
        let refused = ContentLocality::new(BlockSize::KIB_4, distance, Scope::Together);
        assert_eq!(refused.unwrap_err(), LocalityError::NoContentDistance);
    }
}
