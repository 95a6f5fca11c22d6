//! An engine whose power is cut at every instant: the order of headers, flash tier and replies.
//!
//! Method: an engine runs on files, from its opening to its stop, with a client. A journal keeps
//! each write, zeroing and sync that it asks for, of headers and data alike, with their ends and
//! what the client was told (`journal.rs`). Afterwards the power is cut at every instant of that
//! journal, in several ways (`judge.rs`), and each state that is left must keep the promises:
//!
//! - what was acknowledged and is not on the store, the store's header says: dirty, and where;
//! - a header that was durable is never lost, whatever happens to the one after it;
//! - once clients are served, no header admits a flash tier of the epoch before;
//! - a start with everything in its place succeeds and serves all that was flushed;
//! - a start without the flash tier is refused exactly if a header says dirty;
//! - after a stop that destaged, headers are clean and the stores alone hold everything.

#![allow(clippy::print_stderr)] // says what it met

mod journal;
mod judge;
mod model;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_config::WritePolicy;
use forebay_engine::EngineError;

use journal::{Event, Journal, Mark};
use judge::{Case, Tally, judge};
use model::Model;
use world::{Files, Images, Run, blank};

/// Runs `work` on files that hold the images of `case`, and judges every instant of it.
fn cut_everywhere(case: Case<'_>, work: impl FnOnce(&Files, &Arc<Journal>)) -> (Tally, Images) {
    let files = Files::new();
    files.put(case.images);
    let journal = Arc::new(Journal::default());
    work(&files, &journal);
    let events = journal.take();
    let (tally, end) = judge(&Case { events: &events, ..case });
    eprintln!("{}: {tally:?}", case.name);
    assert!(files.get(case.images.len() > 2) == end, "the journal is not what the files got");
    (tally, end)
}

fn case<'a>(name: &'a str, images: &'a Images) -> Case<'a> {
    let (model, policies) = (Model::default(), &["write-back", "write-through"][..]);
    Case { name, images, events: &[], model, seeds: 3, formats: false, policies }
}

fn opening<'a>(name: &'a str, images: &'a Images, model: Model) -> Case<'a> {
    Case { seeds: 10, model, ..case(name, images) }
}

fn start(files: &Files, journal: &Arc<Journal>, policy: &str) -> Run {
    files.start(policy, true, journal, false).unwrap()
}

/// What the files hold after a run under write-back, and what the client then expects.
fn after_a_run(end: impl FnOnce(Run)) -> (Images, Model) {
    after_a_run_over("", end)
}

/// What the files hold after a run over a flash tier with these keys, and what the client then expects.
fn after_a_run_over(flash_keys: &str, end: impl FnOnce(Run)) -> (Images, Model) {
    let (files, journal) = (Files::new(), Arc::new(Journal::default()));
    files.put(&blank(true));
    let run = files.start_new(flash_keys, &journal).unwrap();
    run.work(0);
    end(run);
    let mut model = Model::default();
    for event in journal.take() {
        if let Event::Mark(mark) = event {
            model.note(&mark);
        }
    }
    model.note(&Mark::Stopped);
    model.cut();
    (files.get(true), model)
}

#[test]
fn a_first_run_says_dirty_before_anything_is_on_flash_only() {
    let (tally, _) = cut_everywhere(case("first", &blank(true)), |files, journal| {
        let run = start(files, journal, "write-back");
        run.work(0);
        run.stop().unwrap();
    });
    assert!(tally.dirty > 0 && tally.dirty < tally.states && tally.stopped > 0, "{tally:?}");
}

#[test]
fn an_opening_that_is_cut_short_is_done_by_the_next_one() {
    let open = |files: &Files, journal: &Arc<Journal>| start(files, journal, "write-back").kill();
    cut_everywhere(Case { seeds: 20, ..case("opening blank devices", &blank(true)) }, open);
    let (mut images, model) = after_a_run(|run| run.stop().unwrap());
    cut_everywhere(opening("opening after a stop", &images, model.clone()), open);
    images[2].fill(0);
    cut_everywhere(opening("opening with a new flash tier", &images, model), open);
    let (images, model) = after_a_run(Run::stop_keeping);
    let (tally, _) = cut_everywhere(opening("opening what is dirty", &images, model), open);
    assert!(tally.dirty == tally.states, "{tally:?}");
}

