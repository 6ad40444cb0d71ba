//! Step reports: folded into the job's model, its live numbers, the tokens it has seen and its progress. All of this is
//! observation; only the first step of a generation and a reached target become facts.

use std::sync::Arc;

use headway_types::spec::TargetCount;
use headway_types::{Generation, JobId, NodeId, Seconds, Sequences, StepReport, Tokens, TokensPerSecond};

use crate::draft::Note;
use crate::engine::Engine;
use crate::outcome::Observation;
use crate::record::{Job, JobState, StopCause};
use crate::seen::{LiveNumbers, Moving};

/// Weight of the newest report in smoothed throughput, and of the newest restart in its learnt downtime.
const NEWEST: f64 = 0.3;

/// What one move counts for at most in what is learnt of moves, over what was expected.
const OUTLIER: f64 = 4.0;

impl Engine {
    pub(crate) fn step_reported(&mut self, node: NodeId, report: StepReport) {
        let (job, key) = (report.job, (report.job, report.generation));
        let sane =
            report.steps > 0 && report.duration.0.is_finite() && report.duration.0 > 0.0 && report.tokens.0.is_finite();
        if !sane
            || !self.facts.is_newest(job, report.generation)
            || !self.facts.is_placed_on(job, report.generation, node)
            || !self.believes(node, &report)
        {
            return;
        }
        let Some(allocation) = self.facts.allocations.get(&key) else {
            return self.facts.impossible("a generation without an allocation trains", Some(job), Some(node));
        };
        let (nodes, gpus) = (allocation.placement.nodes(), allocation.placement.gpus());
        let first = allocation.training_at.is_none();
        let fallback = if first { self.fallback_of(&report) } else { None };
        let ordered = allocation.configuration.map(|at| at.layout);
        let in_hand = self.situation().taken_revision(allocation) >= allocation.revision;
        let class = self.facts.class_of(&allocation.placement);
        let (Some(row), Some(seen)) = (self.facts.jobs.get(&job), self.seen.job_mut(job)) else {
            return self.facts.impossible("nothing is known of a job that trains", Some(job), Some(node));
        };
        // Progress follows the sample clock, which no lost or repeated report can bend.
        let fresh = report.samples_seen.saturating_sub(seen.live.samples_seen);
        // Also a script that went back to an earlier point of its own is alive.
        seen.live.reported_at = Some(self.facts.now);
        if seen.silence_told.take().is_some() {
            self.facts.draft.shown_jobs.insert(job);
        }
        if fresh == Sequences(0) && !first {
            return;
        }
        let mut contradiction = None;
        if let (Some(model), Some(class)) = (&mut seen.model, &class) {
            let known = model.contradiction(class, nodes, &report.configuration).is_some();
            Arc::make_mut(model).observe(class, nodes, &report);
            contradiction = model.contradiction(class, nodes, &report.configuration).filter(|_| !known);
        }
        let before = seen.live.progress;
        let efficiency = seen.model.as_ref().map(|model| model.efficiency(report.configuration.global_batch));
        seen.live.fold(row, &report, fresh, efficiency);
        let model = seen.model.as_ref();
        seen.live.noise_scale = model.and_then(|model| model.noise_scale()).map(|(phi, _)| phi);
        seen.live.noise_interval = model.and_then(|model| model.noise_interval());
        let former = in_hand && ordered.is_some_and(|layout| layout != report.configuration.layout);
        seen.former_layout_since = former.then(|| seen.former_layout_since.unwrap_or(self.facts.now));
        if seen.reported != Some(report.configuration) {
            seen.reported = Some(report.configuration);
            self.facts.unsettled = true;
        }
        seen.step_time = Some(Seconds(report.duration.0 / f64::from(report.steps)));
        seen.report_time = (!first).then_some(report.duration);
        let has_recovered = row.not_finite_loss.is_some_and(|lost| lost.is_over(&report));
        let reached = seen.live.left(row) == Some(Tokens(0.0));
        let noise_scale = seen.live.noise_scale;
        let duration = report.duration;
        self.facts.draft.observations.push(Observation::Steps {
            at: self.facts.now,
            report: Box::new(report),
            noise_scale,
            efficiency,
            gpus: gpus.0,
        });
        self.facts.draft.shown_jobs.insert(job);
        if let Some(contradiction) = contradiction {
            self.batch_contradicted(job, &contradiction);
        }
        if has_recovered {
            self.facts.edit_job(job, |job| job.not_finite_loss = None);
        }
        self.save_model(job);
        self.notice_drift(job);
        if first {
            self.first_step(key, duration, before);
        }
        if let Some(fallback) = fallback {
            self.note_fallback(node, job, fallback);
        }
        if reached && self.facts.jobs.get(&job).is_some_and(|job| matches!(job.state, JobState::Running { .. })) {
            self.stop(job, StopCause::TargetReached, "it has reached its target");
        }
    }

    fn save_model(&mut self, job: JobId) {
        let Some(seen) = self.seen.job_mut(job) else {
            return self.facts.impossible("nothing is known of a job that trains", Some(job), None);
        };
        let due =
            seen.model_saved_at.is_none_or(|at| self.facts.now.since(at).0 >= self.facts.config.model_save_every.0);
        if let Some(model) = seen.model.clone().filter(|_| due) {
            seen.model_saved_at = Some(self.facts.now);
            self.facts.draft.observations.push(Observation::Model { job, model });
        }
    }

