//! Reads that are answered without the engine's lock, and how they are reported to the cache.
//!
//! A block that a read has found in memory is [`Published`]: further reads of it need no lock. The
//! session notes them, and reports them to the cache when it holds the lock for another reason, or
//! when it has noted enough. So the replacement policy learns of these hits a little late, but in
//! the session's order. Before counters are shown, the notes of all sessions are reported.
//!
//! This is switched off where each decision must be as in a simulation, or on a tape.

use std::sync::{Arc, Mutex, PoisonError};

use forebay_block::{Flags, Nanos, Op, SECTOR_BYTES, Volume};
use forebay_cache::Cache;
use forebay_device::{Executor, Published};
use forebay_effect::Frame;
use smallvec::{SmallVec, smallvec};

use crate::devices::AnyDevices;
use crate::machine::withdraw;
use crate::table::{Loans, Submission};
use crate::tape::TapedCache;

/// Number of hits between two attempts of a session to take the lock; it reports them if the lock
/// is free. It also looks up this many blocks together, so that their cache misses overlap.
const TOGETHER: usize = 8;
/// Most unreported hits of a session; then it waits for the lock.
const REPORT_MAX: usize = 256;

/// An answered read.
#[derive(Clone, Copy, Debug)]
struct Hit {
    at: Nanos,
    volume: Volume,
    offset: u64,
    length: u64,
}

/// The unreported reads of a session.
#[derive(Debug, Default)]
pub(crate) struct SessionHits(Mutex<Vec<Hit>>);

/// Whether a session must report its reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Report {
    Later,
    IfFree,
    Now,
}

impl SessionHits {
    /// Notes reads that were answered now.
    pub fn note<'a>(&self, at: Nanos, reads: impl Iterator<Item = &'a Submission>) -> Report {
        let mut hits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = hits.len();
        hits.extend(reads.map(|&Submission { volume, offset, length, .. }| Hit {
            at,
            volume,
            offset,
            length,
        }));
        match hits.len() {
            REPORT_MAX.. => Report::Now,
            now if now / TOGETHER > before / TOGETHER => Report::IfFree,
            _ => Report::Later,
        }
    }

    /// Reports the reads to the cache.
    pub fn report(&self, cache: &mut TapedCache) {
        let mut hits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for few in hits.chunks(TOGETHER) {
            // What they will look at is loaded for all of them at once, a step at a time.
            few.iter().for_each(|hit| cache.prefetch(hit.volume, hit.offset));
            let sought: SmallVec<[_; TOGETHER]> =
                few.iter().map(|hit| cache.prefetch_entry(hit.volume, hit.offset)).collect();
            for near in [false, true] {
                sought.iter().for_each(|&sought| cache.prefetch_policy(sought, near));
            }
            for (hit, &sought) in few.iter().zip(&sought) {
                cache.expect(sought);
                cache.note_hit(hit.at, hit.volume, hit.offset, hit.length);
            }
        }
        hits.clear();
    }
}

/// What sessions read without the lock, and the reads that they have not reported.
pub(crate) struct Readers {
    /// By session.
    hits: Vec<Arc<SessionHits>>,
    /// The frames that sessions may read; `None` if nothing can be lent.
    published: Option<Arc<Published>>,
}

impl Readers {
    pub fn new(published: Option<Arc<Published>>) -> Readers {
        Readers { hits: Vec::new(), published }
    }

    /// What a session needs to read without the lock.
    pub fn open(&mut self, session: u32) -> (Arc<SessionHits>, Option<Arc<Published>>) {
        let at = session as usize;
        if self.hits.len() <= at {
            self.hits.resize_with(at + 1, Arc::default);
        }
        (self.hits[at].clone(), self.published.clone())
    }

    /// The frames that sessions may read.
    #[inline]
    pub fn published(&self) -> Option<&Published> {
        self.published.as_deref()
    }

    /// Reports to the cache the reads of a session.
    pub fn report(&self, session: u32, cache: &mut TapedCache) {
        if let Some(hits) = self.hits.get(session as usize) {
            hits.report(cache);
        }
    }

