//! The virtual workers between the nodes' ledgers and their gang's run: orders and signals in, words and exits out.

use std::collections::BTreeMap;
use std::time::Duration;

use headway_emulation::{Hearing, RunEvent, Said};
use headway_node::{Exit, NodeEvent, Signal, WorkerMessage, WorkerOrder};
use headway_types::{Fault, NodeReport, Seconds, Timestamp};

use super::emulation::Emulation;
use super::gang::Part;
use super::queue::{Due, Key};

/// From SIGTERM to the exit of a process with nothing to save.
const DIE: Seconds = Seconds(0.5);
/// Longest stretch of steps one report covers, and the pause between rank times: in the fleet's time, but no shorter
/// than in wall time, so that a fast clock does not flood the scheduler.
const REPORT: (Seconds, Duration) = (Seconds(10.0), Duration::from_secs(1));
const RANK_TIMES: (Seconds, Duration) = (Seconds(30.0), Duration::from_secs(3));
/// 128 + SIGTERM.
const TERMINATED: Exit = Exit::Code(143);
const KILLED: Exit = Exit::Signal(9);

impl Emulation {
    pub(super) fn report_every(&self) -> Seconds {
        self.pause(REPORT.0, REPORT.1)
    }

    /// What a ledger tells the workers on its node reaches the gang, as rank 0 passes it on to all.
    pub(super) fn send(&mut self, now: Timestamp, key: Key, order: WorkerOrder) {
        let event = match order {
            WorkerOrder::Configure { revision, configuration, .. } => RunEvent::Configure { revision, configuration },
            WorkerOrder::Checkpoint => RunEvent::Save,
            WorkerOrder::Stop { checkpoint, .. } => {
                if let Some(gang) = self.gangs.get_mut(&key) {
                    gang.ordered = true;
                }
                RunEvent::Stop { checkpoint }
            }
        };
        self.run_event(now, key, event);
    }

    pub(super) fn signal(&mut self, now: Timestamp, node: usize, key: Key, signal: Signal) {
        let Some(gang) = self.gangs.get(&key).filter(|gang| gang.is_up_on(node)) else { return };
        match (signal, gang.run.hearing()) {
            (Signal::Kill, _) => self.queue.push(now, all_exit(node, key, KILLED)),
            (Signal::Terminate, Hearing::Orderly) => self.run_event(now, key, RunEvent::Stop { checkpoint: true }),
            (Signal::Terminate, Hearing::Broken) => self.queue.push(now + DIE, all_exit(node, key, TERMINATED)),
            // What an emulated worker trains handles no signal but the usual.
            (Signal::Terminate, Hearing::Deaf) | (Signal::Notice { .. }, _) => {}
        }
    }

    /// One event into a gang's run; what its workers say goes to their nodes.
    pub(super) fn run_event(&mut self, now: Timestamp, key: Key, event: RunEvent) {
        let Some(gang) = self.gangs.get_mut(&key) else { return };
        if event == RunEvent::Tick {
            gang.due_at = None;
        }
        let said = gang.run.handle(now, event);
        said.into_iter().for_each(|said| self.say(now, key, said));
        let Some(gang) = self.gangs.get_mut(&key) else { return };
        if let Some(due) = gang.run.due().filter(|due| gang.due_at.is_none_or(|known| *due < known)) {
            gang.due_at = Some(due);
            self.queue.push(due, Due::Run { key });
        }
    }

    fn say(&mut self, now: Timestamp, key: Key, said: Said) {
        let Some(gang) = self.gangs.get_mut(&key) else { return };
        let first = gang.nodes[0];
        let message = match said {
            Said::Hello { capabilities } => WorkerMessage::Hello { rank: 0, capabilities: Some(capabilities) },
            Said::Phases { phases } => {
                gang.print(now, "training");
                WorkerMessage::Phases { phases }
            }
            Said::Steps { report } => WorkerMessage::Step { report },
            Said::Saved { step, samples_seen, duration } => {
                gang.print(now, &format!("saved step {step} in {:.1} s", duration.0));
                gang.checkpoint(step, samples_seen, duration)
            }
            Said::SaveFailed { step } => return gang.print(now, &format!("saving step {step} failed")),
            Said::Stopped { step, samples_seen } => {
                gang.print(now, &format!("stopped after step {step}"));
                WorkerMessage::Stopped { step, samples_seen }
            }
            Said::OutOfMemory => {
                gang.print(now, "torch.OutOfMemoryError: CUDA out of memory");
                for node in gang.nodes.clone() {
                    self.exited(now, node, key, None, Exit::Code(1), Some(Fault::out_of_memory()));
                }
                return;
            }
            Said::Exited { complete } => {
                let exit = if complete || gang.ordered { Exit::Code(0) } else { TERMINATED };
                for node in gang.nodes.clone() {
                    self.exited(now, node, key, None, exit, None);
                }
                return;
            }
        };
        let (job, generation) = key;
        self.node_event(now, first, NodeEvent::Worker { job, generation, message });
    }

    /// One rank's process of a group is gone, or all of them. The rest of the gang waits for it for ever.
    pub(super) fn exited(
        &mut self,
        now: Timestamp,
        node: usize,
        key: Key,
        rank: Option<u32>,
        exit: Exit,
        fault: Option<Fault>,
    ) {
        let Some(gang) = self.gangs.get_mut(&key).filter(|gang| gang.is_up_on(node)) else { return };
        gang.run.handle(now, RunEvent::Break);
        let living = self.nodes[node].living(key);
        let gone: Vec<u32> = living.iter().copied().filter(|one| rank.is_none_or(|rank| rank == *one)).collect();
        if gone.len() == living.len() {
            gang.parts.insert(node, Part::Gone);
        }
        let (job, generation) = key;
        for rank in gone {
            let fault = fault.clone();
            self.node_event(now, node, NodeEvent::Exited { job, generation, rank, exit, fault });
        }
    }

    /// Reports how long ranks worked, and comes again while the gang lives.
    pub(super) fn rank_times(&mut self, now: Timestamp, key: Key) {
        let Some(gang) = self.gangs.get(&key).filter(|gang| gang.is_up()) else { return };
        let (job, generation) = key;
        for node in gang.nodes.iter().map(|node| &self.nodes[*node]) {
            let ranks = node.ranks(&gang.order);
            let busy: Option<BTreeMap<u32, Seconds>> =
                ranks.map(|rank| Some((rank, gang.run.busy(now, rank)?))).collect();
            if let Some(busy) = busy {
                node.report(NodeReport::RankTimes { job, generation, busy });
            }
        }
        self.queue.push(now + self.pause(RANK_TIMES.0, RANK_TIMES.1), Due::RankTimes { key });
    }
}

fn all_exit(node: usize, key: Key, exit: Exit) -> Due {
    Due::Exited { node, key, rank: None, exit, fault: None }
}
