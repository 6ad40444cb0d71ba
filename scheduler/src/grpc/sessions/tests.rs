#![allow(clippy::unwrap_used)]
use headway_types::{Bytes, Generation, GpuUuid, IdSource, JobId};

use super::*;

fn names() -> (NodeId, JobId) {
    let mut ids = IdSource::seeded(1);
    (ids.node(Timestamp(0)), ids.job(Timestamp(0)))
}

fn request(id: u64, job: JobId) -> LogRequest {
    LogRequest {
        request_id: id,
        job,
        generation: Generation(1),
        rank: Some(0),
        offset: 0,
        limit_bytes: 10,
        tail_lines: None,
        since_ms: None,
    }
}

#[test]
fn nobody_connects_before_the_term_begins() {
    let sessions = Sessions::default();
    let (node, _) = names();
    assert!(matches!(sessions.open(node, Term(0)), Err(NotOpened::NoLeader)));
    sessions.begin(Term(3));
    assert_eq!(sessions.open(node, Term(0)).unwrap().term, Term(3));
}

#[test]
fn a_node_that_follows_a_term_of_another_history_is_ahead() {
    let sessions = Sessions::default();
    let (node, _) = names();
    sessions.begin(Term(3));
    for followed in [Term(3), Term(4)] {
        assert_eq!(sessions.open(node, followed).err(), Some(NotOpened::Ahead { term: Term(3) }), "{followed}");
    }
    assert!(sessions.open(node, Term(2)).is_ok());
    assert!(sessions.open(node, Term(3)).is_ok(), "it heard of this term here");
    sessions.close_all();
    sessions.begin(Term(4));
    assert!(sessions.open(node, Term(4)).is_err(), "of this one it did not");
}

#[test]
fn a_newer_session_replaces_the_older() {
    let sessions = Sessions::default();
    let (node, _) = names();
    sessions.begin(Term(1));
    let older = sessions.open(node, Term(0)).unwrap();
    let newer = sessions.open(node, Term(0)).unwrap();
    assert!(newer.session > older.session);
    assert!(older.closed.is_cancelled() && !newer.closed.is_cancelled());
    sessions.close(node, older.session);
    let welcome = SchedulerToAgent::Refused { reason: "test".into(), term: None };
    assert!(sessions.send(node, &welcome), "the newer session must survive the end of the older");
}

#[test]
fn what_gpus_measure_is_known_while_the_session_that_told_it_stands() {
    let sessions = Sessions::default();
    let (node, _) = names();
    sessions.begin(Term(1));
    let older = sessions.open(node, Term(0)).unwrap().session;
    let reading = |bytes| GpuReading {
        gpu: GpuUuid("GPU-1".into()),
        busy: None,
        celsius: None,
        watts: None,
        memory_used: Some(Bytes(bytes)),
    };
    sessions.measured(node, older, Timestamp(5), vec![reading(7)]);
    assert_eq!(sessions.last_measured(node).unwrap().gpus[0], reading(7));
    let newer = sessions.open(node, Term(0)).unwrap().session;
    sessions.measured(node, older, Timestamp(6), vec![reading(8)]);
    assert_eq!(sessions.last_measured(node), None, "an older session is not heard");
    sessions.measured(node, newer, Timestamp(7), vec![reading(9)]);
    assert_eq!(sessions.last_measured(node).unwrap().at, Timestamp(7));
    sessions.close(node, newer);
    assert_eq!(sessions.last_measured(node), None);
}

#[test]
fn each_command_is_counted_in_the_order_of_sending() {
    let sessions = Sessions::default();
    let (node, job) = names();
    sessions.begin(Term(1));
    let mut opened = sessions.open(node, Term(0)).unwrap();
    for generation in [1, 2] {
        let command = AgentCommand::Checkpoint { job, generation: Generation(generation) };
        sessions.command(Term(1), node, command, Secrets::new());
    }
    let mut heard = || SchedulerToAgent::try_from(opened.outgoing.try_recv().unwrap().unwrap()).unwrap();
    for serial in [1, 2] {
        let serial = Some(Serial(serial));
        assert!(matches!(heard(), SchedulerToAgent::Command { serial: told, .. } if told == serial));
    }
}

