//! A fleet without a network: commands go into the emulation, time is turned by hand, reports come out of the outboxes.
//! One test at the end goes over gRPC.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use headway_emulation::Mishap;
use headway_emulation::hardware::KnownType;
use headway_node::NodeEvent;
use headway_types::command::{GroupStatus, NodeAddress};
use headway_types::spec::Precision;
use headway_types::{
    AgentCommand, Blame, Bytes, CheckpointRef, Configuration, GpuHealth, GpuType, GroupOutcome, GroupPhase,
    LaunchOrder, Layout, NodeCount, NodeInventory, NodeReport, NodeSlice, Placement, Seconds, Sequences, StepReport,
    StopMode, Term,
};

use super::session::Input;
use super::*;
use crate::node::tests::fixture;

mod broken;
mod line;

/// Nodes of a built-in GPU type, by its full name; one unless the text says how many.
pub(super) fn group(text: &str) -> FleetGroup {
    let written: WrittenGroup = text.parse().unwrap();
    let known = KnownType { gpu_type: GpuType(written.name.clone()), memory: Bytes(80 << 30), stated: None };
    written.of(known, NodeCount(1))
}

fn config(groups: &[&str]) -> FleetConfig {
    FleetConfig {
        server_urls: vec!["http://127.0.0.1:1".into()],
        access: crate::Access::Token { secret: "t".into(), tls_ca: None },
        name: "lab".into(),
        groups: groups.iter().map(|text| group(text)).collect(),
        fabric: "rack".into(),
        labels: BTreeMap::new(),
        failures: 0.0,
    }
}

/// A job of llama-2-7b on all GPUs of these nodes.
fn order(nodes: &[NodeInventory], generation: u64) -> LaunchOrder {
    let mut order = fixture::order(&nodes[0], generation, "train");
    let slice = |node: &NodeInventory| NodeSlice {
        node: node.node,
        gpus: node.gpus.iter().map(|gpu| gpu.uuid.clone()).collect(),
    };
    order.placement = Placement::try_new(nodes.iter().map(slice).collect()).unwrap();
    let address =
        |node: &NodeInventory| NodeAddress { node: node.node, name: node.name.clone(), address: node.address.clone() };
    order.nodes = nodes.iter().map(address).collect();
    order.model = Some((headway_api::spec::read_model("llama-2-7b").unwrap(), Precision::Bf16));
    order.configuration = Some(configuration(&order, 512));
    order.reference_batch = Some(Sequences(512));
    order.checkpoint_every = Seconds(600.0);
    order.grace = Seconds(600.0);
    order
}

fn configuration(order: &LaunchOrder, global: u64) -> Configuration {
    let layout = Layout { dp: order.placement.gpus().0 / 8, tp: 8, pp: 1, ..Layout::single() };
    Configuration { layout, micro_batch: Sequences(1), global_batch: Sequences(global) }
}

struct Fleet(Emulation);

impl Fleet {
    fn new(groups: &[&str]) -> Self {
        let mut fleet = Self(Emulation::new(&config(groups)));
        (0..fleet.0.nodes().len()).for_each(|node| fleet.open(node));
        fleet
    }

    fn open(&mut self, node: usize) {
        let (reply, _answer) = tokio::sync::oneshot::channel();
        self.0.input(Input::Opened { node, term: Term(1), speed: 1.0, reply });
    }

    fn inventories(&self) -> Vec<NodeInventory> {
        self.0.nodes().iter().map(|node| node.inventory().clone()).collect()
    }

    fn command(&mut self, node: usize, command: AgentCommand) {
        self.0.input(Input::Event { node, event: NodeEvent::Command { term: Term(1), serial: None, command } });
    }

    fn stop(&mut self, node: usize, order: &LaunchOrder, mode: StopMode) {
        let (job, generation, grace) = (order.job, order.generation, order.grace);
        self.command(node, AgentCommand::Stop { job, generation, mode, grace });
    }

