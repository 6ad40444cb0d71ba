//! The observation writer: batches what was seen into the store, off the loop.
//!
//! It is lossy on purpose: when Postgres is slow it drops observations rather than hold up decisions. It also prunes
//! what is past its time, since that too may wait.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headway_engine::Observation;
use headway_goodput::{JobModel, Lessons};
use headway_types::{JobId, Seconds, Timestamp};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::clock::Clock;
use crate::config::Retention;
use crate::leader::Lease;
use crate::store::{SeriesPoint, Store, StoreError, answered};

/// Observations that may wait to be written.
const QUEUE: usize = 8_192;
const WRITE_EVERY: Duration = Duration::from_secs(1);
const PRUNE_EVERY: Duration = Duration::from_secs(3_600);
/// Plans that are pruned at a time: each may be a megabyte, and observations wait meanwhile.
const PLANS_AT_A_TIME: u32 = 100;
/// Events that are pruned at a time.
const EVENTS_AT_A_TIME: u32 = 1_000;
/// Jobs that are pruned at a time, each with all its allocations and checkpoints, which may be thousands.
const JOBS_AT_A_TIME: u32 = 50;
/// Rows of a cheaper kind (arrays, hours of series, tokens, lines of the audit) that are pruned at a time.
const ROWS_AT_A_TIME: u32 = 1_000;
/// The audit is pruned by whole days, since each pruning adds a line to it.
const DAY: i64 = 86_400_000_000;
/// Where there are more, the next go after this rest.
const PRUNE_REST: Duration = Duration::from_secs(1);

/// Takes observations and writes them about once a second.
pub struct Observer {
    queue: mpsc::Sender<Observation>,
    /// Ends with whoever waits for it: what is left then is not written behind the next leader's back.
    writer: AbortOnDropHandle<()>,
    dropped: u64,
}

impl Observer {
    /// Starts the writer, which writes and prunes while the `lease` stands. Idempotency keys older than `keys_kept` are pruned with what `retention` names and the finer
    /// measurements.
    #[must_use]
    pub fn start(store: Store, clock: Clock, lease: Lease, keys_kept: Seconds, retention: Retention) -> Self {
        let (queue, observations) = mpsc::channel(QUEUE);
        let writer = tokio::spawn(Writer { store, clock, lease, keys_kept, retention, observations }.run());
        let writer = AbortOnDropHandle::new(writer);
        Self { queue, writer, dropped: 0 }
    }

    /// Hands one over; drops it when the writer cannot keep up.
    pub fn take(&mut self, observation: Observation) {
        if self.queue.try_send(observation).is_err() {
            if self.dropped.is_multiple_of(QUEUE as u64) {
                tracing::warn!(dropped = self.dropped + 1, "observations come faster than they can be written");
            }
            self.dropped += 1;
        }
    }

    /// Writes what is left and ends.
    pub async fn finish(self) {
        drop(self.queue);
        if let Err(error) = self.writer.await {
            tracing::error!(error = &error as &dyn std::error::Error, "observation writer died");
        }
    }
}

struct Writer {
    store: Store,
    clock: Clock,
    /// Without it another server may lead, which knows better.
    lease: Lease,
    keys_kept: Seconds,
    retention: Retention,
    observations: mpsc::Receiver<Observation>,
}

/// What has been gathered since the last write.
#[derive(Default)]
struct Gathered {
    points: Vec<(JobId, SeriesPoint)>,
    models: BTreeMap<JobId, Arc<JobModel>>,
    lessons: Option<Arc<Lessons>>,
}

impl Writer {
    async fn run(mut self) {
        let mut gathered = Gathered::default();
        let mut writes = tokio::time::interval(WRITE_EVERY);
        writes.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut prunes = tokio::time::interval(PRUNE_EVERY);
        let mut plans = tokio::time::interval(PRUNE_EVERY);
        let (mut rows, mut jobs_at_a_time) = (tokio::time::interval(PRUNE_EVERY), JOBS_AT_A_TIME);
        loop {
            tokio::select! {
                observation = self.observations.recv() => match observation {
                    Some(observation) => gathered.add(observation),
                    None => break,
                },
                _ = writes.tick() => self.write(std::mem::take(&mut gathered)).await,
                _ = prunes.tick() => match self.lease.stands() {
                    true => self.prune().await,
                    false => prunes.reset_after(PRUNE_REST),
                },
                _ = rows.tick() => if !self.lease.stands() || self.prune_rows(&mut jobs_at_a_time).await { rows.reset_after(PRUNE_REST) },
                _ = plans.tick() => if !self.lease.stands() || self.prune_plans().await { plans.reset_after(PRUNE_REST) },
            }
        }
        self.write(gathered).await;
    }

