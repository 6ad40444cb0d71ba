//! Makes one job's candidates: what each costs to reach, what it is worth, and what it takes of every row.

use std::sync::Arc;

use headway_goodput::JobModel;
use headway_goodput::band::NINTH_DECILE;
use headway_types::report::Flexibility;
use headway_types::{Configuration, GpuCount, NodeCount, Prediction, Seconds, Tier, Timestamp, TokensPerSecond};

use crate::candidate::{BatchChange, Candidate, Measure, Way, unmeasured};
use crate::cluster::Reach;
use crate::cluster::Shape;
use crate::curves;
use crate::ending;
use crate::input::{Freedom, PlanJob, PlanWork};
use crate::live::LiveBatch;
use crate::round::Round;
use crate::table;
use crate::urgency;
use crate::value::{self, Quanta};

/// What an opaque job is assumed to lose per node beyond the first.
const SPREAD_LOSS: f64 = 0.01;
/// A job with a curve knows what communication costs it; each further node is still one more that can fail.
const CURVE_SPREAD_LOSS: f64 = 0.001;
/// What meeting its deadline is worth to a job, in utilities of its fair share.
const DEADLINE_BONUS: f64 = 1.0;
/// Of jobs whose ends nobody knows none is worth waiting for: each counts its smallest size by so much more.
const SERVED: f64 = 0.25;
/// A job whose end nobody knows may be near it: stopping it must bring so much more than what it does.
const UNSURE: f64 = 0.5;
/// No stop is said to lose more than this many times what the job is worth.
const MOST_LOST: f64 = 10.0;

/// How a candidate spreads, for what that costs.
#[derive(Clone, Copy)]
struct Stretch {
    nodes: NodeCount,
    /// Fabric domains beyond the first.
    further_domains: u32,
}

pub(crate) struct Maker<'a, 'r> {
    round: &'r Round<'a>,
    job: &'a PlanJob,
    reference: TokensPerSecond,
    weight: f64,
    /// What the job does now.
    pub present: Option<Prediction>,
    /// The best batch of its layout where it is, of a script that takes it live.
    live_batch: Option<LiveBatch>,
    /// The larger batch that its norm test asks for where it is: whoever keeps its GPUs' shape trains with it, whatever the goodput.
    demanded: Option<(Configuration, Prediction)>,
    measure: Measure,
    /// It may keep what it has.
    can_stay: bool,
    /// The hysteresis: what a move of a job that holds GPUs must gain beyond its cost.
    pub move_penalty: f64,
}

impl<'a, 'r> Maker<'a, 'r> {
    pub fn new(
        round: &'r Round<'a>,
        job: &'a PlanJob,
        reference: TokensPerSecond,
        measure: Measure,
        model: Option<&Arc<JobModel>>,
        live_batch: Option<LiveBatch>,
    ) -> Self {
        let policy = &round.input.policy;
        let weight = value::weight(policy, job, round.tree.share_factor(&job.claim.project), round.input.now);
        let can_stay = can_stay(round, job);
        let mut maker = Self {
            round,
            job,
            reference,
            weight,
            present: None,
            live_batch,
            demanded: None,
            measure,
            can_stay,
            move_penalty: 0.0,
        };
        maker.present = maker.predict_present(model);
        maker.demanded = maker.demanded_batch(model);
        // A job that cannot stay moves or stops anyway, so nothing is held against where it goes.
        maker.move_penalty = maker.present.filter(|_| can_stay || maker.fixed()).map_or(0.0, |present| {
            value::hysteresis(policy, job.claim.since_move)
                * maker.work_done(&present, Seconds(0.0), maker.held(), None)
        });
        maker
    }

    fn fixed(&self) -> bool {
        matches!(self.job.freedom, Freedom::Fixed { .. })
    }

    /// Whether leaving what it has counts against the round's number of moves: only where it is a choice.
    fn leaving_is_a_move(&self) -> bool {
        self.can_stay && !self.fixed()
    }

