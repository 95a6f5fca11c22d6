//! Tables of latencies.

use forebay_report::TableOf;
use forebay_results::{Latency, RunResult};

/// The name of requests that are neither reads nor writes.
pub const OTHER: &str = "trims, write-zeroes, flushes";

/// The rows of the table of a run, with their names: each kind of request that there was, then all
/// requests.
pub fn kinds(run: &RunResult) -> Vec<(&'static str, Latency)> {
    let l = &run.latency_us;
    let other = run.requests.saturating_sub(run.reads + run.writes);
    let kinds = [
        ("reads", run.reads, l.read),
        ("writes", run.writes, l.write),
        (OTHER, other, l.other),
        ("all", run.requests, l.all),
    ];
    kinds.into_iter().filter(|kind| kind.1 > 0).map(|(name, _, l)| (name, l)).collect()
}

/// Adds the columns of a latency, with values formatted by `show`.
pub fn latencies<T>(
    table: TableOf<T>,
    show: fn(f64) -> String,
    latency: fn(&T) -> &Latency,
) -> TableOf<T> {
    let columns = ["mean", "p50", "p90", "p99", "p99.9", "p99.99", "max"];
    columns
        .into_iter()
        .enumerate()
        .fold(table, |table, (at, name)| table.number(name, |row| show(latency(row).values()[at])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_block::{Nanos, Op};
    use forebay_results::LatencyRecorder;

    #[test]
    fn the_mean_of_all_requests_is_a_mix_of_the_rows_above_it() {
        let mut recorder = LatencyRecorder::default();
        for (op, us) in [(Op::Read, 100), (Op::Write, 200), (Op::Flush, 3), (Op::Trim, 5)] {
            recorder.record(op, Nanos::from_micros(us));
        }
        let run = |requests, reads, writes| RunResult {
            requests,
            reads,
            writes,
            latency_us: recorder.summary(),
            ..RunResult::default()
        };
        let means = |run: &RunResult| -> Vec<_> {
            kinds(run).into_iter().map(|(name, latency)| (name, latency.mean)).collect()
        };
        let rows = [("reads", 100.0), ("writes", 200.0), (OTHER, 4.0), ("all", 77.0)];
        assert_eq!(means(&run(4, 1, 1)), rows);
        assert_eq!(means(&run(2, 2, 0)), [("reads", 100.0), ("all", 77.0)]);
    }
}
