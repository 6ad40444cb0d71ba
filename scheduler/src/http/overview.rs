//! The cluster at a glance: its figures, what to look at, how planning goes, and the figures over time.

use std::collections::BTreeMap;

use axum::extract::State;
use chrono::{DateTime, Utc};
use headway_api::{spec, v1};
use headway_engine::attention::{Attention, Item, Subject};
use headway_engine::record::{Availability, Job, JobState};
use headway_engine::view::View;
use headway_types::{GpuCount, Seconds};
use serde::Deserialize;

use super::access::Seen;
use super::auth::Principal;
use super::conversions::time;
use super::extract::{Json, Query};
use super::problem::Problem;
use super::{HttpState, past};
use crate::clock::Speed;
use crate::cluster::Cluster;
use crate::driver::StandsBy;
use crate::store::{EventFilter, OutOfSight, PulseMean, Waits};

/// Of what there is to look at so much is told.
const ATTENTION_AT_MOST: usize = 20;
/// Points of a series: at most, and as many as fit unless a step is given.
const POINTS_AT_MOST: f64 = 1_500.0;
const POINTS: f64 = 288.0;
/// Figures are kept once in so many seconds.
const KEPT_EVERY: f64 = 60.0;

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct OverviewQuery {
    /// A past moment (RFC 3339) instead of the present.
    at: Option<DateTime<Utc>>,
    /// With the `series` of the figures of so long ("24h", "7d") until now.
    window: Option<String>,
    /// Of the series: how long each point is the mean of ("5m"); whole minutes. If absent, what gives about 288 points.
    step: Option<String>,
    /// Of the window: how long jobs waited that got their first GPUs within it (`waits`). Reads a row or two of each of them.
    #[serde(default)]
    waits: bool,
}

/// Is the cluster doing useful work? With `at`: a `PastOverview`, what is known of that moment.
#[utoipa::path(get, path = "/overview", tag = "cluster", params(OverviewQuery),
    responses((status = 200, body = v1::Overview), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn overview(
    State(state): State<HttpState>,
    caller: Principal,
    Query(query): Query<OverviewQuery>,
) -> Result<Json<past::Reply<v1::Overview, v1::PastOverview>>, Problem> {
    let span = span(&query, state.cluster.retention().history)?;
    if let Some(at) = query.at {
        let out_of_sight = caller.out_of_sight(&state.cluster.view());
        return Ok(Json(past::Reply::Then(past::overview(&state.cluster, at, out_of_sight.as_ref()).await?)));
    }
    let series = match span {
        Some((window, step)) => Some(series(&state.cluster, window, step, query.waits).await?),
        None => None,
    };
    // Read before the snapshot: what the stream repeats is harmless, what it skips is not.
    let newest = state.cluster.store().events(&EventFilter { limit: 1, ..EventFilter::default() }).await?;
    let seq = newest.items.first().map_or(0, |event| event.seq);
    let certificates = state.certificates_to_look_at().await?;
    let (view, standing) = (state.cluster.view(), state.cluster.stands_by());
    let troubles = state.cluster.troubles().items();
    let planner = planner(&state.cluster, &view);
    let speed = state.cluster.clock_speed();
    // All jobs and GPUs are looked at.
    let told = tokio::task::spawn_blocking(move || {
        let readable = |job: &Job| caller.sees(&view, &job.spec.project, &job.owner) == Seen::Whole;
        let attention = view.attention_beside(troubles, ATTENTION_AT_MOST, readable);
        let mut told = v1::Overview {
            planner: Some(planner),
            standby: standing.as_deref().map(standby),
            series,
            ..summary(&view, speed, &attention, seq, caller.out_of_sight(&view).as_ref())
        };
        look_at(&mut told, certificates);
        told
    });
    let told = told.await.map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "the overview broke down");
        Problem::internal()
    })?;
    Ok(Json(past::Reply::Now(told)))
}