    pub fn nothing(&self) -> Candidate {
        let prediction = Prediction { speed_up: 0.0, ..unmeasured() };
        Candidate {
            gpus: GpuCount(0),
            shape: None,
            configuration: None,
            label: None,
            prediction,
            stays: false,
            cost: Seconds(0.0),
            uses: self.round.rows.of_nothing(self.leaving_is_a_move()),
            outlasts_promise: false,
            charge: self.stop_penalty(),
            value: Quanta::of(-self.stop_cost()),
        }
    }

    /// Returns the gain that a stop needs beyond its cost. It goes by the smallest size of a job whose end nobody knows:
    /// what such a job holds falls with a forced move, and the next round must not find it cheaper to stop for that.
    fn stop_penalty(&self) -> f64 {
        if urgency::is_known(self.job) || self.move_penalty <= 0.0 {
            return self.move_penalty;
        }
        let least = value::utility(&self.round.input.policy, self.measure.least_speed_up);
        value::hysteresis(&self.round.input.policy, self.job.claim.since_move) * least
    }

    /// Returns what the smallest size is worth.
    fn least_worth(&self) -> f64 {
        self.weight * value::utility(&self.round.input.policy, self.measure.least_speed_up)
    }

    /// What stopping loses of the present's worth: a restart later and what is redone then, over the time in which a move
    /// has to pay for itself.
    fn stop_cost(&self) -> f64 {
        let Some(present) = self.present.filter(|_| self.job.current.is_some()) else { return 0.0 };
        let lost = self.job.start_cost();
        let input = self.round.input;
        let (window, _) = value::window(&input.policy, self.job, input.now, Seconds(0.0), present.goodput);
        // A job that cannot stay restarts in any case.
        let share = if window.0 > 0.0 && self.can_stay { (lost.0 / window.0).min(MOST_LOST) } else { 0.0 };
        let restart = share * self.worth(&present, Seconds(0.0), self.held());
        if urgency::is_known(self.job) {
            return restart;
        }
        // By the smallest size, for the same reason as the penalty.
        restart + UNSURE * (1.0 + SERVED) * self.least_worth()
    }

    /// Staying on the present GPUs, at the best live batch or in the best live layout where that gains enough. `None` for a
    /// job that holds nothing, whose GPUs are gone, or that has to leave them.
    pub fn stay(&self, ways: &[Way]) -> Option<(Candidate, Option<BatchChange>)> {
        let current = self.job.current.as_ref()?;
        if !self.fixed() && !self.can_stay {
            return None;
        }
        let present = self.present?;
        let mut chosen = (current.configuration, present, Seconds(0.0));
        let mut change = None;
        if let Some((to, prediction)) = self.best_live_batch() {
            let from = current.configuration?;
            let gain = prediction.goodput.0 / present.goodput.0.max(f64::MIN_POSITIVE) - 1.0;
            let cost = self.cost_of(from.tier_to(&to));
            let held = self.held();
            let (demanded, asked) = (self.demanded.is_some(), self.asked_gain());
            let pays = gain >= asked && self.worth(&prediction, cost, held) > self.worth(&present, Seconds(0.0), held);
            let taken = (demanded || pays) && self.may_change_batch();
            if taken {
                chosen = (Some(to), prediction, cost);
            }
            change = Some(BatchChange { to, gain, asked, demanded, taken });
        }
        if let Some((to, prediction, cost)) = self.best_live_layout(ways) {
            // Nothing moves and nothing is redone, so it must gain what a live batch must.
            let (held, asked) = (self.held(), 1.0 + self.round.input.policy.min_batch_gain);
            if self.worth(&prediction, cost, held) > asked * self.worth(&chosen.1, chosen.2, held) {
                chosen = (Some(to), prediction, cost);
            }
        }
        let (configuration, prediction, cost) = chosen;
        let candidate = Candidate {
            gpus: current.placement.gpus(),
            shape: None,
            configuration,
            label: current.label.clone(),
            prediction,
            stays: true,
            cost,
            uses: self.round.rows.of_placement(self.job, &current.placement, self.present_watts()),
            outlasts_promise: false,
            charge: 0.0,
            value: Quanta::of(self.worth(&prediction, cost, self.held())),
        };
        Some((candidate, change))
    }

