//! GPU-time by user, project, GPU type and cause, from the first job on: allocations keep the moments of their phases, and are added up here for the span
//! of time that is asked about. The rows add up to all the time that GPUs were granted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use futures::TryStreamExt;
use headway_api::v1;
use headway_engine::GpuTime;
use headway_engine::record::{Allocation, StopCause};
use headway_engine::view::View;
use headway_types::{GpuSeconds, JobId, Seconds, Timestamp};
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::access::ANOTHER;
use super::auth::Principal;
use super::extract::{Json, Query};
use super::problem::Problem;
use super::{HttpState, conversions};
use crate::store::Held;

/// A week.
const USUAL: Seconds = Seconds(604_800.0);
/// A year and a bit.
const LONGEST: Seconds = Seconds(400.0 * 86_400.0);
/// Reports that are added up at once: a year is much to read.
static SLOTS: Semaphore = Semaphore::const_new(2);
const TURN_TIME: Duration = Duration::from_secs(5);
/// Where nobody took the GPUs.
const NOBODY: &str = "-";

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct UsageQuery {
    /// Comma-separated: `user`, `project`, `gpu_type`, `cause`, `displaced_by`. `user,cause` if absent.
    group_by: Option<String>,
    /// A week before `to` if absent; at most 400 days before it.
    from: Option<DateTime<Utc>>,
    /// Now if absent, or later.
    to: Option<DateTime<Utc>>,
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
    let dimensions = dimensions(query.group_by.as_deref())?;
    let csv = match query.format.as_deref() {
        None | Some("json") => false,
        Some("csv") => true,
        Some(other) => {
            let unknown = Problem::bad_request(format!("there is no format \"{other}\"")).field("format");
            return Err(unknown.hint("formats are json, csv"));
        }
    };
    let now = state.cluster.now();
    let (from, to) = span(query.from, query.to, now)?;
    let turn = tokio::time::timeout(TURN_TIME, SLOTS.acquire()).await;
    let _turn = turn.map_err(|_| Problem::unavailable("others ask for usage; ask again shortly"))?;
    let view = state.cluster.view();
    let mut sums = Sums::default();
    let mut held = std::pin::pin!(state.cluster.store().held(from, to));
    let out_of_sight = caller.out_of_sight(&view);
    let hides = |project: &str, owner: &str| out_of_sight.as_ref().is_some_and(|hidden| hidden.hides(project, owner));
    while let Some(one) = held.try_next().await? {
        if !hides(&one.project, &one.owner) {
            let taker = one.allocation.displaced_by.first().map(|taker| (taker.job, taker.owner.as_str()));
            let taker = match (taker, &out_of_sight) {
                (None, _) => NOBODY,
                (Some((job, _)), Some(hidden)) if state.veils.hides(&state.cluster, hidden, job).await? => ANOTHER,
                (Some((_, owner)), _) => owner,
            };
            sums.add(&one, taker, &dimensions, &view, now, (from, to));
        }
    }
    let usage = sums.told(&dimensions, (from, to));
    Ok(match csv {
        false => Json(usage).into_response(),
        true => ([(header::CONTENT_TYPE, "text/csv; charset=utf-8")], written(&usage, &dimensions)?).into_response(),
    })
}

/// What rows are told apart by.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::EnumString, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
enum Dimension {
    User,
    Project,
    GpuType,
    Cause,
    DisplacedBy,
}

fn dimensions(text: Option<&str>) -> Result<Vec<Dimension>, Problem> {
    use strum::VariantArray;
    let mut dimensions: Vec<Dimension> = Vec::new();
    for name in text.unwrap_or("user,cause").split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let known = name.parse().map_err(|_| {
            let known: Vec<&str> = Dimension::VARIANTS.iter().map(|one| <&str>::from(*one)).collect();
            let unknown = Problem::bad_request(format!("usage is not told by \"{name}\"")).field("group_by");
            unknown.hint(format!("it is told by {}", known.join(", ")))
        })?;
        dimensions.push(known);
    }
    dimensions.sort_unstable();
    dimensions.dedup();
    Ok(dimensions)
}

fn span(
    from: Option<DateTime<Utc>>,
    to: Option<DateTime<Utc>>,
    now: Timestamp,
) -> Result<(Timestamp, Timestamp), Problem> {
    let to = to.map_or(now, conversions::timestamp).min(now);
    let from = from.map_or(to - USUAL, conversions::timestamp);
    if from >= to {
        return Err(Problem::bad_request("the span of time ends before it begins").field("from"));
    }
    if to.since(from).0 > LONGEST.0 {
        return Err(Problem::bad_request("usage is told of 400 days at most").field("from"));
    }
    Ok((from, to))
}

