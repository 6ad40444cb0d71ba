//! The worker socket.

use headway_types::Sequences;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::*;

/// A worker that tells its secret and waits.
const TELLS: &str = "echo secret $HEADWAY_SECRET.; sleep 60";

/// The secret that such workers were launched with.
async fn launched(agent: &Agent, order: &LaunchOrder) -> String {
    agent.launch(order).await;
    agent.phase(|phase| *phase == GroupPhase::Running).await;
    let output = agent.output(order, 0, ".").await;
    output.trim().trim_end_matches('.').strip_prefix("secret ").unwrap().to_owned()
}

#[tokio::test]
async fn a_worker_is_heard_only_with_its_secret() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    let order = agent.order(&dir, 1, TELLS);
    let secret = launched(&agent, &order).await;
    let hello = |secret: &str| {
        format!(
            "{{\"type\":\"hello\",\"version\":1,\"job\":\"{}\",\"generation\":1,\"secret\":\"{secret}\",\"rank\":0,\"pid\":1,\"capabilities\":{{\"batch\":\"live\",\"layout\":\"never\"}}}}\n",
            order.job
        )
    };
    for (secret, expected) in [("wrong", "refused"), (secret.as_str(), "welcome")] {
        let mut stream = BufReader::new(UnixStream::connect(agent.files.socket()).await.unwrap());
        stream.write_all(hello(secret).as_bytes()).await.unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        assert!(line.contains(expected), "{line}");
        if expected == "welcome" {
            assert!(matches!(agent.report().await, NodeReport::Declared { .. }));
            agent.stop(&order, StopMode::Checkpoint).await;
            line.clear();
            stream.read_line(&mut line).await.unwrap();
            assert_eq!(line, "{\"type\":\"stop\",\"checkpoint\":true,\"grace_s\":5.0}\n");
        }
    }
    agent.stop(&order, StopMode::Kill).await;
    assert_eq!(agent.ended().await, GroupOutcome::Stopped);
}

#[tokio::test]
async fn ranks_are_heard_and_a_newer_workers_words_are_not_in_the_way() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 2);
    let order = agent.order(&dir, 1, TELLS);
    let secret = launched(&agent, &order).await;
    // The first is none of this node's.
    for rank in [9, 0, 1] {
        let mut stream = BufReader::new(UnixStream::connect(agent.files.socket()).await.unwrap());
        let lines = format!(
            "{{\"type\":\"hello\",\"version\":1,\"job\":\"{}\",\"generation\":1,\"secret\":\"{secret}\",\"rank\":{rank},\"pid\":1}}\n\
             {{\"type\":\"telepathy\"}}\n{{\"type\":\"busy\",\"steps\":2,\"busy_s\":{}}}\n",
            order.job,
            rank + 1
        );
        stream.write_all(lines.as_bytes()).await.unwrap();
        stream.read_line(&mut String::new()).await.unwrap();
    }
    let mut heard = std::collections::BTreeMap::new();
    while heard.len() < 2 {
        if let NodeReport::RankTimes { busy, .. } = agent.report().await {
            heard.extend(busy);
        }
    }
    assert_eq!(heard, [(0, Seconds(0.5)), (1, Seconds(1.0))].into());
    agent.stop(&order, StopMode::Kill).await;
    assert_eq!(agent.ended().await, GroupOutcome::Stopped);
}

#[tokio::test]
async fn an_emulated_worker_trains_saves_takes_changes_and_stops() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 2);
    let order = agent.order(&dir, 1, TELLS);
    let secret = launched(&agent, &order).await;
    let socket = agent.files.socket().display().to_string();
    let (job, generation) = (order.job, order.generation);
    let checkpoints = order.checkpoint_dir.clone();
    let worker = tokio::spawn(crate::emulated::tests::train_until_stopped(job, socket, secret, checkpoints));

    let mut configuration = loop {
        if let NodeReport::Steps { report } = agent.report().await {
            assert!(report.noise.is_some() && report.samples_seen.0 == report.step * 8);
            break report.configuration;
        }
    };
    configuration.global_batch = Sequences(16);
    agent.command(AgentCommand::Configure { job, generation, revision: 1, configuration, lr_scale: 1.4 }).await;
    loop {
        if let NodeReport::Steps { report } = agent.report().await
            && report.configuration == configuration
        {
            break;
        }
    }
    agent.stop(&order, StopMode::Checkpoint).await;
    loop {
        if let NodeReport::CheckpointWritten { checkpoint, .. } = agent.report().await {
            assert!(Path::new(&checkpoint.path).join("manifest.json").exists());
            break;
        }
    }
    worker.await.unwrap().unwrap();
    agent.stop(&order, StopMode::Kill).await;
    assert_eq!(agent.ended().await, GroupOutcome::Stopped);
}
