//! What jobs must get in any case: asked for by people, beyond what the objective would choose. A forced job has only the choices that are forced
//! on it, and having nothing: that others are in the way must stay an answer. What is forced is owed like a floor.

use headway_types::{GpuCount, GpuType, JobId};
use serde::{Deserialize, Serialize};

use crate::candidate::{Candidate, Options};
use crate::input::{Freedom, PlanInput, PlanJob};
use crate::round::Round;

/// What one job must get in any case; all other rules are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Force {
    pub job: JobId,
    /// `None`: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<GpuCount>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<GpuType>,
}

impl Force {
    #[must_use]
    pub fn start(job: JobId) -> Self {
        Self { job, gpus: None, gpu_type: None }
    }

    #[must_use]
    pub fn size(job: JobId, gpus: GpuCount) -> Self {
        Self { job, gpus: Some(gpus), gpu_type: None }
    }

    /// Leaves the job what suits. One that must keep what it has keeps it.
    fn narrow(&self, round: &Round<'_>, of: &mut Options<'_>) {
        if of.job.freedom != Freedom::Free {
            return;
        }
        let held = of.job.current.as_ref().and_then(|current| round.cluster.class_of_placement(&current.placement));
        let suits = |candidate: &Candidate| {
            let class = candidate.shape.map(|shape| shape.class).or(held);
            let of_type = |class: usize| Some(round.cluster.gpu_type(class)) == self.gpu_type;
            let size = self.gpus.is_none_or(|gpus| gpus == candidate.gpus);
            size && (self.gpu_type.is_none() || class.is_some_and(of_type))
        };
        let stayed = of.candidates.iter().any(|one| one.stays);
        of.candidates.retain(|one| one.gpus.0 == 0 || suits(one));
        of.incumbent = of.candidates.iter().position(|one| one.stays).unwrap_or(0);
        if !of.candidates.iter().any(|one| one.stays) {
            of.batch_change = None;
            of.forced_off = stayed;
        }
    }
}

impl PlanInput {
    /// Forces this on its job, if the round has it. It overrides that the job must keep what it has only where that is lifted besides.
    pub fn force(&mut self, force: Force) -> Option<&mut PlanJob> {
        let job = self.jobs.iter_mut().find(|job| job.job == force.job)?;
        job.claim.floor = force.gpus.unwrap_or(GpuCount(1));
        self.forced.retain(|one| one.job != force.job);
        self.forced.push(force);
        Some(job)
    }
}

/// Narrows what is forced to it.
pub(crate) fn narrow(round: &Round<'_>, options: &mut [Options<'_>]) {
    for force in &round.input.forced {
        if let Some(of) = options.iter_mut().find(|one| one.job.job == force.job) {
            force.narrow(round, of);
        }
    }
}
