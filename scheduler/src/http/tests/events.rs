//! The event log: searches, pages both ways, chains of causes.

use super::*;

async fn numbers(served: &Served, query: &str) -> (Vec<u64>, Option<u64>) {
    let page: v1::EventList =
        serde_json::from_value(served.get("eve", &format!("/events?{query}")).await.body).unwrap();
    let next = page.next_cursor.map(|cursor| cursor.parse().unwrap());
    (page.items.iter().map(|event| event.seq).collect(), next)
}

#[tokio::test]
async fn events_are_searched_by_kind_actor_project_and_time_and_paged_both_ways() {
    let served = Served::start().await;
    for number in 0..5 {
        let who = if number == 3 { "bob" } else { "ada" };
        served.submit(who, JOB, &format!("k{number}")).await;
    }
    let submitted = numbers(&served, "verb=job.submitted,job.cancelled").await.0;
    assert_eq!(submitted.len(), 5);
    let bobs = numbers(&served, "verb=job.submitted&actor=bob").await.0;
    assert_eq!(bobs, [submitted[1]]);
    assert_eq!(numbers(&served, "verb=job.submitted&actor=user:bob").await.0, bobs);
    assert!(numbers(&served, "actor=mallory").await.0.is_empty());
    assert!(numbers(&served, "project=elsewhere").await.0.is_empty());
    assert_eq!(numbers(&served, "project=default&verb=job.submitted").await.0, submitted);
    assert!(numbers(&served, "since=2999-01-01T00:00:00Z").await.0.is_empty());
    assert_eq!(numbers(&served, "until=2999-01-01T00:00:00Z&verb=job.submitted").await.0, submitted);

    let (first, next) = numbers(&served, "verb=job.submitted&limit=2").await;
    let (second, _) = numbers(&served, &format!("verb=job.submitted&limit=2&cursor={}", next.unwrap())).await;
    assert_eq!([first, second].concat(), submitted[..4]);
    let (first, next) = numbers(&served, "verb=job.submitted&limit=2&after=0").await;
    let (second, _) = numbers(&served, &format!("verb=job.submitted&limit=2&after={}", next.unwrap())).await;
    let oldest_first: Vec<u64> = submitted.iter().rev().copied().collect();
    assert_eq!([first, second].concat(), oldest_first[..4]);

    let wrong = served.get("eve", "/events?verb=submitted").await;
    assert_eq!((wrong.problem(StatusCode::BAD_REQUEST), &wrong.body["field"]), ("bad_request", &json!("verb")));
    assert_eq!(served.get("eve", "/events?severity=high").await.problem(StatusCode::BAD_REQUEST), "unknown_parameter");
}

#[tokio::test]
async fn an_event_has_the_chain_of_what_led_to_it() {
    let served = Served::start().await;
    let id = served.submit("ada", JOB, "k").await.id();
    assert_eq!(served.post("ada", &format!("/jobs/{id}/cancel")).await.status, StatusCode::OK);
    let (events, _) = numbers(&served, &format!("job={id}&after=0")).await;
    let last = events.last().unwrap();
    let chain: v1::EventChain =
        serde_json::from_value(served.get("eve", &format!("/events/{last}/chain")).await.body).unwrap();
    assert_eq!(chain.items.last().unwrap().event.seq, *last);
    assert!(chain.items.iter().all(|link| link.event.job_name.as_deref() == link.event.job_id.map(|_| "first")));
    assert!(chain.items.iter().all(|link| link.because_of.is_none_or(|cause| cause < link.event.seq)));
    for path in ["/events/999999/chain", "/events/first/chain"] {
        assert_eq!(served.get("eve", path).await.problem(StatusCode::NOT_FOUND), "not_found");
    }
}
