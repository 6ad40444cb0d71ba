//! Commands beside a rank: who may, and what is no command.

use super::*;

#[tokio::test]
async fn a_command_is_its_owners_to_run_beside_a_job_that_runs() {
    let served = Served::start().await;
    let path = format!("/jobs/{}/exec", served.submit("ada", JOB, "1").await.id());
    let ask = async |who, body: Value| served.send_json(Method::POST, who, &path, &body).await;
    for who in ["bob", "eve"] {
        assert_eq!(ask(who, json!({"command": ["id"]})).await.problem(StatusCode::FORBIDDEN), "forbidden", "{who}");
    }
    assert_eq!(ask("ada", json!({"command": ["id"]})).await.problem(StatusCode::CONFLICT), "not_running");
    let wrong = StatusCode::UNPROCESSABLE_ENTITY;
    for (body, field) in [
        (json!({"command": []}), "command"),
        (json!({"command": [""]}), "command"),
        (json!({"command": ["a\u{0}b"]}), "command"),
        (json!({"command": vec!["a"; 257]}), "command"),
        (json!({"command": ["a", "b".repeat(65_536)]}), "command"),
        (json!({"command": ["a"], "timeout_s": 0}), "timeout_s"),
        (json!({"command": ["a"], "timeout_s": 3_601}), "timeout_s"),
    ] {
        let refused = ask("ada", body.clone()).await;
        assert_eq!((refused.problem(wrong), refused.body["field"].as_str()), ("invalid", Some(field)), "{body}");
    }
}
