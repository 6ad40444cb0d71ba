//! Table `join_tokens`: what admits nodes.

use headway_types::Timestamp;
use serde_json::json;
use uuid::Uuid;

use super::column::{moment, small, time};
use super::{AuditEntry, Store, StoreError, TokenHash, audit};
use crate::authority::IdentityKind;

/// A token to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJoinToken<'a> {
    pub kind: IdentityKind,
    /// Whom alone it admits, and again though it is known.
    pub name: Option<&'a str>,
    pub uses: u32,
    pub expires_at: Timestamp,
}

/// A token without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinToken {
    pub id: Uuid,
    pub kind: IdentityKind,
    pub name: Option<String>,
    pub uses_left: u32,
    pub created_by: String,
    pub expires_at: Timestamp,
}

impl Store {
    /// Stores a join token under this hash.
    pub async fn create_join_token(
        &self,
        new: &NewJoinToken<'_>,
        hash: &TokenHash,
        by: &str,
        now: Timestamp,
        deed: Option<AuditEntry>,
    ) -> Result<Uuid, StoreError> {
        self.insert_join_token(new, hash, by, now, deed).await.map_err(StoreError::during("creating a join token"))
    }

    async fn insert_join_token(
        &self,
        new: &NewJoinToken<'_>,
        hash: &TokenHash,
        by: &str,
        now: Timestamp,
        deed: Option<AuditEntry>,
    ) -> Result<Uuid, sqlx::Error> {
        let id = Uuid::now_v7();
        let mut tx = self.pool.begin().await?;
        // Those that open nothing any more: the audit knows of them.
        sqlx::query!("DELETE FROM join_tokens WHERE uses_left = 0 OR expires_at < $1", time(now))
            .execute(&mut *tx)
            .await?;
        sqlx::query!(
            "INSERT INTO join_tokens (join_token_id, secret_sha256, kind, name, uses_left, created_by, created_at, expires_at)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            id,
            &hash.bytes()[..],
            <&str>::from(new.kind),
            new.name,
            small(new.uses),
            by,
            time(now),
            time(new.expires_at),
        )
        .execute(&mut *tx)
        .await?;
        let after = json!({ "kind": <&str>::from(new.kind), "name": new.name, "uses": new.uses, "expires_at": time(new.expires_at) });
        let told = |deed| AuditEntry { subjects: vec![format!("join_token:{id}")], after: Some(after), ..deed };
        audit::insert(&mut tx, deed.map(told).as_slice()).await?;
        tx.commit().await?;
        Ok(id)
    }

    /// Those that still admit somebody, the newest first.
    pub async fn join_tokens(&self, now: Timestamp) -> Result<Vec<JoinToken>, StoreError> {
        let rows = sqlx::query!(
            "SELECT join_token_id, kind, name, uses_left, created_by, expires_at FROM join_tokens
            WHERE uses_left > 0 AND expires_at > $1 ORDER BY join_token_id DESC",
            time(now),
        );
        let rows = rows.fetch_all(&self.pool).await.map_err(StoreError::during("listing join tokens"))?;
        let mut tokens = Vec::new();
        for row in rows {
            let Ok(kind) = row.kind.parse() else { continue };
            tokens.push(JoinToken {
                id: row.join_token_id,
                kind,
                name: row.name,
                uses_left: u32::try_from(row.uses_left).unwrap_or(0),
                created_by: row.created_by,
                expires_at: moment(row.expires_at),
            });
        }
        Ok(tokens)
    }

    /// False if there is none.
    pub async fn revoke_join_token(&self, id: Uuid, deed: Option<AuditEntry>) -> Result<bool, StoreError> {
        let failed = || StoreError::during("revoking a join token");
        let mut tx = self.pool.begin().await.map_err(failed())?;
        let gone = sqlx::query!("DELETE FROM join_tokens WHERE join_token_id = $1", id).execute(&mut *tx);
        if gone.await.map_err(failed())?.rows_affected() == 0 {
            return Ok(false);
        }
        let told = |deed| AuditEntry { subjects: vec![format!("join_token:{id}")], ..deed };
        audit::insert(&mut tx, deed.map(told).as_slice()).await.map_err(failed())?;
        tx.commit().await.map_err(failed())?;
        Ok(true)
    }
}
