//! Doubly linked lists of nodes in one arena.
//!
//! Any number of lists share a [`Links`]; a list is a head of 12 bytes. A node is in at most one
//! list at a time, and the caller knows in which: removing it requires that list's head.
//!
//! The **front** is the protected end; the **back** is evicted first.

/// No node.
const NONE: u32 = u32::MAX;
/// In place of a neighbour: the node is in no list.
const UNLINKED: u32 = u32::MAX - 1;

/// The arena: the neighbours of every node.
#[derive(Debug)]
pub struct Links {
    /// For each node, its neighbours: towards the front, then towards the back.
    neighbours: Box<[[u32; 2]]>,
}

/// A list: its two ends and its length. The nodes between are in a [`Links`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct List {
    front: u32,
    back: u32,
    len: u32,
}

impl Default for List {
    fn default() -> Self {
        List::EMPTY
    }
}

impl List {
    /// A list without nodes.
    pub const EMPTY: List = List { front: NONE, back: NONE, len: 0 };

    /// The node at the protected end.
    pub fn front(&self) -> Option<u32> {
        some(self.front)
    }

    /// The node at the eviction end.
    pub fn back(&self) -> Option<u32> {
        some(self.back)
    }

    /// Number of nodes in the list.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether the list has no nodes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Links {
    /// An arena for nodes numbered below `nodes`, none of them in a list.
    ///
    /// # Panics
    /// If `nodes` is larger than 2^32 - 2: the two largest numbers have special meanings.
    pub fn new(nodes: u32) -> Links {
        assert!(nodes <= UNLINKED, "{nodes} nodes are too many to be numbered");
        Links { neighbours: vec![[UNLINKED; 2]; nodes as usize].into() }
    }

    /// Number of nodes in the arena.
    pub fn nodes(&self) -> u32 {
        self.neighbours.len() as u32
    }

    /// Whether the node is in a list.
    pub fn is_linked(&self, node: u32) -> bool {
        self.neighbours[node as usize][0] != UNLINKED
    }

    /// Puts a node that is in no list at the front.
    pub fn push_front(&mut self, list: &mut List, node: u32) {
        debug_assert!(!self.is_linked(node), "node {node} is in a list already");
        self.neighbours[node as usize] = [NONE, list.front];
        match list.front {
            NONE => list.back = node,
            front => self.neighbours[front as usize][0] = node,
        }
        list.front = node;
        list.len += 1;
    }

    /// Puts a node that is in no list at the back.
    pub fn push_back(&mut self, list: &mut List, node: u32) {
        debug_assert!(!self.is_linked(node), "node {node} is in a list already");
        self.neighbours[node as usize] = [list.back, NONE];
        match list.back {
            NONE => list.front = node,
            back => self.neighbours[back as usize][1] = node,
        }
        list.back = node;
        list.len += 1;
    }

    /// Puts a node that is in no list behind `at`, a node of `list`: next to it, towards the back.
    pub fn insert_behind(&mut self, list: &mut List, at: u32, node: u32) {
        debug_assert!(!self.is_linked(node) && self.is_linked(at));
        let behind = self.neighbours[at as usize][1];
        self.neighbours[node as usize] = [at, behind];
        self.neighbours[at as usize][1] = node;
        match behind {
            NONE => list.back = node,
            behind => self.neighbours[behind as usize][0] = node,
        }
        list.len += 1;
    }

    /// Removes a node from `list`, which must contain it.
    pub fn remove(&mut self, list: &mut List, node: u32) {
        let [ahead, behind] = self.neighbours[node as usize];
        debug_assert!(ahead != UNLINKED, "node {node} is in no list");
        match ahead {
            NONE => list.front = behind,
            ahead => self.neighbours[ahead as usize][1] = behind,
        }
        match behind {
            NONE => list.back = ahead,
            behind => self.neighbours[behind as usize][0] = ahead,
        }
        self.neighbours[node as usize] = [UNLINKED; 2];
        list.len -= 1;
    }

    /// Moves a node of `list` to its front.
    #[inline]
    pub fn move_to_front(&mut self, list: &mut List, node: u32) {
        let front = list.front;
        if front == node {
            return;
        }
        // Equivalent to a removal and an insertion at the front, but without writing some links
        // twice.
        let [ahead, behind] = self.neighbours[node as usize];
        debug_assert!(ahead != UNLINKED, "node {node} is in no list");
        self.neighbours[ahead as usize][1] = behind;
        match behind {
            NONE => list.back = ahead,
            behind => self.neighbours[behind as usize][0] = ahead,
        }
        self.neighbours[front as usize][0] = node;
        self.neighbours[node as usize] = [NONE, front];
        list.front = node;
    }

    /// Removes and returns the node at the front.
    pub fn pop_front(&mut self, list: &mut List) -> Option<u32> {
        let front = list.front()?;
        self.remove(list, front);
        Some(front)
    }

