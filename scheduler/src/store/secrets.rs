//! Table `secrets`: values that jobs are given by name. They are sealed and opened at this border: nothing beyond it has the bytes that are stored, and
//! the database never has a value.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_api::secret::Secret;
use headway_types::{Seconds, Timestamp};
use serde_json::json;
use sqlx::PgConnection;

use super::column::{moment, text, time};
use super::{AuditEntry, Store, StoreError, audit};
use crate::secrets::{Keyring, OpenError, Sealed};

/// Secrets of one owner, at most.
const OF_ONE_OWNER_AT_MOST: i64 = 1_000;
/// How exactly it is kept when a secret was used.
const USED_TO: Seconds = Seconds(60.0);

/// Whose a secret is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecretOwner {
    User(String),
    Project(String),
}

/// Which kind of owner; the words of the column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum SecretOwnerKind {
    User,
    Project,
}

/// Which secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretId {
    pub owner: SecretOwner,
    pub name: String,
}

/// What is told of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretRow {
    pub id: SecretId,
    pub set_at: Timestamp,
    pub set_by: String,
    /// To the minute.
    pub used_at: Option<Timestamp>,
}

/// What came of setting a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretChange {
    Set,
    Replaced,
    /// Its owner has as many as there may be; nothing was stored.
    TooMany,
}

/// Whose secrets a job may be given: its owner's, and where one has none of a name, the project's.
#[derive(Clone, Copy, Debug)]
pub struct Purse<'a> {
    pub user: &'a str,
    /// `None`: the owner may not use the project's.
    pub project: Option<&'a str>,
}

/// Why stored secrets cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretsKeyError {
    #[error(
        "{stored} secrets are stored (the key that signs nodes' certificates is one), and no key file was given to open them: name the one they were set with (--secrets-key-file)"
    )]
    NoKeys { stored: i64 },
    #[error(
        "{stored} secrets are sealed with key {key_id}, which is not in the key file: put the key back below the first line"
    )]
    KeyMissing { key_id: String, stored: i64 },
}

impl SecretOwner {
    #[must_use]
    pub fn kind(&self) -> SecretOwnerKind {
        match self {
            Self::User(_) => SecretOwnerKind::User,
            Self::Project(_) => SecretOwnerKind::Project,
        }
    }

    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::User(name) | Self::Project(name) => name,
        }
    }

    fn of(kind: &str, name: String) -> Self {
        if kind == <&str>::from(SecretOwnerKind::Project) { Self::Project(name) } else { Self::User(name) }
    }
}

impl SecretId {
    /// As the audit calls them.
    fn subjects(&self) -> Vec<String> {
        let (kind, owner) = (<&str>::from(self.owner.kind()), self.owner.name());
        vec![format!("secret:{}", self.name), format!("{kind}:{owner}")]
    }
}

struct Row {
    owner_kind: String,
    owner: String,
    name: String,
    key_id: String,
    nonce: Vec<u8>,
    sealed: Vec<u8>,
}

impl Row {
    fn open(self, keyring: &Keyring) -> Result<(SecretId, Secret), OpenError> {
        let id = SecretId { owner: SecretOwner::of(&self.owner_kind, self.owner), name: self.name };
        let nonce = self.nonce.try_into().map_err(|_| OpenError::Broken)?;
        let value = keyring.open(&id, &Sealed { key_id: self.key_id, nonce, bytes: self.sealed })?;
        Ok((id, value))
    }
}

pub(super) fn fresh_nonce() -> Result<[u8; 12], StoreError> {
    let mut nonce = [0; 12];
    getrandom::fill(&mut nonce).map_err(StoreError::NoEntropy)?;
    Ok(nonce)
}

impl Store {
    /// The same store with the keys that seal and open its secrets.
    #[must_use]
    pub fn with_keyring(self, keyring: Keyring) -> Self {
        Self { keyring: Some(Arc::new(keyring)), ..self }
    }

    /// Whether secrets can be set here.
    #[must_use]
    pub fn keeps_secrets(&self) -> bool {
        self.keyring.is_some()
    }

    pub(super) fn keyring(&self) -> Result<&Keyring, StoreError> {
        self.keyring.as_deref().ok_or(StoreError::NoSecretsKey)
    }

