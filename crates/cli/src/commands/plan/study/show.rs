//! A study as document, text, rows and pictures.

use std::io::Write;

use forebay_plan::{Class, StudyPoint, StudySummary};
use forebay_report::{Axis, Bars, Figure, Report, Section, Table, Unit};
use serde::{Deserialize, Serialize};

use super::{POLICIES, Study};
use crate::commands::plan::answer::policy_name;
use crate::format::{count, percent};
use crate::rows::Rows;

/// The JSON document.
#[derive(Serialize, Deserialize)]
pub struct Document {
    traces: Vec<OfTrace>,
    /// Shares of what DRAM for all data would cost.
    scaled_budgets: Vec<f64>,
    evaluations: u64,
    policies: Vec<OfPolicy>,
    search_s: f64,
}

#[derive(Serialize, Deserialize)]
struct OfTrace {
    trace: String,
    requests: u64,
    accesses: u64,
    footprint_bytes: u64,
    full_cost_usd: f64,
    search_s: f64,
    /// Write-through, then write-back.
    policies: Vec<StudySummary>,
}

#[derive(Serialize, Deserialize)]
struct OfPolicy {
    policy: String,
    #[serde(flatten)]
    summary: StudySummary,
    combinations: Vec<OfCombination>,
}

#[derive(Serialize, Deserialize)]
struct OfCombination {
    tiers: Vec<String>,
    backing: String,
    #[serde(flatten)]
    summary: StudySummary,
    /// By scaled budget.
    winners: Vec<Winners>,
}

/// Traces for which each shape is the fastest under a budget.
#[derive(Serialize, Deserialize)]
struct Winners {
    single: u64,
    pyramidal: u64,
    non_pyramidal: u64,
}

impl Winners {
    /// Of the traces for which the budget buys something; none of none.
    fn share(&self, class: Class) -> f64 {
        let all = self.single + self.pyramidal + self.non_pyramidal;
        let won = match class {
            Class::Single => self.single,
            Class::Pyramidal => self.pyramidal,
            Class::NonPyramidal => self.non_pyramidal,
        };
        if all == 0 { f64::NAN } else { won as f64 / all as f64 }
    }
}

const CLASSES: [Class; 3] = [Class::Single, Class::Pyramidal, Class::NonPyramidal];

impl Study<'_> {
    pub fn document(&self) -> Document {
        let policies = POLICIES.iter().enumerate().map(|(at, &policy)| {
            let combinations = (0..self.combinations.len()).map(|combination| OfCombination {
                tiers: self.combinations[combination].tiers.clone(),
                backing: self.combinations[combination].backing.clone(),
                summary: StudySummary::of(self.points(at, combination)),
                winners: self.winners(at, combination),
            });
            OfPolicy {
                policy: policy_name(policy).to_owned(),
                summary: StudySummary::of(
                    (0..self.combinations.len()).flat_map(|c| self.points(at, c)),
                ),
                combinations: combinations.collect(),
            }
        });
        let traces = self.traces.iter().map(|t| OfTrace {
            trace: t.trace.clone(),
            requests: t.requests,
            accesses: t.accesses,
            footprint_bytes: t.footprint_bytes,
            full_cost_usd: t.full_cost_usd,
            search_s: t.search_s,
            policies: (0..POLICIES.len())
                .map(|policy| StudySummary::of(t.points[policy].iter().flatten().flatten()))
                .collect(),
        });
        Document {
            traces: traces.collect(),
            scaled_budgets: self.scaled(),
            evaluations: self.args.cydonia().evaluations_max,
            policies: policies.collect(),
            search_s: self.search_time().as_secs_f64(),
        }
    }

    fn winners(&self, policy: usize, combination: usize) -> Vec<Winners> {
        let winners = |budget: usize| {
            let at = |t: &super::Studied| t.points[policy][combination][budget];
            let summary = StudySummary::of(&self.traces.iter().filter_map(at).collect::<Vec<_>>());
            let StudySummary { single, pyramidal, non_pyramidal, .. } = summary;
            Winners { single, pyramidal, non_pyramidal }
        };
        (0..self.scaled().len()).map(winners).collect()
    }

    /// One row per trace, policy, combination and budget.
    pub fn rows(&self) -> Rows {
        let scaled = self.scaled();
        let names: Vec<String> =
            self.combinations.iter().map(|c| name(&c.tiers, &c.backing)).collect();
        let mut found: Vec<(&str, &'static str, &str, f64, &StudyPoint)> = Vec::new();
        for trace in &self.traces {
            for (policy, by_combination) in POLICIES.iter().zip(&trace.points) {
                for (name, by_budget) in names.iter().zip(by_combination) {
                    for (&share, point) in scaled.iter().zip(by_budget) {
                        let Some(point) = point else { continue };
                        found.push((&trace.trace, policy_name(*policy), name, share, point));
                    }
                }
            }
        }
        let real = |f: fn(&StudyPoint) -> f64| found.iter().map(move |row| f(row.4));
        Rows::default()
            .texts("trace", found.iter().map(|row| row.0))
            .texts("policy", found.iter().map(|row| row.1))
            .texts("combination", found.iter().map(|row| row.2))
            .reals("scaled_budget", found.iter().map(|row| row.3))
            .reals("budget_usd", real(|p| p.budget_usd))
            .texts("class", found.iter().map(|row| row.4.class.name()))
            .reals("single_latency_us", real(|p| p.single_us))
            .reals("best_latency_us", real(|p| p.best_us))
            .reals("cydonia_latency_us", real(|p| p.cydonia_us))
            .texts("cydonia_class", found.iter().map(|row| row.4.cydonia_class.name()))
    }
}

