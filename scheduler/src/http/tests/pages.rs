//! What pages are drawn of: goodput over time and how predictions turned out, usage in steps, a node looked at closely, the topology, what a drain would do, the plan of a
//! past moment.

use std::collections::BTreeMap;

use headway_engine::record::{Allocation, Displacer, Release, ReleaseProof, StopCause};
use headway_engine::{Change, ProjectPulse, Pulse};
use headway_forecast::Baselines;
use headway_types::{Generation, GpuCount, GpuUuid, JobId, NodeSlice, Placement, Seconds, Timestamp, TokensPerSecond};

use super::*;

/// The beginning of an hour that is past.
fn hour(served: &Served) -> Timestamp {
    let now = served.cluster.now();
    Timestamp(now.0 - now.0.rem_euclid(3_600_000_000) - 7_200_000_000)
}

fn written(at: Timestamp) -> String {
    conversions::time(at).to_rfc3339_opts(chrono::SecondsFormat::Micros, true)
}

async fn hide(served: &Served, project: &str) {
    served.send_json(Method::PUT, "root", &format!("/projects/{project}"), &json!({})).await;
    let member = json!({"role": "user"});
    served.send_json(Method::PUT, "root", &format!("/projects/{project}/members/ada"), &member).await;
    let path = format!("/projects/{project}");
    let private = served.send_json(Method::PATCH, "root", &path, &json!({"private": true})).await;
    assert_eq!(private.status, StatusCode::OK, "{}", private.body);
}

#[tokio::test]
async fn goodput_over_time_is_held_against_a_static_split_and_told_by_project() {
    let served = Served::start().await;
    hide(&served, "vault").await;
    let hour = hour(&served);
    // In the second minute first come was not worked out, in the third nothing but it.
    let worked_out = [[Some(40.0), Some(30.0), Some(60.0)], [Some(40.0), None, Some(80.0)], [None, Some(20.0), None]];
    for ((minute, goodput), worked_out) in [(0, 80.0), (1, 120.0), (61, 50.0)].into_iter().zip(worked_out) {
        let pulse = Pulse {
            goodput: TokensPerSecond(goodput),
            throughput: TokensPerSecond(2.0 * goodput),
            gpus_total: GpuCount(8),
            ..Pulse::default()
        };
        let at = hour + Seconds(f64::from(minute) * 60.0);
        let of = |share: f64| ProjectPulse { goodput: TokensPerSecond(goodput * share), ..ProjectPulse::default() };
        let projects = BTreeMap::from([("nlp".to_owned(), of(0.75)), ("vault".to_owned(), of(0.25))]);
        let [static_split, first_come, throughput_only] = worked_out.map(|rate| rate.map(TokensPerSecond));
        let sums = Baselines { static_split, first_come, throughput_only };
        // One of the projects gets nothing by any rule, and nobody says so.
        let by_project = sums.map(|rate| rate.map(|rate| BTreeMap::from([("nlp".to_owned(), rate)])));
        served.store.add_project_pulses(at, &projects, &by_project).await.unwrap();
        served.store.add_pulse(at, &pulse, sums).await.unwrap();
    }
    let (from, to) = (written(hour), written(hour + Seconds(7_200.0)));
    let span = format!("from={from}&to={to}&step=1h");
    let answer = served.get("eve", &format!("/goodput?{span}")).await;
    let history = serde_json::from_value::<v1::Goodput>(answer.body).unwrap().history.unwrap();
    let points: Vec<_> = history.series[0]
        .points
        .iter()
        .map(|point| (point.goodput_tokens_per_second, point.efficiency, point.baseline_tokens_per_second))
        .collect();
    assert_eq!(points, [(100.0, Some(0.5), Some(40.0)), (50.0, Some(0.5), None)]);
    let others =
        |point: &v1::GoodputPoint| (point.first_come_tokens_per_second, point.throughput_only_tokens_per_second);
    let told = |line: &v1::GoodputLine| line.points.iter().map(others).collect::<Vec<_>>();
    assert_eq!(told(&history.series[0]), [(Some(30.0), Some(70.0)), (Some(20.0), None)]);
    for (who, projects) in [("opal", vec!["nlp", "vault"]), ("eve", vec!["nlp"])] {
        let answer = served.get(who, &format!("/goodput?{span}&group=project")).await;
        let history = serde_json::from_value::<v1::Goodput>(answer.body).unwrap().history.unwrap();
        let told: Vec<_> = history.series.iter().map(|line| line.project.as_deref().unwrap()).collect();
        assert_eq!(told, projects, "{who}");
        assert_eq!(history.series[0].points[0].goodput_tokens_per_second, 75.0);
        let others: Vec<_> = history.series[0].points.iter().map(others).collect();
        assert_eq!(others, [(Some(30.0), Some(70.0)), (Some(20.0), None)]);
    }
    assert_eq!(served.get("eve", &format!("/goodput?{span}&group=job")).await.body["history"]["series"], json!([]));
    assert_eq!(served.get("eve", "/goodput").await.body["history"], Value::Null);
    for wrong in [
        "group=colour",
        "step=90s",
        "from=2000-01-01T00:00:00Z",
        "group=project&jobs=01890000-0000-7000-8000-000000000000",
    ] {
        let refused = served.get("eve", &format!("/goodput?{wrong}")).await;
        assert!(refused.status.is_client_error(), "{wrong}: {}", refused.body);
    }
}

