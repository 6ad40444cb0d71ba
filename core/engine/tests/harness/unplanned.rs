//! Rounds whose answer is for the test to give.

use std::sync::Arc;

use headway_engine::event::{Actor, Event, Known, Request, RequestId};
use headway_engine::{Change, Reply, RoundRequest};
use headway_planner::{PlanInput, Verified, plan};
use headway_types::{JobId, JobSpec, NodeReport, Plan, PlanId, Seconds};

use super::Cluster;

/// What the planning thread says of a plan made of this input.
pub fn answer(input: &PlanInput, plan: Plan) -> Event {
    let id = plan.id;
    match Verified::try_new(input, Arc::new(plan)) {
        Ok(plan) => Event::PlanReady { plan },
        Err(violation) => Event::PlanRefused { plan: id, violation: violation.to_string() },
    }
}

fn by_ada(body: Request) -> Event {
    Event::Request { request: RequestId(1), actor: Actor::User("ada".into()), body }
}

impl Cluster {
    /// One batch whose plan request, if any, nobody answers.
    pub fn feed_unplanned(&mut self, event: Event) -> Vec<Change> {
        let outcome = self.engine.handle(self.now, vec![event]);
        self.engine.check_invariants().unwrap();
        let changes = outcome.changes.clone();
        self.commit(outcome);
        changes
    }

    /// Submits jobs together; the round that this calls for comes back unanswered.
    pub fn submit_unplanned(&mut self, jobs: Vec<JobSpec>) -> (Vec<JobId>, PlanInput) {
        let (replies, round) =
            self.calls_for_round(Request::Submit { jobs, idempotency: None, known: Known::default() });
        match replies.into_iter().next() {
            Some(Reply::Submitted { jobs }) => (jobs.iter().map(|job| job.id).collect(), round.input()),
            other => panic!("{other:?}"),
        }
    }

    /// What calls for a round, which nobody answers.
    pub fn asked_for(&mut self, body: Request) -> Arc<RoundRequest> {
        self.calls_for_round(body).1
    }

    /// The input of such a round.
    pub fn round_for(&mut self, body: Request) -> PlanInput {
        self.asked_for(body).input()
    }

    /// At once, or when the arrivals are gathered.
    fn calls_for_round(&mut self, body: Request) -> (Vec<Reply>, Arc<RoundRequest>) {
        let mut outcome = self.engine.handle(self.now, vec![by_ada(body)]);
        let mut round = outcome.plan_request.take();
        let replies = self.commit(outcome);
        if round.is_none() {
            self.now = self.now + self.policy.round_pause;
            let mut outcome = self.engine.handle(self.now, vec![Event::Tick]);
            round = outcome.plan_request.take();
            self.commit(outcome);
        }
        (replies, round.expect("this calls for a round"))
    }

    /// One request while a round is under way.
    pub fn act(&mut self, body: Request) {
        self.feed_unplanned(by_ada(body));
    }

    pub fn plan(&mut self, input: &PlanInput) -> Plan {
        plan(input, &mut self.curves).unwrap()
    }

    /// The planner breaks down over the round.
    pub fn fail(&mut self, plan: PlanId) {
        self.feed_unplanned(Event::PlanFailed { plan, message: "the planner panicked: no such row".into() });
    }

    /// How long it takes until the next round begins, if one does within the time; nodes go on beating.
    pub fn until_next_round(&mut self, most: u32) -> Option<(u32, PlanInput)> {
        (1..=most).find_map(|second| {
            self.now = self.now + Seconds(1.0);
            let mut events: Vec<Event> =
                (0..self.node_count()).map(|it| self.event(it, NodeReport::Heartbeat)).collect();
            events.push(Event::Tick);
            let mut outcome = self.engine.handle(self.now, events);
            let round = outcome.plan_request.take();
            self.commit(outcome);
            round.map(|round| (second, round.input()))
        })
    }

    /// Begins round after round and answers each: with no plan where it `breaks`. Returns how many did, and how long it all took.
    pub fn answer_rounds(&mut self, rounds: usize, breaks: impl Fn(&PlanInput) -> bool) -> (usize, u32) {
        let (mut broken, mut seconds) = (0, 0);
        for _ in 0..rounds {
            let (waited, round) = self.until_next_round(120).expect("rounds go on");
            seconds += waited;
            if breaks(&round) {
                broken += 1;
                self.fail(round.plan);
            } else {
                let plan = self.plan(&round);
                self.feed_unplanned(answer(&round, plan));
            }
        }
        (broken, seconds)
    }
}
