//! The description of a workload, as in a TOML file.

use std::path::Path;

use forebay_config::{Size, TimeSpan};
use serde::{Deserialize, Deserializer};

use super::inline;
use crate::{Result, TraceError};

/// A workload: phases one after the other. Without phases, the components and the keys of a
/// phase stand at the top and are the only one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// A seed always gives the same trace.
    #[serde(default = "one")]
    pub seed: u64,
    /// Number of requests, if there is one phase.
    #[serde(default, deserialize_with = "count")]
    pub requests: Option<u64>,
    /// Duration, if there is one phase.
    pub duration: Option<TimeSpan>,
    /// Arrival, if there is one phase or for those that do not say.
    #[serde(default)]
    pub arrival: Option<Arrival>,
    /// Requests per second, likewise.
    #[serde(default, deserialize_with = "count")]
    pub rate: Option<u64>,
    /// Clients of a closed loop, likewise.
    #[serde(default, deserialize_with = "count")]
    pub clients: Option<u64>,
    /// Mean time that a closed loop's request takes, likewise.
    pub service: Option<TimeSpan>,
    /// The components of the only phase.
    #[serde(default)]
    pub component: Vec<Component>,
    /// The phases.
    #[serde(default)]
    pub phase: Vec<Phase>,
    /// Keys that a line gives more than once for a phase; each counts once, for all components of the phase.
    #[serde(skip)]
    pub repeated: Vec<String>,
}

/// A phase: a mix of components and how their requests arrive.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Ends after this many requests; 1,000,000 if no duration is given either.
    #[serde(default, deserialize_with = "count")]
    pub requests: Option<u64>,
    /// Ends after this time.
    pub duration: Option<TimeSpan>,
    /// How requests arrive.
    pub arrival: Option<Arrival>,
    /// Requests per second; 10,000 if not given.
    #[serde(default, deserialize_with = "count")]
    pub rate: Option<u64>,
    /// Clients of a closed loop; 16 if not given.
    #[serde(default, deserialize_with = "count")]
    pub clients: Option<u64>,
    /// Mean time that a request of a closed loop takes; 1 ms if not given.
    pub service: Option<TimeSpan>,
    /// What is mixed.
    pub component: Vec<Component>,
}

/// How requests arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrival {
    /// Evenly, at the rate.
    #[default]
    Fixed,
    /// At random, at the rate on average (exponential gaps).
    Poisson,
    /// From clients, each of which sends its next request when the previous one has ended. The
    /// time of a request is exponentially distributed.
    Closed,
}

/// The pattern of a component's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Some blocks are far more popular than others, as Zipf has it.
    Zipf,
    /// Zones of different popularity, uniform within.
    Zoned,
    /// All blocks alike.
    Uniform,
    /// One after the other.
    Sequential,
}

/// A pattern of addresses with its operations and sizes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Component {
    /// How addresses are drawn.
    pub pattern: Pattern,
    /// Its share of the phase's requests, relative to the other components'.
    #[serde(default = "one_f64")]
    pub weight: f64,
    /// The volume.
    #[serde(default = "default_volume")]
    pub volume: String,
    /// Where on the volume its region begins.
    #[serde(default)]
    pub start: Size,
    /// Blocks in the region.
    #[serde(default, deserialize_with = "count")]
    pub blocks: Option<u64>,
    /// Size of a block; addresses are multiples of it.
    #[serde(default = "default_block")]
    pub block: Size,
    /// Sizes of requests.
    #[serde(default, deserialize_with = "sizes")]
    pub size: Vec<SizeShare>,
    /// Share of requests that write.
    #[serde(default)]
    pub write: f64,
    /// Share of requests that trim.
    #[serde(default)]
    pub trim: f64,
    /// Share of writes with FUA.
    #[serde(default)]
    pub fua: f64,
    /// A flush follows each time that this many writes have passed.
    #[serde(default, deserialize_with = "count")]
    pub flush_every: Option<u64>,
    /// Skew of `zipf`: 0 is uniform, 0.99 if not given.
    pub theta: Option<f64>,
    /// Zones of `zoned`; an 80/20 split if not given.
    #[serde(default, deserialize_with = "zones")]
    pub zones: Vec<ZoneShare>,
    /// Whether popular blocks are scattered over the region (`zipf` and `zoned`); else they
    /// come first.
    #[serde(default = "yes")]
    pub scatter: bool,
    /// Blocks that stay together when scattered.
    #[serde(default, deserialize_with = "count")]
    pub extent: Option<u64>,
    /// Requests of a sequential run, after which it jumps; endless if not given.
    #[serde(default, deserialize_with = "count")]
    pub run: Option<u64>,
}

/// A size of requests and its share, relative to the others'.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeShare {
    /// The size.
    pub size: Size,
    /// Its share.
    #[serde(default = "one_f64")]
    pub share: f64,
}

