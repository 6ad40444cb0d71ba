//! Keeps the first start that was predicted of each wait, so that predictions can be held against what comes (`http/goodput/calibration.rs`).
//!
//! Predictions decide nothing: one that is lost since Postgres does not answer is tried again with the next forecast, and of a wait without one nothing is said.

use std::collections::BTreeSet;
use std::sync::Arc;

use headway_engine::record::{JobState, ModelFamily};
use headway_engine::view::View;
use headway_types::{Generation, JobId};
use tokio::sync::watch;

use crate::asking::Foretold;
use crate::cluster::Cluster;
use crate::store::PredictedStart;

/// Waits of which a prediction is kept.
type Known = BTreeSet<(JobId, Generation)>;

/// Follows the forecasts until nobody makes any more.
pub async fn keep(cluster: Cluster, mut foretold: watch::Receiver<Arc<Foretold>>) {
    let mut known = Known::new();
    while foretold.changed().await.is_ok() {
        let newest = foretold.borrow_and_update().clone();
        let fresh = fresh(&newest, &cluster.view(), &mut known);
        if fresh.is_empty() {
            continue;
        }
        match cluster.store().add_predicted_starts(&fresh).await {
            Ok(()) => known.extend(fresh.iter().map(|one| (one.job, one.generation))),
            Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "predicted starts are not kept"),
        }
    }
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
    use headway_types::Timestamp;

    use super::*;
    use crate::http::fixtures;

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
