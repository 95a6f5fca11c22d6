//! Formats numbers for readers.

use std::time::Duration;

/// Formats a count with a decimal prefix: `999`, `1.2 k`, `45 M`.
pub fn count(n: u64) -> String {
    const UNITS: [(&str, f64); 4] = [("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)];
    for (unit, size) in UNITS {
        let value = n as f64 / size;
        // A value that would be rounded to 1000 takes the next unit.
        if value >= 0.9995 {
            let text = if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") };
            return format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text));
        }
    }
    n.to_string()
}

/// Formats a whole number with all digits, in groups of three: `999`, `29,863`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let starts_group = |at: usize| at > 0 && (digits.len() - at).is_multiple_of(3);
    let separated = digits.char_indices().flat_map(|(at, digit)| {
        [starts_group(at).then_some(','), Some(digit)].into_iter().flatten()
    });
    separated.collect()
}

/// Formats a count of things, where `one` is the singular: `1 request`, `1.2 k requests`.
pub fn counted(n: u64, one: &str) -> String {
    format!("{} {one}{}", count(n), if n == 1 { "" } else { "s" })
}

/// Formats a waiting time, rounded to useful units: `8 s`, `3 min 20 s`, `2 h 5 min`.
pub fn duration(d: Duration) -> String {
    let s = d.as_secs_f64().round() as u64;
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        _ => format!("{} h {} min", s / 3600, s / 60 % 60),
    }
}

/// Formats a fraction as a percentage with one decimal: `0.123` is `12.3 %`.
pub fn percent(fraction: f64) -> String {
    format!("{:.1} %", fraction * 100.0)
}

/// Formats a share of the block accesses of a workload: `24.6 % of the block accesses`.
pub fn of_accesses(part: u64, accesses: u64) -> String {
    format!("{} of the block accesses", percent(part as f64 / accesses.max(1) as f64))
}

/// Formats a number with four significant digits, at most four of them after the decimal point.
pub fn figure(value: f64) -> String {
    let digits = 3 - value.abs().max(1e-9).log10().floor() as i32;
    format!("{value:.*}", digits.clamp(0, 4) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_keep_two_digits_that_matter() {
        for (n, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1 k"),
            (1234, "1.2 k"),
            (45_000_000, "45 M"),
            (999_499, "999 k"),
            (999_600, "1 M"),
            (u64::MAX, "18446744 T"),
        ] {
            assert_eq!(count(n), text);
        }
        let whole = [0, 999, 1000, 29_863, 1_234_567].map(grouped);
        assert_eq!(whole, ["0", "999", "1,000", "29,863", "1,234,567"]);
        let requests = [0, 1, 2000].map(|n| counted(n, "request"));
        assert_eq!(requests, ["0 requests", "1 request", "2 k requests"]);
    }

    #[test]
    fn durations_are_rounded_to_what_matters() {
        for (s, text) in [(8.4, "8 s"), (200.0, "3 min 20 s"), (7500.0, "2 h 5 min")] {
            assert_eq!(duration(Duration::from_secs_f64(s)), text);
        }
        assert_eq!(percent(0.1234), "12.3 %");
    }
}
