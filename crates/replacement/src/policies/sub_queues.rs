//! An LRU queue in which a block may begin at any position: HR LRU and Priority LRU (Hazan et al.).
//!
//! The queue is cut into `k` sub-queues of equal length, number 0 at the protected end: the first `j`
//! of them together hold `len * j / k` blocks, rounded down, so that neighbours differ by at most one.
//! A block that comes in at position `p` percent goes to the front of the sub-queue that has
//! `p` percent of the sub-queues from it to the end that gives way, rounded to the nearest; at 0 %
//! it is the next to give way. A hit moves a block to the protected end. After each of these at most one block
//! moves over each border between two sub-queues.

use crate::links::{Links, List};
use crate::parameters::Parameter;
use crate::policy::Percent;

pub(super) const SUB_QUEUES: Parameter = Parameter {
    name: "sub_queues",
    unit: "queues",
    default: 20,
    min: 1,
    max: 100,
    meaning: "how finely positions are told apart, and how many blocks one access moves at most",
};
pub(super) const MIN_POSITION: Parameter = Parameter {
    name: "min_position_percent",
    unit: "percent of the queue",
    default: 20,
    min: 0,
    max: 100,
    meaning: "MinPosition: no block begins closer to the end that gives way",
};

/// See the module.
#[derive(Debug)]
pub(super) struct SubQueues {
    links: Links,
    queues: Box<[List]>,
    queue_of: Box<[u8]>,
    len: u32,
    steps: u64,
}

impl SubQueues {
    pub fn new(nodes: u32, k: u32) -> SubQueues {
        SubQueues {
            links: Links::new(nodes),
            queues: vec![List::EMPTY; k as usize].into(),
            queue_of: vec![0; nodes as usize].into(),
            len: 0,
            steps: 0,
        }
    }

    pub fn len(&self) -> u32 {
        self.len
    }

    pub fn steps(&self) -> u64 {
        self.steps
    }

    pub fn touch(&mut self, node: u32) {
        let queue = self.queue(node);
        self.links.remove(&mut self.queues[queue], node);
        self.put(0, node);
        // Each sub-queue up to the one that lost it has one too many in turn.
        (1..=queue).for_each(|border| self.hand_on(border));
    }

    pub fn insert(&mut self, node: u32, position: Percent) {
        let k = self.queues.len();
        let below = (usize::from(position.get()) * k + 50) / 100;
        self.len += 1;
        match k - below {
            queue if queue < k => self.put(queue, node),
            _ => self.put_last(node),
        }
        self.balance();
    }

    pub fn evict(&mut self) -> Option<u32> {
        let node = self.last()?;
        self.remove(node);
        Some(node)
    }

    pub fn restore(&mut self, node: u32) {
        self.len += 1;
        self.put_last(node);
        self.balance();
    }

    pub fn remove(&mut self, node: u32) {
        if self.links.is_linked(node) {
            let queue = self.queue(node);
            self.links.remove(&mut self.queues[queue], node);
            self.len -= 1;
            self.balance();
        }
    }

    pub fn likely_victim(&self, after: Option<u32>) -> Option<u32> {
        let Some(after) = after else { return self.last() };
        let further = || self.queues[..self.queue(after)].iter().rev().find_map(List::back);
        self.links.ahead(after).or_else(further)
    }

    pub fn memory_bytes(&self) -> u64 {
        let own = size_of_val(&*self.queues) + size_of_val(&*self.queue_of);
        self.links.memory_bytes() + own as u64
    }

    fn queue(&self, node: u32) -> usize {
        self.queue_of[node as usize].into()
    }

    /// The last sub-queue holds a block if any does.
    fn last(&self) -> Option<u32> {
        self.queues.last().and_then(List::back)
    }

    fn put(&mut self, queue: usize, node: u32) {
        self.queue_of[node as usize] = queue as u8;
        self.links.push_front(&mut self.queues[queue], node);
    }

    fn put_last(&mut self, node: u32) {
        let queue = self.queues.len() - 1;
        self.queue_of[node as usize] = queue as u8;
        self.links.push_back(&mut self.queues[queue], node);
    }

    /// Moves blocks over the borders that are not where they belong. One that came or went moves
    /// each border by at most one block, and so does the length, against it.
    fn balance(&mut self) {
        let k = self.queues.len() as u64;
        let wanted = |border: usize, len: u32| (u64::from(len) * border as u64 / k) as u32;
        // From the protected end, so that a sub-queue has received what it hands on.
        let mut ahead = 0;
        for border in 1..self.queues.len() {
            ahead += self.queues[border - 1].len();
            if ahead > wanted(border, self.len) {
                self.hand_on(border);
                ahead -= 1;
            }
        }
        // From the other end for those that lack one.
        let mut ahead = self.len;
        for border in (1..self.queues.len()).rev() {
            ahead -= self.queues[border].len();
            if ahead < wanted(border, self.len) {
                let node = self.links.pop_front(&mut self.queues[border]).expect("as many behind");
                self.queue_of[node as usize] -= 1;
                self.links.push_back(&mut self.queues[border - 1], node);
                ahead += 1;
                self.steps += 1;
            }
        }
    }

    /// Moves a block over a border, towards the end that gives way.
    fn hand_on(&mut self, border: usize) {
        let node = self.links.pop_back(&mut self.queues[border - 1]).expect("more than wanted");
        self.put(border, node);
        self.steps += 1;
    }
}
