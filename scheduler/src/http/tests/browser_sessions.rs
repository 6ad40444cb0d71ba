//! Logging in: a cookie opens what its token opens, for the page alone, and for no longer.

use super::*;

#[derive(Clone)]
struct Browser {
    cookie: String,
    session: v1::BrowserSession,
}

async fn log_in(served: &Served, who: &str) -> Browser {
    let made = served.post(who, "/auth/sessions").await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    let set = made.headers["set-cookie"].to_str().unwrap();
    assert!(set.contains("HttpOnly; SameSite=Strict; Max-Age=2592000"), "{set}");
    let cookie = set.split(';').next().unwrap().to_owned();
    Browser { cookie, session: serde_json::from_value(made.body).unwrap() }
}

impl Browser {
    /// As the page asks.
    fn asks(&self, method: Method, path: &str) -> axum::http::request::Builder {
        let request = Request::builder().method(method).uri(format!("/api/v1{path}")).header("cookie", &self.cookie);
        request.header("sec-fetch-site", "same-origin").header("x-headway-page", "1")
    }

    async fn sends(&self, served: &Served, method: Method, path: &str) -> Answer {
        served.send(self.asks(method, path).body(Body::empty()).unwrap()).await
    }

    async fn is_welcome(&self, served: &Served) -> bool {
        let answer = self.sends(served, Method::GET, "/auth/whoami").await;
        if answer.status != StatusCode::OK {
            assert_eq!(answer.problem(StatusCode::UNAUTHORIZED), "unauthorized");
        }
        answer.status == StatusCode::OK
    }
}

