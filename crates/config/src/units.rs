//! Sizes and times as users write them.

use core::fmt;
use core::str::FromStr;

use bytesize::ByteSize;
use forebay_block::Nanos;
use serde::de::{self, Deserialize, Deserializer, Visitor};

/// A number of bytes, written `4KiB`, `16MiB`, `1.5GB` or as a plain number of bytes.
///
/// A bare `4K` is rejected, because half of the storage tools mean 4000 by it and half 4096.
///
/// ```
/// use forebay_config::Size;
/// assert_eq!("4KiB".parse::<Size>().unwrap().bytes(), 4096);
/// assert_eq!("1.5GB".parse::<Size>().unwrap().bytes(), 1_500_000_000);
/// assert_eq!(Size(3 << 29).to_string(), "1.5 GiB");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Size(pub u64);

/// A span of time, written `10ms`, `90s`, `5min`, `1h 30min`.
///
/// ```
/// use forebay_config::TimeSpan;
/// assert_eq!("10ms".parse::<TimeSpan>().unwrap().nanos().0, 10_000_000);
/// assert_eq!("1.5ms".parse::<TimeSpan>().unwrap().to_string(), "1ms 500us");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TimeSpan(pub Nanos);

/// The text is not a size or a time.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnitError {
    /// The text is not a size.
    #[error("`{0}` is not a size: write a number and a unit, such as 4KiB, 16MiB or 1.5GB")]
    Size(String),
    /// `K`, `M`, `G` or `T` without saying whether powers of 1000 or of 1024 are meant.
    #[error(
        "`{text}` is ambiguous: write {number}{unit}iB (powers of 1024) or {number}{unit}B (powers of 1000)"
    )]
    AmbiguousSize {
        /// The whole text.
        text: String,
        /// The number in the text.
        number: String,
        /// The letter in the text, in upper case.
        unit: char,
    },
    /// The text is not a time.
    #[error("`{0}` is not a time: write a number and a unit, such as 500us, 10ms, 30s, 5min or 2h")]
    Time(String),
}

impl Size {
    /// The size in bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let trimmed = text.trim();
        if let Some(unit @ ('K' | 'k' | 'M' | 'm' | 'G' | 'g' | 'T' | 't')) =
            trimmed.chars().next_back()
        {
            let number = trimmed[..trimmed.len() - 1].trim_end().to_string();
            if number.parse::<f64>().is_ok() {
                let unit = unit.to_ascii_uppercase();
                return Err(UnitError::AmbiguousSize { text: text.to_string(), number, unit });
            }
        }
        trimmed
            .parse::<ByteSize>()
            .map(|size| Size(size.as_u64()))
            .map_err(|_| UnitError::Size(text.to_string()))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let in_units = |exponent: u32| self.0 as f64 / (1u64 << (10 * exponent)) as f64;
        let mut exponent = self.0.ilog2() / 10;
        if in_units(exponent) >= 1023.95 {
            // A value that rounds to 1024.0 takes the next unit.
            exponent = (exponent + 1).min(UNITS.len() as u32);
        }
        let (value, unit) = (in_units(exponent), UNITS[exponent as usize - 1]);
        if value.fract() == 0.0 {
            write!(f, "{value} {unit}")
        } else {
            write!(f, "{value:.1} {unit}")
        }
    }
}

/// Two different sizes as text, in bytes if rounding to units would make them look equal.
pub fn distinct_sizes(one: u64, other: u64) -> [String; 2] {
    let rounded = [Size(one).to_string(), Size(other).to_string()];
    // 4,097 bytes are "4.0 KiB", and 4,096 bytes are "4 KiB".
    match rounded[0].replace(".0 ", " ") == rounded[1].replace(".0 ", " ") {
        true => [format!("{one} bytes"), format!("{other} bytes")],
        false => rounded,
    }
}

impl TimeSpan {
    /// The time in nanoseconds.
    pub const fn nanos(self) -> Nanos {
        self.0
    }
}

impl FromStr for TimeSpan {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let error = || UnitError::Time(text.to_string());
        let trimmed = text.trim();
        if let Some((whole, fraction)) = trimmed.split_once('.') {
            return fractional(whole, fraction).map(|n| TimeSpan(Nanos(n))).ok_or_else(error);
        }
        let duration = humantime::parse_duration(trimmed).map_err(|_| error())?;
        u64::try_from(duration.as_nanos()).map(|n| TimeSpan(Nanos(n))).map_err(|_| error())
    }
}

/// Parses `whole.fraction` with one unit into nanoseconds, because `humantime` parses only whole
/// numbers.
fn fractional(whole: &str, fraction: &str) -> Option<u64> {
    let digits = fraction.find(|c: char| !c.is_ascii_digit())?;
    let (fraction, unit) = fraction.split_at(digits);
    let unit = unit.trim_start();
    // `humantime` would add any further numbers and units, each multiplied by this number.
    if !whole.bytes().all(|c| c.is_ascii_digit()) || !unit.chars().all(char::is_alphabetic) {
        return None;
    }
    let one = humantime::parse_duration(&format!("1{unit}")).ok()?.as_nanos();
    let number =
        |digits: &str| if digits.is_empty() { Some(0) } else { digits.parse::<u128>().ok() };
    // Further digits are worth less than a nanosecond in any unit.
    let fraction = &fraction[..fraction.len().min(FRACTION_DIGITS_MAX)];
    let parts = 10u128.pow(fraction.len() as u32);
    let of_fraction = (number(fraction)? * one + parts / 2) / parts;
    let nanos = number(whole)?.checked_mul(one)?.checked_add(of_fraction)?;
    (!(whole.is_empty() && fraction.is_empty())).then(|| u64::try_from(nanos).ok()).flatten()
}

