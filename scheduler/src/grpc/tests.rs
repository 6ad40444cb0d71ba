#![allow(clippy::unwrap_used)]

use std::time::Duration;

use headway_api::agent::{AgentToScheduler, LogChunk, SchedulerToAgent, Secrets, registration, wire};
use headway_api::secret::Secret;
use headway_engine::{Actor, EngineConfig, Known, Reply, Request};
use headway_goodput::catalog::Catalog;
use headway_goodput::physics::Parameters;
use headway_types::command::GroupStatus;
use headway_types::{
    AgentCommand, Generation, GpuType, GroupPhase, IdSource, JobId, NodeId, NodeInventory, NodeReport, Seconds, Term,
    Timestamp, TokenScope, example,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};
use wire::agent_gateway_client::AgentGatewayClient;

use super::{Admission, Gateway, Sessions};
use crate::clock::Clock;
use crate::cluster::{Cluster, LogError, LogQuery};
use crate::config::Retention;
use crate::driver::Driver;
use crate::leader::Leader;
use crate::secrets::Keyring;
use crate::store::{AuditEntry, AuditFilter, AuditResult, SecretId, SecretOwner, TokenHash};
use crate::support::{START, TestDatabase, spec};

const DEADLINE: Duration = Duration::from_secs(20);
const ROOT: &str = "/shared/checkpoints";

/// A loop with a gateway on a free port.
struct Served {
    cluster: Cluster,
    channel: Channel,
    shutdown: CancellationToken,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

async fn serve() -> Served {
    serve_with(EngineConfig::default().lease).await
}

/// `lease`: as agents are told.
async fn serve_with(lease: Seconds) -> Served {
    let database = TestDatabase::create().await;
    let store = database.store().await.with_keyring(Keyring::of(&[[7; 32]]).unwrap());
    for (scope, secret) in [(TokenScope::Agent, "agent"), (TokenScope::Viewer, "viewer")] {
        store.ensure_token(secret, scope, secret, START).await.unwrap();
    }
    let (sessions, clock, config) = (Sessions::default(), Clock::default(), EngineConfig::default());
    let leader = Leader::new(database.options.clone());
    let started =
        Driver::start(store.clone(), leader, sessions.clone(), clock.clone(), config, Retention::default(), "abc1234")
            .await
            .unwrap();
    let shutdown = CancellationToken::new();
    let mut ready = started.cluster.readiness();
    tokio::spawn(started.driver.run(started.leading, shutdown.clone()));
    ready.wait_for(|ready| *ready).await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let admitting = (started.cluster.standing(), Admission::by_token());
    let told = EngineConfig { lease, checkpoint_root: ROOT.to_owned(), ..EngineConfig::default() };
    let gateway =
        Gateway::new((started.inbox, started.registrations), sessions, store, clock, &told, site(), admitting);
    tokio::spawn(
        tonic::transport::Server::builder()
            .add_service(gateway.into_service())
            .serve_with_incoming_shutdown(TcpListenerStream::new(listener), shutdown.clone().cancelled_owned()),
    );
    let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
    Served { cluster: started.cluster, channel, shutdown }
}

/// An agent's end of a session.
struct Session {
    reports: mpsc::Sender<wire::AgentMessage>,
    incoming: Streaming<wire::SchedulerMessage>,
}

impl Session {
    async fn open(served: &Served, secret: &str, first: NodeReport) -> Result<Self, Status> {
        Self::open_following(served, secret, first, Term(0)).await
    }

    /// As a node does that has followed this term.
    async fn open_following(served: &Served, secret: &str, first: NodeReport, term: Term) -> Result<Self, Status> {
        let (reports, outgoing) = mpsc::channel(16);
        reports.send(registration(&first, term)).await.unwrap();
        let mut request = tonic::Request::new(ReceiverStream::new(outgoing));
        request.metadata_mut().insert("authorization", format!("Bearer {secret}").parse().unwrap());
        let incoming = AgentGatewayClient::new(served.channel.clone()).session(request).await?.into_inner();
        Ok(Self { reports, incoming })
    }

    async fn say(&self, message: AgentToScheduler) {
        self.reports.send((&message).into()).await.unwrap();
    }

