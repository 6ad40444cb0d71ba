//! GPU-time as people ask for it.

use super::*;

#[tokio::test]
async fn usage_is_told_from_the_first_job_on_and_adds_up() {
    let served = Served::start().await;
    assert_eq!(served.get("eve", "/usage").await.body["items"], json!([]));
    served.add_node().await;
    let id = served.submit("ada", JOB, "k").await.id();
    served.until("eve", &format!("/jobs/{id}"), |answer| answer.body["state"] == "starting").await;
    let usage = served
        .until("eve", "/usage?group_by=gpu_type,user,cause", |answer| {
            answer.body["items"][0]["gpu_hours"] != json!(0.0)
        })
        .await
        .body;
    assert_eq!(usage["group_by"], json!(["user", "gpu_type", "cause"]));
    let [row] = usage["items"].as_array().unwrap().as_slice() else { panic!("{usage}") };
    assert_eq!((&row["user"], &row["cause"], &row["jobs"]), (&json!("ada"), &json!("starting"), &json!(1)));
    assert!(row["gpu_type"].is_string() && row.get("project").is_none(), "{row}");
    assert_eq!(row["gpu_hours"], usage["total_gpu_hours"]);
    let csv = served.get("eve", "/usage?format=csv&group_by=project").await;
    assert_eq!(csv.headers["content-type"], "text/csv; charset=utf-8");
    let text = csv.body.as_str().unwrap();
    assert!(text.starts_with("project,gpu_hours,jobs\ndefault,"), "{text}");
}

#[tokio::test]
async fn usage_refuses_what_it_cannot_tell() {
    let served = Served::start().await;
    let wrong = ["group_by=colour", "format=xml", "from=2000-01-01T00:00:00Z", "from=2999-01-01T00:00:00Z", "since=7d"];
    for query in wrong {
        let answer = served.get("eve", &format!("/usage?{query}")).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{query}: {}", answer.body);
    }
}
