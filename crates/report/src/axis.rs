//! Axes: what they measure, and their unit and scale.

use serde_json::{Map, Value, json};

use crate::figure::escape_plotly;

/// The unit of an axis. Callers give values in this unit; the axis chooses prefixes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Unit {
    /// A bare number, such as a count.
    #[default]
    Plain,
    /// Bytes, shown with binary prefixes.
    Bytes,
    /// Microseconds, shown as ns, µs, ms or s.
    Micros,
    /// Seconds, shown as ns, µs, ms or s.
    Seconds,
    /// A fraction of one, shown in percent.
    Fraction,
    /// US dollars.
    Dollars,
    /// Events per second.
    PerSecond,
    /// Bytes per second, shown with decimal prefixes.
    BytesPerSecond,
}

impl Unit {
    /// The factor from the caller's values to the values in the figure. Microseconds become
    /// seconds, to suit Plotly's SI prefixes.
    pub(crate) fn scale(self) -> f64 {
        if self == Unit::Micros { 1e-6 } else { 1.0 }
    }

    /// d3 number format and suffix of the ticks, on an axis whose largest value is `high`.
    fn format(self, high: f64) -> (&'static str, &'static str) {
        match self {
            Unit::Plain if high < 1e4 => (",.4~r", ""),
            Unit::Plain => ("~s", ""),
            Unit::Bytes => ("", ""),
            // Avoids kiloseconds, which nobody uses.
            Unit::Micros | Unit::Seconds if high >= 1e3 => (",.6~r", " s"),
            Unit::Micros | Unit::Seconds => ("~s", "s"),
            Unit::Fraction => (".3~%", ""),
            Unit::Dollars => ("$,.3~r", ""),
            Unit::PerSecond => ("~s", "/s"),
            Unit::BytesPerSecond => ("~s", "B/s"),
        }
    }

    /// `value` (in this unit) in words, as used in hover texts and tables: `1.5 GiB`, `12.3 µs`.
    ///
    /// ```
    /// use forebay_report::Unit;
    /// assert_eq!(Unit::Bytes.show(1_610_612_736.0), "1.5 GiB");
    /// assert_eq!(Unit::Micros.show(12_345.0), "12.3 ms");
    /// assert_eq!(Unit::Fraction.show(0.1234), "12.3 %");
    /// assert_eq!(Unit::Dollars.show(0.0031913), "$0.00319");
    /// assert_eq!(Unit::Dollars.show(0.5), "$0.50");
    /// ```
    pub fn show(self, value: f64) -> String {
        match self {
            Unit::Plain => si(value, "", 1000.0),
            Unit::Bytes => binary(value),
            Unit::Micros => time(value * 1e-6),
            Unit::Seconds => time(value),
            Unit::Fraction => format!("{} %", significant(value * 100.0)),
            Unit::Dollars => dollars(value),
            Unit::PerSecond => si(value, "/s", 1000.0),
            Unit::BytesPerSecond => si(value, "B/s", 1000.0),
        }
    }
}

/// One axis of a chart.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Axis {
    pub(crate) title: String,
    pub(crate) unit: Unit,
    pub(crate) log: bool,
    pub(crate) zero: bool,
}

impl Axis {
    /// A linear axis called `title`, in `unit`.
    pub fn new(title: impl Into<String>, unit: Unit) -> Self {
        Self { title: title.into(), unit, log: false, zero: false }
    }
    /// Makes the scale logarithmic; values of zero or less are not drawn.
    pub fn log(mut self) -> Self {
        self.log = true;
        self
    }
    /// Makes the axis start at zero (linear axes only).
    pub fn from_zero(mut self) -> Self {
        self.zero = true;
        self
    }

