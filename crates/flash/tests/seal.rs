//! Seals, and records that no longer count because others have written the backing store.

use crate::common::{Rig, Rng, answer, key, options, tiny};
use forebay_block::Volume;
use forebay_effect::Frame;
use forebay_flash::{
    AnswerKind, Append, BlockKey, Event, Geometry, Granules, RecoveryReport, Sealed, Start,
    StartEvent, StoreId,
};

/// Binds volumes 1 and 2; [`key`] names blocks of the former.
fn bound(geometry: Geometry) -> Rig {
    let mut rig = Rig::formatted(geometry, options());
    let binding = |n: u8| forebay_flash::Binding::new(Volume(n.into()), StoreId::new([n; 16]), 1);
    rig.log.bind(vec![binding(1), binding(2)], 0);
    rig.settle();
    rig
}

fn append(rig: &mut Rig, ticket: u64, key: BlockKey, dirty: bool) {
    let frame = Frame(ticket as u32 % rig.options.frames);
    rig.fill(frame.0, key, ticket);
    let valid = rig.geometry.all_granules();
    let dirty = if dirty { valid } else { Granules::EMPTY };
    rig.log.append(Append { ticket, key, valid, dirty, frame, urgent: true });
    rig.settle();
}

fn note(volume: u32, seal: u8, distrust: bool) -> Sealed {
    Sealed { volume: Volume(volume), seal: [seal; 32], distrust, stamp: None }
}

/// The results of a start: the blocks of records and whether each is dirty, and the report.
fn start(rig: &Rig, how: Start) -> (Vec<(BlockKey, bool)>, Box<RecoveryReport>, Rig) {
    let mut rig = rig.restart(how);
    let (mut found, mut report) = (Vec::new(), None);
    for event in rig.settle() {
        match event {
            Event::Start(StartEvent::Recovered(r)) => {
                found.retain(|f: &(BlockKey, bool)| f.0 != r.key);
                found.push((r.key, r.dirty != Granules::EMPTY));
            }
            Event::Start(StartEvent::RecoveredTombstone { key }) => found.retain(|f| f.0 != key),
            Event::Start(StartEvent::Ready(r)) => report = Some(r),
            other => panic!("{other:?}"),
        }
    }
    found.sort();
    (found, report.expect("a start that went well"), rig)
}

fn layouts() -> [Geometry; 2] {
    [tiny(), Geometry { slots: 10, region_pages: 6, ..tiny() }]
}

fn other(block: u64) -> BlockKey {
    BlockKey::new(Volume(2), block)
}

#[test]
fn a_seal_after_a_stop_is_whole_or_not_there_wherever_the_power_goes() {
    let mut seen = [0; 2];
    for geometry in layouts() {
        let mut rig = bound(geometry);
        append(&mut rig, 1, key(1), false);
        rig.log.stop();
        rig.settle();
        rig.log.seal(&[note(1, 7, false), note(2, 8, true)], 5);
        rig.poll();
        let mut noted = false;
        for patience in 0.. {
            for fates in 0..4_u64.pow(rig.at_risk()) {
                let mut after = Rig::new(rig.geometry, rig.options, rig.cut_by(fates));
                after.log.start(Start::RECOVER);
                let events = after.settle();
                let Some(Event::Start(StartEvent::Ready(report))) = events.last() else {
                    panic!("{events:?}")
                };
                let seals: Vec<_> = report.bindings.iter().map(|b| b.seal).collect();
                let whole = seals == [[7; 32], [8; 32]];
                assert!(whole || !noted && seals == [[0; 32]; 2], "{patience} {fates}: {seals:?}");
                assert!(report.clean, "the stop had ended");
                assert_eq!(after.log.bindings()[0].seal, [0; 32], "a start forgets seals");
                seen[usize::from(whole)] += 1;
            }
            if rig.under_way() == 0 {
                break;
            }
            rig.complete(0);
            while let Some(event) = rig.log.poll_event() {
                assert_eq!(event, answer(5, AnswerKind::Bound, Ok(())));
                noted = true;
            }
        }
    }
    assert!(seen.iter().all(|&n| n > 4), "{seen:?}");
}

#[test]
fn what_is_distrusted_never_comes_back_and_what_is_newer_does() {
    for geometry in layouts() {
        let mut rig = bound(geometry);
        append(&mut rig, 1, key(1), false);
        append(&mut rig, 2, key(2), false);
        append(&mut rig, 3, other(1), false);
        rig.log.seal(&[note(1, 0, true)], 9);
        assert_eq!(rig.settle(), [answer(9, AnswerKind::Bound, Ok(()))]);
        append(&mut rig, 4, key(2), false);
        rig.log.sync(0);
        rig.settle();
        let expected = vec![(key(2), false), (other(1), false)];
        let mut rng = Rng(1);
        let flash = rig.cut(&mut rng);
        let rig = Rig::new(geometry, options(), flash);
        let (found, report, after) = start(&rig, Start::RECOVER);
        // (In the slots layout, recovery returns only the newest record of each block.)
        let distrusted = if geometry.has_slots() { 1 } else { 2 };
        assert_eq!((found, report.distrusted), (expected.clone(), distrusted));
        assert_eq!(start(&after, Start::RECOVER).0, expected, "nor at a later start");
    }
}

#[test]
fn a_store_that_others_wrote_costs_its_clean_records_for_good_and_no_dirty_one() {
    for geometry in layouts() {
        let mut rig = bound(geometry);
        append(&mut rig, 1, key(1), false);
        append(&mut rig, 2, key(2), true);
        append(&mut rig, 3, other(3), false);
        rig.log.stop();
        rig.settle();
        let expected = vec![(key(2), true), (other(3), false)];
        let (found, _, after) = start(
            &rig,
            Start::Recover {
                changed: vec![Volume(1)],
                drop_clean: false,
                stores: Vec::new(),
                sizes: Vec::new(),
            },
        );
        assert_eq!(found, expected);
        assert_eq!(start(&after, Start::RECOVER).0, expected);
        // Until the start was durable, nothing had changed.
        assert_eq!(start(&rig, Start::RECOVER).0.len(), 3);
    }
}

#[test]
fn nothing_is_noted_by_a_log_that_has_failed_or_was_left_unclean() {
    let mut rig = bound(tiny());
    rig.fail_after = Some(0);
    append(&mut rig, 1, key(1), false);
    rig.log.seal(&[note(1, 7, false)], 3);
    let events = rig.settle();
    assert!(
        matches!(
            events[..],
            [.., Event::Answer { ticket: 3, kind: AnswerKind::Bound, result: Err(_) }]
        ),
        "{events:?}"
    );
    rig.log.stop();
    rig.settle();
    rig.log.seal(&[note(1, 7, false)], 4);
    let events = rig.settle();
    assert!(
        matches!(
            events[..],
            [Event::Answer { ticket: 4, kind: AnswerKind::Bound, result: Err(_) }]
        ),
        "{events:?}"
    );
}
