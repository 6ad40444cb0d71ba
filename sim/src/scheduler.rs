//! A simulated scheduler process: engine, planner, commit, then answers and commands. There may be two of them at
//! once; the term decides whose commits count.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_engine::event::{Event, RequestId};
use headway_engine::{Engine, Outcome, Reply};
use headway_planner::{PlanInput, Verified};
use headway_types::{NodeId, PlanId, Seconds, Timestamp};
use rand::RngExt;

use crate::deed::Crash;
use crate::faults::Chance;
use crate::item::Item;
use crate::scenario::Oversight;
use crate::store::CommitError;
use crate::world::World;

pub(crate) struct Server {
    pub engine: Engine,
    inbox: Vec<Event>,
    batch_due: bool,
    tick_at: Option<Timestamp>,
    /// Wakes since anything came from outside, and since when.
    restless: (Timestamp, u32),
    pub crash_at_next: Option<Crash>,
    pub paused_until: Option<Timestamp>,
    /// Newest session per node.
    pub links: BTreeMap<NodeId, u64>,
    pub sessions: u64,
    /// Commands sent.
    pub commands: u64,
}

/// The clock of the schedulers' host.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostClock {
    pub ahead: Seconds,
    /// What it shows, and until when it does.
    pub frozen: Option<(Timestamp, Timestamp)>,
}

/// Longest wait for more events before a batch is digested, and most events of one.
const BATCH_WAIT: Seconds = Seconds(0.005);
const BATCH: usize = 512;

/// An engine that wakes itself more often than this within `CALM` without anything from outside is in a circle.
const RESTLESS: u32 = 100;
const CALM: Seconds = Seconds(10.0);

