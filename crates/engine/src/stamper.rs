//! The threads that write stamps into the headers of backing stores. They do so when the machine
//! orders it; the first of them also requests stamps at regular intervals. Headers are written with
//! blocking calls, so not by the thread that holds the engine's lock. Each store has its own
//! thread, so that none waits for a slow one.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_block::Volume;
use forebay_config::Config;
use forebay_flash::{HeaderChange, Older, Stamp};

use crate::backing_stores::BackingStores;
use crate::core::Core;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::notice::EngineNotice;
use crate::shared::{Shared, StamperWork};
use crate::store::Store;

impl Engine {
    /// Starts writing stamps, for stores that keep them.
    pub(crate) fn keep_stamps(
        &mut self,
        config: &Config,
        one_at_a_time: bool,
    ) -> Result<(), EngineError> {
        let every = Duration::from_nanos(config.flush.stamp_every.nanos().0);
        let stores = self.stores.clone();
        let any = stores.lock_all().iter().any(|(_, store)| store.keeps_stamps());
        if !any || !self.has_flash || one_at_a_time {
            return Ok(());
        }
        let thread = start(self.shared.clone(), stores, every);
        self.stamper = Some(thread.map_err(|e| EngineError::System("start a thread", e))?);
        Ok(())
    }

    /// Writes the missing data to older stores before requests are served; `meanwhile` may abandon
    /// that with an error. Until [`completed`](Engine::completed), every start finds them to be older.
    pub(crate) fn complete(
        &mut self,
        meanwhile: impl FnMut(u64) -> ControlFlow<EngineError>,
    ) -> Result<(), EngineError> {
        let completing = self.recovery().map_or_else(Vec::new, |report| report.completing.clone());
        if completing.is_empty() {
            return Ok(());
        }
        let core = self.shared.lock();
        let dirty = |&volume: &Volume| core.cache().volume_stats(volume).map(|s| s.dirty_blocks);
        let blocks: Vec<u64> = completing.iter().map(|volume| dirty(volume).unwrap_or(0)).collect();
        drop(core);
        let mut orders = self.orders();
        self.destage_during(&mut orders, "completing an older copy of a store", meanwhile)?;
        drop(orders);
        let stores = self.stores.lock_all();
        for (volume, blocks) in completing.into_iter().zip(blocks) {
            let store = &stores[volume];
            let (volume, path) = (store.name.clone(), store.path.clone());
            self.notices.push(EngineNotice::Completed { volume, path, blocks });
        }
        Ok(())
    }

    /// The stores are complete, and their headers say so.
    pub(crate) fn completed(&self) {
        if self.recovery().is_some_and(|report| !report.completing.is_empty()) {
            self.shared.with_core(Core::completed);
        }
    }

    /// Why a start with an older copy is refused.
    pub(crate) fn older(&self, volume: Volume, which: Older, flash: PathBuf) -> EngineError {
        let stores = self.stores.lock_all();
        let store = &stores[volume];
        let (volume, path) = (store.name.clone(), store.path.clone());
        match which {
            Older::Store => EngineError::OlderStore { volume, path, flash },
            Older::Flash => EngineError::OlderFlash { volume, path, flash },
        }
    }
}

/// Starts the threads. They end when the engine's life has ended and the threads that wait for a notice are
/// woken.
fn start(
    shared: Arc<Shared>,
    stores: Arc<BackingStores>,
    every: Duration,
) -> std::io::Result<JoinHandle<()>> {
    let mut writers = Vec::new();
    for volume in stores.volumes() {
        let keeps = stores.lock(volume).keeps_stamps();
        let start = || Writer::start(volume, shared.clone(), stores.clone());
        writers.push(keeps.then(start).transpose()?);
    }
    let name = std::thread::Builder::new().name("forebay-stamper".into());
    name.spawn(move || {
        work(&shared, &writers, every);
        for Writer { orders, thread } in writers.into_iter().flatten() {
            drop(orders);
            let _ = thread.join();
        }
    })
}

/// Passes on the stamps that the machine orders.
fn work(shared: &Shared, writers: &[Option<Writer>], every: Duration) {
    let mut due = Instant::now() + every;
    loop {
        match shared.wait_stamps(due) {
            StamperWork::Leave => return,
            StamperWork::Ask => {
                due = Instant::now() + every;
                shared.with_core(Core::stamp);
            }
            StamperWork::Write { stamps, release } => {
                for (volume, stamp) in stamps {
                    let writer = writers[volume.0 as usize].as_ref();
                    let writer = writer.expect("the machine knows who keeps stamps");
                    // (Its thread leaves after this one.)
                    let _ = writer.orders.send((stamp, release));
                }
            }
        }
    }
}

/// The thread of a store.
struct Writer {
    /// Stamps to write; `true` for those that release the store from the log.
    orders: Sender<(Stamp, bool)>,
    thread: JoinHandle<()>,
}

impl Writer {
    fn start(
        volume: Volume,
        shared: Arc<Shared>,
        stores: Arc<BackingStores>,
    ) -> std::io::Result<Writer> {
        let (orders, ordered) = channel();
        let name = std::thread::Builder::new().name(format!("forebay-stamp-{volume}"));
        let thread = name.spawn(move || write_ordered(volume, &ordered, &shared, &stores))?;
        Ok(Writer { orders, thread })
    }
}

/// Writes the ordered stamps, until no more can follow.
fn write_ordered(
    volume: Volume,
    ordered: &Receiver<(Stamp, bool)>,
    shared: &Shared,
    stores: &BackingStores,
) {
    for (stamp, release) in ordered {
        let written = write(&mut stores.lock(volume), stamp, release);
        let stamped = vec![(volume, *written.as_ref().unwrap_or(&0))];
        shared.with_core(|core, now| {
            if let Err(error) = written {
                core.note_unstamped(volume, error.to_string());
            }
            core.stamped(now, stamped);
        });
    }
}

/// Writes a stamp and returns its number when it is durable. If it could not be written, the machine
/// gets the number 0, and treats that as a failed write.
fn write(store: &mut Store, stamp: Stamp, release: bool) -> Result<u64, EngineError> {
    store.write_header(&HeaderChange::Stamp { stamp, release })?;
    Ok(store.stamp_number())
}
