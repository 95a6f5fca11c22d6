//! A run as text.

use forebay_config::Size;
use forebay_replay::{RealRun, VerifyResult};
use forebay_report::{Table, Unit};
use forebay_results::{CacheResult, Components};

use super::document::Document;
use crate::Facts;
use crate::format::{count, counted, percent};
use crate::latency_table::{kinds, latencies};

/// The text below the facts.
pub fn text(document: &Document) -> String {
    let mut text = latency_table(document);
    if let Some(verify) = &document.verify {
        text += &format!(
            "\nread back            {}: {} checked, {} wrong, {} cannot be checked\n\
             reads during the run {} checked, {} wrong\n",
            verdict(verify),
            Size(verify.checked_bytes),
            Size(verify.wrong_bytes),
            Size(verify.unknown_bytes),
            Size(verify.reads_checked_bytes),
            Size(verify.reads_wrong_bytes)
        );
    }
    text
}

/// Says whether the data that was read back was correct.
fn verdict(verify: &VerifyResult) -> String {
    let failed = match verify.failed_reads {
        0 => String::new(),
        n => format!(", {} failed", counted(n, "read")),
    };
    if verify.is_wrong() {
        format!("DIFFERS from the written data{failed}")
    } else if verify.is_right() {
        "all correct".to_owned()
    } else {
        format!("INCOMPLETE{failed}")
    }
}

/// The facts, one per line.
pub fn facts(document: &Document) -> Facts {
    let r = &document.result;
    let run = &r.run;
    let volumes: Vec<&str> = document.target.volumes.iter().map(|v| v.name.as_str()).collect();
    let target = match document.target.via.as_str() {
        "in process" => format!("{}, in this process", volumes.join(", ")),
        via => format!("{} via {via}", volumes.join(", ")),
    };
    let mut facts = vec![
        ("workload", format!("{} ({})", document.trace.name, document.trace.xxh3)),
        ("target", target),
        ("requests", format!("{} in {:.3} s", count(run.requests), run.duration_s)),
    ];
    if !r.complete {
        let why = if r.ended_by == "signal" { "stopped by a signal" } else { "the target failed" };
        facts
            .push(("PARTIAL", format!("{why}; these figures cover only the requests before that")));
    }
    facts.extend(pace(r));
    facts.extend(exceptions(r));
    facts.extend(run.cache.iter().flat_map(cache_facts));
    let machine = &document.machine;
    facts.extend([
        ("processor time", format!("{:.3} s", r.cpu_s)),
        ("memory", Size(r.rss_bytes).to_string()),
        ("machine", format!("{}, {} cores, {}", machine.cpu, machine.cores, machine.kernel)),
    ]);
    facts
}

/// How fast requests were sent and answered.
fn pace(r: &RealRun) -> Facts {
    let queue = format!(
        "mean {:.1}, maximum {} of {}; the queue was full for {} of the requests",
        r.queue.mean,
        r.queue.max,
        r.queue.depth,
        percent(r.queue.full_share)
    );
    let throughput = format!(
        "{} requests/s, {}/s",
        count(r.throughput.requests_per_s.round() as u64),
        Size(r.throughput.bytes_per_s.round() as u64)
    );
    let bytes = format!("{}, {}", Size(r.run.read_bytes), Size(r.run.write_bytes));
    let mut facts = vec![("throughput", throughput), ("read, written", bytes), ("queue", queue)];
    if let Some(late) = r.lateness_us.as_ref().filter(|late| late.max > 0.0) {
        let (median, p99, max) = (micros(late.p50), micros(late.p99), micros(late.max));
        facts.push(("sent late by", format!("median {median}, p99 {p99}, maximum {max}")));
    }
    if r.idle_skipped_s > 0.0 {
        facts.push(("idle time skipped", format!("{:.3} s", r.idle_skipped_s)));
    }
    facts
}

