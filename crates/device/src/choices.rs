//! The source of a test's decisions: a seed, a tape, or an exhaustive walk over all of them.

/// A source of decisions. Deterministic: the same source gives the same run.
pub trait Choices {
    /// A number below `n`; 0 when `n` is 0 or 1.
    fn choose(&mut self, n: u64) -> u64;

    /// Whether an event with a chance of 1 in `n` happens; never for 0.
    fn one_in(&mut self, n: u32) -> bool {
        n != 0 && self.choose(n.into()) == 0
    }

    /// Fills `bytes` with garbage.
    fn garbage(&mut self, bytes: &mut [u8]) {
        let mut seed = Seeded::new(self.choose(u64::MAX));
        for chunk in bytes.chunks_mut(8) {
            let word = seed.next_word().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

/// Pseudo-random choices from a seed (SplitMix64, Steele, Lea and Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Seeded(u64);

impl Seeded {
    /// The sequence that `seed` determines.
    pub fn new(seed: u64) -> Seeded {
        Seeded(seed)
    }

    /// The next 64 random bits.
    pub fn next_word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

impl Choices for Seeded {
    fn choose(&mut self, n: u64) -> u64 {
        if n <= 1 {
            return 0;
        }
        ((u128::from(self.next_word()) * u128::from(n)) >> 64) as u64
    }
}

/// Walks over every combination of choices of a procedure that is run once for each combination.
///
/// ```
/// use forebay_device::choices::{Choices, Exhaustive};
/// let mut walk = Exhaustive::default();
/// let mut seen = Vec::new();
/// loop {
///     seen.push((walk.choose(2), walk.choose(3)));
///     if !walk.advance() {
///         break;
///     }
/// }
/// assert_eq!(seen, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Exhaustive {
    digits: Vec<(u64, u64)>,
    position: usize,
}

impl Exhaustive {
    /// Advances to the next combination; false when all have been visited.
    pub fn advance(&mut self) -> bool {
        self.digits.truncate(self.position);
        self.position = 0;
        while let Some((digit, radix)) = self.digits.pop() {
            if digit + 1 < radix {
                self.digits.push((digit + 1, radix));
                return true;
            }
        }
        false
    }

    /// The choices of the current run so far, to be replayed with [`Tape`].
    pub fn tape(&self) -> Tape {
        Tape::new(self.digits[..self.position].iter().map(|&(digit, _)| digit).collect())
    }
}

impl Choices for Exhaustive {
    fn choose(&mut self, n: u64) -> u64 {
        if n <= 1 {
            return 0;
        }
        if self.position == self.digits.len() {
            self.digits.push((0, n));
        }
        let (digit, radix) = self.digits[self.position];
        assert_eq!(
            radix, n,
            "the procedure is not deterministic: it made different choices when it was repeated"
        );
        self.position += 1;
        digit
    }

    fn garbage(&mut self, bytes: &mut [u8]) {
        bytes.fill(0xA5);
    }
}

/// Replays given choices, then 0 forever.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tape {
    choices: Vec<u64>,
    position: usize,
}

impl Tape {
    /// A tape that returns `choices` in order (each modulo the requested range).
    pub fn new(choices: Vec<u64>) -> Tape {
        Tape { choices, position: 0 }
    }

    /// The recorded choices.
    pub fn choices(&self) -> &[u64] {
        &self.choices
    }
}

impl Choices for Tape {
    fn choose(&mut self, n: u64) -> u64 {
        if n <= 1 {
            return 0;
        }
        let choice = self.choices.get(self.position).copied().unwrap_or(0);
        self.position += 1;
        choice % n
    }

    fn garbage(&mut self, bytes: &mut [u8]) {
        bytes.fill(0xA5);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeded_choices_repeat_and_stay_in_range() {
        let run = |seed| {
            let mut choices = Seeded::new(seed);
            (1..200).map(|n| choices.choose(n)).collect::<Vec<_>>()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
        assert!(run(7).iter().zip(1..).all(|(&c, n): (&u64, u64)| c < n));
    }

    #[test]
    fn the_exhaustive_walk_follows_choices_that_depend_on_earlier_ones() {
        let mut walk = Exhaustive::default();
        let mut seen = Vec::new();
        loop {
            let first = walk.choose(3);
            let rest: Vec<_> = (0..first).map(|_| walk.choose(2)).collect();
            seen.push((first, rest));
            if !walk.advance() {
                break;
            }
        }
        assert_eq!(seen.len(), 1 + 2 + 4);
        let mut unique = seen.clone();
        unique.dedup();
        assert_eq!(unique, seen);
    }

    #[test]
    fn a_tape_repeats_a_walks_choices() {
        let mut walk = Exhaustive::default();
        walk.choose(2);
        walk.choose(5);
        walk.advance();
        let said = (walk.choose(2), walk.choose(5));
        let mut tape = walk.tape();
        assert_eq!((tape.choose(2), tape.choose(5)), said);
        assert_eq!(tape.choose(9), 0);
    }
}