#[test]
fn an_agent_that_does_not_read_is_disconnected() {
    let sessions = Sessions::default();
    let (node, job) = names();
    sessions.begin(Term(1));
    let opened = sessions.open(node, Term(0)).unwrap();
    for _ in 0..=QUEUE {
        let command = AgentCommand::Checkpoint { job, generation: Generation(1) };
        sessions.command(Term(1), node, command, Secrets::new());
    }
    assert!(opened.closed.is_cancelled());
    assert!(!sessions.send(node, &SchedulerToAgent::Refused { reason: "test".into(), term: None }));
}

#[tokio::test]
async fn however_many_read_logs_a_node_that_does_not_answer_stays_connected() {
    let sessions = Sessions::default();
    let (node, job) = names();
    sessions.begin(Term(1));
    let mut opened = sessions.open(node, Term(0)).unwrap();
    let asking = |id: u64| {
        let sessions = sessions.clone();
        tokio::spawn(async move { sessions.ask(node, request(id, job)).await })
    };
    let waiting: Vec<_> = (0..LOGS_AT_ONCE as u64).map(asking).collect();
    for _ in 0..LOGS_AT_ONCE {
        assert!(opened.outgoing.recv().await.is_some());
    }
    for id in 0..2 * QUEUE as u64 {
        assert_eq!(sessions.ask(node, request(1_000 + id, job)).await, Err(SessionError::Busy(node)));
    }
    for one in waiting {
        one.abort();
        assert!(one.await.is_err());
    }
    assert!(!opened.closed.is_cancelled());
    assert!(!sessions.lock().is_busy(node), "whoever goes away waits no more");
    // What nobody waits for any more still lies in the queue of a node that does not read.
    for _ in 0..=QUEUE / 2 {
        let command = AgentCommand::Checkpoint { job, generation: Generation(1) };
        sessions.command(Term(1), node, command, Secrets::new());
    }
    assert_eq!(sessions.ask(node, request(9_999, job)).await, Err(SessionError::Busy(node)));
    assert!(!opened.closed.is_cancelled());
}

#[tokio::test]
async fn a_refused_session_ends_after_its_reason_and_a_newer_one_stays() {
    let sessions = Sessions::default();
    let (node, _) = names();
    sessions.begin(Term(1));
    let mut refused = sessions.open(node, Term(0)).unwrap();
    sessions.refuse(node, refused.session, "node n1 is another machine".into());
    assert!(refused.closed.is_cancelled());
    let told: SchedulerToAgent = refused.outgoing.recv().await.unwrap().unwrap().try_into().unwrap();
    assert_eq!(told, SchedulerToAgent::Refused { reason: "node n1 is another machine".into(), term: None });
    assert!(refused.outgoing.recv().await.is_none());

    let newer = sessions.open(node, Term(0)).unwrap();
    sessions.refuse(node, refused.session, "late".into());
    assert!(!newer.closed.is_cancelled());
}

#[tokio::test]
async fn an_answer_finds_who_asked() {
    let sessions = Sessions::default();
    let (node, job) = names();
    assert_eq!(sessions.ask(node, request(1, job)).await, Err(SessionError::NotConnected(node)));
    sessions.begin(Term(1));
    let _opened = sessions.open(node, Term(0)).unwrap();
    let id = sessions.next_request();
    let chunk = LogChunk {
        request_id: id,
        bytes: b"x".to_vec(),
        next_offset: 1,
        eof: false,
        error: None,
        marks: vec![],
        clock_ms: None,
    };
    let other = IdSource::seeded(2).node(Timestamp(0));
    let forged = LogChunk { bytes: b"y".to_vec(), ..chunk.clone() };
    let (asked, ()) = tokio::join!(sessions.ask(node, request(id, job)), async {
        sessions.log_came(other, forged);
        sessions.log_came(node, chunk.clone());
    });
    assert_eq!(asked, Ok(chunk));
}
