//! The sampler: keeps the cluster's and the projects' figures once a minute of the cluster's clock, while this server leads, with what other rules would give.
//!
//! A minute in which it could not has no row: a gap is told as one. It decides nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headway_engine::view::View;
use headway_engine::{ProjectPulse, Pulse};
use headway_forecast::Baselines;
use headway_types::{JobId, Timestamp, TokensPerSecond};
use tokio_util::sync::CancellationToken;

use crate::baseline::{self, Made, Situation};
use crate::cluster::Cluster;
use crate::metrics;
use crate::store::{StoreError, answered};

/// Microseconds between rows.
const EVERY: i64 = 60_000_000;
/// However fast the cluster's clock runs, rows take a second of wall time.
const LEAST_WAIT: Duration = Duration::from_secs(1);
/// Baselines are worked out anew when something has changed, and after so long all the same: jobs learn.
const SERVES: Duration = Duration::from_secs(600);
/// And not before so many times as long as the last ones took have passed: they may cost two per cent of a processor.
const REST_PER_WORK: u32 = 50;

/// Samples until shutdown.
pub async fn run(cluster: Cluster, stop: CancellationToken) {
    let mut former = None;
    loop {
        let wait = cluster.until(next_minute(cluster.now())).max(LEAST_WAIT);
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        if cluster.ready() {
            let kept;
            (former, kept) = sample(&cluster, former).await;
            metrics::cluster_sampled(kept);
        }
    }
}

/// Baselines of a moment that is past.
struct Former {
    situation: Situation,
    of: Baselines<Made>,
    made: Instant,
    took: Duration,
}

impl Former {
    fn made(view: &View, situation: Situation) -> Self {
        let made = Instant::now();
        let of = baseline::baselines(view, &baseline::wanting(view));
        Self { situation, of, made, took: made.elapsed() }
    }

    fn serves(&self, situation: &Situation) -> bool {
        let (age, whole) = (self.made.elapsed(), self.of.as_ref().into_array().iter().all(|made| made.is_some()));
        age < REST_PER_WORK * self.took || (whole && self.situation == *situation && age < SERVES)
    }

    fn by_project(&self, view: &View) -> Baselines<ByProject> {
        self.of.as_ref().map(|made| made.as_ref().map(|made| by_project(view, made)))
    }
}

/// What projects make by a rule; `None`: it was not worked out.
type ByProject = Option<BTreeMap<String, TokensPerSecond>>;

/// Of jobs that have ended since nothing is counted.
fn by_project(view: &View, made: &BTreeMap<JobId, TokensPerSecond>) -> BTreeMap<String, TokensPerSecond> {
    let mut sums: BTreeMap<String, TokensPerSecond> = BTreeMap::new();
    for (job, rate) in made {
        if let Some(live) = view.jobs.get(job) {
            *sums.entry(live.job.spec.project.clone()).or_default() += *rate;
        }
    }
    sums
}

/// The figures of a moment.
struct Figures {
    pulse: Pulse,
    projects: BTreeMap<String, ProjectPulse>,
    baselines: Baselines<ByProject>,
}

impl Figures {
    fn of(view: &View, former: Option<Former>) -> (Self, Option<Former>) {
        let situation = Situation::of(view);
        let former = match former {
            _ if situation.jobs.len() > baseline::JOBS_AT_MOST => None,
            Some(former) if former.serves(&situation) => Some(former),
            _ => Some(Former::made(view, situation)),
        };
        let baselines = former.as_ref().map_or_else(Baselines::default, |former| former.by_project(view));
        if baselines.as_ref().into_array().iter().any(|made| made.is_none()) {
            metrics::answer_left_out("baseline");
        }
        (Self { pulse: view.pulse(), projects: view.project_pulses(), baselines }, former)
    }
}

/// With whether the minute is kept.
async fn sample(cluster: &Cluster, former: Option<Former>) -> (Option<Former>, bool) {
    let view: Arc<View> = cluster.view();
    let figures = tokio::task::spawn_blocking(move || Figures::of(&view, former)).await;
    let figures = figures.inspect_err(|error| {
        tracing::error!(error = error as &dyn std::error::Error, "counting the cluster's figures broke down");
    });
    let Ok((Figures { pulse, projects, baselines }, former)) = figures else { return (None, false) };
    let at = minute_of(cluster.now());
    let sum = |made: &BTreeMap<String, TokensPerSecond>| TokensPerSecond(made.values().map(|rate| rate.0).sum());
    let sums = baselines.as_ref().map(|made| made.as_ref().map(sum));
    let store = cluster.store();
    let kept = async {
        // What the cluster makes comes last: a minute in which it has figures and a project has none is one of nothing.
        store.add_project_pulses(at, &projects, &baselines).await?;
        store.add_pulse(at, &pulse, sums).await
    };
    let kept = answered(kept).await.inspect_err(|error: &StoreError| {
        tracing::warn!(error = error as &dyn std::error::Error, "the cluster's figures of a minute are lost");
    });
    (former, kept.is_ok())
}

fn minute_of(at: Timestamp) -> Timestamp {
    Timestamp(at.0 - at.0.rem_euclid(EVERY))
}

fn next_minute(at: Timestamp) -> Timestamp {
    Timestamp(minute_of(at).0 + EVERY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::tests::modelled;

    #[test]
    fn a_row_is_of_a_whole_minute_and_the_next_is_never_now() {
        let at = Timestamp(7 * EVERY + 1);
        assert_eq!((minute_of(at), next_minute(at)), (Timestamp(7 * EVERY), Timestamp(8 * EVERY)));
        assert_eq!(next_minute(Timestamp(7 * EVERY)), Timestamp(8 * EVERY));
    }

    #[test]
    fn figures_hold_projects_against_baselines_that_serve_as_long_as_nothing_changes() {
        let view = modelled();
        let (figures, former) = Figures::of(&view, None);
        let made = former.as_ref().map(|former| former.made);
        assert_eq!(figures.projects["nlp"].goodput, TokensPerSecond(900.0));
        for made in figures.baselines.into_array() {
            let made = made.expect("one job is not too many");
            assert!(made["nlp"].0 > 0.0 && made.len() == 1, "{made:?}");
        }
        let (_, again) = Figures::of(&view, former);
        assert_eq!(again.map(|former| former.made), made);
    }

    #[test]
    fn a_rule_that_failed_has_no_figure_and_is_tried_again() {
        let view = modelled();
        let situation = Situation::of(&view);
        let whole = Former::made(&view, situation.clone());
        let of = Baselines { first_come: None, ..whole.of.clone() };
        let former = Former { of, took: Duration::ZERO, ..whole };
        assert!(!former.serves(&situation));
        let by_project = former.by_project(&view);
        assert!(by_project.static_split.is_some() && by_project.first_come.is_none());
    }
}
