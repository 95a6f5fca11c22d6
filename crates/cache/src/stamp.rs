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
use forebay_effect::IoError;
use forebay_flash::{Layout, Log, Stamp};

use crate::cache::{Cache, Notice, State};
use crate::cleaner::Phase;

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
    written: Vec<u64>,
}

impl Stamps {
    fn volumes(&self, bits: u64) -> impl Iterator<Item = usize> + use<> {
        (0..self.newest.len()).filter(move |v| bits >> v & 1 == 1)
    }
}

impl Cache {
    /// The store of this volume keeps a stamp. Call it before the start.
    pub fn keep_stamps(&mut self, volume: Volume) {
        assert!(self.state == State::New, "stamps are kept from the start on");
        let count = self.front.volumes.len();
        assert!((volume.0 as usize) < count, "stamps of a volume that is not attached");
        self.stamps.kept |= 1 << volume.0;
        self.stamps.newest.resize(count, Stamp::default());
        self.stamps.written.resize(count, 0);
    }

    /// What a stamp would say now. All of the stores is durable there, if they are `whole`.
    pub fn stamp_now(&self, whole: bool) -> Stamp {
        let stamp = self.log.as_ref().map(Log::stamp).unwrap_or_default();
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
                || written[v] != self.front.volumes[v].direct_done()
                || taken_over >> v & 1 == 1;
            volumes |= u64::from(changed) << v;
        }
        self.order_stamps(volumes, 0);
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
            noted.push((volume.0 as u16, number));
        }
        self.stamps.taken_over |= round.taken_over & !done;
        self.stamps.failed = round.volumes & !done;
        if let Some(log) = self.log.as_mut().filter(|_| self.state != State::Stopped) {
            log.note_stamps(&noted);
        }
        self.push_stamps();
        self.stamps.failed = 0;
        self.pump();
    }

    /// A seal has told the log of stamps that are durable: all that was taken over is in them.
    pub(crate) fn stamps_sealed(&mut self, volumes: impl Iterator<Item = u16>) {
        let stamp = self.stamp_now(false);
        let kept = self.stamps.kept;
        for v in volumes.map(usize::from).filter(|&v| kept >> v & 1 == 1) {
            self.stamps.taken_over &= !(1 << v);
            self.stamps.newest[v] = stamp;
            self.stamps.written[v] = self.front.volumes[v].direct_done();
        }
    }

    /// Begins a round for these volumes (bits): all dirty records of batches up to `complete` are on
    /// their stores. False if that is not possible now.
    fn order_stamps(&mut self, volumes: u64, complete: u64) -> bool {
        let runs =
            !matches!(self.state, State::New | State::Starting | State::Stopped | State::Failed);
        let volumes = volumes & self.stamps.kept;
        if !runs || volumes == 0 || self.stamps.round.is_some() {
            return false;
        }
        let mut stamp = self.stamp_now(false);
        stamp.complete = stamp.complete.max(complete);
        let written = self.front.volumes.iter().map(|v| v.direct_done()).collect();
        self.stamps.failed = 0;
        let taken_over = self.stamps.taken_over & volumes;
        self.stamps.taken_over &= !volumes;
        self.stamps.round = Some(Round { volumes, taken_over, stamp, written });
        let orders = self.stamps.volumes(volumes).map(|v| (Volume(v as u32), stamp));
        self.notices.push(Notice::Stamp(orders.collect()));
        self.stats.stamps += u64::from(volumes.count_ones());
        true
    }

    /// The volumes (bits) that are to have a stamp before the cleaning goes on.
    fn stamps_wanted(&self) -> u64 {
        let Some(active) = &self.cleaner.active else { return 0 };
        match active.phase {
            Phase::Stamping => {
                let chosen = self.shards.iter().fold(0, |all, s| all | s.chosen_volumes());
                let unseen = |v: &usize| self.stamps.newest[*v].seen < active.newest;
                let chosen = chosen & self.stamps.kept & !(active.skipped | active.failed);
                let unseen = self.stamps.volumes(chosen).filter(unseen);
                unseen.fold(0, |all, v| all | 1 << v)
            }
            // (Who uses another store does not wait for one that fails.)
            Phase::Releasing => {
                self.stamps.taken_over & self.stamps.kept & !self.front.stores.failing
            }
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
            self.note_stores(0, failed, IoError::Device);
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
            let log = self.log.as_ref().filter(|log| releases && log.layout() == Layout::Log);
            let complete = log.map_or(0, |log| log.newest_batch(active.region));
            return self.order_stamps(wanted, complete);
        }
        match releases {
            true => self.release_region(),
            false => self.write_chosen(),
        }
        true
    }
}
