//! What a disk may answer: a register for each sector, checked exactly.
//!
//! Every write has a number, and every sector it writes says so; zeroings all write the value
//! *zero*. For each sector the oracle keeps the writes whose value a read may still return (the
//! **candidates**) and those whose value may be found after a power cut (the **crash set**).
//!
//! - A write that completed before another was issued is older. When the newer completes, the
//!   older is no candidate any more. A write that failed stays one, and outdates nothing.
//! - A read that returns a value proves every other write that had completed before the read
//!   was issued to be older. From then on that value cannot turn back: *no flapping*.
//! - When a flush completes, only what were candidates when it was issued, and what was issued
//!   later, stays in the crash set. A completed FUA write is a flush of its own sectors.
//! - A power cut makes the crash set the candidates; all of them count as completed. What a
//!   read then rules out never comes back, not even after further cuts.

use std::fmt;
use std::hash::Hasher;

use smallvec::{SmallVec, smallvec};

/// The number of a write; 0 is what the disk held at first (zeroes).
pub type WriteId = u32;

/// What a sector was found to hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// All zeroes: the beginning, a trim or a zeroing.
    Zero,
    /// The data of a write.
    Write(WriteId),
    /// Nothing that was ever written there.
    Garbage,
}

#[derive(Clone, Copy, Debug)]
struct Version {
    id: WriteId,
    zero: bool,
    issued: u64,
    /// When it ended; `u64::MAX` while in flight.
    ended: u64,
    failed: bool,
    /// Power cuts before it was issued.
    life: u32,
    candidate: bool,
    /// May be found after a power cut.
    survivor: bool,
    /// May be found after a kill that loses nothing acknowledged. A write that was read while
    /// it was in flight is not acknowledged by that.
    unkilled: bool,
}

impl Version {
    fn value(&self) -> Value {
        if self.zero { Value::Zero } else { Value::Write(self.id) }
    }
}

/// A breach of what a disk promises.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The volume.
    pub volume: u32,
    /// The sector within it.
    pub sector: u64,
    /// What was found.
    pub found: Value,
    /// What would have been right.
    pub admissible: Vec<Value>,
    /// When.
    pub when: &'static str,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: sector {} of volume {} holds {:?}; expected one of {:?}",
            self.when, self.sector, self.volume, self.found, self.admissible
        )
    }
}

/// What a sector may hold: nearly always one version.
type Versions = SmallVec<[Version; 1]>;

/// A list for each of some sectors, end to end.
#[derive(Clone, Debug, Default)]
struct Lists<T> {
    all: Vec<T>,
    ends: Vec<u32>,
}

impl<T> Lists<T> {
    fn collect<'a, I>(sectors: &'a [Versions], each: impl Fn(&'a Versions) -> I) -> Lists<T>
    where
        I: Iterator<Item = T>,
    {
        let mut all = Vec::with_capacity(sectors.len());
        let mut ends = Vec::with_capacity(sectors.len());
        for s in sectors {
            all.extend(each(s));
            ends.push(all.len() as u32);
        }
        Lists { all, ends }
    }

    fn iter(&self) -> impl Iterator<Item = &[T]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let from = std::mem::replace(&mut start, end as usize);
            &self.all[from..end as usize]
        })
    }
}

/// One volume's sectors.
#[derive(Clone, Debug)]
pub struct Oracle {
    volume: u32,
    sectors: Vec<Versions>,
    clock: u64,
    life: u32,
    /// When the reads under way were issued: what was written since is remembered for them.
    reading: Vec<u64>,
}

/// What a read saw when it was issued.
#[derive(Clone, Debug)]
pub struct ReadTicket {
    first: u64,
    issued: u64,
    /// For each sector the candidates' values: later events may forget the candidates, but a
    /// read that was under way may still have seen them.
    before: Lists<Value>,
}

/// What a flush, or a FUA write, saw when it was issued.
#[derive(Clone, Debug)]
pub struct FlushTicket {
    first: u64,
    issued: u64,
    before: Lists<WriteId>,
}

impl Oracle {
    /// A volume of `sectors` sectors, all zero.
    pub fn new(volume: u32, sectors: u64) -> Self {
        let first = Version {
            id: 0,
            zero: true,
            issued: 0,
            ended: 0,
            failed: false,
            life: 0,
            candidate: true,
            survivor: true,
            unkilled: true,
        };
        Oracle {
            volume,
            sectors: vec![smallvec![first]; sectors as usize],
            clock: 1,
            life: 1,
            reading: Vec::new(),
        }
    }

