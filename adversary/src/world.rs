//! The cache with its executor on faulty devices in memory, through several lives.

mod slow_stores;

pub use slow_stores::Silence;

use forebay_block::{Flags, Nanos, Op, PerVolume, Request, Volume};
use forebay_cache::{
    Cache, CacheConfig, DestageError, Notice, Open, Order, PolicyError, Relation, StampReport,
    StoresLeft, VolumeConfig,
};
use forebay_device::choices::Choices;
use forebay_device::memory::{CutStyle, DeviceOptions, Happening, MemoryDevices, PendingIo};
use forebay_device::{AlignedBuffer, Arena, Executor, HugePages, JointSyncs, OwnedRequests, Verb};
use forebay_effect::{Device, IoError, Outcome, RequestId};
use forebay_flash::sabotage::Sabotage;
use forebay_flash::{
    HeaderChange, LogError, RecoveryReport, Stamp, StampNumber, StoreHeader, StoreStamp,
};

use crate::header_syncs::HeaderSyncs;
use crate::lookout::Lookout;
use crate::oracle::WriteId;
use crate::watch::Watch;
use crate::witness::{Digest, Witness};

/// The devices, the cache, and the executor between them.
pub struct World {
    /// Configuration of the cache.
    pub config: CacheConfig,
    /// The volumes of the cache.
    pub volumes: Vec<VolumeConfig>,
    /// The cache of the current life.
    pub cache: Cache,
    /// The executor, which contains the devices.
    pub executor: Executor<JointSyncs<MemoryDevices>>,
    /// Requests with their buffers.
    pub requests: OwnedRequests,
    /// The current time.
    pub now: Nanos,
    /// The slow volume, if any: other devices complete many operations for each operation of its
    /// store.
    pub late: Option<Volume>,
    /// The volumes whose stores hang. They answer reads: a read holds memory, for which other volumes may have to wait.
    pub hung: Vec<(Volume, Silence)>,
    /// How often a cleaning has continued while a store hung, for each way to hang.
    pub left_hung: [u64; Silence::ALL.len()],
    /// Reads published blocks without calls to the cache.
    pub lookout: Lookout,
    /// Number of replies that were taken.
    heard: u64,
    /// A digest of all effects and completions so far.
    pub digest: Digest,
    /// What the last start found, or why it was refused.
    pub found: Found,
    /// Whether the log had a spare region when the start ended, which moves of mappings may rely
    /// on.
    has_room_for_moves: bool,
    sabotage: Sabotage,
    next_request: u64,
    /// Number of block accesses by requests of this life.
    accesses: u64,
    notices: Vec<Notice>,
    /// Number of the next write; smaller numbers belong to earlier writes.
    pub next_version: WriteId,
    /// Keeps an account of what is durable on flash, if enabled.
    pub watch: Option<Watch>,
    watched: bool,
    /// For each volume, the header of its store, if stores have headers.
    pub headers: Vec<StoreHeader>,
    /// For each volume, the number of the newest stamp that was reported to the cache in this life.
    pub answered: PerVolume<StampNumber>,
    /// Stamps that were ordered but are not in the headers yet.
    ordered: Vec<(Volume, Stamp, bool)>,
    /// Whether writes of headers fail occasionally.
    pub header_faults: bool,
    header_syncs: HeaderSyncs,
    happenings: Vec<Happening>,
    /// Receives a line for each device operation that completes.
    pub trace: Option<fn(&str)>,
}

/// What a start found on flash.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Found {
    /// No flash tier, or no start has ended yet.
    #[default]
    Nothing,
    /// The log was opened.
    Log(Box<RecoveryReport>),
    /// The log was not opened.
    Refused(LogError),
}

/// How an attempt to start ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Started {
    /// The cache serves.
    Ready,
    /// The cache refused to start; contains the reason.
    Refused(String),
    /// The start has not ended yet.
    NotYet,
}

