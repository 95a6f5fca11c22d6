//! State that all parts of the log share: the geometry, the metadata buffers, the counters, and the
//! queues of outgoing effects and events. This module makes no decisions.

use crate::events::Event;
use crate::geometry::Geometry;
use crate::granules::Granules;
use crate::identity::TierId;
use crate::operation::LogOperation;
use crate::sabotage::Sabotage;
use crate::types::LogStats;
use forebay_effect::{Device, Effect, EffectQueue, Frame, MetaBuffer, Place, Segment};
use std::collections::VecDeque;

/// The metadata buffer from which the superblock is written (and into which its first copy is
/// read).
pub(crate) const SUPERBLOCK_BUFFER: usize = 0;
/// The buffer that the second copy is read into.
pub(crate) const SUPERBLOCK_OTHER: usize = 1;
/// The first of the batches' buffers.
pub(crate) const BATCH_BUFFERS: usize = 2;

/// The shared state; see the module documentation.
pub(crate) struct Io {
    pub geometry: Geometry,
    /// Known once the log was formatted, or its superblock read.
    pub uuid: Option<TierId>,
    /// The epoch of this run; valid once recovery has ended.
    pub epoch: u64,
    pub stats: LogStats,
    pub sabotage: Sabotage,
    /// Whether the driver runs without bytes: payload checksums are 0, and writes have no memory
    /// operands.
    pub without_bytes: bool,
    /// The metadata buffers, by number: the superblock's, the batches', the directory's,
    /// recovery's.
    pub buffers: Vec<Box<[u8]>>,
    effects: EffectQueue,
    events: VecDeque<Event>,
    /// The memory operands of the next write.
    segments: Vec<Segment>,
}

impl Io {
    pub fn new(geometry: Geometry, buffer_sizes: Vec<usize>, events: usize) -> Io {
        Io {
            geometry,
            uuid: None,
            epoch: 0,
            stats: LogStats { page_size: geometry.page_size, ..LogStats::default() },
            sabotage: Sabotage::default(),
            without_bytes: false,
            buffers: buffer_sizes.into_iter().map(|n| vec![0; n].into_boxed_slice()).collect(),
            effects: EffectQueue::default(),
            events: VecDeque::with_capacity(events),
            segments: Vec::new(),
        }
    }

    /// The tier's UUID.
    ///
    /// # Panics
    /// If it is not known yet: nothing else of the log is read or written before.
    #[inline]
    pub fn tier(&self) -> TierId {
        self.uuid.expect("the superblock comes first")
    }

    pub fn leave_out_bytes(&mut self) {
        self.without_bytes = true;
        self.effects.leave_out_segments();
    }

    /// The metadata buffer from which directories are written. Recovery's buffers follow it.
    pub fn directory_buffer(&self) -> usize {
        BATCH_BUFFERS + self.geometry.inflight_batches_max as usize
    }

    /// Emits an event.
    pub fn tell(&mut self, event: Event) {
        self.events.push_back(event);
    }

    #[inline]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The queued event that has `n` others before it.
    #[inline]
    pub fn upcoming_event(&self, n: usize) -> Option<&Event> {
        self.events.get(n)
    }

    /// If the event queue is empty, restarts it at the start of its memory: the queue is large, and
    /// its start is more likely to be in the processor's caches.
    pub fn rewind_events(&mut self) {
        if self.events.is_empty() {
            self.events.clear();
        }
    }

    #[inline]
    pub fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    /// The next effect; its memory operands replace what `segments` holds.
    #[inline]
    pub fn next_effect(&mut self, segments: &mut Vec<Segment>) -> Option<Effect> {
        self.effects.pop(segments)
    }

    /// Adds a run of bytes in a metadata buffer to the next write.
    pub fn add_meta(&mut self, buffer: usize, offset: u32, length: u32) {
        self.segments.push(meta_segment(buffer, offset, length));
    }

    /// Adds the payload of a frame to the next write, up to the end of its last page.
    pub fn add_payload(&mut self, frame: Frame, valid: Granules) {
        payload_segments(&self.geometry, frame, valid, &mut self.segments);
        let bytes = self.geometry.payload_pages(valid) * self.geometry.page_size;
        self.add_void(bytes - self.geometry.payload_bytes(valid));
    }

    /// Adds padding to the next write; its contents do not matter.
    pub fn add_void(&mut self, length: u32) {
        if length != 0 {
            self.segments.push(Segment { place: Place::Void, length });
        }
    }

    /// Issues a write of the segments added so far.
    pub fn write(&mut self, operation: LogOperation, page: u32, pages: u32) {
        let page_size = self.geometry.page_size;
        let length = pages * page_size;
        let bytes = || self.segments.iter().map(|s| s.length).sum::<u32>();
        assert!(self.without_bytes || bytes() == length, "{} of {length} bytes", bytes());
        let offset = u64::from(page) * u64::from(page_size);
        let token = operation.token();
        let effect = Effect::Write { token, device: Device::Flash, offset, length };
        self.effects.push_slice(effect, &self.segments);
        self.segments.clear();
    }

    /// Issues a read of pages into a metadata buffer, for recovery.
    pub fn read(&mut self, buffer: usize, page: u32, pages: u32) {
        let length = pages * self.geometry.page_size;
        let offset = u64::from(page) * u64::from(self.geometry.page_size);
        let token = LogOperation::RecoveryRead { buffer: buffer as u16 }.token();
        let effect = Effect::Read { token, device: Device::Flash, offset, length };
        self.effects.push_with(effect, [meta_segment(buffer, 0, length)]);
    }

    /// Issues a sync.
    pub fn sync(&mut self, operation: LogOperation) {
        self.effects.push(Effect::Sync { token: operation.token(), device: Device::Flash });
    }

    /// Requests the checksum of a frame's payload.
    pub fn checksum(&mut self, operation: LogOperation, seed: u32, frame: Frame, valid: Granules) {
        payload_segments(&self.geometry, frame, valid, &mut self.segments);
        let effect = Effect::Checksum { token: operation.token(), seed };
        self.effects.push_slice(effect, &self.segments);
        self.segments.clear();
    }
}

fn meta_segment(buffer: usize, offset: u32, length: u32) -> Segment {
    Segment { place: Place::Meta { buffer: MetaBuffer(buffer as u32), offset }, length }
}

/// The valid granules of a frame as runs of bytes.
fn payload_segments(g: &Geometry, frame: Frame, valid: Granules, out: &mut Vec<Segment>) {
    let granule = g.granule_bytes();
    for run in valid.runs() {
        let place = Place::Frame { frame, offset: run.start * granule };
        out.push(Segment { place, length: (run.end - run.start) * granule });
    }
}