    /// The next message, or `None` when the scheduler has ended the stream.
    async fn hear(&mut self) -> Option<SchedulerToAgent> {
        let message = tokio::time::timeout(DEADLINE, self.incoming.message()).await.unwrap().unwrap()?;
        Some(message.try_into().unwrap())
    }
}

/// A catalog that knows one GPU type of the site's own.
fn site() -> Catalog {
    let text =
        "[Own-24G]\nfamily='other'\npeak=10\nmatmul=8\nmemory=24\nbandwidth=1\nlink=9\nnetwork=1\nmultiprocessors=8";
    let mut site = Catalog::default();
    site.extend(text, Parameters::built_in()).unwrap();
    site
}

fn node() -> NodeId {
    IdSource::seeded(9).node(Timestamp(0))
}

fn registered() -> NodeReport {
    let inventory = example::inventory(node(), 1, 1);
    NodeReport::Registered { inventory: Box::new(inventory), groups: vec![] }
}

#[tokio::test]
async fn only_agents_and_administrators_open_sessions() {
    let served = serve().await;
    let refusal = async |secret| Session::open(&served, secret, registered()).await.err().unwrap().code();
    assert_eq!(refusal("wrong").await, Code::Unauthenticated);
    assert_eq!(refusal("viewer").await, Code::PermissionDenied);
    assert!(Session::open(&served, "agent", registered()).await.is_ok());
    let refused = refused_in_audit(&served, 1).await;
    assert_eq!((&*refused[0].actor, refused[0].code.as_deref()), ("user:viewer", Some("forbidden")));
}

/// The newest lines of the audit that tell of refusals, once there are as many.
async fn refused_in_audit(served: &Served, lines: usize) -> Vec<AuditEntry> {
    let filter = AuditFilter { result: Some(AuditResult::Refused), limit: 10, ..AuditFilter::default() };
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        let found = served.cluster.store().audit(&filter).await.unwrap().items;
        if found.len() >= lines {
            return found.into_iter().map(|line| line.entry).collect();
        }
        assert!(tokio::time::Instant::now() < deadline, "{found:?}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_agent_that_is_refused_again_and_again_is_one_line_of_the_audit() {
    let served = serve().await;
    let mut first = Session::open(&served, "agent", registered()).await.unwrap();
    assert!(matches!(first.hear().await, Some(SchedulerToAgent::Welcome { .. })));
    let twin = IdSource::seeded(10).node(Timestamp(0));
    let named = example::inventory(node(), 1, 1).name;
    for _ in 0..3 {
        let inventory = NodeInventory { name: named.clone(), ..example::inventory(twin, 2, 1) };
        let report = NodeReport::Registered { inventory: Box::new(inventory), groups: vec![] };
        let mut session = Session::open(&served, "agent", report).await.unwrap();
        while session.hear().await.is_some() {}
    }
    let refused = refused_in_audit(&served, 1).await;
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!((&refused[0].actor, refused[0].code.as_deref()), (&format!("node:{twin}"), Some("agent_refused")));
    assert!(refused[0].reason.as_deref().unwrap().contains(&named) && refused[0].token_id.is_some());
}

#[tokio::test]
async fn whoever_guesses_waits_and_keeps_no_agent_out() {
    let served = serve().await;
    let refusal = async |secret: &str| Session::open(&served, secret, registered()).await.err().unwrap();
    for number in 0..30 {
        assert_eq!(refusal(&format!("guess-{number}")).await.code(), Code::Unauthenticated);
    }
    let throttled = refusal("guess-30").await;
    assert_eq!(throttled.code(), Code::ResourceExhausted);
    assert!(throttled.message().contains("no other is looked at for"), "{throttled}");
    assert_eq!(refusal("viewer").await.code(), Code::ResourceExhausted, "it speaks for no node");
    // One that was never used before, too.
    let mut session = Session::open(&served, "agent", registered()).await.unwrap();
    assert!(matches!(session.hear().await, Some(SchedulerToAgent::Welcome { .. })));
}

#[tokio::test]
async fn a_session_ends_with_the_token_that_opened_it_and_others_stand() {
    let served = serve().await;
    let store = served.cluster.store();
    let mut session = Session::open(&served, "agent", registered()).await.unwrap();
    assert!(matches!(session.hear().await, Some(SchedulerToAgent::Welcome { .. })));
    // What is revoked is another's: the session stands, and hears of it nothing.
    let find = async |secret| store.find_token(&TokenHash::of(secret), START).await.unwrap().unwrap().id;
    store.revoke_token(find("viewer").await, START, None).await.unwrap();
    served.cluster.tokens_changed();
    session.say(AgentToScheduler::Report(NodeReport::Heartbeat)).await;
    store.revoke_token(find("agent").await, START, None).await.unwrap();
    served.cluster.tokens_changed();
    let told = tokio::time::timeout(Duration::from_secs(1), session.hear()).await.unwrap();
    assert!(matches!(&told, Some(SchedulerToAgent::Refused { reason, .. }) if reason.contains("revoked")), "{told:?}");
    assert_eq!(session.hear().await, None);
}

#[tokio::test]
async fn a_node_that_offers_what_no_machine_has_is_told_so() {
    let served = serve().await;
    let inventory = Box::new(example::inventory(node(), 1, 5_000));
    let report = NodeReport::Registered { inventory, groups: vec![] };
    let mut session = Session::open(&served, "agent", report).await.unwrap();
    assert!(matches!(session.hear().await, Some(SchedulerToAgent::Welcome { .. })));
    let told = session.hear().await;
    assert!(
        matches!(&told, Some(SchedulerToAgent::Refused { reason, .. }) if reason.contains("gpus are 5000, at most 256")),
        "{told:?}"
    );
}

#[tokio::test]
async fn a_session_begins_with_a_registration() {
    let served = serve().await;
    let refused = Session::open(&served, "agent", NodeReport::Heartbeat).await.err().unwrap();
    assert_eq!(refused.code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn a_node_of_the_sites_own_type_can_what_the_sites_catalog_says() {
    let served = serve().await;
    let NodeReport::Registered { mut inventory, groups } = registered() else { unreachable!() };
    inventory.gpu_type = GpuType("Own-24G".into());
    let report = NodeReport::Registered { inventory: inventory.clone(), groups: groups.clone() };
    let mut session = Session::open(&served, "agent", report).await.unwrap();
    let offered = async || {
        loop {
            let view = served.cluster.view();
            if let Some(node) = view.nodes.get(&node()) {
                return node.node.inventory.stated.clone();
            }
            tokio::task::yield_now().await;
        }
    };
    assert!(matches!(session.hear().await, Some(SchedulerToAgent::Welcome { .. })));
    assert_eq!(tokio::time::timeout(DEADLINE, offered()).await.unwrap().as_ref(), site().stated("Own-24G"));
}

#[tokio::test]
async fn a_node_that_is_ahead_is_refused_until_an_operator_readmits_it() {
    let served = serve().await;
    let term = served.cluster.view().term;
    let followed = Term(term.0 + 40);
    let mut session = Session::open_following(&served, "agent", registered(), followed).await.unwrap();
    let refused = session.hear().await;
    assert!(matches!(refused, Some(SchedulerToAgent::Refused { term: Some(told), .. }) if told == term), "{refused:?}");
    let ahead = async {
        while served.cluster.view().ahead.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, ahead).await.unwrap();

    let readmit = Request::Readmit { reason: None };
    let reply = served.cluster.request(Actor::User("opal".into()), readmit).await.unwrap();
    let Reply::Readmitted(done) = reply else { panic!("refused: {reply:?}") };
    assert_eq!((done.term, done.nodes[&node()].term), (Term(followed.0 + 1), followed));
    let higher = async {
        while !served.cluster.ready() || served.cluster.view().term <= followed {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, higher).await.unwrap();
    let mut session = Session::open_following(&served, "agent", registered(), followed).await.unwrap();
    let welcome = session.hear().await;
    assert!(matches!(welcome, Some(SchedulerToAgent::Welcome { term, .. }) if term > followed), "{welcome:?}");
    assert!(served.cluster.view().ahead.is_empty());
}

#[tokio::test]
async fn a_welcome_names_the_checkpoint_root() {
    let served = serve().await;
    let mut session = Session::open(&served, "agent", registered()).await.unwrap();
    let welcome = session.hear().await;
    assert!(
        matches!(&welcome, Some(SchedulerToAgent::Welcome { checkpoint_root: Some(root), .. }) if root == ROOT),
        "{welcome:?}"
    );
}

#[tokio::test]
async fn a_newer_session_ends_the_older() {
    let served = serve().await;
    let mut older = Session::open(&served, "agent", registered()).await.unwrap();
    assert!(matches!(older.hear().await, Some(SchedulerToAgent::Welcome { .. })));
    let mut newer = Session::open(&served, "agent", registered()).await.unwrap();
    assert!(matches!(newer.hear().await, Some(SchedulerToAgent::Welcome { .. })));
    assert_eq!(older.hear().await, None);
}

#[tokio::test]
async fn a_submitted_job_reaches_the_node_and_its_log_comes_back() {
    let served = serve().await;
    let mut session = Session::open(&served, "agent", registered()).await.unwrap();
    let term = served.cluster.view().term;
    let welcome = session.hear().await;
    assert!(matches!(welcome, Some(SchedulerToAgent::Welcome { term: told, .. }) if told == term));

    let submit = Request::Submit { jobs: vec![spec("hello")], idempotency: None, known: Known::default() };
    let reply = served.cluster.request(Actor::User("ada".into()), submit).await.unwrap();
    let Reply::Submitted { jobs, .. } = reply else { panic!("not submitted: {reply:?}") };
    let job = jobs[0].id;
    let query = LogQuery { limit: 100, ..LogQuery::default() };

    let Some(SchedulerToAgent::Command { term: under, command, .. }) = session.hear().await else {
        panic!("no command")
    };
    assert_eq!(under, term);
    let AgentCommand::Prepare { order } = command else { panic!("not prepared first: {command:?}") };
    assert_eq!(order.job, job);

    let (page, ()) = tokio::join!(served.cluster.logs(job, query.clone()), async {
        let request = loop {
            match session.hear().await.unwrap() {
                SchedulerToAgent::Log(request) => break request,
                // Prepare is repeated until its effect is reported.
                SchedulerToAgent::Command { .. } => {}
                other => panic!("unexpected {other:?}"),
            }
        };
        assert_eq!((request.job, request.generation), (job, order.generation));
        let bytes = b"hello\n".to_vec();
        let request_id = request.request_id;
        session
            .say(AgentToScheduler::Log(LogChunk {
                request_id,
                bytes,
                next_offset: 6,
                eof: false,
                error: None,
                marks: vec![],
                clock_ms: None,
            }))
            .await;
    });
    let page = page.unwrap();
    assert_eq!((page.offset, page.next_offset, page.data.as_slice()), (0, 6, b"hello\n".as_slice()));
    let stranger = LogQuery { rank: 7, ..query };
    assert!(matches!(served.cluster.logs(job, stranger).await, Err(LogError::NoSuchRank { rank: 7, .. })));
}

#[tokio::test]
async fn whatever_an_agent_says_renews_its_lease() {
    // A fifth of it is over between any two looks.
    let served = serve_with(Seconds(0.005)).await;
    let session = Session::open(&served, "agent", registered()).await.unwrap();
    let heard = || served.cluster.view().nodes.get(&node()).and_then(|node| node.heard_at);
    let piece = |request_id| LogChunk {
        request_id,
        bytes: vec![b'x'; 1_000],
        next_offset: 1_000,
        eof: false,
        error: None,
        marks: vec![],
        clock_ms: None,
    };
    let renewed = async {
        let mut known = None;
        for request_id in 0.. {
            session.say(AgentToScheduler::Log(piece(request_id))).await;
            tokio::task::yield_now().await;
            match (known, heard()) {
                (None, first) => known = first,
                (Some(first), Some(now)) if now > first => return,
                _ => {}
            }
        }
    };
    tokio::time::timeout(DEADLINE, renewed).await.expect("pieces of logs are signs of life");
}

fn hf() -> SecretId {
    SecretId { owner: SecretOwner::User("ada".into()), name: "team-hf".into() }
}

/// Submits a job that needs a secret, and reports its part prepared; what comes with its launch.
async fn launched(served: &Served, session: &mut Session) -> (JobId, Generation, Secrets) {
    let mut needy = spec("needy");
    needy.roles[0].run.secrets.insert("HF_TOKEN".into(), "team-hf".into());
    let submit = Request::Submit { jobs: vec![needy], idempotency: None, known: Known::default() };
    served.cluster.request(Actor::User("ada".into()), submit).await.unwrap();
    loop {
        let Some(SchedulerToAgent::Command { command, secrets, .. }) = session.hear().await else { continue };
        match command {
            AgentCommand::Prepare { order } => {
                assert!(secrets.is_empty(), "{secrets:?}");
                assert_eq!(order.run.secrets["HF_TOKEN"], "team-hf");
                let status = GroupStatus {
                    job: order.job,
                    generation: order.generation,
                    gpus: order.placement.slices()[0].gpus.clone(),
                    phase: GroupPhase::Prepared { rendezvous_port: Some(29_500) },
                    revision: 0,
                    notice: 0,
                };
                session.say(AgentToScheduler::Report(NodeReport::Group { status })).await;
            }
            AgentCommand::Launch { job, generation, .. } => return (job, generation, secrets),
            other => panic!("unexpected {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_secret_comes_with_the_launch_and_with_nothing_before() {
    let served = serve().await;
    let (store, value) = (served.cluster.store(), Secret::new("hunter22"));
    store.set_secret(&hf(), &value, "ada", START, None).await.unwrap();
    let mut session = Session::open(&served, "agent", registered()).await.unwrap();
    let (_, _, secrets) = launched(&served, &mut session).await;
    assert_eq!(secrets, [("HF_TOKEN".to_owned(), value)].into());
    let used = store.secrets_of(Some("ada"), &[]).await.unwrap();
    assert!(used[0].used_at.is_some());
    let view = served.cluster.view();
    assert!(!format!("{view:?}").contains("hunter22"));
}

#[tokio::test]
async fn a_launch_goes_out_without_a_secret_that_was_deleted() {
    let served = serve().await;
    let mut session = Session::open(&served, "agent", registered()).await.unwrap();
    // The engine admits what the interface would have refused: here the secret was never there.
    let (_, _, secrets) = launched(&served, &mut session).await;
    assert!(secrets.is_empty());
}