impl World<'_> {
    /// What the schedulers' host shows.
    pub fn host_now(&self) -> Timestamp {
        match self.host_clock.frozen {
            Some((shown, until)) if self.clock.now < until => shown,
            _ => self.clock.now + self.host_clock.ahead,
        }
    }

    pub fn start_server(&mut self) -> Result<(), String> {
        let term = self.store.begin_term();
        self.terms = term.0;
        self.last_server += 1;
        let id = self.last_server;
        let seed = self.rng.random::<u64>();
        let engine = Engine::restore(self.scenario.config.clone(), term, seed, self.host_now(), self.store.snapshot());
        engine.check_invariants().map_err(|broken| format!("after restore: {broken}"))?;
        self.write_down(|| format!("a scheduler begins {term}"));
        let server = Server {
            engine,
            inbox: Vec::new(),
            batch_due: false,
            tick_at: None,
            restless: (self.clock.now, 0),
            crash_at_next: None,
            paused_until: None,
            links: BTreeMap::new(),
            sessions: 0,
            commands: 0,
        };
        self.servers.insert(id, server);
        self.take_in(id, Event::Tick);
        Ok(())
    }

    /// The process is gone; agents notice at their next pulse. Another begins after a while, unless one leads already.
    pub fn crash_server(&mut self, id: u64, back_after: Option<Seconds>) {
        let Some(server) = self.servers.remove(&id) else { return };
        for link in server.links.values() {
            if let Some(link) = self.links.get_mut(link) {
                link.server_end = false;
            }
        }
        if let Some(after) = back_after {
            self.clock.after(after, Item::StartServer);
        }
    }

    /// An event for a scheduler's next batch.
    pub fn take_in(&mut self, id: u64, event: Event) {
        let Some(server) = self.servers.get_mut(&id) else { return };
        if event != Event::Tick {
            server.restless = (self.clock.now, 0);
        }
        server.inbox.push(event);
        if !server.batch_due {
            server.batch_due = true;
            self.clock.after(BATCH_WAIT, Item::Batch { server: id });
        }
    }

    /// One batch: decide, commit, act.
    pub fn batch(&mut self, id: u64) -> Result<(), String> {
        let now = self.host_now();
        let Some(server) = self.servers.get_mut(&id) else { return Ok(()) };
        let rest = server.inbox.split_off(server.inbox.len().min(BATCH));
        let events = std::mem::replace(&mut server.inbox, rest);
        server.batch_due = !server.inbox.is_empty();
        if server.batch_due {
            self.clock.after(Seconds(0.0), Item::Batch { server: id });
        }
        let outcome = server.engine.handle(now, events);
        // In a day of a large cluster most batches change no fact, and looking at every GPU each time would take hours.
        let looks = self.scenario.oversight == Oversight::Full;
        if looks && (!self.scenario.cut || !outcome.changes.is_empty()) {
            server.engine.check_invariants().map_err(|broken| broken.to_string())?;
        }
        let term = server.engine.term();
        let faults = (server.engine.illegal_transitions(), server.engine.impossible_states());
        if faults != (0, 0) {
            return Err(format!("{} illegal transitions were tried, {} impossible states met", faults.0, faults.1));
        }
        if !outcome.changes.is_empty() && !self.committed(id, term, &outcome)? {
            return Ok(());
        }
        self.act(id, now, outcome);
        Ok(())
    }

    /// Writes the outcome down; false where the scheduler dies of it or must reload.
    fn committed(&mut self, id: u64, term: headway_types::Term, outcome: &Outcome) -> Result<bool, String> {
        let crash = self.servers.get(&id).and_then(|server| server.crash_at_next);
        if crash == Some(Crash::BeforeCommit) {
            self.write_down(|| "the scheduler dies before the commit".into());
            self.come_back(id);
            return Ok(false);
        }
        if self.chance(Chance::CommitFails) {
            self.write_down(|| "a commit fails, the scheduler reloads".into());
            self.reload(id);
            return Ok(false);
        }
        match self.store.commit(term, &outcome.changes) {
            Ok(()) => {}
            Err(CommitError::Broken(message)) => return Err(message),
            Err(CommitError::OldTerm) => {
                self.write_down(|| format!("the commit under {term} is refused, the old leader gives up"));
                self.crash_server(id, None);
                return Ok(false);
            }
        }
        self.after_commit(&outcome.changes)?;
        if self.servers.get(&id).and_then(|server| server.crash_at_next) == Some(Crash::AfterCommit) {
            self.write_down(|| "the scheduler dies after the commit, before anything is sent".into());
            self.come_back(id);
            return Ok(false);
        }
        if self.chance(Chance::CommitUnknown) {
            self.write_down(|| "a commit is written but reported failed, the scheduler reloads".into());
            self.reload(id);
            return Ok(false);
        }
        Ok(self.servers.contains_key(&id))
    }

    fn come_back(&mut self, id: u64) {
        let after = self.crash_back_after;
        let after = after.unwrap_or_else(|| Seconds(self.rng.random_range(1.0..60.0)));
        self.crash_server(id, Some(after));
    }

    fn reload(&mut self, id: u64) {
        let after = Seconds(self.rng.random_range(0.1..2.0));
        self.crash_server(id, Some(after));
    }

    fn act(&mut self, id: u64, now: Timestamp, outcome: Outcome) {
        self.store.observe(&outcome.observations);
        for (RequestId(request), reply) in outcome.replies {
            if !self.chance(Chance::AnswerLost) {
                self.answered(request, reply);
            }
        }
        for (node, command) in outcome.commands {
            self.send_command(id, node, command);
        }
        for (node, session, reason) in outcome.refused {
            self.write_down(|| format!("a session of node {node} is refused: {reason}"));
            let link = self.servers.get(&id).and_then(|server| server.links.get(&node)).copied();
            if let Some(link) = link.filter(|link| self.links.get(link).is_some_and(|one| one.session == session)) {
                self.close_server_end(link);
            }
        }
        if let Some(request) = outcome.plan_request {
            self.make_plan(id, &request.input());
        }
        if let (Some(wake), Some(server)) = (outcome.wake_at, self.servers.get_mut(&id)) {
            // The timer counts how long, not until when: a jump of the clock does not move it.
            let at = self.clock.now + wake.since(now);
            if server.tick_at.is_none_or(|known| at < known) {
                server.tick_at = Some(at);
                self.clock.at(at, Item::EngineTick { server: id });
            }
        }
    }

    fn make_plan(&mut self, server: u64, input: &PlanInput) {
        let made = self.watcher.round(input, &mut self.curves).map_err(|error| (input.plan, error.to_string()));
        if let (Ok(plan), true) = (&made, self.scenario.keep_rounds) {
            self.rounds.push((input.clone(), plan.clone()));
        }
        let result = made.and_then(|plan| match Verified::try_new(input, Arc::new(plan)) {
            Ok(plan) => Ok(Event::PlanReady { plan }),
            Err(violation) => Err((input.plan, format!("it breaks a rule: {violation}"))),
        });
        let done = self.moment(0.02, 1.5);
        self.clock.at(done, Item::PlanDone { server, result });
    }

    pub fn plan_done(&mut self, server: u64, result: Result<Event, (PlanId, String)>) -> Result<(), String> {
        if !self.servers.contains_key(&server) {
            return Ok(());
        }
        match result {
            Ok(answer) => {
                self.take_in(server, answer);
                Ok(())
            }
            Err((plan, message)) => Err(format!("no plan {plan}: {message}")),
        }
    }

    pub fn engine_tick(&mut self, id: u64) -> Result<(), String> {
        let now = self.clock.now;
        let Some(server) = self.servers.get_mut(&id) else { return Ok(()) };
        server.tick_at = server.tick_at.filter(|at| *at > now);
        if now.since(server.restless.0).0 > CALM.0 {
            server.restless = (now, 0);
        }
        server.restless.1 += 1;
        if server.restless.1 > RESTLESS {
            return Err(format!("the engine woke {RESTLESS} times within {} s with nothing to do", CALM.0));
        }
        self.take_in(id, Event::Tick);
        Ok(())
    }

    /// The scheduler a client reaches: the newest, or now and then another that believes it leads.
    pub fn reached(&mut self) -> Option<u64> {
        let ids: Vec<u64> = self.servers.keys().copied().collect();
        let astray = ids.len() > 1 && self.rng.random_bool(0.3);
        if astray { ids.first().copied() } else { ids.last().copied() }
    }

    /// Whether the request with this number was refused.
    pub fn is_refusal(reply: &Reply) -> bool {
        matches!(reply, Reply::Refused(_))
    }
}
