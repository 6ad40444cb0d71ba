//! The engine's memory, and the order in which a batch is digested: events, then, if anything changed or a moment has
//! come, leases, reconcile and round, then the outcome.
//!
//! A batch costs what it touches: heartbeats and step reports that change no fact never look at the whole cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_goodput::JobModel;
use headway_types::{
    Generation, Gpu, GpuHealth, GpuUuid, IdSource, JobId, JobVerdict, NodeId, PlanId, ReservationId, Seconds, Term,
    Timestamp,
};

use crate::config::EngineConfig;
use crate::draft::Draft;
use crate::entry::{JobEntry, NodeEntry};
use crate::event::Event;
use crate::keys::Keys;
use crate::outcome::Outcome;
use crate::record::{Allocation, Availability, JobState, PlanRecord, PolicySettings, Project, Reservation};
use crate::rounds::Rounds;
use crate::snapshot::Snapshot;
use crate::view::View;

/// A timer this early is on time.
const TIMER_ROUNDING: Seconds = Seconds(0.001);
/// Wait after a timer that came before its moment.
const EARLY_AGAIN: Seconds = Seconds(0.25);

/// The state machine. `restore` is its only beginning: a first start restores an empty snapshot.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) config: EngineConfig,
    pub(crate) term: Term,
    pub(crate) ids: IdSource,
    /// Time of the batch in hand; never steps back.
    pub(crate) now: Timestamp,
    pub(crate) restored_at: Timestamp,
    /// Since when reports have reached the engine without a gap of its own making; leases count from here at the earliest.
    pub(crate) listening_since: Timestamp,
    /// What the last outcome asked for.
    asked_wake: Option<Timestamp>,
    /// Something has changed that reconcile must look at.
    pub(crate) unsettled: bool,
    /// Live jobs, and ended ones that still hold GPUs.
    pub(crate) jobs: BTreeMap<JobId, JobEntry>,
    pub(crate) nodes: BTreeMap<NodeId, NodeEntry>,
    pub(crate) allocations: BTreeMap<(JobId, Generation), Arc<Allocation>>,
    /// Allocations with an unreleased slice, by node.
    pub(crate) holding: BTreeMap<NodeId, BTreeSet<(JobId, Generation)>>,
    /// Which node offers a GPU.
    pub(crate) homes: BTreeMap<GpuUuid, NodeId>,
    pub(crate) target: Option<Arc<PlanRecord>>,
    pub(crate) proposals: BTreeMap<PlanId, Arc<PlanRecord>>,
    pub(crate) projects: BTreeMap<String, Arc<Project>>,
    /// Those that are not over.
    pub(crate) reservations: BTreeMap<ReservationId, Arc<Reservation>>,
    pub(crate) keys: Keys,
    pub(crate) policy: PolicySettings,
    pub(crate) verdicts: BTreeMap<JobId, Arc<JobVerdict>>,
    pub(crate) last_event_seq: u64,
    pub(crate) illegal_transitions: u64,
    pub(crate) rounds: Rounds,
    /// When each command whose effect is not seen yet was last sent.
    pub(crate) sent: BTreeMap<CommandKey, Timestamp>,
    pub(crate) draft: Draft,
    pub(crate) view: View,
}