#[tokio::test]
async fn calibration_without_predictions_is_empty_and_has_bounds() {
    let served = Served::start().await;
    let answer = served.get("eve", "/goodput/calibration").await;
    assert_eq!(
        (answer.status, &answer.body["goodput"], &answer.body["starts"]),
        (StatusCode::OK, &json!([]), &json!([]))
    );
    let refused = served.get("eve", "/goodput/calibration?from=2000-01-01T00:00:00Z").await;
    assert_eq!((refused.problem(StatusCode::BAD_REQUEST), &refused.body["field"]), ("bad_request", &json!("from")));
}

/// An hour on one GPU that others took, and who took it.
fn taken(job: JobId, by: JobId, owner: &str, node: headway_types::NodeId, at: Timestamp) -> Allocation {
    let slice = NodeSlice { node, gpus: vec![GpuUuid("GPU-1-0".into())] };
    let end = at + Seconds(3_600.0);
    Allocation {
        training_at: Some(at),
        saved_at: Some(at + Seconds(1_800.0)),
        stopping_at: Some(at + Seconds(1_800.0)),
        stopped_for: Some(StopCause::Preempt),
        displaced_by: vec![Displacer { job: by, name: "urgent".into(), owner: owner.into(), gpus: GpuCount(1) }],
        released: [(node, Release { at: end, proof: ReleaseProof::Reported })].into(),
        ended_at: Some(end),
        ..Allocation::new(job, Generation(1), Placement::try_new(vec![slice]).unwrap(), at)
    }
}

#[tokio::test]
async fn usage_is_told_in_steps_and_who_took_gpus_is_veiled_in_one_go() {
    let served = Served::start().await;
    hide(&served, "vault").await;
    let id = |answer: Answer| JobId(answer.id().parse().unwrap());
    let secret = json!({"version": 1, "name": "secret", "project": "vault", "resources": {"gpus": 1}, "run": {"command": ["a"]}});
    let hidden = id(served.send_json(Method::POST, "ada", "/jobs", &secret).await);
    let open = id(served.submit("bob", &JOB.replace("first", "open"), "k1").await);
    let victims = [id(served.submit("bob", JOB, "k2").await), id(served.submit("bob", JOB, "k3").await)];
    let (node, hour) = (IdSource::seeded(9).node(START), hour(&served));
    let term = served.cluster.view().term;
    let taken = [taken(victims[0], hidden, "ada", node, hour), taken(victims[1], open, "grace", node, hour)];
    let changes: Vec<Change> = taken.into_iter().map(|one| Change::Allocation(std::sync::Arc::new(one))).collect();
    served.store.commit(term, &changes).await.unwrap();
    let span = format!("from={}&to={}", written(hour - Seconds(600.0)), written(hour + Seconds(5_400.0)));
    let of = async |who: &str| {
        let path = format!("/usage?{span}&group_by=cause,displaced_by&step=30m");
        serde_json::from_value::<v1::Usage>(served.get(who, &path).await.body).unwrap()
    };
    let usage = of("opal").await;
    let takers = |usage: &v1::Usage| {
        let mut by: Vec<String> = usage.items.iter().filter_map(|row| row.displaced_by.clone()).collect();
        by.sort();
        by
    };
    assert_eq!(takers(&usage), ["-", "ada", "grace"]);
    let steps = usage.steps.as_ref().unwrap();
    let sums: Vec<f64> = steps.iter().map(|step| step.items.iter().map(|row| row.gpu_hours).sum()).collect();
    assert_eq!((usage.step_seconds, sums), (Some(1_800.0), vec![1.0, 1.0]));
    assert_eq!(takers(&of("eve").await), ["-", "a job of another project", "grace"]);
    let csv = served.get("eve", &format!("/usage?{span}&step=30m&format=csv")).await;
    assert!(csv.body.as_str().unwrap().starts_with("at,user,cause,gpu_hours,jobs\n"), "{}", csv.body);
    let wrong = served.get("eve", &format!("/usage?{span}&step=7s")).await;
    assert_eq!((wrong.problem(StatusCode::BAD_REQUEST), &wrong.body["field"]), ("bad_request", &json!("step")));
}

