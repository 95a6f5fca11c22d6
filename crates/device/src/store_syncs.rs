//! Coordinates the syncs of a store whose data is written through the [`Devices`] while its header
//! bypasses them.
//!
//! A failed sync means that completed writes may be lost, but only *one* sync may report it. Linux
//! reports a failed write of the page cache once for each open file, and an NBD server syncs one
//! file for all requests of a session; a disk reports a failed flush of its cache only to the
//! process that requested it. So the sync of a header can receive the error that concerns data, and the next
//! sync of the data succeeds although data is lost. The reverse can happen, too.
//!
//! [`StoreSyncs`] therefore informs each side of the other's failures:
//!
//! - a sync of the data fails if a sync of the header failed since the last sync of the data that
//!   began after that failure and reported it;
//! - a header is not written if a sync of the data failed since its write began.
//!
//! Two syncs that are in progress at the same time may report one loss to either of them. So a sync
//! succeeds only when the other side's syncs that began before its end have ended, too. A failure
//! is reported at least once to each side, but not forever: what is written and synced after the
//! report is durable.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use forebay_effect::Device;

use crate::devices::{Completion, DeviceError, Devices, Io, IoTag, Verb};
use crate::doorbell::Doorbell;
use crate::layer::Layer;

/// The state of a store's syncs, shared by both sides.
#[derive(Debug, Default)]
pub struct StoreSyncs {
    state: Mutex<State>,
    /// Notified when a sync of the data has ended, or no more will be reported.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    data: Side,
    header: Side,
    /// The number of failed syncs of the header that syncs of the data have reported.
    reported: u64,
    /// Rings when a sync of the header ends.
    bell: Option<Arc<Doorbell>>,
    /// Whether the ends of the data's syncs are no longer reported.
    closed: bool,
}

/// The syncs of one side.
#[derive(Debug, Default)]
struct Side {
    begun: u64,
    failed: u64,
    /// The numbers of the syncs in progress.
    in_progress: Vec<u64>,
}

impl Side {
    fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.in_progress.push(self.begun);
        self.begun
    }

    fn end(&mut self, number: u64, ok: bool) {
        self.in_progress.retain(|&other| other != number);
        self.failed += u64::from(!ok);
    }

    /// Whether a sync is in progress that began no later than the one with this number.
    fn awaits(&self, number: u64) -> bool {
        self.in_progress.iter().any(|&other| other <= number)
    }
}

/// A sync of the data.
#[derive(Clone, Copy, Debug)]
struct DataSync {
    number: u64,
    /// Number of failed syncs of the header when this sync began, and how many of them had been
    /// reported.
    failed_before: u64,
    reported_before: u64,
}

