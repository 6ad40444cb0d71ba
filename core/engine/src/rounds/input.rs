//! What the planner may look at in a round: usable GPUs, jobs that want some, what each holds, and what it is free
//! to do. Taking it down changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_planner::{Freedom, PlanInput, PlanNode, Policy};
use headway_types::{Assignment, GpuCount, GpuHealth, JobId, NodeId, NodeSlice};

use super::request::{Accused, Lot};
use super::{RoundKind, RoundRequest};
use crate::facts::Facts;
use crate::generation::MUST_NOT_RUN_TWICE;
use crate::record::{Allocation, Availability, Job, JobState, Node, NodePolicy, RESIZE_WINDOW, StopCause};
use crate::situation::{Leave, Situation};

/// What a round may look at, as things are.
pub(super) fn take_down(at: Situation<'_>, kind: &RoundKind) -> RoundRequest {
    let facts = at.facts;
    let leaving = at.leaving();
    let nodes = facts.nodes.iter().map(|(id, node)| at.plan_node(*id, node, kind, &leaving)).collect();
    let usages = facts.usages();
    let still = |id: &&JobId| facts.jobs.get(*id).is_some_and(|job| job.wants_gpus(facts.now));
    RoundRequest {
        frame: PlanInput {
            plan: kind.plan,
            parent: facts.target.as_ref().map(|target| target.plan.id),
            now: facts.now,
            trigger: kind.trigger.clone(),
            policy: kind.policy(&facts.policy.objective),
            jobs: Vec::new(),
            projects: facts.projects.values().map(|project| project.for_round(&usages)).collect(),
            reservations: facts.reservations.values().filter_map(|one| one.for_round(facts.now)).collect(),
            nodes,
            lessons: Arc::clone(&at.seen.lessons),
            deferred: BTreeSet::new(),
            forced: kind.terms.as_ref().map_or_else(Vec::new, |terms| terms.force.clone()),
        },
        jobs: facts.jobs.clone(),
        seen: at.seen.jobs.clone(),
        lots: at.lots(kind),
        left: Arc::clone(&kind.restraint.left),
        stay: Arc::clone(&kind.restraint.stay),
        count: facts.wanting() - kind.restraint.left.iter().filter(still).count(),
        rows: facts.nodes.clone(),
        accused: at.accused(),
        allocations: facts.allocations.clone(),
        restart_prior: facts.config.restart_prior,
    }
}

impl RoundKind {
    fn policy(&self, objective: &Policy) -> Policy {
        let Some(terms) = &self.terms else { return objective.clone() };
        let min_gain = terms.min_gain.unwrap_or(objective.min_gain);
        Policy { min_gain, max_moves: terms.max_moves.or(objective.max_moves), ..objective.clone() }
    }
}

