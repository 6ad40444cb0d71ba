//! What a run came to, counted by the truth.
//!
//! **Work** is counted in hours of GPUs as requested: a job's share of its target in true reference tokens, times the GPU-hours it would need on
//! what it requests. So jobs of different models add up, and a policy that trains at the request on the first GPU type does one hour of work per GPU-hour.

use std::collections::BTreeMap;

use headway_engine::record::{Job as Row, JobState};
use headway_sim::Report;
use headway_types::{GpuCount, JobId, Seconds, Timestamp};
use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::disruptions::Disruptions;
use crate::watch::{Trained, Watch};
use crate::workload::{Job, Kind, Workload};

/// A job is large that asks for this share of the cluster's GPUs.
const LARGE_SHARE: f64 = 0.25;

/// The columns of one run. Times in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    pub jobs: u32,
    pub ended: u32,
    pub mean_time: f64,
    pub geometric_mean_time: f64,
    pub p50_time: f64,
    pub p99_time: f64,
    pub longest_time: f64,
    pub longest_wait: f64,
    /// Waits of jobs that ask for at least a quarter of the cluster.
    #[serde(default)]
    pub p99_large_wait: f64,
    #[serde(default)]
    pub longest_large_wait: f64,
    pub makespan: f64,
    pub gpu_hours: f64,
    /// Over GPU-hours held.
    pub work_per_gpu_hour: f64,
    /// The same where a batch below the reference earns no credit.
    pub uncredited_work_per_gpu_hour: f64,
    /// Until the last job had come, in hours of GPUs as requested.
    pub work_while_jobs_come: f64,
    pub uncredited_work_while_jobs_come: f64,
    /// Share of GPU-time held that trained what counts.
    pub useful_share: f64,
    /// Of all GPUs until the end.
    pub held_share: f64,
    pub restarts_per_job: f64,
    /// Stops for another shape after which the job started again as it was.
    #[serde(default)]
    pub returned: u32,
    /// Moves and preemptions, whatever became of the job.
    #[serde(default)]
    pub disruptions_per_job: f64,
    #[serde(default)]
    pub preemptions_per_job: f64,
    /// Changes of size that led back within an hour, over all.
    #[serde(default)]
    pub swings: f64,
    /// Of GPU-time held: in starts, and in stops.
    #[serde(default)]
    pub starting_share: f64,
    #[serde(default)]
    pub stopping_share: f64,
    pub lost_minutes_per_job: f64,
    /// Time over what an equal share of the cluster would have taken.
    pub worst_unfairness: f64,
    pub share_unfair: f64,
    /// Relative error of predicted goodput: while training, and at the first report of a generation.
    pub prediction_error: f64,
    pub start_prediction_error: f64,
    /// True reference tokens over the target, of jobs that the scheduler says are done.
    pub reached: f64,
    pub reached_least: f64,
    pub rounds: u32,
    pub round_cpu: f64,
    pub longest_round_cpu: f64,
    pub cpu_seconds: f64,
}

/// A column: how it is called, how a run has it, and in which digits it reads well.
pub struct Column {
    pub name: &'static str,
    pub of: fn(&Measure) -> f64,
    pub digits: usize,
}

