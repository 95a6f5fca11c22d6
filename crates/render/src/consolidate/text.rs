//! The answer for a terminal: the verdict, the workloads, which workload wastes which cache, and
//! the phases.

use std::io::Write;

use forebay_analysis::Columns;
use forebay_analysis::consolidate::{Answer, Document, Workload};
use forebay_locality::PhaseState;
use forebay_report::{Report, Table, Unit};
use serde::Serialize;

use super::pictures::{facts, little_gain, sections};
use crate::format::{count, percent};
use crate::{Shown, write_facts};

/// Maximum number of pairs to show; the JSON document contains all.
const PAIRS: usize = 10;
/// Maximum number of lines to show for the phases of a workload.
const PHASES: usize = 12;

/// Shows whether workloads fit together.
pub struct Consolidation<'a> {
    answer: &'a Answer,
    document: Document,
    files: String,
}

impl<'a> Consolidation<'a> {
    /// Creates the view of an answer about these files.
    pub fn new(answer: &'a Answer, files: impl Into<String>) -> Self {
        Self { answer, document: answer.document(), files: files.into() }
    }
}

impl Shown for Consolidation<'_> {
    fn document(&self) -> impl Serialize {
        &self.document
    }

    fn rows(&self) -> Columns {
        self.answer.rows()
    }

    fn page(&self) -> Report {
        let report = Report::new("Consolidation").subtitle(&self.files);
        sections(&self.document).into_iter().fold(report, Report::section)
    }

    fn text(&self, out: &mut dyn Write) -> std::io::Result<()> {
        write_facts(&facts(&self.document), out)?;
        print(self.answer, &little_gain(&self.document), out)
    }
}

fn print(answer: &Answer, remarks: &[String], out: &mut dyn Write) -> std::io::Result<()> {
    write!(out, "\n{}", workloads(answer))?;
    writeln!(out, "{}", of_phases(answer))?;
    for remark in remarks {
        writeln!(out, "{remark}\n")?;
    }
    if answer.workloads.len() > 1 {
        writeln!(out, "{}", misses(answer))?;
    }
    let pairs = answer.pairs();
    if !pairs.is_empty() {
        let shown = &pairs[..pairs.len().min(PAIRS)];
        let name = |workload: usize| answer.workloads[workload].name.clone();
        let table = Table::from_items(shown)
            .column("floods the cache", |pair| name(pair.0))
            .number("pushes out", |pair| name(pair.1))
            .number("wastes", |pair| size(answer, pair.2));
        write!(out, "{}", table.to_text())?;
        match pairs.len() - shown.len() {
            0 => writeln!(out)?,
            more => writeln!(out, "and {more} more pairs that waste less\n")?,
        }
    }
    let phases: Vec<String> = answer.workloads.iter().map(|w| phases(answer, w)).collect();
    write!(out, "{}", phases.join("\n"))
}

fn workloads(answer: &Answer) -> String {
    let size = |blocks: u64| size(answer, blocks);
    Table::from_items(&answer.workloads)
        .column("workload", |w| w.name.clone())
        .number("accesses", |w| count(w.accesses))
        .number("in use", |w| size(w.phase().in_use_blocks))
        .number("reused", |w| size(w.phase().reuse_set_blocks))
        .number("needs", |w| size(w.demand.erss_blocks))
        .number("reuse rate", |w| percent(w.demand.reuse_rate()))
        .number("flood rate", |w| percent(w.demand.flood_rate()))
        .to_text()
}

/// Says which numbers of the table describe only a phase; empty if all describe whole workloads.
fn of_phases(answer: &Answer) -> String {
    let in_part = answer.workloads.iter().filter(|w| w.phase().state != PhaseState::Whole);
    let names: Vec<&str> = in_part.map(|w| w.name.as_str()).collect();
    match names.as_slice() {
        [] => String::new(),
        names => format!(
            "accesses are counted over the whole workload; all other figures describe the phase \
             for which the cache is sized, which is only part of {}\n",
            names.join(", ")
        ),
    }
}

/// The miss ratios of each workload, alone and with the others.
fn misses(answer: &Answer) -> String {
    let c = &answer.consolidation;
    let needs = match answer.marginal {
        true => "in a cache of its ERSS",
        false => "in the cache it needs",
    };
    let cache = size(answer, answer.size_blocks);
    Table::from_items(answer.workloads.iter().enumerate())
        .column("misses of", |(_, w)| w.name.clone())
        .number(needs, |(_, w)| percent(w.miss_ratio_erss))
        .number(format!("alone in {cache}"), |(_, w)| percent(w.miss_ratio_alone))
        .number(format!("sharing {cache}"), |(_, w)| percent(w.miss_ratio_shared))
        .number("wastes (of others)", |(number, _)| size(answer, c.caused_by(*number)))
        .number("loses (to others)", |(number, _)| size(answer, c.suffered_by(*number)))
        .to_text()
}

/// The workload's phases that are long enough to get cache space; nested phases are indented, and
/// repetitions share a line.
fn phases(answer: &Answer, workload: &Workload) -> String {
    let tree = &workload.tree;
    let mut rows = Vec::new();
    let mut unseen = 0;
    for (number, weight) in tree.repetitions() {
        let phase = &tree.phases[number];
        if !tree.is_long(phase) || rows.len() == PHASES {
            unseen += weight;
            continue;
        }
        let time = &workload.times_s[number];
        let label = match phase.state {
            PhaseState::Whole => workload.name.clone(),
            PhaseState::In => format!("fits in {}", size(answer, phase.found_blocks)),
            PhaseState::Out => format!("not in {}", size(answer, phase.found_blocks)),
        };
        let depth = std::iter::successors(phase.parent, |&p| tree.phases[p].parent).count();
        rows.push(vec![
            format!("{}{label}", "  ".repeat(depth)),
            if weight > 1 { format!("{weight} times") } else { String::new() },
            count(phase.accesses()),
            format!("{:.1} to {:.1} s", time.start, time.end),
            size(answer, phase.erss_blocks),
            if number == workload.largest { "used for sizing" } else { "" }.to_string(),
        ]);
    }
    let head = Table::new().column("phases of").number("").number("accesses").number("time");
    let table = rows.into_iter().fold(head.number("needs").number(""), Table::row);
    let mut text = table.to_text();
    if unseen > 0 {
        text += &format!("and {unseen} more phases\n");
    }
    text
}

/// Formats a number of blocks as a size.
fn size(answer: &Answer, blocks: u64) -> String {
    Unit::Bytes.show((blocks * answer.block_size.bytes()) as f64)
}