    /// What the job does now by today's model; the recorded prediction where the model refuses what in fact runs.
    fn predict_present(&self, model: Option<&Arc<JobModel>>) -> Option<Prediction> {
        let current = self.job.current.as_ref()?;
        let (cluster, placement) = (self.round.cluster, &current.placement);
        let predicted = match (&self.job.work, model) {
            (PlanWork::Opaque, _) => return Some(unmeasured()),
            (PlanWork::Table(of), _) => {
                let class = cluster.class_of_placement(placement);
                class.and_then(|class| table::present(of, cluster.alike(class), current))
            }
            (_, Some(model)) => cluster.placement_valued_by(placement, model).and_then(|class| {
                let (gpus, nodes) = (placement.gpus(), placement.nodes());
                curves::predict(model, &class, gpus, nodes, current.configuration.as_ref()).ok()
            }),
            _ => None,
        };
        Some(self.with_speed_up(predicted.unwrap_or(current.predicted)))
    }

    /// What the job does now is worth; nothing where it does nothing.
    pub fn present_value(&self) -> Quanta {
        self.present.map_or(Quanta(0), |present| Quanta::of(self.worth(&present, Seconds(0.0), self.held())))
    }

    fn present_watts(&self) -> Option<f64> {
        let current = self.job.current.as_ref()?;
        let PlanWork::Table(of) = &self.job.work else { return None };
        let class = self.round.cluster.class_of_placement(&current.placement)?;
        table::watts(of, self.round.cluster.alike(class), current)
    }

    fn best_live_batch(&self) -> Option<(Configuration, Prediction)> {
        let from = self.job.current.as_ref()?.configuration?;
        let live = self.live_batch.filter(|live| live.to != from)?;
        Some((live.to, self.with_speed_up(live.prediction)))
    }

    /// What the live change must gain: what the policy asks for, also at the slow edge of what its micro-batch leaves unsure.
    fn asked_gain(&self) -> f64 {
        let unmeasured = self.live_batch.map_or(0.0, |live| live.unmeasured);
        (1.0 + self.round.input.policy.min_batch_gain) * libm::exp(NINTH_DECILE * unmeasured) - 1.0
    }

    /// Whether its batch has not changed as often as it may. Nothing keeps a job in a batch that turned out worse than was expected.
    fn may_change_batch(&self) -> bool {
        self.job.batch_bound.is_none() || self.live_batch.is_some_and(|live| live.contradicted)
    }

    fn demanded_batch(&self, model: Option<&Arc<JobModel>>) -> Option<(Configuration, Prediction)> {
        if !self.may_change_batch() {
            return None;
        }
        let from = self.job.current.as_ref()?.configuration?.global_batch;
        model.filter(|model| model.wants_more_than(from))?;
        self.best_live_batch().filter(|(to, _)| to.global_batch > from)
    }

    /// Another layout on the present GPUs, which the script takes in memory, and how long it stands still for it.
    fn best_live_layout(&self, ways: &[Way]) -> Option<(Configuration, Prediction, Seconds)> {
        let capabilities = self.job.capabilities;
        if self.fixed() || capabilities.layout != Flexibility::Live || capabilities.batch != Flexibility::Live {
            return None;
        }
        let from = self.job.current.as_ref()?.configuration?;
        let offers = ways.iter().filter(|way| self.is_here(way.shape)).map(|way| &way.offer);
        let (to, prediction) = offers.filter_map(|offer| Some((offer.configuration?, offer.prediction))).next()?;
        let cost = self.cost_of(from.tier_to(&to));
        (to.layout != from.layout).then(|| (to, self.with_speed_up(prediction), cost))
    }

    /// Whether the job holds what a shape describes, in the order of its ranks.
    fn is_here(&self, shape: Shape) -> bool {
        let cluster = self.round.cluster;
        let held = self.job.current.as_ref().map(|current| &current.placement);
        held.is_some_and(|held| cluster.has_shape(held, shape) && cluster.is_in_rank_order(held))
    }

