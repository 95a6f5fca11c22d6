//! Each row of the table of changes, compared field by field. `tests/store_headers.rs` combines
//! them.

use super::*;
use crate::binding::Binding;
use crate::identity::StoreId;
use crate::sequence::SuperblockGeneration;

const TIER: TierId = TierId::new([3; 16]);
const OTHER: TierId = TierId::new([4; 16]);

fn stamp(complete: u64, seen: u64, generation: u64) -> Stamp {
    Stamp {
        complete: BatchSequence(complete),
        seen: BatchSequence(seen),
        generation: SuperblockGeneration(generation),
    }
}

/// Fields that all differ from those of a new header.
fn fields() -> HeaderFields {
    HeaderFields {
        update: 10,
        generation: 11,
        flash_uuid: Some(TIER),
        flash_epoch: 12,
        data_bytes: 13,
        dirty: true,
        opening: true,
        released: true,
        fingerprint: Some(Fingerprint::of_hash(14)),
        stamp: stamp(15, 16, 17),
        stamp_number: StampNumber(18),
    }
}

fn header() -> StoreHeader {
    with(HeaderPhase::Found, fields())
}

/// Not older than the log knows.
fn with(phase: HeaderPhase, fields: HeaderFields) -> StoreHeader {
    StoreHeader { fields, older: false, phase }
}

/// The header of a store in use.
fn open_header() -> StoreHeader {
    with(HeaderPhase::Open, fields())
}

/// The fields after a change, which counts as an update.
fn after(header: &StoreHeader, change: &HeaderChange) -> HeaderFields {
    let next = header.after(change);
    assert_eq!(next.update, header.update + 1);
    HeaderFields { update: header.update, ..next.fields }
}

#[test]
fn an_announcement_names_the_next_epoch_and_keeps_what_the_tier_owes() {
    let announce =
        |tier, keeps_fingerprint| HeaderChange::Announce { tier, epoch: 20, keeps_fingerprint };
    let clean = HeaderFields { dirty: false, opening: false, ..fields() };
    let same = HeaderFields { flash_epoch: 20, opening: true, ..fields() };
    let without = HeaderFields { fingerprint: None, ..same };
    assert_eq!(after(&header(), &announce(TIER, true)), same);
    assert_eq!(after(&header(), &announce(TIER, false)), without);
    let clean = with(HeaderPhase::Found, clean);
    assert!(!clean.after(&announce(TIER, false)).dirty);
    let other = HeaderFields {
        flash_uuid: Some(OTHER),
        dirty: false,
        stamp: Stamp::default(),
        stamp_number: StampNumber(0),
        ..same
    };
    assert_eq!(after(&header(), &announce(OTHER, true)), other, "another tier");
}

#[test]
fn a_retraction_restores_all_but_the_number_of_updates() {
    let former = StoreHeader { older: true, ..header() };
    let announce = HeaderChange::Announce { tier: OTHER, epoch: 1, keeps_fingerprint: false };
    let retracted = former.after(&announce).after(&HeaderChange::Retract { former });
    let expected = HeaderFields { update: 12, ..fields() };
    assert_eq!(retracted, StoreHeader { fields: expected, ..former });
}

#[test]
fn an_opening_says_what_the_run_may_leave_on_flash() {
    let open = HeaderChange::Open {
        tier: Some(TIER),
        epoch: 20,
        noted: StampNumber(30),
        instead: None,
        dirty: true,
        released: false,
    };
    let expected = HeaderFields {
        generation: 12,
        flash_epoch: 20,
        opening: false,
        released: false,
        fingerprint: None,
        stamp_number: StampNumber(31),
        ..fields()
    };
    let older = StoreHeader { older: true, ..header() };
    assert_eq!(after(&older, &open), expected);
    assert!(!older.after(&open).older);
    let HeaderChange::Open { tier, epoch, instead, .. } = open else { unreachable!() };
    let through = HeaderChange::Open {
        tier,
        epoch,
        noted: StampNumber(2),
        instead,
        dirty: false,
        released: true,
    };
    let expected =
        HeaderFields { dirty: false, released: true, stamp_number: StampNumber(19), ..expected };
    assert_eq!(after(&header(), &through), expected, "the log has noted an earlier stamp");
}

#[test]
fn an_opening_with_an_older_log_or_another_tier_forgets_the_former_stamp() {
    let new = stamp(1, 2, 3);
    let open = |tier| HeaderChange::Open {
        tier,
        epoch: 20,
        noted: StampNumber(30),
        instead: Some(new),
        dirty: true,
        released: false,
    };
    let older_log = header().after(&open(Some(TIER)));
    assert_eq!(
        (older_log.stamp, older_log.stamp_number),
        (new, StampNumber(31)),
        "lower than before"
    );
    let other = header().after(&open(Some(OTHER)));
    assert_eq!(
        (other.flash_uuid, other.stamp, other.stamp_number),
        (Some(OTHER), Stamp::default(), StampNumber::NONE)
    );
}

