//! How long a planning round takes, by cluster size: a cold round, the round after it with nothing changed, and one with
//! one job more. All of `plan`, explanations included. `make bench` prints the tables that
//! docs/measurements/rounds.md keeps. CPU seconds of this process, so that neighbours on the machine matter less.

mod live;
mod modelled;
mod tabled;

use headway_planner::{CurveCache, PlanInput, plan};
use headway_types::Plan;
use nix::time::{ClockId, clock_gettime};

fn main() {
    let table = |title: &str, rounds: Vec<(String, PlanInput)>| {
        println!(
            "\n{title}\n\n| round | candidates | cold | unchanged | one job more | verify | gap | moves when unchanged |"
        );
        println!("|---|---|---|---|---|---|---|---|");
        for (name, input) in rounds {
            measure(&name, input);
        }
    };
    let only: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wanted = |name: &str| only.is_empty() || only.iter().any(|one| name.contains(one.as_str()));
    println!(
        "\n1,664 GPUs of two types, no two models alike; before each warm round every running job has reported:\n\n\
         | round | run | candidates | cold | first {} | from then on | longest of those | unchanged | moves |\n\
         |---|---|---|---|---|---|---|---|---|",
        live::FIRST
    );
    for (name, input) in live::rounds().into_iter().filter(|(name, _)| wanted(name)) {
        live::measure(&name, input);
    }
    let keep = |rounds: Vec<(String, PlanInput)>| rounds.into_iter().filter(|(name, _)| wanted(name)).collect();
    table("Modelled jobs (1 and 8 billion parameters) on H100 nodes of eight:", keep(modelled::rounds()));
    table(
        "Goodput tables, three GPU types, 20 projects with quotas and floors, a move budget:",
        keep(tabled::rounds()),
    );
}

fn measure(name: &str, mut input: PlanInput) {
    let last = input.jobs.pop().expect("a round has jobs");
    let mut curves = CurveCache::default();
    let (first, cold) = timed(|| plan(&input, &mut curves).expect("the input is well formed"));
    let mut next = after(&input, &first);
    let (second, unchanged) = timed(|| plan(&next, &mut curves).expect("the input is well formed"));
    let (verdict, verify) = timed(|| headway_planner::verify(&next, &second));
    verdict.expect("the planner's plans verify");
    next.jobs.push(last);
    let (_, one_more) = timed(|| plan(&next, &mut curves).expect("the input is well formed"));
    println!(
        "| {name} | {} | {:.0} ms | {:.0} ms | {:.0} ms | {:.0} ms | {:.4} % | {} |",
        first.report.candidates,
        cold * 1e3,
        unchanged * 1e3,
        one_more * 1e3,
        verify * 1e3,
        first.report.gap.unwrap_or(f64::NAN) * 100.0,
        second.report.moves.len(),
    );
}

/// The round after `plan` has been carried out.
fn after(input: &PlanInput, plan: &Plan) -> PlanInput {
    let mut next = PlanInput { parent: Some(plan.id), ..input.clone() };
    for job in &mut next.jobs {
        job.current = plan.assignments.get(&job.job).cloned();
    }
    next
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let now = || clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("every process has a CPU clock");
    let seconds = |at: nix::sys::time::TimeSpec| at.tv_sec() as f64 + at.tv_nsec() as f64 / 1e9;
    let begin = seconds(now());
    let done = work();
    (done, seconds(now()) - begin)
}
