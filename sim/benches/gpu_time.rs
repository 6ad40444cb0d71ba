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
    let busy = busiest(&jobs);
    // The whole trace within a day: jobs keep their length, and the cluster is full.
    let squeeze = |job: &TraceJob| TraceJob { submitted: Seconds(job.submitted.0 / 45.0), ..job.clone() };
    let squeezed: Vec<TraceJob> = jobs.iter().map(squeeze).collect();
    // The published rate, and ten times of it: on 302 nodes the former is two failures a day.
    tell("the first day", &jobs, 0.0, 6.5)?;
    tell("the busiest day", &jobs, busy, 6.5)?;
    tell("the busiest day", &jobs, busy, 65.0)?;
    tell("all jobs of the trace submitted within one day", &squeezed, 0.0, 6.5)?;
    tell("all jobs of the trace submitted within one day", &squeezed, 0.0, 65.0)?;
    Ok(())
}

fn tell(name: &str, jobs: &[TraceJob], from: f64, failures: f64) -> Result<(), Box<dyn std::error::Error>> {
    let (gpu_type, lasts) = ("A100-80G".into(), Seconds(DAY));
    let replay = Replay { nodes: 302, gpu_type, from: Seconds(from), lasts, failures, seed: 2 };
    let scenario = replay.scenario(jobs);
    let begin = Instant::now();
    let report = simulate(&scenario)?;
    println!("\n## {name} (from day {:.0}), {failures} failures per 1000 node-days\n", from / DAY);
    println!(
        "{} jobs by their state at the end: {:?}; {} generations; faults: {:?}; simulated in {:.0} s\n",
        scenario.jobs.len(),
        report.ended,
        report.generations,
        report.faults,
        begin.elapsed().as_secs_f64()
    );
    println!("{}", report.gpu_time.table());
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
