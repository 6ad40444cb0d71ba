//! What the past teaches about the future: who came and how often, how long jobs without a target ran, how far off
//! predicted progress was, and how far off predicted starts were. It is fed with every round and its plan, kept by
//! whoever asks for forecasts, and decides nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headway_planner::{Bounds, Freedom, Needs, PlanInput, PlanJob};
use headway_types::{JobId, Plan, Seconds, Timestamp};
use serde::{Deserialize, Serialize};

use crate::calibration::Calibration;
use crate::start::{Forecast, Method, Start};

/// Of each kind of lesson the newest are kept.
const KEPT: usize = 256;
/// Fewer lessons than this teach nothing.
const LEAST: usize = 8;
/// Who came longer ago counts less for how many will come: by a factor of e in so many seconds.
const MEMORY: f64 = 3_600.0;
/// Jobs that come within so many seconds come together.
const TOGETHER: f64 = 60.0;
/// Newcomers are like one of so many bursts that came last.
const LIKE: usize = 32;
/// For so long nothing is known to have come before the first round: a burst at the start is no rate.
const UNSEEN: f64 = 1_800.0;
/// Progress over less time says more of reporting than of speed.
const LEAST_RUN: f64 = 120.0;
/// A first round's jobs have just come if they were submitted within this time.
const JUST_NOW: f64 = 60.0;

/// How much longer the work of running jobs takes than their models say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pace {
    /// Median factor on the time.
    pub factor: f64,
    /// Spread (σ of the logarithm), where the past tells it.
    pub spread: Option<f64>,
}

/// Who came, as far as it tells who will come. Jobs come in bursts: somebody submits a dozen at once, then nobody for an hour, and a dozen at once
/// are no rate of a dozen an hour.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Arrivals<'a> {
    /// Bursts that came, those long ago counted less.
    pub count: f64,
    /// For how long they were watched, likewise.
    pub watched: Seconds,
    /// The newest of them: how long after its first each job came.
    pub bursts: Vec<Vec<(Seconds, &'a PlanJob)>>,
}

/// Lessons of the rounds so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Experience {
    began: Option<Timestamp>,
    latest: Option<Timestamp>,
    seen: BTreeMap<JobId, Seen>,
    /// When jobs came, and what they were like.
    arrivals: VecDeque<(Timestamp, PlanJob)>,
    /// Running time of jobs without a target, at their end.
    lives: VecDeque<f64>,
    /// Logarithms of predicted over real progress, one per job.
    paces: VecDeque<f64>,
    /// First predictions of jobs that have yet to start, as rolled out.
    open: BTreeMap<JobId, (Timestamp, Method, Start)>,
    calibrations: BTreeMap<Method, Calibration>,
}

/// A job of the latest round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Seen {
    ran: Seconds,
    runs: bool,
    has_target: bool,
    remaining: Option<f64>,
    /// Tokens per second that the latest plan predicts, and on which placement; nothing where it has none.
    goodput: f64,
    moved: bool,
    /// Running time, predicted progress over it and real progress, since it was first seen to run.
    observed: (f64, f64, f64),
}

impl Experience {
    /// Learns from a round and its plan. Rounds may be left out; they must not go back in time.
    pub fn observe(&mut self, input: &PlanInput, plan: &Plan) {
        let first = self.began.is_none();
        let since = *self.began.get_or_insert(input.now);
        let passed = self.latest.map_or(0.0, |latest| input.now.since(latest).0);
        self.latest = Some(input.now);
        let present: BTreeSet<JobId> = input.jobs.iter().map(|job| job.job).collect();
        let gone: Vec<JobId> = self.seen.keys().copied().filter(|job| !present.contains(job)).collect();
        for job in gone {
            self.ended(job, passed);
        }
        for job in &input.jobs {
            // Who comes back from a hold or a back-off does not arrive again.
            let known = self.seen.contains_key(&job.job) || self.arrivals.iter().any(|(_, came)| came.job == job.job);
            if !known {
                let came = job.submitted_at >= since || (first && input.now.since(job.submitted_at).0 <= JUST_NOW);
                if came {
                    keep(&mut self.arrivals, (job.submitted_at, newcomer(job)));
                }
            }
            self.progressed(job, plan, passed);
            self.started(job.job, input.now, plan);
        }
        // A prediction may come late, of a job that has left since the round it was made for.
        self.open.retain(|job, _| present.contains(job));
    }

    /// Remembers what was predicted, to compare it with what comes.
    pub fn predicted(&mut self, at: Timestamp, forecast: &Forecast) {
        for (&job, &start) in &forecast.rolled {
            self.open.entry(job).or_insert((at, forecast.method, start));
        }
    }

    /// What holds for another cluster of the same kind as well: all but who came when and what is under way.
    #[must_use]
    pub fn elsewhere(&self) -> Self {
        let Self { lives, paces, calibrations, .. } = self.clone();
        Self { lives, paces, calibrations, ..Self::default() }
    }

    /// What starts have taught, those included that should have come by now: each is known to come later than this.
    pub(crate) fn calibration(&self, method: Method) -> Calibration {
        let mut calibration = self.calibrations.get(&method).cloned().unwrap_or_default();
        let Some(now) = self.latest else { return calibration };
        for (at, of, start) in self.open.values().filter(|(_, _, start)| is_overdue(*start, now)) {
            if *of == method {
                calibration.learn(*at, *start, now);
            }
        }
        calibration
    }