    /// The axis in Plotly's format; the range of `values` (already scaled) determines the ticks.
    pub(crate) fn json(&self, values: impl Iterator<Item = f64>) -> Value {
        let mut axis = Map::new();
        axis.insert("title".into(), json!({ "text": escape_plotly(&self.title), "standoff": 10 }));
        axis.insert("type".into(), json!(if self.log { "log" } else { "linear" }));
        axis.insert("automargin".into(), json!(true));
        if self.zero && !self.log {
            axis.insert("rangemode".into(), json!("tozero"));
        }
        let (low, high) = range(values);
        if self.unit == Unit::Bytes {
            if high > 0.0 {
                let (at, text) = self.byte_ticks(low, high);
                axis.insert("tickvals".into(), json!(at));
                axis.insert("ticktext".into(), json!(text));
            }
        } else {
            let (format, suffix) = self.unit.format(high);
            axis.insert("tickformat".into(), json!(format));
            axis.insert("ticksuffix".into(), json!(suffix));
            // One tick per decade, or ticks at 1, 2 and 5. For a ratio of at most 4, Plotly's ticks
            // are better.
            if self.log && high / low > 500.0 {
                axis.insert("dtick".into(), json!(1));
            } else if self.log && high / low > 4.0 {
                let at = one_two_five(low, high);
                let text: Vec<String> =
                    at.iter().map(|v| self.unit.show(v / self.unit.scale())).collect();
                axis.insert("tickvals".into(), json!(at));
                axis.insert("ticktext".into(), json!(text));
            }
        }
        Value::Object(axis)
    }

    /// Ticks at powers of two or, on a linear axis, at round binary steps: at most a dozen.
    fn byte_ticks(&self, low: f64, high: f64) -> (Vec<f64>, Vec<String>) {
        let at: Vec<f64> = if self.log {
            let (first, last) = (low.log2().floor() as i32, high.log2().ceil() as i32);
            let step = ((last - first) / 10 + 1) as usize;
            (first..=last).step_by(step).map(|p| 2f64.powi(p)).collect()
        } else {
            let step = (high / 5.0).log2().ceil().exp2().max(1.0);
            (0..=(high / step).ceil() as u32).map(|k| f64::from(k) * step).collect()
        };
        let text = at.iter().map(|&v| binary(v)).collect();
        (at, text)
    }
}

/// The smallest and the largest of the values above zero; an empty range if there are none.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let shown = values.filter(|v| v.is_finite() && *v > 0.0);
    shown.fold((f64::INFINITY, 0.0), |(low, high), v| (low.min(v), high.max(v)))
}

/// 1, 2 and 5 times the powers of ten around a range.
fn one_two_five(low: f64, high: f64) -> Vec<f64> {
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    decades.flat_map(|p| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(p))).collect()
}

fn binary(value: f64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut v, mut unit) = (value, 0);
    while v.abs() >= 1023.5 && unit + 1 < UNITS.len() {
        v /= 1024.0;
        unit += 1;
    }
    format!("{} {}", significant(v), UNITS[unit])
}

/// Formats an amount of money with three significant digits, and below $100 with at least two
/// digits after the point.
fn dollars(value: f64) -> String {
    let text = significant(value);
    let digits = text.split_once('.').map_or(0, |(_, digits)| digits.len());
    match digits {
        0 | 1 if value.abs() < 99.95 => format!("${value:.2}"),
        _ => format!("${text}"),
    }
}

/// Formats a time: seconds up to two minutes, then minutes, hours or days.
fn time(seconds: f64) -> String {
    const LONGER: [(f64, f64, &str); 3] =
        [(48.0 * 3600.0, 86_400.0, "d"), (120.0 * 60.0, 3600.0, "h"), (120.0, 60.0, "min")];
    let longer = LONGER.iter().find(|(from, ..)| seconds.is_finite() && seconds.abs() >= *from);
    match longer {
        Some((_, unit, name)) => format!("{} {name}", significant(seconds / unit)),
        None => si(seconds, "s", 1000.0),
    }
}

