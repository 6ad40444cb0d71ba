//! Over gRPC: to a scheduler of a few lines, which answers no more at once on a connection than a real one.

use headway_api::agent::{AgentToScheduler, LogRequest, SchedulerToAgent, Secrets};
use headway_types::Generation;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::session::tests::{self, Session};

async fn hear<T>(session: &mut Session, wanted: impl Fn(AgentToScheduler) -> Option<T>) -> T {
    let search = async {
        loop {
            let message = session.1.message().await.unwrap().unwrap();
            if let Some(found) = wanted(AgentToScheduler::try_from(message).unwrap()) {
                return found;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), search).await.expect("the message within the deadline")
}

async fn say(session: &Session, message: SchedulerToAgent) {
    session.2.send(Ok((&message).into())).await.unwrap();
}

/// The next node that dials, welcomed into a emulation a thousand times as fast.
async fn accept(sessions: &mut mpsc::Receiver<Session>) -> (NodeInventory, Session) {
    let session = tokio::time::timeout(Duration::from_secs(20), sessions.recv()).await;
    let mut session = session.expect("a node dials").unwrap();
    let inventory = hear(&mut session, |message| match message {
        AgentToScheduler::Report(NodeReport::Registered { inventory, .. }) => Some(*inventory),
        _ => None,
    })
    .await;
    let welcome = SchedulerToAgent::Welcome {
        term: Term(1),
        lease: Seconds(10_000.0),
        heartbeat: Seconds(100.0),
        speed: 1_000.0,
        checkpoint_root: None,
    };
    say(&session, welcome).await;
    (inventory, session)
}

#[tokio::test]
async fn nodes_register_train_on_the_schedulers_time_and_dial_again() {
    let (address, mut sessions) = tests::listen().await;
    let shutdown = CancellationToken::new();
    let config = FleetConfig { server_urls: vec![format!("http://{address}")], ..config(&["H100-80Gx8=3"]) };
    let fleet = tokio::spawn(run_fleet(config, shutdown.clone()));
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(accept(&mut sessions).await);
    }
    let (inventory, mut session) = nodes.remove(1);
    hear(&mut session, |message| (message == AgentToScheduler::Report(NodeReport::Heartbeat)).then_some(())).await;

    let order = order(std::slice::from_ref(&inventory), 1);
    let (job, generation) = (order.job, order.generation);
    let command = |command| SchedulerToAgent::Command { term: Term(1), serial: None, command, secrets: Secrets::new() };
    say(&session, command(AgentCommand::Prepare { order: Box::new(order.clone()) })).await;
    let prepared = |message| match message {
        AgentToScheduler::Report(NodeReport::Group { status }) => {
            matches!(status.phase, GroupPhase::Prepared { .. }).then_some(())
        }
        _ => None,
    };
    hear(&mut session, prepared).await;
    say(&session, command(AgentCommand::Launch { job, generation, rendezvous_port: 29_500 })).await;
    let steps = |message| match message {
        AgentToScheduler::Report(report) => super::steps(&report),
        AgentToScheduler::Log(_) | AgentToScheduler::Exec(_) | AgentToScheduler::Readings(_) => None,
    };
    hear(&mut session, steps).await;
    let second = hear(&mut session, steps).await;
    // A report a second of wall time is a thousand seconds of training, up to the checkpoint that comes before.
    assert!(second.duration.0 > 300.0, "{}", second.duration.0);

    let request = LogRequest {
        request_id: 4,
        job,
        generation: Generation(0),
        rank: None,
        offset: 0,
        limit_bytes: 10_000,
        tail_lines: None,
        since_ms: None,
    };
    say(&session, SchedulerToAgent::Log(request)).await;
    let chunk = hear(&mut session, |message| match message {
        AgentToScheduler::Log(chunk) => Some(chunk),
        AgentToScheduler::Report(_) | AgentToScheduler::Exec(_) | AgentToScheduler::Readings(_) => None,
    })
    .await;
    assert!(String::from_utf8(chunk.bytes).unwrap().contains("training") && !chunk.eof);

    drop(session);
    let (again, _session) = accept(&mut sessions).await;
    assert_eq!((again.node, again.boot), (inventory.node, inventory.boot));
    shutdown.cancel();
    fleet.await.unwrap().unwrap();
}
