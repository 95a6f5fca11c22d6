//! Backing stores that fail or are slow for a time.

use std::fmt;
use std::str::FromStr;

use forebay_block::{Nanos, Op};
use forebay_config::TimeSpan;
use forebay_effect::{IoError, Outcome};

use crate::error::SimulateError;
use crate::scenario::Scenario;

/// A backing store that fails, or is slow, for a part of the run.
///
/// The text form is `VOLUME=dead`, `VOLUME=full` or `VOLUME=slow:100`. An outage that does not last
/// for the whole run adds `@FROM..` or `@FROM..UNTIL`: `vm1=dead@10s..60s`.
#[derive(Clone, PartialEq, Debug)]
pub struct Outage {
    /// The volume's name.
    pub volume: String,
    /// What is wrong with the store.
    pub trouble: Trouble,
    /// When the outage begins, in simulated time since the first request could begin.
    pub from: Nanos,
    /// When the outage ends; `None` if it lasts to the end of the run.
    pub until: Option<Nanos>,
}

/// What is wrong with a store.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Trouble {
    /// All operations fail, after the usual time.
    Dead,
    /// Writes, and zeroings that may not punch holes, fail for lack of space, after the usual time.
    Full,
    /// Operations and transfers take this many times as long.
    Slow(f64),
}

impl Trouble {
    /// Whether operations fail.
    pub(crate) fn fails(self) -> bool {
        matches!(self, Trouble::Dead | Trouble::Full)
    }

    /// The outcome of an operation that begins during the outage.
    pub(crate) fn outcome(self, op: Op) -> Outcome {
        match (self, op) {
            (Trouble::Dead, _) => Err(IoError::Device),
            (Trouble::Full, Op::Write | Op::WriteZeroes) => Err(IoError::NoSpace),
            (Trouble::Full | Trouble::Slow(_), _) => Ok(()),
        }
    }
}

impl Outage {
    /// Whether the outage is in effect at `time`, counted from when the first request could begin.
    pub(crate) fn covers(&self, time: Nanos) -> bool {
        self.from <= time && self.until.is_none_or(|until| time < until)
    }
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outage { volume, trouble, from, until } = self;
        match trouble {
            Trouble::Dead => write!(f, "{volume}=dead")?,
            Trouble::Full => write!(f, "{volume}=full")?,
            Trouble::Slow(times) => write!(f, "{volume}=slow:{times}")?,
        }
        let seconds = |time: &Nanos| time.as_secs_f64();
        match until {
            None if *from == Nanos(0) => Ok(()),
            None => write!(f, "@{}s..", seconds(from)),
            Some(until) => write!(f, "@{}s..{}s", seconds(from), seconds(until)),
        }
    }
}

impl FromStr for Outage {
    type Err = String;

    fn from_str(text: &str) -> Result<Outage, String> {
        let usage = "write VOLUME=dead, VOLUME=full or VOLUME=slow:100, and append @FROM..UNTIL to \
                     limit the failure to part of the run";
        let (volume, what) = text.rsplit_once('=').ok_or(usage)?;
        let (what, when) =
            what.split_once('@').map_or((what, None), |(what, when)| (what, Some(when)));
        let trouble = match (what, what.strip_prefix("slow:")) {
            ("dead", _) => Trouble::Dead,
            ("full", _) => Trouble::Full,
            (_, Some(times)) => match times.parse::<f64>() {
                Ok(times) if (1.0..=1e6).contains(&times) => Trouble::Slow(times),
                _ => {
                    return Err(format!(
                        "a store can be slowed down by a factor of 1 to 1000000, not `{times}`"
                    ));
                }
            },
            _ => return Err(usage.to_owned()),
        };
        let (from, until) = match when {
            None => (Nanos(0), None),
            Some(when) => {
                let (from, until) = when.split_once("..").ok_or(usage)?;
                let time = |text: &str| match text.parse::<TimeSpan>() {
                    Ok(time) => Ok(time.nanos()),
                    Err(error) => Err(error.to_string()),
                };
                let until = if until.is_empty() { None } else { Some(time(until)?) };
                (time(from)?, until)
            }
        };
        if volume.is_empty() {
            return Err(usage.to_owned());
        }
        if until.is_some_and(|until| until <= from) {
            return Err("the end of an outage must be later than its start".to_owned());
        }
        Ok(Outage { volume: volume.to_owned(), trouble, from, until })
    }
}

/// Checks that every outage names an existing volume, and that requests do not wait forever for a
/// store that fails for the rest of the run.
pub(crate) fn check(scenario: &Scenario, outages: &[Outage]) -> Result<(), SimulateError> {
    let names = || scenario.volumes.iter().map(|v| v.name.as_str());
    for outage in outages {
        if !names().any(|name| name == outage.volume) {
            let (name, known) = (outage.volume.clone(), names().collect::<Vec<_>>().join(", "));
            return Err(SimulateError::UnknownOutage { name, known });
        }
        let waits = outage.until.is_none() && scenario.cache.give_up_after == Nanos(0);
        if waits && !matches!(outage.trouble, Trouble::Slow(_)) {
            let why = "with `give_up_after = 0`, requests would wait forever for a store that fails for \
                 the rest of the run";
            return Err(SimulateError::Options(why));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outages_are_read_as_they_are_written() {
        for text in ["a=dead", "a=b=full@10s..", "vm 1=slow:2.5@0.5s..60s", "ü=slow:100"] {
            let outage: Outage = text.parse().unwrap();
            assert_eq!(outage.to_string(), text);
        }
        let minutes: Outage = "a=dead@1m..2m".parse().unwrap();
        assert_eq!(
            (minutes.from, minutes.until),
            (Nanos(60_000_000_000), Some(Nanos(120_000_000_000)))
        );
    }

    #[test]
    fn what_is_no_outage_is_refused() {
        for text in [
            "",
            "a",
            "=dead",
            "a=odd",
            "a=slow",
            "a=slow:0",
            "a=slow:x",
            "a=slow:NaN",
            "a=dead@",
            "a=dead@5s",
        ] {
            assert!(text.parse::<Outage>().is_err(), "{text}");
        }
        for text in ["a=dead@5s..5s", "a=dead@5s..1s", "a=dead@x..", "a=dead@1s..x"] {
            assert!(text.parse::<Outage>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_full_store_reads_trims_and_syncs() {
        for (trouble, ops) in
            [(Trouble::Dead, "RWTZF"), (Trouble::Full, "WZ"), (Trouble::Slow(2.0), "")]
        {
            for (op, name) in [
                (Op::Read, 'R'),
                (Op::Write, 'W'),
                (Op::Trim, 'T'),
                (Op::WriteZeroes, 'Z'),
                (Op::Flush, 'F'),
            ] {
                assert_eq!(trouble.outcome(op).is_err(), ops.contains(name), "{trouble:?} {name}");
            }
        }
    }
}
