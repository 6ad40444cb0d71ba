//! Jobs on the wire: the record alone, or joined with what the snapshot knows of a live one.

use std::sync::Arc;

use headway_api::v1;
use headway_engine::LiveNumbers;
use headway_engine::account::GpuTime;
use headway_engine::efficiency;
use headway_engine::event::{ElasticChange, JobChange};
use headway_engine::record::{Allocation, Displacement, Displacer, Fallback, Job, JobState, LastFailure};
use headway_engine::view::{JobView, View};
use headway_types::spec::{Priority, Work};
use headway_types::{GpuCount, Seconds, Timestamp, Tokens};

use super::words::{stop_in_words, wish_in_words};
use super::{finite, node_name, time};
use crate::http::problem::Problem;

/// A live job with its newest numbers; `view` lends the names of nodes.
pub fn live_job(of: &JobView, view: &View) -> v1::Job {
    let job = stored_job(&of.job);
    let job = match &of.allocation {
        Some(allocation) => with_allocation(job, allocation, &of.job, view),
        None => job,
    };
    let lost = view.unreachable_nodes(of);
    let cause =
        lost.as_ref().map(|lost| format!("{} unreachable since {}", lost.names.join(", "), seconds_of(lost.since)));
    v1::Job {
        noise_reports: noise_reports(of),
        state_cause: job.state_cause.clone().or(cause),
        unreachable: lost.map(|lost| v1::Unreachable { nodes: lost.names, since: time(lost.since) }),
        ..with_numbers(job, &of.job, &of.live)
    }
}

/// A moment to the second, for sentences.
fn seconds_of(at: Timestamp) -> String {
    time(at).to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}

/// Of a job whose throughput is modelled: of others the noise decides nothing.
fn noise_reports(of: &JobView) -> Option<v1::NoiseReports> {
    let model = of.model.as_ref().filter(|model| matches!(model.training.work, Work::Model(_)))?;
    let at = of.allocation.as_ref().and_then(|allocation| allocation.configuration);
    let ignored = model.ignored_reports();
    Some(v1::NoiseReports {
        kind: model.training.noise.to_string(),
        missing: model.no_noise_scale(at.as_ref()).map(|why| why.to_string()),
        impossible: ignored.impossible,
        outlying: ignored.outlying,
        other_kind: ignored.other_kind,
    })
}

/// A job as this record has it, with what the snapshot knows of it beside.
pub fn job_in(of: &Arc<Job>, view: &View) -> v1::Job {
    match view.jobs.get(&of.id) {
        Some(live) => live_job(&JobView { job: Arc::clone(of), ..(**live).clone() }, view),
        None => stored_job(of),
    }
}

