//! The loop of a simulation, its faults, and its end.

use std::collections::BTreeMap;

use headway_engine::event::{Event, SessionId};
use headway_node::{Exit, NodeEvent};
use headway_types::{AgentCommand, Generation, JobId, NodeId, NodeReport, Plan, PlanId, Seconds, Term, Timestamp};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::check::{check_end, check_gpus};
use crate::clock::{Clock, START};
use crate::gang::Gang;
use crate::node::SimNode;
use crate::scenario::{Faults, Scenario};
use crate::scheduler::Scheduler;
use crate::store::Store;

/// A broken promise, with everything needed to see it again.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("seed {seed}, {at:.3} s in: {message}")]
pub struct Failure {
    pub seed: u64,
    pub at: f64,
    pub message: String,
    /// The event log up to then.
    pub log: String,
}

/// What a simulation came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The event log as JSON lines: the same bytes for the same scenario.
    pub log: String,
    /// Jobs by final state.
    pub ended: BTreeMap<String, u32>,
    pub generations: u64,
    pub terms: u64,
    /// When the last job ended.
    pub makespan: Seconds,
}

/// Something that happens at a moment of virtual time.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Submit(usize),
    Cancel(usize),
    StartScheduler,
    EngineTick {
        term: Term,
    },
    PlanDone {
        term: Term,
        result: Result<Box<Plan>, (PlanId, String)>,
    },
    /// A report on its way over a session.
    Report {
        node: NodeId,
        session: SessionId,
        report: NodeReport,
    },
    SessionLost {
        node: NodeId,
        session: SessionId,
    },
    Command {
        node: NodeId,
        session: SessionId,
        term: Term,
        command: AgentCommand,
    },
    /// Dial the scheduler, or say that all is well.
    Pulse(NodeId),
    /// Something the node's shell tells its ledger; lost if the agent restarts before.
    Shell {
        node: NodeId,
        incarnation: u32,
        event: NodeEvent,
    },
    StartAgent {
        node: NodeId,
        reboot: bool,
    },
    /// The gang reports its next steps.
    Steps {
        job: JobId,
        generation: Generation,
    },
    /// All processes of a gang exit 0.
    Finish {
        job: JobId,
        generation: Generation,
    },
    /// A node's process of a gang is gone.
    Die {
        node: NodeId,
        job: JobId,
        generation: Generation,
        exit: Exit,
    },
    Fault(FaultKind),
    Undrain(NodeId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    SchedulerCrash,
    AgentCrash,
    NodeReboot,
    Disconnect,
    Partition,
    WorkerDeath,
    Drain,
}

pub(crate) struct World {
    pub scenario: Scenario,
    pub rng: StdRng,
    pub clock: Clock<Item>,
    pub store: Store,
    pub scheduler: Option<Scheduler>,
    pub terms: u64,
    pub sessions: u64,
    pub nodes: BTreeMap<NodeId, SimNode>,
    pub gangs: BTreeMap<(JobId, Generation), Gang>,
    /// Jobs the scheduler has acknowledged, by scenario index.
    pub acknowledged: BTreeMap<usize, JobId>,
    pub ports: u16,
}

/// Runs a scenario until every job has ended and the faults are over.
pub fn simulate(scenario: &Scenario) -> Result<Report, Box<Failure>> {
    let mut world = World::new(scenario.clone());
    let outcome = world.run();
    outcome.map_err(|message| {
        Box::new(Failure {
            seed: scenario.seed,
            at: world.clock.now.since(START).0,
            message,
            log: world.store.log.clone(),
        })
    })
}

impl World {
    fn new(scenario: Scenario) -> Self {
        let mut world = World {
            rng: StdRng::seed_from_u64(scenario.seed ^ 0x5eed),
            clock: Clock::new(),
            store: Store::default(),
            scheduler: None,
            terms: 0,
            sessions: 0,
            nodes: SimNode::fleet(&scenario.nodes),
            gangs: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            ports: 20_000,
            scenario,
        };
        world.clock.after(Seconds(0.0), Item::StartScheduler);
        let ids: Vec<NodeId> = world.nodes.keys().copied().collect();
        for id in ids {
            let delay = Seconds(world.rng.random_range(0.1..2.0));
            world.clock.after(delay, Item::Pulse(id));
        }
        for (index, job) in world.scenario.jobs.iter().enumerate() {
            world.clock.after(job.arrives, Item::Submit(index));
        }
        use FaultKind as F;
        for kind in
            [F::SchedulerCrash, F::AgentCrash, F::NodeReboot, F::Disconnect, F::Partition, F::WorkerDeath, F::Drain]
        {
            world.next_fault(kind);
        }
        world
    }

    fn run(&mut self) -> Result<Report, String> {
        let horizon = START + self.scenario.horizon;
        while let Some(item) = self.clock.next() {
            if self.clock.now > horizon {
                break;
            }
            self.take(item)?;
            check_gpus(&self.nodes)?;
            if self.is_over() {
                break;
            }
        }
        check_end(self)?;
        let mut ended = BTreeMap::new();
        for job in self.store.jobs.values() {
            *ended.entry(job.state.name().to_owned()).or_insert(0) += 1;
        }
        Ok(Report {
            log: self.store.log.clone(),
            ended,
            generations: self.store.jobs.values().map(|job| job.generation.0).sum(),
            terms: self.terms,
            makespan: self.clock.now.since(START),
        })
    }

