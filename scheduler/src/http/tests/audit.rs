//! The audit: every mutation and refusal, with what it changed, and never changed itself.

use std::collections::BTreeMap;

use headway_types::Seconds;
use sqlx::{AssertSqlSafe, ConnectOptions};

use super::*;
use crate::audit::{Anchor, sealer, verify_file};
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

/// Six sealed lines.
async fn chained() -> Served {
    let served = Served::start().await;
    for key in ["1", "2", "3", "4", "5", "6"] {
        served.submit("ada", JOB, key).await;
    }
    assert_eq!(served.store.seal_audit(4).await.unwrap(), 4);
    assert_eq!(served.store.seal_audit(4).await.unwrap(), 2);
    served
}

/// As somebody does who owns the tables, or has taken over the database.
async fn tamper(served: &Served, sql: &str) {
    let mut connection = served.options.connect().await.unwrap();
    let sql = format!(
        "ALTER TABLE audit DISABLE TRIGGER ALL; ALTER TABLE audit_seals DISABLE TRIGGER ALL; {sql};
        ALTER TABLE audit ENABLE TRIGGER ALL; ALTER TABLE audit_seals ENABLE TRIGGER ALL"
    );
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
}

async fn verified(served: &Served, query: &str) -> v1::AuditVerification {
    let answer = served.get("opal", &format!("/audit/verify{query}")).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    serde_json::from_value(answer.body).unwrap()
}

async fn exported(served: &Served, query: &str) -> String {
    let request = asked(Method::GET, "opal", &format!("/audit/export{query}")).body(Body::empty()).unwrap();
    let reply = served.router.clone().oneshot(request).await.unwrap();
    assert_eq!(reply.status(), StatusCode::OK);
    String::from_utf8(to_bytes(reply.into_body(), 1 << 20).await.unwrap().to_vec()).unwrap()
}

#[tokio::test]
async fn the_first_line_that_is_not_as_it_was_sealed_is_named_and_a_cut_end_by_an_anchor() {
    let ids = "(SELECT audit_id FROM audit_seals WHERE position = N)";
    let of = |sql: &str| {
        (1..=6).fold(sql.to_owned(), |sql, n| sql.replace(&format!("#{n}"), &ids.replace('N', &n.to_string())))
    };
    // By position in the chain.
    let cases = [
        ("UPDATE audit SET actor = 'user:eve' WHERE audit_id = #3", 3, "changed"),
        ("DELETE FROM audit WHERE audit_id = #4", 4, "missing"),
        ("DELETE FROM audit WHERE audit_id = #2; DELETE FROM audit_seals WHERE position = 2", 3, "missing"),
        (
            "UPDATE audit_seals SET position = 7 - position + 100; UPDATE audit_seals SET position = position - 100",
            6,
            "out_of_order",
        ),
        ("DELETE FROM audit_seals WHERE position = 6; DELETE FROM audit_unsealed", 6, "unsealed"),
    ];
    for (sql, position, what) in cases {
        let served = chained().await;
        assert_eq!(verified(&served, "").await.broken, None);
        let links: BTreeMap<u64, i64> =
            served.store.audit_links(0, 10).await.unwrap().iter().map(|link| (link.seal.position, link.id)).collect();
        tamper(&served, &of(sql)).await;
        let broken = verified(&served, "").await.broken.unwrap_or_else(|| panic!("{sql}"));
        assert_eq!((broken.id, &*broken.what), (links[&position], what), "{sql}: {}", broken.detail);
    }

    let served = chained().await;
    let head: v1::AuditHead = serde_json::from_value(served.get("opal", "/audit/head").await.body).unwrap();
    assert_eq!((head.sealed, head.unsealed, &*head.kept_by), (6, 0, "triggers"));
    let anchor = head.anchor.unwrap();
    let query = format!("?head={}", anchor.replace(':', "%3A"));
    assert_eq!(verified(&served, &query).await.last, Some(anchor.clone()));
    tamper(&served, &of("DELETE FROM audit WHERE audit_id = #6; DELETE FROM audit_seals WHERE position = 6")).await;
    assert_eq!(verified(&served, "").await.broken, None, "a cut end alone tells nothing");
    let broken = verified(&served, &query).await.broken.unwrap();
    assert_eq!((broken.id.to_string(), &*broken.what), (anchor.split(':').next().unwrap().to_owned(), "missing"));
    assert_eq!(served.get("opal", "/audit/verify?head=x").await.problem(StatusCode::BAD_REQUEST), "bad_request");
    assert_eq!(served.get("ada", "/audit/export").await.problem(StatusCode::FORBIDDEN), "forbidden");
}

