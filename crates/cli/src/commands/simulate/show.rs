//! The answer as text and rows.

use std::io::Write;

use forebay_analysis::Columns;
use forebay_config::Size;
use forebay_report::{Table, Unit};
use forebay_results::{Latency, ReadWrite};
use forebay_simulate::Row;

use super::Answer;
use crate::format::{count, percent};

pub fn print(answer: &Answer, out: &mut dyn Write) -> std::io::Result<()> {
    for (name, value) in facts(answer) {
        writeln!(out, "{name:<20} {value}")?;
    }
    if is_timed(answer) {
        writeln!(out, "\n{}", requests(answer).to_text().trim_end())?;
        writeln!(out, "\n{}", devices(answer).to_text().trim_end())?;
    }
    if answer.result.volumes.len() > 1 {
        writeln!(out, "\n{}", volumes(answer).to_text().trim_end())?;
    }
    Ok(())
}

/// The rows of one answer, or of several with the policy of each.
pub fn rows(answers: &[(&str, &Answer)]) -> Columns {
    let of_policies: Vec<(&str, &Row)> = answers
        .iter()
        .flat_map(|&(policy, answer)| answer.result.rows.iter().map(move |row| (policy, row)))
        .collect();
    let rows = || of_policies.iter().map(|&(_, row)| row);
    type Count = fn(&Row) -> u64;
    let counts: [(&'static str, Count); 13] = [
        ("requests", |r| r.requests),
        ("tier1_read_hits", |r| r.hits.tier1.read),
        ("tier1_write_hits", |r| r.hits.tier1.write),
        ("tier2_read_hits", |r| r.hits.tier2.read),
        ("tier2_write_hits", |r| r.hits.tier2.write),
        ("delayed_read_hits", |r| r.hits.delayed.read),
        ("delayed_write_hits", |r| r.hits.delayed.write),
        ("read_misses", |r| r.misses.read),
        ("write_misses", |r| r.misses.write),
        ("tier2_bytes_written", |r| r.tier2_bytes_written),
        ("backing_read_bytes", |r| r.backing_read_bytes),
        ("backing_write_bytes", |r| r.backing_write_bytes),
        ("dirty_blocks", |r| r.dirty_blocks),
    ];
    let mut table = Columns::default();
    if answers.iter().any(|(policy, _)| !policy.is_empty()) {
        table = table.texts("policy", of_policies.iter().map(|&(policy, _)| policy));
    }
    table =
        table.reals("start_s", rows().map(|r| r.start_s)).reals("end_s", rows().map(|r| r.end_s));
    for (name, value) in counts {
        table = table.integers(name, rows().map(value));
    }
    let timed = answers.iter().all(|(_, answer)| is_timed(answer));
    let us = |of: fn(&Row) -> f64| rows().map(move |row| timed.then(|| of(row)));
    table
        .reals("flash_utilisation", rows().map(|r| r.flash_utilisation))
        .optional_reals("latency_us_mean", us(|r| r.latency_us.mean))
        .optional_reals("latency_us_p50", us(|r| r.latency_us.p50))
        .optional_reals("latency_us_p99", us(|r| r.latency_us.p99))
        .optional_reals("latency_us_max", us(|r| r.latency_us.max))
}

pub fn is_timed(answer: &Answer) -> bool {
    answer.result.pacing != "untimed"
}

pub fn facts(answer: &Answer) -> Vec<(String, String)> {
    let (result, run) = (&answer.result, &answer.result.run);
    let cache = run.cache.unwrap_or_default();
    let hits = cache.hits.tier1.sum() + cache.hits.tier2.sum() + cache.hits.delayed.sum();
    let accesses = hits + cache.misses.sum();
    let share = |n: ReadWrite| percent(n.sum() as f64 / accesses.max(1) as f64);
    let bytes = |n: u64| Size(n).to_string();
    let mut facts = vec![
        ("requests", count(run.requests)),
        ("of these reads", percent(run.reads as f64 / run.requests.max(1) as f64)),
        ("pacing", result.pacing.to_owned()),
    ];
    if is_timed(answer) {
        facts.push(("simulated time", Unit::Seconds.show(run.duration_s)));
        facts.push(("requests per second", count(result.throughput.requests_per_s as u64)));
        facts.push(("bytes per second", bytes(result.throughput.bytes_per_s as u64)));
    }
    facts.extend([
        ("block accesses", count(accesses)),
        ("hit ratio", percent(cache.hit_ratio)),
        ("in memory", share(cache.hits.tier1)),
        ("on flash", share(cache.hits.tier2)),
        ("delayed", format!("{} waited for what was being fetched", share(cache.hits.delayed))),
        ("read from backing", bytes(cache.backing.read_bytes)),
        ("written to backing", bytes(cache.backing.write_bytes)),
    ]);
    if let Some(flash) = &result.flash {
        let amplification = format!("{:.2} times the data", flash.write_amplification);
        facts.extend([
            ("written to flash", bytes(cache.tier2_bytes_written)),
            ("write amplification", amplification),
            ("flash in use", percent(flash.utilisation)),
        ]);
    }
    if cache.dirty_blocks_max > 0 {
        facts.push(("dirty blocks, most", count(cache.dirty_blocks_max)));
        facts.push(("dirty blocks, end", count(result.dirty_blocks)));
    }
    if run.errors > 0 {
        facts.push(("errors", count(run.errors)));
    }
    for device in &result.overloaded {
        let name = match device.device.as_str() {
            "flash" => "flash".to_owned(),
            volume => format!("the backing store of {volume}"),
        };
        let text = format!(
            "for {} of the time requests had been waiting for over a second, and {name} was busy for {}: \
             latencies tell how long the queue got",
            percent(device.share),
            percent(device.busy_share)
        );
        facts.push(("overloaded", text));
    }
    let assumed = &result.assumed;
    let flushes = match (assumed.flushes_traced, assumed.flushes_added) {
        (traced, 0) => format!("{} in the trace, none added", count(traced)),
        (traced, added) => {
            let (traced, added) = (count(traced), count(added));
            format!("{traced} in the trace, {added} added ({})", assumed.flush)
        }
    };
    facts.push(("flushes", flushes));
    if !assumed.devices.is_empty() && is_timed(answer) {
        facts.push(("assumed", assumed.devices.join("; ")));
    }
    let speed = run.requests as f64 / answer.cpu_s.max(1e-9);
    let took = format!("{:.2} s of a processor, {} requests/s", answer.cpu_s, count(speed as u64));
    facts.push(("the simulation took", took));
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

const COLUMNS: [&str; 7] = ["mean", "p50", "p90", "p99", "p99.9", "p99.99", "max"];

fn latencies(what: &str) -> Table {
    COLUMNS.into_iter().fold(Table::new().column(what), Table::number)
}

fn cells(name: &str, l: &Latency) -> Vec<String> {
    let values = l.values().into_iter().map(|us| Unit::Micros.show(us));
    std::iter::once(name.to_owned()).chain(values).collect()
}

pub fn requests(answer: &Answer) -> Table {
    let l = &answer.result.run.latency_us;
    let rows = [("reads", &l.read), ("writes", &l.write), ("all", &l.all)];
    rows.into_iter().fold(latencies("latency"), |table, (name, l)| table.row(cells(name, l)))
}

pub fn devices(answer: &Answer) -> Table {
    let used = answer.result.component_latency_us.named().into_iter();
    used.fold(latencies("device").number("operations"), |table, (name, c)| {
        let mut cells = cells(&name, &c.latency);
        cells.push(count(c.count));
        table.row(cells)
    })
}

pub fn volumes(answer: &Answer) -> Table {
    let us = |us| if is_timed(answer) { Unit::Micros.show(us) } else { "-".to_owned() };
    Table::of(&answer.result.volumes)
        .column("volume", |v| v.volume.clone())
        .number("requests", |v| count(v.requests))
        .number("hit ratio", |v| percent(v.hit_ratio))
        .number("mean latency", |v| us(v.latency_us.all.mean))
        .number("p99", |v| us(v.latency_us.all.p99))
        .number("dirty, most", |v| count(v.dirty_blocks_max))
        .table()
}
