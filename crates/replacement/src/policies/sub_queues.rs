//! An LRU queue that a block can enter at any position: HR LRU and Priority LRU (Hazan et al.).
//!
//! The queue is cut into `k` sub-queues of equal length, number 0 at the protected end: the first `j`
//! of them together hold `len * j / k` blocks, rounded down, so that neighbours differ by at most one.
//! A block that comes in at position `p` percent goes to the front of the sub-queue for which `p`
//! percent of the sub-queues, rounded to the nearest, lie from it to the eviction end; at 0 % it is
//! the next victim. A hit moves a block to the protected end. After each of these, at most one
//! block crosses each border between two sub-queues. An eviction leaves the borders to the block
//! that comes in next, which often moves them back. With 10 sub-queues a request takes 2.1 times
//! the instructions that it takes with LRU, with 20 sub-queues 2.8 times (`cargo bench` under
//! callgrind, with 100,000 objects).

use core::marker::PhantomData;

use crate::links::{Links, List};
use crate::parameters::{Parameter, Parameters};
use crate::policy::{Hint, Percent, Policy};

pub(super) const SUB_QUEUES: Parameter = Parameter {
    name: "sub_queues",
    unit: "queues",
    default: 10,
    min: 1,
    max: 100,
    meaning: "number of parts into which the queue is divided; with more parts, positions are finer-grained, but each request takes longer",
};
pub(super) const MIN_POSITION: Parameter = Parameter {
    name: "min_position_percent",
    unit: "percent of the queue",
    default: 20,
    min: 0,
    max: 100,
    meaning: "MinPosition: no block enters closer to the eviction end than this",
};
pub(crate) const CHUNK: Parameter = Parameter {
    name: "chunk_kib",
    unit: "KiB",
    default: 20 << 10,
    min: 0,
    max: u32::MAX,
    meaning: "size of a chunk, the unit for which hit ratios are measured; 0 for the whole volume",
};
pub(crate) const INTERVAL: Parameter = Parameter {
    name: "interval_ms",
    unit: "milliseconds",
    default: 3_600_000,
    min: 1,
    max: u32::MAX,
    meaning: "how often hit ratios are updated",
};

/// No node: the sub-queue is empty.
const NONE: u32 = u32::MAX;

/// See the module. The sub-queues follow one another in one list, so to move a block over a border
/// is to move the border.
#[derive(Debug)]
pub(super) struct SubQueues {
    links: Links,
    list: List,
    /// The first node of each sub-queue, and its number of nodes.
    firsts: Box<[u32]>,
    lens: Box<[u32]>,
    queue_of: Box<[u8]>,
    /// A length, and the borders (as bits) that have one block more ahead of them at this length
    /// than at one less.
    rising: (u32, u128),
    /// From this length on, no sub-queue is empty or can become empty within one call.
    long: u32,
    /// A block has been evicted and the borders have not moved yet, so the last sub-queue is one
    /// block short. Set only while the queue is long. The next block that comes in often moves the
    /// borders back, so that none has to move.
    lacks_one: bool,
    steps: u64,
}

impl SubQueues {
    pub fn new(nodes: u32, k: u32) -> SubQueues {
        SubQueues {
            links: Links::new(nodes),
            list: List::EMPTY,
            firsts: vec![NONE; k as usize].into(),
            lens: vec![0; k as usize].into(),
            queue_of: vec![0; nodes as usize].into(),
            rising: (0, 0),
            long: 3 * k,
            lacks_one: false,
            steps: 0,
        }
    }

    pub fn len(&self) -> u32 {
        self.list.len()
    }

    pub fn steps(&self) -> u64 {
        self.steps
    }

    pub fn touch(&mut self, node: u32) {
        let queue = self.queue(node);
        if self.len() < self.long {
            self.take(node, queue);
            self.put_first(0, node);
            (1..=queue).for_each(|border| self.hand_back(border));
            return;
        }
        if self.firsts[queue] == node {
            if queue == 0 {
                return;
            }
            self.firsts[queue] = self.links.behind(node).expect("the queue has another");
        }
        self.links.move_to_front(&mut self.list, node);
        self.firsts[0] = node;
        if queue > 0 {
            self.queue_of[node as usize] = 0;
            // In turn, each sub-queue up to the one that lost the block has one too many.
            self.shift_back(1, queue + 1);
        }
    }

    pub fn insert(&mut self, node: u32, position: Percent) {
        let k = self.firsts.len();
        let below = (usize::from(position.get()) * k + 50) / 100;
        match k - below {
            queue if queue < k && self.lacks_one => self.insert_for_evicted(node, queue),
            queue if queue < k => {
                self.put_first(queue, node);
                self.balance_grown(queue);
            }
            _ => self.restore(node),
        }
    }

