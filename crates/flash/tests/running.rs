//! The log at run time: batches, prefix order, syncs, regions, failure.

use crate::common::{Rig, answer, key, options, tiny};
use forebay_block::Volume;
use forebay_effect::{Frame, IoError};
use forebay_flash::{
    AnswerKind, Append, BatchSequence, Binding, Event, Granules, MarkAnswer, Position, Record,
    RecordEvent, RegionIndex, Start, StartEvent, StoreId,
};

fn tickets(events: &[Event]) -> Vec<u64> {
    events
        .iter()
        .filter_map(|e| match e {
            Event::Record(RecordEvent::Appended { ticket, .. }) => Some(*ticket),
            _ => None,
        })
        .collect()
}

#[test]
fn a_full_batch_is_written_without_being_asked_and_a_partial_one_waits() {
    let mut rig = Rig::formatted(tiny(), options());
    for n in 0..3 {
        rig.append(n, key(n), 1, false);
    }
    assert_eq!(rig.settle(), []);
    rig.append(3, key(3), 1, false);
    assert_eq!(tickets(&rig.settle()), [0, 1, 2, 3]);
    rig.append(4, key(4), 1, false);
    assert_eq!(rig.settle(), []);
    rig.log.close_batch();
    assert_eq!(tickets(&rig.settle()), [4]);
    assert_eq!(rig.log.stats().batches, 2);
}

#[test]
fn an_urgent_append_takes_those_before_it_along() {
    let mut rig = Rig::formatted(tiny(), options());
    rig.append(0, key(0), 1, false);
    rig.append(1, key(1), 1, true);
    assert_eq!(tickets(&rig.settle()), [0, 1]);
    assert_eq!(rig.log.stats().batches, 1);
}

#[test]
fn urgent_appends_during_a_write_share_the_next_batch() {
    let mut rig = Rig::formatted(tiny(), options());
    rig.append(0, key(0), 1, true);
    rig.append(1, key(1), 1, true);
    rig.append(2, key(2), 1, true);
    assert_eq!(rig.under_way(), 1);
    assert_eq!(tickets(&rig.settle()), [0, 1, 2]);
    assert_eq!(rig.log.stats().batches, 2);
}

#[test]
fn events_come_in_log_order_whatever_the_order_of_completions() {
    let mut rig = Rig::formatted(tiny(), options());
    // The second batch has three entries: the region has no room for more.
    for n in 0..7 {
        rig.append(n, key(n), 1, false);
    }
    assert_eq!(rig.under_way(), 2);
    rig.complete(1);
    assert_eq!(rig.log.poll_event(), None, "the second batch waits for the first");
    rig.complete(0);
    assert_eq!(tickets(&rig.settle()), (0..7).collect::<Vec<_>>());
}

#[test]
fn a_sync_covers_what_was_complete_when_it_was_issued_and_no_more() {
    let mut rig = Rig::formatted(tiny(), options());
    rig.append(0, key(0), 1, false);
    rig.log.sync(100);
    rig.poll();
    rig.complete(0);
    // The sync for ticket 100 is in flight; a later append and sync must wait for another.
    rig.append(1, key(1), 1, true);
    rig.log.sync(101);
    rig.poll();
    assert_eq!(rig.under_way(), 2);
    rig.complete(1);
    rig.complete(0);
    let events: Vec<_> = std::iter::from_fn(|| rig.log.poll_event()).collect();
    assert!(events.contains(&answer(100, AnswerKind::Synced, Ok(()))));
    assert!(!events.contains(&answer(101, AnswerKind::Synced, Ok(()))));
    assert_eq!(rig.settle(), [answer(101, AnswerKind::Synced, Ok(()))]);
    assert_eq!(rig.log.stats().syncs, 4, "two for formatting, two here");
}

