//! A figure: Plotly JSON with a title and a caption.

use serde_json::{Value, json};

/// Colours of series, in order. Colour-blind readers can distinguish them, and they are readable on
/// light and dark backgrounds (after Okabe and Ito, 2008, lightened where needed).
pub const PALETTE: [&str; 8] =
    ["#2f7ed8", "#e69f00", "#1a9e77", "#d55e00", "#b565a7", "#56b4e9", "#9a8c00", "#8a8f98"];

/// The colour of series `index`. After the colours of the palette, steps around the colour wheel
/// keep consecutive colours apart, so that no two are alike.
pub(crate) fn colour(index: usize) -> String {
    let Some(beyond) = index.checked_sub(PALETTE.len()) else { return PALETTE[index].to_owned() };
    // Steps of the golden angle spread any number of hues evenly.
    let hue = (beyond as f64 * 137.507_764 + 20.0) % 360.0 / 60.0;
    let (light, chroma) = ([0.45, 0.6][beyond % 2], [0.5, 0.4][beyond % 2]);
    let x = chroma * (1.0 - (hue % 2.0 - 1.0).abs());
    let (r, g, b) = match hue as u32 {
        0 => (chroma, x, 0.0),
        1 => (x, chroma, 0.0),
        2 => (0.0, chroma, x),
        3 => (0.0, x, chroma),
        4 => (x, 0.0, chroma),
        _ => (chroma, 0.0, x),
    };
    let part = |v: f64| ((v + light - chroma / 2.0) * 255.0).round() as u8;
    format!("#{:02x}{:02x}{:02x}", part(r), part(g), part(b))
}

/// One figure, as the chart builders create it.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    pub(crate) title: String,
    pub(crate) caption: String,
    pub(crate) json: Value,
}

impl Figure {
    /// A figure from Plotly JSON (an object with `data` and `layout`) from another source.
    pub fn from_json(title: impl Into<String>, json: Value) -> Self {
        Self { title: title.into(), caption: String::new(), json }
    }

    pub(crate) fn new(title: &str, data: Vec<Value>, mut layout: Value) -> Self {
        let frame = json!({
            "margin": { "l": 64, "r": 20, "t": 36, "b": 56 },
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "colorway": PALETTE,
            "hovermode": "closest",
            "legend": { "orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0 },
        });
        if let (Value::Object(layout), Value::Object(frame)) = (&mut layout, frame) {
            for (key, value) in frame {
                layout.entry(key).or_insert(value);
            }
        }
        Self::from_json(title, json!({ "data": data, "layout": layout }))
    }

    /// Adds a sentence below the figure that says what it shows.
    pub fn caption(mut self, text: impl Into<String>) -> Self {
        self.caption = text.into();
        self
    }

    /// The figure as Plotly JSON: an object with `data` and `layout`. The layout contains the
    /// title; in a report, the title is a heading instead.
    pub fn to_json(&self) -> Value {
        let mut json = self.json.clone();
        json["layout"]["title"] = json!({ "text": escape_plotly(&self.title) });
        json
    }
}

/// Escapes a caller's text, because Plotly interprets a subset of HTML in all texts (names, titles,
/// hover).
pub(crate) fn escape_plotly(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A colour of the palette as `rgba`, for fills.
pub(crate) fn translucent(colour: &str, alpha: f64) -> String {
    let part = |at: usize| u8::from_str_radix(&colour[at..at + 2], 16).unwrap_or(128);
    format!("rgba({},{},{},{alpha})", part(1), part(3), part(5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_of_many_series_have_the_same_colour() {
        let colours: std::collections::HashSet<String> = (0..64).map(colour).collect();
        assert_eq!(colours.len(), 64);
        assert!(colours.iter().all(|c| c.len() == 7 && c.starts_with('#')));
        assert_eq!(colour(0), PALETTE[0]);
    }
}
