//! Stamps: how a start notices that a backing store or the log is an older copy of itself.
//!
//! A store keeps a stamp, and the log keeps the number of each store's newest stamp. Their meaning
//! depends on this order:
//!
//! 1. The data that the stamp says are on the store are durable there.
//! 2. The stamp is durable on the store.
//! 3. The log notes the stamp's number in the next superblock.
//! 4. Only now may a region be reused whose dirty records were destaged to the store: the
//!    superblock that moves the tail past it contains the number.
//!
//! In the other direction, a record goes to the store only when a durable stamp there has *seen*
//! it. So a store whose number is lower than the log's is an older copy, and so is a log that ends
//! before the batches that a stamp has seen. A store and a log that match are in a state that a
//! power cut could have left, except for writes to the store past the log since the last stamp.
//!
//! An older store can be *completed* if only dirty records went to it since its stamp, and the log
//! still holds them. The log's tail shows that no record has left the log. [`Binding::logged`]
//! shows that nothing else went to the store, such as a trim of blocks that are not cached: it is
//! the number of the oldest stamp since which nothing else did. It is reset, durably, before
//! anything bypasses the log. A stamp sets it again if everything that has bypassed the log was
//! durable on the store when the stamp was requested. Completion works only in the log layout: in
//! the slots layout the payload of a clean record may be overwritten.

use crate::binding::Binding;
use crate::commit::{Commit, SuperblockWriter};
use crate::format::superblock::Superblock;
use crate::layout::Layout;
use crate::regions::Regions;
use crate::sequence::{BatchSequence, StampNumber, SuperblockGeneration};
use crate::types::{LogError, RecoveryReport};
use core::fmt;
use forebay_block::Volume;

/// The contents of a store's newest stamp; zeroes for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamp {
    /// All dirty records of batches up to and including this one are on the store.
    pub complete: BatchSequence,
    /// Batches up to and including this one were durable in the log.
    pub seen: BatchSequence,
    /// The log's superblock of this generation was durable.
    pub generation: SuperblockGeneration,
}

impl Stamp {
    /// A new stamp: the newest batch and the newest superblock known to be durable, and the newest
    /// batch before the oldest region, all of whose dirty records are on the stores.
    pub(crate) fn new(
        regions: &Regions,
        commit: &Commit,
        superblock: &SuperblockWriter,
        layout: Layout,
    ) -> Stamp {
        let tail = regions.tail;
        let kept = layout == Layout::Log && tail < regions.end();
        let first = match kept {
            true => regions.place(tail).first_batch,
            false => BatchSequence::NONE,
        };
        Stamp {
            complete: first.checked_previous().unwrap_or_default(),
            seen: commit.durable_batch(),
            generation: superblock.known(),
        }
    }

    /// The higher of each value of the two stamps.
    #[must_use]
    pub fn max(self, other: Stamp) -> Stamp {
        Stamp {
            complete: self.complete.max(other.complete),
            seen: self.seen.max(other.seen),
            generation: self.generation.max(other.generation),
        }
    }
}

/// What a start knows of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreStamp {
    /// The volume.
    pub volume: Volume,
    /// The number of its newest stamp.
    pub number: StampNumber,
    /// The contents of that stamp.
    pub stamp: Stamp,
    /// Whether the store held all data of its volume when the stamp was written.
    pub whole: bool,
    /// Whether, from then on, none of the log's records for the volume counts, dirty or not.
    pub released: bool,
}

/// Which of the two is an older copy of itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Older {
    /// The backing store.
    Store,
    /// The log.
    Flash,
}

impl fmt::Display for Older {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Older::Store => "the backing store",
            Older::Flash => "the flash tier",
        })
    }
}

/// How a start treats a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Fits,
    /// The store is older, and the caller accepts this: the dirty records are written over it. It
    /// stays older until the caller has dropped the clean records and opens the store.
    Accept,
    /// The store is older, and lacks only records that the log holds.
    Complete,
    /// The store is complete as of its stamp: clean records do not count, and dirty ones prevent
    /// the start.
    Distrust(Older),
    Refuse(Older),
}

