//! The start: what recovery found is taken over, then requests are welcome.

use forebay_effect::Outcome;
use forebay_flash::{BlockKey, Log, LogError, Older, Record, Recovering, RecoveryReport};

use crate::cache::Cache;
use crate::notice::Notice;
use crate::pump::START;
use crate::volume::SyncWaiter;
use crate::world::{State, around};

impl Cache {
    /// How far the start is, while what flash holds is read.
    pub fn recovering(&self) -> Option<Recovering> {
        self.world.log.as_ref()?.recovering()
    }

    /// Requests are welcome from now on.
    pub(crate) fn serve(&mut self, report: Option<Box<RecoveryReport>>) {
        self.world.state = State::Ready;
        self.begin_passing();
        self.settle_policy();
        for n in 0..self.world.shards.len() {
            self.world.shards[n].flash_ready(&mut around!(self.world));
        }
        self.world.notices.push(Notice::Ready(report));
        for volume in 0..self.world.front.volumes.len() as u16 {
            self.world.front.sync(volume, SyncWaiter::Start, &mut self.world.effects);
        }
    }

    pub(crate) fn recovered(&mut self, r: &Record) {
        let known = usize::from(r.key.volume()) < self.world.front.volumes.len();
        let offset = self.world.config.block_size.offset_of(r.key.block());
        let n = self.world.shard_of(r.key.volume(), offset);
        if known && r.dirty != 0 && self.world.state != State::Failed {
            let volume = r.key.volume();
            let size = self.world.front.volumes[usize::from(volume)].size;
            if let Some(within) = self.world.shards[n].beyond(&around!(self.world), r.key, r.dirty)
            {
                let offset = offset + within;
                return self.refuse(LogError::BeyondVolume { volume, offset, size });
            }
        }
        if known {
            let mut masks = (r.valid, r.dirty);
            if r.adds {
                // An older record may have been on the store, and the store lacks it.
                let owed = self.world.shards[n].recovered_dirty(r.key);
                let missing = owed & !(r.valid | r.dirty) != 0;
                self.incomplete |= u64::from(missing) << r.key.volume();
                masks.1 |= owed & r.valid;
            }
            let mut around = around!(self.world);
            self.world.shards[n].recovered(&mut around, r.key, r.position, r.checksum, masks);
        } else {
            // A record that nobody remembers must not stay on flash.
            let (stored, expected) =
                (u64::from(r.key.volume()) + 1, self.world.front.volumes.len() as u64);
            self.refuse(LogError::Geometry { what: "volumes", stored, expected });
        }
    }

    /// Every older record of the block is void: if a store that lacks one is to be completed, what took
    /// its place is nowhere.
    pub(crate) fn recovered_tombstone(&mut self, key: BlockKey) {
        let n =
            self.world.shard_of(key.volume(), self.world.config.block_size.offset_of(key.block()));
        let missing = self.world.shards[n].recovered_dirty(key) != 0;
        self.incomplete |= u64::from(missing) << key.volume();
        self.world.shards[n].recovered_tombstone(&mut around!(self.world), key);
    }

    /// Does not serve.
    fn refuse(&mut self, why: LogError) {
        if self.world.state != State::Failed {
            self.world.state = State::Failed;
            self.world.notices.push(Notice::Failed(why));
        }
    }

    /// Whether recovery has given all records, and they have not been settled.
    pub(crate) fn owes_settling(&self) -> bool {
        let starting = self.world.state == State::Starting && !self.settled;
        starting && self.world.log.as_ref().is_some_and(Log::is_opening)
    }

    /// Once recovery has given all records, and before the log has written anything: each must have
    /// a place in the index, or be disowned.
    pub(crate) fn settle_recovered(&mut self) {
        if !self.owes_settling() {
            return;
        }
        self.settled = true;
        let mut left = core::mem::take(&mut self.disowned);
        let mut blocks = 0;
        for n in 0..self.world.shards.len() {
            blocks += self.world.shards[n].place_spilled(&mut around!(self.world), &mut left);
        }
        self.disowned = left;
        if blocks > 0 {
            self.refuse(LogError::NoPlace { blocks });
        }
        self.settle_outdated();
        self.settle_completing();
        for volume in core::mem::take(&mut self.changed) {
            let of = self.world.front.volumes.get(usize::from(volume));
            let blocks = of.map_or(0, |v| v.stats.dirty_blocks);
            if blocks > 0 {
                self.refuse(LogError::Changed { volume, blocks });
            }
        }
    }

    /// Volumes of which no clean record counts, because the store or the log is an older copy of itself:
    /// nothing of them may be dirty. (What recovery gives, it gives before it knows.)
    fn settle_outdated(&mut self) {
        let outdated = self.world.log.as_ref().map_or(&[][..], Log::outdated).to_vec();
        let mut dropped = 0;
        for (volume, which) in outdated {
            match self.world.front.volumes.get(usize::from(volume)) {
                Some(v) if v.stats.dirty_blocks > 0 => {
                    self.refuse(LogError::Older { volume, which })
                }
                Some(_) => dropped |= 1_u64 << volume.min(63),
                None => {}
            }
        }
        if dropped == 0 || self.world.state == State::Failed {
            return;
        }
        for n in 0..self.world.shards.len() {
            self.world.shards[n].drop_clean(&mut around!(self.world), dropped, 0, u32::MAX);
        }
    }

    /// An older store is completed only if the newest records have all that it lacks; and not if some have
    /// to be disowned, which takes room in the log, and none is made before the store is complete.
    fn settle_completing(&mut self) {
        for volume in self.world.log.as_ref().map_or(&[][..], Log::completing).to_vec() {
            if self.incomplete >> volume & 1 == 1 || !self.disowned.is_empty() {
                self.refuse(LogError::Older { volume, which: Older::Store });
            }
            self.stamps.completing |= 1 << volume;
        }
    }

    /// The log takes appends. Records that have no place in the index must not come back: they are
    /// disowned durably before anybody can write past them.
    pub(crate) fn begin_serving(&mut self, report: Box<RecoveryReport>) {
        assert!(self.settled, "the log began its epoch before its records were settled");
        if self.disowned.is_empty() {
            return self.serve(Some(report));
        }
        let log = self.world.log.as_mut().expect("it has just been opened");
        for key in self.disowned.drain(..) {
            self.world.stats.recovered_disowned += 1;
            log.poison(key);
        }
        log.sync(START);
        self.opened = Some(report);
    }

    /// They are, or cannot be.
    pub(crate) fn disowned(&mut self, result: Outcome) {
        let Some(report) = self.opened.take() else { return };
        match result {
            Ok(()) => self.serve(Some(report)),
            Err(error) => self.refuse(LogError::Io(error)),
        }
    }
}
