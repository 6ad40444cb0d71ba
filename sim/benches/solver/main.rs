//! What a round costs the solver: `cargo bench -p headway-sim --bench solver -- [SHAPE] [SEEDS]`.
//! CPU seconds of this process, which has one thread; docs/measurements/solver.md keeps what it prints.

mod instance;

use headway_solver::{Effort, Solution, solve};
use instance::{Shape, instance};
use nix::time::{ClockId, clock_gettime};

struct Target {
    name: &'static str,
    shape: Shape,
    tolerance: f64,
    seconds: f64,
}

const fn plain(jobs: usize, gpus: i64, types: usize) -> Shape {
    Shape { jobs, gpus, types, layouts: 1, racks: 0 }
}

const RAW: Shape = Shape { jobs: 1_000, gpus: 4_096, types: 3, layouts: 5, racks: 16 };

const TARGETS: [Target; 8] = [
    Target { name: "small", shape: plain(200, 512, 3), tolerance: 1e-3, seconds: 0.010 },
    Target { name: "small", shape: plain(200, 512, 3), tolerance: 1e-4, seconds: 0.200 },
    Target { name: "medium", shape: plain(1_000, 4_096, 3), tolerance: 1e-3, seconds: 0.080 },
    Target { name: "medium", shape: plain(1_000, 4_096, 3), tolerance: 1e-4, seconds: 1.0 },
    Target { name: "large", shape: plain(5_000, 20_000, 3), tolerance: 1e-3, seconds: 0.500 },
    Target { name: "huge", shape: plain(20_000, 100_000, 5), tolerance: 1e-3, seconds: 3.0 },
    Target { name: "lp", shape: plain(200, 512, 3), tolerance: 1e-1, seconds: 0.010 },
    Target { name: "raw", shape: RAW, tolerance: 2e-2, seconds: 2.0 },
];

fn cpu() -> f64 {
    let now = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("every Unix has this clock");
    now.tv_sec() as f64 + now.tv_nsec() as f64 * 1e-9
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let wanted = arguments.first().map(String::as_str);
    let seeds: u64 = arguments.get(1).and_then(|text| text.parse().ok()).unwrap_or(200);
    if let Some(path) = arguments.get(3) {
        let target = TARGETS.iter().find(|target| wanted == Some(target.name)).expect("a shape");
        std::fs::write(path, export(&instance(target.shape, seeds))).expect("written");
        return;
    }
    let tolerance: Option<f64> = arguments.get(2).and_then(|text| text.parse().ok());
    for target in TARGETS.iter().filter(|target| wanted.is_none_or(|name| name == target.name)) {
        if tolerance.is_none_or(|only| only == target.tolerance) {
            measure(target, seeds);
        }
    }
}

fn measure(target: &Target, seeds: u64) {
    let effort = Effort { tolerance: target.tolerance, ..Effort::default() };
    let mut runs: Vec<(f64, u64, Solution)> = (0..seeds)
        .map(|seed| {
            let program = instance(target.shape, seed);
            let begin = cpu();
            let solution = solve(&program, &effort).expect("the generator makes sound programs");
            (cpu() - begin, seed, solution)
        })
        .collect();
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    if std::env::var("EACH").is_ok() {
        for run in &runs {
            println!("{} {:.1} ms gap {:.1e} {:?}", run.1, run.0 * 1e3, run.2.gap(), run.2.work);
        }
    }
    let median = &runs[runs.len() / 2];
    let worst = &runs[runs.len() - 1];
    let mut gaps: Vec<f64> = runs.iter().map(|run| run.2.gap()).collect();
    gaps.sort_by(f64::total_cmp);
    let missed = gaps.iter().filter(|gap| **gap > target.tolerance).count();
    println!(
        "{} {:?} {:.0e}: median {:.1} ms, worst {:.1} ms (target {:.0}), gap median {:.1e} p90 {:.1e} worst {:.1e}, {missed} of {seeds} above; worst {} {:?}; median {:?}",
        target.name,
        target.shape,
        target.tolerance,
        median.0 * 1e3,
        worst.0 * 1e3,
        target.seconds * 1e3,
        gaps[gaps.len() / 2],
        gaps[gaps.len() * 9 / 10],
        gaps[gaps.len() - 1],
        worst.1,
        worst.2.work,
        median.2.work
    );
}

fn export(program: &headway_solver::Program) -> String {
    let group = |columns: &Vec<headway_solver::Column>| -> serde_json::Value {
        columns
            .iter()
            .map(|column| {
                let uses: Vec<_> = column.uses.iter().map(|part| serde_json::json!([part.row, part.amount])).collect();
                serde_json::json!({ "value": column.value, "uses": uses })
            })
            .collect()
    };
    let groups: Vec<_> = program.groups.iter().map(group).collect();
    serde_json::json!({ "groups": groups, "capacity": program.capacity, "start": program.start }).to_string()
}