/// All columns in the order of reports.
#[must_use]
pub fn measures() -> Vec<Column> {
    let column = |name, of: fn(&Measure) -> f64, digits| Column { name, of, digits };
    vec![
        column("mean h", |one| one.mean_time / 3_600.0, 2),
        column("geo h", |one| one.geometric_mean_time / 3_600.0, 2),
        column("p50 h", |one| one.p50_time / 3_600.0, 2),
        column("p99 h", |one| one.p99_time / 3_600.0, 2),
        column("longest h", |one| one.longest_time / 3_600.0, 2),
        column("longest wait h", |one| one.longest_wait / 3_600.0, 2),
        column("p99 large wait h", |one| one.p99_large_wait / 3_600.0, 2),
        column("longest large wait h", |one| one.longest_large_wait / 3_600.0, 2),
        column("makespan h", |one| one.makespan / 3_600.0, 1),
        column("GPU-h", |one| one.gpu_hours, 0),
        column("work/GPU-h", |one| one.work_per_gpu_hour, 3),
        column("uncredited", |one| one.uncredited_work_per_gpu_hour, 3),
        column("work while jobs come", |one| one.work_while_jobs_come, 0),
        column("uncredited work", |one| one.uncredited_work_while_jobs_come, 0),
        column("useful %", |one| 100.0 * one.useful_share, 1),
        column("held %", |one| 100.0 * one.held_share, 1),
        column("restarts/job", |one| one.restarts_per_job, 2),
        column("returned", |one| f64::from(one.returned), 0),
        column("disruptions/job", |one| one.disruptions_per_job, 2),
        column("preemptions/job", |one| one.preemptions_per_job, 2),
        column("A-B-A %", |one| 100.0 * one.swings, 1),
        column("starting %", |one| 100.0 * one.starting_share, 2),
        column("stopping %", |one| 100.0 * one.stopping_share, 2),
        column("lost min/job", |one| one.lost_minutes_per_job, 1),
        column("worst unfairness", |one| one.worst_unfairness, 1),
        column("unfair %", |one| 100.0 * one.share_unfair, 0),
        column("prediction error %", |one| 100.0 * one.prediction_error, 1),
        column("at starts %", |one| 100.0 * one.start_prediction_error, 1),
        column("reached", |one| one.reached, 2),
        column("not ended", |one| f64::from(one.jobs - one.ended), 0),
        column("ms/round", |one| 1_000.0 * one.round_cpu, 1),
        column("longest ms", |one| 1_000.0 * one.longest_round_cpu, 0),
        column("run CPU s", |one| one.cpu_seconds, 1),
    ]
}

/// What one job's life came to.
struct Life<'a> {
    job: &'a Job,
    arrives: f64,
    ends: f64,
    ended: bool,
    waited: f64,
    generations: u64,
    held_seconds: f64,
    held_gpu_seconds: f64,
    trained: Trained,
    /// What it needs on what it requests, GPU-hours.
    hours: f64,
}

impl Life<'_> {
    fn time(&self) -> f64 {
        self.ends - self.arrives
    }

    /// Share of the target in true reference tokens, with and without credit below the reference batch.
    fn shares(&self, progress: headway_emulation::Progress, over: bool) -> (f64, f64) {
        match &self.job.kind {
            Kind::Training(recipe) => (progress.reference / recipe.target.0, progress.uncredited / recipe.target.0),
            Kind::Opaque => {
                if over {
                    (1.0, 1.0)
                } else {
                    (0.0, 0.0)
                }
            }
        }
    }

    /// Share of what it trained that counts.
    fn kept(&self) -> f64 {
        match &self.job.kind {
            Kind::Training(_) if self.trained.tokens > 0.0 => self.trained.progress.tokens / self.trained.tokens,
            Kind::Training(_) => 0.0,
            Kind::Opaque => 1.0,
        }
    }

    /// Seconds, and GPU-seconds, of training that counts.
    fn useful(&self) -> (f64, f64) {
        match &self.job.kind {
            Kind::Training(_) => (self.trained.seconds * self.kept(), self.trained.gpu_seconds * self.kept()),
            Kind::Opaque if self.ended => (self.job.duration.0, self.job.duration.0 * f64::from(self.job.requested.0)),
            Kind::Opaque => (0.0, 0.0),
        }
    }
}

