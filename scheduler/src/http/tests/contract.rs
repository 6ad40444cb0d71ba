//! What every route keeps to, walked over the table of routes.

use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection};

use super::*;
use crate::http::openapi;

/// Every operation of the document: its method, and its path below `/api/v1` as the table has it.
pub fn operations() -> Vec<(Method, String, Value)> {
    let document: Value = serde_json::to_value(openapi::complete(routes().into_openapi())).unwrap();
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let method = method.to_uppercase().parse().unwrap();
            operations.push((method, path.trim_start_matches("/api/v1").to_owned(), operation.clone()));
        }
    }
    operations
}

pub fn filled(path: &str, id: &str, node: &str) -> String {
    path.replace("{id}", id)
        .replace("{node}", node)
        .replace("{project}", "nlp")
        .replace("{user}", "ada")
        .replace("{secret}", "key")
}

/// Everything that is stored.
async fn stored(connection: &mut PgConnection) -> Vec<(String, String)> {
    let tables = "SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut *connection).await.unwrap();
    let mut all = Vec::new();
    // Servers tell of themselves whatever is asked of them.
    for table in tables.into_iter().filter(|table| table != "servers") {
        let rows = format!("SELECT coalesce(string_agg(t::text, E'\\n' ORDER BY t::text), '') FROM {table} t");
        let rows: String = sqlx::query_scalar(AssertSqlSafe(rows)).fetch_one(&mut *connection).await.unwrap();
        all.push((table, rows));
    }
    all
}

/// What there is to change: jobs, a node, a project, a reservation, a token, a proposal; by noun, with their ids.
struct Furnished {
    node: String,
    queued: String,
    held: String,
    pinned: String,
    cancelled: String,
    array: String,
    held_array: String,
    proposal: String,
    reservation: String,
    token: String,
}

impl Furnished {
    async fn in_paused(served: &Served) -> Self {
        let mut policy = served.get("eve", "/policy").await.body;
        policy["mode"] = json!("paused");
        assert_eq!(served.send_json(Method::PUT, "root", "/policy", &policy).await.status, StatusCode::OK);
        let node = served.add_node().await.to_string();
        let queued = served.submit("ada", JOB, "1").await.id();
        let held = served.submit("ada", JOB, "2").await.id();
        let pinned = served.submit("ada", JOB, "3").await.id();
        let cancelled = served.submit("ada", JOB, "4").await.id();
        assert_eq!(served.post("ada", &format!("/jobs/{cancelled}/cancel")).await.status, StatusCode::OK);
        assert_eq!(served.post("ada", &format!("/jobs/{held}/hold")).await.status, StatusCode::OK);
        assert_eq!(served.post("ada", &format!("/jobs/{pinned}/pin")).await.status, StatusCode::OK);
        let array = |name: &str| json!({"version": 1, "name": name, "resources": {"gpus": 1}, "array": "0-1%1", "run": {"command": ["a"]}});
        let arrays = json!({"jobs": [array("a"), array("b")]});
        let arrays = served.send_json(Method::POST, "ada", "/jobs", &arrays).await.body;
        let [array, held_array] = [0, 2].map(|at| arrays["jobs"][at]["array"]["array_id"].as_str().unwrap().to_owned());
        assert_eq!(served.post("ada", &format!("/arrays/{held_array}/hold")).await.status, StatusCode::OK);
        served.send_json(Method::PUT, "root", "/projects/nlp", &json!({"quota_gpus": 8})).await;
        let wanted = json!({"name": "demo", "nodes": [node], "from": "2999-01-01T00:00:00Z",
            "until": "2999-02-01T00:00:00Z", "projects": ["nlp"]});
        let reservation = served.send_json(Method::POST, "root", "/reservations", &wanted).await;
        let proposal = served.post("root", "/plans/rebalance").await;
        assert_eq!(proposal.body["state"], "proposed", "{}", proposal.body);
        let token = json!({"name": "ci", "scope": "viewer"});
        let token = served.send_json(Method::POST, "root", "/auth/tokens", &token).await;
        let id = |of: &Value| of["id"].as_str().unwrap().to_owned();
        let (proposal, reservation, token) = (id(&proposal.body), id(&reservation.body), id(&token.body["token"]));
        Self { node, queued, held, pinned, cancelled, array, held_array, proposal, reservation, token }
    }

