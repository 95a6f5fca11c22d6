//! `forebay plan --study` as text and charts.

use std::io::Write;

use forebay_analysis::Columns;
use forebay_analysis::plan::study::{Answer, Document, OfCombination, OfPolicy};
use forebay_config::Size;
use forebay_plan::{Class, StudySummary};
use forebay_report::{Axis, Bars, Figure, Report, Section, Table, Unit};
use serde::Serialize;

use super::text::known;
use crate::Shown;
use crate::format::{count, percent};

const CLASSES: [Class; 3] = [Class::Single, Class::Pyramidal, Class::NonPyramidal];

/// Which cache shape wins, for each trace and overall.
pub struct Studies<'a> {
    answer: &'a Answer,
    document: Document,
}

impl<'a> Studies<'a> {
    /// Creates the view of an answer.
    pub fn new(answer: &'a Answer) -> Self {
        Self { answer, document: answer.document() }
    }
}

impl Shown for Studies<'_> {
    fn document(&self) -> impl Serialize {
        &self.document
    }

    fn rows(&self) -> Columns {
        self.answer.rows()
    }

    fn page(&self) -> Report {
        let names: Vec<&str> = self.document.traces.iter().map(|t| t.trace.as_str()).collect();
        let report = Report::new("Which cache shape wins").subtitle(names.join(", "));
        sections(&self.document).into_iter().fold(report, Report::section)
    }

    fn text(&self, out: &mut dyn Write) -> std::io::Result<()> {
        writeln!(out, "{}", traces_table(&self.document).to_text().trim_end())?;
        for of in &self.document.policies {
            let table = table(of);
            writeln!(out, "\nWith {}:", of.policy)?;
            writeln!(out, "{}\n{}", table.to_text().trim_end(), sentence(of))?;
        }
        let searches: u64 = self.document.policies.iter().map(|of| of.summary.points).sum();
        writeln!(
            out,
            "\n{} exhaustive searches and as many Cydonia searches took {:.1} s.",
            count(searches),
            self.document.search_s
        )
    }
}

/// The sections of a page.
pub fn sections(document: &Document) -> Vec<Section> {
    let mut sections = vec![Section::new("Traces").table(traces_table(document))];
    for of in &document.policies {
        let section = Section::new(format!("With {}", of.policy))
            .text(sentence(of))
            .table(table(of))
            .figure(gains(of));
        sections.push(of.combinations.iter().fold(section, |section, combination| {
            section.figure(figure(combination, &document.scaled_budgets))
        }));
    }
    sections.push(Section::new("Cydonia").figure(excess(document)));
    sections
}

fn traces_table(document: &Document) -> Table {
    let policies = document.policies.iter().enumerate();
    let columns = policies.flat_map(|(at, of)| {
        CLASSES.iter().enumerate().map(move |(class, kind)| {
            let name = match class {
                0 => format!("{}: {}", of.policy, kind.name()),
                _ => kind.name().to_owned(),
            };
            (at, class, name)
        })
    });
    let table = Table::from_items(&document.traces)
        .column("trace", |t| t.trace.clone())
        .number("block accesses", |t| count(t.accesses))
        .number("distinct data", |t| Size(t.footprint_bytes).to_string())
        .number("all in DRAM", |t| Unit::Dollars.show(t.full_cost_usd));
    let share = |policies: &[StudySummary], at: usize, class: usize| {
        policies.get(at).map_or_else(String::new, |s| classes(s)[class].clone())
    };
    columns
        .fold(table, |table, (at, class, name)| {
            table.number(&name, |t| share(&t.policies, at, class))
        })
        .number("search", |t| format!("{:.2} s", t.search_s))
        .table()
}

/// How far Cydonia's plans are from the best ones (figure 3.6).
fn excess(document: &Document) -> Figure {
    let Some(last) = document.policies.last() else {
        return Bars::new("Cydonia above exhaustive search", [""]).figure();
    };
    let excess = |of: &OfPolicy, at: usize| of.combinations[at].summary.cydonia_excess;
    let mut all: Vec<usize> = (0..last.combinations.len()).collect();
    all.sort_by(|&a, &b| excess(last, a).total_cmp(&excess(last, b)));
    let names = all.iter().map(|&at| last.combinations[at].name());
    let bars = Bars::new("Cydonia above exhaustive search", names)
        .axis(Axis::new("mean excess latency", Unit::Fraction))
        .horizontal();
    let bars = document.policies.iter().fold(bars, |bars, of| {
        bars.series(of.policy.clone(), all.iter().map(|&at| excess(of, at)))
    });
    bars.figure().caption(format!(
        "Mean over all budgets and traces. For each combination, Cydonia evaluates at most {} \
         sizes.",
        document.evaluations
    ))
}

