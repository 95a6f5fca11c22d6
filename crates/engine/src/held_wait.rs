//! How long orders wait while clients wait for them.
//!
//! A store that hangs ends nothing: neither a request in flight nor a destage. An order that holds all clients back
//! must not wait for it without limit. A slow store ends something now and then, and is waited for.

use std::time::{Duration, Instant};

use crate::core::{Core, Life};
use crate::error::EngineError;
use crate::options::VolumeDescription;

/// Without the end of any operation for this long, an order lets the clients continue that it holds back.
pub(crate) const HELD_WAIT_MAX: Duration = Duration::from_secs(30);

/// Whether an order that holds clients back, or is about to, waits any longer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldWait {
    /// The phase of the engine in which the order began.
    life: Life,
    /// How many [`resume`](crate::Engine::resume)s had been ordered when the order began, if one ends it.
    resumes: Option<u64>,
    /// How long it waits without any progress.
    limit: Option<Duration>,
    /// What was in progress when there last was some progress, and that time.
    progress: StoreProgress,
    since: Instant,
}

/// What changes as long as a store answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct StoreProgress {
    /// Requests that the machine has not answered.
    pub requests: usize,
    /// Operations of devices, flash included, that have succeeded.
    pub operations: u64,
    /// The volumes whose stamps are being written, one bit each.
    pub stamping: u64,
}

impl HeldWait {
    /// An order that waits as long as the engine's life does not advance.
    pub fn endless(life: Life) -> HeldWait {
        let progress = StoreProgress::default();
        HeldWait { life, resumes: None, limit: None, progress, since: Instant::now() }
    }

    /// The order ends if more resumes than these were ordered.
    pub fn until_resume(self, resumes: u64) -> HeldWait {
        HeldWait { resumes: Some(resumes), ..self }
    }

    /// How many resumes had been ordered when the order began, if another one ends it.
    pub fn resumes(&self) -> u64 {
        self.resumes.unwrap_or_default()
    }

    /// The order ends if nothing makes progress for so long, from now on.
    pub fn limited(self, limit: Duration) -> HeldWait {
        HeldWait { limit: Some(limit), since: Instant::now(), ..self }
    }

    /// Whether a stop or a resume ends the order.
    pub fn is_called_off(&self, core: &Core) -> bool {
        core.life() != self.life || self.resumes.is_some_and(|n| core.holds().resumes() != n)
    }

    /// Whether the order goes on.
    pub fn goes_on(&mut self, core: &Core) -> bool {
        let progress = core.progress();
        if progress != self.progress {
            (self.progress, self.since) = (progress, Instant::now());
        }
        !self.is_called_off(core) && self.limit.is_none_or(|limit| self.since.elapsed() < limit)
    }

    /// Why the order does not go on. `volumes` are those of the engine.
    pub fn error(&self, core: &Core, volumes: &[VolumeDescription]) -> EngineError {
        if core.life() != self.life {
            return EngineError::Stopping;
        }
        if self.is_called_off(core) {
            return EngineError::QuiesceEnded;
        }
        let silent = core.volumes_in_progress();
        let silent = volumes.iter().filter(|v| silent.contains(&v.volume));
        EngineError::NoAnswer {
            volumes: silent.map(|v| v.name.clone()).collect(),
            seconds: self.limit.unwrap_or_default().as_secs(),
        }
    }
}