#[test]
fn a_sync_fails_until_its_owner_has_heard_that_a_dirty_record_was_taken_back() {
    let mut rig = Rig::formatted(tiny(), options());
    rig.append(0, key(0), 1, false);
    rig.log.take_back();
    // The owner still takes the record for appended: a successful sync would declare it durable.
    rig.log.sync(100);
    let refused = Event::Record(RecordEvent::AppendRefused { ticket: 0 });
    let failed = answer(100, AnswerKind::Synced, Err(IoError::Device));
    assert_eq!([rig.log.poll_event(), rig.log.poll_event()], [Some(refused), Some(failed)]);
    rig.log.sync(101);
    assert_eq!(rig.settle(), [answer(101, AnswerKind::Synced, Ok(()))]);
}

#[test]
fn a_sync_with_nothing_to_make_durable_is_answered_at_once() {
    let mut rig = Rig::formatted(tiny(), options());
    rig.log.sync(7);
    assert_eq!(rig.log.poll_event(), Some(answer(7, AnswerKind::Synced, Ok(()))));
    assert_eq!(rig.under_way(), 0);
}

#[test]
fn payloads_read_back_and_fail_for_another_block_or_place() {
    let mut rig = Rig::formatted(tiny(), options());
    rig.append(0, key(5), 1, false);
    rig.append(1, key(5), 1, true);
    let found: Vec<_> = rig
        .settle()
        .into_iter()
        .map(|e| match e {
            Event::Record(RecordEvent::Appended { position, checksum, .. }) => (position, checksum),
            other => panic!("{other:?}"),
        })
        .collect();
    let full = rig.geometry.all_granules();
    for (p, c) in &found {
        assert!(rig.read(key(5), *p, full, *c).is_some());
        assert!(rig.read(key(6), *p, full, *c).is_none(), "another block's");
    }
    assert!(rig.read(key(5), found[0].0, full, found[1].1).is_none(), "the same, elsewhere");
}

#[test]
fn regions_are_asked_for_in_order_and_reused_only_behind_a_durable_tail() {
    let mut rig = Rig::formatted(tiny(), options());
    let mut asked = Vec::new();
    for ticket in 0..200 {
        rig.append(ticket, key(ticket % 7), ticket, true);
        for event in rig.settle() {
            if let Event::Reclaim { region } = event {
                asked.push(region);
                let before = rig.history.len();
                rig.log.region_released(region);
                assert_eq!(rig.settle(), [Event::RegionFreed { region }]);
                // A sync, a superblock copy, a sync, the other copy.
                let what: Vec<_> = rig.history[before..].iter().map(|h| h.0).collect();
                assert!(what.ends_with(&[u64::MAX, 4096]) || what.ends_with(&[u64::MAX, 0]));
            }
        }
    }
    let expected: Vec<_> = (0..asked.len() as u32).map(|n| RegionIndex(n % 4)).collect();
    assert_eq!(asked, expected);
    assert!(asked.len() > 30);
    assert_eq!(rig.log.stats().regions_reclaimed, asked.len() as u64);
}

