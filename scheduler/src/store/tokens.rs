//! Table `tokens`: who may do what. Secrets are never stored.

use std::collections::BTreeSet;

use headway_types::{Timestamp, TokenScope};
use serde_json::json;
use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use uuid::Uuid;

use super::column::{moment, text, time};
use super::{AuditEntry, Page, Store, StoreError, audit, browser_sessions, users};

/// A bearer token without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub id: Uuid,
    /// A label; it lends no identity.
    pub name: String,
    /// Whose it is; nobody's that is an agent's.
    pub user: Option<String>,
    /// What it opens: never more than its user's role.
    pub scope: TokenScope,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// Whose login it came of.
    pub identity: Option<Uuid>,
}

/// A token to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewToken<'a> {
    pub name: &'a str,
    /// `None`: an agent's.
    pub user: Option<&'a str>,
    pub scope: TokenScope,
    pub expires_at: Option<Timestamp>,
    /// Whose login it comes of: it ends when they may not log in any more.
    pub identity: Option<Uuid>,
    /// Nobody has its secret: it is a browser session's, and ends with it.
    pub of_session: bool,
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

    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// A token, and whose it is, as the audit calls them.
fn subjects(token: Uuid, user: Option<&str>) -> Vec<String> {
    [format!("token:{token}")].into_iter().chain(user.map(|user| format!("user:{user}"))).collect()
}

/// A row as it is read, with its user's role.
struct Row {
    token_id: Uuid,
    name: String,
    user_name: Option<String>,
    scope: String,
    role: Option<String>,
    created_at: chrono::DateTime<chrono::Utc>,
    expires_at: Option<chrono::DateTime<chrono::Utc>>,
    identity_id: Option<Uuid>,
}

impl Row {
    /// `None` where it opens nothing: it is no agent's and has no user, or says what this release does not know.
    fn token(self) -> Option<Token> {
        let scope: TokenScope = self.scope.parse().ok()?;
        let scope = match &self.role {
            Some(role) => scope.min(role.parse().ok()?),
            None if scope == TokenScope::Agent => scope,
            None => return None,
        };
        Some(Token {
            id: self.token_id,
            name: self.name,
            user: self.user_name,
            scope,
            created_at: moment(self.created_at),
            expires_at: self.expires_at.map(moment),
            identity: self.identity_id,
        })
    }
}

/// A token that opens everything.
pub(super) struct Admin {
    pub token_id: Uuid,
    pub user: Option<String>,
    pub expires_at: Option<chrono::DateTime<chrono::Utc>>,
}

/// Locked in one order: of two changes that take an admin's rights at once, the later sees what the earlier has done. What came of a login
/// does not count: it ends with a group, or while the provider is away.
pub(super) async fn lock_admins(connection: &mut PgConnection, now: Timestamp) -> Result<Vec<Admin>, sqlx::Error> {
    sqlx::query_as!(
        Admin,
        "SELECT token_id, user_name AS user, expires_at FROM tokens JOIN users ON users.name = user_name
        WHERE scope = 'admin' AND role = 'admin' AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1)
            AND identity_id IS NULL
        ORDER BY token_id FOR NO KEY UPDATE",
        time(now),
    )
    .fetch_all(connection)
    .await
}

/// How many tokens of a user open something. The user is locked: of two that are made at once, the later counts the earlier.
async fn living(connection: &mut PgConnection, user: &str, now: Timestamp) -> Result<i64, sqlx::Error> {
    sqlx::query!("SELECT name FROM users WHERE name = $1 FOR NO KEY UPDATE", user)
        .fetch_optional(&mut *connection)
        .await?;
    sqlx::query_scalar!(
        r#"SELECT count(*) AS "living!" FROM tokens
        WHERE user_name = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2) AND NOT of_session"#,
        user,
        time(now),
    )
    .fetch_one(connection)
    .await
}

impl core::fmt::Display for TokenHash {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl Store {
    /// Stores a new token under this hash; its user is made if need be, with the token's scope as role.
    pub async fn create_token(
        &self,
        new: &NewToken<'_>,
        hash: &TokenHash,
        now: Timestamp,
        deed: Option<AuditEntry>,
    ) -> Result<Token, StoreError> {
        let token =
            self.create(new, hash, now, deed, i64::MAX).await.map_err(StoreError::during("creating a token"))?;
        self.unknown_tokens.forget(hash);
        Ok(token.expect("nobody has so many"))
    }

    /// Likewise, unless its user has so many that open something; those of browser sessions do not count.
    pub async fn create_token_within(
        &self,
        most: u32,
        new: &NewToken<'_>,
        hash: &TokenHash,
        now: Timestamp,
        deed: Option<AuditEntry>,
    ) -> Result<Option<Token>, StoreError> {
        let made = self.create(new, hash, now, deed, most.into()).await;
        let token = made.map_err(StoreError::during("creating a token"))?;
        self.unknown_tokens.forget(hash);
        Ok(token)
    }