fn si(value: f64, unit: &str, base: f64) -> String {
    const SMALL: [&str; 4] = ["", "m", "µ", "n"];
    const LARGE: [&str; 5] = ["", "k", "M", "G", "T"];
    if value == 0.0 || !value.is_finite() {
        return format!("{value} {unit}").trim_end().to_string();
    }
    let (mut v, mut step) = (value, 0i32);
    while v.abs() >= base * 0.9995 && step < 4 {
        v /= base;
        step += 1;
    }
    while v.abs() < 0.9995 && step > -3 && !unit.is_empty() {
        v *= base;
        step -= 1;
    }
    let prefix = if step < 0 { SMALL[step.unsigned_abs() as usize] } else { LARGE[step as usize] };
    format!("{} {prefix}{unit}", significant(v)).trim_end().to_string()
}

/// Formats a number with three significant digits, without trailing zeroes or an exponent.
fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let magnitude = value.abs().log10().floor() as i32;
    let decimals = (2 - magnitude).clamp(0, 12) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_string()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_times_are_in_minutes_hours_and_days_and_ticks_have_no_exponents() {
        for (seconds, text) in [
            (90.0, "90 s"),
            (600.0, "10 min"),
            (7_200.0, "2 h"),
            (604_800.0, "7 d"),
            (4e6, "46.3 d"),
            (0.002, "2 ms"),
        ] {
            assert_eq!(Unit::Seconds.show(seconds), text);
            assert_eq!(Unit::Micros.show(seconds * 1e6), text);
        }
        for (unit, high) in [(Unit::Plain, 2e3), (Unit::Plain, 9e3), (Unit::Seconds, 4e6)] {
            let (format, _) = unit.format(high);
            assert!(!format.contains('g') && !format.contains('e'), "{format}");
        }
        assert_eq!(Unit::Seconds.format(4e6), (",.6~r", " s"), "neither ks nor Ms");
    }

    #[test]
    fn numbers_are_shown_with_the_prefix_a_reader_expects() {
        for (unit, value, text) in [
            (Unit::Plain, 0.0, "0"),
            (Unit::Plain, 0.25, "0.25"),
            (Unit::Plain, 999_999.0, "1 M"),
            (Unit::Bytes, 512.0, "512 B"),
            (Unit::Bytes, 1_048_576.0, "1 MiB"),
            (Unit::Micros, 0.0619, "61.9 ns"),
            (Unit::Micros, 974.6, "975 µs"),
            (Unit::Seconds, 90.0, "90 s"),
            (Unit::Fraction, 1.0, "100 %"),
            (Unit::Dollars, 1120.0, "$1120"),
            (Unit::Dollars, 99.99, "$100"),
            (Unit::Dollars, 12.34, "$12.34"),
            (Unit::Dollars, 2.0, "$2.00"),
            (Unit::Dollars, 0.8, "$0.80"),
            (Unit::Dollars, 0.0988, "$0.0988"),
            (Unit::PerSecond, 158_000.0, "158 k/s"),
        ] {
            assert_eq!(unit.show(value), text);
        }
    }

    #[test]
    fn ratios_below_one_are_not_shown_in_thousandths() {
        let tick = |high: f64| {
            Axis::new("x", Unit::Plain).log().json([0.01, high].into_iter())["tickformat"].clone()
        };
        assert_eq!((tick(1.0), tick(1e6)), (json!(",.4~r"), json!("~s")));
    }

    #[test]
    fn two_decades_have_ticks_at_one_two_and_five() {
        let axis = Axis::new("latency", Unit::Micros).log().json([80e-6, 1e-3].into_iter());
        let text: Vec<&str> =
            axis["ticktext"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
        assert_eq!(text[..6], ["10 µs", "20 µs", "50 µs", "100 µs", "200 µs", "500 µs"]);
    }

    #[test]
    fn byte_ticks_are_few_and_cover_the_values() {
        for log in [false, true] {
            let axis = Axis { log, unit: Unit::Bytes, ..Axis::default() };
            for high in [4096.0, 3.0e9, 7.5e12] {
                let (at, text) = axis.byte_ticks(4096.0, high);
                assert!(at.len() <= 13 && at.len() == text.len(), "{} ticks", at.len());
                assert!(*at.last().unwrap() * 16.0 > high, "the last tick is far below {high}");
            }
        }
    }
}
