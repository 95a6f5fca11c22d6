//! Heat maps: one colour per cell of a grid.

use crate::axis::Unit;
use crate::figure::{Figure, escape_plotly};
use serde_json::json;

/// A grid of values over two lists of labels.
#[derive(Clone, Debug, Default)]
pub struct HeatMap {
    title: String,
    columns: (String, Vec<String>),
    rows: (String, Vec<String>),
    unit: Unit,
    log: bool,
    cells: Vec<Vec<f64>>,
}

impl HeatMap {
    /// An empty map of values in `unit`.
    pub fn new(title: impl Into<String>, unit: Unit) -> Self {
        Self { title: title.into(), unit, ..Self::default() }
    }
    /// Sets the horizontal axis: its title, and a label per column.
    pub fn columns<S: Into<String>>(
        mut self,
        title: impl Into<String>,
        labels: impl IntoIterator<Item = S>,
    ) -> Self {
        self.columns = (title.into(), labels.into_iter().map(Into::into).collect());
        self
    }
    /// Sets the vertical axis: its title, and a label per row, from the bottom up.
    pub fn rows<S: Into<String>>(
        mut self,
        title: impl Into<String>,
        labels: impl IntoIterator<Item = S>,
    ) -> Self {
        self.rows = (title.into(), labels.into_iter().map(Into::into).collect());
        self
    }
    /// Colours cells by the logarithm of the value, for values that span several orders of
    /// magnitude.
    pub fn log(mut self) -> Self {
        self.log = true;
        self
    }
    /// Adds a row of values, one per column; a value that is not finite leaves its cell empty.
    pub fn row(mut self, values: impl IntoIterator<Item = f64>) -> Self {
        self.cells.push(values.into_iter().collect());
        self
    }

    /// Builds the figure.
    pub fn figure(self) -> Figure {
        let shade = |v: f64| {
            let v = v * self.unit.scale();
            if !self.log {
                v
            } else if v > 0.0 {
                v.log10()
            } else {
                f64::NAN
            }
        };
        let map = |f: &dyn Fn(f64) -> serde_json::Value| -> Vec<Vec<serde_json::Value>> {
            self.cells.iter().map(|row| row.iter().map(|&v| f(v)).collect()).collect()
        };
        let z = map(&|v| json!(shade(v)));
        let text = map(&|v| json!(self.unit.show(v)));
        let label = |labels: &[String]| -> Vec<String> {
            labels.iter().map(|l| escape_plotly(l)).collect()
        };
        let data = vec![json!({
            "type": "heatmap", "x": label(&self.columns.1), "y": label(&self.rows.1), "z": z,
            "text": text, "hovertemplate": "%{x}, %{y}<br>%{text}<extra></extra>",
            "colorscale": "Viridis", "hoverongaps": false, "xgap": 1, "ygap": 1,
            "colorbar": self.colorbar(),
        })];
        let layout = json!({
            "xaxis": { "type": "category", "title": { "text": escape_plotly(&self.columns.0) }, "automargin": true },
            "yaxis": { "type": "category", "title": { "text": escape_plotly(&self.rows.0) }, "automargin": true },
        });
        Figure::new(&self.title, data, layout)
    }

    /// Five labelled values that cover the range of colours.
    fn colorbar(&self) -> serde_json::Value {
        let scaled = self.cells.iter().flatten().copied().filter(|v| v.is_finite());
        let scaled = scaled.filter(|v| !self.log || *v > 0.0);
        let (low, high) =
            scaled.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        if low > high {
            return json!({ "thickness": 14 });
        }
        let (mut at, mut text) = (Vec::new(), Vec::new());
        for step in 0..5 {
            let t = f64::from(step) / 4.0;
            let value = if self.log { low * (high / low).powf(t) } else { low + (high - low) * t };
            let scaled = value * self.unit.scale();
            at.push(if self.log { scaled.log10() } else { scaled });
            text.push(self.unit.show(value));
        }
        json!({ "thickness": 14, "tickvals": at, "ticktext": text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithmic_colours_leave_zero_empty_and_label_real_values() {
        let json = HeatMap::new("t", Unit::Micros)
            .columns("x", ["a", "b", "c"])
            .rows("y", ["r"])
            .log()
            .row([1.0, 100.0, 0.0])
            .figure()
            .to_json();
        let z = &json["data"][0]["z"][0];
        assert!((z[1].as_f64().unwrap() - z[0].as_f64().unwrap() - 2.0).abs() < 1e-12);
        assert!(z[2].is_null());
        assert_eq!(json["data"][0]["colorbar"]["ticktext"][2], "10 µs");
    }
}
