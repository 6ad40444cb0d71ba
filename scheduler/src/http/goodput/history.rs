//! Goodput over time, of the cluster, of projects or of jobs, beside what other rules were predicted to give.

use headway_api::v1;
use headway_engine::view::View;
use headway_types::JobId;

use super::GoodputQuery;
use crate::http::auth::Principal;
use crate::http::conversions::time;
use crate::http::problem::Problem;
use crate::http::{HttpState, window};
use crate::store::{GoodputBy, GoodputMean};

/// A day.
const USUAL: headway_types::Seconds = headway_types::Seconds(86_400.0);
/// Projects and jobs that are told one by one.
const PROJECTS_AT_MOST: usize = 50;
const JOBS: u32 = 20;

/// What of the past is asked for; nothing, where only the present is.
pub async fn history(
    state: &HttpState,
    caller: &Principal,
    view: &View,
    query: &GoodputQuery,
    jobs: Option<&[JobId]>,
) -> Result<Option<v1::GoodputHistory>, Problem> {
    if !query.asks_for_history() {
        return Ok(None);
    }
    let (now, kept) = (state.cluster.now(), state.cluster.retention().history);
    let mut steps = window::steps(window::span(query.from, query.to, now, USUAL, kept)?, query.step.as_deref())?;
    let store = state.cluster.store();
    let hidden = caller.out_of_sight(view);
    let mut left_out = 0;
    let group = query.group.as_deref().unwrap_or(if jobs.is_some() { "job" } else { "cluster" });
    let (group, series) = match (group, jobs) {
        ("cluster", None) => ("cluster", vec![line(store.cluster_goodput(steps).await?)]),
        ("project", None) => {
            let mut projects = store.project_goodput(steps, hidden.as_ref()).await?;
            projects.sort_by(|(_, one), (_, other)| sum(other).total_cmp(&sum(one)));
            left_out = projects.len().saturating_sub(PROJECTS_AT_MOST);
            projects.truncate(PROJECTS_AT_MOST);
            let told = |(project, points)| v1::GoodputLine { project: Some(project), ..line(points) };
            ("project", projects.into_iter().map(told).collect())
        }
        ("job", among) => {
            let most = among.map_or(JOBS, |jobs| jobs.len() as u32);
            let made: GoodputBy<_>;
            (steps, made) = store.job_goodput(steps, now, among, caller.out_of_reading(view).as_ref(), most).await?;
            let told = |((id, name), points): ((JobId, String), _)| v1::GoodputLine {
                job_id: Some(id.0),
                job_name: Some(name),
                ..line(points)
            };
            ("job", made.into_iter().map(told).collect())
        }
        ("cluster" | "project", Some(_)) => {
            let wrong = Problem::bad_request("jobs are told apart by group=job alone").field("group");
            return Err(wrong.hint("leave out jobs, or group"));
        }
        (other, _) => {
            let unknown = Problem::bad_request(format!("goodput is not told by \"{other}\"")).field("group");
            return Err(unknown.hint("group by cluster, project or job"));
        }
    };
    Ok(Some(v1::GoodputHistory {
        from: time(steps.from),
        to: time(steps.to),
        step_seconds: steps.step.0,
        group: group.into(),
        series,
        left_out: left_out as u32,
    }))
}

fn sum(points: &[GoodputMean]) -> f64 {
    points.iter().map(|point| point.goodput).sum()
}

fn line(points: Vec<GoodputMean>) -> v1::GoodputLine {
    let points = points.iter().map(|of| v1::GoodputPoint {
        at: time(of.at),
        goodput_tokens_per_second: of.goodput,
        throughput_tokens_per_second: of.throughput,
        efficiency: of.throughput.filter(|rate| *rate > 0.0).map(|rate| of.goodput / rate),
        baseline_tokens_per_second: of.static_split,
        first_come_tokens_per_second: of.first_come,
        throughput_only_tokens_per_second: of.throughput_only,
    });
    v1::GoodputLine { project: None, job_id: None, job_name: None, points: points.collect() }
}
