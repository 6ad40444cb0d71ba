//! One future as the planner would make it: what runs ends when its work is done, others come, and after every end and
//! arrival, and whenever a job's patience is over, the round is planned again.

use std::collections::BTreeMap;

use headway_planner::{CurveCache, Freedom, PlanInput, PlanJob, next_departure, plan};
use headway_types::{GpuSeconds, JobId, Plan, Seconds, Solver, Timestamp};

use crate::chance::Ending;
use crate::future::Prospect;
use crate::start::Effort;

/// Ends and arrivals this close together make one round: nobody is told seconds, and a dozen jobs that come at once need not be a dozen rounds.
const TOGETHER: f64 = 30.0;

/// The first start of each job asked about, in one sample, and how many rounds that took.
pub(crate) fn future(
    input: &PlanInput,
    made: &Plan,
    curves: &mut CurveCache,
    effort: &Effort,
    prospect: &Prospect<'_>,
    sample: u32,
    asked: &[JobId],
) -> (BTreeMap<JobId, Timestamp>, u32) {
    let end = input.now + effort.horizon;
    let newcomers: Vec<PlanJob> = prospect
        .newcomers(sample, end)
        .into_iter()
        .map(|one| PlanJob { job: one.job, submitted_at: one.at, ..prospect.like()[one.like].clone() })
        .collect();
    let all = input.jobs.iter().chain(&newcomers);
    let endings = all.map(|job| (job.job, prospect.ending(job, job.job, sample))).collect();
    // The next one last.
    let to_come = newcomers.into_iter().rev().collect();
    let mut input = input.clone();
    // A future is hundreds of rounds: an exact backend would take hours over it.
    input.policy.solver = Solver::Headway;
    let mut world = World { input, endings, standstill: BTreeMap::new(), to_come };
    world.adopt(made);
    let (mut starts, mut rounds) = (BTreeMap::new(), 0);
    while rounds < effort.rounds {
        let Some(pause) = world.until_something().filter(|pause| world.input.now + *pause <= end) else { break };
        world.advance(pause);
        rounds += 1;
        // A round that contradicts itself has no future.
        let Ok(next) = plan(&world.input, curves) else { break };
        world.adopt(&next);
        for job in asked.iter().filter(|job| next.assignments.contains_key(job)) {
            starts.entry(*job).or_insert(world.input.now);
        }
        if starts.len() == asked.len() {
            break;
        }
    }
    (starts, rounds)
}

struct World {
    input: PlanInput,
    endings: BTreeMap<JobId, Ending>,
    /// Seconds until a job that was started or moved trains.
    standstill: BTreeMap<JobId, Seconds>,
    /// Who has yet to come, the next one last.
    to_come: Vec<PlanJob>,
}

impl World {
    /// The plan is carried out at once; what it moves stands still first.
    fn adopt(&mut self, plan: &Plan) {
        for job in &mut self.input.jobs {
            let next = plan.assignments.get(&job.job).cloned();
            let placement = |at: &Option<headway_types::Assignment>| at.as_ref().map(|at| at.placement.clone());
            if next.is_some() && placement(&job.current) != placement(&next) {
                self.standstill.insert(job.job, job.downtime.restart);
                job.claim.since_move = job.current.is_some().then_some(Seconds(0.0));
                // How long it had waited stays with it, for the right that gives.
                job.claim.ran = if job.current.is_some() { job.claim.ran } else { Seconds(0.0) };
            }
            if next.is_none() && job.current.is_some() {
                (job.claim.waited, job.claim.ran) = (Seconds(0.0), Seconds(0.0));
            }
            job.current = next;
            job.freedom = match (&job.freedom, &job.current) {
                // Where it has started it stays until it ends.
                (_, Some(_)) if job.departure.never => Freedom::Fixed { reason: "it must not run twice".into() },
                (Freedom::Settled { .. }, _) => continue,
                _ => Freedom::Free,
            };
        }
    }

    /// Time until the next end or newcomer, until a waiting job's patience is over, or until a reservation begins, ends,
    /// or asks a job to leave before it begins.
    fn until_something(&self) -> Option<Seconds> {
        let patience = self.input.policy.patience;
        let next = self.input.jobs.iter().filter_map(|job| match &job.current {
            Some(_) => self.until_end(job),
            None => patience.map(|patience| patience.0 - job.claim.waited.0).filter(|left| *left > 0.0),
        });
        let comes = self.to_come.last().map(|job| job.submitted_at.since(self.input.now).0);
        let reserved = self.until_reservations().into_iter();
        let next = next.chain(comes).chain(reserved).fold(f64::INFINITY, f64::min);
        next.is_finite().then_some(Seconds(next.max(0.0)))
    }

    fn until_reservations(&self) -> Option<f64> {
        let now = self.input.now;
        let bounds = self.input.reservations.iter().flat_map(|one| [one.from, one.until]);
        let moments = bounds.filter(|at| *at > now).chain(next_departure(&self.input));
        moments.min().map(|at| at.since(now).0)
    }

    fn until_end(&self, job: &PlanJob) -> Option<f64> {
        let standstill = self.standstill.get(&job.job).map_or(0.0, |left| left.0);
        match self.endings.get(&job.job)? {
            // Work is longer or shorter than it seems, and the planner does not know.
            Ending::Work { factor } => {
                let goodput = job.current.as_ref()?.predicted.goodput.0;
                let left = job.remaining?.0 * factor / goodput;
                let limit = job.bounds.time_left.map_or(f64::INFINITY, |left| left.0);
                (goodput > 0.0).then(|| (standstill + left).min(limit))
            }
            Ending::Time { left } => Some(left.0),
        }
    }

    fn advance(&mut self, pause: Seconds) {
        let ended: Vec<JobId> = self
            .input
            .jobs
            .iter()
            .filter(|job| job.current.is_some())
            .filter(|job| self.until_end(job).is_some_and(|left| left <= pause.0 + TOGETHER))
            .map(|job| job.job)
            .collect();
        self.input.now = self.input.now + pause;
        self.input.jobs.retain(|job| !ended.contains(&job.job));
        for job in &mut self.input.jobs {
            let Some(current) = &job.current else {
                job.claim.waited.0 += pause.0;
                continue;
            };
            let standstill = self.standstill.get(&job.job).map_or(0.0, |left| left.0);
            let trained = (pause.0 - standstill).max(0.0);
            self.standstill.insert(job.job, Seconds((standstill - pause.0).max(0.0)));
            if let (Some(remaining), Some(Ending::Work { factor })) = (&mut job.remaining, self.endings.get(&job.job)) {
                remaining.0 = (remaining.0 - trained * current.predicted.goodput.0 / factor).max(0.0);
            }
            job.claim.ran.0 += pause.0;
            let service: GpuSeconds = current.placement.gpus() * pause;
            job.claim.attained.0 += service.0;
            if let Some(since) = &mut job.claim.since_move {
                since.0 += pause.0;
            }
            if let Some(left) = &mut job.bounds.time_left {
                left.0 = (left.0 - pause.0).max(0.0);
            }
            if let Some(Ending::Time { left }) = self.endings.get_mut(&job.job) {
                left.0 = (left.0 - pause.0).max(0.0);
            }
        }
        while let Some(job) = self.to_come.pop_if(|job| job.submitted_at <= self.input.now + Seconds(TOGETHER)) {
            if let Err(at) = self.input.jobs.binary_search_by_key(&job.job, |one| one.job) {
                self.input.jobs.insert(at, job);
            }
        }
    }
}
