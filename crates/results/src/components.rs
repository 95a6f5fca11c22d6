//! Latencies of device operations.

use std::collections::BTreeMap;

use forebay_block::{Nanos, Volume};
use forebay_effect::Device;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::latency::{Latency, LatencyHistogram, LatencyTotal};

/// Latencies of device operations, by kind.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Components {
    /// Reads from flash.
    pub tier2_read: ComponentLatency,
    /// Writes to flash; each operation writes one batch.
    pub tier2_write: ComponentLatency,
    /// Syncs of flash.
    pub tier2_sync: ComponentLatency,
    /// Reads from backing stores.
    pub backing_read: ComponentLatency,
    /// Writes to backing stores, including zeroings.
    pub backing_write: ComponentLatency,
    /// Syncs of backing stores.
    pub backing_sync: ComponentLatency,
    /// Operations on the backing store of each volume, by volume name; left out if there is only
    /// one volume.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub volumes: BTreeMap<String, BackingLatency>,
}

/// Latencies of the operations on one backing store.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct BackingLatency {
    /// Reads.
    pub backing_read: ComponentLatency,
    /// Writes and zeroings.
    pub backing_write: ComponentLatency,
    /// Syncs.
    pub backing_sync: ComponentLatency,
}

/// Number and latency of one kind of operation, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ComponentLatency {
    /// Number of operations.
    pub count: u64,
    /// Time from the start to the end of an operation; percentiles are accurate to 1 %.
    #[serde(flatten)]
    pub latency: Latency,
}

/// The completed operations of one device, with their latencies.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Operations {
    /// Reads.
    pub read: LatencyTotal,
    /// Writes and zeroings.
    pub write: LatencyTotal,
    /// Syncs.
    pub sync: LatencyTotal,
}

/// The kind of a device operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A read.
    Read,
    /// A write or a zeroing.
    Write,
    /// A sync.
    Sync,
}

/// Records the latencies of device operations. Takes 70 KiB of memory for each kind of operation
/// that occurs on a device.
#[derive(Clone, Debug, Default)]
pub struct ComponentRecorder {
    flash: Kinds,
    /// Indexed by volume number.
    backing: Vec<Kinds>,
}

/// Histograms, indexed by [`Operation`].
type Kinds = [Option<Box<LatencyHistogram>>; 3];

impl ComponentRecorder {
    /// Counts a completed operation.
    #[inline]
    pub fn record(&mut self, device: Device, operation: Operation, latency: Nanos) {
        let kinds = match device {
            Device::Flash => &mut self.flash,
            Device::Backing(Volume(volume)) => {
                let at = volume as usize;
                if self.backing.len() <= at {
                    self.backing.resize_with(at + 1, Kinds::default);
                }
                &mut self.backing[at]
            }
        };
        kinds[operation as usize].get_or_insert_with(histogram).record(latency);
    }

    /// Discards all counts.
    pub fn clear(&mut self) {
        *self = ComponentRecorder::default();
    }

    /// The completed operations of a device.
    pub fn operations(&self, device: Device) -> Operations {
        let none = Kinds::default();
        let kinds = match device {
            Device::Flash => &self.flash,
            Device::Backing(Volume(volume)) => self.backing.get(volume as usize).unwrap_or(&none),
        };
        let [read, write, sync] = kinds
            .each_ref()
            .map(|histogram| histogram.as_ref().map(|h| h.total()).unwrap_or_default());
        Operations { read, write, sync }
    }