/// What the verdict on a store depends on, apart from the store and its binding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Circumstances {
    /// Whether the log is an older copy.
    flash_is_older: bool,
    /// Whether the caller accepts older stores, because it drops all clean records.
    accepts_older: bool,
    /// Whether the store lacks only records that the log holds, and the log is intact.
    may_complete: bool,
}

impl StoreStamp {
    /// Whether it has seen more than a log that ends with batch `end` and whose superblock has
    /// `generation`.
    fn has_seen_more(&self, end: BatchSequence, generation: SuperblockGeneration) -> bool {
        end < self.stamp.seen || generation < self.stamp.generation
    }

    /// Whether the store is an older copy of itself: the log knows of a later stamp. Only this
    /// function decides that.
    pub fn is_older(&self, bindings: &[Binding]) -> bool {
        bindings.iter().any(|b| b.volume == self.volume && self.number < b.stamp)
    }

    /// Whether it is an older copy that lacks only records that the log holds: since its stamp, no
    /// record has left the log or been declared clean, and nothing has bypassed the log.
    pub(crate) fn lacks_records_only(&self, superblock: &Superblock) -> bool {
        let bound = superblock.bindings.iter().find(|b| b.volume == self.volume);
        let Some(&Binding { logged, .. }) = bound else { return false };
        superblock.layout == Layout::Log.number()
            && !self.whole
            && self.is_older(&superblock.bindings)
            && logged != StampNumber::NONE
            && logged <= self.number
            && superblock.tail_batch <= self.stamp.complete.next()
            && superblock.clean_before <= self.stamp.complete
    }

    /// Whether it is released and not an older copy.
    pub(crate) fn is_released(&self, superblock: &Superblock) -> bool {
        self.released && !self.is_older(&superblock.bindings)
    }

    /// How a start treats the volume.
    fn judge(&self, bindings: &[Binding], circumstances: Circumstances) -> Verdict {
        let Circumstances { flash_is_older, accepts_older, may_complete } = circumstances;
        match (flash_is_older, self.is_older(bindings)) {
            // The log holds nothing that the store needs.
            (true, false) if self.released => Verdict::Distrust(Older::Flash),
            (false, false) => Verdict::Fits,
            (true, false) if self.whole => Verdict::Distrust(Older::Flash),
            (true, _) => Verdict::Refuse(Older::Flash),
            (false, true) if accepts_older => Verdict::Accept,
            (false, true) if self.whole => Verdict::Distrust(Older::Store),
            (false, true) if may_complete => Verdict::Complete,
            (false, true) => Verdict::Refuse(Older::Store),
        }
    }
}