impl World {
    /// Creates a world with new devices.
    pub fn new(
        config: CacheConfig,
        volumes: Vec<VolumeConfig>,
        flash: Option<DeviceOptions>,
        backing: impl Fn(u64) -> DeviceOptions,
        seed: u64,
    ) -> World {
        let mut devices = MemoryDevices::new(seed);
        if let Some(options) = flash {
            devices.add(Device::Flash, options);
        }
        for (i, v) in volumes.iter().enumerate() {
            devices.add(Device::Backing(Volume(i as u32)), backing(v.size_bytes));
        }
        let arena = arena(&config);
        World {
            cache: fresh(&config, &volumes),
            executor: Executor::new(JointSyncs::new(devices), arena),
            requests: OwnedRequests::default(),
            now: Nanos(0),
            late: None,
            hung: Vec::new(),
            left_hung: [0; Silence::ALL.len()],
            lookout: Lookout::default(),
            heard: 0,
            digest: Digest::default(),
            found: Found::Nothing,
            has_room_for_moves: false,
            sabotage: Sabotage::NONE,
            accesses: 0,
            next_request: 1,
            notices: Vec::new(),
            next_version: 1,
            watch: None,
            watched: false,
            headers: Vec::new(),
            answered: PerVolume::EMPTY,
            ordered: Vec::new(),
            header_faults: false,
            header_syncs: HeaderSyncs::default(),
            happenings: Vec::new(),
            trace: None,
            config,
            volumes,
        }
    }

    /// Plants a bug in this cache and in all later ones.
    pub fn give_bug(&mut self, sabotage: Sabotage) {
        self.sabotage = sabotage;
        self.cache.sabotage(sabotage);
    }

    /// From now on, every life has a [`Watch`] if there is flash.
    pub fn keep_watch(&mut self) {
        self.watched = true;
        self.executor.devices_mut().observe();
        self.begin_watch();
    }

    fn begin_watch(&mut self) {
        if let (true, Some(flash)) = (self.watched, &self.config.flash) {
            self.executor.devices_mut().take_happenings(&mut self.happenings);
            self.watch = Some(Watch::new(flash.geometry, self.next_version));
        }
    }

    /// Shows the watch what happened on the devices.
    fn observe(&mut self) {
        let Some(watch) = &mut self.watch else { return };
        self.header_syncs.excuse_failing(&self.cache, watch);
        let devices = self.executor.devices_mut();
        devices.take_happenings(&mut self.happenings);
        // Data that flash has lost may be written from memory in its current version.
        let checked = self.cache.config().write_policy.write_back
            && self.cache.stats().destaged_after_loss == 0;
        // If the log has failed or has no space, data that was never on flash is written to the
        // stores. So is data that is not admitted to flash.
        let stats = self.cache.stats();
        let past = self.cache.has_given_up()
            || stats.bypassed_log > 0
            || stats.written_around + stats.destaged_around + stats.bypassed_writes > 0;
        for happening in self.happenings.drain(..) {
            if let (Some(trace), Happening::Harmed { .. }) = (self.trace, &happening) {
                trace(&format!("  {happening:?}"));
            }
            match &happening {
                Happening::Submitted { io, .. } | Happening::Completed { io, .. }
                    if io.device == Device::Flash =>
                {
                    watch.see_flash(&happening);
                }
                Happening::Harmed { device: Device::Flash, .. } => watch.see_flash(&happening),
                Happening::Submitted { io, .. } | Happening::Completed { io, .. }
                    if matches!(io.verb, Verb::WriteZeroes { .. } | Verb::Sync) =>
                {
                    // A log that has failed or was given up records nothing. A store that is also
                    // rolled back after that is a second fault.
                    let noted = !self.cache.has_given_up();
                    watch.see_backing_zeroes(&happening, noted);
                }
                Happening::Submitted { io, data } if checked && io.verb == Verb::Write => {
                    let Device::Backing(volume) = io.device else { continue };
                    if self.cache.passes_through(volume) {
                        // The records of this volume on flash are void.
                        continue;
                    }
                    let header = self.headers.get(volume.0 as usize);
                    let held = &devices.contents(io.device)[io.offset as usize..];
                    watch.see_backing_write(
                        io,
                        data,
                        &held[..data.len()],
                        header.map(|h| h.stamp.seen),
                        (past, !self.cache.has_given_up()),
                    );
                }
                _ => {}
            }
        }
    }

