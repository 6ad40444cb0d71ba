//! Who is who: users, their tokens, and who keeps trying wrong ones.

use super::*;

async fn token(served: &Served, who: &str, wanted: &Value) -> v1::CreatedToken {
    let made = served.send_json(Method::POST, who, "/auth/tokens", wanted).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    serde_json::from_value(made.body).unwrap()
}

#[tokio::test]
async fn a_token_that_is_named_like_somebody_is_not_that_person() {
    let served = Served::start().await;
    let job = served.submit("root", JOB, "1").await.id();
    let made = token(&served, "bob", &json!({"name": "root"})).await;
    let whoami = served.get(&made.secret, "/auth/whoami").await.body;
    assert_eq!((&whoami["user"], &whoami["name"], &whoami["scope"]), (&json!("bob"), &json!("root"), &json!("user")));
    let refused = served.post(&made.secret, &format!("/jobs/{job}/cancel")).await;
    assert_eq!(refused.problem(StatusCode::FORBIDDEN), "forbidden");
}

#[tokio::test]
async fn everybody_makes_tokens_that_open_no_more_than_their_own() {
    let served = Served::start().await;
    let ask = async |who: &str, wanted: Value| served.send_json(Method::POST, who, "/auth/tokens", &wanted).await;
    let more = ask("ada", json!({"name": "ci", "scope": "operator"})).await;
    assert_eq!((more.problem(StatusCode::FORBIDDEN), &more.body["field"]), ("forbidden", &json!("scope")));
    let other = ask("ada", json!({"name": "ci", "user": "bob"})).await;
    assert_eq!(other.problem(StatusCode::FORBIDDEN), "forbidden");
    let agent = ask("opal", json!({"name": "node-7", "scope": "agent"})).await;
    assert_eq!(agent.problem(StatusCode::FORBIDDEN), "forbidden");

    // What it may not do itself it makes no token for.
    let reader = token(&served, "ada", &json!({"name": "page", "scope": "viewer"})).await;
    let more = ask(&reader.secret, json!({"name": "ci", "scope": "user"})).await;
    assert_eq!(more.problem(StatusCode::FORBIDDEN), "forbidden");

    let listed = async |who: &str| served.get(who, "/auth/tokens").await.body["items"].as_array().unwrap().len();
    assert_eq!((listed("ada").await, listed("bob").await), (2, 1));
    assert_eq!(listed("root").await, 7);
    let others = served.get("ada", "/auth/tokens?user=bob").await;
    assert_eq!(others.problem(StatusCode::FORBIDDEN), "forbidden");

    let revoke = async |who: &str, id: uuid::Uuid| {
        served.send(asked(Method::DELETE, who, &format!("/auth/tokens/{id}")).body(Body::empty()).unwrap()).await
    };
    assert_eq!(revoke("bob", reader.token.id).await.problem(StatusCode::NOT_FOUND), "not_found");
    assert_eq!(revoke("ada", reader.token.id).await.status, StatusCode::NO_CONTENT);
    assert_eq!(served.get(&reader.secret, "/auth/whoami").await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn an_admin_makes_users_and_what_their_tokens_open_is_bounded_by_their_role() {
    let served = Served::start().await;
    let zoe = token(&served, "root", &json!({"name": "first", "user": "zoe", "scope": "user"})).await;
    assert_eq!(served.get("eve", "/users/zoe").await.body["role"], "user");
    let more = json!({"name": "more", "user": "zoe", "scope": "operator"});
    let refused = served.send_json(Method::POST, "root", "/auth/tokens", &more).await;
    assert_eq!(refused.problem(StatusCode::UNPROCESSABLE_ENTITY), "invalid");
    assert!(refused.body["hint"].as_str().unwrap().contains("headway user set zoe"), "{}", refused.body);
    let put = async |who: &str, user: &str, role: &str| {
        served.send_json(Method::PUT, who, &format!("/users/{user}"), &json!({"role": role})).await
    };
    assert_eq!(put("zoe", "zoe", "admin").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(put(&zoe.secret, "zoe", "admin").await.problem(StatusCode::FORBIDDEN), "forbidden");
    assert_eq!(put("root", "zoe", "viewer").await.status, StatusCode::OK);
    let refused = served.submit(&zoe.secret, JOB, "1").await;
    assert_eq!(refused.problem(StatusCode::FORBIDDEN), "forbidden", "a lower role counts at once");
    assert_eq!(put("root", "root", "user").await.problem(StatusCode::CONFLICT), "last_admin");
    assert_eq!(put("root", "new", "user").await.status, StatusCode::CREATED);
    for wrong in ["scheduler", "a b", "-x"] {
        let path = wrong.replace(' ', "%20");
        assert_eq!(put("root", &path, "user").await.problem(StatusCode::UNPROCESSABLE_ENTITY), "invalid", "{wrong}");
    }
    assert_eq!(served.get("eve", "/users/nobody").await.problem(StatusCode::NOT_FOUND), "not_found");
}

#[tokio::test]
async fn whoever_keeps_guessing_waits_and_whoever_has_a_right_token_does_not() {
    let served = Served::start().await;
    let ask = async |secret: &str| served.get(secret, "/auth/whoami").await;
    assert_eq!(ask("ada").await.status, StatusCode::OK);
    for number in 0..30 {
        assert_eq!(ask(&format!("guess-{number}")).await.problem(StatusCode::UNAUTHORIZED), "unauthorized");
    }
    let refused = ask("guess-30").await;
    assert_eq!(refused.problem(StatusCode::TOO_MANY_REQUESTS), "too_many_wrong_tokens");
    assert!(refused.headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() <= 60);
    assert_eq!(ask("ada").await.status, StatusCode::OK, "who was right before goes on");
}

#[tokio::test]
async fn a_user_has_so_many_tokens_and_lists_are_paged() {
    let served = Served::start().await;
    let make = async |who: &str, body: Value| served.send_json(Method::POST, who, "/auth/tokens", &body).await;
    // Eve's own token counts, and what opens nothing does not.
    for token in 1..99 {
        assert_eq!(make("eve", json!({"name": format!("t{token}")})).await.status, StatusCode::CREATED);
    }
    let (one, other) = tokio::join!(
        make("eve", json!({"name": "one"})),
        make("root", json!({"name": "other", "user": "eve", "scope": "viewer"}))
    );
    let statuses = std::collections::BTreeSet::from([one.status.as_u16(), other.status.as_u16()]);
    assert_eq!(statuses, [201, 409].into(), "of two at once one is too many");
    let refused = make("eve", json!({"name": "more"})).await;
    assert_eq!(refused.problem(StatusCode::CONFLICT), "too_many_tokens");
    assert!(refused.body["hint"].as_str().unwrap().contains("headway token revoke"), "{}", refused.body);
    assert_eq!(make("ada", json!({"name": "hers"})).await.status, StatusCode::CREATED);

    let (mut seen, mut path) = (Vec::new(), "/auth/tokens?limit=40".to_owned());
    loop {
        let page: v1::TokenList = serde_json::from_value(served.get("eve", &path).await.body).unwrap();
        seen.extend(page.items.into_iter().map(|token| token.id));
        let Some(next) = page.next_cursor else { break };
        path = format!("/auth/tokens?limit=40&cursor={next}");
    }
    assert_eq!((seen.len(), seen.iter().collect::<BTreeSet<_>>().len()), (100, 100));
    let revoke = asked(Method::DELETE, "eve", &format!("/auth/tokens/{}", seen[0])).body(Body::empty()).unwrap();
    assert_eq!(served.send(revoke).await.status, StatusCode::NO_CONTENT);
    assert_eq!(make("eve", json!({"name": "again"})).await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn a_token_ends_after_ninety_days_unless_something_else_is_asked_for() {
    let served = Served::start().await;
    let make = async |body: Value| served.send_json(Method::POST, "root", "/auth/tokens", &body).await;
    let life = |made: &Answer| {
        let at = |field: &str| made.body["token"][field].as_str()?.parse::<chrono::DateTime<chrono::Utc>>().ok();
        Some((at("expires_at")? - at("created_at")?).num_seconds())
    };
    assert_eq!(life(&make(json!({"name": "usual"})).await), Some(90 * 86_400));
    assert_eq!(life(&make(json!({"name": "short", "ttl_s": 60})).await), Some(60));
    assert_eq!(life(&make(json!({"name": "ever", "never_expires": true})).await), None);
    assert_eq!(life(&make(json!({"name": "node", "scope": "agent"})).await), None, "no node is lost after 90 days");
    let both = make(json!({"name": "both", "ttl_s": 60, "never_expires": true})).await;
    assert_eq!(
        (both.problem(StatusCode::UNPROCESSABLE_ENTITY), &both.body["field"]),
        ("invalid", &json!("never_expires"))
    );
}
