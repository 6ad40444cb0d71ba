//! What one user may have at most, told by hand.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_engine::event::{Actor, Event, JobChange, Known, Request, RequestId};
use headway_engine::record::{OverQuota, OwnQuota, PolicySettings, QuotaKind, UserLoad, UserQuota, weight};
use headway_engine::{Refusal, Reply};
use headway_types::spec::ArraySpec;
use headway_types::{JobId, JobSpec};
use proptest::prelude::*;

use crate::harness::{Cluster, rigid};

/// A cluster without nodes in which ada may have so much and everybody else the usual.
fn allowing(jobs: u32, bytes: u64) -> Cluster {
    let mut cluster = Cluster::new(&[]);
    let own = OwnQuota { unfinished_jobs: Some(jobs), specification_bytes: Some(bytes), ..OwnQuota::default() };
    let user_quotas = Arc::new(BTreeMap::from([("ada".to_owned(), own)]));
    let settings = PolicySettings { user_quotas, ..PolicySettings::default() };
    let reply = cluster.request(Request::SetPolicy { settings: settings.into(), expected: None });
    assert!(matches!(reply, Reply::Policy(_)), "{reply:?}");
    cluster
}

fn submission(jobs: Vec<JobSpec>) -> Request {
    Request::Submit { jobs, idempotency: None, known: Known::default() }
}

fn array(name: &str, range: &str) -> JobSpec {
    JobSpec { array: Some(ArraySpec { indices: range.parse().unwrap(), parallel: None }), ..rigid(name, 1) }
}

