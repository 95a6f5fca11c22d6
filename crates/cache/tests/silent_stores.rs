//! A store that does not answer: other volumes are written as if it were not there, and nothing counts as clean
//! that it has not taken.
//!
//! Method: two volumes on flash or more, in virtual time, with and without stamps in the headers of their stores. From
//! some moment on, the stores of all but the last take no writes, end no syncs, or take no headers; later they answer
//! all that they owe. A header is written and then synced, so a store that hangs in writes or syncs takes no headers
//! either.

use std::collections::BTreeSet;

use forebay_block::{Nanos, Op, Request, Volume};
use forebay_cache::{
    Acknowledge, Cache, CacheConfig, DestageError, Notice, Order, StampReport, VolumeConfig,
    WritePolicy,
};
use forebay_effect::{Device, Effect, IoError, Outcome, RequestId};
use forebay_flash::{SEAL_BYTES, Sealed, StampNumber};

use crate::driver::{BLOCK, Driver, with_flash, with_slots};

const SECOND: u64 = 1_000_000_000;
const SILENT: Volume = Volume(0);

/// What a silent store does not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Silence {
    Nothing,
    Writes,
    Syncs,
    Headers,
    All,
}

struct World {
    d: Driver,
    /// The volume whose store works.
    healthy: Volume,
    /// What the stores of all other volumes do not answer.
    silence: Silence,
    /// Volumes whose headers are being written.
    stamping: BTreeSet<Volume>,
    /// The number of the last stamp.
    stamp: StampNumber,
    requests: u64,
    /// How destages of everything have ended.
    destaged: Vec<Result<(), DestageError>>,
    /// How the last seal has ended.
    sealed: Option<Outcome>,
}

fn log() -> CacheConfig {
    with_flash(WritePolicy::WRITE_BACK, Acknowledge::Flash)
}

impl World {
    /// If `stamped`, all stores keep stamps.
    fn new(config: CacheConfig, volumes: u32, stamped: bool) -> World {
        let mut cache = Cache::new(config);
        for _ in 0..volumes {
            let volume = cache.attach(VolumeConfig::new(64 * BLOCK));
            if stamped {
                cache.keep_stamps(volume);
            }
        }
        let (d, stamping, stamp) = (Driver::start(cache), BTreeSet::new(), StampNumber::NONE);
        let healthy = Volume(volumes - 1);
        let silence = Silence::Nothing;
        World {
            d,
            healthy,
            silence,
            stamping,
            stamp,
            requests: 0,
            destaged: Vec::new(),
            sealed: None,
        }
    }

    fn others(&self) -> impl Iterator<Item = Volume> + use<> {
        (0..self.healthy.0).map(Volume)
    }

    /// Writes the header of one store, if any waits that does not hang.
    fn write_header(&mut self) -> bool {
        while let Some(notice) = self.d.cache.poll_notice() {
            match notice {
                Notice::Stamp { stamps, .. } => {
                    self.stamping.extend(stamps.into_iter().map(|(volume, _)| volume));
                }
                Notice::Destaged(result) => self.destaged.push(result),
                Notice::Sealed(result) => self.sealed = Some(result),
                _ => {}
            }
        }
        let (silence, healthy) = (self.silence, self.healthy);
        let answers = |&volume: &Volume| volume == healthy || silence == Silence::Nothing;
        let Some(volume) = self.stamping.iter().copied().find(answers) else { return false };
        self.stamping.remove(&volume);
        self.report_stamp(volume);
        self.d.poll();
        true
    }

    fn now(&self) -> Nanos {
        Nanos(self.d.next)
    }

