//! Forebay's own cache, in this process, as a target.

use std::sync::Arc;

use forebay_block::{Nanos, SECTOR_BYTES, Volume};
use forebay_config::Config;
use forebay_engine::{Done as Answer, Engine, EngineOptions, Session, StopMode, Submission};
use forebay_results::{CacheResult, Components};

use super::{Abilities, Done, Io, Limits, Target, TargetInfo, TargetVolume};
use crate::clock::SystemClock;
use crate::error::ReplayError;

/// Maximum number of requests in flight in one session.
const DEPTH_MAX: u32 = 4096;
/// The longest read or write in bytes; the server's clients have the same limit.
const TRANSFER_BYTES_MAX: u64 = 32 << 20;

/// An engine opened for a run.
pub struct EngineHost {
    engine: Engine,
    one_at_a_time: bool,
    numbers: Arc<[Volume]>,
    volumes: Vec<TargetVolume>,
}

impl EngineHost {
    /// Opens the engine that `config` describes.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open(config: &Config, options: EngineOptions) -> Result<EngineHost, ReplayError> {
        let one_at_a_time = options.one_at_a_time;
        let engine = Engine::open(config, options)?;
        let numbers = engine.volumes().iter().map(|v| v.volume).collect();
        let volumes = engine.volumes().iter().map(|v| TargetVolume {
            name: v.name.clone(),
            size_bytes: v.size_bytes,
            read_only: v.read_only,
            able: Abilities::ALL,
        });
        let volumes = volumes.collect();
        Ok(EngineHost { engine, one_at_a_time, numbers, volumes })
    }

    /// The engine itself, for its status.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The volumes, in the order of the configuration.
    pub fn volumes(&self) -> &[TargetVolume] {
        &self.volumes
    }

    /// Describes the target for reports.
    pub fn info(&self) -> TargetInfo {
        let via = "in process".to_owned();
        TargetInfo { kind: "engine", via, volumes: self.volumes.clone() }
    }

    /// Opens a session as a target for one thread.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn target(&self, clock: SystemClock) -> Result<EngineTarget, ReplayError> {
        forebay_device::precise_timers();
        Ok(EngineTarget {
            session: self.engine.session()?,
            numbers: self.numbers.clone(),
            volumes: self.volumes.clone(),
            clock,
            unsent: Vec::new(),
            answers: Vec::new(),
        })
    }

    /// The cache's counters so far, and the latencies of its device operations.
    pub fn cache(&self) -> (CacheResult, Components) {
        if self.one_at_a_time {
            // Background work that the last request caused counts, too.
            self.engine.wait_until_idle();
        }
        let status = self.engine.status();
        let total = status.total;
        let cache = CacheResult {
            hits: total.hits,
            misses: total.misses,
            hit_ratio: total.hit_ratio,
            tier2_bytes_written: status.tier2_bytes_written,
            backing: total.backing.traffic,
            dirty_blocks_max: total.dirty_blocks_max,
        };
        (cache, status.component_latency_us)
    }

    /// Stops the engine. All sessions must have been dropped.
    ///
    /// # Errors
    /// As [`Engine::stop`].
    pub fn stop(self, mode: StopMode, progress: impl FnMut(u64)) -> Result<(), ReplayError> {
        Ok(self.engine.stop(mode, progress)?)
    }
}

/// A session of an engine, as a target.
pub struct EngineTarget {
    session: Session,
    /// The engine's volume number of each volume of the target.
    numbers: Arc<[Volume]>,
    volumes: Vec<TargetVolume>,
    clock: SystemClock,
    unsent: Vec<Submission>,
    answers: Vec<Answer>,
}

impl EngineTarget {
    fn deliver(&mut self, done: &mut Vec<Done>) {
        let numbers = &self.numbers;
        done.extend(self.answers.drain(..).map(|answer| {
            let Submission { tag, volume, op, flags, offset, length, buffer } = answer.request;
            // There are few volumes, and nearly always the first one matches.
            let at = numbers.iter().position(|&n| n == volume).unwrap_or_default();
            let io = Io { tag, volume: at as u32, op, flags, offset, length, buffer };
            Done { io, result: answer.result }
        }));
    }
}

impl Target for EngineTarget {
    fn volumes(&self) -> &[TargetVolume] {
        &self.volumes
    }

    fn limits(&self) -> Limits {
        Limits {
            alignment_bytes: SECTOR_BYTES,
            transfer_bytes_max: TRANSFER_BYTES_MAX,
            zero_bytes_max: 1 << 30,
            depth_max: DEPTH_MAX,
        }
    }

    fn submit(&mut self, io: Io, _: &mut Vec<Done>) -> Result<(), ReplayError> {
        let Io { tag, volume, op, flags, offset, length, buffer } = io;
        let volume = self.numbers[volume as usize];
        self.unsent.push(Submission { tag, volume, op, flags, offset, length, buffer });
        Ok(())
    }

    fn flush(&mut self, done: &mut Vec<Done>) -> Result<(), ReplayError> {
        if self.unsent.is_empty() {
            self.session.reap(&mut self.answers);
        } else {
            self.session.submit(&mut self.unsent, &mut self.answers);
        }
        self.deliver(done);
        Ok(())
    }

    fn wait(&mut self, until: Nanos, done: &mut Vec<Done>) -> Result<(), ReplayError> {
        let before = done.len();
        self.flush(done)?;
        if done.len() > before {
            return Ok(());
        }
        let until = self.clock.instant(until);
        if self.session.in_flight() == 0 {
            // No request can complete, so only wait for the time.
            self.session.bell().wait(Some(until));
        } else {
            self.session.wait(Some(until), &mut self.answers);
            self.deliver(done);
        }
        Ok(())
    }
}
