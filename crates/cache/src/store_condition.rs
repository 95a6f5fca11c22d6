//! The condition of the backing stores: what is known of each from how its operations ended, and
//! which ones the cache works around.
//!
//! Code that learns how an operation on a store ended notes it here, and code that must know
//! whether a store works asks here: nothing else keeps a copy, except the slots layout (see
//! [`StoreConditions::left_out`]). Three kinds of knowledge are kept apart, because they end
//! differently:
//!
//! - How the *last* read and the *last* write ended. The next read or write decides again, so these
//!   answer only questions about what is better to do. Where nothing else can be done, the store is
//!   tried: if a failed write kept all later writes away, nothing would find out that the store
//!   works again.
//! - Whether a *sync* has ever failed. No later sync takes this back.
//! - How often *cleanings* have failed in a row. After [`FAILURES_MAX`] failures the store is
//!   *known to fail*, until a cleaning has written to it; probes take care that one tries
//!   (`stores/probes.rs`).

use core::ops::Index;

use forebay_block::{Nanos, PerVolume, Volume};
use forebay_effect::{IoError, Outcome};
use forebay_flash::BlockKey;

use crate::cleaner::FAILURES_MAX;
use crate::late::Late;
use crate::volume_set::VolumeSet;

/// The condition of a volume's store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreCondition {
    /// The error of the last read, if it failed.
    last_read: Option<IoError>,
    /// The error of the last write, or of a failed sync after it.
    last_write: Option<IoError>,
    /// The error of the last read, write or sync that failed.
    last_failure: Option<IoError>,
    /// The count of failed syncs of all stores when this store's last one failed; 0 if none has.
    sync_failed_at: u64,
    /// Cleanings that failed in a row, when the first of them did, and the error of the last.
    failures: u32,
    failing_since: Option<Nanos>,
    cleaning_error: IoError,
}

impl StoreCondition {
    const GOOD: StoreCondition = StoreCondition {
        last_read: None,
        last_write: None,
        last_failure: None,
        sync_failed_at: 0,
        failures: 0,
        failing_since: None,
        cleaning_error: IoError::Device,
    };

    // ---- questions ----

    /// Whether blocks are read from the store before a client requests them. Only the last read
    /// counts: a store that takes no writes may well be read, and which of its data may enter flash
    /// as clean is another question
    /// ([`Volumes::owes_sync_at`](crate::volumes::Volumes::owes_sync_at)).
    pub fn gives_reads(&self) -> bool {
        self.last_read.is_none()
    }

    /// Whether data goes to the store although flash could take it, and whether a sync or a mark
    /// that nobody waits for is worth its time there.
    ///
    /// This is stricter than whether the store is [known to fail](StoreConditions::is_failing): one
    /// failure is reason enough to use flash. In one way it is more lenient: a store that is known
    /// to fail, but took the last write, is written to again. A block that leaves memory loses
    /// nothing by that: if the write fails, the block stays in memory. A client's write would fail,
    /// so it asks both (`Admitter::goes_around`).
    pub fn takes_writes(&self) -> bool {
        self.last_write.is_none() && self.makes_durable()
    }

    /// Whether what a sync of the store reports as durable is durable. After one failed sync it may
    /// not be, whatever later syncs report: the store's device may have dropped what the failed one
    /// should have covered. So no later flush that needs a sync succeeds, and the volume does not
    /// continue without flash: there, all that it writes would need such syncs. Dirty records on
    /// flash need less, see [`StoreConditions::unsynced_since`].
    pub fn makes_durable(&self) -> bool {
        self.sync_failed_at == 0
    }

    /// The error to report: that of the last write, the last read, or any sync, if it failed.
    pub fn reported_error(&self) -> Option<IoError> {
        let sync = (!self.makes_durable()).then_some(IoError::Device);
        self.last_write.or(self.last_read).or(sync)
    }

    /// The error of the last operation that failed, whatever succeeded since.
    pub fn last_failure(&self) -> Option<IoError> {
        self.last_failure
    }

