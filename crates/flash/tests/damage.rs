//! Damage of every kind to every part, and the outcomes in the tables of `docs/flash-format.md`.

use crate::common::{Flash, Rig, Rng, key, options, tiny};
use forebay_block::Volume;
use forebay_effect::IoError;
use forebay_flash::format::superblock::Superblock;
use forebay_flash::{
    Binding, Damage, Event, Geometry, LogError, OnDamage, Options, RecoveryReport, Start,
    StartEvent, StoreId, SuperblockGeneration, TierId,
};

const PAGE: usize = 4096;

fn set(flash: &mut Flash, at: usize, byte: u8) {
    flash.durable[at] = byte;
    flash.current[at] = byte;
}

fn flip(flash: &mut Flash, at: usize, bit: u8) {
    let byte = flash.current[at] ^ 1 << bit;
    set(flash, at, byte);
}

/// Five synced batches, two entries each, in two regions (the tiny geometry's regions hold three
/// such batches); blocks 0 to 9. The fifth is known to be durable only where `after` appends a
/// sixth batch.
fn five_batches(after: bool) -> Rig {
    let mut rig = Rig::formatted(tiny(), options());
    for n in 0..5 {
        rig.append(2 * n, key(2 * n), 1, false);
        rig.append(2 * n + 1, key(2 * n + 1), 1, true);
        rig.log.sync(n);
        rig.settle();
    }
    if after {
        rig.append(10, key(10), 1, true);
        rig.log.sync(9);
        rig.settle();
    }
    rig
}

/// Page of each batch's header: the regions start at pages 2 and 12.
const HEADERS: [usize; 5] = [3, 6, 9, 13, 16];

struct Outcome {
    blocks: Vec<u64>,
    unreadable: Vec<u64>,
    end: Result<Box<RecoveryReport>, LogError>,
    written: usize,
}

fn start(flash: &Flash, how: Start, on_damage: OnDamage) -> Outcome {
    start_as(tiny(), flash, how, on_damage)
}