/// The results by combination.
fn table(of: &OfPolicy) -> Table {
    let class = |s: &StudySummary, at: usize| classes(s)[at].clone();
    Table::from_items(of.combinations.iter().map(|combination| (combination, &combination.summary)))
        .column("combination", |(combination, _)| combination.name())
        .number("single", |(_, s)| class(s, 0))
        .number("pyramidal", |(_, s)| class(s, 1))
        .number("non-pyramidal", |(_, s)| class(s, 2))
        .number("faster, pyramidal", |(_, s)| known(s.pyramidal_reduction, percent))
        .number("non-pyramidal", |(_, s)| known(s.non_pyramidal_reduction, percent))
        .number("at most", |(_, s)| percent(s.reduction_max))
        .number("Cydonia's excess", |(_, s)| percent(s.cydonia_excess))
        .number("missed", |(_, s)| {
            format!("{} of {}", count(s.cydonia_missed), count(s.two_tiers()))
        })
        .table()
}

fn sentence(of: &OfPolicy) -> String {
    let s = &of.summary;
    let [single, pyramidal, other] = classes(s);
    format!(
        "Of {} cases (each a combination, a trace and a budget), a single tier is the best choice \
         in {single}, pyramidal tiers in {pyramidal} and non-pyramidal tiers in {other}. Cydonia's \
         latency is {:.2} % above the best on average and at most {}; in {} of the {} cases where \
         two tiers are best, Cydonia chooses a single tier.",
        count(s.points),
        100.0 * s.cydonia_excess,
        percent(s.cydonia_excess_max),
        count(s.cydonia_missed),
        count(s.two_tiers())
    )
}

/// The latency reduction of two tiers (figure 3.5).
fn gains(of: &OfPolicy) -> Figure {
    let mut all: Vec<&OfCombination> = of.combinations.iter().collect();
    let or_none = |share: Option<f64>| share.unwrap_or(f64::NAN);
    let by = |c: &OfCombination| c.summary.non_pyramidal_reduction.unwrap_or(0.0);
    all.sort_by(|a, b| by(a).total_cmp(&by(b)));
    let gains = |of: fn(&StudySummary) -> Option<f64>| {
        all.iter().map(move |c| or_none(of(&c.summary))).collect::<Vec<_>>()
    };
    let title = "Latency reduction compared with a single tier of the same cost";
    Bars::new(title, all.iter().map(|c| c.name()))
        .axis(Axis::new("mean reduction", Unit::Fraction))
        .horizontal()
        .series("pyramidal", gains(|s| s.pyramidal_reduction))
        .series("non-pyramidal", gains(|s| s.non_pyramidal_reduction))
        .figure()
        .caption("Mean over the budgets and traces for which that shape is fastest.")
}

/// The winning class by scaled budget (figure 3.4).
fn figure(combination: &OfCombination, scaled: &[f64]) -> Figure {
    let labels = scaled.iter().map(|share| format!("{:.0} %", 100.0 * share));
    let bars = Bars::new(combination.name(), labels)
        .axis(Axis::new("share of traces", Unit::Fraction))
        .stacked();
    let bars = CLASSES.iter().fold(bars, |bars, &class| {
        bars.series(class.name(), combination.winners.iter().map(|w| w.share(class)))
    });
    bars.figure().caption(
        "The fastest shape at each budget. Budgets are percentages of the cost of holding all data \
         in DRAM.",
    )
}

/// The percentage of cases in which each of the three shapes wins.
fn classes(s: &StudySummary) -> [String; 3] {
    let share = |n: u64| percent(n as f64 / s.points.max(1) as f64);
    [share(s.single), share(s.pyramidal), share(s.non_pyramidal)]
}
