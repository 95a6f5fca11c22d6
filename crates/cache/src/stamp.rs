//! Stamps: notes in the headers of backing stores, by which a start notices that a store or the
//! flash tier is an older copy (`forebay_flash::Stamp` explains the order of events).
//!
//! One stamp of each store is in progress at a time. The machine orders stamps ([`Notice::Stamp`]);
//! the driver writes the headers durably, each in its own time, and reports which it could write
//! (`Cache::handle_stamped`). A stamp is ordered
//!
//! - before records go to a store that its stamp has not seen,
//! - in the log layout, before records that went to a store count as clean; in the slots layout, before a region
//!   is freed that held dirty records of the store,
//! - when the driver asks for one (`Order::Stamp`), which it does from time to time.
//!
//! The first two are phases of a cleaning. A header that cannot be written counts as a failed write
//! to the store: its records stay dirty, and are retried, while other stores are written. A cleaning does not wait
//! for a header whose write is overdue (`cleaner/apart/overdue.rs`). Late
//! stores get their stamps before a cleaning for them begins, so that no other cleaning waits for
//! it.
//!
//! In the log layout a record counts as clean only when a stamp *covers* it: a stamp that was ordered after the store
//! was synced, and is durable. So each region to be freed holds only records that stamps cover, or that are carried
//! on. It would be too late to wait for the stamp when the region is freed: a newer record holds only those granules
//! of an older one that are not clean yet.

use forebay_block::{Nanos, PerVolume, Volume};
use forebay_effect::IoError;
use forebay_flash::{BatchSequence, Layout, NotedStamp, RegionIndex, Stamp, StampNumber};

use crate::late::Late;
use crate::notice::Notice;
use crate::volume::LogBypass;
use crate::volume_set::VolumeSet;
use crate::world::World;

/// What has become of a stamp that [`Notice::Stamp`] has ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StampReport {
    /// The volume.
    pub volume: Volume,
    /// The number of the stamp, if it is durable in the store's header: higher than those of the store's earlier
    /// stamps, but for an older copy of the store, which keeps its number. Or why it could not be written.
    pub result: Result<StampNumber, IoError>,
}

/// The state of all stamps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stamps {
    /// Volumes whose stores keep a stamp.
    kept: VolumeSet,
    /// The newest stamp of each.
    newest: PerVolume<Stamp>,
    /// Direct writes that had ended when the newest stamp was ordered.
    direct_writes: PerVolume<u64>,
    /// Volumes that have durably received dirty records since a stamp was ordered.
    taken_over: VolumeSet,
    /// The stamp that is being written.
    pending: PerVolume<Option<Pending>>,
    /// Volumes with a stamp in progress.
    under_way: VolumeSet,
    /// Volumes whose stamps in progress release them from the log.
    releasing: VolumeSet,
    /// Volumes that stamps have released since those in `releasing` were ordered.
    released: VolumeSet,
    /// Volumes whose stores are older copies, and are being completed.
    completing: VolumeSet,
    /// Regions to be reclaimed after that.
    deferred: Vec<RegionIndex>,
}

/// A stamp that is being written to a header.
#[derive(Clone, Copy, Debug)]
struct Pending {
    stamp: Stamp,
    /// When it was ordered.
    since: Nanos,
    /// The volume had received dirty records.
    taken_over: bool,
    /// Direct writes that had ended.
    direct_writes: u64,
    /// The number of direct writes, if all of them were durable.
    settled: Option<u64>,
}

/// The result of writing stamps.
#[derive(Debug)]
#[must_use]
pub(crate) struct Stamped {
    /// The durable stamps.
    pub noted: Vec<NotedStamp>,
    /// The volumes whose stamps could not be written.
    pub failed: VolumeSet,
    /// The volumes whose stamps are durable, and when these were ordered.
    pub ordered: Vec<(Volume, Nanos)>,
    /// The volumes that the stores' headers release from the log, when all expected answers have
    /// arrived.
    pub released: Option<VolumeSet>,
}

