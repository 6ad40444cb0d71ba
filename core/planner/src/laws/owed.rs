//! What is owed is given: floors are met where anything can meet them, who has waited long gets its turn without pushing
//! aside what is more urgent, and what was borrowed goes back.

use std::collections::BTreeSet;

use headway_types::spec::{NodeResources, Priority};
use headway_types::{Bytes, GpuCount, GpuUuid, JobVerdict, NodeSlice, Placement, ReasonCode, Seconds};
use proptest::prelude::*;

use super::rounds::{AnyRound, any_round};
use super::{Rights, options, planned, possible};
use crate::builder::{job_id, node, project, rigid, round};
use crate::cluster::Cluster;
use crate::input::{Freedom, PlanInput, PlanJob};
use crate::project::Tree;
use crate::round::Round;
use crate::rows::RowKind;

/// One node of 8 GPUs, filled with rigid jobs in order as far as they fit; the rest wait.
fn crowded(sizes: &[u32]) -> PlanInput {
    let node = node(1, "alpha", 8);
    let mut free = node.gpus.clone();
    let mut jobs: Vec<_> = sizes.iter().enumerate().map(|(at, gpus)| rigid(at as u32 + 1, *gpus)).collect();
    for job in &mut jobs {
        let wanted = job.range.max.0 as usize;
        if wanted <= free.len() {
            let gpus = free.drain(..wanted).collect();
            let placement = Placement::try_new(vec![NodeSlice { node: node.node, gpus }]).unwrap();
            job.current = Some(crate::builder::bare(placement));
        }
    }
    round(vec![node], jobs)
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn a_floor_that_can_be_met_is_met(AnyRound(input) in any_round(4)) {
        let (cluster, tree) = (Cluster::new(&input), Tree::new(&input.projects));
        let round = Round::new(&input, &cluster, &tree);
        let options = options(&round);
        prop_assume!(options.iter().map(|job| job.candidates.len()).product::<usize>() <= 20_000);
        let met = |choice: &[usize]| options.iter().zip(choice).all(|(of, &at)| {
            of.candidates[at].gpus >= of.job.claim.floor
        });
        let plan = planned(&input);
        if possible(&round, &options, &round.rows.capacity, met) {
            // Hosts and avoided nodes count only where a job is placed: a floor may be lost to them, and the plan says so.
            let floors = plan.report.relaxed.iter().filter(|one| one.rule.contains("floor") && !one.reason.contains("scattered"));
            prop_assert_eq!(floors.collect::<Vec<_>>(), Vec::<&headway_types::plan::Relaxed>::new());
        }
    }

    #[test]
    fn nobody_gives_way_to_a_job_that_does_not_start(AnyRound(input) in any_round(7)) {
        prop_assume!(input.policy.power_cap.is_none());
        let plan = planned(&input);
        let reclaimed = |verdict: &JobVerdict| verdict.reasons.iter().any(|one| one.code == ReasonCode::Reclaim);
        prop_assume!(!plan.report.jobs.values().any(reclaimed));
        let (cluster, tree) = (Cluster::new(&input), Tree::new(&input.projects));
        let round = Round::new(&input, &cluster, &tree);
        let options = options(&round);
        let mut used = vec![0; round.rows.capacity.len()];
        let held = |job: &PlanJob| plan.assignments.get(&job.job).map(|at| at.placement.clone());
        for (job, placement) in input.jobs.iter().filter_map(|job| Some((job, held(job)?))) {
            round.rows.of_placement(job, &placement, None).iter().for_each(|part| used[part.row as usize] += part.amount);
        }
        let taken: BTreeSet<&GpuUuid> =
            plan.assignments.values().flat_map(|at| at.placement.ranks()).map(|(_, gpu)| gpu).collect();
        for of in options.iter().filter(|of| !plan.assignments.contains_key(&of.job.job)) {
            let stay = &of.candidates[of.incumbent];
            let gains = stay.value > of.candidates.iter().find(|one| one.gpus.0 == 0).unwrap().value;
            // What it needs of hosts may be used up by others.
            if !stay.stays || !gains || of.job.needs.per_node != NodeResources::default() {
                continue;
            }
            let free = of.job.current.iter().flat_map(|at| at.placement.ranks()).all(|(_, gpu)| !taken.contains(gpu));
            let fits = stay.uses.iter().all(|part| {
                let row = part.row as usize;
                let right = match round.rows.kinds[row] {
                    // It may not borrow while others that lend would go without.
                    RowKind::Quota { project } => i64::from(tree.projects[project].quota.unwrap().0),
                    _ => round.rows.capacity[row],
                };
                part.amount <= 0 || used[row] + part.amount <= right
            });
            prop_assert!(!(free && fits), "{} gives way for nothing", of.job.name);
        }
    }

    #[test]
    fn a_job_that_is_due_takes_from_those_not_above_it_that_have_had_their_turn(
        sizes in proptest::collection::vec((1u32..5, 0u8..4), 1..8),
        wanted in 1u32..9,
        rank in 0u8..4,
        had_their_turn in any::<bool>(),
    ) {
        let mut input = crowded(&sizes.iter().map(|(gpus, _)| *gpus).collect::<Vec<_>>());
        input.jobs.retain(|job| job.current.is_some());
        for (job, (_, rank)) in input.jobs.iter_mut().zip(&sizes) {
            job.priority = Priority(rank * 25);
            job.claim.ran = if had_their_turn { input.policy.turn } else { Seconds(600.0) };
        }
        let mut due = rigid(99, wanted);
        due.priority = Priority(rank * 25);
        due.claim.waited = Seconds(40_000.0);
        input.jobs.push(due);
        let plan = planned(&input);
        let above = input.jobs.iter().filter(|job| job.priority > Priority(rank * 25));
        for job in above.clone() {
            prop_assert!(plan.assignments.contains_key(&job.job), "{} is above and stays", job.name);
        }
        let gpus = |jobs: &mut dyn Iterator<Item = &PlanJob>| jobs.map(|job| job.range.max.0).sum::<u32>();
        let peers = |job: &&PlanJob| job.priority == Priority(rank * 25) && job.job != job_id(99);
        let starts = plan.assignments.contains_key(&job_id(99));
        if had_their_turn {
            prop_assert_eq!(starts, wanted + gpus(&mut above.clone()) <= 8);
        } else if wanted + gpus(&mut input.jobs.iter().filter(|job| job.job != job_id(99))) <= 8 {
            prop_assert!(starts, "enough is free");
        } else {
            for job in input.jobs.iter().filter(peers) {
                let worth_more = 2 * wanted > 3 * job.range.max.0;
                prop_assert!(worth_more || plan.assignments.contains_key(&job.job), "{} has had no turn", job.name);
            }
        }
    }

    #[test]
    fn what_makes_room_for_one_due_job_is_not_waited_for_by_the_next(hours in 5u32..48) {
        let mut input = crowded(&[8]);
        input.jobs[0].bounds.time_left = Some(Seconds(3_600.0 * f64::from(hours)));
        input.jobs[0].claim.ran = input.policy.turn;
        let (mut first, mut second) = (rigid(2, 4), rigid(3, 8));
        first.bounds.time_left = Some(Seconds(3_600.0));
        first.claim.waited = Seconds(50_000.0);
        second.claim.waited = Seconds(40_000.0);
        input.jobs.extend([first, second]);
        prop_assert!(planned(&input).assignments.contains_key(&job_id(2)));
        let promised = Rights::of(&input).promised;
        // The first of them starts in 30 s and ends after an hour, and the node is free then.
        prop_assert_eq!(promised, Some((job_id(3), Seconds(3_630.0))));
    }

    #[test]
    fn what_was_borrowed_goes_back_to_whoever_has_the_right(
        (quota, wanted) in (1u32..8).prop_flat_map(|quota| (Just(quota), 1..=8 - quota)),
    ) {
        let right = 8 - quota;
        let mut input = crowded(&[1; 8]);
        input.projects = vec![project("lender", None), project("borrower", None)];
        input.projects.sort_by(|a, b| a.name.cmp(&b.name));
        for project in &mut input.projects {
            let own = if project.name == "lender" { right } else { quota };
            (project.quota, project.borrow) = (Some(GpuCount(own)), GpuCount(8 - own));
        }
        input.jobs.iter_mut().for_each(|job| job.claim.project = "borrower".into());
        let mut lender = rigid(99, wanted);
        lender.claim.project = "lender".into();
        input.jobs.push(lender);
        let plan = planned(&input);
        prop_assert!(plan.assignments.contains_key(&job_id(99)));
        prop_assert_eq!(plan.assignments.len() as u32, 8 - wanted + 1);
    }
}

