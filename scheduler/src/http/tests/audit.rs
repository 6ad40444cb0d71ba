//! The audit: every mutation and refusal, with what it changed, and never changed itself.

mod chain;

use sqlx::ConnectOptions;

use super::*;
use crate::store::{AuditFilter, AuditResult};

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
async fn every_action_and_every_change_takes_a_reason_for_the_audit_and_the_log() {
    let served = Served::start().await;
    let job = format!("/jobs/{}", served.submit("ada", JOB, "1").await.id());
    served.post("ada", &format!("{job}/hold")).await;
    let release = format!("{job}/release");
    let released = served.send_json(Method::POST, "ada", &release, &json!({"reason": "the data is there"})).await;
    assert_eq!(released.body["state"], "queued", "{}", released.body);
    let events = served.get("eve", &format!("{job}/events")).await.body;
    assert_eq!(events["items"][0]["message"], "first may start again: the data is there");

    let array = JOB.replace("name: first", "name: sweep, array: 0-1");
    let array = served.submit("ada", &array, "2").await.body["jobs"][0]["array"]["array_id"].clone();
    let array = format!("/arrays/{}/release", array.as_str().unwrap());
    let plan = "/plans/01890000-0000-7000-8000-000000000000/approve".to_owned();
    let nodes = ["/nodes/n/undrain".to_owned(), "/nodes/n/uncordon".to_owned()];
    let of_jobs = ["release", "unpin", "checkpoint"].map(|action| format!("{job}/{action}"));
    for path in of_jobs.into_iter().chain(nodes).chain([array, plan]) {
        let wrong = served.send_json(Method::POST, "root", &path, &json!({"resaon": "typed in haste"})).await;
        assert_eq!(wrong.problem(StatusCode::UNPROCESSABLE_ENTITY), "invalid", "{path}");
        assert!(wrong.body["detail"].as_str().unwrap().contains("resaon"), "{path}: {}", wrong.body);
    }

    let changes = [
        (Method::PATCH, job.as_str(), json!({"priority": 70})),
        (Method::PATCH, "/policy", json!({"min_gain": 0.07})),
        (Method::PUT, "/projects/nlp", json!({})),
        (Method::PUT, "/projects/nlp/members/ada", json!({"role": "user"})),
        (Method::PUT, "/users/bob", json!({"role": "operator"})),
        (Method::PUT, "/secrets/HF_TOKEN", json!({"value": "hunter22"})),
    ];
    for (method, path, body) in &changes {
        let done = served.send_json(method.clone(), "root", &format!("{path}?reason=as%20agreed"), body).await;
        assert!(done.status.is_success(), "{method} {path}: {}", done.body);
    }
    let told = lines(&served, "?actor=root").await;
    let reasons: Vec<_> = told.iter().map(|line| (&*line.action, line.reason.as_deref())).collect();
    let expected = ["put_secret", "put_user", "put_member", "put_project", "patch_policy", "update_job"];
    assert_eq!(reasons, expected.map(|action| (action, Some("as agreed"))));
    let twice = served.send_json(Method::PATCH, "root", &format!("{job}?reason=a&reason=b"), &json!({})).await;
    assert_eq!((twice.problem(StatusCode::BAD_REQUEST), &twice.body["field"]), ("bad_request", &json!("reason")));
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

#[tokio::test]
async fn what_only_a_handler_can_refuse_is_told_once_too() {
    let served = Served::start().await;
    served.send_json(Method::PUT, "root", "/projects/club", &json!({})).await;
    served.send_json(Method::PUT, "root", "/projects/club/members/ada", &json!({"role": "user"})).await;
    let job =
        json!({"version": 1, "name": "one", "project": "club", "resources": {"gpus": 1}, "run": {"command": ["true"]}});
    assert_eq!(served.send_json(Method::POST, "bob", "/jobs", &job).await.problem(StatusCode::FORBIDDEN), "forbidden");
    let token = json!({"name": "t", "user": "zoe", "scope": "user"});
    assert_eq!(served.send_json(Method::POST, "bob", "/auth/tokens", &token).await.status, StatusCode::FORBIDDEN);
    assert_eq!(served.get("node", "/jobs").await.status, StatusCode::FORBIDDEN);
    let all = "/audit?result=refused";
    let told = |answer: &Answer| answer.body["items"].as_array().map_or(0, Vec::len);
    served.until("opal", all, |answer| told(answer) == 3).await;
    let mut told: Vec<_> = lines(&served, "?result=refused")
        .await
        .into_iter()
        .map(|line| (line.actor, line.action, line.token_id.is_some()))
        .collect();
    told.sort();
    let of = |actor: &str, action: &str| (actor.to_owned(), action.to_owned(), true);
    assert_eq!(told, [of("agent", "list_jobs"), of("user:bob", "create_token"), of("user:bob", "submit")]);
}

#[tokio::test]
async fn whoever_guesses_tokens_is_told_of_in_one_line() {
    let served = Served::start().await;
    for number in 0..40 {
        served.get(&format!("guess-{number}"), "/jobs").await;
    }
    served.get("root", "/jobs").await;
    let filter = AuditFilter { result: Some(AuditResult::Refused), limit: 100, ..AuditFilter::default() };
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    let told = loop {
        let told = served.store.audit(&filter).await.unwrap().items;
        if !told.is_empty() {
            break told;
        }
        assert!(tokio::time::Instant::now() < deadline, "no line");
        tokio::task::yield_now().await;
    };
    let entry = &told[0].entry;
    assert_eq!((told.len(), &*entry.actor, entry.code.as_deref()), (1, "nobody", Some("too_many_wrong_tokens")));
}
