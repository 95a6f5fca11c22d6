//! Prints how fast traces are read: `cargo run --release -p forebay-trace --example read_rate
//! [TRACE...]`. Without arguments, it first writes traces of 4 million requests, to `/dev/shm` if
//! that exists, and reads those. It also times generating a workload and counting what is in a
//! trace.
#![allow(clippy::print_stdout)]

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::Instant,
};

use forebay_block::{BlockSize, Flags, Nanos, Op, Request, Volume};
use forebay_trace::*;

type Any = Box<dyn std::error::Error>;

fn main() -> Result<(), Any> {
    let mut paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let directory =
        if Path::new("/dev/shm").is_dir() { "/dev/shm".into() } else { std::env::temp_dir() };
    let directory = directory.join(format!("forebay-read-rate-{}", std::process::id()));
    if paths.is_empty() {
        std::fs::create_dir_all(&directory)?;
        paths = vec![directory.join("some.csv"), directory.join("some.parquet")];
        write_msr(&paths[0])?;
        write_parquet(&paths[1])?;
    }
    for path in &paths {
        let started = Instant::now();
        let mut reader = open(path, &OpenOptions::default())?;
        let (mut batch, mut requests, mut bytes) = (Batch::default(), 0, 0u64);
        while reader.read_batch(&mut batch)? > 0 {
            requests += batch.len();
            bytes = batch.length.iter().fold(bytes, |b, l| b.wrapping_add(*l));
        }
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "{}: {}, {requests} requests, {bytes} bytes moved, {:.3} s, {:.2} M requests/s, {:.1} bytes/request",
            path.display(),
            reader.metadata().format,
            seconds,
            requests as f64 / seconds / 1e6,
            std::fs::metadata(path)?.len() as f64 / requests as f64,
        );
    }
    let _ = std::fs::remove_dir_all(&directory);

    let spec = Spec::parse("zipf:blocks=4M,theta=1,requests=20M,seed=1")?;
    let started = Instant::now();
    let mut synth = Synth::new(&spec)?;
    let mut batch = Batch::default();
    while synth.read_batch(&mut batch)? > 0 {}
    rate("making a zipf workload", 20e6, started);
    let mut memory = Batch::default();
    Synth::new(&spec)?.take(5_000_000).for_each(|r| memory.push(r));
    let started = Instant::now();
    let mut collector = Collector::new(BlockSize::KIB_4);
    collector.add(&memory, None);
    rate("counting what is in it", 5e6, started);
    let started = Instant::now();
    let mut writer =
        ParquetTraceWriter::create(&std::env::temp_dir().join("forebay-rate.parquet"))?;
    writer.push_batch(&memory)?;
    rate("writing it as Parquet", 5e6, started);
    Ok(())
}

fn rate(what: &str, requests: f64, started: Instant) {
    println!("{what}: {:.2} M requests/s", requests / started.elapsed().as_secs_f64() / 1e6);
}

/// Requests with a realistic spread: some reuse, a few sizes, microseconds between them.
fn requests() -> impl Iterator<Item = Request> {
    let (mut state, mut time) = (1u64, 0);
    (0..4_000_000).map(move |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let random = state >> 20;
        time += random % 100_000;
        let block = (random % 1000) * (random >> 10) % 8_000_000;
        Request {
            time: Nanos(time * 100),
            volume: Volume(0),
            op: if random % 3 == 0 { Op::Read } else { Op::Write },
            flags: Flags::NONE,
            offset: block * 4096,
            length: 4096 << (random % 5),
        }
    })
}

fn write_msr(path: &Path) -> Result<(), Any> {
    let mut out = std::io::BufWriter::new(std::fs::File::create(path)?);
    for r in requests() {
        let op = if r.op == Op::Read { "Read" } else { "Write" };
        let ticks = 128_166_372_000_000_000 + r.time.0 / 100;
        writeln!(out, "{ticks},web,0,{op},{},{},{}", r.offset, r.length, r.offset % 100_000)?;
    }
    Ok(out.flush()?)
}

fn write_parquet(path: &Path) -> Result<(), Any> {
    let mut writer = ParquetTraceWriter::create(path)?;
    for r in requests() {
        writer.push(r.into())?;
    }
    writer.finish(&Metadata::default())?;
    Ok(())
}