    /// Reports to the cache the reads of all sessions.
    pub fn report_all(&self, cache: &mut TapedCache) {
        self.hits.iter().for_each(|hits| hits.report(cache));
    }

    /// Allows or forbids sessions to read without the lock.
    pub fn update(&self, cache: &mut TapedCache, allowed: bool) {
        withdraw(cache, self.published());
        if let Some(published) = self.published() {
            published.set_open(allowed);
        }
    }

    /// Whether the block in this frame could be published, and is not.
    #[inline]
    pub fn lacks(&self, frame: Frame) -> bool {
        self.published().is_some_and(|published| !published.has(frame.0))
    }

    /// From now on sessions read the block of this byte, which was found in memory, without the lock, if the cache
    /// agrees.
    pub fn publish(
        cache: &mut TapedCache,
        executor: &mut Executor<AnyDevices>,
        volume: Volume,
        offset: u64,
    ) {
        if let Some((key, frame)) = cache.publish(volume, offset) {
            executor.publish(key, frame);
        }
    }
}

/// Answers a read if all of it is published: with lent memory, if that is wanted and there is room
/// for it, or by copying into its buffer.
#[inline]
pub(crate) fn read(published: &Published, borrows: bool, r: &mut Submission) -> Option<Loans> {
    let buffer = r.buffer.as_mut().filter(|buffer| buffer.len() as u64 >= r.length)?;
    let reads = r.op == Op::Read && !r.flags.contains(Flags::PREFETCH);
    if !reads || r.length == 0 || (r.offset | r.length) & (SECTOR_BYTES - 1) != 0 {
        return None;
    }
    let block_bytes = u64::from(published.frame_bytes());
    let (block, start) = (r.offset / block_bytes, (r.offset % block_bytes) as u32);
    let key = Cache::key_of(r.volume, block).filter(|_| r.length <= block_bytes)?;
    if borrows && let Some(loan) = published.lend(key, start, r.length as u32) {
        return Some(smallvec![loan]);
    }
    published.copy(key, start, &mut buffer[..r.length as usize]).then(Loans::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_holds::ClientHolds;
    use crate::clock::Clock;
    use crate::core::Core;
    use crate::core::tests::{lending, write};
    use crate::queries::AllocationQueries;
    use crate::session::Session;
    use crate::shared::Shared;
    use crate::table::Done;
    use forebay_cache::{CacheConfig, VolumeStats};
    use forebay_device::Doorbell;
    use std::sync::atomic::Ordering;

    fn read(block: u64) -> Submission {
        Submission { op: Op::Read, ..write(block) }
    }

    fn shared(core: Core) -> Arc<Shared> {
        let bell = Arc::new(Doorbell::new().unwrap());
        Arc::new(Shared::new(core, Clock::start(), bell, AllocationQueries::new([None])))
    }

    fn stats(core: &Core) -> VolumeStats {
        *core.cache().volume_stats(Volume(0)).unwrap()
    }

    /// One request of a session; whether it was answered at once.
    fn ask(session: &mut Session, request: Submission) -> Vec<Done> {
        let mut done = Vec::new();
        session.submit(&mut vec![request], &mut done);
        done
    }

    #[test]
    fn a_second_hit_needs_no_lock_and_is_counted_when_somebody_looks() {
        let shared = shared(lending(CacheConfig::dram_only(4)).0);
        let mut session = Session::open(shared.clone()).unwrap();
        for request in [write(1), read(1)] {
            assert_eq!(ask(&mut session, request).len(), 1);
        }
        let mut borrower = Session::open(shared.clone()).unwrap();
        borrower.borrow();
        let locked = shared.lock();
        // (It would wait for itself.)
        let done = ask(&mut session, read(1));
        assert!(done.len() == 1 && done[0].result.is_ok() && done[0].lent.is_empty());
        assert_eq!(ask(&mut borrower, read(1))[0].lent.len(), 1);
        drop(locked);
        let mut core = shared.lock();
        assert_eq!(stats(&core).reads, 1);
        core.report_all_hits();
        assert_eq!((stats(&core).reads, stats(&core).read_hits.tier1), (3, 3));
    }

    #[test]
    fn a_prefetch_is_counted_apart_wherever_its_block_is() {
        let shared = shared(lending(CacheConfig::dram_only(4)).0);
        let mut session = Session::open(shared.clone()).unwrap();
        for request in [write(1), read(1), read(1)] {
            assert_eq!(ask(&mut session, request).len(), 1);
        }
        for block in [1, 2] {
            let prefetch = read(block).with_flags(Flags::PREFETCH);
            assert_eq!(ask(&mut session, prefetch).len(), 1);
        }
        assert_eq!(ask(&mut session, read(2)).len(), 1);
        let mut core = shared.lock();
        core.report_all_hits();
        let VolumeStats { reads, read_bytes, read_hits, prefetches, .. } = stats(&core);
        assert_eq!((reads, read_bytes, prefetches), (3, 3 * 4096, 2));
        assert_eq!((read_hits.tier1, read_hits.miss), (3, 0), "block 2 was brought in");
    }

    #[test]
    fn the_policy_hears_of_hits_before_what_the_session_asks_for_next() {
        let shared = shared(lending(CacheConfig::dram_only(4)).0);
        let mut session = Session::open(shared.clone()).unwrap();
        for request in [write(0), write(1), write(2), write(3), read(0), read(1), read(2), read(3)]
        {
            assert_eq!(ask(&mut session, request).len(), 1);
        }
        // The oldest is read again without the lock; two others come in, for which the next two leave.
        assert_eq!(ask(&mut session, read(0)).len(), 1);
        for block in [10, 11] {
            session.submit(&mut vec![read(block)], &mut Vec::new());
            let mut core = shared.lock();
            core.pass_timeout(Nanos(9));
        }
        let mut core = shared.lock();
        let here =
            [0, 1, 2, 3].map(|block| core.cache_mut().publish(Volume(0), block * 4096).is_some());
        assert_eq!(here, [true, false, false, true]);
    }

    #[test]
    fn a_session_whose_requests_wait_is_not_answered_past_them() {
        let config = CacheConfig { requests_max: 1, ..CacheConfig::dram_only(4) };
        let (core, stuck) = lending(config);
        let shared = shared(core);
        let mut session = Session::open(shared.clone()).unwrap();
        for request in [write(1), read(1)] {
            assert_eq!(ask(&mut session, request).len(), 1);
        }
        stuck.store(true, Ordering::Relaxed);
        // One that waits for its store, and one that waits for that.
        session.submit(&mut vec![read(2), write(1)], &mut Vec::new());
        assert!(ask(&mut session, read(1)).is_empty());
        let mut other = Session::open(shared.clone()).unwrap();
        assert_eq!(ask(&mut other, read(1)).len(), 1, "another one waits for nothing");
        stuck.store(false, Ordering::Relaxed);
        let mut done = Vec::new();
        while session.reap(&mut done) > 0 {
            shared.lock().pass_timeout(Nanos(9));
        }
        let order: Vec<_> = done.iter().map(|done| (done.request.op, done.request.tag)).collect();
        assert_eq!(order, [(Op::Read, 2), (Op::Write, 1), (Op::Read, 1)]);
    }

    #[test]
    fn requests_that_are_held_are_held_though_their_blocks_are_published() {
        let shared = shared(lending(CacheConfig::dram_only(4)).0);
        let mut session = Session::open(shared.clone()).unwrap();
        for request in [write(1), read(1), read(1)] {
            assert_eq!(ask(&mut session, request).len(), 1);
        }
        shared.with_core(|core, now| core.change_holds(now, ClientHolds::begin_quiesce));
        assert!(ask(&mut session, read(1)).is_empty());
        shared.with_core(|core, now| core.end_quiesce(now, Default::default()));
        let mut done = Vec::new();
        session.reap(&mut done);
        assert_eq!(done.len(), 1);
    }
}
