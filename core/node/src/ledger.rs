//! The ledger itself, and how it takes commands. Facts of the node are in `ledger/fact.rs`, stops in `ledger/stop.rs`.

mod change;
mod fact;
mod fence;
mod hooks;
mod notice;
mod recovery;
mod stop;

use std::collections::BTreeMap;

use headway_types::command::GroupStatus;
use headway_types::{
    AgentCommand, BootId, Fault, Generation, GroupOutcome, GroupPhase, JobId, LaunchOrder, NodeId, NodeReport, Term,
    Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::event::NodeEvent;
use crate::group::{Group, LiveChange, Phase, Share, StopRequest};
use crate::outcome::{NodeAction, NodeOutcome, Refusal, WorkerOrder};
pub use change::LedgerChange;
use fence::{Fence, REMEMBERED, Sent};

/// Everything a node knows of what it was told to run. Serialisable: the agent keeps it on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    node: NodeId,
    boot: BootId,
    /// Highest term heard.
    term: Term,
    /// Highest generation heard per job; outlives the groups, so that a late command cannot revive one.
    #[serde(default)]
    highest: BTreeMap<JobId, Fence>,
    /// Fences of commands up to this one have been forgotten: older commands of jobs that are not known are refused.
    #[serde(default)]
    forgotten: Option<Sent>,
    groups: BTreeMap<JobId, BTreeMap<Generation, Group>>,
}

impl Ledger {
    #[must_use]
    pub fn new(node: NodeId, boot: BootId) -> Self {
        Self { node, boot, term: Term(0), highest: BTreeMap::new(), forgotten: None, groups: BTreeMap::new() }
    }

    /// Digests one event. The whole of the node's behaviour.
    pub fn handle(&mut self, now: Timestamp, event: NodeEvent) -> NodeOutcome {
        let mut out = NodeOutcome::default();
        match event {
            NodeEvent::Command { term, serial, command } => {
                let sent = serial.map(|serial| Sent { term, serial });
                self.command(now, term, sent, command, &mut out);
            }
            NodeEvent::SessionOpened { term } => self.session_opened(term, &mut out),
            NodeEvent::Restarted { boot } => self.restarted(boot, &mut out),
            NodeEvent::PrepareDone { job, generation, result } => self.prepare_done(job, generation, result, &mut out),
            NodeEvent::Spawned { job, generation, processes } => {
                self.spawned(now, job, generation, &processes, &mut out);
            }
            NodeEvent::SpawnFailed { job, generation, fault } => {
                self.spawn_failed(job, generation, fault, &mut out);
            }
            NodeEvent::Left { job, generation, rank, exit } => self.left(job, generation, rank, exit),
            NodeEvent::Exited { job, generation, rank, exit, fault } => {
                self.exited(now, (job, generation), rank, exit, fault, &mut out);
            }
            NodeEvent::EndedUnseen { job, generation, exits } => self.ended_unseen(job, generation, &exits, &mut out),
            NodeEvent::EpilogDone { job, generation } => self.epilog_done(job, generation, &mut out),
            NodeEvent::Worker { job, generation, message } => self.worker(now, job, generation, message, &mut out),
            NodeEvent::Tick => self.tick(now, &mut out),
        }
        if out.persist {
            self.forget_fences(REMEMBERED);
        }
        out.wake_at = self.next_due();
        out
    }

    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    #[must_use]
    pub fn term(&self) -> Term {
        self.term
    }

    #[must_use]
    pub fn group(&self, job: JobId, generation: Generation) -> Option<&Group> {
        self.groups.get(&job)?.get(&generation)
    }

