//! Finds the removal that leaves the lowest error, without evaluating all of them.
//!
//! A removal changes eight sums a little, and with them seven features, each a quotient of two
//! sums. After a removal, a feature differs from its mean at a moment of reference by
//! `(e + u) / d`: `u` is the change of the sum by the removal, less what as many average requests
//! would have; `d` is the number of requests left; and `e` is how far the sum has moved since that
//! moment from what the mean of reference gives. The error is the weighted sum of the distances of
//! the features from those of the full trace. Where a feature is far from its goal, its part of the
//! error is linear in `u`. The linear parts of all such features therefore become one number for
//! each removal, and single numbers matter only for features that are near their goal.
//!
//! Removals with similar numbers share the leaves of a binary tree. Each node keeps the bounds of
//! the numbers below it, which give a lower bound of the error of any removal below. The search
//! visits nodes in the order of this lower bound, until it exceeds the best error found. The bounds
//! hold for any signs, so the tree stays correct while the sums change; the search only gets
//! slower, and the tree is then rebuilt.
//!
//! The result is that of a search through all removals, to the last bit: errors are computed in the
//! same way, and lower bounds are reduced by more than their rounding error.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::moments::{FEATURES, Moments, OpMoments, mean_error};

/// Maximum number of items in a leaf.
const LEAF: usize = 8;
/// More than the rounding error of an error, which is about 1.
const ROUNDING: f64 = 1e-12;
/// A feature that is nearer to its goal than this, as a fraction of the goal, may pass it.
const NEAR: f64 = 0.01;
/// The tree is rebuilt after about this many times the work of evaluating all removals.
const REBUILD: usize = 8;

/// The groups of requests that features are divided by: reads, writes, both.
const GROUPS: usize = 3;
/// Number of numbers of a removal: `u` of each feature; the requests of each group; the sum of the
/// linear parts of each group's features, and the sum of all linear parts.
const NUMBERS: usize = FEATURES.len() + 2 * GROUPS + 1;
const REQUESTS: usize = FEATURES.len();
const LINEAR: usize = REQUESTS + GROUPS;
const ALL_LINEAR: usize = LINEAR + GROUPS;

/// Removals, identified by index, that can be queried repeatedly for the best.
#[derive(Debug)]
pub(super) struct Removals {
    full: [f64; FEATURES.len()],
    /// By index; `None` if the removal no longer exists.
    changes: Vec<Option<Moments>>,
    left: usize,
    tree: Tree,
    /// Removals that changed since the tree was built.
    loose: Vec<usize>,
    /// Whether each removal is in `loose`.
    is_loose: Vec<bool>,
    /// Number of errors and bounds computed since the tree was built.
    work: usize,
}

impl Removals {
    /// Takes the changes that the removals make, and the sums `now`. Errors are against the
    /// features of the full trace.
    pub fn new(changes: Vec<Moments>, now: &Moments, full: &Moments) -> Removals {
        let mut removals = Removals {
            full: full.features(),
            left: changes.len(),
            is_loose: vec![false; changes.len()],
            changes: changes.into_iter().map(Some).collect(),
            tree: Tree::default(),
            loose: Vec::new(),
            work: 0,
        };
        removals.build(now);
        removals
    }

    /// Returns the removal that leaves the lowest error, and that error. Ties go to the first.
    pub fn lowest(&mut self, now: &Moments) -> Option<(usize, f64)> {
        if self.work > REBUILD * self.left + 1000 {
            self.build(now);
        }
        let mut best = Best(None);
        for &id in &self.loose {
            if let Some(change) = &self.changes[id] {
                best.offer(id, error(&self.full, now, change));
            }
        }
        self.work += self.loose.len();
        let tree = &mut self.tree;
        let state = State::new(&tree.reference, now);
        let mut open = BinaryHeap::new();
        if let Some(root) = tree.nodes.first() {
            open.push((Reverse(Ordered(state.least_error(&tree.reference, root))), 0));
        }
        while let Some((Reverse(Ordered(least)), node)) = open.pop() {
            self.work += 1;
            if best.is_below(least) {
                break;
            }
            if let Some(children) = tree.nodes[node].children {
                for child in [children, children + 1] {
                    let least = state.least_error(&tree.reference, &tree.nodes[child]);
                    if !best.is_below(least) {
                        open.push((Reverse(Ordered(least)), child));
                    }
                }
                continue;
            }
            for item in &mut tree.items[tree.nodes[node].first..tree.nodes[node].end] {
                let there = |id: usize| self.changes[id].is_some() && !self.is_loose[id];
                while item.first < item.end && !there(tree.ids[item.first]) {
                    item.first += 1;
                }
                if item.first < item.end {
                    self.work += 1;
                    best.offer(tree.ids[item.first], error(&self.full, now, &item.change));
                }
            }
        }
        best.0
    }

