//! The rules of the ledger, one test each, and the laws they add up to.
#![allow(clippy::unwrap_used)]

mod fences;
mod hooks;
mod late_stops;
mod laws;
mod observations;
mod recovery;
mod rules;
mod upgrade;

use headway_types::command::GroupStatus;
use headway_types::{
    AgentCommand, BootId, Generation, GpuUuid, JobId, LaunchOrder, NodeId, NodeReport, Seconds, StopMode, Term,
    Timestamp, example,
};

use crate::{Ledger, NodeEvent, NodeOutcome, Process};

const TERM: Term = Term(1);
const PORT: u16 = 29_500;

fn id(n: u128) -> uuid::Uuid {
    uuid::Uuid::from_u128(n)
}

fn node() -> NodeId {
    NodeId(id(1000))
}

fn job(n: u128) -> JobId {
    JobId(id(n))
}

fn ledger() -> Ledger {
    Ledger::new(node(), BootId("boot-1".into()))
}

fn order(job_number: u128, generation: u64, gpus: &[&str]) -> LaunchOrder {
    let gpus = gpus.iter().map(|gpu| GpuUuid((*gpu).into())).collect();
    LaunchOrder { job_name: "test".into(), ..example::order(job(job_number), generation, node(), gpus) }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp(seconds * 1_000_000)
}

fn command(command: AgentCommand) -> NodeEvent {
    NodeEvent::Command { term: TERM, serial: None, command }
}

fn prepare(order: &LaunchOrder) -> NodeEvent {
    command(AgentCommand::Prepare { order: Box::new(order.clone()) })
}

fn prepared(order: &LaunchOrder) -> NodeEvent {
    NodeEvent::PrepareDone { job: order.job, generation: order.generation, result: Ok(Some(PORT)) }
}

fn launch(order: &LaunchOrder) -> NodeEvent {
    command(AgentCommand::Launch { job: order.job, generation: order.generation, rendezvous_port: PORT })
}

fn stop(order: &LaunchOrder, mode: StopMode) -> NodeEvent {
    command(AgentCommand::Stop { job: order.job, generation: order.generation, mode, grace: Seconds(20.0) })
}

fn spawned(order: &LaunchOrder) -> NodeEvent {
    let processes = (0..order.placement.gpus().0)
        .map(|rank| Process { rank, pid: 100 * order.generation.0 as u32 + rank, started: 7 })
        .collect();
    NodeEvent::Spawned { job: order.job, generation: order.generation, processes }
}

/// A ledger in which the order's group runs.
fn running(order: &LaunchOrder) -> Ledger {
    let mut ledger = ledger();
    for event in [prepare(order), prepared(order), launch(order), spawned(order)] {
        let _ = ledger.handle(at(0), event);
    }
    ledger
}

/// The last group status an outcome reports.
fn status(outcome: &NodeOutcome) -> GroupStatus {
    let group = outcome.reports.iter().rev().find_map(|report| match report {
        NodeReport::Group { status } => Some(status.clone()),
        _ => None,
    });
    group.expect("the outcome reports a group")
}