    /// The first violation that was found.
    pub fn breach(&self) -> Option<&str> {
        if self.cache.accesses_told() > self.accesses {
            return Some("the replacement policy was notified of more accesses than occurred");
        }
        if self.has_room_for_moves && self.cache.stats().regions_dropped > 0 {
            return Some("something else took the room reserved for moving mappings");
        }
        let wrong = self.evicted_endlessly().or_else(|| self.placed_wrongly());
        wrong.or(self.watch.as_ref()?.breach.as_deref())
    }

    /// Returns a violation if an eviction took more steps than its policy allows: the hand of CLOCK,
    /// SIEVE and S3-FIFO may pass as many blocks as its parameter says; other policies may take at
    /// most a fixed number of steps.
    fn evicted_endlessly(&self) -> Option<&str> {
        const OTHERS_MAX: u64 = 256;
        let took = self.cache.eviction_steps_most();
        if took == [0; 2] {
            return None;
        }
        let config = self.cache.config();
        let slots = config.flash.as_ref().and_then(|flash| flash.slots());
        let cells = slots.map(|slots| slots.cells).unwrap_or_default();
        let bounds = [config.replacement, cells]
            .map(|policy| policy.get("hand_steps_max").map_or(OTHERS_MAX, u64::from));
        let endless = took.iter().zip(bounds).any(|(&took, bound)| took > bound);
        endless.then_some("an eviction took more steps than its policy allows")
    }

    /// Returns a violation if there are blocks where the relation of the tiers allows none.
    fn placed_wrongly(&self) -> Option<&str> {
        let stats = self.cache.stats();
        // Blocks that flash does not accept stay in memory.
        let taken = stats.transfer_errors == 0 && stats.appends_refused == 0;
        match self.cache.config().relation {
            Relation::Eci if taken && self.cache.resident_blocks() > 0 => {
                Some("memory keeps a block that the relation allows there only in transit")
            }
            Relation::EticaNpe | Relation::Etica if stats.demotions > 0 => {
                Some("a clean block left memory for flash, which admits only written blocks")
            }
            _ => None,
        }
    }

    /// Gives stores headers, in which they keep stamps. Call this before the first start.
    pub fn keep_stamps(&mut self) {
        self.headers = vec![StoreHeader::default(); self.volumes.len()];
        self.answered = PerVolume::filled(StampNumber::NONE, self.volumes.len());
        self.cache = self.fresh();
        self.header_syncs = HeaderSyncs::join(self.headers.len(), self.executor.devices_mut());
    }

    fn fresh(&self) -> Cache {
        let mut cache = fresh(&self.config, &self.volumes);
        (0..self.headers.len() as u32).for_each(|v| cache.keep_stamps(Volume(v)));
        cache
    }

    /// The stamps in the headers, for a start.
    pub fn store_stamps(&self) -> Vec<StoreStamp> {
        let headers = self.headers.iter().enumerate();
        headers.map(|(index, header)| header.store_stamp(Volume(index as u32))).collect()
    }

    /// Changes the headers of all stores.
    pub fn write_headers(&mut self, change: impl Fn(&StoreHeader) -> HeaderChange) {
        self.headers.iter_mut().for_each(|header| *header = header.after(&change(header)));
    }

    /// Writes an ordered stamp to its header.
    fn write_stamp(&mut self, volume: Volume, stamp: Stamp, release: bool) {
        let header = &mut self.headers[volume.index()];
        *header = header.after(&HeaderChange::Stamp { stamp, release });
    }

    /// Writes some of the ordered stamps, or fails to; returns whether any had been ordered.
    pub fn write_stamps(&mut self, choices: &mut dyn Choices) -> bool {
        let mut reports = Vec::new();
        if self.ordered.is_empty() {
            return false;
        }
        // In any order; the stamp of a slow store comes last.
        self.ordered.sort_by_key(|(volume, ..)| Some(*volume) == self.late);
        let others = self.ordered.len() - 1;
        let some = match others {
            0 => 1,
            _ => 1 + choices.choose(1 + others as u64) as usize,
        };
        for (volume, stamp, release) in self.ordered.drain(..some).collect::<Vec<_>>() {
            let fails = self.header_faults && choices.one_in(4);
            if fails && choices.choose(2) == 1 {
                self.header_syncs.fail(volume, self.executor.devices_mut());
            }
            // A failed write may have reached the header.
            if !fails || choices.choose(2) == 1 {
                self.write_stamp(volume, stamp, release);
            }
            let number = self.headers[volume.index()].stamp_number;
            let result = if fails { Err(IoError::Device) } else { Ok(number) };
            reports.push(StampReport { volume, result });
        }
        for &StampReport { volume, result } in &reports {
            let Ok(number) = result else { continue };
            self.answered[volume] = number;
            self.watch.iter_mut().for_each(|watch| watch.see_stamp(volume));
        }
        self.cache.handle_stamped(self.now, &reports);
        if let Some(watch) = &mut self.watch {
            self.header_syncs.excuse_failing(&self.cache, watch);
        }
        self.run();
        true
    }

