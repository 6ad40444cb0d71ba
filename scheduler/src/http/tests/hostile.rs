//! Bodies made to cost whoever reads them, and such as never come.

use std::net::SocketAddr;
use std::time::Instant;

use axum::extract::ConnectInfo;
use bytes::Bytes;
use futures::{poll, stream};

use super::*;

fn validate(who: &str, body: impl Into<Body>) -> Request<Body> {
    asked(Method::POST, who, "/jobs/validate").header("content-type", "application/yaml").body(body.into()).unwrap()
}

/// 300 KB of labels, far more than a job may have.
fn heavy() -> String {
    let labels: String = (0..17_000).map(|label| format!("  label-{label:05}: v\n")).collect();
    format!("version: 1\nname: a\nresources: {{gpus: 1}}\nrun: {{command: x}}\nlabels:\n{labels}")
}

#[tokio::test]
async fn whoever_reads_long_bodies_answers_others_meanwhile() {
    let served = Served::start().await;
    served.get("eve", "/auth/whoami").await;
    let heavy = heavy();
    let slow = async {
        let all = (0..4).map(|_| served.send(validate("eve", heavy.clone())));
        futures::future::join_all(all).await
    };
    let quick = async {
        let mut longest = Duration::ZERO;
        for _ in 0..50 {
            let began = Instant::now();
            assert_eq!(served.get("eve", "/auth/whoami").await.status, StatusCode::OK);
            longest = longest.max(began.elapsed());
        }
        longest
    };
    let (answers, longest) = tokio::join!(slow, quick);
    println!("the longest wait beside them: {longest:?}");
    assert!(longest < Duration::from_millis(500), "{longest:?}");
    // On a loaded machine some wait too long for their turn, and hear so.
    let (late, read): (Vec<_>, Vec<_>) =
        answers.into_iter().partition(|one| one.status == StatusCode::SERVICE_UNAVAILABLE);
    assert!(late.iter().all(|one| one.problem(StatusCode::SERVICE_UNAVAILABLE) == "unavailable"));
    assert!(!read.is_empty(), "none was read");
    for answer in read {
        assert_eq!(answer.problem(StatusCode::UNPROCESSABLE_ENTITY), "invalid");
        assert_eq!(
            (&answer.body["field"], &answer.body["detail"]),
            (&json!("labels"), &json!("has 17000 entries, at most 64"))
        );
        assert!(answer.body["hint"].is_string());
    }
}

#[tokio::test]
async fn a_long_key_is_not_paid_for_once_for_each_value_below_it() {
    let served = Served::start().await;
    let children: String = (0..5_000).map(|child| format!("  c{child}: 1\n")).collect();
    let text = format!("{}:\n{children}", "k".repeat(34_000));
    let answer = served.send(validate("eve", text)).await;
    assert_eq!(answer.problem(StatusCode::UNPROCESSABLE_ENTITY), "invalid");
    assert!(answer.body.to_string().len() < 2_000, "{} bytes", answer.body.to_string().len());
}

#[tokio::test]
async fn who_is_not_known_is_told_so_before_his_body_is_asked_for() {
    let served = Served::start().await;
    for path in ["/jobs", "/jobs/validate", "/auth/tokens"] {
        let touched = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = touched.clone();
        let body = stream::poll_fn(move |_| {
            seen.store(true, std::sync::atomic::Ordering::Relaxed);
            std::task::Poll::<Option<Result<Bytes, std::io::Error>>>::Pending
        });
        let request = asked(Method::POST, "mallory", path).header("content-type", "application/json");
        let request = request.header("idempotency-key", "k").body(Body::from_stream(body)).unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(5), served.send(request)).await.unwrap();
        assert_eq!(answer.problem(StatusCode::UNAUTHORIZED), "unauthorized");
        assert!(!touched.load(std::sync::atomic::Ordering::Relaxed), "{path}: a byte of the body was read");
    }
}

#[tokio::test]
async fn strangers_whose_bodies_never_come_take_no_users_place() {
    let served = Served::start().await;
    let (mut under_way, mut refused) = (Vec::new(), 0);
    for login in 0..256_u16 {
        let body = stream::once(async { Ok::<_, std::io::Error>(Bytes::from_static(b"{")) }).chain(stream::pending());
        let request = Request::post("/api/v1/auth/oidc/device/token").header("content-type", "application/json");
        let mut request = request.body(Body::from_stream(body)).unwrap();
        let address = SocketAddr::from(([10, 0, 0, (login / 16) as u8], login));
        request.extensions_mut().insert(ConnectInfo(address));
        let mut answer = Box::pin(served.router.clone().oneshot(request));
        match poll!(&mut answer) {
            std::task::Poll::Ready(answer) => {
                assert_eq!(answer.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
                refused += 1;
            }
            std::task::Poll::Pending => under_way.push(answer),
        }
    }
    assert!(!under_way.is_empty() && refused >= 128, "{} wait, {refused} are refused", under_way.len());
    let submitted = served.submit("ada", JOB, "1").await;
    assert_eq!(submitted.status, StatusCode::CREATED, "{}", submitted.body);
}
