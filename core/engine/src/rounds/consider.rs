//! When to ask for a plan. At most one round is in flight.

use std::sync::Arc;

use headway_types::{JobId, PlanId, Seconds, Timestamp};

use super::input::take_down;
use super::{Asked, InFlight, Pinned, RoundKind, RoundRequest};
use crate::engine::Engine;
use crate::event::{Actor, Rebalancing};
use crate::facts::RoundWanted;
use crate::outcome::Refusal;
use crate::record::{Availability, PolicyMode, closed_until};

/// A job's noise scale or step time must have moved by this share since the last round to call for a new one.
const MOVED: f64 = 0.15;
/// Events are gathered while each comes within a pause of the one before, but for so many pauses at most.
const GATHERED: f64 = 5.0;

impl Engine {
    /// A round, if one is due.
    pub(crate) fn consider_round(&mut self) -> Option<Arc<RoundRequest>> {
        self.forget_trouble_of_nobody();
        self.notice_newcomers();
        self.notice_window();
        self.notice_changes();
        if self.round_due().is_none_or(|due| due > self.facts.now) || self.awaits_nodes() {
            return None;
        }
        let restraint = self.restraint();
        if !restraint.left.is_empty() {
            self.rounds.verdicts.left = Arc::clone(&restraint.left);
        }
        let (kind, asked_by) = match self.rounds.manual.take() {
            Some(Asked { plan, by, terms }) => {
                let trigger = terms.in_words(&by);
                (RoundKind { plan, trigger, terms: Some(terms), pinned: None, restraint }, Some(by))
            }
            None => {
                let trigger =
                    self.facts.round_wanted.take().map_or_else(|| "time has passed".into(), RoundWanted::in_words);
                let plan = self.facts.ids.plan(self.facts.now);
                let pinned = if std::mem::take(&mut self.rounds.pinned) {
                    Some(Pinned::ForApproval)
                } else {
                    self.outside_windows()
                };
                self.rounds.shut = matches!(pinned, Some(Pinned::Outside { .. }));
                (RoundKind { plan, trigger, terms: None, pinned, restraint }, None)
            }
        };
        self.teach_peers();
        let request = Arc::new(take_down(self.situation(), &kind));
        if request.count == 0 && asked_by.is_none() {
            if self.facts.has_demand() {
                // Whoever wants GPUs is set aside, for longer than until the next event.
                self.rounds.last_at = Some(self.facts.now);
            }
            return None;
        }
        self.rounds.last_at = Some(self.facts.now);
        self.rounds.newcomers.clear();
        self.rounds.newest = Some(Arc::clone(&request));
        self.rounds.step_times = self.situation().step_times();
        self.rounds.in_flight = Some(InFlight { request: Arc::clone(&request), kind, asked_by });
        Some(request)
    }

    /// When the next round may or must begin.
    fn round_due(&self) -> Option<Timestamp> {
        let (policy, manual) = (&self.facts.policy, self.rounds.manual.is_some());
        if self.rounds.in_flight.is_some() || (policy.mode == PolicyMode::Paused && !manual) {
            return None;
        }
        let after = |pause: Seconds| self.rounds.last_at.map_or(self.facts.now, |last| last + pause);
        let pause = policy.round_pause;
        let due = match &self.facts.round_wanted {
            _ if manual => after(pause),
            None => after(policy.round_every),
            // Whoever submits one job rarely submits only one, and the nodes of a gang let go one after another: what is decided at the
            // first of such events is wrong by the last.
            Some(wanted) => {
                let quiet = (wanted.newest + pause).min(wanted.since + Seconds(GATHERED * pause.0));
                after(pause).max(quiet)
            }
        };
        // An operator who asks for a round need not wait until the next that nobody asked for.
        let again_at = self.rounds.trouble().filter(|_| !manual).and_then(|trouble| trouble.again_at);
        Some(again_at.map_or(due, |at| due.max(at)))
    }

    /// When time alone will begin a round. One that cannot begin yet begins with the event that allows it.
    pub(crate) fn next_round(&self) -> Option<Timestamp> {
        let wanted = self.rounds.manual.is_some() || self.facts.has_demand();
        if wanted && !self.awaits_nodes() { self.round_due() } else { None }
    }

    /// A round made while nodes are still registering would take them for gone.
    fn awaits_nodes(&self) -> bool {
        self.facts.nodes.values().any(|node| matches!(node.availability, Availability::Registering { .. }))
    }