    /// Takes over the headers of another world whose power is cut.
    pub fn copy_headers(&mut self, world: &World, choices: &mut dyn Choices) {
        (self.headers, self.ordered) = (world.headers.clone(), world.ordered.clone());
        self.settle_headers(choices);
    }

    /// The process ends: each ordered stamp may or may not have reached its header.
    pub fn settle_headers(&mut self, choices: &mut dyn Choices) {
        for (volume, stamp, release) in std::mem::take(&mut self.ordered) {
            if choices.choose(2) == 1 {
                self.write_stamp(volume, stamp, release);
            }
        }
        self.headers.iter_mut().for_each(|header| *header = header.found_again());
    }

    /// Collects the stamps that the cache has ordered.
    fn take_orders(&mut self) {
        if self.headers.is_empty() {
            return;
        }
        let ordered = self.heard(|notice| match notice {
            Notice::Stamp { stamps, release } => {
                Some(stamps.iter().map(|&(v, s)| (v, s, *release)).collect::<Vec<_>>())
            }
            _ => None,
        });
        for (volume, stamp, release) in ordered.into_iter().flatten() {
            let device = Device::Backing(volume);
            if let Some(watch) = &mut self.watch {
                watch.see_order(volume, stamp, self.executor.devices().durable(device));
            }
            self.ordered.push((volume, stamp, release));
        }
    }

    /// Begins a start of the cache.
    pub fn start(&mut self, open: Open) {
        self.cache.start(self.now, open);
        self.run();
    }

    /// Starts the cache, and completes the operations that the start needs, in any order.
    pub fn start_whole(&mut self, open: Open, choices: &mut dyn Choices) -> Started {
        self.start(open);
        loop {
            match self.started() {
                Started::NotYet => {}
                other => return other,
            }
            if !self.complete_one(choices) {
                return Started::Refused("the start ended without a result".into());
            }
        }
    }

    /// The state of the start.
    pub fn started(&mut self) -> Started {
        self.collect();
        let notice =
            self.notices.iter().position(|n| matches!(n, Notice::Ready(_) | Notice::Failed(_)));
        match notice.map(|i| self.notices.remove(i)) {
            Some(Notice::Ready(report)) => {
                self.found = report.map_or(Found::Nothing, Found::Log);
                // Several crashes in a row may have filled the last region.
                let free = self.cache.log_stats().is_some_and(|log| log.regions_free > 0);
                self.has_room_for_moves = free && self.cache.stats().regions_dropped == 0;
                Started::Ready
            }
            Some(Notice::Failed(e)) => {
                let why = e.to_string();
                self.found = Found::Refused(e);
                Started::Refused(why)
            }
            _ => Started::NotYet,
        }
    }

    /// A write that a device has not completed, if there is one.
    pub fn write_in_flight(&self) -> Option<PendingIo> {
        let devices = self.executor.devices();
        let mut pending = (0..devices.pending()).filter_map(|n| devices.pending_io(n));
        pending.find(|io| matches!(io.verb, Verb::Write | Verb::WriteZeroes { .. }))
    }

    /// A write that a backing store has not completed, if there is one.
    pub fn store_write_in_flight(&self) -> Option<PendingIo> {
        let devices = self.executor.devices();
        let mut pending = (0..devices.pending()).filter_map(|n| devices.pending_io(n));
        let writes = |io: &PendingIo| matches!(io.verb, Verb::Write | Verb::WriteZeroes { .. });
        pending.find(|io| io.device != Device::Flash && writes(io))
    }

    fn collect(&mut self) {
        while let Some(n) = self.cache.poll_notice() {
            self.notices.push(n);
        }
    }

