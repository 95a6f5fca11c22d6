//! Reading traces on behalf of a command.

use forebay_analysis::{AnalysisError, Described};
use forebay_block::Request;
use forebay_trace::{Batch, TraceReader};

use crate::args::TraceArgs;
use crate::context::Context;
use crate::error::CliError;

/// Reads traces from beginning to end and hands every request to `work`, reading ahead in a
/// thread of its own. Tells the user what was skipped.
pub fn read_traces(
    args: &TraceArgs,
    ctx: &Context,
    work: impl FnMut(&Request) -> Result<(), CliError>,
) -> Result<Described, CliError> {
    args.source().read(ctx, work)
}

/// The same, for work that takes many requests at once.
pub fn read_trace_batches(
    args: &TraceArgs,
    ctx: &Context,
    mut work: impl FnMut(&Batch) -> Result<(), CliError>,
) -> Result<Described, CliError> {
    args.source().read_batches(ctx, |batch, _| work(batch))
}

/// Opens the traces that a command line names, and says what is doubtful about them.
pub fn open_traces(args: &TraceArgs, ctx: &Context) -> Result<Box<dyn TraceReader>, AnalysisError> {
    args.source().open(ctx)
}