impl Document {
    /// For a terminal.
    pub fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        writeln!(out, "{}", self.traces_table().to_text().trim_end())?;
        for of in &self.policies {
            let table = of.table();
            writeln!(out, "\nWith {}:", of.policy)?;
            writeln!(out, "{}\n{}", table.to_text().trim_end(), of.sentence())?;
        }
        let searches: u64 = self.policies.iter().map(|of| of.summary.points).sum();
        writeln!(
            out,
            "\n{} exhaustive searches, and as many of Cydonia, took {:.1} s.",
            count(searches),
            self.search_s
        )
    }

    pub fn report(&self) -> Report {
        let names: Vec<&str> = self.traces.iter().map(|t| t.trace.as_str()).collect();
        let report = Report::new("Which shape of cache wins").subtitle(names.join(", "));
        self.sections().into_iter().fold(report, Report::section)
    }

    /// The sections of a page.
    pub fn sections(&self) -> Vec<Section> {
        let mut sections = vec![Section::new("Traces").table(self.traces_table())];
        for of in &self.policies {
            let section = Section::new(format!("With {}", of.policy))
                .text(of.sentence())
                .table(of.table())
                .figure(of.gains());
            sections.push(of.combinations.iter().fold(section, |section, combination| {
                section.figure(combination.figure(&self.scaled_budgets))
            }));
        }
        sections.push(Section::new("Cydonia").figure(self.excess()));
        sections
    }

    fn traces_table(&self) -> Table {
        let table = Table::new()
            .column("trace")
            .number("block accesses")
            .number("distinct data")
            .number("all in DRAM")
            .number("single, pyramidal, not: write-through")
            .number("write-back")
            .number("search");
        self.traces.iter().fold(table, |table, t| {
            let shares = |policy: usize| {
                t.policies.get(policy).map_or_else(String::new, |s| classes(s).join(", "))
            };
            table.row([
                t.trace.clone(),
                count(t.accesses),
                Unit::Bytes.show(t.footprint_bytes as f64),
                Unit::Dollars.show(t.full_cost_usd),
                shares(0),
                shares(1),
                format!("{:.2} s", t.search_s),
            ])
        })
    }

    /// How far Cydonia is from the best (figure 3.6).
    fn excess(&self) -> Figure {
        let Some(last) = self.policies.last() else {
            return Bars::new("Cydonia above exhaustive search", [""]).figure();
        };
        let excess = |of: &OfPolicy, at: usize| of.combinations[at].summary.cydonia_excess;
        let mut all: Vec<usize> = (0..last.combinations.len()).collect();
        all.sort_by(|&a, &b| excess(last, a).total_cmp(&excess(last, b)));
        let names = all.iter().map(|&at| last.combinations[at].name());
        let bars = Bars::new("Cydonia above exhaustive search", names)
            .axis(Axis::new("mean excess latency", Unit::Fraction))
            .horizontal();
        let bars = self.policies.iter().fold(bars, |bars, of| {
            bars.series(of.policy.clone(), all.iter().map(|&at| excess(of, at)))
        });
        bars.figure().caption(format!(
            "Mean over all budgets and traces, at most {} evaluations each.",
            self.evaluations
        ))
    }
}

