//! A gang of simulated workers: who of it lives, what it was told, how far it is. How fast it trains and what its gradients look like is
//! `core/emulation`'s to say.

use std::collections::{BTreeMap, BTreeSet};

use headway_types::{
    CheckpointRef, Configuration, LaunchOrder, Layout, NodeId, Seconds, Sequences, StepReport, Timestamp,
};

use crate::hidden::{HiddenRun, Saves};
use crate::scenario::SimJob;
use crate::world::Key;

/// Processes of one generation over all its nodes.
#[derive(Clone, Debug)]
pub(crate) struct Gang {
    pub order: LaunchOrder,
    pub truth: usize,
    pub configuration: Configuration,
    /// Takes effect with the next report.
    pub next_configuration: Option<Configuration>,
    pub step: u64,
    pub samples: Sequences,
    pub saved_at: Timestamp,
    pub save_wanted: bool,
    pub stop_wanted: bool,
    /// Ranks whose process lives.
    pub alive: BTreeSet<(NodeId, u32)>,
    pub started: bool,
    pub trains: bool,
    pub hung: bool,
    pub paused_until: Option<Timestamp>,
    /// How long it stood still during the work under way, which takes that much longer.
    pub stood_still: Seconds,
    /// Nodes whose workers are slower, by what factor, until when.
    pub slow: BTreeMap<NodeId, (f64, Timestamp)>,
    pub ranks_told_at: Timestamp,
    /// When the steps of the next report began, and how many reports there were.
    pub report_began: Timestamp,
    pub reports: u64,
    pub done: bool,
    /// GPU-seconds trained, how many of them count already, and how many there were at each save.
    pub trained: f64,
    pub banked: f64,
    pub saves: BTreeMap<Sequences, f64>,
    /// Of a gang that follows the hidden truth.
    pub hidden: Option<HiddenRun>,
    pub progress: Saves,
}

/// How a gang gets on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    Starting,
    Training,
    Stalled,
    Ending,
}

/// What one report of a gang covers, about.
const REPORT: Seconds = Seconds(8.0);

impl Gang {
    pub fn new(order: LaunchOrder, truth: usize, now: Timestamp) -> Self {
        let (step, samples) = order.resume.as_ref().map_or((0, Sequences(0)), |one| (one.step, one.samples_seen));
        let opaque = Configuration {
            layout: Layout::data_parallel(order.placement.gpus()),
            micro_batch: Sequences(1),
            global_batch: order.reference_batch.unwrap_or(Sequences(u64::from(order.placement.gpus().0))),
        };
        Self {
            configuration: order.configuration.unwrap_or(opaque),
            next_configuration: None,
            order,
            truth,
            step,
            samples,
            saved_at: now,
            save_wanted: false,
            stop_wanted: false,
            alive: BTreeSet::new(),
            started: false,
            trains: false,
            hung: false,
            paused_until: None,
            stood_still: Seconds(0.0),
            slow: BTreeMap::new(),
            ranks_told_at: now,
            report_began: now,
            reports: 0,
            done: false,
            trained: 0.0,
            banked: 0.0,
            saves: BTreeMap::new(),
            hidden: None,
            progress: Saves::new(),
        }
    }

    pub fn key(&self) -> Key {
        (self.order.job, self.order.generation)
    }

    pub fn first_node(&self) -> NodeId {
        self.order.placement.first_node()
    }

    /// Whether all ranks are up; collectives hang otherwise.
    pub fn complete(&self) -> bool {
        let per_node = matches!(self.order.run.per, headway_types::spec::RunPer::Node);
        let placement = &self.order.placement;
        let expected = if per_node { placement.nodes().0 } else { placement.gpus().0 };
        self.alive.len() == expected as usize
    }

    pub fn is_paused(&self, now: Timestamp) -> bool {
        self.paused_until.is_some_and(|until| until > now)
    }

    pub fn pace(&self, now: Timestamp) -> Pace {
        match (self.trains, self.hung || self.is_paused(now) || !self.complete()) {
            _ if self.done => Pace::Ending,
            (true, false) => Pace::Training,
            (true, true) => Pace::Stalled,
            (false, _) if self.hung => Pace::Stalled,
            (false, _) => Pace::Starting,
        }
    }

    /// How much slower the slowest node makes everybody.
    pub fn drag(&self, now: Timestamp) -> f64 {
        let factors = self.slow.values().filter(|(_, until)| *until > now).map(|(factor, _)| *factor);
        factors.fold(1.0, f64::max)
    }

    /// True duration of one step.
    pub fn step_time(&self, truth: &SimJob, now: Timestamp) -> f64 {
        let tokens = self.configuration.global_batch.tokens(seq_len(truth));
        let placement = &self.order.placement;
        truth.linear().step_time(tokens, placement.gpus(), placement.nodes(), self.drag(now)).0
    }

    /// Steps the next report will cover, and how long they take.
    pub fn next_report(&mut self, truth: &SimJob, now: Timestamp) -> (u32, Seconds) {
        self.report_began = now;
        self.reports += 1;
        self.configuration = self.next_configuration.take().unwrap_or(self.configuration);
        let step = self.step_time(truth, now);
        // The first step is told at once, later ones are gathered.
        let wanted = if self.reports == 1 { 0.0 } else { REPORT.0 };
        let steps = (wanted / step).clamp(1.0, 10_000.0) as u32;
        (steps, Seconds(step * f64::from(steps)))
    }

    /// The report under way cut short at the next step: how many steps, how long, and when.
    pub fn short_report(&self, truth: &SimJob, now: Timestamp) -> (u32, Seconds, Timestamp) {
        let step = self.step_time(truth, now);
        let steps = (now.since(self.report_began).0 / step).ceil().max(1.0);
        let at = (self.report_began + Seconds(step * steps)).max(now);
        (steps as u32, at.since(self.report_began), at)
    }

    /// Trains the steps of one report.
    pub fn advance(&mut self, truth: &SimJob, steps: u32, duration: Seconds) -> StepReport {
        let sequences = Sequences(self.configuration.global_batch.0 * u64::from(steps));
        self.step += u64::from(steps);
        self.samples += sequences;
        self.trained += duration.0 * f64::from(self.order.placement.gpus().0);
        let (job, generation) = self.key();
        StepReport {
            job,
            generation,
            step: self.step,
            steps,
            samples_seen: self.samples,
            tokens: sequences.tokens(seq_len(truth)),
            duration,
            configuration: self.configuration,
            loss: Some(2.0),
            noise: Some(truth.linear().measure(&self.configuration, seq_len(truth))),
            preconditioned: None,
            memory_peak: None,
        }
    }

    pub fn checkpoint(&mut self) -> CheckpointRef {
        let generation = self.order.generation;
        self.saves.insert(self.samples, self.trained);
        CheckpointRef {
            generation,
            path: format!("{}/{generation}/step-{:09}", self.order.checkpoint_dir, self.step),
            step: self.step,
            samples_seen: self.samples,
            manifest_sha256: format!("{:064x}", self.step),
        }
    }
}

fn seq_len(truth: &SimJob) -> u32 {
    truth.spec.training().map_or(1, |training| training.work.seq_len())
}
