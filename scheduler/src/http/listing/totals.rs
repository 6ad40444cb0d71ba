//! How many jobs a filter admits. Counting costs what it counts, so a count is made once for all who ask within two seconds, and says when it was.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use headway_api::v1;
use headway_types::Timestamp;
use tokio::sync::OnceCell;

use crate::cluster::Cluster;
use crate::http::conversions;
use crate::http::problem::Problem;
use crate::store::JobFilter;

const KEPT: Duration = Duration::from_secs(2);
/// Filters whose counts are kept.
const FILTERS_AT_MOST: usize = 256;

/// The moment of a count, and the jobs by state.
type Count = Arc<OnceCell<(Timestamp, BTreeMap<String, u64>)>>;

#[derive(Default)]
pub struct Totals(Mutex<BTreeMap<JobFilter, (Instant, Count)>>);

impl Totals {
    pub async fn of(&self, cluster: &Cluster, filter: &JobFilter) -> Result<v1::JobTotals, Problem> {
        let counted = self.kept(&JobFilter {
            project: filter.project.clone(),
            owner: filter.owner.clone(),
            array: filter.array,
            labels: filter.labels.clone(),
            name: filter.name.clone(),
            name_contains: filter.name_contains.clone(),
            among: filter.among.clone(),
            out_of_sight: filter.out_of_sight.clone(),
            ..JobFilter::default()
        });
        let (at, by_state) = counted
            .get_or_try_init(|| async { Ok::<_, Problem>((cluster.now(), cluster.store().count_jobs(filter).await?)) })
            .await?;
        let wanted =
            |state: &str| filter.states.is_empty() || filter.states.iter().any(|one| <&str>::from(*one) == state);
        Ok(v1::JobTotals {
            jobs: by_state.iter().filter(|(state, _)| wanted(state)).map(|(_, jobs)| jobs).sum(),
            by_state: by_state.clone(),
            counted_at: conversions::time(*at),
        })
    }

    /// The count for a filter, made or yet to be made; whoever comes first makes it.
    fn kept(&self, filter: &JobFilter) -> Count {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if kept.len() >= FILTERS_AT_MOST {
            kept.retain(|_, (until, _)| now < *until);
        }
        match kept.get(filter) {
            Some((until, count)) if now < *until => Arc::clone(count),
            _ => {
                let count = Count::default();
                if kept.len() < FILTERS_AT_MOST {
                    kept.insert(filter.clone(), (now + KEPT, Arc::clone(&count)));
                }
                count
            }
        }
    }
}
