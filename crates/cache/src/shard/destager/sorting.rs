//! Sorting in steps: a merge sort that can stop after any merge.

use crate::budget::CallBudget;

/// Length of the runs that are sorted at once at the beginning.
const RUN: usize = 64;
/// Number of items sorted or merged at the cost of one step, which is that of looking up a record
/// in the index.
const ITEMS_A_STEP: usize = 16;

/// A sort in progress, of items that the caller holds.
#[derive(Debug)]
pub(crate) struct Sorting<T> {
    /// The output of the current merge.
    merged: Vec<T>,
    /// Runs of `2 * width` items are sorted before `at`, and runs of `width` from there on. 0: runs
    /// of [`RUN`] before `at`, and nothing from there on.
    width: usize,
    at: usize,
}

impl<T: Ord + Copy> Sorting<T> {
    /// For at most `items_max` items; allocates nothing later.
    pub fn new(items_max: usize) -> Sorting<T> {
        Sorting { merged: Vec::with_capacity(items_max), width: 0, at: 0 }
    }

    pub fn memory_bytes(&self) -> u64 {
        (self.merged.capacity() * size_of::<T>()) as u64
    }

    /// Begins to sort items in any order.
    pub fn begin(&mut self) {
        (self.width, self.at) = (0, 0);
    }

    /// Continues; returns whether all items are sorted. Between two steps the items must not
    /// change.
    pub fn step(&mut self, items: &mut [T], budget: &mut CallBudget) -> bool {
        while self.width == 0 || self.width < items.len() {
            let (left, width) = (self.at, self.width.max(RUN / 2));
            let middle = items.len().min(left + width);
            let end = items.len().min(left + 2 * width);
            if left < end {
                if !budget.take_many((end - left).div_ceil(ITEMS_A_STEP) as u32) {
                    return false;
                }
                match self.width {
                    0 => items[left..end].sort_unstable(),
                    _ => self.merge(&mut items[left..end], middle - left),
                }
            }
            self.at = end;
            if end == items.len() {
                (self.width, self.at) = (2 * width, 0);
            }
        }
        true
    }

    /// Merges two runs; the second begins at `middle`.
    fn merge(&mut self, items: &mut [T], middle: usize) {
        let (mut one, mut other) = (0, middle);
        if other >= items.len() || items[other - 1] <= items[other] {
            return;
        }
        self.merged.clear();
        while one < middle && other < items.len() {
            let from = if items[other] < items[one] { &mut other } else { &mut one };
            self.merged.push(items[*from]);
            *from += 1;
        }
        self.merged.extend_from_slice(&items[one..middle]);
        // The rest of the second run is in its place already.
        items[..self.merged.len()].copy_from_slice(&self.merged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Items of all lengths around those of runs, with repetitions, against the sort of the
    /// library.
    #[test]
    fn a_sort_in_steps_sorts_whatever_a_step_may_cost() {
        let mut x = 1_u64;
        let mut next = move || {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 33) as u32
        };
        for length in (0..200).chain([255, 256, 257, 1000, 4096, 5000]) {
            for (distinct, steps) in [(3, 1), (u32::MAX, 7), (100, u32::MAX)] {
                let mut items: Vec<u32> = (0..length).map(|_| next() % distinct).collect();
                let mut sorted = items.clone();
                sorted.sort_unstable();
                let mut sorting = Sorting::new(items.len());
                let mut budget = CallBudget::UNLIMITED;
                let mut calls = 0;
                sorting.begin();
                loop {
                    budget.refill(steps);
                    calls += 1;
                    if sorting.step(&mut items, &mut budget) {
                        break;
                    }
                    assert!(budget.is_short());
                }
                assert_eq!(items, sorted, "{length} items, {steps} steps a call");
                assert!(steps != u32::MAX || calls == 1);
                assert!(steps != 1 || (calls == 1) == (length <= RUN), "{length} items");
                assert_eq!(sorting.merged.capacity(), length, "it allocates while it sorts");
            }
        }
    }
}
