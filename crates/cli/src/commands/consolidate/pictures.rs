//! The answer in pictures: needs and wastage, who wastes whose, and phases against time.

use forebay_locality::Phase;
use forebay_report::{Axis, Bars, Figure, HeatMap, Lines, Report, Section, Shape, Table, Unit};

use super::answer::{Answer, Workload};
use crate::format::{count, percent};

/// Workloads whose phases are drawn; all are in the other formats.
const DRAWN: usize = 24;

impl Answer {
    /// In pictures.
    pub fn report(&self) -> Report {
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
        Report::new("Consolidation").subtitle(self.files.clone()).section(first).section(phases)
    }

    fn bytes(&self, blocks: u64) -> f64 {
        (blocks * self.block_size.bytes()) as f64
    }

    fn needs(&self) -> Figure {
        let c = &self.consolidation;
        let names = self.workloads.iter().map(|w| w.name.clone());
        let sums = ["all, predicted", "all, measured", "the cache"].map(String::from);
        let own = self.workloads.iter().map(|w| w.demand.erss_blocks);
        let own = own.chain([c.erss_blocks(), 0, 0]).map(|b| self.bytes(b));
        let wasted = (0..self.workloads.len()).map(|n| c.suffered_by(n));
        let wasted = wasted.chain([c.wastage_blocks(), 0, 0]).map(|b| self.bytes(b));
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
        let all = 0..self.workloads.len();
        let map = HeatMap::new("Who wastes whose cache", Unit::Bytes)
            .columns("pushed out", names())
            .rows("floods the cache", names());
        let row = |from: usize| {
            let on = all.clone();
            on.map(move |on| match from == on {
                true => f64::NAN,
                false => self.bytes(self.consolidation.pair(from, on)),
            })
        };
        all.clone().fold(map, |map, from| map.row(row(from))).figure()
    }

    fn workload_table(&self) -> Table {
        let table = Table::new().column("workload").number("accesses").number("in use");
        let table = table.number("reused").number("needs").number("reuse rate");
        let table = table.number("flood rate").number("wastes").number("loses");
        self.workloads.iter().enumerate().fold(table, |table, (number, w)| {
            let (c, phase) = (&self.consolidation, w.phase());
            table.row([
                w.name.clone(),
                count(w.accesses),
                self.size(phase.in_use_blocks),
                self.size(phase.reuse_set_blocks),
                self.size(w.demand.erss_blocks),
                percent(w.demand.reuse_rate()),
                percent(w.demand.flood_rate()),
                self.size(c.caused_by(number)),
                self.size(c.suffered_by(number)),
            ])
        })
    }

    /// Phases against time; against accesses where there are no times.
    fn timeline(&self, workload: &Workload) -> Figure {
        let timed = workload.times_s[0].end > workload.times_s[0].start;
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
            let phases = &workload.tree.phases;
            let here: Vec<usize> =
                (0..phases.len()).filter(|&n| depth(phases, n) == level).collect();
            if here.is_empty() {
                break;
            }
            let (mut x, mut y) = (Vec::new(), Vec::new());
            for number in here {
                let phase = &phases[number];
                let span = match timed {
                    true => workload.times_s[number].clone(),
                    false => phase.span.start as f64..phase.span.end as f64,
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
fn depth(phases: &[Phase], number: usize) -> usize {
    std::iter::successors(phases[number].parent, |&p| phases[p].parent).count()
}
