//! How the ledger takes facts: sessions, restarts, checks, processes, workers.

use std::collections::BTreeMap;

use headway_types::{Blame, BootId, Fault, Generation, GroupOutcome, JobId, NodeReport, Term, Timestamp};

use super::Ledger;
use super::stop::{begin, begin_broken};
use crate::event::{Exit, Process, WorkerMessage};
use crate::group::{Group, Member, Phase, Share, StopCause, StopStage};
use crate::outcome::{NodeAction, NodeOutcome, Refusal, WorkerOrder};

impl Ledger {
    /// Repeats everything a lost session may have swallowed: checkpoints first, so that an end finds them committed.
    pub(super) fn session_opened(&mut self, term: Term, out: &mut NodeOutcome) {
        if !self.follow(term, out) {
            return;
        }
        for group in self.groups.values().flat_map(|groups| groups.values()) {
            let (job, generation) = (group.job(), group.generation());
            if let Some(capabilities) = group.declared {
                out.reports.push(NodeReport::Declared { job, generation, capabilities });
            }
            if let Some((checkpoint, duration)) = group.checkpoint.clone() {
                out.reports.push(NodeReport::CheckpointWritten { job, checkpoint, duration });
            }
            out.reports.push(NodeReport::Group { status: group.status(self.node) });
        }
    }

    /// The shell lost everything but the ledger. On another boot nothing is left; on the same one, processes go on,
    /// rendezvous ports do not.
    pub(super) fn restarted(&mut self, boot: BootId, out: &mut NodeOutcome) {
        let rebooted = boot != self.boot;
        if rebooted {
            self.boot = boot;
            out.persist = true;
        }
        let mut over: Vec<(JobId, Generation, GroupOutcome)> = Vec::new();
        for group in self.groups.values().flat_map(|groups| groups.values()) {
            let (job, generation) = (group.job(), group.generation());
            match (&group.phase, rebooted) {
                (Phase::Waiting | Phase::Ended { .. }, _) => {}
                // What its prolog has started is ended first.
                (Phase::Preparing, false) if group.order.run.hooks.prolog.is_some() => {
                    out.actions.push(NodeAction::Sweep { job, generation, ranks: Vec::new() });
                }
                (Phase::Withdrawn, false) => {
                    out.actions.push(NodeAction::Sweep { job, generation, ranks: Vec::new() });
                }
                (Phase::Withdrawn, true) => over.push((job, generation, GroupOutcome::Stopped)),
                (Phase::Epilog { outcome }, true) => over.push((job, generation, outcome.clone())),
                (Phase::Epilog { outcome }, false) => {
                    let (order, outcome) = (Box::new(group.order.clone()), outcome.clone());
                    out.actions.push(NodeAction::Epilog { order, outcome });
                }
                (Phase::Preparing | Phase::Prepared { .. }, _) => {
                    let fault = Fault::of_infrastructure("the agent restarted before the launch");
                    over.push((job, generation, GroupOutcome::NotStarted { fault }));
                }
                (Phase::Stopping { cause: StopCause::Asked { .. }, .. }, true) => {
                    over.push((job, generation, GroupOutcome::Stopped));
                }
                (Phase::Launching { .. } | Phase::Running { .. } | Phase::Stopping { .. }, true) => {
                    let fault = Fault::of_node("the node rebooted");
                    over.push((job, generation, GroupOutcome::Failed { exit_code: None, fault }));
                }
                // Its processes may have begun, and even ended, before anybody wrote them down.
                (Phase::Launching { .. }, false) => {
                    let ranks = Share::of(&group.order, self.node).map(|share| share.processes(&group.order));
                    out.actions.push(NodeAction::Sweep { job, generation, ranks: ranks.unwrap_or_default().collect() });
                }
                (Phase::Running { members, .. } | Phase::Stopping { members, .. }, false) => {
                    let processes = members.iter().filter(|m| m.exit.is_none()).map(|m| m.process).collect();
                    out.actions.push(NodeAction::Adopt { order: Box::new(group.order.clone()), processes });
                }
            }
        }
        for (job, generation, outcome) in over {
            self.finish(job, generation, outcome, out);
        }
    }

