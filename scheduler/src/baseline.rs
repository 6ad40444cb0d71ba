//! The baselines that goodput is held against: what the jobs of the moment are predicted to make on the present nodes by rules that know nothing of goodput. They are
//! predicted, never measured, and decide nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_engine::record::Job;
use headway_engine::view::View;
use headway_forecast::{Baselines, RULES};
use headway_planner::{PlanInput, PlanJob, PlanWork, Premises};
use headway_types::{GpuCount, JobId, TokensPerSecond};

/// Of more jobs none is worked out: it would take seconds of a processor.
pub const JOBS_AT_MOST: usize = 200;

/// What a job would have and make.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    pub gpus: GpuCount,
    /// Reference tokens per second; 0 of a job that would wait.
    pub goodput: TokensPerSecond,
}

/// A job of the round, or one that has ended or is held as if it were submitted again; with what has been learnt of it.
pub fn asked_about(view: &View, round: &PlanInput, record: &Job) -> PlanJob {
    let known = round.jobs.iter().find(|job| job.job == record.id);
    known.cloned().unwrap_or_else(|| {
        let learnt = view.jobs.get(&record.id).and_then(|live| live.model.clone()).map(PlanWork::Model);
        let work = learnt.unwrap_or_else(|| PlanWork::of(&record.spec, &round.lessons));
        let premises = Premises::new(&round.nodes, round.jobs.len() + 1);
        premises.job(record.id, &record.spec, &record.owner, record.submitted_at, work)
    })
}

/// What each of these jobs that has a model would do on an equal share of the present nodes.
pub fn static_split(view: &View, records: &[Arc<Job>]) -> BTreeMap<JobId, Share> {
    let (round, jobs) = anew(view, records);
    let ids: Vec<JobId> = jobs.iter().map(|job| job.job).collect();
    let split = headway_forecast::static_split(round, jobs).unwrap_or_else(|error| {
        tracing::warn!(error = &error as &dyn std::error::Error, "the static split failed");
        BTreeMap::new()
    });
    let share = |job: &JobId| {
        let at = split.get(job);
        at.map_or_else(Share::default, |at| Share { gpus: at.placement.gpus(), goodput: at.predicted.goodput })
    };
    ids.iter().map(|job| (*job, share(job))).collect()
}

/// What jobs make by a rule; `None`: it failed.
pub type Made = Option<BTreeMap<JobId, TokensPerSecond>>;

/// What each of these jobs that has a model would make by each rule.
pub fn baselines(view: &View, records: &[Arc<Job>]) -> Baselines<Made> {
    let (round, jobs) = anew(view, records);
    RULES.map(|(name, rule)| {
        let given = rule(round.clone(), jobs.clone()).inspect_err(|error| {
            tracing::warn!(error = error as &dyn std::error::Error, "the baseline {name} failed");
        });
        let given = given.ok()?;
        let made = |job: &PlanJob| given.get(&job.job).map_or(TokensPerSecond(0.0), |at| at.predicted.goodput);
        Some(jobs.iter().map(|job| (job.job, made(job))).collect())
    })
}

/// The jobs that have a model, as if none of them had anything yet.
fn anew(view: &View, records: &[Arc<Job>]) -> (PlanInput, Vec<PlanJob>) {
    let round = view.round();
    let jobs = records.iter().map(|record| PlanJob { current: None, ..asked_about(view, &round, record) });
    let jobs: BTreeMap<JobId, PlanJob> = jobs.filter(|job| !job.work.is_opaque()).map(|job| (job.job, job)).collect();
    (round, jobs.into_values().collect())
}

/// Jobs that have GPUs or want some now.
pub fn wanting(view: &View) -> Vec<Arc<Job>> {
    let wants = view.jobs.values().filter(|shown| shown.job.wants_gpus(view.at));
    wants.map(|shown| Arc::clone(&shown.job)).collect()
}

/// What baselines depend on, as far as it changes by itself: who wants GPUs, and which there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Situation {
    pub jobs: BTreeSet<JobId>,
    gpus: BTreeMap<headway_types::NodeId, GpuCount>,
}

impl Situation {
    pub fn of(view: &View) -> Self {
        let usable = view.nodes.iter().filter(|(_, node)| node.takes_work() || !node.held.is_empty());
        Self {
            jobs: wanting(view).iter().map(|job| job.id).collect(),
            gpus: usable.map(|(id, node)| (*id, node.node.inventory.healthy())).collect(),
        }
    }
}

#[cfg(test)]
pub mod tests {
    use headway_engine::view::JobView;
    use headway_goodput::JobModel;

    use super::*;
    use crate::http::fixtures;

    /// The job of the fixtures with what is known of it.
    pub fn modelled() -> View {
        let mut view = fixtures::running();
        let shown = JobView::clone(&view.jobs[&fixtures::job_id()]);
        let model = shown.job.spec.training().map(|training| Arc::new(JobModel::new(training.clone())));
        view.jobs.insert(fixtures::job_id(), Arc::new(JobView { model, ..shown }));
        view
    }

    #[test]
    fn a_job_alone_has_a_share_and_makes_something_of_it() {
        let view = modelled();
        let split = static_split(&view, &wanting(&view));
        let share = split[&fixtures::job_id()];
        assert!(share.gpus > GpuCount(0) && share.goodput.0 > 0.0, "{share:?}");
        let by_rule = baselines(&view, &wanting(&view)).map(|made| made.expect("no rule fails")[&fixtures::job_id()]);
        assert_eq!(by_rule.static_split, share.goodput);
        assert!(by_rule.into_array().iter().all(|rate| rate.0 > 0.0), "{by_rule:?}");
        assert_eq!(Situation::of(&view), Situation::of(&view));
    }
}
