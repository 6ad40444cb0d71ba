//! The routes against a real loop on a real Postgres.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use futures::StreamExt;
use headway_api::v1;
use headway_engine::EngineConfig;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::{HttpState, router};
use crate::clock::Clock;
use crate::driver::Driver;
use crate::grpc::Sessions;
use crate::leader::Leader;
use crate::store::Scope;
use crate::support::{START, TestDatabase};

const JOB: &str = "{version: 1, name: first, resources: {gpus: 1}, run: {command: [sleep, '1']}}";

/// All routes over a loop of its own. Tokens are named like their secrets.
struct Served {
    router: Router,
    shutdown: CancellationToken,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Value,
}

impl Answer {
    fn id(&self) -> String {
        self.body["jobs"][0]["id"].as_str().unwrap().to_owned()
    }

    /// The code of a problem, after checking that it is one.
    fn problem(&self, status: StatusCode) -> &str {
        assert_eq!(self.status, status, "{}", self.body);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        let problem: v1::Problem = serde_json::from_value(self.body.clone()).unwrap();
        assert_eq!(problem.status, status.as_u16());
        assert_eq!(problem.request_id.as_deref(), self.headers["x-request-id"].to_str().ok());
        self.body["code"].as_str().unwrap()
    }
}

impl Served {
    async fn start() -> Self {
        let database = TestDatabase::create().await;
        let store = database.store().await;
        let tokens = [
            ("root", Scope::Admin),
            ("ada", Scope::User),
            ("bob", Scope::User),
            ("eve", Scope::Viewer),
            ("node", Scope::Agent),
        ];
        for (name, scope) in tokens {
            store.ensure_token(name, scope, name, START).await.unwrap();
        }
        let leader = Leader::new(database.options.clone());
        let started =
            Driver::start(store, leader, Sessions::default(), Clock::default(), EngineConfig::default()).await.unwrap();
        let shutdown = CancellationToken::new();
        let mut ready = started.cluster.readiness();
        tokio::spawn(started.driver.run(started.engine, shutdown.clone()));
        ready.wait_for(|ready| *ready).await.unwrap();
        Self { router: router(HttpState::new(started.cluster, "0.0.0", None)), shutdown }
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Answer { status, headers, body }
    }

    async fn get(&self, who: &str, path: &str) -> Answer {
        self.send(asked(Method::GET, who, path).body(Body::empty()).unwrap()).await
    }

    async fn send_json(&self, method: Method, who: &str, path: &str, body: &Value) -> Answer {
        let request = asked(method, who, path).header("content-type", "application/json");
        self.send(request.body(Body::from(body.to_string())).unwrap()).await
    }

    async fn post(&self, who: &str, path: &str) -> Answer {
        self.send(asked(Method::POST, who, path).body(Body::empty()).unwrap()).await
    }

    async fn submit(&self, who: &str, yaml: &str, key: &str) -> Answer {
        let request = asked(Method::POST, who, "/jobs").header("content-type", "application/yaml");
        self.send(request.header("idempotency-key", key).body(Body::from(yaml.to_owned())).unwrap()).await
    }
}

fn asked(method: Method, who: &str, path: &str) -> axum::http::request::Builder {
    let request = Request::builder().method(method).uri(format!("/api/v1{path}"));
    request.header("authorization", format!("Bearer {who}"))
}

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
async fn a_key_submits_once_and_only_one_body() {
    let served = Served::start().await;
    let first = served.submit("ada", JOB, "k1").await;
    assert_eq!(first.status, StatusCode::CREATED, "{}", first.body);
    assert_eq!(first.headers["location"], format!("/api/v1/jobs/{}", first.id()));
    assert_eq!(first.headers["idempotency-replayed"], "false");
    let again = served.submit("ada", JOB, "k1").await;
    assert_eq!((again.status, again.id()), (StatusCode::CREATED, first.id()));
    assert_eq!(again.headers["idempotency-replayed"], "true");
    let other = served.submit("ada", &JOB.replace("first", "second"), "k1").await;
    assert_eq!(other.problem(StatusCode::CONFLICT), "idempotency_key_reused");
    assert_ne!(served.submit("bob", JOB, "k1").await.id(), first.id(), "a key belongs to its caller");
}

