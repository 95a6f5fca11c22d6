//! A division as text and tables.

use std::io::Write;

use forebay_analysis::Columns;
use forebay_analysis::partition::{Answer, Division as OneDivision, Evaluate};
use forebay_plan::partition::{Goal, IopsGoal, Iterated, Outcome, Search, Sizes};
use forebay_report::{Report, Table, Unit};
use serde::Serialize;

use crate::format::{count, percent};
use crate::{Facts, Shown, write_facts, write_table};

/// A volume with a higher mean latency than this waited in a queue: no device in the catalogue is
/// that slow.
const QUEUED_US: f64 = 1e6;

/// A division of a cache among volumes.
pub struct Division<'a> {
    /// The answer.
    pub answer: &'a Answer<'a>,
}

impl Shown for Division<'_> {
    fn document(&self) -> impl Serialize {
        self.answer.document()
    }

    fn rows(&self) -> Columns {
        self.answer.rows()
    }

    fn page(&self) -> Report {
        self.report()
    }

    fn text(&self, out: &mut dyn Write) -> std::io::Result<()> {
        write_facts(&self.facts(), out)?;
        write_table(&self.table(), out)?;
        for line in self.remarks() {
            writeln!(out, "{line}")?;
        }
        write_table(&self.comparison(), out)?;
        if let Some(iterated) = &self.answer.iterated {
            writeln!(out, "\n{}", self.agreement(iterated))?;
        }
        writeln!(out, "\nAssumptions: {}.", self.answer.assumed().join("; "))
    }
}

