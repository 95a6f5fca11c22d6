//! A synthetic workload for the examples; a real workload is any file that `forebay_trace` reads.

use std::error::Error;

use forebay_analysis::Traces;
use forebay_trace::{Batch, Spec, Synth, TraceReader, create};
use tempfile::TempDir;

/// A trace of `spec` in a temporary directory, which is removed when the first part of the result
/// is dropped.
pub fn synthetic(spec: &str) -> Result<(TempDir, Traces), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("synthetic.parquet");
    let mut synth = Synth::new(&Spec::parse(spec)?)?;
    let (mut writer, mut batch) = (create(&file, None)?, Batch::default());
    while synth.read_batch(&mut batch)? > 0 {
        writer.write_batch(&batch, synth.metadata())?;
    }
    writer.finish(&synth.metadata().clone())?;
    Ok((directory, file.as_path().into()))
}
