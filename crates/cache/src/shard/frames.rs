//! DRAM frames: which are free, which block owns each of the others, and which are dirty, in the
//! order in which they became dirty.

use forebay_block::{PerVolume, Volume};
use forebay_replacement::{Links, List};

use super::entry::EntryId;

/// A frame of DRAM, as numbered by the driver.
pub(crate) use forebay_effect::Frame;

/// The dirty frames of a volume.
#[derive(Clone, Copy, Debug)]
struct Dirty {
    /// The newest frame is in front.
    list: List,
    /// The newest marked frame, or [`NO_FRAME`]; all older ones are marked too.
    marked: u32,
}

/// The frame number that stands for no frame.
const NO_FRAME: u32 = u32::MAX;

const CLEAN: Dirty = Dirty { list: List::EMPTY, marked: NO_FRAME };

/// The frames of one shard. Numbers handed out are the driver's: `base + local`.
#[derive(Debug)]
pub(crate) struct Frames {
    base: u32,
    /// The entry that owns each frame.
    owners: Box<[EntryId]>,
    /// Neighbours in a list: of the free frames, or of a volume's dirty ones.
    links: Links,
    free: List,
    dirty: PerVolume<Dirty>,
}

impl Frames {
    pub fn new(base: u32, count: u32, volumes: usize) -> Self {
        let (mut links, mut free) = (Links::new(count), List::EMPTY);
        (0..count).for_each(|local| links.push_back(&mut free, local));
        Frames {
            base,
            owners: vec![EntryId::NONE; count as usize].into(),
            links,
            free,
            dirty: PerVolume::filled(CLEAN, volumes),
        }
    }

    pub fn local(&self, frame: Frame) -> u32 {
        frame.0 - self.base
    }

    pub fn count(&self) -> usize {
        self.owners.len()
    }

    pub fn free_count(&self) -> usize {
        self.free.len() as usize
    }

    /// Takes a free frame for `entry` ([`EntryId::NONE`] for a frame that holds a copy in flight).
    pub fn take(&mut self, entry: EntryId) -> Option<Frame> {
        let local = self.links.pop_front(&mut self.free)?;
        self.owners[local as usize] = entry;
        Some(Frame(self.base + local))
    }

    pub fn release(&mut self, frame: Frame) {
        let local = self.local(frame);
        assert!(!self.links.is_linked(local), "a free or dirty frame was released");
        self.owners[local as usize] = EntryId::NONE;
        self.links.push_front(&mut self.free, local);
    }

    /// The entry that owns a frame.
    pub fn owner(&self, local: u32) -> EntryId {
        self.owners[local as usize]
    }

    /// Starts loading the state of a frame into the processor's cache.
    pub fn prefetch(&self, local: u32) {
        if let Some(owner) = self.owners.get(local as usize) {
            crate::shard::index::prefetch(owner);
            self.links.prefetch(local, false);
        }
    }

    /// The entries that own frames.
    pub fn owners(&self) -> impl Iterator<Item = EntryId> + '_ {
        self.owners.iter().copied().filter(|&entry| entry != EntryId::NONE)
    }

    /// Adds a frame to its volume's dirty list, as the newest.
    pub fn push_dirty(&mut self, frame: Frame, volume: Volume) {
        let local = self.local(frame);
        self.links.push_front(&mut self.dirty[volume].list, local);
    }

    pub fn remove_dirty(&mut self, frame: Frame, volume: Volume) {
        let local = self.local(frame);
        let dirty = &mut self.dirty[volume];
        if dirty.marked == local {
            dirty.marked = self.links.behind(local).unwrap_or(NO_FRAME);
        }
        self.links.remove(&mut dirty.list, local);
    }

    /// Marks the frames that are in the volume's dirty list now.
    pub fn mark_dirty(&mut self, volume: Volume) {
        let dirty = &mut self.dirty[volume];
        dirty.marked = dirty.list.front().unwrap_or(NO_FRAME);
    }

    /// Removes all marks of the volume.
    pub fn unmark_dirty(&mut self, volume: Volume) {
        self.dirty[volume].marked = NO_FRAME;
    }

    /// The entry that has been longest in the volume's dirty list, if it is marked.
    pub fn oldest_marked(&self, volume: Volume) -> Option<EntryId> {
        let Dirty { list, marked } = self.dirty[volume];
        list.back().filter(|_| marked != NO_FRAME).map(|oldest| self.owner(oldest))
    }

    /// Makes room for one more volume.
    pub fn add_volume(&mut self) {
        self.dirty.push(CLEAN);
    }

    pub fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.owners) as u64 + self.links.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Key;

    /// A flush covers the frames that were dirty when it began and have not left the list since.
    /// Compares with a model that numbers each time a frame becomes dirty, through any mix of
    /// frames that leave the list and come back, and of later marks.
    #[test]
    fn marked_is_what_was_dirty_then_and_has_not_left_the_list_since() {
        let mut frames = Frames::new(0, 40, 1);
        let taken: Vec<Frame> =
            (0..40).map(|entry| frames.take(EntryId::new(entry)).unwrap()).collect();
        let (mut model, mut until, mut dirtyings): (Vec<(u64, Frame)>, u64, u64) = (vec![], 0, 0);
        let (mut x, mut marked) = (1_u64, 0);
        for _ in 0..100_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let frame = taken[(x >> 40) as usize % taken.len()];
            match (x >> 33) % 64 {
                0 => {
                    frames.mark_dirty(Volume(0));
                    until = dirtyings;
                }
                1 => {
                    frames.unmark_dirty(Volume(0));
                    until = 0;
                }
                _ => match model.iter().position(|m| m.1 == frame) {
                    Some(at) => {
                        model.remove(at);
                        frames.remove_dirty(frame, Volume(0));
                    }
                    None => {
                        dirtyings += 1;
                        model.push((dirtyings, frame));
                        frames.push_dirty(frame, Volume(0));
                    }
                },
            }
            let oldest = model.first().filter(|m| m.0 <= until).map(|m| EntryId::new(m.1.0));
            assert_eq!(frames.oldest_marked(Volume(0)), oldest);
            marked += u32::from(oldest.is_some());
        }
        assert!(marked > 10_000, "{marked}");
    }

    #[test]
    fn frames_are_taken_lowest_first_and_given_back_ones_before_others() {
        let mut frames = Frames::new(7, 3, 0);
        assert_eq!(
            [0, 1].map(|entry| frames.take(EntryId::new(entry))),
            [Some(Frame(7)), Some(Frame(8))]
        );
        frames.release(Frame(7));
        assert_eq!(frames.free_count(), 2);
        assert_eq!(
            [2, 3, 4].map(|entry| frames.take(EntryId::new(entry))),
            [Some(Frame(7)), Some(Frame(9)), None]
        );
        assert_eq!((frames.owner(0), frames.free_count()), (EntryId::new(2), 0));
    }
}