    async fn create(
        &self,
        new: &NewToken<'_>,
        hash: &TokenHash,
        now: Timestamp,
        deed: Option<AuditEntry>,
        most: i64,
    ) -> Result<Option<Token>, sqlx::Error> {
        let id = Uuid::now_v7();
        let mut tx = self.pool.begin().await?;
        if let Some(user) = new.user {
            users::create(&mut tx, user, new.scope, now).await?;
            if most < i64::MAX && living(&mut tx, user, now).await? >= most {
                return Ok(None);
            }
        }
        sqlx::query!(
            "INSERT INTO tokens
                (token_id, name, user_name, scope, secret_sha256, created_at, expires_at, identity_id, of_session, given_to_server)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, false)",
            id,
            new.name,
            new.user,
            <&str>::from(new.scope),
            &hash.0[..],
            time(now),
            new.expires_at.map(time),
            new.identity,
            new.of_session,
        )
        .execute(&mut *tx)
        .await?;
        let after =
            json!({"name": new.name, "user": new.user, "scope": new.scope, "expires_at": new.expires_at.map(time)});
        let told = |deed| AuditEntry { subjects: subjects(id, new.user), after: Some(after), ..deed };
        audit::insert(&mut tx, deed.map(told).as_slice()).await?;
        tx.commit().await?;
        let NewToken { name, user, scope, expires_at, identity, .. } = *new;
        let (name, user) = (name.to_owned(), user.map(ToOwned::to_owned));
        Ok(Some(Token { id, name, user, scope, created_at: now, expires_at, identity }))
    }

    /// Makes this secret open this scope: for the tokens `headway up` and configuration files bring, whose names are users, but for
    /// agents'. False if it was revoked, which it stays.
    pub async fn ensure_token(
        &self,
        name: &str,
        scope: TokenScope,
        secret: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let hash = TokenHash::of(secret);
        let opens = self.ensure(name, scope, &hash, now).await.map_err(StoreError::during("ensuring a token"))?;
        self.unknown_tokens.forget(&hash);
        Ok(opens)
    }

