//! Tables `identities` and `group_memberships`: who is who at the identity provider, and what its groups gave.

use std::collections::BTreeMap;

use headway_types::{ProjectRole, Timestamp, TokenScope};
use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use super::column::time;
use super::{AuditEntry, Store, StoreError, audit, browser_sessions, tokens};

/// Somebody at the identity provider: the pair is theirs for ever, whatever they are called there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    pub issuer: String,
    pub subject: String,
}

/// A user of ours who is somebody there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserIdentity {
    pub id: Uuid,
    pub person: Person,
    pub user: String,
}

/// What came of a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entered {
    As {
        identity: Uuid,
        user: String,
        role: TokenScope,
        /// The role was lowered, or raised: what the former one opened has ended.
        changed: bool,
    },
    /// A user of this name is somebody else, or nobody there.
    NameTaken,
}

/// What came of saying who a user is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Linked {
    Done(TokenScope),
    NoSuchUser,
    /// The person is this user already.
    Taken(String),
    /// The user is somebody else there.
    IsAnother(Person),
}

/// A membership that groups gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupMembership {
    pub role: ProjectRole,
    /// What it is being changed from.
    pub former: Option<ProjectRole>,
}

impl Store {
    /// Lets a person in whose groups give this role: as the user the person is, or as a new one of this name.
    pub async fn enter(
        &self,
        person: &Person,
        name: &str,
        role: TokenScope,
        now: Timestamp,
        deed: Option<AuditEntry>,
    ) -> Result<Entered, StoreError> {
        self.let_in(person, name, role, now, deed).await.map_err(StoreError::during("logging a person in"))
    }

    async fn let_in(
        &self,
        person: &Person,
        name: &str,
        role: TokenScope,
        now: Timestamp,
        deed: Option<AuditEntry>,
    ) -> Result<Entered, sqlx::Error> {
        let mut tx = self.pool.begin().await?;
        let known = sqlx::query!(
            "SELECT identity_id, user_name FROM identities WHERE issuer = $1 AND subject = $2 FOR UPDATE",
            person.issuer,
            person.subject,
        )
        .fetch_optional(&mut *tx)
        .await?;
        let Some(known) = known else {
            let identity = Uuid::now_v7();
            let made = sqlx::query!(
                "INSERT INTO users (name, role, created_at, role_from) VALUES ($1, $2, $3, 'groups') ON CONFLICT (name) DO NOTHING",
                name,
                <&str>::from(role),
                time(now),
            )
            .execute(&mut *tx)
            .await?;
            if made.rows_affected() == 0 {
                return Ok(Entered::NameTaken);
            }
            insert(&mut tx, identity, person, name, now).await?;
            let told = |deed| AuditEntry {
                subjects: vec![format!("user:{name}")],
                after: Some(json!({"role": role, "issuer": person.issuer, "subject": person.subject})),
                ..deed
            };
            audit::insert(&mut tx, deed.map(told).as_slice()).await?;
            tx.commit().await?;
            return Ok(Entered::As { identity, user: name.to_owned(), role, changed: false });
        };
        let given = give_role(&mut tx, &known.user_name, role, now, deed).await?;
        sqlx::query!("UPDATE identities SET seen_at = $2 WHERE identity_id = $1", known.identity_id, time(now))
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        let Some((role, changed)) = given else { return Ok(Entered::NameTaken) };
        Ok(Entered::As { identity: known.identity_id, user: known.user_name, role, changed })
    }

