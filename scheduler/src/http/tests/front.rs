//! The pages that people open first: the queue, and the overview with what to look at and how it came about.

use headway_engine::Pulse;
use headway_forecast::Baselines;
use headway_types::Timestamp;

use super::*;

fn job(name: &str, gpus: u32, more: &str) -> String {
    format!("{{version: 1, name: {name}, resources: {{gpus: {gpus}}}, {more} run: {{command: [a]}}}}")
}

/// Three jobs wait behind one that has the only GPU.
async fn crowded() -> Served {
    let served = Served::start().await;
    served.add_node().await;
    served.submit("ada", &job("first", 1, ""), "1").await;
    served.until("eve", "/jobs?q=first", |answer| answer.body["items"][0]["state"] == "starting").await;
    for (who, name, more) in
        [("ada", "bert", ""), ("bob", "gpt", "priority: 70, project: vision,"), ("ada", "vit", "project: vision,")]
    {
        assert_eq!(served.submit(who, &job(name, 1, more), name).await.status, StatusCode::CREATED);
    }
    served
        .until("eve", "/queue", |answer| answer.body["totals"]["by_code"]["unplanned"].is_null() && waits(answer, 3))
        .await;
    served
}

fn waits(answer: &Answer, jobs: u64) -> bool {
    answer.body["totals"]["jobs"] == jobs
}