    /// The latencies to report, for flash and for the given volumes (number and name).
    pub fn summary<'a>(&self, volumes: impl IntoIterator<Item = (Volume, &'a str)>) -> Components {
        let none = Kinds::default();
        let of = |v: Volume| self.backing.get(v.0 as usize).unwrap_or(&none);
        let each: Vec<(&str, &Kinds)> =
            volumes.into_iter().map(|(volume, name)| (name, of(volume))).collect();
        let [tier2_read, tier2_write, tier2_sync] = summaries(&self.flash);
        let mut all = Kinds::default();
        for (sum, more) in each.iter().flat_map(|(_, kinds)| kinds.iter().enumerate()) {
            if let Some(more) = more {
                all[sum].get_or_insert_with(histogram).add(more);
            }
        }
        let [backing_read, backing_write, backing_sync] = summaries(&all);
        let backing = |&(name, kinds): &(&str, &Kinds)| {
            let [backing_read, backing_write, backing_sync] = summaries(kinds);
            (name.to_owned(), BackingLatency { backing_read, backing_write, backing_sync })
        };
        let several = each.len() > 1;
        Components {
            tier2_read,
            tier2_write,
            tier2_sync,
            backing_read,
            backing_write,
            backing_sync,
            volumes: if several { each.iter().map(backing).collect() } else { BTreeMap::new() },
        }
    }
}

impl Components {
    /// All kinds of operations that occurred, with readable names; the operations on single volumes
    /// come last.
    pub fn named(&self) -> Vec<(String, ComponentLatency)> {
        let mut named = vec![
            ("flash reads".to_owned(), self.tier2_read),
            ("flash writes".to_owned(), self.tier2_write),
            ("flash syncs".to_owned(), self.tier2_sync),
            ("backing reads".to_owned(), self.backing_read),
            ("backing writes".to_owned(), self.backing_write),
            ("backing syncs".to_owned(), self.backing_sync),
        ];
        for (volume, latency) in &self.volumes {
            named.extend([
                (format!("{volume} reads"), latency.backing_read),
                (format!("{volume} writes"), latency.backing_write),
                (format!("{volume} syncs"), latency.backing_sync),
            ]);
        }
        named.retain(|(_, latency)| latency.count > 0);
        named
    }
}

fn histogram() -> Box<LatencyHistogram> {
    Box::new(LatencyHistogram::coarse())
}

fn summaries(kinds: &Kinds) -> [ComponentLatency; 3] {
    kinds.each_ref().map(|histogram| match histogram {
        Some(h) => ComponentLatency { count: h.count(), latency: h.summary() },
        None => ComponentLatency::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Device = Device::Backing(Volume(0));
    const B: Device = Device::Backing(Volume(2));

    fn recorder() -> ComponentRecorder {
        let mut recorder = ComponentRecorder::default();
        recorder.record(Device::Flash, Operation::Sync, Nanos::from_micros(7));
        recorder.record(A, Operation::Read, Nanos::from_micros(100));
        recorder.record(B, Operation::Read, Nanos::from_micros(300));
        recorder.record(B, Operation::Write, Nanos::from_micros(500));
        recorder
    }

    #[test]
    fn backing_stores_are_told_apart_and_added_up() {
        let components = recorder().summary([(Volume(0), "a"), (Volume(2), "b")]);
        assert_eq!((components.tier2_sync.count, components.tier2_sync.latency.max), (1, 7.0));
        assert_eq!(
            (components.backing_read.count, components.backing_read.latency.max),
            (2, 300.0)
        );
        assert_eq!(components.volumes["a"].backing_read.latency.max, 100.0);
        assert_eq!(components.volumes["b"].backing_write.count, 1);
        let names: Vec<String> = components.named().into_iter().map(|n| n.0).collect();
        let expected =
            ["flash syncs", "backing reads", "backing writes", "a reads", "b reads", "b writes"];
        assert_eq!(names, expected);
    }

    #[test]
    fn one_volume_is_not_told_twice() {
        let mut recorder = recorder();
        let document = serde_json::to_value(recorder.summary([(Volume(0), "a")])).unwrap();
        assert!(document.get("volumes").is_none());
        assert_eq!(document["backing_read"]["count"], 1);
        assert_eq!(document["backing_write"]["p9999"], 0.0);
        recorder.clear();
        assert_eq!(recorder.summary([]), Components::default());
    }
}