#[test]
fn nobody_is_displaced_for_a_lender_whose_node_has_no_cpus_left() {
    let mut input = crowded(&[2, 2, 2, 2]);
    let (projects, host) = ([project("borrower", None), project("lender", None)], NodeResources::default());
    input.projects = projects.to_vec();
    (input.projects[0].quota, input.projects[0].borrow) = (Some(GpuCount(2)), GpuCount(6));
    input.projects[1].quota = Some(GpuCount(6));
    input.nodes[0].host = NodeResources { shm: Some(Bytes(1 << 30)), ..host };
    input.jobs.iter_mut().for_each(|job| job.claim.project = "borrower".into());
    // The first keeps the shared memory, and is no borrower the lender could take it from.
    input.jobs[0].needs.per_node = NodeResources { shm: Some(Bytes(1 << 30)), ..host };
    input.jobs[0].freedom = Freedom::Fixed { reason: "it started a minute ago".into() };
    let mut lender = rigid(99, 2);
    lender.claim.project = "lender".into();
    lender.needs.per_node = NodeResources { shm: Some(Bytes(1 << 29)), ..host };
    input.jobs.push(lender);
    let plan = planned(&input);
    assert_eq!(plan.assignments.len(), 4);
    assert!(plan.report.moves.is_empty());
    let verdict = &plan.report.jobs[&job_id(99)];
    assert!(verdict.headline.contains("shared memory"), "{}", verdict.headline);
}

