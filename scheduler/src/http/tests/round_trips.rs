//! What a request waits for on a slow way to Postgres.

use super::*;
use crate::support::Wire;

/// Long beside everything else that a submit takes.
const ROUND_TRIP: Duration = Duration::from_millis(300);
const TRIES: u32 = 5;

/// Waits until nothing is under way, such as the plan that a submit asked for.
async fn quiet(wire: &Wire) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let before = wire.answers();
        tokio::time::sleep(3 * ROUND_TRIP).await;
        if wire.answers() == before {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "Postgres is asked all the time");
    }
}

#[tokio::test]
async fn a_submit_waits_for_six_answers_of_postgres_at_most() {
    let database = TestDatabase::create().await;
    Served::let_all_ask_without_end(&database.options).await;
    let wire = Wire::to(&database.options).await;
    let store = Store::connect(wire.options.clone()).await.unwrap();
    // Each user's token is looked up for the first time.
    let users: Vec<String> = (0..TRIES).map(|number| format!("user-{number}")).collect();
    for user in users.iter().map(String::as_str).chain(["ada"]) {
        store.ensure_token(user, TokenScope::User, user, START).await.unwrap();
    }
    let leader = Leader::new(database.options.clone()).of(server(1));
    let served = Served::on(wire.options.clone(), store, leader, Retention::default()).await;
    served.cluster.readiness().wait_for(|ready| *ready).await.unwrap();
    for number in 0..5 {
        assert_eq!(served.submit("ada", JOB, &format!("warm-{number}")).await.status, StatusCode::CREATED);
    }
    wire.slow_down(ROUND_TRIP);
    let mut quickest = Duration::MAX;
    for user in &users {
        quiet(&wire).await;
        let began = tokio::time::Instant::now();
        assert_eq!(served.submit(user, JOB, "k").await.status, StatusCode::CREATED);
        quickest = quickest.min(began.elapsed());
    }
    let answers = quickest.as_secs_f64() / ROUND_TRIP.as_secs_f64();
    println!("a submit waits for {answers:.2} answers");
    assert!(answers < 7.0, "a submit waits for {answers:.2} answers");
}

#[tokio::test]
async fn a_hidden_job_is_looked_for_as_long_as_one_that_there_is_not() {
    let database = TestDatabase::create().await;
    Served::let_all_ask_without_end(&database.options).await;
    let wire = Wire::to(&database.options).await;
    let store = Store::connect(wire.options.clone()).await.unwrap();
    for (name, scope) in [("root", TokenScope::Admin), ("ada", TokenScope::User), ("eve", TokenScope::Viewer)] {
        store.ensure_token(name, scope, name, START).await.unwrap();
    }
    let leader = Leader::new(database.options.clone()).of(server(1));
    let served = Served::on(wire.options.clone(), store, leader, Retention::default()).await;
    served.cluster.readiness().wait_for(|ready| *ready).await.unwrap();
    served.send_json(Method::PUT, "root", "/projects/vault", &json!({})).await;
    served.send_json(Method::PUT, "root", "/projects/vault/members/ada", &json!({"role": "user"})).await;
    let closed = served.send_json(Method::PATCH, "root", "/projects/vault", &json!({"private": true})).await;
    assert_eq!(closed.status, StatusCode::OK, "{}", closed.body);
    let job = json!({"version": 1, "name": "hidden", "project": "vault", "resources": {"gpus": 1}, "run": {"command": ["a"]}});
    let mut hidden = Vec::new();
    for _ in 0..TRIES {
        hidden.push(served.send_json(Method::POST, "ada", "/jobs", &job).await.id());
    }
    let unknown = (0..TRIES).map(|number| uuid::Uuid::from_u128(number.into()).to_string()).collect();
    // The first question about an id, and the second, for which something may be remembered.
    let mut fewest = Vec::new();
    for ids in [hidden, unknown] {
        let mut answers = [u64::MAX; 2];
        for id in ids {
            for fewest in &mut answers {
                quiet(&wire).await;
                let before = wire.answers();
                let refused = served.get("eve", &format!("/jobs/{id}")).await;
                assert_eq!(refused.problem(StatusCode::NOT_FOUND), "not_found");
                *fewest = (*fewest).min(wire.answers() - before);
            }
        }
        fewest.push(answers);
    }
    assert_eq!(fewest[0], fewest[1], "answers of Postgres for hidden and unknown jobs");
    assert!(fewest[0][0] > 0, "{fewest:?}");
}
