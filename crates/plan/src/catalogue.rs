//! The catalogue: the devices that can be bought, and their combinations.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use serde::Deserialize;
use toml::de::{DeTable, DeValue};

use crate::device::{Device, DeviceKind};
use crate::error::PlanError;

/// Devices and the combinations of them to consider.
///
/// ```
/// use forebay_plan::Catalogue;
/// let catalogue = Catalogue::default();
/// assert_eq!(catalogue.devices().len(), 7);
/// assert_eq!(catalogue.combinations().len(), 17);
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Catalogue {
    devices: Vec<Device>,
    combinations: Vec<Combination>,
    /// Whether the file lists combinations, which say which devices are backing stores. Otherwise
    /// every non-volatile device is tried as the backing store.
    names_combinations: bool,
}

/// Tiers, fastest first, and the backing store behind them, as names of devices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Combination {
    /// The tiers' devices, tier 1 first.
    pub tiers: Vec<String>,
    /// The backing store's device.
    pub backing: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    device: Vec<Device>,
    #[serde(default)]
    combination: Vec<Combinations>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Combinations {
    tiers: Vec<String>,
    backing: Vec<String>,
}

const FILE_KEYS: [&str; 2] = ["device", "combination"];
const COMBINATION_KEYS: [&str; 2] = ["tiers", "backing"];

impl Default for Catalogue {
    /// The devices and 17 combinations of Bhandari (2024), tables 3.1 and 3.2.
    fn default() -> Self {
        Self::parse(Self::DEFAULT_TOML).expect("the embedded catalogue is valid; a test parses it")
    }
}

impl Catalogue {
    /// The default catalogue as a file to copy and edit.
    pub const DEFAULT_TOML: &str = include_str!("catalogue.toml");

