//! The tree of phases: larger ones, and smaller ones nested in them (section 4.3.4).
//!
//! The root is the whole workload, at a cache size in which all reuses hit. For each phase, smaller
//! and smaller sizes are tried. If a size divides the phase into several, these become its
//! children: a child that fits gets the size tried, one that does not keeps its parent's, and each
//! is searched at the next smaller sizes. If a size does not divide the phase, and causes no more
//! misses than the size that the phase began with, the phase gets that size.
//!
//! Decided: sizes are halved. Where the thesis runs a workload several times to tell phases from
//! noise, one record is cut into windows twice, the second time half a window later. Siblings that
//! both fit or both do not, with durations and needs within a factor of two, are repetitions of one
//! phase. *No more misses* allows more by a hundredth of the accesses, as counts never agree
//! exactly where windows cut through a transition.

use core::ops::Range;

use super::detect::{Fit, Found, common, detect};
use super::record::{AccessRecord, MARK};
use super::reuse::PhaseReuse;
use super::reused::reused_blocks;
use super::windows::WindowMisses;

/// The smallest size tried, in blocks.
const SIZE_MIN: u64 = 16;
/// *No more misses* allows one miss more per this many accesses.
const MISSES_ALIKE: u64 = 100;
/// Default number of windows in a record.
const WINDOWS: u64 = 1000;

/// Options of the search for phases.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PhaseOptions {
    /// Length of a window in accesses, rounded up to a multiple of [`MARK`]; `None` for a
    /// thousandth of the record.
    pub window: Option<u64>,
    /// Maximum length of a transition between two phases, in windows (the TL of the paper, which
    /// names no value).
    pub transition_windows: usize,
    /// Defines the ERSS of a phase as the fewest blocks with at most this ratio of misses to hits,
    /// or with the lowest ratio that any size has; `None` for [`PhaseReuse::default_erss_blocks`].
    pub miss_hit_ratio: Option<f64>,
    /// A phase shorter than this share of the record is too short to provide cache for.
    pub duration_min: f64,
}

impl Default for PhaseOptions {
    fn default() -> Self {
        Self { window: None, transition_windows: 4, miss_hit_ratio: None, duration_min: 0.1 }
    }
}

/// Whether a phase fits in the cache size at which it was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PhaseState {
    /// The workload as a whole.
    Whole,
    /// It fits.
    In,
    /// It does not fit; it fits in the size of its parent.
    Out,
}

/// A phase: a node of the tree.
#[derive(Clone, PartialEq, Debug)]
pub struct Phase {
    /// The number of the phase that it is nested in; `None` for the whole.
    pub parent: Option<usize>,
    /// The positions of its accesses.
    pub span: Range<u64>,
    /// Whether it fits in the size at which it was found.
    pub state: PhaseState,
    /// The cache size at which it was found; for the whole, the largest size.
    pub found_blocks: u64,
    /// The size of the smallest cache tried in which it fits, a power of two.
    pub size_blocks: u64,
    /// The effective reuse set size.
    pub erss_blocks: u64,
    /// The blocks that it needs beyond the largest need of the phases nested in it that are long
    /// enough.
    pub marginal_erss_blocks: u64,
    /// Number of distinct blocks.
    pub in_use_blocks: u64,
    /// Number of distinct blocks accessed more than once.
    pub reuse_set_blocks: u64,
    /// Number of accesses to a block that the phase has accessed before.
    pub reuses: u64,
    /// Number of reuses that a cache large enough for the nested phases does not serve.
    pub marginal_reuses: u64,
    /// Number of accesses to blocks that are accessed only once.
    pub floods: u64,
    /// Number of accesses of all workloads during the phase.
    pub together: u64,
    /// The number of the first sibling that it repeats; its own number if it repeats none.
    pub repeats: usize,
}

impl Phase {
    /// Number of accesses.
    pub fn accesses(&self) -> u64 {
        self.span.end - self.span.start
    }
}