#[tokio::test]
async fn a_batch_is_stored_as_a_whole_and_a_dry_run_not_at_all() {
    let served = Served::start().await;
    let job = |name: &str| json!({"version": 1, "name": name, "resources": {"gpus": 1}, "run": {"command": ["true"]}});
    let good = json!({"jobs": [job("a"), job("b")]});
    let checked = served.send_json(Method::POST, "ada", "/jobs?dry_run=true", &good).await;
    assert_eq!((checked.status, &checked.body["jobs"][1]["name"]), (StatusCode::OK, &json!("b")));
    assert_eq!(checked.body["jobs"][0]["feasible"], false, "there is no node");
    assert_eq!(served.get("eve", "/jobs").await.body["items"], json!([]));
    let bad = json!({"jobs": [job("a"), job("")]});
    let answer = served.send_json(Method::POST, "ada", "/jobs", &bad).await;
    answer.problem(StatusCode::UNPROCESSABLE_ENTITY);
    assert!(answer.body["field"].as_str().unwrap().starts_with("jobs[1]"), "{}", answer.body);
    assert_eq!(served.send_json(Method::POST, "ada", "/jobs", &good).await.status, StatusCode::CREATED);
    let first = served.get("eve", "/jobs?limit=1").await.body;
    let rest =
        served.get("eve", &format!("/jobs?limit=1&cursor={}", first["next_cursor"].as_str().unwrap())).await.body;
    // Ids of one batch share their millisecond, so which comes first is chance.
    let names = BTreeSet::from([first, rest.clone()].map(|page| page["items"][0]["name"].as_str().unwrap().to_owned()));
    assert_eq!(names, BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    assert_eq!(rest["next_cursor"], Value::Null);
}

#[tokio::test]
async fn a_job_is_changed_by_its_owner_or_an_admin_and_by_nobody_else() {
    let served = Served::start().await;
    assert_eq!(served.submit("eve", JOB, "k").await.problem(StatusCode::FORBIDDEN), "forbidden");
    let id = served.submit("ada", JOB, "k").await.id();
    let job = format!("/jobs/{id}");
    assert_eq!(served.post("bob", &format!("{job}/hold")).await.problem(StatusCode::FORBIDDEN), "forbidden");
    let reason = json!({"reason": "until the data is there"});
    let held = served.send_json(Method::POST, "ada", &format!("{job}/hold"), &reason).await;
    assert_eq!((held.status, &held.body["state"]), (StatusCode::OK, &json!("held")));
    let why = served.get("eve", &format!("{job}/explain")).await;
    assert_eq!(why.body["headline"], "held until released: until the data is there");

    let tag = served.get("eve", &job).await.headers["etag"].clone();
    let patch = |tag: &str| {
        let request = asked(Method::PATCH, "root", &job).header("content-type", "application/json");
        request.header("if-match", tag).body(Body::from(json!({"priority": 80}).to_string())).unwrap()
    };
    assert_eq!(served.send(patch("\"0\"")).await.problem(StatusCode::PRECONDITION_FAILED), "version_changed");
    let patched = served.send(patch(tag.to_str().unwrap())).await;
    assert_eq!((patched.status, &patched.body["priority"]), (StatusCode::OK, &json!(80)));
    assert_ne!(patched.headers["etag"], tag);
    assert_eq!(served.post("ada", &format!("{job}/cancel")).await.body["state"], "cancelled");
    assert_eq!(served.post("ada", &format!("{job}/release")).await.problem(StatusCode::CONFLICT), "wrong_state");
}

#[tokio::test]

async fn a_job_is_pinned_and_its_sizes_and_labels_change() {
    let served = Served::start().await;
    let yaml = "{version: 1, name: first, resources: {gpus: {min: 1, max: 8}}, training: {model: gpt2-124m, \
        reference_batch: 64 sequences}, deadline: 2999-01-01T00:00:00Z, budget: {gpu_hours: 12}, \
        elastic: {min_share: 0.5}, run: {command: [a]}}";
    let submitted = served.submit("ada", yaml, "k").await;
    let shown = &submitted.body["jobs"][0];
    assert_eq!((&shown["budget_gpu_hours"], &shown["min_share"]), (&json!(12.0), &json!(0.5)), "{}", submitted.body);
    assert_eq!(shown["deadline"], "2999-01-01T00:00:00Z");
    let job = format!("/jobs/{}", submitted.id());
    let reason = json!({"reason": "demo at noon"});
    assert_eq!(
        served.send_json(Method::POST, "bob", &format!("{job}/pin"), &reason).await.status,
        StatusCode::FORBIDDEN
    );
    let pinned = served.send_json(Method::POST, "ada", &format!("{job}/pin"), &reason).await;
    assert_eq!((&pinned.body["pin"]["by"], &pinned.body["pin"]["reason"]), (&json!("ada"), &json!("demo at noon")));
    assert_eq!(served.post("ada", &format!("{job}/unpin")).await.body["pin"], Value::Null);
    assert_eq!(served.post("ada", &format!("{job}/unpin")).await.problem(StatusCode::CONFLICT), "wrong_state");
    let patch = json!({"gpus_max": 4, "labels": {"exp": "b"}, "time_limit_seconds": 3600.0});
    let patched = served.send_json(Method::PATCH, "ada", &job, &patch).await;
    assert_eq!((&patched.body["gpus_max"], &patched.body["labels"]["exp"]), (&json!(4), &json!("b")));
    assert_eq!(patched.body["priority"], 50, "what is not named stays");
    let wrong = served.send_json(Method::PATCH, "ada", &job, &json!({"gpus_min": 5})).await;
    assert_eq!(wrong.problem(StatusCode::UNPROCESSABLE_ENTITY), "invalid");
    let events = served.get("eve", &format!("{job}/events")).await;
    assert_eq!(events.body["items"][0]["verb"], "job.changed");
}

#[tokio::test]
async fn a_project_is_made_changed_and_deleted_by_admins() {
    let served = Served::start().await;
    let put = |path: &str, header: &str, value: &str, body: &Value| {
        let request = asked(Method::PUT, "root", path).header("content-type", "application/json");
        request.header(header, value).body(Body::from(body.to_string())).unwrap()
    };
    let rules = json!({"quota_gpus": 8, "borrow_gpus": 4});
    let denied = served.send_json(Method::PUT, "ada", "/projects/nlp", &rules).await;
    assert_eq!(denied.problem(StatusCode::FORBIDDEN), "forbidden");
    let checked = served.send_json(Method::PUT, "root", "/projects/nlp?dry_run=true", &rules).await;
    assert_eq!((checked.status, &checked.body["weight"]), (StatusCode::OK, &json!(1.0)));
    assert_eq!(served.get("eve", "/projects/nlp").await.problem(StatusCode::NOT_FOUND), "not_found");
    let made = served.send(put("/projects/nlp", "if-none-match", "*", &rules)).await;
    assert_eq!((made.status, &made.headers["etag"]), (StatusCode::CREATED, &"\"1\"".parse().unwrap()));
    let twice = served.send(put("/projects/nlp", "if-none-match", "*", &rules)).await;
    assert_eq!(twice.problem(StatusCode::CONFLICT), "wrong_state");
    let more = json!({"quota_gpus": 16});
    let stale = served.send(put("/projects/nlp", "if-match", "\"7\"", &more)).await;
    assert_eq!(stale.problem(StatusCode::PRECONDITION_FAILED), "version_changed");
    let changed = served.send(put("/projects/nlp", "if-match", "\"1\"", &more)).await;
    assert_eq!((&changed.body["version"], &changed.body["borrow_gpus"]), (&json!(2), &json!(0)), "{}", changed.body);
    let wrong = [json!({"parent": "nlp"}), json!({"parent": "none"}), json!({"floor_gpus": 2, "quota_gpus": 1})];
    for body in wrong {
        let refused = served.send_json(Method::PUT, "root", "/projects/nlp", &body).await;
        assert_eq!(refused.problem(StatusCode::UNPROCESSABLE_ENTITY), "invalid");
    }
    let listed: v1::ProjectList = serde_json::from_value(served.get("eve", "/projects").await.body).unwrap();
    assert_eq!((listed.items.len(), listed.items[0].rules.quota_gpus), (1, Some(16)));
    let delete = || asked(Method::DELETE, "root", "/projects/nlp").body(Body::empty()).unwrap();
    assert_eq!(served.send(delete()).await.status, StatusCode::OK);
    assert_eq!(served.send(delete()).await.problem(StatusCode::NOT_FOUND), "not_found");
    let events = served.get("eve", "/events").await.body;
    assert_eq!(
        (&events["items"][0]["verb"], &events["items"][0]["actor"]),
        (&json!("project.deleted"), &json!("user:root"))
    );
}

#[tokio::test]
async fn a_reservation_needs_nodes_that_are_there() {
    let served = Served::start().await;
    let wanted = json!({"name": "demo", "nodes": ["nowhere"], "until": "2999-01-01T00:00:00Z", "projects": ["nlp"]});
    let denied = served.send_json(Method::POST, "ada", "/reservations", &wanted).await;
    assert_eq!(denied.problem(StatusCode::FORBIDDEN), "forbidden");
    let refused = served.send_json(Method::POST, "root", "/reservations", &wanted).await;
    assert_eq!(refused.problem(StatusCode::NOT_FOUND), "not_found");
    assert_eq!(refused.body["field"], "nodes");
    let mut both = wanted;
    both["duration_seconds"] = json!(60.0);
    let refused = served.send_json(Method::POST, "root", "/reservations", &both).await;
    assert_eq!(refused.problem(StatusCode::UNPROCESSABLE_ENTITY), "invalid");
    assert_eq!(served.get("eve", "/reservations").await.body["items"], json!([]));
    let none = "/reservations/01890000-0000-7000-8000-000000000000";
    let delete = asked(Method::DELETE, "root", none).body(Body::empty()).unwrap();
    assert_eq!(served.send(delete).await.problem(StatusCode::NOT_FOUND), "not_found");
}

#[tokio::test]
async fn a_policy_of_an_older_client_resets_nothing_it_does_not_know() {
    let served = Served::start().await;
    let mut policy = served.get("eve", "/policy").await.body;
    policy["objective"] = json!("least_attained");
    policy["patience_seconds"] = Value::Null;
    assert_eq!(served.send_json(Method::PUT, "root", "/policy", &policy).await.status, StatusCode::OK);
    for unknown in ["objective", "patience_seconds", "max_moves", "power_cap", "usage_half_life_seconds"] {
        policy.as_object_mut().unwrap().remove(unknown);
    }
    let kept = served.send_json(Method::PUT, "root", "/policy", &policy).await.body;
    assert_eq!((&kept["objective"], &kept["patience_seconds"]), (&json!("least_attained"), &Value::Null));
    policy["objective"] = json!("best");
    let refused = served.send_json(Method::PUT, "root", "/policy", &policy).await;
    assert_eq!(refused.problem(StatusCode::UNPROCESSABLE_ENTITY), "invalid");
}

#[tokio::test]
async fn what_if_is_asked_of_the_newest_round_and_changes_nothing() {
    let served = Served::start().await;
    let id = served.submit("ada", JOB, "k").await.id();
    assert_eq!(served.post("root", "/plans/rebalance").await.status, StatusCode::OK);
    let why = served.get("eve", &format!("/jobs/{id}/explain")).await.body;
    let why: v1::Explanation = serde_json::from_value(why).unwrap();
    assert_eq!(why.funnel[0].name, "in the cluster");
    assert!(!why.counterfactuals.is_empty() && why.counterfactuals.iter().all(|one| !one.possible));
    assert!(why.predicted_start.is_some_and(|start| start.p10.is_none() && start.reason.is_some()));

    let ask = async |body: Value| served.send_json(Method::POST, "eve", "/plans/simulate", &body).await;
    let forced = ask(json!({"force": {"job_id": id}})).await;
    assert_eq!(
        (forced.status, &forced.body["outcome"]["possible"]),
        (StatusCode::OK, &json!(false)),
        "{}",
        forced.body
    );
    assert_eq!(ask(json!({"jobs_gone": [id]})).await.status, StatusCode::OK);
    assert_eq!(ask(json!({"nodes_back": [id]})).await.problem(StatusCode::NOT_FOUND), "not_found");
    assert_eq!(ask(json!({})).await.problem(StatusCode::UNPROCESSABLE_ENTITY), "invalid");
    let detail: v1::JobDetail = serde_json::from_value(served.get("eve", &format!("/jobs/{id}")).await.body).unwrap();
    let another = ask(json!({"jobs": [detail.spec]})).await;
    assert_eq!(another.body["outcome"]["gpus"], 0, "{}", another.body);
    assert_eq!(served.get("eve", "/jobs").await.body["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_jobs_page_shows_what_was_asked_and_what_happened() {
    let served = Served::start().await;
    let id = served.submit("ada", JOB, "k").await.id();
    let shown = served.get("eve", &format!("/jobs/{id}")).await;
    let detail: v1::JobDetail = serde_json::from_value(shown.body).unwrap();
    assert_eq!((detail.job.name.as_str(), detail.job.owner.as_str()), ("first", "ada"));
    let again = served.send_json(Method::POST, "bob", "/jobs", &detail.spec).await;
    assert_eq!(again.status, StatusCode::CREATED, "what is shown can be submitted: {}", again.body);
    for (list, field) in [("allocations", "items"), ("checkpoints", "items"), ("series", "points"), ("curve", "points")]
    {
        assert_eq!(served.get("eve", &format!("/jobs/{id}/{list}")).await.body[field], json!([]), "{list}");
    }
    let events = served.get("eve", &format!("/jobs/{id}/events")).await;
    assert_eq!(events.body["items"][0]["verb"], "job.submitted");
    assert_eq!(events.body["items"][0]["actor"], "user:ada");
    assert_eq!(served.get("eve", &format!("/jobs/{id}/logs")).await.problem(StatusCode::CONFLICT), "not_started");
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
    assert_eq!(served.send_json(Method::POST, "ada", "/auth/tokens", &wanted).await.status, StatusCode::FORBIDDEN);
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
    until(&mut resumed, "\"verb\":\"job.submitted\"").await;
}

/// Reads until `wanted` was said and the message that says it is complete.
async fn until(body: &mut axum::body::BodyDataStream, wanted: &str) -> String {
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
    assert_eq!(root("/readyz").await.status, StatusCode::OK);
    assert_eq!(root("/version").await.body, json!({"version": "0.0.0", "api": "v1"}));
    assert_eq!(root("/api/v1/openapi.json").await.body["openapi"], "3.1.0");
    let page = root("/jobs").await;
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
}
