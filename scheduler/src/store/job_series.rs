//! Table `job_series`: measurements over time, at three resolutions.

use std::collections::BTreeMap;

use headway_types::{
    Configuration, Execution, Generation, JobId, Layout, Seconds, Sequences, StepReport, Timestamp, Tokens,
    TokensPerSecond,
};

use super::column::{count, integer, moment, small, time, unsigned};
use super::{Store, StoreError};

/// Seconds per row, finest first, and how long such rows are kept (hours; `None`: for ever).
const RESOLUTIONS: [(i64, Option<i64>); 3] = [(10, Some(48)), (60, Some(30 * 24)), (3_600, None)];

/// Measurements of one job over one interval, from rank 0's reports: sums and newest values.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesPoint {
    /// Beginning of the interval; of a live point, when the report came.
    pub at: Timestamp,
    pub generation: Generation,
    pub gpus: u32,
    /// The newest of the interval.
    pub configuration: Configuration,
    /// Last step covered.
    pub step: u64,
    /// Sequences consumed since the job began.
    pub samples_seen: Sequences,
    /// How many steps are covered.
    pub steps: u64,
    pub tokens: Tokens,
    /// Tokens × statistical efficiency; equal to `tokens` while that is unknown.
    pub reference_tokens: Tokens,
    /// Training time covered.
    pub duration: Seconds,
    /// GNS φ in tokens.
    pub noise_scale: Option<f64>,
    pub loss: Option<f64>,
}

impl SeriesPoint {
    /// One report as a point.
    #[must_use]
    pub fn of(
        at: Timestamp,
        report: &StepReport,
        noise_scale: Option<f64>,
        efficiency: Option<f64>,
        gpus: u32,
    ) -> Self {
        Self {
            at,
            generation: report.generation,
            gpus,
            configuration: report.configuration,
            step: report.step,
            samples_seen: report.samples_seen,
            steps: u64::from(report.steps),
            tokens: report.tokens,
            reference_tokens: report.tokens * efficiency.unwrap_or(1.0),
            duration: report.duration,
            noise_scale,
            loss: report.loss,
        }
    }

    #[must_use]
    pub fn throughput(&self) -> TokensPerSecond {
        TokensPerSecond(ratio(self.tokens.0, self.duration.0))
    }

    #[must_use]
    pub fn goodput(&self) -> TokensPerSecond {
        TokensPerSecond(ratio(self.reference_tokens.0, self.duration.0))
    }

    #[must_use]
    pub fn efficiency(&self) -> f64 {
        ratio(self.reference_tokens.0, self.tokens.0)
    }

    /// Mean over the steps covered.
    #[must_use]
    pub fn step_time(&self) -> Seconds {
        Seconds(ratio(self.duration.0, self.steps as f64))
    }

    /// Takes in a later point: sums add up, the newest values win.
    pub fn absorb(&mut self, later: &SeriesPoint) {
        self.gpus = later.gpus;
        self.configuration = later.configuration;
        self.step = self.step.max(later.step);
        self.samples_seen = self.samples_seen.max(later.samples_seen);
        self.steps += later.steps;
        self.tokens += later.tokens;
        self.reference_tokens += later.reference_tokens;
        self.duration += later.duration;
        self.noise_scale = later.noise_scale.or(self.noise_scale);
        self.loss = later.loss.or(self.loss);
    }
}

fn ratio(dividend: f64, divisor: f64) -> f64 {
    if divisor > 0.0 { dividend / divisor } else { 0.0 }
}

/// `None` of what any script does that knows nothing of it.
fn written(execution: Execution) -> Option<serde_json::Value> {
    (!execution.is_plain()).then(|| serde_json::json!(execution))
}

/// What a later version has written and this one does not know counts as plain: these are measurements, nothing is decided by them.
fn read(execution: Option<serde_json::Value>) -> Execution {
    execution.and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default()
}

/// One row's key: job, resolution, beginning of the interval, generation.
type Bucket = (JobId, i64, Timestamp, Generation);

