//! The heart: a block cache that does no I/O, reads no clock, spawns no thread and holds no
//! bytes.
//!
//! # The contract
//!
//! A [`Cache`] is told what happened and answers with what to do.
//!
//! **In.** [`Cache::attach`] volumes, then [`Cache::start`] once. [`Cache::handle_request`] when
//! a client's request arrives (ask [`Cache::has_room`] first; [`Cache::handle_hit`] is a short way
//! for reads), [`Cache::handle_completion`] when
//! a device effect has ended, [`Cache::handle_checksum`] right after an [`Effect::Checksum`],
//! [`Cache::handle_timeout`] when the time of [`Cache::poll_timeout`] has come, and
//! [`Cache::destage`], [`Cache::set_policy`], [`Cache::set_dram_blocks`] and [`Cache::stop`] as the
//! operator wishes. [`Cache::stamp`] now and then, and [`Cache::stamped`] as the answer to a
//! [`Notice::Stamp`], where stores keep stamps ([`Cache::keep_stamps`]).
//!
//! **Out.** After every call in, [`Cache::poll_effect`] until it gives nothing more: each effect
//! in that order, immediate ones finished before the next call. Then [`Cache::poll_notice`] and
//! [`Cache::poll_timeout`]; the timeout may change with any call.
//!
//! The same calls give the same effects, anywhere. Time is what the caller says and never goes
//! back. Nothing is allocated for a request after start; the work done in one call is bounded
//! (a trim of a terabyte is taken in steps, between which other calls may come).
//!
//! # What a reply means
//!
//! - A read's buffer holds, for each 512-byte sector, a value between the last one durable and
//!   the last one written, and never an older one than was read before.
//! - Under write-through a write's data is on the backing store (durable after a sync of it);
//!   under write-back it is in the log, or in DRAM with
//!   [`Acknowledge::Dram`](crate::Acknowledge::Dram).
//! - FUA: the data is durable. FLUSH: so is every write answered before the flush arrived, on
//!   whatever connection.
//! - An error: the block reads as old or new, and then stays so; dirty data is kept.
//!
//! # Who owns what
//!
//! The *front* has volumes, requests in flight, flushes and syncs. *Shards* have the index, DRAM
//! frames and the state of each block; a block belongs to the shard its extent hashes to.
//! The *log* has everything on flash. None of them calls another but through here or through
//! `ShardContext` (in `shard`).
//!
//! # What is deliberately absent
//!
//! Clocks, threads, locks, files, sockets, randomness, bytes of data.

use forebay_block::{Flags, Nanos, Op, Volume};
use forebay_effect::{
    Effect, Frame, IoError, MetaBuffer, Outcome, Owner, Place, RequestId, Segment, Token,
};
use forebay_flash::{BlockKey, Log, RecoveryReport, Start};
use forebay_replacement::AdmissionKind;

use crate::cleaner::Cleaner;
use crate::config::{CacheConfig, FlashConfig, VolumeConfig};
use crate::control::Switch;
use crate::destage::Destage;
use crate::front::INTERNAL;
use crate::notice::{Notice, Open};
use crate::pass_through::PassThrough;
use crate::place::Relation;
use crate::seal::Sealing;
use crate::stamp::Stamps;
use crate::stores::Stores;
use crate::world::{State, World, around};

/// Most volumes of one cache.
pub const VOLUMES_MAX: usize = 64;

