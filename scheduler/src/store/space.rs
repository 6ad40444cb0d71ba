//! What each table takes of the database, and what bounds it. Every table of the schema is in `TABLES`, held by a test.
//!
//! Sizes are asked of Postgres' catalogue, which `query!` does not know. Numbers of rows are Postgres' own estimates,
//! and the oldest row is found by an index, or in a table that stays small: asking costs milliseconds, however much is
//! stored.

use std::path::PathBuf;

use chrono::{DateTime, Utc};
use headway_types::Timestamp;
use sqlx::{AssertSqlSafe, Row as _};

use super::column::{moment, unsigned};
use super::{Store, StoreError};

/// What keeps a table from growing without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableBound {
    pub table: &'static str,
    /// An expression for the moment of the oldest row; `None` where rows have no age that matters.
    oldest: Option<&'static str>,
    /// The option of `headway server` that says how long rows are kept.
    pub option: Option<&'static str>,
    /// The bound, in words.
    pub bound: &'static str,
}

/// A table as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct TableSpace {
    pub table: String,
    /// Postgres' estimate.
    pub rows: u64,
    /// With indexes and what is stored out of line.
    pub bytes: u64,
    pub oldest: Option<Timestamp>,
    /// `None`: the table is none of this release's.
    pub bound: Option<TableBound>,
}

/// What the database takes.
#[derive(Clone, Debug, PartialEq)]
pub struct DatabaseSpace {
    /// The largest first.
    pub tables: Vec<TableSpace>,
    /// The whole database, with what belongs to no table.
    pub bytes: u64,
    /// The directory of Postgres' data, if it is on this machine.
    pub directory: Option<PathBuf>,
}

const fn bounded_by_option(
    table: &'static str,
    oldest: &'static str,
    option: &'static str,
    bound: &'static str,
) -> TableBound {
    TableBound { table, oldest: Some(oldest), option: Some(option), bound }
}

const fn bounded_with_age(table: &'static str, oldest: &'static str, bound: &'static str) -> TableBound {
    TableBound { table, oldest: Some(oldest), option: None, bound }
}

const fn bounded_by(table: &'static str, bound: &'static str) -> TableBound {
    TableBound { table, oldest: None, option: None, bound }
}

const FORMER_HISTORY: &str = "empty unless an earlier release wrote it; the next release drops it";

