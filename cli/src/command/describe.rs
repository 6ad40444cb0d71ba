//! `headway describe`: one job whole, as a page for people and as it is for programs. Of a job that failed the last lines of the rank that did are
//! part of it.

use chrono::{DateTime, Utc};
use clap::Args;
use headway_api::client::Client;
use headway_api::v1::{Delivery, Displacement, Fallback, Job, JobDetail, LastFailure, Waiting};
use headway_api::yaml;
use headway_goodput::summary::summarize_model;
use headway_types::{JobStateKind, ModelShape};
use serde_json::Value;

use super::last_lines::LastLines;
use super::{ps, resolve_job};
use crate::failure::{Failure, Kind};
use crate::output::{self, Printer, duration, moment, si};

/// Notices that a page shows, at most.
const MOST_NOTICES: usize = 10;

#[derive(Args, Clone, Debug)]
pub struct Describe {
    /// Id, unique end or beginning of one, or name.
    pub job: String,
}

pub async fn run(client: &Client, print: &Printer, describe: Describe) -> Result<(), Failure> {
    let id = resolve_job(client, &describe.job).await?;
    let detail = client.job(&id).await?;
    if print.is_for_programs() {
        return print.one(&detail, &detail.job.id.to_string());
    }
    let log = match failed(&detail.job) {
        Some(failure) => Some(LastLines::of(client, &id, failure).await),
        None => None,
    };
    let notified = detail.spec.get("notify").is_some();
    let told = if notified { client.deliveries(&id).await? } else { Vec::new() };
    put!("{}", text(&detail, log.as_ref(), &told, Utc::now())?)?;
    Ok(())
}

/// The failure, where what a person wants to know is how it failed.
fn failed(job: &Job) -> Option<&LastFailure> {
    let waits_to_try_again = job.state == JobStateKind::Queued && job.not_before.is_some();
    job.last_failure.as_ref().filter(|_| waits_to_try_again || job.state == JobStateKind::Failed)
}

fn text(of: &JobDetail, log: Option<&LastLines>, told: &[Delivery], now: DateTime<Utc>) -> Result<String, Failure> {
    let mut page = Page::default();
    page.0.push(format!("{} ({})", of.job.name, of.job.id));
    lot(&mut page, &of.job, now);
    order(&mut page, of);
    page.line("restarts", restarts(&of.spec));
    page.line("model", describe_model(&of.spec));
    run_as(&mut page, &of.job);
    history(&mut page, &of.job, now);
    if let Some(LastLines { rank, lines }) = log {
        page.0.push(format!("Last lines of rank {rank}"));
        match lines {
            Ok(lines) if lines.is_empty() => page.0.push("  (it wrote nothing)".into()),
            Ok(lines) => page.0.extend(lines.lines().map(|line| format!("  {line}"))),
            Err(error) => page.0.push(format!("  (cannot be read: {error})")),
        }
    }
    notices(&mut page, told, now);
    if let Some(report) = &of.report {
        page.0.push(format!("It {}", report.summary));
        page.0.extend(report.advice.iter().map(|one| format!("  - {}", one.detail)));
    }
    let mut spec = of.spec.clone();
    without_nulls(&mut spec);
    let spec = yaml::write(&spec).map_err(|error| Failure::new(Kind::Failed, format!("printing: {error}")))?;
    page.0.push("Specification".into());
    page.0.extend(spec.trim_end().lines().map(|line| format!("  {line}")));
    Ok(page.0.join("\n") + "\n")
}

/// Lines; what is not known has none.
#[derive(Default)]
struct Page(Vec<String>);

impl Page {
    fn line(&mut self, name: &str, value: impl Into<Option<String>>) {
        if let Some(value) = value.into() {
            self.0.push(format!("  {name:<11} {value}"));
        }
    }
}

