//! The log layout: how often each record is read, which decides which records are reinserted when
//! their region is reclaimed.

use forebay_replacement::Popularity;

use crate::config::LogReplacement;
use crate::shard::entry::EntryId;
use crate::shard::tiers::ShardSizes;
use crate::slab::Key;

/// The use of each record. Entries are named by their number in the index.
#[derive(Debug)]
pub(super) struct LogLayout {
    /// How often the record of each block was read from flash.
    uses: Box<[u8]>,
    /// The popularity of records, if reinsertion depends on it.
    popularity: Option<Popularity>,
    policy: LogReplacement,
}

impl LogLayout {
    pub fn new(policy: LogReplacement, sizes: ShardSizes) -> LogLayout {
        let by_popularity = policy == LogReplacement::Popularity;
        LogLayout {
            uses: vec![0; sizes.entries as usize].into_boxed_slice(),
            popularity: by_popularity.then(|| Popularity::new(sizes.entries, sizes.flash_entries)),
            policy,
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        let popularity = self.popularity.as_ref().map_or(0, Popularity::memory_bytes);
        size_of_val(&*self.uses) as u64 + popularity
    }

    /// Notes that the block has another record or, unless it `exists`, none.
    pub fn record_replaced(&mut self, id: EntryId, exists: bool) {
        self.uses[id.number() as usize] = 0;
        if let Some(popularity) = &mut self.popularity {
            match exists {
                true => popularity.insert(id.number()),
                false => popularity.remove(id.number()),
            }
        }
    }

    /// Notes that the block's record is at the head of the log, unchanged.
    pub fn reinserted(&mut self, id: EntryId) {
        let uses = &mut self.uses[id.number() as usize];
        *uses = self.policy.aged(*uses);
        if let Some(popularity) = &mut self.popularity {
            popularity.age(id.number());
        }
    }

    /// Notes that a client's access reads the block's record from flash.
    #[inline]
    pub fn note_use(&mut self, id: EntryId) {
        let uses = &mut self.uses[id.number() as usize];
        *uses = uses.saturating_add(1);
        if let Some(popularity) = &mut self.popularity {
            popularity.access(id.number());
        }
    }

    /// How often the block's record was read.
    #[inline]
    pub fn uses(&self, id: EntryId) -> u8 {
        self.uses[id.number() as usize]
    }

    /// The reads or the popularity of the block's record, if that makes it worth reinserting.
    pub fn worth(&self, id: EntryId) -> Option<u8> {
        let by_popularity = |popularity: &Popularity| popularity.sum(id.number());
        let worth = self.popularity.as_ref().map_or(self.uses(id), by_popularity);
        self.policy.uses_min().filter(|&least| worth >= least).map(|_| worth)
    }

    /// Whether the records with the highest worth are taken first.
    pub fn takes_hottest(&self) -> bool {
        self.policy.takes_hottest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_are_gone_do_not_lower_the_popularity_of_others() {
        // Method: other records enter after the first, and are replaced or forgotten before the
        // first is read.
        let worth = |others: u32, stay: bool| {
            let sizes = ShardSizes { frames: 0, dram_blocks: 0, flash_entries: 16, entries: 16 };
            let mut log = LogLayout::new(LogReplacement::Popularity, sizes);
            log.record_replaced(EntryId::new(0), true);
            (1..=others).for_each(|n| log.record_replaced(EntryId::new(n), true));
            (1..=others).for_each(|n| log.record_replaced(EntryId::new(n), stay));
            log.note_use(EntryId::new(0));
            log.worth(EntryId::new(0))
        };
        assert_eq!(worth(8, false), worth(0, false));
        assert!(worth(0, false).is_some());
        assert_eq!(worth(8, true), None, "the first was used longest ago");
    }
}
