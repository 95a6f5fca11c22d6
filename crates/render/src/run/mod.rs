//! Shows a replay or a synthetic load.

mod document;
mod pictures;
mod text;

use std::io::Write;

use forebay_analysis::Columns;
use forebay_report::Report;
use serde::Serialize;

use crate::{Shown, write_facts};

pub use document::{Document, Echo, Row, RunRow};
pub(crate) use pictures::devices;

impl Shown for Document {
    fn document(&self) -> impl Serialize {
        self
    }

    fn rows(&self) -> Columns {
        document::row(self)
    }

    fn page(&self) -> Report {
        pictures::report(self)
    }

    fn text(&self, out: &mut dyn Write) -> std::io::Result<()> {
        write_facts(&text::facts(self), out)?;
        write!(out, "\n{}", text::text(self))
    }
}
