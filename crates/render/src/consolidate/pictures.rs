//! The answer as charts: demands and wastage, which workload wastes which cache, and phases over
//! time.

use forebay_analysis::consolidate::{Document, PhaseDocument, WorkloadDocument};
use forebay_config::Size;
use forebay_report::{Axis, Bars, Figure, HeatMap, Lines, Section, Shape, Table, Unit};

use crate::Facts;
use crate::format::{count, percent};

/// Maximum number of workloads whose phases are drawn; the other formats contain all.
const DRAWN: usize = 24;
/// Below this hit ratio, no cache size is worth its cost.
const HIT_RATIO_LITTLE: f64 = 0.01;

/// The sections of a page.
pub fn sections(document: &Document) -> Vec<Section> {
    let mut first = Section::new("Do they fit?").facts(facts(document)).figure(needs(document));
    if document.workloads.len() > 1 {
        first = first.figure(miss_ratios(document)).figure(wastage(document));
    }
    first = first.table(workload_table(document));
    first = little_gain(document).into_iter().fold(first, Section::text);
    let mut phases = Section::new("Phases").text(
        "A workload's behaviour changes over time. Each line shows a phase from its start to its \
         end, at the cache size that the phase needs. Phases nested in another phase are drawn in \
         the next colour. A phase that needs only one block reuses no data.",
    );
    for workload in document.workloads.iter().take(DRAWN) {
        phases = phases.figure(timeline(document, workload));
    }
    if document.workloads.len() > DRAWN {
        let more = document.workloads.len() - DRAWN;
        phases = phases.text(format!("{more} further workloads are not drawn."));
    }
    vec![first, phases]
}

/// Facts for the text and the page.
pub fn facts(document: &Document) -> Facts {
    let mut facts = vec![("cache", size(document, document.size_blocks))];
    if document.workloads.len() > 1 {
        let (own, wasted) =
            (size(document, document.demand_blocks), size(document, document.wastage_blocks));
        // The measurement includes nested phases, which the prediction may exclude.
        if !document.marginal {
            facts.push(("measured", verdict(document, document.simulated_isolation_blocks)));
        }
        facts.push(("predicted", verdict(document, document.needed_blocks)));
        let off = document.isolation_error.map_or(String::new(), |error| {
            let side = if error < 0.0 { "below" } else { "above" };
            format!(", {} {side} the measured size", percent(error.abs()))
        });
        facts.push((
            "predicted need",
            format!("{own} for the workloads themselves, {wasted} wasted{off}"),
        ));
        if !document.marginal {
            facts.push(("merged trace needs", size(document, document.simulated_blocks)));
        }
    } else {
        facts.push(("predicted", verdict(document, document.needed_blocks)));
    }
    let large = document.workloads.iter().filter(|w| !w.fits_alone).map(|w| w.name.as_str());
    let large: Vec<&str> = large.collect();
    if !large.is_empty() {
        facts.push(("too large alone", large.join(", ")));
    }
    if let Some(period) = document.migration_period_s {
        facts.push(("migration period", Unit::Seconds.show(period)));
    }
    facts.push(("block size", Size(document.block_size).to_string()));
    facts
}

/// Remarks on workloads that no cache helps, whatever size the definition of the ERSS assigns to
/// them.
pub fn little_gain(document: &Document) -> Vec<String> {
    let says = |w: &WorkloadDocument| {
        let phase = w.phases.get(w.phase).filter(|_| w.demand_blocks > 0)?;
        // Even a cache that holds all blocks in use misses each of them once.
        let hits = 1.0 - phase.in_use_blocks as f64 / phase.accesses.max(1) as f64;
        let whose =
            if phase.parent.is_none() { "its hit ratio" } else { "the hit ratio of its phase" };
        (hits < HIT_RATIO_LITTLE).then(|| {
            format!(
                "No cache size helps {} much: {whose} stays below {}. The size that it needs, {}, \
                 is merely the size at which its hit ratio stops rising.",
                w.name,
                percent(((hits * 1000.0).floor() + 1.0) / 1000.0),
                size(document, w.demand_blocks)
            )
        })
    };
    document.workloads.iter().filter_map(says).collect()
}

/// Says whether `needed` blocks fit in the cache.
fn verdict(document: &Document, needed: u64) -> String {
    let (needs, verb) =
        (size(document, needed), if document.workloads.len() > 1 { "they" } else { "it" });
    let s = if document.workloads.len() > 1 { "" } else { "s" };
    match document.size_blocks.checked_sub(needed) {
        Some(spare) => format!("{verb} fit{s}: {needs} needed, {} to spare", size(document, spare)),
        None => {
            let missing = size(document, needed - document.size_blocks);
            let negated = if document.workloads.len() > 1 { "do not fit" } else { "does not fit" };
            format!("{verb} {negated}: {needs} needed, {missing} missing")
        }
    }
}

/// Formats a number of blocks as a size.
fn size(document: &Document, blocks: u64) -> String {
    Unit::Bytes.show(bytes(document, blocks))
}

