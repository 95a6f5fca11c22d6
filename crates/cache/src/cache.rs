//! The heart: a block cache that does no I/O, reads no clock, spawns no thread and holds no
//! data.
//!
//! # The contract
//!
//! The driver tells a [`Cache`] what happened. The cache answers with what the driver must do.
//!
//! **Calls in.**
//!
//! - *Before the start*: [`Cache::attach`] for each volume, and [`Cache::keep_stamps`] for each store that keeps
//!   stamps. A driver that moves no data also calls [`Cache::without_bytes`] and, if its devices take no time,
//!   [`Cache::without_time`]. Then [`Cache::start`] once. If recovery finds stores that are older copies, the
//!   driver destages, and gives [`Order::EndCompletion`] before any request.
//! - *Requests*: [`Cache::handle_request`] when a client's request arrives and [`Cache::has_room`] is true.
//!   [`Cache::handle_hit`] is a shortcut for reads of one block in memory.
//! - *Devices*: [`Cache::handle_completion`] when a device effect has ended, and [`Cache::handle_checksum`]
//!   immediately after an [`Effect::Checksum`].
//! - *Time*: [`Cache::handle_timeout`] at the time that [`Cache::poll_timeout`] returns.
//! - *Orders*: [`Cache::handle_order`] for what operators want ([`Order`]), and for [`Order::Stamp`] from time to
//!   time.
//! - *Stamps*: [`Cache::handle_stamped`] as the answer to a [`Notice::Stamp`].
//!
//! **Answers out.** After every call in, the driver calls [`Cache::poll_effect`] until it returns `None`. It
//! performs the effects in that order, and finishes immediate effects before its next call. Then it calls
//! [`Cache::poll_notice`] and [`Cache::poll_timeout`]; any call may change the timeout.
//!
//! **Reads without calls.** When no effect is left, [`Cache::publish`] returns a block's key and frame. The driver
//! may then answer reads of the block from the frame without a call. After any call, before it performs the next
//! effect, the driver must call [`Cache::poll_withdrawn`] until it returns `None`, and stop reading from the
//! returned frames; otherwise it serves stale data. The driver reports such reads later with [`Cache::note_hit`],
//! in any order.
//!
//! **Time.** From the start on, every call carries the time at which it is made, and all that it begins is dated by
//! this time. (A checksum is part of the call whose effect requested it.) The time never goes back: in a call with an
//! earlier time, it is that of the last call.
//!
//! **Promises.** The same calls give the same effects under every driver. After the start, the cache allocates no
//! memory per request. The work of one call is bounded: a trim of a terabyte takes many steps, and so does most work
//! on a whole region of flash, with other calls in between.
//! If a call leaves such work unfinished, the next timeout is due immediately ([`Cache::is_half_way`]).
//!
//! # What a reply means
//!
//! - For each 512-byte sector, a read returns a version between the last durable one and the last
//!   written one, and never an older version than an earlier read returned.
//! - Under write-through, a write's data is on the backing store, and durable after a sync of the store. Under
//!   write-back, the data is in the log or, with [`Acknowledge::Dram`], in DRAM; a block that flash does not admit
//!   goes to the backing store instead.
//! - FUA: the data is durable. FLUSH: every write answered before the flush arrived, on any connection, is durable.
//! - An error: each granule has its old or its new value, and keeps that value; dirty data is kept.
//!
//! # Which part has what
//!
//! The *front* tracks the requests in flight, and the *volumes* their flushes and syncs. *Shards* hold the index,
//! the DRAM frames and the state of each block; the hash of a block's stripe selects the block's shard. The *log*
//! manages everything on flash. These parts do not call each other directly, but through the *world* (`world.rs`),
//! which contains them all, or through the shards' `ShardContext`. *Procedures*, such as a cleaning, a destage or a
//! change of policy, have private state, and borrow the world for the duration of a call.
//!
//! # What is deliberately absent
//!
//! Clocks, threads, locks, files, sockets, randomness, bytes of data.

