//! Arrays and their elements, on a real Postgres.

use std::sync::Arc;

use headway_engine::Change;
use headway_engine::record::{Array, Element, Job, JobState, Tally};
use headway_scheduler::store::{ArrayFilter, JobFilter, OutOfSight, Store};
use headway_types::{ArrayId, IdSource, JobId, JobStateKind, Seconds, Term};

use crate::support::{START, TestDatabase, job};

fn array(ids: &mut IdSource, name: &str, range: &str) -> (Array, Vec<Job>) {
    let row = Array {
        id: ids.array(START),
        name: name.into(),
        project: "nlp".into(),
        owner: "ada".into(),
        submitted_at: START,
        indices: range.parse().unwrap(),
        parallel: Some(2),
        tally: Tally::default(),
        version: 1,
    };
    let element = |(place, index): (usize, u32)| {
        let element = Element { array: row.id, index, place: place as u32, count: row.count(), waits: place >= 2 };
        Job { element: Some(element), ..job(ids.job(START), &format!("{name}[{index}]")) }
    };
    let jobs = row.indices.iter().enumerate().map(element).collect();
    (row, jobs)
}

async fn write(store: &Store, term: Term, array: Option<&Array>, jobs: &[Job]) {
    let array = array.map(|array| Change::Array(Arc::new(array.clone())));
    let jobs = jobs.iter().map(|job| Change::Job(Arc::new(job.clone())));
    store.commit(term, &array.into_iter().chain(jobs).collect::<Vec<_>>()).await.unwrap();
}

fn end(jobs: &mut [Job]) {
    for job in jobs {
        (job.state, job.version) = (JobState::Succeeded { at: START }, job.version + 1);
    }
}

#[tokio::test]
async fn a_new_leader_loads_arrays_of_which_a_job_lives_and_others_are_read_by_id() {
    let database = TestDatabase::create().await;
    let store = database.store().await;
    let term = store.begin_term().await.unwrap();
    let mut ids = IdSource::seeded(5);
    let (mut sweep, mut jobs) = array(&mut ids, "sweep", "0-2");
    write(&store, term, Some(&sweep), &jobs).await;
    assert_eq!(store.load(START).await.unwrap().arrays, [sweep.clone()]);
    end(&mut jobs);
    (sweep.tally.succeeded, sweep.version) = (3, 2);
    write(&store, term, Some(&sweep), &jobs).await;
    assert!(store.load(START).await.unwrap().arrays.is_empty(), "it is over");
    assert_eq!(store.arrays_among(&[sweep.id]).await.unwrap(), [sweep.clone()]);
    assert_eq!(store.arrays_among(&[ArrayId(jobs[0].id.0)]).await.unwrap(), []);
    let page = store.elements(sweep.id, None, 2).await.unwrap();
    assert_eq!((page.items, page.next), (jobs[..2].to_vec(), Some(1)));
    assert_eq!(store.elements(sweep.id, Some(1), 2).await.unwrap().items, jobs[2..]);
    let key = ("nlp".to_owned(), "sweep".to_owned());
    let named = store.newest_arrays_named("ada", std::slice::from_ref(&key)).await.unwrap();
    assert_eq!(named, [(key.clone(), sweep.id)].into());
    assert!(store.newest_arrays_named("bob", &[key]).await.unwrap().is_empty());
    let whose = store.jobs_whose(&[JobId(sweep.id.0)]).await.unwrap();
    assert_eq!(whose[&JobId(sweep.id.0)], ("nlp".to_owned(), "ada".to_owned()), "whose an id is, whatever it is of");
}

#[tokio::test]
async fn arrays_are_listed_by_what_they_have_in_common() {
    let database = TestDatabase::create().await;
    let store = database.store().await;
    let term = store.begin_term().await.unwrap();
    let mut ids = IdSource::seeded(6);
    let (mut names, mut known) = (Vec::new(), String::new());
    for number in 0..5 {
        let (row, mut jobs) = array(&mut ids, &format!("run-{number}"), "0-1");
        if number == 0 {
            known = row.id.to_string();
        }
        if number % 2 == 0 {
            end(&mut jobs);
        }
        write(&store, term, Some(&row), &jobs).await;
        names.insert(0, row.name);
    }
    let listed = async |filter: ArrayFilter| -> Vec<String> {
        store.arrays(&filter).await.unwrap().items.into_iter().map(|array| array.name).collect()
    };
    let all = ArrayFilter { limit: 10, ..ArrayFilter::default() };
    assert_eq!(listed(all.clone()).await, names);
    assert_eq!(listed(ArrayFilter { live: Some(true), ..all.clone() }).await, ["run-3", "run-1"]);
    assert_eq!(listed(ArrayFilter { live: Some(false), ..all.clone() }).await, ["run-4", "run-2", "run-0"]);
    assert_eq!(listed(ArrayFilter { name_contains: Some("N-3".into()), ..all.clone() }).await, ["run-3"]);
    assert!(listed(ArrayFilter { owner: Some("bob".into()), ..all.clone() }).await.is_empty());
    assert_eq!(listed(ArrayFilter { name: Some("run-3".into()), ..all.clone() }).await, ["run-3"]);
    assert!(listed(ArrayFilter { name: Some("run".into()), ..all.clone() }).await.is_empty());
    for end in [&known[28..], &known[..35]] {
        assert_eq!(listed(ArrayFilter { id: Some(end.parse().unwrap()), ..all.clone() }).await, ["run-0"], "{end}");
    }
    let hidden = OutOfSight { projects: ["nlp".to_owned()].into(), but_of: "bob".into() };
    assert!(listed(ArrayFilter { out_of_sight: Some(hidden), ..all.clone() }).await.is_empty());
    let first = store.arrays(&ArrayFilter { limit: 2, ..all.clone() }).await.unwrap();
    assert_eq!(listed(ArrayFilter { cursor: first.next, ..all }).await, names[2..]);
}

