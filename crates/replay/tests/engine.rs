//! Goal: Forebay's own cache is a target like any other, and reports its counters. Method: an
//! engine on files.

use crate::support::{run, workload};
use forebay_config::Config;
use forebay_engine::{EngineOptions, StopMode};
use forebay_replay::{
    EngineHost, Feed, Hooks, Pace, Placement, PlacementOptions, Run, RunOptions, Survey,
    SystemClock, Target, Writes,
};
use forebay_trace::TraceReader;

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

#[test]
fn requests_that_are_no_whole_sectors_are_widened_and_answered() {
    let directory = tempfile::tempdir().unwrap();
    let host = open(directory.path(), "write-back", false);
    let clock = SystemClock::start();
    let mut target = host.target(clock).unwrap();
    let lines: String =
        (0..1000).map(|n| format!("{n},{},{},300\n", ["r", "w"][n % 2], n * 100)).collect();
    let text = format!("time_ns,op,offset,length\n{lines}").into_bytes();
    let open = || forebay_trace::open_bytes(text.clone(), &Default::default()).unwrap();
    let mut survey = Survey::default();
    open().into_requests().for_each(|request| survey.add(&request.unwrap()));
    let options = PlacementOptions { writes: Writes::Allowed, ..Default::default() };
    let placement =
        Placement::new(&survey.volumes, target.volumes(), target.limits(), options).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let hooks = Hooks { stop: &stop, progress: &|_| {} };
    let options = RunOptions { pace: Pace::AsFastAsPossible, ..Default::default() };
    let run = Run { clock, feed: Feed::start(open()), placement, options, hooks };
    let finished = run.go(&mut [&mut target]);
    assert!(finished.error.is_none());
    let result = finished.result;
    assert_eq!((result.run.requests, result.run.errors), (1000, 0));
    assert!(result.adjusted.widened > 900, "{:?}", result.adjusted);
}

#[test]
fn a_reader_that_is_slow_to_begin_makes_no_target_wait() {
    struct Slow(forebay_trace::Synth, bool);
    impl TraceReader for Slow {
        fn metadata(&self) -> &forebay_trace::Metadata {
            self.0.metadata()
        }
        fn counters(&self) -> forebay_trace::Counters {
            self.0.counters()
        }
        fn progress(&self) -> forebay_trace::Progress {
            self.0.progress()
        }
        fn read_batch(
            &mut self,
            batch: &mut forebay_trace::Batch,
        ) -> Result<usize, forebay_trace::TraceError> {
            if !std::mem::replace(&mut self.1, true) {
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            self.0.read_batch(batch)
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let host = open(directory.path(), "write-back", false);
    let clock = SystemClock::start();
    let mut target = host.target(clock).unwrap();
    let (synth, survey) = workload("uniform:blocks=16,requests=100");
    let options = PlacementOptions::default();
    let placement =
        Placement::new(&survey.volumes, target.volumes(), target.limits(), options).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let hooks = Hooks { stop: &stop, progress: &|_| {} };
    let feed = Feed::start(Slow(synth, false));
    let run = Run { clock, feed, placement, options: RunOptions::default(), hooks };
    let result = run.go(&mut [&mut target]).result;
    assert_eq!((result.run.requests, result.starved), (100, 0));
}