    /// Whether every stored secret can be opened with the keys that there are.
    pub async fn check_secrets_keys(&self) -> Result<Result<(), SecretsKeyError>, StoreError> {
        // The key that signs nodes' certificates is one of them.
        let rows = sqlx::query!(
            r#"SELECT key_id AS "key_id!", count(*) AS "stored!"
            FROM (SELECT key_id FROM secrets UNION ALL SELECT key_id FROM node_authorities WHERE retired_at IS NULL) AS stored
            GROUP BY key_id ORDER BY key_id"#
        );
        let rows = rows.fetch_all(&self.pool).await.map_err(StoreError::during("counting secrets"))?;
        let Some(keyring) = &self.keyring else {
            let stored = rows.iter().map(|row| row.stored).sum();
            return Ok(if stored == 0 { Ok(()) } else { Err(SecretsKeyError::NoKeys { stored }) });
        };
        let missing = rows.into_iter().find(|row| !keyring.has(&row.key_id));
        Ok(missing.map_or(Ok(()), |row| Err(SecretsKeyError::KeyMissing { key_id: row.key_id, stored: row.stored })))
    }

    /// Seals anew, with the first key, what is sealed with another; how many those were.
    pub async fn reseal_secrets(&self) -> Result<u64, StoreError> {
        let Some(keyring) = &self.keyring else { return Ok(0) };
        let failed = StoreError::during;
        let rows = sqlx::query_as!(
            Row,
            "SELECT owner_kind, owner, name, key_id, nonce, sealed FROM secrets WHERE key_id <> $1",
            keyring.first(),
        );
        let mut resealed = 0;
        for row in rows.fetch_all(&self.pool).await.map_err(failed("reading secrets"))? {
            let former = row.nonce.clone();
            let (id, value) = row.open(keyring).map_err(StoreError::Sealed)?;
            let sealed = keyring.seal(&id, &value, fresh_nonce()?);
            // One that was set meanwhile stays as it was set.
            let done = sqlx::query!(
                "UPDATE secrets SET key_id = $5, nonce = $6, sealed = $7
                WHERE owner_kind = $1 AND owner = $2 AND name = $3 AND nonce = $4",
                <&str>::from(id.owner.kind()),
                id.owner.name(),
                id.name,
                &former[..],
                sealed.key_id,
                &sealed.nonce[..],
                &sealed.bytes[..],
            )
            .execute(&self.pool)
            .await
            .map_err(failed("sealing secrets anew"))?;
            resealed += done.rows_affected();
        }
        Ok(resealed + self.reseal_authorities().await?)
    }

    /// Stores a value in place of what there may be under that name.
    pub async fn set_secret(
        &self,
        id: &SecretId,
        value: &Secret,
        by: &str,
        now: Timestamp,
        deed: Option<AuditEntry>,
    ) -> Result<SecretChange, StoreError> {
        let sealed = self.keyring()?.seal(id, value, fresh_nonce()?);
        self.put_secret(id, &sealed, by, now, deed).await.map_err(StoreError::during("storing a secret"))
    }

    async fn put_secret(
        &self,
        id: &SecretId,
        sealed: &Sealed,
        by: &str,
        now: Timestamp,
        deed: Option<AuditEntry>,
    ) -> Result<SecretChange, sqlx::Error> {
        let (kind, owner) = (<&str>::from(id.owner.kind()), id.owner.name());
        let mut tx = self.pool.begin().await?;
        let there = sqlx::query!(
            r#"SELECT count(*) AS "all!", count(*) FILTER (WHERE name = $3) AS "same!"
            FROM secrets WHERE owner_kind = $1 AND owner = $2"#,
            kind,
            owner,
            id.name,
        );
        let there = there.fetch_one(&mut *tx).await?;
        if there.same == 0 && there.all >= OF_ONE_OWNER_AT_MOST {
            return Ok(SecretChange::TooMany);
        }
        let replaced = sqlx::query_scalar!(
            r#"INSERT INTO secrets (owner_kind, owner, name, key_id, nonce, sealed, set_at, set_by)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
            ON CONFLICT (owner_kind, owner, name) DO UPDATE SET key_id = excluded.key_id, nonce = excluded.nonce,
                sealed = excluded.sealed, set_at = excluded.set_at, set_by = excluded.set_by
            RETURNING (xmax <> 0) AS "replaced!""#,
            kind,
            owner,
            id.name,
            sealed.key_id,
            &sealed.nonce[..],
            &sealed.bytes[..],
            time(now),
            by,
        )
        .fetch_one(&mut *tx)
        .await?;
        let what = if replaced { "replaced" } else { "set" };
        let told = |deed| AuditEntry { subjects: id.subjects(), after: Some(json!({ "value": what })), ..deed };
        audit::insert(&mut tx, deed.map(told).as_slice()).await?;
        tx.commit().await?;
        Ok(if replaced { SecretChange::Replaced } else { SecretChange::Set })
    }

