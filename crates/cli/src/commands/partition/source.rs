//! Traces that are read several times: from their files, or kept if they can be read only once.

use forebay_block::Request;
use forebay_plan::BoxError;
use forebay_trace::{Batch, open_all};

use crate::args::TraceArgs;
use crate::context::Context;
use crate::error::CliError;
use crate::progress::Unit;
use crate::reading::{Traces, options, read_traces};

/// How often a reader looks whether it is to stop, in requests.
const CHECK_PERIOD: u64 = 1 << 14;

/// Traces that have been read once.
pub struct Source<'a> {
    args: &'a TraceArgs,
    kept: Option<Vec<Request>>,
    /// By volume number: the end of the request that reaches farthest.
    pub ends: Vec<u64>,
    pub traces: Traces,
}

impl<'a> Source<'a> {
    /// Reads traces for the first time.
    pub fn read(
        args: &'a TraceArgs,
        ctx: &Context,
        mut work: impl FnMut(&Request) -> Result<(), CliError>,
    ) -> Result<Self, CliError> {
        let mut kept = args.on_stdin().then(Vec::new);
        let mut ends: Vec<u64> = Vec::new();
        let traces = read_traces(args, ctx, |request| {
            let at = request.volume.0 as usize;
            ends.resize(ends.len().max(at + 1), 0);
            ends[at] = ends[at].max(request.offset.saturating_add(request.length));
            if let Some(kept) = &mut kept {
                kept.push(*request);
            }
            work(request)
        })?;
        Ok(Self { args, kept, ends, traces })
    }

    /// Number of traces.
    pub fn files(&self) -> usize {
        self.args.traces.len()
    }

    /// Hands over every request again. A file that grew meanwhile does not make volumes larger.
    pub fn each(
        &self,
        ctx: &Context,
        label: &str,
        mut work: impl FnMut(&Request) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        let progress = ctx.progress(label, Unit::Count, Some(self.traces.requests));
        let mut done = 0;
        let mut one = |request: &Request| -> Result<(), BoxError> {
            if done % CHECK_PERIOD == 0 {
                progress.set(done);
                ctx.go_on()?;
            }
            done += 1;
            work(&self.within(request))
        };
        match &self.kept {
            Some(kept) => kept.iter().try_for_each(&mut one)?,
            None => {
                let mut reader = open_all(&self.args.traces, &options(self.args))?;
                let mut batch = Batch::default();
                while reader.read_batch(&mut batch)? > 0 {
                    batch.requests().try_for_each(|request| one(&request))?;
                }
            }
        }
        progress.finish();
        Ok(())
    }

    fn within(&self, request: &Request) -> Request {
        let end = self.ends.get(request.volume.0 as usize).copied().unwrap_or(0);
        let offset = request.offset.min(end);
        Request { offset, length: request.length.min(end - offset), ..*request }
    }
}
