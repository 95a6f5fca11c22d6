//! Power cuts at random instants, repeatedly on the same device: synced data is there, the
//! recovered records are a prefix, dropped data stays dropped, and no block returns to an older
//! version.

use crate::common::{Flash, Rig, Rng, answer, key, options, tiny};
use forebay_block::Volume;
use forebay_effect::Frame;
use forebay_flash::{
    AnswerKind, Append, Binding, DirectoryCounts, Event, Geometry, Granules, Options, RecordEvent,
    RegionIndex, Start, StartEvent, StoreId, TierId,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// An append, in log order: block, version (0 for a tombstone), region once it is known.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    block: u64,
    version: u64,
    region: Option<RegionIndex>,
}

/// Uses the device as a cache would, and knows what must be true of it.
#[derive(Default)]
struct Model {
    /// Every append whose record may be on flash, in order. After a recovery: what it returned.
    log: Vec<Entry>,
    /// How many of them, from the start, are complete and durable.
    complete: usize,
    synced: usize,
    /// The newest durable version of each block on the backing store.
    backing: BTreeMap<u64, u64>,
    /// The oldest version of each block that must never be lost again.
    floor: BTreeMap<u64, u64>,
    version: u64,
    ticket: u64,
    /// Regions that the log has requested and that are not released yet.
    asked: Vec<RegionIndex>,
    syncs: HashMap<u64, usize>,
    /// Entries before this index may be gone, because their regions were released.
    released: usize,
    counts: Counts,
}

#[derive(Default, Debug)]
struct Counts {
    dropped: u64,
    lost: u64,
    cut_in_recovery: u64,
    reclaimed: u64,
    tombstones: u64,
    clean: u64,
    repaired: u64,
    kills: u64,
    stopped_midway: u64,
    freed: u64,
    directories: DirectoryCounts,
}

fn add(to: &mut DirectoryCounts, more: &DirectoryCounts) {
    to.believed += more.believed;
    to.missing += more.missing;
    to.torn += more.torn;
    to.stale += more.stale;
    to.dropped += more.dropped;
}

