//! What came of plans: how far moves have come, what was carried out and what it brought, and what one plan gives otherwise than another.

use std::collections::BTreeMap;

use axum::extract::State;
use chrono::{DateTime, Utc};
use headway_api::v1;
use headway_engine::record::{Allocation, Around, Made, MoveOutcome, MoveState, PlanRecord, PlanSummary};
use headway_engine::view::View;
use headway_types::{Assignment, JobId, Move, PlanId, PlanStateKind, Timestamp};
use serde::Deserialize;
use uuid::Uuid;

use super::auth::Principal;
use super::extract::{Json, Path, Query};
use super::problem::Problem;
use super::{HttpState, conversions, lookup};
use crate::cluster::Cluster;

/// A page reads the moves of each of its plans.
const HISTORY_AT_MOST: u32 = 50;
/// Plans looked at for a page: most of them move nobody.
const LOOKED_AT: u32 = 1_000;

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct HistoryQuery {
    cursor: Option<Uuid>,
    /// 20 if absent, 50 at most.
    limit: Option<u32>,
    /// Only plans made since then.
    since: Option<DateTime<Utc>>,
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DiffQuery {
    /// The plan to compare with; absent: the one that it was made from.
    against: Option<Uuid>,
}

/// Plans that were carried out and started, moved or stopped jobs, newest first: what was expected of them beside what came of it.
#[utoipa::path(get, path = "/plans/history", tag = "plans", params(HistoryQuery),
    responses((status = 200, body = v1::PlanHistory), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn plan_history(
    State(state): State<HttpState>,
    _caller: Principal,
    Query(query): Query<HistoryQuery>,
) -> Result<Json<v1::PlanHistory>, Problem> {
    let limit = query.limit.unwrap_or(20).clamp(1, HISTORY_AT_MOST) as usize;
    let page = state.cluster.store().plans(None, query.cursor.map(PlanId), LOOKED_AT).await?;
    let carried_out = |plan: &&PlanSummary| {
        let state = plan.state.kind();
        let since = query.since.is_none_or(|since| conversions::time(plan.made_at) >= since);
        matches!(state, PlanStateKind::Adopted | PlanStateKind::Superseded) && plan.moves > 0 && since
    };
    let found: Vec<&PlanSummary> = page.items.iter().filter(carried_out).collect();
    let shown = &found[..found.len().min(limit)];
    let ids: Vec<PlanId> = shown.iter().map(|plan| plan.id).collect();
    let mut moves = state.cluster.store().moves_of(&ids).await?;
    let mut items = Vec::with_capacity(shown.len());
    for plan in shown {
        let moves = moves.remove(&plan.id).unwrap_or_default();
        // An earlier release kept only when another plan took its place.
        let adopted = plan.adopted.as_ref().map_or(plan.made_at, |adopted| adopted.at);
        let outcomes = outcomes(&state.cluster, &moves, adopted).await?;
        items.push(past_plan(plan, adopted, &moves, &outcomes));
    }
    // Where nothing was found among all that was looked at the next page goes on behind it.
    let more = if found.len() > limit { shown.last().map(|plan| plan.id) } else { page.next };
    let next_cursor = more.map(|plan| plan.to_string());
    Ok(Json(v1::PlanHistory { items, next_cursor }))
}

/// What a plan gives otherwise than another: by default, than the one it was made from.
#[utoipa::path(get, path = "/plans/{id}/diff", tag = "plans", params(("id" = Uuid, Path), DiffQuery),
    responses((status = 200, body = v1::PlanDiff), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn plan_diff(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
    Query(query): Query<DiffQuery>,
) -> Result<Json<v1::PlanDiff>, Problem> {
    let to = lookup::plan(&state.cluster, PlanId(id)).await?;
    let from = query.against.map(PlanId).or(to.plan.parent);
    let from = from.ok_or_else(|| {
        Problem::not_found(format!("plan {id} was made from no other")).hint("?against= names a plan to compare with")
    })?;
    let from = lookup::plan(&state.cluster, from).await?;
    let view = state.cluster.view();
    let (before, after) = (&from.plan.assignments, &to.plan.assignments);
    let jobs: std::collections::BTreeSet<&JobId> = before.keys().chain(after.keys()).collect();
    let unread = caller.unread_of(&state.cluster, &[&from.plan, &to.plan]).await?;
    let told = |of: Option<&Assignment>, job: &JobId| of.map(|of| unread.assignment(*job, of));
    let changes = jobs.into_iter().filter_map(|job| {
        let (before, after) = (told(before.get(job), job), told(after.get(job), job));
        change(*job, before.as_ref(), after.as_ref(), &view)
    });
    let changes = changes.collect();
    Ok(Json(v1::PlanDiff {
        from_id: from.plan.id.0,
        to_id: to.plan.id.0,
        from_objective: from.plan.report.objective,
        to_objective: to.plan.report.objective,
        changes,
    }))
}

fn change(job: JobId, before: Option<&Assignment>, after: Option<&Assignment>, view: &View) -> Option<v1::PlanChange> {
    let at = |one: &Assignment| (one.placement.clone(), one.configuration);
    if before.map(at) == after.map(at) {
        return None;
    }
    let gpus = |one: Option<&Assignment>| one.map_or(0, |one| one.placement.gpus().0);
    let nodes = |one: Option<&Assignment>| {
        let slices = one.into_iter().flat_map(|one| one.placement.slices());
        slices.map(|slice| conversions::node_name(slice.node, view)).collect()
    };
    let configuration = |one: Option<&Assignment>| Some((&one?.configuration?).into());
    let goodput = |one: Option<&Assignment>| one.map_or(0.0, |one| one.predicted.goodput.0);
    Some(v1::PlanChange {
        job_id: job.0,
        job_name: conversions::job_name(job, view),
        from_gpus: gpus(before),
        to_gpus: gpus(after),
        from_nodes: nodes(before),
        to_nodes: nodes(after),
        from_configuration: configuration(before),
        to_configuration: configuration(after),
        from_goodput_tokens_per_second: goodput(before),
        to_goodput_tokens_per_second: goodput(after),
    })
}

/// A plan with what has come of its moves, where it was adopted, as this reader may have it.
pub async fn with_outcomes(cluster: &Cluster, reader: &Principal, of: &PlanRecord) -> Result<v1::Plan, Problem> {
    let mut shown = conversions::plan(of, &cluster.view());
    let carried_out = matches!(of.state.kind(), PlanStateKind::Adopted | PlanStateKind::Superseded);
    if carried_out {
        let adopted = of.adopted.as_ref().map_or(of.plan.made_at, |adopted| adopted.at);
        let outcomes = outcomes(cluster, &of.plan.report.moves, adopted).await?;
        for (one, outcome) in shown.moves.iter_mut().zip(&outcomes) {
            one.outcome = Some(conversions::outcome(outcome));
        }
    }
    Ok(reader.unread_of(cluster, &[&of.plan]).await?.plan(shown))
}

/// In the order of the moves.
async fn outcomes(cluster: &Cluster, moves: &[Move], adopted: Timestamp) -> Result<Vec<MoveOutcome>, Problem> {
    let jobs: Vec<JobId> = moves.iter().map(|one| one.job).collect();
    let (before, after) = cluster.store().allocations_around(&jobs, adopted).await?;
    let by_job = |all: Vec<Allocation>| all.into_iter().map(|one| (one.job, one)).collect::<BTreeMap<_, _>>();
    let (before, after, view) = (by_job(before), by_job(after), cluster.view());
    let of = |one: &Move| {
        let around = Around {
            before: before.get(&one.job),
            after: after.get(&one.job),
            lives: view.jobs.get(&one.job).is_some_and(|shown| !shown.job.state.is_final()),
        };
        MoveOutcome::of(one, adopted, around, live(one.job, &view))
    };
    Ok(moves.iter().map(of).collect())
}

/// What the generation that runs has made so far.
fn live(job: JobId, view: &View) -> Option<Made> {
    let shown = view.jobs.get(&job)?;
    shown.allocation.as_ref()?.made_by(shown.live.progress, shown.live.reported_at?)
}

fn past_plan(of: &PlanSummary, adopted: Timestamp, moves: &[Move], outcomes: &[MoveOutcome]) -> v1::PastPlan {
    let pairs: Vec<(&Move, &MoveOutcome)> = moves.iter().zip(outcomes).filter(|(one, _)| one.kind.disturbs()).collect();
    let count = |which: fn(MoveState) -> bool| pairs.iter().filter(|(_, came)| which(came.state)).count() as u32;
    let hours = |one: &Move, seconds: f64| f64::from(one.from_gpus.0) * seconds / 3_600.0;
    let known = || pairs.iter().filter_map(|(one, came)| Some((*one, came.downtime?)));
    let (mut expected, mut measured) = ([0.0, 0.0], [0.0, 0.0]);
    for (one, came) in &pairs {
        let stopped = one.to_gpus.0 == 0 && came.state == MoveState::Done;
        let after = if stopped { Some(0.0) } else { came.goodput_after.map(|after| after.0) };
        if let (Some(before), Some(after)) = (came.goodput_before, after) {
            expected = [expected[0] + one.goodput_before.0, expected[1] + one.goodput_after.0];
            measured = [measured[0] + before.0, measured[1] + after];
        }
    }
    let gain = |[before, after]: [f64; 2]| (before > 0.0).then(|| 100.0 * (after / before - 1.0));
    v1::PastPlan {
        id: of.id.0,
        adopted_at: conversions::time(adopted),
        adopted_by: of.adopted.as_ref().map(|adopted| adopted.by.told()),
        trigger: of.trigger.clone(),
        starts: moves.iter().filter(|one| one.from_gpus.0 == 0).count() as u32,
        moves: pairs.len() as u32,
        done: count(|state| state == MoveState::Done),
        under_way: count(|state| matches!(state, MoveState::Waiting | MoveState::Stopping | MoveState::Starting)),
        overtaken: count(|state| state == MoveState::Overtaken),
        predicted_gain_pct: gain(expected),
        realised_gain_pct: gain(measured),
        predicted_lost_gpu_hours: known().fold(0.0, |sum, (one, _)| sum + hours(one, one.downtime.0)),
        realised_lost_gpu_hours: known().fold(0.0, |sum, (one, downtime)| sum + hours(one, downtime.0)),
    }
}
