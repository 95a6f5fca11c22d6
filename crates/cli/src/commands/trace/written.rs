//! Reads whole traces batch by batch, and reports traces that were written.

use forebay_analysis::{Meter, Note, Observer, Unit};
use forebay_trace::{Batch, TraceError, TraceReader};
use schemars::JsonSchema;
use serde::Serialize;

use crate::context::Context;
use crate::error::CliError;
use crate::write_files::write_stdout;
use forebay_render::format::counted;

/// Reads a trace to its end and passes every batch to `work`; shows progress in `unit`. Returns the
/// number of requests.
pub fn each_batch<R: TraceReader>(
    reader: &mut R,
    ctx: &Context,
    (label, unit): (&str, Unit),
    mut work: impl FnMut(&Batch, &R) -> Result<(), TraceError>,
) -> Result<u64, CliError> {
    let progress = ctx.progress(label, unit, reader.progress().bytes_total);
    let (mut batch, mut requests) = (Batch::default(), 0);
    loop {
        let read = reader.read_batch(&mut batch);
        ctx.check()?;
        if read? == 0 {
            break;
        }
        work(&batch, reader)?;
        requests += batch.len() as u64;
        progress.set(reader.progress().bytes_read);
    }
    progress.finish();
    Note::from_reader(reader).into_iter().for_each(|note| Observer::note(ctx, note));
    Ok(requests)
}

/// The report of a command that writes a trace.
#[derive(Serialize, JsonSchema)]
pub struct WroteTrace {
    /// Path of the file.
    pub output: String,
    /// Number of requests in the file.
    pub requests: u64,
    /// Size of the file in bytes.
    pub bytes_written: u64,
    /// Number of volumes that have requests.
    pub volumes: u64,
    /// The `--format` that reads the file, if the file does not record the unit of its addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_as: Option<String>,
}

impl WroteTrace {
    /// Prints the report; if that fails, the trace file is kept.
    pub fn print(&self, json: bool) -> Result<(), CliError> {
        let text = if json {
            serde_json::to_string_pretty(self)? + "\n"
        } else {
            let size = forebay_config::Size(self.bytes_written);
            let requests = counted(self.requests, "request");
            format!("{}: {requests}, {size}\n", self.output)
        };
        write_stdout(text.as_bytes()).map_err(|error| error.kept(&self.output))
    }
}

/// This program, for a trace's provenance.
pub const PROGRAM: &str = concat!("forebay ", env!("CARGO_PKG_VERSION"));
