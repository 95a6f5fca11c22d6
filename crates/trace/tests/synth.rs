//! Goal: workloads match their description and never change for a seed.
//! Method: counting the requests that are generated; a pinned digest for each pattern.

use std::collections::{HashMap, HashSet};

use forebay_block::{Flags, Op, Request};
use forebay_trace::{Batch, Spec, Synth, TraceReader};

fn make(text: &str) -> Vec<Request> {
    Synth::new(&Spec::parse(text).unwrap()).unwrap().collect()
}

fn share(requests: &[Request], of: impl Fn(&Request) -> bool) -> f64 {
    requests.iter().filter(|r| of(r)).count() as f64 / requests.len() as f64
}

/// FNV-1a over all fields.
fn digest(requests: &[Request]) -> u64 {
    let mut h = 0xcbf2_9ce4_8422_2325_u64;
    for r in requests {
        let fields =
            [r.time.0, r.volume.0.into(), r.op as u64, r.flags.0.into(), r.offset, r.length];
        for byte in fields.iter().flat_map(|f| f.to_le_bytes()) {
            h = (h ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    h
}

#[test]
fn a_seed_gives_the_same_trace_for_ever() {
    for (text, expected) in [
        ("zipf:blocks=100k,theta=1,requests=10k,write=0.3,seed=1", "fea8ce884de08cd7"),
        ("zoned:requests=10k,size=4KiB@0.5/64KiB@0.5,arrival=poisson,seed=2", "9f9c39d4885fff6d"),
        (
            "sequential:run=8,fua=0.5,write=1,flush_every=10,requests=10k,arrival=closed",
            "20d227a07f24ca25",
        ),
    ] {
        assert_eq!(format!("{:016x}", digest(&make(text))), expected, "{text}");
    }
}

#[test]
fn another_seed_gives_another_trace() {
    let a = make("zipf:requests=1000,seed=1");
    assert_eq!(a.len(), 1000);
    assert_ne!(a, make("zipf:requests=1000,seed=2"));
}

#[test]
fn shares_of_operations_sizes_and_flags_are_as_asked() {
    let r = make("uniform:requests=100k,write=0.3,trim=0.1,fua=0.5,size=4KiB@3/64KiB@1,seed=5");
    let close = |a: f64, b: f64| assert!((a - b).abs() < 0.01, "{a} {b}");
    close(share(&r, |r| r.op == Op::Write), 0.3);
    close(share(&r, |r| r.op == Op::Trim), 0.1);
    close(share(&r, |r| r.flags == Flags::FUA), 0.15);
    close(share(&r, |r| r.length == 65536), 0.25);
    assert!(r.iter().all(|r| r.offset % 4096 == 0 && r.offset + r.length <= 4096 << 20));
}

#[test]
fn zones_get_their_shares_so_that_a_cache_of_the_hot_zone_hits_as_often() {
    let r = make("zoned:blocks=10k,zones=0.1@0.8/0.9@0.2,scatter=no,requests=100k");
    let hits = share(&r, |r| r.offset < 1000 * 4096);
    assert!((hits - 0.8).abs() < 0.01, "{hits}");
    let scattered = make("zoned:blocks=10k,zones=0.1@0.8/0.9@0.2,requests=100k");
    let mut counts = HashMap::new();
    scattered.iter().for_each(|r| *counts.entry(r.offset).or_insert(0) += 1);
    let mut counts: Vec<i32> = counts.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let hot: i32 = counts[..1000].iter().sum();
    assert!((f64::from(hot) / 1e5 - 0.8).abs() < 0.01, "{hot}");
}

#[test]
fn mixes_phases_and_volumes_follow_the_description() {
    let text = "
        seed = 9
        rate = 1000
        [[phase]]
        requests = 1000
        component = [
            { pattern = \"zipf\", weight = 3, volume = \"a\", blocks = \"1Ki\" },
            { pattern = \"sequential\", weight = 1, volume = \"b\", write = 1, blocks = 100 },
        ]
        [[phase]]
        duration = \"2s\"
        rate = 500
        component = [ { pattern = \"uniform\", volume = \"a\", start = \"1GiB\", blocks = 10 } ]
    ";
    let mut synth = Synth::new(&Spec::parse(text).unwrap()).unwrap();
    let (mut batch, mut r) = (Batch::default(), Vec::new());
    while synth.read_batch(&mut batch).unwrap() > 0 {
        r.extend(batch.requests());
    }
    let volumes: Vec<_> =
        synth.metadata().volumes.iter().map(|v| (v.name.as_str(), v.bytes.unwrap())).collect();
    assert_eq!(volumes, [("a", (1 << 30) + 40960), ("b", 409_600)]);
    assert_eq!(r.len(), 2000);
    let (first, second) = r.split_at(1000);
    let b = share(first, |r| r.volume.0 == 1);
    assert!((b - 0.25).abs() < 0.05, "{b}");
    assert!(second.iter().all(|r| r.volume.0 == 0 && r.offset >= 1 << 30));
    assert_eq!((first[999].time.0, second[0].time.0), (999_000_000, 999_000_000));
    assert_eq!(second[1].time.0 - second[0].time.0, 2_000_000);
    assert!(r.is_sorted_by_key(|r| r.time));
}

#[test]
fn keys_of_a_phase_count_for_all_its_components_together() {
    let text =
        "zipf:volume=a,requests=1k,rate=1k + zipf:volume=b,requests=1k then uniform:requests=10";
    let spec = Spec::parse(text).unwrap();
    assert_eq!(spec.repeated, ["requests"]);
    assert_eq!(make(text).len(), 1010);
    let once = "zipf:volume=a,requests=1k,rate=1k + zipf:volume=b then uniform:requests=10";
    assert_eq!(make(once), make(text));
    assert!(Spec::parse(once).unwrap().repeated.is_empty());
}

#[test]
fn arrival_processes_have_their_rates() {
    for text in ["uniform:rate=2k,requests=20k,arrival=poisson", "uniform:rate=2k,requests=20k"] {
        let seconds = make(text).last().unwrap().time.as_secs_f64();
        assert!((seconds - 10.0).abs() < 0.5, "{text}: {seconds}");
    }
    // 8 clients, 1 ms each: 8 requests a millisecond.
    let closed = make("uniform:arrival=closed,clients=8,service=1ms,requests=20k");
    let seconds = closed.last().unwrap().time.as_secs_f64();
    assert!((seconds - 2.5).abs() < 0.2, "{seconds}");
    assert!(closed.is_sorted_by_key(|r| r.time));
}

#[test]
fn flushes_follow_the_writes() {
    let r = make("sequential:write=1,flush_every=4,requests=20,blocks=100");
    let flushes: Vec<usize> = (0..20).filter(|i| r[*i].op == Op::Flush).collect();
    assert_eq!(flushes, [4, 9, 14, 19]);
    assert!(r.iter().filter(|r| r.op == Op::Flush).all(|r| (r.offset, r.length) == (0, 0)));
}

#[test]
fn scattered_zipf_touches_distinct_blocks_all_over() {
    let r = make("zipf:blocks=1M,theta=1,requests=100k");
    let distinct: HashSet<u64> = r.iter().map(|r| r.offset).collect();
    assert!(distinct.len() > 30_000);
    let upper = distinct.iter().filter(|o| **o > 4096 * 500_000).count() as f64;
    assert!((upper / distinct.len() as f64 - 0.5).abs() < 0.02);
}

#[test]
fn bad_descriptions_are_refused_with_the_reason() {
    for (text, reason) in [
        ("zipff", "zipff"),
        ("zipf:blcks=3", "blcks"),
        ("zipf:blocks", "key=value"),
        ("zipf:blocks=0", "at least 1"),
        ("zipf:blocks=1.5", "number"),
        ("zipf:write=1.5", "shares"),
        ("zipf:write=nan", "shares"),
        ("zipf:theta=-1", "theta"),
        ("zipf:run=3", "run only to sequential"),
        ("zipf:weight=0", "weights"),
        ("zipf:size=4K", "ambiguous"),
        ("zipf:size=8GiB", "region"),
        ("zipf:size=4KiB@x", "SIZE@SHARE"),
        ("zoned:zones=1", "BLOCKS@ACCESS"),
        ("zoned:blocks=2,zones=1@1/1@1/1@1", "at least one block"),
        ("zipf:rate=0", "rate"),
        ("zipf:arrival=closed,clients=0", "clients"),
        ("zipf:rate=5 + uniform:rate=6", "to all components of a phase together"),
        ("zipf:write=0.1,write=0.2", "`write` is given twice"),
        ("zipf:start=9EiB", "8 EiB"),
        ("", "zipf"),
        ("a\n[b", "TOML"),
        ("seed=1\nrequests=5\n", "component"),
        ("none.toml", "none.toml"),
    ] {
        let made = Spec::parse(text).and_then(|s| Synth::new(&s).map(|_| ()));
        let error = made.expect_err(text).to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn keys_without_effect_are_refused_with_what_they_need() {
    let top = |keys: &str, arrivals: [&str; 2]| {
        let phase = |arrival| {
            format!("[[phase]]\nrequests = 5\n{arrival}\n[[phase.component]]\npattern = \"zipf\"\n")
        };
        format!("{keys}\n{}", arrivals.map(phase).concat())
    };
    let (closed, open) = ("arrival = \"closed\"", "arrival = \"poisson\"");
    for (text, says) in [
        ("zipf:clients=4", "clients has no effect without arrival=closed"),
        ("zipf:arrival=poisson,service=1ms", "service has no effect without arrival=closed"),
        ("zipf:arrival=closed,rate=5", "set clients and service instead"),
        ("zipf:arrival=closed then zipf:clients=4", "without arrival=closed"),
        (&top("clients = 4", [open, open]), "without arrival=closed"),
        (&top("rate = 4", [closed, closed]), "rate has no effect"),
        (&top(closed, ["rate = 4", open]), "rate has no effect"),
        ("zipf:extent=0", "extent must be at least 1"),
        ("zipf:scatter=no,extent=4", "only with scatter=yes"),
        ("uniform:extent=4", "extent applies only to zipf and zoned"),
    ] {
        let made = Spec::parse(text).and_then(|spec| Synth::new(&spec).map(|_| ()));
        let error = made.expect_err(text).to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
    for text in [
        "zipf:arrival=closed,clients=4,service=2ms",
        "zipf:arrival=closed,clients=4 then zipf:rate=5",
        "zoned:extent=4,scatter=yes",
        &top("rate = 4\nclients = 5", [closed, open]),
    ] {
        Synth::new(&Spec::parse(text).unwrap()).unwrap();
    }
}

#[test]
fn what_no_block_device_is_asked_for_and_zones_that_are_not_all_are_refused() {
    for (text, says) in [
        ("uniform:size=1", "512 B, the sector size"),
        ("uniform:size=4000", "512 B, the sector size"),
        ("uniform:start=100", "512 B, the sector size"),
        ("zoned:zones=0.5@0.5", "add up to 1"),
        ("zoned:zones=0.2@0.8/0.2@0.2", "add up to 1"),
        ("zoned:zones=0.5@0.5/0.5@0.2", "add up to 1"),
    ] {
        let error = Spec::parse(text).and_then(|spec| Synth::new(&spec)).err();
        let error = error.unwrap_or_else(|| panic!("{text} is taken")).to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
    for text in ["uniform:size=512", "zoned:zones=1@3/3@1", "zoned:zones=1@1", "zoned"] {
        assert!(Synth::new(&Spec::parse(text).unwrap()).is_ok(), "{text}");
    }
}

#[test]
fn a_phase_with_requests_and_a_duration_ends_at_the_first_limit() {
    let second = 1_000_000_000;
    let times = |text: &str| make(text).iter().map(|r| r.time.0).collect::<Vec<_>>();
    assert_eq!(
        times("uniform:requests=3,duration=10s,rate=1 then uniform:requests=2,rate=1"),
        [0, second, 2 * second, 2 * second, 3 * second]
    );
    assert_eq!(
        times("uniform:requests=30,duration=2s,rate=1 then uniform:requests=2,rate=1"),
        [0, second, 2 * second, 3 * second]
    );
}

#[test]
fn a_workload_whose_requests_no_reader_accepts_is_refused() {
    let said = |text: &str| match Synth::new(&Spec::parse(text).unwrap()) {
        Ok(_) => panic!("{text}"),
        Err(error) => error.to_string(),
    };
    for text in [
        "sequential:blocks=4,block=8GiB,requests=3",
        "uniform:blocks=4Mi,size=4KiB@0.5/5GiB@0.5,requests=3",
        "uniform:blocks=4Mi,size=5GiB,trim=0.9,requests=3",
    ] {
        assert!(said(text).contains("4 GiB"), "{}", said(text));
    }
    for text in [
        "uniform:duration=200000days,rate=1 then uniform:requests=1",
        "uniform:duration=60000days,requests=1 then uniform:duration=60000days then uniform:duration=60000days",
        "uniform:requests=10G,rate=1",
    ] {
        assert!(said(text).contains("292 years"), "{}", said(text));
    }
    let odd = said("uniform:block=1000,size=512,requests=3");
    assert!(odd.contains("multiples of 512 B"), "{odd}");
    // Workloads without a limit, or within it.
    for text in [
        "uniform:blocks=4Mi,size=5GiB,trim=1,requests=3",
        "uniform:size=4GiB,requests=3",
        "uniform:duration=200000days,requests=3,rate=1 then uniform:requests=1",
    ] {
        assert!(!make(text).is_empty(), "{text}");
    }
    // Chance decides how long a closed loop takes.
    let late = make("uniform:requests=1000,arrival=closed,clients=1,service=10000days");
    assert!(late.iter().all(|r| r.time.0 <= i64::MAX as u64));
}
