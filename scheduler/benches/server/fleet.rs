//! Nodes that obey: they start what they are told at once, take every change, report steps with every beat and never fail.

use std::collections::BTreeMap;
use std::time::Duration;

use headway_api::agent::{AgentToScheduler, SchedulerToAgent, wire};
use headway_types::command::GroupStatus;
use headway_types::random::SplitMix64;
use headway_types::{
    AgentCommand, Configuration, Generation, GroupOutcome, GroupPhase, IdSource, JobId, NodeId, NodeReport,
    NoiseSample, Seconds, Sequences, StepReport, Timestamp, Tokens, example,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use wire::agent_gateway_client::AgentGatewayClient;

use super::{SECRET, Server};

/// GPUs of a node.
pub const GPUS: u32 = 8;
/// Of a job's step time from one report to the next.
const NOISE: f64 = 0.02;

/// Registers so many nodes that report with every beat; they live as long as the runtime. `behind`: steps that a job has done before it starts.
pub async fn start(server: &Server, nodes: u64, beat: Duration, behind: u64) {
    let url = format!("http://{}", server.agents);
    let channel = Channel::from_shared(url).expect("a URL").connect().await.expect("the server listens for agents");
    let mut ids = IdSource::seeded(9);
    for index in 0..nodes {
        tokio::spawn(live(channel.clone(), ids.node(Timestamp(0)), index, beat, behind));
    }
}

struct Group {
    status: GroupStatus,
    configuration: Option<Configuration>,
    /// Whether this node has its first rank, which tells of steps.
    first: bool,
    step: u64,
    samples: u64,
}

/// Until the server is gone.
async fn live(channel: Channel, node: NodeId, index: u64, beat: Duration, behind: u64) -> Option<()> {
    let (reports, outgoing) = mpsc::channel(256);
    let say = async |report: NodeReport| reports.send((&AgentToScheduler::Report(report)).into()).await.ok();
    let inventory = Box::new(example::inventory(node, index, GPUS));
    say(NodeReport::Registered { inventory, groups: Vec::new() }).await?;
    let mut request = tonic::Request::new(ReceiverStream::new(outgoing));
    request.metadata_mut().insert("authorization", format!("Bearer {SECRET}").parse().expect("it is text"));
    let mut incoming = AgentGatewayClient::new(channel).session(request).await.ok()?.into_inner();
    let mut groups: BTreeMap<(JobId, Generation), Group> = BTreeMap::new();
    let mut random = SplitMix64(index);
    // They do not all report in one moment.
    let first = tokio::time::Instant::now() + beat.mul_f64(random.uniform());
    let mut beats = tokio::time::interval_at(first, beat);
    loop {
        tokio::select! {
            message = incoming.message() => {
                let SchedulerToAgent::Command { command, .. } = message.ok()??.try_into().ok()? else { continue };
                for report in obey(&mut groups, node, command, behind) {
                    say(report).await?;
                }
            }
            _ = beats.tick() => {
                say(NodeReport::Heartbeat).await?;
                let steps: Vec<NodeReport> = groups.values_mut().filter_map(|group| train(group, beat, &mut random)).collect();
                for report in steps {
                    say(report).await?;
                }
            }
        }
    }
}

fn obey(
    groups: &mut BTreeMap<(JobId, Generation), Group>,
    node: NodeId,
    command: AgentCommand,
    behind: u64,
) -> Vec<NodeReport> {
    let key = command.subject();
    if let AgentCommand::Prepare { order } = &command {
        let first = order.placement.first_node() == node;
        let gpus =
            order.placement.slices().iter().filter(|slice| slice.node == node).flat_map(|slice| slice.gpus.clone());
        let phase = GroupPhase::Prepared { rendezvous_port: first.then_some(29_500) };
        let status = GroupStatus { job: key.0, generation: key.1, gpus: gpus.collect(), phase, revision: 0, notice: 0 };
        let done = order.configuration.map_or(0, |configuration| behind * configuration.global_batch.0);
        let samples = order.resume.as_ref().map_or(done, |checkpoint| checkpoint.samples_seen.0);
        let group = Group { status, configuration: order.configuration, first, step: behind, samples };
        groups.entry(key).or_insert(group);
    }
    let Some(group) = groups.get_mut(&key) else { return Vec::new() };
    match command {
        AgentCommand::Prepare { .. } | AgentCommand::Checkpoint { .. } | AgentCommand::Prune { .. } => {}
        AgentCommand::Launch { .. } => group.status.phase = GroupPhase::Running,
        AgentCommand::Notify { number, .. } => group.status.notice = number,
        AgentCommand::Stop { .. } => group.status.phase = GroupPhase::Ended { outcome: GroupOutcome::Stopped },
        AgentCommand::Configure { revision, configuration, .. } => {
            (group.status.revision, group.configuration) = (revision, Some(configuration));
        }
        AgentCommand::Forget { .. } => {
            groups.remove(&key);
            return Vec::new();
        }
    }
    let told = NodeReport::Group { status: group.status.clone() };
    let declared = || NodeReport::Declared { job: key.0, generation: key.1, capabilities: example::FLEXIBLE };
    let up = group.first && group.status.phase == GroupPhase::Running;
    std::iter::once(told).chain(up.then(declared)).collect()
}

/// Another step of training, as long as it takes from one beat to the next.
fn train(group: &mut Group, step: Duration, random: &mut SplitMix64) -> Option<NodeReport> {
    let configuration = group.configuration.filter(|_| group.first && group.status.phase == GroupPhase::Running)?;
    let batch = configuration.global_batch;
    (group.step, group.samples) = (group.step + 1, group.samples + batch.0);
    let (small_batch, big_batch) = (configuration.micro_batch.0 as f64, batch.0 as f64);
    let noise = (big_batch > small_batch).then(|| NoiseSample {
        small_sqr: 1.0 + 100.0 / small_batch,
        big_sqr: 1.0 + 100.0 / big_batch,
        small_batch,
        big_batch,
    });
    let report = StepReport {
        job: group.status.job,
        generation: group.status.generation,
        step: group.step,
        steps: 1,
        samples_seen: Sequences(group.samples),
        tokens: Tokens(8192.0 * batch.0 as f64),
        duration: Seconds(step.as_secs_f64() * (1.0 + NOISE * (2.0 * random.uniform() - 1.0))),
        configuration,
        loss: Some(2.0),
        noise,
        preconditioned: None,
        memory_peak: None,
    };
    Some(NodeReport::Steps { report: Box::new(report) })
}
