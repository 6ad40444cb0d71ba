//! Output of a gang on two nodes whose clocks differ: lines of each rank stay in their order, and lines of different ranks
//! come in the order of their times by the scheduler's clock.

use std::time::Duration;

use chrono::Utc;
use futures::TryStreamExt as _;
use headway_api::agent::wire::agent_gateway_client::AgentGatewayClient;
use headway_api::agent::{AgentToScheduler, LogChunk, LogMark, SchedulerToAgent, registration, wire};
use headway_api::client::{Client, LogLines};
use headway_api::v1::JobStateKind;
use headway_scheduler::serve_reporting;
use headway_types::command::GroupStatus;
use headway_types::{
    AgentCommand, GroupOutcome, GroupPhase, IdSource, LaunchOrder, NodeId, NodeReport, Term, Timestamp, example,
};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use crate::server::{TOKEN, config};
use crate::support::TestDatabase;

const DEADLINE: Duration = Duration::from_secs(60);
const JOB: &str = "{version: 1, name: gang, resources: {gpus: 2}, run: {per: gpu, command: [train]}}";

/// A node of one GPU that pretends to run what it is told.
#[derive(Clone)]
struct FakeNode {
    number: u64,
    /// How far its clock is ahead of the scheduler's, in milliseconds.
    ahead_ms: i64,
    /// Lines of its rank, each with the moment when it was written, in milliseconds by the scheduler's clock.
    lines: Vec<(&'static str, i64)>,
}

impl FakeNode {
    fn id(&self) -> NodeId {
        IdSource::seeded(self.number).node(Timestamp(0))
    }

    /// Answers the scheduler until the session ends.
    async fn run(self, url: String) {
        let (reports, outgoing) = mpsc::channel::<wire::AgentMessage>(16);
        let inventory = Box::new(example::inventory(self.id(), self.number, 1));
        let first = NodeReport::Registered { inventory, groups: vec![] };
        reports.send(registration(&first, Term(0))).await.unwrap();
        let mut request = tonic::Request::new(ReceiverStream::new(outgoing));
        request.metadata_mut().insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
        let mut gateway = AgentGatewayClient::connect(url).await.unwrap();
        let mut incoming = gateway.session(request).await.unwrap().into_inner();
        let mut order = None;
        while let Ok(Some(message)) = incoming.message().await {
            let answer = match message.try_into().unwrap() {
                SchedulerToAgent::Command { command, .. } => self.obey(command, &mut order),
                SchedulerToAgent::Log(request) => {
                    Some(AgentToScheduler::Log(self.read(request.request_id, request.offset)))
                }
                _ => None,
            };
            if let Some(answer) = answer {
                reports.send((&answer).into()).await.unwrap();
            }
        }
    }

    fn obey(&self, command: AgentCommand, order: &mut Option<LaunchOrder>) -> Option<AgentToScheduler> {
        let phase = match command {
            AgentCommand::Prepare { order: wanted } => {
                let is_first = wanted.placement.first_node() == self.id();
                *order = Some(*wanted);
                GroupPhase::Prepared { rendezvous_port: is_first.then_some(29_500) }
            }
            AgentCommand::Launch { .. } => GroupPhase::Running,
            AgentCommand::Stop { .. } => GroupPhase::Ended { outcome: GroupOutcome::Stopped },
            _ => return None,
        };
        let order = order.as_ref()?;
        let slice = order.placement.slices().iter().find(|slice| slice.node == self.id())?;
        let (job, generation, gpus) = (order.job, order.generation, slice.gpus.clone());
        let status = GroupStatus { job, generation, gpus, phase, revision: 0, notice: 0 };
        Some(AgentToScheduler::Report(NodeReport::Group { status }))
    }

    fn read(&self, request_id: u64, offset: u64) -> LogChunk {
        let (mut text, mut marks) = (String::new(), Vec::new());
        for (line, at_ms) in &self.lines {
            text += line;
            marks.push(LogMark { offset: text.len() as u64, at_ms: at_ms + self.ahead_ms });
        }
        let clock_ms = Some(Utc::now().timestamp_millis() + self.ahead_ms);
        let (bytes, next_offset) = (text.as_bytes()[offset as usize..].to_vec(), text.len() as u64);
        LogChunk { request_id, bytes, next_offset, eof: false, error: None, marks, clock_ms }
    }
}

/// Returns the lines of a gang on these nodes as the scheduler merges them, without their ranks.
async fn merge_lines(nodes: [FakeNode; 2]) -> Vec<String> {
    let database = TestDatabase::create().await;
    let (shutdown, (bound, addresses)) = (CancellationToken::new(), oneshot::channel());
    let server = tokio::spawn(serve_reporting(config(&database), shutdown.clone(), bound));
    let addresses = addresses.await.unwrap();
    let agents = nodes.map(|node| tokio::spawn(node.run(format!("http://{}", addresses.agents))));
    let client = Client::new(&format!("http://{}", addresses.http), TOKEN).unwrap();
    let submitted = async {
        loop {
            // The server may still be taking the lead.
            if let Ok(submitted) = client.submit_yaml_for(JOB, Some("gang"), true).await {
                return submitted.jobs[0].id.to_string();
            }
            tokio::task::yield_now().await;
        }
    };
    let id = tokio::time::timeout(DEADLINE, submitted).await.unwrap();
    let runs = async {
        while client.job(&id).await.unwrap().job.state != JobStateKind::Running {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, runs).await.unwrap();
    let wanted =
        LogLines { rank: "all".into(), generation: None, since: None, tail: None, timestamps: false, follow: false };
    let pieces: Vec<_> = client.log_lines(&id, &wanted).await.unwrap().try_collect().await.unwrap();
    let text = String::from_utf8(pieces.concat()).unwrap();
    shutdown.cancel();
    server.await.unwrap().unwrap();
    for agent in agents {
        agent.abort();
    }
    text.lines().map(|line| line.split_once("] ").unwrap().1.to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_of_nodes_whose_clocks_differ_come_in_the_order_of_their_times() {
    let begin = Utc::now().timestamp_millis() - 120_000;
    let right = FakeNode {
        number: 1,
        ahead_ms: 0,
        lines: vec![("a1\n", begin), ("a2\n", begin + 20_000), ("a3\n", begin + 40_000)],
    };
    for ahead_ms in [90_000, -90_000] {
        let lines = vec![("b1\n", begin + 10_000), ("b2\n", begin + 30_000)];
        let wrong = FakeNode { number: 2, ahead_ms, lines };
        assert_eq!(merge_lines([right.clone(), wrong]).await, ["a1", "b1", "a2", "b2", "a3"], "{ahead_ms}");
    }
    // Its clock was set back between its lines.
    let lines = vec![("b1\n", begin + 30_000), ("b2\n", begin + 10_000), ("b3\n", begin + 35_000)];
    let set_back = FakeNode { number: 2, ahead_ms: 0, lines };
    assert_eq!(merge_lines([right, set_back]).await, ["a1", "a2", "b1", "b2", "b3", "a3"]);
}
