//! Looking at a flash tier from outside: what `forebay flash info` and `check` need.
//!
//! ```
//! use forebay_flash::inspect::Info;
//! // The first bytes of a device, say 1 MiB, are enough.
//! let bytes = vec![0; 1 << 20];
//! assert_eq!(Info::find(&bytes), Err(forebay_flash::LogError::NotALog));
//! ```

use crate::format::batch::entries_max;
use crate::format::superblock::{MAGIC, Superblock};
use crate::format::{FormatError, VERSION};
use crate::geometry::{Geometry, GeometryError};
use crate::key::BlockKey;
use crate::types::{Damage, Event, LogError};
use std::collections::BTreeMap;

/// Smallest page, to which superblock copies are aligned.
const STEP: usize = 4096;

/// What the superblock says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Info {
    /// The newest copy.
    pub superblock: Superblock,
    /// Format version.
    pub format: u16,
    /// Byte offsets at which a copy should be but does not verify.
    pub damaged_copies: Vec<u64>,
}

impl Info {
    /// Finds the superblock copies in the first bytes of a device, whatever its geometry.
    ///
    /// # Errors
    /// As a start would give: no log, damaged, or of a newer version.
    pub fn find(bytes: &[u8]) -> Result<Info, LogError> {
        let mut newest: Option<Superblock> = None;
        let mut seen = Vec::new();
        let mut magic = false;
        for at in (0..bytes.len()).step_by(STEP) {
            magic |= bytes[at..].starts_with(&MAGIC);
            match Superblock::decode(&bytes[at..]) {
                Ok(s) => {
                    seen.push(at as u64);
                    if newest.as_ref().is_none_or(|n| s.generation > n.generation) {
                        newest = Some(s);
                    }
                }
                Err(FormatError::Version(found)) => {
                    return Err(LogError::NewerFormat { found, supported: VERSION });
                }
                Err(_) => {}
            }
        }
        let Some(superblock) = newest else {
            return Err(if magic { LogError::SuperblockDamaged } else { LogError::NotALog });
        };
        let second = u64::from(superblock.superblock_pages) * u64::from(superblock.page_size);
        let damaged_copies = [0, second].into_iter().filter(|at| !seen.contains(at)).collect();
        Ok(Info { superblock, format: VERSION, damaged_copies })
    }

    /// A geometry with which a [`crate::Log`] can recover or check this tier: the stored numbers,
    /// and limits that suit them.
    ///
    /// # Errors
    /// If the stored numbers do not go together.
    pub fn geometry(&self) -> Result<Geometry, GeometryError> {
        let s = &self.superblock;
        let mut g = Geometry {
            block_size: s.block_size,
            page_size: s.page_size,
            region_pages: s.region_pages,
            regions: s.regions,
            slots: s.slots,
            directory_pages: 0,
            superblock_pages: s.superblock_pages,
            extent_bytes: s.extent_bytes,
            batch_pages_max: if s.slots == 0 {
                257.min(s.region_pages.saturating_sub(1))
            } else {
                257
            },
            batch_entries_max: if s.page_size < 4096 {
                entries_max(s.page_size.max(512))
            } else {
                128
            },
            inflight_batches_max: 4,
            active_extents_max: (s.active.len() as u32).max(1),
        };
        if s.page_size >= 512 {
            g.batch_pages_max = g.batch_pages_max.max(1 + g.block_pages());
        }
        g.validate()?;
        Ok(g.with_directories())
    }
}

/// Which blocks a log holds, from the events of a check or a recovery.
#[derive(Default, Debug)]
pub struct Census {
    dirty: BTreeMap<BlockKey, u16>,
}

impl Census {
    /// Takes note of an event.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Recovered(record) => {
                self.dirty.insert(record.key, record.dirty);
            }
            Event::RecoveredTombstone { key } => {
                self.dirty.remove(key);
            }
            _ => {}
        }
    }

    /// Blocks held.
    pub fn blocks(&self) -> u64 {
        self.dirty.len() as u64
    }

    /// Blocks held that are dirty.
    pub fn dirty_blocks(&self) -> u64 {
        self.dirty.values().filter(|dirty| **dirty != 0).count() as u64
    }
}

impl Damage {
    /// One sentence for each thing that is missing or wrong, parts made good last.
    pub fn describe(&self) -> Vec<String> {
        let mut out = Vec::new();
        for (first, last) in &self.batches {
            out.push(format!(
                "durable batches {first} to {last} are lost; older records of their blocks may \
                 have taken their place"
            ));
        }
        for (key, position) in &self.payloads {
            out.push(format!("the record of {key} at page {} fails its checksum", position.0));
        }
        for page in &self.misplaced {
            out.push(format!("page {page} holds a header written for another page"));
        }
        for region in &self.directories {
            out.push(format!("the directory of region {region} is not that of its batches"));
        }
        for page in &self.repaired {
            out.push(format!("page {page} is damaged, but its contents are known from elsewhere"));
        }
        out
    }
}
