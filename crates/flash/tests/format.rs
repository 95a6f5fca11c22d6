//! The format, byte for byte, and its decoders against arbitrary bytes.

use crate::common::{Rig, key, options, tiny};
use forebay_block::Volume;
use forebay_flash::format::FormatError;
use forebay_flash::format::batch::{BatchEntry, BatchHeader, EntryKind, entries_max};
use forebay_flash::format::directory::{DirectoryHeader, RegionContents};
use forebay_flash::format::region::RegionHeader;
use forebay_flash::format::superblock::{Superblock, bindings_max};
use forebay_flash::{
    BatchSequence, Binding, BlockKey, EpochStart, Event, Geometry, Granules, RecordEvent,
    RegionSequence, StampNumber, Start, StartEvent, StoreId, SuperblockGeneration, TierId,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

const UUID: TierId = TierId::new(*b"0123456789abcdef");

fn epoch_start(first_batch: u64, epoch: u64) -> EpochStart {
    EpochStart { first_batch: BatchSequence(first_batch), epoch }
}

fn superblock() -> Superblock {
    Superblock {
        layout: 0,
        clean: true,
        uuid: UUID,
        generation: SuperblockGeneration(0x11),
        epoch: 0x12,
        block_size: 4096,
        page_size: 4096,
        region_pages: 10,
        regions: 4,
        superblock_pages: 1,
        slots: 0,
        extent_bytes: 16384,
        tail_region: RegionSequence(0x13),
        tail_batch: BatchSequence(0x14),
        synced: BatchSequence(0x15),
        clean_before: BatchSequence(0x16),
        epochs: vec![epoch_start(1, 2), epoch_start(0x20, 0x12)],
        active: vec![BlockKey::new(Volume(7), 8)],
        bindings: vec![Binding {
            distrusted: BatchSequence(0x18),
            seal: [0xCD; 32],
            stamp: StampNumber(0x19),
            voided: BatchSequence(0x1A),
            logged: StampNumber(0x1B),
            size: 0x1C << 9,
            ..Binding::new(Volume(7), StoreId::new([0xAB; 16]), 0x17)
        }],
    }
}

fn region() -> RegionHeader {
    RegionHeader {
        uuid: UUID,
        page: 12,
        epoch: 0x12,
        sequence: RegionSequence(0x13),
        first_batch: BatchSequence(0x14),
        synced: BatchSequence(0x15),
        generation: SuperblockGeneration(0x16),
        directory_pages: 3,
    }
}

fn batch() -> (BatchHeader, [BatchEntry; 3]) {
    let header = BatchHeader {
        uuid: UUID,
        page: 13,
        epoch: 0x12,
        sequence: BatchSequence(0x14),
        region_sequence: RegionSequence(0x13),
        synced: BatchSequence(0x15),
        generation: SuperblockGeneration(0x16),
        pages: 2,
    };
    let (kind, valid, dirty) = (EntryKind::Tombstone, 0, 0);
    let dead = BatchEntry {
        key: BlockKey::new(Volume(1), 2),
        kind,
        valid: Granules(valid),
        dirty: Granules(dirty),
        offset: 0,
        cell: 0,
        checksum: 0,
    };
    let (kind, valid, dirty) = (EntryKind::Data, 0x83, 0x81);
    let data = BatchEntry {
        key: BlockKey::new(Volume(3), 4),
        kind,
        valid: Granules(valid),
        dirty: Granules(dirty),
        offset: 1,
        cell: 0,
        checksum: 0xAABBCCDD,
    };
    let key = BlockKey::new(Volume(5), 6);
    let lost = BatchEntry {
        key,
        kind: EntryKind::Lost,
        valid: Granules::EMPTY,
        dirty: Granules(0x90),
        offset: 0,
        cell: 0,
        checksum: 0,
    };
    (header, [dead, data, lost])
}

/// The directory of a region of two batches.
fn directory() -> (DirectoryHeader, RegionContents) {
    let header = DirectoryHeader {
        uuid: UUID,
        page: 20,
        epoch: 0x12,
        region_sequence: RegionSequence(0x13),
        first_batch: BatchSequence(0x14),
    };
    let [dead, data, _] = batch().1;
    (header, RegionContents { batches: vec![2, 1], entries: vec![dead, data, data] })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The lines of 16 bytes that are not zero.
fn lines(bytes: &[u8]) -> Vec<String> {
    let lines = bytes.chunks(16).enumerate();
    lines
        .filter(|(_, l)| l.iter().any(|b| *b != 0))
        .map(|(n, l)| format!("{:3x}0 {}", n, hex(l)))
        .collect()
}

/// A page made of these lines of 16 bytes.
fn page_of(lines: &[&str]) -> [u8; 4096] {
    let mut page = [0; 4096];
    for line in lines {
        let (at, bytes) = line.trim().split_once(' ').unwrap();
        let at = usize::from_str_radix(at, 16).unwrap();
        for n in 0..16 {
            page[at + n] = u8::from_str_radix(&bytes[2 * n..2 * n + 2], 16).unwrap();
        }
    }
    page
}

/// Makes the checksum of a structure right again, which covers all its bytes.
fn write_checksum(bytes: &mut [u8]) {
    let crc = crc32c::crc32c(&bytes[..16]);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    let crc = crc32c::crc32c_append(crc, &bytes[20..]);
    bytes[16..20].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn a_superblock_has_these_bytes() {
    let mut page = [0xFF; 4096];
    assert_eq!(superblock().encode(&mut page), 4096);
    assert_eq!(
        lines(&page),
        [
            "  00 464f52454241590a0300000000100000",
            "  10 8cf4cc53010000003031323334353637",
            "  20 38396162636465661100000000000000",
            "  30 12000000000000000010000000100000",
            "  40 0a000000040000000100000000000000",
            "  50 00400000000000001300000000000000",
            "  60 14000000000000001500000000000000",
            "  70 16000000000000000200010001000000",
            "  80 01000000000000000200000000000000",
            "  90 20000000000000001200000000000000",
            "  a0 080000000000070007001c0000000000",
            "  b0 abababababababababababababababab",
            "  c0 17000000000000001800000000000000",
            "  d0 cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",
            "  e0 cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",
            "  f0 19000000000000001a00000000000000",
            " 100 1b000000000000000000000000000000",
        ]
    );
    assert_eq!(Superblock::decode(&page), Ok(superblock()));
}

/// The superblock as it was before stamps and sizes of volumes existed.
fn unstamped() -> Superblock {
    let mut superblock = superblock();
    let binding = &mut superblock.bindings[0];
    (binding.stamp, binding.voided, binding.logged) =
        (StampNumber::NONE, BatchSequence::NONE, StampNumber::NONE);
    binding.size = 0;
    superblock
}

#[test]
fn a_superblock_from_before_there_were_stamps_knows_of_none() {
    let page = page_of(&[
        "  00 464f52454241590a0300000000100000",
        "  10 e58efc47010000003031323334353637",
        "  20 38396162636465661100000000000000",
        "  30 12000000000000000010000000100000",
        "  40 0a000000040000000100000000000000",
        "  50 00400000000000001300000000000000",
        "  60 14000000000000001500000000000000",
        "  70 16000000000000000200010001000000",
        "  80 01000000000000000200000000000000",
        "  90 20000000000000001200000000000000",
        "  a0 08000000000007000700000000000000",
        "  b0 abababababababababababababababab",
        "  c0 17000000000000001800000000000000",
        "  d0 cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",
        "  e0 cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",
    ]);
    assert_eq!(Superblock::decode(&page), Ok(unstamped()));
}

#[test]
fn a_superblock_of_version_1_is_read_as_one_that_was_never_sealed() {
    let lines = [
        "  00 464f52454241590a0100000000100000",
        "  10 9d764951010000003031323334353637",
        "  20 38396162636465661100000000000000",
        "  30 12000000000000000010000000100000",
        "  40 0a000000040000000100000000000000",
        "  50 00400000000000001300000000000000",
        "  60 14000000000000001500000000000000",
        "  70 16000000000000000200010001000000",
        "  80 01000000000000000200000000000000",
        "  90 20000000000000001200000000000000",
        "  a0 08000000000007000700000000000000",
        "  b0 abababababababababababababababab",
        "  c0 17000000000000000000000000000000",
    ];
    let page = page_of(&lines);
    let old = Superblock {
        bindings: vec![Binding::new(Volume(7), StoreId::new([0xAB; 16]), 0x17)],
        ..superblock()
    };
    assert_eq!(Superblock::decode(&page), Ok(old));
}

#[test]
fn headers_of_version_2_are_read_as_those_of_regions_without_directories() {
    let page = page_of(&[
        "  00 464f52454241590a0200000000100000",
        "  10 921204c5010000003031323334353637",
        "  20 38396162636465661100000000000000",
        "  30 12000000000000000010000000100000",
        "  40 0a000000040000000100000000000000",
        "  50 00400000000000001300000000000000",
        "  60 14000000000000001500000000000000",
        "  70 16000000000000000200010001000000",
        "  80 01000000000000000200000000000000",
        "  90 20000000000000001200000000000000",
        "  a0 08000000000007000700000000000000",
        "  b0 abababababababababababababababab",
        "  c0 17000000000000001800000000000000",
        "  d0 cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",
        "  e0 cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",
    ]);
    assert_eq!(Superblock::decode(&page), Ok(unstamped()));
    let page = page_of(&[
        "  00 4642524547494f4e0200000000100000",
        "  10 08f8c3300c0000003031323334353637",
        "  20 38396162636465661200000000000000",
        "  30 13000000000000001400000000000000",
        "  40 15000000000000001600000000000000",
    ]);
    let old = RegionHeader { directory_pages: 0, ..region() };
    assert_eq!(RegionHeader::decode(&page, UUID, 12), Ok(old));
    let page = page_of(&[
        "  00 4642415443480d0a0200020000100000",
        "  10 433673720d0000003031323334353637",
        "  20 38396162636465661200000000000000",
        "  30 14000000000000001300000000000000",
        "  40 15000000000000001600000000000000",
        "  50 02000000000000000000000000000000",
        "  60 02000000000001000000000001000000",
        "  70 00000000000000000400000000000300",
        "  80 8300810000000100ddccbbaa00000000",
    ]);
    let (header, entries) = batch();
    let mut found = Vec::new();
    assert_eq!(BatchHeader::decode(&page, UUID, 13, &tiny(), &mut found), Ok(header));
    assert_eq!(found, entries[..2], "nothing was lost then");
}

#[test]
fn a_superblock_whose_table_of_epochs_does_not_end_with_its_own_is_refused() {
    let start = epoch_start;
    let decode = |epochs| {
        let mut page = vec![0; 4096];
        Superblock { epochs, ..superblock() }.encode(&mut page);
        Superblock::decode(&page).map(|decoded| decoded.epoch)
    };
    let refused = Err(FormatError::Invalid("table of epochs"));
    assert_eq!(decode(vec![start(1, 2), start(0x20, 0x12)]), Ok(0x12));
    assert_eq!(decode(vec![]), refused);
    assert_eq!(decode(vec![start(1, 2)]), refused, "its own is missing");
    assert_eq!(decode(vec![start(1, 0x12), start(2, 0x13)]), refused, "a later one follows");
    assert_eq!(decode(vec![start(0x20, 2), start(1, 0x12)]), refused, "batches in disorder");
    assert_eq!(decode(vec![start(1, 0x12), start(2, 0x12)]), refused, "the same twice");
}

#[test]
fn a_region_header_has_these_bytes() {
    let mut page = [0xFF; 4096];
    region().encode(&mut page);
    assert_eq!(
        lines(&page),
        [
            "  00 4642524547494f4e0300030000100000",
            "  10 7c10d80b0c0000003031323334353637",
            "  20 38396162636465661200000000000000",
            "  30 13000000000000001400000000000000",
            "  40 15000000000000001600000000000000",
        ]
    );
    assert_eq!(RegionHeader::decode(&page, UUID, 12), Ok(region()));
    assert_eq!(RegionHeader::decode(&page, UUID, 13), Err(FormatError::Misplaced));
    assert_eq!(RegionHeader::decode(&page, TierId::new([1; 16]), 12), Err(FormatError::Foreign));
}

#[test]
fn zeroes_are_the_uuid_of_no_tier() {
    let mut page = [0xFF; 4096];
    region().encode(&mut page);
    page[24..40].fill(0);
    write_checksum(&mut page);
    assert_eq!(RegionHeader::decode(&page, UUID, 12), Err(FormatError::Foreign));
    superblock().encode(&mut page);
    page[24..40].fill(0);
    write_checksum(&mut page);
    assert_eq!(Superblock::decode(&page), Err(FormatError::Invalid("UUID")));
}

#[test]
fn a_batch_header_has_these_bytes() {
    let mut page = [0xFF; 4096];
    let (header, entries) = batch();
    header.encode(entries.into_iter(), &mut page);
    assert_eq!(
        lines(&page),
        [
            "  00 4642415443480d0a0300030000100000",
            "  10 169b406a0d0000003031323334353637",
            "  20 38396162636465661200000000000000",
            "  30 14000000000000001300000000000000",
            "  40 15000000000000001600000000000000",
            "  50 02000000000000000000000000000000",
            "  60 02000000000001000000000001000000",
            "  70 00000000000000000400000000000300",
            "  80 8300810000000100ddccbbaa00000000",
            "  90 06000000000005000000900002000000",
        ]
    );
    let mut found = Vec::new();
    assert_eq!(BatchHeader::decode(&page, UUID, 13, &tiny(), &mut found), Ok(header));
    assert_eq!(found, entries);
}

#[test]
fn a_directory_has_these_bytes() {
    let mut page = [0xFF; 4096];
    let (header, contents) = directory();
    assert_eq!(header.encode(&contents, 4096, &mut page), 4096);
    assert_eq!(
        lines(&page),
        [
            "  00 46424449524543540300000000100000",
            "  10 fe3c53c8140000003031323334353637",
            "  20 38396162636465661200000000000000",
            "  30 13000000000000001400000000000000",
            "  40 02000000030000000000000000000000",
            "  60 02000000000001000000000001000000",
            "  70 00000000000000000400000000000300",
            "  80 8300810000000100ddccbbaa00000000",
            "  90 04000000000003008300810000000100",
            "  a0 ddccbbaa000000000200010000000000",
        ]
    );
    let mut found = RegionContents::default();
    assert_eq!(DirectoryHeader::decode(&page, UUID, 20, &tiny(), &mut found), Ok(header));
    assert_eq!(found, contents);
    let decode = |uuid, number| {
        DirectoryHeader::decode(&page, uuid, number, &tiny(), &mut RegionContents::default())
    };
    assert_eq!(decode(UUID, 21), Err(FormatError::Misplaced));
    assert_eq!(decode(TierId::new([1; 16]), 20), Err(FormatError::Foreign));
}

#[test]
fn a_directory_that_does_not_add_up_is_refused() {
    let decode = |change: &dyn Fn(&mut RegionContents)| {
        let mut page = [0xFF; 4096];
        let (header, mut contents) = directory();
        change(&mut contents);
        header.encode(&contents, 4096, &mut page);
        let mut found = RegionContents::default();
        DirectoryHeader::decode(&page, UUID, 20, &tiny(), &mut found).err()
    };
    let wrong = |what| Some(FormatError::Invalid(what));
    assert_eq!(decode(&|_| {}), None);
    assert_eq!(decode(&|c| c.clear()), wrong("number of entries"));
    assert_eq!(decode(&|c| c.batches[0] = 1), wrong("number of entries"));
    assert_eq!(decode(&|c| c.batches.push(0)), wrong("number of entries"));
    assert_eq!(decode(&|c| c.batches = vec![1, 2]), wrong("payload offset"));
    assert_eq!(decode(&|c| c.entries[1].offset = 2), wrong("payload offset"));
    assert_eq!(decode(&|c| c.entries[1].cell = 1), wrong("location of a payload"));
    assert_eq!(decode(&|c| c.entries[1].dirty = Granules(0x100)), wrong("entry"));
    // A region has nine pages after its header; three batches of two pages fit, five do not.
    let many = |n: usize| {
        move |c: &mut RegionContents| {
            let entry = c.entries[1];
            (c.batches, c.entries) = (vec![1; n], vec![entry; n]);
        }
    };
    assert_eq!(decode(&many(4)), None);
    assert_eq!(decode(&many(5)), wrong("number of pages"));
}

#[test]
fn the_checksum_of_a_payload_has_this_value() {
    let mut rig = Rig::formatted(tiny(), options());
    rig.frames[0].fill(0x5A);
    let frame = forebay_effect::Frame(0);
    let valid = 3;
    rig.log.append(forebay_flash::Append {
        ticket: 0,
        key: key(9),
        valid: Granules(valid),
        dirty: Granules::EMPTY,
        frame,
        urgent: true,
    });
    let events = rig.settle();
    let [Event::Record(RecordEvent::Appended { position, checksum, .. })] = events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((position.0, checksum), (4, 2_896_795_291));
}

#[test]
fn headers_hold_what_the_documentation_says() {
    assert_eq!(entries_max(4096), 166);
    let geometry = Geometry::for_device(64 << 30, 4096).unwrap();
    assert_eq!(geometry.regions, 4095);
    assert_eq!(bindings_max(&geometry), 585);
    assert_eq!(bindings_max(&tiny()), 30);
}

#[test]
fn default_geometries_fit_their_devices() {
    for block_size in [512, 4096, 16384, 65536, 1 << 20] {
        let mut fitting = 0;
        for shift in 18..=46 {
            for size in [1u64 << shift, (1 << shift) + 12345, 3 << (shift - 1)] {
                match Geometry::for_device(size, block_size) {
                    Ok(g) => {
                        assert!(g.device_bytes() <= size);
                        assert!(g.regions >= 4);
                        g.validate().unwrap();
                        fitting += 1;
                    }
                    Err(e) => assert!(size < 64 << 20, "{size} {block_size}: {e}"),
                }
            }
        }
        assert!(fitting > 20);
    }
}

/// The share of a device that holds no blocks: what is kept free (two regions, and those for
/// carried records), half of the region being filled, the superblocks, and headers and directories
/// of regions.
#[test]
fn little_of_a_device_is_left_without_blocks() {
    for (mib, percent) in [(32, 12), (64, 7), (128, 7), (256, 7), (1 << 10, 7), (64 << 10, 2)] {
        let size = mib << 20;
        let g = Geometry::for_device(size, 4096).unwrap();
        let held = g.region_blocks(g.batch_entries_max) * 4096;
        let used = f64::from(g.regions - 2 - g.regions_kept()) - 0.5;
        let lost = 1.0 - used * held as f64 / size as f64;
        assert!(lost * 100.0 < f64::from(percent), "{mib} MiB: {lost:.3} of it");
    }
}

#[test]
fn a_check_finds_what_the_log_holds_and_writes_nothing() {
    let mut rig = Rig::formatted(tiny(), options());
    rig.append(0, key(0), 1, true);
    rig.append(1, key(1), 1, true);
    rig.log.poison(key(1));
    rig.log.sync(0);
    rig.settle();
    let mut check = rig.restart(Start::Check);
    let events = check.settle();
    assert!(matches!(events.last(), Some(Event::Start(StartEvent::Ready(_)))));
    let mut dirty = BTreeMap::new();
    for event in &events {
        match event {
            Event::Start(StartEvent::Recovered(record)) => {
                _ = dirty.insert(record.key, record.dirty)
            }
            Event::Start(StartEvent::RecoveredTombstone { key }) => _ = dirty.remove(key),
            _ => {}
        }
    }
    assert_eq!(dirty.into_iter().collect::<Vec<_>>(), [(key(0), tiny().all_granules())]);
    assert!(check.history.is_empty(), "a check writes nothing");
}

proptest! {
    #[test]
    fn arbitrary_bytes_decode_to_errors_and_never_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..5000),
        magic in 0..5,
    ) {
        let magics = [*b"FOREBAY\n", *b"FBREGION", *b"FBATCH\r\n", *b"FBDIRECT", [0; 8]];
        if bytes.len() >= 8 {
            bytes[..8].copy_from_slice(&magics[magic as usize]);
        }
        let mut entries = Vec::new();
        prop_assert!(Superblock::decode(&bytes).is_err());
        prop_assert!(RegionHeader::decode(&bytes, UUID, 12).is_err());
        prop_assert!(BatchHeader::decode(&bytes, UUID, 12, &tiny(), &mut entries).is_err());
        let mut contents = RegionContents::default();
        prop_assert!(DirectoryHeader::decode(&bytes, UUID, 12, &tiny(), &mut contents).is_err());
    }

    #[test]
    fn arbitrary_fields_with_a_right_checksum_never_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 20..5000),
        magic in 0..4,
        small in prop_oneof![0u16..200, any::<u16>()],
    ) {
        let magics = [*b"FOREBAY\n", *b"FBREGION", *b"FBATCH\r\n", *b"FBDIRECT"];
        let length = bytes.len() as u32;
        bytes[..8].copy_from_slice(&magics[magic as usize]);
        bytes[8..10].copy_from_slice(&[1, 0]);
        bytes[10..12].copy_from_slice(&small.to_le_bytes());
        bytes[12..16].copy_from_slice(&length.to_le_bytes());
        write_checksum(&mut bytes);
        let mut entries = Vec::new();
        let _ = Superblock::decode(&bytes);
        let _ = RegionHeader::decode(&bytes, UUID, 12);
        let _ = BatchHeader::decode(&bytes, UUID, 12, &tiny(), &mut entries);
        let mut contents = RegionContents::default();
        if bytes.len() >= 40 {
            let uuid = TierId::from_bytes(bytes[24..40].try_into().unwrap()).unwrap_or(UUID);
            let page = u32::from_le_bytes(bytes[20..24].try_into().unwrap());
            let _ = DirectoryHeader::decode(&bytes, uuid, page, &tiny(), &mut contents);
        }
    }

    #[test]
    fn any_flipped_bit_of_a_header_is_noticed(at in 0usize..4096, bit in 0u32..8) {
        let mut pages = [[0; 4096]; 4];
        superblock().encode(&mut pages[0]);
        region().encode(&mut pages[1]);
        let (header, entries) = batch();
        header.encode(entries.into_iter(), &mut pages[2]);
        let (header, contents) = directory();
        header.encode(&contents, 4096, &mut pages[3]);
        for page in &mut pages {
            page[at] ^= 1u8 << bit;
        }
        let mut found = Vec::new();
        prop_assert!(Superblock::decode(&pages[0]).is_err());
        prop_assert!(RegionHeader::decode(&pages[1], UUID, 12).is_err());
        prop_assert!(BatchHeader::decode(&pages[2], UUID, 13, &tiny(), &mut found).is_err());
        let mut found = RegionContents::default();
        prop_assert!(DirectoryHeader::decode(&pages[3], UUID, 20, &tiny(), &mut found).is_err());
    }
}
