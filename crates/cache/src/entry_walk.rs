//! A walk over the entries of all shards, a bounded number in each turn.

use crate::shard::{EntryId, Shard};

/// Number of entries that one step looks at.
const ENTRIES: u32 = 4096;

/// Where the walk continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) struct EntryWalk {
    shard: usize,
    entry: EntryId,
}

impl EntryWalk {
    /// At the first entry of the first shard.
    pub const START: EntryWalk = EntryWalk { shard: 0, entry: EntryId::FIRST };

    /// Takes one step. `look` gets a shard, its first entry to look at, and how many; it returns
    /// the entry after them, or `None` if there are no more. Returns the rest of the walk, or
    /// `None` at its end.
    #[must_use]
    pub fn step(
        self,
        shards: &mut [Shard],
        look: impl FnOnce(&mut Shard, EntryId, u32) -> Option<EntryId>,
    ) -> Option<EntryWalk> {
        let next = match look(&mut shards[self.shard], self.entry, ENTRIES) {
            Some(entry) => EntryWalk { entry, ..self },
            None => EntryWalk { shard: self.shard + 1, entry: EntryId::FIRST },
        };
        (next.shard < shards.len()).then_some(next)
    }
}