    /// False if there is none.
    pub async fn delete_secret(&self, id: &SecretId, deed: Option<AuditEntry>) -> Result<bool, StoreError> {
        self.remove_secret(id, deed).await.map_err(StoreError::during("deleting a secret"))
    }

    async fn remove_secret(&self, id: &SecretId, deed: Option<AuditEntry>) -> Result<bool, sqlx::Error> {
        let mut tx = self.pool.begin().await?;
        let gone = sqlx::query!(
            "DELETE FROM secrets WHERE owner_kind = $1 AND owner = $2 AND name = $3",
            <&str>::from(id.owner.kind()),
            text(id.owner.name()),
            text(&id.name),
        )
        .execute(&mut *tx)
        .await?;
        if gone.rows_affected() == 0 {
            return Ok(false);
        }
        let told = |deed| AuditEntry { subjects: id.subjects(), after: Some(json!({ "value": "deleted" })), ..deed };
        audit::insert(&mut tx, deed.map(told).as_slice()).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// What is told of the user's secrets and of those of these projects, by owner and name.
    pub async fn secrets_of(&self, user: Option<&str>, projects: &[String]) -> Result<Vec<SecretRow>, StoreError> {
        let projects: Vec<String> = projects.iter().map(|project| text(project)).collect();
        let rows = sqlx::query!(
            "SELECT owner_kind, owner, name, set_at, set_by, used_at FROM secrets
            WHERE (owner_kind = 'user' AND owner = $1) OR (owner_kind = 'project' AND owner = ANY($2))
            ORDER BY owner_kind DESC, owner, name",
            user,
            &projects,
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("listing secrets"))?;
        let row = rows.into_iter().map(|row| SecretRow {
            id: SecretId { owner: SecretOwner::of(&row.owner_kind, row.owner), name: row.name },
            set_at: moment(row.set_at),
            set_by: row.set_by,
            used_at: row.used_at.map(moment),
        });
        Ok(row.collect())
    }

    /// The values of these secrets, by name, and that they were used now. One that is not there is left out.
    pub async fn use_secrets(
        &self,
        of: Purse<'_>,
        names: &[String],
        now: Timestamp,
    ) -> Result<BTreeMap<String, Secret>, StoreError> {
        if names.is_empty() {
            return Ok(BTreeMap::new());
        }
        let keyring = self.keyring()?;
        let rows = sqlx::query_as!(
            Row,
            "SELECT DISTINCT ON (name) owner_kind, owner, name, key_id, nonce, sealed FROM secrets
            WHERE name = ANY($3) AND ((owner_kind = 'user' AND owner = $1) OR (owner_kind = 'project' AND owner = $2))
            ORDER BY name, owner_kind DESC",
            of.user,
            of.project,
            names,
        );
        let rows = rows.fetch_all(&self.pool).await.map_err(StoreError::during("reading secrets"))?;
        let opened = rows.into_iter().map(|row| row.open(keyring)).collect::<Result<Vec<_>, _>>();
        let opened = opened.map_err(StoreError::Sealed)?;
        let kinds: Vec<String> = opened.iter().map(|(id, _)| <&str>::from(id.owner.kind()).to_owned()).collect();
        let owners: Vec<String> = opened.iter().map(|(id, _)| id.owner.name().to_owned()).collect();
        let used: Vec<String> = opened.iter().map(|(id, _)| id.name.clone()).collect();
        sqlx::query!(
            "UPDATE secrets SET used_at = $4
            FROM UNNEST($1::text[], $2::text[], $3::text[]) AS used (kind, whose, called)
            WHERE owner_kind = kind AND owner = whose AND name = called AND (used_at IS NULL OR used_at < $5)",
            &kinds,
            &owners,
            &used,
            time(now),
            time(now - USED_TO),
        )
        .execute(&self.pool)
        .await
        .map_err(StoreError::during("noting the use of secrets"))?;
        Ok(opened.into_iter().map(|(id, value)| (id.name, value)).collect())
    }
}

/// With the projects that they were of: who makes one of the same name later is not given them.
pub(super) async fn delete_of_projects(connection: &mut PgConnection, projects: &[&str]) -> Result<(), sqlx::Error> {
    if projects.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = projects.iter().map(|name| (*name).to_owned()).collect();
    sqlx::query!("DELETE FROM secrets WHERE owner_kind = 'project' AND owner = ANY($1)", &names)
        .execute(connection)
        .await?;
    Ok(())
}
