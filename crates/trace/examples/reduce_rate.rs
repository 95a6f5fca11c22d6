//! Prints how fast regions are removed from a sample: `reduce_rate TRACE RATE BITS [REMOVALS]`.

#![allow(clippy::print_stdout)]

use std::time::Instant;

use forebay_block::Nanos;
use forebay_trace::{
    Batch, Moments, OpenOptions, PAGE_BYTES, RegionTable, SampleSpec, Sampler, TraceReader, open,
    reduce,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, rate, bits, most @ ..] = &arguments[..] else {
        return Err("reduce_rate TRACE RATE BITS [REMOVALS]".into());
    };
    let (rate, bits) = (rate.parse()?, bits.parse()?);
    let most: usize = most.first().map_or(Ok(usize::MAX), |n| n.parse())?;
    let sampler = Sampler::new(SampleSpec { rate, bits, seed: 0, number: 0 })?;
    let (mut full, mut table) = (Moments::default(), RegionTable::new(PAGE_BYTES << bits));
    let mut trace = open(path, &OpenOptions::default())?;
    let (mut batch, mut part, mut last) = (Batch::default(), Batch::default(), None);
    while trace.read_batch(&mut batch)? > 0 {
        part.clear();
        for i in 0..batch.len() {
            let time = batch.time_ns[i];
            let gap = Nanos(time - last.replace(time).unwrap_or(time));
            full.add(&batch.request(i), gap);
            sampler.sample(&batch.record(i), gap, &mut part);
        }
        for i in 0..part.len() {
            table.add(&part.request(i), part.gap(i).unwrap_or_default());
        }
    }
    let started = Instant::now();
    let reduction = reduce(table, &full, 0, |removed| removed < most);
    let (seconds, steps) = (started.elapsed().as_secs_f64(), reduction.steps.len());
    println!(
        "{steps} of {} regions in {seconds:.3} s, {:.1} µs each",
        reduction.regions,
        seconds * 1e6 / steps.max(1) as f64
    );
    Ok(())
}
