//! A run as the list of its choices, and the search for a shorter list that also fails.

use forebay_device::choices::{Choices, Seeded};

/// Records the choices of another source.
pub struct Recorder<'a> {
    from: &'a mut dyn Choices,
    /// The choices so far.
    pub choices: Vec<u64>,
}

impl<'a> Recorder<'a> {
    /// Creates a recorder of the choices of `from`.
    pub fn new(from: &'a mut dyn Choices) -> Recorder<'a> {
        Recorder { from, choices: Vec::new() }
    }
}

impl Choices for Recorder<'_> {
    fn choose(&mut self, n: u64) -> u64 {
        if n <= 1 {
            return 0;
        }
        let chosen = self.from.choose(n);
        self.choices.push(chosen);
        chosen
    }
}

/// A source of choices that can be set aside for a while. In the meantime, choices come from a
/// seed, which costs the tape only one choice. A tape therefore stays short enough to be shrunk,
/// and such a part can be removed as a whole.
pub struct Source<'a> {
    main: &'a mut dyn Choices,
    aside: Aside,
}

/// The source of choices while the tape is set aside.
#[derive(Clone, Debug, Default)]
pub enum Aside {
    /// The tape is not set aside.
    #[default]
    No,
    /// Choices come from a seed.
    Seeded(Seeded),
    /// The first option is always chosen: operations complete in order.
    First,
}

impl<'a> Source<'a> {
    /// Creates a source that returns the choices of `main`.
    pub fn new(main: &'a mut dyn Choices) -> Source<'a> {
        Source { main, aside: Aside::No }
    }

    /// From now on, choices come from a seed that is chosen here. Pass the result to
    /// [`leave`](Source::leave).
    #[must_use]
    pub fn enter(&mut self) -> Aside {
        let seed = self.choose(u64::MAX);
        std::mem::replace(&mut self.aside, Aside::Seeded(Seeded::new(seed)))
    }

    /// From now on, the first option is always chosen.
    #[must_use]
    pub fn enter_first(&mut self) -> Aside {
        std::mem::replace(&mut self.aside, Aside::First)
    }

    /// Restores the source of choices that was in use before `enter`.
    pub fn leave(&mut self, before: Aside) {
        self.aside = before;
    }
}

impl Choices for Source<'_> {
    fn choose(&mut self, n: u64) -> u64 {
        match &mut self.aside {
            Aside::No => self.main.choose(n),
            Aside::Seeded(seeded) => seeded.choose(n),
            Aside::First => 0,
        }
    }
}

/// Plays recorded choices, each modulo the number of options, and 0 after the last one.
#[derive(Clone, Debug)]
pub struct Playback<'a> {
    choices: &'a [u64],
    position: usize,
}

impl<'a> Playback<'a> {
    /// Creates a playback of `choices`.
    pub fn new(choices: &'a [u64]) -> Playback<'a> {
        Playback { choices, position: 0 }
    }
}

impl Choices for Playback<'_> {
    fn choose(&mut self, n: u64) -> u64 {
        if n <= 1 {
            return 0;
        }
        let choice = self.choices.get(self.position).copied().unwrap_or(0);
        self.position += 1;
        choice % n
    }
}

/// A failing run that can be stored in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tape {
    /// The kind of run.
    pub kind: String,
    /// The failure.
    pub failure: String,
    /// The choices of the run.
    pub choices: Vec<u64>,
}

const FIRST_LINE: &str = "forebay-adversary tape 1";
const PER_LINE: usize = 16;

impl Tape {
    /// Encodes the tape as text, with only the first line of the failure.
    pub fn encode(&self) -> String {
        // The report of a hang has many lines.
        let failure = self.failure.lines().next().unwrap_or_default();
        let mut text = format!("{FIRST_LINE}\nkind {}\nfailure {failure}\n", self.kind);
        for line in self.choices.chunks(PER_LINE) {
            let words: Vec<String> = line.iter().map(u64::to_string).collect();
            text += &words.join(" ");
            text.push('\n');
        }
        text
    }

