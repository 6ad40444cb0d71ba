//! Step reports: folded into the job's model, its live numbers and its progress in reference tokens. All of this is
//! observation; only the first step of a generation and a reached target become facts.

use std::sync::Arc;

use headway_types::{Generation, JobId, NodeId, Seconds, Sequences, StepReport, Tokens, TokensPerSecond};

use crate::draft::Note;
use crate::outcome::Observation;
use crate::record::{JobState, StopCause};
use crate::state::Engine;

/// Weight of the newest report in smoothed throughput, and of the newest restart in its learnt downtime.
const NEWEST: f64 = 0.3;

impl Engine {
    pub(crate) fn step_reported(&mut self, node: NodeId, report: StepReport) {
        let (job, key) = (report.job, (report.job, report.generation));
        let sane =
            report.steps > 0 && report.duration.0.is_finite() && report.duration.0 > 0.0 && report.tokens.0.is_finite();
        if !sane || !self.is_newest(job, report.generation) || !self.is_placed_on(job, report.generation, node) {
            return;
        }
        let Some(allocation) = self.allocations.get(&key) else { return };
        let (nodes, gpus) = (allocation.placement.nodes(), allocation.placement.gpus());
        let first = allocation.training_at.is_none();
        let ordered = allocation.configuration.map(|at| at.layout);
        let in_hand = self.taken_revision(allocation) >= allocation.revision;
        let class = self.nodes.get(&node).map(|entry| entry.node.inventory.class());
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        // Progress follows the sample clock, which no lost or repeated report can bend.
        let fresh = report.samples_seen.saturating_sub(entry.live.samples_seen);
        // Also a script that went back to an earlier point of its own is alive.
        entry.live.reported_at = Some(self.now);
        if fresh == Sequences(0) && !first {
            return;
        }
        if let (Some(model), Some(class)) = (&mut entry.model, &class) {
            Arc::make_mut(model).observe(class, nodes, &report);
        }
        let efficiency = entry.model.as_ref().map(|model| model.efficiency(report.configuration.global_batch));
        let seq_len = entry.job.spec.training().map_or(0, |training| training.work.seq_len());
        let noise = entry.model.as_ref().and_then(|model| model.noise_scale());
        let live = &mut entry.live;
        let rate = (report.tokens / report.duration).0;
        let smooth = live.throughput.map_or(rate, |old| old.0 + NEWEST * (rate - old.0));
        live.throughput = Some(TokensPerSecond(smooth));
        live.efficiency = efficiency;
        live.goodput = efficiency.map(|efficiency| TokensPerSecond(smooth * efficiency));
        live.progress += fresh.tokens(seq_len) * efficiency.unwrap_or(0.0);
        live.samples_seen = live.samples_seen.max(report.samples_seen);
        live.step = live.step.max(report.step);
        live.loss = report.loss.or(live.loss);
        (live.noise_scale, live.noise_error) = noise.unzip();
        let target = entry.job.spec.training().and_then(|training| training.target);
        live.remaining = target.zip(live.goodput).and_then(|(target, goodput)| {
            (goodput.0 > 0.0).then(|| Tokens((target.0 - live.progress.0).max(0.0)) / goodput)
        });
        let former = in_hand && ordered.is_some_and(|layout| layout != report.configuration.layout);
        entry.former_layout_since = former.then(|| entry.former_layout_since.unwrap_or(self.now));
        if entry.reported != Some(report.configuration) {
            entry.reported = Some(report.configuration);
            self.unsettled = true;
        }
        entry.step_time = Some(Seconds(report.duration.0 / f64::from(report.steps)));
        let reached = target.is_some_and(|target| live.progress.0 >= target.0);
        let noise_scale = noise.map(|(phi, _)| phi);
        let duration = report.duration;
        self.draft.observations.push(Observation::Steps {
            at: self.now,
            report: Box::new(report),
            noise_scale,
            efficiency,
            gpus: gpus.0,
        });
        self.draft.shown_jobs.insert(job);
        self.save_model(job);
        self.notice_drift(job);
        if first {
            self.first_step(key, duration);
        }
        if reached && matches!(self.jobs.get(&job).map(|entry| &entry.job.state), Some(JobState::Running { .. })) {
            self.stop(job, StopCause::TargetReached, "it has reached its target of reference tokens");
        }
    }

    fn save_model(&mut self, job: JobId) {
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        let due = entry.model_saved_at.is_none_or(|at| self.now.since(at).0 >= self.config.model_save_every.0);
        if let Some(model) = entry.model.clone().filter(|_| due) {
            entry.model_saved_at = Some(self.now);
            self.draft.observations.push(Observation::Model { job, model });
        }
    }

    /// A generation trains since its first report began: the end of its downtime.
    fn first_step(&mut self, key: (JobId, Generation), covered: Seconds) {
        let job = key.0;
        let Some(allocation) = self.allocations.get(&key) else { return };
        // Devices that keep another time than ours may claim to have begun before they were there.
        let began = (self.now - covered).max(allocation.launched_at.unwrap_or(allocation.granted_at));
        self.edit_allocation(key, |allocation| allocation.training_at = Some(began));
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        let mut message = format!("{} trains under {}", entry.job.spec.name, key.1);
        // A first step that is heard of only after the next stop ends no move.
        let moved = if matches!(entry.job.state, JobState::Stopping { .. }) { None } else { entry.moving_since.take() };
        if let Some(stopped) = moved {
            let took = began.since(stopped);
            message.push_str(&format!(", {:.1} s after it was asked to stop", took.0));
            self.edit_job(job, |job| {
                // The first move that is measured replaces what was only inferred from a start.
                let known = job.downtime.filter(|_| job.moved_for.0 > 0.0).unwrap_or(took);
                job.downtime = Some(Seconds(known.0 + NEWEST * (took.0 - known.0)));
                job.moved_for += took;
            });
        }
        self.note(Note::new("job.training", message).job(job));
    }

    /// Reference tokens at a point of the sample clock near the newest report.
    pub(crate) fn progress_at(&self, job: JobId, samples: Sequences) -> f64 {
        let Some(entry) = self.jobs.get(&job) else { return 0.0 };
        let seq_len = entry.job.spec.training().map_or(0, |training| training.work.seq_len());
        let per_sequence = f64::from(seq_len) * entry.live.efficiency.unwrap_or(1.0);
        let ahead = samples.0 as f64 - entry.live.samples_seen.0 as f64;
        (entry.live.progress.0 + ahead * per_sequence).max(0.0)
    }
}
