//! Directories: what a start reads of full regions, and when it accepts a directory.

use crate::common::{Flash, Rig, Rng, key, options, tiny};
use forebay_effect::{Effect, Frame};
use forebay_flash::format::directory::{DirectoryHeader, RegionContents};
use forebay_flash::{
    Append, Event, Geometry, Granules, LogError, OnDamage, Options, RecordEvent, RecoveryProgress,
    RecoveryReport, RegionIndex, RegionSequence, Start, StartEvent, TierId,
};

const PAGE: usize = 4096;

/// Regions of ten pages for header and batches, and one for the directory: four regions, and one
/// more that is kept for carried records.
fn geometry() -> Geometry {
    Geometry { region_pages: 11, directory_pages: 1, regions: 5, ..tiny() }
}

/// The offset of a region's directory in bytes.
fn directory(region: u32) -> usize {
    geometry().directory_start(RegionIndex(region)) as usize * PAGE
}

/// Appends synced batches of two entries each, three to a region, for blocks from 0 on.
fn batches(range: std::ops::Range<u64>, rig: &mut Rig) {
    for n in range {
        for entry in 0..2 {
            let block = 2 * n + entry;
            rig.append(block, key(block), 1 + block, entry == 1);
        }
        rig.log.sync(n);
        rig.settle();
    }
}

fn filled(count: u64) -> Rig {
    let mut rig = Rig::formatted(geometry(), options());
    batches(0..count, &mut rig);
    rig
}

struct Outcome {
    blocks: Vec<u64>,
    end: Result<Box<RecoveryReport>, LogError>,
    /// Pages read in regions.
    read: Vec<u32>,
}

impl Outcome {
    fn report(&self) -> &RecoveryReport {
        match &self.end {
            Ok(report) | Err(LogError::Damaged(report)) => report,
            Err(other) => panic!("{other}"),
        }
    }

    /// Directories accepted, missing, torn, stale, and with dropped batches.
    fn counts(&self) -> [u64; 5] {
        let d = &self.report().directories;
        [d.believed, d.missing, d.torn, d.stale, d.dropped]
    }
}

fn start(flash: &Flash, how: Start) -> Outcome {
    start_with(flash, how, options())
}