    /// A request that would change something, and the status of its dry run.
    fn change(&self, method: &Method, path: &str) -> (String, Value, u16) {
        let Self { node, queued, held, pinned, cancelled, array, held_array, proposal, reservation, token } = self;
        let job = json!({"version": 1, "name": "a", "resources": {"gpus": 1}, "run": {"command": ["a"]}});
        let (id, body, status) = match (method.as_str(), path) {
            ("POST", "/jobs") => ("", job, 200),
            ("PATCH", "/jobs/{id}") => (&**queued, json!({"priority": 70}), 200),
            ("POST", "/jobs/{id}/release") => (&**held, Value::Null, 200),
            ("POST", "/jobs/{id}/unpin") => (&**pinned, Value::Null, 200),
            ("POST", "/jobs/{id}/resize") => (&**queued, json!({"gpus": 1}), 200),
            ("PATCH", "/arrays/{id}") => (&**array, json!({"parallel": 2}), 200),
            ("POST", "/arrays/{id}/cancel" | "/arrays/{id}/hold") => (&**array, Value::Null, 200),
            ("POST", "/arrays/{id}/release") => (&**held_array, Value::Null, 200),
            // Nothing runs.
            ("POST", "/jobs/{id}/checkpoint") => (&**queued, Value::Null, 409),
            ("POST", "/jobs/{id}/exec") => (&**queued, json!({"command": ["id"]}), 409),
            // It has no webhook.
            ("POST", "/jobs/{id}/deliveries") => (&**queued, Value::Null, 409),
            ("POST", "/jobs/{id}/requeue") => (&**cancelled, Value::Null, 200),
            ("POST", "/jobs/{id}/cancel" | "/jobs/{id}/hold" | "/jobs/{id}/pin") => (&**queued, Value::Null, 200),
            ("POST", "/nodes/{node}/drain" | "/nodes/{node}/undrain") => ("", Value::Null, 200),
            ("POST", "/nodes/{node}/cordon" | "/nodes/{node}/uncordon") => ("", Value::Null, 200),
            // Its agent is connected.
            ("PATCH", "/nodes/{node}") => ("", json!({"labels": {"disk": "nvme"}}), 200),
            ("POST", "/nodes/{node}/lost") | ("DELETE", "/nodes/{node}") => ("", Value::Null, 409),
            // None is ahead.
            ("POST", "/readmission") => ("", Value::Null, 409),
            ("POST", "/plans/{id}/approve" | "/plans/{id}/reject") => (&**proposal, Value::Null, 200),
            ("PATCH", "/policy") => ("", json!({"min_gain": 0.05}), 200),
            ("PUT", "/policy") => {
                let policy = conversions::policy(&headway_engine::record::PolicySettings::default());
                ("", serde_json::to_value(policy).unwrap(), 200)
            }
            ("PUT", "/projects/{project}") => ("", json!({"quota_gpus": 16}), 200),
            ("PATCH", "/projects/{project}") => ("", json!({"private": true}), 200),
            ("PUT", "/projects/{project}/members/{user}") => ("", json!({"role": "admin"}), 200),
            // It has none.
            ("DELETE", "/projects/{project}/members/{user}") => ("", Value::Null, 409),
            ("DELETE", "/projects/{project}") => ("", Value::Null, 200),
            ("POST", "/reservations") => {
                let until = "2998-02-01T00:00:00Z";
                ("", json!({"name": "b", "nodes": [node], "until": until, "users": ["ada"]}), 200)
            }
            ("DELETE", "/reservations/{id}") => (&**reservation, Value::Null, 200),
            // A question changes nothing as it is; a secret is shown once; a round leaves a proposal that changes nothing.
            ("POST", "/jobs/validate") => ("", job, 400),
            ("POST", "/plans/simulate") => ("", json!({"jobs_gone": [queued]}), 400),
            ("POST", "/plans/rebalance") => ("", Value::Null, 400),
            ("POST", "/plans/{id}/rollback") => (&**proposal, Value::Null, 400),
            // It is paused.
            ("POST", "/plans/pause") => ("", Value::Null, 409),
            ("POST", "/plans/resume") => ("", Value::Null, 200),
            ("POST", "/auth/tokens") => ("", json!({"name": "c", "scope": "viewer"}), 400),
            ("DELETE", "/auth/tokens/{id}") => (&**token, Value::Null, 400),
            ("POST" | "DELETE", "/auth/sessions") | ("DELETE", "/auth/sessions/current") => ("", Value::Null, 400),
            ("DELETE", "/auth/sessions/{id}") => (&**token, Value::Null, 400),
            ("PUT", "/secrets/{secret}") => ("", json!({"value": "hunter22"}), 200),
            // There is none.
            ("DELETE", "/secrets/{secret}") => ("", Value::Null, 404),
            ("POST", "/auth/oidc/device" | "/auth/oidc/device/token" | "/auth/oidc/token") => ("", Value::Null, 400),
            ("POST", "/join-tokens") => ("", Value::Null, 400),
            ("DELETE", "/join-tokens/{id}") => (&**token, Value::Null, 400),
            ("DELETE", "/node-certificates/{node}") => ("", Value::Null, 400),
            ("POST", "/node-authorities") => ("", Value::Null, 400),
            ("DELETE", "/node-authorities/{fingerprint}") => (&**token, Value::Null, 400),
            ("PUT", "/users/{user}/identity") => ("", json!({"subject": "s"}), 400),
            ("DELETE", "/users/{user}/identity") => ("", Value::Null, 400),
            ("PUT", "/users/{user}") => ("", json!({"role": "admin"}), 400),
            other => panic!("say what {other:?} would change"),
        };
        (filled(path, id, node), body, status)
    }
}

