//! What a job made of its GPU-time, and what its owner can do about the rest: told once, at its end. A pure function of the job's row and what was learnt of
//! it; every word of advice names a number that was measured and a field of the specification.

use headway_goodput::JobModel;
use headway_types::GpuSeconds;
use headway_types::spec::Work;

use crate::account::GpuTime;
use crate::record::{Job, JobState};

/// Less GPU-time teaches nothing.
const LEAST: GpuSeconds = GpuSeconds(600.0);
/// Shares of the GPU-time from which on something is worth a word.
const STARTING: f64 = 0.10;
const REWORK: f64 = 0.05;
const STOPPING: f64 = 0.05;
const IDLE: f64 = 0.02;
/// Of the limit on running time that a job needed.
const LIMIT_USED: f64 = 0.25;

/// What came of a job's GPU-time.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// "used 11.2 GPU-hours: 93 % useful, 5 % starting, 2 % redone".
    pub summary: String,
    /// What costs most comes first.
    pub advice: Vec<Advice>,
}

/// Something to change.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    pub code: AdviceCode,
    /// What was measured and which field to change, in a sentence.
    pub detail: String,
}

/// By the name that events and the API write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum AdviceCode {
    LostWork,
    SlowStart,
    SlowStop,
    Hangs,
    FailsByItself,
    ProgressSilent,
    NotModelled,
    NoNoise,
    GenerousLimit,
}

/// What a job went into and what would have gone better. `model`: what reports taught, where it is known.
#[must_use]
pub fn report(job: &Job, model: Option<&JobModel>) -> Report {
    let mut advice = if job.spent.total() < LEAST { Vec::new() } else { costs(job) };
    advice.extend(fails_by_itself(job));
    if job.spent.total() >= LEAST {
        advice.extend(progress_silent(job));
        advice.extend(not_tuned(job, model));
        advice.extend(generous_limit(job));
    }
    Report { summary: summary(&job.spent), advice }
}

fn summary(spent: &GpuTime) -> String {
    let total = spent.total().0;
    let parts = [
        (spent.training, "useful"),
        (spent.starting, "starting"),
        (spent.rework, "redone or lost"),
        (spent.idle, "hanging"),
        (spent.stopping, "saving and stopping"),
    ];
    let told = parts.iter().filter(|(part, _)| part.0 / total >= 0.005);
    let told: Vec<String> = told.map(|(part, what)| format!("{:.0} % {what}", 100.0 * part.0 / total)).collect();
    format!("used {} GPU-hours: {}", hours(total), told.join(", "))
}

/// What GPU-time went into beside training, the dearest first.
fn costs(job: &Job) -> Vec<Advice> {
    let spent = &job.spent;
    let share = |part: GpuSeconds| part.0 / spent.total().0;
    let pct = |part: GpuSeconds| format!("{:.0} % of its GPU-time", 100.0 * share(part));
    let generations = job.generation.0.max(1);
    let mut costs: Vec<(f64, Advice)> = Vec::new();
    let mut tell = |part: GpuSeconds, least: f64, code, detail: String| {
        if share(part) >= least {
            costs.push((part.0, Advice { code, detail }));
        }
    };
    tell(spent.rework, REWORK, AdviceCode::LostWork, lost_work(job, &pct(spent.rework)));
    let starts = format!("{} went into {generations} starts", pct(spent.starting));
    let fewer = "import and load less before the first step; a longer elastic.min_runtime moves it less often";
    tell(spent.starting, STARTING, AdviceCode::SlowStart, format!("{starts}: {fewer}"));
    let stops = format!("{} went into saving and stopping", pct(spent.stopping));
    let quick = "save asynchronously or smaller; after training.checkpoint.grace it is killed";
    tell(spent.stopping, STOPPING, AdviceCode::SlowStop, format!("{stops}: {quick}"));
    let hangs = format!("{} passed while its processes hung", pct(spent.idle));
    tell(
        spent.idle,
        IDLE,
        AdviceCode::Hangs,
        format!("{hangs}: set a timeout on its collectives (NCCL, torch.distributed)"),
    );
    costs.sort_by(|one, other| other.0.total_cmp(&one.0));
    costs.into_iter().map(|(_, advice)| advice).collect()
}

fn lost_work(job: &Job, share: &str) -> String {
    let lost = format!("{share} was trained and then lost, since nothing had saved it");
    match (&job.checkpoint, job.spec.training()) {
        (None, None) => format!(
            "{lost}: it saves nothing the scheduler knows of; headway.watch, or a training section with the SDK, keeps its checkpoints"
        ),
        (None, Some(_)) => format!(
            "{lost}: it never committed a checkpoint; save every training.checkpoint.every with the SDK, and have limits.signal say when it is about to stop"
        ),
        (Some(_), _) => {
            let every = job.spec.checkpoint_policy().every.0 / 60.0;
            format!("{lost}: training.checkpoint.every is {every:.0} min; half of it loses half as much")
        }
    }
}

fn fails_by_itself(job: &Job) -> Option<Advice> {
    let last = job.last_failure.as_ref().filter(|_| job.restarts > 0)?;
    let detail = format!(
        "{} of its {} starts ended by its own fault; the last {}",
        job.restarts, job.generation.0, last.message
    );
    Some(Advice { code: AdviceCode::FailsByItself, detail })
}

/// Nothing was learnt of it, since its pattern found nothing.
fn progress_silent(job: &Job) -> Option<Advice> {
    let field = job.spec.reads_steps_by().filter(|_| job.capabilities.is_none())?;
    let detail = format!("no step was found in its output: compare {field}.regex with what it prints");
    Some(Advice { code: AdviceCode::ProgressSilent, detail })
}

