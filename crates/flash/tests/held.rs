//! Extents of stores that cannot be synced: they stay marked, and the marks of other volumes do not
//! wait for them.

use crate::common::{Rig, key, marked, options, tiny, tombstone, unmarked};
use forebay_block::Volume;
use forebay_effect::{Frame, IoError};
use forebay_flash::{
    Append, BlockKey, Event, ExtentId, Geometry, Granules, MarkAnswer, Start, StartEvent,
};

/// A block of another volume than that of `key`.
fn other(block: u64) -> BlockKey {
    BlockKey::new(Volume(2), block)
}

/// Appends a clean record at once.
fn append_clean(rig: &mut Rig, frame: u32, key: BlockKey, version: u64) {
    rig.fill(frame, key, version);
    let (ticket, valid, frame) = (frame.into(), rig.geometry.all_granules(), Frame(frame));
    rig.log.append(Append { ticket, key, valid, dirty: Granules::EMPTY, frame, urgent: true });
}

/// The extents of block 0 of both volumes are marked and could leave; the first has a clean record.
/// A mark of the second volume, ticket 3, has both asked to retire.
fn marked_in_both_volumes(rig: &mut Rig) -> (ExtentId, ExtentId) {
    append_clean(rig, 0, key(0), 1);
    rig.settle();
    for (ticket, key) in [(1, key(0)), (2, other(0))] {
        rig.log.mark_active(key, ticket);
        rig.settle();
    }
    rig.log.mark_active(other(4), 3);
    let events = rig.settle();
    (retiring(&events, key(0)), retiring(&events, other(0)))
}

/// What a start after a power cut finds for block 0: a record that counts, or a tombstone.
fn found_after_a_cut(rig: &Rig) -> Option<bool> {
    let events = rig.restart(Start::RECOVER).settle();
    let mut found = events.iter().filter_map(|event| match event {
        Event::Start(StartEvent::Recovered(r)) if r.key == key(0) => Some(true),
        Event::Start(StartEvent::RecoveredTombstone { key: of }) if *of == key(0) => Some(false),
        _ => None,
    });
    found.next_back()
}

#[test]
fn an_extent_of_a_store_that_cannot_be_synced_stays_marked_and_others_leave_instead() {
    let mut rig = Rig::formatted(tiny(), options());
    let (held, extent) = marked_in_both_volumes(&mut rig);
    rig.log.hold_extents(Volume(1));
    assert_eq!(rig.settle(), [], "the other one has been asked for");
    // A sync that succeeds after the failed one proves nothing.
    rig.log.extent_released(held);
    assert_eq!(rig.settle(), []);
    rig.log.extent_released(extent);
    assert_eq!(rig.settle(), [marked(3)]);
    append_clean(&mut rig, 1, key(0), 2);
    rig.settle();
    assert_eq!(found_after_a_cut(&rig), Some(false), "the store may have lost what it says");
    // The volume gets no other place, even if one is available.
    rig.log.mark_active(key(8), 4);
    assert_eq!(rig.settle(), [unmarked(4)]);
    assert!(!rig.log.has_mark(key(8)) && rig.log.has_mark(key(1)));
    rig.log.mark_active(key(1), 5);
    assert_eq!(rig.settle(), [marked(5)], "this one it has");
}

#[test]
fn held_extents_stay_marked_past_a_clean_stop() {
    let mut rig = Rig::formatted(tiny(), options());
    marked_in_both_volumes(&mut rig);
    rig.log.hold_extents(Volume(1));
    append_clean(&mut rig, 1, key(0), 2);
    rig.settle();
    rig.log.stop();
    let events = rig.settle();
    assert!(events.contains(&Event::Stopped { result: Ok(()) }), "{events:?}");
    assert_eq!(found_after_a_cut(&rig), Some(false));
}