mod dispatch;
mod procedures;
mod queries;

pub use queries::Sought;

use forebay_block::{Nanos, Op, Request, Volume};
use forebay_effect::{
    Effect, Frame, IoError, MetaBuffer, Outcome, Owner, Place, RequestId, Segment, Token,
};
use forebay_flash::{Log, Sealed};

use crate::cleaner::{Cleaner, Work};
use crate::config::{CacheConfig, VolumeConfig};
use crate::destage::Destages;
use crate::front::INTERNAL;
use crate::late::Lateness;
use crate::notice::{Notice, Open};
use crate::order::Order;
use crate::pass_through::PassThrough;
#[cfg(doc)]
use crate::policy::Acknowledge;
use crate::sealer::Sealer;
use crate::slab::{Key, TransferIndex};
use crate::stamp::{StampReport, Stamps};
use crate::startup::Startup;
use crate::stop::{Stop, StopTarget};
use crate::stores::Stores;
use crate::switch::Switch;
use crate::volume_set::VolumeSet;
use crate::world::{World, shard_context};

/// Most volumes of one cache.
pub const VOLUMES_MAX: usize = 64;

/// The cache. See the module's documentation, which is its contract.
pub struct Cache {
    pub(crate) world: World,
    cleaner: Cleaner,
    stores: Stores,
    stamps: Stamps,
    destages: Destages,
    switch: Switch,
    sealer: Sealer,
    pass_through: PassThrough,
    startup: Startup,
    stop: Stop,
    /// The last read that `handle_hit` did not answer: `handle_request` does not look it up again.
    missed: Option<(Volume, u64, u64)>,
}

impl Cache {
    /// A cache without volumes, not started.
    ///
    /// # Panics
    /// If [`CacheConfig::check`] refuses the configuration.
    pub fn new(config: CacheConfig) -> Self {
        if let Err(error) = config.check() {
            panic!("no cache can have this configuration: {error}");
        }
        let geometry = config.flash.as_ref().map(|f| f.geometry);
        let moves = geometry.is_some_and(|g| g.has_slots());
        Cache {
            cleaner: Cleaner::new(geometry.map_or(0, |g| g.regions), moves),
            stores: Stores::default(),
            stamps: Stamps::default(),
            destages: Destages::default(),
            switch: Switch::default(),
            sealer: Sealer::default(),
            pass_through: PassThrough::default(),
            startup: Startup::default(),
            stop: Stop::new(),
            missed: None,
            world: World::new(config),
        }
    }

    /// Adds a volume; its number counts up from 0.
    ///
    /// # Panics
    /// After the start, with more than [`VOLUMES_MAX`] volumes, a size that is no multiple of 512, or a priority of 0.
    pub fn attach(&mut self, volume: VolumeConfig) -> Volume {
        self.assert_new("attach");
        assert!(self.world.volumes.len() < VOLUMES_MAX, "too many volumes");
        assert!(volume.size_bytes.is_multiple_of(512), "a volume's size must be a multiple of 512");
        assert!(volume.priority > 0, "a volume's priority must be at least 1");
        for shard in &mut self.world.shards {
            shard.add_volume(volume.priority);
        }
        self.world.volumes.attach(volume, self.world.front.requests.capacity())
    }

    /// The store of this volume keeps a stamp.
    ///
    /// # Panics
    /// After the start.
    pub fn keep_stamps(&mut self, volume: Volume) {
        self.assert_new("keep_stamps");
        self.stamps.keep(volume, self.world.volumes.len());
    }

    /// For a driver without bytes: effects have no memory operands, and the cache requests no checksums. All data
    /// that is read from flash counts as good.
    ///
    /// # Panics
    /// After the start.
    pub fn without_bytes(&mut self) {
        self.assert_new("without_bytes");
        self.world.mode.without_bytes = true;
        self.world.effects.leave_out_segments();
        self.world.log.iter_mut().for_each(Log::without_bytes);
    }

