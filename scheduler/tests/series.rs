//! Measurements on a real Postgres.

use std::collections::BTreeMap;

use headway_engine::{Activity, Pulse};
use headway_forecast::Baselines;
use headway_scheduler::store::SeriesPoint;
use headway_types::{
    Configuration, Generation, GpuCount, IdSource, Layout, Seconds, Sequences, StepReport, Timestamp, Tokens,
    TokensPerSecond,
};

use crate::support::{START, TestDatabase};

fn point(after: f64, generation: u64) -> SeriesPoint {
    let report = StepReport {
        job: IdSource::seeded(1).job(START),
        generation: Generation(generation),
        step: after as u64,
        steps: 2,
        samples_seen: Sequences(32),
        tokens: Tokens(1_000.0),
        duration: Seconds(2.0),
        configuration: Configuration {
            layout: Layout::data_parallel(GpuCount(4)),
            micro_batch: Sequences(2),
            global_batch: Sequences(16),
        },
        loss: Some(after),
        noise: None,
        preconditioned: None,
        memory_peak: None,
    };
    // A full hour, so that every resolution begins an interval here.
    let hour = Timestamp(START.0 - START.0 % 3_600_000_000);
    SeriesPoint::of(hour + Seconds(after), &report, Some(500.0), Some(0.5), 4)
}

#[tokio::test]
async fn reports_add_up_over_batches_of_the_writer() {
    let store = TestDatabase::create().await.store().await;
    let job = IdSource::seeded(1).job(START);
    store.add_series(&[(job, point(1.0, 1)), (job, point(3.0, 1))]).await.unwrap();
    store.add_series(&[(job, point(5.0, 1)), (job, point(12.0, 1))]).await.unwrap();
    let series = store.series(job, None, None, 100).await.unwrap();
    assert_eq!(series.len(), 2);
    let first = &series[0];
    assert_eq!((first.steps, first.tokens, first.duration), (6, Tokens(3_000.0), Seconds(6.0)));
    assert_eq!((first.step, first.loss, first.gpus), (5, Some(5.0), 4));
    assert_eq!(first.throughput(), TokensPerSecond(500.0));
    assert_eq!(first.goodput(), TokensPerSecond(250.0));
    assert_eq!((first.efficiency(), first.step_time()), (0.5, Seconds(1.0)));
    assert_eq!(store.series(job, Some(series[1].at), None, 100).await.unwrap(), series[1..]);
    assert_eq!(store.series(job, None, Some(series[1].at), 100).await.unwrap(), series[..1]);
}

#[tokio::test]
async fn a_long_series_comes_coarser_and_thinned() {
    let store = TestDatabase::create().await.store().await;
    let job = IdSource::seeded(1).job(START);
    let points: Vec<_> = (0..120).map(|number| (job, point(f64::from(number) * 60.0, 1))).collect();
    store.add_series(&points).await.unwrap();
    assert_eq!(store.series(job, None, None, 500).await.unwrap().len(), 120);
    assert_eq!(store.series(job, None, None, 2).await.unwrap().len(), 2, "two hours");
    let one = store.series(job, None, None, 1).await.unwrap();
    assert_eq!(one.len(), 1);
    assert_eq!(one[0].tokens, Tokens(120_000.0));
}

#[tokio::test]
async fn generations_are_kept_apart() {
    let store = TestDatabase::create().await.store().await;
    let job = IdSource::seeded(1).job(START);
    store.add_series(&[(job, point(1.0, 1)), (job, point(2.0, 2))]).await.unwrap();
    let generations: Vec<_> =
        store.series(job, None, None, 1).await.unwrap().iter().map(|point| point.generation.0).collect();
    assert_eq!(generations, [1, 2]);
}

#[tokio::test]
async fn pruning_keeps_what_coarser_rows_say() {
    let store = TestDatabase::create().await.store().await;
    let job = IdSource::seeded(1).job(START);
    store.add_series(&[(job, point(0.0, 1)), (job, point(7_200.0, 1))]).await.unwrap();
    let two_days = point(3_600.0, 1).at + Seconds(48.0 * 3_600.0);
    assert_eq!(store.prune_series(two_days).await.unwrap(), 1);
    let series = store.series(job, None, None, 100).await.unwrap();
    assert_eq!(series.iter().map(|point| point.tokens.0).sum::<f64>(), 2_000.0);
}

#[tokio::test]
async fn the_figures_of_a_minute_are_kept_once_and_averaged_over_a_step() {
    let store = TestDatabase::create().await.store().await;
    let hour = Timestamp(START.0 - START.0 % 3_600_000_000);
    let doing = |waiting| {
        let counts = [(Activity::IdleWaiting, waiting), (Activity::Reserved, 2 * waiting), (Activity::Broken, 1)];
        BTreeMap::from(counts.map(|(activity, gpus)| (activity, GpuCount(gpus))))
    };
    let pulse = |running, speed_up| Pulse {
        jobs_running: running,
        speed_up,
        gpus_by_activity: doing(running),
        goodput_mfu: (running > 0).then_some(0.25),
        ..Pulse::default()
    };
    for (minute, running, speed_up) in [(0, 2, 3.0), (1, 0, 0.0), (1, 9, 9.0), (7, 4, 2.0)] {
        store
            .add_pulse(hour + Seconds(f64::from(minute) * 60.0), &pulse(running, speed_up), Baselines::default())
            .await
            .unwrap();
    }
    let means = store.pulses(hour, hour + Seconds(7_200.0), Seconds(300.0)).await.unwrap();
    let told: Vec<_> = means.iter().map(|mean| (mean.at, mean.jobs_running, mean.goodput_relative)).collect();
    // Nobody wanted GPUs in the second minute: that says nothing of how well those did who did in the first.
    assert_eq!(told, [(hour, 1.0, Some(1.5)), (hour + Seconds(300.0), 4.0, Some(0.5))]);
    let by = means[0].gpus_by_activity.as_ref().unwrap();
    assert_eq!((by[&Activity::IdleWaiting], by[&Activity::Broken], by[&Activity::Training]), (1.0, 1.0, 0.0));
    assert_eq!(by[&Activity::Reserved], 2.0);
    assert_eq!(means[0].goodput_mfu, Some(0.25), "of the minutes that tell it");
    assert_eq!(store.prune_pulses(hour + Seconds(60.0)).await.unwrap(), 1);
    assert_eq!(store.pulses(hour, hour + Seconds(7_200.0), Seconds(60.0)).await.unwrap().len(), 2);
}
