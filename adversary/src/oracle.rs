//! The values that a disk may return: each sector is a register, which is checked exactly.
//!
//! Every write has a number, which every sector that it writes contains; all zeroings write the
//! value *zero*. For each sector, the oracle keeps the writes whose value a read may still return
//! (the **candidates**) and the writes whose value may be found after a power cut (the **crash
//! set**).
//!
//! - A write that completed before another was issued is older. When the newer write completes, the
//!   older one is no longer a candidate. A failed write remains a candidate, and outdates nothing.
//! - A read that returns a value proves that every other write that had completed before the read
//!   was issued is older. From then on, the value cannot revert: *no flapping*.
//! - When a flush completes, the crash set keeps only the writes that were candidates when the
//!   flush was issued, and those that were issued later. A completed FUA write is a flush of its
//!   own sectors.
//! - After a power cut, the crash set becomes the candidates, and all of them count as completed. A
//!   value that a read then rules out never returns, not even after further cuts.

use std::fmt;
use std::hash::Hasher;

use smallvec::{SmallVec, smallvec};

/// The number of a write; 0 stands for the initial contents (zeroes).
pub type WriteId = u32;

/// The value that a sector was found to hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// All zeroes: the initial contents, or the result of a trim or a zeroing.
    Zero,
    /// The data of a write.
    Write(WriteId),
    /// A value that was never written there.
    Garbage,
}

#[derive(Clone, Copy, Debug)]
struct Version {
    id: WriteId,
    zero: bool,
    issued: u64,
    /// When the write ended; `u64::MAX` while it is in flight.
    ended: u64,
    failed: bool,
    /// The life in which the write was issued; each power cut begins another.
    life: u32,
    candidate: bool,
    /// Whether the value may be found after a power cut.
    survivor: bool,
    /// Whether the value may be found after a kill that loses no acknowledged data. A write that
    /// was read while in flight is not acknowledged by the read.
    unkilled: bool,
}

impl Version {
    fn value(&self) -> Value {
        if self.zero { Value::Zero } else { Value::Write(self.id) }
    }
}

/// A violation of a disk's guarantees.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The volume.
    pub volume: u32,
    /// The sector within the volume.
    pub sector: u64,
    /// The value that was found.
    pub found: Value,
    /// The values that are allowed.
    pub admissible: Vec<Value>,
    /// When the value was found.
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

/// The versions that a sector may hold: nearly always one.
type Versions = SmallVec<[Version; 1]>;

/// One list per sector, stored one after another.
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

/// The sectors of one volume.
#[derive(Clone, Debug)]
pub struct Oracle {
    volume: u32,
    sectors: Vec<Versions>,
    clock: u64,
    life: u32,
    /// When the reads in flight were issued; versions written since are kept for them.
    reading: Vec<u64>,
}

/// The state of the sectors when a read was issued.
#[derive(Clone, Debug)]
pub struct ReadTicket {
    first: u64,
    issued: u64,
    /// The candidates' values of each sector. Later events may remove candidates, but a read that
    /// was in flight may still have seen them.
    before: Lists<Value>,
}

/// The state of the sectors when a flush or a FUA write was issued.
#[derive(Clone, Debug)]
pub struct FlushTicket {
    first: u64,
    issued: u64,
    before: Lists<WriteId>,
}

impl Oracle {
    /// Creates a volume of `sectors` sectors, all zero.
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

    /// The number of the volume.
    pub fn volume(&self) -> u32 {
        self.volume
    }

    /// Number of sectors in the volume.
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

    /// Records that a write (or a zeroing) of `count` sectors is issued.
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

    /// Records that a write ended.
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

    /// Records that a flush is issued.
    pub fn flush_issued(&mut self) -> FlushTicket {
        self.durable_issued(0, self.sectors())
    }

    /// Records that a FUA write of these sectors is about to be issued.
    pub fn durable_issued(&mut self, first: u64, count: u64) -> FlushTicket {
        let before = self.before_flush(first, count);
        FlushTicket { first, issued: self.tick(), before }
    }

    /// The versions that may be on the disk after a flush that is issued now. The flush covers
    /// writes that have been answered. If a write in flight has already been read, the version that
    /// it replaces may return.
    fn before_flush(&self, first: u64, count: u64) -> Lists<WriteId> {
        let sectors = &self.sectors[first as usize..(first + count) as usize];
        Lists::collect(sectors, |s| {
            let under_way = s.iter().any(|v| v.candidate && v.ended == u64::MAX);
            let stays = move |v: &&Version| v.candidate || v.unkilled && under_way;
            s.iter().filter(stays).map(|v| v.id)
        })
    }

    /// Records that a flush completed.
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

    /// Records that a FUA write completed: writes that had completed before it was issued cannot
    /// return.
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

    /// Records that a read of `count` sectors is issued.
    pub fn read_issued(&mut self, first: u64, count: u64) -> ReadTicket {
        let sectors = &self.sectors[first as usize..(first + count) as usize];
        let before =
            Lists::collect(sectors, |s| s.iter().filter(|v| v.candidate).map(Version::value));
        let issued = self.tick();
        self.reading.push(issued);
        ReadTicket { first, issued, before }
    }

    /// Whether a sector may hold `value` after an operation that preserves what the sector held
    /// when the ticket was issued, or newer data: one of the values at that time, or one written
    /// since. The ticket stays valid.
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

    /// Records that a read failed, which proves nothing.
    pub fn read_failed(&mut self, ticket: &ReadTicket) {
        self.reading.retain(|&issued| issued != ticket.issued);
    }

    /// Records that a read completed and found `values`.
    ///
    /// # Errors
    /// Returns the first sector with a value that is not allowed.
    pub fn read_done(
        &mut self,
        ticket: &ReadTicket,
        values: &[Value],
        when: &'static str,
    ) -> Result<(), Violation> {
        self.judge(ticket, values.iter().copied().map(Some), when, true)
    }

    /// Records that a client learned that some sectors are zeroes, which counts as a read of them,
    /// with one exception: a read waits for a zeroing in flight, but this answer already reflects
    /// it, so the answer does not prove that other versions are older.
    ///
    /// # Errors
    /// Returns the first sector that must not be zeroes.
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
                // The value was outdated while the read was in flight, so it proves nothing about
                // the others.
                continue;
            }
            // Every other value whose write had ended before the read was issued is older.
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

    /// Records a power cut or, if `lossless`, a clean stop before it.
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

    /// Feeds `hasher` with the versions that a power cut now could leave: they determine everything
    /// that follows.
    pub fn hash_survivors(&self, hasher: &mut impl Hasher) {
        for s in &self.sectors {
            hasher.write_u8(0xFF);
            for v in s.iter().filter(|v| v.survivor) {
                hasher.write_u32(v.id);
                hasher.write_u8(u8::from(v.zero) | u8::from(v.failed) << 1);
            }
        }
    }

    /// Records that the process was killed. The devices kept their power, so a later power cut may
    /// still undo unflushed data. If `lossless`, the kill must not lose acknowledged data.
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

    /// Whether a sector may hold `value` while nothing is in flight.
    pub fn admits(&self, sector: u64, value: Value) -> bool {
        self.sectors[sector as usize].iter().any(|v| v.candidate && v.value() == value)
    }

    /// The values that a sector may hold now.
    pub fn admissible(&self, sector: u64) -> Vec<Value> {
        let s = &self.sectors[sector as usize];
        s.iter().filter(|v| v.candidate).map(Version::value).collect()
    }
}

fn prune(versions: &mut Versions, horizon: u64) {
    if versions.len() == 1 {
        // At least one version always remains.
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
        // A flush covers a write that was answered.
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