/// Requests that failed, or that were not sent as recorded.
fn exceptions(r: &RealRun) -> Facts {
    let mut facts = Facts::new();
    if r.run.errors > 0 {
        facts.push(("failed", count(r.run.errors)));
    }
    if r.lost > 0 {
        facts.push(("outcome unknown", count(r.lost)));
    }
    let adjusted = &r.adjusted;
    for (name, n) in [
        ("writes skipped", adjusted.writes_left_out),
        ("not supported", adjusted.unsupported),
        ("empty", adjusted.empty),
        ("wrapped", adjusted.wrapped),
        ("shortened", adjusted.shortened),
        ("widened to blocks", adjusted.widened),
    ] {
        if n > 0 {
            facts.push((name, format!("{} requests", count(n))));
        }
    }
    facts
}

/// The effect of the target's cache on the requests.
fn cache_facts(cache: &CacheResult) -> Facts {
    let hits = &cache.hits;
    let all = hits.tier1.sum() + hits.tier2.sum() + hits.delayed.sum() + cache.misses.sum();
    let share = |n: u64| format!("{} ({})", percent(n as f64 / all.max(1) as f64), count(n));
    let backing = &cache.backing;
    let moved = format!("{} read, {} written", Size(backing.read_bytes), Size(backing.write_bytes));
    vec![
        ("hit ratio", percent(cache.hit_ratio)),
        ("hits in memory", share(hits.tier1.sum())),
        ("hits on flash", share(hits.tier2.sum())),
        ("delayed hits", share(hits.delayed.sum())),
        ("misses", share(cache.misses.sum())),
        ("written to flash", Size(cache.tier2_bytes_written).to_string()),
        ("backing stores", moved),
    ]
}

fn latency_table(document: &Document) -> String {
    let response = document.result.response_us.filter(|r| r.max > 0.0);
    let rows = kinds(&document.result.run).into_iter();
    let rows = Table::from_items(rows.chain(response.map(|r| ("from due time", r))))
        .column("latency", |row| row.0.to_owned());
    let mut text = latencies(rows, micros, |row| &row.1).to_text();
    let components = document.result.component_latency_us.iter().flat_map(Components::named);
    let devices: Vec<_> = components.collect();
    if !devices.is_empty() {
        let rows = Table::from_items(&devices).column("device", |row| row.0.clone());
        let table = latencies(rows, micros, |row| &row.1.latency);
        text += "\n";
        text += &table.number("operations", |row| count(row.1.count)).to_text();
    }
    text
}

/// Formats a latency like a simulation does, so that the two can be compared.
fn micros(us: f64) -> String {
    Unit::Micros.show(us)
}

#[cfg(test)]
mod tests {
    use forebay_results::{Hits, ReadWrite};

    use super::*;

    #[test]
    fn reads_that_fail_are_not_said_to_have_returned_wrong_data() {
        let whole = VerifyResult { complete: true, ..VerifyResult::default() };
        assert_eq!(verdict(&whole), "all correct");
        let failed = VerifyResult { failed_reads: 12, ..VerifyResult::default() };
        assert_eq!(verdict(&failed), "INCOMPLETE, 12 reads failed");
        let both = VerifyResult { reads_wrong_bytes: 512, failed_reads: 1, ..failed };
        assert_eq!(verdict(&both), "DIFFERS from the written data, 1 read failed");
    }

    #[test]
    fn the_counts_of_hits_and_misses_add_up_to_all_accesses() {
        let n = |read| ReadWrite { read, write: 1 };
        let hits = Hits { tier1: n(499), tier2: n(99), delayed: n(299) };
        let misses = n(99);
        let hit_ratio = CacheResult::ratio_of(&hits, &misses);
        let cache = CacheResult { hits, misses, hit_ratio, ..CacheResult::default() };
        let facts = cache_facts(&cache);
        let of = |name| facts.iter().find(|fact| fact.0 == name).map(|fact| fact.1.as_str());
        assert_eq!(of("hit ratio"), Some("90.0 %"));
        assert_eq!(of("hits in memory"), Some("50.0 % (500)"));
        assert_eq!(of("hits on flash"), Some("10.0 % (100)"));
        assert_eq!(of("delayed hits"), Some("30.0 % (300)"));
        assert_eq!(of("misses"), Some("10.0 % (100)"));
    }
}