    /// Ends all that devices do, except for what the silent store does not answer.
    fn settle(&mut self) {
        let (silence, healthy) = (self.silence, self.healthy);
        let answers = |effect: &Effect| match *effect {
            Effect::Write { device: Device::Backing(volume), .. } => {
                volume == healthy || !matches!(silence, Silence::Writes | Silence::All)
            }
            Effect::Sync { device: Device::Backing(volume), .. } => {
                volume == healthy || !matches!(silence, Silence::Syncs | Silence::All)
            }
            _ => true,
        };
        loop {
            while let Some(at) = self.d.pending.iter().position(|(effect, _)| answers(effect)) {
                let token = self.d.pending.remove(at).0.token().expect("a device effect");
                self.d.cache.handle_completion(self.now(), token, Ok(()));
                self.d.poll();
            }
            if !self.write_header() {
                break;
            }
        }
    }

    /// A silent store ends one operation, or the write of its header, if it has any.
    fn answer_one(&mut self) {
        let healthy = self.healthy;
        let silent = |effect: &Effect| match *effect {
            Effect::Write { device: Device::Backing(volume), .. }
            | Effect::Sync { device: Device::Backing(volume), .. } => volume != healthy,
            _ => false,
        };
        if let Some(at) = self.d.pending.iter().position(|(effect, _)| silent(effect)) {
            let token = self.d.pending.remove(at).0.token().expect("a device effect");
            self.d.cache.handle_completion(self.now(), token, Ok(()));
        } else if let Some(volume) = self.stamping.pop_first() {
            self.report_stamp(volume);
        }
        self.d.poll();
        self.settle();
    }

    fn report_stamp(&mut self, volume: Volume) {
        self.stamp = StampNumber(self.stamp.0 + 1);
        let report = StampReport { volume, result: Ok(self.stamp) };
        self.d.cache.handle_stamped(self.now(), &[report]);
    }

    /// Fails what a silent store has not answered: the write of its header and its syncs.
    fn fail_silent(&mut self) {
        let error = IoError::Device;
        if self.stamping.remove(&SILENT) {
            let report = StampReport { volume: SILENT, result: Err(error) };
            self.d.cache.handle_stamped(self.now(), &[report]);
        }
        let is_sync = |effect: &Effect| match *effect {
            Effect::Sync { device, .. } => device == Device::Backing(SILENT),
            _ => false,
        };
        while let Some(at) = self.d.pending.iter().position(|(effect, _)| is_sync(effect)) {
            let token = self.d.pending.remove(at).0.token().expect("a device effect");
            self.d.cache.handle_completion(self.now(), token, Err(error));
        }
        self.d.poll();
        self.settle();
    }

    fn write(&mut self, volume: Volume, block: u64) -> u64 {
        self.request(volume, Op::Write, block * BLOCK, BLOCK)
    }

    fn request(&mut self, volume: Volume, op: Op, offset: u64, length: u64) -> u64 {
        self.requests += 1;
        let request = Request::new(self.now(), volume, op, offset, length);
        self.d.cache.handle_request(RequestId(self.requests), request);
        self.d.poll();
        self.settle();
        self.requests
    }

    /// Lets time pass, timeout by timeout.
    fn wait(&mut self, nanos: u64) {
        let until = self.d.next + nanos;
        while let Some(at) = self.d.cache.poll_timeout().filter(|at| at.0 <= until) {
            self.d.next = self.d.next.max(at.0);
            self.d.cache.handle_timeout(self.now());
            self.d.poll();
            self.settle();
        }
        self.d.next = until;
    }

    fn destage(&mut self) {
        self.d.order(Order::Destage);
        self.settle();
    }

    /// Writes many blocks of the healthy volume; returns for how long these writes have waited in all.
    fn write_healthy(&mut self, count: u64) -> Result<u64, String> {
        self.write_healthy_within(count, 30 * SECOND)
    }

    /// See [`World::write_healthy`]; fails if the writes wait for longer than this.
    fn write_healthy_within(&mut self, count: u64, most: u64) -> Result<u64, String> {
        let mut waited = 0;
        for n in 0..count {
            let id = self.write(self.healthy, n % 60);
            while self.d.reply_to(id).is_none() {
                waited += SECOND / 10;
                self.wait(SECOND / 10);
                if waited > most {
                    return Err(format!("write {n} waits: {}", self.d.cache.describe()));
                }
            }
            assert_eq!(self.d.reply_to(id), Some(Ok(())), "write {n}");
        }
        Ok(waited)
    }