#[test]
fn an_older_copy_of_the_flash_tier_or_of_a_store_is_refused() {
    let (before, _) = after_a_run(Run::stop_keeping);
    let (files, journal) = (Files::new(), Arc::new(Journal::default()));
    files.put(&before);
    start(&files, &journal, "write-back").kill();
    let after = files.get(true);
    for older in 0..before.len() {
        let mut mixed = after.clone();
        mixed[older].clone_from(&before[older]);
        files.put(&mixed);
        let refused = files.start("write-back", true, &journal, false).err();
        assert!(matches!(refused, Some(EngineError::Epoch { .. })), "{older}: {refused:?}");
        assert!(files.get(true) == mixed, "{older}: refused, but something was written");
    }
    files.put(&after);
    start(&files, &journal, "write-back").kill();
}

#[test]
fn a_format_over_another_tier_that_is_cut_short_can_be_done_again() {
    let (images, model) = after_a_run(|run| run.stop().unwrap());
    let case = Case { seeds: 10, formats: true, model, ..case("format", &images) };
    cut_everywhere(case, |files, journal| {
        files.start("write-back", true, journal, true).unwrap().kill();
    });
}

#[test]
fn nothing_of_a_tier_with_other_pages_counts_once_the_next_one_is_formatted() {
    for (before, after) in [("page_size = '8KiB'", ""), ("", "page_size = '8KiB'")] {
        let (images, model) = after_a_run_over(before, |run| run.stop().unwrap());
        let name = format!("format, [{before}] before, then [{after}]");
        let case = Case { seeds: 10, formats: true, model, ..case(&name, &images) };
        let (_, end) = cut_everywhere(case, |files, journal| {
            files.start_new(after, journal).unwrap().kill();
        });
        // Each copy of its superblock alone is enough to find it.
        for copy in [0, if after.is_empty() { 64 << 10 } else { 128 << 10 }] {
            let (files, journal) = (Files::new(), Arc::new(Journal::default()));
            let mut images = end.clone();
            images[2][copy..copy + 4096].fill(0xA5);
            files.put(&images);
            start(&files, &journal, "write-back").kill();
        }
    }
}

#[test]
fn what_a_stop_leaves_on_flash_stays_marked_until_it_is_destaged() {
    let (images, model) = after_a_run(|run| run.stop_keeping());
    let case = Case { model, ..case("kept", &images) };
    let (tally, _) = cut_everywhere(case, |files, journal| {
        // A policy that keeps nothing dirty, over what another one left.
        let run = start(files, journal, "write-through");
        run.work(4);
        run.stop().unwrap();
    });
    assert!(tally.dirty > 0 && tally.stopped > 0, "{tally:?}");
}

#[test]
fn a_live_switch_to_write_back_says_dirty_first_while_writes_go_on() {
    let (tally, _) = cut_everywhere(case("switch", &blank(true)), |files, journal| {
        let run = start(files, journal, "write-through");
        run.work(0);
        writes_beside(&run, || {
            journal.pause_headers(Some(Duration::from_millis(12)));
            run.set_policy(WritePolicy::WriteBack).unwrap();
            journal.pause_headers(None);
        });
        run.write((1, 5), true);
        run.set_policy(WritePolicy::WriteThrough).unwrap();
        run.write((0, 5), true);
        run.stop().unwrap();
    });
    assert!(tally.dirty > 0 && tally.dirty < tally.states && tally.stopped > 0, "{tally:?}");
}

