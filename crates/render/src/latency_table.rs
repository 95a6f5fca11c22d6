//! Columns of latencies.

use forebay_report::TableOf;
use forebay_results::Latency;

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
