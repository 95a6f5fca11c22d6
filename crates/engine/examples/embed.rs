//! Embeds the cache in a program: opens an engine on files, writes, flushes, reads back, stops.
//!
//! `cargo run -p forebay-engine --example embed`

#![allow(clippy::print_stdout)] // a program, not the library

use std::error::Error;

use forebay_block::Volume;
use forebay_config::Config;
use forebay_engine::{Done, Engine, EngineOptions, Session, StopMode, Submission};

const VOLUME: Volume = Volume(0);

/// Submits one request, and waits for its answer. A session takes many at a time.
fn perform(session: &mut Session, request: Submission) -> Done {
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
    let mut data = session.buffer(4096);
    data.fill(42);
    perform(&mut session, Submission::write(0, VOLUME, 8192, 4096, data)).result?;
    perform(&mut session, Submission::flush(0, VOLUME)).result?; // durable from here on
    let room = session.buffer(4096);
    let read = perform(&mut session, Submission::read(0, VOLUME, 8192, 4096, room));
    read.result?;
    let buffer = read.request.buffer.expect("a read comes back with its buffer");
    assert!(buffer[..4096].iter().all(|&byte| byte == 42));
    println!("read back what was written; {:?}", engine.counters().volumes[0].read_hits);
    drop(session);
    engine.stop(StopMode::Destage, |_dirty_blocks| ())?; // the disk has all data now
    Ok(())
}
