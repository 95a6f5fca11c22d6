//! Waiting marks, grouped by extent.
//!
//! A mark waits in the *line* of its extent. An extent without a place in the table of active
//! extents waits with its line in the queue of its volume. Extents leave in the order in which they
//! came, except that all extents of a volume can be passed over. An extent is found by its first
//! block, so the cost of adding a mark does not depend on how many wait.

use crate::key::BlockKey;
use forebay_block::Volume;

const NONE: u32 = u32::MAX;
const BUCKETS: usize = 1 << 12;
/// Number of volumes whose queues have preallocated memory.
const VOLUMES: usize = 64;

/// Marks of one extent, oldest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Line {
    head: u32,
    tail: u32,
}

impl Line {
    pub const EMPTY: Line = Line { head: NONE, tail: NONE };
}

#[derive(Clone, Copy)]
struct Mark {
    key: BlockKey,
    ticket: u64,
    /// The next mark in the line, or the next unused one.
    next: u32,
}

/// An extent that waits for a place.
#[derive(Clone, Copy)]
struct Group {
    first: BlockKey,
    line: Line,
    /// The number of extents that came before.
    arrival: u64,
    /// The next extent in the queue, or the next unused one.
    next: u32,
    /// The next extent in the same bucket.
    chain: u32,
}

/// Extents of a volume, in the order in which they came.
#[derive(Clone, Copy)]
struct VolumeQueue {
    oldest: u32,
    newest: u32,
}

impl VolumeQueue {
    const EMPTY: VolumeQueue = VolumeQueue { oldest: NONE, newest: NONE };
}

/// The waiting marks; see the module documentation. Grows to the largest number that ever waited.
pub(crate) struct WaitingMarks {
    marks: Vec<Mark>,
    marks_unused: u32,
    groups: Vec<Group>,
    groups_unused: u32,
    buckets: Vec<u32>,
    /// Indexed by volume number.
    queues: Vec<VolumeQueue>,
    /// Number of extents in the queues.
    extents: usize,
    /// Number of extents that came so far.
    arrivals: u64,
}

impl WaitingMarks {
    pub fn new(capacity: usize) -> WaitingMarks {
        WaitingMarks {
            marks: Vec::with_capacity(capacity),
            marks_unused: NONE,
            groups: Vec::with_capacity(capacity),
            groups_unused: NONE,
            buckets: vec![NONE; BUCKETS],
            queues: Vec::with_capacity(VOLUMES),
            extents: 0,
            arrivals: 0,
        }
    }

    /// Whether no extent waits for a place.
    pub fn is_empty(&self) -> bool {
        self.extents == 0
    }

    /// Returns the line with one more mark at its end.
    #[must_use]
    pub fn push(&mut self, line: Line, key: BlockKey, ticket: u64) -> Line {
        let mark = Mark { key, ticket, next: NONE };
        let n = match self.marks_unused {
            NONE => {
                self.marks.push(mark);
                self.marks.len() as u32 - 1
            }
            n => {
                self.marks_unused = self.marks[n as usize].next;
                self.marks[n as usize] = mark;
                n
            }
        };
        if line.tail == NONE {
            return Line { head: n, tail: n };
        }
        self.marks[line.tail as usize].next = n;
        Line { tail: n, ..line }
    }

    /// Takes the oldest mark out of a line: block and ticket.
    pub fn pop(&mut self, line: &mut Line) -> Option<(BlockKey, u64)> {
        let n = line.head;
        let mark = self.marks.get_mut(n as usize).filter(|_| n != NONE)?;
        let taken = (mark.key, mark.ticket);
        line.head = core::mem::replace(&mut mark.next, self.marks_unused);
        self.marks_unused = n;
        if line.head == NONE {
            line.tail = NONE;
        }
        Some(taken)
    }

    /// Queues a mark of the extent that begins with `first`, until the extent gets a place.
    pub fn enqueue(&mut self, first: BlockKey, key: BlockKey, ticket: u64) {
        let mut n = self.buckets[bucket(first)];
        while n != NONE && self.groups[n as usize].first != first {
            n = self.groups[n as usize].chain;
        }
        if n == NONE {
            let line = self.push(Line::EMPTY, key, ticket);
            self.enqueue_line(first, line);
        } else {
            self.groups[n as usize].line = self.push(self.groups[n as usize].line, key, ticket);
        }
    }