    fn dirty(&self, volume: Volume) -> u64 {
        self.d.cache.volume_stats(volume).expect("it is attached").dirty_blocks
    }

    /// The store answers all that it owes, and takes all that is dirty.
    fn recover(&mut self) {
        self.silence = Silence::Nothing;
        self.settle();
        self.wait(30 * SECOND);
        self.destage();
        assert!((0..=self.healthy.0).all(|volume| self.dirty(Volume(volume)) == 0));
        // Nothing that was put off while the store hung keeps a seal from ending.
        self.sealed = None;
        let (seal, distrust, stamp) = ([1; SEAL_BYTES], false, None);
        let volume = Sealed { volume: SILENT, seal, distrust, stamp };
        self.d.order(Order::Seal(vec![volume]));
        self.settle();
        self.wait(SECOND);
        assert_eq!(self.sealed, Some(Ok(())), "{}", self.d.cache.describe());
    }
}

/// Each layout, after no store was written, or all, or all by a destage of everything.
fn cases(stamped: bool) -> Vec<(String, World)> {
    let mut cases = Vec::new();
    for (name, config) in [("log", log as fn() -> CacheConfig), ("slots", with_slots)] {
        for (before, writes) in [("nothing", 0), ("cleanings", 200), ("destage", 4)] {
            for volumes in [2, 3, 5] {
                let mut world = World::new(config(), volumes, stamped);
                for n in 0..writes {
                    world.write(Volume(n as u32 % volumes), n / u64::from(volumes) % 60);
                    world.wait(SECOND);
                }
                if before == "destage" {
                    world.destage();
                }
                let case = format!("{name}, {before}, {volumes} volumes, stamped: {stamped}");
                cases.push((case, world));
            }
        }
    }
    cases
}

/// Goal: blocks in memory that are being written to a store that hangs leave the other frames to other volumes. Method:
/// more of them than spare frames, while the records in the log are destaged; then more blocks of the other volume
/// than memory holds.
#[test]
fn blocks_in_memory_that_a_store_does_not_take_leave_frames_for_other_volumes() {
    for dram_blocks in [8, 16] {
        let config = CacheConfig {
            flash: log().flash,
            acknowledge: Acknowledge::Flash,
            ..CacheConfig::dram_only(dram_blocks)
        };
        let mut world = World::new(config, 2, false);
        world.silence = Silence::Writes;
        (0..5).for_each(|block| _ = world.write(SILENT, block));
        while world.d.cache.stats().cleanings_parted == 0 {
            let id = world.write(world.healthy, 0);
            while world.d.reply_to(id).is_none() {
                world.wait(SECOND / 10);
            }
        }
        assert_eq!(world.write_healthy(200).map(|waited| waited > 5 * SECOND), Ok(false));
        assert!(world.dirty(SILENT) > 0);
        world.recover();
    }
}

/// Does not return if other volumes are delayed by a store that does not answer this.
fn check_delays(silence: Silence) {
    let mut bad = Vec::new();
    let plain = if silence == Silence::Headers { Vec::new() } else { cases(false) };
    for (case, mut world) in plain.into_iter().chain(cases(true)) {
        // Cleanings find stores that hang one after another, if these have no records in the same region.
        let limit = 5 * SECOND * u64::from(world.healthy.0);
        for time in ["once", "again"] {
            world.silence = silence;
            for block in 0..12 {
                world.others().for_each(|volume| _ = world.write(volume, block));
                world.write(world.healthy, block);
            }
            match world.write_healthy(600) {
                Ok(waited) if waited > limit => bad.push(format!("{case}, {time}: {waited}")),
                Ok(_) => {
                    assert!(world.dirty(SILENT) > 0, "{case}: what it has not taken is not clean");
                    world.recover();
                }
                Err(_) => {
                    bad.push(format!("{case}, {time}: no end"));
                    break;
                }
            }
        }
    }
    assert_eq!(bad, Vec::<String>::new());
}

