//! The simulated scheduler process: engine, planner, commit, then answers and commands; crashes and restarts.

use headway_engine::event::{Actor, Event, IdempotencyKey, Request, RequestId, SessionId};
use headway_engine::{Engine, EngineConfig, Outcome, Reply};
use headway_planner::{CurveCache, PlanInput, plan};
use headway_types::{NodeId, NodeReport, Plan, PlanId, Seconds, Term, Timestamp};
use rand::RngExt;

use crate::world::{Item, World};

pub(crate) struct Scheduler {
    pub engine: Engine,
    curves: CurveCache,
    tick_at: Option<Timestamp>,
    /// Ticks since anything else happened.
    ticks_in_row: u32,
    /// The next outcome with changes is the last: lost before its commit (true), or committed but never acted on.
    pub crash_at_next: Option<bool>,
}

/// Requests of the scenario carry the job's index; those of operators are beyond.
const OPERATOR: RequestId = RequestId(u64::MAX);

/// An engine that wakes itself more often than this between two events from outside is in a circle.
const RESTLESS: u32 = 50;

impl World {
    pub fn start_scheduler(&mut self) -> Result<(), String> {
        self.terms += 1;
        let config = EngineConfig { restart_prior: Seconds(10.0), ..EngineConfig::default() };
        let seed = self.rng.random::<u64>();
        let engine = Engine::restore(config, Term(self.terms), seed, self.clock.now, self.store.snapshot());
        engine.check_invariants().map_err(|broken| format!("after restore: {broken}"))?;
        self.scheduler = Some(Scheduler {
            engine,
            curves: CurveCache::default(),
            tick_at: None,
            ticks_in_row: 0,
            crash_at_next: None,
        });
        self.feed(Event::Tick)
    }

    fn crash_scheduler(&mut self) {
        self.scheduler = None;
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        for id in ids {
            self.lose_session(id);
        }
        let back = self.moment(1.0, 60.0);
        self.clock.at(back, Item::StartScheduler);
    }

    /// One batch through the engine. Nothing happens while the scheduler is down.
    pub fn feed(&mut self, event: Event) -> Result<(), String> {
        let now = self.clock.now;
        let Some(scheduler) = &mut self.scheduler else { return Ok(()) };
        if event != Event::Tick {
            scheduler.ticks_in_row = 0;
        }
        let outcome = scheduler.engine.handle(now, vec![event]);
        scheduler.engine.check_invariants().map_err(|broken| broken.to_string())?;
        let illegal = scheduler.engine.illegal_transitions();
        let crash = scheduler.crash_at_next.filter(|_| !outcome.changes.is_empty());
        if crash == Some(true) {
            self.crash_scheduler();
            return Ok(());
        }
        self.store.commit(&outcome.changes)?;
        if illegal > 0 {
            return Err("an illegal transition was tried".into());
        }
        if crash == Some(false) {
            self.crash_scheduler();
            return Ok(());
        }
        self.act(outcome);
        Ok(())
    }

    fn act(&mut self, outcome: Outcome) {
        self.store.observe(&outcome.observations);
        for (RequestId(request), reply) in outcome.replies {
            if let Reply::Submitted { jobs, .. } = reply
                && let Some(job) = jobs.first()
            {
                self.acknowledged.insert(request as usize, job.id);
            }
        }
        for (node, command) in outcome.commands {
            self.send_command(node, command);
        }
        if let Some(input) = outcome.plan_request {
            self.make_plan(&input);
        }
        let term = Term(self.terms);
        if let (Some(wake), Some(scheduler)) = (outcome.wake_at, &mut self.scheduler)
            && scheduler.tick_at.is_none_or(|at| wake < at)
        {
            scheduler.tick_at = Some(wake);
            self.clock.at(wake, Item::EngineTick { term });
        }
    }

    fn make_plan(&mut self, input: &PlanInput) {
        let Some(scheduler) = &mut self.scheduler else { return };
        let result = plan(input, &mut scheduler.curves).map(Box::new).map_err(|error| (input.plan, error.to_string()));
        let done = self.moment(0.02, 1.5);
        let term = Term(self.terms);
        self.clock.at(done, Item::PlanDone { term, result });
    }

    pub fn plan_done(&mut self, term: Term, result: Result<Box<Plan>, (PlanId, String)>) -> Result<(), String> {
        if term != Term(self.terms) {
            return Ok(());
        }
        match result {
            Ok(plan) => self.feed(Event::PlanReady { plan }),
            Err((plan, message)) => Err(format!("no plan {plan}: {message}")),
        }
    }

    pub fn engine_tick(&mut self, term: Term) -> Result<(), String> {
        if term != Term(self.terms) {
            return Ok(());
        }
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.tick_at = scheduler.tick_at.filter(|at| *at > self.clock.now);
            scheduler.ticks_in_row += 1;
            if scheduler.ticks_in_row > RESTLESS {
                return Err(format!("the engine woke {RESTLESS} times in a row with nothing to do"));
            }
        }
        self.feed(Event::Tick)
    }

    /// The client repeats its submission, under the same key, until it is acknowledged.
    pub fn submit(&mut self, index: usize) -> Result<(), String> {
        if self.acknowledged.contains_key(&index) {
            if let Some(after) = self.scenario.jobs[index].cancelled_after {
                self.clock.after(after, Item::Cancel(index));
            }
            return Ok(());
        }
        let spec = self.scenario.jobs[index].spec.clone();
        let key = IdempotencyKey {
            principal: "ada".into(),
            route: "POST /jobs".into(),
            key: spec.name.clone(),
            request_hash: spec.name.clone(),
        };
        let body = Request::Submit { jobs: vec![spec], idempotency: Some(key) };
        let request = RequestId(index as u64);
        self.clock.after(Seconds(5.0), Item::Submit(index));
        self.feed(Event::Request { request, actor: Actor::User("ada".into()), body })
    }

    pub fn cancel(&mut self, index: usize) -> Result<(), String> {
        let Some(job) = self.acknowledged.get(&index).copied() else { return Ok(()) };
        if self.scheduler.is_none() {
            self.clock.after(Seconds(5.0), Item::Cancel(index));
        }
        self.operate(Request::Cancel { job, reason: None, grace: None })
    }

    pub fn operate(&mut self, body: Request) -> Result<(), String> {
        if let (None, Request::Uncordon { node }) = (&self.scheduler, &body) {
            self.clock.after(Seconds(5.0), Item::Undrain(*node));
        }
        self.feed(Event::Request { request: OPERATOR, actor: Actor::User("root".into()), body })
    }

    /// An agent has dialled: a new session opens with everything its ledger holds.
    pub fn open_session(&mut self, node: NodeId) -> Result<(), String> {
        self.sessions += 1;
        let session = SessionId(self.sessions);
        let Some(one) = self.nodes.get_mut(&node) else { return Ok(()) };
        one.session = Some(session);
        one.reported_at = self.clock.now;
        one.commanded_at = self.clock.now;
        let report =
            NodeReport::Registered { inventory: Box::new(one.inventory.clone()), groups: one.ledger.statuses() };
        self.send_report(node, report);
        let term = Term(self.terms);
        self.tell_ledger(node, headway_node::NodeEvent::SessionOpened { term })
    }
}