#[test]
fn clients_go_on_after_a_quiesce_when_the_headers_say_dirty_again() {
    let (tally, _) = cut_everywhere(case("quiesce", &blank(true)), |files, journal| {
        let run = start(files, journal, "write-back");
        run.work(0);
        writes_beside(&run, || {
            run.engine.quiesce(None, |_| {}).unwrap();
            journal.pause_headers(Some(Duration::from_millis(12)));
            run.engine.resume().unwrap();
            journal.pause_headers(None);
        });
        run.write((1, 5), true);
        run.stop().unwrap();
    });
    assert!(tally.dirty > 0 && tally.dirty < tally.states && tally.stopped > 0, "{tally:?}");
}

/// Does `what` while another client writes to both volumes without a pause.
fn writes_beside(run: &Run, what: impl FnOnce()) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for block in (8..11).cycle() {
                run.write((0, block), false);
                run.write((1, block), false);
                if over.load(Ordering::Relaxed) {
                    break;
                }
                // Enough to meet every step of `what`, and not a journal of thousands.
                std::thread::sleep(Duration::from_millis(6));
            }
        });
        // (The client ends, too, if this fails: else the failure would not be seen.)
        let done = catch_unwind(AssertUnwindSafe(what));
        over.store(true, Ordering::Relaxed);
        done.unwrap_or_else(|panic| resume_unwind(panic));
    });
}

#[test]
fn an_operation_on_a_header_that_fails_leaves_what_is_promised_as_it_was() {
    // At the opening: headers announce the tier, then say dirty; a write and a sync for each.
    for fails in 0..8 {
        let name = format!("opening, header operation {fails} fails");
        cut_everywhere(Case { seeds: 0, ..case(&name, &blank(true)) }, |files, journal| {
            journal.fail_header(fails);
            let refused = files.start("write-back", true, journal, false).is_err();
            assert!(refused && journal.has_failed(), "{name}");
        });
    }
    // At a live switch, which is then tried again, and at the stop: there stamps come first, before the stores are
    // written and after that, which the machine has tried again, and then the note of how the stores are left.
    let mut stopped = [0, 0];
    for fails in 0..10 {
        let name = format!("switch and stop, header operation {fails} fails");
        cut_everywhere(Case { seeds: 0, ..case(&name, &blank(true)) }, |files, journal| {
            let run = start(files, journal, "write-through");
            // (The write of one header or the other.)
            journal.fail_header(fails % 4 / 2 * 2);
            assert!(run.set_policy(WritePolicy::WriteBack).is_err() && journal.has_failed());
            run.write((0, 1), true);
            run.write((1, 1), true);
            run.set_policy(WritePolicy::WriteBack).unwrap();
            run.write((0, 2), true);
            run.write((1, 2), true);
            journal.fail_header(fails);
            stopped[usize::from(run.stop().is_ok())] += 1;
            assert!(journal.has_failed());
        });
    }
    assert!(stopped[0] > 0 && stopped[1] > 0, "{stopped:?}");
    // A failed sync of a header may be the report that data is lost. The store is not believed until
    // the next start.
    for fails in [1, 3] {
        let name = format!("switch, header sync {fails} fails");
        cut_everywhere(Case { seeds: 0, ..case(&name, &blank(true)) }, |files, journal| {
            let run = start(files, journal, "write-through");
            journal.fail_header(fails);
            assert!(run.set_policy(WritePolicy::WriteBack).is_err() && journal.has_failed());
            run.write((0, 1), false);
            run.write((1, 1), false);
            assert!(run.set_policy(WritePolicy::WriteBack).is_err());
            assert!(run.stop().is_err());
        });
    }
}

#[test]
fn without_a_flash_tier_a_flush_means_the_stores() {
    let (tally, _) = cut_everywhere(case("memory", &blank(false)), |files, journal| {
        let run = files.start("write-back", false, journal, false).unwrap();
        run.work(0);
        run.stop().unwrap();
    });
    assert!(tally.dirty > 0 && tally.stopped > 0, "{tally:?}");
}
