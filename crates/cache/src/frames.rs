//! DRAM frames: which are free, whose the others are, and which are dirty since when.

use crate::index::{EntryId, NONE};
/// A frame of DRAM, by the driver's number: what effects call a slot.
pub(crate) use forebay_effect::Slot as Frame;

#[derive(Clone, Copy, Debug)]
struct FrameState {
    entry: EntryId,
    dirty_prev: u32,
    dirty_next: u32,
    /// When the frame's block became dirty, in dirtyings of this shard.
    dirty_since: u64,
}

/// The frames of one shard. Numbers handed out are the driver's: `base + local`.
#[derive(Debug)]
pub(crate) struct Frames {
    base: u32,
    states: Vec<FrameState>,
    free: Vec<u32>,
    /// Oldest and newest dirty frame of each volume.
    dirty: Vec<(u32, u32)>,
    dirtyings: u64,
}

impl Frames {
    pub fn new(base: u32, count: u32, volumes: usize) -> Self {
        let state = FrameState { entry: NONE, dirty_prev: NONE, dirty_next: NONE, dirty_since: 0 };
        Frames {
            base,
            states: vec![state; count as usize],
            free: (0..count).rev().collect(),
            dirty: vec![(NONE, NONE); volumes],
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

    /// The entries that own frames.
    pub fn owners(&self) -> impl Iterator<Item = EntryId> + '_ {
        self.states.iter().map(|s| s.entry).filter(|&entry| entry != NONE)
    }

    /// Appends a frame to its volume's dirty list.
    pub fn push_dirty(&mut self, frame: Frame, volume: usize) {
        let local = self.local(frame);
        let (head, tail) = self.dirty[volume];
        self.dirtyings += 1;
        let state = &mut self.states[local as usize];
        (state.dirty_prev, state.dirty_next, state.dirty_since) = (tail, NONE, self.dirtyings);
        match tail {
            NONE => self.dirty[volume] = (local, local),
            t => {
                self.states[t as usize].dirty_next = local;
                self.dirty[volume] = (head, local);
            }
        }
    }
    pub fn remove_dirty(&mut self, frame: Frame, volume: usize) {
        let FrameState { dirty_prev, dirty_next, .. } = self.states[self.local(frame) as usize];
        match dirty_prev {
            NONE => self.dirty[volume].0 = dirty_next,
            p => self.states[p as usize].dirty_next = dirty_next,
        }
        match dirty_next {
            NONE => self.dirty[volume].1 = dirty_prev,
            n => self.states[n as usize].dirty_prev = dirty_prev,
        }
    }
    /// The entry longest in the volume's dirty list, and since when.
    pub fn oldest_dirty(&self, volume: usize) -> Option<(EntryId, u64)> {
        let head = self.dirty[volume].0;
        (head != NONE).then(|| {
            let s = &self.states[head as usize];
            (s.entry, s.dirty_since)
        })
    }
    /// The count of dirtyings so far: what became dirty until now has at most this number.
    pub fn dirtyings(&self) -> u64 {
        self.dirtyings
    }
    /// Makes room for one more volume.
    pub fn add_volume(&mut self) {
        self.dirty.push((NONE, NONE));
    }
    pub fn memory_bytes(&self) -> u64 {
        (self.states.len() * size_of::<FrameState>() + self.free.capacity() * 4) as u64
    }
}