#[test]
fn a_table_full_of_held_extents_refuses_marks_and_a_record_is_void_only_durably() {
    let one = Geometry { active_extents_max: 1, ..tiny() };
    let mut rig = Rig::formatted(one, options());
    append_clean(&mut rig, 0, other(0), 1);
    rig.log.mark_active(key(0), 1);
    rig.settle();
    rig.log.mark_active(other(0), 2);
    rig.log.mark_active(other(4), 3);
    let events = rig.settle();
    assert!(matches!(events[..], [Event::Retire { .. }]), "{events:?}");
    rig.log.hold_extents(Volume(1));
    let refused = [2, 3].map(unmarked);
    assert_eq!(rig.settle(), refused, "nobody waits for what will not be");
    rig.log.void_record(other(0), 2);
    rig.poll();
    assert_eq!(rig.under_way(), 1, "the tombstone is being written, though the batch is not full");
    rig.complete(0);
    assert_eq!(rig.log.poll_event(), None, "it is not durable yet");
    assert_eq!(rig.settle(), [Event::Mark { ticket: 2, answer: MarkAnswer::RecordVoid(Ok(())) }]);
    let (geometry, options) = (rig.geometry, rig.options);
    let mut cut = Rig::new(geometry, options, rig.cut_by(0));
    cut.log.start(Start::RECOVER);
    let events = cut.settle();
    let last =
        events.iter().rev().find(|event| !matches!(event, Event::Start(StartEvent::Ready(_))));
    assert_eq!(last, Some(&tombstone(other(0))));
}

#[test]
fn a_log_that_fails_tells_who_waits_for_a_record_to_be_void() {
    let mut rig = Rig::formatted(tiny(), options());
    rig.log.void_record(key(0), 7);
    rig.log.give_up(IoError::Device);
    assert_eq!(
        rig.settle(),
        [Event::Mark { ticket: 7, answer: MarkAnswer::RecordVoid(Err(IoError::Device)) }]
    );
    rig.log.void_record(key(0), 8);
    assert_eq!(
        rig.settle(),
        [Event::Mark { ticket: 8, answer: MarkAnswer::RecordVoid(Err(IoError::Device)) }]
    );
}

#[test]
fn an_extent_that_was_leaving_when_its_volume_is_held_gives_its_place_back() {
    let one = Geometry { active_extents_max: 1, ..tiny() };
    let mut rig = Rig::formatted(one, options());
    rig.log.mark_active(key(0), 1);
    rig.settle();
    rig.log.mark_active(other(0), 2);
    let events = rig.settle();
    let [Event::Retire { extent, .. }] = events[..] else { panic!("{events:?}") };
    // The extent's direct writes are durable, whatever later syncs return.
    rig.log.extent_released(extent);
    rig.log.hold_extents(Volume(1));
    assert_eq!(rig.settle(), [marked(2)]);
    rig.log.mark_active(other(4), 3);
    let events = rig.settle();
    assert!(matches!(events[..], [Event::Retire { .. }]), "the place is not lost: {events:?}");
}

/// Marks the extents of block 0 of both volumes, which could leave, and then requests these marks,
/// which wait for a place.
fn full_with_marks_waiting(rig: &mut Rig, marks: &[(BlockKey, u64)]) -> Vec<Event> {
    for (ticket, key) in [(1, key(0)), (2, other(0))] {
        rig.log.mark_active(key, ticket);
        rig.settle();
    }
    for &(key, ticket) in marks {
        rig.log.mark_active(key, ticket);
    }
    rig.settle()
}

/// The leaving extent of the volume of `first`.
fn retiring(events: &[Event], first: BlockKey) -> ExtentId {
    let extent = events.iter().find_map(|event| match event {
        Event::Retire { extent, first: of } if *of == first => Some(*extent),
        _ => None,
    });
    extent.unwrap_or_else(|| panic!("{first} is not to leave: {events:?}"))
}

#[test]
fn a_mark_of_a_held_volume_waits_behind_no_mark_of_a_store_that_hangs() {
    let mut rig = Rig::formatted(tiny(), options());
    // The extent of volume 1 is leaving, and its store never answers.
    let events = full_with_marks_waiting(&mut rig, &[(key(4), 3), (other(4), 4)]);
    retiring(&events, key(0));
    rig.log.hold_extents(Volume(2));
    assert_eq!(rig.settle(), [unmarked(4)], "it waits no longer");
    rig.log.mark_active(other(8), 5);
    assert_eq!(rig.settle(), [unmarked(5)], "it does not begin to wait");
}

#[test]
fn a_mark_that_waited_for_an_extent_to_leave_learns_that_its_volume_is_held() {
    let mut rig = Rig::formatted(tiny(), options());
    let events = full_with_marks_waiting(&mut rig, &[(key(4), 3), (key(8), 4)]);
    let extent = retiring(&events, other(0));
    rig.log.extent_released(extent);
    // Its tombstone is written and synced; the superblock without it is being written.
    for _ in 0..2 {
        rig.poll();
        rig.complete(0);
    }
    rig.poll();
    rig.log.mark_active(other(1), 5);
    assert_eq!(rig.log.poll_event(), None, "the extent cannot stay");
    rig.log.hold_extents(Volume(2));
    let events = rig.settle();
    assert!(events.contains(&marked(3)), "{events:?}");
    assert!(events.contains(&unmarked(5)), "{events:?}");
}