    /// Parses a tape.
    ///
    /// # Errors
    /// Says what is wrong with the text.
    pub fn decode(text: &str) -> Result<Tape, String> {
        let mut lines = text.lines();
        let mut expect = |what: &str| {
            let line = lines.next().unwrap_or_default();
            let rest = line.strip_prefix(what);
            rest.map(|r| r.trim().to_string()).ok_or(format!("the tape lacks a line `{what} ...`"))
        };
        expect(FIRST_LINE)?;
        let kind = expect("kind ")?;
        let failure = expect("failure ")?;
        let words = lines.flat_map(str::split_whitespace);
        let choices = words
            .map(|w| w.parse().map_err(|_| format!("`{w}` is not a choice")))
            .collect::<Result<Vec<u64>, String>>()?;
        Ok(Tape { kind, failure, choices })
    }
}

/// Maximum number of attempts to make a run shorter.
const ATTEMPTS_MAX: u32 = 20_000;

/// Finds a shorter and simpler list of choices that also `fails`. If the run failed, `fails`
/// returns the choices that the run actually used.
pub fn shrink(first: Vec<u64>, mut fails: impl FnMut(&[u64]) -> Option<Vec<u64>>) -> Vec<u64> {
    let mut best = trimmed(first);
    let mut left = ATTEMPTS_MAX;
    let mut attempt = |candidate: Vec<u64>, best: &mut Vec<u64>| -> bool {
        if left == 0 {
            return false;
        }
        left -= 1;
        match fails(&candidate).map(trimmed) {
            Some(asked) if is_simpler(&asked, best) => {
                *best = asked;
                true
            }
            _ => false,
        }
    };
    loop {
        let before = best.clone();
        // Remove sequences of choices, long ones first.
        let mut length = (best.len() / 2).max(1);
        while length > 0 {
            let mut at = best.len().saturating_sub(length);
            loop {
                if at + length <= best.len() {
                    let mut candidate = best.clone();
                    candidate.drain(at..at + length);
                    attempt(candidate, &mut best);
                }
                if at == 0 {
                    break;
                }
                at = at.saturating_sub(length.div_ceil(2).min(8));
            }
            length /= 2;
        }
        // Make single choices smaller.
        for at in (0..before.len().min(best.len())).rev() {
            for smaller in [|_| 0, |n: u64| n / 2, |n: u64| n - 1] {
                if best.get(at).is_some_and(|&n| n > 0) {
                    let mut candidate = best.clone();
                    candidate[at] = smaller(candidate[at]);
                    attempt(candidate, &mut best);
                }
            }
        }
        if best == before {
            return best;
        }
    }
}

fn is_simpler(a: &[u64], b: &[u64]) -> bool {
    (a.len(), a) < (b.len(), b)
}

/// Removes zeroes at the end, which playback adds anyway.
fn trimmed(mut choices: Vec<u64>) -> Vec<u64> {
    while choices.last() == Some(&0) {
        choices.pop();
    }
    choices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tape_survives_its_text() {
        let tape = Tape {
            kind: "back".into(),
            failure: "after a cut: sector 3".into(),
            choices: (0..40).chain([u64::MAX]).collect(),
        };
        assert_eq!(Tape::decode(&tape.encode()), Ok(tape.clone()));
        let told = "after a cut: sector 3\nrequest 7\n8 of 9".into();
        assert_eq!(Tape::decode(&Tape { failure: told, ..tape.clone() }.encode()), Ok(tape));
        assert!(Tape::decode("something else").is_err());
    }

    #[test]
    fn a_recorded_run_plays_back() {
        let draw = |c: &mut dyn Choices| (1..50).map(|n| c.choose(n)).collect::<Vec<_>>();
        let mut seeded = Seeded::new(3);
        let mut recorder = Recorder::new(&mut seeded);
        let first = draw(&mut recorder);
        assert_eq!(draw(&mut Playback::new(&recorder.choices)), first);
    }

    #[test]
    fn shrinking_finds_the_two_choices_that_matter() {
        // Fails if a 7 is followed, at any distance, by a number above 100.
        let fails = |c: &[u64]| {
            let mut p = Playback::new(c);
            let mut said = Vec::new();
            let mut seven = false;
            loop {
                let n = p.choose(1000);
                said.push(n);
                if n == 0 {
                    return None;
                }
                if seven && n > 100 {
                    return Some(said);
                }
                seven |= n == 7;
            }
        };
        let long: Vec<u64> =
            (1..300).map(|i| if i == 77 { 7 } else { 1 + i % 5 }).chain([555]).collect();
        assert!(fails(&long).is_some());
        assert_eq!(shrink(long, fails), [7, 101]);
    }
}
