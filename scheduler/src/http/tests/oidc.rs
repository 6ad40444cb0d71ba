//! Logging in through an identity provider, as far as it needs none: whom strangers may ask, and what the store makes of persons. With a real one: tests/browser/oidc.test.mjs.

use super::*;
use crate::store::{
    BrowserSession, Entered, GroupMembership, Linked, NewToken, Person, Revocation, RoleChange, TokenHash,
};

fn person(subject: &str) -> Person {
    Person { issuer: "https://sso.example".into(), subject: subject.into() }
}

async fn stranger(served: &Served, method: Method, path: &str, body: &str) -> Answer {
    let request = Request::builder().method(method).uri(format!("/api/v1{path}"));
    let request = request.header("content-type", "application/json");
    served.send(request.body(Body::from(body.to_owned())).unwrap()).await
}

#[tokio::test]
async fn without_a_provider_strangers_are_told_so_and_nothing_else() {
    let served = Served::start().await;
    let told = stranger(&served, Method::GET, "/auth/oidc", "").await;
    assert_eq!((told.status, &told.body["enabled"]), (StatusCode::OK, &json!(false)));
    let code = json!({"code": "c", "code_verifier": "v", "redirect_uri": "http://127.0.0.1:9/callback", "nonce": "n"});
    for (method, path, body) in [
        (Method::GET, "/auth/oidc/login", String::new()),
        (Method::GET, "/auth/oidc/callback?code=c&state=s&session_state=x", String::new()),
        (Method::POST, "/auth/oidc/device", String::new()),
        (Method::POST, "/auth/oidc/device/token", json!({"device_code": "d"}).to_string()),
        (Method::POST, "/auth/oidc/token", code.to_string()),
    ] {
        assert_eq!(stranger(&served, method, path, &body).await.problem(StatusCode::NOT_FOUND), "not_found", "{path}");
    }
    let long = json!({"device_code": "d".repeat(20_000)}).to_string();
    let refused = stranger(&served, Method::POST, "/auth/oidc/device/token", &long).await;
    assert_eq!(refused.problem(StatusCode::PAYLOAD_TOO_LARGE), "too_large");
    let elsewhere = code.to_string().replace("127.0.0.1:9", "evil.example");
    let refused = stranger(&served, Method::POST, "/auth/oidc/token", &elsewhere).await;
    assert_eq!(
        (refused.problem(StatusCode::UNPROCESSABLE_ENTITY), &refused.body["field"]),
        ("invalid", &json!("redirect_uri"))
    );
}

