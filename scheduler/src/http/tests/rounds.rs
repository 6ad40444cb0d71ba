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
