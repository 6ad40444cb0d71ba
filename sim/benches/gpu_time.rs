//! A day of a real trace at real failure rates, and where its GPU-time went:
//! `cargo bench -p headway-sim --bench gpu_time -- TRACE.csv`. Without a trace it says so and does nothing.
//! docs/measurements/gpu-time.md keeps what it prints.

use std::time::Instant;

use headway_sim::simulate;
use headway_sim::trace::{Replay, TraceJob, read};
use headway_types::Seconds;

const DAY: f64 = 86_400.0;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let Some(path) = path.or_else(|| std::env::var("HEADWAY_TRACE").ok()) else {
        println!("no trace: name one as the argument or in HEADWAY_TRACE");
        return Ok(());
    };
    let jobs = read(&std::fs::read_to_string(path)?)?;
    let days = [("first day", 0.0), ("busiest day", busiest(&jobs))];
    for (name, from) in days {
        for failures in [3.8, 6.5, 65.0] {
            let replay = Replay {
                nodes: 302,
                gpu_type: "A100-80G".into(),
                from: Seconds(from),
                lasts: Seconds(DAY),
                failures,
                seed: 1,
            };
            let scenario = replay.scenario(&jobs);
            let begin = Instant::now();
            let report = simulate(&scenario)?;
            println!("\n## {name} (from {:.1} d), {failures} failures per 1000 node-days\n", from / DAY);
            println!(
                "{} jobs: {:?}, {} still running at the end; {} generations; faults {:?}; simulated in {:.0} s\n",
                scenario.jobs.len(),
                report.ended,
                report.waiting.len(),
                report.generations,
                report.faults,
                begin.elapsed().as_secs_f64()
            );
            println!("{}", report.gpu_time.table());
        }
    }
    Ok(())
}

/// Where the 24 hours with the most GPU-time begin.
fn busiest(jobs: &[TraceJob]) -> f64 {
    let load = |from: f64| -> f64 {
        let within = |job: &TraceJob| {
            let (begin, end) = (job.submitted.0, job.submitted.0 + job.duration.0);
            (end.min(from + DAY) - begin.max(from)).max(0.0) * f64::from(job.gpus.0)
        };
        jobs.iter().map(within).sum()
    };
    let mut starts: Vec<f64> = (0..45).map(|day| f64::from(day) * DAY).collect();
    starts.sort_by(|left, right| load(*left).total_cmp(&load(*right)));
    starts.last().copied().unwrap_or(0.0)
}
