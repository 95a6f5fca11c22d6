//! A client that asks which ranges hold data, as a copying program does that skips zeroes.
//!
//! It asks occasionally, regardless of other activity: it asks the cache at one step and the store
//! some steps later, as the engine does. An answer that a range is zero is checked like a read: the
//! oracle must allow zeroes there, and no later read may find an older value. The time and the
//! range of a question do not come from the choices of the run, so that asking does not make the
//! run longer or different.

use std::hash::Hasher;

use forebay_block::{Content, ContentRun, Volume};
use forebay_cache::{Held, Holdings};
use forebay_effect::Device;

use super::Runner;
use crate::oracle::ReadTicket;
use crate::witness::Digest;

const SECTOR: u64 = 512;
/// Maximum number of steps between the cache's answer and the store's.
const STEPS_MAX: u64 = 24;
/// Maximum number of runs in an answer; usually enough for all.
const RUNS_MAX: usize = 12;

/// A question that the cache has answered and the store has not.
#[derive(Debug)]
pub(crate) struct Asked {
    volume: usize,
    holdings: Holdings,
    ticket: ReadTicket,
    /// The step at which to ask the store.
    due: u64,
}

impl Runner<'_> {
    /// One step of this client.
    pub(super) fn ask_contents(&mut self) -> Result<(), String> {
        self.steps += 1;
        match &self.asked {
            Some(asked) if asked.due > self.steps => Ok(()),
            Some(_) => self.answer_contents("told of contents"),
            None => {
                let draw = self.draw_question();
                let sectors = self.oracles[draw.0].sectors();
                let first = draw.1.min(sectors - 1);
                self.ask(draw.0, first, draw.2.min(sectors - first), draw.3);
                Ok(())
            }
        }
    }

    /// Draws a question: the volume, the first sector, the number of sectors, and the number of
    /// steps to wait.
    fn draw_question(&self) -> (usize, u64, u64, u64) {
        let mut digest = Digest::default();
        digest.write_u64(self.steps);
        digest.write_u64(self.seen.replies);
        let word = digest.finish();
        let mut left = word ^ word >> 32;
        let mut draw = |n: u64| {
            let drawn = left % n;
            left = (left / n).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word.rotate_left(17);
            drawn
        };
        let volume = draw(self.oracles.len() as u64) as usize;
        let block = self.scenario.config.block_size.bytes() / SECTOR;
        let hot = &self.scenario.hot[volume];
        let near = hot[draw(hot.len() as u64) as usize].saturating_sub(draw(3)) * block;
        let first = near + draw(2) * draw(block);
        (volume, first, 1 + draw(8 * block), draw(STEPS_MAX))
    }

    /// Asks the cache about some sectors; the store is asked `steps` steps later.
    fn ask(&mut self, volume: usize, first: u64, count: u64, steps: u64) {
        let (offset, length) = (first * SECTOR, count * SECTOR);
        let holdings = self.world.cache.holdings(Volume(volume as u32), offset, length);
        let count = (holdings.end() - offset) / SECTOR;
        let ticket = self.oracles[volume].read_issued(first, count);
        let due = self.steps + steps;
        self.tell(|| format!("contents of v{volume} {first}+{count}: {holdings:?}, until {due}"));
        self.asked = Some(Asked { volume, holdings, ticket, due });
    }

    /// Asks the store, and checks the combined answer.
    fn answer_contents(&mut self, when: &'static str) -> Result<(), String> {
        let Some(Asked { volume, holdings, ticket, .. }) = self.asked.take() else { return Ok(()) };
        let device = Device::Backing(Volume(volume as u32));
        let store = self.world.executor.devices().contents(device);
        let mut told = Vec::new();
        let mut ask = |offset, length, found: &mut Vec<ContentRun>| {
            zeroes_of(store, offset, length, found);
        };
        let end = holdings.resolve(RUNS_MAX, &mut ask, &mut told);
        self.cover_contents(volume, &holdings, &told);
        let mut zeroes = Vec::new();
        for run in &told {
            if run.length == 0 || !run.length.is_multiple_of(SECTOR) {
                return Err(format!("{when}: an answer with {run:?}"));
            }
            let sectors = (run.length / SECTOR) as usize;
            zeroes.extend(std::iter::repeat_n(run.content.is_zero(), sectors));
        }
        if end > holdings.end() || zeroes.len() as u64 * SECTOR != end - holdings.start() {
            return Err(format!("{when}: {holdings:?} were reported as {told:?}, up to {end}"));
        }
        self.tell(|| format!("told {told:?}"));
        let checked = self.oracles[volume].told_zeroes(&ticket, zeroes.into_iter(), when);
        checked.map_err(|violation| violation.to_string())
    }

    /// Asks about some sectors, and checks the answer at once.
    pub(super) fn check_contents(
        &mut self,
        (volume, first, count): (usize, u64, u64),
        when: &'static str,
    ) -> Result<(), String> {
        self.forget_question();
        self.ask(volume, first, count, 0);
        self.answer_contents(when)
    }

    /// Discards the question in progress.
    pub(super) fn forget_question(&mut self) {
        if let Some(asked) = self.asked.take() {
            self.oracles[asked.volume].read_failed(&asked.ticket);
        }
    }

    fn cover_contents(&mut self, volume: usize, holdings: &Holdings, told: &[ContentRun]) {
        let device = Device::Backing(Volume(volume as u32));
        let store = self.world.executor.devices().contents(device);
        let (mut hidden, mut left, mut at) = (false, false, holdings.start());
        for (held, end) in holdings.runs() {
            if held == Held::Data {
                hidden |= store[at as usize..end as usize].chunks(SECTOR as usize).any(is_zero);
                let now = self.world.cache.holdings(Volume(volume as u32), at, end - at);
                left |= now.runs().any(|run| run.0 == Held::Nothing);
            }
            at = end;
        }
        let any = |content| told.iter().any(|run| run.content == content);
        for (name, met) in [
            ("contents: asked", true),
            ("contents: data that hides zeroes of the store", hidden),
            ("contents: data that left the cache before the store was asked", left),
            ("contents: zeroes in the cache", any(Content::Zeroes)),
            ("contents: zeroes of the store", any(Content::Hole)),
        ] {
            self.seen.stats.add(name, u64::from(met));
        }
    }
}

/// Comparing byte by byte took a tenth of the total time.
fn is_zero(sector: &[u8]) -> bool {
    sector == &[0; SECTOR as usize][..sector.len()]
}

/// Answers for a store that knows which of its sectors are zero.
fn zeroes_of(store: &[u8], offset: u64, length: u64, found: &mut Vec<ContentRun>) {
    for sector in store[offset as usize..(offset + length) as usize].chunks(SECTOR as usize) {
        let content = if is_zero(sector) { Content::Hole } else { Content::Data };
        found.push(ContentRun { content, length: sector.len() as u64 });
    }
}
