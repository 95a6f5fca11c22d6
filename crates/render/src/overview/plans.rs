//! Purchases: the choices of a plan and, for a sweep of budgets, the plan by budget.

use std::collections::BTreeSet;

use forebay_report::{BudgetChart, BudgetPoint, Section, Table, Unit};
use serde_json::Value;

use super::document::{Document, elements, number, text};
use crate::format::percent;
use crate::plan::{SINGLE, tier_names, times};

/// The sections of one plan: one for each backing store.
pub fn sections(plan: &Document) -> Vec<Section> {
    let mut backings: Vec<&str> = elements(&plan.value, "choices").filter_map(backing).collect();
    backings.sort_unstable();
    backings.dedup();
    backings.into_iter().map(|name| section(plan, name)).collect()
}

fn section(plan: &Document, name: &str) -> Section {
    let budget = Unit::Dollars.show(plan.number("/budget_usd"));
    let policy = plan.value.get("policy").and_then(Value::as_str).unwrap_or_default();
    let mut table = Table::new()
        .caption(format!("For {budget}, {policy}, fastest first"))
        .column("buy")
        .column("class")
        .number("cost")
        .number("mean latency")
        .number(SINGLE)
        .number("gained")
        .number("wear");
    let mut listed = BTreeSet::new();
    for choice in choices(&plan.value, name) {
        let tiers =
            elements(choice, "tiers").map(|t| (text(t, "device"), number(t, "/bytes") as u64));
        let tiers: Vec<(String, u64)> = tiers.collect();
        let bought = tier_names(tiers.iter().map(|(device, bytes)| (device.as_str(), *bytes)));
        // Combinations that differ only in a second tier that is not bought are the same purchase.
        if !listed.insert(bought.clone()) {
            continue;
        }
        table = table.row([
            bought,
            text(choice, "class"),
            Unit::Dollars.show(number(choice, "/cost_usd")),
            Unit::Micros.show(number(choice, "/mean_latency_us")),
            Unit::Micros.show(number(choice, "/baseline/mean_latency_us")),
            percent(number(choice, "/latency_reduction")),
            match choice.get("endurance_used").and_then(Value::as_f64) {
                Some(used) => times(used),
                None => "-".to_owned(),
            },
        ]);
    }
    let section = Section::new(format!("What to buy in front of {name}"));
    let section = section.labelled(&plan.label).table(table);
    match most_useful(&plan.value, name) {
        Some(best) => section.figure(chart(&plan.value, name, &best)),
        None => section,
    }
}

/// The combination of tiers that is the fastest for the most budgets.
fn most_useful(plan: &Value, name: &str) -> Option<Vec<String>> {
    let winners: Vec<Vec<String>> =
        elements(plan, "sweep").filter_map(|p| choices(p, name).next()).map(devices).collect();
    winners.iter().max_by_key(|w| winners.iter().filter(|x| x == w).count()).cloned()
}

/// The plan by budget, for one combination of tiers.
fn chart(plan: &Value, name: &str, combination: &[String]) -> forebay_report::Figure {
    let title = format!("Plan against budget: {}", combination.join(" + "));
    let mut chart = BudgetChart::new(title, combination);
    for swept in elements(plan, "sweep") {
        let Some(choice) = choices(swept, name).find(|c| devices(c) == combination) else {
            continue;
        };
        chart = chart.point(BudgetPoint {
            budget_usd: number(swept, "/budget_usd"),
            latency_us: number(choice, "/mean_latency_us"),
            baseline_us: number(choice, "/baseline/mean_latency_us"),
            tier_bytes: elements(choice, "tiers").map(|t| number(t, "/bytes")).collect(),
            class: text(choice, "class"),
        });
    }
    chart.figure().caption(
        "The best sizes for the combination that is fastest for the most budgets, compared with a \
         single tier of the same cost.",
    )
}

/// The choices of a plan in front of a backing store.
fn choices<'a>(plan: &'a Value, name: &'a str) -> impl Iterator<Item = &'a Value> {
    elements(plan, "choices").filter(move |c| backing(c) == Some(name))
}

fn backing(choice: &Value) -> Option<&str> {
    choice.get("backing").and_then(Value::as_str)
}

fn devices(choice: &Value) -> Vec<String> {
    elements(choice, "tiers").map(|tier| text(tier, "device")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn choice(tiers: &[&str], backing: &str) -> Value {
        let tiers: Vec<Value> = tiers.iter().map(|d| json!({"device": d, "bytes": 1})).collect();
        json!({"tiers": tiers, "backing": backing, "class": "single", "mean_latency_us": 1.0})
    }

    #[test]
    fn the_chart_is_of_the_combination_that_wins_most_often() {
        let wins = |d: &str| json!({"budget_usd": 1.0, "choices": [choice(&[d], "disk")]});
        let plan = json!({"choices": [choice(&["a"], "disk"), choice(&["a"], "array")],
            "sweep": [wins("a"), wins("b"), wins("b")]});
        assert_eq!(most_useful(&plan, "disk"), Some(vec!["b".to_string()]));
        assert_eq!(most_useful(&plan, "array"), None);
        let document = Document { label: String::new(), value: plan };
        assert_eq!(sections(&document).len(), 2, "one for each backing store");
    }

    #[test]
    fn a_purchase_is_listed_once_under_the_label_of_its_plan() {
        let of_two = |second: &str| {
            json!({"backing": "disk", "class": "single", "mean_latency_us": 1.0, "tiers": [
                {"device": "memory", "bytes": 1 << 20}, {"device": second, "bytes": 0}]})
        };
        let value = json!({"choices": [of_two("flash"), of_two("disk cache")], "sweep": []});
        let plan = Document { label: "tight".into(), value };
        let page = sections(&plan)
            .into_iter()
            .fold(forebay_report::Report::new("Plan"), |page, section| page.section(section));
        let html = page.to_html();
        assert!(html.contains("What to buy in front of disk: tight"), "two plans look alike");
        assert_eq!(html.matches("1 MiB memory").count(), 1);
        assert!(!html.contains("0 B flash") && !html.contains("0 B disk cache"));
    }
}
