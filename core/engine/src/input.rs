//! What the planner may look at in a round: usable GPUs, jobs that want some, what each holds, and what it is free
//! to do. Building it changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use headway_planner::{Downtime, Freedom, PlanInput, PlanJob, PlanNode, PlanProject, PlanWork, Policy, Premises};
use headway_types::{
    Assignment, Capabilities, Gpu, GpuHealth, JobId, NodeId, PlanId, Prediction, Seconds, Timestamp, Tokens,
    TokensPerSecond,
};

use crate::entry::JobEntry;
use crate::record::{Allocation, Availability, Job, JobState, Node, NodePolicy, PlanRecord, StopCause};
use crate::state::Engine;

/// Moves beyond this age no longer count against `max_resizes_per_hour`.
pub(crate) const RESIZE_WINDOW: Seconds = Seconds(3_600.0);

/// Which round an input is for.
#[derive(Clone, Debug)]
pub(crate) struct RoundKind {
    pub plan: PlanId,
    pub trigger: String,
    /// Overrides the policy's smallest gain.
    pub min_gain: Option<f64>,
    /// Running jobs keep their GPUs: their moves wait for approval.
    pub pinned: bool,
}

impl Engine {
    pub(crate) fn build_input(&self, kind: &RoundKind) -> PlanInput {
        let wanting: Vec<&JobEntry> = self.jobs.values().filter(|entry| self.wants_gpus(&entry.job)).collect();
        let named: BTreeSet<JobId> = wanting.iter().map(|entry| entry.job.id).collect();
        let leaving = self.leaving();
        let nodes: Vec<PlanNode> = self.nodes.keys().map(|id| self.plan_node(*id, &named, &leaving)).collect();
        let premises = Premises::new(&nodes, wanting.len());
        let jobs = wanting.into_iter().map(|entry| self.plan_job(entry, premises, kind.pinned)).collect();
        let objective = &self.policy.objective;
        let min_gain = kind.min_gain.unwrap_or(objective.min_gain);
        PlanInput {
            plan: kind.plan,
            parent: self.target.as_ref().map(|target| target.plan.id),
            now: self.now,
            trigger: kind.trigger.clone(),
            policy: Policy { min_gain, ..objective.clone() },
            nodes,
            jobs,
            projects: self.plan_projects(),
            reservations: self.reservations_for_round(),
        }
    }

    fn plan_projects(&self) -> Vec<PlanProject> {
        let usages = self.usages();
        self.projects.values().map(|project| project.for_round(&usages)).collect()
    }

    pub(crate) fn wants_gpus(&self, job: &Job) -> bool {
        wants_gpus(job, self.now)
    }

    /// Jobs that must leave where they run, and whether they may linger there. Asked once per job and not once per GPU:
    /// a gang's answer looks at all of its nodes.
    pub(crate) fn leaving(&self) -> BTreeMap<JobId, bool> {
        let goes = |(id, entry): (&JobId, &JobEntry)| {
            let allocation = self.allocations.get(&(*id, entry.job.state.generation()?))?;
            self.must_leave(allocation).map(|_| (*id, self.may_linger(allocation)))
        };
        self.jobs.iter().filter_map(goes).collect()
    }

    fn plan_node(&self, id: NodeId, jobs: &BTreeSet<JobId>, leaving: &BTreeMap<JobId, bool>) -> PlanNode {
        let entry = &self.nodes[&id];
        let held = self.held_on(id);
        let grantable = self.grantable(id);
        let usable = |gpu: &Gpu| match held.get(&gpu.uuid) {
            None => grantable.contains(&gpu.uuid),
            Some((job, generation)) => {
                let state = self.jobs.get(job).map(|entry| &entry.job.state);
                // A node that came back under another id offers GPUs that are still held under the old one.
                let here = self.is_placed_on(*job, *generation, id);
                let present = state.and_then(JobState::generation) == Some(*generation) && jobs.contains(job) && here;
                let stops = matches!(state, Some(JobState::Stopping { .. }));
                let goes = stops || leaving.contains_key(job);
                let lingers = !stops && leaving.get(job) == Some(&true);
                // A job keeps what it holds on a node that takes nothing new; what it leaves goes to others only where
                // they may start, and not before it is sure to leave. Nobody is offered a broken GPU.
                let offered = !goes || (grantable.contains(&gpu.uuid) && !lingers);
                present && gpu.health == GpuHealth::Healthy && offered
            }
        };
        entry.node.for_round(usable)
    }

