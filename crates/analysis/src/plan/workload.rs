//! Measures the workload of a plan.

use std::sync::Arc;

use forebay_block::Op;
use forebay_plan::{HitCounts, Profile, ProfileBuilder, ProfileOptions, WritePolicy};
use forebay_replay::Survey;

use super::{Evaluate, Question};
use crate::note::tell_not_sampled;
use crate::{AnalysisError, Described, Observer};

/// A workload, measured once for any number of plans.
#[derive(Debug)]
pub struct Workload {
    /// Hits by cache size, shared by all plans made from it.
    pub profile: Arc<Profile>,
    /// The description of the traces.
    pub described: Described,
    /// Extents of the volumes; empty if nothing is simulated or replayed.
    pub(super) survey: Survey,
}

impl Question {
    /// Reads the traces, once.
    ///
    /// # Errors
    /// If the traces cannot be read or measured, or the observer stops the work.
    pub fn measure(&self, observer: &dyn Observer) -> Result<Workload, AnalysisError> {
        let mut profile = ProfileBuilder::new(ProfileOptions {
            block_size: self.options.cost.block_size,
            sample_rate: self.sample_rate,
            write_back: self.options.policy == WritePolicy::WriteBack,
        })?;
        let mut survey = Survey::default();
        let surveys = !matches!(self.evaluate, Evaluate::Analytic);
        let described = self.traces.read(observer, |request| -> Result<(), AnalysisError> {
            if surveys {
                survey.add(request);
            }
            Ok(profile.add(request)?)
        })?;
        survey.name_volumes(described.metadata.volumes.iter().map(|v| v.name.as_str()));
        let profile = profile.finish()?;
        for (op, accesses) in [(Op::Read, profile.reads()), (Op::Write, profile.writes())] {
            tell_not_sampled(op, accesses, profile.is_unsampled(op), observer);
        }
        Ok(Workload { profile: Arc::new(profile), described, survey })
    }
}
