//! Miss-ratio curves in one chart.

use forebay_config::Size;
use forebay_report::Section;

use super::document::{Document, elements, number};
use crate::curve::lines;
use crate::format::{count, of_accesses};

/// One section for all curves; `None` if there are none.
pub fn sections(curves: &[Document]) -> Option<Section> {
    if curves.is_empty() {
        return None;
    }
    let mut lines = lines("Miss ratio by cache size");
    let mut facts = Vec::new();
    for curve in curves {
        let named = |what: &str| match curves.len() {
            1 => what.to_string(),
            _ => format!("{}, {what}", curve.label),
        };
        let block_bytes = curve.number("/block_size");
        let sizes = || {
            elements(&curve.value, "points").map(move |p| number(p, "/size_blocks") * block_bytes)
        };
        let ratios =
            |name: &'static str| elements(&curve.value, "points").map(move |p| number(p, name));
        lines = lines.line(named("reads and writes"), sizes(), ratios("/miss_ratio"));
        if curve.number("/reads") > 0.0 && curve.number("/writes") > 0.0 {
            lines = lines.line(named("reads"), sizes(), ratios("/read_miss_ratio"));
        }
        let accesses = curve.number("/accesses");
        facts.push((named("block accesses"), count(accesses as u64)));
        let writes = of_accesses(curve.number("/writes") as u64, accesses as u64);
        facts.push((named("share of writes"), writes));
        let distinct = Size((curve.number("/distinct_blocks") * block_bytes) as u64).to_string();
        facts.push((named("distinct data"), distinct));
    }
    let figure = lines.figure().caption(
        "The share of block accesses that miss in an LRU cache of each size. Where the curve is \
         flat, a larger cache gains nothing.",
    );
    Some(Section::new("How much cache the workload can use").facts(facts).figure(figure))
}