/// A job as its record alone tells it: one that has ended, or was admitted this moment.
pub fn stored_job(of: &Job) -> v1::Job {
    let spec = &of.spec;
    let role = spec.role();
    let (since, cause, ended) = state_data(&of.state);
    let target = of.target();
    v1::Job {
        id: of.id.0,
        name: spec.name.clone(),
        project: spec.project.clone(),
        owner: of.owner.clone(),
        priority: spec.priority.0,
        labels: spec.labels.clone(),
        state: of.state.kind(),
        state_since: time(since),
        state_cause: of.wish.as_ref().map(wish_in_words).or(cause),
        gpus: 0,
        gpus_min: role.gpus.min.0,
        gpus_max: role.gpus.max.0,
        gpu_sizes: role.gpus.sizes.iter().map(|size| size.0).collect(),
        nodes: Vec::new(),
        layout: None,
        execution: None,
        micro_batch_sequences: None,
        global_batch_sequences: None,
        global_batch_tokens: None,
        accumulation: None,
        throughput_tokens_per_second: None,
        goodput_tokens_per_second: None,
        efficiency: None,
        noise_scale_tokens: None,
        noise_error: None,
        noise_low_tokens: None,
        noise_high_tokens: None,
        noise_reports: None,
        unreachable: None,
        loss: of.loss.filter(|_| of.not_finite_loss.is_none()),
        loss_not_finite_since_step: of.not_finite_loss.map(|lost| lost.step),
        step: of.checkpoint.as_ref().map(|checkpoint| checkpoint.step),
        samples_seen: of.checkpoint.as_ref().map(|checkpoint| checkpoint.samples_seen.0),
        progress_tokens: of.progress.0,
        seen_tokens: of.seen().0,
        credit_tokens: of.credit.0,
        target_tokens: target.map(|target| target.tokens.0),
        target_count: target.map(|target| target.count.to_string()),
        progress_fraction: fraction(of, of.seen(), of.progress),
        eta_seconds: None,
        last_change: of
            .last_change
            .as_ref()
            .map(|change| v1::LastChange { at: time(change.at), reason: change.reason.clone() }),
        reconfigurations: of.reconfigurations,
        batch_changes: of.batch_changes,
        restarts: of.restarts,
        disruptions: of.disruptions,
        preemptions: of.preemptions,
        lost_gpu_hours: of.spent.rework.0 / 3_600.0,
        displaced: of.displaced.iter().map(displacement).collect(),
        last_failure: of.last_failure.as_ref().map(last_failure),
        last_fallback: of.last_fallback.as_ref().map(last_fallback),
        not_before: of.not_before.filter(|_| matches!(of.state, JobState::Queued { .. })).map(time),
        waiting: None,
        generation: of.generation.0,
        submitted_at: time(of.submitted_at),
        started_at: of.started_at.map(time),
        ended_at: ended.map(time),
        checkpoint: of.checkpoint.as_ref().map(|checkpoint| v1::CheckpointSummary {
            generation: checkpoint.generation.0,
            step: checkpoint.step,
            samples_seen: checkpoint.samples_seen.0,
            path: checkpoint.path.clone(),
            committed_at: of.checkpoint_at.map(time),
        }),
        min_share: spec.elastic.min_share,
        deadline: spec.limits.deadline.map(time),
        budget_gpu_hours: spec.limits.budget.map(|budget| budget.0 / 3_600.0),
        used_gpu_hours: of.attained.0 / 3_600.0,
        excluded_nodes: role.nodes.exclude.iter().cloned().collect(),
        included_nodes: role.nodes.only.include.iter().cloned().collect(),
        node_labels: role.nodes.only.labels.clone(),
        topology: role.nodes.topology.to_string(),
        array: super::job_array(of),
        stands_for: None,
        pin: of.pin.as_ref().map(|pin| v1::Pin {
            by: pin.by.clone(),
            reason: pin.reason.clone(),
            since: time(pin.since),
        }),
        version: of.version,
    }
}

/// Of a job that has ended and had GPUs.
pub fn efficiency_report(of: &Job) -> Option<v1::EfficiencyReport> {
    let ended = of.state.kind().is_final() && of.spent.total().0 > 0.0;
    let report = ended.then(|| efficiency::report(of, None))?;
    let advice = report.advice.into_iter();
    let advice = advice.map(|one| v1::EfficiencyAdvice { code: <&str>::from(one.code).into(), detail: one.detail });
    Some(v1::EfficiencyReport { summary: report.summary, advice: advice.collect() })
}

fn displacement(of: &Displacement) -> v1::Displacement {
    let displacer = |one: &Displacer| v1::Displacer {
        job_id: one.job.0,
        job_name: one.name.clone(),
        owner: one.owner.clone(),
        gpus: one.gpus.0,
    };
    v1::Displacement {
        at: time(of.at),
        generation: of.generation.0,
        by: of.by.iter().map(displacer).collect(),
        lost_gpu_hours: of.lost.0 / 3_600.0,
    }
}

fn with_allocation(job: v1::Job, allocation: &Allocation, record: &Job, view: &View) -> v1::Job {
    let held = if allocation.holds() { allocation.placement.gpus().0 } else { 0 };
    let used = if allocation.holds() { GpuTime::of(allocation, view.at).total().0 } else { 0.0 };
    let job = v1::Job {
        gpus: held,
        used_gpu_hours: job.used_gpu_hours + used / 3_600.0,
        nodes: allocation.placement.slices().iter().map(|slice| node_name(slice.node, view)).collect(),
        ..job
    };
    let Some(configuration) = &allocation.configuration else { return job };
    let seq_len = record.spec.training().map(|training| training.work.seq_len());
    v1::Job {
        layout: Some(configuration.layout.into()),
        execution: configuration.layout.execution.unless_plain(),
        micro_batch_sequences: Some(configuration.micro_batch.0),
        global_batch_sequences: Some(configuration.global_batch.0),
        global_batch_tokens: seq_len.map(|seq_len| configuration.global_batch.tokens(seq_len).0),
        accumulation: configuration.accumulation(),
        ..job
    }
}

