//! What always holds, against the oracle where the program is small enough for it.

use proptest::prelude::*;

use crate::bound::bound;
use crate::choice::Choice;
use crate::cut::cuts;
use crate::dual::{Dual, Outcome};
use crate::reduced::Reduced;
use crate::{Column, Effort, Program, ProgramError, Use, oracle, solve, solve_from};

const ROWS: usize = 5;
/// A start uses at least nothing; only floors make a choice without uses infeasible.
type Draft = (Vec<Vec<(i64, Vec<i64>)>>, Vec<i64>, Vec<usize>);

/// Small programs with every kind of row: capacities, nested quotas (row 1 lies within row 0), floors and negative
/// values. Room beside the start is drawn, so that the start always fits.
fn program() -> impl Strategy<Value = Program> {
    let amount = prop_oneof![3 => Just(0i64), 4 => 1i64..9, 1 => -4i64..0];
    let column = (-300_000i64..5_000_000, proptest::collection::vec(amount, ROWS));
    let group = proptest::collection::vec(column, 1..5);
    let groups = proptest::collection::vec(group, 1..7);
    let start = proptest::collection::vec(0usize..5, 7);
    (groups, proptest::collection::vec(0i64..12, ROWS), start).prop_map(|draft: Draft| {
        let (groups, room, start) = draft;
        let column = |(value, amounts): &(i64, Vec<i64>)| {
            let mut uses: Vec<Use> = (0u32..).zip(amounts).map(|(row, &amount)| Use { row, amount }).collect();
            // Nested: what is used of row 1 is used of row 0 too.
            uses[0].amount += uses[1].amount;
            uses.retain(|part| part.amount != 0);
            Column { value: *value, uses }
        };
        let groups: Vec<Vec<Column>> = groups.iter().map(|group| group.iter().map(column).collect()).collect();
        let start: Vec<usize> = groups.iter().zip(&start).map(|(columns, at)| at % columns.len()).collect();
        let mut program = Program { groups, capacity: Vec::new(), start };
        program.capacity = vec![0; ROWS];
        program.capacity = program.used(&program.start).iter().zip(&room).map(|(used, room)| used + room).collect();
        program
    })
}

