//! Sessions against a scheduler of a few lines: registration, heartbeats, commands, and dialling again.
#![allow(clippy::unwrap_used)]

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use headway_api::agent::wire::agent_gateway_server::{AgentGateway, AgentGatewayServer};
use headway_api::agent::{REQUESTS_OF_STRANGERS, Secrets};
use headway_types::{AgentCommand, Generation, JobId, Seconds, StopMode, Term};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Response, Status};

use super::*;
use crate::node::tests::fixture;
use crate::user::{LEAST_UID, RunAs, Users};

pub(crate) type Session = (String, Streaming<wire::AgentMessage>, mpsc::Sender<Result<wire::SchedulerMessage, Status>>);

/// Hands each stream to the test.
struct Gateway(mpsc::Sender<Session>);

#[tonic::async_trait]
impl AgentGateway for Gateway {
    type SessionStream = Pin<Box<dyn tokio_stream::Stream<Item = Result<wire::SchedulerMessage, Status>> + Send>>;

    async fn session(
        &self,
        request: Request<Streaming<wire::AgentMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let token = request.metadata().get("authorization").unwrap().to_str().unwrap().to_owned();
        let (sender, receiver) = mpsc::channel(16);
        self.0.send((token, request.into_inner(), sender)).await.unwrap();
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

/// An agent that ends as soon as the token says so.
fn stop_by(token: &CancellationToken) -> crate::Ending {
    crate::Ending { stop: token.clone(), ..crate::Ending::default() }
}

/// A scheduler on a free port; each stream it is offered comes out.
pub(crate) async fn listen() -> (SocketAddr, mpsc::Receiver<Session>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, sessions) = mpsc::channel(4);
    tokio::spawn(
        tonic::transport::Server::builder()
            .max_concurrent_streams(REQUESTS_OF_STRANGERS)
            .add_service(AgentGatewayServer::new(Gateway(sender)))
            .serve_with_incoming(TcpListenerStream::new(listener)),
    );
    (address, sessions)
}

/// A server that stands by, which counts who came.
struct Standby(Arc<AtomicUsize>);

#[tonic::async_trait]
impl AgentGateway for Standby {
    type SessionStream = Pin<Box<dyn tokio_stream::Stream<Item = Result<wire::SchedulerMessage, Status>> + Send>>;

    async fn session(
        &self,
        _request: Request<Streaming<wire::AgentMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(Status::failed_precondition("not leading; the leader is elsewhere"))
    }
}

async fn stand_by() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    tokio::spawn(
        tonic::transport::Server::builder()
            .add_service(AgentGatewayServer::new(Standby(Arc::clone(&asked))))
            .serve_with_incoming(TcpListenerStream::new(listener)),
    );
    (address, asked)
}

async fn accept(sessions: &mut mpsc::Receiver<Session>) -> Session {
    accept_with_root(sessions, None).await
}

async fn accept_with_root(sessions: &mut mpsc::Receiver<Session>, checkpoint_root: Option<&Path>) -> Session {
    let (token, mut inbound, sender) =
        tokio::time::timeout(Duration::from_secs(20), sessions.recv()).await.expect("an agent dials").unwrap();
    let first = inbound.message().await.unwrap().unwrap();
    let first = AgentToScheduler::try_from(first).unwrap();
    assert!(matches!(first, AgentToScheduler::Report(NodeReport::Registered { .. })));
    sender.send(Ok((&welcome(checkpoint_root)).into())).await.unwrap();
    (token, inbound, sender)
}

fn welcome(checkpoint_root: Option<&Path>) -> SchedulerToAgent {
    SchedulerToAgent::Welcome {
        term: Term(3),
        lease: Seconds(10.0),
        heartbeat: Seconds(0.05),
        speed: 1.0,
        checkpoint_root: checkpoint_root.map(|root| root.display().to_string()),
    }
}

