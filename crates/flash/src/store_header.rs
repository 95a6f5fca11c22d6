//! The header of a backing store as a protocol: what it says, and when that may change.
//!
//! A driver keeps a header on each store and writes it durably, one change at a time. Each write is
//! one [`HeaderChange`], so that all drivers follow the same rules. The driver decides how the
//! header is encoded as bytes (the engine does this in `forebay_engine::backing_header`). A power
//! cut leaves the header as it was before or after a write, never anything in between.
//!
//! | change | when | what it sets | durable before | may follow once it is durable |
//! | --- | --- | --- | --- | --- |
//! | [`Announce`] | all checks of a start have passed | the tier and its next epoch, *opening*; no fingerprint, unless the tier does not know yet that others have used the store; for another tier than before: not dirty, no stamp | nothing | the tier is formatted, or begins that epoch |
//! | [`Retract`] | the start ends before the tier is formatted or begins the epoch | everything as before the announcement | nothing | others use the store again |
//! | [`Open`] | the machine is ready | the tier and its epoch, not *opening*; *dirty* and *released* as this run needs them; no fingerprint; generation + 1; a stamp number higher than the log's; no longer an older copy | the tier's epoch; everything that an older copy lacked | a write that is not on the store is acknowledged |
//! | [`Stamp`] | the machine requests a stamp | the stamp, stamp number + 1; for an older copy, only what the stamp has seen; *released* and not *dirty* if the log has failed | on the store, everything that the stamp calls complete; in the log, everything that the stamp has seen | the log notes the stamp's number; a record that the stamp has seen goes to the store; for a release: writes bypass the log |
//! | [`MarkDirty`] | the write policy is about to write back | *dirty* | nothing | a write that is not on the store is acknowledged |
//! | [`Leave`] | a stop or a quiesce, with nothing in progress | the fingerprint and the number of bytes that it covers, a stamp, *released*; if the store is whole: not *dirty*, not *opening* | all data, if the store is whole | the log notes the fingerprint; others use the store |
//! | [`Withdraw`] | a quiesce ends | *dirty* as this run needs it, no fingerprint | nothing | the log drops its note; clients continue |
//! | [`Release`] | the store is given away, offline | *released*; the store must not be dirty | nothing | others use the store |
//!
//! Which changes may follow each other, in one process, is a matter of the header's phase:
//!
//! | phase | change | next phase |
//! | --- | --- | --- |
//! | `Found` | `Announce` | `Announced` |
//! | `Found` | `Open` | `Open` |
//! | `Found` | `Stamp` | `Found` |
//! | `Found` | `Release` | `Found` |
//! | `Found` | `Retract` | `Found` |
//! | `Announced` | `Retract` | `Found` |
//! | `Announced` | `Open` | `Open` |
//! | `Announced` | `Stamp` | `Announced` |
//! | `Open` | `Stamp` | `Open` |
//! | `Open` | `MarkDirty` | `Open` |
//! | `Open` | `Leave` | `Left` |
//! | `Open` | `Withdraw` | `Open` |
//! | `Left` | `Stamp` | `Left` |
//! | `Left` | `MarkDirty` | `Left` |
//! | `Left` | `Leave` | `Left` |
//! | `Left` | `Withdraw` | `Open` |
//!
//! Any other change is a bug, and panics. A start without a flash tier announces nothing, nor need a driver
//! whose stores have one tier for ever. A change whose write fails leaves the phase as it is, so a header may
//! be withdrawn that was not left, or a start retracted that was not announced, and one that cannot be withdrawn
//! stays left while other volumes continue.
//!
//! These rules guarantee at every instant, also between two writes:
//! - While the flash tier has newer data than the store, the header says *dirty* and names that
//!   tier.
//! - The tier is in one of the header's [`epochs`](StoreHeader::epochs): in exactly one, unless the
//!   header says *opening*.
//! - While Forebay may write to the store, the header has no fingerprint.
//!
//! [`Announce`]: HeaderChange::Announce
//! [`Retract`]: HeaderChange::Retract
//! [`Open`]: HeaderChange::Open
//! [`Stamp`]: HeaderChange::Stamp
//! [`MarkDirty`]: HeaderChange::MarkDirty
//! [`Leave`]: HeaderChange::Leave
//! [`Withdraw`]: HeaderChange::Withdraw
//! [`Release`]: HeaderChange::Release

