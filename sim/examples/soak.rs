//! Many lifetimes in a row: `cargo run --release -p headway-sim --example soak -- FIRST COUNT`. Says how many ran, how
//! fast, what went wrong in them and how often, and names every seed that broke a promise.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use headway_sim::{Faults, Scenario, simulate};

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let (first, count) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(1_000));
    let began = Instant::now();
    let mut broken: Vec<String> = Vec::new();
    let mut tried: BTreeMap<String, u64> = BTreeMap::new();
    let mut ended: BTreeMap<String, u32> = BTreeMap::new();
    let (mut slowest, mut hours) = ((0.0, 0), 0.0);
    for seed in first..first + count {
        let begin = Instant::now();
        match simulate(&Scenario::lifetime(seed)) {
            Ok(report) => {
                report.faults.into_iter().for_each(|(kind, times)| *tried.entry(kind).or_default() += times);
                report.ended.into_iter().for_each(|(state, jobs)| *ended.entry(state).or_default() += jobs);
                hours += report.makespan.0 / 3_600.0;
            }
            Err(failure) => {
                let (preset, _) = Faults::PRESETS[(seed % Faults::PRESETS.len() as u64) as usize];
                println!("{failure} ({preset}; replay -- {seed} --shrink)");
                broken.push(failure.message);
            }
        }
        let took = begin.elapsed().as_secs_f64();
        if took > slowest.0 {
            slowest = (took, seed);
        }
    }
    let took = began.elapsed().as_secs_f64();
    println!("\n{count} lifetimes from seed {first}, {hours:.0} simulated hours, {} violations", broken.len());
    println!(
        "{took:.1} s, {:.1} lifetimes per second, slowest {:.2} s (seed {})",
        count as f64 / took,
        slowest.0,
        slowest.1
    );
    println!("jobs by end: {ended:?}\nfaults: {tried:?}");
    if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
