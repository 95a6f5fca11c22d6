//! The engine on real files makes the same decisions as the simulator.
//!
//! Method: the simulator (quiesced) and the engine (one request at a time) run the same requests
//! with the same configuration. Every counter of the state machine must be equal: of the cache, of
//! the flash log and of each volume. Slow devices, operations that end out of order, io_uring and
//! threads must make no difference.

use std::path::{Path, PathBuf};
use std::process::Command;

use forebay_block::{Flags, Op, Request};
use forebay_config::{Config, ReplacementPolicy};
use forebay_device::Backend;
use forebay_device::file::DirectIo;
use forebay_engine::{Counters, Engine, EngineOptions, StopMode, Submission};
use forebay_replacement::Kind;
use forebay_simulate::{Defaults, Options, Pacing, Scenario, Simulation, TracedVolume};
use forebay_trace::{Batch, OpenOptions, Spec, Synth, open_all};
use serde_json::Value;

/// Flash with few small regions, so that the log wraps around several times.
const FLASH: &str = "[flash]\npath = 'flash.img'\nsize = '16MiB'\nlayout = 'log'\n";

fn config(directory: &Path, policy: &str, flash: &str, sizes: &[u64]) -> Config {
    let mut text = format!("[cache]\ndram = '2MiB'\nwrite_policy = '{policy}'\n{flash}");
    for (number, bytes) in sizes.iter().enumerate() {
        text += &format!(
            "[[volume]]\nname = 'v{number}'\nbacking = '{}'\nsize = {bytes}\n",
            directory.join(format!("v{number}.img")).display()
        );
    }
    let text = text.replace("flash.img", &directory.join("flash.img").display().to_string());
    Config::from_toml(&text).unwrap()
}

fn simulated(config: &Config, sizes: &[u64], requests: &[Request]) -> Counters {
    let volume =
        |(number, &bytes): (usize, &u64)| TracedVolume { name: format!("v{number}"), bytes };
    let volumes: Vec<TracedVolume> = sizes.iter().enumerate().map(volume).collect();
    let scenario = Scenario::new(config, &volumes, &Defaults::default()).unwrap();
    let options = Options { pacing: Pacing::Quiesced, ..Options::default() };
    let mut simulation = Simulation::new(&scenario, &options).unwrap();
    requests.iter().for_each(|r| simulation.add(r).unwrap());
    let cache = simulation.cache();
    let of = |number| cache.volume_stats(forebay_block::Volume(number)).copied().unwrap();
    Counters {
        cache: *cache.stats(),
        log: cache.log_stats().copied(),
        volumes: (0..sizes.len() as u32).map(of).collect(),
    }
}

fn real(config: &Config, requests: &[Request], backend: Backend) -> Counters {
    let direct = DirectIo::Never;
    let options = EngineOptions { backend, direct, one_at_a_time: true, ..Default::default() };
    let engine = Engine::open(config, options).unwrap();
    let mut session = engine.session().unwrap();
    let (mut submissions, mut done) = (Vec::new(), Vec::new());
    for (tag, r) in requests.iter().enumerate() {
        let &Request { volume, op, flags, offset, length, .. } = r;
        let buffer = matches!(op, Op::Read | Op::Write).then(|| session.buffer(length as usize));
        let tag = tag as u64;
        submissions.push(Submission { tag, volume, op, flags, offset, length, buffer });
        session.submit(&mut submissions, &mut done);
        while session.in_flight() > 0 {
            session.wait(None, &mut done);
        }
        for done in done.drain(..) {
            assert_eq!(done.result, Ok(()), "{:?}", done.request);
            done.request.buffer.into_iter().for_each(|buffer| session.give_back(buffer));
        }
    }
    drop(session);
    engine.wait_until_idle();
    let counters = engine.counters();
    engine.stop(StopMode::Destage, |_| {}).unwrap();
    counters
}

/// Runs every policy with flash and without; returns the counters of the last run.
fn agree(sizes: &[u64], requests: &[Request], policies: &[&str]) -> Counters {
    let mut last = None;
    for policy in policies {
        for flash in ["", FLASH] {
            let directory = tempfile::tempdir().unwrap();
            let config = config(directory.path(), policy, flash, sizes);
            let simulated = simulated(&config, sizes, requests);
            let real = real(&config, requests, Backend::Auto);
            assert_eq!(real, simulated, "{policy}, {flash}");
            last = Some(real);
        }
    }
    last.unwrap()
}

fn synthetic(spec: &str) -> Vec<Request> {
    Synth::new(&Spec::parse(spec).unwrap()).unwrap().collect()
}

#[test]
fn engine_and_simulator_count_the_same_on_a_synthetic_workload() {
    let mut requests = synthetic("zipf:blocks=8Ki,requests=5k,write=0.5,size=8KiB,seed=7");
    // Add what a synthetic workload lacks: flushes, trims, write-zeroes, FUA and partial blocks.
    for (n, r) in requests.iter_mut().enumerate() {
        match n % 97 {
            3 => *r = Request { op: Op::Flush, offset: 0, length: 0, ..*r },
            17 => r.op = Op::Trim,
            31 => r.op = Op::WriteZeroes,
            43 if r.op == Op::Write => r.flags = Flags::FUA,
            59 | 60 => (r.offset, r.length) = (r.offset + 512, 1024),
            _ => {}
        }
    }
    let policies = ["write-back", "write-through", "write-around", "write-only", "read-only"];
    let counters = agree(&[64 << 20], &requests, &policies);
    assert!(counters.volumes[0].read_hits.tier1 > 0 && counters.volumes[0].read_hits.tier2 > 0);
    assert!(counters.log.unwrap().payload_pages > 0 && counters.cache.demotions > 0);
}