impl OfPolicy {
    /// By combination.
    fn table(&self) -> Table {
        let table = Table::new()
            .column("combination")
            .number("single")
            .number("pyramidal")
            .number("non-pyramidal")
            .number("faster, pyramidal")
            .number("non-pyramidal")
            .number("at most")
            .number("Cydonia's excess")
            .number("missed");
        let optional = |share: Option<f64>| share.map_or_else(|| "-".into(), percent);
        self.combinations.iter().fold(table, |table, combination| {
            let s = &combination.summary;
            let [single, pyramidal, other] = classes(s);
            table.row([
                combination.name(),
                single,
                pyramidal,
                other,
                optional(s.pyramidal_reduction),
                optional(s.non_pyramidal_reduction),
                percent(s.reduction_max),
                percent(s.cydonia_excess),
                format!("{} of {}", count(s.cydonia_missed), count(s.two_tiers())),
            ])
        })
    }

    fn sentence(&self) -> String {
        let s = &self.summary;
        let [single, pyramidal, other] = classes(s);
        format!(
            "Of {} budgets a single tier is the best of {single}, pyramidal tiers of {pyramidal} \
             and non-pyramidal ones of {other}. Cydonia's latency is {:.2} % above the best in the \
             mean and {} at most; it misses {} of {} second tiers.",
            count(s.points),
            100.0 * s.cydonia_excess,
            percent(s.cydonia_excess_max),
            count(s.cydonia_missed),
            count(s.two_tiers())
        )
    }

    /// What two tiers gain (figure 3.5).
    fn gains(&self) -> Figure {
        let mut all: Vec<&OfCombination> = self.combinations.iter().collect();
        let or_none = |share: Option<f64>| share.unwrap_or(f64::NAN);
        let by = |c: &OfCombination| c.summary.non_pyramidal_reduction.unwrap_or(0.0);
        all.sort_by(|a, b| by(a).total_cmp(&by(b)));
        let gains = |of: fn(&StudySummary) -> Option<f64>| {
            all.iter().map(move |c| or_none(of(&c.summary))).collect::<Vec<_>>()
        };
        Bars::new("Latency below a single tier of the same cost", all.iter().map(|c| c.name()))
            .axis(Axis::new("mean reduction", Unit::Fraction))
            .horizontal()
            .series("pyramidal", gains(|s| s.pyramidal_reduction))
            .series("non-pyramidal", gains(|s| s.non_pyramidal_reduction))
            .figure()
            .caption("Over the budgets and traces at which that shape is the fastest.")
    }
}

impl OfCombination {
    fn name(&self) -> String {
        name(&self.tiers, &self.backing)
    }

    /// Which class wins, by scaled budget (figure 3.4).
    fn figure(&self, scaled: &[f64]) -> Figure {
        let labels = scaled.iter().map(|share| format!("{:.0} %", 100.0 * share));
        let bars = Bars::new(self.name(), labels)
            .axis(Axis::new("share of traces", Unit::Fraction))
            .stacked();
        let bars = CLASSES.iter().fold(bars, |bars, &class| {
            bars.series(class.name(), self.winners.iter().map(|w| w.share(class)))
        });
        bars.figure().caption(
            "Which shape is the fastest, by budget in percent of what DRAM for all data would cost.",
        )
    }
}

fn name(tiers: &[String], backing: &str) -> String {
    format!("{} / {backing}", tiers.join(" + "))
}

/// Shares of the three shapes.
fn classes(s: &StudySummary) -> [String; 3] {
    let share = |n: u64| percent(n as f64 / s.points.max(1) as f64);
    [share(s.single), share(s.pyramidal), share(s.non_pyramidal)]
}
