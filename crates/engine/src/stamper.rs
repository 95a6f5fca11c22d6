//! The threads that write stamps into the headers of backing stores. They do so when the machine
//! orders it; the first of them also requests stamps at regular intervals. Headers are written with
//! blocking calls, so not by the thread that holds the engine's lock. Each store has its own
//! thread, so that none waits for a slow one.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_block::Volume;
use forebay_cache::StampReport;
use forebay_effect::IoError;
use forebay_flash::{HeaderChange, Stamp, StampNumber};

use crate::backing_stores::BackingStores;
use crate::core::Core;
use crate::error::EngineError;
use crate::shared::{Shared, StamperWork};
use crate::store::Store;

/// The threads. They end when the engine's life has ended and the threads that wait for a notice are woken.
pub(crate) struct Stamper(JoinHandle<()>);

impl Stamper {
    /// Starts writing stamps for the stores that keep them, and requests some at this interval; `None` if
    /// there are no such stores.
    pub fn start(
        shared: Arc<Shared>,
        stores: Arc<BackingStores>,
        every: Duration,
    ) -> std::io::Result<Option<Stamper>> {
        let mut writers = Vec::new();
        for volume in stores.volumes() {
            let keeps = stores.lock(volume).keeps_stamps();
            let start = || Writer::start(volume, shared.clone(), stores.clone());
            writers.push(keeps.then(start).transpose()?);
        }
        if writers.iter().all(Option::is_none) {
            return Ok(None);
        }
        let name = std::thread::Builder::new().name("forebay-stamper".into());
        let thread = name.spawn(move || {
            work(&shared, &writers, every);
            for Writer { orders, thread } in writers.into_iter().flatten() {
                drop(orders);
                let _ = thread.join();
            }
        })?;
        Ok(Some(Stamper(thread)))
    }

    /// Waits until they have ended.
    pub fn join(self) {
        // A thread that panicked has said so; there is nothing left to save.
        let _ = self.0.join();
    }
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
                    let writer = writer.expect("the volume keeps stamps");
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
        // The store of a volume that is held need not be written, and may hang; but flash that has failed can only be
        // released there. A thread that waits for the store's answer has its lock.
        let is_held = shared.lock_anyway().holds().holds_volume(volume);
        if is_held && !release || stores.is_asked(volume) {
            let result = Err(IoError::Device);
            shared.with_core(|core, now| core.stamped(now, StampReport { volume, result }));
            continue;
        }
        let written = write(&mut stores.lock(volume), stamp, release);
        // Operators learn the reason; for the machine, any is a failed write.
        let result = written.as_ref().map_or(Err(IoError::Device), |&number| Ok(number));
        shared.with_core(|core, now| {
            if let Err(error) = written {
                core.unstamped.note_failed(volume, error.to_string());
            }
            core.stamped(now, StampReport { volume, result });
        });
    }
}

/// Writes a stamp, and returns its number when it is durable.
fn write(store: &mut Store, stamp: Stamp, release: bool) -> Result<StampNumber, EngineError> {
    store.write_header(&HeaderChange::Stamp { stamp, release })?;
    Ok(store.stamp_number())
}
