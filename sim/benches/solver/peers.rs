//! The same instances solved by others: handed over as JSON to `peers.py`, which answers with a line per peer.

use std::process::Command;

use headway_solver::{Column, Program};
use serde_json::{Value, json};

use crate::instance::Shape;
use crate::{Run, Target};

/// Wall seconds that each peer is given.
const LIMIT: u32 = 60;
/// Wall seconds after which both are killed, so that a run ends: GLPK's limit does not reach into its first relaxation.
const LAST: u32 = 180;

/// Prints what peers need for the first seeds of every target, and how many times as much CPU that is.
pub fn compare(python: &str, targets: &[(&Target, Vec<Run>)]) {
    println!(
        "\n| jobs, GPUs, types | gap asked | seed | peer | CPU | ours | ratio | objective against ours | status |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (target, runs) in targets {
        for (seed, run) in (0u64..).zip(runs) {
            for answer in answers(python, target, seed) {
                tell(target, seed, run, &answer);
            }
        }
    }
}

fn answers(python: &str, target: &Target, seed: u64) -> Vec<Value> {
    let path = std::env::temp_dir().join(format!("headway-instance-{}.json", std::process::id()));
    std::fs::write(&path, export(&(target.draw)(target.shape, seed))).expect("the temporary folder can be written");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/solver/peers.py");
    let output = Command::new("timeout")
        .args([
            &LAST.to_string(),
            python,
            script,
            &path.to_string_lossy(),
            &target.tolerance.to_string(),
            &LIMIT.to_string(),
        ])
        .env("OMP_NUM_THREADS", "1")
        .output()
        .expect("the interpreter starts");
    std::fs::remove_file(&path).expect("it was written above");
    let mut answers: Vec<Value> =
        String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    if !output.status.success() {
        answers.push(json!({ "peer": "the next one", "status": format!("gave no answer in {LAST} wall seconds") }));
    }
    answers
}

fn tell(target: &Target, seed: u64, run: &Run, answer: &Value) {
    let seconds = answer["cpu_seconds"].as_f64().unwrap_or(f64::NAN);
    let ours = run.solution.objective as f64 / 1e6;
    let against = match answer["objective"].as_f64() {
        Some(theirs) => format!("{:+.4} %", (theirs / ours - 1.0) * 100.0),
        None => "no solution".to_owned(),
    };
    let text = |key: &str| answer[key].as_str().unwrap_or("?").to_owned();
    let Shape { jobs, gpus, types, .. } = target.shape;
    println!(
        "| {jobs}, {gpus}, {types}{} | {:.0e} | {seed} | {} | {seconds:.2} s | {:.1} ms | **{:.0}** | {against} | {} |",
        target.remark,
        target.tolerance,
        text("peer"),
        run.seconds * 1e3,
        seconds / run.seconds,
        text("status"),
    );
}

fn export(program: &Program) -> String {
    let column = |column: &Column| {
        let uses: Vec<_> = column.uses.iter().map(|part| json!([part.row, part.amount])).collect();
        json!({ "value": column.value, "uses": uses })
    };
    let groups: Vec<Vec<Value>> = program.groups.iter().map(|group| group.iter().map(column).collect()).collect();
    json!({ "groups": groups, "capacity": program.capacity }).to_string()
}
