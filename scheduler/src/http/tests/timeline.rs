//! The timeline: lanes of jobs and nodes as they were.

use super::*;

async fn timeline(served: &Served, who: &str, query: &str) -> v1::Timeline {
    let answer = served.get(who, &format!("/timeline?{query}")).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    serde_json::from_value(answer.body).unwrap()
}

#[tokio::test]
async fn jobs_and_nodes_have_lanes_of_what_they_were_doing() {
    let served = Served::start().await;
    let id = served.submit("ada", JOB, "k").await.id();
    let other = served.submit("ada", JOB, "l").await.id();
    assert_eq!(served.post("ada", &format!("/jobs/{other}/cancel")).await.status, StatusCode::OK);
    let node = served.add_node().await;
    served.until("eve", &format!("/jobs/{id}"), |answer| answer.body["state"] == "starting").await;

    let jobs = timeline(&served, "eve", "").await;
    let lane = jobs.lanes.iter().find(|lane| lane.id.to_string() == id).unwrap();
    let states: Vec<&str> = lane.bars.iter().map(|bar| bar.state.as_str()).collect();
    assert_eq!((jobs.group.as_str(), jobs.lanes.len(), jobs.next_cursor.as_deref()), ("job", 2, None));
    assert!(
        states.last() == Some(&"starting") || lane.bars.iter().any(|bar| !bar.seconds_by_state.is_empty()),
        "{lane:?}"
    );
    assert!(lane.bars.windows(2).all(|pair| pair[0].to <= pair[1].from));
    assert_eq!(jobs.aggregated.as_deref(), Some("aggregated to 1 min"));
    assert!(!jobs.plans.is_empty());
    let exact = timeline(
        &served,
        "eve",
        &format!(
            "job={id}&from={}&res=0",
            (jobs.now - chrono::TimeDelta::minutes(5)).to_rfc3339_opts(chrono::SecondsFormat::Micros, true)
        ),
    )
    .await;
    let starting = exact.lanes[0].bars.last().unwrap();
    assert_eq!((starting.state.as_str(), starting.gpus), ("starting", Some(1)), "{exact:?}");
    assert!(starting.cause.is_some());

    let first = timeline(&served, "eve", "limit=1").await;
    let second = timeline(&served, "eve", &format!("limit=1&cursor={}", first.next_cursor.unwrap())).await;
    assert_eq!([first.lanes[0].id, second.lanes[0].id], [jobs.lanes[0].id, jobs.lanes[1].id]);

    let nodes = timeline(&served, "eve", "group=node").await;
    assert_eq!((nodes.lanes[0].id, nodes.lanes[0].deleted), (node.0, false));
    assert_eq!(nodes.lanes[0].held[0].job_id.unwrap().to_string(), id);
    assert_eq!(timeline(&served, "eve", &format!("group=node&node={node}")).await.lanes.len(), 1);

    let refused = [("group=rack", "group"), ("res=-1", "res"), ("job=first", "job"), ("cursor=x", "cursor")];
    let backwards = ("from=2030-01-01T00:00:00Z&to=2029-01-01T00:00:00Z", "from");
    for (query, field) in refused.into_iter().chain([backwards, ("from=2000-01-01T00:00:00Z", "from")]) {
        let answer = served.get("eve", &format!("/timeline?{query}")).await;
        assert_eq!((answer.problem(StatusCode::BAD_REQUEST), &answer.body["field"]), ("bad_request", &json!(field)));
    }
}
