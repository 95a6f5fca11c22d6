//! Stamps: what the headers of backing stores are told, so that an older copy of a store, or of the
//! flash tier, is noticed at a start (`forebay_flash::Stamp` has the order of things).
//!
//! Of each store one stamp is under way at a time. The machine orders stamps ([`Notice::Stamp`]); the driver
//! writes the headers, durably, each in its own time, and says which it could (`Cache::stamped`). Stamps are ordered
//!
//! - before records go to a store that its stamp has not seen,
//! - before a region is given back that had dirty records of it,
//! - when the driver asks for one (`Cache::stamp`), which it does now and then.
//!
//! The first two are phases of a cleaning, and a header that cannot be written is as a write to the store
//! that fails: what is dirty stays so, the region is kept, and both are tried again, while other stores are
//! written. A store that is known to fail is not waited for when a region is given back. Stores that are late are
//! given their stamps before a cleaning begins that is for them, so that no other waits for it.

use forebay_block::Volume;
use forebay_flash::{Layout, Stamp};

use crate::notice::Notice;
use crate::volume::Past;
use crate::world::{CacheState, World};

/// What is known of the stamps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stamps {
    /// Volumes whose stores keep one (bits).
    kept: u64,
    /// By volume: what its newest says.
    newest: Vec<Stamp>,
    /// By volume: direct writes that had ended when it was ordered.
    written: Vec<u64>,
    /// Volumes that have durably taken over dirty records since one was ordered (bits).
    taken_over: u64,
    /// Those that are being written, by volume; the same as bits.
    pending: Vec<Option<Pending>>,
    under_way: u64,
    /// Of those, the ones that release their volumes; and those that have, since these were ordered.
    releasing: u64,
    released: u64,
    /// Volumes whose stores are older copies, and are being completed (bits); regions that are to be
    /// reclaimed after that.
    completing: u64,
    deferred: Vec<u32>,
    /// Volumes whose stamp could not be written last (bits).
    failed: u64,
}

/// A stamp that is being written to a header.
#[derive(Clone, Copy, Debug)]
struct Pending {
    stamp: Stamp,
    /// The volume had taken something over.
    taken_over: bool,
    written: u64,
    /// If all that had gone past the log was durable, how much that was.
    settled: Option<u64>,
}

/// Stamps have been written, or not.
#[derive(Debug)]
pub(crate) struct Stamped {
    /// What is durable: volume, number, and whether nothing goes past the log.
    pub noted: Vec<(u16, u64, bool)>,
    /// The volumes (bits) that the stores' headers release from the log, when all have answered that were to.
    pub released: Option<u64>,
}

impl Stamps {
    fn volumes(&self, bits: u64) -> impl Iterator<Item = usize> + use<> {
        (0..self.newest.len()).filter(move |v| bits >> v & 1 == 1)
    }

    /// The store of this volume keeps a stamp.
    pub fn keep(&mut self, volume: Volume, count: usize) {
        assert!((volume.0 as usize) < count, "stamps of a volume that is not attached");
        self.kept |= 1 << volume.0;
        self.newest.resize(count, Stamp::default());
        self.written.resize(count, 0);
        self.pending.resize(count, None);
    }

    /// Orders stamps of the stores that have changed since their last, or whose log has.
    pub fn refresh(&mut self, world: &mut World) {
        let seen = world.stamp_now(false).seen;
        let mut volumes = 0;
        for v in self.volumes(self.kept) {
            let changed = self.newest[v].seen < seen
                || self.written[v] != world.front.volumes[v].direct_done()
                || self.taken_over >> v & 1 == 1;
            volumes |= u64::from(changed) << v;
        }
        self.order(world, volumes, 0, false);
    }

    /// Has the stores of these volumes (bits) released from a log that has failed, if they keep stamps: the
    /// volumes for which that was ordered, once no other stamp is under way.
    pub fn release(&mut self, world: &mut World, volumes: u64) -> Option<u64> {
        if self.is_under_way() {
            return None;
        }
        Some(if self.order(world, volumes, 0, true) { volumes & self.kept } else { 0 })
    }

    /// Whether stamps are under way.
    pub fn is_under_way(&self) -> bool {
        self.under_way != 0
    }

    /// The volumes (bits) whose stamp is being written.
    pub fn under_way(&self) -> u64 {
        self.under_way
    }

    /// Of those, the ones (bits) whose stamp says what they have taken over.
    pub fn settling(&self) -> u64 {
        let says = |v: &usize| self.pending[*v].is_some_and(|pending| pending.taken_over);
        self.volumes(self.under_way).filter(says).fold(0, |all, v| all | 1 << v)
    }

