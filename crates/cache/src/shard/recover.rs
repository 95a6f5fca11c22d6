//! What recovery finds on flash, as it comes: in log order, so that a later record replaces.
//!
//! The index has room for all that counted when the log ended, but not for all that counted at
//! one time or other: a record that a direct write made stale was forgotten at once, and its
//! tombstone came into the log later, behind records that had taken its place in the index. So
//! what finds no room is put aside (*spilled*) until the end is known. Only where this run has
//! fewer entries, or shares them out among other shards, than the one before may some be left
//! then: clean ones are disowned, dirty ones are a reason not to start.

use forebay_flash::{BlockKey, Position};

use super::{Shard, Surroundings};

/// A record that is not in the index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spilled {
    position: Position,
    checksum: u32,
    valid: u16,
    dirty: u16,
}

impl Shard {
    /// A record found by recovery.
    pub fn recovered(
        &mut self,
        around: &mut Surroundings<'_>,
        key: BlockKey,
        position: Position,
        checksum: u32,
        (valid, dirty): (u16, u16),
    ) {
        match self.entry(key) {
            Some(id) => {
                self.spilled.remove(&key);
                self.set_record(around, id, Some((position, checksum, valid, dirty)));
            }
            None => {
                around.stats.recovered_spilled += 1;
                self.spilled.insert(key, Spilled { position, checksum, valid, dirty });
            }
        }
    }

    /// A tombstone found by recovery.
    pub fn recovered_tombstone(&mut self, around: &mut Surroundings<'_>, key: BlockKey) {
        self.spilled.remove(&key);
        if let Some(id) = self.index.find(key) {
            if self.index[id].position().is_some() {
                self.set_record(around, id, None);
            }
            self.forget_if_empty(id);
        }
    }

    /// Recovery has given all it found: what was spilled takes the places that are free now. Adds to
    /// `left` the blocks whose clean records find none; gives the number of dirty ones that do not.
    pub fn place_spilled(
        &mut self,
        around: &mut Surroundings<'_>,
        left: &mut Vec<BlockKey>,
    ) -> u64 {
        let mut spilled = core::mem::take(&mut self.spilled);
        // What is dirty must have a place.
        let mut homeless = 0;
        for dirty in [true, false] {
            spilled.retain(|&key, s| {
                if (s.dirty != 0) != dirty {
                    return true;
                }
                match self.entry(key) {
                    Some(id) => {
                        let to = (s.position, s.checksum, s.valid, s.dirty);
                        self.set_record(around, id, Some(to));
                    }
                    None if dirty => homeless += 1,
                    None => left.push(key),
                }
                false
            });
        }
        homeless
    }
}