    /// Since when cleanings have failed, without one that succeeded.
    pub fn failing_since(&self) -> Option<Nanos> {
        self.failing_since
    }

    /// Whether cleanings have failed for at least `time`.
    pub fn fails_for(&self, time: Nanos, now: Nanos) -> bool {
        self.failing_since.is_some_and(|since| now.0.saturating_sub(since.0) >= time.0)
    }
}

/// The conditions of all stores. The sets follow from them, and change only here.
#[derive(Debug, Default)]
pub(crate) struct StoreConditions {
    list: PerVolume<StoreCondition>,
    /// Volumes whose store is known to fail.
    failing: VolumeSet,
    /// Volumes whose modifying requests fail. All of their stores are known to fail.
    suspended: VolumeSet,
    /// Failed syncs of all stores.
    sync_failures: u64,
    /// Stores that are late compared with the others.
    pub late: Late,
}

impl Index<Volume> for StoreConditions {
    type Output = StoreCondition;
    #[inline]
    fn index(&self, volume: Volume) -> &StoreCondition {
        &self.list[volume]
    }
}

impl StoreConditions {
    /// Adds the store of a volume that is attached.
    pub fn attach(&mut self) {
        self.list.push(StoreCondition::GOOD);
        self.late.attach();
    }

    // ---- questions ----

    /// The condition of a volume's store, if there is such a volume.
    pub fn get(&self, volume: Volume) -> Option<&StoreCondition> {
        self.list.get(volume)
    }

    /// Each condition with its volume.
    fn iter(&self) -> impl Iterator<Item = (Volume, &StoreCondition)> {
        self.list.iter()
    }

    /// Volumes whose store is known to fail: other volumes do not wait for it.
    #[inline]
    pub fn failing(&self) -> VolumeSet {
        self.failing
    }

    /// Whether the store of the block's volume is known to fail. A write that would otherwise have
    /// to wait depends only on this: a failure of the last write does not prevent another attempt.
    pub fn is_failing(&self, key: BlockKey) -> bool {
        self.failing.has(key)
    }

    /// Volumes that are left out where others need room: their stores are known to fail, or late.
    /// The slots layout does not evict their dirty records, and keeps a copy of this set
    /// (`SlotsLayout::pin`).
    #[inline]
    pub fn left_out(&self) -> VolumeSet {
        self.failing | self.late.volumes()
    }

    /// Volumes that are suspended.
    pub fn suspended(&self) -> VolumeSet {
        self.suspended
    }

    /// The error of the volume's store, if the volume is suspended.
    pub fn suspended_by(&self, volume: Volume) -> Option<IoError> {
        self.suspended.contains(volume).then(|| self.list[volume].cleaning_error)
    }

    /// Volumes whose store has failed too often since the destage in progress
    /// [began](StoreConditions::forgive).
    pub fn hopeless(&self) -> VolumeSet {
        let hopeless = self.iter().filter(|(_, store)| store.failures >= FAILURES_MAX);
        hopeless.map(|(volume, _)| volume).collect()
    }

    /// Whether [all stores take writes](StoreCondition::takes_writes). A mark may have to wait for
    /// a sync of any.
    pub fn all_take_writes(&self) -> bool {
        self.iter().all(|(_, store)| store.takes_writes())
    }

    /// Failed syncs until now, for [`StoreConditions::unsynced_since`].
    pub fn sync_failures(&self) -> u64 {
        self.sync_failures
    }

    /// Volumes whose sync has failed since the count of failures was `count`. What was written to
    /// the others since, and then synced, is durable, even if an earlier sync had failed.
    pub fn unsynced_since(&self, count: u64) -> VolumeSet {
        let failed = self.iter().filter(|(_, store)| store.sync_failed_at > count);
        failed.map(|(volume, _)| volume).collect()
    }

    // ---- events ----

    /// Notes how a read of a store has ended.
    pub fn read_ended(&mut self, volume: Volume, result: Outcome) {
        let store = &mut self.list[volume];
        store.last_read = result.err();
        store.last_failure = result.err().or(store.last_failure);
    }

