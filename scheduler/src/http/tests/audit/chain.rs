//! The chain of the audit: what verification finds, what is exported, and what is pruned.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use headway_types::{Seconds, Timestamp};
use sqlx::{AssertSqlSafe, ConnectOptions};

use super::*;
use crate::audit::{Anchor, sealer, verify_file};

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

/// Adds sealed lines with these times, in hours of a day, in this order.
async fn seal_at(served: &Served, hours: &[i32]) {
    let mut connection = served.options.connect().await.unwrap();
    let many = "INSERT INTO audit (done_at, actor, action, subjects, result)
        SELECT '2026-12-01T00:00:00Z'::timestamptz + hour * interval '1 hour', 'user:ada', 'x', '{}', 'done'
        FROM unnest($1::int[]) WITH ORDINALITY AS hours (hour, place) ORDER BY place";
    sqlx::query(many).bind(hours).execute(&mut connection).await.unwrap();
    while served.store.seal_audit(500).await.unwrap() > 0 {}
}

/// A server's clock may be wrong, and a line committed late: by halves such a moment was not found.
#[tokio::test]
async fn moments_are_found_in_a_chain_whose_times_are_not_in_order() {
    let served = chained().await;
    seal_at(&served, &[5, 1, 1, 1, 9, 2, 2, 2]).await;
    let lines_since = async |hour: &str| verified(&served, &format!("?since=2026-12-01T{hour}:00:00Z")).await.lines;
    assert_eq!(lines_since("05").await, 8, "from the first line of that moment on");
    assert_eq!(lines_since("06").await, 4);
    assert_eq!(lines_since("10").await, 0);
    let export = "?since=2026-12-01T01:00:00Z&until=2026-12-01T02:00:00Z";
    assert_eq!(exported(&served, export).await.lines().count(), 4, "up to the last line of before");
    let export = "?since=2026-12-01T01:00:00Z&until=2026-12-01T03:00:00Z";
    assert_eq!(exported(&served, export).await.lines().count(), 8);

    // The line of hour 5 may not be pruned yet, and what stands behind it waits for it.
    age(&served, 14, 366).await;
    let hour = |hour: i64| Timestamp(1_796_083_200_000_000 + hour * 3_600_000_000);
    let now = hour(24);
    assert_eq!(served.store.prune_audit(hour(3), 100, now).await.unwrap(), 6);
    assert_eq!(served.store.prune_audit(hour(3), 100, now).await.unwrap(), 0);
    assert_eq!(served.store.prune_audit(hour(6), 100, now).await.unwrap(), 4);
}

/// Ranges of a thousand positions are searched, and find what a look at every line finds.
#[tokio::test]
async fn moments_are_found_by_ranges_as_they_are_by_every_line() {
    let served = chained().await;
    // Mostly in order; one line of hour 250 comes early, and one of hour 3 late.
    let mut hours: Vec<i32> = (0..2_600).map(|place| place / 10 + place * 7_919 % 23 - 11).collect();
    (hours[40], hours[2_400]) = (250, 3);
    seal_at(&served, &hours).await;
    let mut connection = served.options.connect().await.unwrap();
    for pruned in [0, 1_500] {
        if pruned > 0 {
            age(&served, pruned, 366).await;
            let now = Timestamp(1_830_000_000_000_000);
            assert_eq!(served.store.prune_audit(now, 1_500, now).await.unwrap(), pruned);
        }
        for hour in (-12..275).step_by(3) {
            let at = Timestamp(1_796_083_200_000_000 + i64::from(hour) * 3_600_000_000);
            let by_every_line = "SELECT COALESCE(min(s.position) FILTER (WHERE a.done_at >= at), max(s.position) + 1),
                    COALESCE(max(s.position) FILTER (WHERE a.done_at < at), 0)
                FROM audit a JOIN audit_seals s USING (audit_id),
                    (SELECT '2026-12-01T00:00:00Z'::timestamptz + $1 * interval '1 hour' AS at) moment GROUP BY at";
            let (first, last): (i64, i64) =
                sqlx::query_as(by_every_line).bind(hour).fetch_one(&mut connection).await.unwrap();
            let before = served.store.audit_position_before(at).await.unwrap();
            let is_pruned = first == i64::try_from(pruned).unwrap() + 1;
            let expected = if is_pruned { 0 } else { first - 1 };
            assert_eq!(before, u64::try_from(expected).unwrap(), "hour {hour}, {pruned} pruned");
            let found = served.store.last_audit_position_before(at, 0).await.unwrap();
            assert_eq!(found, u64::try_from(last).unwrap(), "hour {hour}, {pruned} pruned");
        }
    }
    let ranges = "SELECT array_agg(range_id ORDER BY range_id) FROM audit_time_ranges";
    let ranges: Vec<i64> = sqlx::query_scalar(ranges).fetch_one(&mut connection).await.unwrap();
    assert_eq!(ranges, [1, 2], "those of pruned lines are gone");
}