/// Of what webhooks were told the newest, and all that did not arrive.
fn notices(page: &mut Page, told: &[Delivery], now: DateTime<Utc>) {
    let shown: Vec<&Delivery> =
        told.iter().enumerate().filter(|(at, one)| *at < 5 || one.state != "delivered").map(|(_, one)| one).collect();
    if shown.is_empty() {
        return;
    }
    page.0.push("Webhooks".into());
    for one in shown.into_iter().take(MOST_NOTICES) {
        let error = one.last_error.as_ref().map_or(String::new(), |error| format!(": {error}"));
        let state = match (one.state.as_str(), one.next_at) {
            ("waiting", Some(next)) if one.attempts > 0 => {
                format!("failed {} times, next in {}{error}", one.attempts, duration(seconds(next, now).max(0.0)))
            }
            ("given_up", _) => format!("given up after {} attempts{error}", one.attempts),
            (state, _) => state.to_owned(),
        };
        page.0.push(format!("  {} {} {}: {state}", moment(one.at), one.kind, one.webhook));
    }
}

/// Where it stands, why, and what comes.
fn lot(page: &mut Page, job: &Job, now: DateTime<Utc>) {
    let long = |since: DateTime<Utc>| duration(seconds(now, since));
    let state = match job.ended_at {
        Some(ended) => format!("{} {} ago, {}", job.state, long(ended), moment(ended)),
        None => {
            let lost = ps::unreachable(job, now).map(|lost| format!(" ({lost})")).unwrap_or_default();
            format!("{}{lost} for {}, since {}", job.state, long(job.state_since), moment(job.state_since))
        }
    };
    page.line("state", state);
    let why = ps::why(job, now);
    page.line("why", (why != "-").then_some(why));
    page.line("starts", job.waiting.as_ref().and_then(|waiting| starts(waiting, now)));
    page.line("owner", format!("{}, project {}, priority {}", job.owner, job.project, job.priority));
    let labels: Vec<String> = job.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let array = job.array.as_ref();
    page.line("array", array.map(|of| format!("element {} of {} ({} elements)", of.index, of.name, of.count)));
    page.line("labels", (!labels.is_empty()).then(|| labels.join(", ")));
    let pin = job.pin.as_ref();
    page.line("pinned", pin.map(|pin| format!("by {}{}", pin.by, because(pin.reason.as_deref()))));
    page.line("submitted", format!("{}, {} ago", moment(job.submitted_at), long(job.submitted_at)));
    let waited =
        |started: DateTime<Utc>| format!("{}, after {}", moment(started), duration(seconds(started, job.submitted_at)));
    page.line("started", job.started_at.map(waited));
}

/// Whether it may be started again, where its specification says so.
fn restarts(spec: &serde_json::Value) -> Option<String> {
    let told = match spec["limits"]["restartable"].as_bool()? {
        true => "at any time: other jobs may take its GPUs (limits.restartable: true)",
        false => "never: it must not run twice (limits.restartable: false)",
    };
    Some(told.to_owned())
}

/// Who comes before it, and before whom it comes.
fn order(page: &mut Page, of: &JobDetail) {
    for one in &of.after {
        let array = one.array_id.map_or("", |_| "array ");
        let name =
            one.name.clone().map_or_else(|| "a job that is not yours to see".into(), |name| format!("{array}{name}"));
        let state = one.state.map(|state| format!(", which is {state}")).unwrap_or_default();
        page.line("after", format!("{} of {name}{state}: {}", one.on, one.standing));
    }
    for one in &of.dependents {
        page.line("before", format!("{}, which is {} and waits for {}: {}", one.name, one.state, one.on, one.standing));
    }
}

/// Describes the model that a specification as admitted trains; `None` where it names none.
fn describe_model(spec: &Value) -> Option<String> {
    let shape: ModelShape = serde_json::from_value(spec.pointer("/training/model")?.clone()).ok()?;
    Some(summarize_model(&shape))
}

