//! Asking for a round: a rebalancing, or the way back from one; and pausing all rounds.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use headway_api::v1;
use headway_engine::event::{Rebalancing, Request, Scope};
use headway_engine::outcome::Reply;
use headway_engine::record::{PlanRecord, PlanState};
use headway_planner::Force;
use headway_types::{GpuCount, GpuType, JobId, NodeId, PlanId};
use tokio::sync::broadcast;
use tokio::time::Instant;
use uuid::Uuid;

use super::auth::Principal;
use super::extract::{Json, Path, reason};
use super::problem::Problem;
use super::{HttpState, conversions, lookup, mismatched, once, policy};
use crate::cluster::{Cluster, Feed};

/// Below the request limit, so that the caller hears why.
const ROUND_TIME: Duration = Duration::from_secs(25);
/// A round's end that the feed did not tell (a lagging reader) is seen by looking again.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// Events that end a round without a plan.
const FAILURES: [&str; 4] = ["plan.unmet", "plan.failed", "plan.given_up", "plan.refused"];
/// Of jobs and nodes that one body names.
const NAMED_AT_MOST: usize = 1_000;

/// Run a round now. Its plan is a proposal that moves nothing before it is approved.
#[utoipa::path(post, path = "/plans/rebalance", tag = "plans", request_body = Option<v1::RebalanceRequest>,
    responses((status = 200, body = v1::Plan), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn rebalance(
    State(state): State<HttpState>,
    caller: Principal,
    body: Option<Json<v1::RebalanceRequest>>,
) -> Result<Json<v1::Plan>, Problem> {
    let Json(body) = body.unwrap_or_default();
    propose(&state, &caller, terms(body)?).await
}

/// Propose to give the jobs that a plan moved what they had before it, as far as they live. The way back is a plan like any other: it moves
/// nothing before it is approved, and later rounds may move the jobs anew, once their protection after a move is over (pin them to keep them).
#[utoipa::path(post, path = "/plans/{id}/rollback", tag = "plans", params(("id" = Uuid, Path)),
    request_body = Option<v1::ReasonRequest>,
    responses((status = 200, body = v1::Plan), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn rollback_plan(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
    body: Option<Json<v1::ReasonRequest>>,
) -> Result<Json<v1::Plan>, Problem> {
    let record = lookup::plan(&state.cluster, PlanId(id)).await?;
    let conflict = |detail: String| Problem::new(StatusCode::CONFLICT, "nothing_to_take_back", detail);
    if !matches!(record.state, PlanState::Adopted | PlanState::Superseded) {
        return Err(conflict(format!("plan {id} is {} and was never carried out", record.state.kind())));
    }
    // Which types of GPUs jobs had is known while the plan before is kept.
    let before = match record.plan.parent {
        Some(parent) => lookup::plan(&state.cluster, parent).await.ok(),
        None => None,
    };
    let force = state.cluster.view().undo(&record.plan, before.as_ref().map(|before| &*before.plan));
    if force.is_empty() {
        return Err(conflict(format!("plan {id} moved no job that is still there")));
    }
    let terms = Rebalancing { force, undoes: Some(PlanId(id)), reason: reason(body), ..Rebalancing::default() };
    propose(&state, &caller, terms).await
}

/// No rounds until they are resumed: nothing starts and nothing moves. What runs goes on.
#[utoipa::path(post, path = "/plans/pause", tag = "plans", request_body = Option<v1::ReasonRequest>,
    responses((status = 200, body = v1::Policy), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn pause_plans(
    State(state): State<HttpState>,
    caller: Principal,
    body: Option<Json<v1::ReasonRequest>>,
) -> Result<Response, Problem> {
    state.answer(&caller, Request::Pause { reason: reason(body) }, policy::shown).await
}

/// Rounds again, in the mode that planning had before it was paused.
#[utoipa::path(post, path = "/plans/resume", tag = "plans", request_body = Option<v1::ReasonRequest>,
    responses((status = 200, body = v1::Policy), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn resume_plans(
    State(state): State<HttpState>,
    caller: Principal,
    body: Option<Json<v1::ReasonRequest>>,
) -> Result<Response, Problem> {
    state.answer(&caller, Request::Resume { reason: reason(body) }, policy::shown).await
}

fn terms(body: v1::RebalanceRequest) -> Result<Rebalancing, Problem> {
    if body.min_gain_pct.is_some_and(|gain| !(0.0..=100.0).contains(&gain)) {
        return Err(Problem::invalid("min_gain_pct is between 0 and 100").field("min_gain_pct"));
    }
    let v1::PlanScope { projects, nodes, jobs } = body.scope;
    let lists = [
        ("scope.projects", projects.len()),
        ("scope.nodes", nodes.len()),
        ("scope.jobs", jobs.len()),
        ("exclude", body.exclude.len()),
        ("force", body.force.len()),
    ];
    if let Some((field, _)) = lists.iter().find(|(_, count)| *count > NAMED_AT_MOST) {
        return Err(Problem::invalid(format!("{field} names more than {NAMED_AT_MOST}")).field(*field));
    }
    let force = body.force.into_iter().map(|one| Force {
        job: JobId(one.job_id),
        gpus: one.gpus.map(GpuCount),
        gpu_type: one.gpu_type.map(GpuType),
    });
    let force: Vec<Force> = force.collect();
    if force.iter().any(|one| one.gpus == Some(GpuCount(0))) {
        let problem = Problem::invalid("a job is forced to have GPUs, not to have none").field("force");
        return Err(problem.hint("hold the job, or cancel it"));
    }
    Ok(Rebalancing {
        min_gain: body.min_gain_pct.map(|percent| percent / 100.0),
        max_moves: body.max_moves,
        scope: Scope {
            projects: projects.into_iter().collect(),
            nodes: nodes.into_iter().map(NodeId).collect(),
            jobs: jobs.into_iter().map(JobId).collect(),
        },
        exclude: body.exclude.into_iter().map(JobId).collect(),
        force,
        undoes: None,
        reason: body.reason,
    })
}

async fn propose(state: &HttpState, caller: &Principal, terms: Rebalancing) -> Result<Json<v1::Plan>, Problem> {
    let mut feed = state.cluster.subscribe();
    let kept = Some(Arc::new(terms.clone()));
    let request = Request::Rebalance { terms: Box::new(terms) };
    let request = match once::key(caller.name()) {
        Some(key) => Request::Once { key, body: Box::new(request) },
        None => request,
    };
    let id = match state.ask(caller.actor(), request).await? {
        Reply::Rebalance(plan) => plan,
        Reply::Repeated { subjects } if subjects.len() == 1 => {
            once::replayed();
            PlanId(subjects[0])
        }
        other => return Err(mismatched(&other)),
    };
    let plan = &made(&state.cluster, &mut feed, id).await?.plan;
    // The reply is what the round proposed, also to a repetition that finds it decided.
    let plan = Arc::clone(plan);
    let proposed =
        PlanRecord { plan, state: PlanState::Proposed, decided_at: None, decided_by: None, adopted: None, terms: kept };
    Ok(Json(conversions::plan(&proposed, &state.cluster.view(), conversions::Verdicts::All)))
}

/// Waits until the round's plan is known, or the log says that there is none.
async fn made(
    cluster: &Cluster,
    feed: &mut broadcast::Receiver<Arc<Feed>>,
    id: PlanId,
) -> Result<Arc<PlanRecord>, Problem> {
    let deadline = Instant::now() + ROUND_TIME;
    loop {
        match lookup::plan(cluster, id).await {
            Ok(plan) => return Ok(plan),
            Err(_) if Instant::now() < deadline => {}
            Err(_) => {
                return Err(Problem::unavailable("the round has not ended yet")
                    .hint("GET /api/v1/plans shows its proposal when it has"));
            }
        }
        // Whatever is heard, even that messages were missed, is a reason to look again.
        if let Ok(Ok(news)) = tokio::time::timeout(LOOK_AGAIN, feed.recv()).await
            && let Feed::Event(event) = &*news
            && event.plan == Some(id)
            && FAILURES.contains(&event.verb.as_str())
        {
            return Err(Problem::new(StatusCode::CONFLICT, "no_plan", event.message.clone()));
        }
    }
}