    /// Queues an extent that is not queued yet, with its marks. Does nothing if it has none.
    pub fn enqueue_line(&mut self, first: BlockKey, line: Line) {
        if line == Line::EMPTY {
            return;
        }
        let bucket = bucket(first);
        let (arrival, chain) = (self.arrivals, self.buckets[bucket]);
        let group = Group { first, line, arrival, next: NONE, chain };
        let n = match self.groups_unused {
            NONE => {
                self.groups.push(group);
                self.groups.len() as u32 - 1
            }
            n => {
                self.groups_unused = self.groups[n as usize].next;
                self.groups[n as usize] = group;
                n
            }
        };
        self.buckets[bucket] = n;
        self.extents += 1;
        self.arrivals += 1;
        let volume = first.volume().index();
        if self.queues.len() <= volume {
            self.queues.resize(volume + 1, VolumeQueue::EMPTY);
        }
        let queue = &mut self.queues[volume];
        match core::mem::replace(&mut queue.newest, n) {
            NONE => queue.oldest = n,
            before => self.groups[before as usize].next = n,
        }
    }

    /// First block of the extent that has waited longest, among the volumes that `may` accepts.
    pub fn front(&self, may: impl Fn(Volume) -> bool) -> Option<BlockKey> {
        let oldest = self.queues.iter().filter_map(|queue| self.groups.get(queue.oldest as usize));
        let allowed = oldest.filter(|group| may(group.first.volume()));
        allowed.min_by_key(|group| group.arrival).map(|group| group.first)
    }

    /// Takes the volume's longest-waiting extent out of the queue. Returns its first block and its
    /// marks.
    pub fn next(&mut self, volume: Volume) -> Option<(BlockKey, Line)> {
        let queue = self.queues.get_mut(volume.index())?;
        let n = queue.oldest;
        let Group { first, line, next, chain, .. } = *self.groups.get(n as usize)?;
        queue.oldest = next;
        self.extents -= 1;
        if next == NONE {
            queue.newest = NONE;
        }
        self.groups[n as usize].next = self.groups_unused;
        self.groups_unused = n;
        let head = &mut self.buckets[bucket(first)];
        if *head == n {
            *head = chain;
        } else {
            let mut at = *head;
            while self.groups[at as usize].chain != n {
                at = self.groups[at as usize].chain;
            }
            self.groups[at as usize].chain = chain;
        }
        Some((first, line))
    }
}

fn bucket(first: BlockKey) -> usize {
    (first.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize % BUCKETS
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_block::Volume;
    use std::collections::VecDeque;

    /// Compares with plain lists: whatever the order of calls, extents of the volumes that are not
    /// passed over leave in the order of arrival, with their marks in order.
    #[test]
    fn extents_leave_in_order_with_their_marks_in_order() {
        let mut waiting = WaitingMarks::new(0);
        let mut oracle: VecDeque<(BlockKey, Vec<u64>)> = VecDeque::new();
        let (mut x, mut merged, mut passed) = (1_u64, 0, 0);
        for ticket in 0..100_000_u64 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            // Now and then the queue runs empty; in between it is long.
            let grows = ticket / 5_000 % 2 == 0;
            let volume = Volume((x >> 33) as u32 % 3);
            if x >> 40 & 3 != 0 || grows {
                let first = BlockKey::new(volume, (x >> 45) % 1_000);
                waiting.enqueue(first, BlockKey(first.0 + 1), ticket);
                match oracle.iter_mut().find(|g| g.0 == first) {
                    Some(group) => {
                        group.1.push(ticket);
                        merged += 1;
                    }
                    None => oracle.push_back((first, vec![ticket])),
                }
            } else {
                let may = |other: Volume| x >> 50 & 1 == 0 || other != volume;
                for _ in 0..3 {
                    let taken = waiting.front(may).map(|front| {
                        let (first, mut line) = waiting.next(front.volume()).expect("it waits");
                        assert_eq!(first, front);
                        let pop = core::iter::from_fn(|| waiting.pop(&mut line));
                        (first, pop.map(|mark| mark.1).collect())
                    });
                    let at = oracle.iter().position(|group| may(group.0.volume()));
                    passed += u64::from(at.is_some_and(|at| at > 0));
                    assert_eq!(taken, at.and_then(|at| oracle.remove(at)));
                }
            }
            assert_eq!(waiting.is_empty(), oracle.is_empty());
        }
        assert!(merged > 1_000 && passed > 1_000, "{merged} {passed}");
        assert!(waiting.marks.len() < 50_000, "places are used again");
    }
}