/// What it runs on and as what, how fast, and how far it is.
fn run_as(page: &mut Page, job: &Job) {
    let range = match (job.gpus_min, job.gpus_max) {
        (min, max) if min == max => format!("{min}"),
        (min, max) => format!("{min} to {max}"),
    };
    let held = (job.gpus > 0).then(|| format!("{} of {range}, on {}", job.gpus, job.nodes.join(", ")));
    page.line("GPUs", held.unwrap_or_else(|| format!("none of {range}")));
    let more = job.execution.unwrap_or_default();
    let layout = job.layout.map(|layout| format!("dp {} × tp {} × pp {}{more}", layout.dp, layout.tp, layout.pp));
    page.line("layout", layout.map(|layout| format!("{layout}, batch {}", ps::batch(job))));
    let throughput = job.throughput_tokens_per_second.zip(job.efficiency);
    let goodput = job.goodput_tokens_per_second.map(|rate| {
        let parts = throughput.map(|(raw, efficiency)| format!(" ({} tokens/s × {efficiency:.2})", si(raw)));
        format!("{} tokens/s{}", si(rate), parts.unwrap_or_default())
    });
    page.line("goodput", goodput);
    let left = job.eta_seconds.map(|left| format!(", {} left", duration(left))).unwrap_or_default();
    let target = job.target_tokens.map(si).unwrap_or_default();
    page.line("progress", job.progress_fraction.map(|part| format!("{:.1} % of {target} tokens{left}", part * 100.0)));
    let lost = job.loss_not_finite_since_step.map(|step| format!("NaN: not a finite number since step {step}"));
    page.line("loss", lost.or(job.loss.map(|loss| format!("{loss:.4}"))));
}

/// Where a start went on that passed over the committed checkpoint.
fn fallback(one: &Fallback, now: DateTime<Utc>) -> String {
    format!(
        "{} ago, to step {} in place of step {}: {} samples are trained again",
        duration(seconds(now, one.at)),
        one.step,
        one.committed_step,
        one.lost_samples
    )
}

/// What befell it, and what that cost.
fn history(page: &mut Page, job: &Job, now: DateTime<Utc>) {
    let counted = [
        (job.restarts, "by failures of its own"),
        (job.disruptions, "by failures of others"),
        (job.preemptions, "since others needed its GPUs more"),
        (job.reconfigurations, "to move"),
    ];
    let stops: Vec<String> =
        counted.iter().filter(|(times, _)| *times > 0).map(|(times, what)| format!("{times} {what}")).collect();
    page.line("stops", (!stops.is_empty()).then(|| stops.join(", ")));
    let used = (job.used_gpu_hours > 0.0).then(|| output::gpu_hours(job.used_gpu_hours));
    let lost =
        if job.lost_gpu_hours > 0.0 { format!(", {:.2} of them lost", job.lost_gpu_hours) } else { String::new() };
    page.line("used", used.map(|used| used + &lost));
    job.displaced.iter().for_each(|one| page.line("displaced", displaced(one)));
    let failure = job.last_failure.as_ref();
    page.line("last failed", failure.map(|one| format!("{} ago, {}", duration(seconds(now, one.at)), one.message)));
    page.line("fell back", job.last_fallback.as_ref().map(|one| fallback(one, now)));
    page.line("last change", job.last_change.as_ref().map(|change| change.reason.clone()));
    let saved = job.checkpoint.as_ref().map(|one| {
        let at = one.committed_at.map(|at| format!(", {} ago", duration(seconds(now, at))));
        format!("step {}{} in {}", one.step, at.unwrap_or_default(), one.path)
    });
    page.line("checkpoint", saved);
}

fn displaced(of: &Displacement) -> String {
    let by: Vec<String> =
        of.by.iter().map(|one| format!("{} of {} ({})", one.job_name, one.owner, output::gpus(one.gpus))).collect();
    let lost =
        if of.lost_gpu_hours > 0.0 { format!(", {:.2} GPU-hours lost", of.lost_gpu_hours) } else { String::new() };
    format!("{} by {}{lost}", moment(of.at), by.join(", "))
}

fn starts(waiting: &Waiting, now: DateTime<Utc>) -> Option<String> {
    let within = |at: DateTime<Utc>| duration(seconds(at, now));
    let place = waiting.position.map(|place| format!(", as number {place} of those that wait")).unwrap_or_default();
    Some(match (waiting.p10?, waiting.p50, waiting.p90) {
        (p10, Some(p50), Some(p90)) => {
            format!("in {} to {}, as likely before as after {}{place}", within(p10), within(p90), within(p50))
        }
        (p10, Some(p50), None) => {
            format!("in {} at the earliest, as likely before as after {}{place}", within(p10), within(p50))
        }
        (p10, None, _) => format!("in {} at the earliest{place}", within(p10)),
    })
}

