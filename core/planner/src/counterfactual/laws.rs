//! What holds for every question, and what answers read like.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;

use headway_types::spec::Priority;
use headway_types::{GpuCount, Plan, Seconds};
use proptest::prelude::*;

use super::{Answer, AskError, Question, Supposition, ask, suppose, usual};
use crate::builder::{NOW, after, job, job_id, node, node_id, reservation, rigid, round};
use crate::curves::CurveCache;
use crate::ending::Departure;
use crate::force::Force;
use crate::input::{Freedom, PlanInput, PlanJob};
use crate::laws::sites::{of_project, row};
use crate::project::PlanProject;
use crate::{plan, verify};

fn planned(input: &PlanInput) -> Plan {
    plan(input, &mut CurveCache::new()).unwrap()
}

fn asked(input: &PlanInput, question: &Question) -> Answer {
    ask(input, &planned(input), &mut CurveCache::new(), question).unwrap()
}

fn told(input: &PlanInput, number: u32) -> String {
    let answers = usual(input, &planned(input), &mut CurveCache::new(), job_id(number)).unwrap();
    answers.iter().fold(String::new(), |mut text, one| {
        writeln!(text, "{}: {}", one.question, one.answer).unwrap();
        text
    })
}

fn jobs() -> impl Strategy<Value = Vec<PlanJob>> {
    let shape = (1u32..4, 0u32..4, any::<bool>(), 0u8..101);
    proptest::collection::vec(shape, 1..6).prop_map(|shapes| {
        let made = shapes.into_iter().zip(1..).map(|((min, more, tuned, priority), number)| {
            let job = if tuned { job(number, min, min + more) } else { rigid(number, min) };
            PlanJob { priority: Priority(priority), ..job }
        });
        made.collect()
    })
}

/// Half of the jobs run already, one of them fixed; one node may be short of a GPU.
fn rounds() -> impl Strategy<Value = PlanInput> {
    (jobs(), 0usize..3, any::<bool>()).prop_map(|(jobs, fixed, broken)| {
        let mut nodes = vec![node(1, "alpha", 4), node(2, "beta", 4)];
        if broken {
            nodes[1].gpus.pop();
        }
        let early = PlanInput { jobs: jobs[..jobs.len() / 2].to_vec(), ..round(nodes.clone(), Vec::new()) };
        let running = after(&early, &planned(&early));
        let mut input = round(nodes, jobs);
        for (job, earlier) in input.jobs.iter_mut().zip(&running.jobs) {
            job.current = earlier.current.clone();
        }
        if let Some(job) = input.jobs.get_mut(fixed).filter(|job| job.current.is_some()) {
            job.freedom = Freedom::Fixed { reason: "it started a minute ago".into() };
        }
        input
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..crate::laws::config() })]

    #[test]
    fn no_answer_claims_what_the_check_refuses(input in rounds(), gpus in 1u32..6) {
        let plan = planned(&input);
        for number in 1..=input.jobs.len() as u32 {
            let force = Force::size(job_id(number), GpuCount(gpus));
            let question = Question::force(force);
            let answer = ask(&input, &plan, &mut CurveCache::new(), &question).unwrap();
            let supposed = suppose::supposed(&input, &question).unwrap();
            let other = crate::round::plan(&supposed, &mut CurveCache::new()).unwrap();
            prop_assert_eq!(verify(&supposed, &other), Ok(()));
            let has = other.assignments.get(&job_id(number)).map(|at| at.placement.gpus());
            prop_assert!(has.is_none() || has == Some(GpuCount(gpus)));
            let is = plan.assignments.get(&job_id(number)).map(|at| at.placement.gpus());
            prop_assert_eq!(answer.possible, has.is_some() || is == Some(GpuCount(gpus)), "{}", answer.answer);
        }
    }

    #[test]
    fn what_is_forced_moves_nobody_who_must_keep_what_it_has(mut input in rounds(), gpus in 1u32..6) {
        for job in input.jobs.iter().map(|job| job.job).collect::<Vec<_>>() {
            input.force(Force::size(job, GpuCount(gpus)));
        }
        let plan = planned(&input);
        prop_assert_eq!(verify(&input, &plan), Ok(()));
        for job in &input.jobs {
            let has = plan.assignments.get(&job.job).map(|at| at.placement.gpus());
            match (&job.freedom, &job.current) {
                (Freedom::Fixed { .. }, Some(current)) => prop_assert_eq!(has, Some(current.placement.gpus())),
                (Freedom::Free | Freedom::Settled { .. }, _) => prop_assert!(has.is_none_or(|has| has == GpuCount(gpus))),
                (Freedom::Fixed { .. }, None) => {}
            }
        }
    }

    #[test]
    fn forcing_what_is_so_changes_nothing(input in rounds()) {
        let plan = planned(&input);
        for (job, at) in &plan.assignments {
            let question = Question::force(Force::size(*job, at.placement.gpus()));
            let answer = ask(&input, &plan, &mut CurveCache::new(), &question).unwrap();
            prop_assert!(answer.possible && answer.losers.is_empty() && answer.winners.is_empty());
            // Solved all the same, it is worth as much, as far as either is proven.
            let supposed = suppose::supposed(&input, &question).unwrap();
            let other = crate::round::plan(&supposed, &mut CurveCache::new()).unwrap().report;
            let fixed = input.jobs.iter().any(|one| one.job == *job && one.freedom != Freedom::Free);
            let (plan, slack) = (&plan.report, 1e-3);
            let (bound, other_bound) = (plan.bound.unwrap(), other.bound.unwrap());
            let agree = other.objective <= bound + slack && plan.objective <= other_bound + slack;
            prop_assert!(fixed || agree, "{} of {}, {} of {}", other.objective, other_bound, plan.objective, bound);
        }
    }

    #[test]
    fn no_answer_goes_beyond_what_a_job_accepts_or_is_asked_or_tells_what_no_base_bears(input in rounds()) {
        let plan = planned(&input);
        for job in &input.jobs {
            for one in usual(&input, &plan, &mut CurveCache::new(), job.job).unwrap() {
                let allowed = |job: &PlanJob, gpus: GpuCount| gpus.0 == 0 || job.range.allows(gpus);
                let asked = |gpus: GpuCount| one.question == format!("if it accepted {}", crate::explain::gpus(gpus));
                let gpus = one.gpus.unwrap_or_default();
                prop_assert!(allowed(job, gpus) || asked(gpus), "{:?}: {}: {}", job.range, one.question, one.answer);
                for other in one.winners.iter().chain(&one.losers) {
                    let of = input.jobs.iter().find(|job| job.job == other.job).unwrap();
                    prop_assert!(allowed(of, other.to), "{} to {}", other.name, other.to);
                }
                let changes = [one.objective_change, Some(one.goodput_change)].into_iter().flatten();
                prop_assert!(changes.clone().all(|change| change.is_finite() && change < 1e3), "{:?}", one);
                let large = one.answer.split(' ').any(|word| word.trim_start_matches('+').parse::<f64>().is_ok_and(|n| n >= 1e3));
                prop_assert!(!large, "{}", one.answer);
            }
        }
    }

    #[test]
    fn the_usual_questions_about_any_job_have_answers(input in rounds()) {
        let plan = planned(&input);
        for job in &input.jobs {
            let answers = usual(&input, &plan, &mut CurveCache::new(), job.job).unwrap();
            prop_assert!(answers.iter().all(|one| !one.answer.is_empty()));
        }
    }
}

