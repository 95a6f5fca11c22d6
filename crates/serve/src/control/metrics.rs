//! Formats a status for Prometheus (text format 0.0.4): latencies in seconds, sizes in bytes.

use std::fmt::Write;

use super::server::ServerStatus;
use forebay_engine::{VolumeStatus, Workload};
use forebay_results::{LatencyTotal, Operations};

/// One metric: name, kind, help, and its value for a volume.
type Counter = (&'static str, &'static str, &'static str, fn(&Workload) -> u64);

const PER_VOLUME: [Counter; 20] = [
    ("forebay_reads_total", "counter", "Read requests", |w| w.reads),
    ("forebay_writes_total", "counter", "Write requests", |w| w.writes),
    ("forebay_zeroes_total", "counter", "Trim and write-zeroes requests", |w| w.zeroes),
    ("forebay_flushes_total", "counter", "Flush requests", |w| w.flushes),
    ("forebay_prefetches_total", "counter", "Prefetch requests (NBD CACHE)", |w| w.prefetches),
    ("forebay_errors_total", "counter", "Requests that failed", |w| w.errors),
    ("forebay_read_bytes_total", "counter", "Bytes that clients read", |w| w.read_bytes),
    ("forebay_write_bytes_total", "counter", "Bytes that clients wrote", |w| w.write_bytes),
    ("forebay_read_hits_dram_total", "counter", "Blocks read from memory", |w| w.hits.tier1.read),
    ("forebay_read_hits_flash_total", "counter", "Blocks read from flash", |w| w.hits.tier2.read),
    (
        "forebay_read_hits_delayed_total",
        "counter",
        "Blocks read while another request was fetching them from the backing store",
        |w| w.hits.delayed.read,
    ),
    ("forebay_read_misses_total", "counter", "Blocks read that missed the cache", |w| {
        w.misses.read
    }),
    ("forebay_write_hits_total", "counter", "Blocks written that hit the cache", |w| {
        w.hits.tier1.write + w.hits.tier2.write
    }),
    (
        "forebay_write_hits_delayed_total",
        "counter",
        "Blocks written while another request was fetching them from the backing store",
        |w| w.hits.delayed.write,
    ),
    ("forebay_write_misses_total", "counter", "Blocks written that missed the cache", |w| {
        w.misses.write
    }),
    (
        "forebay_backing_read_bytes_total",
        "counter",
        "Bytes read from the backing store, including failed reads",
        |w| w.backing.traffic.read_bytes,
    ),
    (
        "forebay_backing_write_bytes_total",
        "counter",
        "Bytes written to the backing store, including failed writes",
        |w| w.backing.traffic.write_bytes,
    ),
    ("forebay_backing_syncs_total", "counter", "Syncs of the backing store", |w| w.backing.syncs),
    ("forebay_backing_errors_total", "counter", "Failed operations on the backing store", |w| {
        w.backing.errors
    }),
    (
        "forebay_dirty_blocks",
        "gauge",
        "Blocks whose newest data is not yet on the backing store",
        |w| w.dirty_blocks,
    ),
];

/// One metric of the whole server: name, kind, help, and its value.
type Single = (&'static str, &'static str, &'static str, fn(&ServerStatus) -> f64);

const SINGLE: [Single; 33] = [
    ("forebay_uptime_seconds", "gauge", "Time since the cache was opened", |s| s.cache.uptime_s),
    ("forebay_in_flight", "gauge", "Requests in flight", |s| s.cache.in_flight as f64),
    ("forebay_connections", "gauge", "NBD connections", |s| s.nbd.connections as f64),
    ("forebay_connections_limit", "gauge", "Maximum number of simultaneous NBD connections", |s| {
        s.nbd.connections_max as f64
    }),
    ("forebay_connections_accepted_total", "counter", "NBD connections accepted", |s| {
        s.nbd.accepted as f64
    }),
    (
        "forebay_connections_refused_total",
        "counter",
        "NBD connections refused because there were too many",
        |s| s.nbd.refused as f64,
    ),
    ("forebay_request_memory_bytes", "gauge", "Memory used by requests", |s| {
        s.nbd.request_memory.bytes as f64
    }),
    ("forebay_request_memory_limit_bytes", "gauge", "Memory available for requests", |s| {
        s.nbd.request_memory.bytes_max as f64
    }),
    (
        "forebay_request_memory_waiting",
        "gauge",
        "NBD connections that are waiting for memory",
        |s| s.nbd.request_memory.waiting as f64,
    ),
    ("forebay_dirty_bytes", "gauge", "Total size of the dirty blocks", |s| {
        s.cache.total.dirty_blocks as f64 * s.cache.tiers.block_bytes as f64
    }),
    ("forebay_block_bytes", "gauge", "Block size", |s| s.cache.tiers.block_bytes as f64),
    ("forebay_dram_bytes", "gauge", "Current limit on the memory for cached blocks", |s| {
        f64::from(s.cache.tiers.dram_blocks) * s.cache.tiers.block_bytes as f64
    }),
    ("forebay_metadata_bytes", "gauge", "Memory used for cache metadata", |s| {
        s.cache.tiers.metadata_bytes as f64
    }),
    ("forebay_demoted_blocks_total", "counter", "Clean blocks moved from memory to flash", |s| {
        s.cache.events.demotions as f64
    }),
    ("forebay_promoted_blocks_total", "counter", "Blocks moved from flash to memory", |s| {
        s.cache.events.promotions as f64
    }),
    (
        "forebay_read_through_blocks_total",
        "counter",
        "Blocks read from flash that were not promoted",
        |s| s.cache.events.read_through as f64,
    ),
    (
        "forebay_admitted_blocks_total",
        "counter",
        "Blocks that the admission policy admitted to flash",
        |s| s.cache.events.admitted as f64,
    ),
    (
        "forebay_not_admitted_blocks_total",
        "counter",
        "Blocks that the admission policy did not admit to flash",
        |s| s.cache.events.not_admitted as f64,
    ),
    (
        "forebay_reinserted_blocks_total",
        "counter",
        "Blocks kept on flash when their region was reclaimed",
        |s| s.cache.events.reinserted as f64,
    ),
    ("forebay_evicted_blocks_total", "counter", "Blocks evicted from the cache", |s| {
        s.cache.events.evictions as f64
    }),
    ("forebay_destaged_blocks_total", "counter", "Blocks destaged from flash", |s| {
        s.cache.events.destaged as f64
    }),
    ("forebay_destage_retries_total", "counter", "Destage rounds that were retried", |s| {
        s.cache.events.destage_retries as f64
    }),
    (
        "forebay_transfer_errors_total",
        "counter",
        "Fetches, appends, destages and syncs that failed",
        |s| s.cache.events.transfer_errors as f64,
    ),
    ("forebay_device_retries_total", "counter", "Device operations that were retried", |s| {
        s.cache.devices.retries as f64
    }),
    ("forebay_device_errors_total", "counter", "Device operations that failed", |s| {
        s.cache.devices.errors as f64
    }),
    ("forebay_flash_corrupt_total", "counter", "Flash reads that failed their checksum", |s| {
        s.cache.events.flash_corrupt as f64
    }),
    ("forebay_flash_bytes", "gauge", "Flash capacity available for blocks", |s| {
        s.cache.tiers.flash_bytes as f64
    }),
    ("forebay_flash_written_bytes_total", "counter", "Bytes written to flash", |s| {
        s.cache.tier2_bytes_written as f64
    }),
    ("forebay_flash_payload_bytes_total", "counter", "Bytes of block data written to flash", |s| {
        s.cache.flash.map_or(0.0, |flash| flash.payload_bytes as f64)
    }),
    ("forebay_flash_regions", "gauge", "Log regions", |s| f64::from(s.cache.tiers.flash_regions)),
    ("forebay_flash_regions_free", "gauge", "Free log regions", |s| {
        f64::from(s.cache.tiers.flash_regions_free)
    }),
    ("forebay_flash_regions_reclaimed_total", "counter", "Log regions reclaimed", |s| {
        s.cache.flash.map_or(0.0, |flash| flash.regions_reclaimed as f64)
    }),
    ("forebay_recorded_requests_total", "counter", "Requests recorded", |s| {
        s.recording.as_ref().map_or(0.0, |recording| recording.requests as f64)
    }),
];

/// Name, help, and the gauge's value for a volume.
type VolumeFailure = (&'static str, &'static str, fn(&VolumeStatus) -> u64);

const VOLUME_FAILURES: [VolumeFailure; 4] = [
    ("forebay_backing_failing", "Whether the last operation on the backing store failed", |v| {
        v.backing_failure.is_some().into()
    }),
    (
        "forebay_suspended",
        "Whether writes are failing because the backing store has failed for too long",
        |v| v.suspended.into(),
    ),
    (
        "forebay_pass_through",
        "Whether the volume runs without the flash tier because the tier has failed",
        |v| v.pass_through.into(),
    ),
    ("forebay_unreadable_blocks", "Blocks whose newest data cannot be read from flash", |v| {
        v.unreadable_blocks
    }),
];

/// Formats the whole page.
pub(super) fn metrics(server: &ServerStatus) -> String {
    let (status, mut page) = (&server.cache, String::new());
    for (name, kind, help, value) in PER_VOLUME {
        head(&mut page, name, kind, help);
        for volume in &status.volumes {
            let label = escape(&volume.volume);
            line(
                &mut page,
                format_args!("{name}{{volume=\"{label}\"}} {}", value(&volume.workload)),
            );
        }
    }
    failures(&mut page, server);
    let name = "forebay_latency_seconds";
    head(&mut page, name, "histogram", "Time from a request's arrival to its reply");
    for volume in &status.volumes {
        let label = escape(&volume.volume);
        let answered = &volume.workload.answered;
        for (kind, total) in
            [("read", &answered.read), ("write", &answered.write), ("all", &answered.all)]
        {
            let labels = format!("volume=\"{label}\",kind=\"{kind}\"");
            histogram(&mut page, name, &labels, total);
        }
    }
    let name = "forebay_device_latency_seconds";
    let help = "Time from when the cache requests a device operation until it completes";
    head(&mut page, name, "histogram", help);
    operations(&mut page, name, "device=\"flash\"", &status.flash_operations);
    for volume in &status.volumes {
        let labels = format!("device=\"backing\",volume=\"{}\"", escape(&volume.volume));
        operations(&mut page, name, &labels, &volume.backing_operations);
    }
    for (name, kind, help, value) in SINGLE {
        head(&mut page, name, kind, help);
        line(&mut page, format_args!("{name} {}", value(server)));
    }
    let name = "forebay_connections_closed_total";
    head(&mut page, name, "counter", "NBD connections that the server closed, by reason");
    let closed = &server.nbd.closed;
    for (reason, count) in [
        ("handshake_timeout", closed.handshake_timeout),
        ("idle_timeout", closed.idle_timeout),
        ("stall_timeout", closed.stall_timeout),
    ] {
        line(&mut page, format_args!("{name}{{reason=\"{reason}\"}} {count}"));
    }
    page
}

/// Writes the gauges for alerts, most of them 1 while something fails or clients are held back, and
/// those that name the write policy and the version.
fn failures(page: &mut String, server: &ServerStatus) {
    let status = &server.cache;
    for (name, help, value) in VOLUME_FAILURES {
        head(page, name, "gauge", help);
        for volume in &status.volumes {
            let label = escape(&volume.volume);
            line(page, format_args!("{name}{{volume=\"{label}\"}} {}", value(volume)));
        }
    }
    let recording = server.recording.as_ref();
    let recording_failed = recording.is_some_and(|r| r.failure.is_some());
    for (name, help, holds) in [
        (
            "forebay_flash_failed",
            "Whether the server has stopped writing to flash",
            status.flash_failure.is_some(),
        ),
        (
            "forebay_quiesced",
            "Whether a quiesce is holding client requests back",
            status.quiesced.is_some(),
        ),
        (
            "forebay_write_policy_failed",
            "Whether the server failed to adopt the configured write policy at startup",
            status.write_policy_failure.is_some(),
        ),
        (
            "forebay_recording",
            "Whether client requests are being recorded",
            recording.is_some() && !recording_failed,
        ),
        ("forebay_recording_failed", "Whether recording has failed", recording_failed),
    ] {
        head(page, name, "gauge", help);
        line(page, format_args!("{name} {}", u8::from(holds)));
    }
    let (policy, acknowledge) = (escape(&status.write_policy), escape(&status.acknowledge));
    head(page, "forebay_policy_info", "gauge", "The write policy in force");
    let labels = format_args!("policy=\"{policy}\",acknowledge=\"{acknowledge}\"");
    line(page, format_args!("forebay_policy_info{{{labels}}} 1"));
    head(page, "forebay_build_info", "gauge", "The running version");
    line(page, format_args!("forebay_build_info{{version=\"{}\"}} 1", escape(server.version)));
}

fn operations(page: &mut String, name: &str, labels: &str, done: &Operations) {
    for (operation, total) in [("read", &done.read), ("write", &done.write), ("sync", &done.sync)] {
        histogram(page, name, &format!("{labels},operation=\"{operation}\""), total);
    }
}

/// Writes the lines of one histogram. Its sum and its count come from one [`LatencyTotal`], which
/// only grows: Prometheus would take a falling sum for a restart.
fn histogram(page: &mut String, name: &str, labels: &str, total: &LatencyTotal) {
    for (at, bound) in LatencyTotal::BOUNDS_NS.into_iter().enumerate() {
        // 1, 2 and 5 of each decade.
        if matches!(at % 20, 0 | 6 | 14) {
            let (seconds, count) = (bound as f64 / 1e9, total.at_most[at]);
            line(page, format_args!("{name}_bucket{{{labels},le=\"{seconds}\"}} {count}"));
        }
    }
    line(page, format_args!("{name}_bucket{{{labels},le=\"+Inf\"}} {}", total.count));
    line(page, format_args!("{name}_sum{{{labels}}} {}", total.sum_ns as f64 / 1e9));
    line(page, format_args!("{name}_count{{{labels}}} {}", total.count));
}

fn head(page: &mut String, name: &str, kind: &str, help: &str) {
    line(page, format_args!("# HELP {name} {help}."));
    line(page, format_args!("# TYPE {name} {kind}"));
}

fn line(page: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = page.write_fmt(text);
    page.push('\n');
}

fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_results::{Hits, ReadWrite};

    /// `ctl status` prints the same hits and misses: neither counts a delayed hit as a miss.
    #[test]
    fn hits_and_misses_are_those_that_the_status_reports() {
        let rw = |read, write| ReadWrite { read, write };
        let hits = Hits { tier1: rw(1, 2), tier2: rw(10, 20), delayed: rw(100, 200) };
        let workload = Workload { hits, misses: rw(1000, 2000), ..Workload::default() };
        let value = |wanted: &str| {
            let counter = PER_VOLUME.iter().find(|(name, ..)| *name == wanted).unwrap();
            counter.3(&workload)
        };
        assert_eq!(value("forebay_read_hits_dram_total"), 1);
        assert_eq!(value("forebay_read_hits_flash_total"), 10);
        assert_eq!(value("forebay_read_hits_delayed_total"), 100);
        assert_eq!(value("forebay_read_misses_total"), 1000);
        assert_eq!(value("forebay_write_hits_total"), 22);
        assert_eq!(value("forebay_write_hits_delayed_total"), 200);
        assert_eq!(value("forebay_write_misses_total"), 2000);
    }
}