/// The columns, and the times of all jobs, ascending.
#[must_use]
pub fn measure(workload: &Workload, report: &Report, watch: &Watch) -> (Measure, Vec<f64>) {
    let began = Timestamp(1_700_000_000_000_000);
    let end = report.makespan.0;
    let mut held: BTreeMap<JobId, Held> = BTreeMap::new();
    for one in &report.allocations {
        let from = one.granted_at.since(began).0;
        let until = one.ended_at.map_or(end, |at| at.since(began).0).max(from);
        let of = held.entry(one.job).or_default();
        of.seconds += until - from;
        of.gpu_seconds += (until - from) * f64::from(one.placement.gpus().0);
        of.first = Some(of.first.map_or(from, |first: f64| first.min(from)));
    }
    let lives: Vec<Life<'_>> = workload
        .jobs
        .iter()
        .enumerate()
        .map(|(index, job)| life(job, report.jobs.get(&index), &held, watch.trained.get(&index), began, end))
        .collect();
    let mut times: Vec<f64> = lives.iter().map(Life::time).collect();
    times.sort_by(f64::total_cmp);
    let large_waits = large_waits(&lives, workload.cluster.gpus());
    let count = lives.len().max(1) as f64;
    let sum = |of: &dyn Fn(&Life<'_>) -> f64| lives.iter().map(of).sum::<f64>();
    let gpu_hours = sum(&|life| life.held_gpu_seconds) / 3_600.0;
    let work = sum(&|life| life.hours * life.shares(life.trained.progress, life.ended).0);
    let uncredited = sum(&|life| life.hours * life.shares(life.trained.progress, life.ended).1);
    let arrivals = workload.arrivals.0;
    let come = |life: &Life<'_>| {
        let over = life.ended && life.ends <= arrivals;
        let (credited, plain) = life.shares(life.trained.when_arrivals_end, over);
        (life.hours * credited, life.hours * plain)
    };
    let done: Vec<f64> =
        lives.iter().filter(|life| life.ended).map(|life| life.shares(life.trained.progress, true).0).collect();
    let unfairness: Vec<f64> = lives.iter().map(|life| unfairness(life, &lives, &workload.cluster)).collect();
    let disruptions = Disruptions::of(&report.allocations);
    let measure = Measure {
        jobs: lives.len() as u32,
        ended: done.len() as u32,
        mean_time: times.iter().sum::<f64>() / count,
        geometric_mean_time: (times.iter().map(|time| time.max(1.0).ln()).sum::<f64>() / count).exp(),
        p50_time: quantile(&times, 0.5),
        p99_time: quantile(&times, 0.99),
        longest_time: times.last().copied().unwrap_or_default(),
        longest_wait: lives.iter().map(|life| life.waited).fold(0.0, f64::max),
        p99_large_wait: quantile(&large_waits, 0.99),
        longest_large_wait: large_waits.last().copied().unwrap_or_default(),
        makespan: end,
        gpu_hours,
        work_per_gpu_hour: work / gpu_hours.max(1e-9),
        uncredited_work_per_gpu_hour: uncredited / gpu_hours.max(1e-9),
        work_while_jobs_come: sum(&|life| come(life).0),
        uncredited_work_while_jobs_come: sum(&|life| come(life).1),
        useful_share: sum(&|life| life.useful().1) / (3_600.0 * gpu_hours).max(1e-9),
        held_share: 3_600.0 * gpu_hours / (f64::from(workload.cluster.gpus().0) * end).max(1e-9),
        restarts_per_job: sum(&|life| life.generations.saturating_sub(1) as f64) / count,
        returned: report.events.iter().filter(|event| event.verb == "job.returned").count() as u32,
        disruptions_per_job: f64::from(disruptions.moves + disruptions.preemptions) / count,
        preemptions_per_job: f64::from(disruptions.preemptions) / count,
        swings: f64::from(disruptions.swings) / f64::from(disruptions.resizes.max(1)),
        starting_share: disruptions.starting / (3_600.0 * gpu_hours).max(1e-9),
        stopping_share: disruptions.stopping / (3_600.0 * gpu_hours).max(1e-9),
        lost_minutes_per_job: sum(&|life| (life.held_seconds - life.useful().0).max(0.0)) / 60.0 / count,
        worst_unfairness: unfairness.iter().copied().fold(0.0, f64::max),
        share_unfair: unfairness.iter().filter(|ratio| **ratio > 1.0).count() as f64 / count,
        prediction_error: watch.goodput_errors.mean(),
        start_prediction_error: watch.start_errors.mean(),
        reached: done.iter().sum::<f64>() / done.len().max(1) as f64,
        reached_least: done.iter().copied().fold(f64::INFINITY, f64::min),
        rounds: watch.rounds,
        round_cpu: watch.round_cpu / f64::from(watch.rounds.max(1)),
        longest_round_cpu: watch.longest_round_cpu,
        cpu_seconds: 0.0,
    };
    (measure, times)
}

