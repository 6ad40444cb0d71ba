//! The archive: keeps what each stored plan was made from, so that the round can be decided again.
//!
//! Writing a round down costs tens of milliseconds and megabytes (3.4 MB at 1,000 jobs), so it happens on a thread of its
//! own and after the commit: no decision waits for it. The price is that a round can be lost, by a crash in between or
//! by a database that does not keep up. Every loss but that by a crash is counted and logged.

use std::io::Read;
use std::sync::Arc;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use headway_engine::Change;
use headway_planner::PlanInput;
use headway_types::{Plan, PlanId};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::metrics;
use crate::planning::SolvedRound;
use crate::store::{Store, answered};

/// Rounds that may wait to be written. Each holds its whole input in memory.
const QUEUE: usize = 8;
/// Bytes of a reply made at a time.
const PIECE: usize = 1 << 16;

/// Takes rounds whose plans are stored, and writes them one after another.
pub struct Archive {
    queue: mpsc::Sender<Arc<SolvedRound>>,
    /// Ends with whoever waits for it.
    writer: AbortOnDropHandle<()>,
    /// Whose round was handed over last: a plan that is approved, rejected or replaced is committed again, and made of nothing new.
    taken: Option<PlanId>,
}

impl Archive {
    #[must_use]
    /// `version` is written down with each round, for whoever decides it again.
    pub fn start(store: Store, version: String) -> Self {
        let (queue, rounds) = mpsc::channel(QUEUE);
        let writer = AbortOnDropHandle::new(tokio::spawn(write(store, version.into(), rounds)));
        Self { queue, writer, taken: None }
    }

    /// Hands a round over once its plan is among the committed changes; drops it when the writer cannot keep up.
    pub fn take(&mut self, changes: &[Change], newest: Option<&Arc<SolvedRound>>) {
        let Some(round) = newest.filter(|round| self.taken != Some(round.plan.id)) else { return };
        if !changes.iter().any(|change| stores(change, round.plan.id)) {
            return;
        }
        match self.queue.try_send(Arc::clone(round)) {
            Ok(()) => self.taken = Some(round.plan.id),
            Err(_) => lost(round.plan.id, &"rounds come faster than they can be written"),
        }
    }

    /// Writes what is left and ends.
    pub async fn finish(self) {
        drop(self.queue);
        if let Err(error) = self.writer.await {
            tracing::error!(error = &error as &dyn std::error::Error, "archive died");
        }
    }
}

fn stores(change: &Change, plan: PlanId) -> bool {
    matches!(change, Change::Plan(record) if record.plan.id == plan)
}

async fn write(store: Store, version: Arc<str>, mut rounds: mpsc::Receiver<Arc<SolvedRound>>) {
    while let Some(round) = rounds.recv().await {
        let (plan, made_at) = (round.plan.id, round.plan.made_at);
        let version = Arc::clone(&version);
        match tokio::task::spawn_blocking(move || pack(&round, &version)).await {
            Ok(Ok(body)) => match answered(store.add_plan_input(plan, made_at, &body)).await {
                Ok(()) => tracing::debug!(plan_id = %plan, bytes = body.len(), "input of a plan stored"),
                Err(error) => lost(plan, &error),
            },
            Ok(Err(error)) => lost(plan, &error),
            Err(error) => lost(plan, &error),
        }
    }
}

fn lost(plan: PlanId, why: &dyn std::fmt::Display) {
    metrics::plan_input_lost();
    tracing::warn!(plan_id = %plan, error = %why, "input of a plan lost, it cannot be replayed");
}

/// `headway_api::v1::StoredRound` without copies of its parts.
#[derive(Serialize)]
struct Stored<'a> {
    plan_id: PlanId,
    made_at: DateTime<Utc>,
    headway_version: &'a str,
    input: &'a PlanInput,
    plan: &'a Plan,
}