fn start_with(flash: &Flash, how: Start, options: Options) -> Outcome {
    let mut rig = Rig::new(geometry(), options, flash.clone());
    rig.log.start(how);
    let mut outcome = Outcome { blocks: vec![], end: Err(LogError::NotALog), read: vec![] };
    for event in rig.settle() {
        match event {
            Event::Start(StartEvent::Recovered(r)) => outcome.blocks.push(r.key.block().0),
            Event::Start(StartEvent::Ready(report)) => outcome.end = Ok(report),
            Event::Start(StartEvent::Failed(error)) => outcome.end = Err(error),
            Event::Start(StartEvent::RecoveredTombstone { .. }) | Event::Reclaim { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    let first = geometry().first_region_page();
    for (offset, length) in rig.reads {
        let (from, pages) = ((offset / PAGE as u64) as u32, (length / PAGE) as u32);
        outcome.read.extend((from..from + pages).filter(|page| *page >= first));
    }
    outcome
}

fn recover(flash: &Flash) -> Outcome {
    start(flash, Start::RECOVER)
}

fn all(blocks: u64) -> Vec<u64> {
    (0..blocks).collect()
}

fn set(flash: &mut Flash, at: usize, bytes: &[u8]) {
    flash.durable[at..at + bytes.len()].copy_from_slice(bytes);
    flash.current[at..at + bytes.len()].copy_from_slice(bytes);
}

fn reseal(flash: &mut Flash, at: usize) {
    let mut bytes = flash.current[at..at + PAGE].to_vec();
    let crc = crc32c::crc32c(&bytes[..16]);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    let crc = crc32c::crc32c_append(crc, &bytes[20..]);
    bytes[16..20].copy_from_slice(&crc.to_le_bytes());
    set(flash, at, &bytes);
}

#[test]
fn of_full_regions_a_start_reads_headers_and_directories_only() {
    let rig = filled(10);
    let outcome = recover(&rig.flash);
    assert_eq!(outcome.blocks, all(20));
    assert_eq!(outcome.counts(), [3, 0, 0, 0, 0]);
    let report = outcome.report();
    assert_eq!((report.batches, report.records, report.regions_used), (10, 20, 4));
    for region in 0..3 {
        let from = geometry().region_start(RegionIndex(region));
        let of: Vec<u32> = (from..from + 11).filter(|p| outcome.read.contains(p)).collect();
        assert_eq!(of, [from, from + 1, from + 10], "region {region}");
    }
}

#[test]
fn a_start_reads_no_more_for_what_was_written_before_the_last_two_regions() {
    // Small batches, as from a client that flushes after each write: a header for every payload.
    let geometry = Geometry { region_pages: 65, regions: 64, directory_pages: 1, ..tiny() };
    let mut rig = Rig::formatted(geometry, options());
    let mut written = 0;
    for regions in [8, 16, 32, 60] {
        while rig.log.stats().regions_total - rig.log.stats().regions_free < regions {
            rig.append(written, key(written), 1, true);
            rig.settle();
            written += 1;
        }
        let mut again = Rig::new(geometry, options(), rig.flash.clone());
        again.log.start(Start::RECOVER);
        let events = again.settle();
        let records =
            events.iter().filter(|e| matches!(e, Event::Start(StartEvent::Recovered(_)))).count();
        assert_eq!(records as u64, written);
        let read: usize = again.reads.iter().map(|r| r.1).sum();
        // Superblocks, two pages of every region, and the directory of each full region. Then two
        // regions twice: once for headers and payloads that nothing says were durable, once for the
        // search ahead.
        let pages = 2 + 64 * 2 + regions as usize + 2 * 2 * 65;
        assert!(read <= pages * PAGE, "{regions} regions: {} pages of {pages}", read / PAGE);
    }
}

#[test]
fn a_recovery_says_how_far_it_is() {
    let rig = filled(10);
    let mut again = rig.restart(Start::RECOVER);
    assert_eq!(again.log.recovering(), Some(RecoveryProgress::default()), "nothing is known yet");
    let mut said = Vec::new();
    again.poll();
    while let Some(recovering) = again.log.recovering() {
        said.push(recovering);
        again.complete(0);
    }
    assert!(said.is_sorted_by_key(|r| (r.regions, r.regions_done, r.records)), "{said:?}");
    let last = said.last().unwrap();
    assert_eq!((last.regions, last.regions_done), (4, 3), "in the last region");
    assert!(last.records >= 18, "{last:?}");
    again.settle();
    assert_eq!(again.log.recovering(), None);
}

#[test]
fn a_full_region_is_synced_though_nobody_asks() {
    let mut rig = Rig::formatted(geometry(), options());
    let before = rig.log.stats().syncs;
    for n in 0..14 {
        rig.append(n, key(n), 1, n % 2 == 1);
        rig.settle();
    }
    let stats = rig.log.stats();
    assert_eq!((stats.directories, stats.syncs - before), (2, 2));
    assert_eq!(recover(&rig.flash).report().payloads_verified, 2, "of the last batch alone");
}

#[test]
fn a_region_without_its_directory_or_with_a_damaged_one_is_walked() {
    let rig = filled(10);
    let clean = recover(&rig.flash);
    let mut rng = Rng(1);
    for region in 0..3 {
        let mut flash = rig.flash.clone();
        set(&mut flash, directory(region), &[0; PAGE]);
        let outcome = recover(&flash);
        assert_eq!((&outcome.blocks, outcome.counts()), (&clean.blocks, [2, 1, 0, 0, 0]));
        assert!(outcome.report().damage.is_harmless());
        for at in 0..PAGE {
            let mut flash = rig.flash.clone();
            let byte = flash.current[directory(region) + at] ^ 1 << rng.below(8);
            set(&mut flash, directory(region) + at, &[byte]);
            let outcome = recover(&flash);
            assert_eq!(outcome.blocks, clean.blocks);
            let (missing, torn) = if at < 8 { (1, 0) } else { (0, 1) };
            assert_eq!(outcome.counts(), [2, missing, torn, 0, 0], "byte {at}");
            assert!(outcome.end.is_ok());
        }
    }
}

#[test]
fn a_directory_that_cannot_be_read_costs_time_only() {
    let rig = filled(10);
    let mut again = Rig::new(geometry(), options(), rig.flash.clone());
    again.unreadable = vec![directory(1) as u64];
    again.log.start(Start::RECOVER);
    let events = again.settle();
    let records =
        events.iter().filter(|e| matches!(e, Event::Start(StartEvent::Recovered(_)))).count();
    let report = events.iter().find_map(|e| match e {
        Event::Start(StartEvent::Ready(report)) => Some(report),
        _ => None,
    });
    let report = report.expect("it is no failure");
    assert_eq!((records, report.directories.believed, report.directories.torn), (20, 2, 1));
}

#[test]
fn headers_lost_in_a_full_region_are_made_good_by_its_directory() {
    let rig = filled(10);
    for page in [3, 6, 9] {
        let mut flash = rig.flash.clone();
        set(&mut flash, page * PAGE + 100, &[0xA5; 8]);
        let outcome = recover(&flash);
        // (The first batch's page is read with the region's header.)
        assert_eq!(
            (outcome.blocks.clone(), outcome.counts()),
            (all(20), [3, 0, 0, 0, 0]),
            "{page}"
        );
        assert!(outcome.end.is_ok());
        let check = start(&flash, Start::Check);
        assert_eq!(check.blocks, all(20));
        assert_eq!(check.report().damage.repaired, [page as u32]);
        assert!(check.report().damage.is_harmless() && check.end.is_ok());
        // With the directory lost as well, this is damage again.
        set(&mut flash, directory(0), &[0; PAGE]);
        let outcome = recover(&flash);
        assert!(matches!(outcome.end, Err(LogError::Damaged(_))));
    }
}

#[test]
fn a_check_holds_directories_against_headers() {
    let rig = filled(10);
    let check = start(&rig.flash, Start::Check);
    assert_eq!((check.blocks, check.end.unwrap().damage), (all(20), Default::default()));
    // Another checksum, another count, another length: intact, but wrong.
    for change in [0, 1, 2] {
        let mut flash = rig.flash.clone();
        let at = directory(1);
        let mut contents = RegionContents::default();
        let page = geometry().directory_start(RegionIndex(1));
        let bytes = flash.current[at..at + PAGE].to_vec();
        let uuid = TierId::new(*b"0123456789abcdef");
        let header = DirectoryHeader::decode(&bytes, uuid, page, &geometry(), &mut contents);
        match change {
            0 => contents.entries[3].checksum ^= 1,
            1 => contents.entries[3].dirty.0 ^= 1,
            _ => contents.entries[3].key = key(99),
        }
        let mut bytes = vec![0; PAGE];
        header.unwrap().encode(&contents, PAGE as u32, &mut bytes);
        set(&mut flash, at, &bytes);
        let check = start(&flash, Start::Check);
        assert_eq!(check.report().damage.directories, [RegionSequence(1)], "change {change}");
        assert!(!check.report().damage.is_harmless());
    }
}

/// A directory is written when its batches are complete, and becomes durable whenever the device
/// makes it so. A batch may be lost nevertheless.
#[test]
fn a_directory_is_not_believed_before_its_batches_are_known_durable() {
    let mut rig = Rig::formatted(geometry(), options());
    for n in 0..8 {
        rig.append(n, key(n), 1, n % 2 == 1);
        rig.poll();
        while rig.under_way() > 0 {
            rig.complete(0);
        }
    }
    assert_eq!(rig.log.stats().directories, 1);
    // What a power cut leaves: the directory and the next region, but not the second batch. (The
    // sync that the directory caused counts only for the fourth batch, which comes after that cut.)
    let mut flash = rig.flash.clone();
    let region = geometry().region_start(RegionIndex(1)) as usize * PAGE;
    let forged = |flash: &mut Flash, page: usize| {
        // The fourth batch was written before any sync: its headers name no durable batch.
        for at in [page, page + PAGE] {
            set(flash, at + 64, &0u64.to_le_bytes());
            reseal(flash, at);
        }
    };
    forged(&mut flash, region);
    set(&mut flash, 6 * PAGE, &[0; 3 * PAGE]);
    let outcome = recover(&flash);
    assert_eq!(outcome.blocks, [0, 1], "the log ends before what is lost");
    assert_eq!(outcome.counts(), [0; 5]);
    assert!(outcome.end.is_ok(), "a power cut is no damage");
    // The directory is still there, and the log continues in the next region.
    let mut again = Rig::new(geometry(), options(), flash);
    again.log.start(Start::RECOVER);
    again.settle();
    batches(20..21, &mut again);
    let outcome = recover(&again.flash);
    assert_eq!(outcome.blocks, [0, 1, 40, 41], "what was dropped stays dropped");
    assert_eq!(outcome.counts(), [0, 0, 0, 0, 1], "it does not end where the next region begins");
}

#[test]
fn the_directory_of_an_earlier_life_of_the_region_is_not_believed() {
    let mut rig = filled(3);
    batches(3..4, &mut rig);
    let old = rig.flash.current[directory(0)..][..PAGE].to_vec();
    // The log goes once round the ring, and the region holds the same number of batches again.
    for n in 4..19 {
        rig.append(2 * n, key(2 * n), 1, false);
        rig.append(2 * n + 1, key(2 * n + 1), 1, true);
        rig.log.sync(n);
        for event in rig.settle() {
            if let Event::Reclaim { region } = event {
                rig.log.region_released(region);
                rig.settle();
            }
        }
    }
    let now = rig.flash.current[directory(0)..][..PAGE].to_vec();
    assert!(old != now, "the region has a second directory");
    let clean = recover(&rig.flash);
    let mut flash = rig.flash.clone();
    set(&mut flash, directory(0), &old);
    let outcome = recover(&flash);
    assert_eq!(outcome.blocks, clean.blocks);
    assert_eq!(outcome.counts()[3], 1);
}

/// The last region of a log is written again in the next epoch, with the same number of batches,
/// and its new directory is lost: only the epoch tells the two apart.
#[test]
fn the_directory_of_another_epoch_is_not_believed() {
    let mut rig = Rig::formatted(geometry(), options());
    batches(0..3, &mut rig);
    // All of the second region is lost except its directory.
    let mut lost = rig.flash.clone();
    batches(3..7, &mut rig);
    let old = rig.flash.current[directory(1)..][..PAGE].to_vec();
    set(&mut lost, directory(1), &old);
    let mut next = Rig::new(geometry(), options(), lost);
    next.log.start(Start::RECOVER);
    next.settle();
    batches(10..14, &mut next);
    assert_ne!(next.flash.current[directory(1)..][..PAGE], old[..], "its own directory");
    let clean = recover(&next.flash);
    assert_eq!(clean.blocks, [0, 1, 2, 3, 4, 5, 20, 21, 22, 23, 24, 25, 26, 27]);
    set(&mut next.flash, directory(1), &old);
    let outcome = recover(&next.flash);
    assert_eq!(outcome.blocks, clean.blocks);
    // (The first region was cut off before its directory was written.)
    assert_eq!(outcome.counts(), [0, 1, 0, 1, 0]);
}

#[test]
fn regions_too_full_of_tombstones_get_no_directory() {
    // A page of 4096 bytes holds 153 entries if each is a batch, or 166 if there are few batches.
    let geometry = Geometry {
        region_pages: 11,
        directory_pages: 1,
        batch_entries_max: 64,
        batch_pages_max: 9,
        ..tiny()
    };
    let options = Options { frames: 256, ..options() };
    let mut rig = Rig::formatted(geometry, options);
    let before = rig.log.stats().syncs;
    let mut appended = 0;
    while rig.log.stats().regions_total - rig.log.stats().regions_free < 3 {
        for n in 0..64 {
            let (valid, frame) = (0, Frame(0));
            let urgent = n == 63;
            rig.log.append(Append {
                ticket: n,
                key: key(n),
                valid: Granules(valid),
                dirty: Granules::EMPTY,
                frame,
                urgent,
            });
        }
        appended += 64;
        rig.settle();
    }
    assert_eq!(rig.log.stats().directories, 0);
    assert_eq!(rig.log.stats().syncs - before, 2, "it is synced for all that");
    let mut again = Rig::new(geometry, options, rig.flash.clone());
    again.log.start(Start::RECOVER);
    let events = again.settle();
    let tombstones =
        events.iter().filter(|e| matches!(e, Event::Start(StartEvent::RecoveredTombstone { .. })));
    assert_eq!(tombstones.count(), appended);
}

#[test]
fn a_log_written_without_directories_is_walked_and_goes_on_with_them() {
    let without = Geometry { directory_pages: 0, ..geometry() };
    let mut rig = Rig::formatted(without, options());
    batches(0..5, &mut rig);
    let mut rig = Rig::new(geometry(), options(), rig.flash);
    rig.log.start(Start::RECOVER);
    assert_eq!(
        rig.settle().iter().filter(|e| matches!(e, Event::Start(StartEvent::Recovered(_)))).count(),
        10
    );
    batches(5..9, &mut rig);
    let outcome = recover(&rig.flash);
    assert_eq!(outcome.blocks, all(18));
    assert_eq!(outcome.counts(), [1, 0, 0, 0, 0]);
    // Conversely, a run without directories leaves existing ones alone.
    let mut back = Rig::new(without, options(), rig.flash);
    back.log.start(Start::RECOVER);
    assert_eq!(
        back.settle()
            .iter()
            .filter(|e| matches!(e, Event::Start(StartEvent::Recovered(_))))
            .count(),
        18
    );
}

/// A slow device: a region is not opened while the directory of the region two before it is in
/// flight.
#[test]
fn directories_on_their_way_hold_no_more_than_two_regions_up() {
    let mut rig = Rig::formatted(geometry(), Options { frames: 32, ..options() });
    let mut segments = Vec::new();
    let mut held = Vec::new();
    let mut given = 0;
    for n in 0..20 {
        let frame = Frame(n as u32);
        let valid = rig.geometry.all_granules();
        rig.log.append(Append {
            ticket: n,
            key: key(n),
            valid,
            dirty: Granules::EMPTY,
            frame,
            urgent: true,
        });
    }
    // Everything completes at once, except directories.
    let mut waiting = std::collections::VecDeque::new();
    loop {
        while let Some(effect) = rig.log.poll_effect(&mut segments) {
            let token = effect.token().unwrap();
            let directory = matches!(effect, Effect::Write { offset, .. }
                if (0..4).any(|r| offset == directory(r) as u64));
            match (effect.is_device(), directory) {
                (false, _) => rig.log.handle_checksum(token.index, 0),
                (true, true) => held.push(token.index),
                (true, false) => waiting.push_back(token.index),
            }
        }
        while let Some(event) = rig.log.poll_event() {
            given += u64::from(matches!(event, Event::Record(RecordEvent::Appended { .. })));
        }
        match waiting.pop_front() {
            Some(index) => rig.log.handle_completion(index, Ok(())),
            None if given < 20 => {
                assert_eq!(held.len(), 1, "one at a time");
                let used = rig.log.stats().regions_total - rig.log.stats().regions_free;
                assert!(used >= 2);
                rig.log.handle_completion(held.pop().unwrap(), Ok(()));
            }
            None => break,
        }
    }
    assert_eq!(given, 20);
    let used = rig.log.stats().regions_total - rig.log.stats().regions_free;
    assert_eq!(rig.log.stats().directories, u64::from(used) - 1, "of all regions but the open one");
}

#[test]
fn arbitrary_directories_with_right_checksums_never_panic() {
    let rig = filled(10);
    let mut rng = Rng(5);
    for _ in 0..5_000 {
        let mut flash = rig.flash.clone();
        for _ in 0..1 + rng.below(4) {
            let at = [20 + rng.below(80), 96 + rng.below(160)][rng.below(2) as usize] as usize;
            let byte = [rng.next() as u8, 0, 255, 1][rng.below(4) as usize];
            set(&mut flash, directory(1) + at, &[byte]);
        }
        reseal(&mut flash, directory(1));
        for how in [Start::RECOVER, Start::Check] {
            let options = Options { on_damage: OnDamage::Report, ..options() };
            start_with(&flash, how, options);
        }
    }
}