fn with_numbers(job: v1::Job, record: &Job, live: &LiveNumbers) -> v1::Job {
    let job = if live.reported_at.is_some() { with_progress(job, record, live) } else { job };
    v1::Job {
        throughput_tokens_per_second: live.throughput.and_then(|rate| finite(rate.0)),
        goodput_tokens_per_second: live.goodput.and_then(|rate| finite(rate.0)),
        efficiency: live.efficiency.and_then(finite),
        noise_scale_tokens: live.noise_scale.and_then(finite),
        noise_error: live.noise_scale.and(live.noise_interval).and_then(|interval| finite(interval.log_error())),
        noise_low_tokens: live.noise_interval.and_then(|interval| finite(interval.low)),
        noise_high_tokens: live.noise_interval.and_then(|interval| interval.high).and_then(finite),
        loss: live.loss.filter(|_| record.not_finite_loss.is_none()).and_then(finite).or(job.loss),
        step: live.reported_at.map(|_| live.step).or(job.step),
        samples_seen: live.reported_at.map(|_| live.samples_seen.0).or(job.samples_seen),
        eta_seconds: live.remaining.and_then(|left| finite(left.0)),
        ..job
    }
}

fn with_progress(job: v1::Job, record: &Job, live: &LiveNumbers) -> v1::Job {
    let seen = record.tokens(live.samples_seen);
    v1::Job {
        seen_tokens: seen.0,
        progress_tokens: live.progress.0,
        credit_tokens: live.credit.0,
        progress_fraction: fraction(record, seen, live.progress),
        ..job
    }
}

/// What was asked for. Tokens stand in the values of the environment and in the addresses of webhooks; where they are not for the reader there
/// is null in their place, which no submission takes, so that nobody runs it without them unawares.
pub fn specification(of: &Job, with_environment: bool) -> serde_json::Value {
    let mut spec = headway_api::spec::to_json(&of.spec);
    if !with_environment && let Some(serde_json::Value::Object(env)) = spec.pointer_mut("/run/env") {
        env.values_mut().for_each(|value| *value = serde_json::Value::Null);
    }
    if !with_environment && let Some(serde_json::Value::Array(hooks)) = spec.pointer_mut("/notify") {
        hooks.iter_mut().for_each(|one| one["webhook"] = serde_json::Value::Null);
    }
    spec
}

/// That a job exists: what it is called, whose it is, how large, in which state. For whom its project is closed.
pub fn outline(of: v1::Job) -> v1::Job {
    v1::Job {
        labels: std::collections::BTreeMap::new(),
        state_cause: None,
        layout: None,
        execution: None,
        micro_batch_sequences: None,
        global_batch_sequences: None,
        global_batch_tokens: None,
        accumulation: None,
        throughput_tokens_per_second: None,
        goodput_tokens_per_second: None,
        efficiency: None,
        noise_scale_tokens: None,
        noise_error: None,
        noise_low_tokens: None,
        noise_high_tokens: None,
        noise_reports: None,
        unreachable: None,
        loss: None,
        loss_not_finite_since_step: None,
        step: None,
        samples_seen: None,
        last_change: None,
        checkpoint: None,
        pin: None,
        last_failure: None,
        last_fallback: None,
        displaced: vec![],
        waiting: of.waiting.map(waiting_outline),
        ..of
    }
}

/// Likewise of a row of the queue.
pub fn queued_outline(of: v1::QueuedJob) -> v1::QueuedJob {
    v1::QueuedJob { waiting: waiting_outline(of.waiting), ..of }
}

fn waiting_outline(of: v1::Waiting) -> v1::Waiting {
    v1::Waiting { headline: "It waits; why is told to members of its project".into(), ..of }
}

/// Since when, why, and when it ended for good.
fn state_data(state: &JobState) -> (Timestamp, Option<String>, Option<Timestamp>) {
    match state {
        JobState::Queued { since } | JobState::Starting { since, .. } | JobState::Running { since, .. } => {
            (*since, None, None)
        }
        JobState::Held { since, reason } => (*since, reason.clone(), None),
        JobState::Stopping { since, cause, .. } => (*since, Some(stop_in_words(cause)), None),
        JobState::Succeeded { at } => (*at, None, Some(*at)),
        JobState::Failed { at, message } => (*at, Some(message.clone()), Some(*at)),
        JobState::Cancelled { at, by, reason } => {
            let why = reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
            (*at, Some(format!("cancelled by {by}{why}")), Some(*at))
        }
    }
}

