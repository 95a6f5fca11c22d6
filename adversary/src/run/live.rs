//! A life of the cache: requests and completions in any order, and checks of the replies.

use forebay_block::{Flags, Nanos, Op, Volume};
use forebay_cache::{Acknowledge, DestageError, Order, WritePolicy};
use forebay_device::choices::Choices;
use forebay_device::memory::FaultRates;
use forebay_effect::{Device, IoError, Outcome, RequestId};
use forebay_flash::HeaderChange;

use super::after::End;
use super::{Destage, Expect, Runner};
use crate::oracle::Oracle;
use crate::sectors::{spoil, stamp, value_of, values_of};
use crate::world::is_device_error;

/// A destage waits at least for so long for stores that do not answer.
const SILENT_MIN: Nanos = Nanos(10_000_000_000);

impl Runner<'_> {
    /// Plays one life after another.
    pub(super) fn lives(&mut self) -> Result<(), String> {
        for life in 0..self.plan.lives {
            let faults = !self.plan.errors_allowed || self.choices.choose(4) != 3;
            self.set_faults(faults);
            self.lies = self.medium_faults();
            let end = match self.choices.choose(6) {
                0 => End::Stop { destage: false },
                1 => End::Stop { destage: true },
                2 => End::Kill,
                _ => End::Cut,
            };
            self.live()?;
            self.await_pass_through()?;
            // A device that disappears loses the same data as in a power cut.
            let end = match end {
                End::Kill if self.is_flash_gone() => End::Cut,
                end => end,
            };
            let last = life + 1 == self.plan.lives;
            let before = self.choices.enter();
            self.end(if last { End::Stop { destage: true } } else { end }, last)?;
            if self.plan.older && !last {
                self.attack();
            }
            if last || self.unsettled {
                break;
            }
            // Flash has space again.
            self.bring_flash_back();
            if !self.restart()? {
                return Ok(());
            }
            self.forget_copies();
            if self.choices.choose(2) == 0 {
                self.verify("after a restart")?;
            }
            self.choices.leave(before);
        }
        Ok(())
    }

    /// Plays steps until the life ends. Each step chooses whether to continue, so that shrinking
    /// can remove steps from a failing run; 0 always means the end.
    fn live(&mut self) -> Result<(), String> {
        for _ in 0..self.plan.steps {
            if self.choices.one_in(64) {
                break;
            }
            self.step()?;
            let fork = self.plan.fork_one_in;
            if fork != 0 && self.choices.choose(fork.into()) == u64::from(fork) - 1 {
                let before = self.choices.enter();
                self.fork()?;
                self.choices.leave(before);
            }
        }
        Ok(())
    }

    pub(crate) fn set_faults(&mut self, on: bool) {
        self.outage = None;
        self.world.hung.clear();
        if !self.is_flash_gone() {
            self.bring_flash_back();
        }
        let devices = self.world.executor.devices_mut();
        let rates = |r| if on { r } else { FaultRates::NONE };
        if self.scenario.flash_bytes.is_some() {
            devices.set_rates(Device::Flash, rates(self.plan.flash_faults));
        }
        for v in 0..self.scenario.volumes.len() {
            let device = Device::Backing(Volume(v as u32));
            devices.set_rates(device, rates(self.plan.backing_faults));
        }
    }

    /// Performs a request or a completion.
    fn step(&mut self) -> Result<(), String> {
        if !self.scenario.policies.is_empty() && self.choices.one_in(24) {
            let (policy, acknowledge) = self.draw_policy();
            self.tell(|| format!("switch to {policy:?}, {acknowledge:?}"));
            if policy.write_back {
                // The engine marks the headers dirty first.
                self.world.write_headers(|_| HeaderChange::MarkDirty);
            }
            self.world.order(Order::SetPolicy(policy, acknowledge));
            let blocks = self.scenario.config.dram_blocks;
            let shards = u32::from(self.world.cache.config().shards);
            let less = shards + self.choices.choose(u64::from(blocks - shards + 1)) as u32;
            self.world.order(Order::SetDramBlocks(less));
        }
        if !self.scenario.policies.is_empty()
            && self.world.cache.is_switching()
            && self.choices.one_in(24)
        {
            self.tell(|| "cancel the policy change".to_owned());
            self.seen.stats.add("policy changes cancelled", 1);
            self.world.order(Order::EndSwitch);
        }
        if self.plan.older {
            self.step_older()?;
        }
        // A quiesce fails after a failed sync.
        if self.plan.others && !self.plan.errors_allowed && self.choices.one_in(40) {
            self.forget_question();
            return self.quiet();
        }
        if let Some(how) = self.plan.flash_end
            && !self.ended
            && self.choices.one_in(40)
        {
            self.end_flash(how);
        }
        if self.plan.outages && self.choices.one_in(20) {
            return self.outage();
        }
        if self.plan.syncs && self.choices.one_in(12) {
            return self.fail_syncs();
        }
        if self.plan.late && self.choices.one_in(24) {
            self.be_late();
        }
        if self.plan.hung_max > 0 && self.choices.one_in(16) {
            return self.hang();
        }
        let room = self.open.len() < self.scenario.depth && self.world.cache.has_room();
        if room && (self.choices.choose(2) == 0 || self.open.is_empty()) {
            self.request();
        } else {
            self.world.complete_one(&mut self.choices);
        }
        self.hear()?;
        self.ask_contents()
    }

    /// Makes one store slow from now on, or none.
    fn be_late(&mut self) {
        let volume = self.choices.choose(1 + self.oracles.len() as u64);
        self.world.late = volume.checked_sub(1).map(|volume| Volume(volume as u32));
        self.tell(|| format!("late from now on: {:?}", self.world.late));
    }

    pub(super) fn draw_policy(&mut self) -> (WritePolicy, Acknowledge) {
        let policies = &self.scenario.policies;
        policies[self.choices.choose(policies.len() as u64) as usize]
    }

    fn request(&mut self) {
        let volume = self.choices.choose(self.oracles.len() as u64) as usize;
        let sectors = self.oracles[volume].sectors();
        let block = self.scenario.config.block_size.bytes() / 512;
        let (first, count) = self.range(volume, sectors, block);
        let kind = self.choices.choose(42);
        // A zeroing that hangs keeps its extent in the log's table of extents, which all volumes share.
        let kind = if self.plan.hung_max > 0 && (30..34).contains(&kind) { 14 } else { kind };
        if kind >= 40 {
            return self.begin_destage();
        }
        let (op, flags) = match kind / 2 {
            0..=6 => (Op::Read, Flags::NONE),
            7..=13 => (Op::Write, Flags::NONE),
            14 => (Op::Write, Flags::FUA),
            15 => (Op::Trim, Flags::NONE),
            16 => (
                Op::WriteZeroes,
                if self.choices.choose(2) == 0 { Flags::NO_HOLE } else { Flags::FUA },
            ),
            _ => (Op::Flush, Flags::NONE),
        };
        let zeroes = matches!(op, Op::Trim | Op::WriteZeroes);
        let range = match zeroes && self.choices.choose(3) == 2 {
            // Like a client that empties a part of its disk, or all of it.
            true => self.long_range(sectors),
            false => (first, count),
        };
        self.issue(volume, op, flags, range);
    }

    /// Issues a request for sectors of a volume.
    pub(crate) fn issue(
        &mut self,
        volume: usize,
        op: Op,
        flags: Flags,
        (first, count): (u64, u64),
    ) {
        let oracle = &mut self.oracles[volume];
        let id = self.world.next_version;
        let expect = match op {
            Op::Read => Expect::Read { volume, ticket: oracle.read_issued(first, count), first },
            Op::Flush => Expect::Flush { volume, ticket: oracle.flush_issued() },
            _ => {
                self.world.next_version += 1;
                let fua = flags.contains(Flags::FUA).then(|| oracle.durable_issued(first, count));
                oracle.write_issued(id, first, count, op != Op::Write);
                Expect::Write { volume, id, first, count, fua }
            }
        };
        let (offset, length) = if op == Op::Flush { (0, 0) } else { (first * 512, count * 512) };
        self.tell(|| format!("{op:?} {flags:?} v{volume} {first}+{count} (write {id})"));
        let request = self.world.submit(volume as u32, op, flags, offset, length, |data| {
            if op == Op::Write {
                stamp(data, volume as u32, first, id);
            } else {
                spoil(data);
            }
        });
        self.open.insert(request.0, expect);
    }

    /// Draws the sectors of a request: whole blocks, parts of blocks, or several blocks.
    pub(super) fn range(&mut self, volume: usize, sectors: u64, block: u64) -> (u64, u64) {
        let c = &mut self.choices;
        // A few blocks are hot, so that requests interact.
        let blocks = sectors.div_ceil(block);
        let hot = &self.scenario.hot[volume];
        let b = match c.choose(2) {
            0 => hot[c.choose(hot.len() as u64) as usize],
            _ => c.choose(blocks),
        };
        let (first, count) = match c.choose(4) {
            0 | 1 => (b * block, block),
            2 => (b * block + c.choose(block), 1 + c.choose(block)),
            _ => {
                let blocks = 1 + c.choose(self.scenario.request_blocks);
                (b * block + c.choose(2) * c.choose(block), block * blocks)
            }
        };
        let first = first.min(sectors - 1);
        (first, count.min(sectors - first))
    }

    /// Draws sectors of many blocks, up to the end of the volume.
    fn long_range(&mut self, sectors: u64) -> (u64, u64) {
        let first = self.choices.choose(2) * self.choices.choose(sectors);
        let rest = sectors - first;
        (first, if self.choices.choose(2) == 0 { rest } else { 1 + self.choices.choose(rest) })
    }

    /// Checks the replies that have arrived.
    pub(crate) fn hear(&mut self) -> Result<(), String> {
        let (before, replies) = (self.world.replies_given(), self.world.replies());
        for (reply, (id, result, data)) in (before..).zip(replies) {
            self.judge_seen(reply)?;
            self.reply(id, result, &data)?;
            self.world.requests.put_back(data);
        }
        self.judge_seen(u64::MAX)?;
        self.hear_destage()?;
        if self.plan.syncs && self.world.cache.has_given_up() {
            return Err(format!("flash was given up: {}", self.world.cache.describe()));
        }
        self.check_watch()
    }

    /// Begins a destage of all data that is dirty now.
    pub(super) fn begin_destage(&mut self) {
        if self.destage.is_none() {
            self.tell(|| "destage".into());
            let all = |o: &mut Oracle| o.read_issued(0, o.sectors());
            let tickets = self.oracles.iter_mut().map(all).collect();
            self.destage = Some(Destage { since: self.world.now, tickets });
            self.world.order(Order::Destage);
        }
    }

    /// Checks the result of a destage: if it succeeded, the backing stores durably hold the data
    /// that was newest when the destage began, or newer data.
    fn hear_destage(&mut self) -> Result<(), String> {
        if self.destage.is_none() {
            return Ok(());
        }
        let Some(result) = self.world.destaged() else { return Ok(()) };
        self.tell(|| format!("destaged {result:?}"));
        let Some(Destage { since, tickets }) = self.destage.take() else { return Ok(()) };
        // A stop ends the destage early.
        let cut = result == Err(IoError::Shutdown.into()) && !self.world.cache.is_ready();
        self.seen.stats.add("destages that a stop ended", u64::from(cut));
        let slow = self.plan.late || self.plan.hung_max > 0;
        let waited = self.world.now >= since.saturating_add(SILENT_MIN);
        let silent = result == Err(DestageError::Silent) && slow && waited;
        // A destage also fails if flash fails during it.
        let allowed = cut
            || silent
            || self.unsynced.is_some()
            || self.plan.errors_allowed
            || self.plan.flash_end.is_some();
        if result.is_err() && !allowed {
            return Err(format!("the destage failed: {result:?}"));
        }
        self.seen.stats.add("destages that went well", u64::from(result.is_ok()));
        for (oracle, ticket) in self.oracles.iter_mut().zip(&tickets) {
            if result.is_ok() {
                let device = Device::Backing(Volume(oracle.volume()));
                let bytes = self.world.executor.devices().durable(device);
                for sector in (0..oracle.sectors()).filter(|&s| !oracle.is_pristine(s, 1)) {
                    let at = sector as usize * 512;
                    let value = value_of(&bytes[at..at + 512], oracle.volume(), sector);
                    if !oracle.is_current(ticket, sector, value) {
                        return Err(format!(
                            "after a destage: sector {sector} of volume {} is older on the backing \
                             store than when the destage was requested: {value:?}",
                            oracle.volume()
                        ));
                    }
                }
            }
            oracle.read_failed(ticket);
        }
        Ok(())
    }

    /// Checks the reads without calls that were made before this reply, each as a read that began
    /// and ended at that moment.
    pub(super) fn judge_seen(&mut self, reply: u64) -> Result<(), String> {
        while let Some(seen) = self.world.lookout.take_seen(reply) {
            let oracle = &mut self.oracles[seen.volume as usize];
            let ticket = oracle.read_issued(seen.first, seen.values.len() as u64);
            let judged = oracle.read_done(&ticket, &seen.values, "a read without a call");
            judged.map_err(|v| v.to_string())?;
            self.seen.stats.add("reads without a call", 1);
        }
        Ok(())
    }

    fn reply(&mut self, id: RequestId, result: Outcome, data: &[u8]) -> Result<(), String> {
        self.seen.replies += 1;
        self.tell(|| format!("reply {} {result:?} {:?}", id.0, self.open.get(&id.0)));
        if let Err(e) = result {
            self.seen.errors += 1;
            // A stop does not wait until volumes bypass flash.
            let stops = self.is_flash_gone() && !self.world.cache.is_ready();
            let unsynced = self.open.get(&id.0).is_some_and(|expect| self.needs_lost_sync(expect));
            if !(self.plan.errors_allowed || stops || unsynced) || !is_device_error(e) {
                return Err(format!("request {} failed: {e}", id.0));
            }
        }
        let expect = self.open.remove(&id.0).ok_or("a reply to no request")?;
        self.note_outage(expect.volume(), result);
        match expect {
            Expect::Read { volume, ticket, first } => {
                if result.is_ok() {
                    let values = values_of(data, volume as u32, first);
                    let checked = self.oracles[volume].read_done(&ticket, &values, "a read");
                    checked.map_err(|v| v.to_string())?;
                } else {
                    self.oracles[volume].read_failed(&ticket);
                }
            }
            Expect::Write { volume, id, first, count, fua } => {
                self.oracles[volume].write_ended(id, first, count, result.is_ok());
                if let (Ok(()), Some(ticket)) = (result, fua) {
                    self.oracles[volume].durable_done(&ticket);
                }
            }
            Expect::Flush { volume, ticket } => {
                if result.is_ok() {
                    self.oracles[volume].flush_done(&ticket);
                }
            }
        }
        Ok(())
    }
}
