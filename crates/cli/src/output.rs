//! The forms of a result: document, rows and charts, and where each goes.

use std::io::Write;
use std::path::{Path, PathBuf};

use forebay_render::Shown;
use serde::Serialize;

use crate::error::CliError;
use crate::write_files::{write_file, write_parquet, write_stdout};

/// Destination of a document, for commands that have no rows and no charts.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Output")]
pub struct DocumentArgs {
    /// Print one JSON document instead of text
    #[arg(long)]
    pub json: bool,
    /// Write the result to FILE; `-` is standard output [default: -]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Destinations of results, for commands that answer with a document.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    #[command(flatten)]
    pub document: DocumentArgs,
    /// Write the raw rows to FILE as Parquet
    #[arg(long, value_name = "FILE")]
    pub parquet: Option<PathBuf>,
    /// Write charts to FILE as a self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl OutputArgs {
    /// Writes an answer in every requested form.
    pub fn give(&self, answer: &impl Shown) -> Result<(), CliError> {
        let mut outputs = Outputs::default();
        self.give_to(&mut outputs, answer);
        outputs.end()
    }

    /// Writes an answer in every requested form, as part of several outputs.
    ///
    /// The document comes first, so that it is not lost if the page or the rows cannot be written.
    pub fn give_to(&self, outputs: &mut Outputs, answer: &impl Shown) {
        let document = match self.document.json {
            true => self.document.emit(&answer.document(), |_| Ok(())),
            false => self.document.emit(&(), |out| answer.text(out)),
        };
        outputs.add(self.document.destination(), document);
        if let Some(path) = &self.parquet {
            outputs.add(path.display(), write_parquet(path, &answer.rows()));
        }
        if let Some(path) = &self.html {
            outputs.add(path.display(), write_file(path, answer.page().to_html().as_bytes()));
        }
    }
}

/// The results of writing several outputs: every output is tried, and all errors are reported.
#[derive(Default)]
pub struct Outputs {
    written: Vec<String>,
    failures: Vec<CliError>,
}

impl Outputs {
    /// Records whether an output was written.
    pub fn add(&mut self, name: impl std::fmt::Display, done: Result<(), CliError>) {
        match done {
            Ok(()) => self.written.push(name.to_string()),
            Err(failure) => self.failures.push(failure),
        }
    }

    /// Returns an error if an output failed; the error says which outputs were written.
    pub fn end(self) -> Result<(), CliError> {
        match CliError::all(self.failures) {
            None => Ok(()),
            Some(failure) if self.written.is_empty() => Err(failure),
            Some(failure) => Err(failure.kept(self.written.join(", "))),
        }
    }
}

impl DocumentArgs {
    /// Writes `document` as JSON if requested; otherwise writes the text that `human` produces.
    pub fn emit<T: Serialize>(
        &self,
        document: &T,
        human: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    ) -> Result<(), CliError> {
        let mut bytes = Vec::new();
        if self.json {
            serde_json::to_writer_pretty(&mut bytes, document)?;
            bytes.push(b'\n');
        } else {
            human(&mut bytes)?;
        }
        match self.file() {
            Some(path) => write_file(path, &bytes),
            None => write_stdout(&bytes),
        }
    }

    /// The file that the document goes to; `None` for standard output.
    pub fn file(&self) -> Option<&Path> {
        self.output.as_deref().filter(|path| path.as_os_str() != "-")
    }

    /// The destination of the document, for messages.
    fn destination(&self) -> String {
        self.file().map_or("the result on standard output".to_owned(), |path| {
            format!("the result in {}", path.display())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_goes_to_the_file_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.json");
        let args = DocumentArgs { json: true, output: Some(path.clone()) };
        args.emit(&serde_json::json!({"requests": 3}), |_| unreachable!()).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "{\n  \"requests\": 3\n}\n");
        assert_eq!(dir.path().read_dir().unwrap().count(), 1, "a temporary file is left behind");
    }

    #[test]
    fn a_directory_that_does_not_exist_is_named() {
        let args = DocumentArgs { output: Some("/nonexistent/x".into()), ..Default::default() };
        let error = args.emit(&1, |w| write!(w, "x")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/x"), "{error}");
    }
}