#[test]
fn an_opening_takes_from_a_recovery_what_the_log_knows_of_its_volume() {
    let (first, second) = (Volume(0), Volume(1));
    let bound = |volume, stamp| Binding {
        stamp: StampNumber(stamp),
        ..Binding::new(volume, StoreId::new([7; 16]), 1)
    };
    let report = RecoveryReport {
        uuid: Some(TIER),
        epoch: 20,
        bindings: vec![bound(first, 30), bound(second, 31)],
        outdated: vec![(first, Older::Store), (second, Older::Flash)],
        ..RecoveryReport::default()
    };
    let (now, opened) = (stamp(40, 41, 42), OpenFlags { dirty: true, released: false });
    let open = |volume, recovered| HeaderChange::open(volume, recovered, now, opened);
    let expected = |tier, epoch, noted, instead| HeaderChange::Open {
        tier,
        epoch,
        noted: StampNumber(noted),
        instead,
        dirty: true,
        released: false,
    };
    assert_eq!(open(first, Some(&report)), expected(Some(TIER), 20, 30, None));
    assert_eq!(open(second, Some(&report)), expected(Some(TIER), 20, 31, Some(now)));
    assert_eq!(open(Volume(2), Some(&report)), expected(Some(TIER), 20, 0, None), "not bound");
    assert_eq!(open(first, None), expected(None, 0, 0, None), "no flash tier");
}

#[test]
fn a_stamp_has_a_new_number_and_keeps_the_higher_values() {
    let change = HeaderChange::Stamp { stamp: stamp(20, 1, 21), release: false };
    let expected =
        HeaderFields { stamp: stamp(20, 16, 21), stamp_number: StampNumber(19), ..fields() };
    assert_eq!(after(&header(), &change), expected);
}

#[test]
fn a_stamp_of_an_older_copy_says_only_what_it_has_seen() {
    let older = StoreHeader { older: true, ..header() };
    let change = HeaderChange::Stamp { stamp: stamp(20, 22, 21), release: false };
    let expected = HeaderFields { stamp: stamp(15, 22, 21), ..fields() };
    assert_eq!(after(&older, &change), expected);
    assert!(older.after(&change).older);
}

#[test]
fn a_stamp_that_releases_the_store_calls_it_whole() {
    let kept = with(HeaderPhase::Open, HeaderFields { released: false, ..fields() });
    let change = HeaderChange::Stamp { stamp: Stamp::default(), release: true };
    let expected =
        HeaderFields { released: true, dirty: false, stamp_number: StampNumber(19), ..fields() };
    assert_eq!(after(&kept, &change), expected);
}

#[test]
fn marking_a_store_dirty_changes_nothing_else() {
    let clean = with(HeaderPhase::Open, HeaderFields { dirty: false, ..fields() });
    assert_eq!(after(&clean, &HeaderChange::MarkDirty), fields());
}

#[test]
fn a_store_is_left_clean_only_if_it_is_whole() {
    let leave = |whole, released| HeaderChange::Leave {
        whole,
        released,
        fingerprint: Some(Fingerprint::of_hash(40)),
        data_bytes: 41,
        stamp: stamp(42, 43, 44),
    };
    let part = HeaderFields {
        released: false,
        fingerprint: Some(Fingerprint::of_hash(40)),
        data_bytes: 41,
        stamp: stamp(42, 43, 44),
        stamp_number: StampNumber(19),
        ..fields()
    };
    let whole = HeaderFields { dirty: false, opening: false, released: true, ..part };
    assert_eq!(after(&open_header(), &leave(false, false)), part);
    assert_eq!(after(&open_header(), &leave(true, true)), whole);
}

#[test]
fn a_withdrawn_note_has_no_fingerprint() {
    for dirty in [false, true] {
        let expected = HeaderFields { dirty, fingerprint: None, ..fields() };
        let left = with(HeaderPhase::Left, fields());
        let change = HeaderChange::Withdraw { dirty };
        assert_eq!(after(&left, &change), expected);
        assert_eq!(left.after_unwritten(&change), None, "it has to be written");
        let same = with(HeaderPhase::Left, expected);
        assert_eq!(same.after_unwritten(&change), Some(with(HeaderPhase::Open, expected)));
    }
}

