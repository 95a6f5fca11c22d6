//! The cleaner: which region is brought to the backing store next, and when it counts.
//!
//! One region at a time, all shards together: each destages its part, then the volumes written
//! to are synced, and only then the records are clean. What asked for the cleaning is told.

use forebay_block::Nanos;
use std::collections::VecDeque;

/// Why a region is cleaned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// The log wants to use it again.
    Reclaim,
    /// Somebody wants everything on the backing store.
    Destage,
}

/// Where the region being cleaned stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// The region's records are being made durable: a version must not reach the backing store
    /// while a power cut could still bring back an older record that is called clean.
    Logging,
    /// Shards are destaging.
    Writing,
    /// Backing stores are being synced.
    Syncing { left: u32, failed: bool },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Cleaning {
    pub region: u32,
    pub purpose: Purpose,
    pub phase: Phase,
    /// By shard (bits): has written its part.
    pub written: u64,
    pub failed: bool,
    pub unreadable: bool,
    pub volumes: u64,
    /// The front's count of failed syncs when the region was begun.
    pub sync_failures: u64,
}

/// First pause after a failure; it doubles up to the last.
const PAUSE_FIRST: Nanos = Nanos(100_000_000);
const PAUSE_LAST: Nanos = Nanos(5_000_000_000);

#[derive(Debug, Default)]
pub(crate) struct Cleaner {
    queue: VecDeque<(u32, Purpose)>,
    pub active: Option<Cleaning>,
    /// Failures in a row.
    pub failures: u32,
    pub retry_at: Option<Nanos>,
}

impl Cleaner {
    pub fn push(&mut self, region: u32, purpose: Purpose) {
        match purpose {
            // The log waits: before what is merely wanted clean.
            Purpose::Reclaim => {
                let at = self.queue.iter().position(|q| q.1 != Purpose::Reclaim);
                self.queue.insert(at.unwrap_or(self.queue.len()), (region, purpose));
            }
            Purpose::Destage => self.queue.push_back((region, purpose)),
        }
    }
    pub fn is_idle(&self) -> bool {
        self.active.is_none() && self.queue.is_empty()
    }
    /// Gives up what is merely wanted clean.
    pub fn forget_destages(&mut self) {
        self.queue.retain(|q| q.1 == Purpose::Reclaim);
    }
    /// Gives up everything: the log takes no more writes.
    pub fn forget(&mut self) {
        self.queue.clear();
    }
    /// The next region to clean, if one may be begun now.
    pub fn begin(&mut self, sync_failures: u64) -> Option<u32> {
        if self.active.is_some() || self.retry_at.is_some() {
            return None;
        }
        let (region, purpose) = self.queue.pop_front()?;
        self.active = Some(Cleaning {
            region,
            purpose,
            phase: Phase::Logging,
            written: 0,
            failed: false,
            unreadable: false,
            volumes: 0,
            sync_failures,
        });
        Some(region)
    }
    /// The region under way ended; a failed one is tried again after a pause.
    pub fn end(&mut self, ok: bool, now: Nanos) -> Cleaning {
        let done = self.active.take().expect("a region is being cleaned");
        if ok {
            self.failures = 0;
        } else {
            self.queue.push_front((done.region, done.purpose));
            let pause = PAUSE_FIRST.0 << self.failures.min(16);
            self.failures += 1;
            self.retry_at = Some(now.saturating_add(Nanos(pause.min(PAUSE_LAST.0))));
        }
        done
    }
}
