//! microlp: branch and bound over a dual simplex, in pure Rust. `good_lp` states the program; the limit in nodes is
//! microlp's own, because `good_lp` hands on only a limit in seconds.

use microlp::{SolveOptions, TerminationReason};

use super::{Answer, stated};
use crate::program::{Effort, Program};

pub(super) const VERSION: &str = "0.6.0";

pub(super) fn solve(program: &Program, effort: &Effort) -> Result<Answer, String> {
    let (model, _) = stated(program, good_lp::microlp);
    let mut options = SolveOptions::default();
    options.mip_gap = effort.tolerance.max(0.0);
    options.node_limit = Some(effort.nodes.into());
    let outcome = model.as_inner().solve_with(options).map_err(|error| error.to_string())?;
    let nodes = u32::try_from(outcome.stats().nodes_solved).unwrap_or(u32::MAX);
    let solution = outcome.into_solution().map_err(|_| format!("it found none in {nodes} nodes"))?;
    let reason = solution.termination_reason();
    let ended = matches!(reason, TerminationReason::ProvenOptimal | TerminationReason::MipGap);
    // In the order in which the columns were stated.
    Ok(Answer { values: solution.iter().map(|(_, value)| value).collect(), ended, nodes })
}
