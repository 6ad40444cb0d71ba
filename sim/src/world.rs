//! The loop of a simulation and its end.

use std::collections::{BTreeMap, BTreeSet};

use headway_emulation::Mishaps;
use headway_engine::record::{Allocation, EventRecord, Job};
use headway_node::Exit;
use headway_planner::{CurveCache, PlanInput};
use headway_types::{Generation, IdSource, JobId, NodeId, Plan, Seconds, Timestamp};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::account::{GpuTime, Meter};
use crate::client::Pending;
use crate::clock::{Clock, START};
use crate::deed::{Deed, Moment};
use crate::faults::{Chance, FaultKind};
use crate::gang::Gang;
use crate::item::Item;
use crate::network::Link;
use crate::node::SimNode;
use crate::scenario::{Oversight, Scenario};
use crate::scheduler::{HostClock, Server};
use crate::store::Store;
use crate::watcher::{Unwatched, Watcher};

/// A broken promise, with everything needed to see it again.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("seed {seed}, {at:.3} s in: {message}")]
pub struct Failure {
    pub seed: u64,
    pub at: f64,
    pub message: String,
    /// What was committed up to then.
    pub events: Vec<EventRecord>,
    /// The history line by line, where the scenario asks for it.
    pub diary: Vec<String>,
}

/// What a simulation came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The event log: the same for the same scenario.
    pub events: Vec<EventRecord>,
    pub diary: Vec<String>,
    /// Jobs by the state they ended in.
    pub ended: BTreeMap<String, u32>,
    /// Jobs that still wait at the horizon, and what they say why.
    pub waiting: BTreeMap<String, String>,
    pub generations: u64,
    pub terms: u64,
    /// What went wrong, and how often.
    pub faults: BTreeMap<String, u64>,
    pub gpu_time: GpuTime,
    /// Until the last job had ended.
    pub makespan: Seconds,
    /// What was planned and the plan of it, where the scenario keeps them.
    pub rounds: Vec<(PlanInput, Plan)>,
    /// Rows at the end: jobs by their place in the scenario, and every allocation there was.
    pub jobs: BTreeMap<usize, Job>,
    pub allocations: Vec<Allocation>,
}

/// Longer after the last fault than anything stands still.
const TIDY_AFTER: Seconds = Seconds(300.0);

pub(crate) type Key = (JobId, Generation);

pub(crate) struct World<'a> {
    pub scenario: Scenario,
    pub watcher: &'a mut dyn Watcher,
    pub mishaps: Option<Mishaps>,
    pub rng: StdRng,
    pub clock: Clock<Item>,
    pub host_clock: HostClock,
    pub store: Store,
    pub servers: BTreeMap<u64, Server>,
    pub last_server: u64,
    pub terms: u64,
    /// How long the scheduler stays away after its next death, where a deed says so.
    pub crash_back_after: Option<Seconds>,
    pub curves: CurveCache,
    pub links: BTreeMap<u64, Link>,
    pub last_link: u64,
    pub nodes: Vec<SimNode>,
    /// Where each node is in the list.
    pub places: BTreeMap<NodeId, usize>,
    pub ids: IdSource,
    pub gangs: BTreeMap<Key, Gang>,
    /// Checkpoints that cannot be loaded.
    pub rotten: BTreeSet<String>,
    /// Generations an operator has written off, perhaps wrongly.
    pub vouched: BTreeSet<Key>,
    pub pending: BTreeMap<u64, Pending>,
    pub last_request: u64,
    /// Jobs the scheduler has acknowledged, by scenario index.
    pub acknowledged: BTreeMap<usize, JobId>,
    pub ports: u16,
    pub meter: Meter,
    /// Nodes whose account must be brought up to date.
    pub touched: BTreeSet<usize>,
    pub tried: BTreeMap<String, u64>,
    verbs: BTreeMap<String, u32>,
    due: Vec<Deed>,
    pub diary: Option<Vec<String>>,
    pub rounds: Vec<(PlanInput, Plan)>,
    /// Found where no error could be returned.
    pub broken: Option<String>,
}

/// Runs a scenario until every job has ended and the faults are over.
pub fn simulate(scenario: &Scenario) -> Result<Report, Box<Failure>> {
    simulate_watched(scenario, &mut Unwatched)
}

/// The same while someone looks on.
pub fn simulate_watched(scenario: &Scenario, watcher: &mut dyn Watcher) -> Result<Report, Box<Failure>> {
    let mut world = World::new(scenario.clone(), watcher);
    let outcome = world.run();
    let at = world.clock.now.since(START).0;
    outcome.map_err(|message| {
        let (events, diary) = (world.store.events, world.diary.unwrap_or_default());
        Box::new(Failure { seed: scenario.seed, at, message, events, diary })
    })
}

