//! What came of predictions, on a real Postgres: written with the decision that ends them, found by age, forgotten with the history.

use std::sync::Arc;

use headway_engine::Change;
use headway_engine::record::{Entered, Expectation, Job, JobState, ModelFamily, Realised, Transition};
use headway_scheduler::store::{MetStart, PredictedStart, Store};
use headway_types::{
    Generation, GpuCount, GpuType, IdSource, JobId, JobStateKind, Seconds, Term, Timestamp, TokensPerSecond, example,
};

use crate::support::{START, TestDatabase, allocation};

async fn store() -> (Store, Term) {
    let store = TestDatabase::create().await.store().await;
    let term = store.begin_term().await.unwrap();
    (store, term)
}

fn second(number: f64) -> Timestamp {
    START + Seconds(number)
}

fn realised(job: JobId, revision: u64, ended: f64) -> Realised {
    let expectation = Expectation {
        at: START,
        revision,
        goodput: TokensPerSecond(100.0),
        band: Some((TokensPerSecond(80.0), TokensPerSecond(120.0))),
        measured_from: None,
    };
    Realised {
        job,
        generation: Generation(1),
        expectation,
        ended_at: second(ended),
        gpu_type: Some(GpuType("H100-80G".into())),
        family: ModelFamily::To10b,
        gpus: GpuCount(8),
        goodput: TokensPerSecond(90.0),
        measured_for: Seconds(600.0),
    }
}

fn queued(job: JobId) -> Job {
    let spec = example::spec("waits", example::gpus(1, 8), None);
    Job { version: 1, ..Job::new(job, spec, "ada".into(), START) }
}

#[tokio::test]
async fn what_came_of_expectations_is_committed_once_and_pruned_by_age() {
    let (store, term) = store().await;
    let job = IdSource::seeded(1).job(START);
    let changes = [realised(job, 1, 10.0), realised(job, 2, 20.0)].map(|one| Change::Realised(Box::new(one)));
    store.commit(term, &changes).await.unwrap();
    store.commit(term, &changes).await.unwrap();
    let met = store.met_expectations(START, second(60.0), 10).await.unwrap();
    assert_eq!(met.len(), 2, "repeating a commit changes nothing");
    assert_eq!((met[0].gpu_type.as_str(), met[0].model_family.as_str()), ("H100-80G", "1b_to_10b"));
    assert_eq!((met[0].predicted.0, met[0].realised.0, met[0].band.unwrap().1.0), (100.0, 90.0, 120.0));
    assert_eq!(store.met_expectations(START, second(20.0), 10).await.unwrap().len(), 1, "the end is not in");
    assert_eq!(store.met_expectations(START, second(60.0), 1).await.unwrap().len(), 1);
    assert_eq!(store.prune_met_expectations(second(15.0)).await.unwrap(), 1);
}

#[tokio::test]
async fn the_first_prediction_of_a_wait_is_held_against_the_next_grant() {
    let (store, term) = store().await;
    let mut ids = IdSource::seeded(1);
    let (starts, waits, node) = (ids.job(START), ids.job(START), ids.node(START));
    let said = |job, made: f64| PredictedStart {
        job,
        generation: Generation(0),
        made_at: second(made),
        model_family: "opaque".into(),
        p10: second(100.0),
        p50: Some(second(200.0)),
        p90: None,
    };
    let jobs = [starts, waits].map(|job| Change::Job(Arc::new(queued(job))));
    store.commit(term, &jobs).await.unwrap();
    store.add_predicted_starts(&[said(starts, 1.0), said(waits, 2.0)]).await.unwrap();
    store.add_predicted_starts(&[said(starts, 50.0)]).await.unwrap();
    let held = headway_engine::record::Allocation {
        granted_at: second(150.0),
        gpu_type: Some(GpuType("A100-40G".into())),
        ..allocation(starts, node, 1)
    };
    store.commit(term, &[Change::Allocation(Arc::new(held))]).await.unwrap();
    let awaited = store.awaited_starts(START, second(60.0), 10).await.unwrap();
    let told: Vec<_> = awaited.iter().map(|one| (one.made_at, one.started.clone(), one.waits)).collect();
    let came = Some((second(150.0), Some("A100-40G".to_owned())));
    assert_eq!(
        told,
        [(second(2.0), None, true), (second(1.0), came, true)],
        "the newest first; of a wait the first word"
    );
    let met = store.met_starts(second(100.0), second(200.0)).await.unwrap();
    let came = MetStart { at: second(150.0), p10: second(100.0), p50: Some(second(200.0)), p90: None };
    assert_eq!(met, [came]);
    let next = headway_engine::record::Allocation { granted_at: second(170.0), ..allocation(starts, node, 2) };
    store.commit(term, &[Change::Allocation(Arc::new(next))]).await.unwrap();
    assert_eq!(store.met_starts(second(100.0), second(200.0)).await.unwrap(), [came], "the wait ended with the first");
    assert_eq!(store.met_starts(second(150.5), second(200.0)).await.unwrap(), []);
    assert_eq!(store.prune_predicted_starts(second(2.0)).await.unwrap(), 1);
}

