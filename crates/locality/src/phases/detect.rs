//! Finds phases at one cache size, from hits and misses alone (section 4.3.4, figure 4.6).
//!
//! The workload is cut into windows of equal numbers of accesses. Each window is an event, by its
//! miss rate: HIT below the lower threshold, MISS at or above the upper one, else NONE. The
//! thresholds are the 10th and the 90th percentile of the histogram of miss rates. The events drive
//! three states: in a phase that fits in the cache (IP), in one that does not (OP), or not yet
//! clear which:
//!
//! ```text
//!  start ──▶ IP|OP ── HIT ──▶ IP        IP ── MISS ──▶ IP|OP
//!            IP|OP ── longer than TL ──▶ OP        OP ── HIT ──▶ IP
//! ```
//!
//! Decided: the histogram has bins of 1/20. The lower threshold is the upper edge of its bin, and
//! the upper threshold the lower edge of its bin, so that windows like those at the percentile are
//! events too (at most a tenth of the windows lies strictly beyond each percentile, whatever their
//! rates). Thresholds less than two bins apart do not separate phases. A phase that does not fit
//! starts when the state became unclear, not TL later.

use core::ops::Range;

/// Number of bins in the histogram of miss rates.
const BINS: usize = 20;

/// Whether a phase fits in the cache size tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fit {
    In,
    Out,
}

/// A phase that was found, in windows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) fit: Fit,
    pub(crate) windows: Range<usize>,
}

/// Returns the lower threshold (windows below it are HITs) and the upper one (windows at or above
/// it are MISSes); `None` if the rates do not differ enough.
fn thresholds(rates: &[f64]) -> Option<(f64, f64)> {
    let mut histogram = [0usize; BINS];
    rates.iter().for_each(|&rate| histogram[bin(rate)] += 1);
    // The bin of the window at this percentile; ranks count from 1.
    let percentile = |hundredths: usize| {
        let rank = (rates.len() * hundredths).div_ceil(100).max(1);
        let mut before = 0;
        histogram.iter().position(|&n| {
            before += n;
            before >= rank
        })
    };
    let (low, high) = (percentile(10)? + 1, percentile(90)?);
    let edge = |bin: usize| bin as f64 / BINS as f64;
    (high >= low + 2).then_some((edge(low), edge(high)))
}

fn bin(rate: f64) -> usize {
    ((rate * BINS as f64) as usize).min(BINS - 1)
}

/// Returns the phases in a sequence of miss rates. A stretch of more than `transition` windows that
/// starts with a MISS, or at the start of the sequence, and contains no HIT is a phase that does
/// not fit. A shorter one is a transition between phases.
pub(crate) fn detect(rates: &[f64], transition: usize) -> Vec<Found> {
    let Some((low, high)) = thresholds(rates) else { return Vec::new() };
    let mut found = Vec::new();
    let mut state = State::Unclear(0);
    for (at, &rate) in rates.iter().enumerate() {
        let unclear = |since| match at + 1 - since > transition {
            true => State::Out(since),
            false => State::Unclear(since),
        };
        let next = match state {
            State::Out(_) | State::Unclear(_) if rate < low => State::In(at),
            State::In(_) if rate >= high => unclear(at),
            State::Unclear(since) => unclear(since),
            same => same,
        };
        state.end(next, at, &mut found);
        state = next;
    }
    state.end(State::Unclear(rates.len()), rates.len(), &mut found);
    found
}

/// The state, with the window at which it began.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    In(usize),
    Out(usize),
    Unclear(usize),
}

impl State {
    /// Appends the phase that ends if `next` is another state.
    fn end(self, next: State, at: usize, found: &mut Vec<Found>) {
        let (fit, since) = match self {
            State::In(since) => (Fit::In, since),
            State::Out(since) => (Fit::Out, since),
            State::Unclear(_) => return,
        };
        if self != next {
            found.push(Found { fit, windows: since..at });
        }
    }
}

