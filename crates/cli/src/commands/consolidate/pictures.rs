//! The answer in pictures: needs and wastage, who wastes whose, and phases against time.

use forebay_config::Size;
use forebay_report::{Axis, Bars, Figure, HeatMap, Lines, Report, Section, Shape, Table, Unit};

use super::answer::Answer;
use super::document::{Document, PhaseDocument, WorkloadDocument};
use crate::format::{count, percent};

/// Workloads whose phases are drawn; all are in the other formats.
const DRAWN: usize = 24;

impl Answer {
    /// In pictures.
    pub fn report(&self) -> Report {
        let report = Report::new("Consolidation").subtitle(self.files.clone());
        self.document().sections().into_iter().fold(report, Report::section)
    }
}

impl Document {
    /// The sections of a page.
    pub fn sections(&self) -> Vec<Section> {
        let mut first = Section::new("Do they fit?").facts(self.facts()).figure(self.needs());
        if self.workloads.len() > 1 {
            first = first.figure(self.miss_ratios()).figure(self.wastage());
        }
        first = first.table(self.workload_table());
        let mut phases = Section::new("Phases").text(
            "A workload does one thing for a while and then another. Each line is a phase, from \
             its beginning to its end, at the size of cache that it needs; phases nested in it \
             are lines of the next colour. A phase that needs only one block reuses nothing.",
        );
        for workload in self.workloads.iter().take(DRAWN) {
            phases = phases.figure(self.timeline(workload));
        }
        if self.workloads.len() > DRAWN {
            let more = self.workloads.len() - DRAWN;
            phases = phases.text(format!("{more} workloads more are not drawn."));
        }
        vec![first, phases]
    }