#[tokio::test]
async fn a_page_with_one_row_per_array_misses_and_repeats_nothing() {
    let database = TestDatabase::create().await;
    let store = database.store().await;
    let term = store.begin_term().await.unwrap();
    let mut ids = IdSource::seeded(7);
    let mut expected = Vec::new();
    for number in 0..30 {
        if number % 3 == 0 {
            let (row, mut jobs) = array(&mut ids, &format!("grid-{number}"), "0-6");
            end(&mut jobs[..3]);
            write(&store, term, Some(&row), &jobs).await;
            expected.insert(0, (jobs[0].id, Some(row.id)));
        } else {
            let one = job(ids.job(START), &format!("one-{number}"));
            write(&store, term, None, std::slice::from_ref(&one)).await;
            expected.insert(0, (one.id, None));
        }
    }
    for limit in [1, 4, 100] {
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let filter = JobFilter { limit, cursor, ..JobFilter::default() };
            let page = store.list_collapsed(&filter).await.unwrap();
            found.extend(page.items.into_iter().map(|(job, array)| (job.id, array)));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(found, expected, "{limit}");
    }
    let of =
        async |filter: JobFilter| store.list_collapsed(&JobFilter { limit: 100, ..filter }).await.unwrap().items.len();
    let ended = JobFilter { states: vec![JobStateKind::Succeeded], ..JobFilter::default() };
    assert_eq!(of(ended).await, 10, "an array of which any element is in the state");
    assert_eq!(of(JobFilter { name_contains: Some("grid-3[5]".into()), ..JobFilter::default() }).await, 1);
    let array = expected.iter().find_map(|(_, array)| *array);
    let elements = JobFilter { array, states: vec![JobStateKind::Queued], limit: 100, ..JobFilter::default() };
    assert_eq!(store.list_jobs(&elements).await.unwrap().items.len(), 4);
    assert_eq!(
        store.count_jobs(&elements).await.unwrap(),
        [("queued".to_owned(), 4), ("succeeded".to_owned(), 3)].into()
    );
}

#[tokio::test]
async fn elements_are_pruned_with_the_last_of_their_array_and_never_while_one_lives() {
    let database = TestDatabase::create().await;
    let store = database.store().await;
    let term = store.begin_term().await.unwrap();
    let mut ids = IdSource::seeded(6);
    let (sweep, mut jobs) = array(&mut ids, "sweep", "0-2");
    let day = |number: f64| START + Seconds(number * 86_400.0);
    for (job, at) in jobs.iter_mut().zip([day(1.0), day(12.0)]) {
        job.state = JobState::Succeeded { at };
    }
    write(&store, term, Some(&sweep), &jobs).await;
    assert_eq!(store.prune_jobs(day(10.0), 100).await.unwrap(), 0, "element 2 lives");
    (jobs[2].state, jobs[2].version) = (JobState::Succeeded { at: day(3.0) }, jobs[2].version + 1);
    write(&store, term, None, &jobs[2..]).await;
    assert_eq!(store.prune_jobs(day(10.0), 100).await.unwrap(), 0, "element 1 ended since");
    assert_eq!(store.elements(sweep.id, None, 10).await.unwrap().items.len(), 3);
    assert_eq!(store.prune_arrays(day(13.0), 100).await.unwrap(), 0, "its elements are kept");
    assert_eq!(store.prune_jobs(day(13.0), 100).await.unwrap(), 3);
    assert_eq!(store.prune_arrays(START, 100).await.unwrap(), 0, "it is not older than that");
    assert_eq!(store.prune_arrays(day(13.0), 100).await.unwrap(), 1);
    assert!(store.arrays_among(&[sweep.id]).await.unwrap().is_empty());
    assert_eq!(store.prune_arrays(day(13.0), 100).await.unwrap(), 0);
}
