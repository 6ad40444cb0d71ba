#![allow(clippy::unwrap_used)]
use super::*;
use crate::store::{AuditResult, NewJoinToken};
use crate::support::{START, TestDatabase};

const DAY: f64 = 86_400.0;

fn day(number: f64) -> Timestamp {
    START + Seconds(number * DAY)
}

async fn join(store: &Store, number: u128, name: &str, at: Timestamp) {
    let hash = TokenHash::of(&format!("{number:064x}"));
    let new = NewJoinToken { kind: IdentityKind::Node, name: Some(name), uses: 1, expires_at: at + Seconds(60.0) };
    store.create_join_token(&new, &hash, "ada", at, None).await.unwrap();
    let asks = Named { kind: IdentityKind::Node, id: Uuid::from_u128(number), name: name.into(), epoch: 0 };
    let deed = AuditEntry {
        done_at: at,
        actor: "node:n".into(),
        token_id: None,
        address: None,
        action: "join_node".into(),
        subjects: Vec::new(),
        reason: None,
        before: None,
        after: None,
        request_id: None,
        result: AuditResult::Done,
        code: None,
    };
    store.join(&hash, &asks, ("x", at, at + Seconds(90.0 * DAY)), deed).await.unwrap().unwrap();
}

async fn names(store: &Store) -> Vec<String> {
    store.identities().await.unwrap().into_iter().map(|one| one.named.name).collect()
}

#[tokio::test]
async fn what_was_revoked_is_forgotten_once_nothing_of_it_can_be_valid() {
    let database = TestDatabase::create().await;
    let store = database.store().await;
    join(&store, 1, "revoked", day(0.0)).await;
    join(&store, 2, "silent", day(0.0)).await;
    assert!(store.revoke_identity(Uuid::from_u128(1), day(1.0), None).await.unwrap());
    join(&store, 3, "third", day(180.0)).await;
    assert_eq!(names(&store).await, ["revoked", "silent", "third"]);
    join(&store, 4, "fourth", day(182.0)).await;
    assert_eq!(names(&store).await, ["fourth", "silent", "third"], "what nobody has revoked keeps its name");
    // Whoever comes back has a later epoch than any before.
    let epoch = async |id| store.identities_of(&[Uuid::from_u128(id)]).await.unwrap().remove(0).unwrap().named.epoch;
    join(&store, 1, "revoked", day(183.0)).await;
    assert!(epoch(1).await > epoch(4).await);
}

#[tokio::test]
async fn certificates_that_nobody_renews_are_told_by_the_names_of_some() {
    let database = TestDatabase::create().await;
    let store = database.store().await;
    for (number, name) in [(1, "a"), (2, "b"), (3, "c")] {
        join(&store, number, name, day(number as f64)).await;
    }
    join(&store, 4, "d", day(60.0)).await;
    assert!(store.revoke_identity(Uuid::from_u128(1), day(60.0), None).await.unwrap());
    assert_eq!(store.certificates_ending(day(60.0), 0.25, 1).await.unwrap(), None);
    let ending = store.certificates_ending(day(80.0), 0.25, 1).await.unwrap();
    assert_eq!(ending, Some(Ending { all: 2, first: day(92.0), names: vec!["b".into()] }));
}