    /// Replaces what removal `id` would change.
    pub fn set(&mut self, id: usize, change: Moments) {
        self.changes[id] = Some(change);
        if !std::mem::replace(&mut self.is_loose[id], true) {
            self.loose.push(id);
        }
    }

    /// Deletes removal `id`.
    pub fn remove(&mut self, id: usize) {
        self.left -= usize::from(self.changes[id].take().is_some());
    }

    fn build(&mut self, now: &Moments) {
        self.tree = Tree::new(&self.changes, now, &self.full);
        for id in self.loose.drain(..) {
            self.is_loose[id] = false;
        }
        self.work = 0;
    }
}

/// The error that a removal leaves, computed exactly as elsewhere.
fn error(full: &[f64; FEATURES.len()], now: &Moments, change: &Moments) -> f64 {
    mean_error(full, &now.plus(change).features())
}

/// The best removal so far: index and error.
struct Best(Option<(usize, f64)>);

impl Best {
    fn offer(&mut self, id: usize, error: f64) {
        if self.0.is_none_or(|(first, lowest)| error < lowest || (error == lowest && id < first)) {
            self.0 = Some((id, error));
        }
    }

    /// Whether the best error is below `least`, so that no error of at least `least` can be as
    /// good.
    fn is_below(&self, least: f64) -> bool {
        self.0.is_some_and(|(_, lowest)| lowest < least)
    }
}

/// A number with a total order; never NaN.
#[derive(PartialEq)]
struct Ordered(f64);

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// Index of the group of requests that a feature is divided by.
fn group(feature: usize) -> usize {
    if feature < 6 { feature % 2 } else { 2 }
}

fn requests(m: &Moments) -> [f64; GROUPS] {
    let (r, w) = (m.read.requests, m.write.requests);
    [r as f64, w as f64, (r + w) as f64]
}

/// The sum that each feature is the mean of, in the unit of the feature.
fn sums(m: &Moments) -> [f64; FEATURES.len()] {
    let op = |o: &OpMoments| [o.bytes as f64, o.gap_ns as f64 / 1e3, o.misaligned_bytes as f64];
    let ([a, b, c], [d, e, f]) = (op(&m.read), op(&m.write));
    [a, d, b, e, c, f, m.write.requests as f64]
}

/// The moment of reference, at which the tree was built.
#[derive(Debug, Default)]
struct Reference {
    full: [f64; FEATURES.len()],
    means: [f64; FEATURES.len()],
    requests: [f64; GROUPS],
    /// What one unit of each feature adds to the mean error; 0 if the full trace has none of it.
    weights: [f64; FEATURES.len()],
    /// Sign of each feature's deviation; 0 if the feature is near its goal.
    signs: [f64; FEATURES.len()],
}

impl Reference {
    fn new(now: &Moments, full: &[f64; FEATURES.len()]) -> Reference {
        let requests = requests(now);
        let mean = |f: usize, sum: f64| sum / requests[group(f)].max(1.0);
        let sums = sums(now);
        let means: [f64; FEATURES.len()] = std::array::from_fn(|f| mean(f, sums[f]));
        let weights: [f64; FEATURES.len()] = std::array::from_fn(|f| {
            if full[f] == 0.0 { 0.0 } else { 1.0 / full[f] / FEATURES.len() as f64 }
        });
        let signs = std::array::from_fn(|f| {
            let off = (means[f] - full[f]) / full[f].max(f64::MIN_POSITIVE);
            if off.abs() < NEAR { 0.0 } else { off.signum() }
        });
        Reference { full: *full, means, requests, weights, signs }
    }

    fn numbers(&self, change: &Moments) -> [f64; NUMBERS] {
        let (requests, sums) = (requests(change), sums(change));
        let mut numbers = [0.0; NUMBERS];
        numbers[REQUESTS..LINEAR].copy_from_slice(&requests);
        for (f, sum) in sums.into_iter().enumerate() {
            let group = group(f);
            numbers[f] = sum - self.means[f] * requests[group];
            numbers[LINEAR + group] += self.signs[f] * self.weights[f] * numbers[f];
        }
        for group in 0..GROUPS {
            numbers[ALL_LINEAR] += numbers[LINEAR + group] / self.requests[group].max(1.0);
        }
        numbers
    }