    /// Inserts a node in place of an evicted one: the sub-queues ahead stay as they are, each of
    /// those behind hands a block back.
    fn insert_for_evicted(&mut self, node: u32, queue: usize) {
        let k = self.firsts.len();
        let first = self.firsts[queue];
        // (The place is computed for the length without the evicted block, at which this border
        // lies one block further ahead.)
        let rises = self.rising(self.len() + 1) >> queue & 1 != 0;
        let behind = if rises { self.links.ahead(first) } else { Some(first) };
        match behind.and_then(|behind| self.links.ahead(behind)) {
            Some(ahead) => self.links.insert_behind(&mut self.list, ahead, node),
            None => self.links.push_front(&mut self.list, node),
        }
        if rises {
            self.queue_of[node as usize] = queue as u8 - 1;
            self.shift_back(queue, k);
        } else {
            self.queue_of[node as usize] = queue as u8;
            self.firsts[queue] = node;
            self.shift_back(queue + 1, k);
        }
        self.lens[k - 1] += 1;
        self.lacks_one = false;
    }

    pub fn evict(&mut self) -> Option<u32> {
        let node = self.list.back()?;
        if self.len() <= self.long {
            self.remove(node);
            return Some(node);
        }
        self.balance();
        self.links.remove(&mut self.list, node);
        self.lens[self.firsts.len() - 1] -= 1;
        self.lacks_one = true;
        Some(node)
    }

    pub fn restore(&mut self, node: u32) {
        self.put_last(node);
        if !core::mem::take(&mut self.lacks_one) {
            self.balance_grown(self.firsts.len() - 1);
        }
    }

    pub fn remove(&mut self, node: u32) {
        if self.links.is_linked(node) {
            self.balance();
            let queue = self.queue(node);
            self.take(node, queue);
            self.balance_shrunk(queue);
        }
    }

    pub fn likely_victim(&self, after: Option<u32>) -> Option<u32> {
        after.map_or(self.list.back(), |node| self.links.ahead(node))
    }

    pub fn prefetch(&self, node: u32, near: bool) {
        self.links.prefetch(node, near);
    }

    pub fn memory_bytes(&self) -> u64 {
        let own = size_of_val(&*self.firsts) + size_of_val(&*self.lens);
        self.links.memory_bytes() + (own + size_of_val(&*self.queue_of)) as u64
    }

    fn queue(&self, node: u32) -> usize {
        self.queue_of[node as usize].into()
    }

    fn take(&mut self, node: u32, queue: usize) {
        self.lens[queue] -= 1;
        if self.firsts[queue] == node {
            self.firsts[queue] = match self.lens[queue] {
                0 => NONE,
                _ => self.links.behind(node).expect("the queue has another"),
            };
        }
        self.links.remove(&mut self.list, node);
    }

    fn put_first(&mut self, queue: usize, node: u32) {
        match self.last_before(queue) {
            Some(ahead) => self.links.insert_behind(&mut self.list, ahead, node),
            None => self.links.push_front(&mut self.list, node),
        }
        self.firsts[queue] = node;
        self.lens[queue] += 1;
        self.queue_of[node as usize] = queue as u8;
    }

    fn put_last(&mut self, node: u32) {
        let queue = self.firsts.len() - 1;
        self.links.push_back(&mut self.list, node);
        if self.lens[queue] == 0 {
            self.firsts[queue] = node;
        }
        self.lens[queue] += 1;
        self.queue_of[node as usize] = queue as u8;
    }

    /// The last node ahead of a sub-queue. A sub-queue is empty only while there are fewer blocks
    /// than sub-queues.
    fn last_before(&self, queue: usize) -> Option<u32> {
        match self.firsts[queue..].iter().find(|&&first| first != NONE) {
            Some(&first) => self.links.ahead(first),
            None => self.list.back(),
        }
    }

    // A block that came or went has moved the borders behind it by one block, and the new length
    // has moved the rising borders. Borders to which only one of the two applies move back or ahead
    // by one block. Those that hand a block back go from the protected end, so that each sub-queue
    // has received a block before it hands one back; those that lack a block go from the other end.

    /// Moves the borders to where they belong if an eviction has left them.
    fn balance(&mut self) {
        if core::mem::take(&mut self.lacks_one) {
            self.balance_shrunk(self.firsts.len() - 1);
        }
    }

    /// Moves the borders `from..to` by one block towards the front, in a long queue. (The lengths
    /// of the sub-queues between them stay: each receives a block and hands one back.)
    fn shift_back(&mut self, from: usize, to: usize) {
        for (border, first) in (from..to).zip(&mut self.firsts[from..to]) {
            *first = self.links.ahead(*first).expect("the queue ahead has a block");
            self.queue_of[*first as usize] = border as u8;
            // (The next block to be handed back is found through its neighbour.)
            self.links.prefetch(*first, false);
        }
        self.steps += (to - from) as u64;
    }

