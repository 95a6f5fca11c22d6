//! Adds flushes that the trace does not contain.

use forebay_block::{Flags, Nanos, Op, Request, Volume};

use crate::options::AssumeFlush;

/// Adds flushes to a sequence of requests, separately for each volume.
#[derive(Debug)]
pub(crate) struct FlushInserter {
    assume: AssumeFlush,
    volumes: Vec<Unflushed>,
    /// The earliest `due` of all volumes.
    due: Nanos,
    pub inserted: u64,
}

#[derive(Clone, Copy, Debug)]
struct Unflushed {
    writes: u64,
    due: Nanos,
}

const NEVER: Nanos = Nanos(u64::MAX);

impl FlushInserter {
    pub fn new(assume: AssumeFlush, volumes: usize) -> Self {
        let none = Unflushed { writes: 0, due: NEVER };
        FlushInserter { assume, volumes: vec![none; volumes], due: NEVER, inserted: 0 }
    }

    /// Returns the next flush that is due at or before `time`, the time of a request. Call it until
    /// it returns `None`.
    #[inline]
    pub fn before(&mut self, time: Nanos) -> Option<Request> {
        if self.due > time {
            return None;
        }
        let at = (0..self.volumes.len()).min_by_key(|&v| self.volumes[v].due)?;
        let due = self.volumes[at].due;
        Some(self.flush(at, due))
    }

    /// Returns the flush that must follow `request` immediately, if any.
    #[inline]
    pub fn after(&mut self, request: &Request) -> Option<Request> {
        if self.assume == AssumeFlush::None {
            return None;
        }
        let at = request.volume.0 as usize;
        if request.op == Op::Flush {
            self.clear(at);
            return None;
        }
        if !request.op.modifies() {
            return None;
        }
        let volume = &mut self.volumes[at];
        volume.writes += 1;
        match self.assume {
            AssumeFlush::EveryWrites(n) if volume.writes >= n => Some(self.flush(at, request.time)),
            AssumeFlush::Every(period) if volume.writes == 1 => {
                volume.due = request.time.saturating_add(period);
                self.due = self.due.min(volume.due);
                None
            }
            _ => None,
        }
    }

    fn flush(&mut self, at: usize, time: Nanos) -> Request {
        self.clear(at);
        self.inserted += 1;
        Request {
            time,
            volume: Volume(at as u32),
            op: Op::Flush,
            flags: Flags::NONE,
            offset: 0,
            length: 0,
        }
    }

    fn clear(&mut self, at: usize) {
        let had = self.volumes[at].due;
        self.volumes[at] = Unflushed { writes: 0, due: NEVER };
        if had == self.due {
            self.due = self.volumes.iter().map(|v| v.due).min().unwrap_or(NEVER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(ms: u64, volume: u32, op: Op) -> Request {
        let time = Nanos(ms * 1_000_000);
        let volume = Volume(volume);
        Request { time, volume, op, flags: Flags::NONE, offset: 0, length: 4096 }
    }

    /// The sequence with its flushes, as (ms, volume, is flush).
    fn run(assume: AssumeFlush, requests: &[Request]) -> Vec<(u64, u32, bool)> {
        let mut inserter = FlushInserter::new(assume, 3);
        let mut all = Vec::new();
        let mut note = |r: &Request| {
            all.push((r.time.0 / 1_000_000, r.volume.0, r.op == Op::Flush));
        };
        for r in requests {
            while let Some(flush) = inserter.before(r.time) {
                note(&flush);
            }
            note(r);
            if let Some(flush) = inserter.after(r) {
                note(&flush);
            }
        }
        all
    }

    #[test]
    fn a_count_of_writes_is_kept_for_each_volume_and_reads_do_not_count() {
        let w = |ms, v| request(ms, v, Op::Write);
        let all = run(
            AssumeFlush::EveryWrites(2),
            &[w(0, 0), w(1, 1), request(2, 0, Op::Read), request(3, 0, Op::Trim), w(4, 0)],
        );
        assert_eq!(
            all,
            [
                (0, 0, false),
                (1, 1, false),
                (2, 0, false),
                (3, 0, false),
                (3, 0, true),
                (4, 0, false)
            ]
        );
    }

    #[test]
    fn a_flush_in_the_trace_counts() {
        let all = run(
            AssumeFlush::EveryWrites(2),
            &[request(0, 0, Op::Write), request(1, 0, Op::Flush), request(2, 0, Op::Write)],
        );
        assert_eq!(all.iter().filter(|r| r.2).count(), 1);
    }

    #[test]
    fn flushes_by_time_come_in_order_and_only_where_something_was_written() {
        let w = |ms, v| request(ms, v, Op::Write);
        let period = AssumeFlush::Every(Nanos(10_000_000));
        let all = run(period, &[w(0, 2), w(5, 0), w(6, 2), request(40, 1, Op::Read)]);
        assert_eq!(
            all,
            [
                (0, 2, false),
                (5, 0, false),
                (6, 2, false),
                (10, 2, true),
                (15, 0, true),
                (40, 1, false)
            ]
        );
    }
}