/// Compares the stamps of stores with a log that ends with batch `end`. Reports the volumes whose
/// clean records do not count and those to be completed, or returns why the start is refused.
/// `accepts_older`: an older store does not prevent the start, because no clean record will count.
pub(crate) fn judge(
    stores: &[StoreStamp],
    superblock: &Superblock,
    accepts_older: bool,
    end: BatchSequence,
    report: &mut RecoveryReport,
) -> Result<(), LogError> {
    let intact = report.damage.is_harmless();
    let outdated = &mut report.outdated;
    // If one store has seen more than the log holds, the log is older for all stores.
    let flash = stores.iter().any(|store| store.has_seen_more(end, superblock.generation));
    if flash {
        let judged = |b: &&Binding| stores.iter().any(|store| store.volume == b.volume);
        let others = superblock.bindings.iter().filter(|b| !judged(b));
        outdated.extend(others.map(|b| (b.volume, Older::Flash)));
    }
    for store in stores {
        let volume = store.volume;
        let circumstances = Circumstances {
            flash_is_older: flash,
            accepts_older,
            may_complete: intact && store.lacks_records_only(superblock),
        };
        match store.judge(&superblock.bindings, circumstances) {
            Verdict::Fits | Verdict::Accept => {}
            Verdict::Complete => report.completing.push(volume),
            Verdict::Distrust(which) => outdated.push((volume, which)),
            Verdict::Refuse(which) => return Err(LogError::Older { volume, which }),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Geometry;
    use crate::identity::{StoreId, TierId};

    fn store(number: u64, seen: u64, generation: u64, whole: bool) -> StoreStamp {
        let stamp = Stamp {
            complete: BatchSequence::NONE,
            seen: BatchSequence(seen),
            generation: SuperblockGeneration(generation),
        };
        let number = StampNumber(number);
        StoreStamp { volume: Volume(0), number, stamp, whole, released: false }
    }

    #[test]
    fn an_older_copy_of_either_is_told_from_one_that_fits() {
        use {Older::*, Verdict::*};
        let (end, generation) = (BatchSequence(20), SuperblockGeneration(5));
        let noted =
            Binding { stamp: StampNumber(7), ..Binding::new(Volume(0), StoreId::new([1; 16]), 1) };
        // The number of the stamp, and the batch and the generation that it has seen. Then the
        // verdicts on a store that is complete, on one that may be completed, and on any other;
        // last, the verdicts of a start that accepts older stores.
        for (number, seen, known, verdicts, accepting) in [
            (7, 20, 5, [Fits, Fits, Fits], [Fits, Fits, Fits]),
            (9, 0, 0, [Fits, Fits, Fits], [Fits, Fits, Fits]),
            (
                7,
                21,
                5,
                [Distrust(Flash), Refuse(Flash), Refuse(Flash)],
                [Distrust(Flash), Refuse(Flash), Refuse(Flash)],
            ),
            (
                8,
                20,
                6,
                [Distrust(Flash), Refuse(Flash), Refuse(Flash)],
                [Distrust(Flash), Refuse(Flash), Refuse(Flash)],
            ),
            (6, 20, 5, [Distrust(Store), Complete, Refuse(Store)], [Accept, Accept, Accept]),
            (0, 0, 0, [Distrust(Store), Complete, Refuse(Store)], [Accept, Accept, Accept]),
            // Both are older copies.
            (
                6,
                21,
                5,
                [Refuse(Flash), Refuse(Flash), Refuse(Flash)],
                [Refuse(Flash), Refuse(Flash), Refuse(Flash)],
            ),
        ] {
            for (accepts_older, verdicts) in [(false, verdicts), (true, accepting)] {
                for (n, verdict) in verdicts.into_iter().enumerate() {
                    let (whole, may_complete) = (n == 0, n == 1);
                    let store = store(number, seen, known, whole);
                    let flash_is_older = store.has_seen_more(end, generation);
                    let circumstances =
                        Circumstances { flash_is_older, accepts_older, may_complete };
                    let judged = store.judge(&[noted], circumstances);
                    assert_eq!(judged, verdict, "{store:?}, {circumstances:?}");
                }
            }
        }
    }

    #[test]
    fn the_log_owes_nothing_to_a_store_that_is_released_and_not_older() {
        let noted =
            Binding { stamp: StampNumber(7), ..Binding::new(Volume(0), StoreId::new([1; 16]), 1) };
        let geometry = Geometry::for_device(1 << 30, 4096).expect("a usual device");
        let superblock = Superblock::of_new_log(TierId::new([2; 16]), vec![noted], &geometry);
        let released = |number| StoreStamp { released: true, ..store(number, 0, 0, true) };
        assert!(released(7).is_released(&superblock) && released(8).is_released(&superblock));
        assert!(!released(6).is_released(&superblock), "what it had later, the log has of it");
        assert!(!store(7, 0, 0, true).is_released(&superblock));
        let unknown = StoreStamp { volume: Volume(1), ..released(6) };
        assert!(unknown.is_released(&superblock), "nothing is known of it");
    }
}
