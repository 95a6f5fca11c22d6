//! The answer for a terminal: the verdict, the workloads, who wastes whose cache, the phases.

use std::io::Write;

use forebay_locality::PhaseState;

use super::answer::{Answer, Workload};
use crate::format::{count, percent, table};

/// Pairs shown; all are in the JSON document.
const PAIRS: usize = 10;
/// Lines of phases shown for a workload.
const PHASES: usize = 12;

impl Answer {
    /// For a terminal.
    pub fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        for (name, value) in self.document().facts() {
            writeln!(out, "{name:<20} {value}")?;
        }
        write!(out, "\n{}", self.table())?;
        writeln!(out, "{}", self.of_phases())?;
        if self.workloads.len() > 1 {
            writeln!(out, "{}", self.misses())?;
        }
        let pairs = self.pairs();
        if !pairs.is_empty() {
            let rows: Vec<Vec<String>> = (pairs.iter().take(PAIRS))
                .map(|&(from, on, blocks)| {
                    let (from, on) = (&self.workloads[from], &self.workloads[on]);
                    vec![from.name.clone(), on.name.clone(), self.size(blocks)]
                })
                .collect();
            write!(out, "{}", table(&["floods the cache", "pushes out", "wastes"], &rows))?;
            match pairs.len() - rows.len() {
                0 => writeln!(out)?,
                more => writeln!(out, "and {more} pairs more, with less\n")?,
            }
        }
        let phases: Vec<String> = self.workloads.iter().map(|w| self.phases(w)).collect();
        write!(out, "{}", phases.join("\n"))
    }

    fn table(&self) -> String {
        let rows: Vec<Vec<String>> = (self.workloads.iter())
            .map(|w| {
                let phase = w.phase();
                vec![
                    w.name.clone(),
                    count(w.accesses),
                    self.size(phase.in_use_blocks),
                    self.size(phase.reuse_set_blocks),
                    self.size(w.demand.erss_blocks),
                    percent(w.demand.reuse_rate()),
                    percent(w.demand.flood_rate()),
                ]
            })
            .collect();
        let heads =
            ["workload", "accesses", "in use", "reused", "needs", "reuse rate", "flood rate"];
        table(&heads, &rows)
    }

    /// Which numbers of the table are of a phase only; nothing where all are of whole workloads.
    fn of_phases(&self) -> String {
        let in_part = self.workloads.iter().filter(|w| w.phase().state != PhaseState::Whole);
        let names: Vec<&str> = in_part.map(|w| w.name.as_str()).collect();
        match names.as_slice() {
            [] => String::new(),
            names => format!(
                "accesses: of the whole workload; all else: of the phase provided for, which is \
                 not all of {}\n",
                names.join(", ")
            ),
        }
    }

    /// What each misses, by itself and beside the others.
    fn misses(&self) -> String {
        let c = &self.consolidation;
        let rows: Vec<Vec<String>> = (self.workloads.iter().enumerate())
            .map(|(number, w)| {
                vec![
                    w.name.clone(),
                    percent(w.miss_ratio_erss),
                    percent(w.miss_ratio_alone),
                    percent(w.miss_ratio_shared),
                    self.size(c.caused_by(number)),
                    self.size(c.suffered_by(number)),
                ]
            })
            .collect();
        let heads =
            ["misses of", "in what it needs", "alone in the cache", "shared", "wastes", "loses"];
        table(&heads, &rows)
    }

    /// Its phases that are long enough to be provided for, nested ones further to the right,
    /// repetitions on one line.
    fn phases(&self, workload: &Workload) -> String {
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
                PhaseState::In => format!("fits in {}", self.size(phase.found_blocks)),
                PhaseState::Out => format!("not in {}", self.size(phase.found_blocks)),
            };
            let depth = std::iter::successors(phase.parent, |&p| tree.phases[p].parent).count();
            rows.push(vec![
                format!("{}{label}", "  ".repeat(depth)),
                if weight > 1 { format!("{weight} times") } else { String::new() },
                count(phase.accesses()),
                format!("{:.1} to {:.1} s", time.start, time.end),
                self.size(phase.erss_blocks),
                if number == workload.largest { "provided for" } else { "" }.to_string(),
            ]);
        }
        let mut text = table(&["phases of", "", "accesses", "time", "needs", ""], &rows);
        if unseen > 0 {
            text += &format!("and {unseen} shorter ones\n");
        }
        text
    }
}
