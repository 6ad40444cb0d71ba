#![allow(clippy::unwrap_used)]
use headway_planner::builder;
use headway_types::IdSource;

use super::*;

#[test]
fn places_follow_the_predicted_starts_and_who_has_none_has_no_place() {
    let mut ids = IdSource::seeded(1);
    let jobs: Vec<JobId> = (0..4).map(|_| ids.job(Timestamp(0))).collect();
    let start =
        |p10, p50: Option<i64>| Outlook::Start(Start { p10: Timestamp(p10), p50: p50.map(Timestamp), p90: None });
    let starts = BTreeMap::from([
        (jobs[0], start(9, None)),
        (jobs[1], start(2, Some(5))),
        (jobs[2], Outlook::Unknown { reason: "never".into() }),
        (jobs[3], start(1, Some(5))),
    ]);
    let forecast = Forecast { starts, rolled: BTreeMap::new(), method: Method::Queue, samples: 10 };
    let told = Foretold::of(&forecast, Timestamp(1));
    let places: Vec<Option<u32>> = jobs.iter().map(|job| told.starts.get(job).map(|(place, _)| *place)).collect();
    assert_eq!(places, [Some(3), Some(2), None, Some(1)]);
}

/// Somebody's thread, which is busy until it is let go.
async fn busy(asking: &Asking) -> std::sync::mpsc::Sender<()> {
    let ((let_go, held), (began, begun)) = (std::sync::mpsc::channel::<()>(), oneshot::channel());
    let other = asking.clone();
    tokio::spawn(async move {
        other
            .question("busy", move |_, _| {
                let _ = began.send(());
                let _ = held.recv();
            })
            .await
    });
    begun.await.unwrap();
    let_go
}

#[tokio::test]
async fn who_asks_much_takes_nobody_elses_turn() {
    let asking = Asking::new(watch::channel(None).1);
    let let_go = busy(&asking).await;
    let mut eves: Vec<_> =
        (0..OF_ONE_USER).map(|number| Box::pin(asking.question("eve", move |_, _| number))).collect();
    for question in &mut eves {
        assert!(futures::poll!(question).is_pending());
    }
    assert_eq!(asking.question("eve", |_, _| 0).await, Err(Unanswered::OfOne(OF_ONE_USER)));
    let mut adas = Box::pin(asking.question("ada", |_, _| 7));
    assert!(futures::poll!(&mut adas).is_pending());
    drop(let_go);
    assert_eq!(adas.await, Ok(7));
    assert_eq!(futures::future::join_all(eves).await, (0..OF_ONE_USER).map(Ok).collect::<Vec<_>>());
}

#[test]
fn curves_are_made_as_long_as_somebody_waits_for_them() {
    let input = builder::round(vec![builder::node(1, "H100-80G", 8)], vec![builder::job(1, 1, 8)]);
    let mut desk = Desk::default();
    assert!(!desk.has_curves(&input, &|| false));
    assert!(desk.has_curves(&input, &|| true));
    assert!(desk.has_curves(&input, &|| false), "they are kept");
}

#[tokio::test]
async fn a_question_whose_asker_has_gone_is_not_worked_at() {
    let asking = Asking::new(watch::channel(None).1);
    let let_go = busy(&asking).await;
    let worked = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = Arc::clone(&worked);
    let mut gone = Box::pin(asking.question("eve", move |_, _| seen.store(true, std::sync::atomic::Ordering::Relaxed)));
    assert!(futures::poll!(&mut gone).is_pending());
    drop((gone, let_go));
    // It comes after the one that has gone.
    assert_eq!(asking.question("ada", |_, _| 7).await, Ok(7));
    assert!(!worked.load(std::sync::atomic::Ordering::Relaxed));
}
