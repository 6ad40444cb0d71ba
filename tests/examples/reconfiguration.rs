//! Measures what a size change costs a real training job, by phase: `cargo run -p headway-tests --example reconfiguration
//! -- MODE MOVES`. Modes: `warm` (interpreters kept warm), `cold` (one interpreter per node, then forks), `torchrun` (one
//! interpreter per rank, as torchrun starts them). Needs `HEADWAY_TEST_PYTHON`; results are in
//! docs/measurements/reconfiguration.md.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use headway_api::v1::JobPatch;
use headway_tests::{Cluster, until};

const PATIENCE: Duration = Duration::from_secs(300);
/// Ranks of the job that is moved.
const RANKS: u32 = 4;

fn yaml(mode: &str) -> String {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("worker/src");
    let (per, fork) = if mode == "torchrun" { ("gpu", ", --no-fork") } else { ("node", "") };
    format!(
        "version: 1
name: moved
resources:
  gpus: {{min: {RANKS}, max: {RANKS}}}
training:
  model: {{layers: 4, hidden: 64, heads: 4, kv_heads: 2, ffn_hidden: 176, gated: true, vocab: 256, seq_len: 64, tied: false}}
  precision: fp32
  reference_batch: 16 sequences
  batch: {{min: 16 sequences, max: 16 sequences}}
  layouts: {{tp: [1], pp: [1], micro_batch: 4}}
  reconfigure: {{batch: live, layout: restart}}
  checkpoint: {{every: 10s, grace: 30s}}
elastic: {{min_runtime: 0s, max_resizes_per_hour: 1000}}
run:
  per: {per}
  command: [\"{{python}}\", -m, headway.trainer, --max-samples, \"100000000\"{fork}]
  env: {{PYTHONPATH: \"{}\"}}
",
        sources.display()
    )
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().expect("a mode");
    let moves: usize = arguments.next().map_or(3, |text| text.parse().unwrap());
    let python = std::env::var("HEADWAY_TEST_PYTHON").expect("HEADWAY_TEST_PYTHON");
    let cluster = Cluster::start_with(1, RANKS, usize::from(mode == "warm"), python).await;
    let client = &cluster.client;
    let first = client.submit_yaml(&yaml(&mode), None).await.unwrap().jobs[0].id.to_string();
    let mut seen = BTreeSet::new();
    started(&cluster, &first, &mut seen, RANKS).await;
    if mode == "warm" {
        until("a warm interpreter", PATIENCE, || async {
            let log = std::fs::read_to_string(cluster.log("node-1")).unwrap();
            let line = log.lines().find(|line| line.contains("an interpreter is warm"))?;
            println!("{line}");
            Some(())
        })
        .await;
    }
    for _ in 0..moves {
        for ranks in [2, RANKS] {
            let patch = JobPatch { gpus_min: Some(ranks), gpus_max: Some(ranks), ..JobPatch::default() };
            client.update(&first, &patch).await.unwrap();
            started(&cluster, &first, &mut seen, ranks).await;
        }
    }
    for event in client.job_events(&first, 500).await.unwrap().iter().rev() {
        if std::env::var_os("ALL").is_some() || ["job.training", "job.start_measured"].contains(&event.verb.as_str()) {
            println!("{} {}", event.at.format("%H:%M:%S%.3f"), event.message);
        }
    }
    println!("load {}", std::fs::read_to_string("/proc/loadavg").unwrap().trim());
}

/// Waits for the next generation of so many ranks to have made its first step; prints its CPU time up to then.
async fn started(cluster: &Cluster, job: &str, seen: &mut BTreeSet<u64>, ranks: u32) {
    let logs = cluster.dir().join("node-1/jobs").join(job);
    let (generation, line) = until("a generation to train", PATIENCE, || async {
        let generations = std::fs::read_dir(&logs).ok()?.flatten();
        let numbers =
            generations.filter_map(|entry| entry.file_name().to_str()?.strip_prefix('g')?.parse::<u64>().ok());
        let newest = numbers.filter(|number| !seen.contains(number)).max()?;
        let log = std::fs::read_to_string(logs.join(format!("g{newest}/rank-0.log"))).ok()?;
        let line = log.lines().find(|line| line.starts_with("started in"))?.to_owned();
        Some((newest, line))
    })
    .await;
    let (cpu, processes) = cpu_seconds(job, generation);
    seen.insert(generation);
    until("the scheduler to know", PATIENCE, || async {
        let events = cluster.client.job_events(job, 500).await.ok()?;
        (events.iter().filter(|event| event.verb == "job.training").count() >= seen.len()).then_some(())
    })
    .await;
    println!("{ranks} ranks, g{generation}: {cpu:.2} CPU s in {processes} processes; {line}");
}

/// What the live processes of a launch have used, with the children they have waited for.
fn cpu_seconds(job: &str, generation: u64) -> (f64, usize) {
    let mark = format!("/{job}/g{generation}/");
    let used: Vec<f64> = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            entry.file_name().to_str()?.parse::<u32>().ok()?;
            let environment = std::fs::read(entry.path().join("environ")).ok()?;
            let environment = String::from_utf8_lossy(&environment).into_owned();
            let marked = |one: &str| one.starts_with("HEADWAY_LAUNCH=") && one.contains(&mark);
            environment.split('\0').any(marked).then_some(())?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
            let ticks: f64 = fields[11..15].iter().map(|text| text.parse::<f64>().unwrap_or(0.0)).sum();
            Some(ticks / 100.0)
        })
        .collect();
    (used.iter().sum(), used.len())
}