    async fn write(&self, gathered: Gathered) {
        if !self.lease.stands() {
            if !gathered.is_empty() {
                tracing::warn!("measurements lost: this server does not lead");
            }
            return;
        }
        tell(self.store.add_series(&gathered.points), "measurements lost").await;
        tell(self.store.save_models(self.clock.now(), &gathered.models), "models lost").await;
        if let Some(lessons) = &gathered.lessons {
            tell(self.store.save_lessons(self.clock.now(), lessons), "lessons of peers lost").await;
        }
    }

    async fn prune(&self) {
        let now = self.clock.now();
        tell(self.store.prune_series(now), "measurements not pruned").await;
        tell(self.store.prune_idempotency_keys(now - self.keys_kept), "idempotency keys not pruned").await;
        tell(self.store.prune_plan_inputs(now - self.retention.plan_inputs), "inputs of plans not pruned").await;
        tell(self.store.prune_pulses(now - self.retention.history), "the cluster's figures not pruned").await;
        tell(self.store.prune_project_pulses(now - self.retention.history), "the figures of projects not pruned").await;
        tell(self.store.prune_met_expectations(now - self.retention.history), "what came of predictions not pruned")
            .await;
        tell(self.store.prune_predicted_starts(now - self.retention.history), "predicted starts not pruned").await;
        tell(self.store.prune_transitions(now - self.retention.history), "history not pruned").await;
        tell(self.store.prune_deliveries(now - self.retention.history), "deliveries not pruned").await;
        tell(self.store.prune_sessions(now), "browser sessions not pruned").await;
        let before = now - self.retention.least_for_jobs();
        tell(self.store.prune_former_nodes(before), "names of deleted nodes not pruned").await;
    }

    /// Prunes some of the rows that are past their time, oldest first; true where there may be more. Jobs go after
    /// events: as long as an event names a job, its row says who may see it. What belongs to jobs goes last.
    async fn prune_rows(&self, jobs_at_a_time: &mut u32) -> bool {
        let now = self.clock.now();
        let events = self.store.prune_events(now - self.retention.events, EVENTS_AT_A_TIME);
        if tell(events, "events not pruned").await == Some(u64::from(EVENTS_AT_A_TIME)) {
            return true;
        }
        if self.prune_jobs(now, jobs_at_a_time).await {
            return true;
        }
        let before = now - self.retention.least_for_jobs();
        let full = Some(u64::from(ROWS_AT_A_TIME));
        tell(self.store.prune_arrays(before, ROWS_AT_A_TIME), "arrays not pruned").await == full
            || tell(
                self.store.prune_series_without_job(before, ROWS_AT_A_TIME),
                "measurements of former jobs not pruned",
            )
            .await
                == full
            || tell(
                self.store.prune_tokens(now - self.retention.tokens, ROWS_AT_A_TIME),
                "tokens that ended not pruned",
            )
            .await
                == full
            || self.prune_audit(now).await == full
    }

    /// Prunes some jobs; true where there may be more. Jobs that take too long are tried again, fewer at a time.
    async fn prune_jobs(&self, now: Timestamp, jobs_at_a_time: &mut u32) -> bool {
        let jobs = self.store.prune_jobs(now - self.retention.least_for_jobs(), *jobs_at_a_time);
        match tell(jobs, "jobs not pruned").await {
            Some(pruned) if pruned == u64::from(*jobs_at_a_time) => true,
            None if *jobs_at_a_time > 1 => {
                *jobs_at_a_time /= 2;
                true
            }
            _ => {
                *jobs_at_a_time = JOBS_AT_A_TIME;
                false
            }
        }
    }

