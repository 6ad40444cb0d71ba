//! Faults of worker groups under the real binaries: how soon all of a gang is down when one of its ranks is.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::{Duration, Instant};

use headway_api::v1::JobStateKind as State;
use headway_tests::{Cluster, soon, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Tells of a step, then hangs and does not heed SIGTERM, as in a collective that waits for a dead peer.
const RANK: &str = "
import os, signal, time, headway
signal.signal(signal.SIGTERM, signal.SIG_IGN)
headway.init(handle_sigterm=False)
if os.environ['RANK'] == '0':
    headway.report(step=1, samples_seen=16, tokens=1024, duration_s=0.5, loss=3.0)
time.sleep(600)
";

/// `grace` is far longer than anybody wants to wait for ranks that hang.
fn gang(cluster: &Cluster) -> String {
    let script = cluster.dir().join("rank.py");
    std::fs::write(&script, RANK).unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("worker/src");
    format!(
        "version: 1
name: gang
resources:
  gpus: 4
training:
  model: {{layers: 4, hidden: 64, heads: 4, kv_heads: 2, ffn_hidden: 176, gated: true, vocab: 256, seq_len: 64, tied: true}}
  precision: fp32
  reference_batch: 16 sequences
  batch: {{min: 16 sequences, max: 16 sequences}}
  layouts: {{tp: [1], pp: [1], micro_batch: 4}}
  checkpoint: {{every: 60s, grace: 120s}}
limits: {{max_restarts: 0}}
run:
  per: gpu
  command: [\"{{python}}\", \"{}\"]
  env: {{PYTHONPATH: \"{}\"}}
",
        script.display(),
        sources.display()
    )
}

/// Nodes and processes of the gang: each rank and the shell around it.
fn ranks(cluster: &Cluster) -> Vec<(String, i32)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let environment = String::from_utf8_lossy(&environment).into_owned();
        // The shell beside a worker has it as it travelled there, behind another name.
        let socket = environment.split('\0').find_map(|one| Some(one.split_once("HEADWAY_SOCKET=")?.1));
        let Some(socket) = socket else { continue };
        if let Some(node) = socket.strip_prefix(&format!("{}/", cluster.dir().display())) {
            found.push((node.to_owned(), pid));
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_rank_takes_its_gang_down_on_all_nodes_in_seconds() {
    let cluster = Cluster::start(2, 2).await;
    let client = &cluster.client;
    let job = client.submit_yaml(&gang(&cluster), None).await.unwrap().jobs[0].id.to_string();
    until("the gang to train", soon(), || async {
        let job = client.job(&job).await.ok()?.job;
        (job.state == State::Running && job.loss.is_some() && ranks(&cluster).len() >= 8).then_some(())
    })
    .await;
    let (node, victim) = ranks(&cluster).into_iter().find(|(node, _)| node.starts_with("node-2")).unwrap();
    let began = Instant::now();
    kill(Pid::from_raw(victim), Signal::SIGKILL).unwrap();
    until("all of the gang to be gone", soon(), || async { ranks(&cluster).is_empty().then_some(()) }).await;
    let took = began.elapsed();
    eprintln!("a rank died on {node}; all were gone after {:.1} s", took.as_secs_f64());
    assert!(took < Duration::from_secs(20), "{took:?}");
    until("the job to have failed", soon(), || async {
        (client.job(&job).await.ok()?.job.state == State::Failed).then_some(())
    })
    .await;
    cluster.stop(&[]).await;
}
