//! Who waits for whom, on a real Postgres.

use std::sync::Arc;

use headway_engine::Change;
use headway_engine::record::{Awaited, Dependency, DependencyStanding, Job, JobState};
use headway_scheduler::store::{Store, StoreError};
use headway_types::spec::Condition;
use headway_types::{IdSource, JobId, Term, Timestamp};
use sqlx::ConnectOptions;

use crate::support::{START, TestDatabase, job};

async fn write(store: &Store, term: Term, jobs: &[&Job]) -> Result<(), StoreError> {
    let changes: Vec<Change> = jobs.iter().map(|job| Change::Job(Arc::new((*job).clone()))).collect();
    store.commit(term, &changes).await
}

fn waiting(id: JobId, name: &str, on: &[JobId]) -> Job {
    let dependency = |job: &JobId| Dependency {
        of: Awaited::Job(*job),
        name: "prep".into(),
        project: "nlp".into(),
        owner: "ada".into(),
        on: Condition::Success,
        standing: DependencyStanding::Open,
    };
    Job { after: on.iter().map(dependency).collect(), ..job(id, name) }
}

#[tokio::test]
async fn whoever_waits_for_a_job_is_found_by_it_also_after_both_have_ended() {
    let database = TestDatabase::create().await;
    let store = database.store().await;
    let term = store.begin_term().await.unwrap();
    let mut ids = IdSource::seeded(3);
    let [first, second, third, fourth] = std::array::from_fn(|_| ids.job(START));
    let mut one = waiting(third, "one", &[first, second]);
    let many = [&job(first, "first"), &job(second, "second"), &one, &waiting(fourth, "other", &[second])];
    write(&store, term, &many).await.unwrap();
    let names = async |job: JobId, limit: u32| -> Vec<String> {
        store.dependents(Awaited::Job(job), None, limit).await.unwrap().into_iter().map(|job| job.spec.name).collect()
    };
    assert_eq!(names(first, 100).await, ["one"]);
    assert_eq!(names(second, 100).await, ["one", "other"]);
    assert_eq!(names(second, 1).await, ["one"]);
    assert!(names(third, 100).await.is_empty());
    one.state = JobState::Cancelled { at: Timestamp(START.0 + 1), by: "scheduler".into(), reason: None };
    one.after[0].standing = DependencyStanding::Never { at: START };
    one.version += 1;
    write(&store, term, &[&one]).await.unwrap();
    assert_eq!(
        store.dependents(Awaited::Job(first), None, 100).await.unwrap(),
        std::slice::from_ref(&one),
        "judgement and all"
    );
    // Rows of the binary before this one say nothing of it.
    let mut connection = database.options.connect().await.unwrap();
    sqlx::query("UPDATE jobs SET depends_on = NULL").execute(&mut connection).await.unwrap();
    assert!(names(second, 100).await.is_empty());
}

#[tokio::test]
async fn a_name_means_its_owners_newest_job_in_the_project() {
    let database = TestDatabase::create().await;
    let store = database.store().await;
    let term = store.begin_term().await.unwrap();
    let mut ids = IdSource::seeded(4);
    let mut next = |name: &str, owner: &str| Job { owner: owner.into(), ..job(ids.job(START), name) };
    let [old, new, others, eval] = [next("prep", "ada"), next("prep", "ada"), next("prep", "bob"), next("eval", "ada")];
    write(&store, term, &[&old, &new, &others, &eval]).await.unwrap();
    let key = |project: &str, name: &str| (project.to_owned(), name.to_owned());
    let wanted = [key("nlp", "prep"), key("nlp", "none"), key("vision", "prep")];
    let found = store.newest_named("ada", &wanted).await.unwrap();
    assert_eq!(found, [(key("nlp", "prep"), new.id)].into());
    assert_eq!(store.newest_named("bob", &wanted).await.unwrap(), [(key("nlp", "prep"), others.id)].into());
    assert_eq!(store.names_of("ada", "nlp").await.unwrap(), ["eval", "prep"]);
}
