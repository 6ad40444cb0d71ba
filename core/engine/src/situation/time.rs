//! What time alone will change: leases, standings, limits, budgets, patience.

use headway_types::placement::NodeSlice;
use headway_types::spec::PrintingRank;
use headway_types::{Generation, NodeId, Seconds, Timestamp};

use super::Situation;
use crate::record::{Allocation, Availability, Job, JobState};
use crate::seen::JobSeen;

/// After so long without a step an event says so: its script hangs, saves for long, or the pattern is wrong by which its
/// output is read.
const SILENT: Seconds = Seconds(600.0);
/// A job is not taken for silent before it has been quiet for so many times what its newest report of steps covers: a
/// script may print one line an epoch.
const REPORTS_MISSED: f64 = 3.0;

impl Situation<'_> {
    /// When a node's lease runs out, while it has one.
    pub fn lease_end(self, id: NodeId) -> Option<Timestamp> {
        let (node, listening) = (self.facts.nodes.get(&id)?, self.seen.listening_since);
        let heard_at = self.seen.nodes.get(&id)?.heard_at;
        match node.availability {
            Availability::Available => Some(heard_at.map_or(listening, |at| at.max(listening))),
            Availability::Registering { since } => Some(since.max(listening)),
            Availability::Unreachable { .. } | Availability::Lost { .. } => None,
        }
        .map(|from| from + self.facts.config.lease)
    }

    /// Until when a gang must have prepared or, once it has, launched. A new term gives it the full time again, since
    /// nobody drove it meanwhile.
    pub fn start_deadline(self, job: &Job, since: Timestamp, prepared_at: Option<Timestamp>) -> Timestamp {
        let (listening, config) = (self.seen.listening_since, &self.facts.config);
        match prepared_at {
            Some(at) => at.max(listening) + config.launch_deadline,
            None => since.max(listening) + config.prepare_deadline + job.spec.role().run.hooks.before(),
        }
    }

    /// When a running job will have used up its time; queueing does not count.
    pub fn time_limit_at(self, job: &Job) -> Option<Timestamp> {
        let JobState::Running { since, .. } = job.state else { return None };
        let left = job.spec.limits.time?.0 - job.ran.0;
        Some(since + Seconds(left.max(0.0)))
    }

    /// When a running job is to hear that its time limit is near; `None`: it has, or never is.
    pub fn notice_at(self, job: &Job) -> Option<Timestamp> {
        let (limit, end) = (job.spec.limits.time?, self.time_limit_at(job)?);
        let told = self.facts.live_allocation(job)?.notice.is_some_and(|notice| notice.limit == limit);
        (!told).then_some(end - job.spec.limits.signal?.before)
    }

    /// When a running job's budget will be spent, if it goes on as it is.
    pub fn budget_spent_at(self, job: &Job) -> Option<Timestamp> {
        let JobState::Running { generation, .. } = job.state else { return None };
        let left = job.spec.limits.budget?.0 - self.facts.attained(job).0;
        let gpus = self.facts.allocations.get(&(job.id, generation))?.placement.gpus();
        Some(self.facts.now + Seconds(left.max(0.0) / f64::from(gpus.0.max(1))))
    }

    /// The moment at which a live job's state changes by time alone. Hangs, and who is late in coming down, are found by the periodic reconcile.
    pub fn job_deadline(self, job: &Job) -> Option<Timestamp> {
        match &job.state {
            JobState::Starting { since, generation } => {
                let deadline = self.start_deadline(job, *since, self.prepared_at(job, *generation));
                Some(deadline).filter(|at| *at > self.facts.now)
            }
            JobState::Running { .. } => {
                let ends = self.time_limit_at(job).into_iter().chain(self.budget_spent_at(job));
                ends.chain(self.notice_at(job)).min()
            }
            _ => None,
        }
    }

    fn prepared_at(self, job: &Job, generation: Generation) -> Option<Timestamp> {
        self.facts.allocations.get(&(job.id, generation))?.prepared_at
    }

    /// When an event is due that says that a job makes no steps: one whose output was never found to have any, or one that
    /// has made some. `None` once it was told, and while a node that may hear of a step is out of reach.
    pub fn progress_silent_at(self, job: &Job, seen: &JobSeen, allocation: &Allocation) -> Option<Timestamp> {
        let JobState::Running { since, generation } = job.state else { return None };
        let has_stepped = allocation.training_at.is_some();
        let is_watched = job.spec.reads_steps_by().is_some() || (has_stepped && job.tells_steps(allocation));
        let is_told = seen.silence_told.is_some_and(|silence| silence.generation == generation);
        let near = |slice: &NodeSlice| self.seen.connected(slice.node);
        if !is_watched || is_told || !allocation.placement.slices().iter().all(near) {
            return None;
        }
        let steps = seen.step_time.map_or(0.0, |step| self.facts.config.hang_steps * step.0);
        let between_reports = seen.report_time.map_or(0.0, |time| REPORTS_MISSED * time.0);
        let patience = if has_stepped { SILENT.0.max(steps).max(between_reports) } else { SILENT.0 };
        Some(self.silent_since(since, seen) + Seconds(patience))
    }

    /// Returns the moment since which a job that has run since `running_since` has made no step, as far as this leader knows.
    pub fn silent_since(self, running_since: Timestamp, seen: &JobSeen) -> Timestamp {
        let begin = running_since.max(self.seen.listening_since);
        seen.live.reported_at.map_or(begin, |at| at.max(begin))
    }

    /// The node that reports the job's steps.
    pub fn step_reporter(self, job: &Job, allocation: &Allocation) -> NodeId {
        let printing = job.spec.role().run.progress.as_ref().map(|progress| progress.rank);
        match (printing, allocation.placement.slices().last()) {
            (Some(PrintingRank::Last), Some(last)) => last.node,
            _ => allocation.placement.first_node(),
        }
    }

    /// When a running job will count as hung; `None` for jobs that do not tell of their steps or have no `training` section,
    /// and while the node that tells is out of reach. Without the section nothing says how often a script prints a step: it
    /// may be once in hours, so only `limits.stall_after` judges it.
    pub fn hung_at(self, job: &Job, seen: &JobSeen, allocation: &Allocation) -> Option<Timestamp> {
        let JobState::Running { since, .. } = job.state else { return None };
        if job.spec.training().is_none() || !job.tells_steps(allocation) {
            return None;
        }
        let reporter = self.step_reporter(job, allocation);
        let teller = self.facts.nodes.get(&reporter).filter(|_| self.seen.connected(reporter))?;
        if teller.availability != Availability::Available {
            return None;
        }
        let config = &self.facts.config;
        let quiet_from = since.max(self.seen.listening_since).max(teller.registered_at);
        let last = seen.live.reported_at.map_or(quiet_from, |at| at.max(quiet_from));
        let step = seen.step_time.filter(|_| allocation.training_at.is_some());
        let steps = step.map_or(0.0, |step| config.hang_steps * step.0);
        let patience = match seen.save_time.filter(|_| step.is_some()) {
            Some(save) => config.hang_floor.0.max(steps) + 2.0 * save.0,
            // How long a first step or a first save takes is not known yet.
            None => {
                let report_time = match seen.report_time {
                    Some(time) => time,
                    None if job.spec.reads_steps_by().is_none() => Seconds(0.0),
                    // Its lines were read before this leader led: how far apart they are nobody knows any more.
                    None if allocation.training_at? < self.seen.listening_since => config.first_step_deadline,
                    // How far apart lines are is known with the second.
                    None => return None,
                };
                config.first_step_deadline.0.max(steps).max(REPORTS_MISSED * report_time.0)
            }
        };
        Some(last + Seconds(patience))
    }
}