/// Every table, in the order of its name.
pub const TABLES: &[TableBound] = &[
    bounded_by("_sqlx_migrations", "one row per migration"),
    bounded_by_option(
        "allocation_transitions",
        "SELECT valid_from FROM allocation_transitions ORDER BY job_id LIMIT 1",
        "--history-days",
        FORMER_HISTORY,
    ),
    bounded_by_option(
        "allocations",
        "SELECT granted_at FROM allocations ORDER BY job_id, generation LIMIT 1",
        "--job-days",
        "pruned with the job",
    ),
    bounded_by_option(
        "arrays",
        "SELECT submitted_at FROM arrays ORDER BY array_id LIMIT 1",
        "--job-days",
        "pruned after the array's last element",
    ),
    bounded_by_option(
        "audit",
        "SELECT done_at FROM audit ORDER BY audit_id LIMIT 1",
        "--audit-days",
        "pruned by age, a year at least",
    ),
    bounded_by_option(
        "audit_seals",
        "SELECT sealed_at FROM audit_seals ORDER BY position LIMIT 1",
        "--audit-days",
        "pruned with the line of the audit",
    ),
    bounded_by("audit_start", "one row"),
    bounded_by_option(
        "audit_time_ranges",
        "SELECT earliest FROM audit_time_ranges ORDER BY range_id LIMIT 1",
        "--audit-days",
        "one row per thousand lines of the audit, pruned with the last of them",
    ),
    bounded_with_age(
        "audit_unsealed",
        "SELECT added_at FROM audit_unsealed ORDER BY audit_id LIMIT 1",
        "a row goes as soon as its line is sealed, within a second",
    ),
    bounded_with_age(
        "browser_sessions",
        "SELECT min(created_at) FROM browser_sessions",
        "pruned at the end of the session",
    ),
    bounded_by_option(
        "checkpoints",
        "SELECT committed_at FROM checkpoints ORDER BY job_id, generation, step LIMIT 1",
        "--job-days",
        "pruned with the job",
    ),
    bounded_by("cluster", "one row"),
    bounded_by_option(
        "cluster_series",
        "SELECT sampled_at FROM cluster_series ORDER BY sampled_at LIMIT 1",
        "--history-days",
        "pruned by age, a row a minute",
    ),
    bounded_by_option(
        "deliveries",
        "SELECT made_at FROM deliveries ORDER BY event_seq, webhook LIMIT 1",
        "--history-days",
        "pruned by age since the delivery ended",
    ),
    bounded_by_option("events", "SELECT happened_at FROM events ORDER BY seq LIMIT 1", "--event-days", "pruned by age"),
    bounded_by_option(
        "former_nodes",
        "SELECT min(deleted_at) FROM former_nodes",
        "--job-days",
        "pruned by age since the node was deleted, once no event names it",
    ),
    bounded_by("group_memberships", "one row per user and project that a group gives"),
    bounded_with_age(
        "idempotency_keys",
        "SELECT used_at FROM idempotency_keys ORDER BY used_at LIMIT 1",
        "pruned 7 days after the request",
    ),
    bounded_by("identities", "one row per user of the identity provider"),
    bounded_by_option(
        "job_models",
        "SELECT updated_at FROM job_models ORDER BY job_id LIMIT 1",
        "--job-days",
        "one row per job, pruned with the job",
    ),
    bounded_by_option(
        "job_series",
        "SELECT bucket_at FROM job_series WHERE resolution_seconds = 3600 ORDER BY bucket_at LIMIT 1",
        "--job-days",
        "10 s for 48 hours, minutes for 30 days, hours until the job is pruned",
    ),
    bounded_by_option(
        "job_transitions",
        "SELECT valid_from FROM job_transitions ORDER BY job_id LIMIT 1",
        "--history-days",
        FORMER_HISTORY,
    ),
    bounded_by_option(
        "jobs",
        "SELECT submitted_at FROM jobs ORDER BY job_id LIMIT 1",
        "--job-days",
        "pruned by age since the job ended",
    ),
    bounded_with_age("join_tokens", "SELECT min(created_at) FROM join_tokens", "pruned once used up or expired"),
    bounded_with_age(
        "node_authorities",
        "SELECT min(made_at) FROM node_authorities",
        "one row per rotation of the authority",
    ),
    bounded_with_age(
        "node_identities",
        "SELECT min(issued_at) FROM node_identities",
        "one row per node that has a certificate; pruned after a revocation and the end of the certificate",
    ),
    bounded_by_option(
        "node_transitions",
        "SELECT valid_from FROM node_transitions ORDER BY node_id LIMIT 1",
        "--history-days",
        FORMER_HISTORY,
    ),
    bounded_by("nodes", "one row per node, until it is deleted"),
    bounded_by("peer_lessons", "one row, bounded in its size"),
    bounded_by_option(
        "plan_inputs",
        "SELECT made_at FROM plan_inputs ORDER BY made_at LIMIT 1",
        "--plan-input-days",
        "pruned by age",
    ),
    bounded_by_option(
        "plan_transitions",
        "SELECT valid_from FROM plan_transitions ORDER BY plan_id LIMIT 1",
        "--history-days",
        FORMER_HISTORY,
    ),
    bounded_by_option(
        "plans",
        "SELECT made_at FROM plans ORDER BY plan_id LIMIT 1",
        "--plan-days",
        "pruned by age; the plans that unfinished jobs follow stay",
    ),
    bounded_by_option(
        "predicted_starts",
        "SELECT made_at FROM predicted_starts ORDER BY made_at LIMIT 1",
        "--history-days",
        "pruned by age",
    ),
    bounded_by_option(
        "project_series",
        "SELECT sampled_at FROM project_series ORDER BY sampled_at LIMIT 1",
        "--history-days",
        "pruned by age, a row per project and minute",
    ),
    bounded_by("projects", "one row per project, until it is deleted"),
    bounded_by_option(
        "realised_goodput",
        "SELECT ended_at FROM realised_goodput ORDER BY ended_at LIMIT 1",
        "--history-days",
        "pruned by age",
    ),
    bounded_by("reservations", "a row goes when its reservation is over"),
    bounded_by("secrets", "one row per secret, until it is deleted; at most 1000 per owner"),
    bounded_with_age("servers", "SELECT min(started_at) FROM servers", "pruned once a server is silent"),
    bounded_by_option(
        "tokens",
        "SELECT min(created_at) FROM tokens",
        "--token-days",
        "pruned by age since the token ended; tokens that a server was started with stay",
    ),
    bounded_by_option(
        "transitions",
        "SELECT min(oldest.valid_from) FROM (VALUES ('allocation'), ('job'), ('node'), ('plan')) AS kinds (subject)
            CROSS JOIN LATERAL (
                SELECT valid_from FROM transitions WHERE transitions.subject = kinds.subject
                ORDER BY subject_id, generation, valid_from LIMIT 1
            ) AS oldest",
        "--history-days",
        "pruned by age since the state ended",
    ),
    bounded_by("users", "one row per user"),
];

/// Tables of the schema that this connection uses. Asks the catalogue alone, so that it costs the same for any size.
const SIZES: &str = "
SELECT c.relname::text AS name, pg_total_relation_size(c.oid) AS bytes,
    COALESCE(NULLIF(s.n_live_tup, 0), GREATEST(c.reltuples, 0)::bigint) AS rows
FROM pg_class c LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid
WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
ORDER BY bytes DESC, name";

impl Store {
    /// Returns what each table takes.
    pub async fn space(&self) -> Result<DatabaseSpace, StoreError> {
        self.measure_space().await.map_err(StoreError::during("measuring tables"))
    }

    async fn measure_space(&self) -> Result<DatabaseSpace, sqlx::Error> {
        let mut connection = self.pool.acquire().await?;
        let bytes: i64 =
            sqlx::query_scalar("SELECT pg_database_size(current_database())").fetch_one(&mut *connection).await?;
        let mut tables = Vec::new();
        for row in sqlx::query(SIZES).fetch_all(&mut *connection).await? {
            let table: String = row.try_get("name")?;
            let bound = TABLES.iter().find(|one| one.table == table).copied();
            let oldest: Option<DateTime<Utc>> = match bound.and_then(|bound| bound.oldest) {
                Some(oldest) => {
                    let sql = AssertSqlSafe(oldest.to_owned());
                    sqlx::query_scalar(sql).fetch_optional(&mut *connection).await?.flatten()
                }
                None => None,
            };
            tables.push(TableSpace {
                table,
                rows: unsigned(row.try_get("rows")?),
                bytes: unsigned(row.try_get("bytes")?),
                oldest: oldest.map(moment),
                bound,
            });
        }
        let options = self.pool.connect_options();
        let is_local = options.get_socket().is_some() || options.get_host().starts_with('/');
        let directory = if is_local {
            // Not every role may read it.
            let shown = sqlx::query_scalar::<_, String>("SHOW data_directory").fetch_one(&mut *connection).await;
            shown.ok().map(PathBuf::from)
        } else {
            None
        };
        Ok(DatabaseSpace { tables, bytes: unsigned(bytes), directory })
    }
}
