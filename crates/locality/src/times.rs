//! The tree over time of [`crate::write_only`]: when each block was last used, whether it is in
//! line or fixed, and which fixed blocks may have come in line.
//!
//! There is one slot for each time, 16 slots to a bucket, and a binary tree over the buckets. Nodes
//! hold sums and the least slack below them; an access changes a few slots and the nodes above
//! them.

use crate::table::FIRST_TIME;

const BUCKET: usize = 16;
/// The minimum number of times.
const TIMES_MIN: u32 = 1 << 10;

/// The kind of place that a block has in the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seat {
    /// It is older than all blocks above it.
    InLine,
    /// It is newer than a block above it; at least `slack` blocks in line are above it and older.
    Fixed { position: u32, slack: u32 },
}

const EMPTY: u32 = u32::MAX;
const IN_LINE: u32 = u32::MAX - 1;

/// The summary of the slots below a node of the tree.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// Number of blocks in line.
    line: u32,
    /// Number of accesses counted.
    accesses: u32,
    /// The minimum, over fixed blocks, of the slack minus the accesses counted at earlier times
    /// within the node.
    least: i64,
}

impl Node {
    const NOTHING: Node = Node { line: 0, accesses: 0, least: i64::MAX };

    fn join(left: Node, right: Node) -> Node {
        let least = match right.least {
            i64::MAX => left.least,
            right => left.least.min(right - i64::from(left.accesses)),
        };
        let (line, accesses) = (left.line + right.line, left.accesses + right.accesses);
        Node { line, accesses, least }
    }
}

/// The tree described in the module documentation.
#[derive(Clone, Debug)]
pub(crate) struct Times {
    /// [`EMPTY`], [`IN_LINE`], or the position of the fixed block used last at this time.
    seats: Vec<u32>,
    /// For fixed blocks, the slack when it was last set, plus the accesses counted by then at
    /// earlier times.
    slacks: Vec<u32>,
    /// Accesses counted at each time. Each reduces the slack of fixed blocks with later times by
    /// one.
    accesses: Vec<u32>,
    /// The nodes of the tree: the root is node 1, and the second half are the buckets.
    nodes: Vec<Node>,
    held: u32,
    now: u32,
    times_max: u32,
}

impl Times {
    pub(crate) fn new(times_max: u32) -> Self {
        let mut times = Self {
            seats: Vec::new(),
            slacks: Vec::new(),
            accesses: Vec::new(),
            nodes: Vec::new(),
            held: 0,
            now: FIRST_TIME,
            times_max,
        };
        times.allocate();
        times
    }

    pub(crate) fn held(&self) -> u32 {
        self.held
    }

    pub(crate) fn remaining(&self) -> u32 {
        self.seats.len() as u32 - self.now
    }

    /// Returns whether more than 7/8 of the times are in use, so that renumbering would free too few
    /// times for its cost.
    pub(crate) fn is_crowded(&self) -> bool {
        self.held > self.times_max / 8 * 7
    }

    /// Adds a block at the next time, and returns that time.
    pub(crate) fn record(&mut self, seat: Seat) -> u32 {
        let time = self.now;
        self.now += 1;
        self.put(time, seat);
        time
    }

    /// Adds a block at a time that has none.
    pub(crate) fn put(&mut self, time: u32, seat: Seat) {
        let at = time as usize;
        match seat {
            Seat::InLine => self.seats[at] = IN_LINE,
            Seat::Fixed { position, slack } => {
                self.seats[at] = position;
                self.slacks[at] = slack + self.accesses_before(time);
            }
        }
        self.held += 1;
        self.refresh(at);
    }

    /// Removes the block of `time`, and returns its seat as [`Times::seat`] does.
    pub(crate) fn remove(&mut self, time: u32) -> Seat {
        let seat = self.seat(time);
        self.seats[time as usize] = EMPTY;
        self.held -= 1;
        self.refresh(time as usize);
        seat
    }

    /// Returns the seat of the block of `time`. Its slack is not up to date: it is as stored in
    /// `slacks`.
    pub(crate) fn seat(&self, time: u32) -> Seat {
        match self.seats[time as usize] {
            EMPTY => unreachable!("no block was used last at time {time}"),
            IN_LINE => Seat::InLine,
            position => Seat::Fixed { position, slack: self.slacks[time as usize] },
        }
    }

    /// Moves the fixed block of `time` in line.
    pub(crate) fn fall_in(&mut self, time: u32) {
        self.seats[time as usize] = IN_LINE;
        self.refresh(time as usize);
    }

    /// Sets the slack of the fixed block of `time` after it was counted again.
    pub(crate) fn set_slack(&mut self, time: u32, slack: u32) {
        self.slacks[time as usize] = slack + self.accesses_before(time);
        self.refresh(time as usize);
    }

    /// Reduces the slack of all fixed blocks used after `time` by one.
    pub(crate) fn count_older_than(&mut self, time: u32) {
        self.accesses[time as usize] += 1;
        self.refresh(time as usize);
    }

    /// Reduces the slack of all fixed blocks by one.
    pub(crate) fn count_older_than_all(&mut self) {
        self.count_older_than(0);
    }

    /// Returns whether any fixed block may have no slack left.
    pub(crate) fn any_due(&self) -> bool {
        self.nodes[1].least <= 0
    }