/// Waits of the jobs that ask for at least this share of the cluster's GPUs, ascending.
fn large_waits(lives: &[Life<'_>], gpus: GpuCount) -> Vec<f64> {
    let is_large = |life: &&Life<'_>| f64::from(life.job.requested.0) >= LARGE_SHARE * f64::from(gpus.0);
    let mut waits: Vec<f64> = lives.iter().filter(is_large).map(|life| life.waited).collect();
    waits.sort_by(f64::total_cmp);
    waits
}

#[derive(Clone, Copy, Default)]
struct Held {
    seconds: f64,
    gpu_seconds: f64,
    first: Option<f64>,
}

fn life<'a>(
    job: &'a Job,
    row: Option<&Row>,
    held: &BTreeMap<JobId, Held>,
    trained: Option<&Trained>,
    began: Timestamp,
    end: f64,
) -> Life<'a> {
    let held = row.and_then(|row| held.get(&row.id)).copied().unwrap_or_default();
    let over = row.and_then(|row| match row.state {
        JobState::Succeeded { at } => Some(at.since(began).0),
        _ => None,
    });
    let arrives = job.arrives.0;
    Life {
        job,
        arrives,
        ends: over.unwrap_or(end).max(arrives),
        ended: over.is_some(),
        waited: held.first.unwrap_or(end).max(arrives) - arrives,
        generations: row.map_or(0, |row| row.generation.0),
        held_seconds: held.seconds,
        held_gpu_seconds: held.gpu_seconds,
        trained: trained.cloned().unwrap_or_default(),
        hours: job.duration.0 * f64::from(job.requested.0) / 3_600.0,
    }
}

/// Time over what the job would have taken on an equal share of the cluster among those it lived with (finish-time fairness, Mahajan et al.
/// 2020, as Sia counts it), at the prior's rates.
fn unfairness(life: &Life<'_>, lives: &[Life<'_>], cluster: &Cluster) -> f64 {
    let together: f64 =
        lives.iter().map(|one| (one.ends.min(life.ends) - one.arrives.max(life.arrives)).max(0.0)).sum();
    let rivals = (together / life.time().max(1.0)).max(1.0);
    let share = f64::from(cluster.gpus().0) / rivals;
    life.time() / fair_time(life.job, cluster, share).0
}

fn fair_time(job: &Job, cluster: &Cluster, share: f64) -> Seconds {
    let fits = |size: &&GpuCount| f64::from(size.0) <= share;
    let size = job.sizes.iter().rev().find(fits).or(job.sizes.first()).copied().unwrap_or(job.requested);
    let part = (share / f64::from(size.0)).min(1.0);
    let alone = match &job.kind {
        Kind::Opaque => job.duration.0,
        Kind::Training(recipe) => {
            let rate = |(class, weight)| recipe.at(&class, size).map_or(0.0, |(_, rate)| rate * weight);
            recipe.target.0 / cluster.classes().map(rate).sum::<f64>().max(1e-9)
        }
    };
    Seconds(alone / part)
}

/// The value below which this share lies, of an ascending list.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(at.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(requested: u32, waited: f64) -> Job {
        Job {
            name: format!("job-{requested}"),
            arrives: Seconds(0.0),
            requested: GpuCount(requested),
            sizes: vec![GpuCount(requested)],
            duration: Seconds(waited),
            kind: Kind::Opaque,
        }
    }

    #[test]
    fn waits_of_large_jobs_are_those_of_a_quarter_of_the_cluster() {
        let jobs = [waiting(8, 500.0), waiting(16, 90.0), waiting(32, 60.0)];
        let began = Timestamp(0);
        // A job that never started has waited until the end.
        let of = |job| life(job, None, &BTreeMap::new(), None, began, job.duration.0);
        let lives: Vec<Life<'_>> = jobs.iter().map(of).collect();
        assert_eq!(large_waits(&lives, GpuCount(64)), [60.0, 90.0]);
    }

    #[test]
    fn a_quantile_is_a_value_of_the_list() {
        let list = [1.0, 2.0, 3.0, 4.0];
        assert_eq!((quantile(&list, 0.5), quantile(&list, 0.99), quantile(&[], 0.5)), (2.0, 4.0, 0.0));
    }
}
