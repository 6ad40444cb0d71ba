//! Table `tokens`: who may do what. Secrets are never stored.

use headway_types::{Timestamp, TokenScope};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::column::{moment, time};
use super::{Store, StoreError};

/// A bearer token without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub id: Uuid,
    pub name: String,
    pub scope: TokenScope,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
}

/// What came of revoking a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revocation {
    Done,
    /// There is none, or it was revoked before.
    Unknown,
    /// No other admin's token lasts as long, so it was left.
    LastAdmin,
}

/// SHA-256 of a token's secret. Secrets are random and long, so a plain hash is enough.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    #[must_use]
    pub fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret.as_bytes()).into())
    }
}

impl Store {
    /// Stores a new token under this hash.
    pub async fn create_token(
        &self,
        name: &str,
        scope: TokenScope,
        hash: &TokenHash,
        now: Timestamp,
        expires_at: Option<Timestamp>,
    ) -> Result<Token, StoreError> {
        let token = Token { id: Uuid::now_v7(), name: name.to_owned(), scope, created_at: now, expires_at };
        sqlx::query!(
            "INSERT INTO tokens (token_id, name, scope, secret_sha256, created_at, expires_at)
            VALUES ($1, $2, $3, $4, $5, $6)",
            token.id,
            token.name,
            <&str>::from(scope),
            &hash.0[..],
            time(now),
            expires_at.map(time),
        )
        .execute(&self.pool)
        .await
        .map_err(StoreError::during("creating a token"))?;
        self.unknown_tokens.forget(hash);
        Ok(token)
    }

    /// Makes this secret open this scope: for the tokens `headway up` and configuration files bring. False if it was
    /// revoked, which it stays.
    pub async fn ensure_token(
        &self,
        name: &str,
        scope: TokenScope,
        secret: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let hash = TokenHash::of(secret);
        let row = sqlx::query!(
            r#"INSERT INTO tokens (token_id, name, scope, secret_sha256, created_at) VALUES ($1, $2, $3, $4, $5)
            ON CONFLICT (secret_sha256) DO UPDATE SET name = excluded.name, scope = excluded.scope
            RETURNING revoked_at IS NULL AS "opens!""#,
            Uuid::now_v7(),
            name,
            <&str>::from(scope),
            &hash.0[..],
            time(now),
        )
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::during("ensuring a token"))?;
        self.unknown_tokens.forget(&hash);
        Ok(row.opens)
    }

    /// The token with this hash, unless it has expired or was revoked. One that was unknown a moment ago is not looked
    /// up again.
    pub async fn find_token(&self, hash: &TokenHash, now: Timestamp) -> Result<Option<Token>, StoreError> {
        if self.unknown_tokens.has(hash, now) {
            return Ok(None);
        }
        let row = sqlx::query!(
            "SELECT token_id, name, scope, created_at, expires_at FROM tokens
            WHERE secret_sha256 = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)",
            &hash.0[..],
            time(now),
        )
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::during("looking up a token"))?;
        if row.is_none() {
            self.unknown_tokens.remember(hash, now);
        }
        Ok(row.and_then(|row| {
            Some(Token {
                id: row.token_id,
                name: row.name,
                scope: row.scope.parse().ok()?,
                created_at: moment(row.created_at),
                expires_at: row.expires_at.map(moment),
            })
        }))
    }

    /// Tokens that have not been revoked, newest first.
    pub async fn tokens(&self) -> Result<Vec<Token>, StoreError> {
        let rows = sqlx::query!(
            "SELECT token_id, name, scope, created_at, expires_at FROM tokens
            WHERE revoked_at IS NULL ORDER BY token_id DESC"
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("listing tokens"))?;
        Ok(rows
            .into_iter()
            .filter_map(|row| {
                Some(Token {
                    id: row.token_id,
                    name: row.name,
                    scope: row.scope.parse().ok()?,
                    created_at: moment(row.created_at),
                    expires_at: row.expires_at.map(moment),
                })
            })
            .collect())
    }

    /// Revokes a token at once, unless the cluster would then be without an admin sooner than otherwise.
    pub async fn revoke_token(&self, token: Uuid, now: Timestamp) -> Result<Revocation, StoreError> {
        self.revoke(token, now).await.map_err(StoreError::during("revoking a token"))
    }

    async fn revoke(&self, token: Uuid, now: Timestamp) -> Result<Revocation, sqlx::Error> {
        let mut tx = self.pool.begin().await?;
        // Locked in one order: of two that are revoked at once, the later sees that the earlier is gone.
        let admins = sqlx::query!(
            "SELECT token_id, expires_at FROM tokens
            WHERE scope = 'admin' AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1)
            ORDER BY token_id FOR UPDATE",
            time(now),
        )
        .fetch_all(&mut *tx)
        .await?;
        if let Some(own) = admins.iter().find(|admin| admin.token_id == token) {
            let outlasts = |end: Option<_>| end.is_none() || own.expires_at.is_some_and(|own| end >= Some(own));
            if !admins.iter().any(|other| other.token_id != token && outlasts(other.expires_at)) {
                return Ok(Revocation::LastAdmin);
            }
        }
        let done = sqlx::query!(
            "UPDATE tokens SET revoked_at = $2 WHERE token_id = $1 AND revoked_at IS NULL",
            token,
            time(now),
        )
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(if done.rows_affected() == 1 { Revocation::Done } else { Revocation::Unknown })
    }
}
