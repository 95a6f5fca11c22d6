//! The key-value metadata, which describes the trace.

use parquet::file::metadata::{FileMetaData, KeyValue};
use serde::{Deserialize, Serialize};

use super::FORMAT_VERSION;
use crate::{Clock, HashInfo, Metadata, VolumeInfo};

const VERSION: &str = "forebay.trace.version";
const CLOCK: &str = "forebay.trace.clock";
const EPOCH: &str = "forebay.trace.epoch_ns";
const VOLUMES: &str = "forebay.trace.volumes";
const VOLUME_NAMES: &str = "forebay.trace.volume_names";
const HASHES: &str = "forebay.trace.hashes";
const SAMPLE: &str = "forebay.trace.sample";
const PROVENANCE: &str = "forebay.trace.provenance";

/// The value of [`VOLUME_NAMES`] if the names have no meaning outside the file. Without the key,
/// volumes with equal names in several files of a capture are the same volume.
const OWN_NAMES: &str = "own";

/// A file whose metadata has more volumes than this is considered damaged.
const VOLUMES_MAX: u32 = 1 << 20;

#[derive(Serialize, Deserialize)]
struct VolumeEntry {
    volume: u32,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct HashesEntry {
    algorithm: String,
    unit_bytes: u32,
    digest_bytes: u32,
}

/// The key-value pairs that describe `m`.
pub(super) fn to_pairs(m: &Metadata) -> Vec<KeyValue> {
    let json = |v: serde_json::Result<String>| v.expect("plain data becomes JSON");
    let volumes: Vec<VolumeEntry> = (0..)
        .zip(&m.volumes)
        .map(|(volume, v)| VolumeEntry { volume, name: v.name.clone(), bytes: v.bytes })
        .collect();
    let clock = match m.clock {
        Clock::Unknown => "unknown",
        Clock::Unix => "unix",
    };
    let mut pairs = vec![
        KeyValue::new(VERSION.to_owned(), FORMAT_VERSION.to_string()),
        KeyValue::new(CLOCK.to_owned(), clock.to_owned()),
        KeyValue::new(EPOCH.to_owned(), m.epoch_ns.unwrap_or(0).to_string()),
        KeyValue::new(VOLUMES.to_owned(), json(serde_json::to_string(&volumes))),
        KeyValue::new(PROVENANCE.to_owned(), json(serde_json::to_string(&m.provenance))),
    ];
    if !m.names_volumes {
        pairs.push(KeyValue::new(VOLUME_NAMES.to_owned(), OWN_NAMES.to_owned()));
    }
    if let Some(h) = &m.hashes {
        let entry = HashesEntry {
            algorithm: h.algorithm.clone(),
            unit_bytes: h.unit_bytes,
            digest_bytes: h.digest_bytes,
        };
        pairs.push(KeyValue::new(HASHES.to_owned(), json(serde_json::to_string(&entry))));
    }
    if let Some(sample) = &m.sample {
        pairs.push(KeyValue::new(SAMPLE.to_owned(), json(serde_json::to_string(sample))));
    }
    pairs
}

/// Reads the metadata of a file and its format version (`None` if another program wrote the file).
///
/// # Errors
/// A message that names a key with an invalid value.
pub(super) fn from_file(file: &FileMetaData) -> Result<(Metadata, Option<u32>), String> {
    let get = |key: &str| {
        let pairs = file.key_value_metadata()?;
        pairs.iter().find(|p| p.key == key)?.value.as_deref()
    };
    let bad =
        |key: &str, value: &str| format!("metadata key {key} has the invalid value {value:?}");
    let mut m = Metadata { format: "parquet".to_owned(), ..Metadata::default() };
    let Some(version) = get(VERSION) else { return Ok((m, None)) };
    let version = version.parse().map_err(|_| bad(VERSION, version))?;
    if version > FORMAT_VERSION {
        return Ok((m, Some(version)));
    }
    m.clock = match get(CLOCK) {
        Some("unix") => Clock::Unix,
        _ => Clock::Unknown,
    };
    if let Some(epoch) = get(EPOCH) {
        m.epoch_ns = Some(epoch.parse().map_err(|_| bad(EPOCH, epoch))?);
    }
    if let Some(text) = get(VOLUMES) {
        let entries: Vec<VolumeEntry> =
            serde_json::from_str(text).map_err(|_| bad(VOLUMES, text))?;
        for e in entries {
            if e.volume >= VOLUMES_MAX {
                return Err(bad(VOLUMES, text));
            }
            name_volumes_up_to(&mut m.volumes, e.volume);
            m.volumes[e.volume as usize] = VolumeInfo { name: e.name, bytes: e.bytes };
        }
        m.names_volumes = get(VOLUME_NAMES) != Some(OWN_NAMES);
    }
    if let Some(text) = get(HASHES) {
        let e: HashesEntry = serde_json::from_str(text).map_err(|_| bad(HASHES, text))?;
        m.hashes = Some(HashInfo {
            algorithm: e.algorithm,
            unit_bytes: e.unit_bytes,
            digest_bytes: e.digest_bytes,
        });
    }
    if let Some(text) = get(SAMPLE) {
        m.sample = Some(serde_json::from_str(text).map_err(|_| bad(SAMPLE, text))?);
    }
    if let Some(text) = get(PROVENANCE) {
        m.provenance = serde_json::from_str(text).map_err(|_| bad(PROVENANCE, text))?;
    }
    Ok((m, Some(version)))
}

/// Gives volumes up to `number` a name if they have none: their number. Does nothing if `number` is
/// too large.
pub(super) fn name_volumes_up_to(volumes: &mut Vec<VolumeInfo>, number: u32) {
    while volumes.len() <= number as usize && number < VOLUMES_MAX {
        volumes.push(VolumeInfo { name: volumes.len().to_string(), bytes: None });
    }
}