    /// Of what this batch has touched, the jobs that want GPUs and are not in the newest round.
    fn notice_newcomers(&mut self) {
        let facts = &self.facts;
        let wants = |id: &&JobId| facts.jobs.get(*id).is_some_and(|job| job.wants_gpus(facts.now));
        let touched = facts.draft.jobs.iter().filter(wants);
        let newcomers = touched.filter(|id| !self.rounds.knows(**id)).copied().collect::<Vec<_>>();
        self.rounds.newcomers.extend(newcomers);
    }

    /// What calls for a round although no event asked for one.
    fn notice_changes(&mut self) {
        if self.facts.round_wanted.is_some() {
            return;
        }
        let (facts, rounds) = (&self.facts, &self.rounds);
        let row = |id: &JobId| facts.jobs.get(id);
        let waited_out = facts.roll.waited_out(facts.now).filter(|id| !rounds.knows(*id));
        let newcomers =
            rounds.newcomers.iter().copied().filter(|id| row(id).is_some_and(|it| it.wants_gpus(facts.now)));
        let comes = waited_out.min().into_iter().chain(newcomers.take(1)).min();
        // That a running job may be moved again is no reason to ask for a round: the next one looks at it.
        let cause = comes.and_then(|id| row(&id)).map(|comes| format!("job {} wants GPUs", comes.spec.name));
        if let Some(cause) = cause {
            self.facts.ask_round(cause);
        }
    }

    /// A step report has just been heard: has the job become another than the newest round took it for?
    pub(crate) fn notice_drift(&mut self, id: JobId) {
        if self.facts.round_wanted.is_some() {
            return;
        }
        let (Some(job), Some(seen)) = (self.facts.jobs.get(&id), self.seen.jobs.get(&id)) else {
            return self.facts.impossible("nothing is known of a job that trains", Some(id), None);
        };
        let name = &job.spec.name;
        let moved = |now: f64, before: f64| (now - before).abs() > MOVED * before.abs();
        let planned = self.rounds.newest.as_ref();
        let pace = self.rounds.step_times.get(&id).zip(self.situation().expected_step_time(job, seen));
        let cause = match (pace, seen.noise_scale(), planned.and_then(|round| round.noise_scale(id))) {
            (Some((before, now)), ..) if moved(now.0, before.0) => {
                format!("steps of {name} turn out to take {:.3} s instead of {:.3} s", now.0, before.0)
            }
            (_, Some(now), None) => format!("the noise scale of {name} is known: {now:.0} tokens"),
            (_, Some(now), Some(before)) if moved(now, before) => {
                format!("the noise scale of {name} moved from {before:.0} to {now:.0} tokens")
            }
            _ => return,
        };
        self.facts.ask_round(cause);
        self.facts.unsettled = true;
    }

    /// Whoever asks alike while a round is being waited for waits for that one.
    pub(crate) fn rebalance(&mut self, actor: &Actor, terms: Rebalancing) -> Result<PlanId, Refusal> {
        self.check_terms(&terms)?;
        match &self.rounds.manual {
            Some(asked) if *asked.terms == terms => return Ok(asked.plan),
            Some(asked) => {
                return Err(Refusal::WrongState(format!(
                    "{} has asked for another rebalancing a moment ago",
                    asked.by
                )));
            }
            None => {}
        }
        let plan = self.facts.ids.plan(self.facts.now);
        self.rounds.manual = Some(Asked { plan, by: actor.clone(), terms: Arc::new(terms) });
        Ok(plan)
    }

    fn notice_window(&mut self) {
        if self.window_opens().is_some_and(|at| at <= self.facts.now) {
            self.rounds.shut = false;
            self.facts.ask_round("running jobs may be moved again".into());
        }
    }

    /// When jobs may be moved again that the newest round could not move, since no window was open.
    pub(crate) fn window_opens(&self) -> Option<Timestamp> {
        let now = self.facts.now;
        self.rounds.shut.then(|| closed_until(&self.facts.policy.move_windows, now).unwrap_or(now))
    }

    /// Why running jobs are not moved now, if the policy's windows say so.
    fn outside_windows(&self) -> Option<Pinned> {
        let windows = &self.facts.policy.move_windows;
        closed_until(windows, self.facts.now)?;
        let windows = windows.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        Some(Pinned::Outside { windows })
    }
}