    /// Reads a catalogue from a TOML file.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a valid catalogue.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, PlanError> {
        let path = path.as_ref();
        let failed = |error: io::Error| {
            let source = match error.kind() {
                ErrorKind::InvalidData => io::Error::new(error.kind(), "it is not a text file"),
                _ => error,
            };
            PlanError::ReadCatalogue { path: path.to_path_buf(), source }
        };
        Self::parse(&fs::read_to_string(path).map_err(failed)?)
    }

    /// Reads a catalogue from TOML text.
    ///
    /// # Errors
    /// If the text is not TOML, has an unknown key, has a device without a name or two of the same
    /// name, or has an impossible value, such as a negative price.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        check_keys(text)?;
        let file: File = toml::from_str(text).map_err(|e| syntax(text, &e))?;
        let names_combinations = !file.combination.is_empty();
        let combinations = Vec::new();
        let mut catalogue = Self { devices: file.device, combinations, names_combinations };
        catalogue.check_devices()?;
        for group in file.combination {
            if group.tiers.is_empty() || group.backing.is_empty() {
                return Err(wrong("a combination needs at least one tier and one backing store"));
            }
            for backing in group.backing {
                let combination = Combination { tiers: group.tiers.clone(), backing };
                catalogue.check_names(&combination)?;
                catalogue.combinations.push(combination);
            }
        }
        if catalogue.combinations.is_empty() {
            catalogue.combinations = catalogue.sensible_pairs();
        }
        Ok(catalogue)
    }

    /// All devices, in the order of the file.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// All combinations, in the order of the file.
    pub fn combinations(&self) -> &[Combination] {
        &self.combinations
    }

    /// The combinations of these tiers, fastest first, in front of each of these backing stores.
    /// Both are names in the catalogue. Without tiers: the combinations that the catalogue lists.
    ///
    /// # Errors
    /// If the catalogue has no such device or combination, or if `backing` is empty although
    /// `tiers` are given or the catalogue lists no combinations.
    pub fn combine(
        &self,
        tiers: &[String],
        backing: &[String],
    ) -> Result<Vec<Combination>, PlanError> {
        for name in tiers.iter().chain(backing) {
            self.device(name)?;
        }
        if backing.is_empty() && (!tiers.is_empty() || !self.names_combinations) {
            return Err(PlanError::NoBacking);
        }
        let wanted = |name: &String| backing.is_empty() || backing.contains(name);
        let found: Vec<Combination> = if tiers.is_empty() {
            self.combinations.iter().filter(|c| wanted(&c.backing)).cloned().collect()
        } else {
            let durable = self.devices.iter().filter(|d| d.kind != DeviceKind::Dram);
            let stores = durable.filter(|d| wanted(&d.name) && !tiers.contains(&d.name));
            let of = |backing: String| Combination { tiers: tiers.to_vec(), backing };
            stores.map(|d| of(d.name.clone())).collect()
        };
        if found.is_empty() { Err(PlanError::NoSuchCombination) } else { Ok(found) }
    }

    /// The device called `name`.
    ///
    /// # Errors
    /// If there is none; the message names all devices, and suggests a similar name if there is
    /// one.
    pub fn device(&self, name: &str) -> Result<&Device, PlanError> {
        self.devices.iter().find(|d| d.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.devices.iter().map(|d| d.name.as_str()).collect();
            wrong(format!("there is no device `{name}`{}", suggestion(name, "devices", &names)))
        })
    }

    /// The first DRAM device, or the first device if there is no DRAM. Its price is the basis of
    /// budgets in percent.
    pub fn reference_device(&self) -> Option<&Device> {
        self.devices.iter().find(|d| d.kind == DeviceKind::Dram).or(self.devices.first())
    }

    fn check_devices(&self) -> Result<(), PlanError> {
        if self.devices.is_empty() {
            return Err(wrong("it has no [[device]]"));
        }
        for (index, device) in self.devices.iter().enumerate() {
            if let Some((key, should)) = device.impossible_value() {
                return Err(wrong(format!("{key} of device `{}` must {should}", device.name)));
            }
            if self.devices[..index].iter().any(|d| d.name == device.name) {
                return Err(wrong(format!("two devices are called `{}`", device.name)));
            }
        }
        Ok(())
    }

    fn check_names(&self, combination: &Combination) -> Result<(), PlanError> {
        for (index, name) in combination.tiers.iter().enumerate() {
            self.device(name)?;
            if combination.tiers[..index].contains(name) || *name == combination.backing {
                return Err(wrong(format!("a combination contains device `{name}` twice")));
            }
        }
        self.device(&combination.backing).map(|_| ())
    }

    /// Every pair of a DRAM tier and a slower DRAM or flash tier, in front of every slower
    /// non-volatile device; single tiers where there is no slower second tier.
    fn sensible_pairs(&self) -> Vec<Combination> {
        let slower = |a: &Device, b: &Device| a.read_latency_us > b.read_latency_us;
        let mut found = Vec::new();
        for first in self.devices.iter().filter(|d| d.kind == DeviceKind::Dram) {
            let stores =
                || self.devices.iter().filter(|d| d.kind != DeviceKind::Dram && slower(d, first));
            for backing in stores() {
                let before = found.len();
                for second in self.devices.iter().filter(|d| d.kind != DeviceKind::Hdd) {
                    if slower(second, first) && slower(backing, second) {
                        found.push(Combination {
                            tiers: vec![first.name.clone(), second.name.clone()],
                            backing: backing.name.clone(),
                        });
                    }
                }
                if found.len() == before {
                    found.push(Combination {
                        tiers: vec![first.name.clone()],
                        backing: backing.name.clone(),
                    });
                }
            }
        }
        found
    }
}

/// Rejects unknown keys, with the line and the most similar known key.
fn check_keys(text: &str) -> Result<(), PlanError> {
    let root = DeTable::parse(text).map_err(|e| syntax(text, &e))?;
    known(text, root.get_ref(), &FILE_KEYS)?;
    for (list, keys) in [("device", &Device::KEYS[..]), ("combination", &COMBINATION_KEYS[..])] {
        if let Some(DeValue::Array(items)) = root.get_ref().get(list).map(|v| v.get_ref()) {
            for item in items.iter() {
                if let DeValue::Table(table) = item.get_ref() {
                    known(text, table, keys)?;
                }
            }
        }
    }
    Ok(())
}

fn known(text: &str, table: &DeTable<'_>, keys: &[&str]) -> Result<(), PlanError> {
    for key in table.keys() {
        let name: &str = key.get_ref();
        if !keys.contains(&name) {
            let near = suggestion(name, "keys", keys);
            return Err(PlanError::Catalogue {
                line: Some(line_of(text, key.span().start)),
                what: format!("unknown key `{name}`{near}"),
            });
        }
    }
    Ok(())
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|&&b| b == b'\n').count() + 1
}