fn names(answer: &Answer) -> Vec<String> {
    let items = answer.body["items"].as_array().unwrap();
    items.iter().map(|job| job["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn the_queue_is_told_in_order_with_reasons_and_what_is_free() {
    let served = crowded().await;
    let queue = served.get("eve", "/queue").await;
    let told: v1::Queue = serde_json::from_value(queue.body).unwrap();
    assert_eq!(told.items.iter().map(|job| job.place).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!((told.totals.jobs, told.totals.gpus), (3, 3));
    assert_eq!(told.totals.by_project["vision"], v1::QueueShare { jobs: 2, gpus: 2 });
    let by_code: u64 = told.totals.by_code.values().map(|share| share.jobs).sum();
    assert_eq!(by_code, 3);
    assert_eq!(told.room.unwrap().iter().map(|of| (of.gpus_free, of.largest)).collect::<Vec<_>>(), [(0, 0)]);
    for waiting in &told.items {
        let job = served.get("eve", &format!("/jobs/{}", waiting.job_id)).await.body;
        assert_eq!(job["waiting"]["code"], json!(waiting.waiting.code), "a page and a job say the same");
    }
}

#[tokio::test]
async fn pages_of_the_queue_follow_each_other_and_filters_hold_for_totals() {
    let served = crowded().await;
    let whole = names(&served.get("eve", "/queue").await);
    let mut paged = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = served.get("eve", &format!("/queue?limit=1{cursor}")).await;
        assert!(waits(&page, 3), "totals are of all of it");
        paged.extend(names(&page));
        let Some(next) = page.body["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(paged, whole);
    let vision = served.get("eve", "/queue?project=vision").await;
    assert!(waits(&vision, 2) && !names(&vision).contains(&"bert".to_owned()), "{}", vision.body);
    assert_eq!(names(&served.get("eve", "/queue?user=bob").await), ["gpt"]);
    let id = served.get("eve", "/queue?user=bob").await.body["items"][0]["job_id"].as_str().unwrap().to_owned();
    assert_eq!(names(&served.get("eve", &format!("/queue?job={id}")).await), ["gpt"]);
    assert!(waits(&served.get("eve", "/queue?code=quota").await, 0));
    assert_eq!(names(&served.get("eve", "/queue?q=ER").await), ["bert"], "part of a name, in any case");
    assert!(waits(&served.get("eve", "/queue?q=nothing").await, 0));
    for (query, field) in [("code=quotas", "code"), ("type=X1000", "type"), ("cursor=x", "cursor")] {
        let answer = served.get("eve", &format!("/queue?{query}")).await;
        assert_eq!(answer.problem(StatusCode::BAD_REQUEST), "bad_request", "{query}");
        assert_eq!(answer.body["field"], field);
    }
    assert_eq!(served.get("eve", "/queue?colour=red").await.problem(StatusCode::BAD_REQUEST), "unknown_parameter");
}

#[tokio::test]
async fn a_queue_tells_what_each_choice_would_show() {
    let served = crowded().await;
    let told = async |query: &str| {
        serde_json::from_value::<v1::Queue>(served.get("eve", &format!("/queue?{query}")).await.body).unwrap()
    };
    let share = |jobs| v1::QueueShare { jobs, gpus: jobs };
    let all = told("").await;
    let gpu_type = all.room.unwrap()[0].gpu_type.clone();
    assert_eq!(all.totals.by_gpu_type, BTreeMap::from([(gpu_type.clone(), share(3))]));
    assert_eq!(all.choices.by_code, all.totals.by_code);
    let vision = told("project=vision").await;
    assert_eq!(vision.totals.by_project, BTreeMap::from([("vision".into(), share(2))]));
    assert_eq!(vision.choices.by_project, all.totals.by_project, "with the project's own condition lifted");
    assert_eq!(vision.choices.by_gpu_type[&gpu_type], share(2));
    let none = told("project=vision&code=quota").await;
    assert_eq!((none.totals.jobs, none.choices.by_project.len()), (0, 0));
    assert_eq!(none.choices.by_code, vision.totals.by_code);
    let bobs = told("user=bob&project=default").await;
    assert_eq!(bobs.choices.by_project, BTreeMap::from([("vision".into(), share(1))]), "of bob's alone");
}

#[tokio::test]
async fn a_private_project_is_no_part_of_anybody_elses_queue() {
    let served = crowded().await;
    served.send_json(Method::PUT, "root", "/projects/vision", &json!({})).await;
    served.send_json(Method::PUT, "root", "/projects/vision/members/bob", &json!({"role": "user"})).await;
    let private = served.send_json(Method::PATCH, "root", "/projects/vision", &json!({"private": true})).await;
    assert_eq!(private.status, StatusCode::OK, "{}", private.body);
    // The viewer is nobody to it, the owner of one job in it sees that one, a member and an operator see all.
    for (who, jobs) in [("eve", 1), ("ada", 2), ("bob", 3), ("opal", 3)] {
        let queue = served.get(who, "/queue").await;
        assert!(waits(&queue, jobs), "{who}: {}", queue.body);
        assert_eq!(queue.body["items"].as_array().unwrap().len() as u64, jobs);
    }
}

#[tokio::test]
async fn an_overview_tells_what_to_look_at_and_how_planning_goes() {
    let served = crowded().await;
    let never = |answer: &Answer| answer.body["attention_by_kind"]["job_never"] == 1;
    let huge = served.send(
        asked(Method::POST, "ada", "/jobs?wait_for_nodes=true")
            .header("content-type", "application/yaml")
            .body(Body::from(job("huge", 1_000, "")))
            .unwrap(),
    );
    assert_eq!(huge.await.status, StatusCode::CREATED);
    let answer = served.until("eve", "/overview", never).await;
    let told: v1::Overview = serde_json::from_value(answer.body).unwrap();
    let [item] = &told.attention[..] else { panic!("{:?}", told.attention) };
    assert_eq!((item.name.as_deref(), item.severity.as_str()), (Some("huge"), "notice"));
    assert!(item.next_step.contains(&item.job_id.unwrap().to_string()), "{item:?}");
    let planner = told.planner.unwrap();
    assert!(planner.rounds_measured > 0 && planner.round_p99_seconds >= planner.round_median_seconds, "{planner:?}");
    assert_eq!((planner.rounds_given_up, planner.last_given_up), (0, None));
    assert!(planner.newest_plan_id.is_some() && planner.newest_plan_age_seconds >= Some(0.0));
}

#[tokio::test]
async fn a_window_tells_how_long_those_waited_who_started_in_it() {
    let served = Served::start().await;
    let none = served.get("eve", "/overview?window=1h&waits=true").await;
    assert_eq!(
        none.body["series"]["waits"],
        json!({"jobs": 0, "p50_seconds": null, "p90_seconds": null, "p99_seconds": null})
    );
    served.add_node().await;
    served.submit("ada", &job("first", 1, ""), "1").await;
    served.submit("ada", &job("next", 1, "after: [{job: first}],"), "2").await;
    let told = |answer: &Answer| answer.body["series"]["waits"]["jobs"] == 1;
    let answer = served.until("eve", "/overview?window=1h&waits=true", told).await;
    let waits: v1::QueueWaits = serde_json::from_value(answer.body["series"]["waits"].clone()).unwrap();
    assert!(waits.p50_seconds.is_some_and(|wait| (0.0..60.0).contains(&wait)), "{waits:?}");
    assert_eq!(
        (waits.p50_seconds, waits.p90_seconds),
        (waits.p99_seconds, waits.p99_seconds),
        "of one job all are the same"
    );
    assert_eq!(served.get("eve", "/overview?window=1h").await.body["series"]["waits"], Value::Null);
    assert_eq!(served.get("eve", "/overview?waits=true").await.problem(StatusCode::BAD_REQUEST), "bad_request");
}

#[tokio::test]
async fn a_series_has_what_was_kept_and_gaps_where_nothing_was() {
    let served = Served::start().await;
    let now = served.cluster.now();
    let minute = |ago: i64| Timestamp(now.0 - now.0.rem_euclid(3_600_000_000) - ago * 60_000_000);
    let pulse = |waiting| Pulse { jobs_waiting: waiting, gpus_total: headway_types::GpuCount(8), ..Pulse::default() };
    for (ago, waiting) in [(600, 4), (599, 6), (120, 10)] {
        served.store.add_pulse(minute(ago), &pulse(waiting), Baselines::default()).await.unwrap();
    }
    let answer = served.get("eve", "/overview?window=24h&step=1h").await;
    let told: v1::Overview = serde_json::from_value(answer.body).unwrap();
    let series = told.series.unwrap();
    let points: Vec<(f64, Option<f64>)> =
        series.points.iter().map(|point| (point.jobs_waiting, point.useful_share)).collect();
    assert_eq!((series.step_seconds, points), (3_600.0, vec![(5.0, None), (10.0, None)]), "eight hours have no point");
    assert_eq!(served.get("eve", "/overview").await.body["series"], Value::Null);
    let refused = served.get("eve", "/overview?window=1y").await;
    assert_eq!((refused.problem(StatusCode::BAD_REQUEST), &refused.body["field"]), ("bad_request", &json!("window")));
}