    /// Factors that turn the widths of numbers into errors; 0 for numbers by which nodes are not
    /// divided.
    fn scales(&self) -> [f64; NUMBERS] {
        let mut scales = [0.0; NUMBERS];
        for f in (0..FEATURES.len()).filter(|&f| self.signs[f] == 0.0) {
            scales[f] = self.weights[f] / self.requests[group(f)].max(1.0);
        }
        scales[ALL_LINEAR] = 1.0;
        scales
    }
}

/// The current sums, compared with a reference.
struct State {
    requests: [f64; GROUPS],
    /// How far the sum of each feature is from the sum that the reference mean gives.
    moved: [f64; FEATURES.len()],
    /// The linear parts without any removal: those of the moved sums, by group, and the fixed part.
    moved_linear: [f64; GROUPS],
    fixed: f64,
}

impl State {
    fn new(reference: &Reference, now: &Moments) -> State {
        let (requests, sums) = (requests(now), sums(now));
        let mut state = State { requests, moved: sums, moved_linear: [0.0; GROUPS], fixed: 0.0 };
        for f in 0..FEATURES.len() {
            let weight = reference.signs[f] * reference.weights[f];
            state.moved[f] -= reference.means[f] * requests[group(f)];
            state.moved_linear[group(f)] += weight * state.moved[f];
            state.fixed += weight * (reference.means[f] - reference.full[f]);
        }
        state
    }

    /// Returns a lower bound of the errors that the removals of a node leave.
    fn least_error(&self, reference: &Reference, node: &Node) -> f64 {
        let (least, most) = (&node.least, &node.most);
        let mut error = self.fixed + least[ALL_LINEAR] - ROUNDING;
        let mut divisors = [(0.0, 0.0); GROUPS];
        for g in 0..GROUPS {
            let few = self.requests[g] + least[REQUESTS + g];
            let many = self.requests[g] + most[REQUESTS + g];
            if few < 1.0 {
                // The mean of no requests is 0, whatever the formula gives.
                return 0.0;
            }
            divisors[g] = (few, many);
            error += lowest_quotient(self.moved_linear[g], (few, many));
            // The sum of all linear parts was divided by the number of requests at the reference.
            let then = 1.0 / reference.requests[g].max(1.0);
            let off = (1.0 / few - then).abs().max((1.0 / many - then).abs());
            error -= least[LINEAR + g].abs().max(most[LINEAR + g].abs()) * off;
        }
        for f in (0..FEATURES.len()).filter(|&f| reference.signs[f] == 0.0) {
            let divisor = divisors[group(f)];
            let low = reference.means[f] + lowest_quotient(self.moved[f] + least[f], divisor);
            let high = reference.means[f] - lowest_quotient(-self.moved[f] - most[f], divisor);
            let off = (low - reference.full[f]).max(reference.full[f] - high).max(0.0);
            error += reference.weights[f] * off;
        }
        error
    }
}

/// The lowest quotient of `number` by any divisor in a range above 0.
fn lowest_quotient(number: f64, (least, most): (f64, f64)) -> f64 {
    number / if number < 0.0 { least } else { most }
}

/// A binary tree of removals.
#[derive(Debug, Default)]
struct Tree {
    reference: Reference,
    nodes: Vec<Node>,
    items: Vec<Item>,
    ids: Vec<usize>,
}

#[derive(Debug)]
struct Node {
    least: [f64; NUMBERS],
    most: [f64; NUMBERS],
    /// Index of the first of two adjacent children. A leaf has none; its items are `first..end`.
    children: Option<usize>,
    first: usize,
    end: usize,
}

/// Removals with equal changes, in the order of their indices: `ids[first..end]` of the tree.
#[derive(Debug)]
struct Item {
    change: Moments,
    first: usize,
    end: usize,
}

impl Tree {
    fn new(changes: &[Option<Moments>], now: &Moments, full: &[f64; FEATURES.len()]) -> Tree {
        let reference = Reference::new(now, full);
        let key = |m: &Moments| {
            let op = |o: &OpMoments| (o.requests, o.bytes, o.gap_ns, o.misaligned_bytes);
            (op(&m.read), op(&m.write))
        };
        let mut there: Vec<(&Moments, usize)> = changes
            .iter()
            .zip(0..)
            .filter_map(|(change, id)| Some((change.as_ref()?, id)))
            .collect();
        there.sort_unstable_by_key(|(change, id)| (key(change), *id));
        let mut items: Vec<(Item, [f64; NUMBERS])> = Vec::new();
        for (at, &(change, _)) in there.iter().enumerate() {
            match items.last_mut() {
                Some((item, _)) if item.change == *change => item.end = at + 1,
                _ => {
                    let item = Item { change: *change, first: at, end: at + 1 };
                    items.push((item, reference.numbers(change)));
                }
            }
        }
        let ids = there.into_iter().map(|(_, id)| id).collect();
        let mut nodes = Vec::new();
        if !items.is_empty() {
            let scales = reference.scales();
            nodes.push(Node::bounding(&items, 0));
            let mut next = 0;
            while next < nodes.len() {
                let (first, end) = (nodes[next].first, nodes[next].end);
                if end - first > LEAF {
                    let middle = nodes[next].divide(&mut items[first..end], &scales);
                    nodes[next].children = Some(nodes.len());
                    nodes.push(Node::bounding(&items[first..first + middle], first));
                    nodes.push(Node::bounding(&items[first + middle..end], first + middle));
                }
                next += 1;
            }
        }
        Tree { reference, nodes, items: items.into_iter().map(|(item, _)| item).collect(), ids }
    }
}

