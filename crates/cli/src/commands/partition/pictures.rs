//! What a division says, as pictures.

use forebay_locality::MissRatioCurve;
use forebay_plan::partition::{Goal, Outcome, Sizes};
use forebay_report::{Axis, Bars, Figure, Lines, Report, Section, Shape, Unit};

use super::answer::Answer;
use super::text::label;

/// Points of a curve.
const POINTS: usize = 300;
/// Curves of one figure; further volumes go into the next.
const CURVES_MAX: usize = 8;

/// The size of one tier.
type Of = fn(&Sizes) -> u64;

impl Answer<'_> {
    pub fn report(&self) -> Report {
        let files: Vec<String> =
            self.args.traces.traces.iter().map(|path| path.display().to_string()).collect();
        let mut found = Section::new("Shares").table(self.table());
        for line in self.warnings().into_iter().chain(self.remarks()) {
            found = found.text(line);
        }
        found = found.figure(self.shares()).table(self.comparison()).figure(self.compared());
        let mut curves = Section::new("Why").text(
            "A request hits only if all its blocks do, so these curves may bulge where those of \
             blocks sag: the first half of a volume can be worth much less than the second. A \
             share is well chosen where no two volumes would gain by trading a part of theirs.",
        );
        let volumes: Vec<usize> = (0..self.known.volumes.len()).collect();
        for group in volumes.chunks(CURVES_MAX) {
            curves = curves.figure(self.miss_ratios(group)).figure(self.latencies(group));
        }
        let assumed = Section::new("Taken for granted").text(self.assumed().join(". ") + ".");
        Report::new("How the cache is divided")
            .subtitle(files.join(", "))
            .section(Section::new("The workload").facts(self.facts()))
            .section(found)
            .section(curves)
            .section(assumed)
    }

    fn names(&self) -> impl Iterator<Item = String> + '_ {
        self.known.volumes.iter().map(|v| v.name.clone())
    }

    /// A bar for each tier, cut into shares.
    fn shares(&self) -> Figure {
        let (sizes, ..) = self.found();
        let (all, left) = (self.problem.options().sizes, self.left());
        let tiers: Vec<(&str, Of)> =
            [("flash", (|s: &Sizes| s.flash_bytes) as Of), ("memory", |s: &Sizes| s.dram_bytes)]
                .into_iter()
                .filter(|(_, of)| of(&all) > 0)
                .collect();
        let mut bars = Bars::new("Who gets how much", tiers.iter().map(|t| t.0))
            .axis(Axis::new("size", Unit::Bytes))
            .stacked()
            .horizontal();
        for (name, sizes) in self.names().zip(sizes) {
            bars = bars.series(name, tiers.iter().map(|(_, of)| of(sizes) as f64));
        }
        if left != Sizes::default() {
            bars = bars.series("left over", tiers.iter().map(|(_, of)| of(&left) as f64));
        }
        bars.figure()
    }

    /// What matters for the goal, volume by volume, for every division.
    fn compared(&self) -> Figure {
        let (title, unit, of): (_, _, fn(&Outcome) -> f64) = match self.problem.options().goal {
            Goal::Latency => ("mean latency", Unit::Micros, |o| o.latency_us),
            Goal::Iops(_) => ("requests per second", Unit::PerSecond, |o| o.iops),
            Goal::Hits | Goal::Ppc => ("hit ratio", Unit::Fraction, Outcome::hit_ratio),
        };
        let mut bars = Bars::new(format!("By volume: {title}"), self.names())
            .axis(Axis::new(title, unit).from_zero());
        for division in &self.divisions {
            for (how, outcomes) in
                [("predicted", &division.predicted), ("simulated", &division.simulated)]
            {
                if let Some(outcomes) = outcomes {
                    let name = format!("{}, {how}", label(division));
                    bars = bars.series(name, outcomes.iter().map(of));
                }
            }
        }
        bars.figure()
    }

    /// Miss ratios by size, with the share of each.
    fn miss_ratios(&self, group: &[usize]) -> Figure {
        let block = self.args.block_size.bytes() as f64;
        let (sizes, predicted, _) = self.found();
        let mut lines = Lines::new("Miss ratio by size of the share, by request")
            .x(Axis::new("memory and flash", Unit::Bytes))
            .y(Axis::new("miss ratio", Unit::Fraction).from_zero());
        for &v in group {
            let curve = MissRatioCurve::new(&self.problem.curve(v).own, POINTS);
            let x = curve.points.iter().map(|p| p.size_blocks as f64 * block);
            let y = curve.points.iter().map(|p| p.miss_ratio);
            let first = (0.0, 1.0);
            lines = lines.line(
                &self.known.volumes[v].name,
                std::iter::once(first.0).chain(x),
                std::iter::once(first.1).chain(y),
            );
        }
        let chosen = |v: usize| (sizes[v].dram_bytes + sizes[v].flash_bytes) as f64;
        lines
            .shaped(
                "share found",
                Shape::Points,
                group.iter().map(|&v| chosen(v)),
                group.iter().map(|&v| 1.0 - predicted[v].hit_ratio()),
            )
            .figure()
            .caption("The points are the shares found.")
    }

    /// Mean latency by flash, the memory of each volume being as it is.
    fn latencies(&self, group: &[usize]) -> Figure {
        let options = self.problem.options();
        let (sizes, predicted, _) = self.found();
        let by_flash = options.sizes.flash_bytes > 0;
        let (all, name) = match by_flash {
            true => (options.sizes.flash_bytes, "flash"),
            false => (options.sizes.dram_bytes, "memory"),
        };
        let mut lines = Lines::new(format!("Mean latency by {name}"))
            .x(Axis::new(format!("{name} of the volume"), Unit::Bytes))
            .y(Axis::new("mean latency", Unit::Micros).from_zero());
        for &v in group {
            let bytes: Vec<u64> = (0..=POINTS as u64)
                .map(|i| (u128::from(all) * u128::from(i) / POINTS as u128) as u64)
                .collect();
            let us = |&bytes: &u64| {
                let mut sizes = sizes[v];
                *(if by_flash { &mut sizes.flash_bytes } else { &mut sizes.dram_bytes }) = bytes;
                self.problem.predict(v, sizes).latency_us
            };
            lines = lines.line(
                &self.known.volumes[v].name,
                bytes.iter().map(|&b| b as f64),
                bytes.iter().map(us),
            );
        }
        let chosen = |v: usize| if by_flash { sizes[v].flash_bytes } else { sizes[v].dram_bytes };
        lines
            .shaped(
                "share found",
                Shape::Points,
                group.iter().map(|&v| chosen(v) as f64),
                group.iter().map(|&v| predicted[v].latency_us),
            )
            .figure()
            .caption("By the latencies that the division was predicted with.")
    }
}
