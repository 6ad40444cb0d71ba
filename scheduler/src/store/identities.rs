//! Table `node_identities`: who nodes are by certificate, and how they are admitted (by tokens, `join_tokens.rs`).
//!
//! A certificate is believed unless its identity was revoked or joined again since: a database that was restored from a backup may not know of
//! those that were made after it, and the nodes that have them must not be lost with it.

use std::collections::BTreeMap;

use headway_types::{Seconds, Timestamp};
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use super::column::{integer, moment, text, time, unsigned};
use super::{AuditEntry, Store, StoreError, TokenHash, audit};
use crate::authority::{IdentityKind, Named};

/// A revoked identity is kept for this many lives of a certificate: by then nothing that was signed before can be valid, whatever a restored
/// database knew of it. What has expired opens nothing, and a node that joins again has a later epoch, which is the time of the day.
const REVOKED_KEPT: f64 = 2.0;
/// A life is no shorter than usual for that: those that are signed now may end with their authority.
const USUAL_LIFE: Seconds = Seconds(90.0 * 86_400.0);

/// One that has joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub named: Named,
    /// The fingerprint of who signed its newest certificate.
    pub authority: String,
    pub issued_at: Timestamp,
    pub expires_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
}

/// Why a node was not admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinRefusal {
    #[error("the join token is used up, has expired or was revoked; make another with `headway node token create`")]
    NoToken,
    #[error("the join token is for {0}")]
    OtherName(String),
    #[error("the join token is for a {0}")]
    OtherKind(IdentityKind),
    #[error(
        "{0} is known here; to give it a new certificate make a token for it: `headway node token create --node {0}`"
    )]
    Known(String),
    #[error(
        "the name {name} is {holder}'s; give the node another, delete that one (`headway node delete {name}`), or make a token for this name: \
         `headway node token create --node {name}`"
    )]
    NameTaken { name: String, holder: Uuid },
    #[error("this node is known here as {0}: a node keeps its name, or is deleted first (`headway node delete {0}`)")]
    Renamed(String),
}

/// Certificates that nobody has renewed though it was time to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    pub all: usize,
    /// Of the first that ends.
    pub first: Timestamp,
    /// Of some of them, by name.
    pub names: Vec<String>,
}

/// What is known of whoever says that it is this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// The name that the id has a certificate for, revoked or not, and how often it has joined by what is known.
    pub certified: Option<(String, u64)>,
    /// Whose certificate names the name.
    pub name_holder: Option<Uuid>,
    /// What the id is called that has registered.
    pub registered: Option<String>,
}

struct Row {
    identity_id: Uuid,
    kind: String,
    name: String,
    epoch: i64,
    authority: String,
    issued_at: chrono::DateTime<chrono::Utc>,
    expires_at: chrono::DateTime<chrono::Utc>,
    revoked_at: Option<chrono::DateTime<chrono::Utc>>,
}

impl Row {
    fn identity(self) -> Option<Identity> {
        let kind = self.kind.parse().ok()?;
        Some(Identity {
            named: Named { kind, id: self.identity_id, name: self.name, epoch: unsigned(self.epoch) },
            authority: self.authority,
            issued_at: moment(self.issued_at),
            expires_at: moment(self.expires_at),
            revoked_at: self.revoked_at.map(moment),
        })
    }
}

impl Store {
    /// Admits a node once by its token, and takes from whoever had its id or its name what they had. `until`: of the certificate that is signed
    /// next. `deed`: what the audit is told.
    pub async fn join(
        &self,
        hash: &TokenHash,
        asks: &Named,
        (authority, now, until): (&str, Timestamp, Timestamp),
        deed: AuditEntry,
    ) -> Result<Result<Named, JoinRefusal>, StoreError> {
        let asked = (authority, now, until);
        self.admit(hash, asks, asked, deed).await.map_err(StoreError::during("admitting a node"))
    }

