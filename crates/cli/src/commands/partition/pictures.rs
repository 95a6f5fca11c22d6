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

/// What volumes are compared by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compared {
    Latency,
    Iops,
    Hits,
}

/// A bar for each tier, flash and memory, cut into the shares of volumes and what is left over.
pub fn shares_of(shares: &[(String, [u64; 2])], all: [u64; 2], left: [u64; 2]) -> Figure {
    let tiers: Vec<(usize, &str)> =
        ["flash", "memory"].into_iter().enumerate().filter(|(tier, _)| all[*tier] > 0).collect();
    let mut bars = Bars::new("Who gets how much", tiers.iter().map(|t| t.1))
        .axis(Axis::new("size", Unit::Bytes))
        .stacked()
        .horizontal();
    for (name, bytes) in shares {
        bars = bars.series(name, tiers.iter().map(|(tier, _)| bytes[*tier] as f64));
    }
    if left != [0; 2] {
        bars = bars.series("left over", tiers.iter().map(|(tier, _)| left[*tier] as f64));
    }
    bars.figure()
}

/// What matters for the goal, volume by volume, for every division.
pub fn compared_of(
    by: Compared,
    volumes: impl Iterator<Item = String>,
    series: impl Iterator<Item = (String, Vec<f64>)>,
) -> Figure {
    let (title, unit) = match by {
        Compared::Latency => ("mean latency", Unit::Micros),
        Compared::Iops => ("requests per second", Unit::PerSecond),
        Compared::Hits => ("hit ratio", Unit::Fraction),
    };
    let bars =
        Bars::new(format!("By volume: {title}"), volumes).axis(Axis::new(title, unit).from_zero());
    series.fold(bars, |bars, (name, values)| bars.series(name, values)).figure()
}

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

    fn shares(&self) -> Figure {
        let bytes = |sizes: &Sizes| [sizes.flash_bytes, sizes.dram_bytes];
        let shares = self.names().zip(self.found().0.iter().map(bytes)).collect::<Vec<_>>();
        shares_of(&shares, bytes(&self.problem.options().sizes), bytes(&self.left()))
    }

    fn compared(&self) -> Figure {
        let (compared, of): (_, fn(&Outcome) -> f64) = match self.problem.options().goal {
            Goal::Latency => (Compared::Latency, |o| o.latency_us),
            Goal::Iops(_) => (Compared::Iops, |o| o.iops),
            Goal::Hits | Goal::Ppc => (Compared::Hits, Outcome::hit_ratio),
        };
        let series = self.divisions.iter().flat_map(|division| {
            [("predicted", &division.predicted), ("simulated", &division.simulated)].map(
                |(how, outcomes)| {
                    let name = format!("{}, {how}", label(division.name));
                    Some((name, outcomes.as_ref()?.iter().map(of).collect::<Vec<f64>>()))
                },
            )
        });
        compared_of(compared, self.names(), series.flatten())
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
