//! What holds for every round, whatever is in it.
#![allow(clippy::unwrap_used)]

mod worlds;

use std::collections::BTreeSet;

use headway_types::plan::MoveKind;
use headway_types::spec::{Priority, Work};
use headway_types::{GpuCount, GpuType, Plan, ReasonCode, Tier};
use proptest::prelude::*;

use crate::builder::{after, job, job_id, model_of, node, rigid, round};
use crate::candidate::{self, Options};
use crate::cluster::Cluster;
use crate::curves::CurveCache;
use crate::guarantee::{self, Guarantees};
use crate::input::{PlanInput, PlanWork};
use crate::project::Tree;
use crate::round::Round;
use crate::{decide, place, plan, verify};
use worlds::{World, worlds};

fn planned(input: &PlanInput) -> Plan {
    let plan = plan(input, &mut CurveCache::new()).unwrap();
    assert_eq!(verify(input, &plan), Ok(()));
    plan
}

fn options<'a>(round: &Round<'a>) -> Vec<Options<'a>> {
    let mut curves = CurveCache::new();
    let mut options =
        round.input.jobs.iter().map(|job| candidate::options(round, job, &mut curves)).collect::<Vec<_>>();
    guarantee::bar_additions(round, &mut options);
    options
}

/// The best objective over all combinations of candidates that can be placed.
fn exhaustive(round: &Round<'_>, options: &[Options<'_>], owed: &Guarantees) -> i64 {
    fn search(round: &Round<'_>, owed: &Guarantees, options: &[Options<'_>], choice: &mut Vec<usize>, best: &mut i64) {
        let Some(next) = options.get(choice.len()) else {
            let value: i64 = options.iter().zip(&*choice).map(|(job, &at)| job.candidates[at].value.0).sum();
            let movers: BTreeSet<usize> =
                (0..options.len()).filter(|&job| options[job].candidates[choice[job]].shape.is_some()).collect();
            let mut used = vec![0; owed.capacity.len()];
            for part in options.iter().zip(&*choice).flat_map(|(job, &at)| &job.candidates[at].uses) {
                used[part.row as usize] += part.amount;
            }
            let fits = used.iter().zip(&owed.capacity).all(|(used, capacity)| used <= capacity);
            if value > *best
                && fits
                && [BTreeSet::new(), movers]
                    .iter()
                    .any(|out| place::place(round, options, &owed.capacity, choice, out).no_room.is_none())
            {
                *best = value;
            }
            return;
        };
        for at in (0..next.candidates.len()).filter(|&at| owed.allow(options, choice.len(), at)).collect::<Vec<_>>() {
            choice.push(at);
            search(round, owed, options, choice, best);
            choice.pop();
        }
    }
    let mut best = i64::MIN;
    search(round, owed, options, &mut Vec::new(), &mut best);
    best
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 1_024, ..ProptestConfig::default() })]

    #[test]
    fn every_plan_verifies_and_explains_every_job(World(input) in worlds(7)) {
        let plan = plan(&input, &mut CurveCache::new()).unwrap();
        prop_assert_eq!(verify(&input, &plan), Ok(()));
        prop_assert_eq!(plan.report.jobs.len(), input.jobs.len());
        prop_assert!(plan.report.bound >= plan.report.objective);
        for verdict in plan.report.jobs.values() {
            prop_assert!(!verdict.reasons.is_empty(), "{}", verdict.headline);
        }
    }

    #[test]
    fn planning_again_changes_nothing(World(input) in worlds(6)) {
        let first = planned(&input);
        let second = planned(&after(&input, &first));
        prop_assert!(second.report.moves.is_empty(), "{:?}", second.report.moves);
    }

    #[test]
    fn the_same_round_gives_the_same_bytes(World(input) in worlds(6)) {
        let mut warm = CurveCache::new();
        let first = serde_json::to_vec(&plan(&input, &mut warm).unwrap()).unwrap();
        let again = serde_json::to_vec(&plan(&input, &mut warm).unwrap()).unwrap();
        prop_assert_eq!(&first, &again);
        prop_assert_eq!(&first, &serde_json::to_vec(&planned(&input)).unwrap());
    }

    #[test]
    fn no_choice_of_candidates_is_worth_more(World(input) in worlds(4)) {
        let (cluster, tree) = (Cluster::new(&input), Tree::new(&input.projects));
        let round = Round::new(&input, &cluster, &tree);
        let options = options(&round);
        let combinations: usize = options.iter().map(|job| job.candidates.len()).product();
        prop_assume!(combinations <= 20_000);
        let owed = guarantee::guarantees(&round, &options);
        let decision = decide::decide(&round, &options, &owed).unwrap();
        let best = exhaustive(&round, &options, &owed);
        let slack = (best.unsigned_abs() as f64 * 1e-3) as i64;
        // Where nothing that is owed can be placed at all, what is decided is not among these choices.
        prop_assume!(best > i64::MIN);
        prop_assert!(decision.objective.0 >= best - slack, "{} of {best}", decision.objective.0);
    }
}