    async fn admit(
        &self,
        hash: &TokenHash,
        asks: &Named,
        (authority, now, until): (&str, Timestamp, Timestamp),
        deed: AuditEntry,
    ) -> Result<Result<Named, JoinRefusal>, sqlx::Error> {
        let mut tx = self.pool.begin().await?;
        // Locked: of two that bring one token, the later finds it used.
        let token = sqlx::query!(
            "SELECT join_token_id, kind, name FROM join_tokens
            WHERE secret_sha256 = $1 AND uses_left > 0 AND expires_at > $2 FOR UPDATE",
            &hash.bytes()[..],
            time(now),
        );
        let Some(token) = token.fetch_optional(&mut *tx).await? else { return Ok(Err(JoinRefusal::NoToken)) };
        match token.kind.parse::<IdentityKind>() {
            Ok(kind) if kind == asks.kind => {}
            Ok(kind) => return Ok(Err(JoinRefusal::OtherKind(kind))),
            Err(_) => return Ok(Err(JoinRefusal::NoToken)),
        }
        if let Some(name) = token.name.clone().filter(|name| *name != asks.name) {
            return Ok(Err(JoinRefusal::OtherName(name)));
        }
        if let Some(refusal) = stands_against(&mut tx, asks, token.name.is_some()).await? {
            return Ok(Err(refusal));
        }
        sqlx::query!("UPDATE join_tokens SET uses_left = uses_left - 1 WHERE join_token_id = $1", token.join_token_id)
            .execute(&mut *tx)
            .await?;
        sqlx::query!(
            "DELETE FROM node_identities WHERE revoked_at < $1 AND expires_at < $2 AND identity_id <> $3",
            time(now - Seconds(until.since(now).0.max(USUAL_LIFE.0) * REVOKED_KEPT)),
            time(now),
            asks.id,
        )
        .execute(&mut *tx)
        .await?;
        // Whoever had the name has it no more: a token for the name says so.
        let replaced = sqlx::query_scalar!(
            "UPDATE node_identities SET revoked_at = $3
            WHERE name = $1 AND identity_id <> $2 AND revoked_at IS NULL RETURNING identity_id",
            asks.name,
            asks.id,
            time(now),
        );
        let replaced = replaced.fetch_optional(&mut *tx).await?;
        let epoch = sqlx::query_scalar!(
            "INSERT INTO node_identities AS known (identity_id, kind, name, epoch, authority, issued_at, expires_at)
            VALUES ($1, $2, $3, $4, $5, $6, $7)
            ON CONFLICT (identity_id) DO UPDATE SET kind = excluded.kind, name = excluded.name, epoch = greatest(known.epoch + 1, excluded.epoch),
                authority = excluded.authority, issued_at = excluded.issued_at, expires_at = excluded.expires_at, revoked_at = NULL
            RETURNING epoch",
            asks.id,
            <&str>::from(asks.kind),
            asks.name,
            // Beyond all that a restored database may have forgotten.
            now.0 / 1_000_000,
            authority,
            time(now),
            time(until),
        );
        let epoch = unsigned(epoch.fetch_one(&mut *tx).await?);
        let entry = AuditEntry {
            subjects: vec![format!("{}:{}", asks.kind, asks.id), format!("join_token:{}", token.join_token_id)],
            after: Some(json!({ "name": asks.name, "epoch": epoch, "expires_at": time(until), "replaces": replaced })),
            ..deed
        };
        audit::insert(&mut tx, &[entry]).await?;
        tx.commit().await?;
        Ok(Ok(Named { epoch, ..asks.clone() }))
    }

    /// That a certificate was signed anew, or that one is in use of which a restored database does not know.
    pub async fn note_certificate(
        &self,
        named: &Named,
        authority: Option<&str>,
        issued_at: Timestamp,
        expires_at: Timestamp,
    ) -> Result<(), StoreError> {
        sqlx::query!(
            "INSERT INTO node_identities AS known (identity_id, kind, name, epoch, authority, issued_at, expires_at)
            VALUES ($1, $2, $3, $4, coalesce($5, ''), $6, $7)
            ON CONFLICT (identity_id) DO UPDATE SET epoch = excluded.epoch, name = excluded.name,
                authority = coalesce($5, known.authority), issued_at = excluded.issued_at, expires_at = excluded.expires_at
            WHERE known.epoch <= excluded.epoch AND known.revoked_at IS NULL",
            named.id,
            <&str>::from(named.kind),
            named.name,
            integer(named.epoch),
            authority,
            time(issued_at),
            time(expires_at),
        )
        .execute(&self.pool)
        .await
        .map(drop)
        .map_err(StoreError::during("noting a certificate"))
    }

