//! Renders answers in all their forms: JSON, text, an HTML page and Parquet.
//!
//! Each kind of answer has a module, with a type that implements [`Shown`]. The measurements are in
//! `forebay_analysis`, `forebay_replay` and `forebay_trace`; this crate chooses words, units,
//! tables and figures. It reads no files except the documents of an [`overview`], and writes none:
//! the caller decides where each form goes.
//!
//! ```
//! use forebay_analysis::{Traces, Unobserved, curve};
//! use forebay_render::{Shown, curve::Curves};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let trace = std::env::temp_dir().join(format!("render-{}.csv", std::process::id()));
//! # std::fs::write(&trace, "time_ns,volume,op,offset,length\n0,a,read,0,4096\n1,a,read,0,4096\n")?;
//! let question = curve::Question::new(Traces::from(trace.as_path()));
//! let answer = question.ask(&Unobserved::default())?;
//! let shown = Curves::new(&answer, "trace.csv");
//! assert!(shown.to_text().contains("miss ratio"));
//! assert!(shown.page().to_html().contains("Plotly.newPlot"));
//! # std::fs::remove_file(&trace)?;
//! # Ok(())
//! # }
//! ```

pub mod consolidate;
pub mod curve;
pub mod format;
mod latency_table;
pub mod miniature;
pub mod overview;
mod parquet;
pub mod partition;
pub mod plan;
pub mod policy_curves;
pub mod run;
pub mod sample;
pub mod simulation;
pub mod trace;

use std::io::{self, Write};

use forebay_analysis::Columns;
use forebay_report::{Report, Table};
use serde::Serialize;

pub use parquet::{ParquetError, parquet};

/// An answer in each of its forms. Each method computes only its own form.
pub trait Shown {
    /// The JSON document, for programs.
    fn document(&self) -> impl Serialize;

    /// Writes the answer as text, for a terminal.
    ///
    /// # Errors
    /// Returns the errors of `out`.
    fn text(&self, out: &mut dyn Write) -> io::Result<()>;

    /// The raw rows.
    fn rows(&self) -> Columns;

    /// The HTML page with the charts.
    fn page(&self) -> Report;

    /// What [`text`](Self::text) writes.
    fn to_text(&self) -> String {
        let mut bytes = Vec::new();
        // Writing to memory does not fail.
        let _ = self.text(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Names with short values.
type Facts = Vec<(&'static str, String)>;

/// Writes facts for a terminal, one per line.
fn write_facts(facts: &[(impl AsRef<str>, String)], out: &mut dyn Write) -> io::Result<()> {
    facts.iter().try_for_each(|(name, value)| writeln!(out, "{:<20} {value}", name.as_ref()))
}

/// A part of an answer as text.
enum Part {
    Line(String),
    Table(Table),
}

/// Writes lines and tables for a terminal.
fn write_parts(parts: &[Part], out: &mut dyn Write) -> io::Result<()> {
    parts.iter().try_for_each(|part| match part {
        Part::Line(line) => writeln!(out, "{line}"),
        Part::Table(table) => writeln!(out, "{}", table.to_text().trim_end()),
    })
}

/// Writes a table for a terminal, after an empty line.
fn write_table(table: &Table, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\n{}", table.to_text().trim_end())
}