/// When the volumes that a failed log releases no longer wait for a header that was ordered at this time.
pub(crate) fn release_due(ordered: Nanos) -> Nanos {
    Late::answer_due(ordered, false)
}

impl Stamps {
    /// The store of this volume keeps a stamp.
    pub fn keep(&mut self, volume: Volume, count: usize) {
        assert!(volume.index() < count, "stamps of a volume that is not attached");
        self.kept.insert(volume);
        self.newest.resize(count, Stamp::default());
        self.direct_writes.resize(count, 0);
        self.pending.resize(count, None);
    }

    /// Orders stamps of the stores that have changed since their last stamp, or whose log has.
    pub fn refresh(&mut self, world: &mut World) {
        let seen = world.stamp_now(false).seen;
        let mut volumes = VolumeSet::EMPTY;
        for v in self.kept.iter() {
            let changed = self.newest[v].seen < seen
                || self.direct_writes[v] != world.volumes[v].direct_done()
                || self.taken_over.contains(v);
            volumes.insert_if(v, changed);
        }
        self.order(world, volumes, BatchSequence::NONE, false);
    }

    /// Orders the stores of these volumes released from a failed log, if they keep stamps. Returns
    /// the volumes for which that was ordered; `None` while all of them have stamps in progress. (A header that hangs
    /// must not delay other volumes.)
    pub fn release(&mut self, world: &mut World, volumes: VolumeSet) -> Option<VolumeSet> {
        let free = volumes & self.kept & !self.under_way;
        if free.is_empty() && !(volumes & self.under_way).is_empty() {
            return None;
        }
        let ordered = self.order(world, free, BatchSequence::NONE, true);
        Some(if ordered { free } else { VolumeSet::EMPTY })
    }

    /// The volumes that headers have released, once no other release is expected in time.
    pub fn take_released(&mut self, now: Nanos) -> Option<VolumeSet> {
        let in_time = |v: &Volume| self.pending[*v].is_some_and(|p| release_due(p.since) > now);
        let expected = self.releasing.iter().any(|v| in_time(&v));
        (!expected).then(|| core::mem::take(&mut self.released))
    }

    /// Whether stamps are in progress.
    pub fn is_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// The volumes whose stamp is being written.
    pub fn under_way(&self) -> VolumeSet {
        self.under_way
    }

    /// The volumes among these that have durably received dirty records that no durable stamp covers.
    pub fn uncovered(&self, volumes: VolumeSet) -> VolumeSet {
        let covers = |v: &Volume| self.pending[*v].is_some_and(|pending| pending.taken_over);
        let under_way: VolumeSet = self.under_way.iter().filter(covers).collect();
        (self.taken_over & self.kept | under_way) & volumes
    }

    /// The volumes whose stamps in progress are overdue.
    pub fn overdue(&self, now: Nanos) -> VolumeSet {
        let overdue = |v: &Volume| {
            self.ordered_at(*v).is_some_and(|since| Late::answer_due(since, true) <= now)
        };
        self.under_way.iter().filter(overdue).collect()
    }

    /// When the volume's stamp in progress was ordered, if there is one.
    pub fn ordered_at(&self, volume: Volume) -> Option<Nanos> {
        self.pending.get(volume).copied().flatten().map(|pending| pending.since)
    }

    /// The headers of these volumes were written, or could not be.
    pub fn note_written(&mut self, world: &mut World, reports: &[StampReport]) -> Stamped {
        let mut noted = Vec::with_capacity(reports.len());
        let mut ordered = Vec::with_capacity(reports.len());
        let (mut failed, mut releasing) = (VolumeSet::EMPTY, VolumeSet::EMPTY);
        for &StampReport { volume, result } in reports {
            let this = VolumeSet::only(volume);
            let pending =
                self.pending[volume].take().expect("no stamp was requested for the volume");
            let releases = self.releasing & this;
            releasing |= releases;
            self.under_way &= !this;
            self.releasing &= !this;
            let Ok(number) = result else {
                failed |= this;
                self.taken_over.insert_if(volume, pending.taken_over);
                continue;
            };
            ordered.push((volume, pending.since));
            self.newest[volume] = pending.stamp;
            self.direct_writes[volume] = pending.direct_writes;
            self.released |= releases;
            let of = &mut world.volumes[volume];
            let logged = of.log_bypass == LogBypass::Allowed
                && pending.settled.is_some()
                && of.direct_settled() == pending.settled;
            if logged {
                of.log_bypass = LogBypass::Forbidden;
            }
            noted.push(NotedStamp { volume, number, logged });
        }
        let any = !releasing.is_empty();
        let released = any.then(|| self.take_released(world.now)).flatten();
        Stamped { noted, failed, ordered, released }
    }

