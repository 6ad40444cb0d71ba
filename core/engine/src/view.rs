//! What readers see: a consistent snapshot of the live cluster, published by the shell after each commit. A batch
//! renews only the entries it touched; all others are shared with the snapshot before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_goodput::{JobModel, Lessons};
use headway_planner::Departure;
use headway_types::{
    ArrayId, Generation, Gpu, GpuCount, GpuHealth, GpuSeconds, GpuUuid, JobId, JobStateKind, NodeId, PlanId,
    ProjectRole, ReservationId, Seconds, Term, Timestamp,
};
use imbl::OrdMap;

use crate::account::Activity;
use crate::doubt::Doubt;
use crate::facts::usage::usages;
use crate::record::{
    Allocation, AllocationPhase, Array, Availability, Job, JobState, Node, Openness, PlanRecord, PolicySettings,
    Project, Reservation, UserLoad, line, lineage,
};
use crate::returning::Returning;
use crate::rounds::Trouble;
use crate::seen::LiveNumbers;
use crate::takeover::TookOver;
use crate::terms::Ahead;
use crate::verdicts::Verdicts;

/// Live jobs only; ended ones are read from the store.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    pub at: Timestamp,
    pub term: Term,
    pub jobs: OrdMap<JobId, Arc<JobView>>,
    pub nodes: OrdMap<NodeId, Arc<NodeView>>,
    /// The adopted plan.
    pub target: Option<Arc<PlanRecord>>,
    /// Plans that wait for approval.
    pub proposals: OrdMap<PlanId, Arc<PlanRecord>>,
    pub policy: PolicySettings,
    pub projects: OrdMap<String, Arc<Project>>,
    pub reservations: OrdMap<ReservationId, Arc<Reservation>>,
    /// Those of which a job is kept.
    pub arrays: OrdMap<ArrayId, Arc<ArrayView>>,
    /// What users' unfinished jobs come to; who has none is not in it.
    pub loads: OrdMap<String, UserLoad>,
    pub verdicts: Verdicts,
    /// What measured jobs have taught those alike.
    pub lessons: Arc<Lessons>,
    /// While rounds gave no plan of late.
    pub trouble: Option<Trouble>,
    /// While a round is under way: as of when.
    pub round_since: Option<Timestamp>,
    /// Nodes that follow a newer term, and so nobody.
    pub ahead: Arc<BTreeMap<NodeId, Ahead>>,
    /// While the machine's clock is not believed.
    pub doubt: Option<Doubt>,
    /// While nodes are waited for after a restore.
    pub returning: Option<Returning>,
    /// Who led before, where this server has taken over.
    pub took_over: Option<TookOver>,
}

impl View {
    /// The same of a cluster of which nothing is told but the term and the policy.
    #[must_use]
    pub fn without_rows(&self) -> Self {
        Self::empty(self.at, self.term, self.policy.clone())
    }

    pub(crate) fn empty(at: Timestamp, term: Term, policy: PolicySettings) -> Self {
        let (jobs, nodes, proposals) = (OrdMap::new(), OrdMap::new(), OrdMap::new());
        let (projects, reservations) = (OrdMap::new(), OrdMap::new());
        Self {
            at,
            term,
            jobs,
            nodes,
            target: None,
            proposals,
            policy,
            projects,
            reservations,
            arrays: OrdMap::new(),
            loads: OrdMap::new(),
            verdicts: Verdicts::default(),
            lessons: Arc::default(),
            trouble: None,
            round_since: None,
            ahead: Arc::default(),
            doubt: None,
            returning: None,
            took_over: None,
        }
    }

    /// What a user has of its quota.
    #[must_use]
    pub fn load_of(&self, user: &str) -> UserLoad {
        self.loads.get(user).copied().unwrap_or_default()
    }

    /// A project and all it is part of, itself first; nothing for one that is not known.
    #[must_use]
    pub fn project_line(&self, name: &str) -> Vec<&Project> {
        line(|name| self.projects.get(name).map(AsRef::as_ref), name)
    }

    /// How far a project is closed, by itself or by what it is part of.
    #[must_use]
    pub fn openness(&self, project: &str) -> Openness {
        Openness::of(self.project_line(project))
    }

