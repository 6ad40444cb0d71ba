//! A cluster in virtual time: jobs keep coming, every arrival and every end is a round, and a job ends when it has run
//! for its length, which may be less than its time limit. Planner only: no engine, no start times, no failures.

use std::collections::BTreeMap;

use headway_types::{JobId, Objective, Plan, Seconds, Timestamp};

use crate::builder::{NOW, after};
use crate::curves::CurveCache;
use crate::input::{PlanInput, PlanJob};
use crate::plan;

/// A job that will be submitted, and the running time that it really needs.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub after: Seconds,
    pub job: PlanJob,
    pub length: Seconds,
}

/// What a stream came to for one of its jobs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    /// `None` if the job had not started when the stream ended.
    pub waited: Option<Seconds>,
    /// Share of the GPUs that were idle while the job waited.
    pub idle: f64,
}

/// The present of a stream.
pub(super) struct Stream {
    pub input: PlanInput,
    arrivals: Vec<Arrival>,
    lengths: BTreeMap<JobId, Seconds>,
    limits: BTreeMap<JobId, Option<Seconds>>,
    /// When a job's present wait or run began.
    since: BTreeMap<JobId, Timestamp>,
    curves: CurveCache,
}

impl Stream {
    /// `input` holds the nodes and the policy; `arrivals` are in order.
    pub fn new(input: PlanInput, mut arrivals: Vec<Arrival>) -> Self {
        arrivals.reverse();
        let (lengths, limits, since) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut stream = Self { input, arrivals, lengths, limits, since, curves: CurveCache::new() };
        stream.admit();
        stream
    }

    /// Plans the present round.
    pub fn plan(&mut self) -> Plan {
        plan(&self.input, &mut self.curves).unwrap()
    }

    /// Carries a plan out and goes to the next arrival or end; `false` if there is neither.
    pub fn advance(&mut self, plan: &Plan) -> bool {
        let now = self.input.now;
        let held: Vec<JobId> = self.running().map(|job| job.job).collect();
        self.input = after(&self.input, plan);
        for job in &self.input.jobs {
            if job.current.is_some() != held.contains(&job.job) {
                self.since.insert(job.job, now);
            }
        }
        let ends = self.running().map(|job| self.since[&job.job] + self.lengths[&job.job]);
        let arrives = self.arrivals.last().map(|next| NOW + next.after);
        let Some(next) = ends.chain(arrives).min() else { return false };
        self.input.now = next;
        let is_over = |job: &PlanJob| job.current.is_some() && self.since[&job.job] + self.lengths[&job.job] <= next;
        self.input.jobs.retain(|job| !is_over(job));
        self.admit();
        true
    }

    /// Jobs that hold GPUs.
    pub fn running(&self) -> impl Iterator<Item = &PlanJob> {
        self.input.jobs.iter().filter(|job| job.current.is_some())
    }

    fn admit(&mut self) {
        let now = self.input.now;
        while let Some(next) = self.arrivals.pop_if(|next| NOW + next.after <= now) {
            let Arrival { mut job, length, .. } = next;
            job.submitted_at = now;
            self.lengths.insert(job.job, length);
            self.limits.insert(job.job, job.bounds.time_left);
            self.since.insert(job.job, now);
            self.input.jobs.push(job);
        }
        self.input.jobs.sort_by_key(|job| job.job);
        for job in &mut self.input.jobs {
            let passed = now.since(self.since[&job.job]);
            match job.current {
                None => (job.claim.waited, job.claim.ran) = (passed, Seconds(0.0)),
                Some(_) => job.claim.ran = passed,
            }
            let limit = self.limits[&job.job];
            job.bounds.time_left = limit.map(|limit| Seconds((limit.0 - job.claim.ran.0).max(0.0)));
        }
    }
}

/// Follows one job until it starts, under a policy that pursues this objective.
pub(super) fn wait_of(job: JobId, objective: Objective, input: PlanInput, arrivals: Vec<Arrival>) -> Wait {
    let mut stream = Stream::new(input, arrivals);
    stream.input.policy.objective = objective;
    let gpus: usize = stream.input.nodes.iter().map(|node| node.gpus.len()).sum();
    let (mut came, mut idle) = (None, 0.0);
    loop {
        let plan = stream.plan();
        let now = stream.input.now;
        let waits = stream.input.jobs.iter().any(|one| one.job == job);
        if waits {
            came.get_or_insert(now);
        }
        let waited = came.map(|came| now.since(came));
        let share = |waited: Option<Seconds>| idle / (waited.map_or(1.0, |waited| waited.0.max(1.0)) * gpus as f64);
        if plan.assignments.contains_key(&job) {
            return Wait { waited, idle: share(waited) };
        }
        let busy: usize = plan.assignments.values().map(|one| one.placement.gpus().0 as usize).sum();
        if !stream.advance(&plan) {
            return Wait { waited: None, idle: share(waited) };
        }
        if waits {
            idle += (gpus - busy) as f64 * stream.input.now.since(now).0;
        }
    }
}