/// Two jobs fill a node of eight; a third needs four at least.
fn full() -> PlanInput {
    let start = round(vec![node(1, "alpha", 8)], vec![rigid(1, 4), job(2, 2, 4)]);
    let mut input = after(&start, &planned(&start));
    input.jobs.iter_mut().for_each(|job| job.priority = Priority(75));
    input.jobs.push(job(3, 4, 8));
    input
}

#[test]
fn a_rigid_job_that_accepted_half_gets_half_and_nothing_between() {
    // Six are free: more than half, less than it asks for.
    let start = round(vec![node(1, "alpha", 8)], vec![rigid(1, 2)]);
    let mut input = after(&start, &planned(&start));
    input.jobs[0].freedom = Freedom::Fixed { reason: "it started a minute ago".into() };
    input.jobs.push(job(2, 8, 8));
    let answers = usual(&input, &planned(&input), &mut CurveCache::new(), job_id(2)).unwrap();
    let half = answers.iter().find(|one| one.question == "if it accepted 4 GPUs").unwrap();
    assert_eq!(half.gpus, Some(GpuCount(4)), "{}", half.answer);
}

#[test]
fn from_nothing_no_share_is_told() {
    let input = round(vec![node(1, "alpha", 4)], vec![PlanJob { priority: Priority(0), ..rigid(1, 4) }]);
    let mut input = PlanInput {
        projects: vec![PlanProject { name: "nlp".into(), quota: Some(GpuCount(0)), ..PlanProject::default() }],
        ..input
    };
    input.jobs[0].claim.project = "nlp".into();
    let answer = asked(&input, &Question::suppose(Supposition::Quota { project: "nlp".into(), quota: None }));
    assert!(answer.winners.len() == 1 && answer.objective_change.is_none(), "{answer:?}");
    assert!(!answer.answer.contains('%'), "{}", answer.answer);
}

#[test]
fn a_waiting_job_hears_what_would_start_it() {
    insta::assert_snapshot!(told(&full(), 3));
}

#[test]
fn a_running_job_hears_of_one_size_up_and_down() {
    insta::assert_snapshot!(told(&full(), 2));
}

