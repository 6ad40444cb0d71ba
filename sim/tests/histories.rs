//! Whole lifetimes under faults: every promise is checked after every event, and a seed names a lifetime for good.
//! `HEADWAY_SIM_SEEDS` sets how many lifetimes run in all.
#![allow(clippy::unwrap_used)]

use headway_engine::Request;
use headway_engine::record::ProjectRules;
use headway_sim::deed::{Act, Deed, Moment, Operation};
use headway_sim::{Chance, Failure, FaultKind, Faults, Scenario, shrink, simulate};
use headway_types::{GpuCount, Seconds};

const PRESETS: u64 = Faults::PRESETS.len() as u64;

/// What to say of a broken promise: how to see it again, and the smallest history found that breaks one.
fn tell(scenario: &Scenario, failure: &Failure, again: &str) -> String {
    let mut text = format!("{failure}\nagain: cargo run -p headway-sim --example replay -- {again}");
    if let Some((mut small, _)) = shrink(scenario) {
        small.diary = true;
        if let Err(failure) = simulate(&small) {
            let tail = &failure.diary[failure.diary.len().saturating_sub(40)..];
            text.push_str(&format!(
                "\nsmallest: {:?}, {} jobs, {:?}\n{}\n{failure}",
                small.nodes.iter().map(|node| node.gpus).collect::<Vec<_>>(),
                small.jobs.len(),
                small.faults,
                tail.join("\n")
            ));
        }
    }
    text
}

/// This preset's share of all lifetimes.
fn lifetimes(preset: &str) {
    let all: u64 = std::env::var("HEADWAY_SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(308);
    let place = Faults::PRESETS.iter().position(|(name, _)| *name == preset).unwrap() as u64;
    for seed in (place..all).step_by(PRESETS as usize) {
        let scenario = Scenario::lifetime(seed);
        if let Err(failure) = simulate(&scenario) {
            panic!("{}", tell(&scenario, &failure, &seed.to_string()));
        }
    }
}

macro_rules! every_promise_holds {
    ($($name:ident: $preset:literal,)*) => { $(#[test] fn $name() { lifetimes($preset); })* };
}

every_promise_holds! {
    every_promise_holds_when_nothing_goes_wrong: "calm",
    every_promise_holds_while_anything_may_crash: "crashes",
    every_promise_holds_when_commits_fail_or_only_seem_to: "commits",
    every_promise_holds_while_anything_may_stand_still: "pauses",
    every_promise_holds_with_two_leaders_at_once: "two_leaders",
    every_promise_holds_behind_a_bad_network: "network",
    every_promise_holds_behind_a_network_worse_than_any: "hostile_network",
    every_promise_holds_when_agents_lose_their_disks: "disks",
    every_promise_holds_when_checkpoints_fail_rot_or_come_late: "checkpoints",
    every_promise_holds_on_bad_hardware: "hardware",
    every_promise_holds_when_gangs_start_in_part_only: "launches",
    every_promise_holds_among_people_who_change_their_minds: "operators",
    every_promise_holds_by_a_wrong_clock: "clocks",
    every_promise_holds_in_a_storm_of_everything: "storm",
}

#[test]
fn every_promise_holds_under_each_fault_alone() {
    let kinds = FaultKind::ALL.into_iter().map(|kind| (format!("{kind:?}"), Faults::only(kind)));
    let chances = Chance::ALL.into_iter().map(|chance| (format!("{chance:?}"), Faults::only_chance(chance)));
    for (seed, (name, faults)) in kinds.chain(chances).enumerate() {
        let scenario = Scenario::random(seed as u64, faults);
        if let Err(failure) = simulate(&scenario) {
            panic!("{}", tell(&scenario, &failure, &format!("{seed} {name}")));
        }
    }
}

/// Half of the cluster for everybody together, but enough for the largest job: whatever goes wrong, no target exceeds it.
#[test]
fn every_promise_holds_within_a_quota() {
    for seed in 0..2 * PRESETS {
        let mut scenario = Scenario::lifetime(seed);
        let built: u32 = scenario.nodes.iter().map(|node| node.gpus).sum();
        let largest = scenario.jobs.iter().map(|job| job.spec.role().gpus.min.0).max().unwrap_or(1);
        let rules = ProjectRules { quota: Some(GpuCount(largest.max(built / 2))), ..ProjectRules::default() };
        let body = Request::PutProject { name: "default".into(), rules, expected: None };
        let deed = Deed::Operate(Operation::Plain(Box::new(body)));
        scenario.script.push(Act { when: Moment::At(Seconds(0.0)), deed });
        if let Err(failure) = simulate(&scenario) {
            panic!("{}", tell(&scenario, &failure, &format!("{seed} within a quota")));
        }
    }
}

#[test]
fn a_job_that_must_not_run_twice_is_launched_once_whatever_goes_wrong() {
    for seed in 0..4 * PRESETS {
        let mut scenario = Scenario::lifetime(seed);
        for job in &mut scenario.jobs {
            (job.spec.limits.restartable, job.spec.limits.max_restarts) = (Some(false), 0);
        }
        if let Err(failure) = simulate(&scenario) {
            panic!("{}", tell(&scenario, &failure, &format!("{seed} once")));
        }
    }
}

/// However soon ledgers forget which generations they have seen, none comes back.
#[test]
fn every_promise_holds_though_no_fence_is_kept() {
    for seed in 0..2 * PRESETS {
        let scenario = Scenario { fences_kept: Some(0), ..Scenario::lifetime(seed) };
        if let Err(failure) = simulate(&scenario) {
            panic!("{}", tell(&scenario, &failure, &format!("{seed} without fences")));
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for seed in [13, 6, 4] {
        let mut scenario = Scenario::lifetime(seed);
        scenario.diary = true;
        let (first, second) = (simulate(&scenario).unwrap(), simulate(&scenario).unwrap());
        assert!(!first.events.is_empty());
        assert_eq!(serde_json::to_vec(&first.events).unwrap(), serde_json::to_vec(&second.events).unwrap());
        assert_eq!(first, second);
    }
}

#[test]
fn a_calm_cluster_knows_what_its_gpus_do() {
    for seed in (0..280).step_by(PRESETS as usize) {
        let report = simulate(&Scenario::lifetime(seed)).unwrap();
        let share = report.gpu_time.unaccounted();
        assert!(share <= 0.02, "seed {seed}: {share:.4} of all GPU-time is unaccounted\n{}", report.gpu_time.table());
    }
}

#[test]
fn a_failing_history_is_made_small() {
    let mut scenario = Scenario::lifetime(13);
    // No job can end by then, whatever happens.
    scenario.horizon = Seconds(120.0);
    let (small, failure) = shrink(&scenario).unwrap();
    assert_eq!((small.jobs.len(), small.nodes.len()), (1, 1), "{failure}");
    assert!(small.faults.every.is_empty() && small.faults.share.is_empty());
}