    async fn ensure(
        &self,
        name: &str,
        scope: TokenScope,
        hash: &TokenHash,
        now: Timestamp,
    ) -> Result<bool, sqlx::Error> {
        let mut tx = self.pool.begin().await?;
        let user = (scope != TokenScope::Agent).then_some(name);
        if let Some(user) = user {
            // Whoever writes the configuration is above all roles.
            let raised = sqlx::query!(
                "INSERT INTO users AS known (name, role, created_at) VALUES ($1, $2, $3)
                ON CONFLICT (name) DO UPDATE SET role = excluded.role, role_from = 'hand'
                WHERE array_position(ARRAY['viewer', 'user', 'operator', 'admin'], known.role)
                    < array_position(ARRAY['viewer', 'user', 'operator', 'admin'], excluded.role)",
                user,
                <&str>::from(scope),
                time(now),
            )
            .execute(&mut *tx)
            .await?;
            if raised.rows_affected() > 0 {
                browser_sessions::end_with(&mut tx, None, Some(user)).await?;
            }
        }
        let row = sqlx::query!(
            r#"INSERT INTO tokens (token_id, name, user_name, scope, secret_sha256, created_at, given_to_server)
            VALUES ($1, $2, $3, $4, $5, $6, true)
            ON CONFLICT (secret_sha256) DO UPDATE
                SET name = excluded.name, user_name = excluded.user_name, scope = excluded.scope, given_to_server = true
            RETURNING revoked_at IS NULL AS "opens!""#,
            Uuid::now_v7(),
            name,
            user,
            <&str>::from(scope),
            &hash.0[..],
            time(now),
        )
        .fetch_one(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(row.opens)
    }

    /// The token with this hash, unless it has expired or was revoked. One that was unknown a moment ago is not looked
    /// up again.
    pub async fn find_token(&self, hash: &TokenHash, now: Timestamp) -> Result<Option<Token>, StoreError> {
        if self.unknown_tokens.has(hash, now) {
            return Ok(None);
        }
        let row = sqlx::query_as!(
            Row,
            r#"SELECT token_id, tokens.name, user_name, scope, role AS "role?", tokens.created_at, expires_at, identity_id
            FROM tokens LEFT JOIN users ON users.name = user_name
            WHERE secret_sha256 = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)"#,
            &hash.0[..],
            time(now),
        )
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::during("looking up a token"))?;
        if row.is_none() {
            self.unknown_tokens.remember(hash, now);
        }
        Ok(row.and_then(Row::token))
    }

    /// Tokens that may speak for nodes: agents' and admins'.
    pub async fn tokens_of_nodes(&self, now: Timestamp) -> Result<BTreeSet<TokenHash>, StoreError> {
        let rows = sqlx::query_scalar!(
            "SELECT secret_sha256 FROM tokens
            WHERE scope IN ('agent', 'admin') AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1)",
            time(now),
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("reading the tokens of nodes"))?;
        Ok(rows.into_iter().filter_map(|hash| Some(TokenHash(hash.try_into().ok()?))).collect())
    }

    /// This token, unless it has expired or was revoked.
    pub(super) async fn token(&self, token: Uuid, now: Timestamp) -> Result<Option<Token>, StoreError> {
        let row = sqlx::query_as!(
            Row,
            r#"SELECT token_id, tokens.name, user_name, scope, role AS "role?", tokens.created_at, expires_at, identity_id
            FROM tokens LEFT JOIN users ON users.name = user_name
            WHERE token_id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)"#,
            token,
            time(now),
        )
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::during("reading a token"))?;
        Ok(row.and_then(Row::token))
    }

    /// Tokens that have not been revoked, newest first: this user's, or all; those made before this one.
    pub async fn tokens(
        &self,
        user: Option<&str>,
        before: Option<Uuid>,
        limit: u32,
    ) -> Result<Page<Token, Uuid>, StoreError> {
        let rows = sqlx::query_as!(
            Row,
            r#"SELECT token_id, tokens.name, user_name, scope, role AS "role?", tokens.created_at, expires_at, identity_id
            FROM tokens LEFT JOIN users ON users.name = user_name
            WHERE revoked_at IS NULL AND ($1::text IS NULL OR user_name = $1) AND ($2::uuid IS NULL OR token_id < $2)
            ORDER BY token_id DESC LIMIT $3"#,
            user.map(text),
            before,
            i64::from(limit) + 1,
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("listing tokens"))?;
        let Page { items, next } = Page::of(rows, limit, |row| row.token_id);
        Ok(Page { items: items.into_iter().filter_map(Row::token).collect(), next })
    }

    /// Whose token this is, unless there is none or it was revoked; `Some(None)`: an agent's.
    pub async fn token_user(&self, token: Uuid) -> Result<Option<Option<String>>, StoreError> {
        sqlx::query_scalar!("SELECT user_name FROM tokens WHERE token_id = $1 AND revoked_at IS NULL", token)
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::during("reading a token"))
    }

    /// Revokes a token at once, unless the cluster would then be without an admin sooner than otherwise.
    pub async fn revoke_token(
        &self,
        token: Uuid,
        now: Timestamp,
        deed: Option<AuditEntry>,
    ) -> Result<Revocation, StoreError> {
        self.revoke(token, now, deed).await.map_err(StoreError::during("revoking a token"))
    }

    async fn revoke(&self, token: Uuid, now: Timestamp, deed: Option<AuditEntry>) -> Result<Revocation, sqlx::Error> {
        let mut tx = self.pool.begin().await?;
        let admins = lock_admins(&mut tx, now).await?;
        if let Some(own) = admins.iter().find(|admin| admin.token_id == token) {
            let outlasts = |end: Option<_>| end.is_none() || own.expires_at.is_some_and(|own| end >= Some(own));
            if !admins.iter().any(|other| other.token_id != token && outlasts(other.expires_at)) {
                return Ok(Revocation::LastAdmin);
            }
        }
        let done = sqlx::query!(
            "UPDATE tokens SET revoked_at = $2 WHERE token_id = $1 AND revoked_at IS NULL RETURNING name, user_name, scope",
            token,
            time(now),
        )
        .fetch_optional(&mut *tx)
        .await?;
        let Some(gone) = done else { return Ok(Revocation::Unknown) };
        browser_sessions::end_with(&mut tx, Some(token), None).await?;
        let before = json!({"name": gone.name, "user": gone.user_name, "scope": gone.scope});
        let told =
            |deed| AuditEntry { subjects: subjects(token, gone.user_name.as_deref()), before: Some(before), ..deed };
        audit::insert(&mut tx, deed.map(told).as_slice()).await?;
        tx.commit().await?;
        Ok(Revocation::Done)
    }

    /// Deletes tokens that expired or were revoked before this moment, so many at most, the first that ended first; returns how
    /// many. A token that a server was started with stays, so that a server that is started with it again does not open it.
    pub async fn prune_tokens(&self, before: Timestamp, most: u32) -> Result<u64, StoreError> {
        let gone = sqlx::query!(
            "DELETE FROM tokens WHERE token_id IN (
                SELECT token_id FROM tokens
                WHERE NOT given_to_server AND LEAST(expires_at, revoked_at) < $1
                    AND NOT EXISTS (SELECT FROM browser_sessions WHERE browser_sessions.token_id = tokens.token_id)
                ORDER BY LEAST(expires_at, revoked_at) LIMIT $2
            )",
            time(before),
            i64::from(most),
        )
        .execute(&self.pool)
        .await
        .map_err(StoreError::during("pruning tokens"))?;
        Ok(gone.rows_affected())
    }
}