#[tokio::test]
async fn the_chain_is_verified_in_pages_and_from_a_moment_on() {
    let served = chained().await;
    let many = "INSERT INTO audit (done_at, actor, action, subjects, result)
        SELECT '2026-12-01T00:00:00Z'::timestamptz + n * interval '1 second', 'user:ada', 'x', '{}', 'done' FROM generate_series(1, 1200) n";
    let mut connection = served.options.connect().await.unwrap();
    sqlx::query(many).execute(&mut connection).await.unwrap();
    while served.store.seal_audit(500).await.unwrap() > 0 {}
    let (mut lines, mut pages, mut query) = (0, 0, "?limit=500".to_owned());
    loop {
        let page = verified(&served, &query).await;
        assert_eq!(page.broken, None);
        (lines, pages) = (lines + page.lines, pages + 1);
        let Some(cursor) = page.next_cursor else { break };
        query = format!("?limit=500&cursor={cursor}");
    }
    assert_eq!((lines, pages), (1_206, 3));
    let late = verified(&served, "?since=2026-12-01T00:10:01Z").await;
    assert_eq!((late.lines, late.broken), (600, None));
    assert_eq!(exported(&served, "?since=2026-12-01T00:10:01Z&until=2026-12-01T00:10:11Z").await.lines().count(), 10);
}

#[tokio::test]
async fn an_exported_file_is_verified_without_a_server_in_both_forms() {
    let served = chained().await;
    served.send_json(Method::PUT, "root", "/projects/nlp", &json!({"weight": 1.5})).await;
    served.post("bob", "/jobs/01890000-0000-7000-8000-000000000000/cancel").await;
    served.until("opal", "/audit?result=refused", |answer| answer.body["items"][0]["code"] == "not_found").await;
    while served.store.seal_audit(100).await.unwrap() > 0 {}
    let head = served.store.audit_head().await.unwrap().unwrap().anchor;
    let dir = tempfile::tempdir().unwrap();
    for (form, columns) in [("jsonl", 0), ("csv", 1)] {
        let whole = exported(&served, &format!("?form={form}")).await;
        assert_eq!(whole.lines().count(), 8 + columns, "{whole}");
        let file = dir.path().join(form);
        let verify = |text: String, anchor| {
            std::fs::write(&file, text).unwrap();
            verify_file(&file, anchor).unwrap()
        };
        let found = verify(whole.clone(), Some(head));
        assert_eq!((found.rows, found.from_the_first, found.last, found.broken), (8, true, Some(head), None));
        let changed = verify(whole.replacen("1.5", "2.5", 1), None);
        assert_eq!(changed.broken.map(|broken| broken.id), changed.last.map(|last| last.id + 1), "{form}");
        let lines: Vec<&str> = whole.lines().collect();
        let cut = verify(lines[..lines.len() - 1].join("\n"), Some(head));
        assert_eq!(cut.broken.map(|broken| broken.id), Some(head.id));
        let holed = verify([&lines[..3], &lines[4..]].concat().join("\n"), None);
        assert!(holed.broken.is_some(), "{form}");
    }
}

/// Has lines be sealed so many days ago, by Postgres' clock.
async fn age(served: &Served, up_to: u64, days: u32) {
    let aged = format!(
        "UPDATE audit_seals SET sealed_at = now() - interval '{days} days' WHERE position <= {up_to};
        UPDATE audit_unsealed SET added_at = added_at"
    );
    tamper(served, &aged).await;
}

#[tokio::test]
async fn what_is_left_after_a_pruning_is_verified_from_where_it_begins() {
    let served = chained().await;
    let links = served.store.audit_links(0, 10).await.unwrap();
    let now = served.cluster.now();
    assert_eq!(served.store.prune_audit(now, 100, now).await.unwrap(), 0, "nothing is a year old");
    age(&served, 4, 366).await;
    assert_eq!(
        served.store.prune_audit(START - Seconds(1.0), 100, now).await.unwrap(),
        0,
        "--audit-days says otherwise"
    );
    assert_eq!(served.store.prune_audit(now, 3, now).await.unwrap(), 3, "so many at a time");
    assert_eq!(served.store.prune_audit(now, 100, now).await.unwrap(), 1, "the fifth line is younger than a year");
    assert_eq!(served.store.prune_audit(now, 100, now).await.unwrap(), 0);
    while served.store.seal_audit(100).await.unwrap() > 0 {}

    let pruned = Anchor { id: links[3].id, hash: links[3].seal.hash };
    let head: v1::AuditHead = serde_json::from_value(served.get("opal", "/audit/head").await.body).unwrap();
    assert_eq!((head.begins_after, head.sealed), (Some(pruned.to_string()), 8), "two lines tell of prunings");
    let told = lines(&served, "?action=prune_audit").await;
    assert_eq!((told[0].actor.as_str(), told[0].subjects.clone()), ("scheduler", vec![format!("audit:{}", pruned.id)]));
    let after = told[0].after.clone().unwrap();
    assert_eq!(after, json!({"lines": 1, "position": 4, "last": pruned.to_string()}));

    let whole = verified(&served, "").await;
    assert_eq!((whole.lines, whole.broken), (4, None));
    let anchored = async |anchor: Anchor| {
        let query = format!("?head={}", anchor.to_string().replace(':', "%3A"));
        verified(&served, &query).await.broken.map(|broken| broken.what)
    };
    assert_eq!(anchored(pruned).await, None, "the chain goes on from it");
    assert_eq!(anchored(Anchor { id: links[1].id, hash: links[1].seal.hash }).await.as_deref(), Some("pruned"));
    assert_eq!(exported(&served, "").await.lines().count(), 4);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.jsonl");
    std::fs::write(&file, exported(&served, "").await).unwrap();
    let found = verify_file(&file, None).unwrap();
    assert_eq!((found.rows, found.from_the_first, found.broken), (4, false, None));

    // Who removes lines and says that they were pruned is found out: no line tells of it.
    let forged = "UPDATE audit_start SET position = s.position, audit_id = s.audit_id, hash = s.hash FROM audit_seals s WHERE s.position = 6;
        DELETE FROM audit WHERE audit_id IN (SELECT audit_id FROM audit_seals WHERE position <= 6);
        DELETE FROM audit_seals WHERE position <= 6";
    tamper(&served, forged).await;
    let broken = verified(&served, "").await.broken.unwrap();
    assert_eq!((broken.id, &*broken.what), (links[5].id, "missing"));
}