fn submit(cluster: &mut Cluster, jobs: Vec<JobSpec>) -> Result<Vec<JobId>, Refusal> {
    match cluster.request(submission(jobs)) {
        Reply::Submitted { jobs } => Ok(jobs.iter().map(|job| job.id).collect()),
        Reply::Refused(refusal) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

fn cancel(cluster: &mut Cluster, job: JobId) {
    let reply = cluster.request(Request::Cancel { job, reason: None, grace: None });
    assert!(matches!(reply, Reply::Job(_)), "{reply:?}");
}

fn requeue(cluster: &mut Cluster, job: JobId) -> Reply {
    let known = cluster.known();
    cluster.request(Request::Requeue { job, reason: None, known })
}

fn over(quota: QuotaKind, held: u64, more: u64, limit: u64) -> Refusal {
    Refusal::OverQuota(OverQuota { user: "ada".into(), quota, held, more, limit })
}

fn held(cluster: &Cluster) -> UserLoad {
    cluster.engine.view().load_of("ada")
}

#[test]
fn what_goes_beyond_a_users_quota_is_refused_as_a_whole_and_elements_of_arrays_count() {
    let mut cluster = allowing(5, u64::MAX);
    submit(&mut cluster, vec![rigid("one", 1), rigid("two", 1)]).unwrap();
    let refused = submit(&mut cluster, vec![rigid("three", 1), array("sweep", "0-2")]).unwrap_err();
    assert_eq!(refused, over(QuotaKind::Jobs, 2, 4, 5));
    assert_eq!((cluster.jobs.len(), cluster.arrays.len(), held(&cluster).jobs), (2, 0, 2), "nothing of it is stored");
    let sweep = submit(&mut cluster, vec![array("sweep", "0-2")]).unwrap();
    assert_eq!(held(&cluster).jobs, 5);
    cancel(&mut cluster, sweep[0]);
    submit(&mut cluster, vec![rigid("three", 1)]).unwrap();
}

#[test]
fn one_user_takes_nothing_from_another() {
    let mut cluster = allowing(1, u64::MAX);
    submit(&mut cluster, vec![rigid("mine", 1)]).unwrap();
    submit(&mut cluster, vec![rigid("mine too", 1)]).unwrap_err();
    let body = submission(vec![array("his", "0-99")]);
    let event = Event::Request { request: RequestId(1), actor: Actor::User("bob".into()), body };
    assert!(matches!(cluster.feed(event).remove(0), Reply::Submitted { .. }));
}

#[test]
fn submissions_that_come_together_do_not_pass_the_quota_together() {
    let mut cluster = allowing(10, u64::MAX);
    let one = |n: u64| Event::Request {
        request: RequestId(n),
        actor: Actor::User("ada".into()),
        body: submission(vec![rigid(&format!("job-{n}"), 1)]),
    };
    let replies = cluster.feed_all((0..64).map(one).collect());
    let refused = replies.iter().filter(|reply| matches!(reply, Reply::Refused(Refusal::OverQuota(_))));
    assert_eq!((replies.len(), refused.count(), cluster.jobs.len()), (64, 54, 10));
}

#[test]
fn specifications_are_bounded_by_what_they_take() {
    let one = weight(&rigid("aaa", 1));
    let mut cluster = allowing(100, 2 * one);
    let first = submit(&mut cluster, vec![rigid("aaa", 1), rigid("bbb", 1)]).unwrap()[0];
    assert_eq!(submit(&mut cluster, vec![rigid("ccc", 1)]).unwrap_err(), over(QuotaKind::Bytes, 2 * one, one, 2 * one));
    let labels = BTreeMap::from([("team".to_owned(), "x".repeat(40))]);
    let change = JobChange { labels: Some(labels), ..JobChange::default() };
    let grown = cluster.request(Request::Change { job: first, change, expected: None });
    assert!(matches!(grown, Reply::Refused(Refusal::OverQuota(_))), "{grown:?}");
    cancel(&mut cluster, first);
    submit(&mut cluster, vec![rigid("ccc", 1)]).unwrap();
}

#[test]
fn another_scheduler_counts_the_same_and_what_is_put_back_counts_again() {
    let mut cluster = allowing(2, u64::MAX);
    let jobs = submit(&mut cluster, vec![rigid("one", 1), rigid("two", 1)]).unwrap();
    let before = held(&cluster);
    cluster.restart();
    assert_eq!(held(&cluster), before);
    submit(&mut cluster, vec![rigid("three", 1)]).unwrap_err();
    cancel(&mut cluster, jobs[0]);
    submit(&mut cluster, vec![rigid("three", 1)]).unwrap();
    let refused = requeue(&mut cluster, jobs[0]);
    assert_eq!(refused, Reply::Refused(over(QuotaKind::Jobs, 2, 1, 2)));
    cancel(&mut cluster, jobs[1]);
    assert!(matches!(requeue(&mut cluster, jobs[0]), Reply::Job(_)));
}

#[test]
fn a_key_that_was_used_is_answered_though_the_quota_is_full_since() {
    let mut cluster = allowing(1, u64::MAX);
    assert!(matches!(cluster.submit_keyed(rigid("one", 1), "a"), Reply::Submitted { .. }));
    assert!(matches!(cluster.submit_keyed(rigid("one", 1), "a"), Reply::Replayed { .. }));
}

#[test]
fn a_lower_quota_takes_nothing_away_and_one_without_requests_is_none() {
    let mut cluster = allowing(3, u64::MAX);
    submit(&mut cluster, vec![array("sweep", "0-2")]).unwrap();
    let lower = UserQuota { unfinished_jobs: 1, ..UserQuota::default() };
    let set = |user_quota| {
        let settings = PolicySettings { user_quota, ..PolicySettings::default() };
        Request::SetPolicy { settings: settings.into(), expected: None }
    };
    assert!(matches!(cluster.request(set(lower)), Reply::Policy(_)));
    assert_eq!(held(&cluster).jobs, 3);
    assert_eq!(submit(&mut cluster, vec![rigid("one", 1)]).unwrap_err(), over(QuotaKind::Jobs, 3, 1, 1));
    let told = cluster.messages.iter().any(|told| told.contains("user_quota.unfinished_jobs 10000 becomes 1"));
    assert!(told, "{:?}", cluster.messages);
    for none in [
        UserQuota { requests_per_second: 0, ..UserQuota::default() },
        UserQuota { request_burst: 0, ..UserQuota::default() },
    ] {
        assert!(matches!(cluster.request(set(none)), Reply::Refused(Refusal::Invalid(_))));
    }
}

#[derive(Clone, Debug)]
enum Deed {
    Submit(u32),
    Cancel(usize),
    Requeue(usize),
    Label(usize, usize),
    Restart,
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        4 => (1..6_u32).prop_map(Deed::Submit),
        2 => (0..30_usize).prop_map(Deed::Cancel),
        2 => (0..30_usize).prop_map(Deed::Requeue),
        1 => (0..30_usize, 0..60_usize).prop_map(|(job, length)| Deed::Label(job, length)),
        1 => Just(Deed::Restart),
    ]
}

proptest! {
    /// The harness checks after every batch that the sums are those of the rows.
    #[test]
    fn whatever_is_done_nobody_has_more_than_the_quota(deeds in prop::collection::vec(deed(), 1..40), jobs in 1..12_u32) {
        let bytes = u64::from(jobs) * weight(&rigid("sweep", 1)) * 3 / 2;
        let mut cluster = allowing(jobs, bytes);
        for deed in deeds {
            let job = |place: usize| {
                let ids: Vec<JobId> = cluster.jobs.keys().copied().collect();
                ids.get(place % ids.len().max(1)).copied()
            };
            match deed {
                Deed::Submit(many) => drop(submit(&mut cluster, vec![array("sweep", &format!("1-{many}"))])),
                Deed::Cancel(place) => {
                    if let Some(job) = job(place) {
                        cluster.request(Request::Cancel { job, reason: None, grace: None });
                    }
                }
                Deed::Requeue(place) => {
                    if let Some(job) = job(place) {
                        requeue(&mut cluster, job);
                    }
                }
                Deed::Label(place, length) => {
                    if let Some(job) = job(place) {
                        let labels = Some(BTreeMap::from([("note".to_owned(), "x".repeat(length))]));
                        let change = JobChange { labels, ..JobChange::default() };
                        cluster.request(Request::Change { job, change, expected: None });
                    }
                }
                Deed::Restart => cluster.restart(),
            }
            let load = held(&cluster);
            let unfinished = cluster.jobs.values().filter(|job| !job.state.is_final()).count();
            prop_assert_eq!(load.jobs as usize, unfinished);
            prop_assert!(load.jobs <= jobs && load.bytes <= bytes, "{:?} of {} and {}", load, jobs, bytes);
        }
    }
}
