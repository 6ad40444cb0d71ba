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

#[tokio::test]
async fn a_test_calls_once_signed_and_says_what_came_of_it() {
    let served = Served::start().await;
    let (heard, mut calls) = tokio::sync::mpsc::unbounded_channel();
    let endpoint = Router::new().fallback(move |headers: HeaderMap, body: String| {
        heard.send((headers, body)).unwrap();
        async { StatusCode::NO_CONTENT }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, endpoint).await.unwrap() });
    let key = served.send_json(Method::PUT, "ada", "/secrets/hook-key", &json!({"value": "hunter22"})).await;
    assert_eq!(key.status, StatusCode::CREATED);
    let job = format!(
        "{{version: 1, name: told, resources: {{gpus: 1}}, run: {{command: [a]}}, notify: [\
        {{webhook: 'http://{address}/T0/s3cret', on: [finished], secret: hook-key}}, \
        {{webhook: 'http://10.0.0.1/inside', on: [failed]}}]}}"
    );
    let path = format!("/jobs/{}/deliveries", served.submit("ada", &job, "1").await.id());

    assert_eq!(served.post("bob", &path).await.problem(StatusCode::FORBIDDEN), "forbidden");
    let dry = served.post("ada", &format!("{path}?dry_run=true")).await.body;
    assert_eq!((&dry["items"][0]["outcome"], &dry["items"][1]["outcome"]), (&json!("not_sent"), &json!("not_sent")));
    assert!(calls.try_recv().is_err(), "a dry run calls nobody");

    let tested = served.post("ada", &path).await;
    let items = &tested.body["items"];
    assert_eq!((tested.status, &items[0]["outcome"]), (StatusCode::OK, &json!("delivered")), "{}", tested.body);
    assert_eq!((&items[0]["signed_with"], &items[1]["outcome"]), (&json!("hook-key"), &json!("failed")));
    assert!(items[1]["error"].as_str().unwrap().contains("no public address"), "{items}");
    assert!(!tested.body.to_string().contains("s3cret"), "{}", tested.body);
    let (headers, body) = calls.recv().await.unwrap();
    assert_eq!(headers["headway-event"], "webhook.test");
    assert!(headers["headway-signature"].to_str().unwrap().starts_with("t="));
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["test"], true);

    let again = served.post("ada", &path).await;
    assert_eq!(again.problem(StatusCode::TOO_MANY_REQUESTS), "too_many_tests");
    assert!(again.headers.contains_key("retry-after"));
    assert!(calls.try_recv().is_err());
    let audit = served.get("root", "/audit?limit=50").await.body;
    let done = audit["items"].as_array().unwrap().iter().filter(|line| line["action"] == "test_delivery");
    assert_eq!(done.filter(|line| line["result"] == "done").count(), 1, "{audit}");
    assert_eq!(served.get("ada", &path).await.body["items"], json!([]), "the outbox holds no test");
}
