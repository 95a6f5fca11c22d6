//! Every kind of chart on one page: `cargo run -p forebay-report --example gallery -- FILE`.

use forebay_report::{
    Axis, Bars, BudgetChart, BudgetPoint, HeatMap, Lines, Percentiles, Report, Section, Shape,
    Table, Unit,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "gallery.html".into());
    let sizes: Vec<f64> = (20..36).map(|p| 2f64.powi(p)).collect();
    let miss = |tail: f64| sizes.iter().map(move |s| 1.0 / (1.0 + s / 2e8).powf(tail));
    let curves = Lines::new("Curves")
        .x(Axis::new("cache size", Unit::Bytes).log())
        .y(Axis::new("miss ratio", Unit::Fraction).from_zero())
        .line("LRU", sizes.clone(), miss(0.6))
        .band(miss(0.65), miss(0.55))
        .line("ARC", sizes.clone(), miss(0.8))
        .shaped("optimum", Shape::Dashed, sizes.clone(), miss(1.2))
        .mark(2f64.powi(30), "bought");
    let percentiles = Percentiles::new("Latency distribution")
        .series("reads", [(0.5, 80.0), (0.9, 120.0), (0.99, 900.0), (0.999, 9e3), (1.0, 2e4)])
        .series("writes", [(0.5, 30.0), (0.9, 60.0), (0.99, 100.0), (0.999, 4e3), (1.0, 6e3)]);
    let bars = Bars::new("Bars", ["dram", "flash", "backing"])
        .axis(Axis::new("requests", Unit::PerSecond))
        .series("reads", [120e3, 40e3, 900.0])
        .series("writes", [60e3, 20e3, 400.0]);
    let stacked = Bars::new("Stacked bars", ["vm1", "vm2", "vm3 <hot>"])
        .axis(Axis::new("size", Unit::Bytes))
        .series("dram", [1e9, 2e9, 0.5e9])
        .series("flash", [8e9, 4e9, 12e9])
        .stacked()
        .horizontal();
    let map = HeatMap::new("Heat map", Unit::Micros)
        .columns("tier 1", ["1 GiB", "2 GiB", "4 GiB"])
        .rows("tier 2", ["none", "8 GiB", "16 GiB"])
        .row([2000.0, 1500.0, 900.0])
        .row([400.0, 300.0, 200.0])
        .row([120.0, 90.0, f64::NAN])
        .log();
    let mut budget = BudgetChart::new("Plan against budget", ["DRAM", "SSD"]);
    for (usd, us, class, ssd) in [
        (1.0, 900.0, "single", 0.0),
        (4.0, 300.0, "pyramidal", 9e9),
        (16.0, 80.0, "pyramidal", 3e10),
    ] {
        budget = budget.point(BudgetPoint {
            budget_usd: usd,
            latency_us: us,
            baseline_us: 1000.0 - usd * 10.0,
            tier_bytes: vec![usd * 5e8, ssd],
            class: class.into(),
        });
    }
    let table =
        Table::new().column("policy").number("hits").row(["LRU", "0.61"]).row(["ARC", "0.67"]);
    Report::new("Gallery")
        .subtitle("Every kind of picture, with made-up numbers")
        .section(
            Section::new("Words and tables")
                .text("A paragraph says what to look at.")
                .facts([("requests", "1.2 M"), ("p99", "900 µs")])
                .table(table),
        )
        .section(
            Section::new("Pictures")
                .figure(curves.figure().caption("A shaded band shows bounds."))
                .figure(percentiles.figure())
                .figure(bars.figure())
                .figure(stacked.figure())
                .figure(map.figure())
                .figure(budget.figure()),
        )
        .write_html(&path)?;
    Ok(())
}
