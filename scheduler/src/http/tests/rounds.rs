//! Rounds are kept with their plans and can be decided again.

use headway_planner::{CurveCache, PlanInput, plan};
use headway_types::Seconds;
use serde::Deserialize;

use super::*;

const SECRETIVE: &str =
    "{version: 1, name: first, resources: {gpus: 1}, run: {command: [sleep, '1'], env: {TOKEN: hunter2}}}";

/// The path of the newest plan that gives GPUs to a job, once there is one.
async fn adopted(served: &Served) -> String {
    let submitted = served.submit("ada", SECRETIVE, "k").await;
    assert_eq!(submitted.status, StatusCode::CREATED, "{}", submitted.body);
    served.add_node().await;
    let current = served.until("eve", "/plans/current", |answer| answer.body["assignments"][0]["gpus"] == 1).await;
    format!("/plans/{}", current.body["id"].as_str().unwrap())
}

#[tokio::test]
async fn a_stored_round_decided_again_gives_the_same_answer() {
    let served = Served::start().await;
    let path = adopted(&served).await;
    let answer = served.until("eve", &format!("{path}/input"), |answer| answer.status == StatusCode::OK).await;
    assert_eq!(answer.headers["content-type"], "application/json");
    assert!(!answer.body.to_string().contains("hunter2"), "what a job is told in its environment stays out of rounds");
    let round: v1::StoredRound = serde_json::from_value(answer.body).unwrap();
    assert!(path.ends_with(&round.plan_id.to_string()));
    let input = PlanInput::deserialize(&round.input).unwrap();
    assert_eq!(input.jobs.len(), 1);
    let again = plan(&input, &mut CurveCache::new()).unwrap();
    assert_eq!(serde_json::to_value(&again).unwrap(), round.plan);
    assert_eq!(round.plan["assignments"].as_object().unwrap().len(), 1);
    let refused = served.get("node", &format!("{path}/input")).await;
    assert_eq!(refused.problem(StatusCode::FORBIDDEN), "forbidden");
}

#[tokio::test]
async fn a_round_that_is_gone_says_why() {
    let served = Served::keeping(Retention { plan_inputs: Seconds(0.0), ..Retention::default() }).await;
    let unknown = served.get("eve", &format!("/plans/{}/input", uuid::Uuid::nil())).await;
    assert_eq!(unknown.problem(StatusCode::NOT_FOUND), "not_found");
    let path = format!("{}/input", adopted(&served).await);
    served.until("eve", &path, |answer| answer.status == StatusCode::OK).await;
    assert!(served.store.prune_plan_inputs(served.cluster.now()).await.unwrap() >= 1);
    let pruned = served.get("eve", &path).await;
    assert_eq!(pruned.problem(StatusCode::GONE), "gone");
    assert!(pruned.body["detail"].as_str().unwrap().ends_with("was kept for 0 days"), "{}", pruned.body);
}