    /// How often some came, and what they were like.
    pub(crate) fn arrivals(&self) -> Arrivals<'_> {
        let (Some(began), Some(now)) = (self.began, self.latest) else { return Arrivals::default() };
        let weight = |age: f64| libm::exp(-age.max(0.0) / MEMORY);
        let mut came: Vec<(Timestamp, &PlanJob)> = self.arrivals.iter().map(|(at, job)| (*at, job)).collect();
        came.sort_by_key(|(at, job)| (*at, job.job));
        let mut bursts: Vec<Vec<(Seconds, &PlanJob)>> = Vec::new();
        let (mut count, mut first) = (0.0, Timestamp(0));
        for (at, job) in came {
            if bursts.is_empty() || at.since(first).0 > TOGETHER {
                (first, count) = (at, count + weight(now.since(at).0));
                bursts.push(Vec::new());
            }
            if let Some(burst) = bursts.last_mut() {
                burst.push((at.since(first), job));
            }
        }
        bursts.drain(..bursts.len().saturating_sub(LIKE));
        let watched = MEMORY * (1.0 - weight(now.since(began).0)) + UNSEEN;
        Arrivals { count, watched: Seconds(watched), bursts }
    }

    /// Running times of jobs without a target that have ended, where enough have.
    pub(crate) fn lives(&self) -> Option<&VecDeque<f64>> {
        (self.lives.len() >= LEAST).then_some(&self.lives)
    }

    pub(crate) fn pace(&self) -> Pace {
        if self.paces.len() < LEAST {
            return Pace { factor: 1.0, spread: None };
        }
        let mut sorted: Vec<f64> = self.paces.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
        // Of a normal distribution the middle half is 1.349 σ wide.
        Pace { factor: libm::exp(at(0.5)), spread: Some((at(0.75) - at(0.25)) / 1.349) }
    }

    fn ended(&mut self, job: JobId, passed: f64) {
        // A job that left without a start tells nothing, unless it had waited for longer than was predicted.
        if let (Some((at, method, start)), Some(now)) = (self.open.remove(&job), self.latest)
            && is_overdue(start, now)
        {
            self.calibrations.entry(method).or_default().learn(at, start, now);
        }
        let Some(seen) = self.seen.remove(&job) else { return };
        if seen.runs && !seen.has_target {
            keep(&mut self.lives, seen.ran.0 + passed / 2.0);
        }
        self.learn_pace(seen.observed);
    }

    fn learn_pace(&mut self, (ran, predicted, real): (f64, f64, f64)) {
        if ran >= LEAST_RUN && predicted > 0.0 && real > 0.0 {
            keep(&mut self.paces, libm::log(predicted / real));
        }
    }

    fn progressed(&mut self, job: &PlanJob, plan: &Plan, passed: f64) {
        let to = plan.assignments.get(&job.job);
        let remaining = job.remaining.map(|left| left.0);
        let mut next = Seen {
            ran: job.claim.ran,
            runs: to.is_some(),
            has_target: remaining.is_some() && !job.work.is_opaque(),
            remaining,
            goodput: to.map_or(0.0, |at| at.predicted.goodput.0),
            moved: to.map(|at| &at.placement) != job.current.as_ref().map(|at| &at.placement),
            observed: (0.0, 0.0, 0.0),
        };
        if let Some(before) = self.seen.get(&job.job) {
            next.observed = before.observed;
            // A move stands still for a while: what follows on it is not the model's to answer for.
            if before.runs && !before.moved && job.current.is_some() {
                let done = before.remaining.zip(remaining).map_or(0.0, |(then, now)| (then - now).max(0.0));
                next.observed.0 += passed;
                next.observed.1 += passed * before.goodput;
                next.observed.2 += done;
            }
        }
        self.seen.insert(job.job, next);
    }

    fn started(&mut self, job: JobId, now: Timestamp, plan: &Plan) {
        if !plan.assignments.contains_key(&job) {
            return;
        }
        if let Some((at, method, start)) = self.open.remove(&job).filter(|(at, ..)| *at < now) {
            self.calibrations.entry(method).or_default().learn(at, start, now);
        }
    }
}

/// Whether a start has not come by the end of its band.
fn is_overdue(start: Start, now: Timestamp) -> bool {
    start.p90.is_some_and(|p90| p90 < now)
}

fn keep<T>(lessons: &mut VecDeque<T>, lesson: T) {
    if lessons.len() == KEPT {
        lessons.pop_front();
    }
    lessons.push_back(lesson);
}

/// A job like this, as it comes.
fn newcomer(job: &PlanJob) -> PlanJob {
    PlanJob {
        current: None,
        freedom: Freedom::Free,
        claim: job.claim.identity(),
        bounds: Bounds { time_left: job.bounds.time_left, ..Bounds::default() },
        needs: Needs { per_node: job.needs.per_node, spread: job.needs.spread, ..Needs::default() },
        ..job.clone()
    }
}

#[cfg(test)]
mod tests;