impl StoreSyncs {
    /// Writes a header: calls `write`, then `sync`, both of which bypass the devices and block.
    /// Then blocks until the syncs of the store's data that began before the end of `sync` have
    /// ended: do not hold a lock that is needed to [reap](Devices::reap) them.
    ///
    /// # Errors
    /// Those of `write` and `sync`, and if a sync of the data failed meanwhile.
    pub fn write_header(
        &self,
        write: impl FnOnce() -> io::Result<()>,
        sync: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let failed = self.state().data.failed;
        write()?;
        let number = self.state().header.begin();
        let mut header = HeaderSync { syncs: self, number, ok: false };
        let synced = sync();
        header.ok = synced.is_ok();
        drop(header);
        synced?;
        let mut state = self.state();
        let last = state.data.begun;
        while state.data.awaits(last) && !state.closed {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.data.failed != failed || state.data.awaits(last) {
            return Err(io::Error::other("a concurrent sync of the same store's data failed"));
        }
        Ok(())
    }

    /// Makes header writes stop waiting for syncs of the data, whose ends are no longer reported. A
    /// header write that would still have to wait fails.
    pub fn close(&self) {
        self.state().closed = true;
        self.ended.notify_all();
    }

    fn begin(&self) -> DataSync {
        let mut state = self.state();
        let number = state.data.begin();
        DataSync { number, failed_before: state.header.failed, reported_before: state.reported }
    }

    /// Records the end of a sync of the data. Returns the number of the last sync of the header
    /// that may have received its error.
    fn end(&self, sync: &DataSync, ok: bool) -> u64 {
        let mut state = self.state();
        state.data.end(sync.number, ok);
        self.ended.notify_all();
        state.header.begun
    }

    /// The outcome of a sync of the data for which [`end`](StoreSyncs::end) returned `last`; `None`
    /// if it is not known yet.
    fn outcome(&self, sync: &DataSync, last: u64) -> Option<Result<(), DeviceError>> {
        let mut state = self.state();
        if state.header.awaits(last) {
            return None;
        }
        // A failure concerns writes that completed before it. So only a sync that began after the
        // failure covers all of them; once it has reported the failure, later ones need not.
        state.reported = state.reported.max(sync.failed_before);
        let failed = state.header.failed > sync.reported_before;
        Some(if failed { Err(DeviceError::Io) } else { Ok(()) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sync of a header. It counts as failed unless `ok` is set before it is dropped.
struct HeaderSync<'a> {
    syncs: &'a StoreSyncs,
    number: u64,
    ok: bool,
}

impl Drop for HeaderSync<'_> {
    fn drop(&mut self) {
        let mut state = self.syncs.state();
        state.header.end(self.number, self.ok);
        state.bell.iter().for_each(|bell| bell.ring());
    }
}

/// Devices whose syncs take into account those of the headers on them.
#[derive(Debug)]
pub struct JointSyncs<D: Devices> {
    inner: D,
    stores: Vec<(Device, Arc<StoreSyncs>)>,
    in_progress: Vec<(IoTag, usize, DataSync)>,
    /// Syncs that will succeed unless a sync of a header that is still in progress fails; each with
    /// the number of the last header sync that counts.
    held: Vec<(IoTag, usize, DataSync, u64)>,
}

impl<D: Devices> JointSyncs<D> {
    /// Wraps `inner`; no device has a header yet.
    pub fn new(inner: D) -> JointSyncs<D> {
        JointSyncs { inner, stores: Vec::new(), in_progress: Vec::new(), held: Vec::new() }
    }

    /// Links the syncs of `device` with those of its header, which must be written through `syncs`;
    /// replaces earlier `syncs` of the device. No sync of the device may be in progress.
    pub fn join(&mut self, device: Device, syncs: Arc<StoreSyncs>) {
        syncs.state().bell = self.inner.doorbell();
        match self.stores.iter_mut().find(|(name, _)| *name == device) {
            Some((_, former)) => *former = syncs,
            None => self.stores.push((device, syncs)),
        }
    }

    /// Records the end of an operation. Returns whether it is held back.
    fn hold(&mut self, completion: Completion) -> bool {
        let ended = self.in_progress.iter().position(|&(tag, ..)| tag == completion.tag);
        let Some(at) = ended else { return false };
        let (tag, store, sync) = self.in_progress.swap_remove(at);
        let ok = completion.result.is_ok();
        let last = self.stores[store].1.end(&sync, ok);
        if ok {
            self.held.push((tag, store, sync, last));
        }
        ok
    }
}

impl<D: Devices> Layer for JointSyncs<D> {
    type Inner = D;

    fn inner(&self) -> &D {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    unsafe fn keep(&mut self, io: &Io<'_>) -> bool {
        if io.verb == Verb::Sync
            && let Some(store) = self.stores.iter().position(|&(name, _)| name == io.device)
        {
            self.in_progress.push((io.tag, store, self.stores[store].1.begin()));
        }
        false
    }

    fn reaped(&mut self, done: &mut Vec<Completion>, from: usize) {
        let mut at = from;
        while at < done.len() && !self.in_progress.is_empty() {
            match self.hold(done[at]) {
                true => drop(done.remove(at)),
                false => at += 1,
            }
        }
        let stores = &self.stores;
        self.held.retain(|&(tag, store, ref sync, last)| {
            let outcome = stores[store].1.outcome(sync, last);
            done.extend(outcome.map(|result| Completion { tag, result: result.map(|()| 0) }));
            outcome.is_none()
        });
    }

    fn abandoned(&mut self) {
        // Their outcome is unknown, so they count as failed.
        for (_, store, sync) in self.in_progress.drain(..) {
            self.stores[store].1.end(&sync, false);
        }
        self.held.clear();
    }
}

/// Gives access to the inner devices: everything but their syncs is unchanged.
impl<D: Devices> Deref for JointSyncs<D> {
    type Target = D;

    fn deref(&self) -> &D {
        &self.inner
    }
}

impl<D: Devices> DerefMut for JointSyncs<D> {
    fn deref_mut(&mut self) -> &mut D {
        &mut self.inner
    }
}

impl<D: Devices> Drop for JointSyncs<D> {
    fn drop(&mut self) {
        self.stores.iter().for_each(|(_, syncs)| syncs.close());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;
    use crate::memory::{DeviceOptions, Fault, MemoryDevices};

    const STORE: Device = Device::Backing(forebay_block::Volume(0));

    /// A store in memory, whose syncs are submitted and completed by hand.
    struct Store {
        devices: JointSyncs<MemoryDevices>,
        syncs: Arc<StoreSyncs>,
        tags: u64,
    }

    impl Store {
        fn new() -> Store {
            let mut devices = MemoryDevices::new(1);
            devices.add(STORE, DeviceOptions::sized(4096));
            let (mut devices, syncs) = (JointSyncs::new(devices), Arc::default());
            devices.join(STORE, Arc::clone(&syncs));
            Store { devices, syncs, tags: 0 }
        }

        fn begin(&mut self) {
            self.tags += 1;
            let io = Io {
                tag: IoTag(self.tags),
                device: STORE,
                verb: Verb::Sync,
                offset: 0,
                length: 0,
                memory: &[],
            };
            // SAFETY: a sync has no memory.
            unsafe { self.devices.submit(io) };
        }

        /// Ends the oldest sync of the data in flight. Returns the syncs reported since, and
        /// whether each succeeded.
        fn end(&mut self) -> Vec<(u64, bool)> {
            self.devices.complete(0);
            self.reap()
        }

        fn reap(&mut self) -> Vec<(u64, bool)> {
            let mut done = Vec::new();
            self.devices.reap(&mut done);
            done.into_iter().map(|ended| (ended.tag.0, ended.result.is_ok())).collect()
        }

        fn write_header(&self, synced: bool) -> bool {
            let sync = || if synced { Ok(()) } else { Err(io::Error::other("lost")) };
            self.syncs.write_header(|| Ok(()), sync).is_ok()
        }
    }

    #[test]
    fn the_sync_after_a_failed_one_of_the_header_fails_and_the_next_does_not() {
        let mut store = Store::new();
        assert!(!store.write_header(false));
        store.begin();
        assert_eq!(store.end(), [(1, false)]);
        store.begin();
        assert_eq!(store.end(), [(2, true)], "what was written after the report is durable");
        assert!(store.write_header(true));
    }

    #[test]
    fn a_sync_that_was_in_progress_when_the_headers_failed_fails_and_so_does_the_next() {
        let mut store = Store::new();
        store.begin();
        assert!(!store.write_header(false));
        assert_eq!(store.end(), [(1, false)]);
        // It covers writes that completed after the first had begun.
        store.begin();
        assert_eq!(store.end(), [(2, false)]);
        store.begin();
        assert_eq!(store.end(), [(3, true)]);
    }

    #[test]
    fn a_sync_that_ends_first_waits_for_what_the_headers_says() {
        for fails in [true, false] {
            let mut store = Store::new();
            store.begin();
            let (syncs, mut seen) = (store.syncs.clone(), Vec::new());
            let sync = || {
                seen = store.end();
                if fails { Err(io::Error::other("lost")) } else { Ok(()) }
            };
            assert_eq!(syncs.write_header(|| Ok(()), sync).is_ok(), !fails);
            assert_eq!(seen, [], "the header's sync may have its error");
            assert_eq!(store.reap(), [(1, !fails)]);
        }
    }

    #[test]
    fn two_syncs_that_began_after_a_failure_both_report_it() {
        let mut store = Store::new();
        assert!(!store.write_header(false));
        store.begin();
        store.begin();
        assert_eq!(store.end(), [(1, false)]);
        assert_eq!(store.end(), [(2, false)]);
    }

    #[test]
    fn a_header_is_not_durable_if_a_sync_of_the_data_failed_since_its_write_began() {
        let mut store = Store::new();
        let syncs = store.syncs.clone();
        let fail = |store: &mut Store| {
            let number = store.devices.operations();
            store.devices.fail_at(number, Fault::SyncFailure);
            store.begin();
            assert!(store.end().iter().all(|&(_, ok)| !ok));
            Ok(())
        };
        assert!(syncs.write_header(|| fail(&mut store), || Ok(())).is_err());
        assert!(syncs.write_header(|| Ok(()), || fail(&mut store)).is_err());
        assert!(store.write_header(true), "what failed before concerns it no longer");
    }

    #[test]
    fn a_header_waits_for_the_syncs_of_the_data_that_may_have_its_error() {
        for fails in [true, false] {
            let mut store = Store::new();
            if fails {
                store.devices.fail_at(0, Fault::SyncFailure);
            }
            store.begin();
            let (syncs, (tell, told)) = (store.syncs.clone(), channel());
            let writes = std::thread::spawn(move || {
                tell.send(syncs.write_header(|| Ok(()), || Ok(())).is_ok()).unwrap();
            });
            assert!(told.recv_timeout(Duration::from_millis(100)).is_err(), "it does not wait");
            store.end();
            assert_eq!(told.recv(), Ok(!fails));
            writes.join().unwrap();
        }
    }

    #[test]
    fn nobody_waits_for_a_sync_whose_end_nobody_sees() {
        for ends in ["abandoned", "closed", "dropped"] {
            let mut store = Store::new();
            store.begin();
            let syncs = store.syncs.clone();
            let writes = std::thread::spawn(move || syncs.write_header(|| Ok(()), || Ok(())));
            std::thread::sleep(Duration::from_millis(20));
            match ends {
                "abandoned" => store.devices.abandon(),
                "closed" => store.syncs.close(),
                _ => drop(store),
            }
            assert!(writes.join().unwrap().is_err(), "{ends}");
        }
    }
}