use crate::format::SEQUENCE_MAX;
use crate::identity::{Fingerprint, TierId};
use crate::sequence::{BatchSequence, StampNumber};
use crate::stamp::{Older, Stamp, StoreStamp};
use crate::types::RecoveryReport;
use core::ops::{Deref, RangeInclusive};
use forebay_block::Volume;

/// The values that a header stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HeaderFields {
    /// The number of this version of the header: +1 for each write.
    pub update: u64,
    /// Number of times that the store was opened.
    pub generation: u64,
    /// The flash tier that the store belongs to.
    pub flash_uuid: Option<TierId>,
    /// The epoch of that tier when the store was last opened with it.
    pub flash_epoch: u64,
    /// Bytes of data, which the fingerprint covers.
    pub data_bytes: u64,
    /// Whether newer data may be on the flash tier.
    pub dirty: bool,
    /// Whether the flash tier may not have reached `flash_epoch` yet.
    pub opening: bool,
    /// Whether the store was given away, or is used without its failed flash tier: no cached data
    /// of it counts.
    pub released: bool,
    /// The fingerprint of the contents as they were left, if they were.
    pub fingerprint: Option<Fingerprint>,
    /// The newest stamp.
    pub stamp: Stamp,
    /// The number of that stamp, which the log notes.
    pub stamp_number: StampNumber,
}

/// How far the present process has come with the use of a store. See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum HeaderPhase {
    /// The header is new, or as another process left it.
    #[default]
    Found,
    /// A start is announced.
    Announced,
    /// The machine serves requests.
    Open,
    /// Others may use the store: the machine has stopped, or its clients are held back.
    Left,
}

impl HeaderPhase {
    /// The phase after a change; `None` if the change is not possible in this phase.
    fn after(self, change: &HeaderChange) -> Option<HeaderPhase> {
        Some(match (self, change) {
            (Self::Found, HeaderChange::Announce { .. }) => Self::Announced,
            (Self::Found | Self::Announced, HeaderChange::Retract { .. }) => Self::Found,
            (Self::Found | Self::Announced, HeaderChange::Open { .. }) => Self::Open,
            (_, HeaderChange::Stamp { .. }) => self,
            (Self::Open | Self::Left, HeaderChange::MarkDirty) => self,
            (Self::Open | Self::Left, HeaderChange::Leave { .. }) => Self::Left,
            (Self::Open | Self::Left, HeaderChange::Withdraw { .. }) => Self::Open,
            (Self::Found, HeaderChange::Release) => Self::Found,
            _ => return None,
        })
    }
}

/// A header. Its fields can be read, and change only by a [`HeaderChange`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoreHeader {
    fields: HeaderFields,
    /// Whether the store is an older copy of itself that no start has accepted yet. The header's
    /// bytes do not tell: a start compares them with the log.
    older: bool,
    /// How this process has changed the header so far. It is not stored: each process starts with `Found`.
    phase: HeaderPhase,
}

/// A change of a header. Each takes one write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderChange {
    /// A start is about to use the store with this flash tier.
    Announce {
        /// The tier.
        tier: TierId,
        /// The epoch that the tier is about to begin.
        epoch: u64,
        /// Whether the fingerprint stays, because it shows that others have used the store and the
        /// tier has not noted that yet.
        keeps_fingerprint: bool,
    },
    /// The announced start has ended, and the tier is as it was.
    Retract {
        /// The header before the announcement.
        former: StoreHeader,
    },
    /// The machine is about to serve requests.
    Open {
        /// The flash tier, if there is one.
        tier: Option<TierId>,
        /// The epoch of the tier; 0 without one.
        epoch: u64,
        /// The number of the stamp that the log has noted.
        noted: StampNumber,
        /// A new stamp, if the log is an older copy: the records that the store's stamp has seen
        /// are lost.
        instead: Option<Stamp>,
        /// Whether the flash tier has newer data, or may get some.
        dirty: bool,
        /// Whether the volume bypasses a failed log.
        released: bool,
    },
    /// The machine has requested a stamp.
    Stamp {
        /// The stamp.
        stamp: Stamp,
        /// Whether the volume is about to bypass a failed log.
        release: bool,
    },
    /// From now on, the flash tier may get newer data.
    MarkDirty,
    /// Nothing is in progress, and others may use the store.
    Leave {
        /// Whether the store has all data of its volume.
        whole: bool,
        /// Whether cached data no longer counts.
        released: bool,
        /// The fingerprint of the contents, if a flash tier may need it.
        fingerprint: Option<Fingerprint>,
        /// Bytes of data.
        data_bytes: u64,
        /// A new stamp.
        stamp: Stamp,
    },
    /// The store is about to be written again.
    Withdraw {
        /// Whether the flash tier may get newer data from now on.
        dirty: bool,
    },
    /// The store is given away.
    Release,
}