    /// The identities of these ids, in their order.
    pub async fn identities_of(&self, ids: &[Uuid]) -> Result<Vec<Option<Identity>>, StoreError> {
        let rows = sqlx::query_as!(
            Row,
            "SELECT identity_id, kind, name, epoch, authority, issued_at, expires_at, revoked_at
            FROM node_identities WHERE identity_id = ANY($1)",
            ids,
        );
        let rows = rows.fetch_all(&self.pool).await.map_err(StoreError::during("looking up certificates"))?;
        let known: BTreeMap<Uuid, Identity> =
            rows.into_iter().filter_map(Row::identity).map(|one| (one.named.id, one)).collect();
        Ok(ids.iter().map(|id| known.get(id).cloned()).collect())
    }

    /// All that have joined, by name.
    pub async fn identities(&self) -> Result<Vec<Identity>, StoreError> {
        let rows = sqlx::query_as!(
            Row,
            "SELECT identity_id, kind, name, epoch, authority, issued_at, expires_at, revoked_at
            FROM node_identities ORDER BY name, identity_id",
        );
        let rows = rows.fetch_all(&self.pool).await.map_err(StoreError::during("reading certificates"))?;
        Ok(rows.into_iter().filter_map(Row::identity).collect())
    }

    /// Those that have less than this share of their time left, and the names of so many.
    pub async fn certificates_ending(
        &self,
        now: Timestamp,
        share: f64,
        most: u32,
    ) -> Result<Option<Ending>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT name, count(*) OVER () AS "all!", min(expires_at) OVER () AS "first!" FROM node_identities
            WHERE revoked_at IS NULL AND expires_at - $1::timestamptz < (expires_at - issued_at) * $2::float8
            ORDER BY name LIMIT $3"#,
            time(now),
            share,
            i64::from(most),
        );
        let rows = rows.fetch_all(&self.pool).await.map_err(StoreError::during("reading certificates"))?;
        Ok(rows.first().map(|row| (row.all, row.first)).map(|(all, first)| Ending {
            all: usize::try_from(all).unwrap_or(usize::MAX),
            first: moment(first),
            names: rows.into_iter().map(|row| row.name).collect(),
        }))
    }

    /// How often each has joined; none of one that was revoked.
    pub async fn epochs(&self) -> Result<BTreeMap<Uuid, Option<u64>>, StoreError> {
        let rows = sqlx::query!(
            "SELECT identity_id, CASE WHEN revoked_at IS NULL THEN epoch END AS epoch FROM node_identities"
        );
        let rows = rows.fetch_all(&self.pool).await.map_err(StoreError::during("reading certificates"))?;
        Ok(rows.into_iter().map(|row| (row.identity_id, row.epoch.map(unsigned))).collect())
    }

    /// How many have a certificate, and when the first of those ends.
    pub async fn certificates_held(&self) -> Result<(usize, Option<Timestamp>), StoreError> {
        let row = sqlx::query!(
            r#"SELECT count(*) AS "count!", min(expires_at) AS first FROM node_identities WHERE revoked_at IS NULL"#
        );
        let row = row.fetch_one(&self.pool).await.map_err(StoreError::during("counting certificates"))?;
        Ok((usize::try_from(row.count).unwrap_or(usize::MAX), row.first.map(moment)))
    }

    /// What is known of those who say that they are these nodes, by id and name, in their order.
    pub async fn claims(&self, nodes: &[(Uuid, String)]) -> Result<Vec<Claims>, StoreError> {
        let ids: Vec<Uuid> = nodes.iter().map(|(id, _)| *id).collect();
        let names: Vec<String> = nodes.iter().map(|(_, name)| text(name)).collect();
        let rows = sqlx::query!(
            "SELECT (SELECT name FROM node_identities WHERE identity_id = asked.id) AS certified,
                (SELECT epoch FROM node_identities WHERE identity_id = asked.id) AS epoch,
                (SELECT identity_id FROM node_identities WHERE node_identities.name = asked.name AND revoked_at IS NULL)
                    AS name_holder,
                (SELECT name FROM nodes WHERE node_id = asked.id) AS registered
            FROM UNNEST($1::uuid[], $2::text[]) WITH ORDINALITY AS asked (id, name, place) ORDER BY place",
            &ids,
            &names,
        );
        let rows = rows.fetch_all(&self.pool).await.map_err(StoreError::during("looking up nodes' certificates"))?;
        let claims = rows.into_iter().map(|row| Claims {
            certified: row.certified.zip(row.epoch.map(unsigned)),
            name_holder: row.name_holder,
            registered: row.registered,
        });
        Ok(claims.collect())
    }

    /// Its certificates open nothing from now on. False if there are none that do.
    pub async fn revoke_identity(
        &self,
        id: Uuid,
        now: Timestamp,
        deed: Option<AuditEntry>,
    ) -> Result<bool, StoreError> {
        self.revoke_certificates(id, now, deed).await.map_err(StoreError::during("revoking a certificate"))
    }

    async fn revoke_certificates(
        &self,
        id: Uuid,
        now: Timestamp,
        deed: Option<AuditEntry>,
    ) -> Result<bool, sqlx::Error> {
        let mut tx = self.pool.begin().await?;
        let gone = sqlx::query!(
            "UPDATE node_identities SET revoked_at = $2 WHERE identity_id = $1 AND revoked_at IS NULL RETURNING kind, name",
            id,
            time(now),
        );
        let Some(gone) = gone.fetch_optional(&mut *tx).await? else { return Ok(false) };
        let told = |deed| AuditEntry {
            subjects: vec![format!("{}:{id}", gone.kind)],
            before: Some(json!({ "name": gone.name, "certificate": "valid" })),
            after: Some(json!({ "name": gone.name, "certificate": "revoked" })),
            ..deed
        };
        audit::insert(&mut tx, deed.map(told).as_slice()).await?;
        tx.commit().await?;
        Ok(true)
    }
}