    /// The result of a stop, once available.
    pub fn stopped(&mut self) -> Option<Result<StoresLeft, DestageError>> {
        self.heard(|notice| match notice {
            Notice::Stopped(result) => Some(*result),
            _ => None,
        })
    }

    /// The result of a destage, once available.
    pub fn destaged(&mut self) -> Option<Result<(), DestageError>> {
        self.heard(|notice| match notice {
            Notice::Destaged(result) => Some(*result),
            _ => None,
        })
    }

    /// The result of a seal, once available.
    pub fn sealed(&mut self) -> Option<Outcome> {
        self.heard(|notice| match notice {
            Notice::Sealed(result) => Some(*result),
            _ => None,
        })
    }

    /// The result of a change of the policy, once available.
    pub fn policy_set(&mut self) -> Option<Result<(), PolicyError>> {
        self.heard(|notice| match notice {
            Notice::PolicySet(result) => Some(*result),
            _ => None,
        })
    }

    /// Removes and returns the first notice that `which` recognises.
    fn heard<T>(&mut self, which: impl Fn(&Notice) -> Option<T>) -> Option<T> {
        self.collect();
        let (i, heard) = self.notices.iter().enumerate().find_map(|(i, n)| Some((i, which(n)?)))?;
        self.notices.remove(i);
        Some(heard)
    }

    /// Gives an order, and performs what can be performed now.
    pub fn order(&mut self, order: Order) {
        self.cache.handle_order(self.now, order);
        self.run();
    }

    /// Performs all effects that can be performed now.
    pub fn run(&mut self) {
        let mut witness = Witness {
            cache: &mut self.cache,
            digest: &mut self.digest,
            lookout: &mut self.lookout,
            published: self.executor.published(),
        };
        while self.executor.run(&mut witness, &mut self.requests).more {}
        self.cache.check_requests();
        self.cache.check_turns();
        self.cache.check_blocks();
        for (volume, offset) in self.lookout.watched() {
            if let Some((key, frame)) = self.cache.publish(volume, offset) {
                self.executor.publish(key, frame);
            }
        }
        self.observe();
        self.take_orders();
    }

    /// Completes one device operation; if none is in flight, advances the time to the next timeout.
    /// Returns false if there is nothing to wait for.
    pub fn complete_one(&mut self, choices: &mut dyn Choices) -> bool {
        let before: Vec<_> = match self.trace {
            Some(_) => (0..self.executor.devices().pending())
                .filter_map(|i| self.executor.devices().pending_io(i))
                .collect(),
            None => Vec::new(),
        };
        if !self.hung.is_empty() {
            return self.complete_beside_hung(choices);
        }
        let stamping = !self.ordered.is_empty();
        let late = self.ordered.iter().all(|(volume, ..)| Some(*volume) == self.late);
        if stamping && choices.choose(if late { 64 } else { 4 }) == 3 {
            return self.write_stamps(choices);
        }
        let completed = match self.late {
            Some(late) => match self.complete_beside(late, choices) {
                Some(completed) => completed,
                None => return true,
            },
            None => self.executor.devices_mut().complete_any(choices),
        };
        if completed {
            if let Some(trace) = self.trace {
                let after: Vec<_> = (0..self.executor.devices().pending())
                    .filter_map(|i| self.executor.devices().pending_io(i))
                    .collect();
                let gone = before.iter().find(|b| after.iter().all(|a| a.number != b.number));
                trace(&format!("  done {gone:?}"));
            }
            self.run();
            return true;
        }
        if self.write_stamps(choices) {
            return true;
        }
        self.pass_time()
    }

    /// Advances the time to the next timeout; returns whether there is one.
    fn pass_time(&mut self) -> bool {
        let Some(at) = self.cache.poll_timeout() else { return false };
        self.now = self.now.max(at);
        self.cache.handle_timeout(self.now);
        self.run();
        let due = self.cache.poll_timeout().filter(|_| !self.cache.is_half_way());
        assert!(due.is_none_or(|at| at > self.now), "a timeout is due again after it was handled");
        true
    }

