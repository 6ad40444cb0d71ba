//! What a server answers while another leads.

use sqlx::ConnectOptions as _;

use super::*;
use crate::support::Wire;

#[tokio::test]
async fn a_standby_reads_with_an_age_and_names_the_leader_for_all_else() {
    let leader = Served::start().await;
    let id = leader.submit("ada", JOB, "k").await.id();
    let standby = leader.beside().await;
    for path in ["/jobs", "/nodes", "/overview", "/queue", "/events", "/plans", "/usage", "/timeline", "/projects"] {
        let answer = standby.get("ada", path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.body);
        assert_eq!(answer.headers["headway-standby"], "true", "{path}");
        let as_of: chrono::DateTime<chrono::Utc> = answer.headers["headway-as-of"].to_str().unwrap().parse().unwrap();
        assert!(as_of.timestamp() > 0, "{path}");
        let age: f64 = answer.headers["headway-age-seconds"].to_str().unwrap().parse().unwrap();
        assert!((0.0..60.0).contains(&age), "{path}: {age}");
        assert!(!leader.get("ada", path).await.headers.contains_key("headway-standby"), "{path}");
    }
    let overview = standby.get("ada", "/overview").await.body;
    assert_eq!(overview["standby"]["leader"], "http://server-1");
    assert!(overview["standby"]["age_seconds"].is_number() && overview["standby"]["as_of"].is_string());
    assert!(leader.get("ada", "/overview").await.body.get("standby").is_none());
    let job = standby.get("ada", &format!("/jobs/{id}")).await;
    assert_eq!(job.body["name"], "first");

    let whole = format!("/jobs/{id}/cancel");
    let changed = standby.send_json(Method::POST, "ada", &whole, &json!({})).await;
    let logs = standby.get("ada", &format!("/jobs/{id}/logs")).await;
    for refused in [changed, logs, standby.get("ada", "/stream").await] {
        assert_eq!(refused.problem(StatusCode::SERVICE_UNAVAILABLE), "not_leading");
        assert_eq!(refused.body["leader"], "http://server-1");
        assert_eq!(refused.headers["retry-after"], "1");
    }
    let body = Body::empty();
    let ready = standby.router.clone().oneshot(Request::get("/readyz").body(body).unwrap()).await.unwrap();
    assert_eq!(ready.status(), StatusCode::SERVICE_UNAVAILABLE);
    let told: Value = serde_json::from_slice(&to_bytes(ready.into_body(), 1 << 20).await.unwrap()).unwrap();
    let detail = told["detail"].as_str().unwrap();
    assert!(detail.contains("standby") && detail.ends_with(" s old"), "{told}");
    assert_eq!(told["leader"], "http://server-1");
}

#[tokio::test]
async fn any_server_tells_who_leads_and_who_stands_by() {
    let leader = Served::start().await;
    let standby = leader.beside().await;
    for served in [&leader, &standby] {
        let known = served.get("eve", "/leader").await;
        assert_eq!(known.status, StatusCode::OK, "{}", known.body);
        assert_eq!(known.body["leader"]["url"], "http://server-1");
        assert_eq!(known.body["standbys"][0]["agents_url"], "http://agents-2");
        assert!(known.body["since"].is_string());
    }
}

#[tokio::test]
async fn a_standby_that_takes_over_answers_as_a_leader() {
    let leader = Served::start().await;
    leader.submit("ada", JOB, "k").await;
    let standby = leader.beside().await;
    leader.shutdown.cancel();
    let mut ready = standby.cluster.readiness();
    let leads = tokio::time::timeout(Duration::from_secs(20), ready.wait_for(|ready| *ready)).await.unwrap().is_ok();
    assert!(leads);
    let second = standby.submit("ada", &JOB.replace("first", "second"), "k2").await;
    assert_eq!(second.status, StatusCode::CREATED, "{}", second.body);
    let told = standby.get("ada", "/overview").await;
    assert!(!told.headers.contains_key("headway-standby"));
    let event = standby.get("ada", "/events?verb=scheduler.took_over").await;
    let said = "http://server-2 leads now, after http://server-1, which was told to stop";
    assert_eq!(event.body["items"][0]["message"], said);
}

