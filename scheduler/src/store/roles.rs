//! Two roles of Postgres: one owns the schema and brings it up to date, the other runs servers and can only add to the audit. What is
//! asked here holds for any schema, so `query!` does not check it.

use sqlx::{AssertSqlSafe, PgConnection};

use super::{MIGRATIONS, Store, StoreError};

/// Why a role was not let in.
#[derive(Debug, thiserror::Error)]
pub enum GrantError {
    #[error("there is no role {0:?}; make it first: CREATE ROLE {0} LOGIN")]
    NoSuchRole(String),
    #[error("the role {0:?} may do everything, or become the owner of the audit: give servers one that owns nothing")]
    TooPowerful(String),
    #[error("the role {0:?} may change the audit by what another role or PUBLIC was granted")]
    GrantedMore(String),
    #[error("letting the role in")]
    Database(#[source] sqlx::Error),
}

/// For a transaction in which `headway.role` names the role.
const GRANTS: &str = "
DO $$
DECLARE
    role text := current_setting('headway.role');
    schema text := current_schema();
BEGIN
    IF NOT has_schema_privilege(role, schema, 'USAGE') THEN
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', schema, role);
    END IF;
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %I TO %I', schema, role);
    EXECUTE format('GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA %I TO %I', schema, role);
    EXECUTE format('REVOKE UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER ON audit, audit_seals FROM %I, PUBLIC', role);
    EXECUTE format('REVOKE INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER ON _sqlx_migrations, audit_start, audit_time_ranges FROM %I, PUBLIC', role);
    -- It removes what is a year old and older, and nothing else (migration 0070).
    REVOKE ALL ON FUNCTION prune_audit FROM PUBLIC;
    EXECUTE format('GRANT EXECUTE ON FUNCTION prune_audit TO %I', role);
END
$$";

impl Store {
    /// Lets a role run servers on this database: whatever they need, and of the audit no more than to read it and add to it. Safe to repeat, and to be repeated
    /// after each migration, which may have made tables.
    pub async fn grant_to(&self, role: &str) -> Result<(), GrantError> {
        let mut tx = self.writer.begin().await.map_err(GrantError::Database)?;
        let powerful: Option<bool> = sqlx::query_scalar(
            "SELECT r.rolsuper OR pg_has_role(r.oid, c.relowner, 'MEMBER')
            FROM pg_roles r, pg_class c WHERE r.rolname = $1 AND c.oid = 'audit'::regclass",
        )
        .bind(role)
        .fetch_optional(&mut *tx)
        .await
        .map_err(GrantError::Database)?;
        match powerful {
            None => return Err(GrantError::NoSuchRole(role.to_owned())),
            Some(true) => return Err(GrantError::TooPowerful(role.to_owned())),
            Some(false) => {}
        }
        let named = sqlx::query("SELECT set_config('headway.role', $1, true)").bind(role);
        named.execute(&mut *tx).await.map_err(GrantError::Database)?;
        sqlx::query(AssertSqlSafe(GRANTS)).execute(&mut *tx).await.map_err(GrantError::Database)?;
        let more: bool = sqlx::query_scalar(
            "SELECT bool_or(has_any_column_privilege($1, c.oid, 'UPDATE') OR has_table_privilege($1, c.oid, 'DELETE, TRUNCATE, TRIGGER'))
            FROM pg_class c WHERE c.oid IN (
                'audit'::regclass, 'audit_seals'::regclass, 'audit_start'::regclass, 'audit_time_ranges'::regclass
            )",
        )
        .bind(role)
        .fetch_one(&mut *tx)
        .await
        .map_err(GrantError::Database)?;
        if more {
            return Err(GrantError::GrantedMore(role.to_owned()));
        }
        tx.commit().await.map_err(GrantError::Database)
    }
}

/// For a role that may not change the schema: whether it is this release's. `None`: the role may.
pub(super) async fn as_it_is(connection: &mut PgConnection) -> Result<Option<Result<(), StoreError>>, sqlx::Error> {
    let owns: Option<bool> = sqlx::query_scalar(
        "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass('_sqlx_migrations')",
    )
    .fetch_optional(&mut *connection)
    .await?;
    if owns != Some(false) {
        return Ok(None);
    }
    let done: Vec<(i64, Vec<u8>)> =
        sqlx::query_as("SELECT version, checksum FROM _sqlx_migrations WHERE success ORDER BY version")
            .fetch_all(&mut *connection)
            .await?;
    let sum = |version: i64| done.iter().find(|(known, _)| *known == version).map(|(_, sum)| sum.as_slice());
    let unknown = done.iter().find(|(version, _)| !MIGRATIONS.version_exists(*version));
    if let Some((version, _)) = unknown {
        return Ok(Some(Err(StoreError::Migrate(sqlx::migrate::MigrateError::VersionMissing(*version)))));
    }
    let pending: Vec<i64> = MIGRATIONS.iter().map(|one| one.version).filter(|one| sum(*one).is_none()).collect();
    if !pending.is_empty() {
        return Ok(Some(Err(StoreError::SchemaBehind { pending })));
    }
    let changed = MIGRATIONS.iter().find(|one| sum(one.version) != Some(&*one.checksum));
    Ok(Some(match changed {
        Some(one) => Err(StoreError::Migrate(sqlx::migrate::MigrateError::VersionMismatch(one.version))),
        None => Ok(()),
    }))
}