impl Store {
    /// Adds points (in the order they came) to the rows of all resolutions.
    pub async fn add_series(&self, points: &[(JobId, SeriesPoint)]) -> Result<(), StoreError> {
        if points.is_empty() {
            return Ok(());
        }
        let mut rows: BTreeMap<Bucket, SeriesPoint> = BTreeMap::new();
        for (job, point) in points {
            for (seconds, _) in RESOLUTIONS {
                let at = Timestamp(point.at.0 - point.at.0.rem_euclid(seconds * 1_000_000));
                rows.entry((*job, seconds, at, point.generation))
                    .and_modify(|row| row.absorb(point))
                    .or_insert_with(|| SeriesPoint { at, ..point.clone() });
            }
        }
        let jobs: Vec<_> = rows.keys().map(|key| key.0.0).collect();
        let resolutions: Vec<_> = rows.keys().map(|key| small(key.1 as u32)).collect();
        let buckets: Vec<_> = rows.keys().map(|key| time(key.2)).collect();
        let generations: Vec<_> = rows.keys().map(|key| integer(key.3.0)).collect();
        let column = |of: fn(&SeriesPoint) -> i32| rows.values().map(of).collect::<Vec<_>>();
        let wide = |of: fn(&SeriesPoint) -> u64| rows.values().map(of).map(integer).collect::<Vec<_>>();
        let real = |of: fn(&SeriesPoint) -> f64| rows.values().map(of).collect::<Vec<_>>();
        let noise: Vec<_> = rows.values().map(|row| row.noise_scale).collect();
        let execution: Vec<_> = rows.values().map(|row| written(row.configuration.layout.execution)).collect();
        let loss: Vec<_> = rows.values().map(|row| row.loss).collect();
        sqlx::query!(
            "INSERT INTO job_series AS stored (job_id, resolution_seconds, bucket_at, generation, gpus, dp, tp, pp,
                micro_batch_sequences, global_batch_sequences, last_step, samples_seen, steps, tokens,
                reference_tokens, duration_seconds, noise_scale_tokens, loss, execution)
            SELECT * FROM UNNEST($1::uuid[], $2::integer[], $3::timestamptz[], $4::bigint[], $5::integer[],
                $6::integer[], $7::integer[], $8::integer[], $9::bigint[], $10::bigint[], $11::bigint[],
                $12::bigint[], $13::bigint[], $14::double precision[], $15::double precision[],
                $16::double precision[], $17::double precision[], $18::double precision[], $19::jsonb[])
            ON CONFLICT (job_id, resolution_seconds, bucket_at, generation) DO UPDATE SET
                gpus = excluded.gpus, dp = excluded.dp, tp = excluded.tp, pp = excluded.pp,
                micro_batch_sequences = excluded.micro_batch_sequences,
                global_batch_sequences = excluded.global_batch_sequences,
                last_step = GREATEST(stored.last_step, excluded.last_step),
                samples_seen = GREATEST(stored.samples_seen, excluded.samples_seen),
                steps = stored.steps + excluded.steps,
                tokens = stored.tokens + excluded.tokens,
                reference_tokens = stored.reference_tokens + excluded.reference_tokens,
                duration_seconds = stored.duration_seconds + excluded.duration_seconds,
                noise_scale_tokens = COALESCE(excluded.noise_scale_tokens, stored.noise_scale_tokens),
                loss = COALESCE(excluded.loss, stored.loss), execution = excluded.execution",
            &jobs,
            &resolutions,
            &buckets,
            &generations,
            &column(|row| small(row.gpus)),
            &column(|row| small(row.configuration.layout.dp)),
            &column(|row| small(row.configuration.layout.tp)),
            &column(|row| small(row.configuration.layout.pp)),
            &wide(|row| row.configuration.micro_batch.0),
            &wide(|row| row.configuration.global_batch.0),
            &wide(|row| row.step),
            &wide(|row| row.samples_seen.0),
            &wide(|row| row.steps),
            &real(|row| row.tokens.0),
            &real(|row| row.reference_tokens.0),
            &real(|row| row.duration.0),
            &noise as &[Option<f64>],
            &loss as &[Option<f64>],
            &execution as &[Option<serde_json::Value>],
        )
        .execute(&self.pool)
        .await
        .map_err(StoreError::during("saving measurements"))?;
        Ok(())
    }

    /// Oldest first, at the finest resolution that gives at most `max_points` (the coarsest where none does, thinned
    /// by merging neighbours of one generation).
    pub async fn series(
        &self,
        job: JobId,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
        max_points: u32,
    ) -> Result<Vec<SeriesPoint>, StoreError> {
        let failed = StoreError::during;
        let counts = sqlx::query!(
            r#"SELECT resolution_seconds, count(*) AS "points!", min(bucket_at) AS "first!" FROM job_series
            WHERE job_id = $1 AND ($2::timestamptz IS NULL OR bucket_at >= $2)
              AND ($3::timestamptz IS NULL OR bucket_at < $3)
            GROUP BY resolution_seconds ORDER BY resolution_seconds"#,
            job.0,
            from.map(time),
            to.map(time),
        )
        .fetch_all(&self.pool)
        .await
        .map_err(failed("counting measurements"))?;
        let Some(coarsest) = counts.last() else { return Ok(Vec::new()) };
        // A finer resolution is complete unless its oldest rows have been pruned already.
        let complete = |first: chrono::DateTime<chrono::Utc>| first < coarsest.first + chrono::Duration::hours(1);
        let resolution = counts
            .iter()
            .find(|row| row.points <= i64::from(max_points) && complete(row.first))
            .map_or(coarsest.resolution_seconds, |row| row.resolution_seconds);
        let rows = sqlx::query!(
            "SELECT bucket_at, generation, gpus, dp, tp, pp, micro_batch_sequences, global_batch_sequences, last_step,
                samples_seen, steps, tokens, reference_tokens, duration_seconds, noise_scale_tokens, loss, execution
            FROM job_series
            WHERE job_id = $1 AND resolution_seconds = $2 AND ($3::timestamptz IS NULL OR bucket_at >= $3)
              AND ($4::timestamptz IS NULL OR bucket_at < $4)
            ORDER BY bucket_at, generation",
            job.0,
            resolution,
            from.map(time),
            to.map(time),
        )
        .fetch_all(&self.pool)
        .await
        .map_err(failed("reading measurements"))?;
        let points = rows
            .into_iter()
            .map(|row| SeriesPoint {
                at: moment(row.bucket_at),
                generation: Generation(unsigned(row.generation)),
                gpus: count(row.gpus),
                configuration: Configuration {
                    layout: Layout {
                        dp: count(row.dp),
                        tp: count(row.tp),
                        pp: count(row.pp),
                        execution: read(row.execution),
                    },
                    micro_batch: Sequences(unsigned(row.micro_batch_sequences)),
                    global_batch: Sequences(unsigned(row.global_batch_sequences)),
                },
                step: unsigned(row.last_step),
                samples_seen: Sequences(unsigned(row.samples_seen)),
                steps: unsigned(row.steps),
                tokens: Tokens(row.tokens),
                reference_tokens: Tokens(row.reference_tokens),
                duration: Seconds(row.duration_seconds),
                noise_scale: row.noise_scale_tokens,
                loss: row.loss,
            })
            .collect();
        Ok(thin(points, max_points as usize))
    }

    /// Drops rows of finer resolutions that are past their time; returns how many.
    pub async fn prune_series(&self, now: Timestamp) -> Result<u64, StoreError> {
        let mut dropped = 0;
        for (seconds, kept) in RESOLUTIONS {
            let Some(hours) = kept else { continue };
            let before = now - Seconds(hours as f64 * 3_600.0);
            dropped += sqlx::query!(
                "DELETE FROM job_series WHERE resolution_seconds = $1 AND bucket_at < $2",
                small(seconds as u32),
                time(before),
            )
            .execute(&self.pool)
            .await
            .map_err(StoreError::during("pruning measurements"))?
            .rows_affected();
        }
        Ok(dropped)
    }
}

