//! What a configuration allows is served: each relation of the tiers on each layout, and policies of all kinds with them.

use std::path::Path;

use forebay_block::{Flags, Op, Volume};
use forebay_cache::Relation;
use forebay_config::Config;
use forebay_engine::{Engine, EngineOptions, Session, StopMode, Submission};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 512;
const FLASH_BYTES: u64 = 4 << 20;

const ADMISSIONS: [&str; 7] =
    ["always", "nhit", "smq", "random", "popularity", "write-budget", "adaptive"];
const ON_FLASH: [&str; 13] = [
    "fifo",
    "second-chance",
    "frequency",
    "popularity",
    "lru",
    "clock",
    "sieve",
    "s3-fifo",
    "2q",
    "arc",
    "lfu",
    "w-tinylfu",
    "random",
];
const IN_MEMORY: [&str; 10] =
    ["lru", "clock", "sieve", "s3-fifo", "2q", "arc", "lfu", "w-tinylfu", "random", "hr-lru"];

/// In memory where that is possible: nothing here needs syncs that take time.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A configuration with these policies; `more` has further sections.
fn config(directory: &Path, cache: &str, flash: &str, more: &str) -> Result<Config, String> {
    let path = |name: &str| directory.join(name).display().to_string();
    let text = format!(
        "[cache]\ndram = '256KiB'\n{cache}\n\
         [flash]\npath = '{}'\nsize = '{FLASH_BYTES}'\nregion_size = '256KiB'\nbatch_size = '64KiB'\n{flash}\n\
         {more}\n\
         [[volume]]\nname = 'a'\nbacking = '{}'\nsize = '{}'\n",
        path("flash.img"),
        path("disk.img"),
        BLOCKS * BLOCK as u64,
    );
    Config::from_toml(&text).map_err(|e| e.to_string())
}

fn open(config: &Config) -> Engine {
    Engine::open(config, EngineOptions::default()).unwrap()
}

/// Requests of one block each, all at once; the first bytes of the blocks, in this order.
fn all(session: &mut Session, op: Op, blocks: &[(u64, u8)]) -> Vec<u8> {
    let (mut requests, mut done) = (Vec::new(), Vec::new());
    for (tag, &(block, byte)) in (0..).zip(blocks) {
        let mut buffer = session.buffer(BLOCK);
        buffer.fill(byte);
        let (volume, flags, offset) = (Volume(0), Flags::NONE, block * BLOCK as u64);
        let (length, buffer) = (BLOCK as u64, Some(buffer));
        requests.push(Submission { tag, volume, op, flags, offset, length, buffer });
    }
    session.submit(&mut requests, &mut done);
    while done.len() < blocks.len() {
        session.wait(None, &mut done);
    }
    done.sort_by_key(|done| done.request.tag);
    (done.into_iter())
        .map(|done| {
            done.result.unwrap();
            let buffer = done.request.buffer.unwrap();
            assert!(buffer[..BLOCK].iter().all(|&byte| byte == buffer[0]), "torn");
            buffer[0]
        })
        .collect()
}

/// Every block holds what was written last.
fn check(engine: &Engine, newest: &[u8], what: &str) {
    let mut session = engine.session().unwrap();
    let blocks: Vec<(u64, u8)> = (0..BLOCKS).map(|block| (block, 0)).collect();
    let found: Vec<u8> =
        blocks.chunks(64).flat_map(|some| all(&mut session, Op::Read, some)).collect();
    assert!(found == newest, "{what}");
}

/// Writes and reads, in turns of 16.
fn load(engine: &Engine, newest: &mut [u8], turns: u64) {
    let mut session = engine.session().unwrap();
    for turn in 0..turns {
        let writes: Vec<(u64, u8)> = (turn * 16..turn * 16 + 16)
            .map(|n| (n * 7 % BLOCKS, (n % 251 + 1) as u8))
            .inspect(|&(block, byte)| newest[block as usize] = byte)
            .collect();
        all(&mut session, Op::Write, &writes);
        let reads: Vec<(u64, u8)> = (0..16).map(|n| ((n * n + turn) % BLOCKS, 0)).collect();
        all(&mut session, Op::Read, &reads);
    }
}

#[test]
fn each_relation_is_served_and_keeps_what_was_written() {
    let mut served = 0;
    for relation in Relation::ALL {
        for layout in ["log", "slots"] {
            let (directory, what) = (directory(), format!("{relation} {layout}"));
            let cache = format!(
                "write_policy = 'write-back'\nacknowledge = 'flash'\nrelation = '{relation}'"
            );
            let flash = format!("layout = '{layout}'");
            let config = match config(directory.path(), &cache, &flash, "") {
                Ok(config) => config,
                Err(why) => {
                    assert!(relation == Relation::Etica && layout == "log", "{what}: {why}");
                    assert!(why.contains("must be \"slots\" with the relation etica"), "{why}");
                    continue;
                }
            };
            let (engine, mut newest) = (open(&config), vec![0; BLOCKS as usize]);
            load(&engine, &mut newest, 90);
            check(&engine, &newest, &what);
            engine.kill();
            let engine = open(&config);
            check(&engine, &newest, &what);
            engine.stop(StopMode::Destage, |_| {}).unwrap();
            served += 1;
        }
    }
    assert_eq!(served, 2 * Relation::ALL.len() - 1);
}

/// Whatever the configuration says, an engine opens exactly if the parameters of its cache can be had: that is what
/// simulations go by. (`crates/setup/tests/legality.rs` has all combinations of those.)
#[test]
fn an_engine_serves_what_a_simulation_takes_and_nothing_else() {
    let (mut turn, mut served, mut refused) = (0, 0, 0);
    for relation in Relation::ALL {
        for (policy, acknowledge) in [
            ("write-back", "acknowledge = 'flash'"),
            ("write-back", "acknowledge = 'dram'"),
            ("write-through", ""),
        ] {
            for layout in ["", "layout = 'log'", "layout = 'slots'"] {
                for admission in ADMISSIONS {
                    turn += 1;
                    let replacement = ON_FLASH[turn % ON_FLASH.len()];
                    let memory = IN_MEMORY[turn % IN_MEMORY.len()];
                    let cache = format!(
                        "write_policy = '{policy}'\n{acknowledge}\nrelation = '{relation}'"
                    );
                    let flash = format!("{layout}\nreplacement = '{replacement}'");
                    let more = format!(
                        "[admission]\npolicy = '{admission}'\n[replacement]\npolicy = '{memory}'"
                    );
                    let directory = directory();
                    let Ok(config) = config(directory.path(), &cache, &flash, &more) else {
                        refused += 1;
                        continue;
                    };
                    let what = format!("{cache}\n{flash}\n{more}");
                    let cache = forebay_engine::cache_config(&config, Some(FLASH_BYTES));
                    match (cache, Engine::open(&config, EngineOptions::default())) {
                        (Ok(_), Ok(engine)) => {
                            let mut newest = vec![0; BLOCKS as usize];
                            load(&engine, &mut newest, 4);
                            check(&engine, &newest, &what);
                            engine.kill();
                            served += 1;
                        }
                        (Err(_), Err(_)) => refused += 1,
                        (cache, engine) => {
                            panic!("{what}\n{:?}\n{:?}", cache.err(), engine.err());
                        }
                    }
                }
            }
        }
    }
    assert!(served > 100 && refused > 100, "{served} served, {refused} refused");
}