/// The cache. See the module's documentation, which is its contract.
pub struct Cache {
    pub(crate) world: World,
    pub(crate) cleaner: Cleaner,
    /// Stores that fail.
    pub(crate) stores: Stores,
    /// A destage of everything under way.
    pub(crate) destaging: Option<Destage>,
    /// Whether a [`Notice::Destaged`] is wanted at its end, and whether another destage is to follow.
    pub(crate) destage_wanted: bool,
    pub(crate) destage_again: bool,
    /// A change of policy.
    pub(crate) switch: Option<Switch>,
    /// A seal under way.
    pub(crate) sealing: Option<Sealing>,
    /// What becomes of volumes when the log has failed.
    pub(crate) pass: PassThrough,
    /// The stamps of stores.
    pub(crate) stamps: Stamps,
    /// Why the policy of the start does not hold.
    pub(crate) unsettled: Option<IoError>,
    /// At a start: whether all records have a place; blocks whose clean records have no place in the index, and, while they are being
    /// disowned, what recovery found.
    pub(crate) settled: bool,
    pub(crate) disowned: Vec<BlockKey>,
    /// At a start: volumes whose backing stores others have written.
    pub(crate) changed: Vec<u16>,
    /// At a start: volumes whose stores lack what no record that counts has (bits).
    pub(crate) incomplete: u64,
    pub(crate) opened: Option<Box<RecoveryReport>>,
    pub(crate) stop_destages: bool,
    pub(crate) stop_result: Outcome,
}

impl Cache {
    /// A cache without volumes, not started.
    ///
    /// # Panics
    /// If the configuration is impossible (no DRAM block, spare or bounce frame for a shard, no
    /// shard or more than 64, requests that cannot take a step, a relation of the tiers that does not go with
    /// the write policy or the admission policy).
    pub fn new(config: CacheConfig) -> Self {
        assert!(config.shards >= 1 && config.shards <= 64, "1 to 64 shards");
        let steps = 1..=config.request_blocks_max;
        assert!(steps.contains(&config.step_blocks), "a step is 1 to `request_blocks_max` blocks");
        let extents = config.block_size.shift()..=63;
        assert!(extents.contains(&config.extent_shift), "an extent is a block at least");
        let slots = config.flash.as_ref().is_some_and(|f| f.geometry.slots != 0);
        assert!(!slots || config.shards == 1, "the layout slots has one shard");
        let fits = config.relation.check(config.write_policy, config.acknowledge);
        assert!(fits.is_ok(), "{}: {fits:?}", config.relation);
        let alone = config.relation == Relation::Exclusive;
        assert!(alone || config.flash.is_some(), "{} needs flash", config.relation);
        let always = |f: &FlashConfig| f.admission.kind() == AdmissionKind::Always;
        let whole = !config.relation.has_lines() || config.flash.as_ref().is_some_and(always);
        assert!(whole, "a line enters flash as a whole");
        let geometry = config.flash.as_ref().map(|f| f.geometry);
        let moves = geometry.is_some_and(|g| g.slots != 0);
        Cache {
            cleaner: Cleaner::new(geometry.map_or(0, |g| g.regions), moves),
            stores: Stores::default(),
            destaging: None,
            destage_wanted: false,
            destage_again: false,
            switch: None,
            sealing: None,
            pass: PassThrough::default(),
            stamps: Stamps::default(),
            changed: Vec::new(),
            unsettled: None,
            settled: false,
            disowned: Vec::new(),
            incomplete: 0,
            opened: None,
            stop_destages: false,
            stop_result: Ok(()),
            world: World::new(config),
        }
    }

    /// Gives this cache a bug.
    #[cfg(feature = "sabotage")]
    pub fn sabotage(&mut self, sabotage: forebay_flash::sabotage::Sabotage) {
        self.world.front.sabotage = sabotage;
        if let Some(log) = &mut self.world.log {
            log.sabotage(sabotage);
        }
    }

    /// Adds a volume; its number counts up from 0.
    ///
    /// # Panics
    /// With more than [`VOLUMES_MAX`] volumes, a size that is no multiple of 512, or a priority of 0.
    pub fn attach(&mut self, volume: VolumeConfig) -> Volume {
        assert!(self.world.front.volumes.len() < VOLUMES_MAX, "too many volumes");
        assert!(volume.size_bytes.is_multiple_of(512), "a volume's size must be a multiple of 512");
        assert!(volume.priority > 0, "1 is the highest priority");
        for shard in &mut self.world.shards {
            shard.add_volume(volume.priority);
        }
        self.stores.attach();
        self.world.front.attach(volume)
    }

