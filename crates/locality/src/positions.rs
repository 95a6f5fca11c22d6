//! A set of positions in a stack, with queries for the number of smaller positions in the set and
//! for the n-th position outside it.

/// A bitmap with a Fenwick tree over its words; grows as positions are used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Positions {
    words: Vec<u64>,
    /// A Fenwick tree of the number of bits set per word: node `i` covers the words from `i - (i &
    /// -i)` to `i - 1`. Its length is the number of words (a power of two) plus 1; node 0 is
    /// unused.
    sums: Vec<u32>,
}

impl Positions {
    /// Adds a position that is not in the set.
    pub(crate) fn insert(&mut self, position: u32) {
        let word = position as usize / 64;
        if word >= self.words.len() {
            self.grow((word + 1).next_power_of_two());
        }
        debug_assert!(self.words[word] & (1 << (position % 64)) == 0);
        self.words[word] |= 1 << (position % 64);
        self.add(word, 1);
    }

    /// Removes a position that is in the set.
    pub(crate) fn remove(&mut self, position: u32) {
        let word = position as usize / 64;
        debug_assert!(self.words[word] & (1 << (position % 64)) != 0);
        self.words[word] &= !(1 << (position % 64));
        self.add(word, u32::MAX);
    }

    /// Returns the number of positions in the set below this one.
    pub(crate) fn rank(&self, position: u32) -> u32 {
        let word = position as usize / 64;
        let Some(bits) = self.words.get(word) else { return self.all() };
        let mut rank = (bits & ((1 << (position % 64)) - 1)).count_ones();
        let mut node = word;
        while node > 0 {
            rank += self.sums[node];
            node &= node - 1;
        }
        rank
    }

    /// Returns the `n`-th position outside the set, counted from 0.
    pub(crate) fn nth_free(&self, n: u32) -> u32 {
        let (mut node, mut left) = (0, n);
        let mut step = self.words.len();
        while step > 0 {
            let next = node + step;
            if next < self.sums.len() {
                let free = 64 * step as u32 - self.sums[next];
                if free <= left {
                    (node, left) = (next, left - free);
                }
            }
            step /= 2;
        }
        let Some(&bits) = self.words.get(node) else { return 64 * node as u32 + left };
        let mut free = !bits;
        for _ in 0..left {
            free &= free - 1;
        }
        64 * node as u32 + free.trailing_zeros()
    }

    fn all(&self) -> u32 {
        self.sums.last().copied().unwrap_or(0)
    }

    fn add(&mut self, word: usize, delta: u32) {
        let mut node = word + 1;
        while let Some(sum) = self.sums.get_mut(node) {
            *sum = sum.wrapping_add(delta);
            node += node & node.wrapping_neg();
        }
    }

    #[cold]
    fn grow(&mut self, words: usize) {
        let all = self.all();
        self.words.resize(words, 0);
        let before = self.sums.len();
        self.sums.resize(words + 1, 0);
        // New nodes that cover all old words start with the sum over those words.
        if before > 0 {
            let mut node = before - 1;
            while node < words {
                node *= 2;
                self.sums[node] = all;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn ranks_and_free_positions_are_those_of_a_plain_set(
            changes in proptest::collection::vec(prop_oneof![0..70u32, 0..5000u32], 0..400)
        ) {
            let (mut positions, mut plain) = (Positions::default(), BTreeSet::new());
            for position in changes {
                if plain.insert(position) {
                    positions.insert(position);
                } else {
                    plain.remove(&position);
                    positions.remove(position);
                }
                let rank = |p: u32| plain.range(..p).count() as u32;
                for p in [position, position / 2, position + 1, 4 * position + 7] {
                    prop_assert_eq!(positions.rank(p), rank(p));
                    if !plain.contains(&p) {
                        prop_assert_eq!(positions.nth_free(p - rank(p)), p);
                    }
                }
            }
        }
    }
}
