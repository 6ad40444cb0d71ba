//! What a round asks. The loop takes it down as of one moment and goes on; whoever plans makes the planner's input of it on a thread of his own.
//! Taking it costs what runs and what the nodes are: the queue is shared with the engine, never copied.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_planner::{Bounds, Downtime, Freedom, Needs, PlanInput, PlanJob, PlanWork, Premises};
use headway_types::spec::GpuRange;
use headway_types::{Assignment, Generation, GpuCount, GpuSeconds, JobId, NodeId, PlanId, Seconds, Timestamp};
use imbl::OrdMap;

use crate::facts::attained;
use crate::record::{Allocation, Job, JobState, Node};
use crate::seen::JobSeen;

/// A round that is wanted: everything that its input is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundRequest {
    /// The input without its jobs.
    pub(super) frame: PlanInput,
    /// Every row, and what was seen of it. Both have the same keys.
    pub(super) jobs: OrdMap<JobId, Arc<Job>>,
    pub(super) seen: OrdMap<JobId, Arc<JobSeen>>,
    /// Of jobs that hold something, or are on their way to it.
    pub(super) lots: BTreeMap<JobId, Lot>,
    /// Jobs that it does not name, on purpose.
    pub(super) left: Arc<BTreeSet<JobId>>,
    /// Jobs that keep what they have; nothing is computed with them.
    pub(super) stay: Arc<BTreeSet<JobId>>,
    /// How many it names.
    pub(super) count: usize,
    pub(super) rows: BTreeMap<NodeId, Arc<Node>>,
    pub(super) accused: Option<Accused>,
    pub(super) allocations: BTreeMap<(JobId, Generation), Arc<Allocation>>,
    pub(super) restart_prior: Seconds,
}

/// Nodes that jobs speak against, if any.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Accused {
    pub nodes: Vec<NodeId>,
    /// How many GPUs nobody holds on each of the others.
    pub free: BTreeMap<NodeId, GpuCount>,
}

/// What a job has, and whether the round may move it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lot {
    pub current: Option<Assignment>,
    pub freedom: Freedom,
    pub batch_bound: Option<String>,
}

impl RoundRequest {
    /// The plan to be made.
    #[must_use]
    pub fn plan(&self) -> PlanId {
        self.frame.plan
    }

    /// The moment it is as of.
    pub(super) fn asked_at(&self) -> Timestamp {
        self.frame.now
    }

    /// Why the round runs, in words.
    #[must_use]
    pub fn trigger(&self) -> &str {
        &self.frame.trigger
    }

    /// What the planner is told. Looks at every job: not for the loop.
    #[must_use]
    pub fn input(&self) -> PlanInput {
        let input = self.input_of(self.jobs.iter().zip(self.seen.values()).map(|((id, job), seen)| (*id, job, seen)));
        debug_assert_eq!(input.jobs.len(), self.count, "the roll counts whom the rows name");
        input
    }

    /// The part of it that is about these jobs, in the order of their ids.
    pub(super) fn part(&self, jobs: &BTreeSet<JobId>) -> PlanInput {
        self.input_of(jobs.iter().filter_map(|id| Some((*id, self.jobs.get(id)?, self.seen.get(id)?))))
    }

    fn input_of<'a>(&'a self, rows: impl Iterator<Item = (JobId, &'a Arc<Job>, &'a Arc<JobSeen>)>) -> PlanInput {
        let premises = Premises::new(&self.frame.nodes, self.count);
        let named = rows.filter(|(id, job, _)| self.wants(*id, job));
        let jobs = named.map(|(_, job, seen)| self.plan_job(job, seen, premises)).collect();
        let mut input = PlanInput { jobs, forced: Vec::new(), ..self.frame.clone() };
        for force in &self.frame.forced {
            // A job that is over meanwhile gets nothing.
            let _known = input.force(force.clone());
        }
        input
    }

    /// Whether the job is in the input.
    pub(super) fn names(&self, id: JobId) -> bool {
        self.jobs.get(&id).is_some_and(|job| self.wants(id, job))
    }

    /// Whether the job is in the input, or was left out of it on purpose.
    pub(super) fn knows(&self, id: JobId) -> bool {
        self.jobs.get(&id).is_some_and(|job| job.wants_gpus(self.frame.now))
    }

    fn wants(&self, id: JobId, job: &Job) -> bool {
        job.wants_gpus(self.frame.now) && !self.left.contains(&id)
    }

    /// Jobs that this round is free to move, whatever their cooldown, since their owners asked for it.
    pub(super) fn resized(&self) -> impl Iterator<Item = JobId> {
        let asked = |job: &JobId| self.jobs.get(job).is_some_and(|job| job.resize.is_some());
        let free = |lot: &Lot| lot.current.is_some() && lot.freedom == Freedom::Free;
        self.lots.iter().filter(move |(job, lot)| free(lot) && asked(job)).map(|(job, _)| *job)
    }

    /// Noise scale that the round takes a job for, once known.
    pub(super) fn noise_scale(&self, id: JobId) -> Option<f64> {
        self.seen.get(&id)?.noise_scale()
    }

    /// What its specification says, and over it what has been seen of the job.
    fn plan_job(&self, job: &Job, seen: &JobSeen, premises: Premises<'_>) -> PlanJob {
        let work = seen.model.clone().map_or(PlanWork::Opaque, PlanWork::Model);
        let told = premises.job(job.id, &job.spec, &job.owner, job.submitted_at, work);
        let (current, freedom, batch_bound) = match self.lots.get(&job.id) {
            Some(lot) => (lot.current.clone(), lot.freedom.clone(), lot.batch_bound.clone()),
            None => (None, Freedom::Free, None),
        };
        let prior = Downtime::of_restart(job.downtime.unwrap_or(self.restart_prior));
        let planned = PlanJob {
            capabilities: job.capabilities.unwrap_or(told.capabilities),
            current,
            downtime: Downtime { layout: job.layout_downtime.or(prior.layout), ..prior },
            rework: self.rework(job),
            remaining: seen.live.left(job),
            freedom,
            batch_bound,
            claim: self.claim(job, told.claim),
            bounds: self.bounds(job, told.bounds),
            needs: self.needs(job, told.needs),
            departure: job.departure(Some(seen)),
            ..told
        };
        if self.stay.contains(&job.id) { as_it_is(planned) } else { planned }
    }

    /// A script that speaks to the agent saves before it stops; any other loses what it did since its checkpoint.
    fn rework(&self, job: &Job) -> Seconds {
        match job.state {
            JobState::Running { since, .. } if !job.speaks() => {
                self.frame.now.since(job.checkpoint_at.map_or(since, |at| at.max(since)))
            }
            _ => Seconds(0.0),
        }
    }

    /// GPU-time in the job's life.
    pub(super) fn attained(&self, job: &Job) -> GpuSeconds {
        attained(job, &self.allocations, self.frame.now)
    }
}

/// Nothing is said of a job that stays but who it is and what it keeps. One that has been freed meanwhile is as any other.
fn as_it_is(job: PlanJob) -> PlanJob {
    let Some(gpus) = job.current.as_ref().map(|current| current.placement.gpus()) else { return job };
    if job.freedom == Freedom::Free {
        return job;
    }
    PlanJob {
        range: GpuRange { min: gpus, max: gpus, sizes: Vec::new(), types: Vec::new(), mixed: false },
        work: PlanWork::Opaque,
        rework: Seconds(0.0),
        remaining: None,
        claim: job.claim.identity(),
        bounds: Bounds::default(),
        needs: Needs { per_node: job.needs.per_node, ..Needs::default() },
        ..job
    }
}
