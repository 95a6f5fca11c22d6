//! A configured cache in virtual time: [`Simulated`]; and several policies compared: [`Compared`].

mod pictures;
mod policies;
mod text;

use std::io::Write;

use forebay_analysis::Columns;
use forebay_analysis::simulation::Answer;
use forebay_report::Report;
use serde::Serialize;

use crate::{Shown, write_facts, write_table};

pub use policies::Compared;

/// A simulation.
pub struct Simulated<'a> {
    /// The answer.
    pub answer: &'a Answer,
}

impl Shown for Simulated<'_> {
    fn document(&self) -> impl Serialize {
        self.answer.document()
    }

    fn rows(&self) -> Columns {
        self.answer.rows()
    }

    fn page(&self) -> Report {
        pictures::report(self.answer)
    }

    fn text(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let answer = self.answer;
        write_facts(&text::facts(answer), out)?;
        if answer.is_timed() {
            write_table(&text::requests(answer), out)?;
            write_table(&text::devices(answer), out)?;
        }
        if answer.result.volumes.len() > 1 {
            write_table(&text::volumes(answer), out)?;
        }
        Ok(())
    }
}
