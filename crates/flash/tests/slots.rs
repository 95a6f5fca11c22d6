//! The slots layout with power cuts at random instants: synced data is there, every payload that
//! counts is whole, and reused cells lose nothing.
//!
//! The test acts as a cache: it holds the index, releases the cells of superseded records, unmaps
//! some clean ones, and moves the mappings of regions that are reclaimed.

use crate::common::{Rig, Rng, answer, key, marked, options, tiny};
use forebay_effect::Frame;
use forebay_flash::{
    AnswerKind, Append, Event, Geometry, Granules, LogError, Mapping, Options, Position,
    RecordEvent, RegionIndex, Start, StartEvent,
};
use std::collections::BTreeMap;

const BLOCKS: u64 = 6;

/// Regions of four pages for twelve mappings, and ten cells.
fn slots() -> Geometry {
    Geometry { slots: 10, region_pages: 4, ..tiny() }
}

/// A block's newest record.
#[derive(Clone, Copy, Debug)]
struct Held {
    version: u64,
    position: Position,
    checksum: u32,
    clean: bool,
    unmapping: bool,
}

#[derive(Default)]
struct Index {
    held: BTreeMap<u64, Held>,
    /// Appends in progress: ticket, block, version, whether clean.
    open: Vec<(u64, u64, u64, bool)>,
    /// The oldest version of each block that must never be lost again; 0 where a clean record may
    /// be gone.
    floor: BTreeMap<u64, u64>,
    /// Newest version ever appended.
    newest: BTreeMap<u64, u64>,
    /// Newest version ever appended as clean: the backing store has it, so no record is needed.
    stored: BTreeMap<u64, u64>,
    syncs: BTreeMap<u64, BTreeMap<u64, u64>>,
    /// The region being emptied, and the number of moves in progress.
    moving: Option<(RegionIndex, u32)>,
    asked: Vec<RegionIndex>,
    version: u64,
    ticket: u64,
    sync_ticket: u64,
    counts: Counts,
}

#[derive(Default, Debug, PartialEq)]
struct Counts {
    unmapped: u64,
    moved: u64,
    freed: u64,
    cut: u64,
    dropped: u64,
}

impl Index {
    fn append(&mut self, rig: &mut Rig, rng: &mut Rng) {
        let block = rng.below(BLOCKS);
        // At most one append of a block at a time, and no more records than cells.
        if self.open.len() >= 4 || self.open.iter().any(|o| o.1 == block) {
            return;
        }
        self.version += 1;
        let (ticket, version) = (self.ticket, self.version);
        self.ticket += 1;
        let frame = Frame((ticket % u64::from(rig.options.frames)) as u32);
        rig.fill(frame.0, key(block), version);
        let valid = rig.geometry.all_granules();
        let clean = rng.one_in(3);
        let dirty = if clean { Granules::EMPTY } else { valid };
        rig.log.append(Append {
            ticket,
            key: key(block),
            valid,
            dirty,
            frame,
            urgent: rng.one_in(2),
        });
        self.open.push((ticket, block, version, clean));
        self.newest.insert(block, version);
        if clean {
            self.stored.insert(block, version);
        }
    }

    fn sync(&mut self, rig: &mut Rig) {
        // The sync promises what is appended by now.
        let mut floor: BTreeMap<u64, u64> = BTreeMap::new();
        for (&block, held) in &self.held {
            floor.insert(block, if held.clean { 0 } else { held.version });
        }
        for &(_, block, version, clean) in &self.open {
            floor.insert(block, if clean { 0 } else { version });
        }
        self.sync_ticket += 1;
        self.syncs.insert(self.sync_ticket, floor);
        rig.log.sync(self.sync_ticket);
    }

    fn unmap(&mut self, rig: &mut Rig, rng: &mut Rng) {
        let block = rng.below(BLOCKS);
        let Some(held) = self.held.get_mut(&block).filter(|h| h.clean && !h.unmapping) else {
            return;
        };
        held.unmapping = rig.log.unmap(key(block), held.position);
    }

    fn empty_region(&mut self, rig: &mut Rig) {
        if self.moving.is_some() || self.asked.is_empty() {
            return;
        }
        let region = self.asked.remove(0);
        self.moving = Some((region, 0));
        self.move_rest(rig);
    }