/// JSON, gzip at its usual level: a round of 1,000 jobs becomes 234 kB in 35 ms of processor time; the fastest makes it
/// 334 kB in 22. A week of rounds, one a minute, is 2.4 GB instead of 3.4, and nobody waits for the thread that packs them.
fn pack(round: &SolvedRound, version: &str) -> Result<Vec<u8>, serde_json::Error> {
    let SolvedRound { input, plan } = round;
    let made_at = DateTime::from_timestamp_micros(plan.made_at.0).unwrap_or_default();
    let stored = Stored { plan_id: plan.id, made_at, headway_version: version, input, plan };
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    serde_json::to_writer(&mut packed, &stored)?;
    packed.finish().map_err(serde_json::Error::io)
}

/// What was packed, piece by piece: unpacked as it is asked for, so that no reply holds all of it at once.
pub fn unpack(body: Vec<u8>) -> impl Iterator<Item = std::io::Result<Bytes>> {
    let mut text = GzDecoder::new(std::io::Cursor::new(body));
    std::iter::from_fn(move || {
        let mut piece = vec![0; PIECE];
        match text.read(&mut piece) {
            Ok(0) => None,
            Ok(read) => {
                piece.truncate(read);
                Some(Ok(piece.into()))
            }
            Err(error) => Some(Err(error)),
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_engine::record::{PlanRecord, PlanState};
    use headway_planner::builder;
    use headway_types::{IdSource, PlanReport};
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;
    use crate::support::{START, TestDatabase};

    fn round(ids: &mut IdSource) -> Arc<SolvedRound> {
        let plan = ids.plan(START);
        let input = PlanInput { plan, ..builder::round(vec![], vec![]) };
        let (assignments, report) = (Default::default(), PlanReport::default());
        let plan = Plan { id: plan, parent: None, made_at: START, assignments, report };
        Arc::new(SolvedRound { input: Arc::new(input), plan: Arc::new(plan) })
    }

    fn stored(round: &SolvedRound) -> Vec<Change> {
        let plan = Arc::clone(&round.plan);
        let record = PlanRecord {
            plan,
            state: PlanState::Proposed,
            decided_at: None,
            decided_by: None,
            adopted: None,
            terms: None,
        };
        vec![Change::Plan(Arc::new(record))]
    }

    #[tokio::test]
    async fn a_round_that_cannot_be_stored_is_counted_and_holds_nobody_up() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let counted = recorder.handle();
        let _here = ::metrics::set_default_local_recorder(&recorder);
        let store = TestDatabase::create().await.store().await;
        store.close().await;
        let mut archive = Archive::start(store, "0.0.9".into());
        let mut ids = IdSource::seeded(1);
        // The writer has no turn before the first wait: its queue fills up, and the last round finds no room.
        for _ in 0..=QUEUE {
            let round = round(&mut ids);
            archive.take(&stored(&round), Some(&round));
        }
        assert!(counted.render().contains("headway_plan_inputs_lost_total 1"), "{}", counted.render());
        archive.finish().await;
        let all = format!("headway_plan_inputs_lost_total {}", QUEUE + 1);
        assert!(counted.render().contains(&all), "{}", counted.render());
    }

    #[tokio::test]
    async fn a_plan_that_is_committed_again_is_written_once() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let counted = recorder.handle();
        let _here = ::metrics::set_default_local_recorder(&recorder);
        let store = TestDatabase::create().await.store().await;
        store.close().await;
        let mut archive = Archive::start(store, "0.0.9".into());
        let round = round(&mut IdSource::seeded(1));
        for _ in 0..=QUEUE {
            archive.take(&stored(&round), Some(&round));
        }
        archive.finish().await;
        // Each attempt at writing is lost here, and counted.
        assert!(counted.render().contains("headway_plan_inputs_lost_total 1"), "{}", counted.render());
    }

    #[test]
    fn what_is_packed_is_read_as_the_interface_says() {
        let round = round(&mut IdSource::seeded(1));
        let text: Vec<u8> = unpack(pack(&round, "0.0.9 (abc1234)").unwrap()).flat_map(Result::unwrap).collect();
        let read: headway_api::v1::StoredRound = serde_json::from_slice(&text).unwrap();
        assert_eq!((read.plan_id, read.headway_version.as_str()), (round.plan.id.0, "0.0.9 (abc1234)"));
        assert_eq!(read.plan, serde_json::to_value(&round.plan).unwrap());
        assert_eq!(read.input, serde_json::to_value(&*round.input).unwrap());
    }
}
