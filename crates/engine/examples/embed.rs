//! Embeds the cache in a program: opens an engine on files, writes, flushes, reads back, stops.
//!
//! `cargo run -p forebay-engine --example embed`

#![allow(clippy::print_stdout)] // a program, not the library

use std::error::Error;

use forebay_block::{Flags, Op, Volume};
use forebay_config::Config;
use forebay_engine::{Done, Engine, EngineOptions, Session, StopMode, Submission};

/// Does one request on the first volume, and waits for its answer. (A session takes many at a time.)
fn perform(session: &mut Session, op: Op, offset: u64, length: u64, fill: u8) -> Done {
    let mut buffer = session.buffer(length as usize);
    buffer.fill(fill);
    let (volume, flags, buffer) = (Volume(0), Flags::NONE, Some(buffer));
    let request = Submission { tag: 0, volume, op, flags, offset, length, buffer };
    let mut done = Vec::new();
    session.submit(&mut vec![request], &mut done);
    while done.is_empty() {
        session.wait(None, &mut done);
    }
    done.remove(0)
}

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?; // where the two files are created
    let path = |name: &str| directory.path().join(name).display().to_string();
    let config = Config::from_toml(&format!(
        "[cache]\ndram = '1MiB'\nwrite_policy = 'write-back'\n\
         [flash]\npath = '{}'\nsize = '16MiB'\n\
         [[volume]]\nname = 'demo'\nbacking = '{}'\nsize = '8MiB'\n",
        path("flash.img"),
        path("disk.img"),
    ))?;
    let engine = Engine::open(&config, EngineOptions::default())?;
    let mut session = engine.session()?;
    perform(&mut session, Op::Write, 8192, 4096, 42).result?;
    perform(&mut session, Op::Flush, 0, 0, 0).result?; // durable from here on
    let read = perform(&mut session, Op::Read, 8192, 4096, 0);
    read.result?;
    let buffer = read.request.buffer.expect("a read comes back with its buffer");
    assert!(buffer[..4096].iter().all(|&byte| byte == 42));
    println!("read back what was written; {:?}", engine.counters().volumes[0].read_hits);
    drop(session);
    engine.stop(StopMode::Destage, |_dirty_blocks| ())?; // the disk has all data now
    Ok(())
}