    /// Notes how a write to a store has ended.
    pub fn write_ended(&mut self, volume: Volume, result: Outcome) {
        let store = &mut self.list[volume];
        store.last_write = result.err();
        store.last_failure = result.err().or(store.last_failure);
    }

    /// Notes how a sync of a store has ended; returns whether what it covered is durable.
    pub fn sync_ended(&mut self, volume: Volume, result: Outcome) -> bool {
        let store = &mut self.list[volume];
        if let Err(error) = result {
            self.sync_failures += 1;
            store.sync_failed_at = self.sync_failures;
            (store.last_write, store.last_failure) = (Some(error), Some(error));
        }
        store.makes_durable()
    }

    /// Notes that a cleaning has written to a store and synced it; returns whether the store was
    /// known to fail.
    pub fn cleaning_succeeded(&mut self, volume: Volume) -> bool {
        let store = &mut self.list[volume];
        // A destage may have forgiven failures; they must not shorten how long writes wait for a
        // later one.
        (store.failures, store.failing_since) = (0, None);
        let recovered = self.failing.contains(volume);
        self.failing.remove(volume);
        self.suspended.remove(volume);
        recovered
    }

    /// Notes that a cleaning could not write to a store, or could not sync it.
    pub fn cleaning_failed(&mut self, volume: Volume, error: IoError, now: Nanos) {
        let store = &mut self.list[volume];
        store.failures += 1;
        store.failing_since.get_or_insert(now);
        store.cleaning_error = error;
        self.failing.insert_if(volume, store.failures >= FAILURES_MAX);
    }

    /// Forgets the counts of failures, because they do not count for a destage that begins.
    pub fn forgive(&mut self) {
        self.list.iter_mut().for_each(|(_, store)| store.failures = 0);
    }

    /// Suspends those of these volumes whose stores are known to fail: their modifying requests
    /// fail from now on. Returns whether any was not suspended before.
    pub fn suspend(&mut self, volumes: VolumeSet) -> bool {
        let news = !(volumes & self.failing & !self.suspended).is_empty();
        self.suspended |= volumes & self.failing;
        news
    }

