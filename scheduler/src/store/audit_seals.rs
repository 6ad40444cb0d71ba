//! Tables `audit_seals` and `audit_unsealed`: the chain of the audit, and what waits to be a link of it. Only the
//! oldest links are ever removed (table `audit_start`); what is a sound chain is said in `crate::audit::chain`. Moments
//! are found by the table `audit_time_ranges`, which triggers keep.

use std::collections::BTreeMap;

use headway_types::{Seconds, Timestamp};

use super::audit::{AuditLine, AuditRow};
use super::column::{integer, moment, time, unsigned};
use super::{Store, StoreError};
use crate::audit::{Anchor, Hash, Link, Seal};

/// The row that was sealed last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AuditHead {
    pub anchor: Anchor,
    pub position: u64,
    pub sealed_at: Timestamp,
}

/// Where the chain begins since its oldest lines were pruned: the last of those.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AuditStart {
    pub anchor: Anchor,
    pub position: u64,
}

/// What waits to be sealed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Unsealed {
    /// Beyond a hundred thousand nobody counts.
    pub rows: u64,
    /// How long the oldest of them has waited, by the clock of Postgres' machine; 0 where none waits.
    pub lag: Seconds,
}

impl Store {
    /// Seals what waits, at most so many rows, in the order of their ids. How many it were. Who seals at the same time as another fails.
    pub async fn seal_audit(&self, most: u32) -> Result<u32, StoreError> {
        self.seal(most).await.map_err(StoreError::during("sealing the audit"))
    }