    /// Moves the borders to where they belong after a block has entered a sub-queue.
    fn balance_grown(&mut self, queue: usize) {
        let rising = self.rising(self.len());
        let ahead = up_to(queue);
        let behind = up_to(self.firsts.len() - 1) & !ahead;
        self.hand_all_back(behind & !rising);
        self.hand_all_ahead(ahead & rising);
    }

    /// Moves the borders to where they belong after a block has left a sub-queue.
    fn balance_shrunk(&mut self, queue: usize) {
        let rising = self.rising(self.len() + 1);
        let ahead = up_to(queue);
        let behind = up_to(self.firsts.len() - 1) & !ahead;
        self.hand_all_back(ahead & rising);
        self.hand_all_ahead(behind & !rising);
    }

    /// The borders that have one block more ahead of them with `len` blocks than with one less:
    /// those for which `len * border / k`, rounded down, increases. Cached, because a full cache
    /// asks for the same length repeatedly.
    fn rising(&mut self, len: u32) -> u128 {
        if self.rising.0 != len {
            let k = self.firsts.len() as u64;
            let wanted = |len: u64, border: u64| len * border / k;
            let rises =
                |&border: &u64| wanted(len.into(), border) > wanted(u64::from(len) - 1, border);
            let borders = (1..k).filter(rises).fold(0, |all, border| all | 1 << border);
            self.rising = (len, borders);
        }
        self.rising.1
    }

    fn hand_all_back(&mut self, mut borders: u128) {
        while borders != 0 {
            self.hand_back(borders.trailing_zeros() as usize);
            borders &= borders - 1;
        }
    }

    fn hand_all_ahead(&mut self, mut borders: u128) {
        while borders != 0 {
            let border = borders.ilog2();
            self.hand_ahead(border as usize);
            borders ^= 1 << border;
        }
    }

    /// The last block of the sub-queue ahead of a border becomes the first one behind it.
    fn hand_back(&mut self, border: usize) {
        let node = self.last_before(border).expect("more than wanted ahead");
        self.lens[border - 1] -= 1;
        if self.lens[border - 1] == 0 {
            self.firsts[border - 1] = NONE;
        }
        self.firsts[border] = node;
        self.lens[border] += 1;
        self.queue_of[node as usize] = border as u8;
        self.steps += 1;
        // (The next block to be handed back is found through its neighbour.)
        self.links.prefetch(node, false);
    }

    /// The first block of the sub-queue behind a border becomes the last one ahead of it.
    fn hand_ahead(&mut self, border: usize) {
        let node = self.firsts[border];
        self.lens[border] -= 1;
        self.firsts[border] = match self.lens[border] {
            0 => NONE,
            _ => self.links.behind(node).expect("the queue has another"),
        };
        if self.lens[border - 1] == 0 {
            self.firsts[border - 1] = node;
        }
        self.lens[border - 1] += 1;
        self.queue_of[node as usize] = (border - 1) as u8;
        self.steps += 1;
    }
}

/// The borders ahead of a sub-queue as bits: its own and those before it, without border 0.
fn up_to(queue: usize) -> u128 {
    (2 << queue) - 2
}

/// An LRU queue that a block enters at the position in its hint; `Rule` names the rule for the
/// position.
#[derive(Debug)]
pub struct Positioned<Rule> {
    queue: SubQueues,
    rule: PhantomData<Rule>,
}

impl<Rule> Policy for Positioned<Rule> {
    fn new(nodes: u32, _capacity: u32, parameters: &Parameters) -> Self {
        let queue = SubQueues::new(nodes, parameters.value(&SUB_QUEUES));
        Positioned { queue, rule: PhantomData }
    }

    fn on_access(&mut self, node: u32) {
        self.queue.touch(node);
    }

    fn insert(&mut self, node: u32, _key: u64, hint: Hint) {
        self.queue.insert(node, hint.position);
    }

    fn evict(&mut self, _incoming: Option<u64>) -> Option<u32> {
        self.queue.evict()
    }

    fn restore(&mut self, node: u32) {
        self.queue.restore(node);
    }

    fn remove(&mut self, node: u32) {
        self.queue.remove(node);
    }

    fn set_capacity(&mut self, _capacity: u32) {}

    fn prefetch(&self, node: u32, near: bool) {
        self.queue.prefetch(node, near);
    }

    fn likely_victim(&self, after: Option<u32>) -> Option<u32> {
        self.queue.likely_victim(after)
    }

    fn len(&self) -> u32 {
        self.queue.len()
    }

    fn metadata_bytes(&self) -> u64 {
        size_of::<Self>() as u64 + self.queue.memory_bytes()
    }

    /// The factor of 2: the next call may also take the steps that an eviction deferred.
    fn steps_max(parameters: &Parameters) -> u64 {
        2 * u64::from(parameters.value(&SUB_QUEUES))
    }

    fn steps(&self) -> u64 {
        self.queue.steps()
    }
}
