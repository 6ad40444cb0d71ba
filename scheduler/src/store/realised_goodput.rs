//! Table `realised_goodput`: what decisions expected of jobs' goodput, and what came of it.

use headway_engine::record::Realised;
use headway_types::{Seconds, Timestamp, TokensPerSecond};
use sqlx::PgConnection;

use super::column::{integer, small, text, time};
use super::{Store, StoreError};

/// As the catalog of no type is called.
const UNKNOWN: &str = "unknown";

/// An expectation that is over, as far as it is held against what came.
#[derive(Clone, Debug, PartialEq)]
pub struct Met {
    pub gpu_type: String,
    pub model_family: String,
    pub predicted: TokensPerSecond,
    /// First and last decile.
    pub band: Option<(TokensPerSecond, TokensPerSecond)>,
    pub realised: TokensPerSecond,
    pub measured_for: Seconds,
}

impl Store {
    /// Expectations that ended within a span, the newest first, at most so many.
    pub async fn met_expectations(&self, from: Timestamp, to: Timestamp, most: u32) -> Result<Vec<Met>, StoreError> {
        let rows = sqlx::query!(
            "SELECT gpu_type, model_family, predicted_tokens_per_second, low_tokens_per_second, high_tokens_per_second,
                realised_tokens_per_second, measured_seconds
            FROM realised_goodput WHERE ended_at >= $1 AND ended_at < $2 ORDER BY ended_at DESC LIMIT $3",
            time(from),
            time(to),
            i64::from(most),
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("reading what came of predictions"))?;
        let kept = rows.into_iter().map(|row| Met {
            gpu_type: row.gpu_type,
            model_family: row.model_family,
            predicted: TokensPerSecond(row.predicted_tokens_per_second),
            band: row
                .low_tokens_per_second
                .zip(row.high_tokens_per_second)
                .map(|(low, high)| (TokensPerSecond(low), TokensPerSecond(high))),
            realised: TokensPerSecond(row.realised_tokens_per_second),
            measured_for: Seconds(row.measured_seconds),
        });
        Ok(kept.collect())
    }

    /// Forgets what was over before this moment; returns how many.
    pub async fn prune_met_expectations(&self, before: Timestamp) -> Result<u64, StoreError> {
        let pruned = sqlx::query!("DELETE FROM realised_goodput WHERE ended_at < $1", time(before))
            .execute(&self.pool)
            .await
            .map_err(StoreError::during("pruning what came of predictions"))?;
        Ok(pruned.rows_affected())
    }
}

/// Repeating a commit changes nothing.
pub(super) async fn insert(connection: &mut PgConnection, realised: &[&Realised]) -> Result<(), sqlx::Error> {
    if realised.is_empty() {
        return Ok(());
    }
    let jobs: Vec<_> = realised.iter().map(|one| one.job.0).collect();
    let generations: Vec<_> = realised.iter().map(|one| integer(one.generation.0)).collect();
    let revisions: Vec<_> = realised.iter().map(|one| integer(one.expectation.revision)).collect();
    let decided: Vec<_> = realised.iter().map(|one| time(one.expectation.at)).collect();
    let ended: Vec<_> = realised.iter().map(|one| time(one.ended_at)).collect();
    let gpu_type = |one: &&Realised| one.gpu_type.as_ref().map_or_else(|| UNKNOWN.to_owned(), |of| text(&of.0));
    let gpu_types: Vec<_> = realised.iter().map(gpu_type).collect();
    let families: Vec<_> = realised.iter().map(|one| one.family.to_string()).collect();
    let gpus: Vec<_> = realised.iter().map(|one| small(one.gpus.0)).collect();
    let predicted: Vec<_> = realised.iter().map(|one| one.expectation.goodput.0).collect();
    let low: Vec<_> = realised.iter().map(|one| one.expectation.band.map(|(low, _)| low.0)).collect();
    let high: Vec<_> = realised.iter().map(|one| one.expectation.band.map(|(_, high)| high.0)).collect();
    let came: Vec<_> = realised.iter().map(|one| one.goodput.0).collect();
    let seconds: Vec<_> = realised.iter().map(|one| one.measured_for.0).collect();
    sqlx::query!(
        "INSERT INTO realised_goodput (job_id, generation, revision, decided_at, ended_at, gpu_type, model_family, gpus,
            predicted_tokens_per_second, low_tokens_per_second, high_tokens_per_second, realised_tokens_per_second,
            measured_seconds)
        SELECT * FROM UNNEST($1::uuid[], $2::bigint[], $3::bigint[], $4::timestamptz[], $5::timestamptz[], $6::text[],
            $7::text[], $8::integer[], $9::double precision[], $10::double precision[], $11::double precision[],
            $12::double precision[], $13::double precision[])
        ON CONFLICT DO NOTHING",
        &jobs,
        &generations,
        &revisions,
        &decided,
        &ended,
        &gpu_types,
        &families,
        &gpus,
        &predicted,
        &low as &[Option<f64>],
        &high as &[Option<f64>],
        &came,
        &seconds,
    )
    .execute(connection)
    .await?;
    Ok(())
}