    /// The highest role that a user has in a project or in what it is part of.
    #[must_use]
    pub fn role_in(&self, project: &str, user: &str) -> Option<ProjectRole> {
        self.project_line(project).into_iter().filter_map(|project| project.access.members.get(user).copied()).max()
    }

    /// What projects hold and have used as of the newest batch, sub-projects included.
    #[must_use]
    pub fn holdings(&self) -> BTreeMap<String, Holding> {
        let projects: BTreeMap<String, Arc<Project>> =
            self.projects.iter().map(|(name, project)| (name.clone(), project.clone())).collect();
        let held = || {
            let jobs = self.jobs.values();
            jobs.filter_map(|shown| Some((shown.job.spec.project.as_str(), &**shown.allocation.as_ref()?)))
        };
        let used = usages(&projects, held(), self.policy.usage_half_life, self.at);
        let mut holdings: BTreeMap<String, Holding> =
            used.into_iter().map(|(name, used)| (name, Holding { used, ..Holding::default() })).collect();
        for (project, allocation) in held() {
            for name in lineage(&projects, project) {
                holdings.entry(name.to_owned()).or_default().gpus += allocation.held_gpus();
            }
        }
        holdings
    }
}

/// What a project has and has had.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Holding {
    /// GPUs its jobs hold.
    pub gpus: GpuCount,
    /// GPU-time used, decayed.
    pub used: GpuSeconds,
}

/// An array with the numbers of its elements that are live.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayView {
    pub array: Arc<Array>,
    /// By the state they are in.
    pub live: BTreeMap<JobStateKind, u32>,
    /// With GPUs.
    pub running: u32,
    /// Those, and those in rounds.
    pub admitted: u32,
    /// Kept out of rounds by the array alone.
    pub waiting: u32,
}

/// A live job with its newest numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct JobView {
    pub job: Arc<Job>,
    /// Of the newest generation, while it holds GPUs.
    pub allocation: Option<Arc<Allocation>>,
    pub model: Option<Arc<JobModel>>,
    pub live: LiveNumbers,
    /// How it leaves its GPUs, by what it has shown.
    pub departure: Departure,
    /// Since when it makes no steps, once an event says so.
    pub silent_since: Option<Timestamp>,
}

impl JobView {
    /// Returns what is odd about the job's steps, as the event `job.progress_silent` found it.
    #[must_use]
    pub fn progress_silent(&self, now: Timestamp) -> Option<StepSilence> {
        let since = self.silent_since?;
        let held = self.allocation.as_ref()?;
        if held.training_at.is_none() {
            return self.job.spec.reads_steps_by().map(|field| StepSilence::NeverFound { field });
        }
        Some(StepSilence::Ceased { lasting: now.since(since), step: self.live.step })
    }
}

/// Why no steps of a running job are known of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StepSilence {
    /// The pattern in this field has found no step in the job's output.
    NeverFound { field: &'static str },
    /// The job has made no step for so long, since this one.
    Ceased { lasting: Seconds, step: u64 },
}

/// A node and who holds its GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeView {
    pub node: Arc<Node>,
    pub heard_at: Option<Timestamp>,
    /// Whether its newest session stands.
    pub connected: bool,
    pub held: BTreeMap<GpuUuid, (JobId, Generation)>,
}

impl NodeView {
    /// Out of contact.
    #[must_use]
    pub fn is_away(&self) -> bool {
        !self.connected || self.node.availability != Availability::Available
    }

    /// Whether anything new may start here.
    #[must_use]
    pub fn takes_work(&self) -> bool {
        !self.is_away() && self.node.takes_work()
    }
}

/// What decides why the free GPUs of a view are idle, gathered once for all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdleContext {
    jobs_wait: bool,
    reserved_nodes: BTreeSet<NodeId>,
}

/// Nodes of a job's placement that are out of contact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreachableNodes {
    /// Their names, in the order of the placement.
    pub names: Vec<String>,
    /// The scheduler has not heard of one of them since.
    pub since: Timestamp,
}

