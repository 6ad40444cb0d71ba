//! HiGHS, in C++: one thread, one seed, limits in counts.

use good_lp::solvers::highs::HighsParallelType;
use good_lp::solvers::{Solution as _, SolutionStatus, WithInitialSolution as _};
use good_lp::{SolverModel as _, highs};

use super::{Answer, stated};
use crate::program::{Effort, Program};

/// Of the crate whose sources are built.
pub(super) const VERSION: &str = "1.15.0";

pub(super) fn solve(program: &Program, effort: &Effort) -> Result<Answer, String> {
    // HiGHS refuses to start from nothing where there is nothing to decide.
    if program.groups.is_empty() {
        return Ok(Answer { values: Vec::new(), ended: true, nodes: 0 });
    }
    let (model, columns) = stated(program, highs);
    let start = columns.iter().zip(&program.start).map(|(variables, &at)| (variables[at], 1.0));
    let model = model
        .with_initial_solution(start)
        .set_parallel(HighsParallelType::Off)
        .set_threads(1)
        .set_option("random_seed", 0)
        .set_option("mip_rel_gap", effort.tolerance.max(0.0))
        .set_option("mip_abs_gap", 0.0)
        .set_option("mip_max_nodes", i32::try_from(effort.nodes).unwrap_or(i32::MAX));
    let solution = model.solve().map_err(|error| error.to_string())?;
    let ended = matches!(solution.status(), SolutionStatus::Optimal | SolutionStatus::GapLimit);
    let values = columns.iter().flatten().map(|&variable| solution.value(variable)).collect();
    // good_lp does not tell how many nodes it were.
    Ok(Answer { values, ended, nodes: 0 })
}