impl<'a> World<'a> {
    fn new(scenario: Scenario, watcher: &'a mut dyn Watcher) -> Self {
        let (nodes, ids) = SimNode::fleet(&scenario.nodes);
        let mut world = World {
            rng: StdRng::seed_from_u64(scenario.seed ^ 0x5eed),
            clock: Clock::new(),
            host_clock: HostClock::default(),
            store: Store::new(scenario.policy.clone()),
            servers: BTreeMap::new(),
            last_server: 0,
            terms: 0,
            crash_back_after: None,
            curves: CurveCache::default(),
            links: BTreeMap::new(),
            last_link: 0,
            meter: Meter::new(nodes.len()),
            touched: (0..nodes.len()).collect(),
            places: nodes.iter().enumerate().map(|(index, node)| (node.inventory.node, index)).collect(),
            nodes,
            ids,
            gangs: BTreeMap::new(),
            rotten: BTreeSet::new(),
            vouched: BTreeSet::new(),
            pending: BTreeMap::new(),
            last_request: 0,
            acknowledged: BTreeMap::new(),
            ports: 20_000,
            tried: BTreeMap::new(),
            verbs: BTreeMap::new(),
            due: Vec::new(),
            diary: scenario.diary.then(Vec::new),
            rounds: Vec::new(),
            broken: None,
            mishaps: crate::hidden::mishaps(&scenario.hidden, scenario.nodes.len()),
            watcher,
            scenario,
        };
        world.clock.after(Seconds(0.0), Item::StartServer);
        for node in 0..world.nodes.len() {
            let delay = Seconds(world.rng.random_range(0.1..2.0));
            world.clock.after(delay, Item::Pulse(node));
        }
        for index in 0..world.scenario.jobs.len() {
            world.clock.after(world.scenario.jobs[index].arrives, Item::Submit(index));
        }
        for act in world.scenario.script.clone() {
            if let Moment::At(at) = act.when {
                world.clock.after(at, Item::Deed(act.deed));
            }
        }
        let kinds: Vec<FaultKind> = world.scenario.faults.every.keys().copied().collect();
        kinds.into_iter().for_each(|kind| world.next_fault(kind));
        world.expect_mishap();
        let loses =
            [Chance::ReportLost, Chance::CommandLost].iter().any(|one| world.scenario.faults.share.contains_key(one));
        world.clock.after(world.scenario.faults.until + TIDY_AFTER, Item::TidyUp);
        if loses {
            world.clock.after(world.scenario.faults.until, Item::BreakAll);
        }
        world
    }

    fn run(&mut self) -> Result<Report, String> {
        let horizon = START + self.scenario.horizon;
        while let Some(item) = self.clock.next_before(horizon) {
            self.take(item)?;
            for deed in std::mem::take(&mut self.due) {
                self.apply(deed);
            }
            if let Some(broken) = self.broken.take() {
                return Err(broken);
            }
            if self.scenario.oversight == Oversight::Full {
                self.measure();
            }
            if self.is_over() {
                break;
            }
        }
        self.touched = (0..self.nodes.len()).collect();
        self.clock.now = if self.scenario.cut { horizon } else { self.clock.now };
        self.measure();
        if self.scenario.oversight == Oversight::Full {
            self.check_account()?;
        }
        let waiting = self.check_end()?;
        let mut ended = BTreeMap::new();
        for job in self.store.jobs.values() {
            *ended.entry(job.state.kind().to_string()).or_insert(0) += 1;
        }
        Ok(Report {
            events: std::mem::take(&mut self.store.events),
            diary: self.diary.take().unwrap_or_default(),
            ended,
            waiting,
            generations: self.store.jobs.values().map(|job| job.generation.0).sum(),
            terms: self.terms,
            faults: std::mem::take(&mut self.tried),
            gpu_time: self.meter.time.clone(),
            makespan: self.clock.now.since(START),
            rounds: std::mem::take(&mut self.rounds),
            jobs: self
                .acknowledged
                .iter()
                .filter_map(|(index, id)| Some((*index, self.store.jobs.get(id)?.clone())))
                .collect(),
            allocations: std::mem::take(&mut self.store.allocations).into_values().collect(),
        })
    }

    fn is_over(&self) -> bool {
        !self.scenario.cut
            && self.acknowledged.len() == self.scenario.jobs.len()
            && self.store.jobs.values().all(|job| job.state.is_final())
            && self.store.held.is_empty()
    }

    /// What is stopped takes nothing: its messages wait until it goes on.
    fn held_until(&self, item: &Item) -> Option<Timestamp> {
        let server = |id: &u64| self.servers.get(id).and_then(|server| server.paused_until);
        let agent = |node: &usize| self.nodes[*node].paused_until;
        let gang = |key: &Key| self.gangs.get(key).and_then(|gang| gang.paused_until);
        let until = match item {
            Item::Arrive { server: id, .. }
            | Item::Batch { server: id }
            | Item::EngineTick { server: id }
            | Item::PlanDone { server: id, .. } => server(id),
            Item::Up { link, .. } | Item::LinkLost { link } => server(&self.links.get(link)?.server),
            Item::Down { link, .. } | Item::Welcome { link } => agent(&self.links.get(link)?.node),
            Item::Pulse(node) | Item::Shell { node, .. } | Item::Born { node, .. } => agent(node),
            Item::Train { key } => gang(key),
            Item::Die { exit: Exit::Signal(9), .. } => None,
            Item::Die { node, key, .. } => self.nodes[*node].alive.get(key).and_then(|group| group.paused_until),
            _ => None,
        };
        until.filter(|until| *until > self.clock.now)
    }

