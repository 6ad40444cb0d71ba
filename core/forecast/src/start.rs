//! When what waits will start: many futures are rolled out, and of the starts in them the 10th, 50th and 90th percentile
//! are told, as wide as past predictions turned out to need. It knows what runs, what waits, the rules, and by
//! experience how many come, how long things run and how wrong it was.

use std::collections::BTreeMap;

use headway_planner::{CurveCache, PlanInput};
use headway_types::{JobId, Plan, ReasonCode, Seconds, Timestamp};
use serde::{Deserialize, Serialize};

use crate::experience::Experience;
use crate::future::Prospect;
use crate::{queue, rollout};

/// Fewer futures have no percentiles worth telling.
const LEAST_SAMPLES: u32 = 10;

/// How the futures are rolled out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    pub seed: u64,
    pub samples: u32,
    /// Spread (σ of the logarithm) of how much longer or shorter than predicted the work that is left takes, beyond what
    /// a job's model doubts itself.
    pub spread: f64,
    /// How far to look.
    pub horizon: Seconds,
    /// Up to so many jobs every round of a future is planned; beyond, a queue stands in for the planner.
    pub planned_jobs: usize,
    /// Rounds of one future at most.
    pub rounds: u32,
    /// After so many rounds of all futures together no more are begun, beyond the least there must be.
    pub rounds_in_all: u32,
    /// The same for a queue, in waiting jobs that are looked at; no future takes more than its share of the least there must be.
    pub looks_in_all: u64,
}

impl Default for Effort {
    fn default() -> Self {
        Self {
            seed: 1,
            samples: 24,
            spread: 0.25,
            horizon: Seconds(604_800.0),
            planned_jobs: 40,
            rounds: 100,
            rounds_in_all: 1_000,
            looks_in_all: 40_000_000,
        }
    }
}

/// What is predicted for the jobs that the plan leaves waiting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    pub starts: BTreeMap<JobId, Outlook>,
    /// As the futures say, before they are held against the past.
    pub rolled: BTreeMap<JobId, Start>,
    pub method: Method,
    pub samples: u32,
}

/// How rounds of the future were decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// By the planner itself.
    Planner,
    /// By a queue in the order of patience, priority and submission, with backfill, each job at its smallest size.
    Queue,
}

/// When a job will start, or why there is no telling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outlook {
    Start(Start),
    Unknown { reason: String },
}

/// Percentiles; `None`: later than was looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    pub p10: Timestamp,
    pub p50: Option<Timestamp>,
    pub p90: Option<Timestamp>,
}

/// Predicts the starts of all jobs that `plan`, made out of `input`, leaves waiting. Equal arguments give equal answers.
#[must_use]
pub fn starts(
    input: &PlanInput,
    plan: &Plan,
    curves: &mut CurveCache,
    effort: &Effort,
    experience: &Experience,
) -> Forecast {
    let waits = |job: &JobId| !plan.assignments.contains_key(job);
    let (mut unknown, mut asked) = (BTreeMap::new(), Vec::new());
    for job in input.jobs.iter().map(|job| job.job).filter(waits) {
        match never(plan, job) {
            Some(reason) => drop(unknown.insert(job, Outlook::Unknown { reason })),
            None => asked.push(job),
        }
    }
    let method = if input.jobs.len() <= effort.planned_jobs { Method::Planner } else { Method::Queue };
    let prospect = Prospect::new(input, plan, effort, experience);
    let futures = match method {
        _ if asked.is_empty() => Vec::new(),
        Method::Planner => planned(input, plan, curves, effort, &prospect, &asked),
        Method::Queue => {
            let queue = queue::Queue::new(input, plan, effort, &prospect);
            queued(&queue, effort, &asked)
        }
    };
    let (samples, calibration) = (futures.len() as u32, experience.calibration(method));
    let (mut starts, mut rolled) = (unknown, BTreeMap::new());
    for job in asked {
        let mut told = outlook(&futures, job, effort);
        if let Outlook::Start(start) = &mut told {
            rolled.insert(job, *start);
            *start = calibration.apply(input.now, *start);
        }
        starts.insert(job, told);
    }
    Forecast { starts, rolled, method, samples }
}

/// Futures whose every round is planned, as many as the effort allows.
fn planned(
    input: &PlanInput,
    plan: &Plan,
    curves: &mut CurveCache,
    effort: &Effort,
    prospect: &Prospect<'_>,
    asked: &[JobId],
) -> Vec<BTreeMap<JobId, Timestamp>> {
    let (mut futures, mut rounds) = (Vec::new(), 0);
    for sample in 0..effort.samples {
        if rounds >= effort.rounds_in_all && sample >= LEAST_SAMPLES {
            break;
        }
        let (future, took) = rollout::future(input, plan, curves, effort, prospect, sample, asked);
        rounds += took;
        futures.push(future);
    }
    futures
}

/// Futures of a queue, as many as the effort allows.
fn queued(queue: &queue::Queue<'_>, effort: &Effort, asked: &[JobId]) -> Vec<BTreeMap<JobId, Timestamp>> {
    let (mut futures, mut looks) = (Vec::new(), 0);
    let share = effort.looks_in_all / u64::from(LEAST_SAMPLES);
    for sample in 0..effort.samples {
        if looks >= effort.looks_in_all && sample >= LEAST_SAMPLES {
            break;
        }
        let (future, took) = queue.future(sample, asked, share);
        looks += took;
        futures.push(future);
    }
    futures
}

fn never(plan: &Plan, job: JobId) -> Option<String> {
    let verdict = plan.report.jobs.get(&job)?;
    let never = verdict.reasons.iter().find(|reason| reason.code == ReasonCode::Never)?;
    Some(never.detail.clone())
}

fn outlook(futures: &[BTreeMap<JobId, Timestamp>], job: JobId, effort: &Effort) -> Outlook {
    let mut starts: Vec<Timestamp> = futures.iter().filter_map(|future| future.get(&job).copied()).collect();
    starts.sort_unstable();
    // The least start that a share of all futures, those without one included, does not exceed. Not the quantile of
    // `types`, which lies between two values: there is nothing between a start and none at all.
    let percentile = |share: f64| {
        let rank = libm::ceil(share * futures.len() as f64) as usize;
        starts.get(rank.max(1) - 1).copied()
    };
    match percentile(0.1) {
        Some(p10) => Outlook::Start(Start { p10, p50: percentile(0.5), p90: percentile(0.9) }),
        None => {
            let reason = format!(
                "it starts in {} of {} futures within {:.0} days",
                starts.len(),
                futures.len(),
                effort.horizon.0 / 86_400.0
            );
            Outlook::Unknown { reason }
        }
    }
}

#[cfg(test)]
mod tests;
