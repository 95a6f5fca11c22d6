//! A volume: its counters, and which of its writes to the backing store are durable.
//!
//! Writes that bypass the log (*direct* writes) are numbered. A sync covers those that
//! had completed when it was issued, and all waiters that arrive meanwhile share the next one.

use forebay_block::Op;
use forebay_flash::ExtentId;

use crate::byte_range::ByteRange;
use crate::config::{Bypass, VolumeConfig};
use crate::in_flight::{RequestList, RequestPlace};
use crate::slab::RequestIndex;
use crate::stats::VolumeStats;
use crate::streams::Streams;

/// A waiter for a sync of a backing store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum SyncWaiter {
    /// No waiter: blocks that stay out of flash until the sync are tried again when their turn
    /// comes.
    Flash,
    /// A request in its last stage.
    Request(RequestIndex),
    /// The cleaner: a cleaning, or what it has left behind of a late store.
    Cleaner,
    /// No waiter: data that an earlier process left in the device's cache is made durable.
    Start,
    /// The log retires an extent from its activity table.
    Retire(ExtentId),
}

#[derive(Debug, Default)]
struct Syncing {
    /// The number of direct writes that the current sync covers.
    in_flight: Option<u64>,
    riding: Vec<SyncWaiter>,
    waiting: Vec<SyncWaiter>,
}

/// The flush of a volume: its blocks that are dirty in DRAM are being made durable.
#[derive(Debug, Default)]
pub(crate) struct Flushing {
    pub active: Vec<RequestIndex>,
    pub next: Vec<RequestIndex>,
    pub shards_left: u32,
    pub failed: bool,
}

/// Stripes for which the last direct write is remembered.
const PLACES: u64 = 4096;

/// An attached volume.
#[derive(Debug)]
pub(crate) struct VolumeState {
    pub size: u64,
    pub read_only: bool,
    /// Its sequential streams, if requests may bypass the cache.
    streams: Option<Box<Streams>>,
    /// Direct writes begun, how many of them have ended, and how many are durable.
    direct_begun: u64,
    direct_done: u64,
    direct_durable: u64,
    pub log_bypass: LogBypass,
    /// The number of the last direct write to each stripe. Stripes that are [`PLACES`] apart share
    /// one, so it may be too high.
    direct_last: Box<[u64]>,
    syncing: Syncing,
    pub flushing: Flushing,
    pub stats: VolumeStats,
    /// Requests that wait for the volume's share of flash.
    pub share_waiters: RequestList,
    /// Trims and zeroings of more than one step that hand out blocks, and those that wait because
    /// they overlap one of them.
    pub zeroings: Vec<RequestIndex>,
    pub zeroings_waiting: RequestList,
    /// Clean blocks that stayed out of flash, since the last sync began, because the store has
    /// unsynced writes.
    pub kept_out: u32,
    /// Number of dirty records on flash.
    pub owed: u64,
    /// Number of requests of clients.
    pub requests: u32,
    /// Number of pieces in progress of modifying requests.
    pub pieces: u32,
}

impl VolumeState {
    /// Whether requests may bypass the cache.
    pub fn may_bypass(&self) -> bool {
        self.streams.is_some()
    }

    /// Whether a request is part of a sequential stream that bypasses the cache.
    pub fn is_streaming(&mut self, op: Op, (offset, length): (u64, u64), bypass: Bypass) -> bool {
        let least = match op {
            Op::Read => bypass.reads,
            Op::Write => bypass.writes,
            _ => 0,
        };
        let Some(streams) = self.streams.as_mut().filter(|_| least != 0) else { return false };
        streams.go_on(op == Op::Write, offset, length) >= least
    }

    /// A volume with nothing cached, for at most `requests_max` requests at a time.
    pub fn new(config: VolumeConfig, requests_max: usize) -> VolumeState {
        VolumeState {
            size: config.size_bytes,
            read_only: config.read_only,
            // The streams are allocated here, so that requests do not allocate.
            streams: config.bypass.then(Box::default),
            // Writes of an earlier process may still be in the device's cache, so the store needs a
            // sync.
            direct_begun: 1,
            direct_done: 1,
            direct_durable: 0,
            log_bypass: LogBypass::Allowed,
            direct_last: vec![1; PLACES as usize].into_boxed_slice(),
            syncing: Syncing {
                in_flight: None,
                riding: Vec::with_capacity(requests_max + 2),
                waiting: Vec::with_capacity(requests_max + 2),
            },
            flushing: Flushing {
                active: Vec::with_capacity(requests_max),
                next: Vec::with_capacity(requests_max),
                ..Flushing::default()
            },
            stats: VolumeStats::default(),
            share_waiters: RequestList::new(RequestPlace::OverShare),
            zeroings: Vec::with_capacity(requests_max),
            zeroings_waiting: RequestList::new(RequestPlace::Overlapping),
            kept_out: 0,
            owed: 0,
            requests: 0,
            pieces: 0,
        }
    }

