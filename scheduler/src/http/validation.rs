//! What a submission would find, were it made: sizes on the present nodes, quotas, jobs that come before, the start. Nothing is stored.

use std::future::Future;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::HeaderMap;
use headway_api::v1;
use headway_planner::{CurveCache, PlanInput, PlanJob, never_while, quota, sizes_while};
use headway_types::{JobId, JobSpec, Timestamp};
use tokio::sync::Semaphore;

use super::auth::Principal;
use super::extract::{Json, too_large};
use super::problem::Problem;
use super::submit::read;
use super::{HttpState, admission, conversions, dependencies, goodput, secrets};
use crate::asking::{Trial, Unanswered};
use crate::metrics;

/// Checks that run at once; they keep nobody from a curve.
static CHECKS: Semaphore = Semaphore::const_new(1);
/// Jobs that are not checked within this are too many. With the wait for a turn before and the trial behind it, it stays
/// below the request limit.
const CHECK_TIME: Duration = Duration::from_secs(8);
/// A prediction that takes longer is left out, and the reply says so.
const TRIAL_TIME: Duration = Duration::from_secs(15);

/// Check a specification and say which sizes the job could run at on the present nodes, what its project's quota says to
/// that, and when it would start. Nothing is stored.
#[utoipa::path(post, path = "/jobs/validate", tag = "jobs",
    request_body(content((v1::JobSubmission = "application/json"), (String = "application/yaml"))),
    responses((status = 200, body = v1::Validation), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn validate(
    State(state): State<HttpState>,
    caller: Principal,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<v1::Validation>, Problem> {
    let body = body.map_err(|_| too_large())?;
    let mut jobs = read(&headers, body).await?;
    admission::name_types(&state.cluster.view(), &mut jobs, false)?;
    admission::check_priorities(&caller, &jobs)?;
    secrets::check_named(&state, &caller, &jobs).await?;
    Ok(Json(verdicts(&state, &caller, jobs).await?))
}

/// Likewise of specifications that have been read and allowed.
pub async fn verdicts(state: &HttpState, caller: &Principal, specs: Vec<JobSpec>) -> Result<v1::Validation, Problem> {
    let waits_for = dependencies::named(state, caller, &specs).await?.waits_for;
    let (view, user, asked) = (state.cluster.view(), caller.name().to_owned(), specs.clone());
    let check = move || {
        let until = Instant::now() + CHECK_TIME;
        undisturbed(view.round(), &asked, &user, || Instant::now() < until)
    };
    let mut verdicts = goodput::off_the_reactor(&CHECKS, check).await??;
    for (verdict, waits_for) in verdicts.iter_mut().zip(waits_for) {
        verdict.start_left_out = waits_for.first().map(|first| format!("it {first}, and nobody predicts when that is"));
        verdict.waits_for = waits_for;
    }
    let (free, specs): (Vec<_>, Vec<_>) =
        verdicts.iter_mut().zip(&specs).filter(|(verdict, _)| verdict.waits_for.is_empty()).unzip();
    if !free.is_empty() {
        match trial(state, caller, &specs).await {
            Ok(trial) => tell_starts(free, &trial, state.cluster.now()),
            Err(why) => free.into_iter().for_each(|verdict| verdict.start_left_out = Some(why.clone())),
        }
    }
    Ok(v1::Validation { jobs: verdicts })
}

fn tell_starts(verdicts: Vec<&mut v1::JobValidation>, trial: &Trial, now: Timestamp) {
    for (verdict, id) in verdicts.into_iter().zip(&trial.jobs) {
        verdict.starts_with_gpus = trial.plan.assignments.get(id).map(|one| one.placement.gpus().0);
        let start = trial.forecast.starts.get(id);
        verdict.predicted_start = start.map(|start| conversions::predicted_start(start, trial.forecast.method, now));
    }
}

/// The newest round solved with the jobs in it, or why it is not.
async fn trial(state: &HttpState, caller: &Principal, specs: &[&JobSpec]) -> Result<Trial, String> {
    let round = state.asking.round().ok_or("no round has been planned yet")?;
    let jobs = round.input.submitted(specs.iter().copied(), caller.name());
    within(TRIAL_TIME, state.asking.trial(caller.name(), round, jobs))
        .await
        .inspect_err(|_| metrics::answer_left_out("trial"))
}

async fn within<T>(limit: Duration, trial: impl Future<Output = Result<T, Unanswered>>) -> Result<T, String> {
    match tokio::time::timeout(limit, trial).await {
        Ok(Ok(trial)) => Ok(trial),
        Ok(Err(Unanswered::BrokeDown)) => {
            Err("the round with it could not be planned; the scheduler's log says why".into())
        }
        Ok(Err(many)) => Err(format!("{many}; ask again")),
        Err(_) => Err(format!("planning the round with it takes longer than {} s; ask again", limit.as_secs())),
    }
}

/// What jobs would find were nobody else on the nodes, and what quotas say, as long as `go_on` has the patience.
fn undisturbed(
    round: PlanInput,
    specs: &[JobSpec],
    user: &str,
    mut go_on: impl FnMut() -> bool,
) -> Result<Vec<v1::JobValidation>, Problem> {
    let jobs = round.submitted(specs.iter(), user);
    let (ids, round): (Vec<JobId>, _) = (jobs.iter().map(|job| job.job).collect(), round.with(jobs.clone()));
    let mut sizes = sizes_while(&round, &ids, &mut CurveCache::new(), &mut go_on);
    if sizes.len() < jobs.len() {
        let (checked, all) = (sizes.len(), jobs.len());
        let detail = format!("only {checked} of {all} jobs could be checked in {} s", CHECK_TIME.as_secs());
        return Err(Problem::invalid(detail).field("jobs").hint("check fewer at once; submitting takes them all"));
    }
    let nowhere: Vec<JobId> = ids.into_iter().filter(|id| sizes[id].feasible.is_empty()).collect();
    let (mut nevers, _) = never_while(&round, &nowhere, &mut CurveCache::new(), go_on);
    let told = |job: &PlanJob| {
        let closest = nevers.remove(&job.job).and_then(|never| never.closest);
        let sizes = sizes.remove(&job.job).unwrap_or_default();
        v1::JobValidation { closest, ..conversions::validation(job, sizes, quota(&round, job)) }
    };
    Ok(jobs.iter().map(told).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use axum::http::StatusCode;
    use headway_engine::record::{Node, Project, ProjectAccess, ProjectRules};
    use headway_engine::view::{NodeView, View};
    use headway_planner::Spread;
    use headway_types::spec::{Topology, Work};
    use headway_types::{
        Fabric, Gpu, GpuCount, GpuHealth, GpuSeconds, GpuType, GpuUuid, IdSource, ModelShape, NodeInventory, Seconds,
        example,
    };

    use super::*;
    use crate::http::fixtures;

    /// Nodes of healthy GPUs, each with its type, its GPUs and its rack; nobody is on them.
    fn cluster(of: &[(&str, u32, &str)]) -> View {
        let mut view = fixtures::running();
        let like = Arc::clone(&view.nodes.values().next().unwrap().node);
        view.jobs.clear();
        view.nodes.clear();
        let mut ids = IdSource::seeded(9);
        for (number, &(gpu_type, gpus, rack)) in of.iter().enumerate() {
            let uuid = |index| GpuUuid(format!("{number}/{index}"));
            let gpu =
                |index| Gpu { uuid: uuid(index), index, health: GpuHealth::Healthy, ..like.inventory.gpus[0].clone() };
            let inventory = NodeInventory {
                node: ids.node(fixtures::NOW),
                name: format!("n{number}"),
                gpu_type: GpuType(gpu_type.into()),
                gpus: (0..gpus).map(gpu).collect(),
                fabric: Fabric { domain: rack.into() },
                ..like.inventory.clone()
            };
            let id = inventory.node;
            let node = Arc::new(Node { inventory, ..Node::clone(&like) });
            view.nodes.insert(id, Arc::new(NodeView { node, heard_at: None, connected: true, held: [].into() }));
        }
        view
    }

    fn asking(min: u32, max: u32) -> JobSpec {
        let mut spec = fixtures::job().spec.clone();
        (spec.roles[0].gpus.min, spec.roles[0].gpus.max) = (GpuCount(min), GpuCount(max));
        spec
    }

    fn told(spec: JobSpec, view: &View) -> v1::JobValidation {
        undisturbed(view.round(), &[spec], "ada", || true).unwrap().remove(0)
    }

    #[test]
    fn a_job_larger_than_a_rack_is_feasible() {
        let view = cluster(&[("H100-80G", 8, "a"), ("H100-80G", 8, "b")]);
        let verdict = told(asking(16, 16), &view);
        assert!(verdict.feasible, "{:?}", verdict.reason);
        assert_eq!(verdict.sizes, [16]);
    }

    #[test]
    fn a_smaller_class_serves_where_the_largest_cannot() {
        let view = cluster(&[("V100", 8, "a"), ("V100", 8, "a"), ("H100-80G", 8, "a")]);
        let mut spec = asking(1, 1);
        // Some 48 GiB of states: more than a V100 has.
        let (hidden, heads, ffn_hidden) = (2_048, 16, 8_192);
        let shape =
            ModelShape { layers: 36, hidden, heads, kv_heads: 16, ffn_hidden, seq_len: 2_048, ..example::llama2_7b() };
        spec.roles[0].training.as_mut().unwrap().work = Work::Model(shape);
        let verdict = told(spec, &view);
        assert!(verdict.feasible, "{:?}", verdict.reason);
        assert_eq!(verdict.points[0].gpu_type.as_deref(), Some("H100-80G"));
    }

    #[test]
    fn a_job_in_one_rack_only_is_no_larger_than_a_rack() {
        let view = cluster(&[("H100-80G", 8, "a"), ("H100-80G", 8, "b")]);
        let mut spec = asking(4, 16);
        spec.roles[0].nodes.topology = Topology::RequireRack;
        assert_eq!(told(spec, &view).sizes.last(), Some(&8));
    }

    #[test]
    fn what_cannot_run_is_told_in_the_planners_words() {
        let verdict = told(asking(16, 16), &cluster(&[("H100-80G", 8, "a")]));
        assert!(!verdict.feasible);
        let why = "Cannot run on this cluster: it needs 16 GPUs of one node class, and the largest has 8";
        assert_eq!(verdict.reason.as_deref(), Some(why));
    }

    #[test]
    fn a_dry_run_heeds_everything_that_is_asked_for() {
        let view = cluster(&[("H100-80G", 8, "a"), ("H100-80G", 8, "b")]);
        let mut spec = asking(1, 8);
        spec.roles[0].nodes.exclude.insert("n1".into());
        spec.roles[0].nodes.topology = Topology::RequireRack;
        spec.limits.deadline = Some(Timestamp(9));
        spec.limits.budget = Some(GpuSeconds(7.0));
        spec.elastic.min_share = Some(0.25);
        let job = view.round().submitted([&spec].into_iter(), "ada").remove(0);
        let excluded = view.nodes.values().find(|node| node.node.inventory.name == "n1").unwrap();
        assert_eq!(job.needs.avoid, [excluded.node.inventory.node].into());
        assert_eq!(job.needs.spread, Spread::Require);
        assert_eq!(job.bounds.deadline, Some(Timestamp(9)));
        assert_eq!(job.bounds.budget_left, Some(GpuSeconds(7.0)));
        assert_eq!((job.claim.floor, job.claim.user.as_str()), (GpuCount(4), "ada"));
    }

    #[test]
    fn a_dry_run_takes_the_engines_word_for_a_restart() {
        let job = cluster(&[]).round().submitted([&asking(1, 8)].into_iter(), "ada").remove(0);
        assert_eq!(job.downtime.restart, headway_engine::EngineConfig::default().restart_prior);
        assert_eq!(job.downtime.restart, Seconds(30.0));
    }

    #[test]
    fn the_tightest_quota_on_the_way_up_is_told() {
        let mut view = fixtures::running();
        let project = |name: &str, parent: Option<&str>, quota: u32, borrow: u32| {
            let parent = parent.map(Into::into);
            let (quota, borrow) = (Some(GpuCount(quota)), GpuCount(borrow));
            let rules = ProjectRules { parent, quota, borrow, ..ProjectRules::default() };
            let row = Project {
                name: name.into(),
                rules,
                access: ProjectAccess::default(),
                used: GpuSeconds(0.0),
                used_at: fixtures::NOW,
                version: 1,
            };
            (name.to_owned(), Arc::new(row))
        };
        view.projects.extend([project("lab", None, 3, 1), project("nlp", Some("lab"), 8, 0)]);
        let verdict = |min| {
            let quota = told(asking(min, 8), &view).quota.unwrap();
            (quota.project, quota.verdict, quota.gpus)
        };
        // The running job of the project holds two.
        assert_eq!(verdict(1), ("nlp".into(), "within".into(), 2));
        assert_eq!(verdict(2), ("lab".into(), "borrows".into(), 2));
        assert_eq!(verdict(3), ("lab".into(), "exceeds_now".into(), 2));
        assert_eq!(verdict(5), ("lab".into(), "never".into(), 2));
    }

    #[test]
    fn jobs_that_are_alike_are_told_alike() {
        let view = cluster(&[("H100-80G", 8, "a")]);
        let named = |name: &str| JobSpec { name: name.into(), ..asking(1, 8) };
        let verdicts = undisturbed(view.round(), &[named("a"), asking(9, 9), named("b")], "ada", || true).unwrap();
        assert_eq!(verdicts.iter().map(|one| one.feasible).collect::<Vec<_>>(), [true, false, true]);
        assert_eq!((&verdicts[0].points, verdicts[2].name.as_str()), (&verdicts[2].points, "b"));
    }

    #[test]
    fn more_than_can_be_checked_in_time_is_refused_in_words() {
        let view = cluster(&[("H100-80G", 8, "a")]);
        let mut patience = [true, false].into_iter();
        let specs = [asking(1, 8), asking(1, 4), asking(1, 2)];
        let refused = undisturbed(view.round(), &specs, "ada", || patience.next().unwrap()).unwrap_err();
        assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    }

    #[tokio::test]
    async fn a_trial_that_takes_too_long_or_fails_is_left_out_in_words() {
        let late = within(Duration::ZERO, std::future::pending::<Result<(), Unanswered>>()).await;
        assert_eq!(late, Err("planning the round with it takes longer than 0 s; ask again".into()));
        let failed = within(TRIAL_TIME, std::future::ready(Err::<(), _>(Unanswered::BrokeDown))).await.unwrap_err();
        assert!(failed.contains("could not be planned"), "{failed}");
        assert_eq!(within(TRIAL_TIME, std::future::ready(Ok(7))).await, Ok(7));
    }
}