#[test]
fn extents_of_one_volume_leave_although_the_store_of_another_hangs() {
    let mut rig = Rig::formatted(tiny(), options());
    let events = full_with_marks_waiting(&mut rig, &[(other(4), 3)]);
    retiring(&events, key(0));
    let extent = retiring(&events, other(0));
    assert_eq!(events.len(), 2, "each is asked once: {events:?}");
    rig.log.mark_active(other(8), 4);
    assert_eq!(rig.settle(), [], "nor again for another mark");
    rig.log.extent_released(extent);
    let events = rig.settle();
    assert!(events.contains(&marked(3)), "{events:?}");
}

#[test]
fn a_volume_without_a_place_gets_one_although_a_store_that_hangs_has_the_others() {
    let large = Geometry { active_extents_max: 32, ..tiny() };
    let mut rig = Rig::formatted(large, options());
    // The store of volume 1 never answers. The volume has as many extents as can be marked, and
    // more wait.
    (0..40).for_each(|n| rig.log.mark_active(key(4 * n), n));
    let first = rig.settle();
    assert!(!rig.log.has_mark(key(200)), "it would wait for the store");
    assert!(rig.log.has_mark(other(0)));
    rig.log.mark_active(other(0), 50);
    let events = rig.settle();
    assert!(events.contains(&marked(50)), "{events:?}");
    let granted = first
        .iter()
        .filter(|event| matches!(event, Event::Mark { answer: MarkAnswer::Active(_), .. }))
        .count();
    assert_eq!(granted, 30, "two are kept back");
    // The volume uses one place, and no other volume waits for that place.
    assert!(!rig.log.has_mark(other(4)), "another extent has to leave first");
    rig.log.mark_active(other(4), 51);
    let more = rig.settle();
    let extent = retiring(&[events, more].concat(), other(0));
    let third = BlockKey::new(Volume(3), 0);
    rig.log.mark_active(third, 52);
    assert!(rig.settle().contains(&marked(52)));
    rig.log.extent_released(extent);
    let events = rig.settle();
    assert!(events.contains(&marked(51)), "{events:?}");
    // The ten other extents of volume 1 get none of the places kept back: they still wait.
    rig.log.hold_extents(Volume(1));
    let refused =
        |event: &&Event| matches!(event, Event::Mark { answer: MarkAnswer::Unmarked, .. });
    assert_eq!(rig.settle().iter().filter(refused).count(), 10);
}

/// The volumes of the extents that are asked to leave.
fn asked(events: &[Event]) -> Vec<Volume> {
    let firsts = events.iter().filter_map(|event| match event {
        Event::Retire { first, .. } => Some(first.volume()),
        _ => None,
    });
    firsts.collect()
}

/// A place that a volume with few extents frees belongs to the places that are kept back, so the
/// marks that wait for the hung store could not take it.
#[test]
fn a_volume_with_few_extents_is_asked_for_none_while_only_a_store_that_hangs_has_marks_waiting() {
    let large = Geometry { active_extents_max: 32, ..tiny() };
    let mut rig = Rig::formatted(large, options());
    (0..40).for_each(|n| rig.log.mark_active(key(4 * n), n));
    let events = rig.settle();
    assert!(!asked(&events).is_empty(), "{events:?}");
    for n in 0..4 {
        rig.log.mark_active(other(n), 50 + n);
        let events = rig.settle();
        assert!(events.contains(&marked(50 + n)) && asked(&events).is_empty(), "{events:?}");
    }
    // A mark of the volume itself could take the place.
    rig.log.mark_active(other(4), 60);
    assert_eq!(asked(&rig.settle()), [Volume(2)]);
}

#[test]
fn an_extent_that_stays_is_asked_for_again_only_when_its_store_has_answered() {
    let mut rig = Rig::formatted(tiny(), options());
    let (_, extent) = marked_in_both_volumes(&mut rig);
    for ticket in 4..8 {
        rig.log.mark_active(other(ticket - 4), ticket);
        assert_eq!(rig.settle(), [marked(ticket)], "it stays, and its store is being synced");
    }
    rig.log.extent_released(extent);
    let events = rig.settle();
    assert_ne!(retiring(&events, other(0)), extent, "the answer is older than the marks");
    rig.log.extent_released(extent);
    assert_eq!(rig.settle(), [], "a repeated answer says nothing");
    rig.log.extent_released(retiring(&events, other(0)));
    assert_eq!(rig.settle(), [marked(3)]);
}