fn start_as(run: Geometry, flash: &Flash, how: Start, on_damage: OnDamage) -> Outcome {
    let mut rig = Rig::new(run, Options { on_damage, ..options() }, flash.clone());
    rig.log.start(how);
    let mut outcome =
        Outcome { blocks: vec![], unreadable: vec![], end: Err(LogError::NotALog), written: 0 };
    for event in rig.settle() {
        match event {
            Event::Start(StartEvent::Recovered(r)) => {
                outcome.blocks.push(r.key.block().0);
                if rig.read(r.key, r.position, r.valid, r.checksum).is_none() {
                    outcome.unreadable.push(r.key.block().0);
                }
            }
            Event::Start(StartEvent::Ready(report)) => outcome.end = Ok(report),
            Event::Start(StartEvent::Failed(error)) => outcome.end = Err(error),
            Event::Start(StartEvent::RecoveredTombstone { .. }) | Event::Reclaim { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    outcome.written = rig.history.iter().filter(|h| h.0 != u64::MAX).count();
    outcome
}

/// Recovers a device on which reads from these pages fail. Returns how the start ended, how many
/// records it found, and the offsets written.
fn recover_without(
    flash: &Flash,
    how: Start,
    pages: &[usize],
) -> (Result<Box<RecoveryReport>, LogError>, usize, Vec<u64>) {
    let mut rig = Rig::new(tiny(), options(), flash.clone());
    rig.unreadable = pages.iter().map(|&page| (page * PAGE) as u64).collect();
    rig.log.start(how);
    let (mut records, mut end) = (0, Err(LogError::NotALog));
    for event in rig.settle() {
        match event {
            Event::Start(StartEvent::Recovered(_)) => records += 1,
            Event::Start(StartEvent::Ready(report)) => end = Ok(report),
            Event::Start(StartEvent::Failed(error)) => end = Err(error),
            other => panic!("{other:?}"),
        }
    }
    (end, records, rig.history.iter().map(|h| h.0).filter(|&at| at != u64::MAX).collect())
}

fn recover(flash: &Flash) -> Outcome {
    start(flash, Start::RECOVER, OnDamage::Refuse)
}

fn damage(outcome: &Outcome) -> &Damage {
    match &outcome.end {
        Ok(report) => &report.damage,
        Err(LogError::Damaged(report)) => &report.damage,
        Err(other) => panic!("{other}"),
    }
}

/// The batches whose headers are gone, as the first and the last of each series.
fn batches_lost(outcome: &Outcome) -> Vec<(u64, u64)> {
    damage(outcome).batches.iter().map(|(first, last)| (first.0, last.0)).collect()
}

fn superblock_stale(found: u64, known: u64) -> LogError {
    let (found, known) = (SuperblockGeneration(found), SuperblockGeneration(known));
    LogError::SuperblockStale { found, known }
}

fn all() -> Vec<u64> {
    (0..10).collect()
}

#[test]
fn any_damage_to_one_superblock_copy_is_made_good() {
    let rig = five_batches(false);
    let mut rng = Rng(1);
    for copy in 0..2 {
        for at in 0..PAGE {
            let mut flash = rig.flash.clone();
            flip(&mut flash, copy * PAGE + at, rng.below(8) as u8);
            let outcome = recover(&flash);
            assert_eq!(outcome.blocks, all(), "copy {copy} byte {at}");
            assert_eq!(damage(&outcome).repaired, [copy as u32]);
            assert!(outcome.end.is_ok());
        }
    }
}

#[test]
fn damage_to_both_superblock_copies_is_refused_and_nothing_is_written() {
    let rig = five_batches(false);
    for (a, b, missing) in [(0, 3, true), (200, 900, false), (3, 4000, false)] {
        let mut flash = rig.flash.clone();
        flip(&mut flash, a, 1);
        flip(&mut flash, PAGE + b, 1);
        let outcome = recover(&flash);
        let expected = if missing { LogError::NotALog } else { LogError::SuperblockDamaged };
        assert_eq!(outcome.end, Err(expected));
        assert_eq!(outcome.written, 0);
    }
}

#[test]
fn an_unreadable_superblock_copy_is_made_good_and_written_before_the_other() {
    let rig = five_batches(false);
    for copy in 0..2 {
        let (end, records, writes) = recover_without(&rig.flash, Start::RECOVER, &[copy]);
        assert_eq!((end.unwrap().damage.repaired, records), (vec![copy as u32], 10));
        // The copy that could be read is not overwritten before the other one is durable.
        assert_eq!(writes, [copy, 1 - copy].map(|copy| (copy * PAGE) as u64));
        let (end, records, writes) = recover_without(&rig.flash, Start::Check, &[copy]);
        assert_eq!((end.unwrap().damage.repaired, records), (vec![copy as u32], 10));
        assert_eq!(writes, []);
    }
}

#[test]
fn pages_of_a_superblock_copy_that_are_not_in_use_need_not_be_readable() {
    // A table of 50 volumes takes a second page.
    let bindings =
        |n| (0..n).map(|v| Binding::new(Volume(v), StoreId::new([1; 16]), 1)).collect::<Vec<_>>();
    let geometry = Geometry { superblock_pages: 3, ..tiny() };
    for (volumes, used) in [(2, 1), (50, 2)] {
        let mut rig = Rig::formatted(geometry, options());
        rig.log.bind(bindings(volumes), 1);
        rig.settle();
        for page in 0..3 {
            let mut again = Rig::new(geometry, options(), rig.flash.clone());
            again.unreadable = vec![(page * PAGE) as u64, 5 * PAGE as u64];
            again.log.start(Start::RECOVER);
            let events = again.settle();
            let [Event::Start(StartEvent::Ready(report))] = &events[..] else {
                panic!("{events:?}")
            };
            assert_eq!(report.bindings.len(), volumes as usize);
            let lost: &[u32] = if page < used { &[0] } else { &[] };
            assert_eq!(report.damage.repaired, lost, "page {page} of {used}");
        }
    }
}

#[test]
fn without_a_superblock_copy_the_start_is_refused_with_the_error_of_the_read() {
    let rig = five_batches(false);
    for damaged in [None, Some(3), Some(200)] {
        for copy in 0..2 {
            for how in [Start::RECOVER, Start::Check] {
                let (mut flash, mut unreadable) = (rig.flash.clone(), vec![copy]);
                match damaged {
                    Some(byte) => flip(&mut flash, (1 - copy) * PAGE + byte, 1),
                    None => unreadable.push(1 - copy),
                }
                let (end, records, writes) = recover_without(&flash, how, &unreadable);
                assert_eq!(end, Err(LogError::Io(IoError::Device)));
                assert_eq!((records, writes), (0, vec![]), "it may be intact");
            }
        }
    }
}

#[test]
fn an_older_superblock_than_the_batches_know_is_refused_if_the_newer_cannot_be_read() {
    let mut rig = five_batches(false);
    let old = rig.flash.current[..PAGE].to_vec();
    rig.log.bind(Vec::new(), 1);
    rig.settle();
    rig.append(10, key(10), 1, true);
    rig.log.sync(2);
    rig.settle();
    for copy in 0..2 {
        let mut flash = rig.flash.clone();
        old.iter().enumerate().for_each(|(at, &byte)| set(&mut flash, copy * PAGE + at, byte));
        let (end, _, writes) = recover_without(&flash, Start::RECOVER, &[1 - copy]);
        assert_eq!(end, Err(superblock_stale(1, 2)));
        assert_eq!(writes, []);
    }
}

#[test]
fn a_region_whose_headers_cannot_be_read_is_not_taken_for_an_empty_one() {
    let rig = five_batches(false);
    for page in [2, 12, 22] {
        let (end, records, writes) = recover_without(&rig.flash, Start::RECOVER, &[page]);
        assert_eq!(end, Err(LogError::Io(IoError::Device)));
        assert_eq!((records, writes), (0, vec![]));
    }
}

#[test]
fn a_newer_format_is_named_and_left_alone() {
    let rig = five_batches(false);
    let mut flash = rig.flash.clone();
    set(&mut flash, 8, 9);
    reseal(&mut flash, 0);
    let outcome = recover(&flash);
    assert_eq!(outcome.end, Err(LogError::NewerFormat { found: 9, supported: 3 }));
    assert_eq!(outcome.written, 0);
}

/// Makes the checksum of the structure in this page right again.
fn reseal(flash: &mut Flash, page: usize) {
    let at = page * PAGE;
    let length = u32::from_le_bytes(flash.current[at + 12..at + 16].try_into().unwrap());
    let bytes = &flash.current[at..at + length as usize];
    let crc = crc32c::crc32c(&bytes[..16]);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    let crc = crc32c::crc32c_append(crc, &bytes[20..]);
    for (n, byte) in crc.to_le_bytes().into_iter().enumerate() {
        set(flash, at + 16 + n, byte);
    }
}

#[test]
fn any_damage_to_a_region_header_is_made_good() {
    let rig = five_batches(false);
    let mut rng = Rng(2);
    for region in [0, 1] {
        let page = 2 + 10 * region;
        for at in 0..PAGE {
            let mut flash = rig.flash.clone();
            flip(&mut flash, page * PAGE + at, rng.below(8) as u8);
            let outcome = recover(&flash);
            assert_eq!(outcome.blocks, all(), "region {region} byte {at}");
            assert_eq!(damage(&outcome).repaired, [page as u32]);
        }
    }
}

#[test]
fn any_damage_to_a_header_known_to_be_durable_is_reported() {
    let rig = five_batches(true);
    let mut rng = Rng(3);
    for (n, page) in HEADERS.into_iter().enumerate() {
        for at in 0..PAGE {
            let mut flash = rig.flash.clone();
            flip(&mut flash, page * PAGE + at, rng.below(8) as u8);
            let outcome = recover(&flash);
            assert_eq!(
                batches_lost(&outcome),
                [(n as u64 + 1, n as u64 + 1)],
                "page {page} byte {at}"
            );
            assert!(matches!(outcome.end, Err(LogError::Damaged(_))), "refused");
            assert_eq!(outcome.written, 0);
            let left: Vec<u64> = (0..11).filter(|b| b / 2 != n as u64).collect();
            assert_eq!(outcome.blocks, left, "everything else is given");
        }
    }
}

#[test]
fn going_on_after_damage_keeps_reporting_it_and_keeps_the_rest() {
    let rig = five_batches(true);
    let mut flash = rig.flash.clone();
    flip(&mut flash, HEADERS[1] * PAGE + 100, 0);
    let mut rig = Rig::new(tiny(), Options { on_damage: OnDamage::Report, ..options() }, flash);
    rig.log.start(Start::RECOVER);
    rig.settle();
    rig.append(11, key(11), 1, true);
    rig.log.sync(1);
    rig.settle();
    let outcome = start(&rig.flash, Start::RECOVER, OnDamage::Report);
    assert_eq!(outcome.blocks, [0, 1, 4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(batches_lost(&outcome), [(2, 2)]);
}

#[test]
fn a_lost_header_at_the_end_of_a_clean_log_is_reported() {
    let mut rig = five_batches(false);
    rig.log.stop();
    rig.settle();
    let mut flash = rig.flash.clone();
    flip(&mut flash, HEADERS[4] * PAGE + 100, 0);
    let outcome = recover(&flash);
    assert_eq!(batches_lost(&outcome), [(5, 5)]);
    let report = start(&rig.flash, Start::RECOVER, OnDamage::Refuse).end.unwrap();
    assert!(report.clean && report.damage.is_harmless());
}

#[test]
fn a_lost_header_in_the_last_region_of_a_full_ring_is_reported() {
    let mut rig = Rig::formatted(tiny(), options());
    // Three batches fill a region. The last region is for carried records; with these no region is
    // free.
    for n in 0..9 {
        rig.append(2 * n, key(2 * n), 1, false);
        rig.append(2 * n + 1, key(2 * n + 1), 1, true);
        rig.log.sync(n);
        rig.settle();
    }
    for n in 18..20 {
        rig.carry(n, key(n), 1);
        rig.settle();
        // Otherwise nothing would make the carried record durable.
        rig.log.bind(Vec::new(), n);
        rig.settle();
    }
    assert_eq!(rig.log.stats().regions_free, 0);
    // The tenth batch is the first of the fourth region.
    let mut flash = rig.flash.clone();
    flip(&mut flash, 33 * PAGE + 100, 0);
    let outcome = recover(&flash);
    assert_eq!(batches_lost(&outcome), [(10, 10)]);
    assert!(start(&rig.flash, Start::RECOVER, OnDamage::Refuse).end.is_ok());
}

#[test]
fn a_lost_header_at_the_end_of_a_log_that_was_cut_is_its_end() {
    let rig = five_batches(false);
    let mut flash = rig.flash.clone();
    flip(&mut flash, HEADERS[4] * PAGE + 100, 0);
    let outcome = recover(&flash);
    assert_eq!(outcome.blocks, (0..8).collect::<Vec<_>>());
    assert!(damage(&outcome).is_harmless());
}

#[test]
fn any_damage_to_a_durable_payload_shows_when_it_is_read_and_in_a_check() {
    let rig = five_batches(true);
    let mut rng = Rng(4);
    for _ in 0..500 {
        let n = rng.below(5) as usize;
        let entry = rng.below(2);
        let at = (HEADERS[n] + 1 + entry as usize) * PAGE + rng.below(PAGE as u64) as usize;
        let mut flash = rig.flash.clone();
        flip(&mut flash, at, rng.below(8) as u8);
        let block = 2 * n as u64 + entry;
        // Batches not known to be durable when recovery reaches them are verified on the way. It
        // does not read the payloads of the others, so that a start does not read the whole device.
        let outcome = recover(&flash);
        assert!(outcome.end.is_ok(), "one record is no reason to keep all others from their users");
        assert_eq!(outcome.unreadable, [block]);
        assert_eq!(outcome.blocks, (0..11).collect::<Vec<_>>(), "given, so that no older one is");
        let outcome = start(&flash, Start::Check, OnDamage::Refuse);
        let bad: Vec<u64> = damage(&outcome).payloads.iter().map(|p| p.0.block().0).collect();
        assert_eq!(bad, [block]);
        assert_eq!(outcome.written, 0);
        assert!(outcome.end.is_ok());
    }
}

#[test]
fn a_torn_payload_at_the_end_is_the_end_of_the_log() {
    let mut rig = five_batches(false);
    rig.append(10, key(10), 1, true);
    rig.append(11, key(11), 1, true);
    rig.settle();
    // Neither was synced; the first one's payload is torn.
    let mut flash = rig.flash.clone();
    let page = 2 + 10 + 7;
    assert_eq!(&flash.current[page * PAGE..page * PAGE + 8], b"FBATCH\r\n");
    set(&mut flash, (page + 1) * PAGE + 512, 0);
    let outcome = recover(&flash);
    assert_eq!(outcome.blocks, all());
    let report = outcome.end.unwrap();
    assert_eq!(report.batches_dropped, 1, "the whole batch behind it");
    assert!(report.damage.is_harmless());
}

#[test]
fn what_was_dropped_stays_dropped_over_many_starts() {
    let mut rig = five_batches(false);
    rig.append(10, key(10), 7, true);
    rig.append(11, key(11), 7, true);
    rig.settle();
    let torn = (2 + 10 + 8) * PAGE;
    let kept = rig.flash.current[torn];
    set(&mut rig.flash, torn, !kept);
    for round in 0..3 {
        let mut next = rig.restart(Start::RECOVER);
        next.settle();
        // The torn sector reads as whole again; then a batch of the new epoch is written.
        set(&mut next.flash, torn, kept);
        if round == 1 {
            next.append(12, key(12), 1, true);
            next.log.sync(1);
            next.settle();
        }
        rig = next;
        let outcome = recover(&rig.flash);
        assert!(!outcome.blocks.contains(&10) && !outcome.blocks.contains(&11), "{round}");
        assert_eq!(outcome.blocks.contains(&12), round >= 1);
    }
}

#[test]
fn a_superblock_older_than_the_batches_know_is_refused() {
    let mut rig = five_batches(false);
    let old = rig.flash.current[..2 * PAGE].to_vec();
    rig.log.bind(Vec::new(), 1);
    rig.settle();
    rig.append(10, key(10), 1, true);
    rig.log.sync(2);
    rig.settle();
    for (at, byte) in old.into_iter().enumerate() {
        set(&mut rig.flash, at, byte);
    }
    let outcome = recover(&rig.flash);
    assert_eq!(outcome.end, Err(superblock_stale(1, 2)));
    assert_eq!(outcome.written, 0);
}

#[test]
fn misdirected_and_foreign_batches_are_not_taken() {
    let rig = five_batches(true);
    let copy = |from: usize, to: usize, pages: usize| {
        let mut flash = rig.flash.clone();
        for n in 0..pages * PAGE {
            let byte = flash.current[from * PAGE + n];
            set(&mut flash, to * PAGE + n, byte);
        }
        flash
    };
    // A batch copied over another, in the same region and in the next.
    for (from, to) in [(3, 6), (6, 3), (3, 13), (13, 3)] {
        let outcome = recover(&copy(from, to, 3));
        assert_eq!(damage(&outcome).batches.len(), 1, "{from} over {to}");
        assert!(matches!(outcome.end, Err(LogError::Damaged(_))));
    }
    // A whole region copied over another one.
    let outcome = recover(&copy(2, 12, 10));
    assert!(matches!(outcome.end, Err(LogError::Damaged(_))));
    // A batch copied to a place after the end of the log.
    let outcome = recover(&copy(13, 22, 3));
    assert_eq!(outcome.blocks, (0..11).collect::<Vec<_>>());
    assert!(damage(&outcome).is_harmless());
    // Another UUID for the same log, and its regions under this superblock.
    let mut other = Rig::new(tiny(), options(), Flash::new(tiny().device_bytes()));
    other.log.start(Start::Format { uuid: TierId::new([7; 16]), bindings: Vec::new() });
    other.settle();
    for n in 0..4 {
        other.append(n, key(n), 9, true);
        other.settle();
    }
    let fresh = Rig::formatted(tiny(), options());
    let mut flash = fresh.flash.clone();
    for at in 2 * PAGE..flash.current.len() {
        let byte = other.flash.current[at];
        set(&mut flash, at, byte);
    }
    let outcome = recover(&flash);
    assert_eq!(outcome.blocks, []);
    assert!(damage(&outcome).is_harmless());
}

#[test]
fn another_geometry_is_refused_by_name_and_converting_it_gives_the_stored_one() {
    let rig = five_batches(false);
    let stored = Superblock::decode(&rig.flash.current).unwrap();
    let wide = Geometry { region_pages: 20, batch_pages_max: 12, ..tiny() };
    let slots = Geometry { regions: 6, slots: 10, region_pages: 8, ..tiny() };
    for (run, what, is, expected) in [
        (Geometry { block_size: 2048, ..tiny() }, "block size", 4096, 2048),
        (Geometry { page_size: 8192, ..tiny() }, "page size", 4096, 8192),
        (Geometry { superblock_pages: 2, ..tiny() }, "superblock pages", 1, 2),
        (wide, "region pages", 10, 20),
        (Geometry { regions: 3, ..tiny() }, "regions", 4, 3),
        (Geometry { regions: 9, ..tiny() }, "regions", 4, 9),
        (Geometry { extent_bytes: 1 << 20, ..tiny() }, "extent bytes", 4 * 4096, 1 << 20),
        (slots, "layout", 0, 1),
    ] {
        let mut other = Rig::new(run, options(), rig.flash.clone());
        other.log.start(Start::RECOVER);
        let refused = match what {
            "layout" => LogError::OtherLayout { stored: 0, expected: 1 },
            _ => LogError::Geometry { what, stored: is, expected },
        };
        assert_eq!(other.settle(), [Event::Start(StartEvent::Failed(refused))]);
        assert!(other.history.iter().all(|h| h.0 == u64::MAX), "nothing is written");
        let converted = run.as_stored(&stored).unwrap();
        assert_eq!(Geometry { batch_pages_max: 5, ..converted }, tiny(), "{what}");
        assert!(converted.batch_pages_max < 10, "a batch fits a region");
        let mut other = Rig::new(converted, options(), rig.flash.clone());
        other.log.start(Start::RECOVER);
        assert!(
            other.settle().iter().any(|event| matches!(event, Event::Start(StartEvent::Ready(_)))),
            "{what}"
        );
    }
}

#[test]
fn numbers_that_no_log_can_have_are_refused() {
    let rig = five_batches(false);
    let stored = Superblock::decode(&rig.flash.current).unwrap();
    assert_eq!(tiny().as_stored(&stored), Ok(tiny()));
    let unknown = Superblock { layout: 2, ..stored.clone() };
    assert_eq!(tiny().as_stored(&unknown), Err(LogError::Layout(2)));
    for n in [0, 1, 2, 3, 4096, 4097, 1 << 24, u32::MAX] {
        for (what, changed) in [
            ("block size", Superblock { block_size: n, ..stored.clone() }),
            ("page size", Superblock { page_size: n, ..stored.clone() }),
            ("superblock pages", Superblock { superblock_pages: n, ..stored.clone() }),
            ("region pages", Superblock { region_pages: n, ..stored.clone() }),
            ("regions", Superblock { regions: n, ..stored.clone() }),
            ("cells", Superblock { slots: n, ..stored.clone() }),
            ("layout and cells", Superblock { slots: n, layout: 1, ..stored.clone() }),
            ("extent bytes", Superblock { extent_bytes: n.into(), ..stored.clone() }),
        ] {
            match tiny().as_stored(&changed) {
                Ok(geometry) => assert_eq!(geometry.validate(), Ok(()), "{what} {n}"),
                Err(error) => assert_eq!(error, LogError::SuperblockDamaged, "{what} {n}"),
            }
        }
    }
}

#[test]
fn arbitrary_metadata_with_right_checksums_never_panics() {
    let rig = five_batches(true);
    let mut rng = Rng(5);
    for _ in 0..20_000 {
        let mut flash = rig.flash.clone();
        for _ in 0..1 + rng.below(3) {
            let page = [0, 1, 2, 12, 3, 6, 9, 13, 16][rng.below(9) as usize];
            for _ in 0..1 + rng.below(4) {
                let at = [20 + rng.below(240), 20 + rng.below(110), rng.below(20)];
                let at = page * PAGE + at[rng.below(3) as usize] as usize;
                let byte = [rng.next() as u8, 0, 255, 1][rng.below(4) as usize];
                set(&mut flash, at, byte);
            }
            let length = page * PAGE + 12;
            if flash.current[length..length + 4] == [0, 16, 0, 0] {
                reseal(&mut flash, page);
            }
        }
        // Uses the geometry of the first copy that has one, as a driver would.
        let copies = [0, PAGE].map(|at| Superblock::decode(&flash.current[at..]));
        let stored = copies.iter().flatten().find_map(|copy| tiny().as_stored(copy).ok());
        let fits = |g: &Geometry| g.device_bytes() <= tiny().device_bytes();
        let run = stored.filter(fits).unwrap_or(tiny());
        for how in [Start::RECOVER, Start::Check] {
            start_as(run, &flash, how, OnDamage::Report);
        }
    }
}

#[test]
fn arbitrary_bytes_are_no_log() {
    let mut rng = Rng(6);
    for _ in 0..200 {
        let mut flash = Flash::new(tiny().device_bytes());
        for at in 0..flash.current.len() {
            flash.current[at] = rng.next() as u8;
        }
        assert_eq!(recover(&flash).end, Err(LogError::NotALog));
    }
}
