//! A picture: Plotly JSON with a title and a caption.

use serde_json::{Value, json};

/// Colours of series in order: told apart by colour-blind readers, readable on light and dark
/// (after Okabe and Ito, 2008, lightened where needed).
pub const PALETTE: [&str; 8] =
    ["#2f7ed8", "#e69f00", "#1a9e77", "#d55e00", "#b565a7", "#56b4e9", "#9a8c00", "#8a8f98"];

/// The colour of series `index`: those of the palette first, then others around the circle of hues, in
/// steps that keep neighbours apart, so that no two are alike.
pub(crate) fn colour(index: usize) -> String {
    let Some(beyond) = index.checked_sub(PALETTE.len()) else { return PALETTE[index].to_owned() };
    // The golden angle: however many there are, they are spread evenly.
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

/// One picture, as the chart builders make it.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    pub(crate) title: String,
    pub(crate) caption: String,
    pub(crate) json: Value,
}

impl Figure {
    /// A figure from Plotly JSON (an object with `data` and `layout`) made elsewhere.
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

    /// With a sentence below that says what to see.
    pub fn caption(mut self, text: impl Into<String>) -> Self {
        self.caption = text.into();
        self
    }

    /// The figure as Plotly JSON: an object with `data` and `layout`. Unlike in the report, where
    /// the title is a heading, it is part of the layout here.
    pub fn to_json(&self) -> Value {
        let mut json = self.json.clone();
        json["layout"]["title"] = json!({ "text": escape_plotly(&self.title) });
        json
    }
}

/// Plotly shows a subset of HTML in every text it is given (names, titles, hover), so a caller's
/// `<` and `&` are written as entities.
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
