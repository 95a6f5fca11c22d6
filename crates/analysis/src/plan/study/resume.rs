//! The file that keeps the results of the traces that a study has finished: one line of JSON for
//! each.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::Studied;
use crate::AnalysisError;

/// How each line begins.
const BEGINNING: &[u8] = br#"{"asked":"#;

/// The traces in a file. A missing file is created, so that a file which cannot be written is
/// noticed before the first trace is studied.
pub fn kept(file: &Path) -> Result<Vec<Studied>, AnalysisError> {
    let mut opened = open(file).map_err(|source| failed("open", file, source))?;
    let mut text = Vec::new();
    opened.read_to_end(&mut text).map_err(|source| failed("read", file, source))?;
    let mut kept = Vec::new();
    for (number, line) in text[..whole(&text)].split_inclusive(|&byte| byte == b'\n').enumerate() {
        match serde_json::from_slice(line) {
            Ok(studied) => kept.push(studied),
            Err(source) => {
                let path = file.to_path_buf();
                return Err(AnalysisError::NotAStudy { path, line: number + 1, source });
            }
        }
    }
    Ok(kept)
}

/// Appends a trace to the file, durably.
pub fn append(file: &Path, studied: &Studied) -> Result<(), AnalysisError> {
    let mut line = serde_json::to_vec(studied).map_err(AnalysisError::Encode)?;
    line.push(b'\n');
    add(file, &line).map_err(|source| failed("write", file, source))
}

fn add(file: &Path, line: &[u8]) -> std::io::Result<()> {
    let mut out = open(file)?;
    // Overwrite an incomplete line from an interrupted run.
    let mut text = Vec::new();
    out.read_to_end(&mut text)?;
    let whole = whole(&text);
    out.set_len(whole as u64)?;
    out.seek(SeekFrom::Start(whole as u64))?;
    // (A complete last line may lack only its line end.)
    if text[..whole].last().is_some_and(|&byte| byte != b'\n') {
        out.write_all(b"\n")?;
    }
    out.write_all(line)?;
    out.sync_data()
}

fn open(file: &Path) -> std::io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).open(file)
}

/// The length of the complete lines, in bytes. A run that was interrupted while writing leaves an
/// incomplete line; any other text without a line end is not ours and counts as a line.
fn whole(text: &[u8]) -> usize {
    let lines = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let rest = &text[lines..];
    let ours = rest.starts_with(BEGINNING) || BEGINNING.starts_with(rest);
    let is_torn = ours && serde_json::from_slice::<Studied>(rest).is_err();
    if is_torn { lines } else { text.len() }
}

fn failed(what: &'static str, path: &Path, source: std::io::Error) -> AnalysisError {
    AnalysisError::File { what, path: path.to_path_buf(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept_of(text: &str) -> (Result<Vec<Studied>, AnalysisError>, String) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("study.jsonl");
        std::fs::write(&file, text).unwrap();
        let kept = kept(&file);
        (kept, std::fs::read_to_string(&file).unwrap())
    }

    #[test]
    fn a_file_of_something_else_is_refused_and_kept() {
        for text in ["notes to self", "{}", "\"asked\"", "{\"asked\":1}\n", "one\ntwo", "\n"] {
            let (kept, left) = kept_of(text);
            assert!(matches!(kept, Err(AnalysisError::NotAStudy { .. })), "{text:?}: {kept:?}");
            assert_eq!(left, text);
        }
    }

    #[test]
    fn half_a_line_is_passed_over_wherever_it_was_cut() {
        let line = r#"{"asked":{"version":"#;
        for end in 0..=line.len() {
            assert!(kept_of(&line[..end]).0.unwrap().is_empty(), "{}", &line[..end]);
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        for file in [directory.path().to_owned(), directory.path().join("missing/study.jsonl")] {
            assert!(matches!(kept(&file), Err(AnalysisError::File { .. })));
        }
    }
}
