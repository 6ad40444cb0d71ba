//! Output: what of it can be asked for, and who stops hearing of it.

use futures::FutureExt;

use super::*;

/// A private project with these members, and a job of ada's in it that waits.
async fn waiting_job(members: &[(&str, &str)]) -> (Served, String) {
    let served = Served::start().await;
    served.send_json(Method::PUT, "root", "/projects/vault", &json!({})).await;
    for (user, role) in members {
        let path = format!("/projects/vault/members/{user}");
        served.send_json(Method::PUT, "root", &path, &json!({"role": role})).await;
    }
    let private = served.send_json(Method::PATCH, "root", "/projects/vault", &json!({"private": true})).await;
    assert_eq!(private.status, StatusCode::OK, "{}", private.body);
    let job = served.submit("ada", &JOB.replace("version: 1,", "version: 1, project: vault,"), "1").await.id();
    (served, job)
}

#[tokio::test]
async fn a_follower_who_is_no_member_any_more_hears_no_more() {
    let (served, job) = waiting_job(&[("ada", "user"), ("bob", "viewer"), ("eve", "viewer")]).await;
    for query in ["follow=true", "follow=true&rank=all", "follow=true&since=10m"] {
        let path = format!("/jobs/{job}/logs?{query}");
        let follow = |who| served.router.clone().oneshot(asked(Method::GET, who, &path).body(Body::empty()).unwrap());
        let (bob, eve) = (follow("bob").await.unwrap(), follow("eve").await.unwrap());
        assert_eq!((bob.status(), eve.status()), (StatusCode::OK, StatusCode::OK));
        let remove = asked(Method::DELETE, "root", "/projects/vault/members/bob").body(Body::empty()).unwrap();
        assert_eq!(served.send(remove).await.status, StatusCode::OK);
        tokio::time::timeout(Duration::from_secs(20), to_bytes(bob.into_body(), 1 << 20)).await.unwrap().unwrap();
        assert!(eve.into_body().into_data_stream().next().now_or_never().is_none(), "a member goes on hearing");
        served.send_json(Method::PUT, "root", "/projects/vault/members/bob", &json!({"role": "viewer"})).await;
    }
}

#[tokio::test]
async fn what_names_no_part_of_the_output_is_told() {
    let (served, job) = waiting_job(&[("ada", "user")]).await;
    for (query, status, code, field) in [
        ("rank=x", StatusCode::BAD_REQUEST, "bad_request", "rank"),
        ("rank=0-64", StatusCode::BAD_REQUEST, "bad_request", "rank"),
        ("since=yesterday", StatusCode::BAD_REQUEST, "bad_request", "since"),
        ("attempt=1&previous=true", StatusCode::BAD_REQUEST, "bad_request", "attempt"),
        ("attempt=1", StatusCode::NOT_FOUND, "not_found", "attempt"),
        ("previous=true", StatusCode::NOT_FOUND, "not_found", "attempt"),
        ("rank=0,1&offset=7", StatusCode::BAD_REQUEST, "bad_request", "offset"),
        ("tail=100001", StatusCode::BAD_REQUEST, "bad_request", "tail"),
        ("rank=all&tail=4294967295", StatusCode::BAD_REQUEST, "bad_request", "tail"),
    ] {
        let refused = served.get("ada", &format!("/jobs/{job}/logs?{query}")).await;
        assert_eq!((refused.problem(status), refused.body["field"].as_str()), (code, Some(field)), "{query}");
    }
    for query in ["rank=0", "rank=all", "timestamps=true", "tail=0", "tail=100000"] {
        let not_yet = served.get("ada", &format!("/jobs/{job}/logs?{query}")).await;
        assert_eq!(not_yet.problem(StatusCode::CONFLICT), "not_started", "{query}");
    }
}
