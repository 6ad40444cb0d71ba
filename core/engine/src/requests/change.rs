//! What may be changed of a job that exists: priority, sizes, time limit, labels, how often and whether it may be moved.

use headway_types::report::Flexibility;
use headway_types::spec::{Elasticity, GpuRange};
use headway_types::{GpuCount, JobId, JobSpec, Seconds};

use crate::draft::Note;
use crate::engine::Engine;
use crate::event::{Actor, ElasticChange, JobChange};
use crate::outcome::{Refusal, Reply};
use crate::record::{Job, Pin, UserLoad, weight};

impl Engine {
    /// `expected`: only if the job is at this version now; what a batch has touched already is at the next one.
    pub(super) fn change_job(
        &mut self,
        actor: &Actor,
        id: JobId,
        change: JobChange,
        expected: Option<u64>,
    ) -> Result<Reply, Refusal> {
        let job = self.live_job(id)?;
        let version = job.version + u64::from(self.facts.draft.jobs.contains(&id));
        if expected.is_some_and(|expected| expected != version) {
            return Err(Refusal::VersionChanged { what: format!("job {}", job.spec.name), now: version });
        }
        let (before, after) = (&job.spec, changed(&job.spec, change)?);
        check_layout(job, &after)?;
        if before.role().gpus != after.role().gpus {
            refuse_new_sizes(job)?;
        }
        let what = differences(before, &after);
        if what.is_empty() {
            return self.job_reply(id);
        }
        let message = format!("of {}: {}", after.name, what.join(", "));
        let grows = weight(&after).saturating_sub(weight(before));
        self.within_quota(&job.owner, UserLoad { jobs: 0, bytes: grows })?;
        self.facts.edit_spec(id, |job| job.spec = after);
        self.facts.note(Note::new("job.changed", message.clone()).by(actor.clone()).job(id));
        self.facts.ask_round_for_somebody(message);
        self.job_reply(id)
    }

    pub(super) fn pin(&mut self, actor: &Actor, id: JobId, reason: Option<String>) -> Result<Reply, Refusal> {
        let name = self.live_job(id)?.spec.name.clone();
        let pin = Pin { by: actor.to_string(), reason, since: self.facts.now };
        let message = format!("{name} stays on the GPUs it has: {pin}");
        self.facts.edit_job(id, |job| job.pin = Some(pin));
        self.facts.note(Note::new("job.pinned", message).by(actor.clone()).job(id));
        self.facts.ask_round_for_somebody(format!("{name} was pinned"));
        self.job_reply(id)
    }

    pub(super) fn unpin(&mut self, actor: &Actor, id: JobId) -> Result<Reply, Refusal> {
        let job = self.live_job(id)?;
        let name = job.spec.name.clone();
        if job.pin.is_none() {
            return Err(Refusal::WrongState("job is not pinned".into()));
        }
        self.facts.edit_job(id, |job| job.pin = None);
        self.facts.note(Note::new("job.unpinned", format!("{name} may be moved again")).by(actor.clone()).job(id));
        self.facts.ask_round_for_somebody(format!("{name} may be moved again"));
        self.job_reply(id)
    }
}

pub(super) fn changed(spec: &JobSpec, change: JobChange) -> Result<JobSpec, Refusal> {
    let mut after = spec.clone();
    let invalid = |what: String| Refusal::Invalid(what);
    if let Some(priority) = change.priority {
        if priority.0 > 100 {
            return Err(invalid(format!("priority {} is above 100", priority.0)));
        }
        after.priority = priority;
    }
    if let Some(labels) = change.labels {
        after.labels = labels;
    }
    if let Some(time) = change.time {
        if !(time.0.is_finite() && time.0 > 0.0) {
            return Err(invalid("a time limit is more than nothing".into()));
        }
        // As a submission is told.
        if let Some(notice) = after.limits.signal.filter(|notice| notice.before.0 >= time.0) {
            let before = notice.before.0;
            return Err(invalid(format!(
                "its signal comes {before} s before the time limit, which would be {} s",
                time.0
            )));
        }
        after.limits.time = Some(time);
    }
    change_elastic(&mut after.elastic, change.elastic)?;
    let tuned = spec.training().is_some();
    if let Some(role) = after.roles.first_mut() {
        let range = &mut role.gpus;
        range.min = change.min.unwrap_or(range.min);
        range.max = change.max.unwrap_or(range.max);
        check_range(range, tuned)?;
    }
    Ok(after)
}

