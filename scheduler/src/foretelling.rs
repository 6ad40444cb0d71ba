//! Keeps the first start that was predicted of each wait, so that predictions can be held against what comes (`http/goodput/calibration.rs`).
//!
//! Predictions decide nothing: one that is lost since Postgres does not answer is tried again with the next forecast, and of a wait without one nothing is said.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use headway_engine::record::{JobState, ModelFamily};
use headway_engine::view::View;
use headway_types::{Generation, JobId, Seconds, Timestamp};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::asking::Foretold;
use crate::cluster::Cluster;
use crate::metrics::{self, StartOutcome};
use crate::store::{MetStart, PredictedStart, Store, StoreError, answered};

const EVERY: Seconds = Seconds(60.0);
/// By then whatever was granted is stored.
const SETTLES: Seconds = Seconds(60.0);
/// However fast the cluster's clock runs.
const LEAST_WAIT: Duration = Duration::from_secs(1);

/// Waits of which a prediction is kept.
type Known = BTreeSet<(JobId, Generation)>;

/// Follows the forecasts until nobody makes any more.
pub async fn keep(cluster: Cluster, mut foretold: watch::Receiver<Arc<Foretold>>) {
    let mut known = Known::new();
    while foretold.changed().await.is_ok() {
        let newest = foretold.borrow_and_update().clone();
        let fresh = fresh(&newest, &cluster.view(), &mut known);
        // Of an old round of a server that stands by now nothing is kept.
        if fresh.is_empty() || !cluster.ready() {
            continue;
        }
        match answered(cluster.store().add_predicted_starts(&fresh)).await {
            Ok(()) => known.extend(fresh.iter().map(|one| (one.job, one.generation))),
            Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "predicted starts are not kept"),
        }
    }
}

/// Counts, once a minute of the cluster's clock and while this server leads, how starts turned out that had been predicted.
pub async fn count(cluster: Cluster, stop: CancellationToken) {
    let began = cluster.now();
    let mut counted = began;
    loop {
        let wait = cluster.until(counted + EVERY + SETTLES).max(LEAST_WAIT);
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        if !cluster.ready() {
            continue;
        }
        // A grant of a moment ago may not be committed yet.
        let until = cluster.now() - SETTLES;
        match answered(outcomes(cluster.store(), counted, until)).await {
            Ok((met, overdue)) => {
                for one in &met {
                    let (outcome, late_by) = outcome(one, began);
                    metrics::start_met(outcome, late_by);
                }
                metrics::starts_overdue(overdue);
                counted = until;
            }
            // The next look reaches back as far.
            Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "starts are not counted yet"),
        }
    }
}

/// Starts that came within a span, and how many became overdue in it.
async fn outcomes(store: &Store, from: Timestamp, to: Timestamp) -> Result<(Vec<MetStart>, u64), StoreError> {
    Ok((store.met_starts(from, to).await?, store.overdue_starts(from, to).await?))
}

/// Where a start fell, and how long after the median. A start after its band was counted when the band ended, unless that
/// was before this process began to count.
fn outcome(met: &MetStart, began: Timestamp) -> (Option<StartOutcome>, Option<Seconds>) {
    let outcome = match met.at {
        at if at < met.p10 => Some(StartOutcome::Early),
        at if met.p90.is_some_and(|p90| at > p90) => met.p90.filter(|p90| *p90 < began).map(|_| StartOutcome::Late),
        _ => Some(StartOutcome::Within),
    };
    (outcome, met.p50.map(|p50| Seconds((met.at.0 - p50.0) as f64 / 1e6)))
}

/// Predictions of waits that have none yet; waits that are over are let go.
fn fresh(foretold: &Foretold, view: &View, known: &mut Known) -> Vec<PredictedStart> {
    known.retain(|(job, _)| foretold.starts.contains_key(job));
    let told = foretold.starts.iter().filter_map(|(id, (_, start))| {
        let job = &view.jobs.get(id)?.job;
        let waits = matches!(job.state, JobState::Queued { .. });
        (waits && !known.contains(&(*id, job.generation))).then(|| PredictedStart {
            job: *id,
            generation: job.generation,
            made_at: foretold.made_at,
            model_family: ModelFamily::of(&job.spec).to_string(),
            p10: start.p10,
            p50: start.p50,
            p90: start.p90,
        })
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use headway_engine::view::JobView;
    use headway_forecast::Start;

    use super::*;
    use crate::http::fixtures;

    #[test]
    fn a_start_is_early_or_within_or_was_late_before_it_came_and_has_an_error_where_a_median_was_said() {
        let met = |at: i64, p50: Option<i64>, p90: Option<i64>| {
            let at_second = |seconds: i64| Timestamp(seconds * 1_000_000);
            let (at, p50, p90) = (at_second(at), p50.map(at_second), p90.map(at_second));
            outcome(&MetStart { at, p10: at_second(100), p50, p90 }, at_second(300))
        };
        assert_eq!(met(50, Some(200), Some(400)), (Some(StartOutcome::Early), Some(Seconds(-150.0))));
        assert_eq!(met(250, Some(200), Some(400)), (Some(StartOutcome::Within), Some(Seconds(50.0))));
        assert_eq!(met(500, Some(200), Some(400)), (None, Some(Seconds(300.0))));
        let before_this_process = met(500, Some(200), Some(290));
        assert_eq!(before_this_process, (Some(StartOutcome::Late), Some(Seconds(300.0))));
        assert_eq!(met(90_000, None, None), (Some(StartOutcome::Within), None));
    }

    #[test]
    fn each_wait_has_one_prediction_and_who_runs_has_none() {
        let start = Start { p10: Timestamp(1), p50: Some(Timestamp(2)), p90: None };
        let starts = BTreeMap::from([(fixtures::job_id(), (1, start))]);
        let foretold = Foretold { made_at: Timestamp(0), starts };
        let (mut view, mut known) = (fixtures::running(), Known::new());
        assert_eq!(fresh(&foretold, &view, &mut known), [], "it runs");
        let waiting = JobView { job: Arc::new(fixtures::job()), ..(*view.jobs[&fixtures::job_id()]).clone() };
        view.jobs.insert(fixtures::job_id(), Arc::new(waiting));
        let first = fresh(&foretold, &view, &mut known);
        assert_eq!((first.len(), first[0].model_family.as_str(), first[0].p90), (1, "curve", None));
        known.insert((first[0].job, first[0].generation));
        assert_eq!(fresh(&foretold, &view, &mut known), [], "it has one");
        assert_eq!(fresh(&Foretold::default(), &view, &mut known), []);
        assert!(known.is_empty(), "its wait is over");
    }
}