    /// For a driver without bytes whose devices take no time, and that lets everything end before it hands in the
    /// next request: the cache leaves out copies, and fetches that would end before anything else happens. Its
    /// decisions and counters are the same.
    ///
    /// # Panics
    /// After the start.
    pub fn without_time(&mut self) {
        self.assert_new("without_time");
        self.world.mode.instant = true;
        self.world.effects.leave_out_copies();
    }

    /// Opens the flash tier, if there is one; [`Notice::Ready`] or [`Notice::Failed`] follows. An
    /// existing tier must have the [configured geometry](crate::FlashConfig::geometry).
    ///
    /// # Panics
    /// If it was started or stopped before.
    pub fn start(&mut self, now: Nanos, open: Open) {
        assert!(self.world.lifecycle.is_new(), "a cache starts once, and not after a stop");
        self.world.begin_call(now);
        self.world.start_intervals();
        self.world.divide_flash();
        match &mut self.world.log {
            None => {
                self.serve(None);
            }
            Some(log) => {
                self.world.lifecycle.start();
                log.start(self.startup.begin(open, &self.world.volumes));
                self.take_turn();
            }
        }
    }

    /// A request arrives at `request.time`. The driver keeps its buffer, `length` bytes, until the reply;
    /// `id` must not be in use. A bad request is answered like any other, with an error.
    ///
    /// # Panics
    /// Without [`Cache::has_room`], and if `id` is the reserved one, `u64::MAX`.
    pub fn handle_request(&mut self, id: RequestId, request: Request) {
        let Request { time, volume, op, offset, length, .. } = request;
        assert!(id != INTERNAL, "this request number is reserved");
        assert!(self.has_room(), "more requests in flight than the cache was built for");
        self.world.begin_call(time);
        if op == Op::Read
            && !request.is_prefetch()
            && self.missed.take() != Some((volume, offset, length))
            && let Some((frame, at)) = self.world.read_hit(volume, offset, length)
        {
            let from = Place::Frame { frame, offset: at };
            let to = Place::Request { request: id, offset: 0 };
            self.world.effects.push(Effect::Copy { from, to, length: length as u32 });
            self.world.effects.push(Effect::Reply { request: id, result: Ok(()) });
            return;
        }
        let admitted = match self.world.lifecycle.is_ready() {
            true => self.world.admit(id, &request),
            false => Err(IoError::Shutdown),
        };
        match admitted {
            Err(e) => self.world.effects.push(Effect::Reply { request: id, result: Err(e) }),
            Ok(request) if op.modifies() && self.suspended(volume).is_some() => {
                self.world.front.requests[request].error = self.suspended(volume);
                self.world.reply(request);
            }
            Ok(request) if self.world.is_held(op) => self.world.hold(request),
            Ok(request) if op == Op::Flush => self.world.begin_flush(request),
            Ok(request) => {
                self.world.advance(&mut self.stores, &self.cleaner, request);
                self.world.shards[0].count_request();
            }
        }
    }

    /// Answers a read of one block in memory without effects. Returns the frame, and the byte in it
    /// where the data begins; the driver takes it from there at once, instead of performing a copy
    /// and a reply effect. Returns `None` for any other read, after which only the time has passed: hand that in
    /// with [`handle_request`](Cache::handle_request).
    ///
    /// # Panics
    /// Without [`Cache::has_room`].
    #[inline]
    pub fn handle_hit(
        &mut self,
        now: Nanos,
        volume: Volume,
        offset: u64,
        length: u64,
    ) -> Option<(Frame, u32)> {
        assert!(self.has_room(), "more requests in flight than the cache was built for");
        self.world.advance_time(now);
        let hit = self.world.read_hit(volume, offset, length);
        self.missed = hit.is_none().then_some((volume, offset, length));
        hit
    }