    pub(super) fn prepare_done(
        &mut self,
        job: JobId,
        generation: Generation,
        result: Result<Option<u16>, Fault>,
        out: &mut NodeOutcome,
    ) {
        match self.group_mut(job, generation) {
            Some(group) if group.phase == Phase::Preparing => match result {
                Ok(rendezvous_port) => {
                    group.phase = Phase::Prepared { rendezvous_port };
                    out.persist = true;
                    self.report(job, generation, out);
                }
                Err(fault) => self.finish(job, generation, GroupOutcome::NotStarted { fault }, out),
            },
            Some(group) if group.phase == Phase::Withdrawn => {
                self.finish(job, generation, GroupOutcome::Stopped, out);
            }
            Some(group) if !group.phase.is_ended() => {}
            // Stopped while the checks ran: what they took is given back.
            Some(_) | None => out.actions.push(NodeAction::Close { job, generation }),
        }
    }

    pub(super) fn spawned(
        &mut self,
        now: Timestamp,
        job: JobId,
        generation: Generation,
        processes: &[Process],
        out: &mut NodeOutcome,
    ) {
        let Some(group) = self.group_mut(job, generation) else { return };
        let Phase::Launching { rendezvous_port, stop } = group.phase else { return };
        let members: Vec<Member> = processes.iter().map(|process| Member { process: *process, exit: None }).collect();
        match stop.filter(|_| !group.is_done(&members)) {
            Some(request) => begin(group, now, members, StopCause::Asked { mode: request.mode }, request, out),
            None => {
                group.asked |= stop.is_some();
                group.phase = Phase::Running { rendezvous_port, members };
            }
        }
        if let (Phase::Running { .. }, true, Some(change)) = (&group.phase, group.greeted, group.change) {
            out.actions.push(NodeAction::Send { job, generation, order: change.order() });
        }
        out.persist = true;
        self.report(job, generation, out);
    }

    pub(super) fn spawn_failed(&mut self, job: JobId, generation: Generation, fault: Fault, out: &mut NodeOutcome) {
        let outcome = match self.group(job, generation).map(|group| &group.phase) {
            Some(Phase::Launching { stop: Some(_), .. } | Phase::Withdrawn) => GroupOutcome::Stopped,
            Some(Phase::Launching { stop: None, .. } | Phase::Preparing) => GroupOutcome::NotStarted { fault },
            _ => return,
        };
        self.finish(job, generation, outcome, out);
    }

    /// The launch had gone well, and nobody was there to see how it ended.
    pub(super) fn ended_unseen(
        &mut self,
        job: JobId,
        generation: Generation,
        exits: &BTreeMap<u32, Exit>,
        out: &mut NodeOutcome,
    ) {
        let Some(group) = self.group(job, generation) else { return };
        let Phase::Launching { stop, .. } = group.phase else { return };
        let failure = exits.iter().find_map(|(rank, exit)| failure(*rank, *exit, None));
        // Nothing was signalled before: ranks that ended well did so by themselves, and a stop has come too late.
        let outcome = match stop {
            Some(_) if failure.is_some() || group.stopped => GroupOutcome::Stopped,
            _ => outcome(group, failure),
        };
        self.conclude(job, generation, outcome, out);
    }

    /// Not stored: whoever comes after this agent learns it again from the process and its exit status.
    pub(super) fn left(&mut self, job: JobId, generation: Generation, rank: u32, exit: Exit) {
        let Some(group) = self.group_mut(job, generation) else { return };
        // In `Stopping` a signal may be why it ended.
        if matches!(group.phase, Phase::Launching { .. } | Phase::Running { .. }) {
            group.left.insert(rank, exit);
        }
    }

    pub(super) fn exited(
        &mut self,
        now: Timestamp,
        (job, generation): (JobId, Generation),
        rank: u32,
        exit: Exit,
        fault: Option<Fault>,
        out: &mut NodeOutcome,
    ) {
        let Some(group) = self.group_mut(job, generation) else { return };
        let (Phase::Running { members, .. } | Phase::Stopping { members, .. }) = &mut group.phase else { return };
        let Some(member) = members.iter_mut().find(|m| m.process.rank == rank && m.exit.is_none()) else { return };
        member.exit = Some(exit);
        out.persist = true;
        let fault = fault.or_else(|| {
            let step = group.diverged_at.filter(|_| exit != Exit::Unknown)?;
            Some(Fault::of_job(format!("its loss was no finite number at step {step}")))
        });
        let failure = if matches!(group.phase, Phase::Running { .. }) { failure(rank, exit, fault) } else { None };
        if group.phase.members().iter().all(|member| member.exit.is_some()) {
            let outcome = outcome(group, failure);
            self.conclude(job, generation, outcome, out);
        } else if let Some(cause) = failure {
            let members = group.phase.members().to_vec();
            begin_broken(group, now, members, cause, out);
            self.report(job, generation, out);
        }
    }

