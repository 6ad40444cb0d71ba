//! The sampler: keeps the cluster's and the projects' figures once a minute of the cluster's clock, while this server leads, with what a static split would give.
//!
//! A minute in which it could not has no row: a gap is told as one. It decides nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headway_engine::view::View;
use headway_engine::{ProjectPulse, Pulse};
use headway_types::{JobId, Timestamp, TokensPerSecond};
use tokio_util::sync::CancellationToken;

use crate::baseline::{self, Share, Situation};
use crate::cluster::Cluster;
use crate::metrics;
use crate::store::StoreError;

/// Microseconds between rows.
const EVERY: i64 = 60_000_000;
/// However fast the cluster's clock runs, rows take a second of wall time.
const LEAST_WAIT: Duration = Duration::from_secs(1);
/// A split is worked out anew when something has changed, and after so long all the same: jobs learn.
const SERVES: Duration = Duration::from_secs(600);
/// And not before so many times as long as the last one took have passed: splits may cost two per cent of a processor.
const REST_PER_WORK: u32 = 50;

/// Samples until shutdown.
pub async fn run(cluster: Cluster, stop: CancellationToken) {
    let mut split = None;
    loop {
        let wait = cluster.until(next_minute(cluster.now())).max(LEAST_WAIT);
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        if cluster.ready() {
            let kept;
            (split, kept) = sample(&cluster, split).await;
            metrics::cluster_sampled(kept);
        }
    }
}

/// A static split of a moment that is past.
struct Split {
    situation: Situation,
    shares: BTreeMap<JobId, Share>,
    made: Instant,
    took: Duration,
}

impl Split {
    fn of(view: &View, situation: Situation) -> Self {
        let made = Instant::now();
        let shares = baseline::static_split(view, &baseline::wanting(view));
        Self { situation, shares, made, took: made.elapsed() }
    }

    fn serves(&self, situation: &Situation) -> bool {
        let age = self.made.elapsed();
        age < REST_PER_WORK * self.took || (self.situation == *situation && age < SERVES)
    }
}

/// The figures of a moment.
struct Figures {
    pulse: Pulse,
    projects: BTreeMap<String, ProjectPulse>,
    /// By project; `None`: there are too many jobs to work it out.
    baseline: Option<BTreeMap<String, TokensPerSecond>>,
}

impl Figures {
    fn of(view: &View, former: Option<Split>) -> (Self, Option<Split>) {
        let situation = Situation::of(view);
        let split = match former {
            _ if situation.jobs.len() > baseline::JOBS_AT_MOST => {
                metrics::answer_left_out("baseline");
                None
            }
            Some(former) if former.serves(&situation) => Some(former),
            _ => Some(Split::of(view, situation)),
        };
        let baseline = split.as_ref().map(|split| by_project(view, &split.shares));
        (Self { pulse: view.pulse(), projects: view.project_pulses(), baseline }, split)
    }
}

/// Of jobs that have ended since nothing is counted.
fn by_project(view: &View, shares: &BTreeMap<JobId, Share>) -> BTreeMap<String, TokensPerSecond> {
    let mut sums: BTreeMap<String, TokensPerSecond> = BTreeMap::new();
    for (job, share) in shares {
        if let Some(live) = view.jobs.get(job) {
            *sums.entry(live.job.spec.project.clone()).or_default() += share.goodput;
        }
    }
    sums
}

/// With whether the minute is kept.
async fn sample(cluster: &Cluster, split: Option<Split>) -> (Option<Split>, bool) {
    let view: Arc<View> = cluster.view();
    let figures = tokio::task::spawn_blocking(move || Figures::of(&view, split)).await;
    let figures = figures.inspect_err(|error| {
        tracing::error!(error = error as &dyn std::error::Error, "counting the cluster's figures broke down");
    });
    let Ok((Figures { pulse, projects, baseline }, split)) = figures else { return (None, false) };
    let at = minute_of(cluster.now());
    let sum = baseline.as_ref().map(|of| TokensPerSecond(of.values().map(|rate| rate.0).sum()));
    let store = cluster.store();
    let kept = async {
        // What the cluster makes comes last: a minute in which it has figures and a project has none is one of nothing.
        store.add_project_pulses(at, &projects, &baseline.unwrap_or_default()).await?;
        store.add_pulse(at, &pulse, sum).await
    };
    let kept = kept.await.inspect_err(|error: &StoreError| {
        tracing::warn!(error = error as &dyn std::error::Error, "the cluster's figures of a minute are lost");
    });
    (split, kept.is_ok())
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
    fn figures_hold_projects_against_a_static_split_that_serves_as_long_as_nothing_changes() {
        let view = modelled();
        let (figures, split) = Figures::of(&view, None);
        let made = split.as_ref().map(|split| split.made);
        assert_eq!(figures.projects["nlp"].goodput, TokensPerSecond(900.0));
        let baseline = figures.baseline.expect("one job is not too many");
        assert!(baseline["nlp"].0 > 0.0 && baseline.len() == 1, "{baseline:?}");
        let (_, again) = Figures::of(&view, split);
        assert_eq!(again.map(|split| split.made), made);
    }
}
