//! Accounts of GPU-time and notices that are due, on a real Postgres.

use std::sync::Arc;

use futures::TryStreamExt;
use headway_engine::record::{Allocation, Displacer, Notice, NoticeId, Release, ReleaseProof, StopCause};
use headway_engine::{Change, Tenure};
use headway_scheduler::store::{BusyReceivers, Store};
use headway_types::spec::NoticeKind;
use headway_types::{GpuCount, GpuType, IdSource, Seconds, Timestamp};

use crate::support::{START, TestDatabase, allocation, job, node};

fn second(number: f64) -> Timestamp {
    START + Seconds(number)
}

async fn tenures(store: &Store) -> Vec<Tenure> {
    let held: Vec<_> = store.tenures(START, second(1e6)).try_collect().await.unwrap();
    held.into_iter().map(|held| held.tenure).collect()
}

/// The database makes of records what the engine does.
#[tokio::test]
async fn tenures_are_those_of_the_records() {
    let store = TestDatabase::create().await.store().await;
    let term = store.begin_term().await.unwrap();
    let mut ids = IdSource::seeded(1);
    let (id, node_id) = (ids.job(START), ids.node(START));
    let by = Displacer { job: ids.job(START), name: "urgent".into(), owner: "grace".into(), gpus: GpuCount(1) };
    let living = Allocation { launched_at: Some(second(5.0)), ..allocation(id, node_id, 1) };
    let displaced = Allocation {
        training_at: Some(second(10.0)),
        saved_at: Some(second(20.0)),
        idle_since: Some(second(25.0)),
        stopping_at: Some(second(30.0)),
        stopped_for: Some(StopCause::Preempt),
        displaced_by: vec![by.clone()],
        gpu_type: Some(GpuType("H100-80G".into())),
        released: [(node_id, Release { at: second(40.0), proof: ReleaseProof::Reported })].into(),
        ended_at: Some(second(40.0)),
        ..allocation(id, node_id, 2)
    };
    let drained = Allocation { stopped_for: Some(StopCause::Drain), complete: true, ..displaced.clone() };
    let drained = Allocation { generation: headway_types::Generation(3), ..drained };
    let all = [living, displaced, drained];
    let rows = all.clone().map(|one| Change::Allocation(Arc::new(one)));
    let changes: Vec<Change> = [Change::Job(Arc::new(job(id, "llama"))), Change::Node(Arc::new(node(node_id)))]
        .into_iter()
        .chain(rows)
        .collect();
    store.commit(term, &changes).await.unwrap();
    let expected: Vec<Tenure> = all.iter().map(Tenure::of).collect();
    assert_eq!(tenures(&store).await, expected);
    assert_eq!(store.takers(START, second(1e6)).await.unwrap(), [by.job].into());
    assert!(store.takers(second(50.0), second(1e6)).await.unwrap().is_empty(), "it had ended by then");
}

fn notice(event: u64, owner: &str, host: &str) -> Change {
    Change::Notice(Box::new(Notice {
        id: NoticeId { event, webhook: 0 },
        at: second(event as f64),
        kind: NoticeKind::Finished,
        verb: "job.succeeded".into(),
        job: IdSource::seeded(event).job(START),
        name: "llama".into(),
        project: "nlp".into(),
        owner: owner.into(),
        text: "llama succeeded".into(),
        webhook: format!("https://{host}/hook"),
        secret: None,
    }))
}

#[tokio::test]
async fn one_owners_notices_hold_up_nobody_elses() {
    let store = TestDatabase::create().await.store().await;
    let term = store.begin_term().await.unwrap();
    let many = (1..=50).map(|event| notice(event, "ada", &format!("host-{event}.example")));
    let changes: Vec<Change> = many.chain([notice(60, "grace", "hooks.example")]).collect();
    store.commit(term, &changes).await.unwrap();
    let due = async |busy: BusyReceivers<'_>| {
        let due = store.due_notices(second(100.0), busy, 4, 32).await.unwrap();
        due.into_iter().map(|one| one.notice.id.event).collect::<Vec<_>>()
    };
    assert_eq!(due(BusyReceivers::default()).await, [1, 2, 3, 4, 60]);
    let owners = ["ada".to_owned()];
    assert_eq!(due(BusyReceivers { owners: &owners, ..BusyReceivers::default() }).await, [60]);
    let hosts = ["host-1.example".to_owned(), "hooks.example".to_owned()];
    let under_way = [NoticeId { event: 2, webhook: 0 }];
    let busy = BusyReceivers { hosts: &hosts, under_way: &under_way, ..BusyReceivers::default() };
    assert_eq!(due(busy).await, [3, 4, 5, 6]);
    assert_eq!(store.waiting_notices().await.unwrap(), 51);
}
