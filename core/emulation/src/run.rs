//! One generation of a gang, from its processes to its exit: it starts, steps, saves, takes changes, stops, hangs.
//!
//! Pure: events and times in, what the workers say out. Steps are advanced in stretches between reports, not one by
//! one, so that thousands of gangs cost little; a stretch ends early, at a step boundary, when something is wanted.
//! Which process of which node exits, and how, is the shell's business.

use std::collections::BTreeMap;

use headway_goodput::catalog::{self, Device};
use headway_goodput::step_time::Spread;
use headway_types::report::Flexibility;
use headway_types::{
    Bytes, Capabilities, Configuration, Generation, JobId, LaunchOrder, NodeClass, Seconds, Sequences, StepReport,
    Tier, Timestamp,
};

use crate::checkpoint;
use crate::nature::Nature;
use crate::noise::{self, loss};
use crate::progress::{Progress, Stretch, Worth};
use crate::random::{Random, Seed};
use crate::start::Start;
use crate::step::{StepTruth, measured};
use crate::workload::{Training, Workload};

/// From the decision to exit to the exit.
const EXIT: Seconds = Seconds(0.5);
/// The phase that a change of layout is reported as.
const RESHARD: &str = "reshard_exchange";
/// A new micro-batch rebuilds buffers in the running process; a new batch alone costs nothing.
const MICRO_BATCH_CHANGE: Seconds = Seconds(2.0);
/// Share of a step that a rank works rather than waits for others, and its relative deviation between ranks.
const BUSY: f64 = 0.9;
const BUSY_SPREAD: f64 = 0.01;

/// Where a gang finds itself.
#[derive(Clone, Debug)]
pub struct Setting<'a> {
    /// Of the world it lives in.
    pub seed: Seed,
    /// Of the job: the same over all its generations.
    pub job: Seed,
    pub nature: Nature,
    pub order: &'a LaunchOrder,
    /// Class of its nodes.
    pub class: &'a NodeClass,
    pub workload: Workload,
    /// What the job had come to at the checkpoint it resumes from.
    pub progress: Progress,
}

/// Why there is no truth for an order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    #[error("a training job comes without a configuration")]
    NoConfiguration,
    #[error("{0} does not divide into micro-batches")]
    Indivisible(Configuration),
    #[error("the nodes cannot be emulated")]
    Hardware(#[source] headway_goodput::Infeasible),
}

/// What happens to a gang.
#[derive(Clone, Debug, PartialEq)]
pub enum RunEvent {
    /// The processes of all nodes are up.
    Begin,
    /// Stop at the next step boundary, saved or not.
    Stop {
        checkpoint: bool,
    },
    Configure {
        revision: u64,
        configuration: Configuration,
    },
    Save,
    /// A process has died: the others wait for it for ever.
    Break,
    Hang,
    /// Gangs of several nodes hold this share of the other nodes from now on.
    Crowd {
        share: f64,
    },
    /// `rank` takes `factor` times as long.
    Straggle {
        rank: u32,
        factor: f64,
        lasts: Seconds,
    },
    /// The moment of `Run::due`.
    Tick,
}

/// What its workers say or do.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    Hello {
        capabilities: Capabilities,
    },
    Phases {
        phases: BTreeMap<String, Seconds>,
    },
    Steps {
        report: Box<StepReport>,
    },
    Saved {
        step: u64,
        samples_seen: Sequences,
        duration: Seconds,
    },
    SaveFailed {
        step: u64,
    },
    /// Its devices have no more memory, and all its processes are gone; the last word.
    OutOfMemory,
    /// It exits before its work is done.
    Stopped {
        step: u64,
        samples_seen: Sequences,
    },
    /// All processes are gone; the last word. `complete`: by themselves, with their work done.
    Exited {
        complete: bool,
    },
}

/// How the processes of a gang take SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hearing {
    /// Like a stop: saved, then gone.
    Orderly,
    /// They die of it, each for itself.
    Broken,
    /// Not at all.
    Deaf,
}

