//! Do workloads fit together in one cache, and which of them waste it?

mod answer;
mod document;
mod workloads;

use forebay_block::{BlockSize, Nanos};
use forebay_locality::{PhaseOptions, SharedRecorder};
use forebay_trace::OpenOptions;

use crate::{AnalysisError, Observer, Traces};
pub use answer::{Answer, Workload};
pub use document::{Document, Pair, PhaseDocument, PhaseOf, Row, WorkloadDocument};
pub use workloads::{By, Group};
use workloads::{Workloads, check_names};

/// Whether workloads fit together in one cache.
#[derive(Clone, Debug)]
pub struct Question {
    /// The requests of the workloads. The other fields determine how traces are aligned and whether
    /// volumes of different files are kept apart.
    pub traces: Traces,
    /// Size of the cache to be shared.
    pub size_blocks: u64,
    /// Size of a block.
    pub block_size: BlockSize,
    /// The unit that counts as a workload.
    pub by: By,
    /// Groups of volumes that form one workload each; a volume in no group is a workload of its
    /// own.
    pub groups: Vec<Group>,
    /// Interval at which blocks move into the cache; `None`: they move when they are accessed.
    pub migration_period: Option<Nanos>,
    /// How to search for phases.
    pub phases: PhaseOptions,
    /// Whether to count only what phases need beyond the phases nested in them, because a faster
    /// cache holds the latter.
    pub marginal: bool,
}

impl Question {
    /// A question in which each file is a workload.
    pub fn new(traces: Traces, size_blocks: u64) -> Self {
        Self {
            traces,
            size_blocks,
            block_size: BlockSize::KIB_4,
            by: By::File,
            groups: Vec::new(),
            migration_period: None,
            phases: PhaseOptions::default(),
            marginal: false,
        }
    }

    /// Rejects an impossible question before traces are read.
    ///
    /// # Errors
    /// If the cache is smaller than a block, the migration period is 0, or groups contradict each
    /// other.
    pub fn check(&self) -> Result<(), AnalysisError> {
        if self.size_blocks == 0 {
            return Err(AnalysisError::Impossible("the shared cache is smaller than a block"));
        }
        if self.migration_period == Some(Nanos(0)) {
            let what = "the migration period must be greater than 0";
            return Err(AnalysisError::Impossible(what));
        }
        check_names(&self.groups)
    }

    /// Reads the traces, once, and answers the question.
    ///
    /// # Errors
    /// If [`check`](Self::check) fails, the traces cannot be read or measured, a group names a
    /// volume that does not exist, nothing is read or written, or the observer stops the work.
    pub fn ask(&self, observer: &dyn Observer) -> Result<Answer, AnalysisError> {
        self.check()?;
        let mut workloads = Workloads::new(&self.traces, self.by, &self.groups);
        let mut recorder =
            SharedRecorder::new(workloads.names().len(), self.block_size, self.migration_period)?;
        let traces = Traces {
            files: self.traces.files.clone(),
            options: OpenOptions { apart: self.by == By::File, ..self.traces.options.clone() },
        };
        let read =
            traces.read_batches(observer, |batch, metadata| -> Result<(), AnalysisError> {
                for request in batch.requests() {
                    let workload = workloads.workload_of(request.volume, metadata);
                    while recorder.workloads() <= workload {
                        recorder.add_workload()?;
                    }
                    recorder.add(workload, &request)?;
                }
                Ok(())
            })?;
        workloads.check_groups(&read.metadata)?;
        observer.check()?;
        Answer::new(self, &workloads, read.requests, recorder.finish()?, observer)
    }
}
