//! What becomes of a backend's answer, right or wrong.

use super::*;
use crate::program::{Column, Use};

fn column(value: i64, amount: i64) -> Column {
    Column { value, uses: vec![Use { row: 0, amount }] }
}

/// Two groups that may have nothing, three or four of one row of five.
fn program() -> Program {
    let group = || vec![column(0, 0), column(30, 3), column(35, 4)];
    Program { groups: vec![group(), group()], capacity: vec![5], start: vec![1, 0] }
}

fn exactly() -> Effort {
    Effort { tolerance: 0.0, ..Effort::default() }
}

fn given(program: &Program, values: &[f64]) -> Result<Solution, MilpError> {
    let answer = Answer { values: values.to_vec(), ended: true, nodes: 1 };
    accept("it", program, &exactly(), (vec![0.0], 70), &answer)
}

#[test]
fn the_best_choice_is_found_and_proven() {
    let solution = solve_from(Backend::BUILT_IN, &program(), &exactly(), &[0.0]).expect("it has one");
    assert_eq!((solution.objective, solution.bound, solution.work.proven), (35, 35, true));
    assert!(program().fits(&solution.choice));
    assert!(solution.prices[0] > 0.0);
}

#[test]
fn the_start_wins_ties() {
    for start in [vec![2, 0], vec![0, 2]] {
        let solution =
            solve_from(Backend::BUILT_IN, &Program { start: start.clone(), ..program() }, &exactly(), &[0.0]);
        assert_eq!(solution.map(|solution| solution.choice), Ok(start));
    }
}

#[test]
fn an_empty_program_has_an_empty_solution() {
    let none = Program { groups: Vec::new(), capacity: vec![4, 0], start: Vec::new() };
    let solution = solve_from(Backend::BUILT_IN, &none, &exactly(), &[0.0, 0.0]).expect("nothing is wrong with it");
    assert_eq!((solution.objective, solution.bound), (0, 0));
}

#[test]
fn floats_near_one_are_ones() {
    let solution = given(&program(), &[1e-7, 0.0, 0.999_999, 1.0, -1e-9, 1e-8]).expect("it fits");
    assert_eq!((solution.choice, solution.objective), (vec![2, 0], 35));
}

#[test]
fn an_answer_that_does_not_fit_is_refused() {
    let refused = given(&program(), &[0.0, 1.0, 0.0, 0.0, 1.0, 0.0]);
    assert_eq!(refused, Err(MilpError::Misfit { backend: "it", row: 0, used: 6, capacity: 5 }));
}

#[test]
fn an_answer_that_leaves_a_group_open_is_refused() {
    let open = given(&program(), &[1.0, 0.0, 0.0, 0.4, 0.3, 0.3]);
    assert_eq!(open, Err(MilpError::Undecided { backend: "it", group: 1 }));
    assert_eq!(given(&program(), &[1.0, 0.0, 0.0]), Err(MilpError::Undecided { backend: "it", group: 1 }));
    assert_eq!(given(&program(), &[f64::NAN; 6]), Err(MilpError::Undecided { backend: "it", group: 0 }));
}

#[test]
fn a_bound_below_what_the_start_is_worth_is_refused() {
    let nothing = given(&program(), &[1.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
    assert_eq!(nothing, Err(MilpError::Contradicted { backend: "it", bound: 0, start: 30 }));
}

#[test]
fn what_used_up_its_nodes_proves_nothing() {
    let answer = Answer { values: vec![1.0, 0.0, 0.0, 1.0, 0.0, 0.0], ended: false, nodes: 1 };
    let solution = accept("it", &program(), &exactly(), (vec![0.0], 70), &answer).expect("the start fits");
    assert_eq!((solution.choice, solution.objective, solution.bound), (vec![1, 0], 30, 70));
}

#[test]
fn a_backend_that_panics_has_no_answer() {
    assert_eq!(guarded(|| -> Result<(), String> { panic!("out of bounds") }), Err("it panicked".into()));
}

#[test]
fn what_is_too_large_is_refused_with_a_way_out() {
    let group = vec![column(0, 0); MOST_COLUMNS];
    let program = Program { groups: vec![group, vec![column(0, 0)]], capacity: vec![5], start: vec![0, 0] };
    let refused = solve_from(Backend::BUILT_IN, &program, &exactly(), &[0.0]).expect_err("it is too large");
    assert_eq!(refused, MilpError::TooLarge { columns: MOST_COLUMNS + 1, rows: 1 });
    assert!(refused.to_string().ends_with("use solver: headway"), "{refused}");
}

#[test]
fn what_is_malformed_is_named() {
    let misfit = Program { start: vec![2, 2], ..program() };
    let refused = solve_from(Backend::BUILT_IN, &misfit, &exactly(), &[0.0]);
    let infeasible = ProgramError::StartInfeasible { row: 0, used: 8, capacity: 5 };
    assert_eq!(refused, Err(MilpError::Program(infeasible)));
}

#[test]
fn the_version_is_the_one_that_is_built() {
    let lock = include_str!("../../../../Cargo.lock");
    let of = |name: &str, version: &str| lock.contains(&format!("name = \"{name}\"\nversion = \"{version}\""));
    assert!(of("microlp", Backend::Microlp.version()));
    #[cfg(feature = "highs")]
    assert!(of("highs-sys", Backend::Highs.version()));
}
