//! Whole histories under faults: every promise is checked after every event, and a seed names a history for good.
#![allow(clippy::unwrap_used)]

use headway_sim::{Faults, Scenario, simulate};

fn run(seeds: std::ops::Range<u64>, faults: &Faults) {
    for seed in seeds {
        if let Err(failure) = simulate(&Scenario::random(seed, faults.clone())) {
            let lines: Vec<&str> = failure.log.lines().collect();
            let tail = lines[lines.len().saturating_sub(25)..].join("\n");
            panic!("{failure}\nthe last events:\n{tail}");
        }
    }
}

#[test]
fn every_job_ends_when_nothing_goes_wrong() {
    run(0..20, &Faults::default());
}

#[test]
fn every_promise_holds_in_a_storm_of_faults() {
    run(100..160, &Faults::storm());
}

#[test]
fn every_promise_holds_while_the_scheduler_keeps_crashing() {
    let faults = Faults { scheduler_crash: Some(headway_types::Seconds(40.0)), ..Faults::storm() };
    run(200..220, &faults);
}

#[test]
fn the_same_seed_gives_the_same_event_log() {
    let scenario = Scenario::random(7, Faults::storm());
    let (first, second) = (simulate(&scenario).unwrap(), simulate(&scenario).unwrap());
    assert!(!first.log.is_empty());
    assert_eq!(first.log, second.log);
}