/// Goal: the table of the module tells the truth. Method: all pairs of phases and changes.
#[test]
fn changes_follow_each_other_as_the_table_says() {
    let phases = [HeaderPhase::Found, HeaderPhase::Announced, HeaderPhase::Open, HeaderPhase::Left];
    let (tier, epoch, dirty, released) = (Some(TIER), 1, false, false);
    let (noted, instead, stamp) = (StampNumber::NONE, None, Stamp::default());
    let (fingerprint, data_bytes, keeps_fingerprint) = (None, 1, false);
    let changes = [
        HeaderChange::Announce { tier: TIER, epoch, keeps_fingerprint },
        HeaderChange::Retract { former: header() },
        HeaderChange::Open { tier, epoch, noted, instead, dirty, released },
        HeaderChange::Stamp { stamp, release: false },
        HeaderChange::MarkDirty,
        HeaderChange::Leave { whole: true, released, fingerprint, data_bytes, stamp },
        HeaderChange::Withdraw { dirty },
        HeaderChange::Release,
    ];
    let name = |of: String| of.split(' ').next().unwrap_or_default().to_owned();
    let lines = include_str!("../store_header.rs").lines();
    let rows = lines.skip_while(|line| !line.starts_with("//! | phase |")).skip(2);
    let rows = rows.map_while(|line| line.strip_prefix("//! | ")?.strip_suffix(" |"));
    let mut table: Vec<Vec<&str>> =
        rows.map(|row| row.split(" | ").map(|cell| cell.trim_matches('`')).collect()).collect();
    for phase in phases {
        for change in &changes {
            let header = with(phase, HeaderFields { dirty: false, ..fields() });
            if let Some(next) = phase.after(change) {
                let row = [format!("{phase:?}"), name(format!("{change:?}")), format!("{next:?}")];
                let at = table.iter().position(|cells| *cells == row);
                table.remove(at.unwrap_or_else(|| panic!("the table lacks {row:?}")));
                assert_eq!(header.after(change).phase, next);
            } else {
                let changed = std::panic::catch_unwind(|| header.after(change));
                assert!(changed.is_err(), "{change:?} in {phase:?}");
            }
        }
    }
    assert!(table.is_empty(), "not possible: {table:?}");
}

#[test]
fn the_next_process_finds_what_the_header_says_and_nothing_else() {
    let header = StoreHeader { older: true, ..open_header() };
    assert_eq!(header.found_again(), StoreHeader { older: false, ..self::header() });
}

#[test]
fn a_release_changes_nothing_else() {
    let kept = HeaderFields { released: false, dirty: false, ..fields() };
    let expected = HeaderFields { released: true, ..kept };
    let kept = with(HeaderPhase::Found, kept);
    assert_eq!(after(&kept, &HeaderChange::Release), expected);
}

#[test]
#[should_panic(expected = "newer data of the store is on its flash tier")]
fn a_dirty_store_is_not_released() {
    let _ = header().after(&HeaderChange::Release);
}

#[test]
fn the_number_of_a_stamp_that_may_be_there_is_not_used_again() {
    let mut header = open_header();
    let before = header;
    let change = HeaderChange::Stamp { stamp: stamp(20, 20, 20), release: true };
    header.not_written(&before.after(&change));
    let expected = HeaderFields { stamp_number: StampNumber(19), ..fields() };
    assert_eq!(header.fields, expected, "nothing else changes");
    header.not_written(&before.after(&HeaderChange::MarkDirty));
    assert_eq!(header.fields, expected, "and it never becomes lower");
}

#[test]
fn a_start_learns_what_the_header_says() {
    let said = header().store_stamp(Volume(7));
    let expected = StoreStamp {
        volume: Volume(7),
        number: StampNumber(18),
        stamp: stamp(15, 16, 17),
        whole: false,
        released: true,
    };
    assert_eq!(said, expected);
    assert_eq!(header().epochs(), 11..=12, "the tier may not have begun the epoch");
    let open = with(HeaderPhase::Open, HeaderFields { opening: false, ..fields() });
    assert_eq!(open.epochs(), 12..=12);
    let mut header = StoreHeader::new(9);
    assert_eq!((header.data_bytes, header.epochs(), header.older), (9, 0..=0, false));
    header.take_for_older(true);
    assert!(header.older);
}

#[test]
fn numbers_that_no_version_reaches_are_refused_by_name() {
    let high = SEQUENCE_MAX;
    for (fields, name) in [
        (HeaderFields { update: high, ..fields() }, "number of updates"),
        (HeaderFields { generation: high, ..fields() }, "generation"),
        (HeaderFields { flash_epoch: high, ..fields() }, "epoch"),
        (HeaderFields { stamp: stamp(high, 0, 0), ..fields() }, "stamp"),
        (HeaderFields { stamp: stamp(0, u64::MAX, 0), ..fields() }, "stamp"),
        (HeaderFields { stamp: stamp(0, 0, high), ..fields() }, "stamp"),
        (HeaderFields { stamp_number: StampNumber(high), ..fields() }, "number of the stamp"),
    ] {
        assert_eq!(StoreHeader::from_fields(fields), Err(name));
    }
    let highest =
        HeaderFields { update: high - 1, stamp_number: StampNumber(high - 1), ..fields() };
    assert!(StoreHeader::from_fields(highest).is_ok());
}