#[derive(Clone, Debug)]
pub struct Run {
    seed: Seed,
    job: JobId,
    generation: Generation,
    work: Work,
    start: Start,
    checkpoint_every: Seconds,
    failures: f64,
    nature: Nature,
    random: Random,
    /// Longest stretch of steps that one report covers.
    pub report_every: Seconds,
    step: u64,
    samples: Sequences,
    progress: Progress,
    saved_step: u64,
    saved_at: Timestamp,
    /// Whether this generation has stepped yet.
    trained: bool,
    wanted: Wanted,
    straggler: Option<Straggler>,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Work {
    Opaque {
        duration: Seconds,
    },
    Training {
        training: Box<Training>,
        worth: Box<Worth>,
        truth: Box<StepTruth>,
        device: Box<Device>,
        spread: Spread,
        crowd: f64,
        now: Now,
    },
}

/// What training runs with at the moment.
#[derive(Clone, Copy, Debug)]
struct Now {
    revision: u64,
    configuration: Configuration,
    /// Mean seconds of a step.
    step_time: Seconds,
    /// Bytes held on the fullest GPU, and whether it has fewer.
    memory: Option<(Bytes, bool)>,
}

#[derive(Clone, Copy, Debug)]
struct Straggler {
    rank: u32,
    factor: f64,
    until: Timestamp,
}

/// What waits for the next step boundary.
#[derive(Clone, Debug, Default)]
struct Wanted {
    change: Option<(u64, Configuration)>,
    save: bool,
    stop: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// Not all processes are up.
    Gathering,
    Starting {
        until: Timestamp,
    },
    /// An opaque script at work.
    Working {
        until: Timestamp,
    },
    Stepping {
        since: Timestamp,
        steps: u32,
        per_step: Seconds,
    },
    Saving {
        since: Timestamp,
        until: Timestamp,
        fails: bool,
    },
    Changing {
        until: Timestamp,
        /// How long another layout takes.
        resharded: Option<Seconds>,
    },
    Leaving {
        at: Timestamp,
        complete: bool,
    },
    Broken,
    Hung,
    Gone,
}

impl Run {
    /// Reports every ten seconds, unless told otherwise.
    pub fn new(setting: &Setting<'_>) -> Result<Self, SettingError> {
        let order = setting.order;
        let (gpus, nodes) = (order.placement.gpus(), order.placement.nodes());
        let nature = &setting.nature;
        let seed = setting.job.about(&order.generation.0.to_le_bytes());
        let mut random = Random::new(seed);
        let resumed = order.resume.as_ref();
        let (work, state) = match setting.workload {
            Workload::Opaque { duration } => (Work::Opaque { duration }, 0.0),
            Workload::Training(training) => {
                let configuration = order.configuration.ok_or(SettingError::NoConfiguration)?;
                let device = Box::new(catalog::device(setting.class).map_err(SettingError::Hardware)?);
                let spread = Spread { gpus, nodes };
                let hidden = |of: &NodeClass| {
                    StepTruth::hidden(setting.seed, nature, setting.job, &training.shape, &of.gpu_type)
                };
                let mut truth = hidden(setting.class);
                if let Some(ahead) = &setting.class.ahead {
                    let device = catalog::device(&ahead.class).map_err(SettingError::Hardware)?;
                    truth = truth.with_ahead(device, &hidden(&ahead.class));
                }
                let reference_batch = order.reference_batch.unwrap_or(configuration.global_batch);
                let worth = Worth::hidden(setting.job, nature, training.noise, reference_batch);
                let training = Box::new(training.showing(setting.job, nature));
                let step_time = truth
                    .step_time(&training.shape, training.precision, &device, spread, 0.0, &configuration)
                    .ok_or(SettingError::Indivisible(configuration))?;
                let memory = truth.memory(&training.shape, training.precision, &device, &configuration);
                let now = Now { revision: 0, configuration, step_time, memory };
                let state = if resumed.is_some() { checkpoint::bytes(&training.shape) } else { 0.0 };
                let (worth, truth) = (Box::new(worth), Box::new(truth));
                (Work::Training { training, worth, truth, device, spread, crowd: 0.0, now }, state)
            }
        };
        let step = resumed.map_or(0, |checkpoint| checkpoint.step);
        Ok(Self {
            seed,
            job: order.job,
            generation: order.generation,
            work,
            start: Start::draw(&mut random, nature, gpus, nodes, state),
            checkpoint_every: order.checkpoint_every,
            failures: nature.failures,
            nature: *nature,
            random,
            report_every: Seconds(10.0),
            step,
            samples: resumed.map_or(Sequences(0), |checkpoint| checkpoint.samples_seen),
            progress: setting.progress,
            saved_step: step,
            saved_at: Timestamp(0),
            trained: false,
            wanted: Wanted::default(),
            straggler: None,
            stage: Stage::Gathering,
        })
    }

