//! Plans by budget: the latency of the best purchase, and the sizes of its tiers.

use crate::axis::{Axis, Unit};
use crate::figure::{Figure, PALETTE, colour, escape_plotly};
use serde_json::{Value, json};

/// The best plan for one budget.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct BudgetPoint {
    /// Budget in US dollars.
    pub budget_usd: f64,
    /// Mean latency of the best plan, in microseconds.
    pub latency_us: f64,
    /// Mean latency of the best single tier of the same cost, in microseconds.
    pub baseline_us: f64,
    /// Bytes of each tier, fastest first; the same tiers at every point.
    pub tier_bytes: Vec<f64>,
    /// The plan's class (`single`, `pyramidal`, ...), shown by the marker and on hover.
    pub class: String,
}

/// Two panels that share an axis of budgets: above, the mean latency of the plan and of the single
/// tier; below, the sizes of the tiers.
#[derive(Clone, Debug, Default)]
pub struct BudgetChart {
    title: String,
    tiers: Vec<String>,
    points: Vec<BudgetPoint>,
}

const SYMBOLS: [&str; 4] = ["circle", "triangle-up", "diamond", "square"];

impl BudgetChart {
    /// An empty chart; `tiers` names the tiers' devices, fastest first.
    pub fn new<S: Into<String>>(
        title: impl Into<String>,
        tiers: impl IntoIterator<Item = S>,
    ) -> Self {
        let tiers = tiers.into_iter().map(Into::into).collect();
        Self { title: title.into(), tiers, points: Vec::new() }
    }
    /// Adds the plan for one budget.
    pub fn point(mut self, point: BudgetPoint) -> Self {
        self.points.push(point);
        self
    }

    /// Builds the figure.
    pub fn figure(mut self) -> Figure {
        self.points.sort_by(|a, b| a.budget_usd.total_cmp(&b.budget_usd));
        let budgets: Vec<f64> = self.points.iter().map(|p| p.budget_usd).collect();
        let mut data = self.latency_traces(&budgets);
        data.extend(self.size_traces(&budgets));
        let latencies = self.points.iter().flat_map(|p| [p.latency_us, p.baseline_us]);
        let sizes = self.points.iter().map(|p| p.tier_bytes.iter().sum::<f64>());
        let mut x = Axis::new("budget", Unit::Dollars).log().json(budgets.iter().copied());
        x["anchor"] = json!("y2");
        let mut latency =
            Axis::new("mean latency", Unit::Micros).log().json(latencies.map(|v| v * 1e-6));
        latency["domain"] = json!([0.46, 1.0]);
        let mut size = Axis::new("tier sizes", Unit::Bytes).json(sizes);
        size["domain"] = json!([0.0, 0.38]);
        let layout = json!({ "xaxis": x, "yaxis": latency, "yaxis2": size, "showlegend": true, "height": 560 });
        Figure::new(&self.title, data, layout)
    }

    fn latency_traces(&self, budgets: &[f64]) -> Vec<Value> {
        let seconds = |f: fn(&BudgetPoint) -> f64| -> Vec<f64> {
            self.points.iter().map(|p| f(p) * 1e-6).collect()
        };
        let mut classes: Vec<&str> = self.points.iter().map(|p| p.class.as_str()).collect();
        classes.sort_unstable();
        classes.dedup();
        let mut traces = vec![
            json!({ "type": "scatter", "mode": "lines", "name": "single tier of the same cost",
                    "x": budgets, "y": seconds(|p| p.baseline_us), "hoverinfo": "skip",
                    "line": { "color": "#8a8f98", "dash": "dash" } }),
            json!({ "type": "scatter", "mode": "lines", "name": "best plan", "x": budgets,
                    "y": seconds(|p| p.latency_us), "hoverinfo": "skip", "showlegend": false,
                    "line": { "color": PALETTE[0] } }),
        ];
        for (index, class) in classes.iter().enumerate() {
            let chosen: Vec<&BudgetPoint> =
                self.points.iter().filter(|p| p.class == *class).collect();
            traces.push(json!({
                "type": "scatter", "mode": "markers", "name": escape_plotly(class),
                "x": chosen.iter().map(|p| p.budget_usd).collect::<Vec<_>>(),
                "y": chosen.iter().map(|p| p.latency_us * 1e-6).collect::<Vec<_>>(),
                "marker": { "symbol": SYMBOLS[index % SYMBOLS.len()], "size": 9,
                            "color": colour(index) },
                "text": chosen.iter().map(|p| self.hover(p)).collect::<Vec<_>>(),
                "hovertemplate": "%{text}<extra></extra>",
            }));
        }
        traces
    }

    fn size_traces(&self, budgets: &[f64]) -> Vec<Value> {
        let tiers = self.tiers.iter().enumerate();
        let trace = |(index, name): (usize, &String)| {
            let bytes: Vec<f64> = self
                .points
                .iter()
                .map(|p| p.tier_bytes.get(index).copied().unwrap_or(0.0))
                .collect();
            let hover: Vec<String> = bytes
                .iter()
                .map(|&b| format!("{}: {}", escape_plotly(name), Unit::Bytes.show(b)))
                .collect();
            json!({
                "type": "scatter", "mode": "lines", "stackgroup": "size", "yaxis": "y2",
                "name": escape_plotly(name), "x": budgets, "y": bytes, "text": hover,
                "hovertemplate": "%{text}<extra></extra>", "line": { "width": 1,
                "color": colour(index + 3) },
            })
        };
        tiers.map(trace).collect()
    }

    fn hover(&self, point: &BudgetPoint) -> String {
        let mut text = format!(
            "{} at {}<br>mean latency {} (single tier {})",
            escape_plotly(&point.class),
            Unit::Dollars.show(point.budget_usd),
            Unit::Micros.show(point.latency_us),
            Unit::Micros.show(point.baseline_us)
        );
        for (name, &bytes) in self.tiers.iter().zip(&point.tier_bytes) {
            text += &format!("<br>{} {}", Unit::Bytes.show(bytes), escape_plotly(name));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_shows_its_class_and_every_tier_its_size() {
        let mut chart = BudgetChart::new("t", ["DRAM", "SSD"]);
        for (budget_usd, class) in [(2.0, "pyramidal"), (1.0, "single")] {
            chart = chart.point(BudgetPoint {
                budget_usd,
                latency_us: 10.0,
                baseline_us: 20.0,
                tier_bytes: vec![1e6, 2e6],
                class: class.into(),
            });
        }
        let json = chart.figure().to_json();
        let names: Vec<&str> =
            json["data"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
        assert_eq!(
            names,
            ["single tier of the same cost", "best plan", "pyramidal", "single", "DRAM", "SSD"]
        );
        assert_eq!(json["data"][4]["x"], json!([1.0, 2.0]));
        assert!(json["data"][2]["text"][0].as_str().unwrap().contains("DRAM"));
    }
}
