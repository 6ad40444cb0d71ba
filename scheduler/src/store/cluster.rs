//! The single row of the cluster: term, target, policy, number of the last event.

use headway_engine::record::PolicySettings;
use headway_types::{PlanId, Term, Timestamp};
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::column::{integer, moment, time, unsigned};
use super::{AuditEntry, Store, StoreError, audit, restores};

/// What the cluster row says.
pub(super) struct ClusterRow {
    pub target: Option<PlanId>,
    pub policy: Option<PolicySettings>,
    pub last_event_seq: u64,
    pub restored: Option<Timestamp>,
}

impl Store {
    /// Says that the store was restored from a backup of this moment. The next term is above `floor`, and whoever leads it waits for nodes
    /// before it grants GPUs. The audit says so too, and the mark of the unfinished restore goes. Returns the term that the next is above. `now`: by the clock of this machine.
    pub async fn mark_restored(&self, backup_at: Timestamp, floor: Term, now: Timestamp) -> Result<Term, StoreError> {
        let marked = self.marked_restored(backup_at, floor, now).await;
        marked.map_err(StoreError::during("raising the term of a restored database"))
    }

    async fn marked_restored(&self, backup_at: Timestamp, floor: Term, now: Timestamp) -> Result<Term, sqlx::Error> {
        let mut tx = self.writer.begin().await?;
        let term = sqlx::query_scalar!(
            "UPDATE cluster SET term = GREATEST(term, $1), restored_backup_at = $2 RETURNING term",
            integer(floor.0),
            time(backup_at),
        )
        .fetch_one(&mut *tx)
        .await?;
        let deed = AuditEntry::restored(now, time(backup_at), Term(unsigned(term)));
        audit::insert(&mut tx, &[deed]).await?;
        restores::remove_mark(&mut tx).await?;
        tx.commit().await?;
        Ok(Term(unsigned(term)))
    }

    /// Which cluster this is, for as long as its database lives.
    pub async fn identity(&self) -> Result<Uuid, StoreError> {
        sqlx::query_scalar!("SELECT identity FROM cluster")
            .fetch_one(&self.pool)
            .await
            .map_err(StoreError::during("reading the cluster's identity"))
    }

    /// The newest moment that is stored: of a fact, or of a measurement to ten seconds.
    pub async fn newest_moment(&self) -> Result<Option<Timestamp>, StoreError> {
        let newest = sqlx::query_scalar!(
            "SELECT GREATEST(last_at, (SELECT max(bucket_at) FROM job_series WHERE resolution_seconds = 10))
            FROM cluster"
        )
        .fetch_one(&self.writer)
        .await
        .map_err(StoreError::during("reading the newest moment"))?;
        Ok(newest.map(moment))
    }
}

pub(super) async fn read(connection: &mut PgConnection) -> Result<ClusterRow, sqlx::Error> {
    let row =
        sqlx::query!(r#"SELECT target_plan_id, policy AS "policy: Json<PolicySettings>", last_event_seq, restored_backup_at FROM cluster"#)
            .fetch_one(connection)
            .await?;
    Ok(ClusterRow {
        target: row.target_plan_id.map(PlanId),
        policy: row.policy.map(|policy| policy.0),
        last_event_seq: unsigned(row.last_event_seq),
        restored: row.restored_backup_at.map(moment),
    })
}

/// What a commit changes in the row; the rest is kept.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ClusterChange<'a> {
    pub target: Option<PlanId>,
    pub policy: Option<&'a PolicySettings>,
    pub last_event_seq: Option<u64>,
    /// The newest term from now on, if it is higher: whoever holds the one before is kept out.
    pub term: Option<Term>,
    /// Nodes are waited for no longer after a restore.
    pub returned: bool,
    /// Newest moment of what is committed.
    pub last_at: Option<Timestamp>,
}