    async fn pass(&mut self, seconds: f64) {
        tokio::time::advance(Duration::from_secs_f64(seconds)).await;
        self.0.catch_up();
    }

    /// Everything a node has said since the last time.
    async fn heard(&self, node: usize) -> Vec<NodeReport> {
        let outbox = self.0.nodes()[node].outbox();
        let mut reports = Vec::new();
        while let Ok(report) = tokio::time::timeout(Duration::ZERO, outbox.next()).await {
            reports.push(report);
        }
        reports
    }

    /// Lets time pass until the node says what is wanted.
    async fn until<T>(&mut self, node: usize, wanted: impl Fn(&NodeReport) -> Option<T>) -> T {
        for _ in 0..10_000 {
            if let Some(found) = self.heard(node).await.iter().find_map(&wanted) {
                return found;
            }
            self.pass(0.5).await;
        }
        panic!("never said");
    }

    async fn phase(&mut self, node: usize, wanted: impl Fn(&GroupPhase) -> bool) -> GroupPhase {
        self.until(node, |report| match report {
            NodeReport::Group { status: GroupStatus { phase, .. } } if wanted(phase) => Some(phase.clone()),
            _ => None,
        })
        .await
    }

    async fn ended(&mut self, node: usize) -> GroupOutcome {
        let phase = self.phase(node, |phase| matches!(phase, GroupPhase::Ended { .. })).await;
        let GroupPhase::Ended { outcome } = phase else { unreachable!("asked for an end") };
        outcome
    }

    async fn prepare(&mut self, node: usize, order: &LaunchOrder) -> GroupPhase {
        self.command(node, AgentCommand::Prepare { order: Box::new(order.clone()) });
        self.phase(node, |phase| *phase != GroupPhase::Preparing).await
    }

    fn launch(&mut self, node: usize, order: &LaunchOrder) {
        let (job, generation) = (order.job, order.generation);
        self.command(node, AgentCommand::Launch { job, generation, rendezvous_port: 29_500 });
    }

    /// Prepares and launches on every node, up to the first steps.
    async fn train(&mut self, order: &LaunchOrder) -> StepReport {
        let nodes = order.placement.nodes().0 as usize;
        for node in 0..nodes {
            self.prepare(node, order).await;
        }
        (0..nodes).for_each(|node| self.launch(node, order));
        self.until(0, steps).await
    }
}

fn steps(report: &NodeReport) -> Option<StepReport> {
    if let NodeReport::Steps { report } = report { Some(report.as_ref().clone()) } else { None }
}

fn saved(report: &NodeReport) -> Option<CheckpointRef> {
    if let NodeReport::CheckpointWritten { checkpoint, .. } = report { Some(checkpoint.clone()) } else { None }
}

#[tokio::test(start_paused = true)]
async fn a_job_trains_takes_orders_and_is_forgotten() {
    let mut fleet = Fleet::new(&["H100-80Gx8=1"]);
    let order = order(&fleet.inventories(), 1);
    let (job, generation) = (order.job, order.generation);
    assert_eq!(fleet.prepare(0, &order).await, GroupPhase::Prepared { rendezvous_port: Some(29_500) });
    fleet.launch(0, &order);
    fleet.phase(0, |phase| *phase == GroupPhase::Running).await;
    fleet.until(0, |report| matches!(report, NodeReport::Declared { .. }).then_some(())).await;
    fleet
        .until(0, |report| matches!(report, NodeReport::StartPhases { phases, .. } if phases.len() == 4).then_some(()))
        .await;
    let first = fleet.until(0, steps).await;
    assert!(first.noise.is_some() && first.duration.0 > 0.0);

    let wanted = configuration(&order, 1024);
    fleet.command(0, AgentCommand::Configure { job, generation, revision: 1, configuration: wanted, lr_scale: 1.4 });
    fleet.until(0, |report| steps(report).filter(|steps| steps.configuration == wanted)).await;
    fleet
        .until(0, |report| matches!(report, NodeReport::RankTimes { busy, .. } if busy.len() == 8).then_some(()))
        .await;
    fleet.command(0, AgentCommand::Checkpoint { job, generation });
    let checkpoint = fleet.until(0, saved).await;
    assert!(checkpoint.path.ends_with(&format!("g1/step-{:09}", checkpoint.step)), "{}", checkpoint.path);

    fleet.stop(0, &order, StopMode::Checkpoint);
    let last = fleet.until(0, saved).await;
    assert!(last.samples_seen > checkpoint.samples_seen);
    assert_eq!(fleet.ended(0).await, GroupOutcome::Stopped);
    assert_eq!(fleet.0.gangs.len(), 1);
    fleet.command(0, AgentCommand::Forget { job, generation });
    assert!(fleet.0.gangs.is_empty());
    // What was forgotten never comes back to life.
    assert_eq!(fleet.prepare(0, &order).await, GroupPhase::Ended { outcome: GroupOutcome::Stopped });
}

