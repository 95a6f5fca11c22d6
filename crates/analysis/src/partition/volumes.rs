//! The volumes among which a cache is divided.

use std::collections::BTreeMap;

use forebay_block::{Nanos, Volume};
use forebay_plan::partition::PartitionProfile;

use crate::AnalysisError;
use crate::kept::Kept;

/// The volumes that read or write.
#[derive(Debug)]
pub struct Known {
    /// The volumes, in the order of their numbers.
    pub volumes: Vec<KnownVolume>,
    by_number: BTreeMap<Volume, usize>,
}

/// A volume that reads or writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownVolume {
    /// The name of the volume.
    pub name: String,
    /// Size in whole blocks: the end of the farthest request, or the size in the trace if that is
    /// larger.
    pub bytes: u64,
}

impl Known {
    pub(super) fn new(kept: &Kept, profile: &PartitionProfile) -> Result<Self, AnalysisError> {
        let infos = &kept.described.metadata.volumes;
        let block = profile.options.block_size.bytes();
        let volume = |&number: &Volume| {
            let told = infos.get(number.0 as usize).and_then(|v| v.bytes).unwrap_or(0);
            let reached = kept.ends.get(number.0 as usize).copied().unwrap_or(0);
            KnownVolume {
                name: kept.described.volume_name(number),
                bytes: told.max(reached).div_ceil(block).max(1).saturating_mul(block),
            }
        };
        let volumes: Vec<KnownVolume> = profile.volumes.keys().map(volume).collect();
        match volumes.as_slice() {
            [] => Err(AnalysisError::NothingToDivide),
            [only] => Err(AnalysisError::OneVolume(only.name.clone())),
            _ => {
                let by_number =
                    profile.volumes.keys().enumerate().map(|(at, &number)| (number, at));
                Ok(Self { by_number: by_number.collect(), volumes })
            }
        }
    }

    /// The index of a volume among those that read or write.
    pub(super) fn index(&self, number: Volume) -> Option<usize> {
        self.by_number.get(&number).copied()
    }

    /// The targets: indices of volumes, and latencies in microseconds.
    pub(super) fn targets(
        &self,
        targets: &[(String, Nanos)],
    ) -> Result<Vec<(usize, f64)>, AnalysisError> {
        let mut found: Vec<(usize, f64)> = Vec::new();
        for (name, Nanos(ns)) in targets {
            let at = self.volumes.iter().position(|v| v.name == *name);
            let at = at.ok_or_else(|| AnalysisError::NoVolume {
                name: name.clone(),
                known: self.volumes.iter().map(|v| v.name.clone()).collect(),
            })?;
            if found.iter().any(|&(other, _)| other == at) {
                return Err(AnalysisError::TwoTargets(name.clone()));
            }
            found.push((at, *ns as f64 / 1e3));
        }
        Ok(found)
    }
}