    /// Who this person is here.
    pub async fn user_of(&self, person: &Person) -> Result<Option<UserIdentity>, StoreError> {
        let row = sqlx::query!(
            "SELECT identity_id, user_name FROM identities WHERE issuer = $1 AND subject = $2",
            person.issuer,
            person.subject,
        )
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::during("reading an identity"))?;
        Ok(row.map(|row| UserIdentity { id: row.identity_id, person: person.clone(), user: row.user_name }))
    }

    /// Shuts a person out: tokens that came of logins, and their sessions, end; a role that groups gave is the least again.
    pub async fn shut_out(
        &self,
        identity: &UserIdentity,
        now: Timestamp,
        deed: Option<AuditEntry>,
    ) -> Result<(), StoreError> {
        let done = async {
            let mut tx = self.pool.begin().await?;
            let ended = end_logins(&mut tx, identity.id, now).await?;
            let told = |deed| AuditEntry {
                subjects: vec![format!("user:{}", identity.user)],
                after: Some(json!({"tokens_revoked": ended})),
                ..deed
            };
            audit::insert(&mut tx, deed.clone().filter(|_| ended > 0).map(told).as_slice()).await?;
            give_role(&mut tx, &identity.user, TokenScope::Viewer, now, deed).await?;
            tx.commit().await
        };
        done.await.map_err(StoreError::during("shutting a person out"))
    }

    /// Says that a user is this person; `from_groups`: each login sets the role anew.
    pub async fn link(
        &self,
        user: &str,
        person: &Person,
        from_groups: bool,
        now: Timestamp,
        deed: Option<AuditEntry>,
    ) -> Result<Linked, StoreError> {
        self.tie(user, person, from_groups, now, deed).await.map_err(StoreError::during("linking a user"))
    }

    async fn tie(
        &self,
        user: &str,
        person: &Person,
        from_groups: bool,
        now: Timestamp,
        deed: Option<AuditEntry>,
    ) -> Result<Linked, sqlx::Error> {
        let mut tx = self.pool.begin().await?;
        let role = sqlx::query_scalar!("SELECT role FROM users WHERE name = $1 FOR UPDATE", user)
            .fetch_optional(&mut *tx)
            .await?;
        let Some(role) = role.and_then(|role| role.parse().ok()) else { return Ok(Linked::NoSuchUser) };
        let others = sqlx::query!(
            "SELECT user_name, issuer, subject FROM identities WHERE user_name = $1 OR issuer = $2 AND subject = $3 FOR UPDATE",
            user,
            person.issuer,
            person.subject,
        )
        .fetch_all(&mut *tx)
        .await?;
        let mut is_linked = false;
        for other in others {
            let there = Person { issuer: other.issuer, subject: other.subject };
            match (other.user_name == user, there == *person) {
                (true, true) => is_linked = true,
                (true, false) => return Ok(Linked::IsAnother(there)),
                (false, _) => return Ok(Linked::Taken(other.user_name)),
            }
        }
        if !is_linked {
            insert(&mut tx, Uuid::now_v7(), person, user, now).await?;
        }
        let source = if from_groups { "groups" } else { "hand" };
        sqlx::query!("UPDATE users SET role_from = $2 WHERE name = $1", user, source).execute(&mut *tx).await?;
        let after = json!({"issuer": person.issuer, "subject": person.subject, "role_from": source});
        let told = |deed| AuditEntry { after: Some(after), ..deed };
        audit::insert(&mut tx, deed.map(told).as_slice()).await?;
        tx.commit().await?;
        Ok(Linked::Done(role))
    }

    /// Says that a user is nobody there any more, and ends what came of logins; false where there was no link.
    pub async fn unlink(&self, user: &str, now: Timestamp, deed: Option<AuditEntry>) -> Result<bool, StoreError> {
        let done = async {
            let mut tx = self.pool.begin().await?;
            let known = sqlx::query!(
                "SELECT identity_id, issuer, subject FROM identities WHERE user_name = $1 FOR UPDATE",
                user
            )
            .fetch_optional(&mut *tx)
            .await?;
            let Some(known) = known else { return Ok(false) };
            end_logins(&mut tx, known.identity_id, now).await?;
            sqlx::query!("DELETE FROM identities WHERE identity_id = $1", known.identity_id).execute(&mut *tx).await?;
            sqlx::query!("UPDATE users SET role_from = 'hand' WHERE name = $1", user).execute(&mut *tx).await?;
            let before = json!({"issuer": known.issuer, "subject": known.subject});
            let told = |deed| AuditEntry { before: Some(before), ..deed };
            audit::insert(&mut tx, deed.map(told).as_slice()).await?;
            tx.commit().await?;
            Ok(true)
        };
        done.await.map_err(StoreError::during("unlinking a user"))
    }

    /// Memberships that groups gave this user, by project.
    pub async fn group_memberships(&self, user: &str) -> Result<BTreeMap<String, GroupMembership>, StoreError> {
        let rows = sqlx::query!("SELECT project, role, former_role FROM group_memberships WHERE user_name = $1", user)
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::during("reading memberships by groups"))?;
        let read = |role: String, former: Option<String>| {
            Some(GroupMembership { role: role.parse().ok()?, former: former.and_then(|role| role.parse().ok()) })
        };
        Ok(rows.into_iter().filter_map(|row| Some((row.project, read(row.role, row.former_role)?))).collect())
    }

    /// Members of this project whose membership groups gave, with the role.
    pub async fn members_by_groups(&self, project: &str) -> Result<BTreeMap<String, ProjectRole>, StoreError> {
        let rows = sqlx::query!("SELECT user_name, role FROM group_memberships WHERE project = $1", project)
            .fetch_all(&self.pool)
            .await
            .map_err(StoreError::during("reading members by groups"))?;
        Ok(rows.into_iter().filter_map(|row| Some((row.user_name, row.role.parse().ok()?))).collect())
    }

    /// Notes that groups give, or are about to give, this membership.
    pub async fn note_group_membership(
        &self,
        user: &str,
        project: &str,
        membership: GroupMembership,
    ) -> Result<(), StoreError> {
        sqlx::query!(
            "INSERT INTO group_memberships (user_name, project, role, former_role) VALUES ($1, $2, $3, $4)
            ON CONFLICT (user_name, project) DO UPDATE SET role = excluded.role, former_role = excluded.former_role",
            user,
            project,
            <&str>::from(membership.role),
            membership.former.map(<&str>::from),
        )
        .execute(&self.pool)
        .await
        .map_err(StoreError::during("noting a membership by groups"))?;
        Ok(())
    }

    /// Notes that whatever membership there is, somebody gave it by hand.
    pub async fn forget_group_membership(&self, user: &str, project: &str) -> Result<(), StoreError> {
        sqlx::query!("DELETE FROM group_memberships WHERE user_name = $1 AND project = $2", user, project)
            .execute(&self.pool)
            .await
            .map_err(StoreError::during("forgetting a membership by groups"))?;
        Ok(())
    }
}

