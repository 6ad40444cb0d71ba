//! Input that nobody should send: a round is refused by the name of what is wrong with it, a job is left out; never a
//! panic, and never a round lost to one job.

use headway_goodput::JobModel;
use headway_types::spec::Work;
use headway_types::{Assignment, GpuCount, GpuSeconds, Plan, ReasonCode, Seconds, Tokens, TokensPerSecond};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use super::rounds::{AnyRound, any_round};
use crate::builder::{job, model_of, node, project, round, table};
use crate::check::PlanError;
use crate::counterfactual::{self, AskError, Question};
use crate::curves::CurveCache;
use crate::force::Force;
use crate::funnel::funnel;
use crate::input::{PlanInput, PlanNode, PlanWork};
use crate::policy::PowerCap;
use crate::submitted::Premises;
use crate::verify::Violation;
use crate::{plan, verify};

/// A round in which every number is there.
fn full() -> PlanInput {
    let mut input = round(vec![node(1, "alpha", 4)], vec![job(1, 1, 4), job(2, 1, 4), job(3, 1, 2)]);
    input = crate::builder::after(&input, &super::planned(&input));
    input.projects = vec![project("a", None)];
    input.policy.power_cap =
        Some(PowerCap { watts: 9e3, busy: [(headway_types::GpuType("alpha".into()), 7e2)].into(), idle: 9e1 });
    let points = [(GpuCount(1), 1.0)].into();
    input.jobs[1].work = PlanWork::Model(model_of(Work::Curve { points, seq_len: 64 }));
    input.jobs[2].work = PlanWork::Table(std::sync::Arc::new(table("alpha", &[(1, 1.0, None)])));
    input
}

type Set = fn(&mut PlanInput, f64);

/// Every number that is not a count, by the name an error gives it.
const NUMBERS: [(&str, Set); 38] = [
    ("power", |input, to| input.policy.power = to),
    ("epsilon", |input, to| input.policy.epsilon = to),
    ("horizon", |input, to| input.policy.horizon = Seconds(to)),
    ("min_gain", |input, to| input.policy.min_gain = to),
    ("fresh_gain", |input, to| input.policy.fresh_gain = to),
    ("settling", |input, to| input.policy.settling = Seconds(to)),
    ("min_batch_gain", |input, to| input.policy.min_batch_gain = to),
    ("service_exponent", |input, to| input.policy.service_exponent = to),
    ("patience", |input, to| input.policy.patience = Some(Seconds(to))),
    ("min_return", |input, to| input.policy.min_return = to),
    ("shortest_first", |input, to| input.policy.shortest_first = to),
    ("patience_share", |input, to| input.policy.patience_share = to),
    ("turn", |input, to| input.policy.turn = Seconds(to)),
    ("domain_loss", |input, to| input.policy.domain_loss = to),
    ("tolerance", |input, to| input.policy.tolerance = to),
    ("power_cap.watts", |input, to| cap(input).watts = to),
    ("power_cap.idle", |input, to| cap(input).idle = to),
    ("power_cap.busy", |input, to| cap(input).busy.values_mut().for_each(|watts| *watts = to)),
    ("weight", |input, to| input.projects[0].weight = to),
    ("usage", |input, to| input.projects[0].usage = to),
    ("downtime.batch", |input, to| input.jobs[0].downtime.batch = Seconds(to)),
    ("downtime.micro_batch", |input, to| input.jobs[0].downtime.micro_batch = Seconds(to)),
    ("downtime.layout", |input, to| input.jobs[0].downtime.layout = Some(Seconds(to))),
    ("downtime.restart", |input, to| input.jobs[0].downtime.restart = Seconds(to)),
    ("rework", |input, to| input.jobs[0].rework = Seconds(to)),
    ("remaining", |input, to| input.jobs[0].remaining = Some(Tokens(to))),
    ("claim.waited", |input, to| input.jobs[0].claim.waited = Seconds(to)),
    ("claim.ran", |input, to| input.jobs[0].claim.ran = Seconds(to)),
    ("claim.attained", |input, to| input.jobs[0].claim.attained = GpuSeconds(to)),
    ("claim.since_move", |input, to| input.jobs[0].claim.since_move = Some(Seconds(to))),
    ("bounds.budget_left", |input, to| input.jobs[0].bounds.budget_left = Some(GpuSeconds(to))),
    ("departure.takes", |input, to| input.jobs[0].departure.takes = Seconds(to)),
    ("bounds.time_left", |input, to| input.jobs[0].bounds.time_left = Some(Seconds(to))),
    ("current.predicted.goodput", |input, to| {
        let current = input.jobs[0].current.as_mut();
        current.unwrap().predicted.goodput = TokensPerSecond(to);
    }),
    ("training.kappa", |input, to| change(input, |model| model.training.kappa = to)),
    ("training.work.points", |input, to| {
        let PlanWork::Model(model) = &mut input.jobs[1].work else { unreachable!("job 2 has a curve") };
        let Work::Curve { points, .. } = &mut std::sync::Arc::make_mut(model).training.work else {
            unreachable!("job 2 has a curve")
        };
        points.insert(GpuCount(2), to);
    }),
    ("table.goodput", |input, to| rows(input)[0].goodput = to),
    ("table.watts_per_gpu", |input, to| rows(input)[0].watts_per_gpu = Some(to)),
];

