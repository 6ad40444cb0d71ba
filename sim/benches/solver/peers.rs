//! The same instances solved by HiGHS, through `good_lp` and in this process: CPU seconds are counted alike.

use headway_solver::milp::{Backend, solve_any_size};
use headway_solver::{Effort, Program};

use crate::instance::Shape;
use crate::{Run, Target, cpu_seconds, measure, time};

/// Nodes that HiGHS is given. Larger rounds than these would take it minutes each.
const NODES: u32 = 20_000;
const MOST_JOBS: usize = 1_000;

/// Prints what HiGHS needs for the first seeds of the smaller targets, and how many times as much CPU that is.
pub fn compare<'a>(targets: impl Iterator<Item = &'a Target>, seeds: u64) {
    let highs = Backend::BUILT_IN;
    println!("\nagainst {} {}\n", highs.name(), highs.version());
    println!("| jobs, GPUs, types | gap asked | seed | CPU | ours | ratio | objective against ours | gap reached |");
    println!("|---|---|---|---|---|---|---|---|");
    let small = |shape: &Shape| shape.jobs <= MOST_JOBS && shape.layouts == 1;
    for target in targets.filter(|target| small(&target.shape)) {
        for (seed, run) in (0u64..).zip(measure(target, seeds)) {
            tell(target, seed, &run, &(target.draw)(target.shape, seed));
        }
    }
}

fn tell(target: &Target, seed: u64, run: &Run, program: &Program) {
    let effort = Effort { tolerance: target.tolerance, nodes: NODES, ..Effort::default() };
    let begin = cpu_seconds();
    let solution = solve_any_size(Backend::BUILT_IN, program, &effort, &vec![0.0; program.capacity.len()]);
    let seconds = cpu_seconds() - begin;
    let answer = match &solution {
        Ok(solution) => {
            let against = (solution.objective as f64 / run.solution.objective as f64 - 1.0) * 100.0;
            format!("{against:+.4} % | {:.1e}", solution.gap())
        }
        Err(error) => format!("{error} | –"),
    };
    let Shape { jobs, gpus, types, .. } = target.shape;
    println!(
        "| {jobs}, {gpus}, {types}{} | {:.0e} | {seed} | {} | {} | **{:.0}** | {answer} |",
        target.remark,
        target.tolerance,
        time(seconds),
        time(run.seconds),
        seconds / run.seconds,
    );
}
