//! How good predicted starts are: `cargo run --release -p headway-sim --example forecast -- FIRST LAST [WARM]`. Small
//! crowded clusters are simulated, one per seed; for jobs that wait their start is predicted once, and compared with the
//! round that then gave them GPUs. The first WARM clusters only teach: what a cluster learns about its kind (pace, lives,
//! how wrong it was) goes on to the next, who came when does not. docs/measurements/forecast.md keeps what it prints.

use std::collections::BTreeSet;
use std::process::ExitCode;

use headway_forecast::{Effort, Experience, Outlook, starts};
use headway_planner::{CurveCache, PlanInput};
use headway_sim::scenario::{spec, training};
use headway_sim::{NodeShape, Scenario, SimJob, simulate};
use headway_types::spec::GpuRange;
use headway_types::{GpuCount, JobId, Plan, Seconds, Timestamp, Tokens};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

fn main() -> ExitCode {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let (first, last, warm) = match numbers[..] {
        [first, last] => (first, last, 0),
        [first, last, warm] => (first, last, warm),
        _ => {
            eprintln!("usage: forecast FIRST_SEED LAST_SEED [CLUSTERS_THAT_ONLY_TEACH]");
            return ExitCode::FAILURE;
        }
    };
    println!(
        "| arrivals | asked | rounds by | predicted | before p10 | p10 to p90 | after p90 | no telling | median error |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (name, over) in [("within a minute", 60.0), ("within an hour", 3_600.0)] {
        let mut histories = Vec::new();
        for seed in first..=last {
            match simulate(&crowd(seed, over)) {
                Ok(report) => histories.push(report.rounds),
                Err(failure) => {
                    eprintln!("{failure}");
                    return ExitCode::FAILURE;
                }
            }
        }
        for (by, planned_jobs) in [("queue", 0), ("planner", usize::MAX)] {
            for (asked, after) in [("after 90 s", 90.0), ("after 15 min", 900.0)] {
                let effort = Effort { planned_jobs, ..Effort::default() };
                let (mut score, mut experience) = (Score::default(), Experience::default());
                for (number, rounds) in histories.iter().enumerate() {
                    let mut of_one = Score::default();
                    experience = of_one.add(rounds, &effort, Seconds(after), experience.elsewhere());
                    if number as u64 >= warm {
                        score.take(of_one);
                    }
                }
                println!("| {name} | {asked} | {by} | {} |", score.row());
            }
        }
    }
    ExitCode::SUCCESS
}

/// Three nodes of four GPUs and a dozen jobs of two to eight that want far more than there is.
fn crowd(seed: u64, over: f64) -> Scenario {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut scenario = Scenario::empty(seed, &[]);
    scenario.nodes = vec![NodeShape::new(4, "emulated"); 3];
    scenario.jobs = (0..12).map(|index| job(&mut rng, index, over)).collect();
    scenario.policy.objective.node_budget = 200;
    (scenario.horizon, scenario.keep_rounds) = (Seconds(86_400.0), true);
    scenario
}

fn job(rng: &mut StdRng, index: u32, over: f64) -> SimJob {
    let min = [2, 2, 4, 4, 8][rng.random_range(0..5)];
    let max = if rng.random_bool(0.5) { min } else { 2 * min };
    let gpus =
        GpuRange { min: GpuCount(min), max: GpuCount(max.min(8)), sizes: Vec::new(), types: Vec::new(), mixed: false };
    let tokens_per_second = rng.random_range(2_000.0..8_000.0);
    let target = Tokens(tokens_per_second * f64::from(min) * 60.0 * rng.random_range(4.0..30.0));
    SimJob {
        arrives: Seconds(rng.random_range(0.0..over)),
        spec: spec(format!("job-{index}"), gpus, Some(training(target, true, true))),
        tokens_per_second,
        noise_scale: rng.random_range(2_000.0..80_000.0),
        runs: Seconds(600.0),
        startup: Seconds(rng.random_range(2.0..15.0)),
        cancelled_after: None,
        hidden: None,
    }
}

/// Jobs asked about in one history: of the first ones to wait.
const ASKED_PER_HISTORY: usize = 6;

#[derive(Default)]
struct Score {
    early: u32,
    inside: u32,
    late: u32,
    unknown: u32,
    /// Of the median, relative to how long it was until the start.
    errors: Vec<f64>,
}

impl Score {
    /// Each job once: in the first round that leaves it waiting `after` so long a history, when those that run have or
    /// have not yet reported.
    fn add(
        &mut self,
        rounds: &[(PlanInput, Plan)],
        effort: &Effort,
        after: Seconds,
        mut experience: Experience,
    ) -> Experience {
        let (mut asked, mut curves) = (BTreeSet::new(), CurveCache::default());
        let Some(begin) = rounds.first().map(|(input, _)| input.now + after) else { return experience };
        for (at, (input, plan)) in rounds.iter().enumerate() {
            experience.observe(input, plan);
            if input.now < begin || asked.len() >= ASKED_PER_HISTORY {
                continue;
            }
            let waits = |job: &JobId| !plan.assignments.contains_key(job);
            let waiting = input.jobs.iter().map(|job| job.job).filter(waits);
            let due: Vec<JobId> = waiting.filter(|job| asked.insert(*job)).collect();
            if due.is_empty() {
                continue;
            }
            let forecast = starts(input, plan, &mut curves, effort, &experience);
            experience.predicted(input.now, &forecast);
            for job in due {
                let given = rounds[at..].iter().find(|(_, plan)| plan.assignments.contains_key(&job));
                if let Some((given, _)) = given {
                    self.compare(&forecast.starts[&job], input.now, given.now);
                }
            }
        }
        experience
    }

    fn take(&mut self, of: Self) {
        self.early += of.early;
        self.inside += of.inside;
        self.late += of.late;
        self.unknown += of.unknown;
        self.errors.extend(of.errors);
    }

    fn compare(&mut self, predicted: &Outlook, now: Timestamp, start: Timestamp) {
        let Outlook::Start(of) = predicted else {
            self.unknown += 1;
            return;
        };
        match () {
            () if start < of.p10 => self.early += 1,
            () if of.p90.is_some_and(|p90| start > p90) => self.late += 1,
            () => self.inside += 1,
        }
        if let Some(p50) = of.p50 {
            let (waited, said) = (start.since(now).0, p50.since(now).0);
            self.errors.push((said - waited).abs() / waited.max(1.0));
        }
    }

    fn row(&mut self) -> String {
        self.errors.sort_by(f64::total_cmp);
        let predicted = self.early + self.inside + self.late;
        let share = |count: u32| format!("{:.0} %", 100.0 * f64::from(count) / f64::from(predicted.max(1)));
        let error =
            self.errors.get(self.errors.len() / 2).map_or("–".into(), |error| format!("{:.0} %", 100.0 * error));
        let (early, inside, late) = (share(self.early), share(self.inside), share(self.late));
        format!("{predicted} | {early} | {inside} | {late} | {} | {error}", self.unknown)
    }
}
