//! Latency distributions by percentile, on a scale of nines.

use crate::axis::{Axis, Unit};
use crate::figure::{Figure, colour, escape_plotly};
use serde_json::json;

/// A percentile plot: the latency within which each percentile of the requests completes. The
/// horizontal axis is logarithmic in the fraction of *slower* requests, so that the tail, which
/// matters most, gets as much space as the rest.
#[derive(Clone, Debug, Default)]
pub struct Percentiles {
    title: String,
    series: Vec<(String, Vec<(f64, f64)>)>,
}

impl Percentiles {
    /// An empty plot.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), series: Vec::new() }
    }

    /// Adds a distribution as `(fraction, latency_us)` points: (0.99, 1200.0) means that 99 % of
    /// requests took at most 1,200 µs. Points with a fraction of 1 or more are drawn at the end of
    /// the axis.
    pub fn series(
        mut self,
        name: impl Into<String>,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        let mut points: Vec<_> = points.into_iter().collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        self.series.push((name.into(), points));
        self
    }

    /// Builds the figure.
    pub fn figure(self) -> Figure {
        let below_one = |p: &&(f64, f64)| p.0 < 1.0;
        let nines_max = self
            .series
            .iter()
            .flat_map(|(_, points)| points.iter().filter(below_one))
            .map(|p| -(1.0 - p.0).log10())
            .fold(2.0_f64, f64::max)
            .ceil();
        let place = |fraction: f64| {
            if fraction < 1.0 { -(1.0 - fraction).log10() } else { nines_max + 0.5 }
        };
        let data = self
            .series
            .iter()
            .enumerate()
            .map(|(index, (name, points))| {
                let hover: Vec<String> = points
                    .iter()
                    .map(|p| format!("{}: {}", percentile(p.0), Unit::Micros.show(p.1)))
                    .collect();
                json!({
                    "type": "scatter", "mode": "lines+markers", "name": escape_plotly(name),
                    "x": points.iter().map(|p| place(p.0)).collect::<Vec<_>>(),
                    "y": points.iter().map(|p| p.1 * Unit::Micros.scale()).collect::<Vec<_>>(),
                    "line": { "color": colour(index) },
                    "text": hover, "hovertemplate": "%{text}",
                })
            })
            .collect();
        let mut at = vec![0.0, place(0.5)];
        let mut text = vec!["0".to_string(), percentile(0.5)];
        for nines in 1..=nines_max as i32 {
            at.push(f64::from(nines));
            text.push(percentile(1.0 - 0.1_f64.powi(nines)));
        }
        at.push(nines_max + 0.5);
        text.push("max".into());
        let latencies = self.series.iter().flat_map(|(_, p)| p.iter().map(|p| p.1 * 1e-6));
        let layout = json!({
            "xaxis": { "title": { "text": "percentile of requests" }, "tickvals": at,
                       "ticktext": text, "automargin": true, "range": [0, nines_max + 0.6] },
            "yaxis": Axis::new("latency", Unit::Micros).log().json(latencies),
            "showlegend": self.series.len() > 1,
        });
        Figure::new(&self.title, data, layout)
    }
}

/// Formats a fraction as `p50`, `p99.9` and so on.
fn percentile(fraction: f64) -> String {
    if fraction >= 1.0 {
        return "max".into();
    }
    let text = format!("{:.6}", fraction * 100.0);
    format!("p{}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_nine_has_the_same_room() {
        let json = Percentiles::new("t")
            .series("a", [(0.9, 10.0), (0.999, 30.0), (0.99, 20.0), (1.0, 99.0)])
            .figure()
            .to_json();
        let x: Vec<f64> =
            json["data"][0]["x"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
        for (have, want) in x.iter().zip([1.0, 2.0, 3.0, 3.5]) {
            assert!((have - want).abs() < 1e-9, "{x:?}");
        }
        let ticks = json["layout"]["xaxis"]["ticktext"].as_array().unwrap();
        assert_eq!(ticks[ticks.len() - 2], "p99.9");
    }
}