/// Returns the phases of `once` that `again` has too: of the same kind, and with more than half of
/// the longer one in common (section 4.3.1: "only the phases that are identified in all runs").
pub(crate) fn common(once: Vec<Found>, again: &[Found]) -> Vec<Found> {
    let also = |one: &Found| {
        again.iter().any(|other| {
            let from = one.windows.start.max(other.windows.start);
            let shared = one.windows.end.min(other.windows.end).saturating_sub(from);
            one.fit == other.fit && 2 * shared > one.windows.len().max(other.windows.len())
        })
    };
    once.into_iter().filter(also).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn phases(rates: &[f64], transition: usize) -> Vec<(Fit, Range<usize>)> {
        detect(rates, transition).into_iter().map(|f| (f.fit, f.windows)).collect()
    }

    #[test]
    fn states_follow_the_figure() {
        // Misses from the start: unclear, then out. Hits: in. A short burst of misses: a transition
        // between two phases that fit. A window in between the thresholds: no event. Misses to the
        // end: out.
        let rates: Vec<f64> =
            [vec![0.9; 5], vec![0.0; 4], vec![0.9; 2], vec![0.0, 0.4, 0.0], vec![0.9; 6]].concat();
        assert_eq!(
            phases(&rates, 2),
            [(Fit::Out, 0..5), (Fit::In, 5..9), (Fit::In, 11..14), (Fit::Out, 14..20)]
        );
        // With a longer limit, only the last run of misses is a phase that does not fit.
        assert_eq!(phases(&rates, 5), [(Fit::In, 5..9), (Fit::In, 11..14), (Fit::Out, 14..20)]);
    }

    #[test]
    fn without_transitions_every_window_of_misses_is_a_phase_that_does_not_fit() {
        let (fits, not) = (Fit::In, Fit::Out);
        let expected = [(fits, 0..1), (not, 1..2), (fits, 2..3), (not, 3..4)];
        assert_eq!(phases(&[0.0, 0.9, 0.0, 0.9], 0), expected);
    }

    #[test]
    fn rates_that_are_alike_are_one_phase() {
        assert_eq!(phases(&[0.0; 50], 2), []);
        assert_eq!(phases(&[1.0; 50], 2), []);
        let noisy: Vec<f64> = (0..50).map(|n| 0.46 + 0.01 * f64::from(n % 9)).collect();
        assert_eq!(phases(&noisy, 2), []);
        assert_eq!(phases(&[], 2), []);
    }

    #[test]
    fn thresholds_are_the_edges_of_the_bins_of_the_percentiles() {
        let mut rates = vec![0.5; 80];
        rates.extend([vec![0.12; 10], vec![0.83; 10]].concat());
        let (low, high) = thresholds(&rates).unwrap();
        assert!((low - 0.15).abs() < 1e-12 && (high - 0.5).abs() < 1e-12, "{low} {high}");
        // With one more window, the 10th percentile is at 0.5 and the 90th at 0.83.
        rates.push(0.84);
        let (low, high) = thresholds(&rates).unwrap();
        assert!((low - 0.55).abs() < 1e-12 && (high - 0.8).abs() < 1e-12, "{low} {high}");
    }

    proptest! {
        #[test]
        fn phases_are_what_their_events_say(
            runs in proptest::collection::vec((0..6u32, 1..12usize), 0..40), transition in 0..6usize,
        ) {
            let rates: Vec<f64> = runs.iter()
                .flat_map(|&(rate, length)| vec![f64::from(rate) / 5.0; length]).collect();
            let found = detect(&rates, transition);
            let Some((low, high)) = thresholds(&rates) else {
                prop_assert!(found.is_empty());
                return Ok(());
            };
            let hit = |window: usize| rates[window] < low;
            let miss = |window: usize| rates[window] >= high;
            for (n, phase) in found.iter().enumerate() {
                let windows = phase.windows.clone();
                let end = found.get(n + 1).map_or(rates.len(), |next| next.windows.start);
                prop_assert!(!windows.is_empty() && windows.end <= end);
                match phase.fit {
                    // It starts with a hit and ends before the first miss.
                    Fit::In => {
                        prop_assert!(hit(windows.start) && !windows.clone().any(miss));
                        prop_assert!(windows.end == rates.len() || miss(windows.end));
                    }
                    // It has no hit, ends before the next hit, and is longer than a transition.
                    Fit::Out => {
                        prop_assert!(windows.len() > transition && !windows.clone().any(hit));
                        prop_assert!(windows.end == rates.len() || hit(windows.end));
                    }
                }
                // The gap between phases is no longer than a transition and has no hit.
                prop_assert!(end - windows.end <= transition && !(windows.end..end).any(hit));
            }
            let first = found.first().map_or(rates.len(), |first| first.windows.start);
            prop_assert!(first <= transition && !(0..first).any(hit));
        }
    }

    #[test]
    fn phases_found_once_only_are_dropped() {
        let found = |fit, windows| Found { fit, windows };
        let once = || vec![found(Fit::In, 0..10), found(Fit::Out, 10..14), found(Fit::In, 14..40)];
        let again = [found(Fit::In, 1..11), found(Fit::In, 11..13), found(Fit::In, 30..44)];
        assert_eq!(common(once(), &again), [found(Fit::In, 0..10)]);
        assert_eq!(common(once(), &once()), once());
        assert_eq!(common(once(), &[]), []);
    }
}
