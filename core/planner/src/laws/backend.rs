//! Rounds that an exact backend decides.

use headway_types::{GpuCount, Solver};
use proptest::prelude::*;

use super::rounds::{AnyRound, any_round};
use super::{config, planned};
use crate::builder::{job, node, project, round};
use crate::input::PlanInput;

fn by_a_backend(mut input: PlanInput) -> PlanInput {
    input.policy.solver = Solver::Milp;
    input
}

#[test]
fn a_round_says_that_an_exact_backend_decided_it() {
    let input = round(vec![node(1, "alpha", 8)], vec![job(1, 1, 8), job(2, 1, 8)]);
    let (ours, theirs) = (planned(&input), planned(&by_a_backend(input)));
    assert_eq!(ours.report.solver, None);
    let solver = theirs.report.solver.expect("it says so");
    assert!(solver.name != "headway" && !solver.version.is_empty() && solver.instead.is_none(), "{solver:?}");
    assert_eq!(theirs.report.objective, ours.report.objective);
}

#[test]
fn a_round_too_large_for_the_backend_is_decided_by_ours_and_says_why() {
    let mut input = round(vec![node(1, "alpha", 8)], vec![job(1, 1, 8)]);
    input.projects = (0..300).map(|number| project(&format!("p{number:03}"), None)).collect();
    input.projects.iter_mut().for_each(|project| project.quota = Some(GpuCount(8)));
    let (ours, mut theirs) = (planned(&input), planned(&by_a_backend(input)));
    let solver = theirs.report.solver.take().expect("it says so");
    assert_eq!(solver.name, "headway");
    assert!(solver.instead.expect("why").ends_with("use solver: headway"));
    assert_eq!(theirs, ours);
}

#[test]
fn a_policy_from_before_there_was_a_choice_is_solved_by_ours() {
    let mut stored = serde_json::to_value(crate::Policy::default()).unwrap();
    stored.as_object_mut().unwrap().remove("solver").expect("it is stored");
    assert_eq!(serde_json::from_value::<crate::Policy>(stored).unwrap().solver, Solver::Headway);
}

proptest! {
    #![proptest_config(config())]

    /// Placement tries fewer ways out with a backend, so objectives may differ; what each promises holds for both.
    #[test]
    fn a_backend_keeps_every_promise_that_ours_keeps(AnyRound(input) in any_round(6)) {
        let plan = planned(&by_a_backend(input.clone()));
        prop_assert_eq!(plan.report.solver.as_ref().and_then(|solver| solver.instead.as_ref()), None);
        prop_assert_eq!(&plan, &planned(&by_a_backend(input)));
        prop_assert!(plan.report.bound.is_none_or(|bound| plan.report.objective <= bound));
    }
}
