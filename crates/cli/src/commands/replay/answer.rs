//! What a replay or a load answers with.

use std::path::Path;

use forebay_analysis::{Columns, Meter, Observer, Unit};
use forebay_replay::{Finished, Hooks, Interval, Machine, RealRun, VerifyResult, Written};
use forebay_results::{Latency, TraceIdentity};

use super::document::{Document, Echo};
use super::target::Opened;
use crate::context::Context;
use crate::error::CliError;
use crate::format::count;
use crate::output::OutputArgs;
use crate::rows::write_parquet;

/// A report, and what is to be said after it.
pub struct Answer {
    pub document: Document,
    failure: Option<CliError>,
}

impl Answer {
    /// Reads back if asked to, closes the target, and puts the report together.
    pub fn new(
        finished: Finished,
        mut opened: Opened,
        trace: TraceIdentity,
        mut echo: Echo,
        ctx: &Context,
    ) -> Result<Answer, CliError> {
        let Finished { mut result, error, written } = finished;
        // Before anything is read back through the cache.
        (result.run.cache, result.component_latency_us) =
            opened.host().map(|host| host.cache()).unzip();
        let interrupted = ctx.interrupted();
        let verify = match written.filter(|_| error.is_none() && !interrupted) {
            Some(written) => Some(read_back(&written, &mut opened, ctx)?),
            None => None,
        };
        echo.config = opened.config.clone();
        let target = opened.info.clone();
        let mode = opened.on_stop;
        let stopped = opened.into_host().map_or(Ok(()), |host| {
            host.stop(mode, |dirty| ctx.note(format_args!("{} dirty blocks left", count(dirty))))
        });
        let failure = error
            .map(CliError::from)
            .or_else(|| failure(&result, interrupted))
            .or_else(|| verify.as_ref().and_then(wrong))
            .or_else(|| stopped.err().map(CliError::from));
        let document = Document {
            result,
            verify,
            trace,
            target,
            options: echo,
            machine: Machine::this(),
            version: env!("CARGO_PKG_VERSION"),
        };
        Ok(Answer { document, failure })
    }

    /// Writes the report everywhere it was asked for, then fails if the run did.
    pub fn give(self, output: &OutputArgs, intervals: Option<&Path>) -> Result<(), CliError> {
        let Answer { document, failure } = self;
        if let Some(path) = &output.parquet {
            write_parquet(path, &row(&document))?;
        }
        if let Some(path) = intervals {
            write_parquet(path, &interval_rows(&document.result.intervals))?;
        }
        if let Some(path) = &output.html {
            super::pictures::report(&document).write_html(path)?;
        }
        output.emit(&document, |out| {
            let text = super::text::text(&document);
            out.write_all(text.as_bytes())
        })?;
        failure.map_or(Ok(()), Err)
    }
}

fn read_back(
    written: &Written,
    opened: &mut Opened,
    ctx: &Context,
) -> Result<VerifyResult, CliError> {
    let progress = ctx.progress("reading back", Unit::Bytes, Some(written.bytes()));
    let clock = opened.clock;
    let hooks = Hooks { stop: ctx.stop_flag(), progress: &|bytes| progress.inc(bytes) };
    Ok(written.verify(opened.first(), &clock, hooks)?)
}

/// What a user must hear of who does not read the report.
fn failure(result: &RealRun, interrupted: bool) -> Option<CliError> {
    let kept = format!("the report is of the {} requests done", count(result.run.requests));
    if result.ended_by == "signal" || interrupted {
        return Some(CliError::interrupted().kept(kept));
    }
    if result.run.errors > 0 {
        let kinds: Vec<String> =
            result.failures.iter().map(|(kind, n)| format!("{n} times {kind}")).collect();
        let what = format!(
            "{} of {} requests failed ({})",
            count(result.run.errors),
            count(result.run.requests),
            kinds.join(", ")
        );
        return Some(CliError::failed(what).kept(kept));
    }
    None
}

fn wrong(verify: &VerifyResult) -> Option<CliError> {
    if verify.is_right() {
        return None;
    }
    if !verify.complete {
        return Some(CliError::interrupted().kept("the report; not everything was read back"));
    }
    let mut what = format!(
        "{} of {} bytes read back are not what was written, nor {} of {} that reads brought",
        verify.wrong_bytes,
        verify.checked_bytes,
        verify.reads_wrong_bytes,
        verify.reads_checked_bytes
    );
    if verify.failed_reads > 0 {
        what += &format!(", {} reads failed", verify.failed_reads);
    }
    for d in verify.differences.iter().take(3) {
        what += &format!("; volume {} at {}: {}", d.volume, d.offset, d.found);
    }
    Some(CliError::failed(what).kept("the report"))
}