/// Why nobody tuned its batch or its layout.
fn not_tuned(job: &Job, model: Option<&JobModel>) -> Option<Advice> {
    let Some(training) = job.spec.training() else {
        let role = job.spec.role();
        let detail = format!(
            "it ran as it was on {} GPUs: with a training section its size, layout and batch are chosen for the most goodput",
            role.gpus.max
        );
        return Some(Advice { code: AdviceCode::NotModelled, detail });
    };
    let model = model.filter(|_| matches!(training.work, Work::Model(_)))?;
    let why = model.no_noise_scale(None)?;
    let detail = format!("its batch was chosen without its noise scale ({why}): report gradient norms with the SDK");
    Some(Advice { code: AdviceCode::NoNoise, detail })
}

/// Whoever asks for far more time than needed is planned around as if it stayed that long.
fn generous_limit(job: &Job) -> Option<Advice> {
    let limit = job.spec.limits.time.filter(|_| matches!(job.state, JobState::Succeeded { .. }))?;
    let ran = job.ran.0.max(job.started_at.map_or(0.0, |at| end(job).map_or(0.0, |end| end.since(at).0)));
    (ran < LIMIT_USED * limit.0).then(|| Advice {
        code: AdviceCode::GenerousLimit,
        detail: format!(
            "limits.time is {} h and it ran {} h: with a closer limit it may start sooner, in gaps before others",
            hours(limit.0),
            hours(ran)
        ),
    })
}

fn end(job: &Job) -> Option<headway_types::Timestamp> {
    match job.state {
        JobState::Succeeded { at } | JobState::Failed { at, .. } | JobState::Cancelled { at, .. } => Some(at),
        _ => None,
    }
}

/// Three digits; little in four places, of which none would be left.
fn hours(seconds: f64) -> String {
    let hours = seconds / 3_600.0;
    match hours {
        hours if hours >= 100.0 => format!("{hours:.0}"),
        hours if hours >= 1.0 => format!("{hours:.1}"),
        hours if hours >= 0.01 || hours == 0.0 => format!("{hours:.2}"),
        _ => format!("{hours:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use headway_types::spec::Limits;
    use headway_types::{Generation, IdSource, JobSpec, Seconds, Timestamp, example};

    use super::*;
    use crate::record::LastFailure;

    fn job(spent: [f64; 5]) -> Job {
        let [training, starting, rework, idle, stopping] = spent.map(GpuSeconds);
        let spec = JobSpec {
            limits: Limits { time: Some(Seconds(172_800.0)), ..Limits::default() },
            ..example::spec("llama", example::gpus(8, 8), None)
        };
        let at = Timestamp(1_000_000_000_000_000);
        Job {
            state: JobState::Succeeded { at: at + Seconds(7_200.0) },
            started_at: Some(at),
            generation: Generation(3),
            spent: GpuTime { starting, training, rework, idle, stopping },
            ..Job::new(IdSource::seeded(1).job(at), spec, "ada".into(), at)
        }
    }

    fn told(job: &Job) -> String {
        let report = report(job, None);
        let advice = report.advice.iter().map(|one| format!("{}: {}", <&str>::from(one.code), one.detail));
        std::iter::once(report.summary.clone()).chain(advice).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn what_costs_most_is_told_first_with_what_to_change() {
        insta::assert_snapshot!(told(&job([30_000.0, 6_000.0, 9_000.0, 1_500.0, 3_500.0])));
    }

    #[test]
    fn whoever_never_saved_is_told_of_fields_that_there_are() {
        let never = job([30_000.0, 0.0, 9_000.0, 0.0, 0.0]);
        let training = Some(example::training(headway_types::spec::Work::Model(example::tiny())));
        let never = Job { spec: example::spec("llama", example::gpus(8, 8), training), ..never };
        let told = told(&never);
        assert!(told.contains("save every training.checkpoint.every") && told.contains("limits.signal"), "{told}");
        assert!(!told.contains("checkpoint.signal"), "{told}");
    }

    #[test]
    fn failures_of_its_own_are_told_however_short_it_ran() {
        let message = "on node n1: rank 0 exited (exit code 1)".into();
        let failure =
            LastFailure { at: Timestamp(0), generation: Generation(3), message, node: None, exit_code: Some(1) };
        let failed = Job { restarts: 2, last_failure: Some(failure), ..job([0.0, 90.0, 10.0, 0.0, 0.0]) };
        insta::assert_snapshot!(told(&failed));
    }

    #[test]
    fn a_job_that_made_the_best_of_its_time_is_told_no_more_than_that() {
        let tuned = job([100_000.0, 900.0, 0.0, 0.0, 100.0]);
        let limits = Limits { time: None, ..Limits::default() };
        let codes: Vec<AdviceCode> = report(&Job { spec: JobSpec { limits, ..tuned.spec.clone() }, ..tuned }, None)
            .advice
            .iter()
            .map(|one| one.code)
            .collect();
        assert_eq!(codes, [AdviceCode::NotModelled]);
    }

    #[test]
    fn a_pattern_that_found_nothing_is_told() {
        let mut silent = job([0.0, 6_000.0, 0.0, 0.0, 100.0]);
        silent.spec.roles[0].run.progress = Some(example::progress());
        assert!(told(&silent).contains("progress_silent: no step was found in its output: compare run.progress.regex"));
        silent.capabilities = Some(silent.able());
        assert!(!told(&silent).contains("progress_silent"));
    }
}