/// The phases of a workload.
#[derive(Clone, PartialEq, Debug)]
pub struct PhaseTree {
    /// The phases. Each comes after the one that it is nested in, and siblings are in order of
    /// time.
    pub phases: Vec<Phase>,
    /// Length of a window in accesses.
    pub window: u64,
    /// A phase with fewer accesses is too short to provide cache for.
    pub accesses_min: u64,
}

impl PhaseTree {
    /// Finds the phases of a record.
    pub fn new(record: &AccessRecord, options: &PhaseOptions) -> Self {
        Self::build(record, options, |spans| reused_blocks(record, spans))
    }

    /// Returns the ERSS of [`PhaseTree::largest`], faster than building the whole tree.
    pub fn erss_blocks(record: &AccessRecord, options: &PhaseOptions) -> u64 {
        Self::build(record, options, |spans| vec![0; spans.len()]).largest().erss_blocks
    }

    /// Builds the tree. `reused` returns the number of blocks that each span accesses more than
    /// once.
    fn build(
        record: &AccessRecord,
        options: &PhaseOptions,
        reused: impl FnOnce(&[Range<u64>]) -> Vec<u64>,
    ) -> Self {
        let accesses = record.accesses();
        let window = options.window.unwrap_or(accesses.div_ceil(WINDOWS)).max(1);
        let window = window.next_multiple_of(MARK);
        let largest = record.max_distance().map_or(SIZE_MIN, |max| max + 1);
        let largest = largest.next_power_of_two().max(SIZE_MIN);
        let mut tree = Self {
            phases: vec![Phase::new(None, 0..accesses, PhaseState::Whole, largest)],
            window,
            accesses_min: (accesses as f64 * options.duration_min.clamp(0.0, 1.0)).ceil() as u64,
        };
        let misses = WindowMisses::new(record, window, SIZE_MIN, largest);
        let transition = options.transition_windows;
        Builder { misses, window, transition }.refine(&mut tree.phases, 0, largest);
        let spans: Vec<_> = tree.phases.iter().map(|phase| phase.span.clone()).collect();
        let reused = reused(&spans);
        for number in (0..tree.phases.len()).rev() {
            tree.measure(record, options, number, reused[number]);
        }
        tree.find_repetitions();
        tree
    }

    /// Returns the phase to provide cache for: the one with the largest ERSS among those long
    /// enough. Ties go to the first.
    pub fn largest(&self) -> &Phase {
        let whole = &self.phases[0];
        self.phases.iter().filter(|p| self.is_long(p)).fold(whole, |best, phase| {
            if phase.erss_blocks > best.erss_blocks { phase } else { best }
        })
    }

    /// Returns whether a phase is long enough to provide cache for.
    pub fn is_long(&self, phase: &Phase) -> bool {
        phase.accesses() >= self.accesses_min
    }

    /// Returns the number of each phase that is not a repetition, and how often it occurs within
    /// its parent (the weight of its edge), in order of number.
    pub fn repetitions(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let first = (0..self.phases.len()).filter(|&n| self.phases[n].repeats == n);
        first.map(|n| (n, self.phases.iter().filter(|p| p.repeats == n).count() as u64))
    }

    /// Measures the reuse and needs of a phase. The phases nested in it must have been measured.
    fn measure(
        &mut self,
        record: &AccessRecord,
        options: &PhaseOptions,
        number: usize,
        reused: u64,
    ) {
        let reuse = PhaseReuse::with_reused(record, self.phases[number].span.clone(), reused);
        let erss_blocks = match options.miss_hit_ratio {
            None => reuse.default_erss_blocks(),
            Some(ratio) => {
                reuse.erss_blocks(ratio.max(reuse.miss_hit_ratio(u64::MAX))).unwrap_or(0)
            }
        };
        // Only phases nested directly count: one nested deeper needs no more, or counts for its own
        // parent.
        let nested = self.phases[number + 1..].iter().filter(|p| p.parent == Some(number));
        let nested = nested.filter(|p| p.accesses() >= self.accesses_min);
        let nested = nested.map(|p| p.erss_blocks).max().unwrap_or(0).min(erss_blocks);
        let phase = &mut self.phases[number];
        phase.erss_blocks = erss_blocks;
        phase.marginal_erss_blocks = erss_blocks - nested;
        phase.in_use_blocks = reuse.in_use_blocks;
        phase.reuse_set_blocks = reuse.reuse_set_blocks;
        phase.reuses = reuse.reuses;
        phase.marginal_reuses = reuse.reuses - reuse.hits(nested);
        phase.floods = reuse.floods;
        phase.together = record.together(phase.span.clone());
    }

