//! Goal: `info` counts what is there. Method: a small workload counted by hand, random ones
//! counted naively, and the published counts of real traces through the same code.

use std::collections::HashSet;

use crate::common::records;
use forebay_block::{BlockSize, Flags, Nanos, Op, Request, Volume};
use forebay_trace::*;
use proptest::prelude::*;

/// A trace in memory.
struct Memory(Vec<Batch>, Metadata);

impl TraceReader for Memory {
    fn metadata(&self) -> &Metadata {
        &self.1
    }
    fn counters(&self) -> Counters {
        Counters { bad: 3, ..Counters::default() }
    }
    fn progress(&self) -> Progress {
        Progress::default()
    }
    fn read_batch(&mut self, batch: &mut Batch) -> Result<usize> {
        *batch = self.0.pop().unwrap_or_default();
        Ok(batch.len())
    }
}

fn info(requests: &[Request]) -> TraceInfo {
    let mut batch = Batch::default();
    requests.iter().for_each(|r| batch.push(*r));
    let volumes = vec![VolumeInfo { name: "a".into(), bytes: None }];
    let metadata = Metadata {
        clock: Clock::Unix,
        epoch_ns: Some(5_500_000_000),
        volumes,
        ..Metadata::default()
    };
    Collector::read(Memory(vec![batch], metadata), BlockSize::KIB_4).unwrap()
}

fn request(us: u64, volume: u32, op: Op, offset: u64, length: u64) -> Request {
    let (time, volume) = (Nanos(us * 1000), Volume(volume));
    Request { time, volume, op, flags: Flags::NONE, offset, length }
}

#[test]
fn a_small_trace_is_counted_as_by_hand() {
    let i = info(&[
        request(0, 0, Op::Write, 0, 8192),
        request(10, 0, Op::Write, 8192, 4096),
        request(30, 0, Op::Read, 12288, 4096),
        request(40, 1, Op::Read, 0, 512),
        request(60, 0, Op::Read, 4096, 6000),
        request(70, 0, Op::WriteZeroes, 1 << 20, 4096),
        request(80, 0, Op::Trim, 0, 1 << 30),
        request(90, 0, Op::Flush, 0, 0),
    ]);
    assert_eq!((i.requests, i.reads, i.writes, i.write_zeroes), (8, 3, 3, 1));
    assert_eq!((i.trims, i.flushes, i.volumes, i.bad_lines), (1, 1, 2, 3));
    assert_eq!((i.read_bytes, i.write_bytes), (4096 + 512 + 6000, 8192 + 4096 + 4096));
    assert_eq!((i.duration_s, i.epoch_unix_s), (0.00009, Some(5.5)));
    assert_eq!(i.footprint_blocks, ByOp { read: 4, write: 4, all: 6 });
    assert_eq!(i.block_accesses, ByOp { read: 4, write: 4, all: 8 });
    assert_eq!(i.misaligned, ByOp { read: 2, write: 0, all: 2 });
    let f = |name: &str| i.features.get(name).unwrap();
    assert_eq!((f("misalignment_byte"), f("read_wss"), f("wss")), (3584. + 2192., 16384., 24576.));
    // The second write and the read after it begin where their predecessors ended.
    assert_eq!((f("seq_count"), f("read_seq_count"), f("write_seq_count")), (2., 1., 1.));
    assert_eq!((f("range"), f("min_offset")), (1048576. + 4096., 0.));
    assert_eq!((f("scan_p100"), f("write_scan_p100"), f("scan_avg")), (4., 3., 2.));
    assert_eq!((f("size_p0"), f("size_p100"), f("write_size_p50")), (512., 8192., 4096.));
    assert_eq!((f("iat_p0"), f("iat_p100"), f("read_iat_p0")), (10., 20., 10.));
    assert_eq!((f("jd_p0"), f("read_jd_p0")), (4096. - 16384., 4096. - 16384.));
    assert_eq!((f("page_popularity_p100"), f("page_popularity_p0")), (2. / 8., 1. / 8.));
    assert_eq!(f("write_block_req_split"), 0.5);
    let volumes: Vec<_> = i.per_volume.iter().map(|v| (v.volume.as_str(), v.requests)).collect();
    assert_eq!(volumes, [("a", 7), ("1", 1)]);
    assert_eq!(i.per_volume[0].end_bytes, (1 << 20) + 4096);
}

#[test]
fn times_between_requests_are_exact_to_the_nanosecond() {
    let at = |ns| Request { time: Nanos(ns), ..request(0, 0, Op::Read, 0, 4096) };
    let i = info(&[0, 500, 1700].map(at));
    let f = |name: &str| i.features.get(name).unwrap();
    assert_eq!((f("iat_p0"), f("iat_p100"), f("iat_avg")), (0.5, 1.2, 0.85));
}

#[test]
fn what_a_trace_has_none_of_has_no_size_and_no_time() {
    let i = info(&[request(0, 0, Op::Read, 0, 4096)]);
    for name in ["iat_avg", "iat_p50", "write_size_avg", "write_page_popularity_p99", "jd_p0"] {
        assert_eq!(i.features.get(name), None, "{name}");
    }
    for (name, value) in [("size_avg", 4096.0), ("write_wss", 0.0), ("write_wss_split", 0.0)] {
        assert_eq!(i.features.get(name), Some(value), "{name}");
    }
    let written = serde_json::to_value(&i).unwrap();
    assert!(written["features"]["iat_avg"].is_null(), "{written}");
    assert_eq!(written["features"]["size_avg"], 4096.0);
}

#[test]
fn an_empty_trace_has_zeroes_only() {
    let i = info(&[]);
    assert_eq!((i.requests, i.volumes, i.duration_s, i.epoch_unix_s), (0, 0, 0.0, None));
    let zero = |v: f64| v == 0.0 || v.is_nan();
    assert!(i.features.0.iter().all(|(name, v)| zero(*v) || panic!("{name} is {v}")));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn footprints_and_bytes_are_those_of_a_plain_count(records in records(100)) {
        let mut requests: Vec<Request> = records.iter().map(|r| r.request).collect();
        // Offsets near each other, so that blocks are shared; requests short enough to count block
        // by block.
        for r in &mut requests {
            r.offset %= 1 << 20;
            r.length %= 1 << 18;
        }
        let i = info(&requests);
        let [mut reads, mut writes] = [HashSet::new(), HashSet::new()];
        let (mut accesses, mut bytes) = (0, 0);
        for r in &requests {
            let set = match r.op {
                Op::Read => &mut reads,
                Op::Write | Op::WriteZeroes => &mut writes,
                Op::Trim | Op::Flush => continue,
            };
            bytes += r.length;
            let (first, blocks) = r.blocks(BlockSize::KIB_4);
            set.extend((first.0..first.0 + blocks).map(|block| (r.volume, block)));
            accesses += blocks;
        }
        let all = reads.union(&writes).count() as u64;
        let expected = ByOp { read: reads.len() as u64, write: writes.len() as u64, all };
        prop_assert_eq!(i.footprint_blocks, expected);
        prop_assert_eq!(i.block_accesses.all, accesses);
        prop_assert_eq!(i.read_bytes + i.write_bytes, bytes);
        prop_assert_eq!(i.requests, requests.len() as u64);
    }
}
