//! Slots layout: the newest record of each block, while recovery reads the journal.
//!
//! Millions of records are inserted, most of them soon superseded. A cell has at most one record,
//! so records are in a list by cell, and an open-addressed table of cells finds the record of a
//! block. That is two memory accesses for each entry of the journal, and no allocation. Records are
//! returned in the order of their insertion, or looked up by block; nothing depends on the order of
//! the table.

use crate::format::batch::BatchEntry;
use crate::key::BlockKey;
use crate::sequence::{BatchSequence, RegionSequence};

/// The newest record of a block.
#[derive(Clone, Copy)]
pub(crate) struct LiveRecord {
    pub entry: BatchEntry,
    pub sequence: BatchSequence,
    pub region_sequence: RegionSequence,
    pub verified: bool,
    /// Order of application, which is the order of the journal; from 1 on.
    order: u64,
}

/// The newest record of each block; see the module documentation.
pub(crate) struct LiveRecords {
    /// Indexed by cell.
    records: Vec<Option<LiveRecord>>,
    /// Cells, each at or after the place that the hash of its block names.
    table: Vec<u32>,
    /// Number of records ever inserted.
    applied: u64,
}

const EMPTY: u32 = u32::MAX;

fn hash(key: BlockKey) -> u64 {
    let x = (key.0 ^ (key.0 >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

impl LiveRecords {
    /// An empty table with room for the records of `cells` cells.
    pub fn new(cells: u32) -> LiveRecords {
        // Never full, so that every search ends.
        let places = u64::from(cells) * 19 / 10 + 8;
        LiveRecords {
            records: vec![None; cells as usize],
            table: vec![EMPTY; places as usize],
            applied: 0,
        }
    }

    fn home(&self, key: BlockKey) -> usize {
        ((u128::from(hash(key)) * self.table.len() as u128) >> 64) as usize
    }

    fn next(&self, place: usize) -> usize {
        if place + 1 == self.table.len() { 0 } else { place + 1 }
    }

    fn key_in(&self, cell: u32) -> BlockKey {
        self.records[cell as usize].as_ref().expect("the table has cells with records").entry.key
    }

    /// The place of the block's cell in the table, or where it would be inserted.
    fn place_of(&self, key: BlockKey) -> usize {
        let mut place = self.home(key);
        while self.table[place] != EMPTY && self.key_in(self.table[place]) != key {
            place = self.next(place);
        }
        place
    }

    /// The record of a block.
    pub fn get(&self, key: BlockKey) -> Option<&LiveRecord> {
        let cell = *self.table.get(self.place_of(key))?;
        if cell == EMPTY { None } else { self.records[cell as usize].as_ref() }
    }

    /// Removes the record of a block, if there is one.
    pub fn remove(&mut self, key: BlockKey) {
        let mut hole = self.place_of(key);
        let cell = self.table[hole];
        if cell == EMPTY {
            return;
        }
        self.records[cell as usize] = None;
        // Entries that may stand in the hole are moved there, so that no search ends too early.
        let mut place = hole;
        loop {
            place = self.next(place);
            let cell = self.table[place];
            if cell == EMPTY {
                break;
            }
            let home = self.home(self.key_in(cell));
            let stays = match hole < place {
                true => hole < home && home <= place,
                false => hole < home || home <= place,
            };
            if !stays {
                self.table[hole] = cell;
                hole = place;
            }
        }
        self.table[hole] = EMPTY;
    }

    /// Inserts a record: any older record of its block, or in its cell, no longer counts.
    pub fn put(
        &mut self,
        entry: &BatchEntry,
        region_sequence: RegionSequence,
        sequence: BatchSequence,
        verified: bool,
    ) {
        self.remove(entry.key);
        // A cell has two owners only if the entry that removed the first one was damaged.
        if let Some(first) = &self.records[entry.cell as usize] {
            self.remove(first.entry.key);
        }
        self.applied += 1;
        let place = self.place_of(entry.key);
        self.table[place] = entry.cell;
        let order = self.applied;
        self.records[entry.cell as usize] =
            Some(LiveRecord { entry: *entry, sequence, region_sequence, verified, order });
    }

    /// The cells with records, in the order of insertion.
    pub fn in_order(&self) -> Vec<u32> {
        // The journal is at most a few times as long as the list of the records that remain.
        let mut cells = vec![EMPTY; self.applied as usize + 1];
        for (cell, record) in (0..).zip(&self.records) {
            if let Some(found) = record {
                cells[found.order as usize] = cell;
            }
        }
        cells.retain(|&cell| cell != EMPTY);
        cells
    }

    /// The record in a cell.
    pub fn in_cell(&self, cell: u32) -> Option<&LiveRecord> {
        self.records[cell as usize].as_ref()
    }

    /// The blocks whose records have not been verified.
    pub fn unverified(&self) -> Vec<BlockKey> {
        let unverified = self.records.iter().flatten().filter(|found| !found.verified);
        let mut keys: Vec<BlockKey> = unverified.map(|found| found.entry.key).collect();
        keys.sort_unstable();
        keys
    }

    /// The cells without a record.
    pub fn free(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.records).filter(|(_, record)| record.is_none()).map(|(cell, _)| cell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::batch::EntryKind;
    use crate::granules::Granules;
    use forebay_block::Volume;
    use std::collections::BTreeMap;

    fn entry(block: u64, cell: u32, checksum: u32) -> BatchEntry {
        let key = BlockKey::new(Volume(0), block);
        let (valid, dirty) = (Granules(1), Granules::EMPTY);
        BatchEntry { key, kind: EntryKind::Data, valid, dirty, offset: 0, cell, checksum }
    }

    /// Compares random insertions and removals with plain maps.
    #[test]
    fn a_record_counts_until_a_newer_one_has_its_block_or_its_cell() {
        for cells in [1, 7, 64] {
            let mut live = LiveRecords::new(cells);
            // By order: block, cell.
            let mut plain: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
            let mut x = 1_u64;
            for order in 0..50_000 {
                x = x
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let (block, cell) = (x >> 33 & 0x7f, (x >> 45) as u32 % cells);
                plain.retain(|_, record| record.0 != block);
                if x >> 60 < 4 {
                    live.remove(BlockKey::new(Volume(0), block));
                } else {
                    plain.retain(|_, record| record.1 != cell);
                    plain.insert(order, (block, cell));
                    let sequence = BatchSequence(order.into());
                    let entry = entry(block, cell, order);
                    live.put(&entry, RegionSequence::FIRST, sequence, order % 2 == 0);
                }
                if order % 97 == 0 {
                    let found = live.in_order().into_iter().filter_map(|cell| live.in_cell(cell));
                    let is =
                        found.map(|f| (f.entry.checksum, (f.entry.key.block().0, f.entry.cell)));
                    assert!(is.eq(plain.iter().map(|(order, record)| (*order, *record))));
                    for block in 0..128 {
                        let of = plain.values().find(|record| record.0 == block);
                        let found = live.get(BlockKey::new(Volume(0), block)).map(|f| f.entry.cell);
                        assert_eq!(found, of.map(|record| record.1));
                    }
                    assert_eq!(live.free().count() + plain.len(), cells as usize);
                    let odd = plain.keys().filter(|order| *order % 2 != 0).count();
                    assert_eq!(live.unverified().len(), odd);
                }
            }
        }
    }
}