    /// Starting or moving onto a shape; `None` where the script cannot follow.
    pub fn place(&self, way: Way) -> Option<Candidate> {
        let shape = way.shape;
        if let Some(current) = &self.job.current {
            // A row's label does not bind: once the job had stopped nobody would know it, and the next round would start it
            // in a row that this one denied it.
            let (same_layout, suits) = match (&current.configuration, &way.offer.configuration) {
                (Some(from), Some(to)) => (from.layout == to.layout, from.layout == to.layout),
                (None, None) => {
                    let same_size = current.placement.gpus() == shape.gpus;
                    // Rows of one name are told apart by what they promise: another row's power is not this one's.
                    let promised = self.present.is_none_or(|now| now.goodput == way.offer.prediction.goodput);
                    (same_size && current.label == way.label && promised, same_size)
                }
                (Some(_), None) | (None, Some(_)) => (false, false),
            };
            if self.job.capabilities.layout == Flexibility::Never && !suits {
                return None;
            }
            // A job that can stay stays rather than restart for a batch alone, or for a layout that it takes in memory.
            let in_memory = same_layout || self.job.capabilities.layout == Flexibility::Live;
            if in_memory && self.can_stay && self.is_here(shape) {
                return self.relocate(&way);
            }
        }
        let prediction = self.with_speed_up(way.offer.prediction);
        Some(self.placed(&way, way.offer.configuration, prediction))
    }

    /// What staying would be, on other GPUs of the same shape: never better than staying, but it makes room.
    fn relocate(&self, way: &Way) -> Option<Candidate> {
        let current = self.job.current.as_ref()?;
        let (configuration, prediction) = match self.demanded {
            Some((to, prediction)) => (Some(to), prediction),
            None => (current.configuration, self.present?),
        };
        Some(self.placed(way, configuration, prediction))
    }

    fn placed(&self, way: &Way, configuration: Option<Configuration>, prediction: Prediction) -> Candidate {
        let (shape, cost) = (way.shape, self.job.start_cost());
        let matters = shape.nodes.0 > 1 && self.round.cluster.has_domains(shape.class);
        let further_domains = u32::from(matters && shape.reach == Reach::Class);
        let stretch = Stretch { nodes: shape.nodes, further_domains };
        let end = self.round.end_of(self.job, shape.class).map(|one| one.from);
        let worth = self.worth_until(&prediction, cost, stretch, end);
        Candidate {
            gpus: shape.gpus,
            shape: Some(shape),
            configuration,
            label: way.label.clone(),
            prediction,
            stays: false,
            cost,
            uses: self.round.rows.of_shape(self.job, shape, way.watts_per_gpu, self.leaving_is_a_move()),
            outlasts_promise: false,
            charge: self.penalty(shape.gpus),
            value: Quanta::of(worth),
        }
    }

    /// Returns the gain that other GPUs need beyond their cost. A job whose end nobody knows gives GPUs back without one:
    /// others would wait for it without end.
    fn penalty(&self, gpus: GpuCount) -> f64 {
        let held = self.job.current.as_ref().map_or(GpuCount(0), |current| current.placement.gpus());
        if gpus < held && !urgency::is_known(self.job) { 0.0 } else { self.move_penalty }
    }

    fn worth(&self, prediction: &Prediction, cost: Seconds, stretch: Stretch) -> f64 {
        self.worth_until(prediction, cost, stretch, None)
    }

    /// As [`Self::worth`], on nodes that the job must have left at `end`.
    fn worth_until(&self, prediction: &Prediction, cost: Seconds, stretch: Stretch, end: Option<Timestamp>) -> f64 {
        self.weight * self.work_done(prediction, cost, stretch, end)
    }

