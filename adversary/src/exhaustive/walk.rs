//! Enumerates all combinations of choices, and knows which part of a run is new.

use std::cell::RefCell;
use std::rc::Rc;

use forebay_device::choices::Choices;

/// Enumerates, depth first, all choices of a procedure that is run repeatedly. Clones share the
/// same walk.
#[derive(Clone, Debug, Default)]
pub struct Walk(Rc<RefCell<State>>);

#[derive(Debug, Default)]
struct State {
    digits: Vec<(u64, u64)>,
    position: usize,
    /// Number of digits that this run has in common with the previous run.
    old: usize,
}

impl Walk {
    /// Advances to the next combination; returns false if there is none.
    pub fn advance(&self) -> bool {
        let mut s = self.0.borrow_mut();
        let length = s.position;
        s.digits.truncate(length);
        s.position = 0;
        while let Some((digit, radix)) = s.digits.pop() {
            if digit + 1 < radix {
                s.old = s.digits.len() + 1;
                s.digits.push((digit + 1, radix));
                return true;
            }
        }
        false
    }

    /// Whether this part of the run differs from all earlier runs.
    pub fn is_new(&self) -> bool {
        let s = self.0.borrow();
        s.position >= s.old
    }

    /// The choices of this run so far.
    pub fn path(&self) -> Vec<u64> {
        let s = self.0.borrow();
        s.digits[..s.position].iter().map(|d| d.0).collect()
    }
}

impl Choices for Walk {
    fn choose(&mut self, n: u64) -> u64 {
        if n <= 1 {
            return 0;
        }
        let mut s = self.0.borrow_mut();
        let at = s.position;
        if at == s.digits.len() {
            s.digits.push((0, n));
        }
        let (digit, radix) = s.digits[at];
        assert_eq!(radix, n, "the run is not deterministic: its choices changed");
        s.position += 1;
        digit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_new_once() {
        // A run makes three choices, each among one more than the last; count the points that are
        // new.
        let walk = Walk::default();
        let mut points = Vec::new();
        let mut runs = 0;
        loop {
            runs += 1;
            for i in 0..3 {
                walk.clone().choose(1 + i);
                if walk.is_new() {
                    points.push(walk.path());
                }
            }
            if !walk.advance() {
                break;
            }
        }
        let mut unique = points.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(runs, 6);
        assert_eq!(points.len(), 1 + 2 + 6, "the prefixes of all runs");
        assert_eq!(unique.len(), points.len());
    }
}