#[tokio::test]
async fn a_plan_past_its_time_is_gone_unless_somebody_follows_it() {
    let served =
        Served::keeping(Retention { plan_inputs: Seconds(0.0), plans: Seconds(0.0), ..Retention::default() }).await;
    let followed = adopted(&served).await;
    served.until("eve", &format!("{followed}/input"), |answer| answer.status == StatusCode::OK).await;
    let rejected = served.post("root", "/plans/rebalance").await;
    let rejected = format!("/plans/{}", rejected.body["id"].as_str().unwrap());
    assert_eq!(served.post("root", &format!("{rejected}/reject")).await.status, StatusCode::OK);
    let prune = async || served.store.prune_plans(served.cluster.now(), 10).await.unwrap();
    served.until("eve", &format!("{rejected}/input"), |answer| answer.status == StatusCode::OK).await;
    assert_eq!(prune().await, 0, "their inputs are there");
    served.store.prune_plan_inputs(served.cluster.now()).await.unwrap();
    assert!(prune().await >= 1);
    let gone = served.get("eve", &rejected).await;
    assert_eq!(gone.problem(StatusCode::GONE), "gone");
    assert!(gone.body["detail"].as_str().unwrap().ends_with("plans are kept for 0 days"), "{}", gone.body);
    assert_eq!(served.get("eve", &followed).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_proposal_that_a_newer_one_replaced_is_refused_with_what_waits_instead() {
    let served = Served::start().await;
    let propose = async || {
        let proposal = served.post("root", "/plans/rebalance").await;
        proposal.body["id"].as_str().unwrap().to_owned()
    };
    let (first, second) = (propose().await, propose().await);
    for verb in ["approve", "reject"] {
        let refused = served.post("root", &format!("/plans/{first}/{verb}")).await;
        assert_eq!(refused.problem(StatusCode::CONFLICT), "plan_decided");
        assert!(refused.body["detail"].as_str().unwrap().contains("is stale"), "{}", refused.body);
        assert_eq!(refused.body["hint"], format!("plan {second} waits for approval"));
    }
    assert_eq!(served.post("root", &format!("/plans/{second}/approve")).await.status, StatusCode::OK);
    let unknown = served.post("root", &format!("/plans/{}/approve", uuid::Uuid::nil())).await;
    assert_eq!(unknown.problem(StatusCode::NOT_FOUND), "not_found");
}

#[tokio::test]
async fn an_approval_that_names_another_plan_than_was_looked_at_approves_nothing() {
    let served = Served::start().await;
    let proposal = served.post("root", "/plans/rebalance").await;
    let (id, hash) = (proposal.body["id"].as_str().unwrap(), proposal.body["hash"].as_str().unwrap());
    assert!(proposal.body["valid_until"].is_string() && hash.len() == 64, "{}", proposal.body);
    let path = format!("/plans/{id}/approve");
    let other = json!({"hash": "0".repeat(64)});
    let refused = served.send_json(Method::POST, "root", &path, &other).await;
    assert_eq!(refused.problem(StatusCode::CONFLICT), "plan_changed");
    let approved = served.send_json(Method::POST, "root", &path, &json!({"hash": hash})).await;
    assert_eq!((approved.status, &approved.body["hash"]), (StatusCode::OK, &json!(hash)), "{}", approved.body);
}

#[tokio::test]
async fn what_is_asked_of_a_rebalancing_is_kept_with_its_plan_or_refused_by_field() {
    let served = Served::start().await;
    let job = served.submit("ada", JOB, "k").await.id();
    let ask = async |body: Value| served.send_json(Method::POST, "root", "/plans/rebalance", &body).await;
    let proposal = ask(json!({"exclude": [job], "max_moves": 2, "reason": "new fans"})).await;
    assert_eq!(proposal.status, StatusCode::OK, "{}", proposal.body);
    let terms = &proposal.body["terms"];
    assert_eq!(
        (&terms["exclude"], &terms["max_moves"], &terms["reason"]),
        (&json!([job]), &json!(2), &json!("new fans"))
    );
    assert!(proposal.body["trigger"].as_str().unwrap().ends_with("asked for it: new fans"), "{}", proposal.body);
    let nobody = uuid::Uuid::nil();
    assert_eq!(ask(json!({"exclude": [nobody]})).await.problem(StatusCode::NOT_FOUND), "not_found");
    assert_eq!(ask(json!({"scope": {"projects": ["nowhere"]}})).await.problem(StatusCode::NOT_FOUND), "not_found");
    let none = ask(json!({"force": [{"job_id": job, "gpus": 0}]})).await;
    assert_eq!((none.problem(StatusCode::UNPROCESSABLE_ENTITY), &none.body["field"]), ("invalid", &json!("force")));
    let impossible = ask(json!({"force": [{"job_id": job}]})).await;
    assert_eq!(impossible.problem(StatusCode::CONFLICT), "no_plan");
    let told = impossible.body["detail"].as_str().unwrap();
    assert!(told.starts_with("there is no such plan: ") && told.contains("cannot have"), "{told}");
}

#[tokio::test]
async fn planning_is_paused_and_goes_on_with_its_reason_in_the_log() {
    let served = Served::start().await;
    let why = json!({"reason": "new switches"});
    let paused = served.send_json(Method::POST, "root", "/plans/pause", &why).await;
    assert_eq!((paused.status, &paused.body["mode"]), (StatusCode::OK, &json!("paused")), "{}", paused.body);
    assert_eq!(served.post("root", "/plans/pause").await.problem(StatusCode::CONFLICT), "wrong_state");
    let resumed = served.post("root", "/plans/resume").await;
    assert_eq!(resumed.body["mode"], "auto", "{}", resumed.body);
    let events = served.get("eve", "/events").await;
    let told = events.body["items"].as_array().unwrap().iter().find(|event| event["verb"] == "plan.paused").unwrap();
    assert!(told["message"].as_str().unwrap().ends_with(": new switches"), "{told}");
    assert_eq!(served.post("eve", "/plans/pause").await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn what_a_plan_moved_is_in_its_history_and_what_it_never_did_is_not_taken_back() {
    let served = Served::start().await;
    let path = adopted(&served).await;
    let history = served.get("eve", "/plans/history").await;
    let newest = &history.body["items"][0];
    assert!(path.ends_with(newest["id"].as_str().unwrap()), "{}", history.body);
    assert_eq!((&newest["starts"], &newest["moves"]), (&json!(1), &json!(0)));
    let shown = served.get("eve", &path).await;
    assert_eq!(shown.body["moves"][0]["outcome"]["state"], "starting", "{}", shown.body);
    let started = served.post("root", &format!("{path}/rollback")).await;
    assert_eq!(started.problem(StatusCode::CONFLICT), "nothing_to_take_back");
    let proposal = served.post("root", "/plans/rebalance").await;
    let proposal = proposal.body["id"].as_str().unwrap();
    let never = served.post("root", &format!("/plans/{proposal}/rollback")).await;
    assert_eq!(never.problem(StatusCode::CONFLICT), "nothing_to_take_back");
    let diff = served.get("eve", &format!("/plans/{proposal}/diff")).await;
    assert_eq!((diff.status, &diff.body["changes"]), (StatusCode::OK, &json!([])), "{}", diff.body);
}