    /// What the job has really come to, by its last report.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// What training comes to per second with what it runs at the moment, in reference tokens; `None` of an opaque script.
    #[must_use]
    pub fn goodput(&self) -> Option<f64> {
        let Work::Training { training, worth, now, .. } = &self.work else { return None };
        let batch = now.configuration.global_batch;
        let tokens = batch.tokens(training.shape.seq_len).0;
        Some(tokens * worth.efficiency(self.samples, self.progress, batch) / now.step_time.0)
    }

    /// When to send `Tick`.
    #[must_use]
    pub fn due(&self) -> Option<Timestamp> {
        match self.stage {
            Stage::Starting { until }
            | Stage::Working { until }
            | Stage::Saving { until, .. }
            | Stage::Changing { until, .. } => Some(until),
            Stage::Leaving { at, .. } => Some(at),
            Stage::Stepping { since, steps, per_step } => Some(since + per_step * f64::from(steps)),
            Stage::Gathering | Stage::Broken | Stage::Hung | Stage::Gone => None,
        }
    }

    #[must_use]
    pub fn hearing(&self) -> Hearing {
        match self.stage {
            Stage::Gathering | Stage::Broken | Stage::Gone => Hearing::Broken,
            Stage::Hung => Hearing::Deaf,
            _ => Hearing::Orderly,
        }
    }

    /// Seconds per step that a rank works rather than waits, while the gang steps.
    #[must_use]
    pub fn busy(&self, now: Timestamp, rank: u32) -> Option<Seconds> {
        let (Stage::Stepping { .. }, Work::Training { now: at, .. }) = (self.stage, &self.work) else { return None };
        let slow = self.straggler.filter(|one| one.rank == rank && now < one.until).map_or(1.0, |one| one.factor);
        let key = (u64::from(rank) << 40 | self.step).to_le_bytes();
        let spread = 1.0 + BUSY_SPREAD * Random::new(self.seed.about(&key)).normal();
        Some(at.step_time * (BUSY * spread * slow))
    }

    pub fn handle(&mut self, now: Timestamp, event: RunEvent) -> Vec<Said> {
        let mut said = Vec::new();
        match event {
            RunEvent::Begin if self.stage == Stage::Gathering => {
                self.stage = Stage::Starting { until: now + self.start.total() };
            }
            RunEvent::Begin => {}
            RunEvent::Tick => {
                if self.due().is_some_and(|due| due <= now) {
                    self.advance(now, &mut said);
                }
            }
            RunEvent::Stop { checkpoint } => match self.stage {
                Stage::Starting { .. } | Stage::Working { .. } => self.leave(now, false),
                _ => {
                    self.wanted.stop = Some(checkpoint || self.wanted.stop == Some(true));
                    self.cut(now);
                }
            },
            RunEvent::Configure { revision, configuration } => self.configure(now, revision, configuration),
            RunEvent::Save => {
                self.wanted.save = true;
                self.cut(now);
            }
            RunEvent::Break if self.stage != Stage::Gone => self.stage = Stage::Broken,
            RunEvent::Hang if matches!(self.stage, Stage::Stepping { .. } | Stage::Saving { .. }) => {
                self.stage = Stage::Hung;
            }
            RunEvent::Break | RunEvent::Hang => {}
            RunEvent::Crowd { share } => self.crowd(share),
            RunEvent::Straggle { rank, factor, lasts } => {
                self.straggler = Some(Straggler { rank, factor, until: now + lasts });
                self.cut(now);
            }
        }
        said
    }

    fn configure(&mut self, now: Timestamp, revision: u64, configuration: Configuration) {
        let Work::Training { now: at, .. } = &self.work else { return };
        let newest = self.wanted.change.map_or(at.revision, |(revision, _)| revision);
        // Another layout takes a new generation, unless the script changes it in its processes.
        let able = configuration.layout == at.configuration.layout || self.nature.live_layouts.is_some();
        if revision > newest && able {
            self.wanted.change = Some((revision, configuration));
            self.cut(now);
        }
    }