#[tokio::test]
async fn a_node_is_looked_at_closely_and_where_it_stands() {
    let served = Served::start().await;
    hide(&served, "vault").await;
    served.add_node_of(4).await;
    let secret = json!({"version": 1, "name": "zq-secret", "project": "vault", "resources": {"gpus": 2}, "run": {"command": ["a"]}});
    let job = served.send_json(Method::POST, "ada", "/jobs", &secret).await.id();
    served.until("ada", &format!("/jobs/{job}"), |answer| answer.body["gpus"] == 2).await;
    let gpus = served.get("ada", "/nodes/node-1/gpus").await;
    let gpus: v1::NodeGpus = serde_json::from_value(gpus.body).unwrap();
    assert_eq!(gpus.gpus.iter().filter(|gpu| gpu.job_name.as_deref() == Some("zq-secret")).count(), 2);
    for path in ["/nodes/node-1/gpus", "/topology", "/gpus"] {
        let veiled = served.get("eve", path).await.body;
        let told = veiled.to_string();
        assert!(
            !told.contains("zq-secret") && !told.contains(&job) && told.contains("a job of another project"),
            "{told}"
        );
    }
    let topology: v1::Topology = serde_json::from_value(served.get("eve", "/topology").await.body).unwrap();
    let domain = &topology.domains[0];
    assert_eq!((topology.domains.len(), domain.gpus_total, domain.gpus_busy, domain.gpus_free), (1, 4, 2, 2));
    assert_eq!(domain.nodes[0].gpus.len(), 4, "who holds a GPU is veiled, the GPU is not");

    served.send_json(Method::POST, "opal", "/nodes/node-1/cordon", &json!({"reason": "fans"})).await;
    let health: v1::NodeHealth = serde_json::from_value(served.get("eve", "/nodes/node-1/health").await.body).unwrap();
    assert_eq!(
        (health.takes_work, health.why_not.as_slice()),
        (false, ["opal has cordoned it: fans".to_owned()].as_slice())
    );
    assert_eq!(health.history[0].policy.to_string(), "cordoned");
    assert_eq!(health.incidents.last().unwrap().verb, "node.registered");
    let events = served.get("eve", "/nodes/node-1/events?verb=node.cordoned").await;
    assert_eq!(events.body["items"].as_array().unwrap().len(), 1, "{}", events.body);
    for path in ["gpus", "health", "events"] {
        let nobody = served.get("eve", &format!("/nodes/nobody/{path}")).await;
        assert_eq!(nobody.problem(StatusCode::NOT_FOUND), "not_found", "{path}");
    }
}

#[tokio::test]
async fn a_drain_that_is_only_supposed_says_who_would_leave_and_changes_nothing() {
    let served = Served::start().await;
    served.add_node_of(2).await;
    let job = served.submit("ada", JOB, "k").await.id();
    served.until("eve", &format!("/jobs/{job}"), |answer| answer.body["gpus"] == 1).await;
    let drain = async |body: Value| {
        let answer = served.send_json(Method::POST, "opal", "/nodes/node-1/drain?dry_run=true", &body).await;
        assert_eq!((answer.status, &answer.body["policy"]), (StatusCode::OK, &json!("draining")), "{}", answer.body);
        serde_json::from_value::<v1::Foreseen>(answer.body["foreseen"].clone()).unwrap()
    };
    let foreseen = drain(json!({})).await;
    let effect = foreseen.drain.clone().unwrap_or_else(|| panic!("{foreseen:?}"));
    assert_eq!((effect.gpus, effect.jobs.len()), (1, 1));
    let left = &effect.jobs[0];
    assert_eq!((left.effect.as_str(), left.from_gpus, left.to_gpus, left.to_nodes.len()), ("stops", 1, 0, 0));
    assert!(left.standstill_seconds > Some(0.0) && effect.gpu_hours > 0.0 && effect.free_at.is_some(), "{effect:?}");
    let later = drain(json!({"within_seconds": 3_600.0})).await.drain.unwrap();
    assert_eq!(later.jobs[0].effect, "stays");
    assert!(later.free_at > effect.free_at);
    assert_eq!(served.get("eve", "/nodes/node-1").await.body["policy"], "schedulable");
}

#[tokio::test]
async fn the_plan_of_a_past_moment_is_told_as_it_was() {
    let served = Served::start().await;
    served.add_node().await;
    let before = served.cluster.now();
    served.submit("ada", JOB, "k").await;
    served.until("eve", "/plans/current", |answer| answer.status == StatusCode::OK).await;
    let then = served.cluster.now();
    let job = served.get("eve", "/jobs").await.body["items"][0]["id"].as_str().unwrap().to_owned();
    served.post("ada", &format!("/jobs/{job}/cancel")).await;
    let listed = served.get("eve", &format!("/plans?at={}", written(then))).await.body;
    let listed = listed["items"].as_array().unwrap().iter().find(|plan| plan["state"] == "adopted").unwrap();
    let told = served.get("eve", &format!("/plans/current?at={}", written(then))).await;
    assert_eq!((&told.body["id"], &told.body["state"]), (&listed["id"], &json!("adopted")), "{}", told.body);
    assert_eq!((&told.body["decided_at"], &told.body["decided_by"]), (&listed["decided_at"], &json!("scheduler")));
    let none = served.get("eve", &format!("/plans/current?at={}", written(before))).await;
    assert_eq!(none.problem(StatusCode::NOT_FOUND), "not_found");
    let future = served.get("eve", &format!("/plans/current?at={}", written(then + Seconds(9e6)))).await;
    assert_eq!((future.problem(StatusCode::BAD_REQUEST), &future.body["field"]), ("bad_request", &json!("at")));
}