/// Maximum number of digits of a fraction to parse: multiplied by a year in nanoseconds, they fit
/// in 128 bits.
const FRACTION_DIGITS_MAX: usize = 20;

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(core::time::Duration::from_nanos(self.0.0)).fmt(f)
    }
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = Size;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size such as \"4KiB\", \"16MiB\" or \"1.5GB\"")
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
        text.parse().map_err(E::custom)
    }
    fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
        u64::try_from(bytes).map(Size).map_err(|_| E::custom("a size cannot be negative"))
    }
    fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
        Ok(Size(bytes))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

struct TimeVisitor;

impl Visitor<'_> for TimeVisitor {
    type Value = TimeSpan;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time such as \"500us\", \"10ms\" or \"5min\"")
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<TimeSpan, E> {
        text.parse().map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TimeVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_in_both_systems_of_units() {
        for (text, bytes) in [
            ("512", 512),
            ("4KiB", 4096),
            ("4 KiB", 4096),
            ("4kB", 4000),
            ("16MiB", 16 << 20),
            ("1.5GB", 1_500_000_000),
            ("1.5GiB", 3 << 29),
            ("2TiB", 2 << 40),
        ] {
            assert_eq!(text.parse::<Size>().unwrap(), Size(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_size_is_refused_with_a_way_out() {
        for text in ["", "x", "4XB", "-4KiB", "KiB", "4KiB5"] {
            let message = text.parse::<Size>().unwrap_err().to_string();
            assert!(message.contains("4KiB"), "{text}: {message}");
        }
        let message = "64G".parse::<Size>().unwrap_err().to_string();
        assert!(message.contains("64GiB") && message.contains("64GB"), "{message}");
    }

    #[test]
    fn times_are_read_with_whole_and_fractional_numbers() {
        for (text, nanos) in [
            ("10us", 10_000),
            ("10ms", 10_000_000),
            ("1.5ms", 1_500_000),
            ("0.08us", 80),
            ("30s", 30_000_000_000),
            ("5min", 300_000_000_000),
            ("1h 30min", 5_400_000_000_000),
            ("1.5 s", 1_500_000_000),
            (".5s", 500_000_000),
            ("5.s", 5_000_000_000),
        ] {
            assert_eq!(text.parse::<TimeSpan>().unwrap(), TimeSpan(Nanos(nanos)), "{text}");
        }
        for text in ["", "10", "ten ms", "-1s", "1.5", "1.x s", "1e9h", "99999999999999999y", ".s"]
        {
            let message = text.parse::<TimeSpan>().unwrap_err().to_string();
            assert!(message.contains("10ms"), "{text}: {message}");
        }
    }

    /// A number with a fraction takes only one unit: any text after it would be multiplied by the
    /// number too.
    #[test]
    fn a_fraction_with_several_units_is_refused() {
        for text in ["1.5h 30min", "0.5s 1s", "1.5 0s", "1.5s1s", "1.5h30min", "1h 1.5min", "1.5s."]
        {
            assert!(text.parse::<TimeSpan>().is_err(), "{text}");
        }
    }

    proptest! {
        /// Goal: fractions are exact to the nanosecond. Method: compare with the number in whole
        /// nanoseconds, with at most as many decimal places as the unit has.
        #[test]
        fn fractions_of_units_are_exact(
            whole in 0..1u64 << 20,
            unit in 0..4usize,
            places in 1..10usize,
            fraction in 0..1_000_000_000u64,
        ) {
            let (name, unit, most) = [("ns", 1, 0), ("us", 1000, 3), ("ms", 1_000_000, 6), ("s", 1_000_000_000, 9)][unit];
            let places = places.min(most).max(1);
            let fraction = if most == 0 { 0 } else { fraction % 10u64.pow(places as u32) };
            let text = format!("{whole}.{fraction:0places$}{name}");
            let exact = whole * unit + fraction * unit / 10u64.pow(places as u32);
            prop_assert_eq!(text.parse::<TimeSpan>().unwrap(), TimeSpan(Nanos(exact)), "{}", text);
        }

        #[test]
        fn what_follows_a_fraction_is_never_multiplied(
            whole in 0..100u64, fraction in 0..10u64, more in 0..100u64,
            first in "ns|us|ms|s|min|h|days", second in "ns|us|ms|s|min|h|days", space in " ?",
        ) {
            let text = format!("{whole}.{fraction}{first}{space}{more}{second}");
            prop_assert!(text.parse::<TimeSpan>().is_err(), "{}", text);
        }
    }

    #[test]
    fn sizes_are_shown_in_the_largest_fitting_unit() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (4096, "4 KiB"),
            (3 << 29, "1.5 GiB"),
            ((1 << 40) - 1, "1.0 TiB"),
            ((1 << 60) - 4096, "1.0 EiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }
}
