//! Stamps: what the headers of backing stores are told, so that an older copy of a store, or of the
//! flash tier, is noticed at a start (`forebay_flash::Stamp` has the order of things).
//!
//! One round of stamps is under way at a time. The machine orders it ([`Notice::Stamp`]); the driver
//! writes the headers, durably, and says which it could ([`Cache::stamped`]). There is a round
//!
//! - before records go to a store that its stamp has not seen,
//! - before a region is given back that had dirty records of it,
//! - when the driver asks for one ([`Cache::stamp`]), which it does now and then.
//!
//! The first two are phases of a cleaning, and a header that cannot be written is as a write to the store
//! that fails: what is dirty stays so, the region is kept, and both are tried again, while other stores are
//! written. A store that is known to fail is not waited for when a region is given back.

use forebay_block::Volume;
use forebay_effect::{IoError, Outcome};
use forebay_flash::{Layout, Log, Stamp};

use crate::cache::Cache;
use crate::cleaner::{Phase, Purpose};
use crate::notice::Notice;
use crate::shard::Shard;
use crate::volume::Past;
use crate::world::State;

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
    pub taken_over: u64,
    round: Option<Round>,
    /// Volumes whose stores are older copies, and are being completed (bits); regions that are to be
    /// reclaimed after that.
    pub completing: u64,
    deferred: Vec<u32>,
    /// Volumes whose stamp could not be written in the last round (bits).
    failed: u64,
}

/// Stamps on their way to the headers.
#[derive(Clone, Debug)]
struct Round {
    volumes: u64,
    /// Of those, the ones that had taken something over.
    taken_over: u64,
    stamp: Stamp,
    /// They release the volumes from the log.
    release: bool,
    written: Vec<u64>,
    /// By volume: if all that had gone past the log was durable, how much that was.
    settled: Vec<Option<u64>>,
}

impl Stamps {
    fn volumes(&self, bits: u64) -> impl Iterator<Item = usize> + use<> {
        (0..self.newest.len()).filter(move |v| bits >> v & 1 == 1)
    }
}

impl Cache {
    /// The store of this volume keeps a stamp. Call it before the start.
    pub fn keep_stamps(&mut self, volume: Volume) {
        assert!(self.world.state == State::New, "stamps are kept from the start on");
        let count = self.world.front.volumes.len();
        assert!((volume.0 as usize) < count, "stamps of a volume that is not attached");
        self.stamps.kept |= 1 << volume.0;
        self.stamps.newest.resize(count, Stamp::default());
        self.stamps.written.resize(count, 0);
    }

    /// What a stamp would say now. All of the stores is durable there, if they are `whole`.
    pub fn stamp_now(&self, whole: bool) -> Stamp {
        let stamp = self.world.log.as_ref().map(Log::stamp).unwrap_or_default();
        Stamp { complete: if whole { stamp.seen } else { stamp.complete }, ..stamp }
    }

    /// Asks for stamps of the stores that have changed since their last, or whose log has:
    /// [`Notice::Stamp`] follows if there are any. To be called now and then, but not between a
    /// [`Cache::seal`] that describes the stores and the one that withdraws it.
    pub fn stamp(&mut self) {
        let seen = self.stamp_now(false).seen;
        let Stamps { newest, written, taken_over, .. } = &self.stamps;
        let mut volumes = 0;
        for v in self.stamps.volumes(self.stamps.kept) {
            let changed = newest[v].seen < seen
                || written[v] != self.world.front.volumes[v].direct_done()
                || taken_over >> v & 1 == 1;
            volumes |= u64::from(changed) << v;
        }
        self.order_stamps(volumes, 0, false);
    }

    /// Has the stores of these volumes (bits) released from a log that has failed, if they keep stamps: the
    /// volumes for which that was ordered, once no other round is under way.
    pub(crate) fn release_stores(&mut self, volumes: u64) -> Option<u64> {
        if self.stamps.round.is_some() {
            return None;
        }
        Some(if self.order_stamps(volumes, 0, true) { volumes & self.stamps.kept } else { 0 })
    }

    /// Whether stores have taken something over that no stamp says.
    pub fn owes_stamps(&self) -> bool {
        self.stamps.taken_over & self.stamps.kept != 0
    }

    /// Whether stamps are on their way to the headers.
    pub fn is_stamping(&self) -> bool {
        self.stamps.round.is_some()
    }

    /// The headers have been written, or not: the stamps that are durable, and their numbers, which
    /// only grow for each store.
    ///
    /// # Panics
    /// If none were ordered.
    pub fn stamped(&mut self, numbers: &[(Volume, u64)]) {
        let round = self.stamps.round.take().expect("no stamps were ordered");
        let mut noted = Vec::with_capacity(numbers.len());
        let mut done = 0;
        for &(volume, number) in numbers {
            let v = volume.0 as usize;
            self.stamps.newest[v] = round.stamp;
            self.stamps.written[v] = round.written[v];
            done |= 1 << v;
            let of = &mut self.world.front.volumes[v];
            let logged = of.past == Past::Open
                && round.settled[v].is_some()
                && of.direct_settled() == round.settled[v];
            if logged {
                of.past = Past::Closed;
            }
            noted.push((volume.0 as u16, number, logged));
        }
        self.stamps.taken_over |= round.taken_over & !done;
        self.stamps.failed = round.volumes & !done;
        if round.release {
            self.released(done);
        }
        if let Some(log) = self.world.log.as_mut().filter(|_| self.world.state != State::Stopped) {
            log.note_stamps(&noted);
        }
        self.push_stamps();
        self.stamps.failed = 0;
        self.pump();
    }

