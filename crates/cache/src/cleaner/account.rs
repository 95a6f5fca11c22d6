//! The account of the current destage of everything: what it could not read, and what it has tried.

use forebay_flash::RegionIndex;

use super::FAILURES_MAX;
use crate::shard::RegionMove;

/// See the module.
#[derive(Debug)]
pub(super) struct Account {
    /// By region: whether the destage could not read all of it.
    unread: Box<[bool]>,
    /// By region: how often it has failed.
    tries: Box<[u32]>,
}

impl Account {
    pub fn new(regions: u32) -> Account {
        Account {
            unread: vec![false; regions as usize].into_boxed_slice(),
            tries: vec![0; regions as usize].into_boxed_slice(),
        }
    }

    /// A destage begins.
    pub fn clear(&mut self) {
        self.unread.fill(false);
        self.tries.fill(0);
    }

    /// The destage could not read all of the region's records.
    pub fn note_unread(&mut self, region: RegionIndex) {
        self.unread[region.index()] = true;
    }

    /// Records have moved from one region to another; unreadable ones may be among them.
    pub fn note_moved(&mut self, RegionMove { from, to }: RegionMove) {
        self.unread[to.index()] |= self.unread[from.index()];
    }

    /// Whether the destage could not read all of the region's records.
    pub fn has_unread(&self, region: RegionIndex) -> bool {
        self.unread[region.index()]
    }

    /// The region could not be destaged; returns whether this destage gives it up.
    pub fn note_failed(&mut self, region: RegionIndex) -> bool {
        let tries = &mut self.tries[region.index()];
        *tries += 1;
        *tries >= FAILURES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destage_gives_up_a_region_alone_and_the_next_tries_it_again() {
        let mut account = Account::new(4);
        for n in 1..=FAILURES_MAX {
            assert_eq!(account.note_failed(RegionIndex(2)), n == FAILURES_MAX);
        }
        assert!(!account.note_failed(RegionIndex(1)));
        account.clear();
        assert!(!account.note_failed(RegionIndex(2)));
    }
}