#[tokio::test]
async fn no_line_is_pruned_that_is_young_or_changed_or_the_last() {
    let served = chained().await;
    let now = served.cluster.now();
    let mut connection = served.options.connect().await.unwrap();
    age(&served, 2, 366).await;
    let removed =
        sqlx::query_scalar::<_, i64>("SELECT prune_audit(6, now())").fetch_one(&mut connection).await.unwrap();
    assert_eq!(removed, 2, "whatever is asked for, younger lines stay");
    for forbidden in ["DELETE FROM audit", "DELETE FROM audit_seals", "UPDATE audit_seals SET sealed_at = now()"] {
        let refused = sqlx::query(forbidden).execute(&mut connection).await.unwrap_err();
        assert!(refused.to_string().contains("append-only"), "{forbidden}: {refused}");
    }
    // A young line cannot be given the seal of an old one: neither its moment nor the position of a pruned one.
    const SEAL: &str = "INSERT INTO audit_seals (position, audit_id, previous_hash, hash, sealed_at)
        SELECT $1, audit_id + 1000000, previous_hash, hash, '2000-01-01' FROM audit_seals ORDER BY position DESC LIMIT 1";
    let refused = sqlx::query(SEAL).bind(1_i64).execute(&mut connection).await.unwrap_err();
    assert!(refused.to_string().contains("the audit begins after position 1"), "{refused}");
    let mut forging = sqlx::Connection::begin(&mut connection).await.unwrap();
    sqlx::query(SEAL).bind(100_i64).execute(&mut *forging).await.unwrap();
    let dated = "SELECT sealed_at = now() FROM audit_seals WHERE position = 100";
    assert!(sqlx::query_scalar::<_, bool>(dated).fetch_one(&mut *forging).await.unwrap(), "by the database");
    forging.rollback().await.unwrap();
    // A role that may not add to the audit may not prune it. The role is gone with the transaction.
    let mut outsider = sqlx::Connection::begin(&mut connection).await.unwrap();
    for line in [
        "CREATE ROLE headway_nobody",
        "GRANT EXECUTE ON FUNCTION prune_audit TO headway_nobody",
        "SET LOCAL SESSION AUTHORIZATION headway_nobody",
    ] {
        sqlx::query(line).execute(&mut *outsider).await.unwrap();
    }
    let refused = sqlx::query("SELECT prune_audit(6, now())").execute(&mut *outsider).await.unwrap_err();
    assert!(refused.to_string().contains("only a role that adds to the audit"), "{refused}");
    outsider.rollback().await.unwrap();
    age(&served, 6, 366).await;
    tamper(
        &served,
        "UPDATE audit SET actor = 'user:eve' WHERE audit_id = (SELECT audit_id FROM audit_seals WHERE position = 5)",
    )
    .await;
    assert_eq!(
        served.store.prune_audit(now, 100, now).await.unwrap(),
        0,
        "the changed line and those around it are evidence"
    );
    assert_eq!(verified(&served, "").await.broken.unwrap().what, "changed");

    let served = chained().await;
    age(&served, 6, 366).await;
    assert_eq!(
        served.store.prune_audit(now + Seconds(1e9), 100, now).await.unwrap(),
        5,
        "the next line is sealed after the last"
    );
    while served.store.seal_audit(100).await.unwrap() > 0 {}
    let whole = verified(&served, "").await;
    assert_eq!((whole.lines, whole.broken), (2, None));
}

#[tokio::test]
async fn what_is_added_is_sealed_within_a_second_while_a_server_leads() {
    let served = Served::start().await;
    let stop = CancellationToken::new();
    tokio::spawn(sealer::run(served.cluster.clone(), stop.clone()));
    served.submit("ada", JOB, "1").await;
    let sealed = served.until("opal", "/audit/head", |answer| answer.body["sealed"] == 1).await;
    assert_eq!(sealed.body["unsealed"], 0);
    stop.cancel();
}