/// GPU-time and jobs by the values of the dimensions.
#[derive(Default)]
struct Sums(BTreeMap<Vec<String>, (GpuSeconds, BTreeSet<JobId>)>);

impl Sums {
    /// `taker`: for whom its GPUs were taken.
    fn add(
        &mut self,
        held: &Held,
        taker: &str,
        by: &[Dimension],
        view: &View,
        now: Timestamp,
        (from, to): (Timestamp, Timestamp),
    ) {
        let allocation = &held.allocation;
        let time = GpuTime::within(allocation, now, from, to);
        for (cause, part) in causes(allocation, &time) {
            if part.0 <= 0.0 {
                continue;
            }
            let displaced_by = if cause == "displaced" { taker } else { NOBODY };
            let value = |dimension: &Dimension| match dimension {
                Dimension::User => held.owner.clone(),
                Dimension::Project => held.project.clone(),
                Dimension::GpuType => gpu_type(allocation, view),
                Dimension::Cause => cause.to_owned(),
                Dimension::DisplacedBy => displaced_by.to_owned(),
            };
            let (sum, jobs) = self.0.entry(by.iter().map(value).collect()).or_default();
            *sum += part;
            jobs.insert(allocation.job);
        }
    }

    fn told(self, by: &[Dimension], (from, to): (Timestamp, Timestamp)) -> v1::Usage {
        let total: GpuSeconds = self.0.values().map(|(sum, _)| *sum).sum();
        let mut items: Vec<v1::UsageRow> =
            self.0.into_iter().map(|(values, (sum, jobs))| row(by, values, sum, &jobs)).collect();
        items.sort_by(|one, other| other.gpu_hours.total_cmp(&one.gpu_hours));
        v1::Usage {
            from: conversions::time(from),
            to: conversions::time(to),
            group_by: by.iter().map(|one| <&str>::from(*one).to_owned()).collect(),
            items,
            total_gpu_hours: total.0 / 3_600.0,
        }
    }
}