/// Jobs are counted as far as the reader may know of them, GPUs all.
fn summary(
    view: &View,
    speed: Speed,
    attention: &Attention,
    seq: u64,
    out_of_sight: Option<&OutOfSight>,
) -> v1::Overview {
    let nodes = || view.nodes.values();
    let mut jobs_by_state = BTreeMap::new();
    let mut waited_for = GpuCount(0);
    let hides = |job: &Job| out_of_sight.is_some_and(|hidden| hidden.hides(&job.spec.project, &job.owner));
    for live in view.jobs.values().filter(|live| !hides(&live.job)) {
        *jobs_by_state.entry(live.job.state.kind().to_string()).or_default() += 1;
        if matches!(live.job.state, JobState::Queued { .. }) && !live.job.is_blocked() {
            waited_for += live.job.least();
        }
    }
    let pulse = view.pulse();
    v1::Overview {
        at: time(view.at),
        clock_speed: speed.factor(),
        nodes_total: view.nodes.len() as u32,
        nodes_available: nodes().filter(|node| node.node.availability == Availability::Available).count() as u32,
        gpus_total: pulse.gpus_total.0,
        gpus_healthy: pulse.gpus_healthy.0,
        gpus_busy: pulse.gpus_busy.0,
        gpus_by_activity: pulse
            .gpus_by_activity
            .iter()
            .map(|(what, gpus)| (<&str>::from(*what).into(), gpus.0))
            .collect(),
        jobs_by_state,
        gpus_waited_for: waited_for.0,
        goodput_tokens_per_second: pulse.goodput.0,
        throughput_tokens_per_second: pulse.throughput.0,
        speed_up_sum: pulse.speed_up,
        goodput_mfu: pulse.goodput_mfu,
        plan_id: view.target.as_ref().map(|target| target.plan.id.0),
        plans_waiting: view.proposals.keys().map(|plan| plan.0).collect(),
        policy_mode: view.policy.mode,
        planning_trouble: view.trouble.as_ref().map(|trouble| v1::PlanningTrouble {
            rounds_given_up: trouble.rounds,
            since: time(trouble.since),
            message: trouble.message.clone(),
            again_at: trouble.again_at.map(time),
        }),
        attention: attention.items.iter().map(item).collect(),
        attention_by_kind: attention.by_kind.iter().map(|(kind, count)| (<&str>::from(*kind).into(), *count)).collect(),
        planner: None,
        standby: None,
        series: None,
        seq,
    }
}

/// What the engine does not know of, among what it does.
fn look_at(overview: &mut v1::Overview, items: Vec<v1::AttentionItem>) {
    for item in &items {
        *overview.attention_by_kind.entry(item.kind.clone()).or_default() += 1;
    }
    overview.attention.truncate(ATTENTION_AT_MOST - items.len().min(ATTENTION_AT_MOST));
    overview.attention.extend(items);
    // Those of one severity stay in their order.
    let rank =
        |item: &v1::AttentionItem| ["critical", "warning", "notice"].iter().position(|one| *one == item.severity);
    overview.attention.sort_by_key(rank);
}

fn standby(standing: &StandsBy) -> v1::Standby {
    v1::Standby {
        leader: standing.leader_url().map(str::to_owned),
        as_of: time(standing.as_of),
        age_seconds: standing.age().as_secs_f64(),
    }
}

fn item(of: &Item) -> v1::AttentionItem {
    let (mut name, mut job_id, mut node_id, mut plan_id) = (None, None, None, None);
    match &of.subject {
        Subject::Planning => {}
        Subject::Plan(id) => plan_id = Some(id.0),
        Subject::Node { id, name: called } => (node_id, name) = (Some(id.0), Some(called.clone())),
        Subject::Job { id, name: called } => (job_id, name) = (Some(id.0), Some(called.clone())),
    }
    v1::AttentionItem {
        kind: <&str>::from(of.kind).into(),
        severity: <&str>::from(of.kind.severity()).into(),
        name,
        job_id,
        node_id,
        plan_id,
        since: of.since.map(time),
        gpu_hours: of.at_stake.map(|stake| stake.0 / 3_600.0).filter(|hours| hours.is_finite()),
        headline: of.headline.clone(),
        next_step: of.next_step.clone(),
    }
}

fn planner(cluster: &Cluster, view: &View) -> v1::PlannerHealth {
    let health = cluster.rounds();
    let newest = cluster.last_round().borrow().as_ref().map(|round| (round.plan.id, round.plan.made_at));
    v1::PlannerHealth {
        mode: view.policy.mode,
        newest_plan_id: newest.map(|(plan, _)| plan.0),
        newest_plan_at: newest.map(|(_, at)| time(at)),
        newest_plan_age_seconds: cluster.plan_age().map(|age| age.0),
        under_way_seconds: health.under_way.map(|since| since.as_secs_f64()),
        round_median_seconds: health.median.map(|took| took.0),
        round_p99_seconds: health.p99.map(|took| took.0),
        rounds_measured: health.rounds as u32,
        rounds_given_up: health.without_plan,
        last_given_up_at: health.last_without.as_ref().map(|(ago, _)| time(cluster.ago(*ago))),
        last_given_up: health.last_without.map(|(_, why)| why),
        curves_left_out: health.deferred as u32,
    }
}

