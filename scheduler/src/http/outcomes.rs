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
use super::conversions::Verdicts;
use super::extract::{Json, Path, Query};
use super::problem::Problem;
use super::{HttpState, conversions, lookup};
use crate::cluster::Cluster;

/// A page reads the moves of each of its plans.
pub const HISTORY_AT_MOST: u32 = 50;
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
    let limit = query.limit.unwrap_or(20) as usize;
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
pub async fn with_outcomes(
    state: &HttpState,
    reader: &Principal,
    of: &PlanRecord,
    verdicts: Verdicts,
) -> Result<v1::Plan, Problem> {
    let (cluster, view) = (&state.cluster, state.cluster.view());
    let mut shown = conversions::plan(of, &view, verdicts);
    // Nobody counts jobs that he may not know of.
    if let Some(out_of_sight) = reader.out_of_sight(&view) {
        let hidden = state.veils.hidden_of(cluster, &out_of_sight, conversions::left_waiting(of)).await?;
        shown.jobs_left_waiting -= hidden.len() as u32;
    }
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
        MoveOutcome::of(one, around, live(one.job, &view))
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
    let gain = |[before, after]: [f64; 2]| {
        (before > 0.0).then(|| 100.0 * (after / before - 1.0)).filter(|gain| gain.is_finite())
    };
    v1::PastPlan {
        id: of.id.0,
        adopted_at: conversions::time(adopted),
        adopted_by: of.adopted.as_ref().map(|adopted| adopted.by.told()),
        trigger: of.trigger.clone(),
        undoes: of.undoes.map(|plan| plan.0),
        forced: of.forced,
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

#[cfg(test)]
mod tests {
    use headway_engine::event::Actor;
    use headway_engine::record::{Adoption, PlanState};
    use headway_types::plan::MoveKind;
    use headway_types::{GpuCount, IdSource, Seconds, Tier, TokensPerSecond};
    use proptest::prelude::*;

    use super::*;

    const ADOPTED: Timestamp = Timestamp(1_790_000_000_000_000);

    fn summary() -> PlanSummary {
        PlanSummary {
            id: IdSource::seeded(1).plan(ADOPTED),
            parent: None,
            made_at: ADOPTED,
            state: PlanState::Superseded,
            decided_at: Some(ADOPTED),
            decided_by: Some(Actor::Scheduler),
            adopted: Some(Adoption { at: ADOPTED, by: Actor::User("ada".into()) }),
            trigger: "ada asked for it".into(),
            objective_before: 1.0,
            objective: 2.0,
            bound: None,
            gap: None,
            moves: 1,
            forced: false,
            undoes: None,
        }
    }

    #[test]
    fn a_plan_that_took_another_back_says_which() {
        let undone = IdSource::seeded(2).plan(ADOPTED);
        let told = past_plan(&PlanSummary { undoes: Some(undone), ..summary() }, ADOPTED, &[], &[]);
        assert_eq!((told.undoes, past(&[], &[]).undoes), (Some(undone.0), None));
    }

    /// A move that is predicted to cost 36 s and to change a goodput so.
    fn predicted(kind: MoveKind, gpus: [u32; 2], before: f64, after: f64) -> Move {
        Move {
            job: IdSource::seeded(2).job(ADOPTED),
            kind,
            from_gpus: GpuCount(gpus[0]),
            to_gpus: GpuCount(gpus[1]),
            from_configuration: None,
            to_configuration: None,
            goodput_before: TokensPerSecond(before),
            goodput_after: TokensPerSecond(after),
            downtime: Seconds(36.0),
            pays_back_after: None,
            reason: "it grows".into(),
        }
    }

    fn grows(before: f64, after: f64) -> Move {
        predicted(MoveKind::Reconfigure(Tier::Migration), [4, 8], before, after)
    }

    fn came(of: &Move, state: MoveState, before: f64, after: Option<f64>) -> MoveOutcome {
        MoveOutcome {
            job: of.job,
            state,
            downtime: after.map(|_| Seconds(72.0)),
            goodput_before: Some(TokensPerSecond(before)),
            goodput_after: after.map(TokensPerSecond),
            measured_for: after.map(|_| Seconds(60.0)),
        }
    }

    fn past(moves: &[Move], outcomes: &[MoveOutcome]) -> v1::PastPlan {
        past_plan(&summary(), ADOPTED, moves, outcomes)
    }

    #[test]
    fn a_plan_is_told_by_what_its_measured_moves_were_to_bring_and_brought() {
        let start = predicted(MoveKind::Start, [0, 2], 0.0, 50.0);
        let moves = [grows(100.0, 150.0), predicted(MoveKind::Preempt, [2, 0], 100.0, 0.0), grows(1.0, 9.0), start];
        let outcomes = [
            came(&moves[0], MoveState::Done, 110.0, Some(143.0)),
            came(&moves[1], MoveState::Done, 90.0, None),
            // Not measured yet: of this one nothing is told.
            came(&moves[2], MoveState::Starting, 90.0, None),
            came(&moves[3], MoveState::Done, 0.0, Some(40.0)),
        ];
        let told = past(&moves, &outcomes);
        assert_eq!((told.starts, told.moves, told.done, told.under_way, told.overtaken), (1, 3, 2, 1, 0));
        assert_eq!(told.predicted_gain_pct, Some(-25.0), "150 of 200");
        assert_eq!(told.realised_gain_pct.map(|gain| (gain * 10.0).round()), Some(-285.0), "143 of 200");
        assert_eq!((told.predicted_lost_gpu_hours, told.realised_lost_gpu_hours), (0.04, 0.08), "of four GPUs");
        assert_eq!(told.adopted_by.as_deref(), Some("user:ada"));
    }

    #[test]
    fn of_what_was_not_measured_no_gain_is_told() {
        let moves = [grows(100.0, 150.0), predicted(MoveKind::Preempt, [2, 0], 100.0, 0.0)];
        let overtaken = moves.each_ref().map(|one| came(one, MoveState::Overtaken, 100.0, None));
        let told = past(&moves, &overtaken);
        assert_eq!((told.predicted_gain_pct, told.realised_gain_pct, told.overtaken), (None, None, 2));
        let started = [predicted(MoveKind::Start, [0, 2], 0.0, 50.0)];
        let told = past(&started, &[came(&started[0], MoveState::Done, 0.0, Some(40.0))]);
        assert_eq!((told.predicted_gain_pct, told.realised_gain_pct), (None, None), "a start moves nobody");
    }

    fn some_moves() -> impl Strategy<Value = Vec<Move>> {
        let goodput = || prop_oneof![1e-3..1e6_f64, 1e-300..1e-290_f64, 1e290..1e300_f64];
        let one = (goodput(), goodput(), 1..9_u32, 0..9_u32).prop_map(|(before, after, from, to)| match to {
            0 => predicted(MoveKind::Preempt, [from, 0], before, 0.0),
            to => predicted(MoveKind::Reconfigure(Tier::Migration), [from, to], before, after),
        });
        prop::collection::vec(one, 1..12)
    }

    /// Exactly at the predicted rates, as far as there is a rate.
    fn as_predicted(of: &Move) -> MoveOutcome {
        let after = Some(of.goodput_after.0).filter(|_| of.to_gpus.0 > 0);
        came(of, MoveState::Done, of.goodput_before.0, after)
    }

    proptest! {
        #[test]
        fn jobs_that_run_as_predicted_gain_what_was_predicted(moves in some_moves()) {
            let told = past(&moves, &moves.iter().map(as_predicted).collect::<Vec<_>>());
            prop_assert_eq!(told.realised_gain_pct, told.predicted_gain_pct);
            prop_assert_eq!(told.done as usize, moves.len());
        }

        #[test]
        fn a_gain_is_a_number_and_no_more_than_all_is_lost(moves in some_moves(), factors in prop::array::uniform12(0.0..1e12_f64)) {
            let faster = |(of, factor): (&Move, &f64)| {
                let came = as_predicted(of);
                MoveOutcome { goodput_after: came.goodput_after.map(|rate| TokensPerSecond(rate.0 * factor)), ..came }
            };
            let told = past(&moves, &moves.iter().zip(&factors).map(faster).collect::<Vec<_>>());
            for gain in [told.predicted_gain_pct, told.realised_gain_pct].into_iter().flatten() {
                prop_assert!(gain.is_finite() && gain >= -100.0, "{gain}");
            }
            let lost = [told.predicted_lost_gpu_hours, told.realised_lost_gpu_hours];
            prop_assert!(lost.iter().all(|hours| hours.is_finite() && *hours >= 0.0), "{lost:?}");
        }

        #[test]
        fn moves_that_were_overtaken_change_no_gain(moves in some_moves(), others in some_moves()) {
            let alone = past(&moves, &moves.iter().map(as_predicted).collect::<Vec<_>>());
            let overtaken = others.iter().map(|one| came(one, MoveState::Overtaken, one.goodput_before.0, None));
            let outcomes: Vec<_> = moves.iter().map(as_predicted).chain(overtaken).collect();
            let told = past(&[moves, others.clone()].concat(), &outcomes);
            prop_assert_eq!(told.realised_gain_pct, alone.realised_gain_pct);
            prop_assert_eq!(told.predicted_gain_pct, alone.predicted_gain_pct);
            prop_assert_eq!(told.overtaken as usize, others.len());
            prop_assert_eq!(told.realised_lost_gpu_hours, alone.realised_lost_gpu_hours);
        }
    }
}