    /// Returns what a choice does for the job, whatever its weight.
    fn work_done(&self, prediction: &Prediction, cost: Seconds, stretch: Stretch, end: Option<Timestamp>) -> f64 {
        let policy = &self.round.input.policy;
        let loss = if self.job.work.is_opaque() { SPREAD_LOSS } else { CURVE_SPREAD_LOSS };
        let further_nodes = f64::from(stretch.nodes.0.saturating_sub(1));
        let kept = 1.0 - loss * further_nodes - policy.domain_loss * f64::from(stretch.further_domains);
        let (now, goodput) = (self.round.input.now, prediction.goodput);
        let ending = end.and_then(|end| ending::value_until(self.job, now, end, cost, goodput));
        let (kept_by_end, until) = ending.unzip();
        let useful = value::useful_share(policy, self.job, now, cost, goodput, until) / self.measure.useful;
        let share = useful * kept_by_end.unwrap_or(1.0);
        let speed_up = prediction.speed_up * kept.max(0.5);
        let in_time = value::in_time(self.job, self.round.input.now, cost, prediction.goodput) == Some(true);
        let bonus = if in_time { DEADLINE_BONUS * value::utility(policy, 1.0) } else { 0.0 };
        let served = if urgency::is_known(self.job) {
            0.0
        } else {
            SERVED * value::utility(policy, self.measure.least_speed_up)
        };
        value::utility(policy, speed_up * share) + bonus + served
    }

    /// Takes out what the job's budget forbids, and tells whether its deadline is beyond reach.
    pub fn settle(&self, candidates: &mut Vec<Candidate>) -> bool {
        if let (Some(budget), Some(remaining)) = (self.job.bounds.budget_left, self.job.to_do()) {
            let price = |candidate: &Candidate| (candidate.gpus * (remaining / candidate.prediction.goodput)).0;
            let runs = |candidate: &Candidate| candidate.shape.is_some() && candidate.prediction.goodput.0 > 0.0;
            let least = candidates.iter().filter(|one| runs(one)).map(price).fold(f64::INFINITY, f64::min);
            // Where nothing is within the budget, what overdraws it least is left: the job's end is the engine's to decide.
            let bound = budget.0.max(least);
            candidates.retain(|one| !runs(one) || price(one) <= bound);
        }
        let meets = |one: &Candidate| {
            value::in_time(self.job, self.round.input.now, one.cost, one.prediction.goodput) != Some(false)
        };
        self.job.bounds.deadline.is_some() && !candidates.iter().filter(|one| one.gpus.0 > 0).any(meets)
    }

    fn held(&self) -> Stretch {
        let placement = self.job.current.as_ref().map(|current| &current.placement);
        Stretch {
            nodes: placement.map_or(NodeCount(0), headway_types::Placement::nodes),
            further_domains: placement.map_or(0, |placement| self.round.cluster.domains_of(placement) - 1).min(1),
        }
    }

    fn cost_of(&self, tier: Option<Tier>) -> Seconds {
        match tier {
            None => Seconds(0.0),
            Some(Tier::Batch) => self.job.downtime.batch,
            Some(Tier::MicroBatch) => self.job.downtime.micro_batch,
            // What is in memory is not redone.
            Some(Tier::Layout) if self.job.capabilities.layout == Flexibility::Live => {
                self.job.downtime.layout.unwrap_or(self.job.downtime.restart)
            }
            Some(Tier::Layout | Tier::Migration) => self.job.start_cost(),
        }
    }

    pub fn with_speed_up(&self, prediction: Prediction) -> Prediction {
        if self.job.work.is_opaque() {
            return unmeasured();
        }
        // Without a reference (no shape is open now) what the job does is its own measure.
        let speed_up = if self.reference.0 > 0.0 { prediction.goodput.0 / self.reference.0 } else { 1.0 };
        Prediction { speed_up, ..prediction }
    }
}

/// Whether a job may keep what it has: all of it is usable, and no node of it drains or is reserved for others.
fn can_stay(round: &Round<'_>, job: &PlanJob) -> bool {
    let Some(current) = &job.current else { return false };
    let Some(slots) = round.cluster.slots(&current.placement) else { return false };
    let tolerated = |node: usize| {
        let gate = &round.cluster.classes[round.cluster.class_of(node)].gate;
        !round.cluster.nodes[node].draining && gate.tolerates(round.input, round.tree, job)
    };
    slots.iter().all(|slot| tolerated(slot.node))
}