    /// What its specification says, and over it what has been seen of the job.
    fn plan_job(&self, entry: &JobEntry, premises: Premises<'_>, pinned: bool) -> PlanJob {
        let job = &entry.job;
        let work = entry.model.clone().map_or(PlanWork::Opaque, PlanWork::Model);
        let told = premises.job(job.id, &job.spec, &job.owner, job.submitted_at, work);
        let (current, freedom) = self.standing(entry, pinned);
        let prior = Downtime::of_restart(job.downtime.unwrap_or(self.config.restart_prior));
        PlanJob {
            capabilities: job.capabilities.unwrap_or(told.capabilities),
            current,
            downtime: Downtime { layout: job.layout_downtime.or(prior.layout), ..prior },
            rework: self.rework(job),
            remaining: told.remaining.map(|target| Tokens((target.0 - entry.live.progress.0).max(0.0))),
            freedom,
            claim: self.claim(job, told.claim),
            bounds: self.bounds(job, told.bounds),
            needs: self.needs(job, told.needs),
            ..told
        }
    }

    /// A script that speaks to the agent saves before it stops; any other loses what it did since its checkpoint.
    fn rework(&self, job: &Job) -> Seconds {
        match job.state {
            JobState::Running { since, .. } if job.capabilities.is_none() => {
                self.now.since(job.checkpoint_at.map_or(since, |at| at.max(since)))
            }
            _ => Seconds(0.0),
        }
    }

    /// What a job holds, and whether this round may move it. A job that is stopping holds nothing worth keeping. One
    /// that must leave shows where it is, so that the round knows what a move costs it; it cannot stay, since its node
    /// drains, is reserved for others, or its GPUs are not offered.
    fn standing(&self, entry: &JobEntry, pinned: bool) -> (Option<Assignment>, Freedom) {
        let job = &entry.job;
        let generation = match job.state {
            JobState::Starting { generation, .. } | JobState::Running { generation, .. } => generation,
            _ => return (None, Freedom::Free),
        };
        let Some(allocation) = self.allocations.get(&(job.id, generation)) else { return (None, Freedom::Free) };
        let current = Some(assignment_of(allocation, self.target.as_deref()));
        let fixed = |reason: String| Freedom::Fixed { reason };
        let JobState::Running { since, .. } = job.state else {
            return (current, fixed("it is starting".into()));
        };
        if let Some(reason) = self.out_of_reach(allocation) {
            return (current, fixed(reason));
        }
        if self.must_leave(allocation).is_some() {
            return (current, Freedom::Free);
        }
        if let Some(pin) = &job.pin {
            return (current, fixed(pin.to_string()));
        }
        if self.touches(allocation, |node| matches!(node.policy, NodePolicy::Cordoned { .. })) {
            return (current, fixed("its node is cordoned".into()));
        }
        if self.touches(allocation, |node| !node.health.is_trusted()) {
            return (current, fixed("its node is quarantined and takes nothing new".into()));
        }
        if !job.spec.role().gpus.allows(allocation.placement.gpus()) {
            // Its owner has changed the sizes it takes: it starts afresh at one of them.
            return (None, Freedom::Free);
        }
        if pinned {
            return (current, fixed("moves of running jobs wait for approval".into()));
        }
        let elastic = job.spec.elastic;
        let ran = self.now.since(since);
        if ran.0 < elastic.min_runtime.0 {
            let reason =
                format!("it has run {:.0} s of the {:.0} s before it may be moved", ran.0, elastic.min_runtime.0);
            return (current, fixed(reason));
        }
        let resizes = job.moved_at.iter().filter(|at| self.now.since(**at).0 < RESIZE_WINDOW.0).count();
        if resizes >= elastic.max_resizes_per_hour as usize {
            let reason = format!("it was moved {resizes} times within the hour, as often as it allows");
            return (current, fixed(reason));
        }
        if let Some(reason) = self.moves_cost_too_much(job) {
            return (current, fixed(reason));
        }
        (current, Freedom::Free)
    }

