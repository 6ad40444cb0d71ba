//! GPU-time by user, project, GPU type and cause, from the first job on: allocations keep the moments of their phases, and are added up here for the span
//! of time that is asked about, and for each step of it. The rows add up to all the time that GPUs were granted.

mod dimension;
mod sums;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use futures::TryStreamExt;
use headway_api::v1;
use headway_types::Seconds;
use serde::Deserialize;
use tokio::sync::Semaphore;

use self::dimension::Dimension;
use self::sums::Sums;
use super::auth::Principal;
use super::extract::{Json, Query};
use super::problem::Problem;
use super::{HttpState, conversions, window};
use crate::store::Steps;

/// A week.
const USUAL: Seconds = Seconds(604_800.0);
/// A year and a bit.
const LONGEST: Seconds = Seconds(400.0 * 86_400.0);
/// Reports that are added up at once: a year is much to read.
static SLOTS: Semaphore = Semaphore::const_new(2);
/// Allocations that are added up at a time.
const AT_ONCE: usize = 1_024;
const TURN_TIME: Duration = Duration::from_secs(5);

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct UsageQuery {
    /// Comma-separated: `user`, `project`, `gpu_type`, `cause`, `displaced_by`. `user,cause` if absent.
    group_by: Option<String>,
    /// A week before `to` if absent; at most 400 days before it.
    from: Option<DateTime<Utc>>,
    /// Now if absent, or later.
    to: Option<DateTime<Utc>>,
    /// Also the rows of each step of the span, so long ("1h"): whole minutes, and at most 1500 steps.
    step: Option<String>,
    /// `json` if absent, or `csv`.
    format: Option<String>,
}

/// What GPU-time went into, for whom and why. The rows add up to all the time that GPUs were granted to jobs that the reader may see.
#[utoipa::path(get, path = "/usage", tag = "cluster", params(UsageQuery),
    responses((status = 200, content((v1::Usage = "application/json"), (String = "text/csv"))),
        (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn usage(
    State(state): State<HttpState>,
    caller: Principal,
    Query(query): Query<UsageQuery>,
) -> Result<Response, Problem> {
    let by = dimension::dimensions(query.group_by.as_deref())?;
    let csv = match query.format.as_deref() {
        None | Some("json") => false,
        Some("csv") => true,
        Some(other) => {
            let unknown = Problem::bad_request(format!("there is no format \"{other}\"")).field("format");
            return Err(unknown.hint("formats are json, csv"));
        }
    };
    let now = state.cluster.now();
    let span = window::span(query.from, query.to, now, USUAL, LONGEST)?;
    let steps = query.step.as_deref().map(|step| window::steps(span, Some(step))).transpose()?;
    let turn = tokio::time::timeout(TURN_TIME, SLOTS.acquire()).await;
    let _turn = turn.map_err(|_| Problem::unavailable("others ask for usage; ask again shortly"))?;
    let view = state.cluster.view();
    let out_of_sight = caller.out_of_sight(&view);
    let hides = |project: &str, owner: &str| out_of_sight.as_ref().is_some_and(|hidden| hidden.hides(project, owner));
    // Who took GPUs after this was read is not told, whoever it is.
    let shown = match &out_of_sight {
        Some(hidden) if by.contains(&Dimension::DisplacedBy) => {
            let takers = state.cluster.store().takers(span.0, span.1).await?;
            let hidden = state.veils.hidden_of(&state.cluster, hidden, takers.clone()).await?;
            Some(&takers - &hidden)
        }
        Some(_) => Some(BTreeSet::new()),
        None => None,
    };
    let mut sums = Sums::new(by.clone(), span, steps.map(|of| of.step), now, shown);
    let mut held = std::pin::pin!(state.cluster.store().tenures(span.0, span.1).try_chunks(AT_ONCE));
    while let Some(mut some) = held.try_next().await.map_err(|failed| failed.1)? {
        some.retain(|one| !hides(&one.project, &one.owner));
        // Long spans have many steps: other requests are not to wait for them.
        let added = tokio::task::spawn_blocking(move || {
            some.iter().for_each(|one| sums.add(one));
            sums
        });
        sums = added.await.map_err(|error| {
            tracing::error!(%error, "adding up usage failed");
            Problem::internal()
        })?;
    }
    let mut usage = sums.told();
    if let (Some(of), Some(told)) = (steps, &mut usage.steps) {
        add_capacity(&state, of, told).await?;
    }
    Ok(match csv {
        false => Json(usage).into_response(),
        true => ([(header::CONTENT_TYPE, "text/csv; charset=utf-8")], dimension::csv(&usage, &by)?).into_response(),
    })
}

/// What healthy GPUs there were within each step, by the cluster's figures; a step in which nobody held any is added.
async fn add_capacity(state: &HttpState, of: Steps, told: &mut Vec<v1::UsageStep>) -> Result<(), Problem> {
    let mut steps: BTreeMap<DateTime<Utc>, v1::UsageStep> = told.drain(..).map(|step| (step.at, step)).collect();
    for mean in state.cluster.store().pulses(of.from, of.to, of.step).await? {
        let (begins, ends) = (mean.at.max(of.from), (mean.at + of.step).min(of.to));
        let at = conversions::time(mean.at);
        let step = steps.entry(at).or_insert(v1::UsageStep { at, items: Vec::new(), healthy_gpu_hours: None });
        step.healthy_gpu_hours = Some(mean.gpus_healthy * ends.since(begins).0 / 3_600.0);
    }
    told.extend(steps.into_values());
    Ok(())
}