/// Of the job's target, by what it counts.
fn fraction(job: &Job, seen: Tokens, progress: Tokens) -> Option<f64> {
    let target = job.target().filter(|target| target.tokens.0 > 0.0)?;
    Some((target.counted(seen, progress).0 / target.tokens.0).clamp(0.0, 1.0))
}

pub fn job_change(of: v1::JobPatch) -> Result<JobChange, Problem> {
    if of.priority.is_some_and(|priority| priority > 100) {
        return Err(Problem::invalid("a priority is a number from 0 to 100").field("priority"));
    }
    if of.time_limit_seconds.is_some_and(|time| !(1.0..=1e9).contains(&time)) {
        return Err(Problem::invalid("a time limit is 1 s to 1e9 s").field("time_limit_seconds"));
    }
    let elastic = of.elastic.unwrap_or_default();
    let out_of = |field: &str, detail: &str| Err(Problem::invalid(detail).field(format!("elastic.{field}")));
    if elastic.min_runtime_seconds.is_some_and(|time| !(0.0..=1e9).contains(&time)) {
        return out_of("min_runtime_seconds", "a minimum runtime is 0 s to 1e9 s");
    }
    if elastic.max_overhead_pct.is_some_and(|share| !(0.0..=100.0).contains(&share)) {
        return out_of("max_overhead_pct", "moves cost between 0 and 100 % of a job's time");
    }
    if elastic.min_share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
        return out_of("min_share", "a share is above 0 and at most 1; 0 takes it away");
    }
    Ok(JobChange {
        priority: of.priority.map(Priority),
        min: of.gpus_min.map(GpuCount),
        max: of.gpus_max.map(GpuCount),
        labels: of.labels,
        time: of.time_limit_seconds.map(Seconds),
        elastic: ElasticChange {
            min_runtime: elastic.min_runtime_seconds.map(Seconds),
            max_resizes_per_hour: elastic.max_resizes_per_hour,
            max_overhead: elastic.max_overhead_pct.map(|share| share / 100.0),
            min_share: elastic.min_share,
        },
    })
}

fn last_fallback(of: &Fallback) -> v1::Fallback {
    v1::Fallback {
        at: time(of.at),
        generation: of.generation.0,
        step: of.step,
        samples_seen: of.samples_seen.0,
        committed_step: of.named.step,
        committed_path: of.named.path.clone(),
        lost_samples: of.lost().0,
    }
}

pub fn last_failure(of: &LastFailure) -> v1::LastFailure {
    v1::LastFailure {
        at: time(of.at),
        generation: of.generation.0,
        message: of.message.clone(),
        node: of.node.clone(),
        exit_code: of.exit_code,
    }
}

#[cfg(test)]
mod tests {
    use headway_types::{JobStateKind, NoiseSample, Sequences, StepReport};

    use super::*;
    use crate::http::fixtures;

    #[test]
    fn a_record_alone_shows_no_live_numbers() {
        let job = stored_job(&fixtures::job());
        assert_eq!((job.state, job.gpus, job.throughput_tokens_per_second), (JobStateKind::Queued, 0, None));
        assert_eq!((job.gpus_min, job.gpus_max, job.priority), (1, 8, 50));
    }

    #[test]
    fn a_live_job_shows_its_allocation_and_measurements() {
        let view = fixtures::running();
        let job = live_job(view.jobs.values().next().expect("one job"), &view);
        assert_eq!((job.state, job.gpus), (JobStateKind::Running, 2));
        assert_eq!(job.nodes, ["node-0"]);
        assert_eq!(job.layout, Some(v1::Layout { dp: 2, tp: 1, pp: 1 }));
        assert_eq!((job.global_batch_sequences, job.accumulation), (Some(32), Some(4)));
        assert_eq!(job.goodput_tokens_per_second, Some(900.0));
        assert_eq!(job.progress_fraction, Some(0.25));
    }

