//! The flash log: the public machine.

use crate::geometry::Geometry;
use crate::key::{BlockKey, Position};
use crate::types::{Append, Binding, Event, ExtentId, LogStats, Options, Start};
use forebay_effect::{Effect, EffectQueue, MetaBuffer, Outcome, Segment};
use std::collections::VecDeque;

/// The flash log of one device.
///
/// In: the calls below and the driver's `handle_checksum` and `handle_completion` (for tokens
/// with `Owner::Log`). Out: `poll_effect` and `poll_event`, each until empty, after every call.
/// Call `start` once first; append only after [`Event::Ready`].
pub struct Log {
    geometry: Geometry,
    options: Options,
    effects: EffectQueue,
    events: VecDeque<Event>,
    stats: LogStats,
}

#[allow(unused_variables, clippy::todo)]
impl Log {
    /// A log that has not been started.
    ///
    /// # Panics
    /// If the geometry is invalid ([`Geometry::validate`]) or the reserve leaves fewer than two
    /// regions for use.
    pub fn new(geometry: Geometry, options: Options) -> Log {
        geometry.validate().expect("the geometry was validated");
        Log {
            geometry,
            options,
            effects: EffectQueue::default(),
            events: VecDeque::new(),
            stats: LogStats::default(),
        }
    }
    /// Formats, recovers or checks. `Recovered*` events, then `Ready` or `Failed` follow.
    pub fn start(&mut self, how: Start) {}
    /// Appends a record; never refused, but queued while no region is free.
    pub fn append(&mut self, append: Append) {}
    /// Writes what is open as soon as no batch is being written.
    pub fn close_batch(&mut self) {}
    /// `Synced` once everything appended before this call is durable.
    pub fn sync(&mut self, ticket: u64) {}
    /// Asks for the oldest region to be reclaimed (the index is full).
    pub fn reclaim(&mut self) {}
    /// Nothing in the region is owed any more: every block in it is clean with its backing
    /// store durable, or dropped, or superseded by a record whose `Appended` has been polled. (A
    /// newer version that is only in DRAM, or whose append is not complete, supersedes nothing.)
    /// No read of the region is in flight. The log makes the superseding records durable, then
    /// the advanced tail, then uses the region again.
    pub fn region_released(&mut self, region: u32) {}
    /// Asks to write `key` directly to its backing store: `Active` once its extent is durably
    /// marked. Poisons the block.
    pub fn mark_active(&mut self, key: BlockKey, ticket: u64) {}
    /// The direct write granted by `Active` has ended, however it ended. Poisons the block.
    pub fn direct_done(&mut self, key: BlockKey) {}
    /// The record of this block on flash is stale.
    pub fn poison(&mut self, key: BlockKey) {}
    /// The backing store is durable for the extent of an [`Event::Retire`].
    pub fn extent_released(&mut self, extent: ExtentId) {}
    /// Declares every record appended before now clean: `CleanMarked` once durable.
    pub fn clean_before_now(&mut self, ticket: u64) {}
    /// Replaces the table of bound volumes: `Bound` once durable.
    pub fn bind(&mut self, bindings: Vec<Binding>, ticket: u64) {}
    /// Clean stop: `Stopped` follows.
    pub fn stop(&mut self) {}
    /// The answer to an `Effect::Checksum`.
    pub fn handle_checksum(&mut self, index: u32, value: u32) {}
    /// The end of a device effect.
    pub fn handle_completion(&mut self, index: u32, result: Outcome) {}
    /// The next effect; its memory operands replace what `segments` holds.
    pub fn poll_effect(&mut self, segments: &mut Vec<Segment>) -> Option<Effect> {
        self.effects.pop(segments)
    }
    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
    /// The bytes of a metadata buffer.
    pub fn meta(&self, buffer: MetaBuffer) -> &[u8] {
        &[]
    }
    /// The bytes of a metadata buffer, for the driver to fill when a read completes.
    pub fn meta_mut(&mut self, buffer: MetaBuffer) -> &mut [u8] {
        &mut []
    }
    /// Where on the device, in bytes, a position lies.
    pub fn byte_offset(&self, position: Position) -> u64 {
        u64::from(position.0) * u64::from(self.geometry.page_size)
    }
    /// The number of the region that a position lies in.
    pub fn region_of(&self, position: Position) -> u32 {
        (position.0 - self.geometry.first_region_page()) / self.geometry.region_pages
    }
    /// Bytes of a payload with these valid granules.
    pub fn payload_bytes(&self, valid: u16) -> u32 {
        self.geometry.payload_bytes(valid)
    }
    /// Pages of a payload with these valid granules.
    pub fn payload_pages(&self, valid: u16) -> u32 {
        self.geometry.payload_pages(valid)
    }
    /// What the checksum of a payload continues from.
    pub fn payload_seed(&self, key: BlockKey, position: Position) -> u32 {
        0
    }
    /// The geometry in force (after a recovery: as stored).
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    /// The options in force.
    pub fn options(&self) -> &Options {
        &self.options
    }
    /// Counters.
    pub fn stats(&self) -> &LogStats {
        &self.stats
    }
}