    /// All entries, by job and generation.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values().flat_map(BTreeMap::values)
    }

    /// All entries as the scheduler sees them, for `Registered`.
    #[must_use]
    pub fn statuses(&self) -> Vec<GroupStatus> {
        self.groups().map(|group| group.status(self.node)).collect()
    }

    fn command(
        &mut self,
        now: Timestamp,
        term: Term,
        sent: Option<Sent>,
        command: AgentCommand,
        out: &mut NodeOutcome,
    ) {
        if !self.follow(term, out) {
            return;
        }
        let (job, generation) = command.subject();
        if self.is_late(job, sent) {
            // Nothing is reported: that it has ended would be believed of a generation that may still be on its way.
            out.refusal = Some(Refusal::Late { job, generation });
            return;
        }
        match command {
            AgentCommand::Prepare { order } => self.prepare(now, sent, *order, out),
            AgentCommand::Launch { job, generation, rendezvous_port } => {
                if self.group(job, generation).is_none() {
                    self.fence(job, generation, None, out);
                }
                self.launch(job, generation, rendezvous_port, out);
            }
            AgentCommand::Stop { job, generation, mode, grace } => {
                if self.group(job, generation).is_some() {
                    self.stop(now, job, generation, StopRequest { mode, grace }, out);
                } else {
                    self.fence(job, generation, sent, out);
                    self.report(job, generation, out);
                }
            }
            AgentCommand::Configure { job, generation, revision, configuration, lr_scale } => {
                self.configure(job, generation, LiveChange { revision, configuration, lr_scale }, out);
            }
            AgentCommand::Checkpoint { job, generation } => self.checkpoint(job, generation, out),
            AgentCommand::Notify { job, generation, number } => self.notify(job, generation, number, out),
            AgentCommand::Prune { job, committed, keep } => match self.group(job, committed.generation) {
                Some(group) => {
                    let order = Box::new(group.order.clone());
                    out.actions.push(NodeAction::Prune { order, committed, keep });
                }
                None => out.refusal = Some(Refusal::Unknown { job, generation: committed.generation }),
            },
            AgentCommand::Forget { job, generation } => {
                self.forget(job, generation, out);
                if self.group(job, generation).is_none() {
                    self.release_fence(job, generation, sent, out);
                }
            }
        }
    }

    fn prepare(&mut self, now: Timestamp, sent: Option<Sent>, order: LaunchOrder, out: &mut NodeOutcome) {
        let (job, generation) = (order.job, order.generation);
        if let Some(group) = self.group(job, generation) {
            if group.order != order {
                out.refusal = Some(Refusal::OtherBody { job, generation });
            }
            self.report(job, generation, out);
            return;
        }
        let highest = self.highest.get(&job).map(|fence| fence.generation).unwrap_or_default();
        if generation <= highest {
            out.refusal = Some(Refusal::Stale { job, generation, highest });
            self.report(job, generation, out);
            return;
        }
        self.fence(job, generation, sent, out);
        let obstacle = self.obstacle(&order);
        self.groups.entry(job).or_default().insert(generation, Group::new(order, Phase::Waiting));
        match obstacle {
            Some(message) => {
                let fault = Fault::of_infrastructure(message);
                self.finish(job, generation, GroupOutcome::NotStarted { fault }, out);
                self.supersede(now, job, generation, out);
            }
            None => {
                self.supersede(now, job, generation, out);
                self.advance(job, out);
                self.report(job, generation, out);
            }
        }
    }

    /// Why this order cannot be taken on this node at all.
    fn obstacle(&self, order: &LaunchOrder) -> Option<String> {
        let Some(share) = Share::of(order, self.node) else {
            return Some(format!("the placement does not name node {}", self.node));
        };
        self.groups().filter(|group| group.job() != order.job && !group.phase.is_ended()).find_map(|group| {
            let held =
                Share::of(&group.order, self.node)?.slice.gpus.iter().find(|gpu| share.slice.gpus.contains(gpu))?;
            Some(format!("GPU {held} is held by job {} {}", group.job(), group.generation()))
        })
    }

    fn launch(&mut self, job: JobId, generation: Generation, port: u16, out: &mut NodeOutcome) {
        let node = self.node;
        let Some(group) = self.group_mut(job, generation) else {
            out.refusal = Some(Refusal::Unknown { job, generation });
            self.report(job, generation, out);
            return;
        };
        match group.phase {
            Phase::Prepared { rendezvous_port } => {
                let first = group.order.placement.first_node() == node;
                if first && rendezvous_port != Some(port) {
                    out.refusal = Some(Refusal::OtherBody { job, generation });
                } else {
                    group.phase = Phase::Launching { rendezvous_port: port, stop: None };
                    out.persist = true;
                    out.actions.push(NodeAction::Spawn { order: Box::new(group.order.clone()), rendezvous_port: port });
                }
            }
            Phase::Launching { rendezvous_port, .. } | Phase::Running { rendezvous_port, .. } => {
                if rendezvous_port != port {
                    out.refusal = Some(Refusal::OtherBody { job, generation });
                }
            }
            Phase::Waiting | Phase::Preparing => {
                out.refusal =
                    Some(Refusal::WrongPhase { job, generation, phase: group.phase.name(), command: "launch" });
            }
            Phase::Withdrawn | Phase::Stopping { .. } | Phase::Epilog { .. } | Phase::Ended { .. } => {}
        }
        self.report(job, generation, out);
    }

    fn configure(&mut self, job: JobId, generation: Generation, change: LiveChange, out: &mut NodeOutcome) {
        let Some(group) = self.group_mut(job, generation) else {
            out.refusal = Some(Refusal::Unknown { job, generation });
            return self.report(job, generation, out);
        };
        if group.phase.is_ended() {
            out.refusal =
                Some(Refusal::WrongPhase { job, generation, phase: group.phase.name(), command: "configure" });
        } else {
            match group.change {
                Some(known) if known.revision == change.revision && known != change => {
                    out.refusal = Some(Refusal::OtherBody { job, generation });
                }
                Some(known) if known.revision >= change.revision => {}
                _ => {
                    group.change = Some(change);
                    out.persist = true;
                    if matches!(group.phase, Phase::Running { .. }) {
                        out.actions.push(NodeAction::Send { job, generation, order: change.order() });
                    }
                }
            }
        }
        self.report(job, generation, out);
    }

    fn checkpoint(&mut self, job: JobId, generation: Generation, out: &mut NodeOutcome) {
        match self.group(job, generation).map(|group| &group.phase) {
            Some(Phase::Running { .. }) => {
                out.actions.push(NodeAction::Send { job, generation, order: WorkerOrder::Checkpoint });
            }
            Some(phase) => {
                out.refusal = Some(Refusal::WrongPhase { job, generation, phase: phase.name(), command: "checkpoint" });
            }
            None => out.refusal = Some(Refusal::Unknown { job, generation }),
        }
        self.report(job, generation, out);
    }

    fn forget(&mut self, job: JobId, generation: Generation, out: &mut NodeOutcome) {
        match self.group(job, generation).map(|group| &group.phase) {
            None => {}
            Some(Phase::Ended { .. }) => {
                if let Some(groups) = self.groups.get_mut(&job) {
                    let group = groups.remove(&generation);
                    if groups.is_empty() {
                        self.groups.remove(&job);
                    }
                    let orders = group.into_iter().map(|group| Box::new(group.order));
                    out.actions.extend(orders.map(|order| NodeAction::RemoveEmptyDirectories { order }));
                }
                out.persist = true;
            }
            Some(phase) => {
                out.refusal = Some(Refusal::WrongPhase { job, generation, phase: phase.name(), command: "forget" });
                self.report(job, generation, out);
            }
        }
    }

    fn group_mut(&mut self, job: JobId, generation: Generation) -> Option<&mut Group> {
        self.groups.get_mut(&job)?.get_mut(&generation)
    }

    /// Reports where a group stands. One that is not known has no process here and, being fenced, never will.
    fn report(&self, job: JobId, generation: Generation, out: &mut NodeOutcome) {
        let status = match self.group(job, generation) {
            Some(group) => group.status(self.node),
            None if self.highest.get(&job).is_some_and(|fence| generation <= fence.generation) => GroupStatus {
                job,
                generation,
                gpus: Vec::new(),
                phase: GroupPhase::Ended { outcome: GroupOutcome::Stopped },
                revision: 0,
                notice: 0,
            },
            None => return,
        };
        out.reports.push(NodeReport::Group { status });
    }

    /// The only way into `Ended`.
    fn finish(&mut self, job: JobId, generation: Generation, outcome: GroupOutcome, out: &mut NodeOutcome) {
        let Some(group) = self.group_mut(job, generation) else { return };
        group.phase = Phase::Ended { outcome };
        out.persist = true;
        out.actions.push(NodeAction::Close { job, generation });
        self.report(job, generation, out);
        self.advance(job, out);
    }

    /// Lets the newest generation go on once no older one has processes left.
    fn advance(&mut self, job: JobId, out: &mut NodeOutcome) {
        let Some(groups) = self.groups.get_mut(&job) else { return };
        if groups.values().any(|group| group.phase.may_have_processes()) {
            return;
        }
        let Some(group) = groups.values_mut().next_back().filter(|group| group.phase == Phase::Waiting) else { return };
        group.phase = Phase::Preparing;
        out.persist = true;
        out.actions.push(NodeAction::Prepare { order: Box::new(group.order.clone()) });
    }
}

impl LiveChange {
    fn order(self) -> WorkerOrder {
        WorkerOrder::Configure { revision: self.revision, configuration: self.configuration, lr_scale: self.lr_scale }
    }
}
