//! Half a day of a small made-up trace, at ten times the failure rate of real fleets.
#![allow(clippy::unwrap_used)]

use headway_sim::simulate;
use headway_sim::trace::{Replay, read};
use headway_types::Seconds;

#[test]
fn half_a_day_of_gpu_time_is_accounted_for() {
    let jobs = read(include_str!("data/day.csv")).unwrap();
    let replay = Replay {
        nodes: 16,
        gpu_type: "A100-80G".into(),
        from: Seconds(0.0),
        lasts: Seconds(43_200.0),
        failures: 65.0,
        seed: 1,
    };
    let report = simulate(&replay.scenario(&jobs)).unwrap();
    let time = &report.gpu_time;
    assert!((time.total() - 16.0 * 8.0 * 43_200.0).abs() < 1.0);
    assert!(time.unaccounted() <= 0.02, "{}", time.table());
    assert!(report.faults.values().sum::<u64>() > 0);
}