    /// Calls `visit` with the time and position of each fixed block that may have no slack left.
    pub(crate) fn for_each_due(&self, mut visit: impl FnMut(u32, u32)) {
        self.visit_due(1, 0, &mut visit);
    }

    fn visit_due(&self, node: usize, accesses: i64, visit: &mut impl FnMut(u32, u32)) {
        if self.nodes[node].least.saturating_sub(accesses) > 0 {
            return;
        }
        if let Some(bucket) = node.checked_sub(self.buckets()) {
            let mut accesses = accesses;
            for at in bucket * BUCKET..(bucket + 1) * BUCKET {
                let seat = self.seats[at];
                if seat < IN_LINE && i64::from(self.slacks[at]) - accesses <= 0 {
                    visit(at as u32, seat);
                }
                accesses += i64::from(self.accesses[at]);
            }
            return;
        }
        self.visit_due(2 * node, accesses, visit);
        let right = accesses + i64::from(self.nodes[2 * node].accesses);
        self.visit_due(2 * node + 1, right, visit);
    }

    /// Returns the number of blocks in line that were used after `time`.
    pub(crate) fn newer(&self, time: u32) -> u32 {
        let at = time as usize;
        let end = (at / BUCKET + 1) * BUCKET;
        let mut newer =
            self.seats[at + 1..end].iter().filter(|&&seat| seat == IN_LINE).count() as u32;
        let mut node = self.buckets() + at / BUCKET;
        while node > 1 {
            if node.is_multiple_of(2) {
                newer += self.nodes[node + 1].line;
            }
            node /= 2;
        }
        newer
    }

    /// Starts to renumber times without gaps. Until [`Times::start_over`], [`Times::renumbered`]
    /// returns the new times.
    pub(crate) fn renumber(&mut self) {
        let (mut next, mut counted) = (FIRST_TIME, 0);
        for at in 0..self.now as usize {
            // Subtract the accesses counted so far from the slacks, and store the new time in place
            // of the count.
            let accesses = core::mem::replace(&mut self.accesses[at], next);
            if self.seats[at] != EMPTY {
                self.seats[next as usize] = self.seats[at];
                self.slacks[next as usize] = self.slacks[at].wrapping_sub(counted);
                next += 1;
            }
            counted += accesses;
        }
        self.now = next;
    }

    /// Returns the new time for an old one.
    pub(crate) fn renumbered(&self, time: u32) -> u32 {
        self.accesses[time as usize]
    }

    /// Finishes the renumbering that [`Times::renumber`] started.
    pub(crate) fn start_over(&mut self) {
        self.allocate();
        for bucket in 0..self.buckets() {
            let node = self.buckets() + bucket;
            self.nodes[node] = self.bucket(bucket);
        }
        for node in (1..self.buckets()).rev() {
            self.nodes[node] = Node::join(self.nodes[2 * node], self.nodes[2 * node + 1]);
        }
    }

    /// Forgets all blocks. The next time stays as it is.
    pub(crate) fn clear(&mut self) {
        self.held = 0;
        self.seats.fill(EMPTY);
        self.accesses.fill(0);
        self.nodes.fill(Node::NOTHING);
    }

    /// Allocates one and a half times as many times as there are blocks held. No block may be at
    /// `now` or later.
    fn allocate(&mut self) {
        let wanted = (u64::from(self.held) / 2 * 3).max(u64::from(TIMES_MIN));
        let end = wanted.next_multiple_of(BUCKET as u64).min(u64::from(self.times_max)) as usize;
        let end = end.max(self.seats.len()) / BUCKET * BUCKET;
        (self.accesses, self.nodes) = (Vec::new(), Vec::new());
        self.seats.truncate(self.now as usize);
        for (times, value) in [(&mut self.seats, EMPTY), (&mut self.slacks, 0)] {
            times.reserve_exact(end - times.len());
            times.resize(end, value);
        }
        self.accesses = vec![0; end];
        self.nodes = vec![Node::NOTHING; 2 * (end / BUCKET).next_power_of_two()];
    }

    fn buckets(&self) -> usize {
        self.nodes.len() / 2
    }

    fn accesses_before(&self, time: u32) -> u32 {
        let at = time as usize;
        let begin = at / BUCKET * BUCKET;
        let mut accesses: u32 = self.accesses[begin..at].iter().sum();
        let mut node = self.buckets() + at / BUCKET;
        while node > 1 {
            if !node.is_multiple_of(2) {
                accesses += self.nodes[node - 1].accesses;
            }
            node /= 2;
        }
        accesses
    }

    fn bucket(&self, bucket: usize) -> Node {
        let mut node = Node::NOTHING;
        let Some(seats) = self.seats.get(bucket * BUCKET..(bucket + 1) * BUCKET) else {
            return node;
        };
        for (at, &seat) in (bucket * BUCKET..).zip(seats) {
            match seat {
                EMPTY => {}
                IN_LINE => node.line += 1,
                _ => {
                    let left = i64::from(self.slacks[at]) - i64::from(node.accesses);
                    node.least = node.least.min(left);
                }
            }
            node.accesses += self.accesses[at];
        }
        node
    }

    /// Updates the nodes above a time.
    fn refresh(&mut self, at: usize) {
        let bucket = at / BUCKET;
        let mut node = self.buckets() + bucket;
        self.nodes[node] = self.bucket(bucket);
        while node > 1 {
            node /= 2;
            self.nodes[node] = Node::join(self.nodes[2 * node], self.nodes[2 * node + 1]);
        }
    }
}