async fn insert(
    connection: &mut PgConnection,
    id: Uuid,
    person: &Person,
    user: &str,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO identities (identity_id, issuer, subject, user_name, created_at) VALUES ($1, $2, $3, $4, $5)",
        id,
        person.issuer,
        person.subject,
        user,
        time(now),
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// The role that the user has now, and whether it is another; `None`: there is no such user. One that was given by hand stays, and so does that of the last whose
/// token, made by hand, opens everything.
async fn give_role(
    connection: &mut PgConnection,
    user: &str,
    role: TokenScope,
    now: Timestamp,
    deed: Option<AuditEntry>,
) -> Result<Option<(TokenScope, bool)>, sqlx::Error> {
    let admins = tokens::lock_admins(&mut *connection, now).await?;
    let former = sqlx::query!("SELECT role, role_from FROM users WHERE name = $1 FOR UPDATE", user)
        .fetch_optional(&mut *connection)
        .await?;
    let Some(former) = former else { return Ok(None) };
    let Ok(present) = former.role.parse::<TokenScope>() else { return Ok(None) };
    let is_last = role != TokenScope::Admin
        && !admins.is_empty()
        && admins.iter().all(|admin| admin.user.as_deref() == Some(user));
    if former.role_from != "groups" || present == role || is_last {
        return Ok(Some((present, false)));
    }
    sqlx::query!("UPDATE users SET role = $2 WHERE name = $1", user, <&str>::from(role))
        .execute(&mut *connection)
        .await?;
    browser_sessions::end_with(&mut *connection, None, Some(user)).await?;
    let told = |deed| AuditEntry {
        subjects: vec![format!("user:{user}")],
        before: Some(json!({"role": present})),
        after: Some(json!({"role": role})),
        ..deed
    };
    audit::insert(&mut *connection, deed.map(told).as_slice()).await?;
    Ok(Some((role, true)))
}

/// Revokes what came of logins; how many tokens.
async fn end_logins(connection: &mut PgConnection, identity: Uuid, now: Timestamp) -> Result<usize, sqlx::Error> {
    sqlx::query!(
        "DELETE FROM browser_sessions WHERE token_id IN (SELECT token_id FROM tokens WHERE identity_id = $1)",
        identity
    )
    .execute(&mut *connection)
    .await?;
    let revoked = sqlx::query!(
        "UPDATE tokens SET revoked_at = $2 WHERE identity_id = $1 AND revoked_at IS NULL",
        identity,
        time(now),
    )
    .execute(&mut *connection)
    .await?;
    Ok(usize::try_from(revoked.rows_affected()).unwrap_or(usize::MAX))
}
