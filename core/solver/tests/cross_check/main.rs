//! Our solver against somebody else's, on programs of 20 to 60 groups: too large for the oracle, small enough for an
//! exact backend. Both evaluate their choices in integers, so each objective is a fact that the other's bound must allow.
//! Where they disagree the program is made as small as it can be while they still do, and printed as code.
//!
//! HEADWAY_CROSS_CHECKS says how many programs of each kind (`make soak` checks thousands); HEADWAY_CROSS_CHECKS_FROM at
//! which seed they begin.

mod drawn;
mod shrink;

use std::panic::{catch_unwind, set_hook, take_hook};

use drawn::Kind;
use headway_solver::milp::{self, Backend};
use headway_solver::{Effort, Program, Solution, solve};

/// Nodes of the backend for each program. Those that need more say less and are counted.
const NODES: u32 = 12_000;
const PANIC: &str = "ours panicked";

#[test]
fn with_odd_quotas_and_floors_both_solvers_agree() {
    cross_check(Kind::Quotas, 80);
}

#[test]
fn with_blocks_in_nodes_and_domains_both_solvers_agree() {
    cross_check(Kind::Blocks, 160);
}

#[test]
fn with_power_users_and_moves_both_solvers_agree() {
    cross_check(Kind::Power, 80);
}

#[test]
fn with_everything_at_once_both_solvers_agree() {
    cross_check(Kind::All, 80);
}

/// What was seen of one kind.
#[derive(Debug, Default)]
struct Tally {
    /// Both proved their choice to be the best.
    settled: u64,
    /// Ours needed cuts, or parts.
    with_cuts: u64,
    with_parts: u64,
    /// Quanta between the two objectives, and between bound and objective of ours.
    objectives_apart: i64,
    widest_gap: i64,
}

// How much is checked is no input of the solver: only this test reads it.
#[allow(clippy::disallowed_methods)]
fn cross_check(kind: Kind, programs: u64) {
    let number =
        |name: &str, default: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (from, programs) = (number("HEADWAY_CROSS_CHECKS_FROM", 0), number("HEADWAY_CROSS_CHECKS", programs));
    let mut tally = Tally::default();
    for seed in from..from + programs {
        let program = drawn::program(kind, seed);
        match compare(&program) {
            Ok(pair) => tally.count(&pair),
            Err(disagreement) => panic!("{kind:?}, seed {seed}: {}", made_small(program, disagreement)),
        }
    }
    println!("{kind:?}: {programs} programs, {tally:?}");
    // What never ends, or never needs what is to be checked, checks nothing.
    assert!(tally.settled * 4 >= programs * 3, "too few were solved to the end: {tally:?}");
    assert!(tally.with_cuts * 2 >= programs && tally.with_parts * 2 >= programs, "too easy: {tally:?}");
}

/// The disagreement on the least program that shows one like it, and that program.
fn made_small(program: Program, disagreement: String) -> String {
    // Smaller programs may panic by the dozen: only what comes of it is told.
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let like = |other: &String| (other == PANIC) == (disagreement == PANIC);
    let least = shrink::least(program, |smaller| compare(smaller).err().is_some_and(|other| like(&other)));
    let told = compare(&least).err().unwrap_or(disagreement);
    set_hook(hook);
    format!("{told}\n{}", shrink::as_code(&least))
}

struct Pair {
    ours: Solution,
    branched: Solution,
    theirs: Solution,
}

impl Tally {
    fn count(&mut self, Pair { ours, branched, theirs }: &Pair) {
        self.with_cuts += u64::from(ours.work.cuts > 0);
        self.with_parts += u64::from(branched.work.nodes > 0);
        self.widest_gap = self.widest_gap.max(ours.bound - ours.objective);
        if ours.work.proven && theirs.work.proven {
            self.settled += 1;
            self.objectives_apart = self.objectives_apart.max((ours.objective - theirs.objective).abs());
        }
    }
}

/// Where it panics that is a disagreement too, to be made small like others.
fn by_ours(program: &Program, effort: &Effort) -> Result<Solution, String> {
    let solved = catch_unwind(|| solve(program, effort)).map_err(|_| PANIC.to_owned())?;
    solved.map_err(|error| format!("ours: {error}"))
}

/// Both answers, or how they contradict each other.
fn compare(program: &Program) -> Result<Pair, String> {
    let effort = Effort { tolerance: 0.0, nodes: 20_000, ..Effort::default() };
    let ours = by_ours(program, &effort)?;
    // Without steps our own prices say next to nothing, so that the bound is the backend's.
    let apart = Effort { dual_steps: 0, nodes: NODES, ..effort };
    let none = vec![0.0; program.capacity.len()];
    let theirs =
        milp::solve_from(Backend::BUILT_IN, program, &apart, &none).map_err(|error| format!("theirs: {error}"))?;
    // Cuts close nearly all of these gaps, so branching is checked where prices are too poor for cuts.
    let poor = Effort { dual_steps: 4, exchanges: 10, nodes: 2_000, ..effort };
    let branched = by_ours(program, &poor)?;
    for (name, solution) in [("full effort", &ours), ("poor prices", &branched)] {
        if !program.fits(&solution.choice) || program.value(&solution.choice) != solution.objective {
            return Err(format!("our choice at {name} is not what it says: {}", solution.objective));
        }
        if theirs.objective > solution.bound {
            let bound = solution.bound;
            return Err(format!("our bound at {name} is {bound}, and their choice is worth {}", theirs.objective));
        }
        if solution.objective > theirs.bound {
            let bound = theirs.bound;
            return Err(format!("their bound is {bound}, and our choice at {name} is worth {}", solution.objective));
        }
    }
    Ok(Pair { ours, branched, theirs })
}