/// A zone: its share of the blocks and of the accesses, both relative to the others'.
///
/// A cache that holds exactly the zones of the highest access per block has their access shares
/// as its hit ratio: that is how to make a workload of a wanted hit ratio.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZoneShare {
    /// Share of the blocks.
    pub blocks: f64,
    /// Share of the accesses.
    pub access: f64,
}

impl Spec {
    /// Reads a description: the path of a TOML file, TOML text, or a line such as
    /// `zipf:blocks=2M,theta=0.99,requests=1M,write=0.3,seed=1`.
    ///
    /// # Errors
    /// If it is none of these, or has an unknown key or an impossible value.
    pub fn parse(text: &str) -> Result<Spec> {
        let wrong = |what: String| TraceError::Options(format!("workload \"{text}\": {what}"));
        if text.ends_with(".toml") || (!text.contains(['=', '\n']) && Path::new(text).is_file()) {
            let path = Path::new(text);
            let source = std::fs::read_to_string(path).map_err(|source| TraceError::Io {
                path: path.to_owned(),
                doing: "read",
                source,
            })?;
            return Spec::from_toml(&source).map_err(wrong);
        }
        if text.contains('\n') {
            return Spec::from_toml(text)
                .map_err(|e| TraceError::Options(format!("workload: {e}")));
        }
        let (table, repeated) = inline::parse(text).map_err(wrong)?;
        let spec = toml::Value::Table(table).try_into();
        let spec: Spec = spec.map_err(|e: toml::de::Error| wrong(with_key(&e)))?;
        Ok(Spec { repeated, ..spec })
    }

    /// Reads TOML.
    fn from_toml(text: &str) -> Result<Spec, String> {
        toml::from_str(text).map_err(|e| e.to_string().trim_end().to_owned())
    }

    /// The phases. If none are given, the components and keys at the top make up the only phase.
    ///
    /// # Errors
    /// If there are no components, if component, requests or duration is set at the top together
    /// with phases, or if a key of arrivals has no effect.
    pub fn phases(&self) -> Result<Vec<Phase>> {
        let wrong = |what: &str| Err(TraceError::Options(format!("workload: {what}")));
        if self.phase.is_empty() {
            if self.component.is_empty() {
                return wrong("it has no component");
            }
            let only = Phase {
                requests: self.requests,
                duration: self.duration,
                component: self.component.clone(),
                ..Phase::default()
            };
            let phases = vec![self.with_defaults(only)];
            return check_arrivals(&phases).map(|()| phases);
        }
        if !self.component.is_empty() || self.requests.is_some() || self.duration.is_some() {
            return wrong("with phases, set component, requests and duration in each phase");
        }
        let with_arrival =
            |phase: &Phase| Phase { arrival: phase.arrival.or(self.arrival), ..phase.clone() };
        check_arrivals(&self.phase.iter().map(with_arrival).collect::<Vec<_>>())?;
        let phases: Vec<_> = self.phase.iter().map(|p| self.with_defaults(p.clone())).collect();
        // (A key at the top may apply to only some of the phases.)
        let closed = |phase: &&Phase| phase.arrival == Some(Arrival::Closed);
        match (phases.iter().find(closed), phases.iter().find(|phase| !closed(phase))) {
            (Some(all), None) | (None, Some(all)) => {
                let top = Phase { rate: self.rate, clients: self.clients, ..all.clone() };
                check_arrivals(&[Phase { service: self.service, ..top }])?;
            }
            _ => {}
        }
        Ok(phases)
    }

    fn with_defaults(&self, phase: Phase) -> Phase {
        Phase {
            arrival: phase.arrival.or(self.arrival),
            rate: phase.rate.or(self.rate),
            clients: phase.clients.or(self.clients),
            service: phase.service.or(self.service),
            ..phase
        }
    }
}

/// Rejects keys of arrivals that have no effect on a phase.
fn check_arrivals(phases: &[Phase]) -> Result<()> {
    for phase in phases {
        let closed = phase.arrival == Some(Arrival::Closed);
        let wrong = match () {
            () if closed && phase.rate.is_some() => {
                "rate has no effect with arrival=closed: set clients and service instead"
            }
            () if !closed && phase.clients.is_some() => {
                "clients has no effect without arrival=closed"
            }
            () if !closed && phase.service.is_some() => {
                "service has no effect without arrival=closed"
            }
            () => continue,
        };
        return Err(TraceError::Options(format!("workload: {wrong}")));
    }
    Ok(())
}

fn one() -> u64 {
    1
}
fn one_f64() -> f64 {
    1.0
}
fn yes() -> bool {
    true
}
fn default_volume() -> String {
    "synthetic".to_owned()
}
fn default_block() -> Size {
    Size(4096)
}

/// A number, or text such as "2M" (powers of 1000) or "2Mi" (powers of 1024).
#[derive(Deserialize)]
#[serde(untagged)]
enum Count {
    Number(u64),
    Text(String),
}

