//! What a plan says, as text and tables.

use std::io::Write;

use forebay_plan::{Choice, HitCounts, Plan, Purchase};
use forebay_report::{Table, Unit};

use super::answer::{Answer, method_name, policy_name};
use crate::format::{count, percent};

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
            }
        }
        Ok(())
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
        let rate = p.options().sample_rate;
        if rate < 1.0 {
            facts.push(("sampled".into(), percent(rate)));
        }
        facts
    }

    pub fn budget_line(&self, plan: &Plan) -> String {
        let share = plan.budget_usd / self.full_usd;
        format!(
            "Budget {}, {} of what all data would cost in DRAM; {} sizes tried by formulas{}",
            Unit::Dollars.show(plan.budget_usd),
            percent(share),
            count(plan.evaluations),
            match plan.choices.iter().filter(|c| c.purchase.judged_by == "simulate").count() {
                0 => String::new(),
                n => format!("; the first {n} simulated, marked *"),
            }
        )
    }

    /// The choices in front of one backing store; none if there are none.
    pub fn choices_table(&self, plan: &Plan, backing: &str) -> Option<Table> {
        let choices: Vec<&Choice> =
            plan.choices.iter().filter(|c| c.purchase.backing == backing).collect();
        if choices.is_empty() {
            return None;
        }
        let table = Table::new()
            .column("buy")
            .column("class")
            .number("cost")
            .number("mean latency")
            .number("single tier")
            .number("gained")
            .number("hits by tier")
            .number("flash writes/day")
            .number("wear");
        Some(choices.into_iter().fold(table, |table, c| table.row(row(c))))
    }
}

fn row(choice: &Choice) -> [String; 9] {
    let p = &choice.purchase;
    let bought = p.hit_ratio.iter().zip(&p.tiers).filter(|(_, tier)| tier.bytes > 0);
    let hits: Vec<String> = bought.map(|(&h, _)| percent(h)).collect();
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    [
        tiers(p),
        p.class.name().into(),
        Unit::Dollars.show(p.cost_usd),
        latency(p),
        Unit::Micros.show(choice.baseline.mean_latency_us),
        percent(choice.latency_reduction),
        hits.join(", "),
        or_unknown(p.flash_bytes_written_per_day.map(|b| Unit::Bytes.show(b))),
        or_unknown(p.endurance_used.map(|used| Unit::Fraction.show(used))),
    ]
}

/// `704 µs`, or `704 µs ± 1.5 %` where it was estimated from a sample.
fn latency(purchase: &Purchase) -> String {
    let mark = if purchase.judged_by == "simulate" { " *" } else { "" };
    let text = Unit::Micros.show(purchase.mean_latency_us) + mark;
    match purchase.mean_latency_us_bounds {
        None => text,
        Some(b) => {
            let off = (b.high - b.low) / 2.0 / purchase.mean_latency_us;
            format!("{text} ± {}", percent(off))
        }
    }
}

/// `12 MiB FastDRAM + 3 GiB FastSSD`; tiers of no size are left out but for what they are.
pub fn tiers(purchase: &Purchase) -> String {
    let part = |t: &forebay_plan::Tier| match t.bytes {
        0 => format!("no {}", t.device),
        bytes => format!("{} {}", Unit::Bytes.show(bytes as f64), t.device),
    };
    purchase.tiers.iter().map(part).collect::<Vec<_>>().join(" + ")
}

/// What to tell the reader about the best choice, if there is something to tell.
pub fn advice(choice: &Choice) -> Option<String> {
    let p = &choice.purchase;
    let mut text = match &choice.break_even {
        Some(b) => {
            let [first, second, ..] = p.tiers.as_slice() else { return None };
            let verdict = if b.second_tier_is_cheaper { "cheaper" } else { "dearer" };
            format!(
                "{} alone would need {} to be as fast as the first of these: the second tier is \
                 the {verdict} way, since a byte of {} costs {:.2} times as much as one of {} and \
                 the two ways cost the same at {:.2}.",
                first.device,
                Unit::Bytes.show(b.single_tier_bytes as f64),
                first.device,
                b.price_ratio,
                second.device,
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