    /// For a driver without bytes: what is read from flash has no checksum to be asked for, and is good.
    pub fn without_bytes(&mut self) {
        self.world.front.without_bytes = true;
    }

    /// For a driver without bytes on whose devices nothing takes time, and that hands in one request at a
    /// time and lets everything end before the next: copies are left out of the effects, and what a
    /// read would only be fetched for, and found at once, is not asked for. What the cache decides and
    /// counts is the same.
    pub fn without_time(&mut self) {
        self.world.front.instant = true;
        self.world.effects.leave_out_bytes();
    }

    /// Opens the flash tier (if there is one); [`Notice::Ready`] or [`Notice::Failed`] follows.
    pub fn start(&mut self, now: Nanos, open: Open) {
        assert!(self.world.state == State::New, "started twice");
        self.world.now = now;
        self.world.start_intervals();
        self.world.divide_flash();
        match &mut self.world.log {
            None => {
                self.serve(None);
            }
            Some(log) => {
                self.world.state = State::Starting;
                log.start(match open {
                    Open::Format { uuid, bindings } => Start::Format { uuid, bindings },
                    Open::Recover { changed, sealed, stores } => {
                        self.changed.clone_from(&changed);
                        Start::Recover { changed, sealed, stores }
                    }
                });
                self.pump();
            }
        }
    }

    /// A request arrives. The driver keeps its buffer, `length` bytes, until the reply; `id`
    /// must not be in use. A bad request is answered like any other, with an error.
    ///
    /// # Panics
    /// Without [`Cache::has_room`].
    #[allow(clippy::too_many_arguments)]
    pub fn handle_request(
        &mut self,
        now: Nanos,
        id: RequestId,
        volume: Volume,
        op: Op,
        flags: Flags,
        offset: u64,
        length: u64,
    ) {
        assert!(id != INTERNAL, "a reserved request number");
        assert!(self.has_room(), "more requests than the cache was built for");
        self.world.pass_time(now);
        if op == Op::Read
            && let Some((frame, at)) = self.world.read_hit(volume, offset, length)
        {
            let from = Place::Frame { frame, offset: at };
            let to = Place::Request { request: id, offset: 0 };
            self.world.effects.push(Effect::Copy { from, to, length: length as u32 });
            self.world.effects.push(Effect::Reply { request: id, result: Ok(()) });
            return;
        }
        let admitted = match self.world.state {
            State::Ready => self.world.front.admit(id, volume, op, flags, offset, length),
            _ => Err(IoError::Shutdown),
        };
        match admitted {
            Err(e) => self.world.effects.push(Effect::Reply { request: id, result: Err(e) }),
            Ok(request) if op.modifies() && self.suspended(volume).is_some() => {
                self.world.front.requests[request].error = self.suspended(volume);
                self.world.front.reply(request, &mut self.world.effects);
            }
            Ok(request) if self.world.is_held(op) => self.world.hold(request),
            Ok(request) if op == Op::Flush => self.world.begin_flush(request),
            Ok(request) => self.world.advance(&mut self.stores, request),
        }
    }