fn cap(input: &mut PlanInput) -> &mut PowerCap {
    input.policy.power_cap.as_mut().unwrap()
}

fn rows(input: &mut PlanInput) -> &mut Vec<crate::table::TableRow> {
    let PlanWork::Table(table) = &mut input.jobs[2].work else { unreachable!("job 3 has a table") };
    &mut std::sync::Arc::make_mut(table).rows
}

fn change(input: &mut PlanInput, change: impl FnOnce(&mut JobModel)) {
    let PlanWork::Model(model) = &mut input.jobs[0].work else { unreachable!("job 1 is modelled") };
    change(std::sync::Arc::make_mut(model));
}

/// Whose field it is: of the round itself, or of which job.
fn owner(name: &str) -> Option<usize> {
    const FIRST: [&str; 7] = ["downtime.", "rework", "remaining", "claim.", "bounds.", "departure.", "current."];
    match name {
        name if FIRST.iter().any(|prefix| name.starts_with(prefix)) => Some(0),
        "training.kappa" => Some(0),
        "training.work.points" => Some(1),
        name if name.starts_with("table.") => Some(2),
        _ => None,
    }
}

/// Whether a plan leaves out exactly this job, for this field, as it is, and says so where people look.
fn leaves_out(input: &PlanInput, plan: &Plan, job: usize, name: &str) {
    assert_eq!(verify(input, plan), Ok(()), "{name}");
    let of = &input.jobs[job];
    let named: Vec<_> = plan.report.left_out.iter().map(|one| one.job).collect();
    assert_eq!(named, [of.job]);
    assert!(plan.report.left_out[0].reason.starts_with(&format!("{name} is ")), "{}", plan.report.left_out[0].reason);
    assert_eq!(plan.report.jobs[&of.job].reasons[0].code, ReasonCode::Malformed);
    let placement = |at: &Assignment| at.placement.clone();
    assert_eq!(plan.assignments.get(&of.job).map(placement), of.current.as_ref().map(placement));
    assert!(input.jobs.iter().all(|job| plan.report.jobs.contains_key(&job.job)));
}

