//! What one user may have and ask at most, by the routes.

use super::*;

/// An operator gives a user a quota of its own.
async fn allow(served: &Served, user: &str, quota: Value) {
    let body = json!({"user_quotas": {user: quota}});
    let set = served.send_json(Method::PATCH, "opal", "/policy", &body).await;
    assert_eq!(set.status, StatusCode::OK, "{}", set.body);
}

fn sweep(name: &str, last: u32) -> String {
    format!("{{version: 1, name: {name}, array: 0-{last}, resources: {{gpus: 1}}, run: {{command: [sleep, '1']}}}}")
}

#[tokio::test]
async fn a_submission_beyond_the_quota_is_refused_whole_and_says_what_is_used_and_who_allows_more() {
    let served = Served::start().await;
    allow(&served, "ada", json!({"unfinished_jobs": 5})).await;
    assert_eq!(served.submit("ada", &sweep("one", 2), "1").await.status, StatusCode::CREATED);
    let refused = served.submit("ada", &sweep("two", 2), "2").await;
    assert_eq!(refused.problem(StatusCode::CONFLICT), "user_quota_exceeded");
    let detail = "ada has 3 unfinished jobs of 5 allowed: 3 more are too many; nothing of it was done";
    assert_eq!(refused.body["detail"], detail);
    assert!(refused.body["hint"].as_str().unwrap().contains("headway user quota ada --jobs"), "{}", refused.body);
    let request = asked(Method::POST, "ada", "/jobs?dry_run=true").header("content-type", "application/yaml");
    let supposed = served.send(request.body(Body::from(sweep("two", 2))).unwrap()).await;
    assert_eq!(supposed.problem(StatusCode::CONFLICT), "user_quota_exceeded", "a dry run says the same");
    let me = served.get("ada", "/users/ada").await.body;
    assert_eq!((&me["used"]["unfinished_jobs"], &me["quota"]["unfinished_jobs"]), (&json!(3), &json!(5)));
    assert!(me["used"]["specification_bytes"].as_u64().unwrap() > 300, "{me}");
    assert_eq!(served.submit("bob", &sweep("two", 9), "1").await.status, StatusCode::CREATED);
    // Under the key of what was refused it is admitted once there is room.
    allow(&served, "ada", json!({"unfinished_jobs": 6})).await;
    assert_eq!(served.submit("ada", &sweep("two", 2), "2").await.status, StatusCode::CREATED);
    let told = served.until("root", "/audit?result=refused", |all| !all.body["items"][0].is_null()).await;
    assert_eq!(told.body["items"][0]["code"], "user_quota_exceeded", "{}", told.body);
}

#[tokio::test]
async fn many_submitters_of_one_user_do_not_pass_the_quota_together() {
    let served = Served::start().await;
    allow(&served, "ada", json!({"unfinished_jobs": 10})).await;
    let bodies: Vec<(String, String)> = (0..64).map(|one| (sweep(&format!("job-{one}"), 0), one.to_string())).collect();
    let answers = futures::future::join_all(bodies.iter().map(|(body, key)| served.submit("ada", body, key))).await;
    let admitted = answers.iter().filter(|answer| answer.status == StatusCode::CREATED).count();
    let refused = answers.iter().filter(|answer| answer.body["code"] == "user_quota_exceeded").count();
    assert_eq!((admitted, refused), (10, 54));
    assert_eq!(served.get("ada", "/users/ada").await.body["used"]["unfinished_jobs"], 10);
}

#[tokio::test]
async fn a_user_who_floods_waits_and_everybody_else_is_answered() {
    let served = Served::start().await;
    assert_eq!(served.get("ada", "/auth/whoami").await.status, StatusCode::OK);
    allow(&served, "ada", json!({"requests_per_second": 1, "request_burst": 20})).await;
    let flood = async {
        let asks = futures::future::join_all((0..400).map(|_| served.get("ada", "/jobs"))).await;
        let refused = asks.into_iter().filter(|answer| answer.status == StatusCode::TOO_MANY_REQUESTS);
        refused.collect::<Vec<_>>()
    };
    let others = async {
        let mut slowest = Duration::ZERO;
        for one in 0..50 {
            let began = std::time::Instant::now();
            assert_eq!(served.get("bob", "/jobs").await.status, StatusCode::OK);
            slowest = slowest.max(began.elapsed());
            assert_eq!(served.submit("bob", JOB, &one.to_string()).await.status, StatusCode::CREATED);
        }
        slowest
    };
    let (refused, slowest) = futures::join!(flood, others);
    assert!(refused.len() >= 350, "of 400 only {} were refused", refused.len());
    assert!(slowest < Duration::from_secs(2), "somebody else waited {slowest:?}");
    let told = &refused[0];
    assert_eq!(told.problem(StatusCode::TOO_MANY_REQUESTS), "too_many_requests");
    let wait: u64 = told.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=20).contains(&wait), "{wait}");
    assert!(told.body["hint"].as_str().unwrap().contains("--requests-per-second"), "{}", told.body);
    // Another token of hers is no way around it, and nothing that was asked too fast is done.
    let other = json!({"name": "other", "user": "ada", "scope": "user"});
    let made = served.send_json(Method::POST, "root", "/auth/tokens", &other).await;
    let secret = made.body["secret"].as_str().unwrap();
    let keys: Vec<String> = (0..40).map(|key| format!("other-{key}")).collect();
    let answers = futures::future::join_all(keys.iter().map(|key| served.submit(secret, JOB, key))).await;
    let admitted = answers.iter().filter(|answer| answer.status == StatusCode::CREATED).count();
    assert!(admitted < 25, "{admitted} of 40");
    assert_eq!(served.get("root", "/users/ada").await.body["used"]["unfinished_jobs"], admitted);
}

#[tokio::test]
async fn how_much_somebody_has_is_told_to_who_may_know_of_all_jobs() {
    let served = Served::start().await;
    assert_eq!(served.submit("ada", JOB, "1").await.status, StatusCode::CREATED);
    let used = async |who: &str| served.get(who, "/users/ada").await.body["used"]["unfinished_jobs"].clone();
    assert_eq!(used("eve").await, json!(1));
    let made = served.send_json(Method::PUT, "root", "/projects/secret", &json!({"weight": 1})).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    let private = served.send_json(Method::PATCH, "root", "/projects/secret", &json!({"private": true})).await;
    assert_eq!(private.status, StatusCode::OK, "{}", private.body);
    assert_eq!(used("eve").await, Value::Null);
    assert_eq!((used("ada").await, used("opal").await), (json!(1), json!(1)));
}
