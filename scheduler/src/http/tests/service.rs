//! The service as a whole: errors, nodes, tokens, the stream, the root.

use super::*;

#[tokio::test]
async fn every_error_is_a_problem() {
    let served = Served::start().await;
    let bare = Request::get("/api/v1/jobs").body(Body::empty()).unwrap();
    let answer = served.send(bare).await;
    assert_eq!(answer.problem(StatusCode::UNAUTHORIZED), "unauthorized");
    assert!(answer.headers.contains_key("www-authenticate"));
    assert_eq!(served.get("mallory", "/jobs").await.problem(StatusCode::UNAUTHORIZED), "unauthorized");
    assert_eq!(served.get("node", "/jobs").await.problem(StatusCode::FORBIDDEN), "forbidden");
    assert_eq!(served.get("eve", "/nothing").await.problem(StatusCode::NOT_FOUND), "not_found");
    assert_eq!(served.get("eve", "/jobs/none").await.problem(StatusCode::NOT_FOUND), "not_found");
    assert_eq!(served.get("eve", "/jobs?limit=x").await.problem(StatusCode::BAD_REQUEST), "bad_request");
    assert_eq!(served.get("eve", "/jobs?state=lost").await.body["field"], "state");
    let delete = asked(Method::DELETE, "eve", "/jobs").body(Body::empty()).unwrap();
    assert_eq!(served.send(delete).await.problem(StatusCode::METHOD_NOT_ALLOWED), "method_not_allowed");
    let plain = asked(Method::POST, "ada", "/jobs").header("content-type", "text/plain").body(Body::from("x")).unwrap();
    assert_eq!(served.send(plain).await.problem(StatusCode::UNSUPPORTED_MEDIA_TYPE), "unsupported_media_type");
    let answer = served.submit("ada", "{version: 1, name: a, resources: {gpus: 1}, rum: {command: [a]}}", "k").await;
    answer.problem(StatusCode::UNPROCESSABLE_ENTITY);
    assert!(answer.body["field"].is_string(), "{}", answer.body);
    let patch = served.send_json(Method::PUT, "root", "/policy", &json!({"mode": "auto"})).await;
    assert_eq!(patch.problem(StatusCode::UNPROCESSABLE_ENTITY), "invalid");
}

#[tokio::test]
async fn the_cluster_is_shown_to_all_and_steered_by_admins() {
    let served = Served::start().await;
    served.submit("ada", JOB, "k").await;
    let overview: v1::Overview = serde_json::from_value(served.get("eve", "/overview").await.body).unwrap();
    assert_eq!((overview.jobs_by_state["queued"], overview.gpus_waited_for), (1, 1));
    assert!(overview.seq > 0);
    assert_eq!(served.get("eve", "/goodput").await.status, StatusCode::OK);
    assert_eq!(served.get("eve", "/nodes").await.body["items"], json!([]));
    assert_eq!(served.post("root", "/nodes/nowhere/drain").await.problem(StatusCode::NOT_FOUND), "not_found");
    let policy = served.get("eve", "/policy").await.body;
    assert_eq!(served.send_json(Method::PUT, "ada", "/policy", &policy).await.status, StatusCode::FORBIDDEN);
    let mut advisory = policy;
    advisory["mode"] = json!("advisory");
    assert_eq!(served.send_json(Method::PUT, "root", "/policy", &advisory).await.status, StatusCode::OK);
    assert_eq!(served.get("eve", "/policy").await.body["mode"], "advisory");
    let proposal = served.post("root", "/plans/rebalance").await;
    assert_eq!((proposal.status, &proposal.body["state"]), (StatusCode::OK, &json!("proposed")), "{}", proposal.body);
    let plan = format!("/plans/{}", proposal.body["id"].as_str().unwrap());
    let rejected = served.send_json(Method::POST, "root", &format!("{plan}/reject"), &json!({"reason": "no"})).await;
    assert_eq!((&rejected.body["state"], &rejected.body["state_reason"]), (&json!("rejected"), &json!("no")));
    assert_eq!(served.get("eve", &plan).await.body["state"], "rejected");
}