fn bytes(document: &Document, blocks: u64) -> f64 {
    blocks as f64 * document.block_size as f64
}

/// The space that `from` wastes and that `on` needs, in blocks.
fn pair(document: &Document, from: &WorkloadDocument, on: &WorkloadDocument) -> u64 {
    let of = document.pairs.iter().find(|pair| pair.from == from.name && pair.on == on.name);
    of.map_or(0, |pair| pair.wastage_blocks)
}

fn needs(document: &Document) -> Figure {
    let names = document.workloads.iter().map(|w| w.name.clone());
    // The measurement includes nested phases, which the prediction may exclude.
    let measured = ("all, measured", document.simulated_isolation_blocks);
    let measured = Some(measured).filter(|_| !document.marginal);
    let whole: Vec<_> = measured.into_iter().chain([("the cache", document.size_blocks)]).collect();
    let sums = ["all, predicted"].into_iter().chain(whole.iter().map(|(name, _)| *name));
    let none = vec![0; whole.len()];
    let own = document.workloads.iter().map(|w| w.demand_blocks);
    let own = own.chain([document.demand_blocks]).chain(none.clone()).map(|b| bytes(document, b));
    let wasted = document.workloads.iter().map(|w| w.wastage_suffered_blocks);
    let wasted = wasted.chain([document.wastage_blocks]).chain(none).map(|b| bytes(document, b));
    let others = vec![0.0; document.workloads.len() + 1].into_iter();
    let whole = whole.iter().map(|(_, blocks)| bytes(document, *blocks));
    Bars::new("Cache size that each workload needs", names.chain(sums.map(String::from)))
        .axis(Axis::new("size", Unit::Bytes).from_zero())
        .stacked()
        .horizontal()
        .series("on its own", own)
        .series("wasted by the others", wasted)
        .series("as a whole", others.chain(whole))
        .figure()
        .caption(if document.marginal {
            "The prediction counts only what each phase needs in addition to its nested phases."
        } else {
            "Measured: the smallest shared cache in which each workload hits as often as it does \
             alone in a cache of the size that it needs."
        })
}

fn miss_ratios(document: &Document) -> Figure {
    let names = document.workloads.iter().map(|w| w.name.clone());
    Bars::new("Misses in this cache, alone and shared", names)
        .axis(Axis::new("miss ratio", Unit::Fraction).from_zero())
        .horizontal()
        .series("alone", document.workloads.iter().map(|w| w.miss_ratio_alone))
        .series("shared", document.workloads.iter().map(|w| w.miss_ratio_shared))
        .figure()
}

fn wastage(document: &Document) -> Figure {
    let names = || document.workloads.iter().map(|w| w.name.clone());
    let map = HeatMap::new("Cache space wasted, by pair of workloads", Unit::Bytes)
        .columns("pushed out", names())
        .rows("floods the cache", names());
    let row = |(number, from): (usize, _)| {
        document.workloads.iter().enumerate().map(move |(n, on)| match n == number {
            true => f64::NAN,
            false => bytes(document, pair(document, from, on)),
        })
    };
    document.workloads.iter().enumerate().fold(map, |map, from| map.row(row(from))).figure()
}

fn workload_table(document: &Document) -> Table {
    let size = |blocks: u64| size(document, blocks);
    let workloads = document.workloads.iter().filter_map(|w| Some((w, w.phases.get(w.phase)?)));
    Table::from_items(workloads)
        .column("workload", |(w, _)| w.name.clone())
        .number("accesses", |(w, _)| count(w.accesses))
        .number("in use", |(_, phase)| size(phase.in_use_blocks))
        .number("reused", |(_, phase)| size(phase.reuse_set_blocks))
        .number("needs", |(w, _)| size(w.demand_blocks))
        .number("reuse rate", |(w, _)| percent(w.reuse_rate))
        .number("flood rate", |(w, _)| percent(w.flood_rate))
        .number("wastes", |(w, _)| size(w.wastage_caused_blocks))
        .number("loses", |(w, _)| size(w.wastage_suffered_blocks))
        .table()
}

/// Phases over time, or over accesses if there are no timestamps.
fn timeline(document: &Document, workload: &WorkloadDocument) -> Figure {
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
        let here: Vec<usize> = (0..phases.len()).filter(|&n| depth(phases, n) == level).collect();
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
            let needs = bytes(document, phase.erss_blocks.max(1));
            x.extend([span.start, span.end, f64::NAN]);
            y.extend([needs, needs, f64::NAN]);
        }
        let name = if level == 0 { "whole".to_string() } else { format!("level {level}") };
        lines = lines.shaped(name, Shape::Spans, x, y);
    }
    lines.figure()
}

/// The number of phases that a phase is nested in.
fn depth(phases: &[PhaseDocument], number: usize) -> usize {
    // A phase comes after its parent in the list.
    let around = |n: usize| phases.get(n).and_then(|phase| phase.parent).filter(|&p| p < n);
    std::iter::successors(around(number), |&p| around(p)).count()
}
