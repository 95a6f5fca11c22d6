//! Seals: before others may use the backing stores, the flash tier notes the stores' fingerprints,
//! or that its records of them no longer count.
//!
//! 1. Nothing is dirty, no request is in flight, and none arrives before the end. Background work
//!    ends. After a stop, this is already the case.
//! 2. The log durably declares all records clean: a restart must not destage one over data that
//!    others have written. From here on no cleaning begins, because the note does not cover records
//!    that move after it.
//! 3. The log durably takes the note.
//! 4. Volumes that are no longer trusted leave the index, a bounded number of blocks in each turn.
//!    This follows step 3, because a power cut would bring them back before it.
//!
//! | stage | what moves it on | next stage |
//! | --- | --- | --- |
//! | `Settling` | nothing else is in progress | `Marking` |
//! | `Settling` | there is no log, or a stop has begun after the log was lost | `Dropping` |
//! | `Marking` | the log has written its clean mark | `Noting` |
//! | `Noting` | the log has taken the note | `Dropping` |
//! | `Dropping` | a number of entries have been dropped | `Dropping` |
//!
//! A seal begins with `Settling` or, if there is a log and a stop has ended, with `Noting`. If no volume uses flash any
//! more, a start finds nothing that counts, and needs no note: the seal begins with `Dropping`. It may fail in any
//! stage, and succeeds only in `Dropping`.

use forebay_effect::{IoError, Outcome};
use forebay_flash::{Log, Sealed};

use crate::cleaner::Cleaner;
use crate::entry_walk::EntryWalk;
use crate::notice::Notice;
use crate::shard::Shard;
use crate::stages::{CurrentStage, Stage};
use crate::ticket::Ticket;
use crate::volume::LogBypass;
use crate::volume_set::VolumeSet;
use crate::world::{World, shard_context};

/// The seal in progress, if any.
#[derive(Debug, Default)]
pub(crate) struct Sealer {
    sealing: Option<Sealing>,
}

#[derive(Clone, Debug)]
struct Sealing {
    volumes: Vec<Sealed>,
    stage: CurrentStage<SealingStage>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SealingStage {
    /// Operations in progress are ending.
    Settling,
    /// The log writes its clean mark.
    Marking,
    /// The log takes the note.
    Noting,
    /// The entries that the walk has yet to visit must be dropped.
    Dropping(EntryWalk),
}

impl Stage for SealingStage {
    const OF: &'static str = "a seal";

    fn leads_to(self, next: SealingStage) -> bool {
        use SealingStage::{Dropping, Marking, Noting, Settling};
        match self {
            Settling => matches!(next, Marking | Dropping(_)),
            Marking => next == Noting,
            Noting | Dropping(_) => matches!(next, Dropping(_)),
        }
    }
}

impl Sealer {
    #[inline]
    pub fn is_under_way(&self) -> bool {
        self.sealing.is_some()
    }

    /// A seal begins; nothing else is in progress.
    pub fn begin(&mut self, world: &mut World, volumes: Vec<Sealed>) {
        let mut stage = SealingStage::Settling;
        // (A log that has failed takes no note of the others, so this must concern no others.)
        let drops =
            |sealed: &Sealed| sealed.distrust && world.flash.without().contains(sealed.volume);
        let drops_all = world.lifecycle.is_ready() && volumes.iter().all(drops);
        let without_flash = world.flash.all_without() || drops_all && !volumes.is_empty();
        match &mut world.log {
            Some(_) if without_flash => stage = SealingStage::Dropping(EntryWalk::START),
            Some(log) if world.lifecycle.is_stopped() => {
                stage = SealingStage::Noting;
                log.seal(&volumes, Ticket::Seal.encode());
            }
            _ => {}
        }
        self.sealing = Some(Sealing { volumes, stage: CurrentStage::first(stage) });
    }

    /// The log has written its clean mark, or could not.
    pub fn marked(&mut self, world: &mut World, result: Outcome) {
        let sealing = self.sealing.as_mut().expect("only a seal in progress waits for this mark");
        match (result, &mut world.log) {
            (Ok(()), Some(log)) => {
                sealing.stage.enter(SealingStage::Noting);
                log.seal(&sealing.volumes, Ticket::Seal.encode());
            }
            _ => self.end(world, result),
        }
    }

