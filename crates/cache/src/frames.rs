//! DRAM frames: which are free, whose the others are, and which are dirty since when.

use forebay_replacement::{Links, List};

use crate::index::{EntryId, NONE};

/// A frame of DRAM, by the driver's number: what effects call a slot.
pub(crate) use forebay_effect::Slot as Frame;

#[derive(Clone, Copy, Debug)]
struct FrameState {
    entry: EntryId,
    /// When the frame's block became dirty, in dirtyings of this shard.
    dirty_since: u64,
}

/// The frames of one shard. Numbers handed out are the driver's: `base + local`.
#[derive(Debug)]
pub(crate) struct Frames {
    base: u32,
    states: Vec<FrameState>,
    free: Vec<u32>,
    /// The dirty frames of each volume, the newest in front.
    dirty: Vec<List>,
    links: Links,
    dirtyings: u64,
}

impl Frames {
    pub fn new(base: u32, count: u32, volumes: usize) -> Self {
        let state = FrameState { entry: NONE, dirty_since: 0 };
        Frames {
            base,
            states: vec![state; count as usize],
            free: (0..count).rev().collect(),
            dirty: vec![List::EMPTY; volumes],
            links: Links::new(count),
            dirtyings: 0,
        }
    }

    pub fn local(&self, frame: Frame) -> u32 {
        frame.0 - self.base
    }
    pub fn count(&self) -> usize {
        self.states.len()
    }
    pub fn free_count(&self) -> usize {
        self.free.len()
    }
    /// Takes a free frame for `entry` ([`NONE`] for a frame that holds a copy on its way).
    pub fn take(&mut self, entry: EntryId) -> Option<Frame> {
        let local = self.free.pop()?;
        self.states[local as usize].entry = entry;
        Some(Frame(self.base + local))
    }
    pub fn release(&mut self, frame: Frame) {
        let local = self.local(frame);
        debug_assert!(!self.free.contains(&local) || self.free.len() > 256, "frame freed twice");
        self.states[local as usize].entry = NONE;
        self.free.push(local);
    }
    /// The entry that owns a frame.
    pub fn owner(&self, local: u32) -> EntryId {
        self.states[local as usize].entry
    }

    /// Starts loading the state of a frame into the processor's cache.
    pub fn prefetch(&self, local: u32) {
        if let Some(state) = self.states.get(local as usize) {
            crate::index::prefetch(state);
        }
    }

    /// The entries that own frames.
    pub fn owners(&self) -> impl Iterator<Item = EntryId> + '_ {
        self.states.iter().map(|s| s.entry).filter(|&entry| entry != NONE)
    }

    /// Appends a frame to its volume's dirty list.
    pub fn push_dirty(&mut self, frame: Frame, volume: usize) {
        let local = self.local(frame);
        self.dirtyings += 1;
        self.states[local as usize].dirty_since = self.dirtyings;
        self.links.push_front(&mut self.dirty[volume], local);
    }
    pub fn remove_dirty(&mut self, frame: Frame, volume: usize) {
        let local = self.local(frame);
        self.links.remove(&mut self.dirty[volume], local);
    }
    /// The entry longest in the volume's dirty list, and since when.
    pub fn oldest_dirty(&self, volume: usize) -> Option<(EntryId, u64)> {
        let oldest = self.dirty[volume].back()?;
        let state = &self.states[oldest as usize];
        Some((state.entry, state.dirty_since))
    }
    /// The count of dirtyings so far: what became dirty until now has at most this number.
    pub fn dirtyings(&self) -> u64 {
        self.dirtyings
    }
    /// Makes room for one more volume.
    pub fn add_volume(&mut self) {
        self.dirty.push(List::EMPTY);
    }
    pub fn memory_bytes(&self) -> u64 {
        let states = self.states.len() * size_of::<FrameState>();
        (states + self.free.capacity() * 4) as u64 + self.links.memory_bytes()
    }
}
