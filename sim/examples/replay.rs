//! One lifetime again, with its whole history: `cargo run -p headway-sim --example replay -- SEED [PRESET] [--shrink]`.
//! Without a preset it is the lifetime that the seed chooses in the long runs; a fault or chance may stand for a preset.

use std::process::ExitCode;

use headway_sim::{Faults, Scenario, shrink, simulate};

fn main() -> ExitCode {
    let (mut seed, mut faults, mut small) = (None, None, false);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--shrink" => small = true,
            text => match (text.parse::<u64>(), Faults::named(text)) {
                (Ok(number), _) => seed = Some(number),
                (_, Some(preset)) => faults = Some(preset),
                _ => {
                    eprintln!("{text} is neither a seed nor one of {:?}", Faults::PRESETS.map(|(name, _)| name));
                    return ExitCode::FAILURE;
                }
            },
        }
    }
    let Some(seed) = seed else {
        eprintln!("usage: replay SEED [PRESET] [--shrink]");
        return ExitCode::FAILURE;
    };
    let mut scenario = faults.map_or_else(|| Scenario::lifetime(seed), |faults| Scenario::random(seed, faults));
    if small && let Some((smaller, _)) = shrink(&scenario) {
        scenario = smaller;
        println!("nodes: {:?}", scenario.nodes);
        println!("faults: {:?}", scenario.faults);
        println!("lease: {} s", scenario.config.lease.0);
    }
    scenario.diary = true;
    match simulate(&scenario) {
        Ok(report) => {
            println!("{}", report.diary.join("\n"));
            println!("\njobs: {:?}, {} generations, {} terms", report.ended, report.generations, report.terms);
            report.waiting.iter().for_each(|(job, why)| println!("{job} waits: {why}"));
            println!("faults: {:?}\n\n{}", report.faults, report.gpu_time.table());
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{}\n\nFAILED: {failure}", failure.diary.join("\n"));
            ExitCode::FAILURE
        }
    }
}