#[test]
fn nobody_is_displaced_for_a_lender_that_avoids_the_node() {
    let mut input = crowded(&[2, 2, 2, 2]);
    input.nodes.push(node(2, "alpha", 8));
    input.nodes[1].gpus.truncate(1);
    input.projects = vec![project("borrower", None), project("lender", None)];
    (input.projects[0].quota, input.projects[0].borrow) = (Some(GpuCount(2)), GpuCount(6));
    input.projects[1].quota = Some(GpuCount(6));
    input.jobs.iter_mut().for_each(|job| job.claim.project = "borrower".into());
    let mut lender = rigid(99, 2);
    lender.claim.project = "lender".into();
    lender.needs.avoid = [input.nodes[0].node].into();
    input.jobs.push(lender);
    let plan = planned(&input);
    assert!(plan.report.moves.is_empty(), "{:?}", plan.report.moves);
}

#[test]
fn who_borrows_does_not_displace_who_lends_however_much_more_it_is_worth() {
    let mut node = node(1, "alpha", 1);
    node.gpus.truncate(1);
    let mut projects = [project("borrower", None), project("lender", None)];
    (projects[0].quota, projects[0].borrow) = (Some(GpuCount(0)), GpuCount(1));
    projects[1].quota = Some(GpuCount(5));
    let (mut dear, mut rightful) = (rigid(1, 1), rigid(2, 1));
    (dear.priority, dear.claim.project) = (Priority(99), "borrower".into());
    (rightful.priority, rightful.claim.project) = (Priority(78), "lender".into());
    let placement = Placement::try_new(vec![NodeSlice { node: node.node, gpus: node.gpus.clone() }]).unwrap();
    dear.current = Some(crate::builder::bare(placement));
    let mut input = round(vec![node], vec![dear, rightful]);
    input.projects = projects.to_vec();
    input.policy.power = 1.0;
    for number in 0..4 {
        let plan = planned(&input);
        assert_eq!(plan.assignments.keys().collect::<Vec<_>>(), [&job_id(2)], "in round {number}");
        input = crate::builder::after(&input, &plan);
    }
}