/// Names a command up to repetition: job, generation, node, kind, number (a `Configure`'s revision).
pub(crate) type CommandKey = (JobId, Generation, NodeId, &'static str, u64);

impl Engine {
    /// Takes over from the store. Nothing is known of the nodes until they register, and none is declared
    /// unreachable before one full lease has passed.
    #[must_use]
    pub fn restore(config: EngineConfig, term: Term, seed: u64, now: Timestamp, snapshot: Snapshot) -> Engine {
        let running: BTreeMap<(JobId, Generation), Timestamp> = snapshot
            .jobs
            .iter()
            .filter_map(|job| match job.state {
                JobState::Running { generation, since } => Some(((job.id, generation), since)),
                _ => None,
            })
            .collect();
        let mut models = snapshot.models;
        let jobs = snapshot.jobs.into_iter().map(|job| {
            let model = models.remove(&job.id).or_else(|| job.spec.training().cloned().map(JobModel::new));
            (job.id, JobEntry::new(Arc::new(job), model.map(Arc::new)))
        });
        let nodes = snapshot.nodes.into_iter().map(|node| (node.inventory.node, NodeEntry::new(Arc::new(node))));
        let allocations = snapshot.allocations.into_iter().map(|mut one| {
            let key = (one.job, one.generation);
            // Rows of the first release do not say when their processes were up.
            one.launched_at = one.launched_at.or(running.get(&key).copied());
            (key, Arc::new(one))
        });
        let proposals: BTreeMap<PlanId, Arc<PlanRecord>> =
            snapshot.proposals.into_iter().map(|one| (one.plan.id, Arc::new(one))).collect();
        let target = snapshot.target.map(Arc::new);
        let mut engine = Engine {
            config,
            term,
            ids: IdSource::seeded(seed),
            now,
            restored_at: now,
            listening_since: now,
            asked_wake: None,
            unsettled: true,
            jobs: jobs.collect(),
            nodes: nodes.collect(),
            allocations: allocations.collect(),
            holding: BTreeMap::new(),
            homes: BTreeMap::new(),
            view: View::empty(now, term, snapshot.policy.clone()),
            target,
            proposals,
            projects: snapshot.projects.into_iter().map(|one| (one.name.clone(), Arc::new(one))).collect(),
            reservations: snapshot.reservations.into_iter().map(|one| (one.id, Arc::new(one))).collect(),
            keys: Keys::new(snapshot.idempotency),
            policy: snapshot.policy,
            verdicts: BTreeMap::new(),
            last_event_seq: snapshot.last_event_seq,
            illegal_transitions: 0,
            rounds: Rounds::new(),
            sent: BTreeMap::new(),
            draft: Draft::default(),
        };
        engine.index();
        engine.await_registrations();
        engine.show_everything();
        engine
    }

    /// Builds what is only kept for speed.
    fn index(&mut self) {
        for (key, allocation) in &self.allocations {
            for slice in allocation.placement.slices() {
                if !allocation.released.contains_key(&slice.node) {
                    self.holding.entry(slice.node).or_default().insert(*key);
                }
            }
        }
        // Where two nodes offer one GPU, it belongs to the one that was granted it: written off neither itself nor there.
        let mut offers: Vec<(bool, NodeId, &Gpu)> = Vec::new();
        for (id, entry) in &self.nodes {
            let gone = matches!(entry.node.availability, Availability::Lost { .. });
            offers.extend(
                entry.node.inventory.gpus.iter().map(|gpu| (gone || gpu.health != GpuHealth::Healthy, *id, gpu)),
            );
        }
        offers.sort_by_key(|(doubtful, id, _)| (*doubtful, *id));
        for (_, id, gpu) in offers {
            self.homes.entry(gpu.uuid.clone()).or_insert(id);
        }
    }

    /// Digests one batch.
    pub fn handle(&mut self, now: Timestamp, events: Vec<Event>) -> Outcome {
        self.now = self.now.max(now);
        if let Some(asked) = self.asked_wake
            && self.now.since(asked).0 > self.config.lease.0 / 3.0
        {
            // Paused, or busy, or the clock jumped: the silence since then was ours, not the nodes'.
            self.listening_since = self.now;
        }
        let woken = events.iter().all(|event| *event == Event::Tick);
        for event in events {
            self.digest(event);
        }
        let mut plan_request = None;
        if self.unsettled || self.asked_wake.is_some_and(|at| at <= self.now + TIMER_ROUNDING) {
            self.check_leases();
            self.check_standings();
            self.check_reservations();
            self.reconcile();
            plan_request = self.consider_round();
            self.asked_wake = self.next_wake();
            self.unsettled = false;
        } else if woken {
            // The clock lags behind the timer that was set by it: asking for the same moment again would spin.
            self.asked_wake = self.asked_wake.map(|at| at.max(self.now + EARLY_AGAIN));
        }
        self.forget_old_keys();
        self.finish(plan_request, self.asked_wake)
    }

    fn digest(&mut self, event: Event) {
        match event {
            Event::Request { request, actor, body } => {
                self.unsettled = true;
                let reply = self.answer(&actor, body);
                self.draft.replies.push((request, reply));
            }
            Event::Agent { node, session, report } => self.hear(node, session, report),
            Event::AgentDisconnected { node, session } => self.disconnected(node, session),
            Event::PlanReady { plan } => {
                self.unsettled = true;
                self.plan_ready(*plan);
            }
            Event::PlanFailed { plan, message } => {
                self.unsettled = true;
                self.plan_failed(plan, &message);
            }
            Event::Tick => {}
        }
    }

    /// Transitions refused so far; each was also recorded as an event.
    #[must_use]
    pub fn illegal_transitions(&self) -> u64 {
        self.illegal_transitions
    }

    /// The leadership under which this engine decides.
    #[must_use]
    pub fn term(&self) -> Term {
        self.term
    }
}