    #[test]
    fn an_unmeasured_number_is_absent_not_zero() {
        let view = fixtures::running();
        let goodput = Some(headway_types::TokensPerSecond(f64::NAN));
        let mut shown = JobView::clone(view.jobs.values().next().expect("one job"));
        shown.live = LiveNumbers { goodput, ..LiveNumbers::default() };
        let job = live_job(&shown, &view);
        assert_eq!((job.goodput_tokens_per_second, job.loss, job.step), (None, None, None));
    }

    #[test]
    fn noise_that_is_left_out_is_shown_with_its_reason() {
        let view = fixtures::running();
        let mut shown = JobView::clone(view.jobs.values().next().expect("one job"));
        assert_eq!(live_job(&shown, &view).noise_reports, None, "a curve of the user's has no noise");
        let tiny =
            headway_api::spec::read_yaml(include_str!("../../../../api/examples/tiny.yaml")).expect("an example");
        let mut model = headway_goodput::JobModel::new(tiny.training().expect("it trains").clone());
        let configuration = shown.allocation.as_ref().and_then(|held| held.configuration).expect("it is tuned");
        let impossible = NoiseSample { small_sqr: -1.0, big_sqr: 1.0, small_batch: 4.0, big_batch: 32.0 };
        let report = StepReport {
            job: shown.job.id,
            generation: shown.job.generation,
            step: 1,
            steps: 1,
            samples_seen: Sequences(32),
            tokens: Tokens(2048.0),
            duration: Seconds(1.0),
            configuration,
            loss: None,
            noise: Some(impossible),
            preconditioned: None,
            memory_peak: None,
        };
        let class = view.nodes.values().next().expect("one node").node.inventory.class();
        model.observe(&class, headway_types::NodeCount(1), &report);
        shown.model = Some(std::sync::Arc::new(model));
        let said = live_job(&shown, &view).noise_reports.expect("a modelled job");
        assert_eq!((said.kind.as_str(), said.impossible, said.outlying, said.other_kind), ("raw", 1, 0, 0));
        assert_eq!(said.missing.as_deref(), Some("no report with gradient norms yet"));
    }

    #[test]
    fn a_job_on_a_silent_node_says_which_and_since_when() {
        let mut view = fixtures::running();
        let reached = live_job(&view.jobs[&fixtures::job_id()], &view);
        assert_eq!((reached.unreachable, reached.state_cause), (None, None));
        let mut shown = (*view.nodes[&fixtures::node_id()]).clone();
        shown.connected = false;
        view.nodes.insert(fixtures::node_id(), std::sync::Arc::new(shown));
        let job = live_job(&view.jobs[&fixtures::job_id()], &view);
        let lost = job.unreachable.expect("its node is not connected");
        assert_eq!((lost.nodes.as_slice(), lost.since), (["node-0".to_owned()].as_slice(), time(fixtures::NOW)));
        assert!(job.state_cause.is_some_and(|cause| cause.starts_with("node-0 unreachable since 2026-")));
    }

    #[test]
    fn a_loss_that_is_not_finite_is_not_shown_as_its_last_number() {
        let view = fixtures::running();
        let mut shown = JobView::clone(&view.jobs[&fixtures::job_id()]);
        shown.live.loss = Some(2.6);
        assert_eq!(live_job(&shown, &view).loss, Some(2.6));
        let lost = headway_engine::record::NotFiniteLoss { generation: shown.job.generation, step: 41 };
        shown.job = std::sync::Arc::new(Job { not_finite_loss: Some(lost), loss: Some(2.6), ..Job::clone(&shown.job) });
        let job = live_job(&shown, &view);
        assert_eq!((job.loss, job.loss_not_finite_since_step), (None, Some(41)));
    }

    #[test]
    fn a_job_that_shall_stop_says_so() {
        let wish = headway_engine::record::Wish::Cancelled {
            by: "ada".into(),
            reason: Some("wrong data".into()),
            grace: None,
        };
        let job = Job { wish: Some(wish), ..fixtures::job() };
        assert_eq!(stored_job(&job).state_cause.as_deref(), Some("stops, cancelled by ada: wrong data"));
    }

    #[test]
    fn a_priority_beyond_the_scale_is_refused() {
        let patch = |priority| v1::JobPatch { priority: Some(priority), ..v1::JobPatch::default() };
        assert!(job_change(patch(100)).is_ok());
        assert!(job_change(patch(101)).is_err());
    }
}