#[tokio::test]
async fn a_token_opens_until_it_is_revoked() {
    let served = Served::start().await;
    let wanted = json!({"name": "ci", "scope": "viewer", "ttl_s": 60.0});
    let made = served.send_json(Method::POST, "root", "/auth/tokens", &wanted).await;
    let made: v1::CreatedToken = serde_json::from_value(made.body).unwrap();
    assert_eq!(served.get(&made.secret, "/auth/whoami").await.body["name"], "ci");
    let revoke =
        || asked(Method::DELETE, "root", &format!("/auth/tokens/{}", made.token.id)).body(Body::empty()).unwrap();
    assert_eq!(served.send(revoke()).await.status, StatusCode::NO_CONTENT);
    assert_eq!(served.get(&made.secret, "/auth/whoami").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(served.send(revoke()).await.problem(StatusCode::NOT_FOUND), "not_found");
}

#[tokio::test]
async fn the_admin_token_that_lasts_longest_is_not_revoked() {
    let served = Served::start().await;
    let admin = async |name: &str, ttl_s: Option<f64>| {
        let wanted = json!({"name": name, "user": name, "scope": "admin", "ttl_s": ttl_s});
        let made = served.send_json(Method::POST, "root", "/auth/tokens", &wanted).await;
        serde_json::from_value::<v1::CreatedToken>(made.body).unwrap()
    };
    let revoke = async |who: &str, id: &str| {
        served.send(asked(Method::DELETE, who, &format!("/auth/tokens/{id}")).body(Body::empty()).unwrap()).await
    };
    let root = served.get("root", "/auth/whoami").await.body["id"].as_str().unwrap().to_owned();
    let refused = revoke("root", &root).await;
    assert_eq!(refused.problem(StatusCode::CONFLICT), "last_admin");
    assert!(refused.body["hint"].as_str().unwrap().contains("POST /api/v1/auth/tokens"), "{}", refused.body);
    let short = admin("short", Some(60.0)).await;
    assert_eq!(revoke("root", &root).await.problem(StatusCode::CONFLICT), "last_admin", "in a minute nobody is left");
    assert_eq!(revoke("root", &short.token.id.to_string()).await.status, StatusCode::NO_CONTENT);

    // Of two that are revoked at once, one stays.
    let second = admin("second", None).await;
    let second_id = second.token.id.to_string();
    let (one, other) = tokio::join!(revoke("root", &root), revoke(&second.secret, &second_id));
    let statuses = BTreeSet::from([one.status, other.status].map(|status| status.as_u16()));
    assert_eq!(statuses, BTreeSet::from([204, 409]), "{} {}", one.body, other.body);
}

#[tokio::test]
async fn the_stream_tells_what_happens_and_resumes_where_it_ended() {
    let served = Served::start().await;
    let live = served.router.clone().oneshot(asked(Method::GET, "eve", "/stream").body(Body::empty()).unwrap());
    let mut live = live.await.unwrap().into_body().into_data_stream();
    let submitted = served.submit("ada", JOB, "k").await;
    let heard = until(&mut live, "event: job\n").await;
    assert!(heard.contains("event: event\n") && heard.contains("\"verb\":\"job.submitted\""), "{heard}");
    assert!(heard.contains("\nid: 1\n"), "{heard}");
    assert!(heard.contains(&submitted.id()));

    let resumed = asked(Method::GET, "eve", "/stream?topics=events").header("last-event-id", "0");
    let resumed = served.router.clone().oneshot(resumed.body(Body::empty()).unwrap()).await.unwrap();
    let mut resumed = resumed.into_body().into_data_stream();
    let heard = until(&mut resumed, "\"verb\":\"job.submitted\"").await;
    assert!(heard.contains("\"job_name\":\"first\""), "{heard}");
}

#[tokio::test]
async fn whoever_takes_patches_hears_a_row_once_and_then_what_changes_of_it() {
    let served = Served::start().await;
    let first = served.submit("ada", JOB, "k").await.id();
    let follow = async |query: &str| {
        let request = asked(Method::GET, "eve", &format!("/stream?{query}")).body(Body::empty()).unwrap();
        let reply = served.router.clone().oneshot(request).await.unwrap();
        assert_eq!(reply.status(), StatusCode::OK, "{query}");
        reply.into_body().into_data_stream()
    };
    let label = async |id: &str, value: &str| {
        let patch = json!({"labels": {"exp": value}});
        let changed = served.send_json(Method::PATCH, "ada", &format!("/jobs/{id}"), &patch).await;
        assert_eq!(changed.status, StatusCode::OK, "{}", changed.body);
    };
    let mut patched = follow("topics=jobs&patch=true&fields=name,labels").await;
    let mut of_first = follow(&format!("topics=jobs,events&job={first}")).await;
    let mut elsewhere = follow("topics=jobs,events&project=elsewhere").await;
    label(&first, "a").await;
    let whole = format!(r#"data: {{"id":"{first}","labels":{{"exp":"a"}},"name":"first"}}"#);
    assert!(until(&mut patched, "event: job\n").await.contains(&whole));
    label(&first, "b").await;
    let change = format!(r#"data: {{"id":"{first}","labels":{{"exp":"b"}}}}"#);
    let heard = until(&mut patched, "event: job_patch\n").await;
    assert!(heard.contains(&change), "{heard}");

    let second = served.submit("ada", &JOB.replace("version: 1,", "version: 1, project: elsewhere,"), "l").await.id();
    let heard = until(&mut elsewhere, "event: job\n").await;
    assert!(heard.contains(&second) && !heard.contains(&first), "{heard}");
    label(&first, "c").await;
    let heard = until(&mut of_first, r#"{"exp":"c"}"#).await;
    assert!(heard.contains("\"verb\":\"job.changed\"") && !heard.contains(&second), "{heard}");

    for (query, field) in [("topics=gpu", "topics"), ("job=first", "job"), ("fields=nmae", "fields")] {
        let refused = served.get("eve", &format!("/stream?{query}")).await;
        assert_eq!((refused.problem(StatusCode::BAD_REQUEST), &refused.body["field"]), ("bad_request", &json!(field)));
    }
    assert_eq!(served.get("eve", "/stream?node=nowhere").await.problem(StatusCode::NOT_FOUND), "not_found");
}

#[tokio::test]
async fn a_compressed_stream_keeps_nothing_back() {
    let served = Served::start().await;
    let request = asked(Method::GET, "eve", "/stream").header("accept-encoding", "gzip").body(Body::empty()).unwrap();
    let reply = served.router.clone().oneshot(request).await.unwrap();
    assert_eq!(reply.headers()["content-encoding"], "gzip");
    let mut body = reply.into_body().into_data_stream();
    served.submit("ada", JOB, "k").await;
    let mut read = flate2::write::GzDecoder::new(Vec::new());
    let heard = async {
        while !String::from_utf8_lossy(read.get_ref()).contains("event: job\n") {
            std::io::Write::write_all(&mut read, &body.next().await.unwrap().unwrap()).unwrap();
            std::io::Write::flush(&mut read).unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(10), heard).await.expect("the job is told before the stream ends");
}

/// Reads until `wanted` was said and the message that says it is complete.
pub async fn until(body: &mut axum::body::BodyDataStream, wanted: &str) -> String {
    let mut heard = String::new();
    let read = async {
        while !heard.contains(wanted) || !heard.ends_with("\n\n") {
            heard.push_str(std::str::from_utf8(&body.next().await.unwrap().unwrap()).unwrap());
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(10), read).await;
    ended.unwrap_or_else(|_| panic!("{wanted:?} was not said"));
    heard
}

#[tokio::test]
async fn the_root_answers_machines_and_browsers() {
    let served = Served::start().await;
    let root = |path: &str| served.send(Request::get(path).body(Body::empty()).unwrap());
    assert_eq!(root("/healthz").await.status, StatusCode::OK);
    assert!(root("/licenses").await.body.as_str().unwrap().contains("Apache License"));
    assert_eq!(root("/readyz").await.status, StatusCode::OK);
    assert_eq!(
        root("/version").await.body,
        json!({"version": env!("CARGO_PKG_VERSION"), "build": "abc1234, 2026-11-22", "api": "v1"})
    );
    assert_eq!(root("/api/v1/openapi.json").await.body["openapi"], "3.1.0");
    let page = root("/jobs").await;
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
}

#[tokio::test]
async fn one_user_opens_so_many_streams_and_nobody_else_has_fewer() {
    let served = Served::start().await;
    let open = async |who: &str| {
        let request = asked(Method::GET, who, "/stream").body(Body::empty()).unwrap();
        served.router.clone().oneshot(request).await.unwrap()
    };
    let mut streams = Vec::new();
    for _ in 0..20 {
        let stream = open("eve").await;
        assert_eq!(stream.status(), StatusCode::OK);
        streams.push(stream);
    }
    let refused = served.get("eve", "/stream").await;
    assert_eq!(refused.problem(StatusCode::TOO_MANY_REQUESTS), "too_many_streams");
    assert!(refused.headers.contains_key("retry-after") && refused.body["hint"].is_string());
    assert_eq!(open("ada").await.status(), StatusCode::OK);
    streams.pop();
    assert_eq!(open("eve").await.status(), StatusCode::OK, "a closed one makes room");
}

#[tokio::test]
async fn a_full_disk_of_postgres_is_named_until_there_is_room() {
    const FULL: &str = "the disk of Postgres is full";
    let served = Served::start().await;
    let mut admin = served.options.connect().await.unwrap();
    let fill = "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
        END $$;
        CREATE TRIGGER full_disk BEFORE INSERT ON events FOR EACH STATEMENT EXECUTE FUNCTION fill()";
    sqlx::raw_sql(fill).execute(&mut admin).await.unwrap();
    let refused = served.submit("ada", JOB, "k").await;
    assert_eq!(refused.problem(StatusCode::SERVICE_UNAVAILABLE), "unavailable");
    assert!(refused.body["detail"].as_str().unwrap().starts_with(FULL), "{}", refused.body);
    let request = Request::get("/readyz").body(Body::empty()).unwrap();
    let ready = served.router.clone().oneshot(request).await.unwrap();
    assert_eq!(ready.status(), StatusCode::SERVICE_UNAVAILABLE);
    let told: Value = serde_json::from_slice(&to_bytes(ready.into_body(), 1 << 20).await.unwrap()).unwrap();
    assert!(told["detail"].as_str().unwrap().starts_with(FULL), "{told}");

    sqlx::raw_sql("DROP TRIGGER full_disk ON events").execute(&mut admin).await.unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while served.submit("ada", JOB, "k").await.status != StatusCode::CREATED {
        assert!(tokio::time::Instant::now() < deadline, "it is ready again");
    }
    assert!(!served.store.disk().is_full());
}

#[tokio::test]
async fn operators_see_what_each_table_takes_and_others_do_not() {
    let served = Served::start().await;
    served.submit("ada", JOB, "1").await;
    let space = served.get("opal", "/space").await;
    assert_eq!(space.status, StatusCode::OK, "{}", space.body);
    let space: v1::Space = serde_json::from_value(space.body).unwrap();
    let events = space.tables.iter().find(|table| table.table == "events").unwrap();
    assert_eq!(events.option.as_deref(), Some("--event-days"));
    assert!(events.oldest_at.is_some() && events.bytes > 0);
    assert!(space.bytes > events.bytes);
    assert_eq!(served.get("ada", "/space").await.problem(StatusCode::FORBIDDEN), "forbidden");
}
