//! The node's loop: one event at a time into the ledger, the ledger to disk, then actions, then reports. Everything
//! that takes time runs in tasks of its own and comes back as an input.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headway_api::agent::Secrets;
use headway_node::{Ledger, NodeAction, NodeEvent, Share, Signal, WorkerMessage, WorkerOrder};
use headway_types::spec::RunPer;
use headway_types::{
    AgentCommand, Capabilities, ConditionKind, Fault, Generation, JobId, LaunchOrder, NodeInventory, NodeReport, Term,
    Timestamp,
};
use nix::sys::signal::{SIGKILL, SIGTERM};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::AgentError;
use crate::checkpoints::{self, Pruner};
use crate::clock::{now, sleep_until};
use crate::environment;
use crate::hooks;
use crate::housekeeping::Census;
use crate::journal::{self, Journal, StoreLedgerError};
use crate::launcher::Launcher;
use crate::observer::Observer;
use crate::outbox::Outbox;
use crate::prepare::{self, Prepared};
use crate::process;
use crate::recovery;
use crate::site::Site;
use crate::worker_socket::{AgentLine, Home, WorkerLines};

/// Pause between attempts to store the ledger on a full disk.
const FULL_PAUSE: Duration = Duration::from_millis(500);

/// What reaches the loop.
pub(crate) enum Input {
    Event(NodeEvent),
    /// From the scheduler. The secrets that a launch brings go to the workers it starts and are gone with it: the ledger, which is kept
    /// on disk, never has them.
    Command {
        event: NodeEvent,
        secrets: Secrets,
    },
    /// Checks are done; the port stays bound here until the launch.
    Checked {
        job: JobId,
        generation: Generation,
        result: Result<Prepared, Fault>,
    },
    /// A worker whose secret was checked; answered with the directory its checkpoints go to, or a refusal.
    Hello(Hello),
    /// A session needs its first message, and the term that the node follows.
    Register(oneshot::Sender<(NodeReport, Term)>),
    /// A session was welcomed; answered with whether its term is acceptable.
    Opened(Term, oneshot::Sender<bool>),
    /// What a group was started with; `None` if it does not run.
    Running {
        job: JobId,
        generation: Generation,
        reply: oneshot::Sender<Option<Box<LaunchOrder>>>,
    },
    /// Whether nothing more will be written to the group's logs.
    IsOver {
        job: JobId,
        generation: Generation,
        reply: oneshot::Sender<bool>,
    },
}

pub(crate) struct Hello {
    pub(crate) job: JobId,
    pub(crate) generation: Generation,
    pub(crate) rank: u32,
    /// As which its process was started, where that is known.
    pub(crate) launched: Option<u32>,
    pub(crate) capabilities: Option<Capabilities>,
    pub(crate) lines: WorkerLines,
    pub(crate) reply: oneshot::Sender<Result<Home, String>>,
}

pub(crate) struct Node {
    ledger: Ledger,
    journal: Arc<Mutex<Journal>>,
    site: Arc<Site>,
    offer: watch::Receiver<Arc<NodeInventory>>,
    launcher: Launcher,
    observer: Observer,
    outbox: Arc<Outbox>,
    inputs: mpsc::Sender<Input>,
    ports: BTreeMap<(JobId, Generation), TcpListener>,
    /// How checks that run are given up.
    preparing: BTreeMap<(JobId, Generation), CancellationToken>,
    workers: BTreeMap<(JobId, Generation), Vec<WorkerLines>>,
    /// Of the command in hand.
    secrets: Secrets,
    /// The inventory that a session registered with, until it is open.
    registered: Option<Box<NodeInventory>>,
    pruner: Pruner,
    wake_at: Option<Timestamp>,
}

