//! Table `browser_sessions`: who has logged in with which token. A session opens what its token opens, and ends with it. Secrets are never stored.

use headway_types::Timestamp;
use sqlx::PgConnection;
use uuid::Uuid;

use super::column::{moment, text, time};
use super::tokens::Token;
use super::{AuditEntry, Store, StoreError, TokenHash, audit};

/// Of more, those that were used least lately end.
const OF_ONE_USER_AT_MOST: i64 = 20;

/// A browser that has logged in, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrowserSession {
    pub id: Uuid,
    pub user: String,
    pub token: Uuid,
    pub created_at: Timestamp,
    pub used_at: Timestamp,
    /// Unless it is used before.
    pub expires_at: Timestamp,
    /// However much it is used.
    pub ends_at: Timestamp,
}

/// Whose sessions are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sessions<'a> {
    One(Uuid),
    OfUser(&'a str),
}

/// A row as it is read.
struct Row {
    session_id: Uuid,
    user_name: String,
    token_id: Uuid,
    created_at: chrono::DateTime<chrono::Utc>,
    used_at: chrono::DateTime<chrono::Utc>,
    expires_at: chrono::DateTime<chrono::Utc>,
    ends_at: chrono::DateTime<chrono::Utc>,
}

impl From<Row> for BrowserSession {
    fn from(row: Row) -> Self {
        Self {
            id: row.session_id,
            user: row.user_name,
            token: row.token_id,
            created_at: moment(row.created_at),
            used_at: moment(row.used_at),
            expires_at: moment(row.expires_at),
            ends_at: moment(row.ends_at),
        }
    }
}

fn told(deed: AuditEntry, session: Uuid, user: &str) -> AuditEntry {
    AuditEntry { subjects: vec![format!("session:{session}"), format!("user:{user}")], ..deed }
}

impl Store {
    /// Stores a new session under this hash; false if its token has been revoked meanwhile.
    pub async fn create_session(
        &self,
        session: &BrowserSession,
        hash: &TokenHash,
        deed: Option<AuditEntry>,
    ) -> Result<bool, StoreError> {
        self.log_in(session, hash, deed).await.map_err(StoreError::during("creating a session"))
    }

    async fn log_in(
        &self,
        session: &BrowserSession,
        hash: &TokenHash,
        deed: Option<AuditEntry>,
    ) -> Result<bool, sqlx::Error> {
        let mut tx = self.pool.begin().await?;
        // In turn with whoever revokes it.
        let held = sqlx::query_scalar!(
            "SELECT token_id FROM tokens WHERE token_id = $1 AND revoked_at IS NULL FOR SHARE",
            session.token,
        );
        if held.fetch_optional(&mut *tx).await?.is_none() {
            return Ok(false);
        }
        sqlx::query!(
            "DELETE FROM browser_sessions WHERE session_id IN
            (SELECT session_id FROM browser_sessions WHERE user_name = $1 ORDER BY used_at DESC, session_id DESC OFFSET $2)",
            session.user,
            OF_ONE_USER_AT_MOST - 1,
        )
        .execute(&mut *tx)
        .await?;
        sqlx::query!(
            "INSERT INTO browser_sessions
                (session_id, token_id, user_name, secret_sha256, created_at, used_at, expires_at, ends_at)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            session.id,
            session.token,
            session.user,
            hash.bytes(),
            time(session.created_at),
            time(session.used_at),
            time(session.expires_at),
            time(session.ends_at),
        )
        .execute(&mut *tx)
        .await?;
        audit::insert(&mut tx, deed.map(|deed| told(deed, session.id, &session.user)).as_slice()).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// The session with this hash and its token, unless either is over. One that was unknown a moment ago is not looked up again.
    pub async fn find_session(
        &self,
        hash: &TokenHash,
        now: Timestamp,
    ) -> Result<Option<(BrowserSession, Token)>, StoreError> {
        if self.unknown_sessions.has(hash, now) {
            return Ok(None);
        }
        let row = sqlx::query_as!(
            Row,
            "SELECT session_id, user_name, token_id, created_at, used_at, expires_at, ends_at
            FROM browser_sessions WHERE secret_sha256 = $1 AND expires_at > $2",
            hash.bytes(),
            time(now),
        )
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::during("looking up a session"))?;
        let Some(session) = row.map(BrowserSession::from) else {
            self.unknown_sessions.remember(hash, now);
            return Ok(None);
        };
        Ok(self.token(session.token, now).await?.map(|token| (session, token)))
    }

