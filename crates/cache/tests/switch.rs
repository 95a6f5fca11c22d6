//! Changes of the write policy while the store does not answer: no request waits for it without limit.

use crate::driver::{BLOCK, with_flash};
use crate::stored_geometry::Run;
use forebay_block::{Nanos, Op};
use forebay_cache::{Acknowledge, Notice, Open, Order, PolicyError, WritePolicy};
use forebay_flash::{Geometry, TierId};

const THROUGH: Order = Order::SetPolicy(WritePolicy::WRITE_THROUGH, Acknowledge::Flash);

fn geometry() -> Geometry {
    let config = with_flash(WritePolicy::WRITE_BACK, Acknowledge::Flash);
    config.flash.expect("a tier with flash").geometry
}

/// A cache under write-back with dirty data on flash.
fn dirty() -> Run {
    let flash = vec![0; geometry().device_bytes() as usize];
    let open = Open::Format { uuid: TierId::new([1; 16]), bindings: Vec::new() };
    let mut run = Run::start(geometry(), flash, open);
    (0..4).for_each(|block| run.write(block));
    run.request(Op::Flush, 0, 0);
    run.notices();
    assert!(run.cache.dirty_blocks() > 0);
    run
}

fn writes_back(run: &Run) -> bool {
    run.cache.config().write_policy == WritePolicy::WRITE_BACK
}

#[test]
fn a_change_that_is_called_off_leaves_the_policy_and_lets_the_next_one_begin() {
    let mut run = dirty();
    run.hung = Some(Vec::new());
    run.order(Order::EndSwitch);
    run.order(THROUGH);
    assert_eq!(run.notices(), [], "there was nothing to call off, and the destage waits");
    run.order(Order::EndSwitch);
    assert_eq!(run.notices(), [Notice::PolicySet(Err(PolicyError::CalledOff))]);
    let replies = run.replies;
    run.write(9);
    assert_eq!((run.replies, writes_back(&run)), (replies + 1, true));
    run.order(THROUGH);
    assert_eq!(run.notices(), []);
    run.answer();
    run.wait();
    assert_eq!(run.notices(), [Notice::PolicySet(Ok(()))]);
    assert!(!writes_back(&run));
}

/// A start under write-through that finds dirty data, and whose store hangs.
fn started() -> Run {
    let hung = Some(Vec::new());
    let through = WritePolicy::WRITE_THROUGH;
    let mut run = Run::start_under(through, geometry(), dirty().flash, Open::RECOVER, hung);
    assert!(matches!(run.notices()[..], [Notice::Ready(Some(_))]));
    run.request(Op::Write, 9 * BLOCK, BLOCK);
    assert_eq!((run.replies, writes_back(&run)), (0, true), "the write is held");
    run
}

#[test]
fn the_change_of_a_start_lets_requests_go_on_while_nothing_becomes_clean_and_succeeds_later() {
    let second = |seconds: u64| Nanos(seconds * 1_000_000_000);
    let mut run = started();
    run.pass(second(29));
    assert_eq!(run.replies, 0, "a store may be slow");
    run.pass(second(31));
    assert_eq!((run.replies, writes_back(&run)), (1, true));
    assert!(run.cache.unsettled().is_none(), "the change goes on");
    run.pass(second(300));
    run.write(10);
    assert_eq!(run.replies, 2, "nothing holds it");
    run.answer();
    run.wait();
    assert_eq!((writes_back(&run), run.cache.dirty_blocks()), (false, 0));
    assert_eq!(run.notices(), [], "nobody has ordered it");
}

#[test]
fn the_change_of_a_start_goes_on_when_it_is_called_off() {
    let mut run = started();
    run.order(Order::EndSwitch);
    assert_eq!((run.replies, run.notices()), (1, vec![]));
    run.answer();
    run.wait();
    assert!(!writes_back(&run));
}