#[tokio::test]
async fn a_start_is_overdue_once_its_band_ends_while_the_job_waits() {
    let (store, term) = store().await;
    let mut ids = IdSource::seeded(2);
    let node = ids.node(START);
    let [waits, early, late, left] = [(); 4].map(|()| ids.job(START));
    let ended = JobState::Cancelled { at: second(50.0), by: "ada".into(), reason: None };
    let rows = [queued(waits), queued(early), queued(late), Job { state: ended, ..queued(left) }];
    let rows = rows.map(|job| Change::Job(Arc::new(job)));
    store.commit(term, &rows).await.unwrap();
    let said = [waits, early, late, left].map(|job| PredictedStart {
        job,
        generation: Generation(0),
        made_at: second(1.0),
        model_family: "opaque".into(),
        p10: second(20.0),
        p50: Some(second(40.0)),
        p90: Some(second(100.0)),
    });
    store.add_predicted_starts(&said).await.unwrap();
    for (job, at) in [(early, 90.0), (late, 110.0)] {
        let held = headway_engine::record::Allocation { granted_at: second(at), ..allocation(job, node, 1) };
        store.commit(term, &[Change::Allocation(Arc::new(held))]).await.unwrap();
    }
    assert_eq!(store.overdue_starts(second(60.0), second(120.0)).await.unwrap(), 2, "one waits, one came late");
    assert_eq!(store.overdue_starts(second(120.0), second(180.0)).await.unwrap(), 0);
    let awaited = store.awaited_starts(START, second(60.0), 10).await.unwrap();
    assert_eq!(awaited.iter().filter(|one| one.ended_at == Some(second(50.0))).count(), 1);
}

#[tokio::test]
async fn a_wait_is_from_the_queue_to_the_first_gpus() {
    let (store, term) = store().await;
    let mut ids = IdSource::seeded(1);
    let (soon, late, again, node) = (ids.job(START), ids.job(START), ids.job(START), ids.node(START));
    let queued_at = |job, at: f64| {
        let entered = Entered::Job { job, state: JobStateKind::Queued, generation: Generation(0) };
        Change::Transition(Transition { at: second(at), entered })
    };
    let granted = |job, generation, at: f64| {
        let allocation = allocation(job, node, generation);
        Change::Allocation(Arc::new(headway_engine::record::Allocation { granted_at: second(at), ..allocation }))
    };
    let jobs = [soon, late, again].map(|job| Change::Job(Arc::new(queued(job))));
    store.commit(term, &jobs).await.unwrap();
    store.commit(term, &[queued_at(soon, 10.0), queued_at(late, 0.0), queued_at(again, 0.0)]).await.unwrap();
    let grants = [granted(soon, 1, 20.0), granted(late, 1, 110.0), granted(again, 1, 5.0), granted(again, 2, 90.0)];
    store.commit(term, &grants).await.unwrap();
    let waits = store.first_waits(second(15.0), second(200.0)).await.unwrap();
    let [median, nine_of_ten, most] = waits.quantiles.map(|wait| wait.unwrap().0);
    // 10 s and 110 s; who came back had waited before.
    assert_eq!(waits.jobs, 2);
    for (told, is) in [(median, 60.0), (nine_of_ten, 100.0), (most, 109.0)] {
        assert!((told - is).abs() < 1e-6, "{told} for {is}");
    }
    assert_eq!(store.first_waits(second(15.0), second(100.0)).await.unwrap().jobs, 1);
}
