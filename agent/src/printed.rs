//! Steps of a script that says nothing to the agent, read from its output by the job's own pattern: bytes into lines, lines into one
//! report per look. It reads no clock and no file; `printed/follower.rs` does. What no line says is not made up: samples are the
//! step's number times the batch, tokens those of the samples, time passes between looks.

mod follower;
mod lines;
mod loss;

use headway_api::progress::{Pattern, PatternError};
use headway_types::spec::PrintedProgress;
use headway_types::{Configuration, GpuCount, LaunchOrder, Layout, Seconds, Sequences, StepReport, Timestamp, Tokens};

pub(crate) use follower::follow;
use loss::{LossAnomaly, LossWatch};

/// Turns what lines tell into reports. Steps may be left out between lines; those that were told already, as after a restart of the
/// script from its checkpoint, tell nothing until the script is beyond them.
pub(crate) struct Reader {
    pattern: Pattern,
    order: LaunchOrder,
    told: PrintedProgress,
    /// The newest step, and when it was looked at.
    step: Option<u64>,
    at: Timestamp,
    look: Option<Look>,
    losses: LossWatch,
    /// The gravest anomaly since the last look.
    anomaly: Option<LossAnomaly>,
}

/// What the lines of a look tell together.
struct Look {
    step: u64,
    steps: u64,
    /// Of the steps, those whose time was printed take so long; `None` where that is not known of all.
    seconds: Option<f64>,
    /// Likewise.
    tokens: Option<f64>,
    tokens_per_second: Option<f64>,
    /// Sequences per step, as the newest line has it.
    samples: Sequences,
    samples_seen: Sequences,
    loss: Option<f64>,
    /// Before it no step was known: how long its first step took is known only where that is printed.
    first: bool,
}

impl Reader {
    /// # Errors
    /// A pattern that cannot be used; the scheduler has refused it before.
    pub(crate) fn new(order: &LaunchOrder, told: &PrintedProgress, now: Timestamp) -> Result<Self, PatternError> {
        let pattern = Pattern::compile(&told.regex)?;
        Ok(Self {
            pattern,
            order: order.clone(),
            told: told.clone(),
            step: None,
            at: now,
            look: None,
            losses: LossWatch::default(),
            anomaly: None,
        })
    }

    pub(crate) fn read(&mut self, line: &[u8]) {
        let Some(line) = self.pattern.read(line) else { return };
        if self.step.is_some_and(|step| line.step <= step) {
            return;
        }
        if let Some(loss) = line.loss {
            self.watch_loss(line.step, loss);
        }
        let steps = self.step.map_or(1, |step| line.step - step);
        let first = self.step.replace(line.step).is_none();
        let ordered = self.order.configuration.map(|at| at.global_batch);
        let samples = line.samples.filter(|samples| *samples > 0).map(Sequences).or(self.told.samples_per_step);
        let samples = samples.or(ordered).unwrap_or(Sequences(1));
        let of_samples = || Some(samples.0 as f64 * f64::from(self.told.sequence_length?));
        let per_step = line.tokens.or(self.told.tokens_per_step.map(|tokens| tokens.0)).or_else(of_samples);
        let all = |of_one: Option<f64>| Some(of_one? * steps as f64);
        let (before, sum) = (self.look.take(), |one: Option<f64>, other: Option<f64>| Some(one? + other?));
        let (seconds, tokens) = (all(line.seconds), all(per_step));
        self.look = Some(Look {
            step: line.step,
            steps: before.as_ref().map_or(0, |look| look.steps) + steps,
            seconds: before.as_ref().map_or(seconds, |look| sum(look.seconds, seconds)),
            tokens: before.as_ref().map_or(tokens, |look| sum(look.tokens, tokens)),
            tokens_per_second: line.tokens_per_second.or(before.as_ref().and_then(|look| look.tokens_per_second)),
            samples,
            samples_seen: line.consumed.map_or(Sequences(line.step.saturating_mul(samples.0)), Sequences),
            // The newest that was printed; a report has no loss where that one is not a finite number.
            loss: match line.loss {
                Some(loss) => Some(loss).filter(|loss| loss.is_finite()),
                None => before.as_ref().and_then(|look| look.loss),
            },
            first: before.map_or(first, |look| look.first),
        });
    }

    fn watch_loss(&mut self, step: u64, loss: f64) {
        let Some(found) = self.losses.see(step, loss) else { return };
        let is_graver = self.anomaly.is_none_or(|known| known.loss.is_some() && found.loss.is_none());
        if is_graver {
            self.anomaly = Some(found);
        }
    }

    /// Returns the gravest odd loss of the lines since the last call, if any was odd.
    pub(crate) fn take_anomaly(&mut self) -> Option<LossAnomaly> {
        self.anomaly.take()
    }

    /// What the lines since the last look tell; `None` if no new step, or none whose duration is known.
    pub(crate) fn look_over(&mut self, now: Timestamp) -> Option<StepReport> {
        let look = self.look.take()?;
        let passed = now.since(std::mem::replace(&mut self.at, now));
        if look.first && look.seconds.is_none() {
            return None;
        }
        let duration = look.seconds.filter(|seconds| *seconds > 0.0).map_or(passed, Seconds);
        let by_rate = || Some(look.tokens_per_second? * duration.0);
        Some(StepReport {
            job: self.order.job,
            generation: self.order.generation,
            step: look.step,
            steps: u32::try_from(look.steps).unwrap_or(u32::MAX),
            samples_seen: look.samples_seen,
            tokens: Tokens(look.tokens.or_else(by_rate).unwrap_or(0.0)),
            duration,
            configuration: self.order.configuration.unwrap_or_else(|| self.shape(look.samples)),
            loss: look.loss,
            noise: None,
            preconditioned: None,
            memory_peak: None,
        })
    }

    /// Of a job that is launched without a configuration: its GPUs share the samples, where they can.
    fn shape(&self, samples: Sequences) -> Configuration {
        let gpus = self.order.placement.gpus();
        let shares = u64::from(gpus.0.max(1));
        let ranks = if samples.0.is_multiple_of(shares) { gpus.0.max(1) } else { 1 };
        let layout = Layout::data_parallel(GpuCount(ranks));
        Configuration { layout, micro_batch: Sequences(samples.0 / u64::from(ranks)), global_batch: samples }
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