/// An allocation that ended since others took its GPUs was saved, torn down and redone for them.
fn causes(allocation: &Allocation, time: &GpuTime) -> [(&'static str, GpuSeconds); 5] {
    let displaced = !allocation.displaced_by.is_empty()
        && matches!(allocation.stopped_for, Some(StopCause::Preempt | StopCause::Rescale));
    let (rework, saving) = if displaced { ("displaced", "displaced") } else { ("rework", "saving") };
    [
        ("useful", time.training),
        ("starting", time.starting),
        (rework, time.rework),
        ("idle", time.idle),
        (saving, time.stopping),
    ]
}

/// Allocations of an earlier release do not say; of those a node that is still there does.
fn gpu_type(allocation: &Allocation, view: &View) -> String {
    let node = || view.nodes.get(&allocation.placement.first_node());
    let told = allocation.gpu_type.clone().or_else(|| node().map(|node| node.node.inventory.gpu_type.clone()));
    told.map_or_else(|| "unknown".into(), |gpu_type| gpu_type.0)
}

fn row(by: &[Dimension], values: Vec<String>, sum: GpuSeconds, jobs: &BTreeSet<JobId>) -> v1::UsageRow {
    let mut row = v1::UsageRow {
        user: None,
        project: None,
        gpu_type: None,
        cause: None,
        displaced_by: None,
        gpu_hours: sum.0 / 3_600.0,
        jobs: jobs.len() as u64,
    };
    for (dimension, value) in by.iter().zip(values) {
        match dimension {
            Dimension::User => row.user = Some(value),
            Dimension::Project => row.project = Some(value),
            Dimension::GpuType => row.gpu_type = Some(value),
            Dimension::Cause => row.cause = Some(value),
            Dimension::DisplacedBy => row.displaced_by = Some(value),
        }
    }
    row
}

fn written(usage: &v1::Usage, by: &[Dimension]) -> Result<String, Problem> {
    let broken = |error: String| {
        tracing::error!(error, "writing usage as CSV failed");
        Problem::internal()
    };
    let mut writer = csv::Writer::from_writer(Vec::new());
    let names = usage.group_by.iter().map(String::as_str).chain(["gpu_hours", "jobs"]);
    writer.write_record(names).map_err(|error| broken(error.to_string()))?;
    for item in &usage.items {
        let value = |dimension: &Dimension| match dimension {
            Dimension::User => item.user.clone(),
            Dimension::Project => item.project.clone(),
            Dimension::GpuType => item.gpu_type.clone(),
            Dimension::Cause => item.cause.clone(),
            Dimension::DisplacedBy => item.displaced_by.clone(),
        };
        let values = by.iter().map(|one| value(one).unwrap_or_default());
        let numbers = [format!("{:.6}", item.gpu_hours), item.jobs.to_string()];
        writer.write_record(values.chain(numbers)).map_err(|error| broken(error.to_string()))?;
    }
    let bytes = writer.into_inner().map_err(|error| broken(error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| broken(error.to_string()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_engine::record::{Displacer, Release, ReleaseProof};
    use headway_types::{Generation, GpuCount, GpuUuid, IdSource, NodeSlice, Placement};

    use super::*;
    use crate::http::fixtures;

    fn at(seconds: i64) -> Timestamp {
        Timestamp(1_700_000_000_000_000 + seconds * 1_000_000)
    }

    /// Two GPUs for an hour, of which ten minutes pass before the first step, the last twenty are not saved and five are for stopping.
    fn displaced() -> Held {
        let mut ids = IdSource::seeded(1);
        let node = ids.node(at(0));
        let gpus = vec![GpuUuid("a".into()), GpuUuid("b".into())];
        let placement = Placement::try_new(vec![NodeSlice { node, gpus }]).unwrap();
        let by = Displacer { job: ids.job(at(0)), name: "urgent".into(), owner: "grace".into(), gpus: GpuCount(2) };
        let allocation = Allocation {
            training_at: Some(at(600)),
            saved_at: Some(at(2_100)),
            stopping_at: Some(at(3_300)),
            stopped_for: Some(StopCause::Preempt),
            displaced_by: vec![by],
            released: [(node, Release { at: at(3_600), proof: ReleaseProof::Reported })].into(),
            ended_at: Some(at(3_600)),
            ..Allocation::new(ids.job(at(0)), Generation(1), placement, at(0))
        };
        Held { owner: "ada".into(), project: "nlp".into(), allocation }
    }

    fn told(by: &str, span: (Timestamp, Timestamp)) -> v1::Usage {
        let by = dimensions(Some(by)).unwrap();
        let mut sums = Sums::default();
        sums.add(&displaced(), "grace", &by, &fixtures::running(), at(9_000), span);
        sums.told(&by, span)
    }

    #[test]
    fn what_others_took_is_theirs_by_name_and_all_adds_up() {
        let usage = told("displaced_by,cause,user", (at(0), at(9_000)));
        assert_eq!(usage.group_by, ["user", "cause", "displaced_by"]);
        let rows: Vec<String> = usage
            .items
            .iter()
            .map(|row| {
                let [user, cause, by] =
                    [&row.user, &row.cause, &row.displaced_by].map(|value| value.as_deref().unwrap());
                format!("{user} {cause} {by} {:.3} {}", row.gpu_hours, row.jobs)
            })
            .collect();
        assert_eq!(rows, ["ada displaced grace 0.833 1", "ada useful - 0.833 1", "ada starting - 0.333 1"]);
        assert!((usage.total_gpu_hours - 2.0).abs() < 1e-9);
        assert!((told("user", (at(300), at(900))).total_gpu_hours - 2.0 * 600.0 / 3_600.0).abs() < 1e-9);
    }

    #[test]
    fn csv_has_the_columns_that_were_asked_for() {
        let by = dimensions(Some("project,cause")).unwrap();
        let text = written(&told("project,cause", (at(0), at(700))), &by).unwrap();
        assert_eq!(text, "project,cause,gpu_hours,jobs\nnlp,starting,0.333333,1\nnlp,useful,0.055556,1\n");
    }

    #[test]
    fn a_span_of_time_has_bounds() {
        let moment = |seconds| Some(conversions::time(at(seconds)));
        assert_eq!(span(None, None, at(0)).unwrap(), (at(0) - USUAL, at(0)));
        assert_eq!(span(moment(-10), moment(99), at(0)).unwrap(), (at(-10), at(0)), "what is to come has no usage");
        assert!(span(moment(10), None, at(0)).is_err());
        assert!(span(moment(-40_000_000), None, at(0)).is_err());
        assert!(dimensions(Some("user,colour")).is_err());
    }
}