    /// Removes and returns the node at the back.
    pub fn pop_back(&mut self, list: &mut List) -> Option<u32> {
        let back = list.back()?;
        self.remove(list, back);
        Some(back)
    }

    /// Moves all nodes of `tail` behind those of `list`, in their order, at a constant cost.
    pub fn append(&mut self, list: &mut List, tail: &mut List) {
        let tail = core::mem::take(tail);
        if list.is_empty() {
            *list = tail;
        } else if !tail.is_empty() {
            self.neighbours[list.back as usize][1] = tail.front;
            self.neighbours[tail.front as usize][0] = list.back;
            list.back = tail.back;
            list.len += tail.len;
        }
    }

    /// The neighbour of a node towards the front of its list.
    pub fn ahead(&self, node: u32) -> Option<u32> {
        debug_assert!(self.is_linked(node), "node {node} is in no list");
        some(self.neighbours[node as usize][0])
    }

    /// The neighbour of a node towards the back of its list.
    pub fn behind(&self, node: u32) -> Option<u32> {
        debug_assert!(self.is_linked(node), "node {node} is in no list");
        some(self.neighbours[node as usize][1])
    }

    /// The nodes of a list from the back to the front.
    pub fn from_back(&self, list: &List) -> impl Iterator<Item = u32> + '_ {
        core::iter::successors(list.back(), |&node| self.ahead(node))
    }

    /// Starts loading the links of a node into the processor's cache, or with `near` the links of
    /// its neighbours, which change when the node is removed.
    #[inline]
    pub fn prefetch(&self, node: u32, near: bool) {
        let Some(at) = self.neighbours.get(node as usize) else { return };
        if !near {
            return prefetch(at);
        }
        for neighbour in at.iter().filter_map(|&n| self.neighbours.get(n as usize)) {
            prefetch(neighbour);
        }
    }

    /// The memory of the arena in bytes.
    pub fn memory_bytes(&self) -> u64 {
        size_of_val(&*self.neighbours) as u64
    }
}

/// Starts loading what `at` points to into the processor's cache.
#[inline]
pub(crate) fn prefetch<T>(at: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch affects nothing but timing, whatever the address.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(
            core::ptr::from_ref(at).cast(),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

fn some(node: u32) -> Option<u32> {
    (node != NONE).then_some(node)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    const NODES: u32 = 12;
    const LISTS: usize = 4;

    fn check(links: &Links, list: &List, model: &VecDeque<u32>) {
        let from_back: Vec<u32> = links.from_back(list).collect();
        assert!(from_back.iter().eq(model.iter().rev()), "{from_back:?} {model:?}");
        let from_front: Vec<u32> =
            core::iter::successors(list.front(), |&n| links.behind(n)).collect();
        assert!(from_front.iter().eq(model.iter()), "{from_front:?} {model:?}");
        assert_eq!((list.len() as usize, list.is_empty()), (model.len(), model.is_empty()));
    }

    proptest! {
        /// Several lists in one arena behave like as many deques.
        #[test]
        fn lists_in_one_arena_are_deques(
            steps in prop::collection::vec((0..8_u8, 0..LISTS, 0..LISTS, 0..NODES), 1..200)
        ) {
            let mut links = Links::new(NODES);
            let mut lists = [List::EMPTY; LISTS];
            let mut models: [VecDeque<u32>; LISTS] = Default::default();
            for (step, to, other, node) in steps {
                let at = models.iter().position(|m| m.contains(&node));
                prop_assert_eq!(links.is_linked(node), at.is_some());
                match (step, at) {
                    (0, None) => {
                        links.push_front(&mut lists[to], node);
                        models[to].push_front(node);
                    }
                    (1, None) => {
                        links.push_back(&mut lists[to], node);
                        models[to].push_back(node);
                    }
                    (2, None) if !models[to].is_empty() => {
                        let place = node as usize % models[to].len();
                        links.insert_behind(&mut lists[to], models[to][place], node);
                        models[to].insert(place + 1, node);
                    }
                    (3, Some(at)) => {
                        links.remove(&mut lists[at], node);
                        models[at].retain(|&n| n != node);
                    }
                    (4, Some(at)) => {
                        links.move_to_front(&mut lists[at], node);
                        models[at].retain(|&n| n != node);
                        models[at].push_front(node);
                    }
                    (5, _) => {
                        prop_assert_eq!(links.pop_front(&mut lists[to]), models[to].pop_front());
                    }
                    (6, _) => {
                        prop_assert_eq!(links.pop_back(&mut lists[to]), models[to].pop_back());
                    }
                    (7, _) if to != other => {
                        let mut tail = core::mem::take(&mut lists[other]);
                        links.append(&mut lists[to], &mut tail);
                        prop_assert_eq!(tail, List::EMPTY);
                        let mut tail = core::mem::take(&mut models[other]);
                        models[to].append(&mut tail);
                    }
                    _ => {}
                }
                for (list, model) in lists.iter().zip(&models) {
                    check(&links, list, model);
                }
            }
        }
    }
}