    fn find_repetitions(&mut self) {
        let alike = |a: u64, b: u64| a <= 2 * b && b <= 2 * a;
        for number in 0..self.phases.len() {
            let one = &self.phases[number];
            let same = |&n: &usize| {
                let other = &self.phases[n];
                other.repeats == n
                    && (other.parent, other.state) == (one.parent, one.state)
                    && alike(other.accesses(), one.accesses())
                    && alike(other.erss_blocks, one.erss_blocks)
            };
            let first = one.parent.and_then(|parent| (parent + 1..number).find(same));
            self.phases[number].repeats = first.unwrap_or(number);
        }
    }
}

impl Phase {
    fn new(parent: Option<usize>, span: Range<u64>, state: PhaseState, found_blocks: u64) -> Self {
        Self {
            parent,
            span,
            state,
            found_blocks,
            size_blocks: found_blocks,
            erss_blocks: 0,
            marginal_erss_blocks: 0,
            in_use_blocks: 0,
            reuse_set_blocks: 0,
            reuses: 0,
            marginal_reuses: 0,
            floods: 0,
            together: 0,
            repeats: 0,
        }
    }
}

struct Builder {
    misses: WindowMisses,
    window: u64,
    transition: usize,
}

impl Builder {
    /// Adds the phases nested in phase `number`, trying sizes from `size` down.
    fn refine(&self, phases: &mut Vec<Phase>, number: usize, mut size: u64) {
        let span = phases[number].span.clone();
        let windows = (span.end - span.start).div_ceil(self.window) as usize;
        // A span of at most two transitions has no phases that differ from transitions.
        if windows <= 2 * self.transition {
            return;
        }
        let misses_before = self.misses.misses(span.clone(), phases[number].size_blocks);
        while size >= SIZE_MIN {
            let found = self.find(span.clone(), size);
            if found.len() > 1 {
                for Found { fit, windows } in found {
                    let from = span.start + windows.start as u64 * self.window;
                    let to = (span.start + windows.end as u64 * self.window).min(span.end);
                    let (state, fits) = match fit {
                        Fit::In => (PhaseState::In, size),
                        Fit::Out => (PhaseState::Out, phases[number].size_blocks),
                    };
                    let child = Phase::new(Some(number), from..to, state, size);
                    phases.push(Phase { size_blocks: fits, ..child });
                    let child = phases.len() - 1;
                    self.refine(phases, child, size / 2);
                }
                return;
            }
            let misses = self.misses.misses(span.clone(), size);
            if misses <= misses_before + (span.end - span.start) / MISSES_ALIKE {
                phases[number].size_blocks = size;
            }
            // If nothing hits at this size, nothing hits at a smaller one.
            if misses == span.end - span.start {
                return;
            }
            size /= 2;
        }
    }

