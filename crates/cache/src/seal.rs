//! Seals: before somebody else may use the backing stores, the flash tier notes what they look
//! like, or that what it holds of them ceases to count.
//!
//! 1. Nothing is dirty and no request is under way, nor comes before the end. What goes on in the
//!    background ends. (After a stop all that is so.)
//! 2. The log durably declares all records clean: a restart must not destage one over what others
//!    have written.
//! 3. The log durably takes the note.
//! 4. Volumes that are not trusted any more leave the index, a bounded number of blocks a turn. Not
//!    before 3: a power cut would bring them back.

use forebay_effect::{IoError, Outcome};
use forebay_flash::{Log, Sealed};

use crate::cache::Cache;
use crate::notice::Notice;
use crate::shard::Shard;
use crate::volume::Past;
use crate::world::{State, around};

/// The name of a seal towards the log.
pub(crate) const SEAL: u64 = u64::MAX - 3;

/// Entries of a shard's index that are looked at in a turn.
const ENTRIES: u32 = 4096;

/// A seal under way.
#[derive(Clone, Debug)]
pub(crate) struct Sealing {
    volumes: Vec<Sealed>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// What is under way ends.
    Settling,
    /// The log makes its clean mark.
    Marking,
    /// It takes the note.
    Noting,
    /// The shard's entries from this one on are to be dropped.
    Dropping { shard: usize, entry: u32 },
}

impl Cache {
    /// Has the flash tier note, durably, what the backing stores of these volumes look like, or that
    /// everything cached of them ceases to count: [`Notice::Sealed`] follows. For a quiet cache, of
    /// which nothing is dirty, or one that has stopped well; refused otherwise, with
    /// [`IoError::Invalid`]. The caller keeps all requests back until the notice, and until a seal of
    /// zeroes has taken the place of one that describes a store. A start forgets seals.
    pub fn seal(&mut self, volumes: Vec<Sealed>) {
        let takes = match self.world.state {
            State::Ready => self.is_quiet() && self.dirty_blocks() == 0,
            State::Stopped => self.sealing.is_none(),
            _ => false,
        };
        if !takes {
            return self.world.notices.push(Notice::Sealed(Err(IoError::Invalid)));
        }
        let mut stage = Stage::Settling;
        let past = self.world.all_go_past();
        match &mut self.world.log {
            // A start finds nothing that counts, and needs no note.
            Some(_) if past => stage = Stage::Dropping { shard: 0, entry: 0 },
            Some(log) if self.world.state == State::Stopped => {
                stage = Stage::Noting;
                log.seal(&volumes, SEAL);
            }
            _ => {}
        }
        // The headers that go with it are written.
        self.stamps_sealed(volumes.iter().filter(|v| v.stamp != 0).map(|v| v.index));
        self.sealing = Some(Sealing { volumes, stage });
        self.pump();
    }

    /// Whether no request, destage, change of policy or seal is in progress. Appends to flash may
    /// still be.
    pub fn is_quiet(&self) -> bool {
        self.world.front.requests.in_use() == 0
            && self.destaging.is_none()
            && self.switch.is_none()
            && self.sealing.is_none()
            && !self.is_stamping()
    }

    /// What goes on in the background is over: the log may be told.
    fn begin_marking(&mut self) {
        let Some(sealing) = &mut self.sealing else { return };
        match &mut self.world.log {
            Some(log) if self.world.state == State::Ready => {
                sealing.stage = Stage::Marking;
                log.clean_before_now(SEAL);
            }
            _ => sealing.stage = Stage::Dropping { shard: 0, entry: 0 },
        }
    }

    /// The log has made its clean mark; true if it was for a seal.
    pub(crate) fn seal_marked(&mut self, ticket: u64, result: Outcome) -> bool {
        let Some(sealing) = self.sealing.as_mut().filter(|_| ticket == SEAL) else { return false };
        match (result, &mut self.world.log) {
            (Ok(()), Some(log)) => {
                sealing.stage = Stage::Noting;
                log.seal(&sealing.volumes, SEAL);
            }
            _ => self.end_seal(result),
        }
        true
    }

    /// The log has taken the note.
    pub(crate) fn seal_noted(&mut self, result: Outcome) {
        let Some(sealing) = &mut self.sealing else { return };
        match result {
            Ok(()) => {
                sealing.stage = Stage::Dropping { shard: 0, entry: 0 };
                // Others may write to the stores, and the log has noted that.
                for sealed in &sealing.volumes {
                    if let Some(of) = self.world.front.volumes.get_mut(usize::from(sealed.index)) {
                        of.past = Past::Open;
                    }
                }
            }
            Err(_) => self.end_seal(result),
        }
    }

    fn end_seal(&mut self, result: Outcome) {
        self.sealing = None;
        self.world.notices.push(Notice::Sealed(result));
    }

    /// One turn of a seal.
    pub(crate) fn push_seal(&mut self) -> bool {
        let Some(Sealing { volumes, stage }) = &self.sealing else { return false };
        let idle = self.cleaner.is_idle() && self.world.shards.iter().all(Shard::is_idle);
        let (shard, entry) = match *stage {
            Stage::Dropping { shard, entry } => (shard, entry),
            Stage::Settling if idle || self.world.log_lost => {
                self.begin_marking();
                return true;
            }
            Stage::Settling => {
                // Nothing else would close the batch that some wait for.
                self.world.log.iter_mut().for_each(Log::close_batch);
                return false;
            }
            Stage::Marking | Stage::Noting => return false,
        };
        let mut dropped = 0;
        for volume in volumes.iter().filter(|v| v.distrust) {
            dropped |= 1_u64 << volume.index.min(63);
        }
        if self.world.state != State::Ready || dropped == 0 || shard == self.world.shards.len() {
            // (What has stopped looks nothing up any more.)
            self.end_seal(Ok(()));
            return true;
        }
        if !idle {
            return false;
        }
        let next =
            self.world.shards[shard].drop_clean(&mut around!(self.world), dropped, entry, ENTRIES);
        let stage = match next {
            Some(entry) => Stage::Dropping { shard, entry },
            None => Stage::Dropping { shard: shard + 1, entry: 0 },
        };
        if let Some(sealing) = &mut self.sealing {
            sealing.stage = stage;
        }
        true
    }
}
