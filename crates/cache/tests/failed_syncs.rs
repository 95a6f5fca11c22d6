//! Stops, changes of policy and seals after a failed sync of the backing store: whether the log may be declared
//! clean has one answer.

use crate::driver::{BLOCK, with_flash};
use crate::stored_geometry::Run;
use forebay_block::{Op, Volume};
use forebay_cache::{
    Acknowledge, DestageError, Notice, Open, Order, PolicyError, StopTarget, StoresLeft,
    WritePolicy,
};
use forebay_effect::IoError;
use forebay_flash::{Geometry, LogError, SEAL_BYTES, Sealed, TierId};

fn geometry() -> Geometry {
    let config = with_flash(WritePolicy::WRITE_BACK, Acknowledge::Flash);
    config.flash.expect("a tier with flash").geometry
}

/// A cache under write-back that was used, and a store that was synced.
fn used() -> Run {
    let flash = vec![0; geometry().device_bytes() as usize];
    let open = Open::Format { uuid: TierId::new([1; 16]), bindings: Vec::new() };
    let mut run = Run::start(geometry(), flash, open);
    run.request(Op::Flush, 0, 0);
    (0..4).for_each(|block| run.write(block));
    run.notices();
    run
}

fn destaged(run: &mut Run) -> Result<(), DestageError> {
    run.order(Order::Destage);
    run.wait();
    match run.notices()[..] {
        [Notice::Destaged(result)] => result,
        ref other => panic!("{other:?}"),
    }
}

/// A store whose sync failed once, of records that were then written again and synced.
fn mended() -> Run {
    let mut run = used();
    run.sync_failures = 1;
    assert_eq!((destaged(&mut run), run.cache.dirty_blocks()), (Ok(()), 0));
    assert_eq!(run.cache.volume_stats(Volume(0)).expect("the volume").backing_errors, 1);
    run
}

/// A store whose sync failed, of a trim that went there past the log.
fn unsynced() -> Run {
    let mut run = used();
    assert_eq!(destaged(&mut run), Ok(()));
    run.request(Op::Trim, 40 * BLOCK, BLOCK);
    run.sync_failures = 1;
    run.request(Op::Flush, 0, 0);
    assert_eq!((run.sync_failures, run.cache.dirty_blocks()), (0, 0));
    run
}

fn stopped(run: &mut Run) -> Notice {
    stopped_with(run, StopTarget::Stores)
}

fn stopped_with(run: &mut Run, target: StopTarget) -> Notice {
    run.order(Order::Stop(target));
    run.notices().pop().expect("the cache has stopped")
}

fn switched(run: &mut Run) -> Notice {
    run.order(Order::SetPolicy(WritePolicy::WRITE_THROUGH, Acknowledge::Flash));
    run.notices().pop().expect("an answer")
}

fn sealed(run: &mut Run) -> Notice {
    let seal = [1; SEAL_BYTES];
    let volume = Sealed { volume: Volume(0), seal, distrust: false, stamp: None };
    run.order(Order::Seal(vec![volume]));
    run.notices().pop().expect("an answer")
}

/// A start after others have used the store.
fn start_of_changed(run: Run) -> Notice {
    let open = Open::Recover { changed: vec![Volume(0)], drop_clean: false, stores: Vec::new() };
    Run::start(geometry(), run.flash, open).notices().remove(0)
}

#[test]
fn a_store_that_a_stop_calls_whole_is_free_to_be_changed_by_others() {
    for mut run in [used(), mended()] {
        assert_eq!(stopped(&mut run), Notice::Stopped(Ok(StoresLeft::Whole)));
        let started = start_of_changed(run);
        assert!(matches!(started, Notice::Ready(Some(_))), "{started:?}");
    }
}

#[test]
fn a_stop_that_keeps_dirty_data_and_finds_none_leaves_the_store_whole() {
    for mut run in [used(), mended()] {
        let dirty = run.cache.dirty_blocks() > 0;
        let left = if dirty { StoresLeft::Behind } else { StoresLeft::Whole };
        assert_eq!(stopped_with(&mut run, StopTarget::Flash), Notice::Stopped(Ok(left)));
        let started = start_of_changed(run);
        assert_eq!(matches!(started, Notice::Ready(Some(_))), !dirty, "{started:?}");
    }
}

#[test]
fn after_records_were_written_again_and_synced_the_policy_can_change_and_the_log_takes_notes() {
    assert_eq!(switched(&mut mended()), Notice::PolicySet(Ok(())));
    let mut run = mended();
    assert_eq!(sealed(&mut run), Notice::Sealed(Ok(())));
    let started = start_of_changed(run);
    assert!(matches!(started, Notice::Ready(Some(_))), "{started:?}");
}

#[test]
fn a_log_is_not_declared_clean_over_a_direct_write_whose_sync_failed() {
    let failed = Err(IoError::Device);
    let mut run = unsynced();
    assert_eq!(stopped(&mut run), Notice::Stopped(Err(IoError::Device.into())));
    assert_eq!(sealed(&mut run), Notice::Sealed(Err(IoError::Invalid)), "after a failed stop");
    let refused = start_of_changed(run);
    assert!(matches!(refused, Notice::Failed(LogError::Changed { .. })), "{refused:?}");
    let unchanged = Err(PolicyError::Failed(IoError::Device.into()));
    assert_eq!(switched(&mut unsynced()), Notice::PolicySet(unchanged));
    assert_eq!(sealed(&mut unsynced()), Notice::Sealed(failed));
}