    /// Counts from the next stretch of steps on.
    fn crowd(&mut self, share: f64) {
        let Work::Training { training, truth, device, spread, crowd, now, .. } = &mut self.work else { return };
        *crowd = share;
        let at = &now.configuration;
        if let Some(time) = truth.step_time(&training.shape, training.precision, device, *spread, share, at) {
            now.step_time = time;
        }
    }

    /// Lets a stretch of steps end at the next step boundary.
    fn cut(&mut self, now: Timestamp) {
        if let Stage::Stepping { since, steps, per_step } = &mut self.stage {
            let done = libm::ceil(now.since(*since).0 / per_step.0) as u32;
            *steps = done.clamp(1, *steps);
        }
    }

    fn advance(&mut self, now: Timestamp, said: &mut Vec<Said>) {
        match self.stage {
            Stage::Starting { .. } => match &self.work {
                Work::Opaque { duration } => self.stage = Stage::Working { until: now + *duration },
                Work::Training { .. } => {
                    let live = self.nature.live_layouts.is_some();
                    let layout = if live { Flexibility::Live } else { Flexibility::Restart };
                    said.push(Said::Hello { capabilities: Capabilities { batch: Flexibility::Live, layout } });
                    self.saved_at = now;
                    self.step_on(now);
                }
            },
            Stage::Working { .. } => self.leave(now, true),
            Stage::Stepping { .. } if self.memory().is_some_and(|(_, exceeded)| exceeded) => {
                self.stage = Stage::Gone;
                said.push(Said::OutOfMemory);
            }
            Stage::Stepping { steps, per_step, .. } => {
                self.stepped(steps, per_step, said);
                self.boundary(now, said);
            }
            Stage::Saving { since, fails, .. } => {
                self.saved_at = now;
                if fails {
                    said.push(Said::SaveFailed { step: self.step });
                } else {
                    self.saved_step = self.step;
                    let (step, samples_seen) = (self.step, self.samples);
                    said.push(Said::Saved { step, samples_seen, duration: now.since(since) });
                }
                // One attempt; what failed is tried again when it is next due.
                self.wanted.save = false;
                match self.wanted.stop {
                    Some(_) => self.stop(now, said),
                    None => self.boundary(now, said),
                }
            }
            Stage::Changing { resharded, .. } => {
                said.extend(resharded.map(|took| Said::Phases { phases: [(RESHARD.to_owned(), took)].into() }));
                self.boundary(now, said);
            }
            Stage::Leaving { complete, .. } => {
                self.stage = Stage::Gone;
                said.push(Said::Exited { complete });
            }
            Stage::Gathering | Stage::Broken | Stage::Hung | Stage::Gone => {}
        }
    }

    /// What happens between two steps, most urgent first.
    fn boundary(&mut self, now: Timestamp, said: &mut Vec<Said>) {
        let save_due = self.step > self.saved_step && now.since(self.saved_at).0 >= self.checkpoint_every.0;
        match self.wanted.stop {
            Some(true) if self.step > self.saved_step => return self.save(now),
            Some(_) => return self.stop(now, said),
            None => {}
        }
        if let Some((revision, configuration)) = self.wanted.change.take() {
            return self.change(now, revision, configuration);
        }
        if self.wanted.save || save_due { self.save(now) } else { self.step_on(now) }
    }

    fn change(&mut self, time: Timestamp, revision: u64, configuration: Configuration) {
        let Work::Training { training, truth, device, spread, crowd, now, .. } = &mut self.work else { return };
        let tier = now.configuration.tier_to(&configuration);
        // A batch that does not divide is kept out as a script would: it goes on as it was.
        let step_time = truth.step_time(&training.shape, training.precision, device, *spread, *crowd, &configuration);
        if let Some(step_time) = step_time {
            let memory = truth.memory(&training.shape, training.precision, device, &configuration);
            *now = Now { revision, configuration, step_time, memory };
        }
        let resharded = (tier == Some(Tier::Layout)).then(|| self.layout_change());
        let live = if tier == Some(Tier::MicroBatch) { MICRO_BATCH_CHANGE } else { Seconds(0.0) };
        self.stage = Stage::Changing { until: time + resharded.unwrap_or(live), resharded };
    }