impl View {
    /// Returns the nodes of a job that holds GPUs which the scheduler cannot reach. A node that has yet to register with a new
    /// leader does not count.
    #[must_use]
    pub fn unreachable_nodes(&self, of: &JobView) -> Option<UnreachableNodes> {
        let held = of.allocation.as_ref().filter(|held| held.holds())?;
        let mut found: Option<UnreachableNodes> = None;
        for slice in held.placement.slices() {
            let Some(seen) = self.nodes.get(&slice.node) else { continue };
            let since = match seen.node.availability {
                Availability::Available if seen.connected => continue,
                Availability::Registering { .. } => continue,
                Availability::Available => seen.heard_at.unwrap_or(self.at),
                Availability::Unreachable { since } | Availability::Lost { since } => seen.heard_at.unwrap_or(since),
            };
            let nodes = found.get_or_insert_with(|| UnreachableNodes { names: Vec::new(), since });
            nodes.names.push(seen.node.inventory.name.clone());
            nodes.since = nodes.since.min(since);
        }
        found
    }

    /// All known GPUs by what they are doing, as far as the scheduler knows. They add up to all GPUs of all nodes.
    #[must_use]
    pub fn census(&self) -> BTreeMap<Activity, GpuCount> {
        let context = self.idle_context();
        let mut census: BTreeMap<Activity, GpuCount> = BTreeMap::new();
        for node in self.nodes.values() {
            for gpu in &node.node.inventory.gpus {
                *census.entry(self.activity(node, gpu, &context)).or_default() += GpuCount(1);
            }
        }
        census
    }

    /// Returns what decides why GPUs are idle, for all nodes at once.
    #[must_use]
    pub fn idle_context(&self) -> IdleContext {
        let active = self.reservations.values().filter(|one| one.is_active(self.at));
        let reserved_nodes = active.flat_map(|one| one.nodes.iter().copied()).collect();
        IdleContext { jobs_wait: self.somebody_waits(), reserved_nodes }
    }

    /// The reservation that closes a node now to jobs that are no members. A node has one at most at a time.
    #[must_use]
    pub fn active_reservation(&self, node: NodeId) -> Option<&Reservation> {
        let mut active = self.reservations.values().filter(|one| one.is_active(self.at));
        active.find(|one| one.nodes.contains(&node)).map(AsRef::as_ref)
    }

    /// Whether any job waits for GPUs.
    fn somebody_waits(&self) -> bool {
        let waits = |job: &Job| matches!(job.state, JobState::Queued { .. }) && !job.is_blocked();
        self.jobs.values().any(|shown| waits(&shown.job))
    }

    /// What a GPU of a node is doing; `context`: [that of this view](Self::idle_context).
    #[must_use]
    pub fn activity(&self, node: &NodeView, gpu: &Gpu, context: &IdleContext) -> Activity {
        match node.held.get(&gpu.uuid) {
            Some((job, generation)) => self.activity_of(*job, *generation),
            None if gpu.health != GpuHealth::Healthy => Activity::Broken,
            None if node.is_away() => Activity::Unreachable,
            None if !node.takes_work() => Activity::Withheld,
            None if context.reserved_nodes.contains(&node.node.inventory.node) => Activity::Reserved,
            None if context.jobs_wait => Activity::IdleWaiting,
            None => Activity::IdleNoDemand,
        }
    }

    fn activity_of(&self, job: JobId, generation: Generation) -> Activity {
        let allocation = self.jobs.get(&job).and_then(|shown| shown.allocation.as_ref());
        match allocation.filter(|one| one.generation == generation).map(|one| (one.phase(), one)) {
            Some((AllocationPhase::Preparing | AllocationPhase::Launching, _)) => Activity::Starting,
            // A job that is modelled tells of its first step; any other trains from its launch on.
            Some((AllocationPhase::Running, one)) if one.training_at.is_none() && one.configuration.is_some() => {
                Activity::Starting
            }
            Some((AllocationPhase::Running, _)) => Activity::Training,
            // A generation that is not the job's newest is on its way out.
            Some((AllocationPhase::Stopping | AllocationPhase::Ended, _)) | None => Activity::Stopping,
        }
    }
}
