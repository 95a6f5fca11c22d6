//! What a plan says, as text and tables.

use std::io::Write;

use forebay_plan::{Choice, HitCounts, Metadata, Plan, Purchase};
use forebay_report::{Table, Unit};

use super::answer::{Answer, method_name, policy_name};
use super::{Evaluate, Method};
use crate::format::{count, percent};

/// Plans of a front that the text shows, at most.
const PARETO_ROWS: usize = 60;

impl Answer<'_> {
    pub fn print(&self, out: &mut dyn Write) -> std::io::Result<()> {
        for (name, value) in self.facts() {
            writeln!(out, "{name:<20} {value}")?;
        }
        for plan in &self.plans {
            writeln!(out, "\n{}", self.budget_line(plan))?;
            for backing in self.backings() {
                let table = self.choices_table(plan, backing);
                if let Some(table) = table {
                    writeln!(out, "\nIn front of {backing}:\n{}", table.to_text().trim_end())?;
                }
                let best = plan.choices.iter().find(|c| c.purchase.backing == backing);
                if let Some(advice) = best.and_then(advice) {
                    writeln!(out, "{advice}")?;
                }
                if let Some(single) = best.and_then(|best| single_tier(plan, best)) {
                    writeln!(out, "{single}")?;
                }
            }
        }
        for backing in self.backings() {
            if self.args.sweep.is_some() {
                let table = self.sweep_table(backing);
                let table = table.to_text();
                writeln!(out, "\nBy budget, in front of {backing}:\n{}", table.trim_end())?;
            }
            if self.args.pareto {
                let table = self.pareto_table(backing);
                let table = table.to_text();
                writeln!(
                    out,
                    "\nNot beaten in cost, mean latency, 99th percentile and drive writes at once, in \
                     front of {backing}{}:\n{}",
                    match self.pareto_step(backing) {
                        1 => String::new(),
                        step => format!(" (one of {step} shown; --json has all)"),
                    },
                    table.trim_end()
                )?;
            }
        }
        Ok(())
    }

    /// The best choice for each budget of the sweep.
    fn sweep_table(&self, backing: &str) -> Table {
        let table = Table::new()
            .number("budget")
            .column("buy")
            .number("cost")
            .number("mean latency")
            .number("same tier 1 alone")
            .number("gained");
        self.sweep.iter().fold(table, |table, plan| {
            let best = plan.choices.iter().find(|c| c.purchase.backing == backing);
            let Some(best) = best else { return table };
            table.row([
                Unit::Dollars.show(plan.budget_usd),
                tiers(&best.purchase),
                Unit::Dollars.show(best.purchase.cost_usd),
                latency(&best.purchase),
                Unit::Micros.show(best.baseline.mean_latency_us),
                percent(best.latency_reduction),
            ])
        })
    }

    /// The text shows every so many-th plan of the front.
    fn pareto_step(&self, backing: &str) -> usize {
        let front = self.pareto.iter().find(|front| front.backing == backing);
        front.map_or(1, |front| front.points.len().div_ceil(PARETO_ROWS).max(1))
    }

    fn pareto_table(&self, backing: &str) -> Table {
        let table = Table::new()
            .number("cost")
            .column("buy")
            .number("mean latency")
            .number("p99")
            .number("drive writes/day")
            .number("flash writes/day");
        let rows = self.pareto_rows().into_iter().filter(|row| row.backing == backing);
        rows.step_by(self.pareto_step(backing)).fold(table, |table, row| {
            let writes = row.flash_bytes_written_per_day;
            let drive = row.drive_writes_per_day;
            table.row([
                Unit::Dollars.show(row.cost_usd),
                row.buy(),
                Unit::Micros.show(row.mean_latency_us),
                Unit::Micros.show(row.p99_latency_us),
                drive.map_or_else(|| "-".into(), |n| format!("{n:.2}")),
                writes.map_or_else(|| "-".into(), |bytes| Unit::Bytes.show(bytes)),
            ])
        })
    }

    pub fn facts(&self) -> Vec<(String, String)> {
        let p = self.profile;
        let accesses = p.reads() + p.writes();
        let block = self.options.cost.block_size;
        let dram = self.catalogue.reference_device().map_or("memory", |d| d.name.as_str());
        let shown = |blocks: u64| Unit::Bytes.show((blocks * block.bytes()) as f64);
        let mut facts = vec![
            ("requests".to_string(), count(p.requests())),
            ("block accesses".into(), count(accesses)),
            ("of these writes".into(), percent(p.writes() as f64 / accesses.max(1) as f64)),
            ("distinct data".into(), shown(p.footprint_blocks())),
            ("every reuse fits in".into(), shown(p.useful_blocks())),
            (format!("all in {dram}"), Unit::Dollars.show(self.full_usd)),
            ("write policy".into(), policy_name(self.args.policy).into()),
            ("search".into(), method_name(self.args.method).into()),
        ];
        if self.options.cost.metadata != Metadata::default() {
            let bytes: Vec<String> = self.metadata_bytes().iter().map(u64::to_string).collect();
            facts.push(("metadata by tier".into(), format!("{} B a block", bytes.join(", "))));
        }
        let rate = p.options().sample_rate;
        if rate < 1.0 {
            facts.push(("sampled".into(), percent(rate)));
        }
        facts
    }

    fn how_judged(&self) -> &'static str {
        match self.args.evaluate {
            Evaluate::Analytic => "judged by formulas",
            Evaluate::Simulate => "simulated",
            Evaluate::Replay => "replayed",
        }
    }

    pub fn budget_line(&self, plan: &Plan) -> String {
        let share = plan.budget_usd / self.full_usd;
        format!(
            "Budget {}, {} of what all data would cost in DRAM; {} sizes {}{}",
            Unit::Dollars.show(plan.budget_usd),
            percent(share),
            count(plan.evaluations),
            match self.args.method {
                Method::Cydonia if self.args.evaluate != Evaluate::Analytic => self.how_judged(),
                _ => "tried by formulas",
            },
            match plan.choices.iter().filter(|c| c.purchase.judged_by != "analytic").count() {
                0 => String::new(),
                n => format!("; the first {n} {}, marked *", self.how_judged()),
            }
        )
    }

    /// The choices in front of one backing store; none if there are none.
    pub fn choices_table(&self, plan: &Plan, backing: &str) -> Option<Table> {
        // Combinations that differ only in a second tier that is not bought are one purchase.
        let mut choices: Vec<&Choice> = Vec::new();
        for choice in plan.choices.iter().filter(|c| c.purchase.backing == backing) {
            if !choices.iter().any(|c| tiers(&c.purchase) == tiers(&choice.purchase)) {
                choices.push(choice);
            }
        }
        if choices.is_empty() {
            return None;
        }
        let table = Table::new()
            .column("buy")
            .column("class")
            .number("cost")
            .number("mean latency")
            .number("p99")
            .number("same tier 1 alone")
            .number("gained")
            .number("hits by tier")
            .number("flash writes/day")
            .number("drive writes/day")
            .number("wear");
        Some(choices.into_iter().fold(table, |table, c| table.row(row(c))))
    }
}