#[test]
fn a_store_that_takes_no_writes_delays_no_other_volume_for_long() {
    check_delays(Silence::Writes);
}

#[test]
fn a_store_that_ends_no_sync_delays_no_other_volume_for_long() {
    check_delays(Silence::Syncs);
}

#[test]
fn a_store_that_takes_no_header_delays_no_other_volume_for_long() {
    check_delays(Silence::Headers);
}

/// Goal: a store that hung in a sync or in the write of its header, and then fails soon, is still late. Method: after
/// it is late, each further one fails within 100 ms.
#[test]
fn a_store_that_fails_soon_is_still_late() {
    for silence in [Silence::Syncs, Silence::Headers] {
        let mut world = World::new(log(), 2, true);
        world.silence = silence;
        (0..6).for_each(|block| _ = world.write(SILENT, block));
        world.write_healthy(200).expect("it is written");
        assert!(world.d.cache.is_late(SILENT), "{silence:?}");
        for _ in 0..600 {
            world.wait(SECOND / 10);
            world.fail_silent();
            assert!(world.d.cache.is_late(SILENT), "{silence:?}");
        }
        let failures = world.d.cache.stats().destage_retries;
        assert!(failures > 2, "{silence:?}: it has failed {failures} times");
        world.recover();
    }
}

/// Goal: a destage of everything waits for slow stores. Method: one of them ends one operation, or the write of its
/// header, in 8 s, while requests wait.
#[test]
fn a_destage_of_everything_waits_for_a_store_that_answers_slowly() {
    for (case, mut world) in cases(false).into_iter().chain(cases(true)) {
        world.silence = Silence::All;
        for block in 0..8 {
            world.others().for_each(|volume| _ = world.write(volume, block));
        }
        world.destaged.clear();
        world.destage();
        let mut waited = 0;
        while world.destaged.is_empty() && waited < 1000 {
            world.wait(8 * SECOND);
            world.answer_one();
            waited += 8;
        }
        assert_eq!(world.destaged, [Ok(())], "{case}: after {waited} s");
        assert!(waited > 10, "{case}: it has waited for {waited} s");
        world.recover();
    }
}

/// Goal: a destage of everything counts silence from its own beginning. Method: the store hangs long before.
#[test]
fn a_destage_of_everything_waits_for_a_store_that_has_been_silent_before() {
    for (case, mut world) in cases(true) {
        world.silence = Silence::All;
        (0..6).for_each(|block| _ = world.write(SILENT, block));
        world.write_healthy(100).expect("it is written");
        world.wait(100 * SECOND);
        for _ in 0..2 {
            world.destaged.clear();
            world.destage();
            world.wait(9 * SECOND);
            assert_eq!(world.destaged, [], "{case}");
            world.wait(100 * SECOND);
            assert_eq!(world.destaged, [Err(DestageError::Silent)], "{case}");
        }
        world.recover();
    }
}

/// Goal: only the stores for which a destage of everything waits can answer it. Method: one hangs in its header, and
/// another is written and gets a stamp every five seconds.
#[test]
fn stamps_of_other_stores_are_no_answer_to_a_destage_of_everything() {
    for (case, mut world) in cases(true) {
        world.silence = Silence::Headers;
        (0..6).for_each(|block| _ = world.write(SILENT, block));
        world.destaged.clear();
        world.destage();
        for n in 0..20 {
            world.write(world.healthy, n);
            world.request(world.healthy, Op::Flush, 0, 0);
            world.d.order(Order::Stamp);
            world.wait(5 * SECOND);
        }
        assert_eq!(world.destaged, [Err(DestageError::Silent)], "{case}");
        world.recover();
    }
}

