//! Reading traces on behalf of a command: progress, interruption, and what was passed over.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use forebay_block::Request;
use forebay_trace::{Batch, Counters, Metadata, OpenOptions, TraceError, TraceReader, open_all};

use crate::args::TraceArgs;
use crate::context::Context;
use crate::error::CliError;
use crate::format::count;
use crate::progress::{Progress, Unit};

/// Batches that may be read ahead of the work done on them.
const READ_AHEAD: usize = 4;

/// What is known about traces once they have been read.
#[derive(Default)]
pub struct Traces {
    /// Volumes by number, among others.
    pub metadata: Metadata,
    /// Requests read.
    pub requests: u64,
}

impl Traces {
    /// The name of a volume.
    pub fn volume_name(&self, volume: forebay_block::Volume) -> String {
        let info = self.metadata.volumes.get(volume.0 as usize);
        info.map_or_else(|| volume.0.to_string(), |v| v.name.clone())
    }
}

/// Reads traces from beginning to end and hands every request to `work`, reading ahead in a
/// thread of its own. Tells the user what was skipped.
pub fn read_traces(
    args: &TraceArgs,
    ctx: &Context,
    mut work: impl FnMut(&Request) -> Result<(), CliError>,
) -> Result<Traces, CliError> {
    read_trace_batches(args, ctx, |batch| batch.requests().try_for_each(|r| work(&r)))
}

/// The same, for work that takes many requests at once.
pub fn read_trace_batches(
    args: &TraceArgs,
    ctx: &Context,
    mut work: impl FnMut(&Batch) -> Result<(), CliError>,
) -> Result<Traces, CliError> {
    read_described(args, &options(args), ctx, |batch, _| work(batch))
}

/// The same, opened as `options` say, for work that wants to know the volumes of each batch.
pub fn read_described(
    args: &TraceArgs,
    options: &OpenOptions,
    ctx: &Context,
    mut work: impl FnMut(&Batch, &Metadata) -> Result<(), CliError>,
) -> Result<Traces, CliError> {
    let reader = open_traces(args, options, ctx)?;
    let progress = ctx.progress("reading", Unit::Bytes, reader.progress().bytes_total);
    let (sender, batches) = sync_channel(READ_AHEAD);
    let (returner, empty) = sync_channel(READ_AHEAD);
    let mut requests = 0;
    let reader = thread::scope(|scope| -> Result<_, CliError> {
        // Owned here, so that an early return ends the reading thread too.
        let (batches, returner) = (batches, returner);
        let progress = &progress;
        let reading = scope.spawn(move || read(reader, progress, &sender, &empty));
        for batch in &batches {
            ctx.check()?;
            let (batch, metadata): (Batch, Arc<Metadata>) = batch?;
            work(&batch, &metadata)?;
            requests += batch.len() as u64;
            // A full channel only means that this batch is not used again.
            let _ = returner.try_send(batch);
        }
        reading.join().map_err(|_| CliError::failed("the reader of traces panicked"))
    })?;
    progress.finish();
    tell_counters(ctx, reader.counters());
    Ok(Traces { metadata: reader.metadata().clone(), requests })
}

/// Opens the traces that a command line names, and says what is doubtful about them.
pub fn open_traces(
    args: &TraceArgs,
    options: &OpenOptions,
    ctx: &Context,
) -> Result<Box<dyn TraceReader>, CliError> {
    let reader = open_all(&args.traces, options)?;
    reader.metadata().doubts.iter().for_each(|doubt| ctx.note_once(doubt));
    Ok(reader)
}

/// How to open the traces that a command line names.
pub fn options(args: &TraceArgs) -> OpenOptions {
    OpenOptions {
        format: args.format.clone(),
        skip_bad_lines: args.skip_bad_lines,
        volumes: args.volumes.clone(),
        limit: args.limit,
        follow_gaps: args.follow_gaps,
        ..OpenOptions::default()
    }
}

fn read(
    mut reader: Box<dyn TraceReader>,
    progress: &Progress,
    batches: &SyncSender<Result<(Batch, Arc<Metadata>), TraceError>>,
    empty: &Receiver<Batch>,
) -> Box<dyn TraceReader> {
    let mut metadata = Arc::new(reader.metadata().clone());
    loop {
        let mut batch = empty.try_recv().unwrap_or_default();
        let next = match reader.read_batch(&mut batch) {
            Ok(0) => break,
            Ok(_) => {
                let now = reader.metadata();
                if metadata.volumes.len() != now.volumes.len() || metadata.hashes != now.hashes {
                    metadata = Arc::new(now.clone());
                }
                Ok((batch, Arc::clone(&metadata)))
            }
            Err(error) => Err(error),
        };
        progress.set(reader.progress().bytes_read);
        let failed = next.is_err();
        if batches.send(next).is_err() || failed {
            break;
        }
    }
    reader
}

fn tell_counters(ctx: &Context, counters: Counters) {
    if counters.bad > 0 {
        ctx.note(format_args!("skipped {} bad lines or records", count(counters.bad)));
    }
    if counters.out_of_order > 0 {
        let moved = count(counters.out_of_order);
        ctx.note(format_args!("{moved} requests came out of order; they count as simultaneous"));
    }
}