    /// Returns the phases of a span at one size, in windows from the start of the span.
    fn find(&self, span: Range<u64>, size: u64) -> Vec<Found> {
        let rates = |first: u64| {
            let bounds = core::iter::successors(Some(first), |&to| Some(to + self.window));
            let mut from = span.start;
            let mut rates = Vec::new();
            for to in bounds.map(|to| to.min(span.end)) {
                if from == to {
                    break;
                }
                rates.push(self.misses.misses(from..to, size) as f64 / (to - from) as f64);
                from = to;
            }
            rates
        };
        let once = detect(&rates(span.start + self.window), self.transition);
        if once.len() < 2 {
            return once;
        }
        common(once, &detect(&rates(span.start + self.window / 2), self.transition))
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::record;
    use super::*;
    use proptest::prelude::*;

    /// Returns loops, each given as (blocks, accesses), one after the other. Loops over the same
    /// number of blocks are over the same blocks.
    fn loops(loops: &[(u64, u64)]) -> Vec<u64> {
        let one = |&(blocks, length)| (0..length).map(move |at| (blocks << 32) + at % blocks);
        loops.iter().flat_map(one).collect()
    }

    fn tree(keys: &[u64], window: u64) -> PhaseTree {
        let options = PhaseOptions { window: Some(window), ..PhaseOptions::default() };
        PhaseTree::new(&record(keys), &options)
    }

    /// Returns the ERSS of each phase nested directly in phase `number`.
    fn nested(tree: &PhaseTree, number: usize) -> Vec<u64> {
        let nested = tree.phases.iter().filter(|p| p.parent == Some(number));
        nested.map(|p| p.erss_blocks).collect()
    }

    #[test]
    fn one_loop_is_one_phase_that_needs_its_blocks() {
        let tree = tree(&loops(&[(1000, 100_000)]), 64);
        assert_eq!(tree.phases.len(), 1);
        let whole = tree.largest();
        // The smallest power of two with no more misses than an unbounded cache.
        assert_eq!((whole.size_blocks, whole.erss_blocks, whole.floods), (1024, 1000, 0));
        assert_eq!((whole.reuses, whole.together), (99_000, 100_000));
        assert_eq!((whole.marginal_erss_blocks, whole.marginal_reuses), (1000, 99_000));
    }

    #[test]
    fn a_phase_that_fits_and_one_that_does_not_are_told_apart() {
        let tree = tree(&loops(&[(100, 64_000), (5000, 64_000)]), 640);
        assert_eq!(nested(&tree, 0), [100, 5000]);
        let states: Vec<_> = tree.phases.iter().map(|p| (p.state, p.size_blocks)).collect();
        // Both are found at the largest size in which the second loop misses. The first then has no
        // more misses down to 128 blocks; the second keeps the size of its parent.
        let expected = [(PhaseState::Whole, 8192), (PhaseState::In, 128), (PhaseState::Out, 8192)];
        assert_eq!(states, expected);
        // Positions are exact to within windows: a phase begins with the first of its windows.
        let small = &tree.phases[1];
        assert!(small.span.start <= 1280 && small.span.end.abs_diff(64_000) <= 1280, "{small:?}");
        assert_eq!(tree.largest().erss_blocks, 5000);
    }

    #[test]
    fn a_phase_that_repeats_is_an_edge_of_that_weight() {
        let parts: Vec<(u64, u64)> =
            (0..12).map(|n| if n % 2 == 0 { (50, 6400) } else { (3000, 16_000) }).collect();
        let tree = tree(&loops(&parts), 320);
        let needs = nested(&tree, 0);
        assert_eq!(needs.iter().filter(|&&n| n == 50).count(), 6, "{needs:?}");
        assert_eq!(needs.iter().filter(|&&n| n == 3000).count(), 6, "{needs:?}");
        let weights: Vec<u64> = tree.repetitions().map(|(_, weight)| weight).collect();
        assert_eq!(weights, [1, 6, 6]);
    }

    #[test]
    fn phases_nest() {
        // Two large phases; the second consists of loops over 64 blocks and over 1000.
        let mut parts = vec![(20_000, 200_000)];
        for _ in 0..4 {
            parts.extend([(64, 25_600), (1000, 25_600)]);
        }
        let tree = tree(&loops(&parts), 640);
        // The blocks of the first loop over 1000 are new, which separates it from what came before.
        let second =
            tree.phases.iter().position(|p| p.state == PhaseState::In && p.erss_blocks == 1000);
        let second = second.unwrap();
        assert_eq!(tree.phases[second].parent, Some(0));
        assert_eq!(nested(&tree, second), [1000, 64, 1000, 64, 1000, 64, 1000]);
    }

    #[test]
    fn what_is_needed_beyond_nested_phases_is_marginal() {
        // A loop over 4000 blocks, interrupted by loops over 100.
        let mut keys = Vec::new();
        for round in 0..10u64 {
            keys.extend((0..16_000).map(|at| at % 4000));
            keys.extend((0..16_000).map(|at| (1 << 32) + (round << 20) + at % 100));
        }
        let tree = tree(&keys, 640);
        let whole = &tree.phases[0];
        assert!((4000..=4100).contains(&whole.erss_blocks), "{whole:?}");
        // Each of the longest nested phases is a twentieth of the record: too short by default.
        assert_eq!(whole.marginal_erss_blocks, whole.erss_blocks);
        let options =
            PhaseOptions { window: Some(640), duration_min: 0.02, ..PhaseOptions::default() };
        let finer = PhaseTree::new(&record(&keys), &options);
        let whole = &finer.phases[0];
        assert!(whole.marginal_erss_blocks < whole.erss_blocks, "{whole:?}");
        assert!(whole.marginal_reuses < whole.reuses);
    }

    #[test]
    fn a_short_phase_that_needs_much_is_not_provided_for() {
        let keys = loops(&[(100, 190_000), (4000, 10_000)]);
        let options = PhaseOptions { window: Some(256), ..PhaseOptions::default() };
        let tree = PhaseTree::new(&record(&keys), &options);
        assert!(tree.largest().erss_blocks <= 100, "{:?}", tree.largest());
    }

    #[test]
    fn an_empty_record_and_one_of_a_single_access_have_one_phase() {
        for keys in [&[][..], &[7]] {
            let tree = PhaseTree::new(&record(keys), &PhaseOptions::default());
            assert_eq!((tree.phases.len(), tree.largest().erss_blocks), (1, 0));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn every_tree_is_one(
            parts in proptest::collection::vec((1..3000u64, 64..20_000u64), 1..8),
            window in 1..1000u64, transition_windows in 0..6usize,
            ratio in proptest::option::of(0.0..3.0f64),
        ) {
            let keys = loops(&parts);
            let options = PhaseOptions {
                window: Some(window), transition_windows, miss_hit_ratio: ratio,
                duration_min: 0.05,
            };
            let record = record(&keys);
            let tree = PhaseTree::new(&record, &options);
            prop_assert_eq!(tree.phases[0].span.clone(), 0..keys.len() as u64);
            let needs = PhaseTree::erss_blocks(&record, &options);
            prop_assert_eq!(needs, tree.largest().erss_blocks);
            for (number, phase) in tree.phases.iter().enumerate() {
                prop_assert!(phase.accesses() > 0);
                let reuse = PhaseReuse::new(&record, phase.span.clone());
                prop_assert_eq!((phase.reuses, phase.floods), (reuse.reuses, reuse.floods));
                prop_assert_eq!(phase.together, phase.accesses());
                prop_assert!(phase.erss_blocks <= phase.in_use_blocks);
                prop_assert!(phase.marginal_erss_blocks <= phase.erss_blocks);
                prop_assert!(phase.marginal_reuses <= phase.reuses);
                let repeated = &tree.phases[phase.repeats];
                prop_assert_eq!((repeated.parent, repeated.repeats), (phase.parent, phase.repeats));
                let Some(parent) = phase.parent else { continue };
                prop_assert!(parent < number);
                let outer = &tree.phases[parent];
                prop_assert!(outer.span.start <= phase.span.start);
                prop_assert!(phase.span.end <= outer.span.end);
                prop_assert!(phase.size_blocks <= outer.size_blocks);
                // Siblings do not overlap.
                let next = tree.phases[number + 1..].iter().find(|p| p.parent == Some(parent));
                prop_assert!(next.is_none_or(|n| n.span.start >= phase.span.end));
            }
        }
    }
}