#[tokio::test(start_paused = true)]
async fn a_gang_steps_only_while_all_its_nodes_run() {
    let mut fleet = Fleet::new(&["H100-80Gx8=2"]);
    let order = order(&fleet.inventories(), 1);
    fleet.prepare(0, &order).await;
    assert_eq!(fleet.prepare(1, &order).await, GroupPhase::Prepared { rendezvous_port: None });
    fleet.launch(0, &order);
    fleet.phase(0, |phase| *phase == GroupPhase::Running).await;
    fleet.pass(600.0).await;
    assert!(fleet.heard(0).await.is_empty(), "half a gang does not train");
    fleet.launch(1, &order);
    fleet.until(0, steps).await;

    fleet.stop(1, &order, StopMode::Kill);
    assert_eq!(fleet.ended(1).await, GroupOutcome::Stopped);
    fleet.heard(0).await;
    fleet.pass(3_600.0).await;
    assert!(fleet.heard(0).await.is_empty(), "the rest waits for the dead");
    fleet.stop(0, &order, StopMode::Terminate);
    assert_eq!(fleet.ended(0).await, GroupOutcome::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_resumed_job_goes_on_from_its_checkpoint() {
    let mut fleet = Fleet::new(&["H100-80Gx8=1"]);
    let mut order = order(&fleet.inventories(), 1);
    fleet.train(&order).await;
    fleet.stop(0, &order, StopMode::Checkpoint);
    let checkpoint = fleet.until(0, saved).await;
    fleet.ended(0).await;
    order.generation = order.generation.next();
    order.resume = Some(checkpoint.clone());
    let first = fleet.train(&order).await;
    assert_eq!(first.step, checkpoint.step + 1);
    assert_eq!(first.samples_seen.0, checkpoint.samples_seen.0 + 512);
}

#[tokio::test(start_paused = true)]
async fn a_job_without_a_model_runs_its_time_and_one_that_asks_for_nonsense_is_refused() {
    let mut fleet = Fleet::new(&["A100-80Gx4=1"]);
    let mut order = order(&fleet.inventories(), 1);
    order.configuration = None;
    order.run.env = [("HEADWAY_EMULATED_SECONDS".to_owned(), "soon".to_owned())].into();
    let GroupPhase::Ended { outcome: GroupOutcome::NotStarted { fault } } = fleet.prepare(0, &order).await else {
        panic!("it was prepared")
    };
    assert_eq!(fault.blame, Blame::Job);
    assert!(fault.message.contains("HEADWAY_EMULATED_SECONDS"), "{}", fault.message);

    order.generation = order.generation.next();
    order.run.env = [("HEADWAY_EMULATED_SECONDS".to_owned(), "300".to_owned())].into();
    fleet.prepare(0, &order).await;
    fleet.launch(0, &order);
    fleet.pass(290.0).await;
    assert!(!fleet.heard(0).await.iter().any(|report| matches!(report, NodeReport::Steps { .. })));
    assert_eq!(fleet.ended(0).await, GroupOutcome::Succeeded);
}
