//! Measures the slices of a workload in parallel threads.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, ScopedJoinHandle};

use forebay_block::Request;
use forebay_locality::{
    LocalityError, LocalityOptions, Slice, SliceBatch, SlicedHistogram, Slicer, merge_slices,
};

use crate::AnalysisError;

/// Number of batches that can wait for a thread.
const WAITING: usize = 16;

/// Distributes requests over threads, each of which measures some of the slices.
pub struct Sliced<'scope> {
    slicer: Slicer,
    threads: Vec<Measurer<'scope>>,
}

struct Measurer<'scope> {
    batches: SyncSender<(usize, SliceBatch)>,
    thread: ScopedJoinHandle<'scope, Result<Vec<Slice>, LocalityError>>,
}

/// A thread ended early; joining it gives the reason.
struct Gone;

impl From<LocalityError> for Gone {
    fn from(_: LocalityError) -> Self {
        Self
    }
}

impl<'scope> Sliced<'scope> {
    /// Measures `slices` slices, with one thread per processor, but at most one per slice.
    pub fn new<'env>(
        scope: &'scope thread::Scope<'scope, 'env>,
        options: &LocalityOptions,
        slices: usize,
    ) -> Result<Self, AnalysisError> {
        let slicer = Slicer::new(options.block_size, slices, options.sampling)?;
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let count = processors.min(slices);
        let mut threads = Vec::with_capacity(count);
        for first in 0..count {
            let own = (first..slices).step_by(count);
            let own = own.map(|_| Slice::new(options.distance, slices, options.sampling));
            let mut own = own.collect::<Result<Vec<Slice>, LocalityError>>()?;
            let (batches, receiver) = sync_channel::<(usize, SliceBatch)>(WAITING);
            let thread = scope.spawn(move || {
                for (slice, batch) in receiver {
                    own[slice / count].measure(&batch)?;
                }
                Ok(own)
            });
            threads.push(Measurer { batches, thread });
        }
        Ok(Self { slicer, threads })
    }

    /// Measures one request.
    ///
    /// # Errors
    /// If a thread has failed, for example because there are more blocks than it can measure.
    pub fn add(&mut self, request: &Request) -> Result<(), AnalysisError> {
        let threads = &self.threads;
        let added = self.slicer.add(request, |slice, batch| send(threads, slice, batch));
        added.map_err(|Gone| self.why())
    }

    /// Waits for all threads and merges their measurements.
    ///
    /// # Errors
    /// As [`Sliced::add`].
    pub fn finish(mut self) -> Result<SlicedHistogram, AnalysisError> {
        let threads = &self.threads;
        if self.slicer.finish(|slice, batch| send(threads, slice, batch)).is_err() {
            return Err(self.why());
        }
        let count = self.threads.len();
        let mut by_thread = Vec::with_capacity(count);
        for Measurer { batches, thread } in self.threads {
            drop(batches);
            by_thread.push(join(thread)?.into_iter());
        }
        // Slice `n` was measured by thread `n` modulo the number of threads.
        let mut slices = Vec::new();
        while let Some(slice) = by_thread[slices.len() % count].next() {
            slices.push(slice);
        }
        Ok(merge_slices(&self.slicer, slices))
    }

    /// The reason why a thread ended early.
    fn why(&mut self) -> AnalysisError {
        for Measurer { batches, thread } in self.threads.drain(..) {
            drop(batches);
            if let Err(error) = join(thread) {
                return error;
            }
        }
        AnalysisError::MeasurerEnded
    }
}

fn join(
    thread: ScopedJoinHandle<'_, Result<Vec<Slice>, LocalityError>>,
) -> Result<Vec<Slice>, AnalysisError> {
    let joined = thread.join().map_err(|_| AnalysisError::MeasurerPanicked)?;
    Ok(joined?)
}

fn send(threads: &[Measurer<'_>], slice: usize, batch: SliceBatch) -> Result<(), Gone> {
    threads[slice % threads.len()].batches.send((slice, batch)).map_err(|_| Gone)
}