#[tokio::test]
async fn a_stranger_who_asks_too_fast_waits_and_nobody_with_a_token_does() {
    let served = Served::start().await;
    let mut refused = None;
    for _ in 0..200 {
        let answer = stranger(&served, Method::GET, "/auth/oidc", "").await;
        if answer.status != StatusCode::OK {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.unwrap();
    assert_eq!(refused.problem(StatusCode::TOO_MANY_REQUESTS), "too_many_requests");
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(served.get("ada", "/auth/whoami").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_person_is_one_user_for_ever_and_takes_over_nobodys_name() {
    let served = Served::start().await;
    let store = &served.store;
    let enter =
        async |subject: &str, name: &str, role| store.enter(&person(subject), name, role, START, None).await.unwrap();
    let Entered::As { identity, user, role, changed } = enter("s-1", "zoe", TokenScope::User).await else { panic!() };
    assert_eq!((user.as_str(), role, changed), ("zoe", TokenScope::User, false));
    assert_eq!(enter("s-2", "zoe", TokenScope::Admin).await, Entered::NameTaken);
    assert_eq!(enter("s-2", "ada", TokenScope::Admin).await, Entered::NameTaken, "a local user");
    let renamed = enter("s-1", "another", TokenScope::Operator).await;
    let raised = Entered::As { identity, user: "zoe".into(), role: TokenScope::Operator, changed: true };
    assert_eq!(renamed, raised, "whatever they are called there now");
    // An admin's word goes before groups.
    assert_eq!(store.set_role("zoe", TokenScope::Viewer, START, None).await.unwrap(), RoleChange::Done);
    let kept = Entered::As { identity, user: "zoe".into(), role: TokenScope::Viewer, changed: false };
    assert_eq!(enter("s-1", "zoe", TokenScope::Admin).await, kept);

    let link = async |user: &str, subject: &str, groups: bool| {
        let role_from = if groups { "groups" } else { "hand" };
        let body = json!({"subject": subject, "issuer": "https://sso.example", "role_from": role_from});
        served.send_json(Method::PUT, "root", &format!("/users/{user}/identity"), &body).await
    };
    assert_eq!(link("ada", "s-1", false).await.problem(StatusCode::CONFLICT), "identity_taken");
    assert_eq!(link("zoe", "s-9", false).await.problem(StatusCode::CONFLICT), "identity_taken");
    assert_eq!(link("nobody", "s-9", false).await.problem(StatusCode::NOT_FOUND), "not_found");
    assert_eq!(link("ada", "s-2", true).await.status, StatusCode::OK);
    let ada = served.get("root", "/users/ada").await.body;
    assert_eq!((&ada["role_from"], &ada["linked"]), (&json!("groups"), &json!(true)));
    let Entered::As { user, role, .. } = enter("s-2", "whoever", TokenScope::Operator).await else { panic!() };
    assert_eq!((user.as_str(), role), ("ada", TokenScope::Operator));
    assert!(matches!(store.link("ada", &person("s-2"), false, START, None).await.unwrap(), Linked::Done(_)));
}

#[tokio::test]
async fn whoever_may_not_log_in_any_more_loses_what_logins_opened_and_nothing_else() {
    let served = Served::start().await;
    let store = &served.store;
    let Entered::As { identity, .. } = store.enter(&person("s-1"), "zoe", TokenScope::User, START, None).await.unwrap()
    else {
        panic!()
    };
    let now = served.cluster.now();
    let make = async |secret: &str, identity, of_session| {
        let hash = TokenHash::of(secret);
        let new =
            NewToken { name: "t", user: Some("zoe"), scope: TokenScope::User, expires_at: None, identity, of_session };
        store.create_token(&new, &hash, now, None).await.unwrap()
    };
    make("by-login", Some(identity), false).await;
    make("by-hand", None, false).await;
    let of_session = make("of-session", Some(identity), true).await;
    let session = BrowserSession {
        id: uuid::Uuid::now_v7(),
        user: "zoe".into(),
        token: of_session.id,
        created_at: now,
        used_at: now,
        expires_at: now + headway_types::Seconds(60.0),
        ends_at: now + headway_types::Seconds(60.0),
    };
    assert!(store.create_session(&session, &TokenHash::of("cookie"), None).await.unwrap());
    // A token that is made by way of a login goes with it.
    let made = served.send_json(Method::POST, "by-login", "/auth/tokens", &json!({"name": "ci"})).await;
    let ci = made.body["secret"].as_str().unwrap().to_owned();
    let known = store.user_of(&person("s-1")).await.unwrap().unwrap();
    store.shut_out(&known, served.cluster.now(), None).await.unwrap();
    served.cluster.tokens_changed();
    let find =
        async |secret: &str| store.find_token(&TokenHash::of(secret), now).await.unwrap().map(|token| token.scope);
    assert_eq!((find("by-login").await, find(&ci).await, find("of-session").await), (None, None, None));
    assert_eq!(find("by-hand").await, Some(TokenScope::Viewer), "no more than the role that is left");
    assert_eq!(store.sessions(Some("zoe"), now).await.unwrap(), []);
    let unlink = asked(Method::DELETE, "root", "/users/zoe/identity").body(Body::empty()).unwrap();
    assert_eq!(served.send(unlink).await.status, StatusCode::NO_CONTENT);
    assert_eq!(store.user_of(&person("s-1")).await.unwrap(), None);
}

#[tokio::test]
async fn a_login_is_not_the_last_admin_and_groups_do_not_take_the_last_ones_role() {
    let served = Served::start().await;
    let store = &served.store;
    let now = served.cluster.now();
    let Entered::As { identity, .. } = store.enter(&person("s"), "zoe", TokenScope::Admin, now, None).await.unwrap()
    else {
        panic!()
    };
    let new = NewToken {
        name: "login",
        user: Some("zoe"),
        scope: TokenScope::Admin,
        expires_at: None,
        identity: Some(identity),
        of_session: false,
    };
    let login = store.create_token(&new, &TokenHash::of("zoes"), now, None).await.unwrap();
    let root = store.find_token(&TokenHash::of("root"), now).await.unwrap().unwrap();
    assert_eq!(store.revoke_token(root.id, now, None).await.unwrap(), Revocation::LastAdmin);
    assert_eq!(store.revoke_token(login.id, now, None).await.unwrap(), Revocation::Done);
    store.link("root", &person("r"), true, now, None).await.unwrap();
    let entered = store.enter(&person("r"), "root", TokenScope::Viewer, now, None).await.unwrap();
    assert!(matches!(entered, Entered::As { role: TokenScope::Admin, changed: false, .. }), "{entered:?}");
}

#[tokio::test]
async fn members_tell_who_named_them_and_a_hand_makes_what_groups_gave_its_own() {
    let served = Served::start().await;
    served.send_json(Method::PUT, "root", "/projects/nlp", &json!({})).await;
    for user in ["ada", "bob"] {
        let path = format!("/projects/nlp/members/{user}");
        assert_eq!(served.send_json(Method::PUT, "root", &path, &json!({"role": "user"})).await.status, StatusCode::OK);
        let noted = GroupMembership { role: headway_types::ProjectRole::User, former: None };
        served.store.note_group_membership(user, "nlp", noted).await.unwrap();
    }
    let path = "/projects/nlp/members/ada";
    served.send_json(Method::PUT, "root", &format!("{path}?dry_run=true"), &json!({"role": "admin"})).await;
    assert!(served.store.group_memberships("ada").await.unwrap().contains_key("nlp"), "nothing was done");
    served.send_json(Method::PUT, "root", path, &json!({"role": "admin"})).await;
    let members = served.get("root", "/projects/nlp/members").await.body;
    let told: Vec<_> =
        members["items"].as_array().unwrap().iter().map(|one| (&one["user"], &one["from_groups"])).collect();
    assert_eq!(told, [(&json!("ada"), &json!(false)), (&json!("bob"), &json!(true))]);
}