#[test]
fn a_number_that_is_none_is_named_and_only_its_job_is_left_out() {
    super::planned(&full());
    for (name, set) in NUMBERS {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let mut input = full();
            set(&mut input, bad);
            match (plan(&input, &mut CurveCache::new()), owner(name)) {
                (Err(PlanError::Field { wrong, .. }), None) => assert_eq!(wrong.field, name),
                (Ok(plan), Some(job)) => leaves_out(&input, &plan, job, name),
                (other, _) => panic!("{name} = {bad}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_number_of_any_size_is_named_or_planned_with() {
    for (name, set) in NUMBERS {
        for size in [-1e300, -1.0, -0.0, f64::MIN_POSITIVE, 1e-9, 1.0, 1e9, 1e18, f64::MAX] {
            let mut input = full();
            set(&mut input, size);
            match plan(&input, &mut CurveCache::new()) {
                Err(PlanError::Field { wrong, .. }) => assert_eq!((wrong.field, owner(name)), (name, None)),
                Ok(plan) if plan.report.left_out.is_empty() => assert_eq!(verify(&input, &plan), Ok(()), "{name}"),
                Ok(plan) => leaves_out(&input, &plan, owner(name).unwrap(), name),
                Err(other) => panic!("{name} = {size}: {other}"),
            }
        }
    }
}

#[test]
fn a_node_that_nothing_can_be_computed_with_is_left_out_by_name_and_the_others_are_planned() {
    let good = super::planned(&full());
    let mut input = full();
    let mut wrong = input.nodes[0].clone();
    wrong.node = node(200, "alpha", 8).node;
    wrong.name = "typo".into();
    wrong.class.gpus_per_node = GpuCount(5_000);
    wrong.gpus = (0..5_000).map(|gpu| headway_types::GpuUuid(format!("typo-{gpu}"))).collect();
    input.nodes.push(wrong);
    let plan = super::planned(&input);
    assert_eq!(verify(&input, &plan), Ok(()));
    assert_eq!(plan.assignments, good.assignments);
    let named: Vec<_> = plan.report.nodes_left_out.iter().map(|one| (one.name.as_str(), one.reason.as_str())).collect();
    assert_eq!(named, [("typo", "class.gpus_per_node is 5000, it must be from 0 to 256")]);
}

#[test]
fn gpus_of_a_node_that_is_left_out_are_in_nobodys_fair_share() {
    let nodes = [node(1, "alpha", 8), node(2, "alpha", 8)];
    let mut wrong = node(3, "alpha", 8);
    wrong.class.gpus_per_node = GpuCount(5_000);
    wrong.gpus = (0..5_000).map(|gpu| headway_types::GpuUuid(format!("typo-{gpu}"))).collect();
    let share = |nodes: &[PlanNode]| Premises::new(nodes, 4).fair_share();
    assert_eq!(share(&nodes), GpuCount(4));
    let [one, two] = nodes;
    assert_eq!(share(&[one, two, wrong]), GpuCount(4));
}

#[test]
fn what_runs_on_a_node_that_went_wrong_keeps_what_it_has() {
    let mut input = full();
    let at = input.jobs.iter().position(|job| job.current.is_some()).unwrap();
    let node = input.jobs[at].current.as_ref().unwrap().placement.first_node();
    let of = input.nodes.iter_mut().find(|one| one.node == node).unwrap();
    of.class.gpus_per_node = GpuCount(5_000);
    let plan = super::planned(&input);
    assert_eq!(verify(&input, &plan), Ok(()));
    let job = &input.jobs[at];
    assert_eq!(plan.assignments[&job.job].placement, job.current.as_ref().unwrap().placement);
    assert!(plan.report.left_out.iter().any(|one| one.job == job.job && one.reason.contains("5000")));
}

#[test]
fn a_job_whose_curve_was_not_ready_is_left_as_it_is_and_says_so() {
    for at in 0..full().jobs.len() {
        let mut input = full();
        let of = input.jobs[at].clone();
        input.deferred.insert(of.job);
        let plan = super::planned(&input);
        assert_eq!(verify(&input, &plan), Ok(()));
        let placement = |at: &Assignment| at.placement.clone();
        assert_eq!(plan.assignments.get(&of.job).map(placement), of.current.as_ref().map(placement));
        assert_eq!(plan.report.jobs[&of.job].reasons[0].code, ReasonCode::NotReady);
        let named: Vec<_> = plan.report.left_out.iter().map(|one| (one.job, one.deferred)).collect();
        assert_eq!(named, [(of.job, true)]);
    }
}

#[test]
fn a_plan_that_hides_whom_it_left_out_or_moves_them_is_refused() {
    let mut input = full();
    input.jobs[0].rework = Seconds(f64::NAN);
    let good = super::planned(&input);
    let mut silent = good.clone();
    silent.report.left_out.clear();
    assert!(matches!(verify(&input, &silent), Err(Violation::Unnamed { .. })));
    let mut gone = good;
    gone.assignments.remove(&input.jobs[0].job);
    assert!(matches!(verify(&input, &gone), Err(Violation::MovedFixed { .. })));
}

#[test]
fn what_would_come_of_a_job_that_cannot_be_planned_with_is_no_question() {
    let mut input = full();
    input.jobs[0].rework = Seconds(f64::NAN);
    let (made, job) = (super::planned(&input), input.jobs[0].job);
    let mut curves = CurveCache::new();
    assert_eq!(counterfactual::usual(&input, &made, &mut curves, job), Ok(Vec::new()));
    let held = input.jobs[0].current.as_ref().unwrap().placement.gpus();
    let forced = Question::force(Force::size(job, GpuCount(held.0 + 1)));
    assert!(matches!(counterfactual::ask(&input, &made, &mut curves, &forced), Err(AskError::LeftOut(_))));
    assert!(funnel(&input, &made, &mut curves, job).is_some());
}

/// Every value inside a JSON value that has none inside itself, in order.
fn leaves<'v>(value: &'v mut Value, found: &mut Vec<&'v mut Value>) {
    let whole = value.as_array().is_none_or(Vec::is_empty) && value.as_object().is_none_or(serde_json::Map::is_empty);
    match value {
        _ if whole => found.push(value),
        Value::Array(items) => items.iter_mut().for_each(|item| leaves(item, found)),
        Value::Object(fields) => fields.values_mut().for_each(|field| leaves(field, found)),
        _ => unreachable!("only lists and objects hold others"),
    }
}

fn odd_values() -> impl Strategy<Value = Value> {
    let odd = vec![
        json!(null),
        json!(0),
        json!(-1),
        json!(1),
        json!(7),
        json!(u32::MAX),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(i64::MAX),
        json!(1e308),
        json!(-1e308),
        json!(1e-308),
        json!(0.5),
        json!(""),
        json!("a"),
        json!([]),
        json!({}),
        json!(true),
        json!(false),
    ];
    proptest::sample::select(odd)
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn a_bad_job_that_holds_nothing_changes_nothing_for_the_others(AnyRound(input) in any_round(5), at in any::<Index>()) {
        let (mut poisoned, mut without) = (input.clone(), input);
        let at = at.index(poisoned.jobs.len());
        prop_assume!(poisoned.jobs[at].current.is_none());
        poisoned.jobs[at].claim.attained = GpuSeconds(f64::NAN);
        without.jobs.remove(at);
        prop_assert_eq!(super::planned(&poisoned).assignments, super::planned(&without).assignments);
    }

    #[test]
    fn a_bad_job_that_runs_keeps_what_it_holds_and_the_others_are_planned(AnyRound(input) in any_round(5), at in any::<Index>()) {
        let mut poisoned = input;
        let at = at.index(poisoned.jobs.len());
        let job = poisoned.jobs[at].job;
        let Some(held) = poisoned.jobs[at].current.clone() else { return Ok(()) };
        (poisoned.jobs[at].range.min, poisoned.jobs[at].range.max) = (GpuCount(3), GpuCount(2));
        let plan = super::planned(&poisoned);
        prop_assert_eq!(&plan.assignments[&job].placement, &held.placement);
        prop_assert!(plan.report.moves.iter().all(|one| one.job != job));
        prop_assert_eq!(plan.report.left_out.len(), 1);
        prop_assert_eq!(plan.report.jobs.len(), poisoned.jobs.len());
    }

    #[test]
    fn whatever_can_be_read_is_planned_or_refused(
        AnyRound(input) in any_round(5),
        changes in proptest::collection::vec((any::<Index>(), odd_values(), any::<Option<Index>>()), 1..4),
    ) {
        let mut value = serde_json::to_value(&input).unwrap();
        for (at, odd, copied) in changes {
            let mut found = Vec::new();
            leaves(&mut value, &mut found);
            let odd = copied.map_or(odd, |from| (*from.get(&found)).clone());
            *found.swap_remove(at.index(found.len())) = odd;
        }
        if let Ok(input) = serde_json::from_value::<PlanInput>(value)
            && let Ok(plan) = plan(&input, &mut CurveCache::new())
        {
            prop_assert_eq!(verify(&input, &plan), Ok(()));
            // A number that is none would be written as null, and not be read again.
            let written = serde_json::to_string(&plan).unwrap();
            prop_assert!(serde_json::from_str::<headway_types::Plan>(&written).is_ok(), "{written}");
        }
    }
}