#[tokio::test]
async fn a_dry_run_of_whatever_changes_something_changes_nothing() {
    let served = Served::start().await;
    let there = Furnished::in_paused(&served).await;
    let mut connection = served.options.connect().await.unwrap();
    let mut walked = 0;
    for (method, path, _) in operations().into_iter().filter(|(method, ..)| method != Method::GET) {
        let (concrete, body, status) = there.change(&method, &path);
        let before = stored(&mut connection).await;
        let at = served.cluster.view();
        let shown = format!("{method} {concrete}?dry_run=true");
        let request = asked(method, "root", &format!("{concrete}?dry_run=true"));
        let request = match body {
            Value::Null => request.body(Body::empty()),
            body => request.header("content-type", "application/json").body(Body::from(body.to_string())),
        };
        let answer = served.send(request.unwrap()).await;
        assert_eq!(answer.status.as_u16(), status, "{shown}: {}", answer.body);
        assert!(answer.headers.get("etag").is_none(), "{shown}: what is not stored has no version");
        for (then, now) in before.into_iter().zip(stored(&mut connection).await) {
            assert_eq!(then, now, "{shown}");
        }
        let now = served.cluster.view();
        assert_eq!(headway_engine::view::View { at: at.at, ..(*now).clone() }, *at, "{shown}");
        walked += 1;
    }
    assert!(walked > 20, "{walked} operations");
}

