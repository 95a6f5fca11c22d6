//! Storage devices as the planner sees them: price, latency, endurance.

use serde::{Deserialize, Serialize};

/// The technology of a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DeviceKind {
    /// Main memory: fast, volatile, without wear.
    Dram,
    /// Flash and similar media: every write wears it.
    Flash,
    /// A hard disk, or an array of disks.
    Hdd,
}

/// One device of a catalogue. `price_usd` is for the whole device; a tier is priced by the decimal
/// byte.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// The name by which combinations and plans refer to it.
    pub name: String,
    /// Maker and model.
    #[serde(default)]
    pub model: String,
    /// The technology.
    pub kind: DeviceKind,
    /// Price of one device, in US dollars.
    pub price_usd: f64,
    /// Capacity in decimal gigabytes (1e9 bytes).
    pub capacity_gb: f64,
    /// Time to read one block, in microseconds.
    pub read_latency_us: f64,
    /// Time to write one block, in microseconds.
    pub write_latency_us: f64,
    /// Rated endurance: how often the whole capacity may be written per day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drive_writes_per_day: Option<f64>,
    /// Sequential read bandwidth in decimal megabytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_mb_per_s: Option<f64>,
    /// Sequential write bandwidth in decimal megabytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_mb_per_s: Option<f64>,
}

impl Device {
    /// The keys of a `[[device]]` table.
    pub(crate) const KEYS: [&str; 10] = [
        "name",
        "model",
        "kind",
        "price_usd",
        "capacity_gb",
        "read_latency_us",
        "write_latency_us",
        "drive_writes_per_day",
        "read_mb_per_s",
        "write_mb_per_s",
    ];

    /// Price of one byte, in US dollars.
    pub fn usd_per_byte(&self) -> f64 {
        self.price_usd / (self.capacity_gb * 1e9)
    }

    /// The first impossible value, if there is one: its key and the requirement it fails.
    pub(crate) fn impossible_value(&self) -> Option<(&'static str, &'static str)> {
        let positive = |v: f64| v.is_finite() && v > 0.0;
        let not_negative = |v: f64| v.is_finite() && v >= 0.0;
        let optional = |v: Option<f64>| v.is_none_or(positive);
        [
            (!self.name.is_empty(), "name", "not be empty"),
            (not_negative(self.price_usd), "price_usd", "be a price of zero or more"),
            (positive(self.capacity_gb), "capacity_gb", "be above zero"),
            (not_negative(self.read_latency_us), "read_latency_us", "be zero or more"),
            (not_negative(self.write_latency_us), "write_latency_us", "be zero or more"),
            (optional(self.drive_writes_per_day), "drive_writes_per_day", "be above zero"),
            (optional(self.read_mb_per_s), "read_mb_per_s", "be above zero"),
            (optional(self.write_mb_per_s), "write_mb_per_s", "be above zero"),
        ]
        .into_iter()
        .find(|(fine, ..)| !fine)
        .map(|(_, key, should)| (key, should))
    }
}