fn change_elastic(elastic: &mut Elasticity, change: ElasticChange) -> Result<(), Refusal> {
    let invalid = |what: &str| Err(Refusal::Invalid(what.into()));
    if change.min_runtime.is_some_and(|time| !(time.0.is_finite() && time.0 >= 0.0)) {
        return invalid("a minimum runtime is not negative");
    }
    if change.max_overhead.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
        return invalid("moves cost between none and all of a job's time");
    }
    if change.min_share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
        return invalid("min_share is above 0 and at most 1; 0 takes it away");
    }
    elastic.min_runtime = change.min_runtime.unwrap_or(elastic.min_runtime);
    elastic.max_resizes_per_hour = change.max_resizes_per_hour.unwrap_or(elastic.max_resizes_per_hour);
    elastic.max_overhead = change.max_overhead.unwrap_or(elastic.max_overhead);
    elastic.min_share = match change.min_share {
        None => elastic.min_share,
        Some(share) => (share > 0.0).then_some(share),
    };
    Ok(())
}

fn check_range(range: &GpuRange, tuned: bool) -> Result<(), Refusal> {
    let invalid = |what: &str| Err(Refusal::Invalid(what.into()));
    if range.min == GpuCount(0) || range.min > range.max {
        return invalid("the least number of GPUs must be at least 1 and at most the largest");
    }
    if !range.sizes.is_empty() && !range.sizes.iter().any(|size| range.allows(*size)) {
        return Err(Refusal::Invalid(format!(
            "the job takes no size of {} to {} GPUs{}",
            range.min,
            range.max,
            closest(range)
        )));
    }
    if !tuned && range.min != range.max {
        return invalid("a job without a training section has one size");
    }
    Ok(())
}

/// "; the closest it takes are 4 and 8": of its sizes the largest below and the smallest above.
fn closest(range: &GpuRange) -> String {
    let below = range.sizes.iter().filter(|size| **size < range.min).max();
    let above = range.sizes.iter().filter(|size| **size > range.max).min();
    match (below, above) {
        (Some(below), Some(above)) => format!("; the closest it takes are {below} and {above}"),
        (Some(only), None) | (None, Some(only)) => format!("; the closest it takes is {only}"),
        (None, None) => String::new(),
    }
}

/// A script that cannot reshard has the size of its layout for good.
pub(super) fn check_layout(job: &Job, after: &JobSpec) -> Result<(), Refusal> {
    let Some(layout) = job.layout.filter(|_| job.able().layout == Flexibility::Never) else { return Ok(()) };
    let range = &after.role().gpus;
    if *range != job.spec.role().gpus && !range.allows(layout.gpus()) {
        let gpus = layout.gpus();
        return Err(Refusal::WrongState(format!(
            "its checkpoints are bound to {layout}, which takes {}: that is the closest size, and the only one",
            gpus.words()
        )));
    }
    Ok(())
}

/// A job that holds GPUs and must not run twice has the size it has.
pub(super) fn refuse_new_sizes(job: &Job) -> Result<(), Refusal> {
    if job.spec.limits.forbid_restart() && job.state.generation().is_some() {
        let why = "job must not run twice (limits.restartable: false), so it keeps its GPUs until it ends";
        return Err(Refusal::WrongState(why.into()));
    }
    Ok(())
}

fn differences(before: &JobSpec, after: &JobSpec) -> Vec<String> {
    let (from, to) = (&before.role().gpus, &after.role().gpus);
    let time = |limit: Option<Seconds>| limit.map_or_else(|| "none".into(), |limit| format!("{:.0} s", limit.0));
    let moves = |spec: &JobSpec| spec.elastic.max_resizes_per_hour.to_string();
    let share = |share: Option<f64>| share.map_or_else(|| "none".into(), |share| format!("{} %", 100.0 * share));
    let told = [
        ("priority", before.priority.0.to_string(), after.priority.0.to_string()),
        ("least GPUs", from.min.to_string(), to.min.to_string()),
        ("most GPUs", from.max.to_string(), to.max.to_string()),
        ("minimum runtime", time(Some(before.elastic.min_runtime)), time(Some(after.elastic.min_runtime))),
        ("moves per hour", moves(before), moves(after)),
        (
            "share of its time for moves",
            share(Some(before.elastic.max_overhead)),
            share(Some(after.elastic.max_overhead)),
        ),
        ("share of its fair share that it is sure of", share(before.elastic.min_share), share(after.elastic.min_share)),
        ("time limit", time(before.limits.time), time(after.limits.time)),
    ];
    let numbers = told.into_iter().filter(|(_, before, after)| before != after);
    let mut differences: Vec<String> =
        numbers.map(|(what, before, after)| format!("{what} {before} becomes {after}")).collect();
    if before.labels != after.labels {
        differences.push("labels".into());
    }
    differences
}