    /// Takes a read as [`handle_request`](Cache::handle_request) does, if it is of one block that
    /// is in memory: then the frame and the byte in it from which the driver is to take the data at
    /// once, in the place of the two effects, copy and reply, that would say so. `None`, with
    /// nothing done, if it is anything else.
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
        assert!(self.has_room(), "more requests than the cache was built for");
        self.world.pass_time(now);
        self.world.read_hit(volume, offset, length)
    }

    /// A device effect has ended.
    pub fn handle_completion(&mut self, now: Nanos, token: Token, result: Outcome) {
        self.world.pass_time(now);
        match token.owner {
            Owner::Shard(n) => {
                let mut around = around!(self.world);
                self.world.shards[usize::from(n)].handle_completion(
                    &mut around,
                    token.index,
                    result,
                );
            }
            Owner::Log => {
                let log = self.world.log.as_mut().expect("a completion for the log");
                log.handle_completion(token.index, result);
            }
            Owner::Front => {
                self.world.front.handle_sync(token.index as u16, result, &mut self.world.effects);
            }
        }
        if self.owes() {
            self.pump();
        }
    }

    /// The answer to an [`Effect::Checksum`], given before anything else.
    pub fn handle_checksum(&mut self, token: Token, value: u32) {
        match token.owner {
            Owner::Shard(n) => {
                let mut around = around!(self.world);
                self.world.shards[usize::from(n)].handle_checksum(&mut around, token.index, value);
            }
            Owner::Log => {
                let log = self.world.log.as_mut().expect("a checksum for the log");
                log.handle_checksum(token.index, value);
            }
            Owner::Front => unreachable!("the front asks for no checksums"),
        }
    }

    /// The time of [`Cache::poll_timeout`] has come (or may have).
    pub fn handle_timeout(&mut self, now: Nanos) {
        self.world.pass_time(now);
        if self.cleaner.retry_at.is_some_and(|at| at <= self.world.now) {
            self.cleaner.retry_at = None;
        }
        self.stores.pass_timeout(&mut self.world, &mut self.cleaner, self.destaging.is_some());
        self.pass_through_timed();
        self.pump();
    }

    /// Has stores that fail tried again now, rather than when it is time.
    pub fn retry_stores(&mut self) {
        self.stores.retry(&mut self.world, &mut self.cleaner, self.destaging.is_some());
        self.pump();
    }

    /// When to call [`Cache::handle_timeout`], if at all.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let due =
            [self.cleaner.retry_at, self.stores.timeout(&self.world), self.pass_through_timeout()];
        due.into_iter().flatten().min()
    }

    /// When what is under way goes on: as [`Cache::poll_timeout`], but for attempts that are made now and
    /// then to go on without a flash tier that has failed.
    pub fn next_step(&self) -> Option<Nanos> {
        let due =
            [self.cleaner.retry_at, self.stores.timeout(&self.world), self.pass_through_limit()];
        due.into_iter().flatten().min()
    }

    /// What to do next; its memory operands replace what `segments` holds. Ask until nothing
    /// comes.
    #[inline]
    pub fn poll_effect(&mut self, segments: &mut Vec<Segment>) -> Option<Effect> {
        // A cache that refuses to serve writes nothing: the log, which may have recovered well,
        // would begin an epoch.
        if self.world.state == State::Failed || self.world.effects.is_empty() && !self.find_effect()
        {
            segments.clear();
            return None;
        }
        match self.world.effects.pop(segments) {
            None => self.world.log.as_mut().and_then(|l| l.poll_effect(segments)),
            effect => effect,
        }
    }

    /// Whether there is an effect, of the log's or as another turn brings it.
    fn find_effect(&mut self) -> bool {
        let mut settled = false;
        loop {
            if !self.world.effects.is_empty()
                || self.world.log.as_ref().is_some_and(Log::has_effects)
            {
                return true;
            }
            if settled || !self.owes() {
                return false;
            }
            // A turn that ends nothing may have started something.
            settled = !self.pump();
        }
    }

    /// What the operator should know.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        (!self.world.notices.is_empty()).then(|| self.world.notices.remove(0))
    }

    /// The bytes of one of the log's metadata buffers.
    pub fn meta(&mut self, buffer: MetaBuffer) -> &[u8] {
        self.world.log.as_mut().expect("metadata without a log").meta(buffer)
    }

    /// The same, to be filled when a read completes, before the completion is handed in.
    pub fn meta_mut(&mut self, buffer: MetaBuffer) -> &mut [u8] {
        self.world.log.as_mut().expect("metadata without a log").meta_mut(buffer)
    }
}