impl Node {
    /// Takes up the ledger of an earlier run, or a fresh one.
    pub(crate) fn load(
        site: Arc<Site>,
        launcher: Launcher,
        observer: Observer,
        outbox: Arc<Outbox>,
        inputs: mpsc::Sender<Input>,
    ) -> Result<Self, AgentError> {
        let offer = site.inventory.changes();
        let now = site.inventory.now();
        let journal = Journal::open(site.files.clone(), Ledger::new(now.node, now.boot.clone()))?;
        let ledger = journal.ledger().clone();
        site.inventory.set_conditions(&[ConditionKind::LedgerDamaged], Vec::from_iter(journal::condition(&site.files)));
        site.census.send_replace(Census::of(&ledger));
        Ok(Self {
            ledger,
            journal: Arc::new(Mutex::new(journal)),
            site,
            offer,
            launcher,
            observer,
            outbox,
            inputs,
            ports: BTreeMap::new(),
            preparing: BTreeMap::new(),
            workers: BTreeMap::new(),
            secrets: Secrets::new(),
            registered: None,
            pruner: Pruner::default(),
            wake_at: None,
        })
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Runs until the ledger cannot be stored: an agent that cannot remember must not act.
    pub(crate) async fn run(mut self, mut inputs: mpsc::Receiver<Input>) -> Result<(), AgentError> {
        self.handle(NodeEvent::Restarted { boot: self.site.inventory.now().boot.clone() }).await?;
        loop {
            let input = tokio::select! {
                input = inputs.recv() => match input {
                    Some(input) => input,
                    None => return Ok(()),
                },
                () = sleep_until(self.wake_at) => Input::Event(NodeEvent::Tick),
                // The sender is part of the site, which this loop holds.
                _ = self.offer.changed() => {
                    let inventory = Box::new(self.offer.borrow_and_update().as_ref().clone());
                    self.outbox.push(NodeReport::Inventory { inventory });
                    continue;
                }
            };
            self.input(input).await?;
        }
    }

    async fn input(&mut self, input: Input) -> Result<(), AgentError> {
        match input {
            Input::Event(event) => {
                self.look_before_stop(&event).await?;
                self.handle(event).await
            }
            Input::Command { event, secrets } => {
                self.look_before_stop(&event).await?;
                self.secrets = secrets;
                let handled = self.handle(event).await;
                self.secrets.clear();
                handled
            }
            Input::Checked { job, generation, result } => {
                self.preparing.remove(&(job, generation));
                let result = result.map(|listener| {
                    let port = listener.as_ref().and_then(|listener| listener.local_addr().ok()).map(|a| a.port());
                    self.ports.extend(listener.map(|listener| ((job, generation), listener)));
                    port
                });
                self.handle(NodeEvent::PrepareDone { job, generation, result }).await
            }
            Input::Hello(hello) => self.hello(hello).await,
            Input::Register(reply) => {
                let inventory = Box::new(self.site.inventory.now().as_ref().clone());
                self.registered = Some(inventory.clone());
                let report = NodeReport::Registered { inventory, groups: self.ledger.statuses() };
                answer(reply, (report, self.ledger.term()));
                Ok(())
            }
            Input::Opened(term, reply) => {
                let accepted = term >= self.ledger.term();
                if accepted {
                    self.outbox.open();
                    self.report_changes_since_registration();
                }
                let result = self.handle(NodeEvent::SessionOpened { term }).await;
                answer(reply, accepted);
                result
            }
            Input::Running { job, generation, reply } => {
                let group = self.ledger.group(job, generation);
                let running = group.filter(|group| !group.phase.members().is_empty() && !group.phase.is_ended());
                answer(reply, running.map(|group| Box::new(group.order.clone())));
                Ok(())
            }
            Input::IsOver { job, generation, reply } => {
                let over = self.ledger.group(job, generation).is_none_or(|group| group.phase.is_ended());
                answer(reply, over);
                Ok(())
            }
        }
    }

    /// What the node offers may have changed since it registered, while no session was open that could have carried the change.
    fn report_changes_since_registration(&mut self) {
        let inventory = Box::new(self.site.inventory.now().as_ref().clone());
        if self.registered.take().as_ref() != Some(&inventory) {
            self.outbox.push(NodeReport::Inventory { inventory });
        }
    }

    /// Welcomes a worker before the ledger hears of it, so that its first lines come after the welcome.
    async fn hello(&mut self, hello: Hello) -> Result<(), AgentError> {
        let Hello { job, generation, rank, launched, capabilities, lines, reply } = hello;
        let group = self.ledger.group(job, generation).filter(|group| group.phase.may_have_processes());
        let Some(group) = group else {
            answer(reply, Err(format!("generation {generation} of job {job} does not run on this node")));
            return Ok(());
        };
        let directory = format!("{}/{generation}", group.order.checkpoint_dir);
        let home = Home { directory, owner: group.order.owner.clone(), ranks: self.ranks_of(&group.order, launched) };
        let own = group.order.placement.slices().iter().find(|slice| slice.node == self.ledger.node());
        // Of a group that has been greeted before, by whichever agent, devices say too little.
        let own = own.filter(|_| !group.greeted).map_or_else(Vec::new, |slice| slice.gpus.clone());
        if !group.greeted {
            // It has imported: from now on another import is not in its way.
            self.launcher.warm_up(group.order.clone());
        }
        self.observer.open(job, generation, &own);
        let _full_or_gone = lines.try_send(AgentLine::Welcome);
        let known = self.workers.entry((job, generation)).or_default();
        known.retain(|lines| !lines.is_closed());
        known.push(lines);
        answer(reply, Ok(home));
        self.handle(NodeEvent::Worker { job, generation, message: WorkerMessage::Hello { rank, capabilities } }).await
    }

    /// For which ranks a process may speak that was started as this one: the only one of a node for all of the node's.
    fn ranks_of(&self, order: &LaunchOrder, launched: Option<u32>) -> Range<u32> {
        let here = Share::of(order, self.ledger.node())
            .map_or(0..0, |share| share.first_rank..share.first_rank + share.slice.gpus.len() as u32);
        match (order.run.per, launched) {
            (RunPer::Gpu, Some(rank)) if here.contains(&rank) => rank..rank + 1,
            _ => here,
        }
    }

    /// Before a stop takes effect, reports the processes of its group that have ended by themselves: the word about them may still be
    /// on its way, and after the stop nobody can tell which came first. Nothing has been signalled yet.
    async fn look_before_stop(&mut self, event: &NodeEvent) -> Result<(), AgentError> {
        let (job, generation, processes) = match event {
            NodeEvent::Command { command: AgentCommand::Stop { job, generation, .. }, .. } => {
                let group = self.ledger.group(*job, *generation).filter(|group| !group.phase.is_stopping());
                let members = group.map_or(&[][..], |group| group.phase.members());
                let there = members.iter().filter(|member| member.exit.is_none());
                (*job, *generation, there.map(|member| member.process).collect::<Vec<_>>())
            }
            NodeEvent::Spawned { job, generation, processes } => {
                let group = self.ledger.group(*job, *generation).filter(|group| group.phase.is_stopping());
                let processes = group.map_or_else(Vec::new, |_| processes.clone());
                (*job, *generation, processes)
            }
            _ => return Ok(()),
        };
        for (rank, exit) in self.launcher.left(job, generation, &processes).await {
            self.handle(NodeEvent::Left { job, generation, rank, exit }).await?;
        }
        Ok(())
    }

    async fn handle(&mut self, event: NodeEvent) -> Result<(), AgentError> {
        if let NodeEvent::Worker { job, generation, message: WorkerMessage::Stopped { .. } } = &event {
            recovery::forget_launch(&self.site.files, *job, *generation);
        }
        let outcome = self.ledger.handle(now(), event);
        if let Some(refusal) = &outcome.refusal {
            tracing::info!(%refusal, "refused");
        }
        if outcome.persist {
            self.store().await?;
        }
        self.wake_at = outcome.wake_at;
        for action in outcome.actions {
            self.act(action);
        }
        for report in outcome.reports {
            if let NodeReport::Group { status } = &report {
                tracing::info!(job_id = %status.job, generation = %status.generation, phase = ?status.phase, "group");
            }
            self.outbox.push(report);
        }
        Ok(())
    }

    /// Returns once the ledger is stored. On a full disk that takes until there is room: training goes on meanwhile,
    /// and nothing is done or reported that could be forgotten.
    async fn store(&self) -> Result<(), AgentError> {
        loop {
            let (journal, ledger) = (Arc::clone(&self.journal), self.ledger.clone());
            let store = move || journal.lock().unwrap_or_else(PoisonError::into_inner).store(ledger);
            let stored = tokio::task::spawn_blocking(store).await;
            match stored.map_err(|error| AgentError::io("storing the ledger")(std::io::Error::other(error)))? {
                Ok(()) => break,
                Err(StoreLedgerError::Fatal(error)) => return Err(error),
                Err(StoreLedgerError::Full) => {
                    tracing::warn!("the disk is full; waiting for room to store the ledger");
                    tokio::time::sleep(FULL_PAUSE).await;
                }
            }
        }
        self.site.census.send_replace(Census::of(&self.ledger));
        Ok(())
    }

    fn act(&mut self, action: NodeAction) {
        match action {
            NodeAction::Prepare { order } => {
                let (site, inputs) = (Arc::clone(&self.site), self.inputs.clone());
                let (job, generation) = (order.job, order.generation);
                let withdrawn = CancellationToken::new();
                self.preparing.insert((job, generation), withdrawn.clone());
                tokio::spawn(async move {
                    let result = prepare::check(&order, &site, &withdrawn).await;
                    let _going_down = inputs.send(Input::Checked { job, generation, result }).await;
                });
            }
            NodeAction::Withdraw { job, generation } => {
                if let Some(withdrawn) = self.preparing.get(&(job, generation)) {
                    withdrawn.cancel();
                }
            }
            NodeAction::Epilog { order, outcome } => {
                let (site, inputs) = (Arc::clone(&self.site), self.inputs.clone());
                let (job, generation) = (order.job, order.generation);
                tokio::spawn(async move {
                    hooks::epilog(&order, &site, &outcome).await;
                    let _going_down = inputs.send(Input::Event(NodeEvent::EpilogDone { job, generation })).await;
                });
            }
            NodeAction::Spawn { order, rendezvous_port } => {
                // Given back right before the worker binds it.
                self.ports.remove(&(order.job, order.generation));
                self.launcher.launch(*order, rendezvous_port, std::mem::take(&mut self.secrets));
            }
            NodeAction::Adopt { order, processes } => self.launcher.adopt(&order, processes),
            NodeAction::Sweep { job, generation, ranks } => self.launcher.sweep(job, generation, ranks),
            NodeAction::Send { job, generation, order } => {
                if matches!(order, WorkerOrder::Stop { .. }) {
                    recovery::forget_launch(&self.site.files, job, generation);
                }
                self.send(job, generation, order);
            }
            NodeAction::Signal { job, generation, signal } => {
                let group = self.ledger.group(job, generation);
                // A stop may begin with a notice, after which a script saves and exits 0.
                let stops = group.is_none_or(|group| group.phase.is_stopping());
                if stops || !matches!(signal, Signal::Notice { .. }) {
                    recovery::forget_launch(&self.site.files, job, generation);
                }
                let members = group.map_or(&[][..], |group| group.phase.members());
                let living: Vec<_> = members.iter().filter(|member| member.exit.is_none()).collect();
                match signal {
                    Signal::Notice { signal, to } => {
                        for member in living {
                            let group = environment::mark(self.ledger.node(), job, generation);
                            process::notify_soon(
                                environment::mark_of_rank(&group, member.process.rank),
                                member.process,
                                signal,
                                to,
                            );
                        }
                    }
                    Signal::Terminate => living.iter().for_each(|one| process::signal_group(&one.process, SIGTERM)),
                    Signal::Kill => {
                        living.iter().for_each(|one| process::signal_group(&one.process, SIGKILL));
                        self.launcher.kill(job, generation);
                    }
                }
            }
            NodeAction::Prune { order, committed, keep } => {
                let (site, pruner) = (Arc::clone(&self.site), self.pruner.clone());
                tokio::spawn(async move { checkpoints::prune(&pruner, &order, &committed, keep, &site).await });
            }
            NodeAction::RemoveEmptyDirectories { order } => {
                recovery::forget_launch(&self.site.files, order.job, order.generation);
                let site = Arc::clone(&self.site);
                tokio::spawn(async move { checkpoints::remove_empty(&order, &site).await });
            }
            NodeAction::Close { job, generation } => {
                self.ports.remove(&(job, generation));
                self.workers.remove(&(job, generation));
                self.observer.close(job, generation);
            }
        }
    }

    fn send(&mut self, job: JobId, generation: Generation, order: WorkerOrder) {
        for lines in self.workers.get(&(job, generation)).into_iter().flatten() {
            if lines.try_send(order.into()).is_err() {
                tracing::debug!(job_id = %job, "a worker does not read; it hears this again when it reconnects");
            }
        }
    }
}

/// Asks the loop; `None` when it is gone.
pub(crate) async fn ask<T>(
    inputs: &mpsc::Sender<Input>,
    question: impl FnOnce(oneshot::Sender<T>) -> Input,
) -> Option<T> {
    let (reply, answer) = oneshot::channel();
    inputs.send(question(reply)).await.ok()?;
    answer.await.ok()
}

/// An asker that has gone away needs no answer.
fn answer<T>(reply: oneshot::Sender<T>, value: T) {
    let _gone = reply.send(value);
}

#[cfg(test)]
pub(crate) mod tests;
