//! What readers see: a consistent snapshot of the live cluster, published by the shell after each commit. A batch
//! renews only the entries it touched; all others are shared with the snapshot before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_goodput::JobModel;
use headway_types::{
    Generation, GpuCount, GpuSeconds, GpuUuid, JobId, JobVerdict, NodeId, PlanId, Reason, ReasonCode, ReservationId,
    Seconds, Sequences, Term, Timestamp, Tokens, TokensPerSecond,
};
use imbl::OrdMap;

use crate::draft::Draft;
use crate::entry::JobEntry;
use crate::record::{
    Allocation, Availability, Job, JobState, Node, PlanRecord, PolicySettings, Project, Reservation, lineage,
};
use crate::state::Engine;

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
}

impl View {
    pub(crate) fn empty(at: Timestamp, term: Term, policy: PolicySettings) -> Self {
        let (jobs, nodes, proposals) = (OrdMap::new(), OrdMap::new(), OrdMap::new());
        let (projects, reservations) = (OrdMap::new(), OrdMap::new());
        Self { at, term, jobs, nodes, target: None, proposals, policy, projects, reservations }
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
        let used = crate::usage::usages(&projects, held(), self.policy.usage_half_life, self.at);
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

/// A live job with its newest numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct JobView {
    pub job: Arc<Job>,
    /// Of the newest generation, while it holds GPUs.
    pub allocation: Option<Arc<Allocation>>,
    /// From the newest plan made, adopted or not.
    pub verdict: Option<Arc<JobVerdict>>,
    pub model: Option<Arc<JobModel>>,
    pub live: LiveNumbers,
}

/// Newest measurements; `None` where nothing has been measured yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveNumbers {
    pub reported_at: Option<Timestamp>,
    pub step: u64,
    pub samples_seen: Sequences,
    pub loss: Option<f64>,
    /// Raw tokens per second, smoothed.
    pub throughput: Option<TokensPerSecond>,
    pub efficiency: Option<f64>,
    pub goodput: Option<TokensPerSecond>,
    /// GNS φ in tokens.
    pub noise_scale: Option<f64>,
    /// Relative standard error of φ.
    pub noise_error: Option<f64>,
    /// Reference tokens, including those since the last checkpoint.
    pub progress: Tokens,
    /// Until the target at the present goodput.
    pub remaining: Option<Seconds>,
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

impl Engine {
    /// The snapshot as of the newest batch. Cheap: entries are shared, not copied.
    #[must_use]
    pub fn view(&self) -> View {
        self.view.clone()
    }

    pub(crate) fn show_everything(&mut self) {
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        jobs.into_iter().for_each(|id| self.show_job(id));
        nodes.into_iter().for_each(|id| self.show_node(id));
        self.show_plans();
        self.show_rules();
    }

    /// Renews what a batch touched.
    pub(crate) fn show(&mut self, draft: &Draft) {
        let touched = draft.allocations.iter().map(|(job, _)| *job);
        let jobs: BTreeSet<JobId> = draft.jobs.union(&draft.shown_jobs).copied().chain(touched).collect();
        let nodes: BTreeSet<NodeId> = draft.nodes.union(&draft.shown_nodes).copied().collect();
        jobs.into_iter().for_each(|id| self.show_job(id));
        nodes.into_iter().for_each(|id| self.show_node(id));
        if !draft.plans.is_empty() || draft.policy {
            self.show_plans();
        }
        if !draft.projects.is_empty() || !draft.reservations.is_empty() {
            self.show_rules();
        }
        self.view.at = self.now;
    }

    fn show_job(&mut self, id: JobId) {
        let Some(entry) = self.jobs.get(&id).filter(|entry| !entry.job.state.is_final()) else {
            self.view.jobs.remove(&id);
            return;
        };
        let allocation = self.allocations.get(&(id, entry.job.generation)).filter(|one| one.holds()).cloned();
        let shown = JobView {
            job: entry.job.clone(),
            allocation,
            verdict: self.verdict_of(entry),
            model: entry.model.clone(),
            live: entry.live.clone(),
        };
        self.view.jobs.insert(id, Arc::new(shown));
    }

    fn show_node(&mut self, id: NodeId) {
        let Some(entry) = self.nodes.get(&id) else { return };
        let held = self.held_on(id);
        let shown = NodeView { node: entry.node.clone(), heard_at: entry.heard_at, connected: entry.connected(), held };
        self.view.nodes.insert(id, Arc::new(shown));
    }

    fn show_plans(&mut self) {
        self.view.target = self.target.clone();
        self.view.proposals = self.proposals.iter().map(|(id, record)| (*id, record.clone())).collect();
        self.view.policy = self.policy.clone();
    }

    fn show_rules(&mut self) {
        self.view.projects = self.projects.iter().map(|(name, row)| (name.clone(), row.clone())).collect();
        self.view.reservations = self.reservations.iter().map(|(id, row)| (*id, row.clone())).collect();
    }

    /// The planner's verdict, or the engine's own where the planner was not asked.
    fn verdict_of(&self, entry: &JobEntry) -> Option<Arc<JobVerdict>> {
        let job = &entry.job;
        let own = |code, headline: String| {
            Arc::new(JobVerdict {
                headline: headline.clone(),
                reasons: vec![Reason { code, binding: true, detail: headline }],
                ..JobVerdict::default()
            })
        };
        match (&job.state, job.not_before) {
            (JobState::Held { reason, .. }, _) => {
                let why = reason.as_deref().map_or(String::new(), |reason| format!(": {reason}"));
                Some(own(ReasonCode::Held, format!("on hold until it is released{why}")))
            }
            (JobState::Queued { .. }, Some(_)) if !self.may_start(job.id) => {
                let setbacks = job.failures + job.setbacks;
                Some(own(ReasonCode::BackOff, format!("waits a while after {setbacks} failed attempts in a row")))
            }
            _ => self.verdicts.get(&job.id).cloned(),
        }
    }
}