/// What a header says of the flash tier when the machine is about to serve requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenFlags {
    /// Whether the tier has newer data, or may get some.
    pub dirty: bool,
    /// Whether the volume bypasses a failed log: the tier owes it nothing any more.
    pub released: bool,
}

impl HeaderChange {
    /// The change for this volume when the machine is about to serve requests, after this recovery, if there is a
    /// flash tier. `now`: the stamp that the log would give at this moment.
    pub fn open(
        volume: Volume,
        recovered: Option<&RecoveryReport>,
        now: Stamp,
        OpenFlags { dirty, released }: OpenFlags,
    ) -> HeaderChange {
        let bound = recovered.and_then(|r| r.bindings.iter().find(|b| b.volume == volume));
        let log_is_older = recovered.is_some_and(|r| r.outdated.contains(&(volume, Older::Flash)));
        HeaderChange::Open {
            tier: recovered.and_then(|r| r.uuid),
            epoch: recovered.map_or(0, |r| r.epoch),
            noted: bound.map_or(StampNumber::NONE, |b| b.stamp),
            instead: log_is_older.then_some(now),
            dirty,
            released,
        }
    }
}

impl Deref for StoreHeader {
    type Target = HeaderFields;

    fn deref(&self) -> &HeaderFields {
        &self.fields
    }
}

impl StoreHeader {
    /// The header of a store that had none, with this many bytes of data.
    pub fn new(data_bytes: u64) -> StoreHeader {
        let fields = HeaderFields { data_bytes, ..HeaderFields::default() };
        StoreHeader { fields, older: false, phase: HeaderPhase::Found }
    }