fn seconds(later: DateTime<Utc>, earlier: DateTime<Utc>) -> f64 {
    (later - earlier).num_milliseconds() as f64 / 1_000.0
}

fn because(reason: Option<&str>) -> String {
    reason.map_or_else(String::new, |reason| format!(": {reason}"))
}

/// What was not said is not shown.
fn without_nulls(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use headway_api::v1::{Dependency, Dependent, EfficiencyAdvice, EfficiencyReport};
    use headway_types::spec::Condition;

    use super::super::ps::tests::{jobs, now};
    use super::*;

    fn page(index: usize, log: Option<LastLines>) -> String {
        let spec = serde_json::json!({
            "version": 1, "name": "x", "image": null, "resources": {"gpus": {"min": 1, "type": null}},
            "run": {"command": ["sleep", "1"]},
        });
        let job = jobs().remove(index);
        let report = job.ended_at.map(|_| EfficiencyReport {
            summary: "used 0.66 GPU-hours: 88 % useful, 12 % starting".into(),
            advice: vec![EfficiencyAdvice {
                code: "slow_start".into(),
                detail: "12 % of its GPU-time went into 1 starts".into(),
            }],
        });
        let state = Some(JobStateKind::Running);
        let prep = Dependency {
            job_id: Some(job.id),
            array_id: None,
            name: Some("prep".into()),
            on: Condition::Success,
            standing: "open".into(),
            settled_at: None,
            state,
        };
        let hidden = Dependency { job_id: None, name: None, state: None, ..prep.clone() };
        let dependent = Dependent {
            job_id: job.id,
            name: "eval".into(),
            on: Condition::Any,
            standing: "open".into(),
            state: JobStateKind::Queued,
        };
        let waits = job.state == JobStateKind::Queued && job.not_before.is_none();
        let (after, dependents) = if waits { (vec![prep, hidden], vec![dependent]) } else { Default::default() };
        let detail = JobDetail { job, spec, report, after, dependents };
        text(&detail, log.as_ref(), &[], now()).expect("plain values")
    }

    #[test]
    fn a_running_job_has_its_numbers_and_what_befell_it() {
        insta::assert_snapshot!(page(0, None));
    }

    #[test]
    fn a_model_is_described_from_the_specification_as_admitted() {
        let shape = headway_types::preset::named("mixtral-8x7b").expect("a preset").shape();
        let spec = serde_json::json!({ "training": { "model": shape } });
        let line = "47B parameters, 13B active; 32 layers, 8 experts, 2 active; sequence length 4096";
        assert_eq!(describe_model(&spec).as_deref(), Some(line));
        assert_eq!(describe_model(&serde_json::json!({ "training": { "curve": {} } })), None);
    }

    #[test]
    fn a_waiting_job_says_why_and_when() {
        insta::assert_snapshot!(page(1, None));
    }

    #[test]
    fn a_job_that_failed_shows_exit_code_node_and_last_lines() {
        let log = LastLines { rank: 3, lines: Ok("step 41\nCUDA error: an illegal memory access\n".into()) };
        let jobs = jobs();
        assert_eq!([2, 4, 0, 1].map(|index| failed(&jobs[index]).is_some()), [true, true, false, false]);
        insta::assert_snapshot!(page(2, Some(log)));
        let gone = LastLines { rank: 0, lines: Err("node h100-0007 is not connected".into()) };
        assert!(page(4, Some(gone)).contains("(cannot be read: node h100-0007 is not connected)"));
    }

    #[test]
    fn a_job_that_has_ended_says_what_it_made_of_its_time() {
        insta::assert_snapshot!(page(5, None));
    }

    #[test]
    fn nothing_is_null() {
        for index in 0..jobs().len() {
            assert!(!page(index, None).contains("null"));
        }
    }
}
