//! Bar charts: one value per category and series, side by side or stacked.

use crate::axis::{Axis, Unit};
use crate::figure::{Figure, colour, escape_plotly};
use serde_json::{Value, json};

/// A bar chart over named categories.
#[derive(Clone, Debug, Default)]
pub struct Bars {
    title: String,
    categories: Vec<String>,
    axis: Axis,
    series: Vec<(String, Vec<f64>)>,
    stacked: bool,
    horizontal: bool,
}

impl Bars {
    /// An empty chart over `categories`.
    pub fn new<S: Into<String>>(
        title: impl Into<String>,
        categories: impl IntoIterator<Item = S>,
    ) -> Self {
        let categories = categories.into_iter().map(Into::into).collect();
        Self { title: title.into(), categories, ..Self::default() }
    }
    /// Sets the axis of values.
    pub fn axis(mut self, axis: Axis) -> Self {
        self.axis = axis;
        self
    }
    /// Stacks the series instead of placing them side by side.
    pub fn stacked(mut self) -> Self {
        self.stacked = true;
        self
    }
    /// Draws horizontal bars, which suit long names better.
    pub fn horizontal(mut self) -> Self {
        self.horizontal = true;
        self
    }
    /// Adds one value per category.
    pub fn series(
        mut self,
        name: impl Into<String>,
        values: impl IntoIterator<Item = f64>,
    ) -> Self {
        self.series.push((name.into(), values.into_iter().collect()));
        self
    }

    /// Builds the figure.
    pub fn figure(self) -> Figure {
        let unit = self.axis.unit;
        let names: Vec<String> = self.categories.iter().map(|c| escape_plotly(c)).collect();
        let data = self
            .series
            .iter()
            .enumerate()
            .map(|(index, (name, values))| self.trace(&names, index, name, values))
            .collect();
        let values = self.axis.json(self.extent(unit).into_iter());
        let mut categories = json!({ "type": "category", "automargin": true });
        if self.horizontal {
            categories["autorange"] = json!("reversed");
        }
        let (x, y) = if self.horizontal { (values, categories) } else { (categories, values) };
        let layout = json!({
            "xaxis": x,
            "yaxis": y,
            "barmode": if self.stacked { "stack" } else { "group" },
            "showlegend": self.series.len() > 1,
        });
        Figure::new(&self.title, data, layout)
    }

    fn trace(&self, names: &[String], index: usize, name: &str, values: &[f64]) -> Value {
        let unit = self.axis.unit;
        let hover: Vec<String> = values.iter().map(|&v| unit.show(v)).collect();
        let scaled: Vec<f64> = values.iter().map(|v| v * unit.scale()).collect();
        let (category, value, orientation) =
            if self.horizontal { ("y", "x", "h") } else { ("x", "y", "v") };
        json!({
            "type": "bar", "name": escape_plotly(name), category: names, value: scaled,
            "orientation": orientation, "text": hover, "textposition": "none",
            "marker": { "color": colour(index) },
            "hovertemplate": format!("%{{{category}}}<br>%{{text}}"),
        })
    }

    /// Length of the longest bar (or of the stack) in each category, for the ticks.
    fn extent(&self, unit: Unit) -> Vec<f64> {
        let per_category = (0..self.categories.len()).map(|at| {
            let values = self.series.iter().filter_map(move |(_, v)| v.get(at).copied());
            let total = if self.stacked { values.sum() } else { values.fold(0.0, f64::max) };
            total * unit.scale()
        });
        per_category.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn horizontal_bars_swap_the_axes() {
        let bars = Bars::new("t", ["a", "b"])
            .axis(Axis::new("size", Unit::Bytes))
            .series("one", [1024.0, 2048.0])
            .series("two", [1024.0, 0.0])
            .stacked()
            .horizontal();
        assert_eq!(bars.extent(Unit::Bytes), [2048.0, 2048.0]);
        let json = bars.figure().to_json();
        assert_eq!(json["data"][0]["y"], json!(["a", "b"]));
        assert_eq!(json["data"][1]["x"], json!([1024.0, 0.0]));
        assert_eq!(json["layout"]["xaxis"]["title"]["text"], "size");
        assert_eq!(json["layout"]["barmode"], "stack");
    }
}