/// The window and the step that are asked for.
fn span(query: &OverviewQuery, kept: Seconds) -> Result<Option<(Seconds, Seconds)>, Problem> {
    let read = |name: &'static str, text: &Option<String>| {
        let read = text.as_deref().map(spec::duration).transpose();
        read.map_err(|wrong| Problem::bad_request(wrong).field(name).hint("as in 24h, 7d, 5m"))
    };
    let (window, step) = (read("window", &query.window)?, read("step", &query.step)?);
    let Some(window) = window else {
        if query.waits {
            return Err(Problem::bad_request("waits are of a window").field("waits").hint("add window=24h"));
        }
        return match step {
            Some(_) => Err(Problem::bad_request("a step is of a window").field("step").hint("add window=24h")),
            None => Ok(None),
        };
    };
    if query.at.is_some() {
        return Err(Problem::bad_request("a past moment has no series")
            .field("window")
            .hint("leave out at, or window"));
    }
    if window > kept {
        let days = kept.0 / 86_400.0;
        return Err(Problem::bad_request(format!("figures are kept for {days} days")).field("window"));
    }
    let step = step.unwrap_or(Seconds((window.0 / POINTS / KEPT_EVERY).ceil() * KEPT_EVERY));
    if step.0 % KEPT_EVERY != 0.0 {
        return Err(Problem::bad_request("a step is of whole minutes").field("step").hint("as in 1m, 5m, 1h"));
    }
    if window.0 / step.0 > POINTS_AT_MOST {
        let detail = format!("a series has at most {POINTS_AT_MOST} points");
        return Err(Problem::bad_request(detail).field("step").hint("take a longer step, or a shorter window"));
    }
    Ok(Some((window, step)))
}

async fn series(
    cluster: &Cluster,
    window: Seconds,
    step: Seconds,
    with_waits: bool,
) -> Result<v1::ClusterSeries, Problem> {
    let now = cluster.now();
    let points = cluster.store().pulses(now - window, now, step).await?;
    let waits = match with_waits {
        true => Some(waited(cluster.store().first_waits(now - window, now).await?)),
        false => None,
    };
    Ok(v1::ClusterSeries { step_seconds: step.0, points: points.iter().map(point).collect(), waits })
}

fn waited(of: Waits) -> v1::QueueWaits {
    let [p50, p90, p99] = of.quantiles.map(|each| each.map(|wait| wait.0));
    v1::QueueWaits { jobs: of.jobs, p50_seconds: p50, p90_seconds: p90, p99_seconds: p99 }
}

fn point(of: &PulseMean) -> v1::ClusterPoint {
    v1::ClusterPoint {
        at: time(of.at),
        gpus_total: of.gpus_total,
        gpus_healthy: of.gpus_healthy,
        gpus_busy: of.gpus_busy,
        gpus_training: of.gpus_training,
        jobs_waiting: of.jobs_waiting,
        jobs_running: of.jobs_running,
        gpus_waited_for: of.gpus_waited_for,
        goodput_tokens_per_second: of.goodput_tokens_per_second,
        goodput_relative: of.goodput_relative,
        useful_share: (of.gpus_healthy > 0.0).then(|| of.gpus_training / of.gpus_healthy),
        goodput_mfu: of.goodput_mfu,
        gpus_by_activity: of
            .gpus_by_activity
            .as_ref()
            .map(|by| by.iter().map(|(what, gpus)| (<&str>::from(*what).into(), *gpus)).collect()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::http::fixtures;

    const KEPT: Seconds = Seconds(90.0 * 86_400.0);

    fn asked(window: Option<&str>, step: Option<&str>) -> Result<Option<(f64, f64)>, Problem> {
        let [window, step] = [window, step].map(|text| text.map(str::to_owned));
        Ok(span(&OverviewQuery { at: None, window, step, waits: false }, KEPT)?
            .map(|(window, step)| (window.0, step.0)))
    }

    #[test]
    fn the_overview_counts_what_the_snapshot_holds() {
        let speed = Speed::try_new(60.0).unwrap();
        let overview = summary(&fixtures::running(), speed, &Attention::default(), 7, None);
        assert_eq!((overview.gpus_total, overview.gpus_healthy, overview.gpus_busy), (4, 3, 2));
        assert_eq!(overview.jobs_by_state, BTreeMap::from([("running".into(), 1)]));
        assert_eq!((overview.goodput_tokens_per_second, overview.seq, overview.clock_speed), (900.0, 7, 60.0));
    }

    #[test]
    fn a_series_has_as_many_points_as_a_page_shows() {
        assert_eq!(asked(None, None).unwrap(), None);
        assert_eq!(asked(Some("24h"), None).unwrap(), Some((86_400.0, 300.0)));
        assert_eq!(asked(Some("1h"), None).unwrap(), Some((3_600.0, 60.0)));
        assert_eq!(asked(Some("24h"), Some("1h")).unwrap(), Some((86_400.0, 3_600.0)));
    }

    #[test]
    fn a_series_that_cannot_be_had_is_refused() {
        for (window, step) in [
            (None, Some("5m")),
            (Some("24"), None),
            (Some("91d"), None),
            (Some("24h"), Some("90s")),
            (Some("90d"), Some("1m")),
        ] {
            assert!(asked(window, step).is_err(), "{window:?} {step:?}");
        }
    }
}
