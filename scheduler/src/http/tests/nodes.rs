//! Nodes that are deleted: what is refused, what named them, and what of them can still be asked for.

use chrono::DateTime;
use headway_types::command::GroupStatus;
use headway_types::{Generation, GroupOutcome, GroupPhase, JobId};

use super::*;

async fn tell(served: &Served, event: Event) {
    served.inbox.send(Input::event(event)).await.unwrap();
}

async fn delete(served: &Served, who: &str, path: &str) -> Answer {
    served.send(asked(Method::DELETE, who, path).body(Body::empty()).unwrap()).await
}

/// The agent's stream ends.
async fn leave(served: &Served, node: NodeId) {
    tell(served, Event::AgentDisconnected { node, session: SessionId(1) }).await;
}

/// Deletes once the scheduler has heard that the agent has left.
async fn deleted(served: &Served, path: &str) -> Answer {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        let answer = delete(served, "root", path).await;
        if answer.status != StatusCode::CONFLICT {
            return answer;
        }
        assert!(tokio::time::Instant::now() < deadline, "{}", answer.body);
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_node_that_is_gone_can_be_deleted_and_its_past_stays() {
    let served = Served::start().await;
    let node = served.add_node().await;
    let job = served.submit("ada", JOB, "k").await.id();
    served.until("eve", "/jobs", |answer| answer.body["items"][0]["gpus"] == 1).await;
    let ran = DateTime::from_timestamp_micros(served.cluster.now().0).unwrap();
    let ran = ran.to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
    assert_eq!(delete(&served, "ada", "/nodes/node-1").await.problem(StatusCode::FORBIDDEN), "forbidden");
    let refused = delete(&served, "root", "/nodes/node-1").await;
    assert_eq!(refused.problem(StatusCode::CONFLICT), "wrong_state");
    assert!(refused.body["detail"].as_str().unwrap().contains("runs first; drain it"), "{}", refused.body);

    let phase = GroupPhase::Ended { outcome: GroupOutcome::Stopped };
    let status = GroupStatus {
        job: JobId(job.parse().unwrap()),
        generation: Generation(1),
        gpus: vec![],
        phase,
        revision: 0,
        notice: 0,
    };
    tell(&served, Event::Agent { node, session: SessionId(1), report: NodeReport::Group { status } }).await;
    leave(&served, node).await;
    let live =
        served.router.clone().oneshot(asked(Method::GET, "eve", "/stream?topics=nodes").body(Body::empty()).unwrap());
    let mut live = live.await.unwrap().into_body().into_data_stream();
    let gone = deleted(&served, "/nodes/node-1?reason=scrapped").await;
    assert_eq!(gone.status, StatusCode::OK, "{}", gone.body);
    let nothing: [String; 0] = [];
    assert_eq!(
        gone.body,
        json!({"id": node.0, "name": "node-1", "reservations": nothing, "reservations_cancelled": nothing, "policy_rows": nothing})
    );
    let heard = service::until(&mut live, "event: node_gone\n").await;
    assert!(heard.contains(&node.to_string()), "{heard}");

    assert_eq!(served.get("eve", "/nodes").await.body["items"], json!([]));
    assert_eq!(served.get("eve", "/overview").await.body["gpus_total"], 0);
    assert_eq!(served.get("eve", "/nodes/node-1").await.problem(StatusCode::NOT_FOUND), "not_found");
    assert_eq!(delete(&served, "root", "/nodes/node-1").await.problem(StatusCode::NOT_FOUND), "not_found");
    for name in ["node-1", &node.to_string()] {
        let told = served.get("eve", &format!("/events?node={name}")).await;
        assert_eq!(told.body["items"][0]["verb"], "node.deleted", "{}", told.body);
        assert_eq!(told.body["items"][0]["node_name"], "node-1", "what was deleted is named all the same");
        assert_eq!(
            (&told.body["items"][0]["actor"], told.body["items"].as_array().unwrap().len() > 1),
            (&json!("user:root"), true)
        );
        let then = served.get("eve", &format!("/nodes/{name}?at={ran}")).await;
        assert_eq!((&then.body["name"], &then.body["held"][0]["job_name"]), (&json!("node-1"), &json!("first")));
    }
    let then = served.get("eve", &format!("/jobs/{job}?at={ran}")).await;
    assert_eq!(then.body["nodes"], json!(["node-1"]));
    let held = served.get("eve", &format!("/jobs/{job}/allocations")).await;
    assert_eq!(held.body["items"][0]["slices"][0]["node_name"], "node-1", "{}", held.body);
    assert!(served.store.load(START).await.unwrap().nodes.is_empty(), "the next leader does not know it");
}

#[tokio::test]
async fn a_name_that_two_nodes_have_is_nobodys() {
    let served = Served::start().await;
    let first = served.add_node().await;
    // Two that are connected have two names; this one comes while the other is away.
    leave(&served, first).await;
    let second = IdSource::seeded(10).node(START);
    let report = NodeReport::Registered { inventory: Box::new(node(second).inventory), groups: vec![] };
    tell(&served, Event::Agent { node: second, session: SessionId(2), report }).await;
    served.until("eve", "/nodes", |answer| answer.body["items"].as_array().is_some_and(|items| items.len() == 2)).await;
    let refused = served.post("root", "/nodes/node-1/drain").await;
    assert_eq!(refused.problem(StatusCode::CONFLICT), "ambiguous");
    let hint = refused.body["hint"].as_str().unwrap();
    assert!(hint.contains(&first.to_string()) && hint.contains(&second.to_string()), "{hint}");
    assert_eq!(deleted(&served, &format!("/nodes/{first}")).await.status, StatusCode::OK);
    assert_eq!(served.post("root", "/nodes/node-1/drain").await.body["id"], json!(second.0));
}

#[tokio::test]
async fn nodes_are_labelled_by_operators_and_found_by_it() {
    let served = Served::start().await;
    served.add_node().await;
    let patch = |who: &'static str, body: Value| {
        let served = &served;
        async move { served.send_json(Method::PATCH, who, "/nodes/node-1", &body).await }
    };
    let nvme = json!({"labels": {"disk": "nvme", "gen": "4"}});
    assert_eq!(patch("ada", nvme.clone()).await.problem(StatusCode::FORBIDDEN), "forbidden");
    let tag = served.get("eve", "/nodes/node-1").await.headers["etag"].clone();
    let labelled = patch("opal", nvme).await;
    assert_eq!(
        (labelled.status, &labelled.body["labels"]["disk"]),
        (StatusCode::OK, &json!("nvme")),
        "{}",
        labelled.body
    );
    assert_eq!(labelled.body["declared_labels"], json!({}));
    let stale = asked(Method::PATCH, "opal", "/nodes/node-1").header("content-type", "application/json");
    let stale = stale.header("if-match", tag).body(Body::from(json!({"labels": {"gen": null}}).to_string())).unwrap();
    assert_eq!(served.send(stale).await.problem(StatusCode::PRECONDITION_FAILED), "version_changed");
    let wrong = patch("opal", json!({"labels": {"a b": "c"}})).await;
    wrong.problem(StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(wrong.body["field"], "labels.a b");
    assert_eq!(patch("opal", json!({"labels": {"gen": null}})).await.body["labels"], json!({"disk": "nvme"}));
    for (filter, found) in [("disk", 1), ("disk=nvme", 1), ("disk=ssd", 0), ("disk,gen", 0)] {
        let list = served.get("eve", &format!("/nodes?label={filter}")).await.body;
        assert_eq!(list["items"].as_array().unwrap().len(), found, "{filter}");
    }
    let then = served.get("eve", "/nodes?label=disk&at=2026-01-01T00:00:00Z").await;
    assert_eq!(then.problem(StatusCode::BAD_REQUEST), "bad_request");
    // What asks for a label that no node has is refused with the values there are.
    let job = json!({"version": 1, "name": "a", "resources": {"gpus": 1, "nodes": {"labels": {"disk": "tape"}}}, "run": {"command": "x"}});
    let refused = served.send_json(Method::POST, "ada", "/jobs", &job).await;
    refused.problem(StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(refused.body["field"], "resources.nodes");
    assert!(refused.body["hint"].as_str().unwrap().contains("disk is nvme here"), "{}", refused.body);
}