#[tokio::test]
async fn a_parameter_that_a_route_does_not_have_is_refused_with_those_it_has() {
    let served = Served::start().await;
    let id = "01890000-0000-7000-8000-000000000000";
    // What an identity provider adds to its answer is its business.
    let all = operations().into_iter().filter(|(_, path, _)| path != "/auth/oidc/callback");
    for (method, path, operation) in all {
        let concrete = format!("{}?nonsense=1", filled(&path, id, "n1"));
        let answer = served.send(asked(method.clone(), "root", &concrete).body(Body::empty()).unwrap()).await;
        assert_eq!(answer.problem(StatusCode::BAD_REQUEST), "unknown_parameter", "{method} {path}");
        assert_eq!(answer.body["field"], "nonsense");
        let hint = answer.body["hint"].as_str().unwrap();
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        for known in parameters.filter(|parameter| parameter["in"] == "query") {
            assert!(hint.contains(known["name"].as_str().unwrap()), "{method} {path}: {hint}");
        }
    }
    let document = served.get("eve", "/openapi.json?nonsense=1").await;
    assert_eq!(document.problem(StatusCode::BAD_REQUEST), "unknown_parameter");
    let maybe = served.post("ada", &format!("/jobs/{id}/hold?dry_run=maybe")).await;
    assert_eq!((maybe.problem(StatusCode::BAD_REQUEST), &maybe.body["field"]), ("bad_request", &json!("dry_run")));
}

#[tokio::test]
async fn a_dry_run_says_what_the_planner_foresees_or_why_it_does_not() {
    let served = Served::start().await;
    let id = served.submit("ada", JOB, "k").await.id();
    let cancel = format!("/jobs/{id}/cancel?dry_run=true");
    served.until("eve", "/plans", |answer| answer.body["items"][0]["state"].is_string()).await;
    let answer = served.post("ada", &cancel).await;
    assert_eq!((answer.status, &answer.body["state"]), (StatusCode::OK, &json!("cancelled")), "{}", answer.body);
    let foreseen: v1::Foreseen = serde_json::from_value(answer.body["foreseen"].clone()).unwrap();
    assert!(foreseen.outcome.is_some() && foreseen.plan_id.is_some(), "{foreseen:?}");
    assert_eq!(served.get("eve", &format!("/jobs/{id}")).await.body["state"], "queued");
    let quota = served.send_json(Method::PUT, "root", "/projects/new?dry_run=true", &json!({"quota_gpus": 1})).await;
    assert_eq!(quota.body["foreseen"]["left_out"], "project new is not part of the round", "{}", quota.body);
    let refused = served.post("bob", &cancel).await;
    assert_eq!(refused.problem(StatusCode::FORBIDDEN), "forbidden", "it is refused as the request itself would be");
}

#[tokio::test]
async fn what_takes_no_key_refuses_one_and_does_nothing() {
    let served = Served::start().await;
    let there = Furnished::in_paused(&served).await;
    let tokens = served.get("root", "/auth/tokens").await.body;
    let takes_key = |operation: &Value| {
        operation["parameters"].as_array().into_iter().flatten().any(|one| one["name"] == "Idempotency-Key")
    };
    let posts = operations().into_iter().filter(|(method, ..)| method == Method::POST);
    let mut refused = Vec::new();
    for (method, path, operation) in posts.filter(|(.., operation)| !takes_key(operation)) {
        let (concrete, body, _) = there.change(&method, &path);
        let request = asked(method, "root", &concrete).header("idempotency-key", "k");
        let request = request.header("content-type", "application/json").body(Body::from(body.to_string()));
        let answer = served.send(request.unwrap()).await;
        assert_eq!(answer.problem(StatusCode::BAD_REQUEST), "key_not_taken", "{path}");
        assert_eq!(answer.body["field"], "Idempotency-Key");
        assert!(operation["description"].as_str().unwrap().contains("`key_not_taken`"), "{path}");
        refused.push(operation["operationId"].as_str().unwrap().to_owned());
    }
    assert!(refused.len() == 9 && refused.contains(&"create_token".to_owned()), "{refused:?}");
    assert_eq!(served.get("root", "/auth/tokens").await.body["items"].as_array(), tokens["items"].as_array());
}