    /// Draws how long a change of layout in the running processes takes: a share of a save and a start that loads it.
    fn layout_change(&mut self) -> Seconds {
        let Work::Training { training, spread, .. } = &self.work else { return Seconds(0.0) };
        let state = checkpoint::bytes(&training.shape);
        let save = checkpoint::duration(&mut self.random, &training.shape, spread.nodes);
        let start = Start::draw(&mut self.random, &self.nature, spread.gpus, spread.nodes, state);
        (save + start.total()) * self.nature.live_layouts.unwrap_or(1.0)
    }

    /// Begins the next stretch. The first is one step, so that it is seen soon.
    fn step_on(&mut self, time: Timestamp) {
        let Work::Training { now, .. } = &self.work else { return };
        self.straggler = self.straggler.filter(|one| time < one.until);
        let mean = now.step_time * self.straggler.map_or(1.0, |one| one.factor);
        let fits = |length: f64| libm::ceil((length / mean.0).clamp(1.0, 1e6)) as u32;
        let until_save = self.checkpoint_every.0 - time.since(self.saved_at).0;
        let steps = if !self.trained { 1 } else { fits(self.report_every.0).min(fits(until_save)) };
        let per_step = measured(&mut self.random, mean, steps);
        self.stage = Stage::Stepping { since: time, steps, per_step };
    }

    fn stepped(&mut self, steps: u32, per_step: Seconds, said: &mut Vec<Said>) {
        let Work::Training { training, worth, now, .. } = &self.work else { return };
        let configuration = now.configuration;
        if !self.trained {
            self.trained = true;
            said.push(Said::Phases { phases: self.phases(per_step) });
        }
        let consumed = Sequences(configuration.global_batch.0 * u64::from(steps));
        self.step += u64::from(steps);
        self.samples += consumed;
        let seq_len = training.shape.seq_len;
        let (batch, samples) = (configuration.global_batch, self.samples);
        let stretch = Stretch { batch, consumed, samples, seq_len: f64::from(seq_len) };
        self.progress = worth.after(self.progress, stretch);
        let phi = training.noise.noise_scale(self.samples, self.progress.steps);
        let noise = noise::measure(phi, &mut self.random, &configuration, steps);
        said.push(Said::Steps {
            report: Box::new(StepReport {
                job: self.job,
                generation: self.generation,
                step: self.step,
                steps,
                samples_seen: self.samples,
                tokens: consumed.tokens(seq_len),
                duration: per_step * f64::from(steps),
                configuration,
                loss: Some(loss(self.samples)),
                noise,
                preconditioned: None,
                memory_peak: self.memory().map(|(bytes, _)| bytes),
            }),
        });
    }

    /// Bytes held on the fullest GPU, and whether it has fewer.
    fn memory(&self) -> Option<(Bytes, bool)> {
        let Work::Training { now, .. } = &self.work else { return None };
        now.memory
    }

    fn phases(&self, first_step: Seconds) -> BTreeMap<String, Seconds> {
        let Start { import, rendezvous, load, warm_up } = self.start;
        let phases =
            [("import", import), ("rendezvous", rendezvous), ("load", load), ("first_step", warm_up + first_step)];
        phases.into_iter().map(|(phase, seconds)| (phase.to_owned(), seconds)).collect()
    }

    fn save(&mut self, now: Timestamp) {
        let Work::Training { training, spread, .. } = &self.work else { return };
        let took = checkpoint::duration(&mut self.random, &training.shape, spread.nodes);
        let fails = checkpoint::fails(&mut self.random, self.failures);
        self.stage = Stage::Saving { since: now, until: now + took, fails };
    }

    fn stop(&mut self, now: Timestamp, said: &mut Vec<Said>) {
        said.push(Said::Stopped { step: self.step, samples_seen: self.samples });
        self.leave(now, false);
    }

    fn leave(&mut self, now: Timestamp, complete: bool) {
        self.stage = Stage::Leaving { at: now + EXIT, complete };
    }
}

#[cfg(test)]
mod tests;