impl Situation<'_> {
    fn plan_node(self, id: NodeId, node: &Node, kind: &RoundKind, leaving: &BTreeMap<JobId, Leave>) -> PlanNode {
        let held = self.held_on(id);
        let grantable = self.grantable(id);
        node.for_round(|gpu| match held.get(&gpu.uuid) {
            None => grantable.contains(&gpu.uuid),
            Some((job, generation)) => {
                let row = self.facts.jobs.get(job);
                let state = row.map(|row| &row.state);
                let named = row.is_some_and(|row| row.wants_gpus(self.facts.now)) && !kind.restraint.left.contains(job);
                // A node that came back under another id offers GPUs that are still held under the old one.
                let here = self.facts.is_placed_on(*job, *generation, id);
                let present = state.and_then(JobState::generation) == Some(*generation) && named && here;
                let stops = matches!(state, Some(JobState::Stopping { .. }));
                let leave = leaving.get(job).filter(|_| !stops);
                let goes = stops || leave.is_some();
                let waits = leave.is_some_and(|leave| leave.lingers || leave.slow == Some(id));
                // A job keeps what it holds on a node that takes nothing new; what it leaves goes to others only where
                // they may start, and not before it is sure to leave. Nobody is offered a broken GPU.
                let offered = !goes || (grantable.contains(&gpu.uuid) && !waits);
                present && gpu.health == GpuHealth::Healthy && offered
            }
        })
    }

    fn accused(self) -> Option<Accused> {
        let spoken_against = |node: &Node| !node.health.accusers.is_empty();
        let (accused, others): (Vec<_>, Vec<_>) = self.facts.nodes.iter().partition(|(_, node)| spoken_against(node));
        let free = |id: NodeId| (id, GpuCount(u32::try_from(self.free_on(id)).unwrap_or(u32::MAX)));
        let nodes = accused.iter().map(|(id, _)| **id).collect();
        (!accused.is_empty()).then(|| Accused { nodes, free: others.iter().map(|(id, _)| free(**id)).collect() })
    }

    /// What only the loop knows of jobs: of those that run or stop, and of those that have stopped for the target. All others hold nothing.
    fn lots(self, kind: &RoundKind) -> BTreeMap<JobId, Lot> {
        let facts = self.facts;
        let target = facts.target.iter().flat_map(|target| target.plan.assignments.keys());
        let queued = target.filter_map(|id| facts.jobs.get(id)).filter(|job| facts.may_start(job.id));
        let lot = |job: &Arc<Job>| {
            let (current, freedom) = self.freedom(job, kind);
            (job.id, Lot { current, freedom, batch_bound: job.batch_bound(facts.now) })
        };
        facts.live_jobs().chain(queued).map(lot).collect()
    }

    /// What a job holds, and whether this round may move it. One that is stopped for a move shows where it goes, so that what was decided
    /// stands unless something better pays for a change of mind. One that must leave shows where it is, so that the round knows what a move
    /// costs it; it cannot stay, since its node drains, is reserved for others, or its GPUs are not offered.
    fn freedom(self, job: &Job, kind: &RoundKind) -> (Option<Assignment>, Freedom) {
        let generation = match job.state {
            JobState::Starting { generation, .. } | JobState::Running { generation, .. } => generation,
            _ => return (self.on_its_way_to(job), Freedom::Free),
        };
        let Some(allocation) = self.facts.allocations.get(&(job.id, generation)) else { return (None, Freedom::Free) };
        let current = Some(allocation.assignment(self.facts.target.as_deref()));
        let fixed = |reason: String| Freedom::Fixed { reason };
        let JobState::Running { since, .. } = job.state else {
            return (current, fixed("it is starting".into()));
        };
        if let Some(reason) = self.out_of_reach(allocation) {
            return (current, fixed(reason));
        }
        if job.spec.limits.forbid_restart() {
            return (current, fixed(MUST_NOT_RUN_TWICE.into()));
        }
        if self.must_leave(allocation).is_some() {
            return (current, Freedom::Free);
        }
        if let Some(pin) = &job.pin {
            return (current, fixed(pin.to_string()));
        }
        if self.facts.touches(allocation, |node| matches!(node.policy, NodePolicy::Cordoned { .. })) {
            return (current, fixed("its node is cordoned".into()));
        }
        if self.facts.touches(allocation, |node| !node.health.is_trusted()) {
            return (current, fixed("its node is quarantined and takes nothing new".into()));
        }
        if !job.spec.role().gpus.allows(allocation.placement.gpus()) {
            // Its owner has changed the sizes it takes: it starts afresh at one of them.
            return (None, Freedom::Free);
        }
        if let Some(terms) = &kind.terms {
            if let Some(reason) = self.spared(terms, job, allocation) {
                return (current, fixed(reason.into()));
            }
            if terms.force.iter().any(|one| one.job == job.id) {
                return (current, Freedom::Free);
            }
        }
        if let Some(pinned) = &kind.pinned {
            return (current, fixed(pinned.to_string()));
        }
        if kind.restraint.stay.contains(&job.id) {
            return (current, fixed("rounds gave no plan: until they do again, it stays as it is".into()));
        }
        if job.resize.is_some() {
            // A cooldown protects it from the scheduler, not from its owner.
            return (current, Freedom::Free);
        }
        let elastic = job.spec.elastic;
        let ran = self.facts.now.since(since);
        if ran.0 < elastic.min_runtime.0 {
            let reason =
                format!("it has run {:.0} s of the {:.0} s before it may be moved", ran.0, elastic.min_runtime.0);
            return (current, fixed(reason));
        }
        let resizes = job.moved_at.iter().filter(|at| self.facts.now.since(**at).0 < RESIZE_WINDOW.0).count();
        if resizes >= elastic.max_resizes_per_hour as usize {
            let reason = format!("it was moved {resizes} times within the hour, as often as it allows");
            return (current, fixed(reason));
        }
        if let Some(reason) = self.facts.moves_cost_too_much(job) {
            return (current, fixed(reason));
        }
        if !job.can_resume() {
            let reason = "it cannot resume, so that no other job gets its GPUs (limits.restartable: true allows it)";
            return (current, Freedom::Settled { reason: reason.into() });
        }
        (current, Freedom::Free)
    }

    /// Returns what the target gives to a job that was stopped for it, or for which others are being stopped, while nothing
    /// has come between. Whoever would give these GPUs to another job, or back, has to gain more than the job loses by it.
    fn on_its_way_to(self, job: &Job) -> Option<Assignment> {
        let waits = matches!(job.state, JobState::Queued { .. });
        let moves = match job.state {
            JobState::Stopping { cause: StopCause::Rescale, .. } => true,
            _ => waits && self.seen.jobs.get(&job.id).is_some_and(|seen| seen.moving.is_some()),
        };
        let target = self.facts.target.as_ref().filter(|_| moves || waits)?;
        let assignment = target.plan.assignments.get(&job.id)?;
        let slices = assignment.placement.slices();
        if !moves && !slices.iter().any(|slice| self.is_being_freed(slice)) {
            return None;
        }
        let stands = self.facts.takes(job.id, assignment.placement.gpus())
            && !self.is_kept_off(job.id, slices.iter().map(|slice| slice.node))
            && !self.is_exhausted(job.id, assignment)
            && slices.iter().all(|slice| self.comes_free(slice));
        stands.then(|| assignment.clone())
    }

    /// Whether jobs are being stopped on some of these GPUs.
    fn is_being_freed(self, slice: &NodeSlice) -> bool {
        let held = self.held_on(slice.node);
        slice.gpus.iter().any(|gpu| held.contains_key(gpu))
    }

    /// Whether nobody keeps these GPUs but jobs that stop.
    fn comes_free(self, slice: &NodeSlice) -> bool {
        let (grantable, held) = (self.grantable(slice.node), self.held_on(slice.node));
        let stops =
            |job: &JobId| self.facts.jobs.get(job).is_some_and(|job| matches!(job.state, JobState::Stopping { .. }));
        slice.gpus.iter().all(|gpu| grantable.contains(gpu) && held.get(gpu).is_none_or(|(job, _)| stops(job)))
    }

    fn out_of_reach(self, allocation: &Allocation) -> Option<String> {
        allocation.placement.slices().iter().find_map(|slice| {
            let node = self.facts.nodes.get(&slice.node).filter(|_| self.seen.connected(slice.node));
            let near = node.is_some_and(|node| node.availability == Availability::Available);
            (!near).then(|| format!("node {} cannot be reached", self.facts.node_name(slice.node)))
        })
    }
}

impl Facts {
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
        slices.any(|slice| self.nodes.get(&slice.node).is_some_and(|node| which(node)))
    }
}
