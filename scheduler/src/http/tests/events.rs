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

#[tokio::test]
async fn whoever_may_not_see_members_finds_them_in_no_event() {
    let served = Served::start().await;
    for project in ["vault", "gone", "open"] {
        let made = served.send_json(Method::PUT, "root", &format!("/projects/{project}"), &json!({})).await;
        assert_eq!(made.status, StatusCode::CREATED);
        let named = json!({"role": "user"});
        let named = served.send_json(Method::PUT, "root", &format!("/projects/{project}/members/ada"), &named).await;
        assert_eq!(named.status, StatusCode::OK, "{}", named.body);
    }
    for path in ["/projects/gone/members/ada", "/projects/gone"] {
        let gone = served.send_json(Method::DELETE, "root", path, &json!({})).await;
        assert!(gone.status.is_success(), "{}", gone.body);
    }
    let closed = served.send_json(Method::PATCH, "root", "/projects/vault", &json!({"private": true})).await;
    assert_eq!(closed.status, StatusCode::OK, "{}", closed.body);
    let removed = served.send_json(Method::DELETE, "root", "/projects/vault/members/ada", &json!({})).await;
    assert!(removed.status.is_success(), "{}", removed.body);
    let named = served.send_json(Method::PUT, "root", "/projects/vault/members/opal", &json!({"role": "user"})).await;
    assert_eq!(named.status, StatusCode::OK, "{}", named.body);

    let projects = async |who: &str| {
        let page = served.get(who, "/events?verb=project.member_named,project.member_removed").await;
        let items = page.body["items"].as_array().unwrap().clone();
        items.iter().map(|one| one["detail"]["project"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(projects("root").await, ["vault", "vault", "gone", "open", "gone", "vault"]);
    // A stranger sees members of open projects alone. Of one that is gone nobody knows any more what it was.
    assert_eq!(projects("eve").await, ["open"]);
    let all = served.get("eve", "/events?limit=1000").await.body;
    let first = served.get("root", "/events?verb=project.member_named&after=0&limit=1").await.body["items"][0].clone();
    assert!(!all["items"].as_array().unwrap().contains(&first), "{first}");
    let chain = served.get("eve", &format!("/events/{}/chain", first["seq"])).await;
    assert_eq!(chain.problem(StatusCode::NOT_FOUND), "not_found");
    // The stream tells from the log what the log tells.
    let stream = asked(Method::GET, "eve", "/stream?topics=events&since=0").body(Body::empty()).unwrap();
    let stream = served.router.clone().oneshot(stream).await.unwrap();
    let mut told = String::new();
    let mut lines = stream.into_body().into_data_stream();
    while !told.contains("in project open") {
        let piece = tokio::time::timeout(Duration::from_secs(20), lines.next()).await.unwrap().unwrap().unwrap();
        told.push_str(&String::from_utf8_lossy(&piece));
    }
    assert!(!told.contains("in project vault"), "{told}");
}

#[tokio::test]
async fn a_stream_that_knows_more_than_the_log_is_reset_and_hears_what_comes() {
    let served = Served::start().await;
    served.submit("ada", JOB, "k").await;
    // As after a restore: the number was heard from the database that is gone.
    let stream = asked(Method::GET, "eve", "/stream?topics=events").header("last-event-id", "1000");
    let stream = served.router.clone().oneshot(stream.body(Body::empty()).unwrap()).await.unwrap();
    let mut lines = stream.into_body().into_data_stream();
    let mut told = String::new();
    let mut until = async |words: &str| {
        while !told.contains(words) {
            let piece = tokio::time::timeout(Duration::from_secs(20), lines.next()).await.unwrap().unwrap().unwrap();
            told.push_str(&String::from_utf8_lossy(&piece));
        }
    };
    until("event: reset").await;
    served.submit("ada", &JOB.replace("first", "second"), "k2").await;
    until("job.submitted").await;
}
