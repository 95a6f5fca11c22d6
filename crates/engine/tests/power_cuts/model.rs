//! What a client may expect of each block.

use std::collections::BTreeMap;

use crate::journal::{Block, Mark};
use crate::world::{Images, blocks, is_a_stamp, on_store, version_of};

/// The versions of a block: at least `flushed` survives, `acked` was promised to the caller that asks this
/// run, and nothing beyond `issued` exists.
#[derive(Clone, Copy, Default, Debug)]
pub struct Versions {
    pub flushed: u64,
    pub acked: u64,
    pub issued: u64,
}

#[derive(Clone, Default)]
pub struct Model {
    versions: BTreeMap<Block, Versions>,
    /// What was acknowledged when a FLUSH of the volume began.
    flushing: BTreeMap<u32, Vec<(Block, u64)>>,
    /// A client was served in this run: its opening is over.
    pub serving: bool,
    /// A stop has ended, and nothing has happened since.
    pub stopped: bool,
}

impl Model {
    pub fn versions(&self, block: Block) -> Versions {
        self.versions.get(&block).copied().unwrap_or_default()
    }

    pub fn note(&mut self, mark: &Mark) {
        self.stopped = matches!(mark, Mark::Stopped);
        self.serving |= matches!(mark, Mark::Issued(..) | Mark::Read(..));
        match *mark {
            Mark::Issued(block, version) => self.at(block).issued = version,
            Mark::Acked(block, version) => self.at(block).acked = version,
            Mark::Forced(block, version) => self.at(block).flushed = version,
            Mark::FlushBegins(volume) => {
                let of = self.versions.iter().filter(|(block, _)| block.0 == volume);
                let acked = of.map(|(&block, versions)| (block, versions.acked)).collect();
                self.flushing.insert(volume, acked);
            }
            Mark::FlushEnds(volume) => {
                for (block, acked) in self.flushing.remove(&volume).unwrap_or_default() {
                    let versions = self.at(block);
                    versions.flushed = versions.flushed.max(acked);
                }
            }
            Mark::Read(block, version) => {
                *self.at(block) = Versions { flushed: version, acked: version, issued: version };
            }
            Mark::Stopped => {
                for versions in self.versions.values_mut() {
                    versions.flushed = versions.acked;
                }
            }
        }
    }

    /// After a power cut nothing counts but what was flushed.
    pub fn cut(&mut self) {
        (self.serving, self.stopped) = (false, false);
        self.versions.values_mut().for_each(|versions| versions.acked = versions.flushed);
    }

    /// What is wrong with a block that reads as `bytes`, if anything: older than flushed, newer
    /// than issued, or not this block's. A torn write may leave garbage, until it is flushed.
    pub fn fault(&self, block: Block, bytes: &[u8]) -> Option<String> {
        let Versions { flushed, issued, .. } = self.versions(block);
        let is_wrong = |sector: &&[u8]| match version_of(block, sector) {
            Some(version) => version < flushed || version > issued,
            None => flushed == issued || is_a_stamp(sector),
        };
        let wrong = bytes.chunks(512).find(is_wrong)?;
        let found = version_of(block, wrong);
        let found = found.map_or("something else".to_owned(), |v| format!("version {v}"));
        Some(format!("{block:?} reads as {found}, not one of {flushed} to {issued}"))
    }

    /// What a store alone does not hold of what was flushed.
    pub fn fault_on_stores(&self, images: &Images) -> Option<String> {
        blocks().find_map(|block| self.fault(block, on_store(images, block)))
    }

    /// A block whose acknowledged version the stores lack.
    pub fn lacking(&self, images: &[&[u8]]) -> Option<Block> {
        blocks().find(|&block| {
            let acked = self.versions(block).acked;
            // What is no version is of a write that a cut has torn: none that was acknowledged.
            let mut sectors = on_store(images, block).chunks(512);
            sectors
                .any(|sector| version_of(block, sector).map_or(is_a_stamp(sector), |v| v < acked))
        })
    }

    fn at(&mut self, block: Block) -> &mut Versions {
        self.versions.entry(block).or_default()
    }
}
