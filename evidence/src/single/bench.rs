//! A set-up as it is run: Headway whole, its rivals and the ceiling from the true step times.

use headway_emulation::start::Start;
use headway_emulation::{Nature, Random, Seed, checkpoint};
use headway_goodput::catalog;
use headway_goodput::step_time::Spread;
use headway_types::spec::{
    BatchRange, CheckpointPolicy, Elasticity, ExecutionLimits, LayoutLimits, Target, TargetCount, Training, Work,
};
use headway_types::{ModelShape, NodeCount, Recompute, Seconds, Sequences, Tokens, example, preset};

use super::ceiling::{COPUS_CRITICAL, Switching, batch_alone, critical, fixed, joint, kindest_critical};
use super::comparison::{Comparison, Fixed, Follower};
use super::course::Course;
use super::options::{Options, Site, Way};
use super::question::Question;
use super::race::{Finish, Race};
use crate::cluster::Cluster;
use crate::contender::{Contender, ContenderError};
use crate::run::{AT_WILL, Settings, TrialError};

/// Tokens per sequence, and the batch at which a run begins, as COPUS has them.
const SEQ_LEN: u32 = 2_048;
const REFERENCE: Sequences = Sequences(16);
/// Batches that a job may train in, and the fixed ones.
const RANGE: BatchRange = BatchRange { min: Sequences(4), max: Sequences(2_048) };
pub(super) const GRID: [u64; 10] = [4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048];
/// Longer than any run: saves are not what is asked about here.
const NEVER: Seconds = Seconds(1e7);