    /// Starts over, because an operator says that the stores work again: no volume is suspended,
    /// and stores that fail count as failing from now on.
    pub fn retry(&mut self, now: Nanos) {
        self.suspended = VolumeSet::EMPTY;
        for (_, store) in self.list.iter_mut() {
            store.failing_since = store.failing_since.map(|_| now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::late::Lateness;

    const ONE: Volume = Volume(0);
    const OTHER: Volume = Volume(1);

    fn two() -> StoreConditions {
        let mut stores = StoreConditions::default();
        (0..2).for_each(|_| stores.attach());
        stores
    }

    fn fail_cleanings(stores: &mut StoreConditions, times: u32, now: Nanos) {
        (0..times).for_each(|_| stores.cleaning_failed(ONE, IoError::NoSpace, now));
    }

    #[test]
    fn the_next_read_or_write_decides_again_what_the_last_one_said() {
        let mut stores = two();
        stores.write_ended(ONE, Err(IoError::NoSpace));
        assert!(!stores[ONE].takes_writes() && stores[ONE].gives_reads());
        assert!(stores[OTHER].takes_writes() && !stores.all_take_writes());
        stores.read_ended(ONE, Err(IoError::Device));
        assert!(!stores[ONE].gives_reads());
        assert_eq!(stores[ONE].reported_error(), Some(IoError::NoSpace), "the write comes first");
        stores.write_ended(ONE, Ok(()));
        assert!(stores[ONE].takes_writes() && !stores[ONE].gives_reads());
        assert_eq!(stores[ONE].reported_error(), Some(IoError::Device));
        stores.read_ended(ONE, Ok(()));
        assert!(stores[ONE].gives_reads() && stores.all_take_writes());
        assert_eq!(stores[ONE].reported_error(), None);
        assert_eq!(stores[ONE].last_failure(), Some(IoError::Device));
    }

    #[test]
    fn nothing_takes_a_failed_sync_back_but_it_covers_only_what_was_written_before() {
        let mut stores = two();
        let before = stores.sync_failures();
        assert!(stores.sync_ended(ONE, Ok(())));
        assert!(!stores.sync_ended(ONE, Err(IoError::NoSpace)));
        assert_eq!(stores[ONE].reported_error(), Some(IoError::NoSpace));
        let after = stores.sync_failures();
        stores.write_ended(ONE, Ok(()));
        assert!(!stores.sync_ended(ONE, Ok(())) && !stores[ONE].makes_durable());
        assert!(!stores[ONE].takes_writes() && stores[ONE].gives_reads());
        assert_eq!(stores[ONE].reported_error(), Some(IoError::Device));
        assert!(stores.sync_ended(OTHER, Ok(())) && stores[OTHER].makes_durable());
        assert_eq!(stores.unsynced_since(before), VolumeSet::only(ONE));
        assert_eq!(stores.unsynced_since(after), VolumeSet::EMPTY);
    }

    #[test]
    fn a_store_is_known_to_fail_after_three_cleanings_until_one_succeeds() {
        let mut stores = two();
        fail_cleanings(&mut stores, FAILURES_MAX - 1, Nanos(1));
        assert!(stores.failing().is_empty() && !stores.suspend(VolumeSet::only(ONE)));
        assert_eq!(stores.suspended_by(ONE), None, "only what is known to fail");
        fail_cleanings(&mut stores, 1, Nanos(2));
        assert_eq!(stores.failing(), VolumeSet::only(ONE));
        assert!(stores[ONE].takes_writes(), "its last write is another matter");
        stores.late.add(VolumeSet::only(OTHER), Lateness::Writes);
        assert_eq!(stores.left_out().len(), 2);
        assert!(stores.suspend(VolumeSet::only(ONE)) && !stores.suspend(VolumeSet::only(ONE)));
        assert_eq!(stores.suspended_by(ONE), Some(IoError::NoSpace));
        assert!(stores.cleaning_succeeded(ONE) && !stores.cleaning_succeeded(ONE));
        assert!(stores.failing().is_empty() && stores.suspended().is_empty());
        assert_eq!(stores.left_out(), VolumeSet::only(OTHER));
    }

    #[test]
    fn a_cleaning_that_succeeds_ends_the_failures_that_a_destage_has_forgiven() {
        let mut stores = two();
        fail_cleanings(&mut stores, 1, Nanos(10));
        stores.forgive();
        assert_eq!(stores[ONE].failing_since(), Some(Nanos(10)), "nothing has succeeded yet");
        assert!(!stores.cleaning_succeeded(ONE));
        fail_cleanings(&mut stores, FAILURES_MAX, Nanos(1000));
        assert_eq!(stores[ONE].failing_since(), Some(Nanos(1000)));
    }

    #[test]
    fn a_destage_tries_a_failing_store_again_and_a_retry_forgets_for_how_long_it_failed() {
        let mut stores = two();
        fail_cleanings(&mut stores, FAILURES_MAX, Nanos(10));
        stores.forgive();
        assert!(stores.hopeless().is_empty() && stores.failing() == VolumeSet::only(ONE));
        fail_cleanings(&mut stores, FAILURES_MAX, Nanos(20));
        assert_eq!(stores.hopeless(), VolumeSet::only(ONE));
        assert!(stores[ONE].fails_for(Nanos(15), Nanos(25)), "since the first failure");
        stores.suspend(VolumeSet::only(ONE));
        stores.retry(Nanos(25));
        assert!(!stores[ONE].fails_for(Nanos(15), Nanos(30)) && stores.suspended().is_empty());
        assert_eq!(
            (stores[ONE].failing_since(), stores[OTHER].failing_since()),
            (Some(Nanos(25)), None)
        );
    }
}
