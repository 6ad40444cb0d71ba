//! Notices come with their events, in one outcome, or not at all.

use headway_engine::event::{Actor, Event, Request, RequestId};
use headway_engine::record::{EventRecord, Notice, NoticeId};
use headway_engine::{Change, Outcome};
use headway_types::JobId;
use headway_types::spec::{NoticeKind, Notify};

use crate::harness::{Cluster, rigid};

fn cancelled(cluster: &mut Cluster, job: JobId) -> Outcome {
    let body = Request::Cancel { job, reason: None, grace: None };
    let event = Event::Request { request: RequestId(7_000), actor: Actor::User("ada".into()), body };
    cluster.engine.handle(cluster.now, vec![event])
}

fn events(of: &Outcome) -> Vec<&EventRecord> {
    of.changes.iter().filter_map(|change| if let Change::Event(event) = change { Some(event) } else { None }).collect()
}

fn notices(of: &Outcome) -> Vec<&Notice> {
    of.changes.iter().filter_map(|change| if let Change::Notice(one) = change { Some(&**one) } else { None }).collect()
}

#[test]
fn a_notice_is_committed_with_the_event_that_it_tells_of() {
    let mut cluster = Cluster::new(&[1]);
    let on = [NoticeKind::Finished].into();
    let notify = Notify { webhook: "https://hooks.example/x".into(), on, secret: None };
    let mut large = rigid("large", 4);
    large.notify = vec![notify.clone(), Notify { on: [NoticeKind::Started].into(), ..notify }];
    let told = cluster.submit(large);
    let outcome = cancelled(&mut cluster, told);
    let event = events(&outcome).into_iter().find(|event| event.verb == "job.cancelled").unwrap();
    let notices = notices(&outcome);
    assert_eq!(notices.iter().map(|one| one.id).collect::<Vec<_>>(), [NoticeId { event: event.seq, webhook: 0 }]);
    assert_eq!((notices[0].job, notices[0].at), (told, event.at));
}

#[test]
fn whoever_asks_for_no_notices_gets_none() {
    let mut cluster = Cluster::new(&[1]);
    let job = cluster.submit(rigid("large", 4));
    assert!(notices(&cancelled(&mut cluster, job)).is_empty());
}

#[test]
fn a_notice_that_is_given_up_is_an_event_also_of_a_job_that_is_gone() {
    let mut cluster = Cluster::new(&[1]);
    let (notice, job) = (NoticeId { event: 3, webhook: 1 }, JobId(uuid::Uuid::from_u128(9)));
    let given_up = Event::NoticeGivenUp { notice, job, message: "given up".into() };
    let outcome = cluster.engine.handle(cluster.now, vec![given_up]);
    let told: Vec<_> = events(&outcome).iter().map(|event| (event.verb.as_str(), event.job)).collect();
    assert_eq!(told, [("job.notify_failed", Some(job))]);
    assert!(outcome.changes.contains(&Change::NoticeGivenUp { notice, at: cluster.now }));
}
