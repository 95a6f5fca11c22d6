//! Changes to a cache that serves: its write policy, and how much DRAM it uses.
//!
//! **The policy** changes when nothing is dirty and nothing that modifies is under way, so that
//! no path of one policy ever meets a state that only another can produce:
//!
//! 1. what is dirty is destaged, while requests go on;
//! 2. requests that modify, and flushes, are held; those under way end; reads go on;
//! 3. the rest is destaged, which also syncs what was written directly;
//! 4. the log durably declares all records clean: a restart must not destage one of them over
//!    what the new policy writes directly;
//! 5. the new policy holds, and held requests go on under it.
//!
//! A start under a policy that does not write back, on a log that holds dirty records, begins
//! with step 2 under write-back. When a step fails, the old policy stays, and held requests go on;
//! after a start nobody waits for word of that, so it is kept: [`Cache::unsettled`].

use forebay_effect::{IoError, Outcome};

use crate::cache::Cache;
use crate::notice::Notice;
use crate::policy::{Acknowledge, WritePolicy};
use crate::shard::Shard;
use crate::world::State;

/// The name of the switch towards the log.
const SWITCH: u64 = u64::MAX - 1;

/// A change of policy under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Switch {
    to: (WritePolicy, Acknowledge),
    pub stage: Stage,
    /// At a start: what recovery found is dirty, nobody has asked.
    at_start: bool,
    /// Destages that ended with something dirty left.
    again: u32,
}

/// What is appended while it is being destaged may be called dirty once more; that many times.
const AGAIN_MAX: u32 = 4;

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
pub(crate) enum Stage {
    /// To destage, while requests go on.
    First,
    /// That destage is under way.
    Destaging,
    /// Requests are held; those under way end.
    Holding,
    /// The last destage is under way.
    Last,
    /// A record that is called dirty is being appended: then the last destage comes again.
    Settling,
    /// The log makes its clean mark.
    Marking,
}

impl Cache {
    /// Changes the write policy, and when writes under write-back are answered:
    /// [`Notice::PolicySet`] follows. Requests that modify wait at the end of it, while the last
    /// dirty blocks go to the backing stores; reads go on. Refused (with
    /// [`IoError::Invalid`]) while another change or a stop is under way, when the flash tier has
    /// failed, or when the policy does not go with the relation of the tiers.
    pub fn set_policy(&mut self, policy: WritePolicy, acknowledge: Acknowledge) {
        let fits = self.world.config.relation.check(policy, acknowledge);
        if self.world.state != State::Ready
            || self.switch.is_some()
            || self.world.log_lost
            || fits.is_err()
        {
            self.world.notices.push(Notice::PolicySet(Err(IoError::Invalid)));
            return;
        }
        let stage = Stage::First;
        let to = (policy, acknowledge);
        self.switch = Some(Switch { to, stage, at_start: false, again: 0 });
        self.pump();
    }

    /// Uses this many blocks of DRAM from now on, at most as many as the cache was built with.
    /// With fewer, blocks leave as others come.
    ///
    /// # Panics
    /// With no block for some shard, or more than at the start.
    pub fn set_dram_blocks(&mut self, blocks: u32) {
        assert!(blocks <= self.world.config.dram_blocks, "more DRAM than the cache was built with");
        let shards = u32::from(self.world.config.shards);
        assert!(blocks >= shards, "each shard needs at least one DRAM block");
        for shard in &mut self.world.shards {
            shard.set_dram_blocks(blocks, shards);
        }
    }

    /// Why the policy that the cache was built with does not hold: what was dirty at the start
    /// could not be destaged. The cache goes on under write-back until
    /// [`set_policy`](Cache::set_policy) succeeds.
    pub fn unsettled(&self) -> Option<IoError> {
        self.unsettled
    }

    /// Blocks of DRAM in use: those of the start, or of the last
    /// [`set_dram_blocks`](Cache::set_dram_blocks).
    pub fn dram_blocks(&self) -> u32 {
        self.world.shards.iter().map(Shard::dram_blocks).sum()
    }

    /// At the start: whether the policy wanted can hold at once. If recovery found dirty records
    /// it may not.
    pub(crate) fn settle_policy(&mut self) {
        let to = (self.world.config.write_policy, self.world.config.acknowledge);
        let dirty = self.dirty_blocks() > 0;
        if to.0.write_back || !dirty {
            return;
        }
        // (Should that stay, since something cannot be destaged, it has to go with the relation of the tiers.)
        let fits = self.world.config.relation.check(WritePolicy::WRITE_BACK, to.1).is_ok();
        let acknowledge = if fits { to.1 } else { Acknowledge::Flash };
        self.adopt(WritePolicy::WRITE_BACK, acknowledge);
        self.switch = Some(Switch { to, stage: Stage::Holding, at_start: true, again: 0 });
        self.world.holds.switch = true;
    }

    fn adopt(&mut self, policy: WritePolicy, acknowledge: Acknowledge) {
        let fits = self.world.config.relation.check(policy, acknowledge);
        assert!(fits.is_ok(), "{}: {fits:?}", self.world.config.relation);
        (self.world.config.write_policy, self.world.config.acknowledge) = (policy, acknowledge);
        for shard in &mut self.world.shards {
            shard.set_policy(policy, acknowledge);
        }
    }