#[tokio::test]
async fn a_stream_ends_with_the_name_of_the_server_that_has_taken_over() {
    let first = Served::start().await;
    first.shutdown.cancel();
    let leader = Leader::new(first.options.clone()).of(server(3)).standing_by();
    let store = Store::connect(first.options.clone()).await.unwrap();
    let leader = Served::on(first.options.clone(), store, leader, Retention::default()).await;
    let mut ready = leader.cluster.readiness();
    tokio::time::timeout(Duration::from_secs(20), ready.wait_for(|ready| *ready)).await.unwrap().unwrap();
    let stream = asked(Method::GET, "ada", "/stream").body(Body::empty()).unwrap();
    let stream = leader.router.clone().oneshot(stream).await.unwrap();
    assert_eq!(stream.status(), StatusCode::OK);

    let standby = leader.beside().await;
    let mut ready = standby.cluster.readiness();
    let mut connection = leader.options.connect().await.unwrap();
    let ends = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    // Until the one that waits comes before the one that takes the lock again.
    loop {
        sqlx::query(ends).execute(&mut connection).await.unwrap();
        let leads = ready.wait_for(|ready| *ready);
        if tokio::time::timeout(Duration::from_millis(500), leads).await.is_ok() {
            break;
        }
    }
    let told = tokio::time::timeout(Duration::from_secs(20), to_bytes(stream.into_body(), 1 << 20)).await;
    let told = String::from_utf8(told.expect("the stream ends").unwrap().to_vec()).unwrap();
    let last = "event: not_leading\ndata: {\"leader\":\"http://server-2\"}\n\n";
    assert!(told.ends_with(last), "{told}");
    let event = standby.get("ada", "/events?verb=scheduler.took_over").await;
    let said = "http://server-2 leads now, after http://server-3, whose connection to the database ended";
    assert_eq!(event.body["items"][0]["message"], said);
    standby.until("ada", "/overview", |answer| answer.body.to_string().contains("took_over")).await;
}

#[tokio::test]
async fn a_server_that_has_lost_the_lead_and_does_not_know_it_reads_with_an_age_and_changes_nothing() {
    let database = TestDatabase::create().await;
    let store = database.store().await;
    for (name, scope) in [("ada", TokenScope::User), ("eve", TokenScope::Viewer)] {
        store.ensure_token(name, scope, name, START).await.unwrap();
    }
    let wire = Wire::to(&database.options).await;
    // Standing by makes its lease short.
    let leader = Leader::new(wire.options.clone()).of(server(1)).standing_by();
    let served = Served::on(database.options.clone(), store, leader, Retention::default()).await;
    served.cluster.readiness().wait_for(|ready| *ready).await.unwrap();
    let id = served.submit("ada", JOB, "k").await.id();
    assert!(!served.get("eve", "/overview").await.headers.contains_key("headway-standby"));
    // As after SIGCONT: nothing that it said to Postgres of late was heard.
    wire.slow_down(Duration::from_secs(3_600));
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while served.cluster.holds_the_lead() {
        assert!(tokio::time::Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
    assert!(served.cluster.stands_by().is_none(), "it does not know who leads");
    for path in ["/overview".to_owned(), format!("/jobs/{id}")] {
        let answer = served.get("eve", &path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.body);
        assert_eq!(answer.headers["headway-standby"], "true", "{path}");
        let age: f64 = answer.headers["headway-age-seconds"].to_str().unwrap().parse().unwrap();
        assert!((0.0..60.0).contains(&age), "{path}: {age}");
        assert!(answer.headers.contains_key("headway-as-of"), "{path}");
    }
    for refused in [served.post("ada", &format!("/jobs/{id}/cancel")).await, served.get("eve", "/stream").await] {
        assert_eq!(refused.problem(StatusCode::SERVICE_UNAVAILABLE), "unavailable");
    }
}
