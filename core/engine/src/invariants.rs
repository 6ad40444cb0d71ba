//! What must hold after every batch, whatever came before. Checked by tests and by the simulator after each event.

use std::collections::BTreeMap;

use headway_types::{ArrayId, Generation, GpuUuid, JobId, JobStateKind, NodeId, PlanId};

use crate::dependencies::Dependents;
use crate::engine::Engine;
use crate::facts::owners::Owners;
use crate::facts::roll::Roll;
use crate::record::{Awaited, PlanState};

/// A broken promise of the engine.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InvariantViolation {
    #[error("GPU {gpu} is granted to {first:?} and to {second:?}")]
    GrantedTwice { gpu: GpuUuid, first: (JobId, Generation), second: (JobId, Generation) },
    #[error("job {job} is {state} under {generation} without an allocation")]
    NoAllocation { job: JobId, state: JobStateKind, generation: Generation },
    #[error("job {job} has issued up to {issued}, but {used} is in use")]
    GenerationBeyondIssued { job: JobId, issued: Generation, used: Generation },
    #[error("job {job} lives under {live}, but has issued {issued}")]
    NotNewest { job: JobId, live: Generation, issued: Generation },
    #[error("checkpoint of job {job} is of {checkpoint}, but only {issued} was issued")]
    CheckpointAhead { job: JobId, checkpoint: Generation, issued: Generation },
    #[error("progress of job {job} is {progress}")]
    Progress { job: JobId, progress: f64 },
    #[error("the index of what node {node} holds is wrong")]
    Index { node: NodeId },
    #[error("node {node} holds or offers GPUs and is not known")]
    UnknownNode { node: NodeId },
    #[error("the roll of jobs is wrong")]
    Roll,
    #[error("the sums of what users' unfinished jobs come to are wrong")]
    Owners,
    #[error("the index of who waits for whom is wrong")]
    Dependents,
    #[error("job {job} waits for {dependency:?}, which is not live")]
    WaitsForNobody { job: JobId, dependency: Awaited },
    #[error("the sets of elements of arrays are wrong")]
    Arrays,
    #[error("array {array} has more elements in rounds than it allows")]
    TooManyElements { array: ArrayId },
    #[error("array {array} keeps elements waiting for nobody")]
    IdleArray { array: ArrayId },
    #[error("facts and what was seen are not of the same jobs and nodes")]
    Apart,
    #[error("the target {plan} is {state:?}")]
    TargetNotAdopted { plan: PlanId, state: PlanState },
}

impl Engine {
    /// Checks every invariant; the first broken one is returned.
    pub fn check_invariants(&self) -> Result<(), InvariantViolation> {
        use InvariantViolation as V;
        let facts = &self.facts;
        if !facts.jobs.keys().eq(self.seen.jobs.keys()) || !facts.nodes.keys().eq(self.seen.nodes.keys()) {
            return Err(V::Apart);
        }
        if facts.roll != Roll::of(&facts.jobs) {
            return Err(V::Roll);
        }
        if facts.owners != Owners::of(&facts.jobs) {
            return Err(V::Owners);
        }
        if facts.dependents != Dependents::of_all(&facts.jobs) {
            return Err(V::Dependents);
        }
        if !facts.arrays.agree_with(&facts.jobs) {
            return Err(V::Arrays);
        }
        for id in facts.arrays.ids() {
            let Some(kept) = facts.arrays.get(id) else { continue };
            let queued =
                |(_, job): &&(u32, JobId)| facts.jobs.get(job).is_some_and(|job| job.state.generation().is_none());
            let queued = kept.admitted.iter().filter(queued).count();
            let most = kept.row.parallel.map_or(usize::MAX, |most| most as usize);
            if kept.admitted.len() > most.max(kept.admitted.len() - queued) {
                return Err(V::TooManyElements { array: id });
            }
            if !kept.waiting.is_empty() && kept.admitted.len() < most {
                return Err(V::IdleArray { array: id });
            }
        }
        for (dependency, waiting) in facts.dependents.awaited() {
            let lives = match dependency {
                Awaited::Job(job) => facts.jobs.get(&job).is_some_and(|job| !job.state.is_final()),
                Awaited::Array(array) => facts.array(array).is_some_and(|array| !array.is_over()),
            };
            if let Some(job) = waiting.first().filter(|_| !lives) {
                return Err(V::WaitsForNobody { job: *job, dependency });
            }
        }
        let mut named = facts.holding.keys().chain(facts.homes.values());
        if let Some(node) = named.find(|node| !facts.nodes.contains_key(node)) {
            return Err(V::UnknownNode { node: *node });
        }
        let mut held: BTreeMap<&GpuUuid, (JobId, Generation)> = BTreeMap::new();
        for (key, allocation) in &facts.allocations {
            let slices = allocation.placement.slices().iter();
            for gpu in slices.filter(|one| !allocation.released.contains_key(&one.node)).flat_map(|one| &one.gpus) {
                if let Some(first) = held.insert(gpu, *key) {
                    return Err(V::GrantedTwice { gpu: gpu.clone(), first, second: *key });
                }
            }
            if let Some(job) = facts.jobs.get(&key.0)
                && job.generation < key.1
            {
                return Err(V::GenerationBeyondIssued { job: key.0, issued: job.generation, used: key.1 });
            }
        }
        for (node, held) in &facts.holding {
            let holds =
                |(_, one): &(&(JobId, Generation), &std::sync::Arc<crate::record::Allocation>)| one.holds_on(*node);
            if !held.iter().eq(facts.allocations.iter().filter(holds).map(|(key, _)| key)) {
                return Err(V::Index { node: *node });
            }
        }
        for (id, row) in &facts.jobs {
            let job = *id;
            if let Some(generation) = row.state.generation() {
                if !facts.allocations.contains_key(&(job, generation)) {
                    return Err(V::NoAllocation { job, state: row.state.kind(), generation });
                }
                if generation != row.generation {
                    return Err(V::NotNewest { job, live: generation, issued: row.generation });
                }
            }
            if let Some(checkpoint) = row.checkpoint.as_ref().filter(|one| one.generation > row.generation) {
                return Err(V::CheckpointAhead { job, checkpoint: checkpoint.generation, issued: row.generation });
            }
            if !(row.progress.0.is_finite() && row.progress.0 >= 0.0) {
                return Err(V::Progress { job, progress: row.progress.0 });
            }
        }
        match &facts.target {
            Some(target) if target.state != PlanState::Adopted => {
                Err(V::TargetNotAdopted { plan: target.plan.id, state: target.state.clone() })
            }
            _ => Ok(()),
        }
    }
}
