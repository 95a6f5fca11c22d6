//! Line charts: one or more series that share their axes.

use crate::axis::{Axis, Unit};
use crate::figure::{Figure, colour, escape_plotly, translucent};
use serde_json::{Value, json};

/// How the points of a series are joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Shape {
    /// By straight lines.
    #[default]
    Straight,
    /// By steps: the value holds until the next point.
    Steps,
    /// Not at all: markers only.
    Points,
    /// By dashes, for references and bounds.
    Dashed,
    /// By thick straight lines: spans of time, with gaps between them.
    Spans,
}

/// A chart of curves.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    title: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
    markers: Vec<(f64, String)>,
}

#[derive(Clone, Debug)]
struct Series {
    name: String,
    x: Vec<f64>,
    y: Vec<f64>,
    band: Option<(Vec<f64>, Vec<f64>)>,
    shape: Shape,
}

impl Lines {
    /// An empty chart.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }
    /// Sets the horizontal axis.
    pub fn x(mut self, axis: Axis) -> Self {
        self.x = axis;
        self
    }
    /// Sets the vertical axis.
    pub fn y(mut self, axis: Axis) -> Self {
        self.y = axis;
        self
    }
    /// Adds a curve joined by straight lines. Values that are not finite leave a gap.
    pub fn line(
        self,
        name: impl Into<String>,
        x: impl IntoIterator<Item = f64>,
        y: impl IntoIterator<Item = f64>,
    ) -> Self {
        self.shaped(name, Shape::Straight, x, y)
    }
    /// Adds a series whose points are joined according to `shape`.
    pub fn shaped(
        mut self,
        name: impl Into<String>,
        shape: Shape,
        x: impl IntoIterator<Item = f64>,
        y: impl IntoIterator<Item = f64>,
    ) -> Self {
        let (x, y) = (x.into_iter().collect(), y.into_iter().collect());
        self.series.push(Series { name: name.into(), x, y, band: None, shape });
        self
    }
    /// Adds bounds, drawn as a shaded band, to the series added last; does nothing without a
    /// series.
    pub fn band(
        mut self,
        low: impl IntoIterator<Item = f64>,
        high: impl IntoIterator<Item = f64>,
    ) -> Self {
        if let Some(last) = self.series.last_mut() {
            last.band = Some((low.into_iter().collect(), high.into_iter().collect()));
        }
        self
    }
    /// Adds a vertical line with a label at `x`.
    pub fn mark(mut self, x: f64, label: impl Into<String>) -> Self {
        self.markers.push((x, label.into()));
        self
    }

    /// Builds the figure.
    pub fn figure(self) -> Figure {
        let (sx, sy) = (self.x.unit.scale(), self.y.unit.scale());
        let mut data = Vec::new();
        for (index, series) in self.series.iter().enumerate() {
            let colour = &colour(index);
            data.extend(series.json(colour, sx, sy, self.x.unit, self.y.unit));
        }
        let xs = self.series.iter().flat_map(|s| s.x.iter().map(|v| v * sx));
        let ys = self.series.iter().flat_map(|s| s.y.iter().map(|v| v * sy));
        let (shapes, labels) = self.marks(sx);
        let layout = json!({
            "xaxis": self.x.json(xs),
            "yaxis": self.y.json(ys),
            "showlegend": self.series.len() > 1,
            "shapes": shapes,
            "annotations": labels,
        });
        Figure::new(&self.title, data, layout)
    }

    fn marks(&self, scale: f64) -> (Vec<Value>, Vec<Value>) {
        let line = |x: f64| {
            json!({ "type": "line", "xref": "x", "yref": "paper", "x0": x, "x1": x, "y0": 0,
                    "y1": 1, "line": { "dash": "dot", "width": 1, "color": "#8a8f98" } })
        };
        let label = |x: f64, text: &str| {
            // Plotly places annotations on a logarithmic axis by their exponent.
            let at = if self.x.log { x.log10() } else { x };
            json!({ "x": at, "y": 1, "yref": "paper", "text": escape_plotly(text),
                    "showarrow": false, "xanchor": "left", "yanchor": "top", "textangle": 90 })
        };
        let shown =
            || self.markers.iter().filter(|(x, _)| x.is_finite() && (!self.x.log || *x > 0.0));
        (
            shown().map(|(x, _)| line(x * scale)).collect(),
            shown().map(|(x, text)| label(x * scale, text)).collect(),
        )
    }
}

impl Series {
    fn json(&self, colour: &str, sx: f64, sy: f64, ux: Unit, uy: Unit) -> Vec<Value> {
        let x: Vec<f64> = self.x.iter().map(|v| v * sx).collect();
        let mut traces = Vec::new();
        if let Some((low, high)) = &self.band {
            for (edge, fill) in [(low, "none"), (high, "tonexty")] {
                let y: Vec<f64> = edge.iter().map(|v| v * sy).collect();
                traces.push(json!({
                    "type": "scatter", "x": x, "y": y, "mode": "lines", "line": { "width": 0 },
                    "fill": fill, "fillcolor": translucent(colour, 0.18), "hoverinfo": "skip",
                    "showlegend": false, "legendgroup": self.name,
                }));
            }
        }
        let hover: Vec<String> = self
            .x
            .iter()
            .zip(&self.y)
            .map(|(&x, &y)| format!("{}<br>{}", ux.show(x), uy.show(y)))
            .collect();
        let (mode, line) = match self.shape {
            Shape::Straight if self.x.len() > 60 => ("lines", json!({ "color": colour })),
            Shape::Straight => ("lines+markers", json!({ "color": colour })),
            Shape::Steps => ("lines", json!({ "color": colour, "shape": "hv" })),
            Shape::Points => ("markers", json!({ "color": colour })),
            Shape::Dashed => ("lines", json!({ "color": colour, "dash": "dash" })),
            Shape::Spans => ("lines", json!({ "color": colour, "width": 5 })),
        };
        let y: Vec<f64> = self.y.iter().map(|v| v * sy).collect();
        traces.push(json!({
            "type": "scatter", "name": escape_plotly(&self.name), "x": x, "y": y, "mode": mode,
            "line": line, "marker": { "color": colour, "size": 6 }, "text": hover,
            "hovertemplate": "%{text}", "legendgroup": self.name,
        }));
        traces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_become_seconds_and_bad_numbers_become_gaps() {
        let json = Lines::new("t")
            .y(Axis::new("latency", Unit::Micros).log())
            .line("a", [1.0, 2.0], [5.0, f64::NAN])
            .figure()
            .to_json();
        let y = json["data"][0]["y"].as_array().unwrap();
        assert!((y[0].as_f64().unwrap() - 5e-6).abs() < 1e-18);
        assert!(y[1].is_null());
        assert_eq!(json["layout"]["yaxis"]["type"], "log");
    }

    #[test]
    fn a_band_is_two_traces_under_its_line() {
        let json = Lines::new("t").line("a", [1.0], [2.0]).band([1.5], [2.5]).figure().to_json();
        assert_eq!(json["data"].as_array().unwrap().len(), 3);
        assert_eq!(json["data"][1]["fill"], "tonexty");
        assert_eq!(json["data"][2]["name"], "a");
    }

    #[test]
    fn names_are_data_and_not_markup() {
        let json = Lines::new("<i>").line("<b>x</b>", [1.0], [2.0]).figure().to_json();
        assert_eq!(json["data"][0]["name"], "&lt;b&gt;x&lt;/b&gt;");
        assert_eq!(json["layout"]["title"]["text"], "&lt;i&gt;");
    }
}
