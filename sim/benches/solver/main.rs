//! What a round costs the solver: `cargo bench -p headway-sim --bench solver -- [SHAPE|all] [SEEDS] [PEER SEEDS]`.
//! CPU seconds of this process, which has one thread, whatever else the machine does. With `--features highs` the first
//! seeds are solved by HiGHS too, from the same instances.
//! docs/measurements/solver.md keeps what it prints.

mod instance;
#[cfg(feature = "highs")]
mod peers;
mod sia;

use headway_solver::{Effort, Program, Solution, solve};
use instance::Shape;
use nix::time::{ClockId, clock_gettime};

struct Target {
    name: &'static str,
    /// Said of rows that are not those of a planner's round.
    remark: &'static str,
    draw: fn(Shape, u64) -> Program,
    shape: Shape,
    tolerance: f64,
    /// None where the target is to be faster than a peer.
    seconds: Option<f64>,
}

impl Target {
    const fn round(name: &'static str, shape: Shape, tolerance: f64, seconds: f64) -> Self {
        let remark = if shape.layouts > 1 { ", raw" } else { "" };
        Self { name, remark, draw: instance::instance, shape, tolerance, seconds: Some(seconds) }
    }

    /// As in Sia, at the gap that its simulator asks for.
    const fn sia(shape: Shape) -> Self {
        Self { name: "sia", remark: ", Sia's rows", draw: sia::instance, shape, tolerance: 1e-4, seconds: None }
    }
}

const SMALL: Shape = Shape { jobs: 200, gpus: 512, types: 3, layouts: 1, racks: 0 };
const MEDIUM: Shape = Shape { jobs: 1_000, gpus: 4_096, types: 3, layouts: 1, racks: 0 };
const LARGE: Shape = Shape { jobs: 5_000, gpus: 20_000, types: 3, layouts: 1, racks: 0 };
const HUGE: Shape = Shape { jobs: 20_000, gpus: 100_000, types: 5, layouts: 1, racks: 0 };
/// 120 candidates for each job before any pruning: three classes, eight sizes, five layouts.
const RAW: Shape = Shape { jobs: 1_000, gpus: 4_096, types: 3, layouts: 5, racks: 16 };

/// Sia's rounds: one as in its paper's scaling figure, one that did not end in minutes there.
const SIA: Shape = Shape { jobs: 1_000, gpus: 2_048, types: 3, layouts: 1, racks: 0 };
const SIA_CROWDED: Shape = Shape { jobs: 500, gpus: 1_024, types: 3, layouts: 1, racks: 0 };

const TARGETS: [Target; 9] = [
    Target::round("small", SMALL, 1e-3, 0.010),
    Target::round("small", SMALL, 1e-4, 0.200),
    Target::round("medium", MEDIUM, 1e-3, 0.080),
    Target::round("medium", MEDIUM, 1e-4, 1.0),
    Target::round("large", LARGE, 1e-3, 0.500),
    Target::round("huge", HUGE, 1e-3, 3.0),
    Target::round("raw", RAW, 2e-2, 2.0),
    Target::sia(SIA),
    Target::sia(SIA_CROWDED),
];

struct Run {
    seconds: f64,
    /// Columns as given, before the solver drops any.
    columns: usize,
    solution: Solution,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok());
    let wanted = arguments.first().map(String::as_str).filter(|name| *name != "all");
    let targets = TARGETS.iter().filter(|target| wanted.is_none_or(|name| name == target.name));
    println!(
        "| jobs, GPUs, types | gap asked | target | median | p90 | worst (seed) | gap median | p90 | worst | above | proven | columns, left by presolve, rows | peak memory |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    targets.clone().for_each(|target| row(target, &measure(target, number(1).unwrap_or(200))));
    #[cfg(feature = "highs")]
    peers::compare(targets, number(2).unwrap_or(2));
}

fn measure(target: &Target, seeds: u64) -> Vec<Run> {
    let effort = Effort { tolerance: target.tolerance, ..Effort::default() };
    forget_peak();
    let run = |seed| {
        let program = (target.draw)(target.shape, seed);
        let begin = cpu_seconds();
        let solution = solve(&program, &effort).expect("the generator makes sound programs");
        let seconds = cpu_seconds() - begin;
        assert!(program.fits(&solution.choice) && program.value(&solution.choice) == solution.objective);
        Run { seconds, columns: program.groups.iter().map(Vec::len).sum(), solution }
    };
    (0..seeds).map(run).collect()
}

fn row(target: &Target, runs: &[Run]) {
    let ordered = |of: &dyn Fn(&Run) -> f64| {
        let mut all: Vec<f64> = runs.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        (all[all.len() / 2], all[all.len() * 9 / 10], all[all.len() - 1])
    };
    let seconds = ordered(&|run| run.seconds);
    let gap = ordered(&|run| run.solution.gap());
    let slowest = runs.iter().position(|run| run.seconds == seconds.2).expect("it was found among them");
    let above = runs.iter().filter(|run| run.solution.gap() > target.tolerance).count();
    let proven = runs.iter().filter(|run| run.solution.work.proven).count();
    let columns = ordered(&|run| run.columns as f64).0;
    let left = ordered(&|run| f64::from(run.solution.work.columns)).0;
    let rows = ordered(&|run| f64::from(run.solution.work.rows)).0;
    let Shape { jobs, gpus, types, .. } = target.shape;
    println!(
        "| {jobs}, {gpus}, {types}{} | {:.0e} | {} | **{}** | {} | {} ({slowest}) | {:.1e} | {:.1e} | {:.1e} | {above} of {} | {proven} | {columns}, {left}, {rows} | {} MB |",
        target.remark,
        target.tolerance,
        target.seconds.map_or_else(|| "below the peer".to_owned(), time),
        time(seconds.0),
        time(seconds.1),
        time(seconds.2),
        gap.0,
        gap.1,
        gap.2,
        runs.len(),
        peak_megabytes(),
    );
}

fn time(seconds: f64) -> String {
    if seconds < 0.9995 { format!("{:.1} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
}

fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("every Unix has this clock");
    now.tv_sec() as f64 + now.tv_nsec() as f64 * 1e-9
}

/// Where the system allows it, the peak counts from here.
fn forget_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// The most memory the process has had, its instance included; zero where the system does not tell.
fn peak_megabytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) / 1_024
}
