//! The check every plan passes before it is adopted. It shares no code with the planner's search (of the goodput model
//! it asks only what runs): a bug there must not hide here. One file per kind of rule; each rule is said as users know it
//! (`docs/planner.md`), not in the words of the integer program.

mod configuration;
mod delta;
mod floors;
mod gpus;
mod host;
mod limits;
mod lineage;
mod power;
mod reserved;
mod site;
mod table;
mod violation;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_types::{GpuUuid, JobId, NodeId, Plan};

use crate::input::{PlanInput, PlanNode};
use crate::sound::Sound;
use delta::Delta;
use lineage::Lineages;
pub use violation::Violation;

/// Whether a plan for this round may be adopted.
///
/// # Errors
/// The first rule that it breaks.
pub fn verify(input: &PlanInput, plan: &Plan) -> Result<(), Violation> {
    let sound = Sound::of(input).map_err(Violation::Round)?;
    let scene = Scene::new(&sound, plan)?;
    scene.check_safety()?;
    floors::check(&scene)
}

/// As [`verify`], for a plan of which part fell away since it was made: nothing in it may harm, but what the lost part
/// owed to projects and jobs is for the next round.
///
/// # Errors
/// The first rule that it breaks.
pub fn verify_rest(input: &PlanInput, plan: &Plan) -> Result<(), Violation> {
    let sound = Sound::of(input).map_err(Violation::Round)?;
    Scene::new(&sound, plan)?.check_safety()
}

/// A plan that has passed [`verify`] against the input it was made from. Whoever made it looks at the whole round once, on a
/// thread of his own, and nobody after him has to.
#[derive(Clone, Debug, PartialEq)]
pub struct Verified(Arc<Plan>);

impl Verified {
    /// # Errors
    /// The first rule that the plan breaks.
    pub fn try_new(input: &PlanInput, plan: Arc<Plan>) -> Result<Self, Violation> {
        verify(input, &plan)?;
        Ok(Self(plan))
    }

    #[must_use]
    pub fn plan(&self) -> &Arc<Plan> {
        &self.0
    }
}

/// Round and plan side by side.
struct Scene<'a> {
    input: &'a PlanInput,
    plan: &'a Plan,
    nodes: BTreeMap<NodeId, &'a PlanNode>,
    lineages: Lineages<'a>,
    /// Every job of the round, in their order.
    deltas: Vec<Delta<'a>>,
    /// Rules that the plan says it could not keep.
    relaxed: BTreeSet<&'a str>,
}

impl<'a> Scene<'a> {
    /// A job left out keeps what it has, or has nothing: it is fixed in the round, or not part of it.
    fn new(sound: &'a Sound<'_>, plan: &'a Plan) -> Result<Self, Violation> {
        let input: &PlanInput = &sound.input;
        let named: BTreeSet<JobId> = plan.report.left_out.iter().map(|one| one.job).collect();
        if let Some((job, why)) = sound.left_out.iter().find(|(job, _)| !named.contains(job)) {
            return Err(Violation::Unnamed { job: *job, why: why.clone() });
        }
        if plan.id != input.plan {
            return Err(Violation::WrongPlan { plan: plan.id, expected: input.plan });
        }
        if plan.parent != input.parent {
            return Err(Violation::WrongParent { parent: plan.parent, expected: input.parent });
        }
        let jobs: BTreeSet<JobId> = input.jobs.iter().map(|job| job.job).collect();
        if let Some(unknown) = plan.assignments.keys().find(|id| !jobs.contains(id)) {
            return Err(Violation::UnknownJob(*unknown));
        }
        Ok(Self {
            input,
            plan,
            nodes: input.nodes.iter().map(|node| (node.node, node)).collect(),
            lineages: Lineages::new(&input.projects),
            deltas: input.jobs.iter().map(|job| Delta::new(job, plan.assignments.get(&job.job))).collect(),
            relaxed: plan.report.relaxed.iter().map(|one| one.rule.as_str()).collect(),
        })
    }

    fn check_safety(&self) -> Result<(), Violation> {
        self.check_no_gpu_twice()?;
        for delta in &self.deltas {
            gpus::check(self, delta)?;
            reserved::check(self, delta)?;
            table::check(self, delta)?;
            configuration::check(self, delta)?;
        }
        host::check(self)?;
        limits::check(self)?;
        site::check(self)?;
        power::check(self)
    }

    fn check_no_gpu_twice(&self) -> Result<(), Violation> {
        let mut granted: BTreeMap<&GpuUuid, JobId> = BTreeMap::new();
        for (&job, assignment) in &self.plan.assignments {
            for (_, gpu) in assignment.placement.ranks() {
                if let Some(first) = granted.insert(gpu, job) {
                    return Err(Violation::GrantedTwice { gpu: gpu.clone(), first, second: job });
                }
            }
        }
        Ok(())
    }
}
