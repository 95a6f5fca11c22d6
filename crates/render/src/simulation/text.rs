//! One simulation as text.

use forebay_analysis::simulation::Answer;
use forebay_config::Size;
use forebay_report::{Table, Unit};
use forebay_results::ReadWrite;
use forebay_simulate::{AfterOutages, Overload};

use crate::Facts;
use crate::format::{count, percent};
use crate::latency_table::{kinds, latencies};

pub(super) fn facts(answer: &Answer) -> Facts {
    let (result, run) = (&answer.result, &answer.result.run);
    let cache = run.cache.unwrap_or_default();
    let hits = cache.hits.tier1.sum() + cache.hits.tier2.sum() + cache.hits.delayed.sum();
    let accesses = hits + cache.misses.sum();
    let share = |n: ReadWrite| percent(n.sum() as f64 / accesses.max(1) as f64);
    let bytes = |n: u64| Size(n).to_string();
    let other = if run.reads + run.writes < run.requests { ", which include flushes" } else { "" };
    let reads = percent(run.reads as f64 / run.requests.max(1) as f64);
    let share_of_reads = format!("{reads} of the requests{other}");
    let mut facts = vec![
        ("requests", count(run.requests)),
        ("share of reads", share_of_reads),
        ("pacing", result.pacing.to_owned()),
    ];
    if answer.is_timed() {
        facts.push(("simulated time", Unit::Seconds.show(run.duration_s)));
        facts.push(("requests per second", count(result.throughput.requests_per_s as u64)));
        facts.push(("bytes per second", bytes(result.throughput.bytes_per_s as u64)));
    }
    facts.extend([
        ("block accesses", count(accesses)),
        ("hit ratio", percent(cache.hit_ratio)),
        ("in memory", share(cache.hits.tier1)),
        ("on flash", share(cache.hits.tier2)),
        (
            "delayed",
            format!("{} waited for a block that was being fetched", share(cache.hits.delayed)),
        ),
        ("read from backing", bytes(cache.backing.read_bytes)),
        ("written to backing", bytes(cache.backing.write_bytes)),
    ]);
    if let Some(flash) = &result.flash {
        let amplification = format!("{:.2} times the data", flash.write_amplification);
        facts.extend([
            ("written to flash", bytes(cache.tier2_bytes_written)),
            ("write amplification", amplification),
            ("regions in use", percent(flash.utilisation)),
        ]);
    }
    if cache.dirty_blocks_max > 0 {
        facts.push(("dirty blocks, max", count(cache.dirty_blocks_max)));
        facts.push(("dirty blocks, at end", count(result.dirty_blocks)));
    }
    if run.errors > 0 {
        facts.push(("errors", count(run.errors)));
    }
    facts.extend(result.after_outages.iter().map(|after| ("after the outages", destaged(after))));
    facts.extend(result.overloaded.iter().map(|device| ("overloaded", overloaded(device))));
    facts.extend(assumptions(answer));
    let speed = run.requests as f64 / answer.cpu_s.max(1e-9);
    let took =
        format!("{:.2} s of processor time, {} requests/s", answer.cpu_s, count(speed as u64));
    facts.push(("the simulation took", took));
    facts
}

/// What happened to dirty blocks after backing stores had failed.
fn destaged(after: &AfterOutages) -> String {
    match after.destaged {
        true => format!("all dirty blocks were destaged in {}", Unit::Seconds.show(after.seconds)),
        false if after.dirty_blocks == 0 => {
            "all dirty blocks were written, but a sync failed, so they may not be durable"
                .to_owned()
        }
        false => format!("{} blocks could not be destaged", count(after.dirty_blocks)),
    }
}

/// Describes a device that could not keep up.
fn overloaded(device: &Overload) -> String {
    let (requests, name) = match device.device.as_str() {
        "flash" => ("requests".to_owned(), "flash".to_owned()),
        volume => (format!("requests to {volume}"), format!("the backing store of {volume}")),
    };
    format!(
        "{requests} waited for over a second during {} of the run, and {name} was busy for {} of the \
         run, so latencies mainly reflect the length of the queue",
        percent(device.share),
        percent(device.busy_share)
    )
}

/// Assumptions that neither the trace nor the configuration states.
fn assumptions(answer: &Answer) -> Facts {
    let assumed = &answer.result.assumed;
    let flushes = match (assumed.flushes_traced, assumed.flushes_added) {
        (traced, 0) => format!("{} in the trace, none added", count(traced)),
        (traced, added) => {
            let (traced, added) = (count(traced), count(added));
            format!("{traced} in the trace, {added} added ({})", assumed.flush)
        }
    };
    let mut facts = vec![("flushes", flushes)];
    let devices = assumed.devices.iter().filter(|_| answer.is_timed()).cloned();
    let page = assumed.flash_page_bytes;
    let page = page
        .map(|n| format!("flash is written {n} bytes at a time (set `page_size` to change this)"));
    let assumed: Vec<String> = devices.chain(page).collect();
    if !assumed.is_empty() {
        facts.push(("assumed", assumed.join("; ")));
    }
    facts
}

pub(super) fn requests(answer: &Answer) -> Table {
    let rows = Table::from_items(kinds(&answer.result.run));
    latencies(rows.column("latency", |row| row.0.to_owned()), micros, |row| &row.1).table()
}

pub(super) fn devices(answer: &Answer) -> Table {
    let rows = Table::from_items(answer.result.component_latency_us.named());
    latencies(rows.column("device", |row| row.0.clone()), micros, |row| &row.1.latency)
        .number("operations", |row| count(row.1.count))
        .table()
}

fn micros(us: f64) -> String {
    Unit::Micros.show(us)
}

pub(super) fn volumes(answer: &Answer) -> Table {
    let us = |us| if answer.is_timed() { Unit::Micros.show(us) } else { "-".to_owned() };
    let has_errors = answer.result.run.errors > 0;
    Table::from_items(&answer.result.volumes)
        .column("volume", |v| v.volume.clone())
        .number("requests", |v| count(v.requests))
        .number_if(has_errors, "errors", |v| count(v.errors))
        .number("hit ratio", |v| percent(v.hit_ratio))
        .number("mean latency", |v| us(v.latency_us.all.mean))
        .number("p99", |v| us(v.latency_us.all.p99))
        .number("dirty, most", |v| count(v.dirty_blocks_max))
        .table()
}