impl Model {
    fn events(&mut self, rig: &mut Rig) {
        while let Some(event) = rig.log.poll_event() {
            match event {
                Event::Record(RecordEvent::Appended { ticket, position, .. }) => {
                    let first = self.ticket - self.log.len() as u64;
                    let at = (ticket - first) as usize;
                    assert_eq!(at, self.complete, "appends complete in order");
                    self.complete += 1;
                    if position.is_some() {
                        self.log[at].region = Some(rig.log.region_of(position));
                    }
                }
                Event::Answer { ticket, kind: AnswerKind::Synced, result } => {
                    result.unwrap();
                    let through = self.syncs.remove(&ticket).unwrap();
                    assert!(self.complete >= through);
                    self.synced = self.synced.max(through);
                    self.raise_floor();
                }
                Event::Reclaim { region } => self.asked.push(region),
                Event::RegionFreed { region } => {
                    self.counts.freed += 1;
                    rig.log.region_forgotten(region);
                }
                Event::Stopped { result } => {
                    result.unwrap();
                    assert_eq!(self.log.len(), self.complete);
                    self.synced = self.complete;
                    self.raise_floor();
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn raise_floor(&mut self) {
        for e in &self.log[..self.synced] {
            let floor = self.floor.entry(e.block).or_default();
            *floor = (*floor).max(e.version);
        }
    }

    fn append(&mut self, rig: &mut Rig, rng: &mut Rng) {
        if self.log.len() - self.complete >= rig.options.frames as usize {
            return;
        }
        let block = rng.below(12);
        let frame = Frame((self.ticket % u64::from(rig.options.frames)) as u32);
        let full = rig.geometry.all_granules();
        let tombstone = rng.one_in(8);
        let valid = match rng.below(3) {
            _ if tombstone => Granules::EMPTY,
            0 => full & Granules(1 + rng.below(full.0.into()) as u16),
            _ => full,
        };
        let valid = if valid.is_empty() && !tombstone { full } else { valid };
        self.version += 1;
        let version = if valid.is_empty() { 0 } else { self.version };
        if valid.is_empty() {
            // The block was written to its backing store, durably, past the log.
            self.backing.insert(block, self.version);
            self.counts.tombstones += 1;
        }
        rig.fill(frame.0, key(block), self.version);
        let urgent = rng.one_in(3);
        let ticket = self.ticket;
        rig.log.append(Append { ticket, key: key(block), valid, dirty: valid, frame, urgent });
        self.ticket += 1;
        self.log.push(Entry { block, version, region: None });
    }

    /// Destages the records that no newer one supersedes, and releases the region.
    fn release(&mut self, rig: &mut Rig) {
        let region = self.asked.remove(0);
        let superseded = |at: usize, block: u64| {
            self.log[at + 1..self.complete].iter().any(|e| e.block == block)
        };
        // A region is a run of entries. Those that it held in earlier uses are before `released`.
        let mut last = self.released;
        for at in self.released..self.complete {
            let e = &self.log[at];
            if e.region == Some(region) {
                last = at + 1;
                if !superseded(at, e.block) {
                    let backing = self.backing.entry(e.block).or_default();
                    *backing = (*backing).max(e.version);
                }
            }
        }
        // Tombstones at the region's end may belong to it or to the next.
        self.released = last;
        rig.log.region_released(region);
        self.counts.reclaimed += 1;
    }

    /// Checks what a recovery returned, and takes it as the new state.
    fn recovered(&mut self, given: &[Event], rig: &Rig) {
        let mut found = Vec::new();
        for event in given {
            match event {
                Event::Start(StartEvent::Recovered(r)) => found.push(Entry {
                    block: r.key.block().0,
                    version: rig.version(r),
                    region: Some(rig.log.region_of(r.position)),
                }),
                Event::Start(StartEvent::RecoveredTombstone { key }) => {
                    found.push(Entry { block: key.block().0, version: 0, region: None });
                }
                Event::Start(StartEvent::Ready(report)) => {
                    assert!(report.damage.is_harmless(), "{report:?}");
                    self.counts.dropped += report.batches_dropped;
                    self.counts.clean += u64::from(report.clean);
                    self.counts.repaired += u64::from(!report.damage.repaired.is_empty());
                    add(&mut self.counts.directories, &report.directories);
                }
                other => panic!("{other:?}"),
            }
        }
        let same = |a: &Entry, b: &Entry| (a.block, a.version) == (b.block, b.version);
        // The result is a run of what was appended, and reaches at least to what was synced ...
        let starts: Vec<usize> = (0..=self.log.len())
            .filter(|&a| {
                a + found.len() <= self.log.len()
                    && found.iter().zip(&self.log[a..]).all(|(x, y)| same(x, y))
                    && a + found.len() >= self.synced
            })
            .collect();
        // ... and lacks only what lies in released regions (and tombstones next to them).
        let allowed = |a: usize| self.log[self.released.min(a)..a].iter().all(|e| e.version == 0);
        let start = starts.iter().copied().find(|&a| allowed(a));
        let Some(start) = start else {
            panic!(
                "synced {}, complete {}, released {}:\nlog {:?}\nfound {found:?} {starts:?}",
                self.synced, self.complete, self.released, self.log
            );
        };
        self.counts.lost += (self.log.len() - start - found.len()) as u64;
        // No block returns to a version older than a synced one.
        let mut now: BTreeMap<u64, u64> = self.backing.clone();
        let blocks: BTreeSet<u64> = found.iter().map(|e| e.block).collect();
        for block in blocks {
            let newest = found.iter().rev().find(|e| e.block == block).unwrap();
            if newest.version != 0 {
                now.insert(block, newest.version);
            }
        }
        for (block, floor) in &self.floor {
            let value = now.get(block).copied().unwrap_or(0);
            assert!(value >= *floor, "block {block} went back to {value} behind {floor}");
        }
        self.released = 0;
        self.complete = found.len();
        self.synced = found.len();
        self.log = found;
        self.asked.clear();
        self.syncs.clear();
        self.raise_floor();
    }
}

/// The device without its directories.
fn without_directories(mut flash: Flash, geometry: Geometry) -> Flash {
    let page = geometry.page_size as usize;
    for region in RegionIndex::all(geometry.regions) {
        let from = geometry.directory_start(region) as usize * page;
        let length = geometry.directory_pages as usize * page;
        flash.current[from..from + length].fill(0);
        flash.durable[from..from + length].fill(0);
    }
    flash
}

fn recover(flash: Flash, geometry: Geometry, options: Options) -> Rig {
    let mut rig = Rig::new(geometry, options, flash);
    rig.log.start(Start::RECOVER);
    rig.poll();
    rig
}

fn run(seed: u64, geometry: Geometry, options: Options, lives: u64) -> Counts {
    let mut rng = Rng(seed);
    let mut model = Model::default();
    let mut rig = Rig::formatted(geometry, options);
    for _ in 0..lives {
        let steps = rng.below(120);
        for _ in 0..steps {
            match rng.below(12) {
                0..=4 => model.append(&mut rig, &mut rng),
                5 => {
                    let ticket = rng.next();
                    model.syncs.insert(ticket, model.log.len());
                    rig.log.sync(ticket);
                }
                6 if !model.asked.is_empty() => model.release(&mut rig),
                7 if rng.one_in(6) => rig.log.reclaim(),
                _ if rig.under_way() > 0 => {
                    let n = rng.below(rig.under_way() as u64);
                    rig.complete(n as usize);
                }
                _ => {}
            }
            rig.poll();
            model.events(&mut rig);
        }
        if rng.one_in(6) {
            rig.log.stop();
            let midway = rng.one_in(2);
            let mut left = rng.below(6);
            rig.poll();
            while !model.asked.is_empty() {
                model.release(&mut rig);
                rig.poll();
            }
            while rig.under_way() > 0 && !(midway && left == 0) {
                rig.complete(0);
                left = left.saturating_sub(1);
                model.events(&mut rig);
                while !model.asked.is_empty() {
                    model.release(&mut rig);
                    rig.poll();
                    model.events(&mut rig);
                }
            }
            model.counts.stopped_midway += u64::from(midway);
        }
        // The power is cut, again and again during recovery, and then stays on.
        let mut flash = if rng.one_in(5) {
            model.counts.kills += 1;
            rig.kill(&mut rng)
        } else {
            rig.cut(&mut rng)
        };
        loop {
            rig = recover(flash, geometry, options);
            let patience = if rng.one_in(2) { rng.below(30) } else { u64::MAX };
            let mut events = Vec::new();
            for _ in 0..patience {
                while let Some(event) = rig.log.poll_event() {
                    events.push(event);
                }
                if rig.under_way() == 0
                    || matches!(events.last(), Some(Event::Start(StartEvent::Ready(_))))
                {
                    break;
                }
                let n = rng.below(rig.under_way() as u64);
                rig.complete(n as usize);
            }
            while let Some(event) = rig.log.poll_event() {
                events.push(event);
            }
            let failed = events.iter().find(|e| matches!(e, Event::Start(StartEvent::Failed(_))));
            assert_eq!(failed, None, "a power cut is no damage");
            let at = events.iter().position(|e| matches!(e, Event::Start(StartEvent::Ready(_))));
            if let Some(at) = at {
                // A second recovery reads a copy of the device: it must return the same.
                let mut again = recover(rig.flash.clone(), geometry, options);
                let second = again.settle();
                assert_eq!(strip(&events[..=at]), strip(&second), "the same answer twice");
                // The result is the same with directories as batch by batch, and headers and
                // directories agree.
                let bare = without_directories(rig.flash.clone(), geometry);
                let walked = recover(bare, geometry, options).settle();
                assert_eq!(strip(&second), strip(&walked), "the same by directories as without");
                let check = rig.restart(Start::Check).settle();
                assert_eq!(strip(&second), strip(&check), "the same in a check");
                let Some(Event::Start(StartEvent::Ready(report))) = check.last() else {
                    panic!("{check:?}")
                };
                assert!(report.damage.is_harmless(), "{report:?}");
                model.recovered(&events[..=at], &rig);
                for event in &events[at + 1..] {
                    let Event::Reclaim { region } = event else { panic!("{event:?}") };
                    model.asked.push(*region);
                }
                break;
            }
            model.counts.cut_in_recovery += 1;
            flash = rig.cut(&mut rng);
        }
    }
    model.counts
}

/// The records, without the report and the requests to reclaim.
fn strip(events: &[Event]) -> Vec<Event> {
    let wanted = |e: &&Event| {
        matches!(e, Event::Start(StartEvent::Recovered(_) | StartEvent::RecoveredTombstone { .. }))
    };
    events.iter().filter(wanted).cloned().collect()
}

fn runs() -> u64 {
    std::env::var("FOREBAY_CUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(120)
}

/// Ten pages for headers and batches, as in `tiny`, and one for a directory.
fn with_directories() -> Geometry {
    Geometry { region_pages: 11, directory_pages: 1, ..tiny() }
}

#[test]
fn random_cuts_lose_nothing_synced_and_bring_nothing_back() {
    let mut total = Counts::default();
    for seed in 0..runs() {
        let geometry = if seed % 4 == 0 { tiny() } else { with_directories() };
        let counts = run(seed, geometry, options(), 25);
        total.dropped += counts.dropped;
        total.lost += counts.lost;
        total.cut_in_recovery += counts.cut_in_recovery;
        total.reclaimed += counts.reclaimed;
        total.tombstones += counts.tombstones;
        total.clean += counts.clean;
        total.repaired += counts.repaired;
        total.kills += counts.kills;
        total.stopped_midway += counts.stopped_midway;
        total.freed += counts.freed;
        add(&mut total.directories, &counts.directories);
    }
    // The test is strict enough only if each of these events happened, and often.
    let n = runs();
    for (what, count, least) in [
        ("batches dropped", total.dropped, n / 8),
        ("entries lost", total.lost, n),
        ("cuts during recovery", total.cut_in_recovery, n),
        ("regions reclaimed", total.reclaimed, n),
        ("regions freed", total.freed, n),
        ("tombstones", total.tombstones, n),
        ("clean starts", total.clean, n / 8),
        ("superblock copies made good", total.repaired, n / 8),
        ("kills", total.kills, n),
        ("stops cut short", total.stopped_midway, n / 8),
        ("directories believed", total.directories.believed, n),
        ("directories missing", total.directories.missing, n / 20),
        ("directories torn", total.directories.torn, n / 20),
        ("directories of earlier lives", total.directories.stale, n),
        ("directories with dropped batches", total.directories.dropped, n / 8),
    ] {
        assert!(count >= least, "{what}: {count}; {total:?}");
    }
}

#[test]
fn the_same_holds_for_other_geometries() {
    for seed in 0..runs() / 8 {
        let geometry = Geometry { batch_entries_max: 2, batch_pages_max: 3, ..tiny() };
        run(1000 + seed, geometry, options(), 15);
        let geometry = Geometry { regions: 7, region_pages: 7, directory_pages: 1, ..tiny() };
        run(5000 + seed, geometry, Options { reclaims_max: 3, ..options() }, 15);
        let geometry = Geometry { regions: 9, batch_entries_max: 1, ..with_directories() };
        run(6000 + seed, geometry, Options { recovery_chunk_pages: 3, ..options() }, 15);
        let geometry = Geometry { regions: 7, region_pages: 6, ..tiny() };
        run(2000 + seed, geometry, Options { reclaims_max: 3, ..options() }, 15);
        let geometry = Geometry { inflight_batches_max: 1, regions: 3, ..tiny() };
        run(3000 + seed, geometry, options(), 15);
        let geometry = Geometry {
            block_size: 16384,
            region_pages: 23,
            batch_pages_max: 9,
            inflight_batches_max: 3,
            extent_bytes: 65536,
            superblock_pages: 2,
            ..tiny()
        };
        run(4000 + seed, geometry, options(), 15);
    }
}

/// Every instant for a first cut during updates of the superblock, and for a second one during
/// recovery, with every fate of every write at risk; then a third recovery.
#[test]
fn two_cuts_anywhere_leave_a_superblock_and_what_was_acknowledged() {
    let binding = |generation| Binding::new(Volume(1), StoreId::new([9; 16]), generation);
    let mut cuts = 0;
    for first in 0.. {
        let mut rig = Rig::formatted(tiny(), options());
        rig.append(0, key(0), 1, true);
        rig.log.sync(0);
        rig.settle();
        let mut acknowledged = 0;
        let mut done = 0;
        for generation in 1..=2 {
            rig.log.bind(vec![binding(generation)], generation);
            rig.poll();
            while rig.under_way() > 0 && done < first {
                rig.complete(0);
                done += 1;
                while let Some(event) = rig.log.poll_event() {
                    assert_eq!(event, answer(generation, AnswerKind::Bound, Ok(())));
                    acknowledged = generation;
                }
            }
        }
        if done < first {
            break;
        }
        for fates in 0..4u64.pow(rig.at_risk()) {
            let mut rig = recover(rig.cut_by(fates), tiny(), options());
            for second in 0.. {
                for fates in 0..4u64.pow(rig.at_risk()) {
                    let flash = rig.cut_by(fates);
                    let events = recover(flash, tiny(), options()).settle();
                    let [
                        Event::Start(StartEvent::Recovered(_)),
                        Event::Start(StartEvent::Ready(report)),
                    ] = &events[..]
                    else {
                        panic!("cuts after {first} and {second}, fates {fates}: {events:?}")
                    };
                    let found = report.bindings.first().map_or(0, |b| b.generation);
                    assert!(found >= acknowledged, "{found} after {acknowledged} was bound");
                    cuts += 1;
                }
                if rig.under_way() == 0 {
                    break;
                }
                rig.complete(0);
            }
        }
    }
    assert!(cuts > 1000, "{cuts}");
}

#[test]
fn a_stop_during_a_start_ends_it_and_keeps_everything() {
    for patience in 0..40 {
        let mut rig = Rig::formatted(tiny(), options());
        for n in 0..8 {
            rig.append(n, key(n), 1, true);
        }
        rig.settle();
        let mut rig = rig.restart(Start::RECOVER);
        rig.poll();
        for _ in 0..patience {
            if rig.under_way() > 0 {
                rig.complete(0);
            }
        }
        rig.log.stop();
        let events = rig.settle();
        assert_eq!(events.last(), Some(&Event::Stopped { result: Ok(()) }));
        let events = rig.restart(Start::RECOVER).settle();
        assert_eq!(
            events.iter().filter(|e| matches!(e, Event::Start(StartEvent::Recovered(_)))).count(),
            8
        );
    }
}

/// Every instant for a cut during a format over another log, with every fate of every write at
/// risk. Recovery finds the former log, complete, or the new one, empty; once the first superblock
/// of the new log is durable, only the new one.
#[test]
fn a_format_cut_short_leaves_the_former_log_or_the_new_one() {
    // Large enough to contain some of the possible places of second copies.
    let geometry = Geometry { regions: 8, ..tiny() };
    let (former, new) = (TierId::new(*b"0123456789abcdef"), TierId::new([7; 16]));
    let mut rig = Rig::formatted(geometry, options());
    rig.append(0, key(0), 1, true);
    rig.log.sync(0);
    rig.settle();
    for ticket in 1..=3 {
        rig.log.bind(Vec::new(), ticket);
        rig.settle();
    }
    let mut rig = rig.restart(Start::Format { uuid: new, bindings: Vec::new() });
    rig.poll();
    let mut found = [0; 2];
    for first in 0.. {
        for fates in 0..4u64.pow(rig.at_risk()) {
            let events = recover(rig.cut_by(fates), geometry, options()).settle();
            let Some(Event::Start(StartEvent::Ready(report))) = events.last() else {
                panic!("{first}: {events:?}")
            };
            let records = if report.uuid == Some(former) { 1 } else { 0 };
            assert_eq!(events.len(), records + 1, "{first}, fates {fates}: {events:?}");
            assert!(report.uuid == Some(former) || report.uuid == Some(new));
            // (The first superblock takes a write and a sync.)
            assert!(
                report.uuid == Some(new) || first < 2,
                "{first}, fates {fates}: the former log"
            );
            found[usize::from(report.uuid == Some(new))] += 1;
        }
        if rig.under_way() == 0 {
            break;
        }
        rig.complete(0);
    }
    assert!(found[0] > 1 && found[1] > 100, "{found:?}");
}
