//! Goodput over time: of the cluster and of projects from their figures by the minute (`cluster_series`, `project_series`), of jobs from what they measured
//! (`job_series`).

use std::collections::BTreeMap;

use headway_engine::ProjectPulse;
use headway_forecast::Baselines;
use headway_types::{JobId, Seconds, Timestamp, TokensPerSecond};
use uuid::Uuid;

use super::column::{moment, small, text, time};
use super::{OutOfSight, Store, StoreError};

const READING: &str = "reading goodput over time";
/// Measurements of jobs are kept by the minute for so long, and by the hour for ever.
const BY_THE_MINUTE: Seconds = Seconds(29.0 * 86_400.0);

/// Means over one step; a step without samples has none.
#[derive(Clone, Debug, PartialEq)]
pub struct GoodputMean {
    /// Beginning of the step.
    pub at: Timestamp,
    pub goodput: f64,
    /// `None`: an earlier release kept none.
    pub throughput: Option<f64>,
    /// What rules that know nothing of goodput were predicted to give; `None`: nobody worked it out, or an earlier release did not.
    pub static_split: Option<f64>,
    pub first_come: Option<f64>,
    pub throughput_only: Option<f64>,
}

/// Who makes the most, and what of it when.
pub type GoodputBy<K> = Vec<(K, Vec<GoodputMean>)>;

/// A span of time and how long each point is the mean of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steps {
    pub from: Timestamp,
    pub to: Timestamp,
    pub step: Seconds,
}

impl Steps {
    /// Steps of whole buckets of this length, over all that the span touches: a part of a bucket is not known. The newest grows until `now`.
    fn of_whole(self, bucket: Seconds, now: Timestamp) -> Self {
        let step = Seconds((self.step.0 / bucket.0).ceil() * bucket.0);
        let within = |at: Timestamp| at.0.rem_euclid((bucket.0 * 1e6) as i64);
        let from = Timestamp(self.from.0 - within(self.from));
        let to = match within(self.to) {
            0 => self.to,
            part => Timestamp(self.to.0 - part) + bucket,
        };
        Self { from, to: to.min(now), step }
    }
}