impl Division<'_> {
    pub(super) fn facts(&self) -> Facts {
        let options = self.answer.problem.options();
        let Sizes { dram_bytes, flash_bytes } = options.sizes;
        let bytes = |bytes: u64| Unit::Bytes.show(bytes as f64);
        let question = self.answer.question;
        let divided = |all: u64, unit: u64, asked: u64, option: &str| {
            let is_chosen = asked == 0 && unit > question.block_size.bytes();
            let why = match question.search {
                Search::Exact if is_chosen => format!(
                    ", the smallest with which the search takes about half a second (set with \
                     {option})"
                ),
                _ => String::new(),
            };
            format!("{} in units of {}{why}", bytes(all), bytes(unit))
        };
        let mut facts = vec![
            ("requests", count(self.answer.workload.profile.requests)),
            ("volumes", self.answer.workload.known.volumes.len().to_string()),
        ];
        if dram_bytes > 0 {
            facts.push((
                "memory",
                divided(
                    dram_bytes,
                    options.units.dram_bytes,
                    question.units.dram_bytes,
                    "--dram-unit",
                ),
            ));
        }
        if flash_bytes > 0 {
            facts.push((
                "flash",
                divided(
                    flash_bytes,
                    options.units.flash_bytes,
                    question.units.flash_bytes,
                    "--unit",
                ),
            ));
        }
        facts.extend([
            ("goal", format!("{}: {}", self.answer.question.goal.name(), self.objective_name())),
            ("write policy", self.answer.question.policy.name().to_owned()),
            ("search", search_name(self.answer.question.search).to_string()),
        ]);
        facts
    }

    /// The shares and their effects.
    pub(super) fn table(&self) -> Table {
        let has_dram = self.answer.problem.options().sizes.dram_bytes > 0;
        let has_flash = self.answer.problem.options().sizes.flash_bytes > 0;
        let simulates = self.answer.question.evaluate.simulates();
        let is_iops = matches!(self.answer.problem.options().goal, Goal::Iops(_));
        let targets = (0..self.answer.workload.known.volumes.len())
            .any(|v| self.answer.problem.target_us(v).is_some());
        let (sizes, predicted, simulated) = self.answer.found();
        let bytes =
            |bytes: u64| if bytes == 0 { "-".into() } else { Unit::Bytes.show(bytes as f64) };
        let of = |v: &usize, f: &dyn Fn(&Outcome) -> String| {
            simulated.map_or_else(String::new, |s| f(&s[*v]))
        };
        let hits = |o: &Outcome| percent(o.hit_ratio());
        let latency = |o: &Outcome| Unit::Micros.show(o.latency_us);
        let iops = |o: &Outcome| count(o.iops.round() as u64);
        let shift = self.answer.question.block_size.shift();
        let curve = |&v: &usize| self.answer.problem.curve(v);
        let target = |&v: &usize| {
            let Some(met) = self.answer.target_met(v) else { return String::new() };
            let target = self.answer.problem.target_us(v).unwrap_or_default();
            format!("{}, {}", Unit::Micros.show(target), if met { "met" } else { "NOT MET" })
        };
        let volumes = &self.answer.workload.known.volumes;
        Table::from_items(0..volumes.len())
            .column("volume", |&v| volumes[v].name.clone())
            .number("requests", |v| count(curve(v).requests()))
            .number_if(has_dram, "memory", |&v| bytes(sizes[v].dram_bytes))
            .number_if(has_flash, "flash", |&v| bytes(sizes[v].flash_bytes))
            .number("useful", |&v| bytes(self.answer.problem.useful_blocks(v) << shift))
            .number("hits", |&v| hits(&predicted[v]))
            .number_if(simulates, "simulated", |v| of(v, &hits))
            .number("latency", |&v| latency(&predicted[v]))
            .number_if(simulates, "simulated", |v| of(v, &latency))
            .number_if(is_iops, "requests/s", |&v| iops(&predicted[v]))
            .number_if(is_iops && simulates, "simulated", |v| of(v, &iops))
            .number_if(targets, "target", target)
            .table()
    }

    /// The objective without the unit that the values show. Other units, such as what a share
    /// refers to, appear only in the name.
    fn objective_name(&self) -> &'static str {
        let name = self.answer.problem.objective_name();
        name.strip_suffix(", µs").unwrap_or(name)
    }

    /// Compares the division with divisions that need no search.
    pub(super) fn comparison(&self) -> Table {
        let simulates = self.answer.question.evaluate.simulates();
        let name = self.objective_name();
        let show = |value: Option<f64>| value.map_or_else(|| "-".into(), |v| self.show(v));
        let objective =
            |division: &OneDivision, at: usize| show(division.objectives(&self.answer.problem)[at]);
        let table = Table::from_items(&self.answer.divisions)
            .column("", |division| label(division.name).to_string())
            .number(name, |division| objective(division, 0))
            .number_if(simulates, "simulated", |division| objective(division, 1))
            .table();
        match self.answer.bound().filter(|_| self.answer.iterated.is_none()) {
            Some(bound) => table.row(["no division can beat".to_string(), self.show(bound)]),
            None => table,
        }
    }

    /// Formats an objective with its unit.
    fn show(&self, value: f64) -> String {
        match self.answer.problem.options().goal {
            Goal::Latency | Goal::Iops(IopsGoal::Inverse) => Unit::Micros.show(value),
            Goal::Iops(IopsGoal::Sum) => Unit::PerSecond.show(value),
            Goal::Hits => percent(value),
            Goal::Ppc => Unit::Plain.show(value),
        }
    }

    /// Results that differ from what the user asked for.
    pub fn warnings(&self) -> Vec<String> {
        let mut said = Vec::new();
        let iterated = self.answer.iterated.as_ref().filter(|i| !i.converged);
        if let (Evaluate::Simulate { convergence, .. }, Some(iterated)) =
            (self.answer.question.evaluate, iterated)
        {
            let round = &iterated.rounds[iterated.chosen];
            said.push(format!(
                "prediction and simulation still differed by more than {} after {} plans; the \
                 result is the plan that did best in simulation, for which they differ by {}",
                percent(convergence.tolerance),
                iterated.rounds.len(),
                percent(round.deviation)
            ));
        }
        let better =
            |a: f64, b: f64| if self.answer.problem.is_maximised() { a > b } else { a < b };
        if let Some([_, Some(found)]) =
            self.answer.divisions.first().map(|d| d.objectives(&self.answer.problem))
        {
            for division in &self.answer.divisions[1..] {
                let [_, simulated] = division.objectives(&self.answer.problem);
                let tells =
                    |other: &f64| better(*other, found) && self.show(*other) != self.show(found);
                if let Some(other) = simulated.filter(tells) {
                    said.push(format!(
                        "in simulation, {} did better than the chosen shares: {} compared with {}",
                        label(division.name),
                        self.show(other),
                        self.show(found)
                    ));
                }
            }
        }
        let missed: Vec<&str> = (0..self.answer.workload.known.volumes.len())
            .filter(|&v| self.answer.target_met(v) == Some(false))
            .map(|v| self.answer.workload.known.volumes[v].name.as_str())
            .collect();
        if !missed.is_empty() {
            said.push(format!("the target is not met for {}", missed.join(", ")));
        }
        said.extend(self.overload().map(|overload| {
            format!(
                "overloaded: at the simulated request rate, requests of {} wait for over a second \
                 on average, so latencies mainly reflect the length of the queue",
                overload.volumes.join(", ")
            )
        }));
        let not_simulated = self.answer.shared_not_simulated.as_ref();
        said.extend(not_simulated.map(|e| format!("one shared cache was not simulated: {e}")));
        said
    }

    /// The volumes that wait for a queue rather than for a device. Only for runs at the trace's
    /// timestamps: with a fixed number of requests in flight, a queue is expected.
    pub fn overload(&self) -> Option<Overload<'_>> {
        let Evaluate::Simulate { rate, .. } = self.answer.question.evaluate else { return None };
        let (_, _, simulated) = self.answer.found();
        let simulated = simulated.filter(|_| self.answer.question.queue_depth.is_none())?;
        let volumes = self.answer.workload.known.volumes.iter().zip(simulated);
        let late: Vec<_> = volumes.filter(|(_, o)| o.latency_us > QUEUED_US).collect();
        let wait_us = late.iter().map(|(_, o)| o.latency_us).max_by(f64::total_cmp)?;
        let volumes = late.iter().map(|(volume, _)| volume.name.as_str()).collect();
        let trace_us = self.answer.workload.profile.duration.as_secs_f64() * 1e6;
        Some(Overload { volumes, rate: slower(rate, trace_us, wait_us) })
    }

    /// Remarks on what the table does not show.
    pub(super) fn remarks(&self) -> Vec<String> {
        let left = self.answer.left();
        let mut said = Vec::new();
        // Less than a block is useless to any volume, and is not reported.
        let block = self.answer.question.block_size.bytes();
        let parts: Vec<String> = [(left.dram_bytes, "memory"), (left.flash_bytes, "flash")]
            .into_iter()
            .filter(|(bytes, _)| *bytes >= block)
            .map(|(bytes, of)| format!("{} of {of}", Unit::Bytes.show(bytes as f64)))
            .collect();
        if !parts.is_empty() {
            let why = match self.answer.question.search {
                Search::Exact => "because more cache would not improve the goal",
                Search::Anneal(_) => "because the search found no use for it",
            };
            said.push(format!("Unused, {why}: {}.", parts.join(" and ")));
        }
        if self.answer.problem.options().goal == Goal::Ppc && self.answer.problem.everything_fits()
        {
            said.push(
                "All useful data fits in one tier, so every volume keeps all its useful data there."
                    .into(),
            );
        }
        said
    }

    fn agreement(&self, iterated: &Iterated) -> String {
        let plans = iterated.rounds.len();
        let plans = if plans == 1 { "1 plan".into() } else { format!("{plans} plans") };
        let apart = percent(iterated.rounds[iterated.chosen].deviation);
        match iterated.converged {
            true => {
                format!(
                    "Prediction and simulation agree after {plans}: they differ by at most {apart}."
                )
            }
            false => {
                format!(
                    "Prediction and simulation still do not agree after {plans}: they differ by \
                     {apart}."
                )
            }
        }
    }
}

