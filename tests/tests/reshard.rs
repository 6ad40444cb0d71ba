//! Another layout of the same GPUs in memory, under the real binaries: the planner wants it, the engine orders it, the
//! trainer takes it. Skipped, and said so, without an interpreter that has PyTorch (`HEADWAY_TEST_PYTHON`, set by
//! `make test`).
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use headway_api::v1::{Job, JobStateKind as State, Layout, Objective};
use headway_tests::{Cluster, until};

const PATIENCE: Duration = Duration::from_secs(120);
const BATCH: u64 = 16;
const STEPS: u64 = 120;

/// The batch is fixed, so that nothing but the layout can change.
fn yaml() -> String {
    let worker = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("worker/src");
    format!(
        "version: 1
name: agile
resources:
  gpus: 4
training:
  model: {{layers: 2, hidden: 32, heads: 4, kv_heads: 2, ffn_hidden: 64, gated: true, vocab: 256, seq_len: 32, tied: true}}
  precision: fp32
  reference_batch: {BATCH} sequences
  batch: {{min: {BATCH} sequences, max: {BATCH} sequences}}
  layouts: {{tp: [1], pp: [1, 2], micro_batch: 4}}
  reconfigure: {{batch: live, layout: live}}
  checkpoint: {{every: 2s, grace: 30s}}
elastic: {{min_runtime: 0s, max_resizes_per_hour: 1000}}
run:
  command: [\"{{python}}\", -m, headway.trainer, --layers, \"2\", --hidden, \"32\", --heads, \"4\", --kv-heads, \"2\", --ffn, \"64\",
            --vocab, \"256\", --seq-len, \"32\", --tied, --lr, \"3e-3\", --max-samples, \"{}\"]
  env: {{PYTHONPATH: \"{}\"}}
",
        STEPS * BATCH,
        worker.display()
    )
}

/// An operator's word to the whole cluster.
async fn pursue(cluster: &Cluster, objective: Objective) {
    let settings = serde_json::json!({"objective": objective});
    cluster.client.change_policy(settings.as_object().unwrap()).await.unwrap();
}

async fn trains_in(cluster: &Cluster, id: &str, layout: Layout) -> Job {
    until(&format!("training in {layout:?}"), PATIENCE, || async {
        let job = cluster.client.job(id).await.ok()?.job;
        assert!(
            [State::Queued, State::Starting, State::Running].contains(&job.state),
            "{} {:?}",
            job.state,
            job.state_cause
        );
        (job.layout == Some(layout) && job.loss.is_some()).then_some(job)
    })
    .await
}

/// Step, samples and loss of every report in the trainer's own output.
fn told(log: &str) -> Vec<(u64, u64, f64)> {
    let numbers = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        Some((words.get(1)?.parse().ok()?, words.get(3)?.parse().ok()?, words.get(5)?.parse().ok()?))
    };
    log.lines().filter(|line| line.starts_with("step ")).filter_map(numbers).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_job_takes_a_better_layout_without_a_restart() {
    if std::env::var_os("HEADWAY_TEST_PYTHON").is_none() {
        eprintln!("skipped: HEADWAY_TEST_PYTHON names no interpreter with PyTorch");
        return;
    }
    let cluster = Cluster::start(1, 4).await;
    let client = &cluster.client;
    // Pollux knows data parallelism alone. Over the slow links of these devices two stages are much faster, since each
    // reduces half the gradient only: that is what our own objective finds as soon as an operator turns to it.
    pursue(&cluster, Objective::Pollux).await;
    let id = client.submit_yaml(&yaml(), None).await.unwrap().jobs[0].id.to_string();
    let before = trains_in(&cluster, &id, Layout { dp: 4, tp: 1, pp: 1 }).await;
    let processes = cluster.processes_of(&id);
    assert_eq!(processes.len(), 6, "four ranks, who has forked them, and the shell around: {processes:?}");

    pursue(&cluster, Objective::Goodput).await;
    let after = trains_in(&cluster, &id, Layout { dp: 2, tp: 1, pp: 2 }).await;
    assert_eq!((before.generation, after.generation), (1, 1));
    assert_eq!((after.reconfigurations, after.restarts, after.disruptions), (1, 0, 0));
    let log = cluster.dir().join(format!("node-1/jobs/{id}/g1/rank-0.log"));
    let log = || std::fs::read_to_string(&log).unwrap();
    until("the trainer to have resharded", PATIENCE, || async { log().contains("resharded in").then_some(()) }).await;
    assert_eq!(cluster.processes_of(&id), processes, "nobody was restarted");

    let done = until("the job to finish", PATIENCE, || async {
        let job = client.job(&id).await.ok()?.job;
        assert_ne!(job.state, State::Failed, "{:?}", job.state_cause);
        (job.state == State::Succeeded).then_some(job)
    })
    .await;
    assert_eq!((done.generation, done.reconfigurations, done.samples_seen), (1, 1, Some(STEPS * BATCH)));
    let events = client.job_events(&id, 200).await.unwrap();
    let of = |verb: &str| events.iter().filter(|event| event.verb == verb).collect::<Vec<_>>();
    let (changed, measured) = (of("job.layout_changed"), of("job.reshard_measured"));
    assert_eq!((changed.len(), measured.len(), of("job.training").len()), (1, 1, 1), "{events:#?}");
    assert!(changed[0].message.contains("dp2 tp1 pp2") && changed[0].message.contains("in memory"), "{changed:?}");
    for phase in ["staging", "groups", "build", "exchange"] {
        let seconds: f64 = measured[0].detail[&format!("reshard_{phase}_seconds")].parse().unwrap();
        assert!((0.0..60.0).contains(&seconds), "{}", measured[0].message);
    }

    let log = log();
    let told = told(&log);
    assert!(told.iter().all(|(step, samples, _)| *samples == step * BATCH), "every sample once: {log}");
    assert!(told.windows(2).all(|pair| pair[0].0 < pair[1].0), "no step twice: {log}");
    assert_eq!(told.last().unwrap().0, STEPS);
    let line = |words: &str| log.lines().position(|line| line.contains(words)).expect(words);
    let apart: BTreeSet<bool> = log
        .lines()
        .enumerate()
        .filter(|(_, line)| line.starts_with("step "))
        .map(|(at, _)| at < line("resharded in"))
        .collect();
    assert_eq!(apart.len(), 2, "it trained before and after: {log}");
    assert!(told.last().unwrap().2 < told[0].2 - 1.0, "it went on learning: {log}");
    println!("{}", measured[0].message);
    cluster.stop(&[]).await;
}