    /// Volumes whose stamp has not seen that batch of the log.
    pub fn unseen(&self, volumes: VolumeSet, batch: BatchSequence) -> VolumeSet {
        let unseen = |v: &Volume| self.newest[*v].seen < batch;
        (volumes & self.kept).iter().filter(unseen).collect()
    }

    /// The volumes that have durably received dirty records that no stamp covers, not even one in progress.
    pub fn owed(&self) -> VolumeSet {
        self.taken_over & self.kept
    }

    /// These volumes have durably received dirty records.
    pub fn note_taken_over(&mut self, volumes: VolumeSet) {
        self.taken_over |= volumes;
    }

    /// The store of the volume is an older copy to be completed.
    pub fn begin_completing(&mut self, volume: Volume) {
        self.completing.insert(volume);
    }

    /// Whether stores are being completed.
    pub fn is_completing(&self) -> bool {
        !self.completing.is_empty()
    }

    /// Whether the log may reuse a region. It must not while stores are being completed: their
    /// stamps do not cover the data written to them, and these may have to be written again. The
    /// region is then kept.
    pub fn may_reclaim(&mut self, region: RegionIndex) -> bool {
        if self.is_completing() {
            self.deferred.push(region);
        }
        !self.is_completing()
    }

    /// The stores are complete: returns the regions to be reclaimed.
    pub fn completed(&mut self) -> Vec<RegionIndex> {
        self.completing = VolumeSet::EMPTY;
        core::mem::take(&mut self.deferred)
    }

    /// A seal has reported durable stamps to the log; they cover all received records.
    pub fn sealed(&mut self, world: &World, volumes: Vec<Volume>) {
        let stamp = world.stamp_now(false);
        let kept = self.kept;
        for v in volumes.into_iter().filter(|&v| kept.contains(v)) {
            self.taken_over.remove(v);
            self.newest[v] = stamp;
            self.direct_writes[v] = world.volumes[v].direct_done();
        }
    }

    /// Orders stamps of these volumes, except those in progress: all dirty records of batches up to
    /// `complete` are on their stores. False if none was ordered.
    pub fn order(
        &mut self,
        world: &mut World,
        volumes: VolumeSet,
        complete: BatchSequence,
        release: bool,
    ) -> bool {
        let volumes = volumes & self.kept & !self.under_way;
        if !world.lifecycle.may_stamp() || volumes.is_empty() {
            return false;
        }
        let mut stamp = world.stamp_now(false);
        stamp.complete = stamp.complete.max(complete);
        // Under other policies the next write would bypass the log, and in the slots layout payloads do
        // not stay.
        let logs = world.config.write_policy.write_back
            && world.log.as_ref().is_some_and(|log| log.layout() == Layout::Log);
        for v in volumes.iter() {
            let of = &world.volumes[v];
            let settles = logs && !self.completing.contains(v);
            self.pending[v] = Some(Pending {
                stamp,
                since: world.now,
                taken_over: self.taken_over.contains(v),
                direct_writes: of.direct_done(),
                settled: of.direct_settled().filter(|_| settles),
            });
        }
        self.taken_over &= !volumes;
        self.under_way |= volumes;
        if release {
            self.releasing |= volumes;
        }
        let stamps = volumes.iter().map(|volume| (volume, stamp)).collect();
        world.notices.push(Notice::Stamp { stamps, release });
        world.stats.stamps += u64::from(volumes.len());
        true
    }
}