/// Goal: a destage of everything fails even if no cleaning can leave out the stores that do not answer: all hang.
#[test]
fn a_destage_of_everything_ends_although_no_store_answers() {
    for config in [log(), with_slots()] {
        for volumes in [2, 3] {
            for silence in [Silence::Writes, Silence::Syncs, Silence::Headers, Silence::All] {
                let mut world = World::new(config.clone(), volumes, true);
                world.healthy = Volume(volumes);
                world.silence = silence;
                for block in 0..4 {
                    (0..volumes).for_each(|volume| _ = world.write(Volume(volume), block));
                }
                world.destage();
                let case = format!("{silence:?}, {volumes} volumes");
                world.wait(8 * SECOND);
                assert_eq!(world.destaged, [], "{case}");
                world.wait(62 * SECOND);
                assert_eq!(world.destaged, [Err(DestageError::Silent)], "{case}");
                world.healthy = Volume(volumes - 1);
                world.recover();
            }
        }
    }
}

/// Goal: a destage of everything waits for a store that does not answer, but not for ever; then it fails, and other
/// volumes get room again. Method: silence before the destage or during it, on full flash.
#[test]
fn a_destage_of_everything_gives_up_on_a_store_that_does_not_answer() {
    let mut bad = Vec::new();
    for silence in [Silence::Writes, Silence::Syncs, Silence::Headers] {
        for (case, mut world) in cases(true).into_iter().filter(|(case, _)| !case.contains(" 3 v"))
        {
            let case = format!("{case}, {silence:?}");
            for before in [0, 300] {
                world.silence = silence;
                for block in 0..12 {
                    world.others().for_each(|volume| _ = world.write(volume, block));
                    world.write(world.healthy, block);
                }
                if let Err(why) = world.write_healthy(before) {
                    bad.push(format!("{case}, before: {why}"));
                    break;
                }
                world.destaged.clear();
                world.destage();
                let limit = (10 + 5 * u64::from(world.healthy.0)) * SECOND;
                if world.write_healthy_within(600, limit).is_err() {
                    bad.push(format!("{case}, {before}: no end"));
                    break;
                }
                // (Writes to the silent stores have waited, so silence lasted for 10 s.)
                (0..5).for_each(|_| world.wait(SECOND * u64::from(world.destaged.is_empty())));
                let followed = world.d.cache.stats().destages_followed;
                if world.destaged != [Err(DestageError::Silent)] || followed > 0 {
                    bad.push(format!(
                        "{case}, {before}: {:?}, followed {followed}",
                        world.destaged
                    ));
                }
                world.recover();
            }
        }
    }
    assert_eq!(bad, Vec::<String>::new());
}

/// Goal: a cleaning that has no room to carry forward what a store would leave waits for its header. Without that, it
/// would free no region, and one cleaning after the other would ask the log for a sync. Method: memory holds more
/// dirty blocks of a volume than the volume's share of flash, and a client flushes them.
#[test]
fn a_cleaning_without_room_for_what_a_hung_header_leaves_waits_for_the_header() {
    for dram_blocks in [32, 48] {
        let config = CacheConfig {
            flash: log().flash,
            acknowledge: Acknowledge::Dram,
            ..CacheConfig::dram_only(dram_blocks)
        };
        let mut world = World::new(config, 2, true);
        world.silence = Silence::Headers;
        (0..u64::from(dram_blocks)).for_each(|block| _ = world.write(SILENT, block));
        let flush = world.request(SILENT, Op::Flush, 0, 0);
        let syncs_of_log = |world: &World| world.d.cache.log_stats().expect("a log").syncs;
        world.wait(10 * SECOND);
        let syncs = syncs_of_log(&world);
        world.wait(50 * SECOND);
        assert_eq!((world.d.reply_to(flush), syncs_of_log(&world) - syncs), (None, 0));
        world.silence = Silence::Nothing;
        world.settle();
        world.wait(SECOND);
        assert_eq!(world.d.reply_to(flush), Some(Ok(())));
        world.recover();
    }
}