fn row(choice: &Choice) -> [String; 11] {
    let p = &choice.purchase;
    let bought = p.hit_ratio.iter().zip(&p.tiers).filter(|(_, tier)| tier.bytes > 0);
    let hits: Vec<String> = bought.map(|(&h, _)| percent(h)).collect();
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    [
        tiers(p),
        p.class.name().into(),
        Unit::Dollars.show(p.cost_usd),
        latency(p),
        Unit::Micros.show(p.p99_latency_us),
        Unit::Micros.show(choice.baseline.mean_latency_us),
        percent(choice.latency_reduction),
        hits.join(", "),
        or_unknown(p.flash_bytes_written_per_day.map(|b| Unit::Bytes.show(b))),
        or_unknown(p.drive_writes_per_day.map(|n| format!("{n:.2}"))),
        or_unknown(p.endurance_used.map(|used| Unit::Fraction.show(used))),
    ]
}

/// `704 µs`, or `704 µs ± 1.5 %` where it was estimated from a sample.
fn latency(purchase: &Purchase) -> String {
    let mark = if purchase.judged_by == "analytic" { "" } else { " *" };
    let text = Unit::Micros.show(purchase.mean_latency_us) + mark;
    match purchase.mean_latency_us_bounds {
        None => text,
        Some(b) => {
            let off = (b.high - b.low) / 2.0 / purchase.mean_latency_us;
            format!("{text} ± {}", percent(off))
        }
    }
}

