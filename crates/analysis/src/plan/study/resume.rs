//! The file that keeps the traces that a study has finished: a line of JSON for each.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::Studied;
use crate::AnalysisError;

/// The traces that a file has; none if it is not there.
pub fn kept(file: &Path) -> Result<Vec<Studied>, AnalysisError> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(failed("read", file, source)),
    };
    let mut kept = Vec::new();
    for (number, line) in text.lines().enumerate() {
        match serde_json::from_str(line) {
            Ok(studied) => kept.push(studied),
            // A run that was ended while it wrote leaves half a line.
            Err(_) if number + 1 == text.lines().count() && !text.ends_with('\n') => {}
            Err(source) => {
                let path = file.to_path_buf();
                return Err(AnalysisError::NotAStudy { path, line: number + 1, source });
            }
        }
    }
    Ok(kept)
}

/// Adds a trace to the file, durably.
pub fn append(file: &Path, studied: &Studied) -> Result<(), AnalysisError> {
    let mut line = serde_json::to_vec(studied).map_err(AnalysisError::Encode)?;
    line.push(b'\n');
    add(file, &line).map_err(|source| failed("write", file, source))
}

fn add(file: &Path, line: &[u8]) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let mut out = options.read(true).write(true).create(true).truncate(false).open(file)?;
    // Half a line of a run that was ended is written over.
    let mut text = Vec::new();
    out.read_to_end(&mut text)?;
    let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    out.set_len(whole as u64)?;
    out.seek(SeekFrom::Start(whole as u64))?;
    out.write_all(line)?;
    out.sync_data()
}

fn failed(what: &'static str, path: &Path, source: std::io::Error) -> AnalysisError {
    AnalysisError::File { what, path: path.to_path_buf(), source }
}
