//! The checkpoint that a job was to resume from is not on disk. A restored store may name one that was removed since,
//! while newer ones of the job are there: the job goes on from the newest that a node found. The directory is the job's
//! owner's, so it is believed as far as a worker's offer (`reports/plausible.rs`). Progress never goes back: an older
//! checkpoint is not taken. No node is blamed.

use std::sync::Arc;

use headway_types::{Blame, CheckpointRef, JobId, MissingCheckpoint, NodeId, Seconds};

use crate::draft::Note;
use crate::engine::Engine;
use crate::event::Actor;
use crate::record::{Checkpoint, Job};
use crate::seen::LiveNumbers;
use crate::situation::breakdown::Breakdown;

impl Engine {
    /// Makes the job go on from the checkpoint that a node found, or says why it cannot. What is left missing stays so
    /// in the breakdown.
    pub(super) fn resolve_missing_checkpoint(&mut self, id: JobId, mut breakdown: Breakdown) -> Breakdown {
        let Some((missing, (node, _))) = breakdown.missing_checkpoint.take().zip(breakdown.place) else {
            return breakdown;
        };
        let Some(job) = self.facts.jobs.get(&id).cloned() else { return breakdown };
        let Some(committed) = job.checkpoint.clone() else { return breakdown };
        match self.judge_found(&job, &committed, &missing) {
            Ok(found) if found.generation > job.generation => {
                // A restored store knows less of generations: once they are above it, the next start finds it again.
                self.seen.old_generations.insert(id);
                let words = format!("; {}, which is not known here, has saved {}", found.generation, found.path);
                let message = breakdown.message + &words;
                Breakdown { message, blame: Blame::Infrastructure, ..breakdown }
            }
            Ok(found) => {
                let words = format!("; it goes on from {} (step {})", found.path, found.step);
                self.adopt_found(&job, node, &committed, found.clone());
                let message = breakdown.message + &words;
                Breakdown { message, blame: Blame::Infrastructure, ..breakdown }
            }
            Err(why) => {
                let what_to_do = "restore it, or submit the job anew";
                let message = format!("{}, and {why}; {what_to_do}", breakdown.message);
                Breakdown { message, missing_checkpoint: Some(missing), ..breakdown }
            }
        }
    }

    /// Returns the checkpoint that the job can go on from.
    fn judge_found<'a>(
        &self,
        job: &Job,
        committed: &CheckpointRef,
        missing: &'a MissingCheckpoint,
    ) -> Result<&'a CheckpointRef, String> {
        let Some(found) = &missing.newest else {
            return Err("no other whole checkpoint of the job is in its directory".to_owned());
        };
        if found.samples_seen < committed.samples_seen {
            return Err(format!("the newest whole one there is older: {} (step {})", found.path, found.step));
        }
        match self.objection_to_found(job, committed, found) {
            Some(wrong) => Err(format!("{} cannot be taken: {wrong}", found.path)),
            None => Ok(found),
        }
    }

    fn adopt_found(&mut self, job: &Job, node: NodeId, committed: &CheckpointRef, found: CheckpointRef) {
        let (id, now) = (job.id, self.facts.now);
        let Some(seen) = self.seen.jobs.get(&id) else {
            return self.facts.impossible("nothing is known of a job that starts", Some(id), Some(node));
        };
        // The batch that it was made at is not known: that of the start which failed is as good as any.
        let batch = self.facts.newest_allocation(job).and_then(|one| one.configuration).map(|at| at.global_batch);
        let model = seen.model.as_ref().zip(batch);
        let efficiency = seen.live.efficiency.or_else(|| model.map(|(model, batch)| model.efficiency(batch)));
        let live = LiveNumbers { efficiency, ..seen.live.clone() };
        let (progress, credit) = live.made_by(job, found.samples_seen);
        let message = format!(
            "{} goes on from step {} ({} sequences), which node {} found: its committed checkpoint of step {} is missing there",
            job.spec.name,
            found.step,
            found.samples_seen,
            self.facts.node_name(node),
            committed.step,
        );
        let note = Note::new("checkpoint.adopted", message).by(Actor::Node(node)).job(id).node(node);
        self.facts.note(note.with("path", &found.path).with("missing", &committed.path));
        let record =
            Checkpoint { job: id, checkpoint: found.clone(), duration: Seconds(0.0), committed_at: now, progress };
        self.facts.draft.checkpoints.entry(id).or_default().push(Arc::new(record));
        self.facts.edit_job(id, |job| {
            job.checkpoint = Some(found);
            job.checkpoint_at = Some(now);
            (job.progress, job.credit) = (progress, credit);
        });
    }
}