    /// Whether one more move would take the job's downtime beyond the share of its time that it allows.
    fn moves_cost_too_much(&self, job: &Job) -> Option<String> {
        let age = self.now.since(job.started_at?).0;
        let next = job.downtime.unwrap_or(self.config.restart_prior).0;
        let share = (job.moved_for.0 + next) / (age + next);
        // The first move of a life is judged by its gain alone: a young job has no time to take a share of.
        let bound = job.spec.elastic.max_overhead;
        (job.moved_for.0 > 0.0 && share > bound).then(|| {
            format!(
                "one more move would make {:.1} % of its time downtime; it allows {:.1} %",
                100.0 * share,
                100.0 * bound
            )
        })
    }

    fn touches(&self, allocation: &Allocation, which: impl Fn(&Node) -> bool) -> bool {
        let mut slices = allocation.placement.slices().iter();
        slices.any(|slice| self.nodes.get(&slice.node).is_some_and(|entry| which(&entry.node)))
    }

    fn out_of_reach(&self, allocation: &Allocation) -> Option<String> {
        allocation.placement.slices().iter().find_map(|slice| {
            let entry = self.nodes.get(&slice.node);
            let near = entry.is_some_and(|one| one.connected() && one.node.availability == Availability::Available);
            (!near).then(|| format!("node {} cannot be reached", self.node_name(slice.node)))
        })
    }
}

/// Live jobs that are neither held, nor ending for good, nor waiting after a failure.
pub(crate) fn wants_gpus(job: &Job, now: Timestamp) -> bool {
    let waits = job.not_before.is_some_and(|moment| moment > now);
    match &job.state {
        JobState::Queued { .. } => !waits,
        JobState::Starting { .. } | JobState::Running { .. } => true,
        JobState::Stopping { cause, .. } => {
            let comes_back = match cause {
                StopCause::Rescale | StopCause::Preempt | StopCause::Drain => true,
                StopCause::NodeLost { .. } | StopCause::GangBroken { .. } | StopCause::Hung { .. } => true,
                StopCause::Cancel | StopCause::Hold | StopCause::TargetReached => false,
                StopCause::TimeLimit | StopCause::BudgetSpent => false,
            };
            comes_back && job.wish.is_none() && !waits
        }
        _ => false,
    }
}

/// What an allocation gives, and what the plan that gave it promised.
pub(crate) fn assignment_of(allocation: &Allocation, target: Option<&PlanRecord>) -> Assignment {
    let planned = target
        .and_then(|target| target.plan.assignments.get(&allocation.job))
        .filter(|one| one.placement == allocation.placement && one.configuration == allocation.configuration);
    let predicted = planned.map_or(
        Prediction {
            step_time: Seconds(0.0),
            throughput: TokensPerSecond(0.0),
            efficiency: 1.0,
            goodput: TokensPerSecond(allocation.predicted_goodput),
            speed_up: 1.0,
        },
        |one| one.predicted,
    );
    Assignment {
        placement: allocation.placement.clone(),
        configuration: allocation.configuration,
        predicted,
        label: None,
    }
}

/// What the running script can do: its own word, else the specification's.
pub(crate) fn capabilities(job: &Job) -> Capabilities {
    job.capabilities
        .or_else(|| job.spec.training().map(|training| training.reconfigure))
        .unwrap_or(Capabilities::UNKNOWN_SCRIPT)
}