#[test]
fn appends_wait_while_no_region_is_free_and_go_on_when_one_is() {
    let mut rig = Rig::formatted(tiny(), options());
    let mut reclaim = None;
    let mut appended = 0;
    for n in 0..40 {
        rig.append(n, key(n), 1, true);
        for event in rig.settle() {
            match event {
                Event::Reclaim { region } => reclaim = Some(region),
                Event::Record(RecordEvent::Appended { .. }) => appended += 1,
                Event::RegionFreed { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(rig.log.stats().regions_free, 1, "it is kept for what is carried on");
    assert!(appended < 40);
    for _ in 0..9 {
        if let Some(region) = reclaim.take() {
            rig.log.region_released(region);
        }
        for event in rig.settle() {
            match event {
                Event::Reclaim { region } => reclaim = Some(region),
                Event::Record(RecordEvent::Appended { .. }) => appended += 1,
                Event::RegionFreed { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(appended, 40);
}

#[test]
fn a_region_is_written_again_only_when_it_is_forgotten() {
    let mut rig = Rig::formatted(tiny(), options());
    let events = |rig: &mut Rig| -> Vec<Event> {
        let mut events = Vec::new();
        rig.poll();
        loop {
            events.extend(std::iter::from_fn(|| rig.log.poll_event()));
            if rig.under_way() == 0 {
                return events;
            }
            rig.complete(0);
        }
    };
    let (mut appended, mut freed) = (0, Vec::new());
    for n in 0..60 {
        rig.append(n, key(n), 1, true);
        for event in events(&mut rig) {
            match event {
                Event::Record(RecordEvent::Appended { .. }) => appended += 1,
                Event::Reclaim { region } => rig.log.region_released(region),
                Event::RegionFreed { region } => freed.push(region),
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(appended < 40, "what was freed is written though it is not forgotten");
    assert_eq!(freed, [RegionIndex(0)], "no other is asked for meanwhile");
    rig.log.region_forgotten(RegionIndex(0));
    let more = events(&mut rig);
    assert!(
        more.iter().any(|e| matches!(e, Event::Record(RecordEvent::Appended { .. }))),
        "{more:?}"
    );
    rig.log.stop();
}

#[test]
#[should_panic(expected = "region 1 is not the oldest freed region")]
fn regions_are_forgotten_in_order() {
    let mut rig = Rig::formatted(tiny(), options());
    rig.log.region_forgotten(RegionIndex(1));
}

#[test]
fn what_is_carried_on_has_room_of_its_own_and_comes_before_what_waits() {
    let mut rig = Rig::formatted(tiny(), options());
    let mut reclaim = None;
    let mut hear = |rig: &mut Rig, appended: &mut Vec<u64>| {
        for event in rig.settle() {
            match event {
                Event::Reclaim { region } => reclaim = Some(region),
                Event::Record(RecordEvent::Appended { ticket, .. }) => appended.push(ticket),
                Event::RegionFreed { .. } | Event::Answer { kind: AnswerKind::Synced, .. } => {}
                other => panic!("{other:?}"),
            }
        }
        reclaim
    };
    let mut appended = Vec::new();
    for n in 0..40 {
        rig.append(n, key(n), 1, true);
        hear(&mut rig, &mut appended);
    }
    let waits = appended.len() as u64;
    assert!(waits < 40 && !rig.log.is_waiting(key(waits - 1)) && rig.log.is_waiting(key(waits)));
    // A record of the oldest region, and one that is lost.
    let lost = Append {
        ticket: 101,
        key: key(1),
        valid: Granules::EMPTY,
        dirty: Granules(0x81),
        frame: Frame(u32::MAX),
        urgent: true,
    };
    rig.carry(100, key(0), 2);
    rig.log.carry(lost);
    rig.log.close_carried();
    let region = hear(&mut rig, &mut appended).expect("room is needed");
    assert_eq!(appended.split_off(waits as usize), [100, 101]);
    rig.log.region_released(region);
    hear(&mut rig, &mut appended);
    assert!(appended.contains(&waits), "the region's room is for those who wait");
    let mut again = Rig::new(tiny(), options(), rig.flash.clone());
    again.log.start(Start::RECOVER);
    let mut records: Vec<Record> = Vec::new();
    for event in again.settle() {
        match event {
            Event::Start(StartEvent::Recovered(record)) => records.push(record),
            Event::Start(StartEvent::Ready(report)) => assert_eq!(report.lost, 1),
            Event::Reclaim { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    let newest = |n| records.iter().rfind(|r| r.key == key(n)).expect("a record of the block");
    assert_eq!(again.version(newest(0)), 2);
    assert_eq!((newest(1).valid, newest(1).dirty), (Granules::EMPTY, Granules(0x81)));
}

#[test]
fn what_is_inserted_again_takes_only_room_to_spare() {
    let mut rig = Rig::formatted(tiny(), options());
    let hear = |rig: &mut Rig, appended: &mut Vec<u64>, refused: &mut Vec<u64>| {
        for event in rig.settle() {
            match event {
                Event::Record(RecordEvent::Appended { ticket, .. }) => appended.push(ticket),
                Event::Record(RecordEvent::AppendRefused { ticket }) => refused.push(ticket),
                Event::Reclaim { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    };
    let (mut appended, mut refused) = (Vec::new(), Vec::new());
    rig.append(0, key(0), 1, true);
    hear(&mut rig, &mut appended, &mut refused);
    rig.reinsert(100, key(0), 2);
    hear(&mut rig, &mut appended, &mut refused);
    assert_eq!((&*appended, &*refused), (&[0, 100][..], &[][..]), "there is room");
    assert!(
        rig.log.stats().carried_bytes == u64::from(rig.log.payload_bytes(tiny().all_granules()))
    );
    for n in 1..40 {
        rig.append(n, key(n), 1, true);
        hear(&mut rig, &mut appended, &mut refused);
    }
    let waits = appended.len() as u64 - 1;
    assert!(rig.log.is_waiting(key(waits)), "who appends waits for a region");
    rig.reinsert(101, key(1), 2);
    rig.reinsert(102, key(2), 2);
    hear(&mut rig, &mut appended, &mut refused);
    assert_eq!(refused, [101, 102], "the region that is kept is not for them");
    assert_eq!(appended.len() as u64 - 1, waits);
    // The region is for records that must be carried.
    rig.carry(103, key(3), 2);
    hear(&mut rig, &mut appended, &mut refused);
    assert_eq!(appended.last(), Some(&103));
}

#[test]
fn a_log_that_stops_takes_nothing_again() {
    let mut rig = Rig::formatted(tiny(), options());
    rig.append(0, key(0), 1, true);
    rig.settle();
    rig.log.stop();
    rig.reinsert(1, key(0), 2);
    let events = rig.settle();
    assert!(
        events.contains(&Event::Record(RecordEvent::AppendRefused { ticket: 1 })),
        "{events:?}"
    );
    assert!(events.contains(&Event::Stopped { result: Ok(()) }), "{events:?}");
}

#[test]
fn asking_for_a_region_gives_even_the_one_being_filled() {
    let mut rig = Rig::formatted(tiny(), options());
    rig.log.reclaim();
    assert_eq!(rig.settle(), [], "nothing is on flash");
    rig.append(0, key(0), 1, true);
    rig.settle();
    rig.log.reclaim();
    rig.log.reclaim();
    assert_eq!(rig.settle(), [Event::Reclaim { region: RegionIndex(0) }]);
    rig.log.region_released(RegionIndex(0));
    assert_eq!(rig.settle(), [Event::RegionFreed { region: RegionIndex(0) }]);
    assert_eq!(rig.log.stats().regions_free, 4);
}

#[test]
fn a_failed_write_latches_the_log() {
    let mut rig = Rig::formatted(tiny(), options());
    rig.append(0, key(0), 1, true);
    rig.settle();
    rig.fail_after = Some(0);
    for n in 1..7 {
        rig.append(n, key(n), 1, n == 1);
    }
    rig.log.sync(50);
    rig.log.mark_active(key(1), 51);
    rig.log.clean_before_now(52);
    let writes = rig.history.len();
    let events = rig.settle();
    for n in 1..7 {
        let failed = Event::Record(RecordEvent::AppendFailed { ticket: n, error: IoError::Device });
        assert_eq!(events.iter().filter(|e| **e == failed).count(), 1, "{n}: {events:?}");
    }
    let error = Err(IoError::Device);
    assert!(events.contains(&answer(50, AnswerKind::Synced, error)));
    assert!(events.contains(&Event::Mark { ticket: 51, answer: MarkAnswer::Active(error) }));
    assert!(events.contains(&answer(52, AnswerKind::CleanMarked, error)));
    rig.fail_after = None;
    rig.append(9, key(9), 1, true);
    rig.log.sync(53);
    rig.log.stop();
    let events = rig.settle();
    assert_eq!(
        events,
        [
            Event::Record(RecordEvent::AppendFailed { ticket: 9, error: IoError::Device }),
            answer(53, AnswerKind::Synced, error),
            Event::Stopped { result: error }
        ]
    );
    assert_eq!(rig.history.len(), writes, "nothing is written any more");
}

#[test]
fn a_failed_sync_latches_the_log_even_if_the_next_would_succeed() {
    let mut rig = Rig::formatted(tiny(), options());
    rig.append(0, key(0), 1, true);
    rig.settle();
    rig.fail_after = Some(0);
    rig.log.sync(1);
    assert_eq!(rig.settle(), [answer(1, AnswerKind::Synced, Err(IoError::Device))]);
    rig.fail_after = None;
    rig.log.sync(2);
    assert_eq!(rig.settle(), [answer(2, AnswerKind::Synced, Err(IoError::Device))]);
}

#[test]
fn partial_blocks_take_only_the_pages_they_need() {
    let geometry = forebay_flash::Geometry {
        block_size: 65536,
        region_pages: 40,
        batch_pages_max: 20,
        extent_bytes: 1 << 18,
        ..tiny()
    };
    let mut rig = Rig::formatted(geometry, options());
    assert_eq!(geometry.granule_bytes(), 4096);
    rig.fill(0, key(9), 3);
    let frame = forebay_effect::Frame(0);
    let valid = 0b0100_0000_0000_0110;
    rig.log.append(forebay_flash::Append {
        ticket: 0,
        key: key(9),
        valid: Granules(valid),
        dirty: Granules(2),
        frame,
        urgent: true,
    });
    let events = rig.settle();
    let [Event::Record(RecordEvent::Appended { position, checksum, .. })] = events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(rig.log.stats().payload_pages, 3);
    let record = forebay_flash::Record {
        key: key(9),
        position,
        valid: Granules(valid),
        dirty: Granules(2),
        checksum,
        sequence: BatchSequence::FIRST,
        adds: false,
    };
    assert_eq!(rig.version(&record), 3);
}

#[test]
fn a_tombstone_takes_no_payload() {
    let mut rig = Rig::formatted(tiny(), options());
    let frame = forebay_effect::Frame(0);
    rig.log.append(forebay_flash::Append {
        ticket: 0,
        key: key(9),
        valid: Granules::EMPTY,
        dirty: Granules::EMPTY,
        frame,
        urgent: true,
    });
    let events = rig.settle();
    assert_eq!(
        events,
        [Event::Record(RecordEvent::Appended { ticket: 0, position: Position::NONE, checksum: 0 })]
    );
    assert_eq!(rig.log.stats().payload_pages, 0);
}

#[test]
fn records_are_void_only_once_both_copies_of_the_superblock_say_so() {
    let mut rig = Rig::formatted(tiny(), options());
    rig.log.bind(vec![Binding::new(Volume(1), StoreId::new([1; 16]), 1)], 0);
    rig.append(0, key(0), 1, true);
    rig.settle();
    // The log fails; then all its data is destaged to the store.
    rig.fail_after = Some(0);
    rig.append(1, key(1), 1, true);
    rig.settle();
    rig.fail_after = None;
    rig.log.salvage(7);
    assert_eq!(rig.settle(), [answer(7, AnswerKind::Synced, Ok(()))]);
    let before = rig.flash.current[..2 * 4096].to_vec();
    // Writes and syncs: one copy, its sync, the other copy, its sync.
    for writes in 0..4 {
        rig.fail_after = Some(writes);
        rig.log.void([Volume(1)].into_iter(), writes);
        let result = Err(IoError::Device);
        assert_eq!(rig.settle(), [answer(writes, AnswerKind::Voided, result)]);
        let copies = [0, 4096].map(|at| rig.flash.current[at..][..4096] == before[at..][..4096]);
        assert_eq!(copies.contains(&true), writes < 3, "{writes}");
        // The first copy voids the records, unless it is lost.
        let mut again = rig.restart(Start::RECOVER);
        let found = again
            .settle()
            .iter()
            .filter(|e| matches!(e, Event::Start(StartEvent::Recovered(_))))
            .count();
        assert_eq!(found, usize::from(writes == 0), "{writes}");
    }
    rig.fail_after = None;
    rig.log.void([Volume(1)].into_iter(), 9);
    assert_eq!(rig.settle(), [answer(9, AnswerKind::Voided, Ok(()))]);
    for copy in 0..2 {
        let mut again = rig.restart(Start::RECOVER);
        again.unreadable = vec![copy * 4096];
        let found = again
            .settle()
            .iter()
            .filter(|e| matches!(e, Event::Start(StartEvent::Recovered(_))))
            .count();
        assert_eq!(found, 0);
    }
}