    /// The headers of these volumes have been written, with these numbers; or could not be, where that is 0.
    pub fn written(&mut self, world: &mut World, numbers: &[(Volume, u64)]) -> Stamped {
        let mut noted = Vec::with_capacity(numbers.len());
        let mut releasing = 0;
        for &(volume, number) in numbers {
            let (v, bit) = (volume.0 as usize, 1 << volume.0);
            let pending = self.pending[v].take().expect("no stamp of the volume was ordered");
            let releases = self.releasing & bit;
            releasing |= releases;
            self.under_way &= !bit;
            self.releasing &= !bit;
            if number == 0 {
                self.failed |= bit;
                self.taken_over |= u64::from(pending.taken_over) << v;
                continue;
            }
            self.newest[v] = pending.stamp;
            self.written[v] = pending.written;
            self.released |= releases;
            let of = &mut world.front.volumes[v];
            let logged = of.past == Past::Open
                && pending.settled.is_some()
                && of.direct_settled() == pending.settled;
            if logged {
                of.past = Past::Closed;
            }
            noted.push((volume.0 as u16, number, logged));
        }
        let over = releasing != 0 && self.releasing == 0;
        Stamped { noted, released: over.then(|| core::mem::take(&mut self.released)) }
    }

    /// Of these volumes (bits), those whose stamp could not be written last; that is forgotten.
    pub fn take_failed(&mut self, volumes: u64) -> u64 {
        volumes & core::mem::take(&mut self.failed)
    }

    /// Of these volumes (bits), those whose stamp has not seen that batch of the log.
    pub fn unseen(&self, volumes: u64, batch: u64) -> u64 {
        let unseen = |v: &usize| self.newest[*v].seen < batch;
        self.volumes(volumes & self.kept).filter(unseen).fold(0, |all, v| all | 1 << v)
    }

    /// The volumes (bits) that have durably taken over dirty records that no stamp says.
    pub fn owed(&self) -> u64 {
        self.taken_over & self.kept
    }

    /// These volumes (bits) have durably taken over dirty records.
    pub fn note_taken_over(&mut self, volumes: u64) {
        self.taken_over |= volumes;
    }

    /// The store of the volume is an older copy, and is to be completed.
    pub fn complete(&mut self, volume: u16) {
        self.completing |= 1 << volume;
    }

    /// Whether stores are being completed.
    pub fn is_completing(&self) -> bool {
        self.completing != 0
    }

    /// Whether the log may use a region again. While stores are being completed it must not: what is
    /// written to them is in none of their stamps, and may have to be written again. Then it is kept.
    pub fn may_reclaim(&mut self, region: u32) -> bool {
        if self.is_completing() {
            self.deferred.push(region);
        }
        !self.is_completing()
    }

    /// The stores have what they lacked: the regions that are to be reclaimed.
    pub fn completed(&mut self) -> Vec<u32> {
        self.completing = 0;
        core::mem::take(&mut self.deferred)
    }

    /// A seal has told the log of stamps that are durable: all that was taken over is in them.
    pub fn sealed(&mut self, world: &World, volumes: Vec<u16>) {
        let stamp = world.stamp_now(false);
        let kept = self.kept;
        for v in volumes.into_iter().map(usize::from).filter(|&v| kept >> v & 1 == 1) {
            self.taken_over &= !(1 << v);
            self.newest[v] = stamp;
            self.written[v] = world.front.volumes[v].direct_done();
        }
    }

    /// Orders stamps of these volumes (bits), but for those that are being written: all dirty records of batches up to
    /// `complete` are on their stores. False if none is.
    pub fn order(&mut self, world: &mut World, volumes: u64, complete: u64, release: bool) -> bool {
        // (Records that are being disowned may need room.)
        let runs = !matches!(
            world.state,
            CacheState::New | CacheState::Starting | CacheState::Stopped | CacheState::Failed
        );
        let volumes = volumes & self.kept & !self.under_way;
        if !runs || volumes == 0 {
            return false;
        }
        let mut stamp = world.stamp_now(false);
        stamp.complete = stamp.complete.max(complete);
        // Under other policies the next write would go past the log, and in the slots layout payloads do
        // not stay.
        let logs = world.config.write_policy.write_back
            && world.log.as_ref().is_some_and(|log| log.layout() == Layout::Log);
        for v in self.volumes(volumes) {
            let of = &world.front.volumes[v];
            let settles = logs && self.completing >> v & 1 == 0;
            self.pending[v] = Some(Pending {
                stamp,
                taken_over: self.taken_over >> v & 1 == 1,
                written: of.direct_done(),
                settled: of.direct_settled().filter(|_| settles),
            });
        }
        self.taken_over &= !volumes;
        self.failed &= !volumes;
        self.under_way |= volumes;
        if release {
            self.releasing |= volumes;
        }
        let stamps = self.volumes(volumes).map(|v| (Volume(v as u32), stamp)).collect();
        world.notices.push(Notice::Stamp { stamps, release });
        world.stats.stamps += u64::from(volumes.count_ones());
        true
    }
}
