//! Table `node_authorities`: what signs nodes' certificates. Keys are sealed and opened at this border, as secrets are.

use headway_api::secret::Secret;
use headway_types::Timestamp;
use serde_json::json;
use sqlx::PgConnection;

use super::column::{moment, time};
use super::secrets::fresh_nonce;
use super::{AuditEntry, Store, StoreError, audit};
use crate::secrets::Sealed;

/// One as it is stored, opened.
pub struct StoredAuthority {
    pub fingerprint: String,
    /// PEM, as the key.
    pub certificate: String,
    pub key: Secret,
    pub expires_at: Timestamp,
    /// Since then another signs.
    pub replaced_at: Option<Timestamp>,
    /// When the last certificate of a node ends that it has signed.
    pub used_until: Option<Timestamp>,
}

/// One to be stored.
pub struct NewAuthority {
    pub fingerprint: String,
    /// PEM, as the key.
    pub certificate: String,
    pub key: Secret,
    pub expires_at: Timestamp,
}

/// What came of retiring one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retirement {
    Done,
    Unknown,
    /// Another has to sign first.
    Signs,
}

impl Store {
    /// Those that are not retired, the one that signs first, then the newest.
    pub async fn authorities(&self) -> Result<Vec<StoredAuthority>, StoreError> {
        let rows = sqlx::query!(
            "SELECT fingerprint, certificate, key_id, nonce, sealed, expires_at, replaced_at,
                (SELECT max(node_identities.expires_at) FROM node_identities
                    WHERE authority = fingerprint AND revoked_at IS NULL) AS used_until
            FROM node_authorities WHERE retired_at IS NULL ORDER BY replaced_at DESC NULLS FIRST",
        );
        let rows = rows.fetch_all(&self.pool).await.map_err(StoreError::during("reading nodes' authorities"))?;
        let keyring = self.keyring()?;
        let open = |row: Sealed, fingerprint: &str| keyring.open_key_of_authority(fingerprint, &row);
        let opened = rows.into_iter().map(|row| {
            let nonce = row.nonce.try_into().map_err(|_| StoreError::Sealed(crate::secrets::OpenError::Broken))?;
            let sealed = Sealed { key_id: row.key_id, nonce, bytes: row.sealed };
            Ok(StoredAuthority {
                key: open(sealed, &row.fingerprint).map_err(StoreError::Sealed)?,
                fingerprint: row.fingerprint,
                certificate: row.certificate,
                expires_at: moment(row.expires_at),
                replaced_at: row.replaced_at.map(moment),
                used_until: row.used_until.map(moment),
            })
        });
        opened.collect()
    }

    /// Unless one signs already.
    pub async fn add_first_authority(&self, new: &NewAuthority, now: Timestamp) -> Result<(), StoreError> {
        let failed = || StoreError::during("storing nodes' authority");
        let sealed = self.seal_authority(new)?;
        let mut tx = self.pool.begin().await.map_err(failed())?;
        insert(&mut tx, new, &sealed, now).await.map_err(failed())?;
        tx.commit().await.map_err(failed())
    }

    /// It signs from now on; those before it are believed for a while. False, and nothing is done, where it is known already or somebody else
    /// replaces the same one at this moment.
    pub async fn replace_authority(
        &self,
        new: &NewAuthority,
        now: Timestamp,
        deed: Option<AuditEntry>,
    ) -> Result<bool, StoreError> {
        let sealed = self.seal_authority(new)?;
        self.replace(new, &sealed, now, deed).await.map_err(StoreError::during("replacing nodes' authority"))
    }

    async fn replace(
        &self,
        new: &NewAuthority,
        sealed: &Sealed,
        now: Timestamp,
        deed: Option<AuditEntry>,
    ) -> Result<bool, sqlx::Error> {
        let mut tx = self.pool.begin().await?;
        let former = sqlx::query_scalar!(
            "UPDATE node_authorities SET replaced_at = $1 WHERE replaced_at IS NULL RETURNING fingerprint",
            time(now),
        );
        let former = former.fetch_optional(&mut *tx).await?;
        if !insert(&mut tx, new, sealed, now).await? {
            return Ok(false);
        }
        let (before, after) = (json!({ "signs": former }), json!({ "signs": new.fingerprint }));
        let told = |deed| AuditEntry {
            subjects: vec![format!("authority:{}", new.fingerprint)],
            before: Some(before),
            after: Some(after),
            ..deed
        };
        audit::insert(&mut tx, deed.map(told).as_slice()).await?;
        tx.commit().await?;
        Ok(true)
    }