    /// A generation trains since its first report began: the end of its downtime.
    fn first_step(&mut self, key: (JobId, Generation), covered: Seconds, progress: Tokens) {
        let job = key.0;
        let Some(allocation) = self.facts.allocations.get(&key) else {
            return self.facts.impossible("a generation without an allocation trains", Some(job), None);
        };
        // Devices that keep another time than ours may claim to have begun before they were there.
        let granted = allocation.granted_at;
        let began = (self.facts.now - covered).max(allocation.launched_at.unwrap_or(allocation.granted_at));
        self.facts.edit_allocation(key, |allocation| {
            allocation.training_at = Some(began);
            allocation.progress_from = Some(progress);
            if let Some(expectation) = &mut allocation.expectation {
                expectation.measured_from = Some((began, progress));
            }
        });
        let (Some(row), Some(seen)) = (self.facts.jobs.get(&job), self.seen.job_mut(job)) else {
            return self.facts.impossible("nothing is known of a job that trains", Some(job), None);
        };
        let mut message = format!("{} trains under {}", row.spec.name, key.1);
        // A first step that is heard of only after the next stop ends no move.
        let moved = if matches!(row.state, JobState::Stopping { .. }) { None } else { seen.moving.take() };
        if let Some(Moving::Stopped { at, took: stopping, .. }) = moved {
            let (starting, waited) = (began.since(granted), granted.since(at));
            let took = stopping + starting;
            message.push_str(&format!(": its move took {:.1} s", took.0));
            if waited.0 >= 1.0 {
                message.push_str(&format!(", after {:.0} s without GPUs", waited.0));
            }
            let assumed = self.facts.config.restart_prior;
            self.facts.edit_job(job, |job| {
                job.downtime = Some(learnt(job, assumed, took));
                job.moved_for += took;
            });
        }
        // A script whose output is read says nothing of itself.
        if self
            .facts
            .jobs
            .get(&job)
            .is_some_and(|job| job.capabilities.is_none() && job.spec.reads_steps_by().is_some())
        {
            self.facts.edit_job(job, |job| job.capabilities = Some(job.able()));
        }
        self.facts.note(Note::new("job.training", message).job(job));
    }
}

/// What a move that took so long teaches of the next one. The first that is measured replaces what was only inferred from a start;
/// none counts for more than `OUTLIER` times what was expected, so that one that was held up does not keep a job from ever moving again.
fn learnt(job: &Job, assumed: Seconds, took: Seconds) -> Seconds {
    let expected = job.downtime.unwrap_or(assumed).0;
    let counted = took.0.min(OUTLIER * expected);
    let known = if job.moved_for.0 > 0.0 { expected } else { counted };
    Seconds(known + NEWEST * (counted - known))
}

impl LiveNumbers {
    /// Takes in a report; `fresh` of its samples were not counted before.
    fn fold(&mut self, job: &Job, report: &StepReport, fresh: Sequences, efficiency: Option<f64>) {
        // Output may tell of steps and not of tokens.
        if report.tokens.0 > 0.0 {
            let rate = (report.tokens / report.duration).0;
            let smooth = self.throughput.map_or(rate, |old| old.0 + NEWEST * (rate - old.0));
            self.throughput = Some(TokensPerSecond(smooth));
        }
        self.efficiency = efficiency;
        self.goodput =
            self.throughput.zip(efficiency).map(|(smooth, efficiency)| TokensPerSecond(smooth.0 * efficiency));
        let (tokens, worth) = (job.tokens(fresh), efficiency.unwrap_or(0.0));
        self.progress += tokens * worth;
        self.credit += tokens * (worth - 1.0).max(0.0);
        self.samples_seen = self.samples_seen.max(report.samples_seen);
        self.step = self.step.max(report.step);
        self.loss = report.loss.or(self.loss);
        let goodput = self.goodput.filter(|goodput| goodput.0 > 0.0);
        self.remaining = self.left(job).zip(goodput).map(|(left, goodput)| left / goodput);
    }

    /// Of the goodput what the theory credits to a batch below the reference.
    #[must_use]
    pub fn credit_rate(&self) -> Option<TokensPerSecond> {
        let (goodput, throughput) = self.goodput.zip(self.throughput)?;
        Some(TokensPerSecond((goodput.0 - throughput.0).max(0.0)))
    }

    /// Reference tokens still to do. Of a target that counts tokens seen, what those bring at the present batch.
    pub(crate) fn left(&self, job: &Job) -> Option<Tokens> {
        let target = job.target()?;
        let left = target.left(job.tokens(self.samples_seen), self.progress);
        let worth = if target.count == TargetCount::Raw { self.efficiency.unwrap_or(1.0) } else { 1.0 };
        Some(left * worth)
    }

    /// Progress, and the credit in it, at a point of the sample clock near the newest report; never less than the job's row has.
    pub(crate) fn made_by(&self, job: &Job, samples: Sequences) -> (Tokens, Tokens) {
        let ahead = job.tokens(Sequences(1)) * (samples.0 as f64 - self.samples_seen.0 as f64);
        let worth = self.efficiency.unwrap_or(1.0);
        let progress = (self.progress + ahead * worth).0.max(job.progress.0);
        let credit = (self.credit + ahead * (worth - 1.0).max(0.0)).0.max(job.credit.0);
        (Tokens(progress), Tokens(credit))
    }
}
