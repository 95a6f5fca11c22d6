//! Each relation of the tiers, on each layout that it goes with, is served: created, read and written, and opened again.

use std::path::Path;

use forebay_block::{Flags, Op, Volume};
use forebay_cache::Relation;
use forebay_config::Config;
use forebay_engine::{Engine, EngineOptions, Session, Submission};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 512;

fn open(directory: &Path, relation: Relation, layout: &str) -> Result<Engine, String> {
    let path = |name: &str| directory.join(name).display().to_string();
    let config = Config::from_toml(&format!(
        "[cache]\ndram = '256KiB'\nwrite_policy = 'write-back'\nacknowledge = 'flash'\nrelation = '{relation}'\n\
         [flash]\npath = '{}'\nsize = '4MiB'\nlayout = '{layout}'\nregion_size = '256KiB'\nbatch_size = '64KiB'\n\
         [[volume]]\nname = 'a'\nbacking = '{}'\nsize = '{}'\n",
        path("flash.img"),
        path("disk.img"),
        BLOCKS * BLOCK as u64,
    ))
    .map_err(|e| e.to_string())?;
    Engine::open(&config, EngineOptions::default()).map_err(|e| e.to_string())
}

fn one(session: &mut Session, op: Op, block: u64, byte: u8) -> Vec<u8> {
    let mut buffer = session.buffer(BLOCK);
    buffer.fill(byte);
    let (volume, flags, offset) = (Volume(0), Flags::NONE, block * BLOCK as u64);
    let (length, buffer) = (BLOCK as u64, Some(buffer));
    let request = Submission { tag: 0, volume, op, flags, offset, length, buffer };
    let mut done = Vec::new();
    session.submit(&mut vec![request], &mut done);
    while done.is_empty() {
        session.wait(None, &mut done);
    }
    let done = done.remove(0);
    done.result.unwrap();
    done.request.buffer.unwrap()[..BLOCK].to_vec()
}

#[test]
fn each_relation_is_served_and_keeps_what_was_written() {
    let mut served = 0;
    for relation in Relation::ALL {
        for layout in ["log", "slots"] {
            let directory = tempfile::tempdir().unwrap();
            let engine = match open(directory.path(), relation, layout) {
                Ok(engine) => engine,
                Err(why) => {
                    assert!(
                        relation == Relation::Etica && layout == "log",
                        "{relation} {layout}: {why}"
                    );
                    assert!(why.contains("must be slots under the relation etica"), "{why}");
                    continue;
                }
            };
            let newest = |n: u64| (n % 251 + 1) as u8;
            let mut session = engine.session().unwrap();
            for n in 0..1500 {
                one(&mut session, Op::Write, n * 7 % BLOCKS, newest(n));
                one(&mut session, Op::Read, n * n % BLOCKS, 0);
            }
            let written =
                |block: u64| (0..1500).rev().find(|n| n * 7 % BLOCKS == block).map(newest);
            let check = |engine: &Engine| {
                let mut session = engine.session().unwrap();
                for block in 0..BLOCKS {
                    let data = one(&mut session, Op::Read, block, 0);
                    let right = written(block).unwrap_or(0);
                    assert!(data.iter().all(|&byte| byte == right), "{relation} {layout} {block}");
                }
            };
            check(&engine);
            drop(session);
            engine.kill();
            let engine = open(directory.path(), relation, layout).unwrap();
            check(&engine);
            engine.stop(forebay_engine::StopMode::Destage, |_| {}).unwrap();
            served += 1;
        }
    }
    assert_eq!(served, 2 * Relation::ALL.len() - 1);
}
