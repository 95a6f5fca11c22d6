//! What an engine says of itself.

use forebay_block::{Flags, Op, Volume};
use forebay_config::Config;
use forebay_engine::{Engine, EngineOptions, Submission};

#[test]
fn a_request_counts_when_it_arrives_and_its_time_when_it_is_answered() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!(
        "[cache]\ndram = '1MiB'\n[shape.slow]\nread_latency = '200ms'\n\
         [[volume]]\nname = 'a'\nbacking = '{}'\nsize = '4MiB'\nshape = 'slow'\n",
        directory.path().join("a.img").display()
    );
    let config = Config::from_toml(&text).unwrap();
    let engine = Engine::open(&config, EngineOptions::default()).unwrap();
    let mut session = engine.session().unwrap();
    let buffer = Some(session.buffer(4096));
    let (op, flags) = (Op::Read, Flags::NONE);
    let read = Submission { tag: 1, volume: Volume(0), op, flags, offset: 0, length: 4096, buffer };
    let mut done = Vec::new();
    session.submit(&mut vec![read], &mut done);
    // (The store takes 200 ms for it.)
    let meanwhile = engine.status().total;
    while done.is_empty() {
        session.wait(None, &mut done);
    }
    let after = engine.status().total;
    assert_eq!((meanwhile.reads, after.reads), (1, 1));
    assert_eq!((meanwhile.answered.read.count, meanwhile.answered.read.sum_ns), (0, 0));
    assert_eq!((after.answered.read.count, after.answered.all.count), (1, 1));
    assert!(after.answered.read.sum_ns >= 100_000_000, "{:?}", after.answered);
}