#[test]
fn an_empty_cluster_has_an_empty_plan_with_reasons() {
    let plan = planned(&round(Vec::new(), vec![job(1, 1, 8)]));
    assert!(plan.assignments.is_empty());
    assert!(plan.report.jobs[&job_id(1)].headline.contains("no node offers GPUs yet"));
}

#[test]
fn a_job_larger_than_the_cluster_never_runs() {
    let plan = planned(&round(vec![node(1, "alpha", 4)], vec![rigid(1, 8)]));
    let verdict = &plan.report.jobs[&job_id(1)];
    assert_eq!(verdict.reasons[0].code, ReasonCode::Never);
    assert_eq!(
        verdict.headline,
        "Cannot run on this cluster: it needs 8 GPUs of one node class, and the largest has 4"
    );
}

#[test]
fn a_job_for_absent_gpus_never_runs() {
    let mut job = job(1, 1, 2);
    job.range.types = vec![GpuType("gamma".into())];
    let plan = planned(&round(vec![node(1, "alpha", 4)], vec![job]));
    assert_eq!(plan.report.jobs[&job_id(1)].reasons[1].code, ReasonCode::WrongGpuType);
}

#[test]
fn an_arrival_takes_gpus_from_a_running_job() {
    let alone = round(vec![node(1, "alpha", 8)], vec![job(1, 1, 8)]);
    let running = after(&alone, &planned(&alone));
    assert_eq!(running.jobs[0].current.as_ref().unwrap().placement.gpus(), GpuCount(8));
    let mut both = running;
    both.jobs.push(job(2, 1, 8));
    let plan = planned(&both);
    assert_eq!(plan.assignments.len(), 2);
    assert_eq!(plan.report.moves.len(), 2);
    assert_eq!(plan.report.moves[0].kind, MoveKind::Reconfigure(Tier::Migration));
    assert_eq!(plan.report.moves[1].kind, MoveKind::Start);
    assert_eq!(plan.report.jobs[&job_id(2)].reasons[0].code, ReasonCode::GpusBeingFreed);
}

#[test]
fn a_better_batch_is_a_live_change() {
    let start = round(vec![node(1, "alpha", 2)], vec![job(1, 2, 2)]);
    let mut input = after(&start, &planned(&start));
    let configuration = input.jobs[0].current.as_mut().unwrap().configuration.as_mut().unwrap();
    let best = configuration.global_batch;
    configuration.global_batch = headway_types::Sequences(128);
    let plan = planned(&input);
    assert_eq!(plan.report.moves.len(), 1);
    assert_eq!(plan.report.moves[0].kind, MoveKind::Reconfigure(Tier::Batch));
    assert_eq!(plan.report.moves[0].to_configuration.unwrap().global_batch, best);
    assert!(plan.report.moves[0].goodput_after.0 > plan.report.moves[0].goodput_before.0);
}