    pub(super) fn worker(
        &mut self,
        now: Timestamp,
        job: JobId,
        generation: Generation,
        message: WorkerMessage,
        out: &mut NodeOutcome,
    ) {
        let Some(group) = self.group_mut(job, generation).filter(|group| group.phase.may_have_processes()) else {
            out.refusal = Some(Refusal::Unknown { job, generation });
            return;
        };
        match message {
            WorkerMessage::Hello { capabilities, .. } => {
                if !group.greeted || (capabilities.is_some() && group.declared != capabilities) {
                    group.greeted = true;
                    group.declared = capabilities.or(group.declared);
                    out.persist = true;
                }
                if let Some(capabilities) = capabilities {
                    out.reports.push(NodeReport::Declared { job, generation, capabilities });
                }
                if let Some(change) = group.change {
                    out.actions.push(NodeAction::Send { job, generation, order: change.order() });
                }
                if let Phase::Stopping { stage: StopStage::Requested { kill_at, .. }, .. } = group.phase {
                    let order = WorkerOrder::Stop { checkpoint: true, grace: kill_at.since(now) };
                    out.actions.push(NodeAction::Send { job, generation, order });
                }
            }
            WorkerMessage::Step { report } => out.reports.push(NodeReport::Steps { report }),
            WorkerMessage::Checkpoint { checkpoint, duration } => {
                group.checkpoint = Some((checkpoint.clone(), duration));
                out.persist = true;
                out.reports.push(NodeReport::CheckpointWritten { job, checkpoint, duration });
            }
            WorkerMessage::Phases { phases } => {
                out.reports.push(NodeReport::StartPhases { job, generation, phases });
            }
            WorkerMessage::LossAnomaly { step, loss, usual } => {
                if loss.is_none() && group.diverged_at.is_none() {
                    group.diverged_at = Some(step);
                    out.persist = true;
                }
                out.reports.push(NodeReport::LossAnomaly { job, generation, step, loss, usual });
            }
            WorkerMessage::Stopped { .. } => {
                if !group.stopped {
                    group.stopped = true;
                    out.persist = true;
                }
            }
        }
    }
}

/// Why a group is broken by this exit; `None` for a clean one.
fn failure(rank: u32, exit: Exit, known: Option<Fault>) -> Option<StopCause> {
    let (exit_code, message) = match exit {
        Exit::Code(0) => return None,
        // A shell reports a death by signal as 128 + its number.
        Exit::Code(code @ 129..=192) => (Some(code), format!("rank {rank} was killed by signal {}", code - 128)),
        // Of a shell: what cannot be run, and what is not there.
        Exit::Code(code @ 126) => (Some(code), format!("rank {rank} exited with code 126: its command cannot be run")),
        Exit::Code(code @ 127) => (Some(code), format!("rank {rank} exited with code 127: its command was not found")),
        Exit::Code(code) => (Some(code), format!("rank {rank} exited with code {code}")),
        Exit::Signal(signal) => (Some(128 + signal), format!("rank {rank} was killed by signal {signal}")),
        Exit::Unknown => (None, format!("rank {rank} ended while the agent was away and left no exit status")),
    };
    let own = if exit == Exit::Unknown { Blame::Infrastructure } else { Blame::Job };
    let fault = match known {
        Some(known) => Fault { message: format!("{message}: {}", known.message), ..known },
        None => Fault { blame: own, mistake: matches!(exit, Exit::Code(126 | 127)), ..Fault::of_job(message) },
    };
    Some(StopCause::Broken { exit_code, fault })
}

/// How a group ended whose last process has just gone.
fn outcome(group: &Group, failure: Option<StopCause>) -> GroupOutcome {
    let cause = match &group.phase {
        Phase::Stopping { cause, .. } => Some(cause.clone()),
        _ => failure,
    };
    match cause {
        Some(StopCause::Asked { .. }) => GroupOutcome::Stopped,
        Some(StopCause::Broken { exit_code, fault }) => GroupOutcome::Failed { exit_code, fault },
        None if group.stopped && group.asked => GroupOutcome::Stopped,
        None if group.stopped => GroupOutcome::Failed {
            exit_code: Some(0),
            fault: Fault::of_job("the workers stopped before their end without a stop command"),
        },
        None => GroupOutcome::Succeeded,
    }
}
