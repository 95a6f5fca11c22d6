//! Goal: every reader reproduces the counts that an independent script found in public traces.
//! Method: the traces are next to the repository in `../shared/traces`, or where FOREBAY_TRACES
//! says. Without them, these tests say so and check nothing, because the traces may not be copied
//! here.

use std::{collections::HashSet, path::PathBuf};

use forebay_block::{BlockSize, Op, Request};
use forebay_trace::{Batch, OpenOptions, TraceReader, open, open_all};

fn trace(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("FOREBAY_TRACES").map(PathBuf::from).unwrap_or_else(|| {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces")
    });
    let path = root.join(name);
    if !path.exists() {
        #[allow(clippy::print_stderr)]
        {
            eprintln!("skipped: there is no {}", path.display());
        }
        return None;
    }
    Some(path)
}

#[derive(Default, Debug)]
struct Counts {
    format: String,
    requests: u64,
    reads: u64,
    bytes: u64,
    read_bytes: u64,
    last_ns: u64,
    blocks: u64,
    distinct: u64,
    volumes: u64,
    hash_bytes: u64,
    distinct_hashes: u64,
}

/// Counts, with blocks of `block` bytes.
fn count(name: &str, options: &OpenOptions, block: u64) -> Option<Counts> {
    let mut reader = open(trace(name)?, options).unwrap();
    let size = BlockSize::new(block).unwrap();
    let (mut c, mut batch) = (Counts::default(), Batch::default());
    let (mut blocks, mut volumes, mut hashes) = (HashSet::new(), HashSet::new(), HashSet::new());
    while reader.read_batch(&mut batch).unwrap() > 0 {
        for (i, r) in batch.requests().enumerate() {
            c.requests += 1;
            c.bytes += r.length;
            if r.op == Op::Read {
                c.reads += 1;
                c.read_bytes += r.length;
            }
            c.last_ns = r.time.0;
            volumes.insert(r.volume);
            let (first, touched) = r.blocks(size);
            c.blocks += touched;
            blocks.extend((first.0..first.0 + touched).map(|block| (r.volume, block)));
            c.hash_bytes += batch.hashes(i).len() as u64;
            hashes.extend(batch.hashes(i).chunks(16).map(<[u8]>::to_vec));
        }
    }
    assert_eq!(reader.counters().bad, 0);
    c.format = reader.metadata().format.clone();
    c.distinct = blocks.len() as u64;
    c.volumes = volumes.len() as u64;
    c.distinct_hashes = hashes.len() as u64;
    Some(c)
}

fn default_counts(name: &str) -> Option<Counts> {
    count(name, &OpenOptions::default(), 4096)
}

/// What the table says about the CloudPhysics trace, in every form.
fn is_cloud_physics(c: &Counts) {
    assert_eq!((c.requests, c.distinct, c.blocks), (113_872, 269_210, 1_141_869), "{c:?}");
    assert_eq!(format!("{:.3}", c.bytes as f64 / (1u64 << 30) as f64), "3.917");
}

#[test]
fn vscsi_has_the_published_counts() {
    let Some(c) = default_counts("cloudphysics/cloudPhysicsIO.vscsi") else { return };
    is_cloud_physics(&c);
    assert_eq!(c.format, "vscsi-v1");
    assert_eq!(format!("{:.4}", c.reads as f64 / c.requests as f64), "0.4125");
    assert_eq!(format!("{:.2}", c.last_ns as f64 / 1e9), "7200.09");
    assert_eq!(format!("{:.3}", c.read_bytes as f64 / (1u64 << 30) as f64), "1.674");
}

#[test]
fn vscsi_csv_is_the_same_trace_as_the_binary() {
    let both = ["cloudphysics/cloudPhysicsIO.csv", "cloudphysics/cloudPhysicsIO.vscsi"];
    let [Some(a), Some(b)] = both.map(trace) else { return };
    let read = |path| {
        let reader = open(path, &OpenOptions::default()).unwrap();
        reader.into_requests().map(|r| r.unwrap()).collect::<Vec<_>>()
    };
    let (a, b) = (read(a), read(b));
    assert_eq!(a.len(), b.len());
    for (text, binary) in a.iter().zip(&b) {
        // The text has whole seconds, counted from the first request.
        assert!(text.time.0.abs_diff(binary.time.0) < 1_000_000_000, "{text:?} {binary:?}");
        assert_eq!(Request { time: binary.time, ..*text }, *binary);
    }
}

#[test]
fn msr_has_the_published_counts() {
    let Some(c) = default_counts("msr/web_0-head5000.csv.gz") else { return };
    assert_eq!((c.format.as_str(), c.requests, c.volumes), ("msr", 5000, 1));
}

#[test]
fn traces_that_do_not_name_volumes_are_merged_as_separate_ones() {
    let name = "cloudphysics/cloudPhysicsIO";
    let [Some(a), Some(b)] = [format!("{name}.vscsi"), format!("{name}.csv")].map(|n| trace(&n))
    else {
        return;
    };
    let mut reader = open_all(&[a, b], &OpenOptions::default()).unwrap();
    let names: Vec<_> = reader.metadata().volumes.iter().map(|v| v.name.clone()).collect();
    assert_eq!(names, ["cloudPhysicsIO", "cloudPhysicsIO#2"]);
    let (mut batch, mut requests, mut last) = (Batch::default(), 0, 0);
    while reader.read_batch(&mut batch).unwrap() > 0 {
        requests += batch.len();
        assert!(batch.time_ns[0] >= last && batch.time_ns.is_sorted());
        last = *batch.time_ns.last().unwrap();
    }
    assert_eq!(requests, 2 * 113_872);
}