async fn next(inbound: &mut Streaming<wire::AgentMessage>, wanted: impl Fn(&NodeReport) -> bool) {
    let search = async {
        loop {
            let message = AgentToScheduler::try_from(inbound.message().await.unwrap().unwrap()).unwrap();
            if matches!(&message, AgentToScheduler::Report(report) if wanted(report)) {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), search).await.expect("the report within the deadline");
}

#[tokio::test]
async fn an_agent_registers_beats_obeys_and_dials_again() {
    let (address, mut sessions) = listen().await;
    let dir = tempfile::tempdir().unwrap();
    let mut config = fixture::config(dir.path(), 1);
    config.server_urls = vec![format!("http://{address}")];
    let shutdown = tokio_util::sync::CancellationToken::new();
    let agent = tokio::spawn(crate::run(config, stop_by(&shutdown)));

    let (token, mut inbound, outbound) = accept(&mut sessions).await;
    assert_eq!(token, "Bearer t");
    next(&mut inbound, |report| *report == NodeReport::Heartbeat).await;
    let (job, generation) = (JobId(uuid::Uuid::from_u128(9)), Generation(2));
    let command = AgentCommand::Stop { job, generation, mode: StopMode::Kill, grace: Seconds(1.0) };
    outbound
        .send(Ok((&SchedulerToAgent::Command { term: Term(3), serial: None, command, secrets: Secrets::new() }).into()))
        .await
        .unwrap();
    next(&mut inbound, |report| matches!(report, NodeReport::Group { status } if status.job == job)).await;
    drop((inbound, outbound));

    let (_, mut inbound, _outbound) = accept(&mut sessions).await;
    next(&mut inbound, |report| *report == NodeReport::Heartbeat).await;
    shutdown.cancel();
    agent.await.unwrap().unwrap();
}

/// Else people learn of it from the first job, which fails.
#[tokio::test]
async fn an_agent_that_runs_jobs_as_their_owners_checks_the_clusters_checkpoint_root_at_its_start() {
    if let Err(error) = Users::new(RunAs::Owner, false, LEAST_UID) {
        eprintln!("no jobs run as their owners here: {error}");
        return;
    }
    let (address, mut sessions) = listen().await;
    let dir = tempfile::tempdir().unwrap();
    let roots = ["open", "closed"].map(|name| dir.path().join(name));
    for (root, mode) in roots.iter().zip([0o1777, 0o755]) {
        std::fs::create_dir(root).unwrap();
        std::fs::set_permissions(root, Permissions::from_mode(mode)).unwrap();
    }
    let data = dir.path().join("agent");
    let mut config = fixture::config(&data, 1);
    config.run_as = RunAs::Owner;
    config.server_urls = vec![format!("http://{address}")];
    let shutdown = tokio_util::sync::CancellationToken::new();
    let agent = tokio::spawn(crate::run(config, stop_by(&shutdown)));
    // A server of a former release names none.
    for root in [None, Some(&*roots[0]), Some(&*roots[1])] {
        let (_, mut inbound, outbound) = accept_with_root(&mut sessions, root).await;
        next(&mut inbound, |report| *report == NodeReport::Heartbeat).await;
        drop((inbound, outbound));
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    let remembered = loop {
        if let Ok(remembered) = std::fs::read_to_string(data.join("closed_roots.json")) {
            break remembered;
        }
        assert!(Instant::now() < deadline, "the closed root is not reported");
        tokio::task::yield_now().await;
    };
    assert_eq!(remembered, serde_json::to_string(&[&roots[1]]).unwrap());
    shutdown.cancel();
    agent.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_agent_that_is_told_to_end_closes_its_session_in_order() {
    let (address, mut sessions) = listen().await;
    let dir = tempfile::tempdir().unwrap();
    let mut config = fixture::config(dir.path(), 1);
    config.server_urls = vec![format!("http://{address}")];
    let shutdown = tokio_util::sync::CancellationToken::new();
    let agent = tokio::spawn(crate::run(config, stop_by(&shutdown)));
    let (_, mut inbound, outbound) = accept(&mut sessions).await;
    next(&mut inbound, |report| *report == NodeReport::Heartbeat).await;
    shutdown.cancel();
    let end = async { while let Some(_late) = inbound.message().await.expect("no broken stream") {} };
    tokio::time::timeout(Duration::from_secs(20), end).await.expect("the agent ends its stream");
    drop(outbound);
    agent.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_agent_without_a_session_ends_as_soon_as_it_is_told() {
    // Takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut config = fixture::config(dir.path(), 1);
    config.server_urls = vec![format!("http://{}", silent.local_addr().unwrap())];
    let shutdown = tokio_util::sync::CancellationToken::new();
    let agent = tokio::spawn(crate::run(config, stop_by(&shutdown)));
    let _dialled = tokio::time::timeout(Duration::from_secs(20), silent.accept()).await.unwrap().unwrap();
    let told = std::time::Instant::now();
    shutdown.cancel();
    agent.await.unwrap().unwrap();
    assert!(told.elapsed() < PATIENCE, "it waits for no server: {:?}", told.elapsed());
}

// With threads of their own, the servers answer in time also while the agent looks at its disk.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_several_servers_finds_the_one_that_leads_and_leaves_one_that_is_silent() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let ((standby, asked), (leader, mut sessions)) = (stand_by().await, listen().await);
    // Takes connections and says nothing, as a process that is stopped.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let servers = [gone, silent.local_addr().unwrap(), standby, leader];
    let dir = tempfile::tempdir().unwrap();
    let mut config = fixture::config(dir.path(), 1);
    config.server_urls = servers.iter().map(|address| format!("http://{address}")).collect();
    let shutdown = tokio_util::sync::CancellationToken::new();
    let agent = tokio::spawn(crate::run(config, stop_by(&shutdown)));

    let (_, mut inbound, outbound) = accept(&mut sessions).await;
    next(&mut inbound, |report| *report == NodeReport::Heartbeat).await;
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    drop((inbound, outbound));
    let again = std::time::Instant::now();
    let (_, mut inbound, _outbound) = accept(&mut sessions).await;
    next(&mut inbound, |report| *report == NodeReport::Heartbeat).await;
    // Once around, and the silent one is passed over.
    assert!(asked.load(Ordering::Relaxed) >= 2);
    assert!(again.elapsed() < SHORT_PATIENCE, "{:?}", again.elapsed());
    shutdown.cancel();
    agent.await.unwrap().unwrap();
}

/// Nobody reads the stream meanwhile: what its windows take is gone, and the lane of logs is full.
#[tokio::test]
async fn however_many_read_logs_a_sign_of_life_goes_out_beside_them() {
    let (lanes, messages) = Lanes::new();
    let piece = AgentToScheduler::Exec(headway_api::agent::ExecPiece::default());
    while lanes.pieces.try_send((&piece).into()).is_ok() {}
    while lanes.reports.try_send((&NodeReport::Heartbeat).into()).is_ok() {}
    lanes.beats.try_send((&NodeReport::Heartbeat).into()).expect("a beat has a lane of its own");
    drop(lanes);
    let sent: Vec<_> = messages.map(|message| AgentToScheduler::try_from(message).unwrap()).collect().await;
    assert_eq!(sent.len(), PIECES_IN_FLIGHT + IN_FLIGHT + 1);
    let is_piece = |message: &&AgentToScheduler| matches!(message, AgentToScheduler::Exec(_));
    assert!(sent[..8].iter().filter(is_piece).count() <= 4, "reports go out beside pieces");
}

#[test]
fn the_token_crosses_no_network_in_the_clear() {
    for near in ["http://127.0.0.1:7601", "http://127.8.0.1:1", "http://[::1]:7601", "http://localhost:7601"] {
        assert!(Dialer::to(near, "secret", None).is_ok(), "{near}");
    }
    let far =
        ["http://10.0.0.1:7601", "http://headway.example:7601", "http://localhost.example:1", "http://[fd00::1]:1"];
    for far in far.into_iter().chain(["HTTP://10.0.0.1:1", "http://127.0.0.1@10.0.0.1:1", "10.0.0.1:7601"]) {
        let refused = Dialer::to(far, "secret", None).err().expect(far).to_string();
        assert!(refused.contains(far), "{refused}");
        assert!(refused.contains("https://") && refused.contains("--tls-ca"), "{refused}");
    }
    let unchecked = Dialer::to("https://headway.example:7601", "secret", None).err().unwrap().to_string();
    assert!(unchecked.contains("certificate authority"), "{unchecked}");
}