    /// Submits a request; `fill` fills its buffer.
    pub fn submit(
        &mut self,
        volume: u32,
        op: Op,
        flags: Flags,
        offset: u64,
        length: u64,
        fill: impl FnOnce(&mut [u8]),
    ) -> RequestId {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let block = self.config.block_size.bytes();
        self.accesses += (offset + length).div_ceil(block) - offset / block;
        let bytes = if matches!(op, Op::Read | Op::Write) { length as usize } else { 0 };
        fill(self.requests.open(id, bytes));
        if self.config.replacement.get("interval_ms").is_some() {
            // Time passes, so that the policy's intervals end.
            self.now = self.now.saturating_add(Nanos(300_000));
        }
        for (volume, at) in self.lookout.take_unreported() {
            self.accesses += 1;
            self.cache.note_hit(self.now, volume, at, block);
        }
        if op == Op::Read {
            self.lookout.watch(Volume(volume), offset, block);
        }
        let (time, volume) = (self.now, Volume(volume));
        self.cache.handle_request(id, Request { time, volume, op, flags, offset, length });
        self.run();
        id
    }

    /// Takes the replies with their data, whose memory may be returned (see
    /// [`OwnedRequests::put_back`]).
    pub fn replies(&mut self) -> Vec<(RequestId, Outcome, AlignedBuffer)> {
        let replies = self.requests.take_replies();
        self.heard += replies.len() as u64;
        replies
            .into_iter()
            .map(|(id, result)| {
                let data = self.requests.take_data(id).expect("a reply to a request that was open");
                (id, result, data)
            })
            .collect()
    }

    /// Allows or prevents reads of published blocks without calls.
    pub fn let_read(&mut self, open: bool) {
        self.executor.published().iter().for_each(|published| published.set_open(open));
    }

    /// Replies that [`replies`](World::replies) has given so far.
    pub fn replies_given(&self) -> u64 {
        self.heard
    }

    /// Cuts the power: memory is lost, and devices keep what a power cut may leave.
    pub fn power_cut(&mut self, style: CutStyle, choices: &mut dyn Choices) {
        self.executor.devices_mut().power_cut(style, choices);
        self.settle_headers(choices);
        self.reboot(self.config.clone());
    }

    /// Kills the process: memory is lost, and devices keep their power. Operations in flight may or
    /// may not be carried out.
    pub fn kill(&mut self, choices: &mut dyn Choices) {
        let devices = self.executor.devices_mut();
        while devices.pending() > 0 && !choices.one_in(4) {
            devices.complete_any(choices);
        }
        self.settle_headers(choices);
        self.reboot(self.config.clone());
    }

    /// Starts a new process on the same devices, possibly with another configuration.
    pub fn reboot(&mut self, config: CacheConfig) {
        self.executor.reset();
        self.executor.scribble(0xDB);
        self.requests.clear();
        self.lookout.forget();
        self.heard = self.lookout.replies();
        self.notices.clear();
        if config.frames() != self.config.frames() {
            let old = std::mem::replace(
                &mut self.executor,
                Executor::new(JointSyncs::new(MemoryDevices::new(0)), arena(&config)),
            );
            self.executor = Executor::new(old.into_devices(), arena(&config));
        }
        self.config = config;
        self.headers.iter_mut().for_each(|header| *header = header.found_again());
        self.ordered.clear();
        self.accesses = 0;
        self.answered = PerVolume::filled(StampNumber::NONE, self.headers.len());
        self.cache = self.fresh();
        self.header_syncs = HeaderSyncs::join(self.headers.len(), self.executor.devices_mut());
        self.has_room_for_moves = false;
        self.give_bug(self.sabotage);
        self.begin_watch();
    }
}

fn arena(config: &CacheConfig) -> Arena {
    let bytes = config.block_size.bytes() as u32;
    // Spare frames, so that frames are lent to answer reads, and writes meet lent frames.
    Arena::lending(config.frames(), bytes, HugePages::Never, LENT_MAX)
        .expect("memory for the frames")
}

fn fresh(config: &CacheConfig, volumes: &[VolumeConfig]) -> Cache {
    let mut cache = Cache::new(config.clone());
    for &v in volumes {
        cache.attach(v);
    }
    cache
}

/// Maximum number of frames that can be lent at a time.
const LENT_MAX: u32 = 6;

/// Whether the error is one that requests may get when devices fail.
pub fn is_device_error(e: IoError) -> bool {
    matches!(e, IoError::Device | IoError::NoSpace | IoError::Corrupt)
}