/// Volumes whose devices cannot keep up with the timestamps of the simulation.
#[derive(Clone, PartialEq, Debug)]
pub struct Overload<'a> {
    /// The names of the volumes.
    pub volumes: Vec<&'a str>,
    /// The advised speed, as a multiple of the traces' speed, at which the devices are busy half of
    /// the time; `None` if the traces have no timestamps.
    pub rate: Option<f64>,
}

/// The speed at which the devices are busy half of the time, rounded to one digit, if requests wait
/// for `wait_us` on average at the speed `rate`; `None` if the trace has no timestamps.
///
/// If requests arrive evenly, the queue grows evenly. The mean wait is then half of the time from
/// the last arrival to the last completion.
fn slower(rate: f64, trace_us: f64, wait_us: f64) -> Option<f64> {
    let load = 1.0 + 2.0 * wait_us / (trace_us / rate);
    let one_digit = format!("{:.0e}", rate / load / 2.0);
    one_digit.parse().ok().filter(|&rate| rate > 0.0)
}

/// The name of a division.
pub fn label(division: &str) -> &'static str {
    match division {
        "equal" => "equal shares",
        "shared" => "one shared cache",
        _ => "these shares",
    }
}

/// The name of the search in the text.
fn search_name(search: Search) -> &'static str {
    match search {
        Search::Exact => "exact (dynamic programming)",
        Search::Anneal(_) => "simulated annealing",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advised_rate_is_half_of_what_devices_can_take_and_below_the_one_in_use() {
        // Requests that arrive within 10 s and need 30 s of device time wait for 10 s on average.
        assert_eq!(slower(1.0, 10e6, 10e6), Some(0.2));
        // At a tenth of the speed, the requests arrive within 100 s and do not wait, except in a
        // burst.
        assert_eq!(slower(0.1, 10e6, 1.1e6), Some(0.05));
        for rate in [100.0, 1.0, 0.3, 0.1, 0.003] {
            assert!(slower(rate, 1e12, 1e6).unwrap() < rate, "{rate}");
        }
        assert_eq!(slower(1.0, 0.0, 10e6), None);
    }
}
