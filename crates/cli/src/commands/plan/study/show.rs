//! A study as document, text, rows and pictures.

use std::io::Write;

use forebay_plan::{Class, StudyPoint, StudySummary};
use forebay_report::{Axis, Bars, Figure, Report, Section, Table, Unit};
use serde::Serialize;

use super::{POLICIES, Study};
use crate::commands::plan::answer::policy_name;
use crate::format::{count, percent};
use crate::rows::Rows;

const CLASSES: [Class; 3] = [Class::Single, Class::Pyramidal, Class::NonPyramidal];

impl Study<'_> {
    pub fn document(&self) -> Document<'_> {
        let policies = POLICIES.iter().enumerate().map(|(at, &policy)| {
            let combinations = (0..self.combinations.len()).map(|combination| OfCombination {
                tiers: &self.combinations[combination].tiers,
                backing: &self.combinations[combination].backing,
                summary: StudySummary::of(self.points(at, combination)),
            });
            OfPolicy {
                policy: policy_name(policy),
                summary: self.all(at),
                combinations: combinations.collect(),
            }
        });
        let traces = self.traces.iter().map(|t| OfTrace {
            trace: &t.trace,
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

    fn all(&self, policy: usize) -> StudySummary {
        StudySummary::of((0..self.combinations.len()).flat_map(|c| self.points(policy, c)))
    }

    pub fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        writeln!(out, "{}", self.traces_table().to_text().trim_end())?;
        for (at, &policy) in POLICIES.iter().enumerate() {
            let (name, table) = (policy_name(policy), self.table(at));
            writeln!(out, "\nWith {name}:\n{}\n{}", table.to_text().trim_end(), self.sentence(at))?;
        }
        let searches: u64 = (0..POLICIES.len()).map(|at| self.all(at).points).sum();
        writeln!(
            out,
            "\n{} exhaustive searches, and as many of Cydonia, took {:.1} s.",
            count(searches),
            self.search_time().as_secs_f64()
        )
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
                classes(&StudySummary::of(t.points[policy].iter().flatten().flatten())).join(", ")
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

    /// By combination.
    fn table(&self, policy: usize) -> Table {
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
        (0..self.combinations.len()).fold(table, |table, at| {
            let s = StudySummary::of(self.points(policy, at));
            let [single, pyramidal, other] = classes(&s);
            table.row([
                self.name(at),
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

    fn sentence(&self, policy: usize) -> String {
        let s = self.all(policy);
        let [single, pyramidal, other] = classes(&s);
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

    fn name(&self, combination: usize) -> String {
        let c = &self.combinations[combination];
        format!("{} / {}", c.tiers.join(" + "), c.backing)
    }

    /// One row per trace, policy, combination and budget.
    pub fn rows(&self) -> Rows {
        let scaled = self.scaled();
        let names: Vec<String> = (0..self.combinations.len()).map(|at| self.name(at)).collect();
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

    pub fn report(&self) -> Report {
        let names: Vec<&str> = self.traces.iter().map(|t| t.trace.as_str()).collect();
        let overview = Section::new("Traces").table(self.traces_table());
        let mut report =
            Report::new("Which shape of cache wins").subtitle(names.join(", ")).section(overview);
        for (at, &policy) in POLICIES.iter().enumerate() {
            let name = policy_name(policy);
            let mut section = Section::new(format!("With {name}"))
                .text(self.sentence(at))
                .table(self.table(at))
                .figure(self.gains(at));
            for combination in 0..self.combinations.len() {
                section = section.figure(self.winners(at, combination));
            }
            report = report.section(section);
        }
        let excess = Section::new("Cydonia").figure(self.excess());
        report.section(excess)
    }

    /// Which class wins, by scaled budget (figure 3.4).
    fn winners(&self, policy: usize, combination: usize) -> Figure {
        let scaled = self.scaled();
        let share = |class: Class, budget: usize| {
            let at = |t: &super::Studied| t.points[policy][combination][budget];
            let points: Vec<StudyPoint> = self.traces.iter().filter_map(at).collect();
            let won = points.iter().filter(|p| p.class == class).count();
            if points.is_empty() { f64::NAN } else { won as f64 / points.len() as f64 }
        };
        let labels = scaled.iter().map(|share| format!("{:.0} %", 100.0 * share));
        let bars = Bars::new(self.name(combination), labels)
            .axis(Axis::new("share of traces", Unit::Fraction))
            .stacked();
        let bars = CLASSES.iter().fold(bars, |bars, &class| {
            bars.series(class.name(), (0..scaled.len()).map(|budget| share(class, budget)))
        });
        bars.figure().caption(
            "Which shape is the fastest, by budget in percent of what DRAM for all data would cost.",
        )
    }

    /// What two tiers gain (figure 3.5).
    fn gains(&self, policy: usize) -> Figure {
        let mut all: Vec<(String, StudySummary)> = (0..self.combinations.len())
            .map(|at| (self.name(at), StudySummary::of(self.points(policy, at))))
            .collect();
        let or_none = |share: Option<f64>| share.unwrap_or(f64::NAN);
        let by = |s: &StudySummary| s.non_pyramidal_reduction.unwrap_or(0.0);
        all.sort_by(|a, b| by(&a.1).total_cmp(&by(&b.1)));
        Bars::new("Latency below a single tier of the same cost", all.iter().map(|a| &a.0[..]))
            .axis(Axis::new("mean reduction", Unit::Fraction))
            .horizontal()
            .series("pyramidal", all.iter().map(|a| or_none(a.1.pyramidal_reduction)))
            .series("non-pyramidal", all.iter().map(|a| or_none(a.1.non_pyramidal_reduction)))
            .figure()
            .caption("Over the budgets and traces at which that shape is the fastest.")
    }

    /// How far Cydonia is from the best (figure 3.6).
    fn excess(&self) -> Figure {
        let of = |policy: usize, at: usize| StudySummary::of(self.points(policy, at));
        let mut all: Vec<usize> = (0..self.combinations.len()).collect();
        all.sort_by(|&a, &b| of(1, a).cydonia_excess.total_cmp(&of(1, b).cydonia_excess));
        let bars =
            Bars::new("Cydonia above exhaustive search", all.iter().map(|&at| self.name(at)))
                .axis(Axis::new("mean excess latency", Unit::Fraction))
                .horizontal();
        let bars = POLICIES.iter().enumerate().fold(bars, |bars, (policy, &name)| {
            let excess = all.iter().map(|&at| of(policy, at).cydonia_excess);
            bars.series(policy_name(name), excess)
        });
        bars.figure().caption(format!(
            "Mean over all budgets and traces, at most {} evaluations each.",
            self.args.cydonia().evaluations_max
        ))
    }
}

/// Shares of the three shapes.
fn classes(s: &StudySummary) -> [String; 3] {
    let share = |n: u64| percent(n as f64 / s.points.max(1) as f64);
    [share(s.single), share(s.pyramidal), share(s.non_pyramidal)]
}

/// The JSON document.
#[derive(Serialize)]
pub struct Document<'a> {
    traces: Vec<OfTrace<'a>>,
    /// Shares of what DRAM for all data would cost.
    scaled_budgets: Vec<f64>,
    evaluations: u64,
    policies: Vec<OfPolicy<'a>>,
    search_s: f64,
}

#[derive(Serialize)]
struct OfTrace<'a> {
    trace: &'a str,
    requests: u64,
    accesses: u64,
    footprint_bytes: u64,
    full_cost_usd: f64,
    search_s: f64,
    /// Write-through, then write-back.
    policies: Vec<StudySummary>,
}

#[derive(Serialize)]
struct OfPolicy<'a> {
    policy: &'static str,
    #[serde(flatten)]
    summary: StudySummary,
    combinations: Vec<OfCombination<'a>>,
}

#[derive(Serialize)]
struct OfCombination<'a> {
    tiers: &'a [String],
    backing: &'a str,
    #[serde(flatten)]
    summary: StudySummary,
}
