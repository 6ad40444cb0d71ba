//! One batch: events, then, if anything changed or a moment has come, leases, reconcile and round, then the outcome.
//!
//! A batch costs what it touches: heartbeats and step reports that change no fact never look at the whole cluster.

use headway_types::{Seconds, Timestamp};

use crate::draft::Note;
use crate::engine::Engine;
use crate::event::{Event, Request};
use crate::outcome::Outcome;

/// A timer this early is on time.
const TIMER_ROUNDING: Seconds = Seconds(0.001);
/// Wait after a timer that came before its moment.
const EARLY_AGAIN: Seconds = Seconds(0.25);

impl Engine {
    /// Digests one batch.
    pub fn handle(&mut self, now: Timestamp, events: Vec<Event>) -> Outcome {
        let now = self.facts.now.max(now);
        self.facts.now = now;
        if let Some(asked) = self.asked_wake
            && now.since(asked).0 > self.facts.config.lease.0 / 3.0
        {
            // Paused, or busy, or the clock jumped: the silence since then was ours, not the nodes'.
            self.seen.listening_since = now;
        }
        let woken = events.iter().all(|event| *event == Event::Tick);
        for event in events {
            self.digest(event);
        }
        let mut plan_request = None;
        if self.facts.unsettled || self.asked_wake.is_some_and(|at| at <= now + TIMER_ROUNDING) {
            self.check_leases();
            self.check_standings();
            self.check_reservations();
            self.check_departures();
            self.check_proposals();
            self.check_return();
            self.reconcile();
            self.settle_dependencies();
            self.settle_arrays();
            plan_request = self.consider_round();
            self.asked_wake = self.next_wake();
            self.facts.unsettled = false;
        } else if woken {
            // The clock lags behind the timer that was set by it: asking for the same moment again would spin.
            self.asked_wake = self.asked_wake.map(|at| at.max(now + EARLY_AGAIN));
        }
        self.facts.departed.forget_old(now);
        self.facts.departed_arrays.forget_old(now);
        self.facts.keys.forget_before(now - self.facts.config.idempotency_kept);
        self.finish(plan_request)
    }

    fn digest(&mut self, event: Event) {
        match event {
            Event::Request { request, actor, body } => {
                self.facts.unsettled |= !matches!(body, Request::DryRun { .. });
                let reply = self.answer_noting(request, &actor, body);
                self.facts.draft.replies.push((request, reply));
            }
            Event::Agent { node, session, report } => self.hear(node, session, report),
            Event::AgentAhead { node, name, term } => self.node_ahead(node, name, term),
            Event::AgentRefused { node, name, why } => self.node_refused(node, &name, &why),
            Event::AgentDisconnected { node, session } => self.disconnected(node, session),
            Event::PlanReady { plan } => {
                self.facts.unsettled = true;
                self.plan_ready(plan.plan());
            }
            Event::PlanRefused { plan, violation } => {
                self.facts.unsettled = true;
                self.plan_refused(plan, &violation);
            }
            Event::PlanFailed { plan, message } => {
                self.facts.unsettled = true;
                self.plan_failed(plan, &message);
            }
            Event::PlanGivenUp { plan, message } => {
                self.facts.unsettled = true;
                self.plan_given_up(plan, message);
            }
            Event::NoticeGivenUp { notice, job, message } => {
                self.facts.note(Note::new("job.notify_failed", message).job(job));
                self.facts.draft.notices_given_up.push(notice);
            }
            Event::ClockDoubted { beyond } => self.clock_doubted(beyond),
            Event::ClockBelieved => self.clock_believed(),
            Event::StoreAway { since, message } => {
                let lasted = self.facts.now.since(since);
                let message = format!("nothing could be stored for {}: {message}", lasted.words());
                self.facts.note(Note::new("store.away", message).with("seconds", format!("{:.1}", lasted.0.max(0.0))));
            }
            Event::Told { verb, message } => self.facts.note(Note::new(verb, message)),
            Event::TookOver { from, to, cause } => self.took_over(from, &to, cause),
            Event::Tick => {}
        }
    }

    /// The earliest moment at which time alone changes something.
    fn next_wake(&self) -> Option<Timestamp> {
        let (facts, at) = (&self.facts, self.situation());
        let nodes = facts.nodes.iter().flat_map(|(id, node)| {
            let drained = node.drain_deadline().filter(|at| *at > facts.now);
            [at.lease_end(*id), node.health.due(), drained].into_iter().flatten()
        });
        let jobs = facts.live_jobs().filter_map(|job| at.job_deadline(job));
        let proposals = facts.proposals.values().map(|one| one.plan.made_at + facts.policy.proposals_last);
        let waits = facts.roll.next_end(facts.now);
        let periodic = (!facts.roll.live.is_empty()).then(|| facts.now + facts.config.reconcile_every);
        let others =
            [waits, facts.draft.repeat_at, facts.next_reservation(), self.next_round(), self.window_opens(), periodic];
        let others = others.into_iter().chain([at.behind_until(), at.next_departure()]);
        let soon = facts.now + Seconds(0.001);
        nodes.chain(jobs).chain(proposals).chain(others.flatten()).min().map(|at| at.max(soon))
    }
}