    /// Blocks that are dirty on flash, or may become so: each piece of a modifying request counts.
    #[inline]
    pub fn on_flash_or_coming(&self) -> u64 {
        self.owed + u64::from(self.pieces)
    }

    /// Number of completed writes to the backing store that bypassed the log.
    pub fn direct_done(&self) -> u64 {
        self.direct_done
    }

    /// Number of direct writes begun so far, if all of them are durable.
    pub fn direct_settled(&self) -> Option<u64> {
        let settled = [self.direct_done, self.direct_durable] == [self.direct_begun; 2];
        settled.then_some(self.direct_begun)
    }

    /// Whether the backing store lacks any data.
    pub fn is_dirty(&self) -> bool {
        self.stats.dirty_blocks > 0
    }

    /// Notes that a direct write begins.
    pub fn direct_begins(&mut self) {
        self.direct_begun += 1;
    }

    /// Notes that a direct write to these bytes has ended, successfully or not; stripes have `1 <<
    /// stripe_shift` bytes.
    pub fn direct_written(&mut self, range: ByteRange, stripe_shift: u32) {
        assert!(self.direct_done < self.direct_begun, "a direct write that never began ends");
        self.direct_done += 1;
        let first = range.start >> stripe_shift;
        let last = range.end.saturating_sub(1) >> stripe_shift;
        for place in first..=last.min(first + PLACES - 1) {
            self.direct_last[(place % PLACES) as usize] = self.direct_done;
        }
    }

    /// Whether completed direct writes are not yet durable.
    pub fn owes_sync(&self) -> bool {
        self.direct_done > self.direct_durable
    }

    /// Whether completed direct writes to the stripe are not yet durable. It may return true when
    /// there are none.
    pub fn owes_sync_at(&self, stripe: u64) -> bool {
        self.direct_last[(stripe % PLACES) as usize] > self.direct_durable
    }

    /// Whether a sync is in progress.
    pub fn is_syncing(&self) -> bool {
        self.syncing.in_flight.is_some()
    }

    /// Adds a waiter for the next sync.
    pub fn wait_for_sync(&mut self, waiter: SyncWaiter) {
        self.syncing.waiting.push(waiter);
    }

    /// Begins the next sync if none is in progress and there is a waiter; returns whether it has
    /// begun.
    pub fn begin_sync(&mut self) -> bool {
        if self.syncing.in_flight.is_some() || self.syncing.waiting.is_empty() {
            return false;
        }
        core::mem::swap(&mut self.syncing.riding, &mut self.syncing.waiting);
        self.syncing.in_flight = Some(self.direct_done);
        self.kept_out = 0;
        self.stats.backing_syncs += 1;
        true
    }

    /// Ends the current sync; returns its waiters, in a list to be returned with
    /// [`VolumeState::keep_waiters`]. `durable`: what it covered is durable.
    pub fn end_sync(&mut self, durable: bool) -> Vec<SyncWaiter> {
        let covers = self.syncing.in_flight.take().expect("a sync was in flight");
        if durable {
            self.direct_durable = self.direct_durable.max(covers);
        }
        core::mem::take(&mut self.syncing.riding)
    }

    /// Takes back the empty list of waiters, so that a sync allocates nothing.
    pub fn keep_waiters(&mut self, waiters: Vec<SyncWaiter>) {
        self.syncing.riding = waiters;
    }
}

/// Whether data may go to a volume's store bypassing the log (`forebay_flash::Binding::logged`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogBypass {
    /// Data may bypass the log.
    Allowed,
    /// Data may bypass the log once the log has durably noted this.
    Requested,
    /// The log notes that no data bypass it.
    Forbidden,
}