    fn move_rest(&mut self, rig: &mut Rig) {
        let Some((region, mut under_way)) = self.moving else { return };
        if under_way > 0 {
            return;
        }
        let mut left = 0;
        for (&block, held) in &self.held {
            if rig.log.region_of(held.position) == region && !held.unmapping {
                left += 1;
                let full = rig.geometry.all_granules();
                under_way += u32::from(rig.log.remap(Mapping {
                    ticket: 1 << 40,
                    key: key(block),
                    position: held.position,
                    valid: full,
                    dirty: if held.clean { Granules::EMPTY } else { full },
                    checksum: held.checksum,
                }));
            }
        }
        rig.log.close_notes();
        self.moving = Some((region, under_way));
        if left == 0 {
            self.moving = None;
            rig.log.region_released(region);
        }
    }

    fn hear(&mut self, rig: &mut Rig) {
        while let Some(event) = rig.log.poll_event() {
            match event {
                Event::Record(RecordEvent::Appended { ticket, position, checksum }) => {
                    let at = self.open.iter().position(|o| o.0 == ticket).expect("an append");
                    let (_, block, version, clean) = self.open.remove(at);
                    let unmapping = false;
                    let held = Held { version, position, checksum, clean, unmapping };
                    if let Some(old) = self.held.insert(block, held)
                        && !old.unmapping
                    {
                        assert_ne!(old.position, position, "a cell in use was written");
                        rig.log.release_cell(old.position);
                    }
                }
                Event::Answer { ticket, kind: AnswerKind::Synced, result } => {
                    result.unwrap();
                    for (block, version) in self.syncs.remove(&ticket).expect("a sync") {
                        self.floor.insert(block, version);
                    }
                }
                Event::Record(RecordEvent::Moved { result, .. }) => {
                    result.unwrap();
                    self.counts.moved += 1;
                    let (region, under_way) = self.moving.expect("moves are under way");
                    self.moving = Some((region, under_way - 1));
                }
                Event::Record(RecordEvent::Unmapped { key, position }) => {
                    self.counts.unmapped += 1;
                    let block = key.block().0;
                    if self.held.get(&block).is_some_and(|h| h.position == position) {
                        self.held.remove(&block);
                    }
                }
                Event::Reclaim { region } => self.asked.push(region),
                Event::RegionFreed { region } => {
                    self.counts.freed += 1;
                    rig.log.region_forgotten(region);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn recovered(&mut self, rig: &Rig, events: &[Event]) {
        self.held.clear();
        self.open.clear();
        self.syncs.clear();
        self.asked.clear();
        self.moving = None;
        for event in events {
            match event {
                Event::Start(StartEvent::Recovered(r)) => {
                    // (Panics unless the payload is whole.)
                    let version = rig.version(r);
                    let (position, checksum) = (r.position, r.checksum);
                    let (clean, unmapping) = (r.dirty == Granules::EMPTY, false);
                    let held = Held { version, position, checksum, clean, unmapping };
                    let twice = self.held.insert(r.key.block().0, held);
                    assert!(twice.is_none(), "a block is given once");
                }
                Event::Start(StartEvent::Ready(report)) => {
                    assert!(report.damage.is_harmless(), "{report:?}");
                    self.counts.dropped += report.batches_dropped;
                }
                Event::Reclaim { region } => self.asked.push(*region),
                other => panic!("{other:?}"),
            }
        }
        let mut cells: Vec<_> = self.held.values().map(|h| h.position).collect();
        cells.sort_unstable();
        cells.dedup();
        assert_eq!(cells.len(), self.held.len(), "each record has a cell of its own");
        for (block, &floor) in &self.floor {
            let found = self.held.get(block);
            let version = found.map_or(0, |h| h.version);
            let newest = self.newest[block];
            if found.is_none() && self.stored.get(block).is_some_and(|&stored| stored > floor) {
                continue;
            }
            assert!((floor..=newest).contains(&version), "{block}: {found:?}, {floor}");
        }
        // Everything recovered is durable; everything else is gone.
        self.floor.clear();
        for (&block, held) in &self.held {
            self.floor.insert(block, if held.clean { 0 } else { held.version });
        }
    }
}

fn run(seed: u64, geometry: Geometry, options: Options, lives: u64) -> Counts {
    let mut rng = Rng(seed);
    let mut index = Index::default();
    let mut rig = Rig::formatted(geometry, options);
    for _ in 0..lives {
        for _ in 0..rng.below(200) {
            match rng.below(12) {
                0..=3 => index.append(&mut rig, &mut rng),
                4 => index.sync(&mut rig),
                5 => index.unmap(&mut rig, &mut rng),
                6 => index.empty_region(&mut rig),
                7 => index.move_rest(&mut rig),
                _ if rig.under_way() > 0 => {
                    let n = rng.below(rig.under_way() as u64);
                    rig.complete(n as usize);
                }
                _ => {}
            }
            rig.poll();
            index.hear(&mut rig);
        }
        index.counts.cut += 1;
        let flash = if rng.one_in(5) { rig.kill(&mut rng) } else { rig.cut(&mut rng) };
        rig = Rig::new(geometry, options, flash);
        rig.log.start(Start::RECOVER);
        let events = rig.settle();
        index.recovered(&rig, &events);
        // A check of the device after recovery finds no damage, and the same records.
        let checked = rig.restart(Start::Check).settle();
        let Some(Event::Start(StartEvent::Ready(report))) = checked.last() else {
            panic!("{checked:?}")
        };
        assert!(report.damage.is_harmless(), "{report:?}");
        assert_eq!(report.records, index.held.len() as u64);
        if rig.log.stats().regions_free < 2 {
            // (What a cache would do about it is not tested here.)
            break;
        }
    }
    index.counts
}

#[test]
fn random_cuts_lose_nothing_synced_and_no_cell_is_used_twice() {
    let mut total = Counts::default();
    for seed in 0..400 {
        for geometry in [
            slots(),
            Geometry { batch_entries_max: 2, region_pages: 8, ..slots() },
            Geometry { inflight_batches_max: 3, slots: 8, ..slots() },
        ] {
            let counts = run(seed, geometry, options(), 20);
            total.unmapped += counts.unmapped;
            total.moved += counts.moved;
            total.freed += counts.freed;
            total.cut += counts.cut;
            total.dropped += counts.dropped;
        }
    }
    for (what, n, least) in [
        ("cuts", total.cut, 1000),
        ("records unmapped", total.unmapped, 1000),
        ("mappings moved", total.moved, 1000),
        ("regions freed", total.freed, 1000),
        ("batches dropped", total.dropped, 100),
    ] {
        assert!(n >= least, "{what}: {n} of {total:?}");
    }
}

/// Every instant for a cut, with every fate of every write at risk.
#[test]
fn a_new_version_is_there_or_the_old_one_is_wherever_the_power_goes() {
    let mut cuts = 0;
    let mut rig = Rig::formatted(slots(), options());
    rig.append(0, key(0), 1, true);
    rig.log.sync(0);
    rig.settle();
    rig.append(1, key(0), 2, true);
    rig.append(2, key(1), 3, true);
    for steps in 0.. {
        for fates in 0..4_u64.pow(rig.at_risk()) {
            let mut after = Rig::new(slots(), options(), rig.cut_by(fates));
            after.log.start(Start::RECOVER);
            let events = after.settle();
            let found: BTreeMap<u64, u64> = events
                .iter()
                .filter_map(|e| match e {
                    Event::Start(StartEvent::Recovered(r)) => {
                        Some((r.key.block().0, after.version(r)))
                    }
                    _ => None,
                })
                .collect();
            assert!(matches!(found.get(&0), Some(1 | 2)), "{steps}, {fates}: {events:?}");
            cuts += 1;
        }
        if rig.under_way() == 0 {
            break;
        }
        rig.complete(0);
    }
    assert!(cuts > 100, "{cuts}");
}

#[test]
fn records_wait_for_a_cell_until_what_they_supersede_is_durable() {
    let geometry = Geometry { slots: 2, ..slots() };
    let mut rig = Rig::formatted(geometry, options());
    let mut held = Vec::new();
    for version in 1..=3 {
        rig.append(version, key(7), version, true);
        for event in rig.settle() {
            if let Event::Record(RecordEvent::Appended { position, .. }) = event {
                held.push(position);
                if let [.., old, _] = held[..] {
                    rig.log.release_cell(old);
                }
            }
        }
    }
    let last = rig.settle();
    let appended = |e: &Event| matches!(e, Event::Record(RecordEvent::Appended { .. }));
    let third = if held.len() == 3 {
        held[2]
    } else {
        let Some(Event::Record(RecordEvent::Appended { position, .. })) =
            last.iter().find(|e| appended(e))
        else {
            panic!("the third version found no cell: {last:?}")
        };
        *position
    };
    assert_ne!(held[0], held[1]);
    assert_eq!(third, held[0], "there are two cells");
    // A sync lies between the writes of the second and the third version.
    let cell = rig.log.byte_offset(third);
    let writes: Vec<usize> = (0..rig.history.len()).filter(|&n| rig.history[n].0 == cell).collect();
    let [first, again] = writes[..] else { panic!("{writes:?}") };
    let second = rig.log.byte_offset(held[1]);
    let at = rig.history.iter().position(|h| h.0 == second).unwrap();
    assert!(first < at && rig.history[at..again].contains(&(u64::MAX, 0)), "{:?}", rig.history);
}

#[test]
fn a_cell_that_a_recovery_frees_does_not_end_the_journal_of_the_next() {
    // Method: a clean record is distrusted because its extent is marked, so its cell is free after
    // recovery. Another payload is written to the cell, but its header is lost. Nothing in the
    // journal voids the first record: if recovery does not know that it was durable, everything
    // after it is lost.
    let mut rig = Rig::formatted(slots(), options());
    rig.log.mark_active(key(0), 1);
    assert_eq!(rig.settle(), [marked(1)]);
    let (valid, frame) = (rig.geometry.all_granules(), Frame(2));
    rig.fill(frame.0, key(0), 1);
    rig.log.append(Append {
        ticket: 2,
        key: key(0),
        valid,
        dirty: Granules::EMPTY,
        frame,
        urgent: true,
    });
    let events = rig.settle();
    let [Event::Record(RecordEvent::Appended { position: cell, .. })] = events[..] else {
        panic!("{events:?}")
    };
    rig.append(3, key(4), 1, true);
    rig.settle();
    rig.log.sync(9);
    assert_eq!(rig.settle(), [answer(9, AnswerKind::Synced, Ok(()))]);
    let mut rig = rig.restart(Start::RECOVER);
    let dirty_records = |events: &[Event]| {
        let dirty = |e: &&Event| matches!(e, Event::Start(StartEvent::Recovered(r)) if r.dirty != Granules::EMPTY);
        events.iter().filter(dirty).count()
    };
    assert_eq!(dirty_records(&rig.settle()), 1);
    rig.append(4, key(5), 1, true);
    rig.poll();
    assert_eq!(rig.at_risk(), 2, "a header and a payload");
    // The header is lost, but the payload is on the device.
    let (geometry, options, before) = (rig.geometry, rig.options, rig.flash.durable.clone());
    let at = rig.log.byte_offset(cell) as usize;
    let flash = rig.cut_by(4);
    assert!(flash.durable[at..at + 4096] != before[at..at + 4096], "it lies in that cell");
    let mut rig = Rig::new(geometry, options, flash);
    rig.log.start(Start::RECOVER);
    assert_eq!(dirty_records(&rig.settle()), 1);
}

#[test]
fn a_tier_of_the_other_layout_is_refused_and_left_as_it_was() {
    for (made, run) in [(slots(), tiny()), (tiny(), slots())] {
        let rig = Rig::formatted(made, options());
        let before = rig.flash.current.clone();
        let mut other = Rig::new(run, options(), rig.flash.clone());
        other.log.start(Start::RECOVER);
        let events = other.settle();
        let [Event::Start(StartEvent::Failed(LogError::OtherLayout { .. }))] = &events[..] else {
            panic!("{events:?}")
        };
        assert!(other.flash.current == before);
    }
}

#[test]
fn a_device_is_divided_so_that_the_journal_holds_every_mapping_twice() {
    for (size, block) in [(4 << 20, 4096), (64 << 20, 4096), (1 << 30, 16384), (1 << 40, 65536)] {
        let log = Geometry::for_device(size, block).unwrap();
        let g = log.in_slots(size, None).unwrap();
        assert!(g.device_bytes() <= size, "{g:?}");
        let payload = u64::from(g.slots) * u64::from(block);
        assert!(payload * 100 > size * 85, "{payload} of {size}: {g:?}");
    }
    assert!(Geometry::for_device(1 << 20, 4096).unwrap().in_slots(200 << 10, None).is_err());
}

#[test]
fn what_nobody_syncs_is_synced_now_and_then() {
    let geometry = Geometry::for_device(64 << 20, 4096).unwrap().in_slots(64 << 20, None).unwrap();
    let options = Options { frames: 128, ..options() };
    let mut rig = Rig::formatted(geometry, options);
    let before = rig.log.stats().syncs;
    for n in 0..9000 {
        rig.append(n, key(n), 1, n % 100 == 99);
        rig.settle();
    }
    assert_eq!(rig.log.stats().syncs - before, 2, "after every 4096 entries");
    let mut again = Rig::new(geometry, options, rig.flash.clone());
    again.log.start(Start::RECOVER);
    let events = again.settle();
    let report = events.iter().find_map(|e| match e {
        Event::Start(StartEvent::Ready(report)) => Some(report),
        _ => None,
    });
    let report = report.expect("it recovers");
    assert_eq!(report.records, 9000);
    assert!(report.payloads_verified < 4096 + 100, "{}", report.payloads_verified);
}