fn prove() -> Effort {
    Effort { tolerance: 0.0, ..Effort::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_small_program_is_solved_to_proven_optimality(program in program()) {
        let solution = solve(&program, &prove()).expect("the program is well formed");
        let (_, best) = oracle::best(&program).expect("the start is feasible");
        prop_assert!(program.fits(&solution.choice));
        prop_assert_eq!(solution.objective, program.value(&solution.choice));
        prop_assert_eq!((solution.objective, solution.bound, solution.work.proven), (best, best, true));
    }

    #[test]
    fn a_solution_within_a_tolerance_is_within_its_gap(program in program(), tolerance in 0.0f64..0.2, steps in 0u32..60) {
        let effort = Effort { tolerance, dual_steps: steps, exchanges: 10, nodes: 3 };
        let solution = solve(&program, &effort).expect("the program is well formed");
        let (_, best) = oracle::best(&program).expect("the start is feasible");
        prop_assert!(program.fits(&solution.choice));
        prop_assert!(program.value(&program.start) <= solution.objective);
        prop_assert!(solution.objective <= best && best <= solution.bound);
        prop_assert!(solution.prices.iter().all(|price| *price >= 0.0 && price.is_finite()));
    }

    #[test]
    fn solving_again_from_a_proven_solution_changes_nothing(program in program()) {
        let first = solve(&program, &prove()).expect("the program is well formed");
        let again = Program { start: first.choice.clone(), ..program };
        let second = solve_from(&again, &prove(), &first.prices).expect("a solution is feasible");
        prop_assert_eq!(second.choice, first.choice);
    }

    /// A start within the tolerance is still improved where that takes little, so that a solution may be: never sideways, and by no more
    /// than the gap that was left.
    #[test]
    fn solving_again_from_a_solution_changes_it_only_for_the_better(program in program(), tolerance in 0.0f64..0.1) {
        let effort = Effort { tolerance, ..Effort::default() };
        let first = solve(&program, &effort).expect("the program is well formed");
        let again = Program { start: first.choice.clone(), ..program };
        let second = solve_from(&again, &effort, &first.prices).expect("a solution is feasible");
        let better = first.objective < second.objective && second.objective <= first.bound;
        prop_assert!(second.choice == first.choice || better);
    }

    #[test]
    fn the_order_of_rows_does_not_matter_to_the_objective(program in program(), turn in 1usize..ROWS) {
        let moved = |row: usize| (row + turn) % ROWS;
        let mut other = program.clone();
        for part in other.groups.iter_mut().flatten().flat_map(|column| &mut column.uses) {
            part.row = moved(part.row as usize) as u32;
        }
        (0..ROWS).for_each(|row| other.capacity[moved(row)] = program.capacity[row]);
        let (one, two) = (solve(&program, &prove()), solve(&other, &prove()));
        prop_assert_eq!(one.map(|solution| solution.objective), two.map(|solution| solution.objective));
    }

    #[test]
    fn the_same_program_has_the_same_solution(program in program()) {
        prop_assert_eq!(solve(&program, &Effort::default()), solve(&program, &Effort::default()));
    }

    #[test]
    fn a_cut_breaks_what_is_undecided_and_no_choice(program in program()) {
        let reduced = Reduced::new(&program);
        let mut dual = Dual::new(&reduced, vec![0.0; reduced.rows()]);
        dual.descend(100);
        let cuts = cuts(&reduced, &mut dual);
        prop_assert!(cuts.is_empty() || !dual.undecided().is_empty());
        for columns in choices(&reduced) {
            if Choice::new(&reduced, columns.clone()).fits() {
                for cut in &cuts {
                    let used: i64 = cut.uses.iter().filter(|part| columns.contains(&part.0)).map(|part| part.1).sum();
                    prop_assert!(used <= cut.capacity, "{columns:?} breaks {cut:?}");
                }
            }
        }
    }

    #[test]
    fn prices_where_the_bound_is_least_are_below_all_others(program in program(), other in proptest::collection::vec(0.0f64..3e6, ROWS)) {
        let reduced = Reduced::new(&program);
        let mut dual = Dual::new(&reduced, vec![0.0; reduced.rows()]);
        prop_assert_eq!(dual.descend(200), Outcome::Least);
        let least = bound(&reduced, &dual.prices, |_| true);
        // What keeps equal columns apart may cost a quantum.
        prop_assert!(least <= bound(&reduced, &other[..reduced.rows()], |_| true) + 1);
    }

    #[test]
    fn former_prices_of_any_kind_do_no_harm(program in program(), prices in proptest::collection::vec(any::<f64>(), ROWS)) {
        let solution = solve_from(&program, &prove(), &prices).expect("the program is well formed");
        prop_assert_eq!(Some(solution.objective), oracle::best(&program).map(|(_, best)| best));
    }
}

/// All choices of the reduced program.
fn choices(reduced: &Reduced) -> Vec<Vec<u32>> {
    (0..reduced.groups()).fold(vec![Vec::new()], |all, group| {
        let with = |columns: Vec<u32>| {
            reduced.group(group).map(move |column| columns.iter().copied().chain([column as u32]).collect())
        };
        all.into_iter().flat_map(with).collect()
    })
}

fn column(value: i64, uses: &[(u32, i64)]) -> Column {
    Column { value, uses: uses.iter().map(|&(row, amount)| Use { row, amount }).collect() }
}

fn nothing_or(value: i64, amount: i64) -> Vec<Column> {
    vec![column(0, &[]), column(value, &[(0, amount)])]
}

#[test]
fn the_start_wins_ties_and_then_the_lowest_index() {
    let group = || vec![column(0, &[]), column(5, &[(0, 1)]), column(5, &[(0, 1)]), column(5, &[(0, 1)])];
    let program = |start| Program { groups: vec![group()], capacity: vec![3], start };
    let choice = |start| solve(&program(start), &prove()).map(|solution| solution.choice);
    assert_eq!(choice(vec![3]), Ok(vec![3]));
    assert_eq!(choice(vec![0]), Ok(vec![1]));
}

#[test]
fn with_no_capacity_nothing_is_chosen() {
    let program = Program { groups: vec![nothing_or(7, 1); 50], capacity: vec![0], start: vec![0; 50] };
    let solution = solve(&program, &prove()).expect("nothing always fits");
    assert_eq!((solution.objective, solution.bound, solution.choice), (0, 0, vec![0; 50]));
}

#[test]
fn a_floor_takes_from_those_who_would_make_more_of_it() {
    // Row 1 says that the second group gets at least 2.
    let groups = vec![nothing_or(9, 3), vec![column(0, &[]), column(1, &[(0, 2), (1, -2)])]];
    let program = Program { groups, capacity: vec![3, -2], start: vec![0, 1] };
    let solution = solve(&program, &prove()).expect("the start fulfils the floor");
    assert_eq!((solution.choice, solution.objective), (vec![0, 1], 1));
}

#[test]
fn an_empty_program_has_an_empty_solution() {
    let program = Program { groups: Vec::new(), capacity: vec![4], start: Vec::new() };
    let solution = solve(&program, &prove()).expect("nothing is wrong with it");
    assert_eq!((solution.objective, solution.bound, solution.prices), (0, 0, vec![0.0]));
}

#[test]
fn what_is_malformed_is_named() {
    let error = |program: Program| solve(&program, &prove()).err();
    let one = |columns: Vec<Column>, start: Vec<usize>| Program { groups: vec![columns], capacity: vec![5], start };
    assert_eq!(error(one(Vec::new(), vec![0])), Some(ProgramError::EmptyGroup { group: 0 }));
    let unknown = ProgramError::UnknownRow { group: 0, column: 0, row: 7, rows: 1 };
    assert_eq!(error(one(vec![column(1, &[(7, 1)])], vec![0])), Some(unknown));
    let repeated = ProgramError::RepeatedRow { group: 0, column: 0, row: 0 };
    assert_eq!(error(one(vec![column(1, &[(0, 1), (0, 1)])], vec![0])), Some(repeated));
    assert_eq!(error(one(nothing_or(1, 1), vec![])), Some(ProgramError::StartLength { given: 0, groups: 1 }));
    let absent = ProgramError::StartColumn { group: 0, column: 2, columns: 2 };
    assert_eq!(error(one(nothing_or(1, 1), vec![2])), Some(absent));
    let infeasible = ProgramError::StartInfeasible { row: 0, used: 6, capacity: 5 };
    assert_eq!(error(one(nothing_or(1, 6), vec![1])), Some(infeasible));
    let wrong = solve_from(&one(nothing_or(1, 1), vec![0]), &prove(), &[]).err();
    assert_eq!(wrong, Some(ProgramError::PriceCount { given: 0, rows: 1 }));
}

#[test]
fn what_could_overflow_is_refused() {
    for huge in [i64::MAX, i64::MIN, (1 << 53) + 1] {
        let program = |columns| Program { groups: vec![columns], capacity: vec![i64::MAX], start: vec![0] };
        let value = solve(&program(nothing_or(huge, 1)), &prove());
        assert!(matches!(value, Err(ProgramError::ValuesTooLarge { .. })), "{value:?}");
        let amount = solve(&program(nothing_or(1, huge)), &prove());
        assert!(matches!(amount, Err(ProgramError::AmountsTooLarge { row: 0, .. })), "{amount:?}");
    }
    let many = Program { groups: vec![nothing_or(1 << 52, 1); 3], capacity: vec![1], start: vec![0; 3] };
    assert!(matches!(solve(&many, &prove()), Err(ProgramError::ValuesTooLarge { .. })));
}

#[test]
fn values_at_the_limit_are_solved_exactly() {
    let most = (1i64 << 51) - 1;
    let groups = vec![nothing_or(most, 2), nothing_or(most - 1, 1), nothing_or(most - 2, 1)];
    let program = Program { groups, capacity: vec![2], start: vec![0; 3] };
    let solution = solve(&program, &prove()).expect("within the limit");
    assert_eq!((solution.objective, solution.bound), (2 * most - 3, 2 * most - 3));
}

/// Sixteen sizes of work with concave values on one class, in four projects.
fn many(groups: u32) -> Program {
    let group = |number: u32| {
        let project = 1 + number % 4;
        let some = [1i64, 2, 4, 8].map(|gpus| {
            let value = libm::sqrt(gpus as f64) * 1e6 * f64::from(3 + number % 7) + f64::from(number % 1_009);
            column(value as i64, &[(0, gpus), (project, gpus)])
        });
        std::iter::once(column(0, &[])).chain(some).collect()
    };
    let all = i64::from(groups) * 4;
    let capacity = vec![all / 2, all / 7, all / 9, all / 5, all];
    Program { groups: (0..groups).map(group).collect(), capacity, start: vec![0; groups as usize] }
}

#[test]
fn a_thousand_groups_come_with_a_small_gap() {
    let solution = solve(&many(1_000), &Effort::default()).expect("well formed");
    assert!(solution.gap() <= 1e-3, "gap {}", solution.gap());
    assert!(solution.prices[0] > 0.0);
}

#[test]
fn a_hundred_thousand_groups_survive() {
    let program = many(100_000);
    let effort = Effort { dual_steps: 100, ..Effort::default() };
    let solution = solve(&program, &effort).expect("well formed");
    assert!(program.fits(&solution.choice));
    assert!(solution.gap() <= 5e-3, "gap {}", solution.gap());
}