    /// A start: what may go past the log, as that says.
    pub(crate) fn begin_passing(&mut self) {
        for binding in self.world.log.as_ref().map_or(&[][..], Log::bindings) {
            let volume = self.world.front.volumes.get_mut(usize::from(binding.index));
            if let Some(volume) = volume.filter(|_| binding.logged != 0) {
                volume.past = Past::Closed;
            }
        }
    }

    /// The log has noted that something may go to the volume's store past it; or cannot.
    pub(crate) fn passing(&mut self, volume: u16, result: Outcome) {
        let past = if result.is_ok() { Past::Open } else { Past::Closed };
        self.world.front.volumes[usize::from(volume)].past = past;
        self.world.shards.iter_mut().for_each(Shard::call_starved);
    }

    /// The log wants to use a region again. While stores are being completed it must not: what is
    /// written to them is in none of their stamps, and may have to be written again.
    pub(crate) fn reclaim(&mut self, region: u32) {
        match self.stamps.completing {
            0 => self.cleaner.push(region, Purpose::Reclaim),
            _ => self.stamps.deferred.push(region),
        }
    }

    /// The stores that recovery found to be older copies (`RecoveryReport::completing`) have what they
    /// lacked: a [`Cache::destage`] since the start went well, and they have new stamps. To be called
    /// before any request.
    pub fn completed(&mut self) {
        self.stamps.completing = 0;
        for region in core::mem::take(&mut self.stamps.deferred) {
            self.reclaim(region);
        }
        self.pump();
    }

    /// A seal has told the log of stamps that are durable: all that was taken over is in them.
    pub(crate) fn stamps_sealed(&mut self, volumes: impl Iterator<Item = u16>) {
        let stamp = self.stamp_now(false);
        let kept = self.stamps.kept;
        for v in volumes.map(usize::from).filter(|&v| kept >> v & 1 == 1) {
            self.stamps.taken_over &= !(1 << v);
            self.stamps.newest[v] = stamp;
            self.stamps.written[v] = self.world.front.volumes[v].direct_done();
        }
    }

    /// Begins a round for these volumes (bits): all dirty records of batches up to `complete` are on
    /// their stores. False if that is not possible now.
    fn order_stamps(&mut self, volumes: u64, complete: u64, release: bool) -> bool {
        let runs = match self.world.state {
            // Records that are being disowned may need room.
            State::Starting => self.opened.is_some(),
            State::New | State::Stopped | State::Failed => false,
            _ => true,
        };
        let volumes = volumes & self.stamps.kept;
        if !runs || volumes == 0 || self.stamps.round.is_some() {
            return false;
        }
        let mut stamp = self.stamp_now(false);
        stamp.complete = stamp.complete.max(complete);
        let written = self.world.front.volumes.iter().map(|v| v.direct_done()).collect();
        // Under other policies the next write would go past the log, and in the layout slots payloads do
        // not stay.
        let logs = self.world.config.write_policy.write_back
            && self.world.log.as_ref().is_some_and(|log| log.layout() == Layout::Log);
        let completing = self.stamps.completing;
        let settled = self.world.front.volumes.iter().enumerate();
        let settled =
            settled.map(|(v, of)| of.direct_settled().filter(|_| logs && completing >> v & 1 == 0));
        let settled = settled.collect();
        self.stamps.failed = 0;
        let taken_over = self.stamps.taken_over & volumes;
        self.stamps.taken_over &= !volumes;
        self.stamps.round = Some(Round { volumes, taken_over, stamp, release, written, settled });
        let stamps = self.stamps.volumes(volumes).map(|v| (Volume(v as u32), stamp)).collect();
        self.world.notices.push(Notice::Stamp { stamps, release });
        self.world.stats.stamps += u64::from(volumes.count_ones());
        true
    }

    /// The volumes (bits) that are to have a stamp before the cleaning goes on.
    fn stamps_wanted(&self) -> u64 {
        let Some(active) = &self.cleaner.active else { return 0 };
        match active.phase {
            Phase::Stamping => {
                let chosen = self.world.shards.iter().fold(0, |all, s| all | s.chosen_volumes());
                let unseen = |v: &usize| self.stamps.newest[*v].seen < active.newest;
                let chosen = chosen & self.stamps.kept & !(active.skipped | active.failed);
                let unseen = self.stamps.volumes(chosen).filter(unseen);
                unseen.fold(0, |all, v| all | 1 << v)
            }
            // (Who uses another store does not wait for one that fails.)
            Phase::Releasing => self.stamps.taken_over & self.stamps.kept & !self.stores.failing(),
            _ => 0,
        }
    }

    /// A cleaning that waits for stamps goes on, or has them ordered; true if it goes on.
    pub(crate) fn push_stamps(&mut self) -> bool {
        let Some(active) = self.cleaner.active else { return false };
        let releases = match active.phase {
            Phase::Stamping => false,
            Phase::Releasing => true,
            _ => return false,
        };
        if self.stamps.round.is_some() {
            return false;
        }
        let wanted = self.stamps_wanted();
        let failed = wanted & core::mem::take(&mut self.stamps.failed);
        if failed != 0 && releases {
            self.stores.note_cleaned(&mut self.world, 0, failed, IoError::Device);
            self.leave_region(Err(IoError::Device), false);
            return true;
        }
        if failed != 0
            && let Some(active) = &mut self.cleaner.active
        {
            // As if writes to them had failed: the others go on.
            active.failed |= failed;
            active.error = Some(IoError::Device);
        }
        let wanted = wanted & !failed;
        if wanted != 0 {
            let log = self.world.log.as_ref().filter(|log| releases && log.layout() == Layout::Log);
            let complete = log.map_or(0, |log| log.newest_batch(active.region));
            return self.order_stamps(wanted, complete, false);
        }
        match releases {
            true => self.release_region(),
            false => self.write_chosen(),
        }
        true
    }
}