    /// Notes that a session is in use, which lengthens it.
    pub async fn use_session(&self, session: Uuid, now: Timestamp, expires_at: Timestamp) -> Result<(), StoreError> {
        sqlx::query!(
            "UPDATE browser_sessions SET used_at = $2, expires_at = LEAST($3, ends_at) WHERE session_id = $1 AND used_at < $2",
            session,
            time(now),
            time(expires_at),
        )
        .execute(&self.pool)
        .await
        .map_err(StoreError::during("noting a session's use"))?;
        Ok(())
    }

    /// Sessions that are not over, newest first: this user's, or all.
    pub async fn sessions(&self, user: Option<&str>, now: Timestamp) -> Result<Vec<BrowserSession>, StoreError> {
        let user = user.map(text);
        let rows = sqlx::query_as!(
            Row,
            "SELECT session_id, user_name, token_id, created_at, used_at, expires_at, ends_at FROM browser_sessions
            WHERE expires_at > $1 AND ($2::text IS NULL OR user_name = $2) ORDER BY session_id DESC",
            time(now),
            user.as_deref(),
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("listing sessions"))?;
        Ok(rows.into_iter().map(BrowserSession::from).collect())
    }

    /// Whose session this is.
    pub async fn session_user(&self, session: Uuid) -> Result<Option<String>, StoreError> {
        sqlx::query_scalar!("SELECT user_name FROM browser_sessions WHERE session_id = $1", session)
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::during("reading a session"))
    }

    /// Ends sessions at once, and the tokens that were made for them alone; returns how many there were.
    pub async fn end_sessions(
        &self,
        of: Sessions<'_>,
        now: Timestamp,
        deed: Option<AuditEntry>,
    ) -> Result<usize, StoreError> {
        self.end(of, now, deed).await.map_err(StoreError::during("ending sessions"))
    }

    async fn end(&self, of: Sessions<'_>, now: Timestamp, deed: Option<AuditEntry>) -> Result<usize, sqlx::Error> {
        let (one, user) = match of {
            Sessions::One(session) => (Some(session), None),
            Sessions::OfUser(user) => (None, Some(text(user))),
        };
        let mut tx = self.pool.begin().await?;
        let gone = sqlx::query!(
            "DELETE FROM browser_sessions WHERE session_id = $1 OR user_name = $2 RETURNING session_id, user_name, token_id",
            one,
            user.as_deref(),
        )
        .fetch_all(&mut *tx)
        .await?;
        let tokens: Vec<Uuid> = gone.iter().map(|row| row.token_id).collect();
        sqlx::query!(
            "UPDATE tokens SET revoked_at = $2 WHERE token_id = ANY($1) AND of_session AND revoked_at IS NULL",
            &tokens,
            time(now),
        )
        .execute(&mut *tx)
        .await?;
        let lines: Vec<AuditEntry> = match deed {
            Some(deed) => gone.iter().map(|row| told(deed.clone(), row.session_id, &row.user_name)).collect(),
            None => vec![],
        };
        audit::insert(&mut tx, &lines).await?;
        tx.commit().await?;
        Ok(gone.len())
    }

    /// Forgets sessions that are over, with the tokens that were made for them alone (whatever ended them; one that was made within the hour may
    /// wait for its session); returns how many.
    pub async fn prune_sessions(&self, now: Timestamp) -> Result<u64, StoreError> {
        let done = sqlx::query!("DELETE FROM browser_sessions WHERE expires_at <= $1", time(now))
            .execute(&self.pool)
            .await
            .map_err(StoreError::during("pruning sessions"))?;
        sqlx::query!(
            "DELETE FROM tokens WHERE of_session AND (revoked_at IS NOT NULL OR expires_at <= $1 OR created_at <= $1 - interval '1 hour')
            AND NOT EXISTS (SELECT FROM browser_sessions WHERE browser_sessions.token_id = tokens.token_id)",
            time(now),
        )
        .execute(&self.pool)
        .await
        .map_err(StoreError::during("pruning tokens of sessions"))?;
        Ok(done.rows_affected())
    }
}

/// What was opened with a token that is revoked, or under a role that is no longer the user's, is closed with it.
pub(super) async fn end_with(
    connection: &mut PgConnection,
    token: Option<Uuid>,
    user: Option<&str>,
) -> Result<(), sqlx::Error> {
    sqlx::query!("DELETE FROM browser_sessions WHERE token_id = $1 OR user_name = $2", token, user)
        .execute(connection)
        .await?;
    Ok(())
}