impl Store {
    /// Drops hours of before this moment whose job is gone; returns how many rows.
    pub async fn prune_series_without_job(&self, before: Timestamp, most: u32) -> Result<u64, StoreError> {
        let gone = sqlx::query!(
            "DELETE FROM job_series WHERE (job_id, resolution_seconds, bucket_at, generation) IN (
                SELECT job_id, resolution_seconds, bucket_at, generation FROM job_series
                WHERE resolution_seconds = 3600 AND bucket_at < $1
                    AND NOT EXISTS (SELECT FROM jobs WHERE jobs.job_id = job_series.job_id)
                ORDER BY bucket_at LIMIT $2
            )",
            time(before),
            i64::from(most),
        )
        .execute(&self.pool)
        .await
        .map_err(StoreError::during("pruning measurements of jobs that are gone"))?;
        Ok(gone.rows_affected())
    }
}

/// Merges runs of neighbours of one generation so that about `most` points are left.
fn thin(points: Vec<SeriesPoint>, most: usize) -> Vec<SeriesPoint> {
    let run = points.len().div_ceil(most.max(1)).max(1);
    let mut thinned: Vec<SeriesPoint> = Vec::with_capacity(points.len().div_ceil(run));
    let mut merged = 0;
    for point in points {
        match thinned.last_mut() {
            Some(last) if merged < run && last.generation == point.generation => {
                last.absorb(&point);
                merged += 1;
            }
            _ => {
                thinned.push(point);
                merged = 1;
            }
        }
    }
    thinned
}