    async fn seal(&self, most: u32) -> Result<u32, sqlx::Error> {
        let mut tx = self.pool.begin().await?;
        let waiting = sqlx::query_as!(
            AuditRow,
            "SELECT a.audit_id, done_at, actor, token_id, address, action, subjects, reason, before, after, request_id, result, code
            FROM audit_unsealed u JOIN audit a ON a.audit_id = u.audit_id ORDER BY u.audit_id LIMIT $1",
            i64::from(most),
        )
        .fetch_all(&mut *tx)
        .await?;
        if waiting.is_empty() {
            return Ok(0);
        }
        let last = sqlx::query!("SELECT position, hash FROM audit_seals ORDER BY position DESC LIMIT 1")
            .fetch_optional(&mut *tx)
            .await?;
        let last = last.map_or((0, Hash::NOTHING), |last| (unsigned(last.position), hash(&last.hash)));
        let seals = waiting.into_iter().map(AuditLine::from).scan(last, |(position, previous), line| {
            let seal = Seal::of(&line, *position + 1, *previous);
            (*position, *previous) = (seal.position, seal.hash);
            Some((line.id, seal))
        });
        let (ids, seals): (Vec<i64>, Vec<Seal>) = seals.unzip();
        let bytes = |of: fn(&Seal) -> Hash| seals.iter().map(|seal| of(seal).0.to_vec()).collect::<Vec<_>>();
        sqlx::query!(
            "INSERT INTO audit_seals (position, audit_id, previous_hash, hash)
            SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bytea[])",
            &seals.iter().map(|seal| integer(seal.position)).collect::<Vec<_>>(),
            &ids,
            &bytes(|seal| seal.previous),
            &bytes(|seal| seal.hash),
        )
        .execute(&mut *tx)
        .await?;
        sqlx::query!("DELETE FROM audit_unsealed WHERE audit_id = ANY($1)", &ids).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(u32::try_from(ids.len()).unwrap_or(most))
    }

    /// `None` where nothing is sealed.
    pub async fn audit_head(&self) -> Result<Option<AuditHead>, StoreError> {
        let row =
            sqlx::query!("SELECT position, audit_id, hash, sealed_at FROM audit_seals ORDER BY position DESC LIMIT 1")
                .fetch_optional(&self.pool)
                .await
                .map_err(StoreError::during("reading the head of the audit"))?;
        Ok(row.map(|row| AuditHead {
            anchor: Anchor { id: row.audit_id, hash: hash(&row.hash) },
            position: unsigned(row.position),
            sealed_at: moment(row.sealed_at),
        }))
    }

    /// Returns the last line that was pruned; `None` where the chain begins with the first line there has been.
    pub async fn audit_start(&self) -> Result<Option<AuditStart>, StoreError> {
        let row = sqlx::query!("SELECT position, audit_id, hash FROM audit_start")
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::during("reading where the audit begins"))?;
        let anchor = |id: i64, bytes: &[u8]| Anchor { id, hash: hash(bytes) };
        Ok(row.map(|row| AuditStart { anchor: anchor(row.audit_id, &row.hash), position: unsigned(row.position) }))
    }

    /// Returns whether a line of the audit tells of the pruning up to this start.
    pub async fn is_audit_pruning_recorded(&self, start: AuditStart) -> Result<bool, StoreError> {
        sqlx::query_scalar!(
            r#"SELECT EXISTS (
                SELECT FROM audit WHERE action = 'prune_audit' AND subjects @> ARRAY[$1] AND after ->> 'last' = $2
            ) AS "told!""#,
            format!("audit:{}", start.anchor.id),
            start.anchor.to_string(),
        )
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::during("looking who pruned the audit"))
    }

    /// Removes the lines up to a position of the chain that were sealed a year ago or earlier, and adds a line that
    /// tells of it; returns how many were removed. `now`: of the cluster's clock.
    pub async fn remove_audit_lines(&self, up_to: u64, now: Timestamp) -> Result<u64, StoreError> {
        let gone = sqlx::query_scalar!(r#"SELECT prune_audit($1, $2) AS "gone!""#, integer(up_to), time(now))
            .fetch_one(&self.writer)
            .await
            .map_err(StoreError::during("pruning the audit"))?;
        Ok(unsigned(gone))
    }

    pub async fn unsealed_audit(&self) -> Result<Unsealed, StoreError> {
        let row = sqlx::query!(
            r#"SELECT (SELECT count(*) FROM (SELECT FROM audit_unsealed LIMIT 100000) waiting) AS "rows!",
                COALESCE((SELECT GREATEST(extract(epoch FROM clock_timestamp() - added_at), 0)::float8
                    FROM audit_unsealed ORDER BY audit_id LIMIT 1), 0) AS "lag!""#
        )
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::during("looking what of the audit is not sealed"))?;
        Ok(Unsealed { rows: unsigned(row.rows), lag: Seconds(row.lag) })
    }

    /// What a row was sealed with.
    pub async fn seal_of(&self, id: i64) -> Result<Option<Seal>, StoreError> {
        let row = sqlx::query!("SELECT position, previous_hash, hash FROM audit_seals WHERE audit_id = $1", id)
            .fetch_optional(&self.pool)
            .await
            .map_err(StoreError::during("reading a seal of the audit"))?;
        Ok(row.map(|row| Seal {
            position: unsigned(row.position),
            previous: hash(&row.previous_hash),
            hash: hash(&row.hash),
        }))
    }

    /// The links after a position, as many as are wanted, in their order.
    pub async fn audit_links(&self, after: u64, most: u32) -> Result<Vec<Link>, StoreError> {
        self.links(after, most).await.map_err(StoreError::during("reading the chain of the audit"))
    }

    async fn links(&self, after: u64, most: u32) -> Result<Vec<Link>, sqlx::Error> {
        let seals = sqlx::query!(
            "SELECT position, audit_id, previous_hash, hash FROM audit_seals WHERE position > $1 ORDER BY position LIMIT $2",
            integer(after),
            i64::from(most),
        )
        .fetch_all(&self.pool)
        .await?;
        // Later than the seals: a row was there before its seal, and stays.
        let rows = sqlx::query_as!(
            AuditRow,
            "SELECT audit_id, done_at, actor, token_id, address, action, subjects, reason, before, after, request_id, result, code
            FROM audit WHERE audit_id = ANY($1)",
            &seals.iter().map(|seal| seal.audit_id).collect::<Vec<_>>(),
        )
        .fetch_all(&self.pool)
        .await?;
        let mut lines: BTreeMap<i64, AuditLine> = rows.into_iter().map(|row| (row.audit_id, row.into())).collect();
        let links = seals.into_iter().map(|row| {
            let (previous, hash) = (hash(&row.previous_hash), hash(&row.hash));
            let seal = Seal { position: unsigned(row.position), previous, hash };
            Link { id: row.audit_id, seal, line: lines.remove(&row.audit_id) }
        });
        Ok(links.collect())
    }

    /// Returns the position after which the lines of a moment and later stand. Lines are sealed in the order of their
    /// commits and not of their times: some behind this position may be earlier, and none before it is later. Where
    /// lines before the first of them are gone, these stand behind the position too, so that a verification finds it.
    /// Reads the ranges and the lines of one. The position is before the first line by the index over the times, too, so
    /// that ranges which somebody has changed hide no line that comes later.
    pub async fn audit_position_before(&self, at: Timestamp) -> Result<u64, StoreError> {
        let failed = || StoreError::during("looking for a moment in the audit");
        let first = sqlx::query_scalar!(
            r#"SELECT LEAST(
                (SELECT found.position FROM audit_time_ranges r CROSS JOIN LATERAL (
                    SELECT s.position FROM audit_seals s
                    WHERE s.position > r.range_id * 1000 AND s.position <= r.range_id * 1000 + 1000
                        AND (SELECT a.done_at FROM audit a WHERE a.audit_id = s.audit_id) >= $1
                    ORDER BY s.position LIMIT 1
                ) found WHERE r.latest >= $1 ORDER BY r.range_id LIMIT 1),
                (SELECT s.position FROM audit a JOIN audit_seals s ON s.audit_id = a.audit_id
                    WHERE a.done_at >= $1 ORDER BY a.done_at, a.audit_id LIMIT 1)
            ) AS "first?""#,
            time(at),
        );
        let first = first.fetch_one(&self.pool).await.map_err(failed())?.unwrap_or(i64::MAX);
        let last_before = sqlx::query_scalar!(
            "SELECT s.position FROM audit_seals s JOIN audit a ON a.audit_id = s.audit_id
            WHERE s.position < $1 ORDER BY s.position DESC LIMIT 1",
            first,
        );
        Ok(last_before.fetch_optional(&self.pool).await.map_err(failed())?.map_or(0, unsigned))
    }

    /// Returns the position of the last line of before a moment, behind another position; that one where there is none.
    /// Lines before it may be later.
    pub async fn last_audit_position_before(&self, at: Timestamp, after: u64) -> Result<u64, StoreError> {
        let last = sqlx::query_scalar!(
            r#"SELECT GREATEST(
                (SELECT found.position FROM audit_time_ranges r CROSS JOIN LATERAL (
                    SELECT s.position FROM audit_seals s
                    WHERE s.position > r.range_id * 1000 AND s.position <= r.range_id * 1000 + 1000
                        AND (SELECT a.done_at FROM audit a WHERE a.audit_id = s.audit_id) < $1
                    ORDER BY s.position DESC LIMIT 1
                ) found WHERE r.earliest < $1 AND r.range_id >= $2::bigint / 1000 ORDER BY r.range_id DESC LIMIT 1),
                (SELECT s.position FROM audit a JOIN audit_seals s ON s.audit_id = a.audit_id
                    WHERE a.done_at < $1 ORDER BY a.done_at DESC, a.audit_id DESC LIMIT 1),
                $2
            ) AS "last!""#,
            time(at),
            integer(after),
        );
        let last = last.fetch_one(&self.pool).await.map_err(StoreError::during("looking for a moment in the audit"))?;
        Ok(unsigned(last))
    }

    /// The first row after an id, and not beyond another where there is one, that is no link and waits to be none.
    pub async fn stray_audit_row(&self, after: i64, until: Option<i64>) -> Result<Option<i64>, StoreError> {
        sqlx::query_scalar!(
            "SELECT a.audit_id FROM audit a WHERE a.audit_id > $1 AND ($2::bigint IS NULL OR a.audit_id <= $2)
                AND NOT EXISTS (SELECT FROM audit_seals s WHERE s.audit_id = a.audit_id)
                AND NOT EXISTS (SELECT FROM audit_unsealed u WHERE u.audit_id = a.audit_id)
            ORDER BY a.audit_id LIMIT 1",
            after,
            until,
        )
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::during("looking for rows of the audit that were never sealed"))
    }

    /// The first row that waits to be sealed and is gone.
    pub async fn lost_audit_row(&self) -> Result<Option<i64>, StoreError> {
        sqlx::query_scalar!(
            "SELECT u.audit_id FROM audit_unsealed u WHERE NOT EXISTS (SELECT FROM audit a WHERE a.audit_id = u.audit_id)
            ORDER BY u.audit_id LIMIT 1"
        )
        .fetch_optional(&self.pool)
        .await
        .map_err(StoreError::during("looking for rows of the audit that are gone"))
    }

    /// Whether the role of this server can add to the audit and do nothing else with it: it owns neither table, and was not granted more.
    pub async fn audit_is_kept_by_role(&self) -> Result<bool, StoreError> {
        sqlx::query_scalar!(
            r#"SELECT bool_and(NOT pg_has_role(c.relowner, 'USAGE')
                AND NOT has_any_column_privilege(c.oid, 'UPDATE')
                AND NOT has_table_privilege(c.oid, 'DELETE, TRUNCATE, TRIGGER')) AS "kept!"
            FROM pg_class c WHERE c.oid IN (
                'audit'::regclass, 'audit_seals'::regclass, 'audit_start'::regclass, 'audit_time_ranges'::regclass
            )"#
        )
        .fetch_one(&self.pool)
        .await
        .map_err(StoreError::during("looking what the server's role may do with the audit"))
    }
}

/// The table holds none of another length.
fn hash(bytes: &[u8]) -> Hash {
    bytes.try_into().map_or(Hash::NOTHING, Hash)
}
