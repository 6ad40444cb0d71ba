//! Plans: what was decided for the whole cluster, and what waits for approval.

use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use headway_api::v1;
use headway_engine::event::Request;
use headway_engine::outcome::Reply;
use headway_engine::record::PlanRecord;
use headway_engine::view::View;
use headway_types::{PlanId, PlanStateKind, Seconds, Timestamp};
use serde::Deserialize;
use uuid::Uuid;

use super::auth::Principal;
use super::conversions::Verdicts;
use super::extract::{Json, Path, Query, reason};
use super::problem::Problem;
use super::{HttpState, conversions, lookup, outcomes, past};
use crate::archive;
use crate::shown::Shown;

pub const PLANS_AT_MOST: u32 = 200;

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PlansQuery {
    /// A past moment: the plan that was being carried out and those that waited for approval, in their states of then.
    at: Option<DateTime<Utc>>,
    cursor: Option<Uuid>,
    /// 50 if absent, 200 at most.
    limit: Option<u32>,
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PlanQuery {
    /// Of which jobs to tell why they get what they get: `all` (as by default), those that it `moves`, those that are `waiting` since it gives them nothing, or `none`. Where few jobs move, verdicts are about half of a plan.
    verdicts: Option<String>,
}

/// Plans, newest first.
#[utoipa::path(get, path = "/plans", tag = "plans", params(PlansQuery),
    responses((status = 200, body = v1::PlanList), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn list_plans(
    State(state): State<HttpState>,
    _caller: Principal,
    Query(query): Query<PlansQuery>,
) -> Result<Json<v1::PlanList>, Problem> {
    let limit = query.limit.unwrap_or(50);
    let before = query.cursor.map(PlanId);
    if let Some(at) = query.at {
        return Ok(Json(past::plans(&state.cluster, before, limit, at).await?));
    }
    let page = state.cluster.store().plans(None, before, limit).await?;
    Ok(Json(v1::PlanList {
        items: page.items.iter().map(conversions::plan_summary).collect(),
        next_cursor: page.next.map(|plan| plan.to_string()),
    }))
}

/// The plan that is being carried out. With `at`: the one that was then, in its state of then, with what came of it since.
#[utoipa::path(get, path = "/plans/current", tag = "plans", params(past::Moment),
    responses((status = 200, body = v1::Plan), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn current_plan(
    State(state): State<HttpState>,
    caller: Principal,
    Query(past::Moment { at }): Query<past::Moment>,
) -> Result<Json<v1::Plan>, Problem> {
    if let Some(at) = at {
        let (plan, then) = past::plan_in_force(&state.cluster, at).await?;
        let told = outcomes::with_outcomes(&state, &caller, &plan, Verdicts::All).await?;
        let told = v1::Plan {
            state: PlanStateKind::Adopted,
            state_reason: None,
            decided_at: Some(conversions::time(then)),
            decided_by: plan.adopted.as_ref().map(|adopted| adopted.by.told()),
            ..told
        };
        return Ok(Json(told));
    }
    let view = state.cluster.view();
    let target = view.target.as_ref().ok_or_else(|| Problem::not_found("no plan has been adopted yet"))?;
    Ok(Json(outcomes::with_outcomes(&state, &caller, target, Verdicts::All).await?))
}

/// One plan with its moves, what has come of them, and verdicts. Of a job that the caller may not read it says what the job gets, and neither why nor what is
/// measured or expected of it (`null`, 0). Kept for 90 days after it was made, or as long as a running job follows it, unless the
/// scheduler is told otherwise.
#[utoipa::path(get, path = "/plans/{id}", tag = "plans", params(("id" = Uuid, Path), PlanQuery),
    responses((status = 200, body = v1::Plan), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn get_plan(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
    Query(PlanQuery { verdicts }): Query<PlanQuery>,
) -> Result<Json<v1::Plan>, Problem> {
    let verdicts = match verdicts.as_deref() {
        None | Some("all") => Verdicts::All,
        Some("moves") => Verdicts::Moves,
        Some("waiting") => Verdicts::Waiting,
        Some("none") => Verdicts::None,
        Some(other) => {
            let unknown = Problem::bad_request(format!("there are no verdicts \"{other}\"")).field("verdicts");
            return Err(unknown.hint("verdicts are all, moves, waiting or none"));
        }
    };
    let plan = lookup::plan(&state.cluster, PlanId(id)).await?;
    Ok(Json(outcomes::with_outcomes(&state, &caller, &plan, verdicts).await?))
}

/// What a plan was made from, with the planner's answer; for those alone who may read all jobs. Kept for 7 days unless the scheduler is told otherwise.
#[utoipa::path(get, path = "/plans/{id}/input", tag = "plans", params(("id" = Uuid, Path)),
    responses((status = 200, body = v1::StoredRound), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn plan_input(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
) -> Result<Response, Problem> {
    let plan = lookup::plan(&state.cluster, PlanId(id)).await?;
    if !caller.sees_all(&state.cluster.view()) {
        let detail = format!("the input of plan {id} is told to those who may read all jobs");
        return Err(Problem::not_found(detail)
            .hint("it has all that the planner knew of them, of closed and private projects too"));
    }
    let Some(body) = state.cluster.store().plan_input(plan.plan.id).await? else {
        return Err(no_input(&plan, state.cluster.retention().plan_inputs, state.cluster.now()));
    };
    let json = [(header::CONTENT_TYPE, "application/json")];
    Ok((json, Body::from_stream(futures::stream::iter(archive::unpack(body)))).into_response())
}

fn no_input(of: &PlanRecord, kept: Seconds, now: Timestamp) -> Problem {
    let (id, days) = (of.plan.id, kept.0 / 86_400.0);
    if of.plan.made_at < now - kept {
        return Problem::new(StatusCode::GONE, "gone", format!("the input of plan {id} was kept for {days} days"));
    }
    Problem::not_found(format!("the input of plan {id} is not stored"))
        .hint("it is stored shortly after the plan; an earlier release, a crash or a slow database stores none")
}

/// Adopt a proposal; refused if the target has changed since it was made, or if it is not the plan that the body's hash names.
#[utoipa::path(post, path = "/plans/{id}/approve", tag = "plans", params(("id" = Uuid, Path)),
    request_body = Option<v1::ApproveRequest>,
    responses((status = 200, body = v1::Plan), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn approve_plan(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
    body: Option<Json<v1::ApproveRequest>>,
) -> Result<Response, Problem> {
    let Json(v1::ApproveRequest { hash, reason }) = body.unwrap_or_default();
    if let Some(seen) = hash {
        let is = conversions::plan_hash(&lookup::plan(&state.cluster, PlanId(id)).await?.plan);
        if is != seen {
            let detail = format!("plan {id} is not the plan that was looked at: its hash is {is}");
            return Err(Problem::new(StatusCode::CONFLICT, "plan_changed", detail).hint("look at it again"));
        }
    }
    let request = Request::Approve { plan: PlanId(id) }.because(reason);
    undecided(&state, PlanId(id), state.answer(&caller, request, shown).await).await
}

/// A plan that is no proposal any more is told as what it became, with what took its place.
async fn undecided(state: &HttpState, id: PlanId, answer: Result<Response, Problem>) -> Result<Response, Problem> {
    let Err(problem) = answer else { return answer };
    if problem.status() != StatusCode::NOT_FOUND {
        return Err(problem);
    }
    let record = lookup::plan(&state.cluster, id).await?;
    let view = state.cluster.view();
    let newest = view.proposals.keys().next_back();
    let hint = match (newest, view.target.as_ref()) {
        (Some(newest), _) => format!("plan {newest} waits for approval"),
        (None, Some(target)) => format!("plan {} is being carried out, and no proposal waits", target.plan.id),
        (None, None) => "no proposal waits".into(),
    };
    let detail = format!("plan {id} is {} and no longer waits for approval", record.state.kind());
    Err(Problem::new(StatusCode::CONFLICT, "plan_decided", detail).hint(hint))
}

/// Drop a proposal.
#[utoipa::path(post, path = "/plans/{id}/reject", tag = "plans", params(("id" = Uuid, Path)),
    request_body = Option<v1::ReasonRequest>,
    responses((status = 200, body = v1::Plan), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn reject_plan(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
    body: Option<Json<v1::ReasonRequest>>,
) -> Result<Response, Problem> {
    let request = Request::Reject { plan: PlanId(id), reason: reason(body) };
    undecided(&state, PlanId(id), state.answer(&caller, request, shown).await).await
}

fn shown(reply: &Reply, view: &View) -> Option<Shown> {
    let Reply::Plan(plan) = reply else { return None };
    Some(Shown::new(StatusCode::OK, &conversions::plan(plan, view, Verdicts::All)))
}