    pub async fn retire_authority(
        &self,
        fingerprint: &str,
        now: Timestamp,
        deed: Option<AuditEntry>,
    ) -> Result<Retirement, StoreError> {
        self.retire(fingerprint, now, deed).await.map_err(StoreError::during("retiring an authority of nodes"))
    }

    async fn retire(
        &self,
        fingerprint: &str,
        now: Timestamp,
        deed: Option<AuditEntry>,
    ) -> Result<Retirement, sqlx::Error> {
        let mut tx = self.pool.begin().await?;
        let row = sqlx::query_scalar!(
            r#"SELECT replaced_at IS NULL AS "signs!" FROM node_authorities
            WHERE fingerprint = $1 AND retired_at IS NULL FOR UPDATE"#,
            fingerprint,
        );
        match row.fetch_optional(&mut *tx).await? {
            None => return Ok(Retirement::Unknown),
            Some(true) => return Ok(Retirement::Signs),
            Some(false) => {}
        }
        sqlx::query!("UPDATE node_authorities SET retired_at = $2 WHERE fingerprint = $1", fingerprint, time(now))
            .execute(&mut *tx)
            .await?;
        let told = |deed| AuditEntry { subjects: vec![format!("authority:{fingerprint}")], ..deed };
        audit::insert(&mut tx, deed.map(told).as_slice()).await?;
        tx.commit().await?;
        Ok(Retirement::Done)
    }

    fn seal_authority(&self, new: &NewAuthority) -> Result<Sealed, StoreError> {
        Ok(self.keyring()?.seal_key_of_authority(&new.fingerprint, &new.key, fresh_nonce()?))
    }

    /// Seals anew, with the first key, what is sealed with another; how many those were.
    pub(super) async fn reseal_authorities(&self) -> Result<u64, StoreError> {
        let Some(keyring) = &self.keyring else { return Ok(0) };
        let rows = sqlx::query!(
            "SELECT fingerprint, key_id, nonce, sealed FROM node_authorities
            WHERE key_id <> $1 AND retired_at IS NULL",
            keyring.first(),
        );
        let rows = rows.fetch_all(&self.pool).await.map_err(StoreError::during("reading nodes' authorities"))?;
        let mut resealed = 0;
        for row in rows {
            let nonce = row.nonce.try_into().map_err(|_| StoreError::Sealed(crate::secrets::OpenError::Broken))?;
            let sealed = Sealed { key_id: row.key_id, nonce, bytes: row.sealed };
            let key = keyring.open_key_of_authority(&row.fingerprint, &sealed).map_err(StoreError::Sealed)?;
            let sealed = keyring.seal_key_of_authority(&row.fingerprint, &key, fresh_nonce()?);
            let done = sqlx::query!(
                "UPDATE node_authorities SET key_id = $2, nonce = $3, sealed = $4 WHERE fingerprint = $1",
                row.fingerprint,
                sealed.key_id,
                &sealed.nonce[..],
                &sealed.bytes[..],
            );
            let done = done.execute(&self.pool).await.map_err(StoreError::during("sealing nodes' authorities anew"))?;
            resealed += done.rows_affected();
        }
        Ok(resealed)
    }
}

/// False where one signs already.
async fn insert(
    connection: &mut PgConnection,
    new: &NewAuthority,
    sealed: &Sealed,
    now: Timestamp,
) -> Result<bool, sqlx::Error> {
    let done = sqlx::query!(
        "INSERT INTO node_authorities (fingerprint, certificate, key_id, nonce, sealed, made_at, expires_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
        new.fingerprint,
        new.certificate,
        sealed.key_id,
        &sealed.nonce[..],
        &sealed.bytes[..],
        time(now),
        time(new.expires_at),
    );
    Ok(done.execute(connection).await?.rows_affected() > 0)
}
