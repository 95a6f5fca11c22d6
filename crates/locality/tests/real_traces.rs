//! Compares results with known numbers of a public trace, if it is present (in `FOREBAY_TRACES`, or
//! in `../shared/traces` next to the repository).

use std::path::PathBuf;

use forebay_block::{Flags, Nanos, Op, Request, Volume};
use forebay_locality::{
    CurvePoint, Distance, LocalityOptions, ReuseDistances, Scope, WorkloadLocality,
};

#[allow(clippy::print_stderr)]
fn trace(name: &str) -> Option<Vec<u8>> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let root = std::env::var_os("FOREBAY_TRACES").map_or(beside, PathBuf::from);
    let bytes = std::fs::read(root.join(name)).ok();
    if bytes.is_none() {
        eprintln!("skipped: {name} is not in {}", root.display());
    }
    bytes
}

/// The CloudPhysics sample in VMware's format: 32-byte records, little-endian.
fn cloudphysics() -> Option<Vec<Request>> {
    let bytes = trace("cloudphysics/cloudPhysicsIO.vscsi")?;
    let requests = bytes.chunks_exact(32).map(|r| {
        let u64_at = |i: usize| u64::from_le_bytes(r[i..i + 8].try_into().unwrap());
        let length = u32::from_le_bytes(r[4..8].try_into().unwrap());
        Request {
            time: Nanos(u64_at(24) * 1000),
            volume: Volume(0),
            op: if r[12] == 0x28 { Op::Read } else { Op::Write },
            flags: Flags::NONE,
            offset: u64_at(16) * 512,
            length: u64::from(length),
        }
    });
    Some(requests.collect())
}

#[test]
fn cloudphysics_has_the_footprint_and_accesses_that_others_counted() {
    let Some(requests) = cloudphysics() else { return };
    assert_eq!(requests.len(), 113_872);
    for distance in Distance::ALL {
        let options = LocalityOptions { distance, scope: Scope::Both, ..Default::default() };
        let mut workload = WorkloadLocality::new(options).unwrap();
        requests.iter().for_each(|r| workload.add(r).unwrap());
        let done = workload.finish().unwrap();
        let all = done.all.unwrap();
        assert_eq!((all.distinct_blocks, all.accesses()), (269_210, 1_141_869));
        assert_eq!(done.volumes[&Volume(0)], all);
        if distance == Distance::Trd {
            assert_eq!(all.read.cold + all.write.cold, 269_210);
        }
    }
}

#[test]
fn cloudphysics_by_logical_block_number_has_the_miss_ratio_that_libcachesim_reports() {
    // Expected value: libCacheSim 0.3.5, LRU of 4,896 objects, with the first sector of each
    // request as the object: 0.8049.
    let Some(requests) = cloudphysics() else { return };
    let mut distances = ReuseDistances::new(Distance::Trd);
    for r in &requests {
        distances.access_batch(&[r.offset / 512], &[r.op]).unwrap();
    }
    let miss_ratio = CurvePoint::at(&distances.into_histogram(), 4896).miss_ratio;
    assert!((miss_ratio - 0.8049).abs() < 0.00005, "{miss_ratio}");
}