    /// A device effect has ended.
    pub fn handle_completion(&mut self, now: Nanos, token: Token, result: Outcome) {
        self.world.begin_call(now);
        match token.owner {
            Owner::Shard(n) => {
                let mut context = shard_context!(self.world);
                self.world.shards[usize::from(n)].handle_completion(
                    &mut context,
                    TransferIndex::new(token.index),
                    result,
                );
            }
            Owner::Log => {
                let log = self.world.log.as_mut().expect("a completion without a log");
                log.handle_completion(token.index, result);
            }
            Owner::Front => {
                self.world.handle_sync(Volume(token.index), result);
            }
        }
        if self.has_work() {
            self.take_turn();
        }
    }

    /// The answer to an [`Effect::Checksum`], given before anything else.
    pub fn handle_checksum(&mut self, token: Token, value: u32) {
        match token.owner {
            Owner::Shard(n) => {
                let mut context = shard_context!(self.world);
                let t = TransferIndex::new(token.index);
                self.world.shards[usize::from(n)].handle_checksum(&mut context, t, value);
            }
            Owner::Log => {
                let log = self.world.log.as_mut().expect("a checksum without a log");
                log.handle_checksum(token.index, value);
            }
            Owner::Front => unreachable!("the front never requests checksums"),
        }
    }

    /// The time of [`Cache::poll_timeout`] has come. Calls before that time do no harm.
    pub fn handle_timeout(&mut self, now: Nanos) {
        self.world.begin_call(now);
        self.note_time();
        self.take_turn();
    }

    /// Procedures that wait for a time learn the time.
    fn note_time(&mut self) {
        self.cleaner.handle_timeout(self.world.now);
        let destage = self.destages.is_under_way();
        self.stores.handle_timeout(&mut self.world, &mut self.cleaner, destage);
        self.pass_through.handle_timeout(&mut self.world);
        self.switch.handle_timeout(&mut self.world);
    }

    /// The next effect, whose memory operands replace the contents of `segments`. Call it until it returns `None`.
    #[inline]
    pub fn poll_effect(&mut self, segments: &mut Vec<Segment>) -> Option<Effect> {
        // A cache that refuses to serve writes nothing: the log, which may have recovered well,
        // would begin an epoch.
        if self.world.lifecycle.has_failed() || self.world.effects.is_empty() && !self.find_effect()
        {
            segments.clear();
            return None;
        }
        match self.world.effects.pop(segments) {
            None => self.world.log.as_mut().and_then(|l| l.poll_effect(segments)),
            effect => effect,
        }
    }

    /// Whether there is an effect, in the queue or in the log, or after another turn.
    fn find_effect(&mut self) -> bool {
        let mut settled = false;
        loop {
            if !self.world.effects.is_empty()
                || self.world.log.as_ref().is_some_and(Log::has_effects)
            {
                return true;
            }
            if settled || !self.has_work() {
                return false;
            }
            // A turn that ends nothing may have started something.
            settled = !self.take_turn();
        }
    }

