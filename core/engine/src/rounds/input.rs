//! What the planner may look at in a round: usable GPUs, jobs that want some, what each holds, and what it is free
//! to do. Building it changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_planner::{Downtime, Freedom, PlanInput, PlanJob, PlanNode, PlanProject, PlanWork, Policy};
use headway_types::spec::NodeResources;
use headway_types::{Assignment, Gpu, GpuHealth, JobId, NodeId, Prediction, Seconds, Tokens, TokensPerSecond};

use super::RoundKind;
use super::claim::set_floors;
use crate::facts::Facts;
use crate::record::{
    Allocation, Availability, Job, JobState, Node, NodePolicy, Project, RESIZE_WINDOW, Reservation, StopCause,
};
use crate::seen::JobSeen;
use crate::situation::Situation;

/// What a change of layout in memory takes of a restart before one was measured: 30–56 s against 231–809 s (COPUS, table 2).
const LAYOUT_SHARE: f64 = 0.2;

/// What a round may look at, as things are.
pub(super) fn build_input(at: Situation<'_>, kind: &RoundKind) -> PlanInput {
    let facts = at.facts;
    let wanting = at.jobs().filter(|(job, _)| facts.wants_gpus(job));
    let mut jobs: Vec<PlanJob> = wanting.map(|(job, seen)| at.plan_job(job, seen, kind.pinned)).collect();
    let named: BTreeSet<JobId> = jobs.iter().map(|job| job.job).collect();
    let leaving = at.leaving();
    let offered = facts.nodes.iter();
    let nodes: Vec<PlanNode> = offered.map(|(id, node)| at.plan_node(*id, node, &named, &leaving)).collect();
    set_floors(facts, &mut jobs, &nodes);
    let objective = &facts.policy.objective;
    let min_gain = kind.min_gain.unwrap_or(objective.min_gain);
    PlanInput {
        plan: kind.plan,
        parent: facts.target.as_ref().map(|target| target.plan.id),
        now: facts.now,
        trigger: kind.trigger.clone(),
        policy: Policy { min_gain, ..objective.clone() },
        nodes,
        jobs,
        projects: facts.plan_projects(),
        reservations: facts.plan_reservations(),
    }
}

impl Facts {
    fn plan_projects(&self) -> Vec<PlanProject> {
        let usages = self.usages();
        let one = |(name, project): (&String, &Arc<Project>)| {
            let rules = project.rules.clone();
            PlanProject {
                name: name.clone(),
                parent: rules.parent,
                quota: rules.quota,
                borrow: rules.borrow,
                floor: rules.floor,
                weight: rules.weight,
                usage: usages.get(name).map_or(0.0, |used| used.0),
                max_per_user: rules.max_per_user,
            }
        };
        self.projects.iter().map(one).collect()
    }

    /// Live jobs that are neither held, nor ending for good, nor waiting after a failure.
    pub fn wants_gpus(&self, job: &Job) -> bool {
        let waits = job.not_before.is_some_and(|moment| moment > self.now);
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

    /// Reservations that are not over.
    fn plan_reservations(&self) -> Vec<headway_planner::Reservation> {
        let one = |one: &Arc<Reservation>| headway_planner::Reservation {
            name: one.name.clone(),
            nodes: one.nodes.clone(),
            from: one.from,
            until: one.until,
            projects: one.projects.clone(),
            users: one.users.clone(),
            jobs: one.jobs.clone(),
        };
        self.reservations.values().filter(|one| one.until > self.now).map(one).collect()
    }
}

impl Situation<'_> {
    fn plan_node(self, id: NodeId, node: &Node, jobs: &BTreeSet<JobId>, leaving: &BTreeMap<JobId, bool>) -> PlanNode {
        let held = self.held_on(id);
        let grantable = self.grantable(id);
        let usable = |gpu: &&Gpu| match held.get(&gpu.uuid) {
            None => grantable.contains(&gpu.uuid),
            Some((job, generation)) => {
                let state = self.facts.jobs.get(job).map(|job| &job.state);
                // A node that came back under another id offers GPUs that are still held under the old one.
                let here = self.facts.is_placed_on(*job, *generation, id);
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
        let inventory = &node.inventory;
        let mut gpus: Vec<&Gpu> = inventory.gpus.iter().filter(usable).collect();
        gpus.sort_by_key(|gpu| gpu.index);
        PlanNode {
            node: id,
            name: inventory.name.clone(),
            class: inventory.class(),
            gpus: gpus.into_iter().map(|gpu| gpu.uuid.clone()).collect(),
            draining: matches!(node.policy, NodePolicy::Draining { .. }),
            host: NodeResources {
                cpus: Some(inventory.cpus),
                memory: Some(inventory.memory),
                shm: inventory.shm,
                local_disk: inventory.local_disk,
            },
        }
    }

    fn plan_job(self, job: &Job, seen: &JobSeen, pinned: bool) -> PlanJob {
        let (current, freedom) = self.freedom(job, pinned);
        let target = job.spec.training().and_then(|training| training.target);
        let restart = job.downtime.unwrap_or(self.facts.config.restart_prior);
        PlanJob {
            job: job.id,
            name: job.spec.name.clone(),
            priority: job.spec.priority,
            submitted_at: job.submitted_at,
            range: job.spec.role().gpus.clone(),
            work: seen.model.clone().map_or(PlanWork::Opaque, PlanWork::Model),
            capabilities: job.able(),
            current,
            downtime: Downtime {
                batch: self.facts.config.batch_prior,
                micro_batch: self.facts.config.micro_batch_prior,
                layout: Some(job.layout_downtime.unwrap_or(Seconds(LAYOUT_SHARE * restart.0))),
                restart,
            },
            rework: self.facts.rework(job),
            remaining: target.map(|target| Tokens((target.0 - seen.live.progress.0).max(0.0))),
            freedom,
            claim: self.facts.claim(job),
            bounds: self.facts.bounds(job),
            needs: self.facts.needs(job),
        }
    }

    /// What a job holds, and whether this round may move it. A job that is stopping holds nothing worth keeping. One
    /// that must leave shows where it is, so that the round knows what a move costs it; it cannot stay, since its node
    /// drains, is reserved for others, or its GPUs are not offered.
    fn freedom(self, job: &Job, pinned: bool) -> (Option<Assignment>, Freedom) {
        let generation = match job.state {
            JobState::Starting { generation, .. } | JobState::Running { generation, .. } => generation,
            _ => return (None, Freedom::Free),
        };
        let Some(allocation) = self.facts.allocations.get(&(job.id, generation)) else { return (None, Freedom::Free) };
        let current = Some(self.facts.assignment_of(allocation));
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
        if pinned {
            return (current, fixed("moves of running jobs wait for approval".into()));
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
        (current, Freedom::Free)
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
    /// A script that speaks to the agent saves before it stops; any other loses what it did since its checkpoint.
    fn rework(&self, job: &Job) -> Seconds {
        match job.state {
            JobState::Running { since, .. } if job.capabilities.is_none() => {
                self.now.since(job.checkpoint_at.map_or(since, |at| at.max(since)))
            }
            _ => Seconds(0.0),
        }
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
        slices.any(|slice| self.nodes.get(&slice.node).is_some_and(|node| which(node)))
    }

    fn assignment_of(&self, allocation: &Allocation) -> Assignment {
        let planned = self
            .target
            .as_ref()
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
}
