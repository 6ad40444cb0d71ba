#![allow(clippy::unwrap_used)]
//! Lines that no worker's SDK writes, from a job's own code: whatever they say, the node takes it in, and what it tells the scheduler
//! of it is a message of the protocol.

use headway_api::agent::{AgentToScheduler, wire};
use headway_fuzz::Target;
use headway_node::{Ledger, NodeEvent, Observations, Process, WorkerMessage};
use headway_types::{
    AgentCommand, BootId, CheckpointRef, GpuUuid, IdSource, LaunchOrder, NodeReport, Seconds, Term, Timestamp, example,
};

use super::message::{HelloLine, WorkerLine};

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "type", "hello", "step", "busy", "checkpoint", "phases", "loss_anomaly", "stopped", "heartbeat", "job",
    "generation", "secret", "rank", "capabilities", "batch", "layout", "live", "restart", "never", "steps",
    "samples_seen", "tokens", "duration_s", "configuration", "dp", "tp", "pp", "micro_batch", "global_batch",
    "execution", "cp", "ep", "vpp", "schedule", "1f1b", "sharding", "parameters", "recompute", "full",
    "sequence_parallel", "offload", "host", "loss", "usual", "noise", "preconditioned", "small_sqr", "big_sqr", "small_batch",
    "big_batch", "memory_peak", "busy_s", "path", "manifest_sha256", "import", "reshard_build",
];

/// A node on which one group runs, without its shell.
struct Node {
    order: LaunchOrder,
    ledger: Ledger,
    observations: Observations,
    reports: Vec<NodeReport>,
    /// One second per line.
    now: Timestamp,
}

impl Node {
    fn running() -> Self {
        let mut ids = IdSource::seeded(1);
        let now = Timestamp(1_000_000_000);
        let (job, id, gpus) = (ids.job(now), ids.node(now), vec![GpuUuid("a".into()), GpuUuid("b".into())]);
        let order = example::order(job, 1, id, gpus.clone());
        let (ledger, generation) = (Ledger::new(id, BootId("boot".into())), order.generation);
        let mut observations = Observations::new(Seconds(5.0));
        observations.open(job, generation, &gpus);
        let mut node = Self { order: order.clone(), ledger, observations, reports: Vec::new(), now };
        let command = |command| NodeEvent::Command { term: Term(1), serial: None, command };
        let processes = (0..2).map(|rank| Process { rank, pid: 100 + rank, started: 7 }).collect();
        node.digest(command(AgentCommand::Prepare { order: Box::new(order) }));
        node.digest(NodeEvent::PrepareDone { job, generation, result: Ok(Some(29_500)) });
        node.digest(command(AgentCommand::Launch { job, generation, rendezvous_port: 29_500 }));
        node.digest(NodeEvent::Spawned { job, generation, processes });
        node
    }

    fn digest(&mut self, event: NodeEvent) {
        let outcome = self.ledger.handle(self.now, event);
        self.reports.extend(outcome.reports);
    }

    /// As the shell does with a line of a worker whose secret was right and whose checkpoint was on disk.
    fn hear(&mut self, line: WorkerLine) {
        self.now = self.now + Seconds(1.0);
        let (job, generation, now) = (self.order.job, self.order.generation, self.now);
        if matches!(line, WorkerLine::Checkpoint(_) | WorkerLine::Stopped { .. }) {
            self.reports.extend(self.observations.flush(job, generation));
        }
        let message = match line {
            WorkerLine::Step(step) => {
                self.reports.extend(self.observations.steps(now, step.report(job, generation)));
                return;
            }
            WorkerLine::Busy { steps, busy_s } => {
                return self.observations.busy(now, job, generation, 0, steps, busy_s);
            }
            WorkerLine::Hello(HelloLine { rank, capabilities, .. }) => WorkerMessage::Hello { rank, capabilities },
            WorkerLine::Checkpoint(offer) => WorkerMessage::Checkpoint {
                duration: offer.duration_s,
                checkpoint: CheckpointRef {
                    generation,
                    path: offer.path,
                    step: offer.step,
                    samples_seen: offer.samples_seen,
                    manifest_sha256: offer.manifest_sha256,
                },
            },
            WorkerLine::Phases { phases } => WorkerMessage::Phases { phases },
            WorkerLine::LossAnomaly { step, loss, usual } => WorkerMessage::LossAnomaly { step, loss, usual },
            WorkerLine::Stopped { step, samples_seen } => WorkerMessage::Stopped { step, samples_seen },
            WorkerLine::Heartbeat | WorkerLine::Unknown => return,
        };
        self.digest(NodeEvent::Worker { job, generation, message });
    }
}

/// What the scheduler makes of a report: it takes it, or drops it by the name of a field.
fn told(report: &NodeReport) {
    let bytes = prost::Message::encode_to_vec(&wire::AgentMessage::from(report));
    let message: wire::AgentMessage = prost::Message::decode(bytes.as_slice()).unwrap();
    if let Err(error) = AgentToScheduler::try_from(message) {
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn whatever_a_worker_writes_is_taken_in_or_left_out() {
    let vectors = include_str!("../../../docs/worker-protocol.jsonl").lines().filter_map(|text| {
        let vector: serde_json::Value = serde_json::from_str(text).unwrap();
        (vector["from"] == "worker").then(|| vector["line"].to_string())
    });
    let vectors: Vec<String> = vectors.collect();
    let all = vectors.join("\n");
    Target::text("worker-lines", WORDS).seeds(vectors).seeds([all]).check(|input| {
        let mut node = Node::running();
        let mut understood = 0;
        for line in String::from_utf8_lossy(input).lines() {
            if let Ok(line) = serde_json::from_str(line) {
                node.hear(line);
                understood += 1;
            }
        }
        let (job, generation) = (node.order.job, node.order.generation);
        node.reports.extend(node.observations.due(node.now + Seconds(100.0)));
        node.reports.extend(node.observations.close(job, generation));
        node.digest(NodeEvent::SessionOpened { term: Term(2) });
        node.reports.iter().for_each(told);
        let kept = serde_json::to_string(&node.ledger).unwrap();
        assert_eq!(
            serde_json::from_str::<Ledger>(&kept).ok().as_ref(),
            Some(&node.ledger),
            "the ledger is kept otherwise"
        );
        understood > 0
    });
}