    /// Facts in words, for text and page.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = vec![("cache", self.size(self.size_blocks))];
        if self.workloads.len() > 1 {
            let (own, wasted) = (self.size(self.erss_blocks), self.size(self.wastage_blocks));
            facts.push(("measured", self.verdict(self.simulated_isolation_blocks)));
            facts.push(("predicted", self.verdict(self.needed_blocks)));
            let off = self.isolation_error.map_or(String::new(), |error| {
                let side = if error < 0.0 { "below" } else { "above" };
                format!(", {} {side} what was measured", percent(error.abs()))
            });
            facts.push(("the prediction", format!("{own} for themselves, {wasted} wasted{off}")));
            facts.push(("merged trace needs", self.size(self.simulated_blocks)));
        } else {
            facts.push(("predicted", self.verdict(self.needed_blocks)));
        }
        let large = self.workloads.iter().filter(|w| !w.fits_alone).map(|w| w.name.as_str());
        let large: Vec<&str> = large.collect();
        if !large.is_empty() {
            facts.push(("too large alone", large.join(", ")));
        }
        if let Some(period) = self.migration_period_s {
            facts.push(("blocks move every", Unit::Seconds.show(period)));
        }
        facts.push(("block size", Size(self.block_size).to_string()));
        facts
    }

    /// What it means that `needed` blocks are needed.
    fn verdict(&self, needed: u64) -> String {
        let (needs, verb) =
            (self.size(needed), if self.workloads.len() > 1 { "they" } else { "it" });
        let s = if self.workloads.len() > 1 { "" } else { "s" };
        match self.size_blocks.checked_sub(needed) {
            Some(spare) => format!("{verb} fit{s}: {needs} needed, {} to spare", self.size(spare)),
            None => {
                let missing = self.size(needed - self.size_blocks);
                let negated = if self.workloads.len() > 1 { "do not fit" } else { "does not fit" };
                format!("{verb} {negated}: {needs} needed, {missing} missing")
            }
        }
    }

    /// A number of blocks as people read sizes.
    fn size(&self, blocks: u64) -> String {
        Unit::Bytes.show(self.bytes(blocks))
    }

    fn bytes(&self, blocks: u64) -> f64 {
        blocks as f64 * self.block_size as f64
    }

    /// What one workload wastes of what another needs.
    fn pair(&self, from: &WorkloadDocument, on: &WorkloadDocument) -> u64 {
        let of = self.pairs.iter().find(|pair| pair.from == from.name && pair.on == on.name);
        of.map_or(0, |pair| pair.wastage_blocks)
    }

    fn needs(&self) -> Figure {
        let names = self.workloads.iter().map(|w| w.name.clone());
        let sums = ["all, predicted", "all, measured", "the cache"].map(String::from);
        let own = self.workloads.iter().map(|w| w.erss_blocks);
        let own = own.chain([self.erss_blocks, 0, 0]).map(|b| self.bytes(b));
        let wasted = self.workloads.iter().map(|w| w.wastage_suffered_blocks);
        let wasted = wasted.chain([self.wastage_blocks, 0, 0]).map(|b| self.bytes(b));
        let others = vec![0.0; self.workloads.len() + 1].into_iter();
        let measured = [self.simulated_isolation_blocks, self.size_blocks];
        Bars::new("What each needs", names.chain(sums))
            .axis(Axis::new("size", Unit::Bytes).from_zero())
            .stacked()
            .horizontal()
            .series("by itself", own)
            .series("wasted by the others", wasted)
            .series("as a whole", others.chain(measured.map(|b| self.bytes(b))))
            .figure()
            .caption(
                "Measured is the smallest shared cache in which each workload hits as often as \
                 alone in a cache of what it needs.",
            )
    }

    fn miss_ratios(&self) -> Figure {
        let names = self.workloads.iter().map(|w| w.name.clone());
        Bars::new("Misses in this cache, alone and shared", names)
            .axis(Axis::new("miss ratio", Unit::Fraction).from_zero())
            .horizontal()
            .series("alone", self.workloads.iter().map(|w| w.miss_ratio_alone))
            .series("shared", self.workloads.iter().map(|w| w.miss_ratio_shared))
            .figure()
    }

    fn wastage(&self) -> Figure {
        let names = || self.workloads.iter().map(|w| w.name.clone());
        let map = HeatMap::new("Who wastes whose cache", Unit::Bytes)
            .columns("pushed out", names())
            .rows("floods the cache", names());
        let row = |(number, from): (usize, _)| {
            self.workloads.iter().enumerate().map(move |(n, on)| match n == number {
                true => f64::NAN,
                false => self.bytes(self.pair(from, on)),
            })
        };
        self.workloads.iter().enumerate().fold(map, |map, from| map.row(row(from))).figure()
    }

    fn workload_table(&self) -> Table {
        let table = Table::new().column("workload").number("accesses").number("in use");
        let table = table.number("reused").number("needs").number("reuse rate");
        let table = table.number("flood rate").number("wastes").number("loses");
        self.workloads.iter().fold(table, |table, w| {
            let Some(phase) = w.phases.get(w.phase) else { return table };
            table.row([
                w.name.clone(),
                count(w.accesses),
                self.size(phase.in_use_blocks),
                self.size(phase.reuse_set_blocks),
                self.size(w.erss_blocks),
                percent(w.reuse_rate),
                percent(w.flood_rate),
                self.size(w.wastage_caused_blocks),
                self.size(w.wastage_suffered_blocks),
            ])
        })
    }

    /// Phases against time; against accesses where there are no times.
    fn timeline(&self, workload: &WorkloadDocument) -> Figure {
        let timed = workload.phases.first().is_some_and(|whole| whole.end_s > whole.start_s);
        let axis = match timed {
            true => Axis::new("time", Unit::Seconds),
            false => Axis::new("accesses", Unit::Plain),
        };
        let mut lines = Lines::new(format!("Phases of {}", workload.name)).x(axis).y(Axis::new(
            "needs",
            Unit::Bytes,
        )
        .log());
        for level in 0.. {
            let phases = &workload.phases;
            let here: Vec<usize> =
                (0..phases.len()).filter(|&n| depth(phases, n) == level).collect();
            if here.is_empty() {
                break;
            }
            let (mut x, mut y) = (Vec::new(), Vec::new());
            for number in here {
                let phase = &phases[number];
                let span = match timed {
                    true => phase.start_s..phase.end_s,
                    false => phase.start as f64..(phase.start + phase.accesses) as f64,
                };
                let needs = self.bytes(phase.erss_blocks.max(1));
                x.extend([span.start, span.end, f64::NAN]);
                y.extend([needs, needs, f64::NAN]);
            }
            let name = if level == 0 { "whole".to_string() } else { format!("level {level}") };
            lines = lines.shaped(name, Shape::Spans, x, y);
        }
        lines.figure()
    }
}

/// How many phases a phase is nested in.
fn depth(phases: &[PhaseDocument], number: usize) -> usize {
    // Each stands behind the one around it.
    let around = |n: usize| phases.get(n).and_then(|phase| phase.parent).filter(|&p| p < n);
    std::iter::successors(around(number), |&p| around(p)).count()
}