fn count<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
    match Count::deserialize(d) {
        Ok(Count::Number(n)) => Ok(Some(n)),
        Ok(Count::Text(text)) => parse_count(&text).map(Some).map_err(serde::de::Error::custom),
        Err(_) => {
            Err(serde::de::Error::custom("expected a number such as 1000, \"2M\" or \"64Ki\""))
        }
    }
}

/// Reads "1000", "2M", "1.5k" or "64Ki".
fn parse_count(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, f64); 8] = [
        ("Ki", 1024.0),
        ("Mi", 1048576.0),
        ("Gi", 1073741824.0),
        ("k", 1e3),
        ("K", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
    ];
    let wrong = || {
        format!(
            "`{text}` is not a number: write 1000, 2M (powers of 1000) or 64Ki (powers of 1024)"
        )
    };
    let (number, unit) = UNITS
        .iter()
        .find_map(|(unit, value)| text.strip_suffix(unit).map(|n| (n, *value)))
        .unwrap_or((text, 1.0));
    if unit == 1.0 {
        return number.trim().parse().map_err(|_| wrong());
    }
    let value: f64 = number.trim().parse().map_err(|_| wrong())?;
    let value = value * unit;
    if value.fract() != 0.0 || !(0.0..9e15).contains(&value) {
        return Err(wrong());
    }
    Ok(value as u64)
}

/// A list, or text such as "4KiB@0.7/64KiB@0.3".
#[derive(Deserialize)]
#[serde(untagged)]
enum Sizes {
    Bytes(u64),
    Text(String),
    List(Vec<SizeShare>),
}

fn sizes<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<SizeShare>, D::Error> {
    let text = match Sizes::deserialize(d) {
        Ok(Sizes::List(list)) => return Ok(list),
        Ok(Sizes::Bytes(bytes)) => return Ok(vec![SizeShare { size: Size(bytes), share: 1.0 }]),
        Ok(Sizes::Text(text)) => text,
        Err(_) => return Err(serde::de::Error::custom("write sizes as SIZE@SHARE/SIZE@SHARE/...")),
    };
    let share = |part: &str| {
        let (size, share) = part.split_once('@').unwrap_or((part, "1"));
        let size = size.parse().map_err(|e: forebay_config::UnitError| e.to_string())?;
        let share = share.parse().map_err(|_| format!("`{part}`: write SIZE@SHARE"))?;
        Ok(SizeShare { size, share })
    };
    text.split('/').map(share).collect::<Result<_, String>>().map_err(serde::de::Error::custom)
}

/// A list, or text such as "0.2@0.8/0.8@0.2".
#[derive(Deserialize)]
#[serde(untagged)]
enum Zones {
    Text(String),
    List(Vec<ZoneShare>),
}

fn zones<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<ZoneShare>, D::Error> {
    let how = "write zones as BLOCKS@ACCESS/BLOCKS@ACCESS/..., where all values are shares";
    let text = match Zones::deserialize(d) {
        Ok(Zones::List(list)) => return Ok(list),
        Ok(Zones::Text(text)) => text,
        Err(_) => return Err(serde::de::Error::custom(how)),
    };
    let zone = |part: &str| {
        let (blocks, access) = part.split_once('@')?;
        Some(ZoneShare { blocks: blocks.parse().ok()?, access: access.parse().ok()? })
    };
    let all: Option<Vec<_>> = text.split('/').map(zone).collect();
    all.ok_or_else(|| serde::de::Error::custom(format!("`{text}`: {how}")))
}

/// Formats an error with the key that it concerns, because a line has no other position to report.
fn with_key(error: &toml::de::Error) -> String {
    let text = error.to_string();
    match text.trim_end().split_once("\nin `") {
        Some((what, path)) => {
            let path = path.trim_end_matches('`');
            format!("{}: {what}", path.rsplit('.').next().unwrap_or(path))
        }
        None => text.trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_wrong_is_told_with_its_key() {
        let said = |line: &str| Spec::parse(line).unwrap_err().to_string();
        let block = said("zipf:block=1M");
        assert!(block.contains("block: `1M` is ambiguous") && !block.contains('\n'), "{block}");
        let pattern = said("zip:blocks=1M");
        assert!(pattern.contains("pattern: unknown variant `zip`"), "{pattern}");
    }

    #[test]
    fn counts_have_units_and_must_be_whole() {
        for (text, n) in [("7", 7), ("2M", 2_000_000), ("1.5k", 1500), ("64Ki", 65_536)] {
            assert_eq!(parse_count(text), Ok(n));
        }
        for text in ["", "x", "-1", "1.5", "1.0001k", "1e3", "99999999999T", "nanM"] {
            assert!(parse_count(text).is_err(), "{text}");
        }
    }
}