impl Store {
    /// Keeps the figures of projects of a moment; of a moment that has some they stay. `baselines`: by project, of rules that were worked out.
    pub async fn add_project_pulses(
        &self,
        at: Timestamp,
        projects: &BTreeMap<String, ProjectPulse>,
        baselines: &Baselines<Option<BTreeMap<String, TokensPerSecond>>>,
    ) -> Result<(), StoreError> {
        let mut all: BTreeMap<&str, ProjectPulse> =
            projects.iter().map(|(name, pulse)| (name.as_str(), pulse.clone())).collect();
        for name in baselines.as_ref().into_array().into_iter().flatten().flat_map(BTreeMap::keys) {
            all.entry(name).or_default();
        }
        let names: Vec<_> = all.keys().map(|name| text(name)).collect();
        let gpus: Vec<_> = all.values().map(|one| small(one.gpus_busy.0)).collect();
        let jobs: Vec<_> = all.values().map(|one| small(one.jobs_running)).collect();
        let goodput: Vec<_> = all.values().map(|one| one.goodput.0).collect();
        let throughput: Vec<_> = all.values().map(|one| one.throughput.0).collect();
        let predicted = baselines.as_ref().map(|made| -> Vec<Option<f64>> {
            let of = |name: &&str| made.as_ref().and_then(|made| made.get(*name)).map(|rate| rate.0);
            all.keys().map(of).collect()
        });
        sqlx::query!(
            "INSERT INTO project_series (sampled_at, project, gpus_busy, jobs_running, goodput_tokens_per_second,
                throughput_tokens_per_second, baseline_tokens_per_second, first_come_tokens_per_second,
                throughput_only_tokens_per_second)
            SELECT $1, project, gpus, jobs, goodput, throughput, split, first_come, throughput_only
            FROM UNNEST($2::text[], $3::integer[], $4::integer[], $5::double precision[], $6::double precision[],
                $7::double precision[], $8::double precision[], $9::double precision[])
                AS new (project, gpus, jobs, goodput, throughput, split, first_come, throughput_only)
            ON CONFLICT DO NOTHING",
            time(at),
            &names,
            &gpus,
            &jobs,
            &goodput,
            &throughput,
            &predicted.static_split as &[Option<f64>],
            &predicted.first_come as &[Option<f64>],
            &predicted.throughput_only as &[Option<f64>],
        )
        .execute(&self.pool)
        .await
        .map_err(StoreError::during("saving the figures of projects"))?;
        Ok(())
    }

    /// Of the whole cluster.
    pub async fn cluster_goodput(&self, of: Steps) -> Result<Vec<GoodputMean>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT date_bin(make_interval(secs => $3), sampled_at, 'epoch'::timestamptz) AS "at!",
                avg(goodput_tokens_per_second) AS "goodput!", avg(throughput_tokens_per_second) AS throughput,
                avg(baseline_tokens_per_second) AS static_split, avg(first_come_tokens_per_second) AS first_come,
                avg(throughput_only_tokens_per_second) AS throughput_only
            FROM cluster_series WHERE sampled_at >= $1 AND sampled_at < $2 GROUP BY 1 ORDER BY 1"#,
            time(of.from),
            time(of.to),
            of.step.0,
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during(READING))?;
        let mean = rows.into_iter().map(|row| GoodputMean {
            at: moment(row.at),
            goodput: row.goodput,
            throughput: row.throughput,
            static_split: row.static_split,
            first_come: row.first_come,
            throughput_only: row.throughput_only,
        });
        Ok(mean.collect())
    }

    /// Of projects, but those that the reader may not know of: each is nothing in a minute in which the cluster has figures and it has none. A
    /// minute in which a baseline was worked out for nobody is none of its mean.
    pub async fn project_goodput(
        &self,
        of: Steps,
        out_of_sight: Option<&OutOfSight>,
    ) -> Result<GoodputBy<String>, StoreError> {
        let hidden: Vec<String> =
            out_of_sight.iter().flat_map(|hidden| &hidden.projects).map(|one| text(one)).collect();
        let rows = sqlx::query!(
            r#"WITH minutes AS (
                SELECT date_bin(make_interval(secs => $3), sampled_at, 'epoch'::timestamptz) AS at, count(*) AS minutes,
                    count(throughput_tokens_per_second) AS measured, count(baseline_tokens_per_second) AS split,
                    count(first_come_tokens_per_second) AS first, count(throughput_only_tokens_per_second) AS alone
                FROM cluster_series WHERE sampled_at >= $1 AND sampled_at < $2 GROUP BY 1
            )
            SELECT project, at AS "at!", sum(goodput_tokens_per_second) / minutes AS "goodput!",
                sum(throughput_tokens_per_second) / NULLIF(measured, 0) AS throughput,
                sum(baseline_tokens_per_second) / NULLIF(split, 0) AS static_split,
                sum(first_come_tokens_per_second) / NULLIF(first, 0) AS first_come,
                sum(throughput_only_tokens_per_second) / NULLIF(alone, 0) AS throughput_only
            FROM project_series
            JOIN minutes ON at = date_bin(make_interval(secs => $3), sampled_at, 'epoch'::timestamptz)
            WHERE sampled_at >= $1 AND sampled_at < $2 AND project <> ALL($4::text[])
            GROUP BY project, at, minutes, measured, split, first, alone ORDER BY project, at"#,
            time(of.from),
            time(of.to),
            of.step.0,
            &hidden,
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during(READING))?;
        let mut projects: GoodputBy<String> = Vec::new();
        for row in rows {
            let point = GoodputMean {
                at: moment(row.at),
                goodput: row.goodput,
                throughput: row.throughput,
                static_split: row.static_split,
                first_come: row.first_come,
                throughput_only: row.throughput_only,
            };
            match projects.last_mut().filter(|(name, _)| *name == row.project) {
                Some((_, points)) => points.push(point),
                None => projects.push((row.project, vec![point])),
            }
        }
        Ok(projects)
    }

    /// Of these jobs or, of those that the reader may know of, the ones that made the most, at most so many: what they made within each step over its whole
    /// length, standstill included. Steps are no finer than the figures that are kept of so long ago, and whole: those that were taken come back.
    pub async fn job_goodput(
        &self,
        of: Steps,
        now: Timestamp,
        among: Option<&[JobId]>,
        out_of_sight: Option<&OutOfSight>,
        most: u32,
    ) -> Result<(Steps, GoodputBy<(JobId, String)>), StoreError> {
        let among: Option<Vec<Uuid>> = among.map(|jobs| jobs.iter().map(|job| job.0).collect());
        let hidden: Vec<String> =
            out_of_sight.iter().flat_map(|hidden| &hidden.projects).map(|one| text(one)).collect();
        let resolution = if now.since(of.from) <= BY_THE_MINUTE && of.step.0 < 3_600.0 { 60 } else { 3_600 };
        let of = of.of_whole(Seconds(f64::from(resolution)), now);
        let rows = sqlx::query!(
            r#"WITH most AS (
                SELECT job_id, name, sum(reference_tokens) AS made FROM job_series JOIN jobs USING (job_id)
                WHERE resolution_seconds = $4 AND bucket_at >= $1 AND bucket_at < $2
                    AND ($5::uuid[] IS NULL OR job_id = ANY($5))
                    AND (project <> ALL($6::text[]) OR owner = $7)
                GROUP BY job_id, name ORDER BY made DESC, job_id LIMIT $8
            )
            SELECT job_id AS "job_id!", name AS "name!",
                date_bin(make_interval(secs => $3), bucket_at, 'epoch'::timestamptz) AS "at!",
                sum(reference_tokens) AS "reference_tokens!", sum(tokens) AS "tokens!"
            FROM job_series JOIN most USING (job_id)
            WHERE resolution_seconds = $4 AND bucket_at >= $1 AND bucket_at < $2
            GROUP BY job_id, name, made, 3 ORDER BY made DESC, job_id, 3"#,
            time(of.from),
            time(of.to),
            of.step.0,
            resolution,
            among.as_deref() as Option<&[Uuid]>,
            &hidden,
            out_of_sight.map(|hidden| text(&hidden.but_of)),
            i64::from(most),
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during(READING))?;
        let mut jobs: GoodputBy<(JobId, String)> = Vec::new();
        for row in rows {
            let at = moment(row.at);
            let (begins, ends) = (at.max(of.from), (at + of.step).min(of.to));
            let length = ends.since(begins).0.max(1.0);
            let point = GoodputMean {
                at,
                goodput: row.reference_tokens / length,
                throughput: Some(row.tokens / length),
                static_split: None,
                first_come: None,
                throughput_only: None,
            };
            match jobs.last_mut().filter(|((id, _), _)| id.0 == row.job_id) {
                Some((_, points)) => points.push(point),
                None => jobs.push(((JobId(row.job_id), row.name), vec![point])),
            }
        }
        Ok((of, jobs))
    }

    /// Drops the figures of projects from before a moment; returns how many.
    pub async fn prune_project_pulses(&self, before: Timestamp) -> Result<u64, StoreError> {
        let pruned = sqlx::query!("DELETE FROM project_series WHERE sampled_at < $1", time(before))
            .execute(&self.pool)
            .await
            .map_err(StoreError::during("pruning the figures of projects"))?;
        Ok(pruned.rows_affected())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1_000_000)
    }

    #[test]
    fn steps_are_no_finer_than_what_they_are_made_of_and_take_it_whole() {
        let asked = Steps { from: at(90), to: at(7_300), step: Seconds(600.0) };
        let hour = Seconds(3_600.0);
        assert_eq!(asked.of_whole(hour, at(90_000)), Steps { from: at(0), to: at(10_800), step: hour });
        assert_eq!(asked.of_whole(hour, at(7_500)).to, at(7_500), "the newest grows");
        assert_eq!(asked.of_whole(Seconds(60.0), at(90_000)), Steps { from: at(60), to: at(7_320), ..asked });
        let day = Steps { from: at(0), to: at(7_200), step: Seconds(86_400.0) };
        assert_eq!(day.of_whole(hour, at(90_000)), day);
    }
}