    fn take(&mut self, item: Item) -> Result<(), String> {
        if let Some(until) = self.held_until(&item) {
            self.clock.at(until, item);
            return Ok(());
        }
        match item {
            Item::StartServer => self.start_server()?,
            Item::Batch { server } => self.batch(server)?,
            Item::EngineTick { server } => self.engine_tick(server)?,
            Item::PlanDone { server, result } => self.plan_done(server, result)?,
            Item::Down { link, serial, command, late } => self.deliver_down(link, serial, command, late)?,
            Item::Welcome { link } => self.welcome(link)?,
            Item::Shell { node, incarnation, event } => {
                if self.nodes[node].up && self.nodes[node].incarnation == incarnation {
                    self.tell_ledger(node, event)?;
                }
            }
            Item::Born { node, incarnation, order } => {
                if self.nodes[node].up && self.nodes[node].incarnation == incarnation {
                    self.born(node, incarnation, order)?;
                }
            }
            Item::StartAgent { node, comeback } => self.start_agent(node, comeback)?,
            other => self.take_quiet(other),
        }
        Ok(())
    }

    /// Items that cannot find anything broken.
    fn take_quiet(&mut self, item: Item) {
        match item {
            Item::Submit(index) => self.submit(index),
            Item::Ask(request) => self.ask(request),
            Item::AskFor(body) => self.ask_for(*body, None, false),
            Item::CancelOwn(index) => self.operate(crate::deed::Operation::Cancel { job: index }),
            Item::WriteOff(node) => self.write_off(node),
            Item::Arrive { server, event } => self.take_in(server, event),
            Item::Up { link, report, late } => self.deliver_up(link, report, late),
            Item::LinkLost { link } => self.close_server_end(link),
            Item::Pulse(node) => self.pulse(node),
            Item::Train { key } => self.train(key),
            Item::Hidden { key } => self.tick_hidden(key),
            Item::Mishap { node, mishap } => self.happen(node, mishap),
            Item::Steps { key, report, steps, duration } => self.steps(key, report, steps, duration),
            Item::Finish { key } => self.finish(key),
            Item::Abort { key } => self.abort(key),
            Item::Die { node, key, rank, exit, fault } => self.die(node, key, rank, exit, fault),
            Item::Heal { node, gpu } => self.heal(node, gpu),
            Item::Relieve { node } => self.relieve(node),
            Item::Fault(kind) => self.strike(kind),
            Item::Deed(deed) => self.apply(deed),
            Item::CorrectClock => self.host_clock.ahead = Seconds(0.0),
            Item::TidyUp => self.tidy_up(),
            Item::BreakAll => (0..self.nodes.len()).for_each(|node| self.close_agent_end(node)),
            _ => {}
        }
    }

    /// An event was committed: deeds that wait for it are due, before anything is sent.
    pub fn heard(&mut self, event: &EventRecord) {
        self.write_down(|| format!("{}: {}", event.verb, event.message));
        let seen = self.verbs.entry(event.verb.clone()).or_default();
        *seen += 1;
        let seen = *seen;
        for act in &self.scenario.script {
            match &act.when {
                Moment::Commits { verb, nth } if *verb == event.verb && *nth == seen => match &act.deed {
                    Deed::CrashScheduler { when: crate::deed::Crash::AfterCommit, back_after } => {
                        self.crash_back_after = Some(*back_after);
                        if let Some(mut server) = self.servers.last_entry() {
                            server.get_mut().crash_at_next = Some(crate::deed::Crash::AfterCommit);
                        }
                    }
                    deed => self.due.push(deed.clone()),
                },
                Moment::After { verb, nth, wait } if *verb == event.verb && *nth == seen => {
                    self.clock.after(*wait, Item::Deed(act.deed.clone()));
                }
                _ => {}
            }
        }
    }

    /// Whether a chance comes true now.
    pub fn chance(&mut self, chance: Chance) -> bool {
        let Some(share) = self.scenario.faults.share.get(&chance) else { return false };
        let comes = self.clock.now < START + self.scenario.faults.until && self.rng.random_bool(*share);
        if comes {
            *self.tried.entry(format!("{chance:?}")).or_default() += 1;
        }
        comes
    }

    /// A line of the diary; costs nothing where none is kept.
    pub fn write_down(&mut self, line: impl FnOnce() -> String) {
        let at = self.clock.now.since(START).0;
        if let Some(diary) = &mut self.diary {
            diary.push(format!("{at:9.3}  {}", line()));
        }
    }

    pub fn moment(&mut self, from: f64, to: f64) -> Timestamp {
        self.clock.now + Seconds(self.rng.random_range(from..to))
    }
}