/// What forbids that this one joins. `bound`: the token is for this very name, so that an operator has said whose it is to be.
async fn stands_against(
    connection: &mut PgConnection,
    asks: &Named,
    bound: bool,
) -> Result<Option<JoinRefusal>, sqlx::Error> {
    let row = sqlx::query!(
        r#"SELECT (SELECT name FROM node_identities WHERE identity_id = $1) AS certified,
            (SELECT revoked_at IS NULL FROM node_identities WHERE identity_id = $1) AS holds,
            (SELECT name FROM nodes WHERE node_id = $1) AS registered,
            coalesce((SELECT identity_id FROM node_identities WHERE name = $2 AND identity_id <> $1 AND revoked_at IS NULL),
                (SELECT node_id FROM nodes WHERE name = $2 AND node_id <> $1 LIMIT 1)) AS named,
            -- A fleet speaks for all names that begin with its own and a hyphen: of nobody who has joined, and of nodes that have not only by a token for it.
            (SELECT identity_id FROM node_identities WHERE revoked_at IS NULL AND identity_id <> $1 AND (
                $3 = 'fleet' AND starts_with(name, $2 || '-') OR kind = 'fleet' AND starts_with($2, name || '-')) LIMIT 1) AS overlaps,
            (SELECT node_id FROM nodes WHERE $3 = 'fleet' AND starts_with(name, $2 || '-') LIMIT 1) AS spoken_for"#,
        asks.id,
        asks.name,
        <&str>::from(asks.kind),
    );
    let row = row.fetch_one(connection).await?;
    if let Some(registered) = row.registered.clone().filter(|name| *name != asks.name) {
        return Ok(Some(JoinRefusal::Renamed(registered)));
    }
    if let Some(holder) = row.overlaps.or(row.named.or(row.spoken_for).filter(|_| !bound)) {
        return Ok(Some(JoinRefusal::NameTaken { name: asks.name.clone(), holder }));
    }
    let known = row.certified.filter(|_| row.holds == Some(true) || row.registered.is_some());
    Ok(known.filter(|_| !bound).map(|_| JoinRefusal::Known(asks.name.clone())))
}

#[cfg(test)]
impl Store {
    /// As a restored backup does.
    pub async fn forget_identities(&self) {
        sqlx::query("DELETE FROM node_identities").execute(&self.pool).await.map(drop).expect("the table is there");
    }
}

#[cfg(test)]
mod tests;
