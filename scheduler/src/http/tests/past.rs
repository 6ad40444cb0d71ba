//! A past moment can be asked for, and says what is known of it and nothing else.

use chrono::{DateTime, Utc};

use super::*;

async fn now(served: &Served) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(served.cluster.now().0).unwrap()
}

fn at(path: &str, moment: DateTime<Utc>) -> String {
    let joint = if path.contains('?') { '&' } else { '?' };
    format!("{path}{joint}at={}", moment.to_rfc3339_opts(chrono::SecondsFormat::Micros, true))
}

#[tokio::test]
async fn a_moment_before_a_change_shows_what_was_before_it() {
    let served = Served::start().await;
    let job = served.submit("ada", JOB, "k").await.id();
    let waiting = now(&served).await;
    let node = served.add_node().await;
    served.until("eve", "/jobs", |answer| answer.body["items"][0]["gpus"] == 1).await;
    let started = now(&served).await;
    assert_eq!(served.post("ada", &format!("/jobs/{job}/cancel")).await.status, StatusCode::OK);

    let jobs: v1::PastJobList = serde_json::from_value(served.get("eve", &at("/jobs", waiting)).await.body).unwrap();
    let then = &jobs.items[0];
    assert_eq!((then.id.to_string(), then.state.to_string().as_str(), then.gpus), (job.clone(), "queued", 0));
    assert!(then.nodes.is_empty() && jobs.next_cursor.is_none());
    let body = served.get("eve", &at("/jobs", started)).await.body;
    assert!(body["items"][0].get("priority").is_none(), "what the past does not tell is absent: {body}");
    let jobs: v1::PastJobList = serde_json::from_value(body).unwrap();
    let then = &jobs.items[0];
    assert_eq!((then.state.to_string().as_str(), then.gpus, then.generation), ("starting", 1, 1));
    assert_eq!(then.nodes, ["node-1"]);
    let one: v1::PastJob =
        serde_json::from_value(served.get("eve", &at(&format!("/jobs/{job}"), started)).await.body).unwrap();
    assert_eq!(&one, then);

    let nodes: v1::PastNodeList = serde_json::from_value(served.get("eve", &at("/nodes", waiting)).await.body).unwrap();
    assert!(nodes.items.is_empty(), "it had not registered");
    let nodes: v1::PastNodeList = serde_json::from_value(served.get("eve", &at("/nodes", started)).await.body).unwrap();
    let then = &nodes.items[0];
    assert_eq!((then.id, then.availability.to_string().as_str(), then.gpus), (node.0, "available", 1));
    assert_eq!((then.held[0].job_name.as_str(), &then.held[0].gpu_uuids[..]), ("first", &["GPU-1-0".to_owned()][..]));
    let one: v1::PastNode =
        serde_json::from_value(served.get("eve", &at("/nodes/node-1", started)).await.body).unwrap();
    assert_eq!(&one, then);

    let overview = served.get("eve", &at("/overview", started)).await.body;
    assert!(overview.get("goodput_tokens_per_second").is_none(), "{overview}");
    let overview: v1::PastOverview = serde_json::from_value(overview).unwrap();
    assert_eq!((overview.nodes_total, overview.gpus_total, overview.gpus_busy), (1, 1, 1));
    assert_eq!(overview.jobs_by_state["starting"], 1);
    let plans: v1::PlanList = serde_json::from_value(served.get("eve", &at("/plans", started)).await.body).unwrap();
    assert_eq!((Some(plans.items[0].id), plans.items[0].state.to_string().as_str()), (overview.plan_id, "adopted"));
    assert_eq!(plans.items.len(), 1, "others had been superseded");
}

#[tokio::test]
async fn pages_of_the_past_follow_each_other_and_are_filtered_by_what_was() {
    let served = Served::start().await;
    for name in ["a", "b", "c"] {
        let job = JOB.replace("first", name);
        assert_eq!(served.submit("ada", &job, name).await.status, StatusCode::CREATED);
    }
    let then = now(&served).await;
    let first: v1::PastJobList =
        serde_json::from_value(served.get("eve", &at("/jobs?limit=2", then)).await.body).unwrap();
    let next = format!("/jobs?limit=2&cursor={}", first.next_cursor.unwrap());
    let second: v1::PastJobList = serde_json::from_value(served.get("eve", &at(&next, then)).await.body).unwrap();
    let names: Vec<_> = first.items.iter().chain(&second.items).map(|job| job.name.as_str()).collect();
    assert_eq!((names.as_slice(), second.next_cursor), (["c", "b", "a"].as_slice(), None));
    let named = |path: &str| at(path, then);
    assert_eq!(served.get("eve", &named("/jobs?q=B")).await.body["items"][0]["name"], "b");
    assert_eq!(served.get("eve", &named("/jobs?state=running")).await.body["items"], json!([]));
    assert_eq!(served.get("eve", &named("/jobs?state=ended")).await.body["field"], "state");
}

#[tokio::test]
async fn a_moment_nothing_is_known_of_is_refused_by_name() {
    let served = Served::start().await;
    served.submit("ada", JOB, "k").await;
    let future = now(&served).await + chrono::TimeDelta::hours(1);
    for path in ["/jobs", "/nodes", "/plans", "/overview"] {
        let answer = served.get("eve", &at(path, future)).await;
        assert_eq!(answer.problem(StatusCode::BAD_REQUEST), "bad_request");
        assert_eq!(answer.body["field"], "at");
        assert!(answer.body["detail"].as_str().unwrap().contains("is in the future"), "{}", answer.body);
        let answer = served.get("eve", &at(path, DateTime::UNIX_EPOCH)).await;
        assert!(answer.body["detail"].as_str().unwrap().contains("history begins at"), "{}", answer.body);
        let answer = served.get("eve", &format!("{path}?at=yesterday")).await;
        assert_eq!(answer.problem(StatusCode::BAD_REQUEST), "bad_request");
    }
    let unknown = served.get("eve", &at(&format!("/jobs/{}", uuid::Uuid::nil()), now(&served).await)).await;
    assert_eq!(unknown.problem(StatusCode::NOT_FOUND), "not_found");
}
