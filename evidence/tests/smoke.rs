//! Short runs of what `make evidence` does at length.
#![allow(clippy::unwrap_used)]

use headway_emulation::Nature;
use headway_evidence::measure::Measure;
use headway_evidence::run::Outcome;
use headway_evidence::{Cluster, Contender, Named, Plenty, Settings, Trial, run_all};
use headway_types::Seconds;

fn run(named: Named, nodes: &str, names: &[&str], settings: &Settings) -> Vec<Outcome> {
    let cluster: Cluster = nodes.parse().unwrap();
    let plenty = Plenty { load: 0.8, lasts: Seconds(2.0 * 3_600.0), median: Seconds(900.0) };
    let workload = named.draw(11, &cluster, &plenty);
    let contenders: Vec<Contender> = names.iter().map(|name| Contender::read(name, &[]).unwrap()).collect();
    let trial = |contender| Trial { seed: 11, load: plenty.load, workload: &workload, contender };
    let trials: Vec<Trial<'_>> = contenders.iter().map(trial).collect();
    run_all(&trials, settings, 2, &|_| {}).unwrap()
}

/// But for what the machine decides.
fn timeless(outcome: &Outcome) -> Measure {
    Measure { round_cpu: 0.0, longest_round_cpu: 0.0, cpu_seconds: 0.0, ..outcome.measure.clone() }
}

#[test]
fn every_contender_ends_every_job_and_a_seed_names_all_of_it() {
    let names: Vec<&str> = Contender::names().collect();
    let settings = Settings::default();
    let outcomes = run(Named::Day, "H100x8=2,A100-80Gx8=1", &names, &settings);
    let again = run(Named::Day, "H100x8=2,A100-80Gx8=1", &names, &settings);
    for (one, other) in outcomes.iter().zip(&again) {
        assert_eq!((timeless(one), &one.times), (timeless(other), &other.times), "{}", one.contender);
        let Measure { jobs, ended, uncredited_work_per_gpu_hour, work_per_gpu_hour, useful_share, .. } = one.measure;
        assert_eq!(ended, jobs, "{}", one.contender);
        assert!(jobs > 3 && uncredited_work_per_gpu_hour <= work_per_gpu_hour + 1e-9, "{}", one.contender);
        assert!(useful_share > 0.3 && useful_share < 1.0, "{}: {useful_share}", one.contender);
    }
    let of = |name: &str| &outcomes.iter().find(|one| one.contender == name).unwrap().measure;
    // At the batch it asks for a job earns no credit.
    assert_eq!(of("fifo_backfill").uncredited_work_per_gpu_hour, of("fifo_backfill").work_per_gpu_hour);
    assert_eq!(of("batch_fixed").uncredited_work_per_gpu_hour, of("batch_fixed").work_per_gpu_hour);
    // What serves in order moves nobody who runs.
    assert_eq!(of("fifo_backfill").restarts_per_job, 0.0);
}

#[test]
fn a_gentle_world_is_what_the_scheduler_believes() {
    let settings = Settings { nature: Nature::GENTLE, mishaps: 0.0, ..Settings::default() };
    let outcomes = run(Named::Day, "H100x8=2", &["goodput", "fifo_backfill"], &settings);
    for one in outcomes {
        let Measure { reached, prediction_error, .. } = one.measure;
        assert!(
            (reached - 1.0).abs() < 0.1 && prediction_error < 0.1,
            "{}: {reached} {prediction_error}",
            one.contender
        );
    }
}

#[test]
fn equals_served_in_order_take_six_waves() {
    let settings = Settings { mishaps: 0.0, ..Settings::default() };
    let outcomes = run(Named::Equals, "H100x8=8", &["fifo_backfill"], &settings);
    let Measure { makespan, useful_share, ended, .. } = outcomes[0].measure;
    assert_eq!(ended, 48);
    assert!(makespan < 190.0 * 60.0 && useful_share > 0.97, "{makespan} {useful_share}");
}
