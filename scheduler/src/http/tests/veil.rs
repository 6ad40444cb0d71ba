//! Whoever may not know of a job finds neither its name nor its id in anything that the interface says.

use super::contract::{filled, operations};
use super::*;

const NAME: &str = "zq-unmistakable-v7";

fn private(name: &str, gpus: u32) -> Value {
    json!({"version": 1, "name": name, "project": "vault", "resources": {"gpus": gpus}, "priority": 70,
        "run": {"command": ["sleep", "1"]}})
}

/// A private job of ada's on all four GPUs of the only node, one that waits, one that has ended; and one of bob's that waits for all of them.
struct Planted {
    served: Served,
    hidden: Vec<String>,
    open: String,
    plan: String,
}

impl Planted {
    async fn there() -> Self {
        let served = Served::start().await;
        for path in ["/projects/vault", "/projects/free"] {
            assert_eq!(served.send_json(Method::PUT, "root", path, &json!({})).await.status, StatusCode::CREATED);
        }
        let member = json!({"role": "user"});
        served.send_json(Method::PUT, "root", "/projects/vault/members/ada", &member).await;
        let closed = served.send_json(Method::PATCH, "root", "/projects/vault", &json!({"private": true})).await;
        assert_eq!(closed.status, StatusCode::OK, "{}", closed.body);
        let mut hidden = Vec::new();
        for name in [NAME.to_owned(), format!("{NAME}.ended")] {
            hidden.push(served.send_json(Method::POST, "ada", "/jobs", &private(&name, 4)).await.id());
        }
        served.post("ada", &format!("/jobs/{}/cancel", hidden[1])).await;
        served.add_node_of(4).await;
        let job = format!("/jobs/{}", hidden[0]);
        served.until("ada", &job, |answer| answer.body["gpus"] == 4).await;
        hidden.push(served.send_json(Method::POST, "ada", "/jobs", &private(&format!("{NAME}.waits"), 4)).await.id());
        let of_bob = json!({"version": 1, "name": "plain", "project": "free", "resources": {"gpus": 4}, "run": {"command": ["a"]}});
        let open = served.send_json(Method::POST, "bob", "/jobs", &of_bob).await.id();
        let node = served.get("root", "/nodes").await.body["items"][0]["id"].clone();
        let ahead = json!({"name": "ahead", "nodes": [node], "from": "2999-01-01T00:00:00Z", "duration_seconds": 60.0, "projects": ["free"]});
        let cost = served.send_json(Method::POST, "opal", "/reservations", &ahead).await.body["cost"].to_string();
        assert!(cost.contains(&hidden[0]), "{cost}");
        let proposal = served.post("root", "/plans/rebalance").await.body;
        for id in [&hidden[0], &hidden[2], &open] {
            assert!(proposal.to_string().contains(id.as_str()), "{id}: {proposal}");
        }
        let plan = proposal["id"].as_str().unwrap().to_owned();
        served.until("root", &format!("/plans/{plan}/input"), |answer| answer.status == StatusCode::OK).await;
        Self { served, hidden, open, plan }
    }

    fn check(&self, who: &str, asked: &str, text: &str) {
        assert!(!text.contains(NAME), "{who}: {asked} names a hidden job: {text}");
        for id in &self.hidden {
            assert!(!text.contains(id.as_str()), "{who}: {asked} has a hidden job's id: {text}");
        }
    }

    async fn text(&self, who: &str, path: &str) -> String {
        let answer = self.served.get(who, path).await;
        format!("{} {}", answer.status, answer.body)
    }
}

/// What a route may be asked with.
fn queries(operation: &Value) -> Vec<String> {
    let moment = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
    let mut queries = vec![String::new()];
    for parameter in operation["parameters"].as_array().into_iter().flatten().filter(|one| one["in"] == "query") {
        let value = match parameter["name"].as_str().unwrap() {
            "at" => moment.as_str(),
            "group_by" => "user,project,displaced_by",
            "totals" => "true",
            "limit" => "1",
            "q" => "zq",
            "sort" => "name",
            "step" => "1h",
            "group" if operation["operationId"] == "goodput" => "project",
            _ => continue,
        };
        queries.push(format!("?{}={value}", parameter["name"].as_str().unwrap()));
    }
    queries
}