    /// The log has taken the note.
    pub fn noted(&mut self, world: &mut World, result: Outcome) {
        let Some(sealing) = &mut self.sealing else { return };
        match result {
            Ok(()) => {
                sealing.stage.enter(SealingStage::Dropping(EntryWalk::START));
                // Others may write to the stores, and the log has noted that.
                for sealed in &sealing.volumes {
                    if let Some(of) = world.volumes.get_mut(sealed.volume) {
                        of.log_bypass = LogBypass::Allowed;
                    }
                }
            }
            Err(_) => self.end(world, result),
        }
    }

    /// The seal has ended, successfully or not.
    fn end(&mut self, world: &mut World, result: Outcome) {
        let ended = self.sealing.take().map(|sealing| sealing.stage.get());
        let dropped = matches!(ended, Some(SealingStage::Dropping(_)));
        assert!(dropped || result.is_err(), "a seal succeeds in {ended:?}");
        world.holds.cleanings = false;
        world.notices.push(Notice::Sealed(result));
    }

    /// One turn.
    pub fn take_turn(&mut self, world: &mut World, cleaner: &Cleaner) -> bool {
        let Some(Sealing { stage, .. }) = &self.sealing else { return false };
        let idle = world.shards.iter().all(Shard::is_idle);
        match stage.get() {
            SealingStage::Settling if idle && cleaner.is_idle() || world.flash.is_lost() => {
                self.mark(world);
                true
            }
            SealingStage::Settling => {
                // Nothing else would close the batch that some wait for.
                world.log.iter_mut().for_each(Log::close_batch);
                false
            }
            // (Cleanings that wait for the end of the seal do not count.)
            SealingStage::Dropping(walk) => {
                self.drop(world, walk, idle && !cleaner.is_active(VolumeSet::EMPTY))
            }
            SealingStage::Marking | SealingStage::Noting => false,
        }
    }

    /// The work in the background has ended: the log marks its records clean.
    fn mark(&mut self, world: &mut World) {
        let sealing = self.sealing.as_mut().expect("a seal is in progress");
        let may_mark = world.volumes.may_be_declared_clean();
        let next = match &mut world.log {
            Some(_) if world.lifecycle.is_ready() && !may_mark => {
                return self.end(world, Err(IoError::Device));
            }
            Some(log) if world.lifecycle.is_ready() => {
                world.holds.cleanings = true;
                log.clean_before_now(Ticket::Seal.encode());
                SealingStage::Marking
            }
            // A stop came first, and marks the log in its own way.
            Some(_) if !world.flash.is_lost() => return self.end(world, Err(IoError::Shutdown)),
            _ => SealingStage::Dropping(EntryWalk::START),
        };
        sealing.stage.enter(next);
    }

    /// One turn of dropping the blocks of volumes that are no longer trusted; `idle`: nothing else
    /// is in progress.
    fn drop(&mut self, world: &mut World, walk: EntryWalk, idle: bool) -> bool {
        let sealing = self.sealing.as_mut().expect("a seal is in progress");
        let mut dropped = VolumeSet::EMPTY;
        for volume in sealing.volumes.iter().filter(|v| v.distrust) {
            dropped.insert(volume.volume);
        }
        if !world.lifecycle.is_ready() || dropped.is_empty() {
            // A stopped cache serves no requests, so nothing needs to be dropped from its index.
            self.end(world, Ok(()));
            return true;
        }
        if !idle {
            return false;
        }
        let context = &mut shard_context!(world);
        match walk.step(&mut world.shards, |s, from, n| s.drop_clean(context, dropped, from, n)) {
            Some(rest) => sealing.stage.enter(SealingStage::Dropping(rest)),
            None => self.end(world, Ok(())),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::check_table;

    #[test]
    fn stages_follow_each_other_as_the_table_says() {
        let stages = [
            SealingStage::Settling,
            SealingStage::Marking,
            SealingStage::Noting,
            SealingStage::Dropping(EntryWalk::START),
        ];
        check_table(include_str!("sealer.rs"), &stages);
    }
}
