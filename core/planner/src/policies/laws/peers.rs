//! What is particular to Sia and Pollux, in all their variants.

use super::*;

/// Jobs so old that a restart is nothing to them.
fn old(mut input: PlanInput) -> PlanInput {
    input.jobs.iter_mut().for_each(|job| job.submitted_at = NOW - Seconds(1e9));
    input
}

#[test]
fn sia_starts_a_job_at_its_smallest_size_and_at_most_doubles_it() {
    let input = by(Objective::Sia, old(round(pair(), vec![tabled(1, &[(1, 1.0), (2, 1.9), (4, 3.6), (8, 6.5)])])));
    let first = planned(&input);
    assert_eq!(gpus(&first, 1), 1);
    let second = planned(&after(&input, &first));
    assert_eq!(gpus(&second, 1), 2);
    let third = planned(&after(&input, &second));
    assert_eq!(gpus(&third, 1), 4);
}

#[test]
fn sia_remembers_how_far_a_job_had_grown() {
    let rows = [(1, 1.0), (2, 1.9), (4, 3.6), (8, 6.5)];
    let mut input = by(Objective::Sia, old(round(pair(), vec![tabled(1, &rows)])));
    let had = |gpu_type: &str, gpus| BTreeMap::from([(GpuType(gpu_type.into()), GpuCount(gpus))]);
    input.jobs[0].claim.most = had("alpha", 2);
    assert_eq!(gpus(&planned(&input), 1), 4, "it was stopped, and does not begin again at one");
    input.jobs[0].claim.most = had("beta", 2);
    assert_eq!(gpus(&planned(&input), 1), 4, "what it had of one type counts for all");
    input.jobs[0].claim.most.clear();
    assert_eq!(gpus(&planned(&input), 1), 1);
}

#[test]
fn in_its_simulator_sia_pays_nothing_for_a_change() {
    // Old jobs: r is 1. Two GPUs cost (1.02)^−0.5 = 0.990 instead of 1, which a change of 2 × 0.01 outweighs.
    let of = |objective| {
        let mut input = by(objective, old(round(pair(), vec![tabled(1, &[(1, 1.0), (2, 1.02)])])));
        input.jobs[0].claim.most = BTreeMap::from([(GpuType("alpha".into()), GpuCount(1))]);
        let mut first = input.clone();
        first.jobs[0].claim.most.clear();
        input.jobs[0].current = planned(&first).assignments.get(&job_id(1)).cloned();
        gpus(&planned(&input), 1)
    };
    assert_eq!((of(Objective::Sia), of(Objective::SiaSimulated)), (1, 2));
}

#[test]
fn sia_moves_a_job_only_where_the_gain_outweighs_its_restarts() {
    let of = |restarts, age| {
        let mut input = by(Objective::Sia, round(pair(), vec![tabled(1, &[(2, 1.0), (4, 1.3)])]));
        input.jobs[0].current = planned(&input).assignments.get(&job_id(1)).cloned();
        input.jobs[0].claim.restarts = restarts;
        input.jobs[0].submitted_at = NOW - Seconds(age);
        gpus(&planned(&input), 1)
    };
    // S is 30 s: r = (300 − 30·n)/330, so 2·1.3·r costs 0.65, 0.69 and 0.73 for n = 0, 1 and 2, and a change 0.02;
    // staying costs 0.71.
    assert_eq!(of(0, 300.0), 4);
    assert_eq!(of(1, 300.0), 4);
    assert_eq!(of(2, 300.0), 2);
    // All of a young job's time went into restarts: nothing it could move to is worth anything.
    assert_eq!(of(2, 20.0), 2);
}

#[test]
fn sia_values_rows_by_their_least_entry() {
    // Normalised to (1, 1.9) and (2, 3.8): 2 GPUs more are worth 1 − 1.9^−0.5 to one of the first kind. What the rates
    // are in does not matter.
    let jobs = vec![tabled(1, &[(1, 1e6), (2, 1.9e6)]), tabled(2, &[(2, 0.5)])];
    let mut input = by(Objective::Sia, old(round(pair(), jobs)));
    let plan = planned(&input);
    assert_eq!(sizes(&plan, 2), [1, 2]);
    let expected = (1.1 - 1.0) + (1.1 - libm::pow(2.0, -0.5));
    assert!((plan.report.objective - expected).abs() < 1e-5, "{} for {expected}", plan.report.objective);
    input.jobs[0].current = plan.assignments.get(&job_id(1)).cloned();
    let plan = planned(&input);
    // Two entries of the first job's row change.
    let expected = (1.1 - libm::pow(1.9, -0.5) - 2.0 * 0.01) + (1.1 - libm::pow(2.0, -0.5));
    assert!((plan.report.objective - expected).abs() < 1e-5, "{} for {expected}", plan.report.objective);
}

#[test]
fn sia_leaves_some_out_where_the_others_gain_more() {
    // Left out costs λ − 1 = 0.1 more than one GPU, and 0.01 for the change; a second GPU is worth 1 − 1.99^−0.5 = 0.29,
    // less 0.02 for the change.
    let jobs = (1..=8).map(|number| tabled(number, &[(1, 1.0), (2, 1.99)])).collect();
    let input = by(Objective::Sia, old(round(pair(), jobs)));
    let first = planned(&input);
    assert_eq!(sizes(&first, 8), [1; 8], "nobody starts at more than its smallest size");
    assert_eq!(sizes(&planned(&after(&input, &first)), 8).iter().filter(|gpus| **gpus == 2).count(), 4);
}

#[test]
fn pollux_splits_no_model() {
    let mut trained = job(1, 1, 8);
    let mut modelled = headway_goodput::JobModel::clone(&model());
    modelled.training.layouts = LayoutLimits::degrees(Vec::new(), Vec::new(), Sequences(4));
    trained.work = PlanWork::Model(Arc::new(modelled));
    let mut nodes = pair();
    for node in &mut nodes {
        (node.class.gpu_type, node.class.emulated) = (GpuType("H100-80G".into()), None);
    }
    let input = round(nodes, vec![trained]);
    let layouts =
        |objective| planned(&by(objective, input.clone())).assignments[&job_id(1)].configuration.unwrap().layout;
    let published = layouts(Objective::Pollux);
    assert_eq!((published.tp, published.pp), (1, 1));
    assert_eq!(layouts(Objective::PolluxLayouts), layouts(Objective::Goodput), "alone both take the fastest");
}

#[test]
fn pollux_shares_by_the_harmonic_mean_of_speed_ups() {
    // Eight GPUs, two jobs that scale alike: the mean of 1/s is least at four each.
    let rows = [(1, 1.0), (2, 2.0), (4, 4.0), (8, 8.0)];
    let plan = planned(&by(Objective::Pollux, round(pair(), vec![tabled(1, &rows), tabled(2, &rows)])));
    assert_eq!(sizes(&plan, 2), [4, 4]);
}