/// `12 MiB FastDRAM + 3 GiB FastSSD`; second tiers of no size are left out.
pub fn tiers(purchase: &Purchase) -> String {
    tier_names(purchase.tiers.iter().map(|t| (t.device.as_str(), t.bytes)))
}

/// The same for tiers given as device and bytes.
pub fn tier_names<'a>(tiers: impl Iterator<Item = (&'a str, u64)>) -> String {
    let part = |(at, (device, bytes)): (usize, (&str, u64))| match bytes {
        0 if at > 0 => None,
        0 => Some(format!("no {device}")),
        bytes => Some(format!("{} {device}", Unit::Bytes.show(bytes as f64))),
    };
    tiers.enumerate().filter_map(part).collect::<Vec<_>>().join(" + ")
}

/// What the fastest single tier of any device within the budget would do, beside the best of two.
fn single_tier(plan: &Plan, best: &Choice) -> Option<String> {
    let held = |p: &Purchase| p.tiers.iter().filter(|t| t.bytes > 0).count();
    if held(&best.purchase) < 2 {
        return None;
    }
    let singles = plan.choices.iter().filter(|c| c.purchase.backing == best.purchase.backing);
    let single = singles
        .filter(|c| held(&c.purchase) < 2)
        .min_by(|a, b| a.purchase.mean_latency_us.total_cmp(&b.purchase.mean_latency_us))?;
    let p = &single.purchase;
    let slower = p.mean_latency_us / best.purchase.mean_latency_us - 1.0;
    Some(format!(
        "The best single tier of any device is {}, {}: {} slower than the first of these, at {}.",
        tiers(p),
        latency(p),
        percent(slower),
        Unit::Dollars.show(p.cost_usd)
    ))
}

/// What to tell the reader about the best choice, if there is something to tell.
pub fn advice(choice: &Choice) -> Option<String> {
    let p = &choice.purchase;
    let mut text = match &choice.break_even {
        Some(b) => {
            let first = &p.tiers.first()?.device;
            let below: Vec<&str> =
                p.tiers[1..].iter().filter(|t| t.bytes > 0).map(|t| t.device.as_str()).collect();
            let (what, is, one) = match below.as_slice() {
                [second] => ("second tier", "is", (*second).to_owned()),
                _ => ("further tiers", "are", format!("{} in the mean", below.join(" and "))),
            };
            let verdict = if b.second_tier_is_cheaper { "cheaper" } else { "dearer" };
            format!(
                "{first} alone would need {} to be as fast as the first of these: the {what} {is} \
                 the {verdict} way, since a byte of {first} costs {:.2} times as much as one of \
                 {one} and the two ways cost the same at {:.2}.",
                Unit::Bytes.show(b.single_tier_bytes as f64),
                b.price_ratio,
                b.price_ratio_needed
            )
        }
        None => String::new(),
    };
    if let Some(used) = p.endurance_used.filter(|&used| used > 1.0) {
        text += &format!(
            " Its flash is written {used:.1} times as much as it is rated for: the part that is \
             bought would wear out early."
        );
    }
    (!text.is_empty()).then(|| text.trim_start().to_string())
}