#[tokio::test]
async fn no_route_names_a_job_to_whom_it_does_not_exist() {
    let planted = Planted::there().await;
    let node = planted.served.get("root", "/nodes").await.body["items"][0]["id"].as_str().unwrap().to_owned();
    let (mut asked, mut told) = (0, 0);
    for (method, path, operation) in operations() {
        if method != Method::GET || path == "/stream" {
            continue;
        }
        for id in [&planted.open, &planted.plan] {
            for query in queries(&operation) {
                let concrete = format!("{}{query}", filled(&path.replace("{project}", "vault"), id, &node));
                for who in ["bob", "eve"] {
                    planted.check(who, &concrete, &planted.text(who, &concrete).await);
                    asked += 1;
                }
                told += usize::from(planted.text("opal", &concrete).await.contains(NAME));
            }
        }
    }
    assert!(asked > 150 && told >= 12, "{asked} asked, of which {told} have something to hide");

    for (path, body) in [
        ("/jobs/validate", json!({"version": 1, "name": "a", "resources": {"gpus": 4}, "run": {"command": ["a"]}})),
        ("/plans/simulate", json!({"jobs_gone": [planted.open]})),
        ("/jobs?dry_run=true", json!({"version": 1, "name": "a", "resources": {"gpus": 4}, "run": {"command": ["a"]}})),
    ] {
        let answer = planted.served.send_json(Method::POST, "bob", path, &body).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.body);
        planted.check("bob", path, &answer.body.to_string());
    }
}

#[tokio::test]
async fn a_hidden_job_is_answered_as_one_that_does_not_exist() {
    let planted = Planted::there().await;
    // Ids tell when they were made.
    let nobody = &uuid::Uuid::now_v7().to_string();
    let mut paths: Vec<String> = operations()
        .into_iter()
        .filter(|(method, path, _)| *method == Method::GET && path.contains("{id}"))
        .map(|(_, path, _)| path)
        .collect();
    paths.extend(
        ["/goodput?jobs={id}", "/events?job={id}", "/events?job={id}&limit=1", "/jobs?q={id}"].map(ToOwned::to_owned),
    );
    let without = |text: String, id: &str| {
        let text = text.replace(id, "ID");
        text.split_once("\"request_id\"").map_or(text.clone(), |(before, _)| before.to_owned())
    };
    for path in paths {
        let unknown = without(planted.text("bob", &path.replace("{id}", nobody)).await, nobody);
        for id in &planted.hidden {
            let hidden = without(planted.text("bob", &path.replace("{id}", id)).await, id);
            assert_eq!(hidden, unknown, "{path}");
        }
    }
    let asks = async |id: &str, body: Value| {
        let body = serde_json::from_str(&body.to_string().replace("ID", id)).unwrap();
        let answer = planted.served.send_json(Method::POST, "bob", "/plans/simulate", &body).await;
        without(format!("{} {}", answer.status, answer.body), id)
    };
    for body in
        [json!({"jobs_gone": ["ID"]}), json!({"priorities": {"ID": 9}}), json!({"force": {"job_id": "ID", "gpus": 1}})]
    {
        assert_eq!(asks(&planted.hidden[0], body.clone()).await, asks(nobody, body.clone()).await, "{body}");
    }
}

#[tokio::test]
async fn lists_are_filtered_before_they_are_cut_and_count_what_their_reader_may_see() {
    let planted = Planted::there().await;
    let served = &planted.served;
    for query in
        ["?limit=1&totals=true", "?limit=1&totals=true&state=live&sort=priority", "?limit=1&totals=true&sort=name"]
    {
        let page = served.get("eve", &format!("/jobs{query}")).await.body;
        assert_eq!(
            (&page["items"][0]["id"], &page["totals"]["jobs"]),
            (&json!(planted.open), &json!(1)),
            "{query}: {page}"
        );
        assert_eq!(page["next_cursor"], Value::Null, "{query}");
    }
    let states =
        |body: &Value| body["jobs_by_state"].as_object().unwrap().values().filter_map(Value::as_u64).sum::<u64>();
    let overview = served.get("eve", "/overview").await.body;
    assert_eq!((states(&overview), &overview["gpus_waited_for"]), (1, &json!(4)), "{overview}");
    assert_eq!(states(&served.get("opal", "/overview").await.body), 3);
    let gpu = |node: &Value| node["items"][0]["gpus"][0].clone();
    let gpu = gpu(&served.get("eve", "/nodes").await.body);
    assert_eq!((&gpu["job_id"], &gpu["job_name"]), (&json!(uuid::Uuid::nil()), &json!("a job of another project")));
}

#[tokio::test]
async fn the_stream_names_nobody_who_is_hidden() {
    let planted = Planted::there().await;
    let served = &planted.served;
    let follow = asked(Method::GET, "bob", "/stream").header("last-event-id", "0");
    let follow = served.router.clone().oneshot(follow.body(Body::empty()).unwrap()).await.unwrap();
    let mut follow = follow.into_body().into_data_stream();
    served.post("ada", &format!("/jobs/{}/cancel", planted.hidden[0])).await;
    served.post("root", "/nodes/node-1/cordon").await;
    let mut heard = super::service::until(&mut follow, "event: node\n").await;
    served.submit("bob", "{version: 1, name: marker, resources: {gpus: 1}, run: {command: [a]}}", "last").await;
    heard.push_str(&super::service::until(&mut follow, "\"marker\"").await);
    planted.check("bob", "the stream", &heard);
}