    fn is_over(&self) -> bool {
        self.clock.now >= START + self.scenario.faults.until
            && self.acknowledged.len() == self.scenario.jobs.len()
            && self.store.jobs.values().all(|job| job.state.is_final())
            && self.store.allocations.values().all(|one| !one.holds())
    }

    fn take(&mut self, item: Item) -> Result<(), String> {
        match item {
            Item::Submit(index) => self.submit(index),
            Item::Cancel(index) => self.cancel(index),
            Item::StartScheduler => self.start_scheduler(),
            Item::EngineTick { term } => self.engine_tick(term),
            Item::PlanDone { term, result } => self.plan_done(term, result),
            Item::Report { node, session, report } => {
                let live = self.nodes.get(&node).is_some_and(|one| one.session == Some(session));
                if live { self.feed(Event::Agent { node, session, report }) } else { Ok(()) }
            }
            Item::SessionLost { node, session } => self.feed(Event::AgentDisconnected { node, session }),
            Item::Command { node, session, term, command } => {
                let live = self.nodes.get(&node).is_some_and(|one| one.session == Some(session));
                if live { self.tell_ledger(node, NodeEvent::Command { term, command }) } else { Ok(()) }
            }
            Item::Pulse(node) => self.pulse(node),
            Item::Shell { node, incarnation, event } => {
                let same = self.nodes.get(&node).is_some_and(|one| one.up && one.incarnation == incarnation);
                if same { self.shell(node, event) } else { Ok(()) }
            }
            Item::StartAgent { node, reboot } => self.start_agent(node, reboot),
            Item::Steps { job, generation } => self.steps((job, generation)),
            Item::Finish { job, generation } => self.finish((job, generation)),
            Item::Die { node, job, generation, exit } => self.die(node, (job, generation), exit),
            Item::Fault(kind) => self.fault(kind),
            Item::Undrain(node) => self.operate(headway_engine::Request::Uncordon { node }),
        }
    }

    fn next_fault(&mut self, kind: FaultKind) {
        let Some(mean) = kind.mean(&self.scenario.faults) else { return };
        let chance: f64 = self.rng.random_range(0.0001..1.0);
        let at = self.clock.now + mean * -chance.ln();
        if at < START + self.scenario.faults.until {
            self.clock.at(at, Item::Fault(kind));
        }
    }

    fn fault(&mut self, kind: FaultKind) -> Result<(), String> {
        self.next_fault(kind);
        let index = self.rng.random_range(0..self.nodes.len());
        let Some(node) = self.nodes.keys().nth(index).copied() else { return Ok(()) };
        match kind {
            FaultKind::SchedulerCrash => {
                let before = self.rng.random_bool(self.scenario.faults.crash_before_commit);
                if let Some(scheduler) = &mut self.scheduler {
                    scheduler.crash_at_next = Some(before);
                }
                Ok(())
            }
            FaultKind::AgentCrash => self.stop_agent(node, false),
            FaultKind::NodeReboot => self.stop_agent(node, true),
            FaultKind::Disconnect => {
                self.lose_session(node);
                Ok(())
            }
            FaultKind::Partition => {
                let minutes = self.rng.random_range(0.2..3.0);
                let until = self.clock.now + Seconds(60.0 * minutes);
                self.lose_session(node);
                if let Some(one) = self.nodes.get_mut(&node) {
                    one.unreachable_until = until;
                }
                Ok(())
            }
            FaultKind::WorkerDeath => {
                let victims: Vec<(JobId, Generation)> =
                    self.nodes.get(&node).map(|one| one.alive.keys().copied().collect()).unwrap_or_default();
                match victims.first() {
                    Some(key) => self.die(node, *key, Exit::Code(1)),
                    None => Ok(()),
                }
            }
            FaultKind::Drain => {
                let after = Seconds(self.rng.random_range(30.0..120.0));
                self.clock.after(after, Item::Undrain(node));
                self.operate(headway_engine::Request::Drain { node, reason: None, deadline: None })
            }
        }
    }

    pub fn moment(&mut self, from: f64, to: f64) -> Timestamp {
        self.clock.now + Seconds(self.rng.random_range(from..to))
    }
}

impl FaultKind {
    fn mean(self, faults: &Faults) -> Option<Seconds> {
        match self {
            FaultKind::SchedulerCrash => faults.scheduler_crash,
            FaultKind::AgentCrash => faults.agent_crash,
            FaultKind::NodeReboot => faults.node_reboot,
            FaultKind::Disconnect => faults.disconnect,
            FaultKind::Partition => faults.partition,
            FaultKind::WorkerDeath => faults.worker_death,
            FaultKind::Drain => faults.drain,
        }
    }
}