#[test]
fn engine_and_simulator_count_the_same_on_real_traces() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/traces/sqlite-shop.parquet");
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let root = std::env::var_os("FOREBAY_TRACES").map_or(beside, PathBuf::from);
    for path in [own, root.join("cloudphysics/cloudPhysicsIO.vscsi")] {
        if !path.exists() {
            println!("skipped: there is no {}", path.display());
            continue;
        }
        let mut reader = open_all(&[&path], &OpenOptions::default()).unwrap();
        let (mut requests, mut batch) = (Vec::new(), Batch::default());
        while requests.len() < 8_000 && reader.read_batch(&mut batch).unwrap() > 0 {
            requests.extend(batch.requests());
        }
        requests.truncate(8_000);
        let end = requests.iter().map(|r| r.offset + r.length).max().unwrap();
        let sizes = [end.next_multiple_of(4096)];
        let counters = agree(&sizes, &requests, &["write-back", "write-through"]);
        assert!(counters.volumes[0].read_hits.tier1 > 0);
    }
}

#[test]
fn engine_and_simulator_count_the_same_with_every_replacement_policy() {
    let requests = synthetic("zipf:blocks=8Ki,requests=2k,write=0.5,size=8KiB,seed=9");
    let sizes = [64 << 20];
    let known = |name: &&str| name.parse::<ReplacementPolicy>().is_ok();
    let names = Kind::ALL.iter().map(|kind| kind.name()).filter(known);
    for name in names {
        let directory = tempfile::tempdir().unwrap();
        let replacement = format!("{FLASH}[replacement]\npolicy = '{name}'\n");
        let config = config(directory.path(), "write-back", &replacement, &sizes);
        let simulated = simulated(&config, &sizes, &requests);
        assert!(simulated.cache.rescued + simulated.cache.demotions > 0);
        assert_eq!(real(&config, &requests, Backend::Auto), simulated, "{name}");
    }
}

#[test]
fn neither_slow_devices_nor_the_way_to_them_change_what_the_cache_decides() {
    let requests = synthetic("zipf:blocks=2Ki,requests=600,write=0.4,size=32KiB,seed=3");
    let sizes = [8 << 20, 8 << 20];
    let spread = requests
        .iter()
        .enumerate()
        .map(|(n, r)| Request { volume: forebay_block::Volume((n / 3 % 2) as u32), ..*r });
    let requests: Vec<Request> = spread.collect();
    // Operations seldom end in the order in which they began.
    let shape = "[shape.slow]\nread_latency = '200us'\nwrite_latency = '300us'\n\
                 distribution = 'lognormal'\nsigma = 1.5\nparallelism = 64\n";
    let mut counted = Vec::new();
    for (shaped, backend) in
        [(false, Backend::Auto), (true, Backend::Auto), (true, Backend::Threads)]
    {
        let directory = tempfile::tempdir().unwrap();
        let mut config = config(directory.path(), "write-back", &format!("{FLASH}{shape}"), &sizes);
        if shaped {
            config.flash.as_mut().unwrap().shape = Some("slow".into());
            config.volume.iter_mut().for_each(|v| v.shape = Some("slow".into()));
        }
        counted.push(simulated(&config, &sizes, &requests));
        counted.push(real(&config, &requests, backend));
    }
    counted.windows(2).for_each(|pair| assert_eq!(pair[0], pair[1]));
}

#[test]
fn the_two_commands_answer_alike() {
    let directory = tempfile::tempdir().unwrap();
    let forebay = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        let output = command.current_dir(directory.path()).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {said}");
        output.stdout
    };
    let spec = "zipf:blocks=4Ki,requests=3k,write=0.3,rate=100000";
    forebay(&["trace", "synth", spec, "-o", "t.parquet"]);
    let config = "[cache]\ndram = '1MiB'\nwrite_policy = 'write-back'\n\
                  [flash]\npath = 'flash.img'\nsize = '16MiB'\nlayout = 'log'\n\
                  [[volume]]\nname = 'v'\nbacking = 'disk.img'\nsize = '16MiB'\n";
    std::fs::write(directory.path().join("f.toml"), config).unwrap();
    let json = |command| -> Value {
        let how = ["t.parquet", "--config", "f.toml", "--quiesce", "--json"];
        serde_json::from_slice(&forebay(&[&[command], &how[..]].concat())).unwrap()
    };
    let (simulated, replayed) = (json("simulate"), json("replay"));
    for field in [
        "requests",
        "reads",
        "writes",
        "read_bytes",
        "write_bytes",
        "hits",
        "misses",
        "hit_ratio",
        "tier2_bytes_written",
        "backing",
        "dirty_blocks_max",
    ] {
        assert!(!simulated[field].is_null(), "{field}");
        assert_eq!(simulated[field], replayed[field], "{field}");
    }
    let counts = |v: &Value| {
        let c = &v["component_latency_us"];
        ["tier2_write", "tier2_sync", "backing_read", "backing_write"]
            .map(|f| c[f]["count"].as_u64())
    };
    assert_eq!(counts(&simulated), counts(&replayed));
}
