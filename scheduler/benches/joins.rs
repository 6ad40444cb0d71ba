//! What people notice while many nodes join at once: 10,000 nodes open their sessions in one moment, wait and dial
//! again as agents do, and a client submits a job and reads `/overview` ten times a second. `cargo bench -p
//! headway-scheduler --bench joins -- 10000` prints the table that docs/measurements/joins.md keeps.

mod server;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use headway_api::agent::{AgentToScheduler, wire};
use headway_scheduler::PrivatePostgres;
use headway_types::quantile::quantile;
use headway_types::random::SplitMix64;
use headway_types::{IdSource, NodeId, NodeReport, Timestamp, example};
use http_body_util::BodyExt;
use hyper::StatusCode;
use server::client::{asking, dial_http1, fresh_database, post};
use server::{SECRET, Server, cpu_seconds, load_average};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use wire::agent_gateway_client::AgentGatewayClient;

const NODES: u64 = 10_000;
/// Nodes that share a connection, so that one process can hold both ends of all; the server takes 64 sessions on one.
const NODES_PER_CONNECTION: u64 = 50;
/// How long an agent waits for its welcome, and how it dials again (agent/src/session.rs).
const PATIENCE: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
const HEARTBEAT: Duration = Duration::from_secs(6);
const ASK_EVERY: Duration = Duration::from_millis(100);
const GIVE_UP: Duration = Duration::from_secs(60);

fn main() {
    server::bench(&mut tokio::runtime::Builder::new_multi_thread(), measure);
}

#[derive(Default)]
struct Counts {
    attempts: AtomicU64,
}

async fn measure(postgres: &PrivatePostgres) {
    let nodes = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(NODES);
    println!("load average at start {}\n", load_average());
    let url = fresh_database(postgres, "joins").await;
    let (server, _) = Server::start(&url);
    let counts = Arc::new(Counts::default());
    let began = Instant::now();
    let mut ids = IdSource::seeded(9);
    for first in (0..nodes).step_by(NODES_PER_CONNECTION as usize) {
        let agents = format!("http://{}", server.agents);
        let channel = Channel::from_shared(agents).expect("a URL").connect().await.expect("the server listens");
        for index in first..(first + NODES_PER_CONNECTION).min(nodes) {
            tokio::spawn(live(channel.clone(), ids.node(Timestamp(0)), index, Arc::clone(&counts)));
        }
    }
    let measured = ask_until_all_have_joined(&server, nodes, began).await;
    let refused = measured.refused.iter().map(|(status, times)| format!("{times} × {status}")).collect::<Vec<_>>();
    let refused = if refused.is_empty() { "0".to_owned() } else { refused.join(" and ") };
    println!(
        "| nodes | registered | sessions asked for | submits: answered, refused | p50 | p99 | slowest | /overview: slowest | server CPU | load |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    println!(
        "| {nodes} | {} in {:.1} s | {} | {}, {} | {} | {} | {} | {} | {:.1} s | {} |",
        measured.registered,
        measured.took.as_secs_f64(),
        counts.attempts.load(Ordering::Relaxed),
        measured.submits.len(),
        refused,
        milliseconds(&measured.submits, 0.5),
        milliseconds(&measured.submits, 0.99),
        milliseconds(&measured.submits, 1.0),
        milliseconds(&measured.overviews, 1.0),
        cpu_seconds(server.pid()),
        load_average()
    );
}

#[derive(Default)]
struct Measurement {
    /// Sorted.
    submits: Vec<Duration>,
    /// By status.
    refused: BTreeMap<u16, u32>,
    /// Sorted.
    overviews: Vec<Duration>,
    /// Nodes of the newest overview.
    registered: u64,
    took: Duration,
}

/// One client that submits, and one that reads the overview until it shows all nodes.
async fn ask_until_all_have_joined(server: &Server, nodes: u64, began: Instant) -> Measurement {
    let mut measured = Measurement::default();
    let (mut submitter, mut reader) = (dial_http1(server).await, dial_http1(server).await);
    for number in 0.. {
        let job =
            format!(r#"{{"version":1,"name":"job-{number}","resources":{{"gpus":1}},"run":{{"command":["true"]}}}}"#);
        let request = post(server.address, job, &format!("join-{number}"));
        let submit = async {
            let began = Instant::now();
            let answer = submitter.send_request(request).await.expect("an answer");
            let status = answer.status();
            answer.into_body().collect().await.expect("a whole answer");
            (status, began.elapsed())
        };
        let read = async {
            let began = Instant::now();
            let answer = reader.send_request(asking(server, "/api/v1/overview")).await.expect("an answer");
            let status = answer.status();
            let body = answer.into_body().collect().await.expect("a whole answer").to_bytes();
            let overview: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
            (status, overview["nodes_total"].as_u64(), began.elapsed())
        };
        let ((status, submit), (_, registered, read)) = tokio::join!(submit, read);
        match status {
            StatusCode::CREATED => measured.submits.push(submit),
            status => *measured.refused.entry(status.as_u16()).or_default() += 1,
        }
        measured.overviews.push(read);
        measured.registered = registered.unwrap_or(measured.registered);
        measured.took = began.elapsed();
        if measured.registered >= nodes || measured.took > GIVE_UP {
            break;
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
    measured.submits.sort();
    measured.overviews.sort();
    measured
}

/// A node that dials until it is welcome, and reports with every beat from then on.
async fn live(channel: Channel, node: NodeId, index: u64, counts: Arc<Counts>) {
    let mut random = SplitMix64(index);
    let mut pause = FIRST_PAUSE;
    loop {
        counts.attempts.fetch_add(1, Ordering::Relaxed);
        if let Ok(Some(session)) = tokio::time::timeout(PATIENCE, open(channel.clone(), node, index)).await {
            pause = FIRST_PAUSE;
            keep(session).await;
        }
        tokio::time::sleep(pause.mul_f64(0.5 + random.uniform() / 2.0)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

struct Session {
    reports: mpsc::Sender<wire::AgentMessage>,
    incoming: tonic::Streaming<wire::SchedulerMessage>,
}

/// Registers, and waits for the welcome.
async fn open(channel: Channel, node: NodeId, index: u64) -> Option<Session> {
    let (reports, outgoing) = mpsc::channel(256);
    let inventory = Box::new(example::inventory(node, index, 8));
    let registered = NodeReport::Registered { inventory, groups: Vec::new() };
    reports.send((&AgentToScheduler::Report(registered)).into()).await.ok()?;
    let mut request = tonic::Request::new(ReceiverStream::new(outgoing));
    request.metadata_mut().insert("authorization", format!("Bearer {SECRET}").parse().expect("it is text"));
    let mut incoming = AgentGatewayClient::new(channel).session(request).await.ok()?.into_inner();
    incoming.message().await.ok()??;
    Some(Session { reports, incoming })
}

/// Until the session ends.
async fn keep(mut session: Session) {
    let mut beats = tokio::time::interval(HEARTBEAT);
    loop {
        tokio::select! {
            message = session.incoming.message() => {
                let Ok(Some(_)) = message else { return };
            }
            _ = beats.tick() => {
                let beat = (&AgentToScheduler::Report(NodeReport::Heartbeat)).into();
                if session.reports.send(beat).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn milliseconds(sorted: &[Duration], share: f64) -> String {
    let seconds: Vec<f64> = sorted.iter().map(Duration::as_secs_f64).collect();
    quantile(&seconds, share).map_or_else(|| "none".into(), |one| format!("{:.0} ms", one * 1e3))
}
