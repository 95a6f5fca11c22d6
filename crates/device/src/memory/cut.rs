//! Decides what a power cut leaves: any subset of the unsynced writes, in any order, torn.

use super::faults::{Fault, FaultCounts};
use super::medium::Data;
use crate::choices::Choices;

/// How the survivors of a power cut are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CutStyle {
    /// One of six outcomes: all writes survive; none does; only those that completed first do; a
    /// subset does; a subset does in another order, some torn or with garbage; each atomic unit
    /// survives or not on its own, in any order of the writes. Covers everything that the fault
    /// model allows, and often picks the likely outcomes.
    Any,
    /// For exhaustive walks: each write of each device, in order of completion, survives whole or
    /// not at all. Operations in flight come last, in order of submission.
    Subsets,
}

/// A write whose survival the cut decides.
pub(super) struct Candidate<'a> {
    pub offset: u64,
    pub data: &'a Data,
}

/// Decides which of the `candidates` survive and writes them to `image`, a device's durable
/// contents. Units of `atomic` bytes are written whole; one such unit of a torn write may hold
/// `garbage`.
pub(super) fn decide(
    image: &mut [u8],
    (atomic, garbage): (u32, bool),
    candidates: &[Candidate<'_>],
    style: CutStyle,
    choices: &mut dyn Choices,
    counts: &mut FaultCounts,
) {
    if candidates.is_empty() {
        return;
    }
    let mut cut = Cut { image, tear: atomic.into(), garbage, choices, counts };
    let shape = if style == CutStyle::Subsets { 3 } else { cut.choices.choose(6) };
    match shape {
        0 => candidates.iter().for_each(|write| cut.land(write, true)),
        1 => candidates.iter().for_each(|write| cut.land(write, false)),
        2 => {
            let first = cut.choices.choose(candidates.len() as u64 + 1) as usize;
            for (index, write) in candidates.iter().enumerate() {
                cut.land(write, index < first);
            }
        }
        3 => {
            for write in candidates {
                let lands = cut.choices.choose(2) == 1;
                cut.land(write, lands);
            }
        }
        shape => {
            let mut order: Vec<usize> = (0..candidates.len()).collect();
            for last in (1..order.len()).rev() {
                order.swap(last, cut.choices.choose(last as u64 + 1) as usize);
            }
            for index in order {
                let torn = shape == 5 || cut.choices.choose(3) == 0;
                if torn {
                    cut.tear(&candidates[index]);
                } else {
                    let lands = cut.choices.choose(2) == 1;
                    cut.land(&candidates[index], lands);
                }
            }
        }
    }
}

struct Cut<'a> {
    image: &'a mut [u8],
    tear: u64,
    garbage: bool,
    choices: &'a mut dyn Choices,
    counts: &'a mut FaultCounts,
}

impl Cut<'_> {
    fn land(&mut self, write: &Candidate<'_>, lands: bool) {
        if lands {
            write.data.put(self.image, write.offset, 0, write.data.length());
        } else {
            self.counts.note(Fault::LostAtCut);
        }
    }

    /// Each atomic unit of the write survives or not; one of them may become garbage.
    fn tear(&mut self, write: &Candidate<'_>) {
        self.counts.note(Fault::Torn);
        let end = write.offset + write.data.length();
        let units = end.div_ceil(self.tear) - write.offset / self.tear;
        let garbled =
            (self.garbage && self.choices.choose(4) == 0).then(|| self.choices.choose(units));
        let mut at = write.offset;
        for unit in 0..units {
            let next = ((at / self.tear + 1) * self.tear).min(end);
            if garbled == Some(unit) {
                self.choices.garbage(&mut self.image[at as usize..next as usize]);
                self.counts.note(Fault::Garbage);
            } else if self.choices.choose(2) == 1 {
                write.data.put(self.image, write.offset, at - write.offset, next - at);
            }
            at = next;
        }
    }
}