impl Node {
    fn bounding(items: &[(Item, [f64; NUMBERS])], first: usize) -> Node {
        let (mut least, mut most) = ([f64::INFINITY; NUMBERS], [f64::NEG_INFINITY; NUMBERS]);
        for (_, numbers) in items {
            for n in 0..NUMBERS {
                least[n] = least[n].min(numbers[n]);
                most[n] = most[n].max(numbers[n]);
            }
        }
        Node { least, most, children: None, first, end: first + items.len() }
    }

    /// Partitions items at the median of the number with the largest scaled width. Returns where
    /// the upper half begins.
    fn divide(&self, items: &mut [(Item, [f64; NUMBERS])], scales: &[f64; NUMBERS]) -> usize {
        let width = |n: usize| (self.most[n] - self.least[n]) * scales[n];
        let widest = (0..NUMBERS).max_by(|&a, &b| width(a).total_cmp(&width(b))).unwrap_or(0);
        let middle = items.len() / 2;
        items.select_nth_unstable_by(middle, |a, b| a.1[widest].total_cmp(&b.1[widest]));
        middle
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn op() -> impl Strategy<Value = OpMoments> {
        let sums = (-3..3i64, -40..=0i64, -50..50i64, -9..=0i64);
        sums.prop_map(|(requests, kib, gap_ns, misaligned_bytes)| OpMoments {
            requests,
            bytes: kib * 512,
            gap_ns,
            misaligned_bytes,
        })
    }

    fn removal() -> impl Strategy<Value = Moments> {
        (op(), op()).prop_map(|(read, write)| Moments { read, write })
    }

    fn total(requests: i64) -> OpMoments {
        OpMoments {
            requests,
            bytes: requests * 9000,
            gap_ns: requests * 1009,
            misaligned_bytes: requests * 100,
        }
    }

    fn lowest_of_all(
        list: &[Option<Moments>],
        now: &Moments,
        full: &[f64; FEATURES.len()],
    ) -> Option<(usize, f64)> {
        let there = list.iter().enumerate().filter_map(|(id, r)| Some((id, r.as_ref()?)));
        let errors = there.map(|(id, r)| (id, error(full, now, r)));
        errors.min_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)))
    }

    proptest! {
        #[test]
        fn it_finds_what_a_search_through_all_finds(
            list in prop::collection::vec(removal(), 1..200),
            changes in prop::collection::vec((0..200usize, prop::option::of(removal())), 0..60),
            (reads, writes, full_reads, full_writes) in (200..900i64, 200..900i64, 0..900i64, 0..900i64),
            skew in 0..3i64,
        ) {
            let full = Moments { read: total(full_reads), write: total(full_writes) };
            let mut now = Moments { read: total(reads), write: total(writes) };
            now.read.bytes += skew * 300 * reads;
            let mut removals = Removals::new(list.clone(), &now, &full);
            let mut list: Vec<Option<Moments>> = list.into_iter().map(Some).collect();
            for (id, change) in changes {
                let expected = lowest_of_all(&list, &now, &full.features());
                prop_assert_eq!(removals.lowest(&now), expected);
                let id = id % list.len();
                match (change, list[id]) {
                    (Some(removal), Some(_)) => {
                        list[id] = Some(removal);
                        removals.set(id, removal);
                    }
                    (_, there) => {
                        list[id] = None;
                        removals.remove(id);
                        now = now.plus(&there.unwrap_or_default());
                    }
                }
            }
        }
    }

    #[test]
    fn of_none_there_is_no_lowest() {
        let none = Moments::default();
        assert_eq!(Removals::new(Vec::new(), &none, &none).lowest(&none), None);
        let mut removals = Removals::new(vec![none], &none, &none);
        assert_eq!(removals.lowest(&none), Some((0, 0.0)));
        removals.remove(0);
        assert_eq!(removals.lowest(&none), None);
    }
}