/// Why there is no comparison.
#[derive(Debug, thiserror::Error)]
pub enum QuestionError {
    #[error("the set-up {model} on {cluster} cannot be run: {why}")]
    Setup { model: &'static str, cluster: &'static str, why: &'static str },
    #[error("reading the rules of a single job")]
    Rules(#[from] ContenderError),
    #[error("running a single job")]
    Trial(#[from] TrialError),
}

impl Question {
    /// Runs Headway, and computes its rivals and the ceiling.
    pub fn answer(&self) -> Result<Comparison, QuestionError> {
        let bench = self.bench()?;
        let grid = fixed(&bench.options, &bench.course, &GRID);
        let best = grid.iter().min_by(|one, other| one.1.total_cmp(&other.1));
        let best = best.ok_or_else(|| self.wrong("nothing fits"))?;
        let steps = 3_600.0 * self.rules.hours / best.1;
        let hours = |per_step: f64| (bench.start(0.0).0 + per_step * steps) / 3_600.0;
        let follower = |way| Follower {
            copus: hours(critical(way, &bench.course, COPUS_CRITICAL)),
            kindest: hours(kindest_critical(way, &bench.course)),
        };
        let smallest = grid.iter().find(|(batch, ..)| *batch >= REFERENCE.0).unwrap_or(best);
        let largest = grid.last().unwrap_or(best);
        let layout_change = bench.layout_change().0;
        let switched = |threshold: f64| {
            let rule = Switching { threshold, layout_change, begins: REFERENCE.0 };
            (bench.start(0.0).0 + rule.run(&bench.options, &bench.course, steps)) / 3_600.0
        };
        let fixed_of = |(batch, cost, way): &(u64, f64, &Way)| Fixed {
            batch: *batch,
            layout: format!("{} mb{}", way.layout, way.micro_batch),
            hours: hours(*cost),
        };
        Ok(Comparison {
            model: self.case.model.into(),
            cluster: self.case.cluster.into(),
            course: self.course.into(),
            world: self.world.name.into(),
            rules: self.rules.name.into(),
            seed: self.seed,
            fixed: grid.iter().map(fixed_of).collect(),
            pessimistic: follower(smallest.2),
            optimistic: follower(largest.2),
            by_ten_percent: switched(0.1),
            by_three_percent: switched(0.03),
            joint: hours(joint(&bench.options, &bench.course)),
            batch_alone: hours(batch_alone(&bench.options, &bench.course)),
            change_minutes: layout_change / 60.0,
            headway: self.run(&bench, &bench.told, steps)?,
        })
    }

    fn wrong(&self, why: &'static str) -> QuestionError {
        QuestionError::Setup { model: self.case.model, cluster: self.case.cluster, why }
    }

    /// Reads what the question names.
    pub(super) fn bench(&self) -> Result<Bench, QuestionError> {
        let cluster: Cluster = self.case.cluster.parse().map_err(|_| self.wrong("its cluster does not read"))?;
        let shape = preset::named(self.case.model).ok_or_else(|| self.wrong("there is no such model"))?.shape();
        let shape = ModelShape { seq_len: SEQ_LEN, ..shape };
        let course = Course::named(self.course).ok_or_else(|| self.wrong("there is no such course of noise"))?;
        let group = cluster.groups().first().ok_or_else(|| self.wrong("it has no nodes"))?;
        let device = catalog::device(&group.class()).map_err(|_| self.wrong("there is no such device"))?;
        let spread = Spread { gpus: cluster.gpus(), nodes: NodeCount(group.nodes) };
        let nature =
            Nature { live_layouts: self.world.nature.live_layouts.filter(|_| self.rules.live), ..self.world.nature };
        let told = told(shape);
        let site = Site { shape: &shape, gpu_type: &group.gpu_type, device: &device, spread };
        let options = Options::new(site, &nature, self.seed, self.case.model, &told.layouts, RANGE);
        Ok(Bench { cluster, shape, course, spread, nature, told, options })
    }

    /// Runs the job as its owner tells it, for so many noise-free steps.
    pub(super) fn run(&self, bench: &Bench, told: &Training, steps: f64) -> Result<Finish, QuestionError> {
        let elastic = if self.rules.at_will { AT_WILL } else { Elasticity::default() };
        let settings = Settings { nature: bench.nature, mishaps: 0.0, elastic, ..Settings::default() };
        let contender = Contender::read(&format!("goodput{}", self.rules.policy), &[])?;
        let race = Race {
            seed: self.seed,
            job: self.case.model,
            cluster: &bench.cluster,
            shape: bench.shape,
            told,
            course: bench.course,
            steps,
            policy: &contender.policy,
            settings: &settings,
        };
        let failed = |source| TrialError {
            contender: contender.name.clone(),
            workload: "single".into(),
            seed: self.seed,
            source,
        };
        Ok(race.run().map_err(failed)?)
    }
}

/// A set-up as it is run.
pub(super) struct Bench {
    cluster: Cluster,
    shape: ModelShape,
    pub course: Course,
    spread: Spread,
    nature: Nature,
    pub told: Training,
    pub options: Options,
}

impl Bench {
    /// How long a start takes that reads so many bytes.
    pub fn start(&self, state: f64) -> Seconds {
        let Spread { gpus, nodes } = self.spread;
        Start::draw(&mut Random::new(Seed(0)), &self.nature, gpus, nodes, state).total()
    }

    /// How long a change of layout takes: as the emulation has it, in the median.
    fn layout_change(&self) -> Seconds {
        let (state, nodes) = (checkpoint::bytes(&self.shape), self.spread.nodes);
        let restart = checkpoint::median_duration(&self.shape, nodes) + self.start(state);
        restart * self.nature.live_layouts.unwrap_or(1.0)
    }
}

/// What the job's owner tells.
fn told(shape: ModelShape) -> Training {
    let execution = ExecutionLimits { recompute: vec![Recompute::None, Recompute::Full], ..ExecutionLimits::default() };
    let degrees = LayoutLimits::degrees(vec![1, 2, 4, 8], vec![1, 2, 4, 8, 16], Sequences(16));
    Training {
        reference_batch: REFERENCE,
        batch: RANGE,
        target: Some(Target { tokens: Tokens(0.0), count: TargetCount::Reference }),
        layouts: LayoutLimits { execution, ..degrees },
        checkpoint: CheckpointPolicy { every: NEVER, ..CheckpointPolicy::default() },
        ..example::training(Work::Model(shape))
    }
}
