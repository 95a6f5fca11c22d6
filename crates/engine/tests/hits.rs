//! Reads without the engine's lock, by several threads, while others write the same blocks and the tiers are busy.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_block::{Flags, Op, Volume};
use forebay_config::Config;
use forebay_engine::{Engine, EngineOptions, Session, Submission};

const BLOCK: u64 = 4096;
/// Blocks that are read and written by all.
const HOT: u64 = 64;
/// Writes and trims of them.
const OPS: u64 = 2000;
/// Blocks of the volume.
const BLOCKS: u64 = 8 << 10;

fn open(directory: &Path, layout: &str, relation: &str) -> Engine {
    let path = |name: &str| directory.join(name).display().to_string();
    let config = Config::from_toml(&format!(
        "[cache]\ndram = '1MiB'\nwrite_policy = 'write-back'\n\
         relation = '{relation}'\n\
         [flash]\npath = '{}'\nsize = '16MiB'\nlayout = '{layout}'\n\
         [[volume]]\nname = 'a'\nbacking = '{}'\nsize = '{}'\n",
        path("flash.img"),
        path("disk.img"),
        BLOCKS * BLOCK,
    ));
    Engine::open(&config.unwrap(), EngineOptions::default()).unwrap()
}

/// One request and its end; the data of a read.
fn one(session: &mut Session, op: Op, block: u64, number: u64) -> Vec<u64> {
    let (mut done, offset, volume, flags) = (Vec::new(), block * BLOCK, Volume(0), Flags::NONE);
    let mut buffer = session.buffer(BLOCK as usize);
    buffer.chunks_mut(8).for_each(|word| word.copy_from_slice(&number.to_le_bytes()));
    let length = if op == Op::Trim { BLOCK } else { buffer.len() as u64 };
    let buffer = (op != Op::Trim).then_some(buffer);
    session.submit(
        &mut vec![Submission { tag: 0, volume, op, flags, offset, length, buffer }],
        &mut done,
    );
    while done.is_empty() {
        session.wait(None, &mut done);
    }
    let done = done.pop().unwrap();
    done.result.unwrap();
    let mut words = Vec::new();
    if op == Op::Read {
        let lent: Vec<u8> = done.lent.iter().flat_map(|loan| loan.to_vec()).collect();
        let buffer = done.request.buffer.as_deref().unwrap_or_default();
        let bytes = if lent.is_empty() { buffer } else { &lent[..] };
        words.extend(bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())));
    }
    if let Some(buffer) = done.request.buffer {
        session.give_back(buffer);
    }
    words
}

/// Counters and status have all reads, also those that their session, which goes on, has not reported.
#[test]
fn whoever_looks_sees_every_read() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path(), "slots", "exclusive");
    let mut session = engine.session().unwrap();
    one(&mut session, Op::Write, 1, 7);
    for reads in 1..30 {
        assert_eq!(one(&mut session, Op::Read, 1, 0)[0], 7);
        match reads % 2 {
            0 => assert_eq!(engine.counters().volumes[0].reads, reads),
            _ => assert_eq!(engine.status().volumes[0].workload.reads, reads),
        }
    }
    engine.kill();
}

/// What readers see of a block is whole, and no older than what was written or trimmed before they asked.
#[test]
fn readers_see_whole_and_newest_blocks_while_others_write_and_trim_them() {
    // (Under ETICA writes go past what memory holds of a block, so that its frame is not written.)
    for (layout, relation) in [("log", "exclusive"), ("slots", "exclusive"), ("slots", "etica")] {
        let directory = tempfile::tempdir().unwrap();
        let engine = open(directory.path(), layout, relation);
        // By block: the last write or trim that has ended, and the last trim that has begun.
        let numbers = || (0..HOT).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let (ended, trimmed) = (numbers(), numbers());
        let (end, reads) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|threads| {
            for borrows in [false, true, true] {
                let mut session = engine.session().unwrap();
                let (ended, trimmed, end, reads) = (&ended, &trimmed, &end, &reads);
                threads.spawn(move || {
                    if borrows {
                        session.borrow();
                    }
                    // Most reads are of a few blocks, which stay in memory.
                    for n in 0_u64.. {
                        let block = if n.is_multiple_of(8) { n % HOT } else { n % 5 };
                        let least = ended[block as usize].load(Ordering::SeqCst);
                        let words = one(&mut session, Op::Read, block, 0);
                        let first = words[0];
                        match first {
                            0 => assert!(trimmed[block as usize].load(Ordering::SeqCst) >= least),
                            _ => assert!(first >= least, "{first} is older than {least}"),
                        }
                        assert!(words.len() == 512 && words.iter().all(|&word| word == first));
                        reads.fetch_add(1, Ordering::Relaxed);
                        if end.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                });
            }
            let mut session = engine.session().unwrap();
            for n in 1..OPS {
                let block = (n / 7 * 3 + n) % HOT;
                let op = if n.is_multiple_of(7) { Op::Trim } else { Op::Write };
                if op == Op::Trim {
                    trimmed[block as usize].store(n, Ordering::SeqCst);
                }
                one(&mut session, op, block, n);
                ended[block as usize].store(n, Ordering::SeqCst);
                // Other blocks push these out of memory, and all of them through flash.
                one(
                    &mut session,
                    if n.is_multiple_of(2) { Op::Read } else { Op::Write },
                    HOT + n % (BLOCKS - HOT),
                    n,
                );
            }
            end.store(true, Ordering::Relaxed);
        });
        let volume = engine.counters().volumes[0];
        let others = OPS / 2 - 1;
        assert_eq!(volume.reads, reads.load(Ordering::Relaxed) + others, "each read counts once");
        assert_eq!(volume.read_bytes, volume.reads * BLOCK);
        engine.kill();
    }
}
