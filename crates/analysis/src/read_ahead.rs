//! Reads a trace in a separate thread, ahead of the work on it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use forebay_trace::{Batch, Metadata, TraceError, TraceReader};

use crate::{AnalysisError, Meter, Observer};

/// Number of batches that can be read ahead of the work on them.
const READ_AHEAD: usize = 4;

/// Passes every batch of `reader` to `work`, with the current metadata. Returns the reader at its
/// end, and the number of requests.
pub fn read_ahead<E: From<AnalysisError>>(
    reader: Box<dyn TraceReader>,
    meter: &dyn Meter,
    observer: &dyn Observer,
    mut work: impl FnMut(&Batch, &Metadata) -> Result<(), E>,
) -> Result<(Box<dyn TraceReader>, u64), E> {
    let (sender, batches) = sync_channel(READ_AHEAD);
    let (returner, empty) = sync_channel(READ_AHEAD);
    thread::scope(|scope| {
        // Moved into the scope, so that an early return also ends the reading thread.
        let (batches, returner) = (batches, returner);
        let reading = scope.spawn(move || read(reader, meter, &sender, &empty));
        let mut requests = 0;
        for batch in &batches {
            observer.check().map_err(AnalysisError::from)?;
            let (batch, metadata): (Batch, Arc<Metadata>) = batch.map_err(AnalysisError::from)?;
            work(&batch, &metadata)?;
            requests += batch.len() as u64;
            // If the channel is full, this batch is simply not reused.
            let _ = returner.try_send(batch);
        }
        Ok((reading.join().map_err(|_| AnalysisError::ReaderPanicked)?, requests))
    })
}

fn read(
    mut reader: Box<dyn TraceReader>,
    meter: &dyn Meter,
    batches: &SyncSender<Result<(Batch, Arc<Metadata>), TraceError>>,
    empty: &Receiver<Batch>,
) -> Box<dyn TraceReader> {
    let mut metadata = Arc::new(reader.metadata().clone());
    loop {
        let mut batch = empty.try_recv().unwrap_or_default();
        let next = match reader.read_batch(&mut batch) {
            Ok(0) => break,
            Ok(_) => {
                let now = reader.metadata();
                if metadata.volumes.len() != now.volumes.len() || metadata.hashes != now.hashes {
                    metadata = Arc::new(now.clone());
                }
                Ok((batch, Arc::clone(&metadata)))
            }
            Err(error) => Err(error),
        };
        meter.set(reader.progress().bytes_read);
        let failed = next.is_err();
        if batches.send(next).is_err() || failed {
            break;
        }
    }
    reader
}
