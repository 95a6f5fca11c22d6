//! Goal: our own cache is a target like any other, and says what it did. Method: an engine on
//! files.

use crate::support::run;
use forebay_config::Config;
use forebay_engine::{EngineOptions, StopMode};
use forebay_replay::{EngineHost, SystemClock, Target};

fn open(directory: &std::path::Path, policy: &str, flash: bool) -> EngineHost {
    let at = |name: &str| directory.join(name).display().to_string();
    let flash = match flash {
        true => format!("[flash]\npath = '{}'\nsize = '256MiB'\nlayout = 'log'\n", at("flash.img")),
        false => String::new(),
    };
    let text = format!(
        "[cache]\ndram = '2MiB'\nwrite_policy = '{policy}'\n{flash}\
         [[volume]]\nname = 'v'\nbacking = '{}'\nsize = '16MiB'\n",
        at("disk.img")
    );
    let config = Config::from_toml(&text).unwrap();
    EngineHost::open(&config, EngineOptions::default()).unwrap()
}

#[test]
fn the_cache_keeps_what_was_written_and_counts_its_hits() {
    for (policy, flash) in [("write-through", false), ("write-back", false), ("write-back", true)] {
        let directory = tempfile::tempdir().unwrap();
        let host = open(directory.path(), policy, flash);
        let clock = SystemClock::start();
        let mut target = host.target(clock).unwrap();
        let spec = "zipf:blocks=2048,requests=5000,write=0.4,trim=0.02,flush_every=100";
        let (finished, verified) = run(spec, &mut [&mut target], clock, 16);
        let verified = verified.unwrap();
        assert!(finished.error.is_none());
        assert_eq!(finished.result.run.errors, 0);
        assert!(verified.is_right(), "{policy} {flash}: {verified:?}");
        assert!(verified.reads_checked_bytes > 1 << 20, "{verified:?}");
        let (cache, _) = host.cache();
        assert!(cache.hits.tier1.read > 0 && cache.misses.read > 0);
        assert_eq!(cache.hits.tier2.sum() > 0, flash, "{policy}");
        drop(target);
        host.stop(StopMode::Destage, |_| {}).unwrap();
    }
}

#[test]
fn several_sessions_share_a_workload() {
    let directory = tempfile::tempdir().unwrap();
    let host = open(directory.path(), "write-back", false);
    let clock = SystemClock::start();
    let (mut one, mut two) = (host.target(clock).unwrap(), host.target(clock).unwrap());
    assert_eq!(one.volumes()[0].name, "v");
    let spec = "uniform:blocks=4096,requests=40000,write=0.1";
    let (finished, _) = run(spec, &mut [&mut one, &mut two], clock, 8);
    assert!(finished.error.is_none());
    assert_eq!((finished.result.run.requests, finished.result.run.errors), (40_000, 0));
}
