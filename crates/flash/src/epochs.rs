//! Which run of the log wrote which batches.
//!
//! Every start is a new epoch, and every recovery decides permanently where the log of the previous
//! epoch ends. An intact batch after that end may still be on flash. This table keeps it from
//! coming back: for each batch sequence it names the one epoch whose batch counts. An epoch writes
//! each sequence once, so (epoch, sequence) names one batch.

use crate::sequence::BatchSequence;

/// Most epochs remembered. Older boundaries are forgotten; for them, only the order of regions
/// decides (a region's batches end where the next region's begin).
pub(crate) const EPOCHS_MAX: usize = 64;

/// The epoch that a format begins. Each later start begins [`Superblock::next_epoch`].
///
/// [`Superblock::next_epoch`]: crate::format::superblock::Superblock::next_epoch
pub const FIRST_EPOCH: u64 = 1;

/// The start of an epoch's batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochStart {
    /// Sequence of its first batch.
    pub first_batch: BatchSequence,
    /// The epoch.
    pub epoch: u64,
}

/// Whether batch `sequence`, written in `epoch`, counts.
pub(crate) fn accepts(table: &[EpochStart], sequence: BatchSequence, epoch: u64) -> bool {
    match table.iter().rposition(|start| start.first_batch <= sequence) {
        Some(n) => table[n].epoch == epoch,
        None => table.first().is_some_and(|first| epoch < first.epoch),
    }
}

/// From batch `first_batch` on, only `epoch` counts. Forgets boundaries that no batch from
/// `tail_batch` on needs.
pub(crate) fn begin(
    table: &mut Vec<EpochStart>,
    tail_batch: BatchSequence,
    first_batch: BatchSequence,
    epoch: u64,
) {
    table.retain(|start| start.first_batch < first_batch);
    table.push(EpochStart { first_batch, epoch });
    while table.len() > 1 && (table[1].first_batch <= tail_batch || table.len() > EPOCHS_MAX) {
        table.remove(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An epoch begins with batch `first`, and the tail is batch 1.
    fn begin(table: &mut Vec<EpochStart>, first: u64, epoch: u64) {
        super::begin(table, BatchSequence(1), BatchSequence(first), epoch);
    }

    fn accepts(table: &[EpochStart], sequence: u64, epoch: u64) -> bool {
        super::accepts(table, BatchSequence(sequence), epoch)
    }

    #[test]
    fn only_the_owner_of_a_sequence_counts() {
        let mut table = Vec::new();
        begin(&mut table, 1, 1);
        begin(&mut table, 10, 2);
        begin(&mut table, 20, 3);
        for (sequence, owner) in [(1, 1), (9, 1), (10, 2), (19, 2), (20, 3), (1000, 3)] {
            for epoch in 1..=4 {
                assert_eq!(accepts(&table, sequence, epoch), epoch == owner, "{sequence} {epoch}");
            }
        }
    }

    #[test]
    fn an_epoch_that_wrote_nothing_that_counts_disappears() {
        let mut table = Vec::new();
        begin(&mut table, 1, 1);
        begin(&mut table, 10, 2);
        begin(&mut table, 10, 3);
        assert_eq!(table.len(), 2);
        assert!(!accepts(&table, 10, 2) && accepts(&table, 10, 3));
        begin(&mut table, 5, 4);
        assert_eq!(table.len(), 2);
        assert!(!accepts(&table, 5, 1) && accepts(&table, 4, 1) && accepts(&table, 5, 4));
    }

    #[test]
    fn boundaries_before_the_tail_are_forgotten_and_the_table_is_bounded() {
        let mut table = Vec::new();
        for n in 0..200 {
            begin(&mut table, 1 + 10 * n, 1 + n);
        }
        assert_eq!(table.len(), EPOCHS_MAX);
        assert!(accepts(&table, 5, 1), "older batches stay readable");
        assert!(!accepts(&table, 5, 200));
        super::begin(&mut table, BatchSequence(1985), BatchSequence(2001), 201);
        assert_eq!(table.iter().map(|s| s.first_batch.0).collect::<Vec<_>>(), [1981, 1991, 2001]);
    }
}
