//! What is shown of webhooks: what they were told, and to whom their addresses are.

use super::*;

const TOLD: &str = "{version: 1, name: told, resources: {gpus: 1}, run: {command: [sleep, '1']}, \
    notify: {webhook: 'https://hooks.example/T0/s3cret', on: [finished]}}";

#[tokio::test]
async fn the_address_of_a_webhook_is_shown_like_the_environment() {
    let served = Served::start().await;
    let job = served.submit("ada", TOLD, "1").await.id();
    let spec = async |who| served.get(who, &format!("/jobs/{job}")).await.body["spec"].clone();
    assert_eq!(spec("ada").await["notify"][0]["webhook"], "https://hooks.example/T0/s3cret");
    let hidden = spec("bob").await;
    assert_eq!((&hidden["notify"][0]["webhook"], &hidden["notify"][0]["on"]), (&Value::Null, &json!(["finished"])));
    let again = served.send_json(Method::POST, "bob", "/jobs", &hidden).await;
    again.problem(StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn deliveries_are_told_with_their_host_alone() {
    let served = Served::start().await;
    let job = served.submit("ada", TOLD, "1").await.id();
    let path = format!("/jobs/{job}/deliveries");
    assert_eq!(served.get("ada", &path).await.body["items"], json!([]));
    assert_eq!(served.post("ada", &format!("/jobs/{job}/cancel")).await.status, StatusCode::OK);
    let told = served.get("bob", &path).await.body;
    let one = &told["items"][0];
    assert_eq!((&one["webhook"], &one["state"]), (&json!("https://hooks.example"), &json!("waiting")));
    assert_eq!((&one["kind"], &one["text"]), (&json!("finished"), &json!("told was cancelled")));
    assert!(!told.to_string().contains("s3cret"), "{told}");
}