/// The run as one row.
fn row(document: &Document) -> Columns {
    use std::iter::once;
    let r = &document.result;
    let run = &r.run;
    let mut rows = Columns::default()
        .texts("trace", once(document.trace.name.as_str()))
        .texts("trace_xxh3", once(document.trace.xxh3.as_str()))
        .texts("target", once(document.target.kind))
        .texts("via", once(document.target.via.as_str()))
        .texts("cpu", once(document.machine.cpu.as_str()))
        .texts("kernel", once(document.machine.kernel.as_str()))
        .texts("ended_by", once(r.ended_by))
        .integers("cores", once(document.machine.cores))
        .integers("queue_depth", once(u64::from(r.queue.depth)))
        .integers("jobs", once(u64::from(r.queue.jobs)))
        .reals("rate", once(document.options.rate.unwrap_or(0.0)))
        .integers("requests", once(run.requests))
        .integers("reads", once(run.reads))
        .integers("writes", once(run.writes))
        .integers("errors", once(run.errors))
        .integers("read_bytes", once(run.read_bytes))
        .integers("write_bytes", once(run.write_bytes))
        .reals("duration_s", once(run.duration_s))
        .reals("bytes_per_s", once(r.throughput.bytes_per_s))
        .reals("requests_per_s", once(r.throughput.requests_per_s))
        .reals("queue_mean", once(r.queue.mean))
        .reals("queue_full_share", once(r.queue.full_share))
        .reals("cpu_s", once(r.cpu_s))
        .integers("rss_bytes", once(r.rss_bytes));
    let latency = &run.latency_us;
    rows = latencies(rows, READ_COLUMNS, &latency.read);
    rows = latencies(rows, WRITE_COLUMNS, &latency.write);
    rows = latencies(rows, ALL_COLUMNS, &latency.all);
    rows = maybe_latencies(rows, RESPONSE_COLUMNS, r.response_us.as_ref());
    rows = maybe_latencies(rows, LATENESS_COLUMNS, r.lateness_us.as_ref());
    let Some(cache) = &run.cache else { return rows };
    rows.integers("tier1_read_hits", once(cache.hits.tier1.read))
        .integers("tier1_write_hits", once(cache.hits.tier1.write))
        .integers("tier2_read_hits", once(cache.hits.tier2.read))
        .integers("tier2_write_hits", once(cache.hits.tier2.write))
        .integers("read_misses", once(cache.misses.read))
        .integers("write_misses", once(cache.misses.write))
        .reals("hit_ratio", once(cache.hit_ratio))
        .integers("tier2_bytes_written", once(cache.tier2_bytes_written))
        .integers("backing_read_bytes", once(cache.backing.read_bytes))
        .integers("backing_write_bytes", once(cache.backing.write_bytes))
        .integers("dirty_blocks_max", once(cache.dirty_blocks_max))
}

macro_rules! latency_columns {
    ($($name:ident = $prefix:literal),*) => {
        $(const $name: [&str; 7] = [
            concat!($prefix, "_mean_us"), concat!($prefix, "_p50_us"),
            concat!($prefix, "_p90_us"), concat!($prefix, "_p99_us"),
            concat!($prefix, "_p999_us"), concat!($prefix, "_p9999_us"),
            concat!($prefix, "_max_us"),
        ];)*
    };
}
latency_columns!(
    READ_COLUMNS = "read",
    WRITE_COLUMNS = "write",
    ALL_COLUMNS = "all",
    RESPONSE_COLUMNS = "response",
    LATENESS_COLUMNS = "lateness"
);

fn latencies(rows: Columns, names: [&'static str; 7], l: &Latency) -> Columns {
    names
        .into_iter()
        .zip(l.values())
        .fold(rows, |rows, (name, value)| rows.reals(name, std::iter::once(value)))
}

/// The same columns, null where there is nothing to measure.
fn maybe_latencies(rows: Columns, names: [&'static str; 7], l: Option<&Latency>) -> Columns {
    let values = l.map(Latency::values);
    let value = |at: usize| values.as_ref().map(|values| values[at]);
    names
        .into_iter()
        .enumerate()
        .fold(rows, |rows, (at, name)| rows.optional_reals(name, std::iter::once(value(at))))
}

fn interval_rows(intervals: &[Interval]) -> Columns {
    let each = || intervals.iter();
    Columns::default()
        .reals("start_s", each().map(|i| i.start_s))
        .reals("length_s", each().map(|i| i.length_s))
        .integers("requests", each().map(|i| i.requests))
        .integers("errors", each().map(|i| i.errors))
        .integers("read_bytes", each().map(|i| i.read_bytes))
        .integers("write_bytes", each().map(|i| i.write_bytes))
        .reals("mean_us", each().map(|i| i.mean_us))
        .reals("p99_us", each().map(|i| i.p99_us))
        .reals("max_us", each().map(|i| i.max_us))
}
