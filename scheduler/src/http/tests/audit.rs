//! The audit: every mutation and refusal, with what it changed, and never changed itself.

use sqlx::ConnectOptions;

use super::*;

/// Newest first.
async fn lines(served: &Served, query: &str) -> Vec<v1::AuditLine> {
    let page = served.get("opal", &format!("/audit{query}")).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.body);
    serde_json::from_value::<v1::AuditList>(page.body).unwrap().items
}

#[tokio::test]
async fn what_is_done_is_told_with_who_why_and_what_it_changed() {
    let served = Served::start().await;
    let id = served.submit("ada", JOB, "1").await.id();
    let patch = asked(Method::PATCH, "ada", &format!("/jobs/{id}")).header("content-type", "application/json");
    let patch = patch.header("x-request-id", "mine").body(Body::from(json!({"priority": 70}).to_string())).unwrap();
    assert_eq!(served.send(patch).await.status, StatusCode::OK);
    let cancel = json!({"reason": "wrong data"});
    served.send_json(Method::POST, "root", &format!("/jobs/{id}/cancel"), &cancel).await;
    let subject = format!("job:{id}");
    let told = lines(&served, &format!("?subject={subject}")).await;
    let short: Vec<_> =
        told.iter().map(|line| (line.actor.as_str(), line.action.as_str(), line.result.as_str())).collect();
    let expected = [("user:root", "cancel_job"), ("user:ada", "update_job"), ("user:ada", "submit")];
    assert_eq!(short, expected.map(|(actor, action)| (actor, action, "done")));
    assert_eq!(told[0].reason.as_deref(), Some("wrong data"));
    assert_eq!(
        (&told[1].before, &told[1].after),
        (&Some(json!({"spec.priority": 50})), &Some(json!({"spec.priority": 70})))
    );
    assert_eq!(told[1].request_id.as_deref(), Some("mine"));
    let token = served.get("ada", "/auth/whoami").await.body["id"].clone();
    assert_eq!(json!(told[1].token_id), token);

    // Written with what it tells: one transaction, one xmin.
    let mut connection = served.options.connect().await.unwrap();
    let together: bool = sqlx::query_scalar(
        "SELECT (SELECT xmin::text FROM audit WHERE action = 'cancel_job') = (SELECT xmin::text FROM jobs)",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert!(together);
}

#[tokio::test]
async fn a_question_a_dry_run_a_repetition_and_what_changes_nothing_leave_no_line() {
    let served = Served::start().await;
    let id = served.submit("ada", JOB, "1").await.id();
    served.submit("ada", JOB, "1").await;
    served.post("ada", &format!("/jobs/{id}/hold?dry_run=true")).await;
    served.post("ada", &format!("/jobs/{id}/release?dry_run=true")).await;
    served.send_json(Method::PATCH, "ada", &format!("/jobs/{id}"), &json!({"priority": 50})).await;
    served.get("ada", &format!("/jobs/{id}")).await;
    served.post("ada", &format!("/jobs/{id}/hold")).await;
    served.post("ada", &format!("/jobs/{id}/hold")).await;
    let told = lines(&served, "?result=done").await;
    assert_eq!(told.iter().map(|line| &*line.action).collect::<Vec<_>>(), ["hold_job", "submit"]);
}

#[tokio::test]
async fn what_is_refused_is_told_with_its_code() {
    let served = Served::start().await;
    let id = served.submit("ada", JOB, "1").await.id();
    served.post("bob", &format!("/jobs/{id}/cancel")).await;
    served.post("ada", &format!("/jobs/{id}/release")).await;
    served.send_json(Method::PUT, "eve", "/users/eve", &json!({"role": "admin"})).await;
    let all = "/audit?result=refused";
    served.until("opal", all, |answer| answer.body["items"].as_array().is_some_and(|items| items.len() == 3)).await;
    let told: BTreeSet<_> = lines(&served, "?result=refused")
        .await
        .into_iter()
        .map(|line| (line.actor, line.action, line.code.unwrap(), line.subjects.concat()))
        .collect();
    let of = |actor: &str, action: &str, code: &str, subject: &str| {
        (format!("user:{actor}"), action.to_owned(), code.to_owned(), subject.to_owned())
    };
    let job = format!("job:{id}");
    let expected = [
        of("bob", "cancel_job", "forbidden", &job),
        of("ada", "release_job", "wrong_state", &job),
        of("eve", "put_user", "forbidden", "user:eve"),
    ];
    assert_eq!(told, BTreeSet::from(expected));
    assert_eq!(served.get("ada", "/audit").await.problem(StatusCode::FORBIDDEN), "forbidden");
}

#[tokio::test]
async fn people_and_projects_are_audited_without_secrets() {
    let served = Served::start().await;
    let made = served
        .send_json(Method::POST, "root", "/auth/tokens", &json!({"name": "ci", "user": "zoe", "scope": "user"}))
        .await;
    let (secret, id) = (made.body["secret"].as_str().unwrap(), made.body["token"]["id"].as_str().unwrap());
    served.send_json(Method::PUT, "root", "/users/zoe", &json!({"role": "operator"})).await;
    served.send_json(Method::PUT, "root", "/projects/nlp", &json!({})).await;
    served.send_json(Method::PUT, "root", "/projects/nlp/members/zoe", &json!({"role": "admin"})).await;
    let revoke = asked(Method::DELETE, "root", &format!("/auth/tokens/{id}")).body(Body::empty()).unwrap();
    assert_eq!(served.send(revoke).await.status, StatusCode::NO_CONTENT);
    let told = lines(&served, "?actor=root").await;
    let actions: Vec<_> = told.iter().map(|line| &*line.action).collect();
    assert_eq!(actions, ["revoke_token", "put_member", "put_project", "put_user", "create_token"]);
    assert_eq!((&told[3].before, &told[3].after), (&Some(json!({"role": "user"})), &Some(json!({"role": "operator"}))));
    assert_eq!(told[1].after.as_ref().unwrap()["access.members.zoe"], "admin");
    assert_eq!(told[0].subjects, [format!("token:{id}"), "user:zoe".to_owned()]);
    assert!(!serde_json::to_string(&told).unwrap().contains(secret));
}

#[tokio::test]
async fn lines_are_paged_and_neither_changed_nor_removed() {
    let served = Served::start().await;
    for key in ["1", "2", "3"] {
        served.submit("ada", JOB, key).await;
    }
    let page: v1::AuditList = serde_json::from_value(served.get("root", "/audit?limit=2").await.body).unwrap();
    let rest = lines(&served, &format!("?limit=2&cursor={}", page.next_cursor.unwrap())).await;
    assert_eq!((page.items.len(), rest.len()), (2, 1));
    assert!(rest[0].id < page.items[1].id);
    let later = lines(&served, "?since=2999-01-01T00:00:00Z").await;
    assert!(later.is_empty(), "{later:?}");
    let mut connection = served.options.connect().await.unwrap();
    for forbidden in ["UPDATE audit SET actor = 'user:eve'", "DELETE FROM audit", "TRUNCATE audit"] {
        let refused = sqlx::query(forbidden).execute(&mut connection).await.unwrap_err();
        assert!(refused.to_string().contains("append-only"), "{forbidden}: {refused}");
    }
    assert_eq!(lines(&served, "").await.len(), 3);
}
