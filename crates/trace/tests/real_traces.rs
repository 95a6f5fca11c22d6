//! Goal: every reader reproduces the counts that an independent script made of public traces.
//! Method: the traces lie beside the repository in `../shared/traces`, or where FOREBAY_TRACES
//! says; without them these tests say so and check nothing, as the traces may not be copied here.

use std::{collections::HashSet, path::PathBuf};

use forebay_block::{BlockSize, Op};
use forebay_trace::{Batch, OpenOptions, TraceReader, open, open_all};

fn trace(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("FOREBAY_TRACES").map(PathBuf::from).unwrap_or_else(|| {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces")
    });
    let path = root.join(name);
    if !path.exists() {
        eprintln!("skipped: there is no {}", path.display());
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
            for span in r.spans(size) {
                c.blocks += 1;
                blocks.insert(span.addr);
            }
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

/// What the table says of the CloudPhysics trace, in every form.
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
    assert!(read(a) == read(b));
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