#[tokio::test]
async fn a_browser_that_has_logged_in_is_its_tokens_user_until_it_logs_out() {
    let served = Served::start().await;
    let browser = log_in(&served, "ada").await;
    let whoami = browser.sends(&served, Method::GET, "/auth/whoami").await.body;
    assert_eq!((&whoami["user"], &whoami["scope"]), (&json!("ada"), &json!("user")));
    let submit = browser.asks(Method::POST, "/jobs").header("content-type", "application/yaml");
    assert_eq!(served.send(submit.body(Body::from(JOB)).unwrap()).await.status, StatusCode::CREATED);
    let again = browser.sends(&served, Method::POST, "/auth/sessions").await;
    assert_eq!(again.problem(StatusCode::FORBIDDEN), "forbidden", "a session makes no other");

    let other = log_in(&served, "ada").await;
    let list = browser.sends(&served, Method::GET, "/auth/sessions").await.body;
    let list: v1::BrowserSessionList = serde_json::from_value(list).unwrap();
    let current: Vec<_> = list.items.iter().map(|one| (one.id, one.current)).collect();
    assert_eq!(current, [(other.session.id, false), (browser.session.id, true)]);
    let out = browser.sends(&served, Method::DELETE, "/auth/sessions/current").await;
    assert_eq!(out.status, StatusCode::NO_CONTENT, "{}", out.body);
    assert!(out.headers["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    assert!(!browser.is_welcome(&served).await && other.is_welcome(&served).await);
    let by_token = asked(Method::DELETE, "ada", "/auth/sessions/current").body(Body::empty()).unwrap();
    assert_eq!(served.send(by_token).await.problem(StatusCode::NOT_FOUND), "not_found");
}

#[tokio::test]
async fn a_cookie_counts_for_the_page_alone_and_is_no_token() {
    let served = Served::start().await;
    let browser = log_in(&served, "root").await;
    for (site, header) in
        [("same-site", "x-headway-page"), ("cross-site", "x-headway-page"), ("same-origin", "x-other")]
    {
        let request = Request::delete("/api/v1/auth/sessions").header("cookie", &browser.cookie);
        let request = request.header("sec-fetch-site", site).header(header, "1").body(Body::empty()).unwrap();
        assert_eq!(served.send(request).await.problem(StatusCode::FORBIDDEN), "cross_origin", "{site} {header}");
    }
    assert!(browser.is_welcome(&served).await);
    let (name, secret) = browser.cookie.split_once('=').unwrap();
    assert_eq!(served.get(secret, "/jobs").await.problem(StatusCode::UNAUTHORIZED), "unauthorized");
    let token = Browser { cookie: format!("{name}=root"), session: browser.session.clone() };
    assert!(!token.is_welcome(&served).await);
    // Two were wrong before.
    for number in 0..28 {
        Browser { cookie: format!("{name}=guess-{number}"), ..token.clone() }.is_welcome(&served).await;
    }
    let guess = Browser { cookie: format!("{name}=guess-31"), ..token.clone() };
    let refused = guess.sends(&served, Method::GET, "/jobs").await;
    assert_eq!(refused.problem(StatusCode::TOO_MANY_REQUESTS), "too_many_wrong_tokens");
    assert!(browser.is_welcome(&served).await, "who was right before goes on");
}

#[tokio::test]
async fn a_session_ends_with_its_token_and_with_a_change_of_role_and_so_does_what_it_follows() {
    let served = Served::start().await;
    let token = json!({"name": "page", "ttl_s": 60.0});
    let made = served.send_json(Method::POST, "ada", "/auth/tokens", &token).await;
    let made: v1::CreatedToken = serde_json::from_value(made.body).unwrap();
    let reply = served.post(&made.secret, "/auth/sessions").await;
    let session: v1::BrowserSession = serde_json::from_value(reply.body).unwrap();
    assert_eq!(Some(session.ends_at), made.token.expires_at, "no later than its token");
    let cookie = reply.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let of_token = Browser { cookie, session };
    let of_role = log_in(&served, "ada").await;
    let follow = async |browser: &Browser| {
        let stream = browser.asks(Method::GET, "/stream").body(Body::empty()).unwrap();
        served.router.clone().oneshot(stream).await.unwrap().into_body()
    };
    let (one, other) = (follow(&of_token).await, follow(&of_role).await);
    let revoke = format!("/auth/tokens/{}", made.token.id);
    served.send(asked(Method::DELETE, "ada", &revoke).body(Body::empty()).unwrap()).await;
    let ends = async |body: Body| tokio::time::timeout(Duration::from_secs(5), to_bytes(body, 1 << 20)).await.is_ok();
    assert!(ends(one).await, "its stream ends");
    assert!(!of_token.is_welcome(&served).await && of_role.is_welcome(&served).await);
    served.send_json(Method::PUT, "root", "/users/ada", &json!({"role": "operator"})).await;
    assert!(ends(other).await && !of_role.is_welcome(&served).await, "it would open more");
    assert_eq!(served.get("root", "/auth/sessions").await.body["items"], json!([]));
}

#[tokio::test]
async fn admins_end_sessions_of_others_and_the_audit_tells_who_made_and_ended_them() {
    let served = Served::start().await;
    let [one, other] = [log_in(&served, "ada").await, log_in(&served, "ada").await];
    let end =
        async |who: &str, path: &str| served.send(asked(Method::DELETE, who, path).body(Body::empty()).unwrap()).await;
    let path = format!("/auth/sessions/{}", one.session.id);
    assert_eq!(end("bob", &path).await.problem(StatusCode::NOT_FOUND), "not_found");
    assert_eq!(end("bob", "/auth/sessions?user=ada").await.problem(StatusCode::FORBIDDEN), "forbidden");
    assert_eq!(served.get("bob", "/auth/sessions?user=ada").await.problem(StatusCode::FORBIDDEN), "forbidden");
    assert_eq!(end("root", &path).await.status, StatusCode::NO_CONTENT);
    assert_eq!(end("root", &path).await.problem(StatusCode::NOT_FOUND), "not_found");
    assert!(!one.is_welcome(&served).await && other.is_welcome(&served).await);
    assert_eq!(end("root", "/auth/sessions?user=ada").await.status, StatusCode::NO_CONTENT);
    assert!(!other.is_welcome(&served).await);
    let told = served.get("root", "/audit?subject=user:ada&result=done").await;
    let told: v1::AuditList = serde_json::from_value(told.body).unwrap();
    let told: Vec<_> = told.items.iter().map(|line| (&*line.actor, &*line.action, &*line.subjects[0])).collect();
    let session = |browser: &Browser| format!("session:{}", browser.session.id);
    let (one, other) = (session(&one), session(&other));
    let expected = [
        ("user:root", "end_sessions", &*other),
        ("user:root", "end_session", &*one),
        ("user:ada", "create_session", &*other),
        ("user:ada", "create_session", &*one),
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn sessions_of_a_user_are_bounded_and_forgotten_when_they_are_over() {
    let served = Served::start().await;
    let first = log_in(&served, "bob").await;
    for _ in 0..20 {
        log_in(&served, "bob").await;
    }
    assert!(!first.is_welcome(&served).await, "the one that was used least lately made room");
    let now = served.cluster.now();
    assert_eq!(served.store.sessions(Some("bob"), now).await.unwrap().len(), 20);
    let tomorrow = now + headway_types::Seconds(86_500.0);
    assert_eq!(served.store.sessions(Some("bob"), tomorrow).await.unwrap(), [], "unused for a day");
    assert_eq!(served.store.prune_sessions(tomorrow).await.unwrap(), 20);
}
