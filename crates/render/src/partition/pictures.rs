//! A division as charts.

use forebay_analysis::partition::VolumeCurves;
use forebay_plan::partition::{Goal, Outcome, Sizes};
use forebay_report::{Axis, Bars, Figure, Lines, Report, Section, Shape, Unit};

use super::text::{Division, label};

/// Maximum number of curves in a figure; the other volumes get further figures.
const CURVES_MAX: usize = 8;

/// The measure by which volumes are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compared {
    Latency,
    Iops,
    Hits,
}

/// A bar for each tier (flash and memory), divided into the volumes' shares and unused space.
pub fn shares_of(shares: &[(String, [u64; 2])], all: [u64; 2], left: [u64; 2]) -> Figure {
    let tiers: Vec<(usize, &str)> =
        ["flash", "memory"].into_iter().enumerate().filter(|(tier, _)| all[*tier] > 0).collect();
    let mut bars = Bars::new("Share of each volume", tiers.iter().map(|t| t.1))
        .axis(Axis::new("size", Unit::Bytes))
        .stacked()
        .horizontal();
    for (name, bytes) in shares {
        bars = bars.series(name, tiers.iter().map(|(tier, _)| bytes[*tier] as f64));
    }
    if left != [0; 2] {
        bars = bars.series("unused", tiers.iter().map(|(tier, _)| left[*tier] as f64));
    }
    bars.figure()
}

/// The measure that matters for the goal, for every volume and division.
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

impl Division<'_> {
    pub(super) fn report(&self) -> Report {
        let mut found = Section::new("Shares").table(self.table());
        for line in self.warnings().into_iter().chain(self.remarks()) {
            found = found.text(line);
        }
        found = found.figure(self.shares()).table(self.comparison()).figure(self.compared());
        let curves =
            why(&self.answer.curves(), self.answer.problem.options().sizes.flash_bytes > 0);
        let assumed = Section::new("Assumptions").text(self.answer.assumed().join(". ") + ".");
        Report::new("How the cache is divided")
            .subtitle(self.answer.question.traces.names())
            .section(Section::new("The workload").facts(self.facts()))
            .section(found)
            .section(curves)
            .section(assumed)
    }

    fn names(&self) -> impl Iterator<Item = String> + '_ {
        self.answer.workload.known.volumes.iter().map(|v| v.name.clone())
    }

    fn shares(&self) -> Figure {
        let bytes = |sizes: &Sizes| [sizes.flash_bytes, sizes.dram_bytes];
        let shares = self.names().zip(self.answer.found().0.iter().map(bytes)).collect::<Vec<_>>();
        shares_of(&shares, bytes(&self.answer.problem.options().sizes), bytes(&self.answer.left()))
    }

    fn compared(&self) -> Figure {
        let (compared, of): (_, fn(&Outcome) -> f64) = match self.answer.problem.options().goal {
            Goal::Latency => (Compared::Latency, |o| o.latency_us),
            Goal::Iops(_) => (Compared::Iops, |o| o.iops),
            Goal::Hits | Goal::Ppc => (Compared::Hits, Outcome::hit_ratio),
        };
        let series = self.answer.divisions.iter().flat_map(|division| {
            [("predicted", &division.predicted), ("simulated", &division.simulated)].map(
                |(how, outcomes)| {
                    let name = format!("{}, {how}", label(division.name));
                    Some((name, outcomes.as_ref()?.iter().map(of).collect::<Vec<f64>>()))
                },
            )
        });
        compared_of(compared, self.names(), series.flatten())
    }
}

/// Explains the shares, by flash if there is any, otherwise by memory.
pub fn why(volumes: &[VolumeCurves], by_flash: bool) -> Section {
    let section = Section::new("Why").text(
        "A request hits only if all its blocks hit, so these curves can be concave where the \
         curves for single blocks are convex: caching the first half of a volume can gain much \
         less than caching the second half. Shares are well chosen if no two volumes would gain by \
         trading cache.",
    );
    volumes.chunks(CURVES_MAX).fold(section, |section, group| {
        section.figure(miss_ratios(group)).figure(latencies(group, by_flash))
    })
}

/// Miss ratios by size, with the share of each volume marked.
fn miss_ratios(group: &[VolumeCurves]) -> Figure {
    let lines = Lines::new("Request miss ratio by size of the share")
        .x(Axis::new("memory and flash", Unit::Bytes))
        .y(Axis::new("miss ratio", Unit::Fraction).from_zero());
    curves(lines, group, |v| &v.miss_ratios, |v| (v.share_bytes, v.miss_ratio))
        .caption("The points are the chosen shares.")
}

/// Mean latency by flash size, with the memory of each volume as chosen.
fn latencies(group: &[VolumeCurves], by_flash: bool) -> Figure {
    let name = if by_flash { "flash" } else { "memory" };
    let lines = Lines::new(format!("Mean latency by {name}"))
        .x(Axis::new(format!("{name} of the volume"), Unit::Bytes))
        .y(Axis::new("mean latency", Unit::Micros).from_zero());
    curves(lines, group, |v| &v.latencies, |v| (v.tier_bytes, v.latency_us))
        .caption("Computed from the latencies that were used to choose the division.")
}

/// A curve for each volume, and the chosen point on each.
fn curves(
    lines: Lines,
    group: &[VolumeCurves],
    of: fn(&VolumeCurves) -> &[(u64, f64)],
    chosen: fn(&VolumeCurves) -> (u64, f64),
) -> Figure {
    let lines = group.iter().fold(lines, |lines, volume| {
        let (x, y) = (of(volume).iter().map(|p| p.0 as f64), of(volume).iter().map(|p| p.1));
        lines.line(&volume.name, x, y)
    });
    let (x, y) = (group.iter().map(|v| chosen(v).0 as f64), group.iter().map(|v| chosen(v).1));
    lines.shaped("share found", Shape::Points, x, y).figure()
}