#[test]
fn a_model_that_does_not_fit_is_refused_with_numbers() {
    let mut node = node(1, "A100-40G", 1);
    node.class.emulated = None;
    let shape = headway_types::ModelShape {
        layers: 32,
        hidden: 4096,
        heads: 32,
        kv_heads: 32,
        ffn_hidden: 11_008,
        gated: true,
        vocab: 32_000,
        seq_len: 2048,
        tied: false,
    };
    let mut job = job(1, 1, 1);
    job.work = PlanWork::Model(model_of(Work::Model(shape)));
    let plan = planned(&round(vec![node], vec![job]));
    let verdict = &plan.report.jobs[&job_id(1)];
    assert_eq!(verdict.reasons[1].code, ReasonCode::MemoryInfeasible);
    assert!(verdict.headline.contains("MiB per GPU"), "{}", verdict.headline);
}

#[test]
fn a_measured_curve_needs_no_configuration() {
    let points = [(1, 1.0), (2, 1.9), (4, 2.5)].map(|(gpus, goodput)| (GpuCount(gpus), goodput)).into();
    let mut job = job(1, 1, 4);
    job.work = PlanWork::Model(model_of(Work::Curve { points, seq_len: 64 }));
    let plan = planned(&round(vec![node(1, "alpha", 4)], vec![job]));
    assert_eq!(plan.assignments[&job_id(1)].placement.gpus(), GpuCount(4));
    assert_eq!(plan.assignments[&job_id(1)].configuration, None);
}

#[test]
fn a_draining_node_is_left() {
    let start = round(vec![node(1, "alpha", 4), node(2, "alpha", 4)], vec![rigid(1, 2)]);
    let first = planned(&start);
    let mut drained = after(&start, &first);
    let held = first.assignments[&job_id(1)].placement.first_node();
    for node in &mut drained.nodes {
        node.draining = node.node == held;
    }
    let plan = planned(&drained);
    assert_ne!(plan.assignments[&job_id(1)].placement.first_node(), held);
    assert!(plan.report.moves[0].reason.contains("drains"), "{}", plan.report.moves[0].reason);
}

#[test]
fn a_rigid_job_waits_for_room_and_names_who_has_it() {
    let start = round(vec![node(1, "alpha", 8)], vec![rigid(1, 6)]);
    let mut both = after(&start, &planned(&start));
    both.jobs.push(rigid(2, 4));
    let plan = planned(&both);
    assert_eq!(
        plan.report.jobs[&job_id(2)].headline,
        "Needs 4 GPUs; 2 are free and taking 2 from job-1 would lose more than it gains"
    );
}

#[test]
fn a_neighbour_moves_to_make_room_on_one_node() {
    // Two jobs of two GPUs on two nodes of four; a third needs four on one node, worth far more than their restart.
    let start = round(vec![node(1, "alpha", 4), node(2, "alpha", 4)], vec![rigid(1, 2), rigid(2, 2)]);
    let mut input = after(&start, &planned(&start));
    let ids: Vec<_> = input.nodes.iter().map(|node| (node.node, node.gpus.clone())).collect();
    for (job, (node, gpus)) in input.jobs.iter_mut().zip(ids) {
        let slice = headway_types::NodeSlice { node, gpus: gpus[..2].to_vec() };
        job.current.as_mut().unwrap().placement = headway_types::Placement::try_new(vec![slice]).unwrap();
    }
    let mut third = rigid(3, 4);
    third.priority = Priority(100);
    input.jobs.push(third);
    let plan = planned(&input);
    assert_eq!(plan.assignments.len(), 3);
}

#[test]
fn the_account_of_a_small_round_reads_well() {
    let start = round(vec![node(1, "alpha", 4), node(2, "alpha", 4)], vec![job(1, 1, 8), rigid(2, 2)]);
    let mut input = after(&start, &planned(&start));
    input.jobs.push(job(3, 2, 4));
    input.jobs.push(rigid(4, 16));
    insta::assert_json_snapshot!(planned(&input).report);
}
