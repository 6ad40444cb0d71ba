//! Table `users`: who people are, and the most that their tokens open. Jobs are owned by names of users.

use headway_types::{Timestamp, TokenScope};
use serde_json::json;
use sqlx::PgConnection;

use super::column::{moment, time};
use super::{AuditEntry, Store, StoreError, audit, browser_sessions, tokens};

/// A person, or a program with an identity of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    /// The most that a token of this user opens.
    pub role: TokenScope,
    pub created_at: Timestamp,
    /// Tokens that open something.
    pub tokens: u32,
    /// Whether groups of the identity provider gave the role; else an admin did.
    pub role_from_groups: bool,
    /// Whether the user is somebody there.
    pub linked: bool,
}

/// What came of giving a user a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleChange {
    Done,
    Created,
    /// No admin's token would be left, so nothing was changed.
    LastAdmin,
}

impl Store {
    /// All users by name.
    pub async fn users(&self, now: Timestamp) -> Result<Vec<User>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT users.name, role, users.created_at, count(token_id) AS "tokens!", role_from = 'groups' AS "from_groups!",
                EXISTS (SELECT FROM identities WHERE identities.user_name = users.name) AS "linked!"
            FROM users LEFT JOIN tokens ON user_name = users.name AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $1)
            GROUP BY users.name ORDER BY users.name"#,
            time(now),
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("listing users"))?;
        let users = rows.into_iter().filter_map(|row| {
            Some(User {
                name: row.name,
                role: row.role.parse().ok()?,
                created_at: moment(row.created_at),
                tokens: u32::try_from(row.tokens).unwrap_or(u32::MAX),
                role_from_groups: row.from_groups,
                linked: row.linked,
            })
        });
        Ok(users.collect())
    }

    /// The role of a user, where there is one of that name.
    pub async fn role_of(&self, name: &str) -> Result<Option<TokenScope>, StoreError> {
        let role = sqlx::query_scalar!("SELECT role FROM users WHERE name = $1", name)
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::during("reading a user"))?;
        Ok(role.and_then(|role| role.parse().ok()))
    }

    /// Gives a user this role by hand, who is made if need be, unless the cluster would then be without an admin.
    pub async fn set_role(
        &self,
        name: &str,
        role: TokenScope,
        now: Timestamp,
        deed: Option<AuditEntry>,
    ) -> Result<RoleChange, StoreError> {
        self.give(name, role, now, deed).await.map_err(StoreError::during("giving a user a role"))
    }

    async fn give(
        &self,
        name: &str,
        role: TokenScope,
        now: Timestamp,
        deed: Option<AuditEntry>,
    ) -> Result<RoleChange, sqlx::Error> {
        let mut tx = self.pool.begin().await?;
        let admins = tokens::lock_admins(&mut tx, now).await?;
        let ends = |admin: &tokens::Admin| role != TokenScope::Admin && admin.user.as_deref() == Some(name);
        if admins.iter().any(ends) && admins.iter().all(ends) {
            return Ok(RoleChange::LastAdmin);
        }
        let former = sqlx::query_scalar!("SELECT role FROM users WHERE name = $1 FOR UPDATE", name)
            .fetch_optional(&mut *tx)
            .await?;
        match &former {
            None => create(&mut tx, name, role, now).await?,
            Some(_) => {
                sqlx::query!(
                    "UPDATE users SET role = $2, role_from = 'hand' WHERE name = $1",
                    name,
                    <&str>::from(role)
                )
                .execute(&mut *tx)
                .await?;
            }
        }
        if former.as_deref() != Some(role.into()) {
            browser_sessions::end_with(&mut tx, None, Some(name)).await?;
        }
        let before = former.as_ref().map(|former| json!({"role": former}));
        let told = |deed| AuditEntry { before, after: Some(json!({"role": role})), ..deed };
        audit::insert(&mut tx, deed.map(told).as_slice()).await?;
        tx.commit().await?;
        Ok(if former.is_none() { RoleChange::Created } else { RoleChange::Done })
    }
}

/// Makes a user of this name, unless there is one.
pub(super) async fn create(
    connection: &mut PgConnection,
    name: &str,
    role: TokenScope,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO users (name, role, created_at) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING",
        name,
        <&str>::from(role),
        time(now),
    )
    .execute(connection)
    .await?;
    Ok(())
}