    async fn prune_audit(&self, now: Timestamp) -> Option<u64> {
        let before = now - self.retention.audit;
        let midnight = Timestamp(before.0 - before.0.rem_euclid(DAY));
        tell(self.store.prune_audit(midnight, ROWS_AT_A_TIME, now), "the audit not pruned").await
    }

    /// Some of the plans that are past their time, oldest first; true where there may be more.
    async fn prune_plans(&self) -> bool {
        let before = self.clock.now() - self.retention.plans;
        let pruned = tell(self.store.prune_plans(before, PLANS_AT_A_TIME), "plans not pruned").await;
        pruned == Some(u64::from(PLANS_AT_A_TIME))
    }
}

impl Gathered {
    fn is_empty(&self) -> bool {
        self.points.is_empty() && self.models.is_empty() && self.lessons.is_none()
    }

    fn add(&mut self, observation: Observation) {
        match observation {
            Observation::Steps { at, report, noise_scale, efficiency, gpus } => {
                self.points.push((report.job, SeriesPoint::of(at, &report, noise_scale, efficiency, gpus)));
            }
            Observation::Model { job, model } => {
                self.models.insert(job, model);
            }
            Observation::Lessons { lessons } => self.lessons = Some(lessons),
        }
    }
}

/// What the store answers in time; else `message` is told.
async fn tell<T>(asked: impl Future<Output = Result<T, StoreError>>, message: &'static str) -> Option<T> {
    let told = |error: &StoreError| tracing::warn!(error = error as &dyn std::error::Error, "{message}");
    answered(asked).await.inspect_err(told).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_engine::Change;
    use headway_engine::record::{PlanRecord, PlanState};
    use headway_types::{IdSource, Plan, PlanReport, TokenScope};

    use super::*;
    use crate::store::{NewToken, TokenHash};
    use crate::support::{START, TestDatabase};

    #[tokio::test]
    async fn more_plans_than_are_pruned_at_a_time_are_pruned_in_turns() {
        let store = TestDatabase::create().await.store().await;
        let term = store.begin_term().await.unwrap();
        let mut ids = IdSource::seeded(1);
        let old = |id| {
            let plan =
                Plan { id, parent: None, made_at: START, assignments: BTreeMap::new(), report: PlanReport::default() };
            let record = PlanRecord {
                plan: Arc::new(plan),
                state: PlanState::Superseded,
                decided_at: None,
                decided_by: None,
                adopted: None,
                terms: None,
            };
            Change::Plan(Arc::new(record))
        };
        let plans: Vec<Change> = (0..=2 * PLANS_AT_A_TIME).map(|_| old(ids.plan(START))).collect();
        store.commit(term, &plans).await.unwrap();
        let clock = Clock::default();
        clock.advance_to(START + Seconds(1.0));
        let retention = Retention { plans: Seconds(0.0), ..Retention::default() };
        let observer = Observer::start(store.clone(), clock, Lease::standing(), Seconds(0.0), retention);
        let gone = async { while !store.plans(None, None, 1).await.unwrap().items.is_empty() {} };
        tokio::time::timeout(Duration::from_secs(20), gone).await.unwrap();
        observer.finish().await;
    }

    #[tokio::test]
    async fn tokens_that_ended_are_pruned() {
        let store = TestDatabase::create().await.store().await;
        let (scope, expires_at) = (TokenScope::User, Some(START));
        let new = NewToken { name: "old", user: Some("ada"), scope, expires_at, identity: None, of_session: false };
        store.create_token(&new, &TokenHash::of("old"), START, None).await.unwrap();
        let clock = Clock::default();
        clock.advance_to(START + Seconds(1.0));
        let retention = Retention { tokens: Seconds(0.0), ..Retention::default() };
        let observer = Observer::start(store.clone(), clock, Lease::standing(), Seconds(0.0), retention);
        let gone = async { while !store.tokens(None, None, 1).await.unwrap().items.is_empty() {} };
        tokio::time::timeout(Duration::from_secs(20), gone).await.unwrap();
        observer.finish().await;
    }
}