/// Whoever changes the ranges would else have a verification from a moment on begin after the lines that he changed.
#[tokio::test]
async fn changed_ranges_hide_no_line_of_a_moment() {
    let served = chained().await;
    seal_at(&served, &[1, 2, 3]).await;
    let changed =
        "UPDATE audit SET actor = 'user:eve' WHERE audit_id = (SELECT audit_id FROM audit_seals WHERE position = 8);
        UPDATE audit_time_ranges SET latest = earliest";
    tamper(&served, changed).await;
    assert_eq!(verified(&served, "?since=2026-12-01T02:00:00Z").await.broken.unwrap().what, "changed");
}

/// Else a removal of the first line of a moment would not show in what is verified from then on.
#[tokio::test]
async fn lines_that_are_gone_where_a_moment_begins_are_verified_with_it() {
    let served = chained().await;
    seal_at(&served, &[1, 2, 3]).await;
    tamper(&served, "DELETE FROM audit WHERE audit_id = (SELECT audit_id FROM audit_seals WHERE position = 8)").await;
    assert_eq!(verified(&served, "?since=2026-12-01T02:00:00Z").await.broken.unwrap().what, "missing");
    assert_eq!(verified(&served, "?since=2026-12-01T03:00:00Z").await.broken.unwrap().what, "missing");
    tamper(&served, "DELETE FROM audit WHERE audit_id = (SELECT audit_id FROM audit_seals WHERE position = 9)").await;
    assert_eq!(verified(&served, "?since=2026-12-01T03:00:00Z").await.broken.unwrap().what, "missing");
}

#[tokio::test]
async fn an_export_whose_next_lines_were_pruned_breaks_off() {
    let served = chained().await;
    seal_at(&served, &[1; 1_200]).await;
    age(&served, 1_206, 366).await;
    let request = asked(Method::GET, "opal", "/audit/export").body(Body::empty()).unwrap();
    let mut pieces = served.router.clone().oneshot(request).await.unwrap().into_body().into_data_stream();
    let mut first = Vec::new();
    while first.is_empty() {
        first = pieces.next().await.unwrap().unwrap().to_vec();
    }
    assert_eq!(String::from_utf8(first).unwrap().lines().count(), 500);
    let now = Timestamp(1_796_169_600_000_000);
    // What was read may go.
    assert_eq!(served.store.prune_audit(now, 500, now).await.unwrap(), 500);
    assert_eq!(pieces.next().await.unwrap().unwrap().iter().filter(|byte| **byte == b'\n').count(), 500);
    assert_eq!(served.store.prune_audit(now, 600, now).await.unwrap(), 600);
    let broken = pieces.next().await.unwrap().unwrap_err();
    assert!(broken.to_string().contains("begin anew"), "{broken}");
    assert!(pieces.next().await.is_none());
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
    assert_eq!(anchored(Anchor { id: links[1].id, hash: links[1].seal.hash }).await.as_deref(), Some("unknown"));
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