    /// Which volume.
    pub fn volume(&self) -> u32 {
        self.volume
    }

    /// Sectors of the volume.
    pub fn sectors(&self) -> u64 {
        self.sectors.len() as u64
    }

    fn horizon(&self) -> u64 {
        self.reading.iter().copied().min().unwrap_or(u64::MAX)
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A write (or zeroing) of `count` sectors is issued.
    pub fn write_issued(&mut self, id: WriteId, first: u64, count: u64, zero: bool) {
        let (issued, life) = (self.tick(), self.life);
        for s in &mut self.sectors[first as usize..(first + count) as usize] {
            s.push(Version {
                id,
                zero,
                issued,
                ended: u64::MAX,
                failed: false,
                life,
                candidate: true,
                survivor: true,
                unkilled: true,
            });
        }
    }

    /// It ended.
    pub fn write_ended(&mut self, id: WriteId, first: u64, count: u64, ok: bool) {
        let (now, horizon) = (self.tick(), self.horizon());
        for s in &mut self.sectors[first as usize..(first + count) as usize] {
            let Some(at) = s.iter().position(|v| v.id == id) else { continue };
            s[at].ended = now;
            s[at].failed = !ok;
            let issued = s[at].issued;
            if ok {
                for v in s.iter_mut() {
                    v.candidate &= v.ended >= issued;
                    v.unkilled &= v.ended >= issued;
                }
            }
            prune(s, horizon);
        }
    }

    /// A flush is issued.
    pub fn flush_issued(&mut self) -> FlushTicket {
        self.durable_issued(0, self.sectors())
    }

    /// A FUA write of these sectors is about to be issued.
    pub fn durable_issued(&mut self, first: u64, count: u64) -> FlushTicket {
        let before = self.before_flush(first, count);
        FlushTicket { first, issued: self.tick(), before }
    }

    /// What a flush that is issued now may leave on the disk. It covers writes that have been answered: where one under
    /// way has been read already, what it replaces may come back.
    fn before_flush(&self, first: u64, count: u64) -> Lists<WriteId> {
        let sectors = &self.sectors[first as usize..(first + count) as usize];
        Lists::collect(sectors, |s| {
            let under_way = s.iter().any(|v| v.candidate && v.ended == u64::MAX);
            let stays = move |v: &&Version| v.candidate || v.unkilled && under_way;
            s.iter().filter(stays).map(|v| v.id)
        })
    }

    /// A flush completed.
    pub fn flush_done(&mut self, ticket: &FlushTicket) {
        let horizon = self.horizon();
        for (i, before) in ticket.before.iter().enumerate() {
            let s = &mut self.sectors[ticket.first as usize + i];
            for v in s.iter_mut() {
                v.survivor &= v.issued >= ticket.issued || before.contains(&v.id);
            }
            prune(s, horizon);
        }
    }

    /// A FUA write completed: what had completed before it was issued is gone for good.
    pub fn durable_done(&mut self, ticket: &FlushTicket) {
        let horizon = self.horizon();
        for (i, before) in ticket.before.iter().enumerate() {
            let s = &mut self.sectors[ticket.first as usize + i];
            for v in s.iter_mut() {
                let in_flight = before.contains(&v.id) && v.ended >= ticket.issued;
                v.survivor &= v.issued >= ticket.issued || in_flight;
            }
            prune(s, horizon);
        }
    }

    /// A read of `count` sectors is issued.
    pub fn read_issued(&mut self, first: u64, count: u64) -> ReadTicket {
        let sectors = &self.sectors[first as usize..(first + count) as usize];
        let before =
            Lists::collect(sectors, |s| s.iter().filter(|v| v.candidate).map(Version::value));
        let issued = self.tick();
        self.reading.push(issued);
        ReadTicket { first, issued, before }
    }

    /// Whether a sector may hold `value` after something that keeps what it held when the ticket was
    /// issued, or newer: one of the values of then, or one written since. The ticket stays good.
    pub fn is_current(&self, ticket: &ReadTicket, sector: u64, value: Value) -> bool {
        let n = (sector - ticket.first) as usize;
        let before = ticket.before.iter().nth(n).is_some_and(|values| values.contains(&value));
        let since = |v: &Version| v.issued >= ticket.issued && v.value() == value;
        before || self.sectors[sector as usize].iter().any(since)
    }

    /// Whether these sectors were never written.
    pub fn is_pristine(&self, first: u64, count: u64) -> bool {
        let sectors = &self.sectors[first as usize..(first + count) as usize];
        sectors.iter().all(|s| s.len() == 1 && s[0].id == 0)
    }

    /// A read failed: it says nothing.
    pub fn read_failed(&mut self, ticket: &ReadTicket) {
        self.reading.retain(|&issued| issued != ticket.issued);
    }

    /// A read completed and found `values`.
    ///
    /// # Errors
    /// The first sector that holds what it must not.
    pub fn read_done(
        &mut self,
        ticket: &ReadTicket,
        values: &[Value],
        when: &'static str,
    ) -> Result<(), Violation> {
        self.judge(ticket, values.iter().copied().map(Some), when, true)
    }

    /// A client was told of some sectors that they are zeroes, which counts as having read them, but for
    /// one thing: a read waits for a zeroing that is under way, and this shows it, so that it proves nothing
    /// to be older.
    ///
    /// # Errors
    /// The first sector that must not be zeroes.
    pub fn told_zeroes(
        &mut self,
        ticket: &ReadTicket,
        zeroes: impl Iterator<Item = bool>,
        when: &'static str,
    ) -> Result<(), Violation> {
        self.judge(ticket, zeroes.map(|zero| zero.then_some(Value::Zero)), when, false)
    }

    fn judge(
        &mut self,
        ticket: &ReadTicket,
        values: impl Iterator<Item = Option<Value>>,
        when: &'static str,
        proves: bool,
    ) -> Result<(), Violation> {
        let horizon = self.horizon();
        self.reading.retain(|&issued| issued != ticket.issued);
        for (i, (found, before)) in values.zip(ticket.before.iter()).enumerate() {
            let Some(found) = found else { continue };
            let life = self.life;
            let s = &mut self.sectors[ticket.first as usize + i];
            let since = |v: &&Version| v.issued >= ticket.issued;
            if !before.contains(&found) && !s.iter().filter(since).any(|v| v.value() == found) {
                let mut right = before.to_vec();
                right.extend(s.iter().filter(since).map(Version::value));
                return Err(Violation {
                    volume: self.volume,
                    sector: ticket.first + i as u64,
                    found,
                    admissible: right,
                    when,
                });
            }
            if s.len() == 1 {
                continue;
            }
            if s.iter().all(|v| v.value() != found || !v.candidate) {
                // Outdated while the read was under way: it proves nothing about the rest.
                continue;
            }
            // Every other value whose write had ended before the read began is older.
            let old = s.iter().all(|v| v.value() != found || v.life < life);
            let acknowledged =
                s.iter().all(|v| v.value() != found || (v.ended != u64::MAX && !v.failed));
            if !proves && !acknowledged {
                continue;
            }
            for v in s.iter_mut() {
                if v.value() != found && v.ended < ticket.issued {
                    v.candidate = false;
                    v.unkilled &= !acknowledged;
                    if old && v.life < life {
                        v.survivor = false;
                    }
                }
            }
            prune(s, horizon);
        }
        Ok(())
    }

    /// The power was cut (or, with `lossless`, the cache was stopped cleanly before).
    pub fn power_cut(&mut self, lossless: bool) {
        let (now, horizon) = (self.tick(), u64::MAX);
        self.reading.clear();
        self.life += 1;
        for s in &mut self.sectors {
            for v in s.iter_mut() {
                let stays = if lossless { v.candidate } else { v.survivor };
                (v.candidate, v.survivor, v.unkilled) = (stays, stays, stays);
                v.ended = v.ended.min(now);
            }
            prune(s, horizon);
            assert!(!s.is_empty(), "a sector without a value");
        }
    }

    /// Feeds to `hasher` what a power cut now would leave to be found: all that matters afterwards.
    pub fn hash_survivors(&self, hasher: &mut impl Hasher) {
        for s in &self.sectors {
            hasher.write_u8(0xFF);
            for v in s.iter().filter(|v| v.survivor) {
                hasher.write_u32(v.id);
                hasher.write_u8(u8::from(v.zero) | u8::from(v.failed) << 1);
            }
        }
    }

    /// The process was killed; devices kept their power, so a later power cut may still undo
    /// what was not flushed. With `lossless` nothing acknowledged may be lost by the kill.
    pub fn kill(&mut self, lossless: bool) {
        let (now, horizon) = (self.tick(), u64::MAX);
        self.reading.clear();
        for s in &mut self.sectors {
            for v in s.iter_mut() {
                v.candidate = if lossless { v.unkilled } else { v.survivor };
                v.unkilled = v.candidate;
                v.ended = v.ended.min(now);
            }
            prune(s, horizon);
        }
    }

    /// Whether a sector may be found to hold `value` when nothing is in flight.
    pub fn admits(&self, sector: u64, value: Value) -> bool {
        self.sectors[sector as usize].iter().any(|v| v.candidate && v.value() == value)
    }

    /// The values a sector may hold now.
    pub fn admissible(&self, sector: u64) -> Vec<Value> {
        let s = &self.sectors[sector as usize];
        s.iter().filter(|v| v.candidate).map(Version::value).collect()
    }
}

fn prune(versions: &mut Versions, horizon: u64) {
    if versions.len() == 1 {
        // There is always a value that may be found.
        return;
    }
    versions.retain(|v| v.candidate || v.survivor || v.unkilled || v.issued >= horizon);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(o: &mut Oracle, value: Value) -> Result<(), Violation> {
        let t = o.read_issued(0, 1);
        o.read_done(&t, &[value], "test")
    }

    #[test]
    fn a_completed_write_is_what_reads_return() {
        let mut o = Oracle::new(0, 1);
        o.write_issued(1, 0, 1, false);
        assert!(read(&mut o, Value::Zero).is_ok());
        o.write_ended(1, 0, 1, true);
        assert!(read(&mut o, Value::Zero).is_err());
        assert!(read(&mut o, Value::Write(1)).is_ok());
        assert!(read(&mut o, Value::Garbage).is_err());
    }

    #[test]
    fn what_was_read_of_two_racing_writes_stays() {
        let mut o = Oracle::new(0, 1);
        o.write_issued(1, 0, 1, false);
        o.write_issued(2, 0, 1, false);
        o.write_ended(1, 0, 1, true);
        o.write_ended(2, 0, 1, true);
        assert!(read(&mut o.clone(), Value::Write(2)).is_ok());
        assert!(read(&mut o, Value::Write(1)).is_ok());
        assert!(read(&mut o, Value::Write(2)).is_err(), "flapping");
    }

    #[test]
    fn a_flushed_write_survives_and_an_unflushed_one_may_not() {
        let mut o = Oracle::new(0, 1);
        o.write_issued(1, 0, 1, false);
        o.write_ended(1, 0, 1, true);
        let f = o.flush_issued();
        o.write_issued(2, 0, 1, false);
        o.write_ended(2, 0, 1, true);
        o.flush_done(&f);
        o.power_cut(false);
        for ok in [Value::Write(1), Value::Write(2)] {
            assert!(read(&mut o.clone(), ok).is_ok());
        }
        assert!(read(&mut o.clone(), Value::Zero).is_err(), "older than the flushed");
        assert!(read(&mut o, Value::Write(1)).is_ok());
        o.power_cut(false);
        assert!(read(&mut o, Value::Write(2)).is_err(), "it came back after a second cut");
    }

    #[test]
    fn a_flush_does_not_cover_a_write_that_was_read_while_it_was_under_way() {
        let mut o = Oracle::new(0, 1);
        o.write_issued(1, 0, 1, false);
        o.write_ended(1, 0, 1, true);
        let flush = o.flush_issued();
        o.flush_done(&flush);
        o.write_issued(2, 0, 1, false);
        read(&mut o, Value::Write(2)).unwrap();
        let flush = o.flush_issued();
        o.flush_done(&flush);
        o.power_cut(false);
        assert_eq!(o.admissible(0), [Value::Write(1), Value::Write(2)]);
        // One that was answered is covered.
        let mut o = Oracle::new(0, 1);
        o.write_issued(1, 0, 1, false);
        read(&mut o, Value::Write(1)).unwrap();
        o.write_ended(1, 0, 1, true);
        let flush = o.flush_issued();
        o.flush_done(&flush);
        o.power_cut(false);
        assert_eq!(o.admissible(0), [Value::Write(1)]);
    }

    #[test]
    fn a_failed_write_reads_as_old_or_new_and_then_stays() {
        let mut o = Oracle::new(0, 1);
        o.write_issued(1, 0, 1, false);
        o.write_ended(1, 0, 1, false);
        assert!(read(&mut o.clone(), Value::Zero).is_ok());
        assert!(read(&mut o, Value::Write(1)).is_ok());
        assert!(read(&mut o, Value::Zero).is_err());
    }

    #[test]
    fn a_kill_loses_nothing_acknowledged() {
        let mut o = Oracle::new(0, 1);
        o.write_issued(1, 0, 1, false);
        o.write_ended(1, 0, 1, true);
        let mut cut = o.clone();
        o.kill(true);
        assert!(read(&mut o, Value::Zero).is_err());
        cut.power_cut(false);
        assert!(read(&mut cut, Value::Zero).is_ok());
    }
}
