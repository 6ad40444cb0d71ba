//! Table `cluster_series`: the cluster's figures, one row per minute.

use std::collections::BTreeMap;

use headway_engine::{Activity, Pulse};
use headway_forecast::Baselines;
use headway_types::{Seconds, Timestamp, TokensPerSecond};

use super::column::{moment, small, time};
use super::{Store, StoreError};

/// Means over one step; a step without rows has none.
#[derive(Clone, Debug, PartialEq)]
pub struct PulseMean {
    /// Beginning of the step.
    pub at: Timestamp,
    pub gpus_total: f64,
    pub gpus_healthy: f64,
    pub gpus_busy: f64,
    pub gpus_training: f64,
    pub jobs_waiting: f64,
    pub jobs_running: f64,
    pub gpus_waited_for: f64,
    pub goodput_tokens_per_second: f64,
    /// Speed-up over the fair share, per job that wants GPUs; `None`: there was none.
    pub goodput_relative: Option<f64>,
    /// Every GPU once; `None`: kept by an earlier release, which did not count them.
    pub gpus_by_activity: Option<BTreeMap<Activity, f64>>,
    pub goodput_mfu: Option<f64>,
}

impl Store {
    /// Keeps the figures of a moment; of a moment that has some they stay. `baselines`: where they were worked out.
    pub async fn add_pulse(
        &self,
        at: Timestamp,
        pulse: &Pulse,
        baselines: Baselines<Option<TokensPerSecond>>,
    ) -> Result<(), StoreError> {
        let doing = |what| small(pulse.gpus_by_activity.get(&what).copied().unwrap_or_default().0);
        sqlx::query!(
            "INSERT INTO cluster_series (sampled_at, gpus_total, gpus_healthy, gpus_busy, gpus_training, jobs_waiting,
                jobs_running, gpus_waited_for, goodput_tokens_per_second, speed_up_sum, throughput_tokens_per_second,
                baseline_tokens_per_second, gpus_starting, gpus_stopping, gpus_idle_no_demand, gpus_idle_waiting,
                gpus_withheld, gpus_unreachable, gpus_broken, goodput_mfu, first_come_tokens_per_second,
                throughput_only_tokens_per_second, gpus_reserved)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
                $23)
            ON CONFLICT (sampled_at) DO NOTHING",
            time(at),
            small(pulse.gpus_total.0),
            small(pulse.gpus_healthy.0),
            small(pulse.gpus_busy.0),
            doing(Activity::Training),
            small(pulse.jobs_waiting),
            small(pulse.jobs_running),
            small(pulse.gpus_waited_for.0),
            pulse.goodput.0,
            pulse.speed_up,
            pulse.throughput.0,
            baselines.static_split.map(|rate| rate.0),
            doing(Activity::Starting),
            doing(Activity::Stopping),
            doing(Activity::IdleNoDemand),
            doing(Activity::IdleWaiting),
            doing(Activity::Withheld),
            doing(Activity::Unreachable),
            doing(Activity::Broken),
            pulse.goodput_mfu,
            baselines.first_come.map(|rate| rate.0),
            baselines.throughput_only.map(|rate| rate.0),
            doing(Activity::Reserved),
        )
        .execute(&self.pool)
        .await
        .map_err(StoreError::during("saving the cluster's figures"))?;
        Ok(())
    }

    /// From a moment on, oldest first, in steps of whole multiples of `step` since the epoch.
    pub async fn pulses(&self, from: Timestamp, to: Timestamp, step: Seconds) -> Result<Vec<PulseMean>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT date_bin(make_interval(secs => $3), sampled_at, 'epoch'::timestamptz) AS "at!",
                avg(gpus_total)::double precision AS "gpus_total!",
                avg(gpus_healthy)::double precision AS "gpus_healthy!",
                avg(gpus_busy)::double precision AS "gpus_busy!",
                avg(gpus_training)::double precision AS "gpus_training!",
                avg(jobs_waiting)::double precision AS "jobs_waiting!",
                avg(jobs_running)::double precision AS "jobs_running!",
                avg(gpus_waited_for)::double precision AS "gpus_waited_for!",
                avg(goodput_tokens_per_second) AS "goodput!",
                avg(speed_up_sum / nullif(jobs_waiting + jobs_running, 0)) AS relative,
                avg(gpus_starting)::double precision AS starting,
                avg(gpus_stopping)::double precision AS stopping,
                avg(gpus_idle_no_demand)::double precision AS idle_no_demand,
                avg(gpus_idle_waiting)::double precision AS idle_waiting,
                avg(coalesce(gpus_reserved, 0))::double precision AS "reserved!",
                avg(gpus_withheld)::double precision AS withheld,
                avg(gpus_unreachable)::double precision AS unreachable,
                avg(gpus_broken)::double precision AS broken,
                avg(goodput_mfu) AS mfu
            FROM cluster_series WHERE sampled_at >= $1 AND sampled_at < $2 GROUP BY 1 ORDER BY 1"#,
            time(from),
            time(to),
            step.0,
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("reading the cluster's figures"))?;
        let mean = rows.into_iter().map(|row| PulseMean {
            gpus_by_activity: [
                (Activity::Training, Some(row.gpus_training)),
                (Activity::Starting, row.starting),
                (Activity::Stopping, row.stopping),
                (Activity::IdleNoDemand, row.idle_no_demand),
                (Activity::IdleWaiting, row.idle_waiting),
                // Rows of a release that did not count them apart have them among the idle ones.
                (Activity::Reserved, Some(row.reserved)),
                (Activity::Withheld, row.withheld),
                (Activity::Unreachable, row.unreachable),
                (Activity::Broken, row.broken),
            ]
            .into_iter()
            .map(|(what, gpus)| Some((what, gpus?)))
            .collect(),
            goodput_mfu: row.mfu,
            at: moment(row.at),
            gpus_total: row.gpus_total,
            gpus_healthy: row.gpus_healthy,
            gpus_busy: row.gpus_busy,
            gpus_training: row.gpus_training,
            jobs_waiting: row.jobs_waiting,
            jobs_running: row.jobs_running,
            gpus_waited_for: row.gpus_waited_for,
            goodput_tokens_per_second: row.goodput,
            goodput_relative: row.relative,
        });
        Ok(mean.collect())
    }

    /// Drops figures from before a moment; returns how many.
    pub async fn prune_pulses(&self, before: Timestamp) -> Result<u64, StoreError> {
        let pruned = sqlx::query!("DELETE FROM cluster_series WHERE sampled_at < $1", time(before))
            .execute(&self.pool)
            .await
            .map_err(StoreError::during("pruning the cluster's figures"))?;
        Ok(pruned.rows_affected())
    }
}