/// The end of a message about the unknown `name`: all known names, and the one that was probably
/// meant if one is similar.
fn suggestion(name: &str, what: &str, known: &[&str]) -> String {
    let all = known.join(", ");
    match forebay_names::nearest(name, known.iter().copied()) {
        Some(near) => format!("; did you mean `{near}`? The {what} are {all}"),
        None => format!("; the {what} are {all}"),
    }
}

fn syntax(text: &str, error: &toml::de::Error) -> PlanError {
    let line = error.span().map(|span| line_of(text, span.start));
    PlanError::Catalogue { line, what: error.message().to_string() }
}

fn wrong(what: impl Into<String>) -> PlanError {
    PlanError::Catalogue { line: None, what: what.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, kind: &str, us: f64) -> String {
        format!(
            "[[device]]\nname = \"{name}\"\nkind = \"{kind}\"\nprice_usd = 1\ncapacity_gb = 1\n\
             read_latency_us = {us}\nwrite_latency_us = {us}\n"
        )
    }

    fn message(text: &str) -> String {
        Catalogue::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn the_default_is_the_papers_tables() {
        let c = Catalogue::default();
        let optane = c.device("FastSSD").unwrap();
        assert_eq!((optane.price_usd, optane.capacity_gb), (1120.0, 375.0));
        assert_eq!((optane.read_latency_us, optane.write_latency_us), (1.82, 2.0));
        let disk = c.device("SlowHDD").unwrap();
        assert_eq!((disk.read_latency_us, disk.write_latency_us), (1661.1, 1037.3));
        let behind =
            |backing: &str| c.combinations().iter().filter(|x| x.backing == backing).count();
        assert_eq!((behind("FastHDD"), behind("SlowHDD"), behind("SlowSSD")), (7, 7, 3));
    }

    #[test]
    fn an_unknown_key_is_refused_by_line_with_the_nearest() {
        let text = device("a", "dram", 0.1) + "prize_usd = 3\n";
        let error = message(&text);
        assert!(error.contains("line 8") && error.contains("`prize_usd`"), "{error}");
        assert!(error.contains("`price_usd`"), "{error}");
        assert!(message("[[devices]]\n").contains("did you mean `device`?"));
    }

    #[test]
    fn an_unknown_device_is_answered_with_all_of_them_and_with_the_nearest_only_if_it_is_near() {
        let c = Catalogue::default();
        let says = |name: &str| c.device(name).unwrap_err().to_string();
        let near = [("SlowHD", "SlowHDD"), ("fastdram", "FastDRAM"), ("MediumSDD", "MediumSSD")];
        for (name, meant) in near {
            assert!(says(name).contains(&format!("did you mean `{meant}`? The devices are Fast")));
        }
        for name in ["hdd", "DRAM", "SSD", "x"] {
            let says = says(name);
            assert!(!says.contains("did you mean"), "{says}");
            assert!(c.devices().iter().all(|d| says.contains(&d.name)), "{says}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let a = device("a", "dram", 0.1);
        let cases = [
            (String::new(), "no [[device]]"),
            (a.clone() + &a, "two devices are called `a`"),
            (a.replace("price_usd = 1", "price_usd = -1"), "price_usd of device `a`"),
            (a.replace("capacity_gb = 1", "capacity_gb = 0"), "capacity_gb of device `a`"),
            (a.replace("read_latency_us = 0.1", "read_latency_us = nan"), "read_latency_us"),
            (a.replace("\"dram\"", "\"tape\""), "line 3"),
            (a.clone() + "x = [", "line 8"),
            (a.clone() + "[[combination]]\ntiers = [\"a\"]\nbacking = [\"b\"]", "no device `b`"),
            (a.clone() + "[[combination]]\ntiers = [\"a\"]\nbacking = [\"a\"]", "`a` twice"),
            (a.clone() + "[[combination]]\ntiers = []\nbacking = [\"a\"]", "at least one tier"),
        ];
        for (text, part) in cases {
            let error = message(&text);
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn without_combinations_every_sensible_pair_is_considered() {
        let text = device("ram", "dram", 0.1)
            + &device("ssd", "flash", 10.0)
            + &device("disk", "hdd", 1000.0);
        let c = Catalogue::parse(&text).unwrap();
        let names: Vec<String> = c
            .combinations()
            .iter()
            .map(|x| format!("{}|{}", x.tiers.join("+"), x.backing))
            .collect();
        assert_eq!(names, ["ram|ssd", "ram+ssd|disk"]);
    }
}
