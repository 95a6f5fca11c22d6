//! 64-bit keys for block addresses.
//!
//! A block address is 96 bits (volume and block number); the table of last access times stores
//! 64. Blocks are therefore numbered by *region*: 2^32 consecutive blocks of one volume (16 TiB
//! at 4 KiB) share a region, regions are numbered as they appear, and a key is region number and
//! block within the region. Every address has a key, and no two share one.

use std::collections::HashMap;

use forebay_block::{BlockAddr, BlockIndex, Volume};

use crate::LocalityError;

/// A region is `1 << REGION_BITS` consecutive blocks of a volume, whose keys are consecutive too.
pub(crate) const REGION_BITS: u32 = 32;

/// Number of entries of the cache in front of the map; workloads use few regions at a time.
const RECENT: usize = 64;

/// Assigns keys to block addresses.
///
/// ```
/// use forebay_block::{BlockAddr, BlockIndex, Volume};
/// let mut keys = forebay_locality::BlockKeys::new();
/// let addr = BlockAddr { volume: Volume(7), block: BlockIndex(1 << 50) };
/// let key = keys.key(addr).unwrap();
/// assert_eq!(keys.addr(key), Some(addr));
/// ```
#[derive(Clone, Debug)]
pub struct BlockKeys {
    numbers: HashMap<(u32, u32), u32>,
    regions: Vec<(u32, u32)>,
    recent: Box<[(u32, u32, u32); RECENT]>,
}

impl BlockKeys {
    /// Creates a mapping without regions.
    pub fn new() -> Self {
        Self { numbers: HashMap::new(), regions: Vec::new(), recent: Box::new([(0, 0, 0); RECENT]) }
    }

    /// Returns the key of `addr`. Consecutive blocks of a region have consecutive keys.
    ///
    /// # Errors
    /// If the workload spreads over more than 2^32 - 1 regions.
    #[inline]
    pub fn key(&mut self, addr: BlockAddr) -> Result<u64, LocalityError> {
        let (volume, high) = (addr.volume.0, (addr.block.0 >> 32) as u32);
        let (v, h, number) = self.recent[recent_slot(volume, high)];
        // Stored numbers are one too high, so that an unused entry matches no region.
        let number = match (v == volume && h == high, number) {
            (true, 1..) => number - 1,
            _ => self.number(volume, high)?,
        };
        Ok(u64::from(number) << 32 | addr.block.0 & 0xffff_ffff)
    }

    /// Returns the address of the block `key`, if its region is known.
    pub fn addr(&self, key: u64) -> Option<BlockAddr> {
        let &(volume, high) = self.regions.get((key >> 32) as usize)?;
        let block = u64::from(high) << 32 | key & 0xffff_ffff;
        Some(BlockAddr { volume: Volume(volume), block: BlockIndex(block) })
    }

    #[cold]
    fn number(&mut self, volume: u32, high: u32) -> Result<u32, LocalityError> {
        let next = self.regions.len() as u64;
        let number = match self.numbers.get(&(volume, high)) {
            Some(&n) => n,
            None if next < u64::from(u32::MAX) => {
                self.regions.push((volume, high));
                self.numbers.insert((volume, high), next as u32);
                next as u32
            }
            None => return Err(LocalityError::TooManyBlocks { distinct_blocks: next }),
        };
        self.recent[recent_slot(volume, high)] = (volume, high, number + 1);
        Ok(number)
    }
}

impl Default for BlockKeys {
    fn default() -> Self {
        Self::new()
    }
}

fn recent_slot(volume: u32, high: u32) -> usize {
    (volume.wrapping_add(high.wrapping_mul(0x9e37_79b9))) as usize % RECENT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_addresses_have_distinct_keys_that_lead_back() {
        let mut keys = BlockKeys::new();
        let mut seen = std::collections::BTreeMap::new();
        for round in 0..2 {
            for volume in [0, 1, 64, 128, u32::MAX] {
                for block in [0, 1, u32::MAX as u64, 1 << 32, 1 << 40, u64::MAX] {
                    let addr = BlockAddr { volume: Volume(volume), block: BlockIndex(block) };
                    let key = keys.key(addr).unwrap();
                    assert_eq!(keys.addr(key), Some(addr));
                    assert_eq!(*seen.entry(addr).or_insert(key), key, "round {round}");
                }
            }
        }
        let distinct: std::collections::BTreeSet<_> = seen.values().collect();
        assert_eq!(distinct.len(), seen.len());
        assert_eq!(keys.addr(u64::MAX), None);
    }
}