#[test]
fn a_quota_and_a_node_that_is_out_are_tried() {
    let mut input = full();
    input.jobs[0].priority = Priority(50);
    input.nodes.push(node(2, "alpha", 8));
    input.projects = vec![PlanProject { name: "nlp".into(), quota: Some(GpuCount(8)), ..PlanProject::default() }];
    input.jobs.iter_mut().for_each(|job| job.claim.project = "nlp".into());
    let quota = told(&input, 3);
    input.projects.clear();
    input.nodes[1].gpus.clear();
    insta::assert_snapshot!(format!("{quota}\n{}", told(&input, 3)));
}

#[test]
fn a_time_limit_is_tried_where_a_reservation_closes_nodes_to_a_job_without_one() {
    let mut input = round(vec![node(1, "alpha", 4)], vec![rigid(1, 2)]);
    let from = NOW + Seconds(5.0 * 3_600.0);
    input.reservations = vec![reservation("r9", &[1], from, from + Seconds(3_600.0))];
    insta::assert_snapshot!(told(&input, 1));
    let limit = Supposition::TimeLimit { job: job_id(1), limit: Seconds(14_400.0) };
    let answer = asked(&input, &Question::suppose(limit));
    assert!(answer.possible && answer.gpus == Some(GpuCount(2)), "{}", answer.answer);
    input.jobs[0].departure = Departure { saves: true, never: false, takes: Seconds(60.0) };
    assert!(planned(&input).assignments.contains_key(&job_id(1)), "a job that saves needs no limit");
}

#[test]
fn a_wider_row_is_tried() {
    let mut input = full();
    input.jobs[0].priority = Priority(50);
    input.nodes.push(node(2, "alpha", 8));
    input.jobs.iter_mut().for_each(|job| job.claim.project = "nlp".into());
    input.policy.rows = vec![row("few", 8, of_project("nlp"))];
    insta::assert_snapshot!(told(&input, 3));
    let gone = asked(&input, &Question::suppose(Supposition::Row { row: "few".into(), at_most: None }));
    assert_eq!(gone.question, "if there were no row few");
    assert!(gone.winners.iter().any(|one| one.job == job_id(3)), "{}", gone.answer);
    let none = Question::suppose(Supposition::Row { row: "x".into(), at_most: None });
    let asked = ask(&input, &planned(&input), &mut CurveCache::new(), &none);
    assert_eq!(asked, Err(AskError::NoSuchRow("x".into())));
}

#[test]
fn what_nothing_can_free_cannot_be_forced() {
    let mut input = full();
    for job in &mut input.jobs[..2] {
        job.freedom = Freedom::Fixed { reason: "it started a minute ago".into() };
    }
    let answer = asked(&input, &Question::force(Force::start(job_id(3))));
    assert!(!answer.possible);
    assert!(answer.answer.starts_with("cannot be: "), "{}", answer.answer);
}

#[test]
fn more_nodes_and_fewer_jobs_are_supposed() {
    let input = full();
    let more = asked(&input, &Question::suppose(Supposition::NodesLike { node: node_id(1), count: 1 }));
    assert!(more.winners.iter().any(|one| one.job == job_id(3)), "{}", more.answer);
    let fewer = asked(&input, &Question::suppose(Supposition::JobGone { job: job_id(1) }));
    assert!(fewer.winners.iter().any(|one| one.job == job_id(3)), "{}", fewer.answer);
    assert_eq!(more.objective_change, None);
    let another = Box::new(PlanJob { priority: Priority(100), ..rigid(9, 4) });
    let added = asked(&input, &Question::suppose(Supposition::Job { job: another }));
    assert!(added.possible && added.gpus == Some(GpuCount(4)) && !added.losers.is_empty(), "{}", added.answer);
}

#[test]
fn what_the_round_does_not_know_is_no_question() {
    let input = full();
    let ask = |question| ask(&input, &planned(&input), &mut CurveCache::new(), &question);
    assert_eq!(ask(Question::force(Force::start(job_id(9)))), Err(AskError::NoSuchJob(job_id(9))));
    let node = Supposition::NodeBack { node: node_id(9) };
    assert_eq!(ask(Question::suppose(node)), Err(AskError::NoSuchNode(node_id(9))));
    let quota = Supposition::Quota { project: "x".into(), quota: None };
    assert_eq!(ask(Question::suppose(quota)), Err(AskError::NoSuchProject("x".into())));
}

#[test]
fn a_long_downtime_is_told_with_the_moves() {
    let mut input = full();
    input.jobs.iter_mut().for_each(|job| job.downtime.restart = Seconds(300.0));
    let answer = asked(&input, &Question::force(Force::start(job_id(3))));
    assert!(answer.possible && answer.moves > 0, "{}", answer.answer);
}