/// oracleGeneral gives every object the size of its first request; lcs keeps the sizes.
#[test]
fn oracle_general_and_lcs_are_the_same_trace_without_operations() {
    let read = |name: &str| {
        let path = trace(&format!("cloudphysics/cloudPhysicsIO.{name}"))?;
        let reader = open(path, &OpenOptions::default()).unwrap();
        Some(reader.into_requests().map(|r| r.unwrap()).collect::<Vec<_>>())
    };
    let Some(mut expected) = read("vscsi") else { return };
    for name in ["vscsi.lcs", "oracleGeneral.bin"] {
        let mut sizes = std::collections::HashMap::new();
        for r in &mut expected {
            r.op = Op::Read;
            if name == "oracleGeneral.bin" {
                r.length = *sizes.entry(r.offset).or_insert(r.length);
            }
        }
        let found = read(name).unwrap();
        assert_eq!(found.len(), 113_872);
        for (f, e) in found.iter().zip(&expected) {
            assert!(f.time.0.abs_diff(e.time.0) <= 1_000_000_000);
            assert_eq!(Request { time: e.time, ..*f }, *e, "{name}");
        }
    }
}

#[test]
fn fiu_has_the_published_counts() {
    for (name, seconds, distinct, blocks, hashes, distinct_hashes, read_ratio) in [
        ("home1sample", "69", 461, 1000, 8000, 2376, "0.000"),
        ("home2sample", "443", 1102, 1317, 10536, 5690, "0.088"),
    ] {
        let Some(c) = default_counts(&format!("fiu/{name}.blkparse")) else { return };
        assert_eq!((c.format.as_str(), c.requests), ("fiu", 1000));
        assert_eq!((c.distinct, c.blocks), (distinct, blocks));
        assert_eq!((c.hash_bytes, c.distinct_hashes), (hashes * 16, distinct_hashes));
        assert_eq!(format!("{:.3}", c.reads as f64 / c.requests as f64), read_ratio);
        assert_eq!(format!("{:.0}", c.last_ns as f64 / 1e9), seconds);
    }
}

#[test]
fn arc_traces_have_the_published_counts() {
    for (name, requests, blocks, distinct) in
        [("OLTP", 914_145, 914_145, 186_880), ("P3", 238_578, 3_912_296, 762_543)]
    {
        let options = OpenOptions::default();
        let Some(c) = count(&format!("arc/{name}.lis.zst"), &options, 512) else { return };
        assert_eq!((c.format.as_str(), c.requests), ("arc", requests));
        assert_eq!((c.blocks, c.distinct), (blocks, distinct));
    }
}

#[test]
fn disksim_has_the_published_counts() {
    let Some(c) = default_counts("disksim/ascii.trace.zst") else { return };
    assert_eq!((c.format.as_str(), c.requests, c.volumes), ("disksim", 100_000, 14));
    assert_eq!((c.distinct, c.blocks), (158_355, 214_487));
    assert_eq!(format!("{:.4}", c.reads as f64 / c.requests as f64), "0.7963");
    assert_eq!(format!("{:.1}", c.last_ns as f64 / 1e9), "1532.9");
    assert_eq!(format!("{:.3}", c.bytes as f64 / (1u64 << 30) as f64), "0.485");
}

#[test]
fn mqsim_has_the_published_counts() {
    let Some(c) = default_counts("mqsim/tpcc-small.trace") else { return };
    assert_eq!((c.format.as_str(), c.requests, c.volumes), ("mqsim", 6999, 16));
    assert_eq!((c.distinct, c.blocks), (20_470, 20_669));
    assert_eq!(format!("{:.4}", c.reads as f64 / c.requests as f64), "0.6259");
    assert_eq!(format!("{:.3}", c.last_ns as f64 / 1e9), "0.136");
}

#[test]
fn blkparse_has_the_published_counts() {
    let Some(c) = default_counts("blkparse/evelii_sample.txt") else { return };
    assert_eq!((c.format.as_str(), c.requests, c.reads), ("blkparse", 1695, 1695));
    assert_eq!((c.distinct, c.blocks), (48_379, 48_379));
    assert_eq!(format!("{:.2}", c.last_ns as f64 / 1e9), "0.68");
    assert_eq!(format!("{:.3}", c.bytes as f64 / (1u64 << 30) as f64), "0.185");
    let completions =
        OpenOptions { format: Some("blkparse:event=C".to_owned()), ..OpenOptions::default() };
    let c = count("blkparse/evelii_sample.txt", &completions, 4096).unwrap();
    assert_eq!(c.requests, 1694);
}

#[test]
fn blkparse_csv_has_the_published_counts() {
    let Some(c) = default_counts("blkparse/trace_builder_output.txt") else { return };
    assert_eq!((c.format.as_str(), c.requests), ("blkparse-csv", 33_753));
    assert_eq!(format!("{:.3}", c.reads as f64 / c.requests as f64), "0.041");
    assert_eq!(format!("{:.0}", c.last_ns as f64 / 1e9), "596");
}

#[test]
fn cydonia_has_the_published_counts() {
    let Some(c) = default_counts("cydonia/test_cp.csv") else { return };
    assert_eq!((c.format.as_str(), c.requests), ("cydonia", 1000));
    assert_eq!((c.distinct, c.blocks), (298, 2501));
    assert_eq!(format!("{:.3}", c.reads as f64 / c.requests as f64), "0.047");
    assert_eq!(format!("{:.1}", c.last_ns as f64 / 1e9), "860.3");
}