    /// The next notice. A [`Notice::Stamp`] is an order to the driver, and work waits for its answer; the others say
    /// what has happened.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        (!self.world.notices.is_empty()).then(|| self.world.notices.remove(0))
    }

    /// The bytes of one of the log's metadata buffers.
    ///
    /// # Panics
    /// Without a flash tier; so does [`Cache::meta_mut`].
    pub fn meta(&mut self, buffer: MetaBuffer) -> &[u8] {
        self.world.log.as_mut().expect("metadata without a log").meta(buffer)
    }

    /// The bytes of such a buffer, to be filled when a read completes, before the completion is handed in.
    pub fn meta_mut(&mut self, buffer: MetaBuffer) -> &mut [u8] {
        self.world.log.as_mut().expect("metadata without a log").meta_mut(buffer)
    }

    // ---- orders ----

    /// Carries out an order.
    ///
    /// # Panics
    /// If the order is for a number of blocks of DRAM that the cache cannot use.
    pub fn handle_order(&mut self, now: Nanos, order: Order) {
        self.world.begin_call(now);
        match order {
            Order::Destage if self.world.lifecycle.is_ready() => {
                self.destages.ask(&mut self.world, &mut self.cleaner);
            }
            Order::Destage => {
                let refused = Err(IoError::Shutdown.into());
                self.world.notices.push(Notice::Destaged(refused));
            }
            Order::RetryStores => {
                let destage = self.destages.is_under_way();
                self.stores.retry(&mut self.world, &mut self.cleaner, destage);
            }
            Order::PrepareStop => self.prepare_stop(),
            Order::Stop(target) => self.stop(target),
            Order::SetPolicy(policy, acknowledge) => {
                self.switch.ask(&mut self.world, (policy, acknowledge));
            }
            Order::EndSwitch => self.switch.call_off(&mut self.world),
            Order::SetDramBlocks(blocks) => self.set_dram_blocks(blocks),
            Order::Seal(volumes) => self.seal(volumes),
            Order::Stamp => self.stamps.refresh(&mut self.world),
            Order::EndCompletion => {
                for region in self.stamps.completed() {
                    self.cleaner.push(Work::Reclaim(region));
                }
            }
        }
        self.take_turn();
    }

    fn prepare_stop(&mut self) {
        self.world.lifecycle.announce_stop();
        self.destages.cut(&mut self.cleaner);
        self.consider_giving_up();
        self.stores.review_failing(&mut self.world, &self.cleaner);
    }

    fn stop(&mut self, target: StopTarget) {
        if self.stop.begin(&mut self.world, target) {
            self.destages.cut(&mut self.cleaner);
            self.consider_giving_up();
        }
    }

    fn set_dram_blocks(&mut self, blocks: u32) {
        let most = self.world.config.dram_blocks;
        assert!(blocks <= most, "more DRAM than the cache was built with");
        let shards = u32::from(self.world.config.shards);
        assert!(blocks >= shards, "each shard needs at least one DRAM block");
        for shard in &mut self.world.shards {
            shard.set_dram_blocks(blocks, shards);
        }
    }

    fn seal(&mut self, volumes: Vec<Sealed>) {
        let takes = if self.world.lifecycle.is_ready() {
            self.is_quiet() && self.dirty_blocks() == 0 && !self.world.appends_dirty()
        } else {
            self.stop.is_in_order(&self.world) && !self.sealer.is_under_way()
        };
        if !takes {
            return self.world.notices.push(Notice::Sealed(Err(IoError::Invalid)));
        }
        let stamped = volumes.iter().filter(|v| v.stamp.is_some()).map(|v| v.volume);
        let stamped: Vec<Volume> = stamped.collect();
        self.sealer.begin(&mut self.world, volumes);
        // The headers that go with it are written.
        self.stamps.sealed(&self.world, stamped);
    }

    // ---- stamps ----

    /// The headers of these stores have been written, or could not be.
    ///
    /// # Panics
    /// If no stamp was ordered for one of the stores.
    pub fn handle_stamped(&mut self, now: Nanos, reports: &[StampReport]) {
        self.world.begin_call(now);
        let stamped = self.stamps.note_written(&mut self.world, reports);
        if let Some(released) = stamped.released {
            self.pass_through.released(&mut self.world, released);
        }
        let stopped = self.world.lifecycle.is_stopped();
        if let Some(log) = self.world.log.as_mut().filter(|_| !stopped) {
            log.note_stamps(&stamped.noted);
        }
        let mut others = VolumeSet::EMPTY;
        self.clean(|cleaner, s| {
            let (turn, left) = cleaner.stamped(s, stamped.failed);
            others = left;
            turn
        });
        self.stores.note_unstamped(&mut self.world, others);
        for (volume, since) in stamped.ordered {
            self.stores.note_answered(&mut self.world, volume, Lateness::Headers, since);
        }
        self.take_turn();
    }
}