    /// One turn of a change.
    pub(crate) fn push_switch(&mut self) -> bool {
        let Some(mut switch) = self.switch else { return false };
        if self.stamps.completing != 0 {
            // What a store lacks must not be called clean.
            return false;
        }
        if self.world.state != State::Ready {
            // A stop: what is held ends under the old policy.
            self.end_switch(Err(IoError::Shutdown));
            return true;
        }
        match switch.stage {
            Stage::First | Stage::Holding if self.destaging.is_some() => return false,
            Stage::First => {
                switch.stage = Stage::Destaging;
                self.begin_destage();
            }
            Stage::Holding if self.is_modified() => return false,
            Stage::Holding => {
                switch.stage = Stage::Last;
                self.begin_destage();
            }
            Stage::Settling if self.world.shards.iter().any(Shard::appends_dirty) => {
                let Some(log) = &mut self.world.log else { return false };
                log.close_batch();
                return false;
            }
            Stage::Settling => switch.stage = Stage::Holding,
            Stage::Destaging | Stage::Last | Stage::Marking => return false,
        }
        self.world.holds.switch = switch.stage >= Stage::Holding;
        self.switch = Some(switch);
        true
    }

    /// Whether a request is under way that may make something dirty, or a flush.
    fn is_modified(&self) -> bool {
        let front = &self.world.front;
        let waiting = front.held_count + front.shares.held + front.zeroings_waiting;
        front.modifying > waiting || front.volumes.iter().any(|v| v.pieces > 0)
    }

    /// A destage has ended; true if it was for a change.
    pub(crate) fn switch_destaged(&mut self, result: Outcome) -> bool {
        let Some(mut switch) = self.switch else { return false };
        match switch.stage {
            Stage::Destaging => {
                // Whether it went well will be seen by the last one.
                switch.stage = Stage::Holding;
                self.switch = Some(switch);
                self.world.holds.switch = true;
            }
            Stage::Last => {
                let dirty =
                    self.dirty_blocks() > 0 || self.world.shards.iter().any(Shard::appends_dirty);
                match (result, &mut self.world.log) {
                    (Err(e), _) => self.end_switch(Err(e)),
                    // A sync proves nothing once one before it has failed.
                    _ if self.world.front.sync_failures > 0 || switch.again == AGAIN_MAX => {
                        self.end_switch(Err(IoError::Device));
                    }
                    _ if dirty => {
                        (switch.stage, switch.again) = (Stage::Settling, switch.again + 1);
                        self.switch = Some(switch);
                    }
                    (Ok(()), None) => self.end_switch(Ok(())),
                    (Ok(()), Some(log)) => {
                        switch.stage = Stage::Marking;
                        self.switch = Some(switch);
                        log.clean_before_now(SWITCH);
                    }
                }
            }
            Stage::First | Stage::Holding | Stage::Settling | Stage::Marking => return false,
        }
        true
    }

    /// The log has made its clean mark; true if it was for a change.
    pub(crate) fn switch_marked(&mut self, ticket: u64, result: Outcome) -> bool {
        if ticket != SWITCH {
            return false;
        }
        if self.switch.is_some() {
            self.end_switch(result);
        }
        true
    }

    /// The log has failed: no change can be made.
    pub(crate) fn abandon_switch(&mut self) {
        if self.switch.is_some() {
            self.end_switch(Err(IoError::Device));
        }
    }

    /// The change is over, well or not.
    fn end_switch(&mut self, result: Outcome) {
        let switch = self.switch.take().expect("a change is under way");
        self.world.holds.switch = false;
        if result.is_ok() {
            self.adopt(switch.to.0, switch.to.1);
        }
        match result {
            Ok(()) => self.unsettled = None,
            Err(error) if switch.at_start => self.unsettled = Some(error),
            Err(_) => {}
        }
        if !switch.at_start {
            self.world.notices.push(Notice::PolicySet(result));
        }
        self.world.release_held();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Open;
    use crate::config::{CacheConfig, VolumeConfig};
    use forebay_block::{Flags, Nanos, Op, Volume};
    use forebay_effect::RequestId;

    fn complete_all(cache: &mut Cache) {
        let mut segments = Vec::new();
        while let Some(effect) = cache.poll_effect(&mut segments) {
            if let Some(token) = effect.token() {
                cache.handle_completion(Nanos(1), token, Ok(()));
            }
        }
    }

    #[test]
    fn a_change_of_policy_does_not_wait_for_a_trim_behind_one_that_is_held() {
        let mut cache = Cache::new(CacheConfig { step_blocks: 2, ..CacheConfig::dram_only(4) });
        cache.attach(VolumeConfig::new(1 << 16));
        cache.start(Nanos(0), Open::RECOVER);
        assert!(matches!(cache.poll_notice(), Some(Notice::Ready(_))));
        for id in [RequestId(1), RequestId(2)] {
            cache.handle_request(Nanos(1), id, Volume(0), Op::Trim, Flags::NONE, 0, 1 << 16);
        }
        // The first is stopped half-way, by its volume's share; the second has the same blocks.
        cache.world.front.shares.share = 0;
        complete_all(&mut cache);
        assert_eq!((cache.world.front.shares.held, cache.world.front.zeroings_waiting), (1, 1));
        cache.set_policy(WritePolicy::WRITE_THROUGH, Acknowledge::Flash);
        complete_all(&mut cache);
        assert_eq!(cache.poll_notice(), Some(Notice::PolicySet(Ok(()))));
        complete_all(&mut cache);
        assert!(cache.is_idle());
        assert_eq!(cache.world.front.zeroings_waiting, 0);
    }
}