    /// A header as it was read.
    ///
    /// # Errors
    /// Names a value that no version can have written. (The limit is safe: each number rises by one
    /// at a time, or is one of the log's numbers, which have the same limit.)
    pub fn from_fields(fields: HeaderFields) -> Result<StoreHeader, &'static str> {
        let HeaderFields { update, generation, flash_epoch, stamp, stamp_number, .. } = fields;
        for (number, name) in [
            (update, "number of updates"),
            (generation, "generation"),
            (flash_epoch, "epoch"),
            (stamp.complete.0, "stamp"),
            (stamp.seen.0, "stamp"),
            (stamp.generation.0, "stamp"),
            (stamp_number.0, "number of the stamp"),
        ] {
            if number >= SEQUENCE_MAX {
                return Err(name);
            }
        }
        Ok(StoreHeader { fields, older: false, phase: HeaderPhase::Found })
    }

    /// The header after this change, to be written.
    ///
    /// # Panics
    /// If the change is not possible in the header's phase, or gives a dirty store away.
    #[must_use]
    pub fn after(&self, change: &HeaderChange) -> StoreHeader {
        let Some(phase) = self.phase.after(change) else {
            panic!("{change:?} is not possible in phase {:?}", self.phase);
        };
        let mut next = *self;
        match *change {
            HeaderChange::Announce { tier, epoch, keeps_fingerprint } => {
                // The other tier was found to have no newer data, or its data was given up.
                next.fields.dirty &= self.flash_uuid == Some(tier);
                next.bind(Some(tier));
                (next.fields.flash_epoch, next.fields.opening) = (epoch, true);
                if !keeps_fingerprint {
                    next.fields.fingerprint = None;
                }
            }
            HeaderChange::Retract { former } => {
                next = former;
                next.fields.update = self.update;
            }
            HeaderChange::Open { tier, epoch, noted, instead, dirty, released } => {
                next.older = false;
                // Once the store is accepted, its stamp is the newest, even if the log has noted a
                // later one.
                next.fields.stamp_number = self.stamp_number.max(noted).next();
                // (If the stamp is replaced, the data that it has seen has been given up.)
                next.fields.stamp = instead.unwrap_or(self.stamp);
                next.bind(tier);
                next.fields.flash_epoch = epoch;
                next.fields.generation += 1;
                (next.fields.dirty, next.fields.released) = (dirty, released);
                (next.fields.opening, next.fields.fingerprint) = (false, None);
            }
            HeaderChange::Stamp { stamp, release } => {
                next.take_stamp(stamp);
                if release {
                    (next.fields.released, next.fields.dirty) = (true, false);
                }
            }
            HeaderChange::MarkDirty => next.fields.dirty = true,
            HeaderChange::Leave { whole, released, fingerprint, data_bytes, stamp } => {
                if whole {
                    (next.fields.dirty, next.fields.opening) = (false, false);
                }
                next.fields.released = released;
                (next.fields.fingerprint, next.fields.data_bytes) = (fingerprint, data_bytes);
                next.take_stamp(stamp);
            }
            HeaderChange::Withdraw { dirty } => {
                (next.fields.dirty, next.fields.fingerprint) = (dirty, None);
            }
            HeaderChange::Release => {
                assert!(!self.dirty, "newer data of the store is on its flash tier");
                next.fields.released = true;
            }
        }
        next.fields.update += 1;
        next.phase = phase;
        next
    }

    /// The header after this change, if the change would alter nothing but the number of the update.
    pub fn after_unwritten(&self, change: &HeaderChange) -> Option<StoreHeader> {
        let mut next = self.after(change);
        next.fields.update = self.update;
        (next.fields == self.fields).then_some(next)
    }

    /// The header as the next process finds it, if this one ends.
    #[must_use]
    pub fn found_again(&self) -> StoreHeader {
        StoreHeader { older: false, phase: HeaderPhase::Found, ..*self }
    }

    /// Notes that writing `next` has failed. The write may still have reached the store, so no
    /// other stamp may have its number.
    pub fn not_written(&mut self, next: &StoreHeader) {
        self.fields.stamp_number = self.stamp_number.max(next.stamp_number);
    }

    /// Notes whether a start has found the store to be an older copy of itself.
    pub fn take_for_older(&mut self, older: bool) {
        self.older = older;
    }

    /// What the header says about this volume to a start with its flash tier.
    pub fn store_stamp(&self, volume: Volume) -> StoreStamp {
        let HeaderFields { stamp_number: number, stamp, dirty, released, .. } = self.fields;
        StoreStamp { volume, number, stamp, whole: !dirty, released }
    }

    /// The epochs in which the flash tier can be. Before them, the tier is an older copy of itself;
    /// after them, the store is.
    pub fn epochs(&self) -> RangeInclusive<u64> {
        let before = u64::from(self.opening);
        self.flash_epoch.saturating_sub(before)..=self.flash_epoch
    }

    /// Binds the store to a tier. A stamp of another tier no longer counts.
    fn bind(&mut self, tier: Option<TierId>) {
        let fields = &mut self.fields;
        if fields.flash_uuid != tier {
            (fields.flash_uuid, fields.stamp) = (tier, Stamp::default());
            fields.stamp_number = StampNumber::NONE;
        }
    }

    /// Takes a stamp. Where the former stamp has a higher number, that number stays.
    fn take_stamp(&mut self, stamp: Stamp) {
        let fields = &mut self.fields;
        match self.older {
            // Until the store is complete, a start must still find it to be an older copy.
            true => {
                let seen = Stamp { complete: BatchSequence::NONE, ..stamp };
                fields.stamp = fields.stamp.max(seen);
            }
            false => {
                (fields.stamp, fields.stamp_number) =
                    (fields.stamp.max(stamp), fields.stamp_number.next());
            }
        }
    }
}

#[cfg(test)]
mod tests;
