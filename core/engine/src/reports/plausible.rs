//! Reports held to what the job's GPUs could have done since its generation was granted them. A worker that errs or lies ends no job
//! early and teaches no model: what is beyond every machine is not taken, the log says so, and the job goes on. A script that keeps
//! checkpoints of its own begins where it likes, short of its target: its first report says where.

use std::sync::Arc;

use headway_goodput::catalog::peak_flop_per_second;
use headway_goodput::training_flops_per_token;
use headway_types::spec::Work;
use headway_types::{
    CheckpointRef, Generation, GpuCount, JobId, NodeClass, NodeCount, NodeId, Seconds, Sequences, StepReport,
    TokensPerSecond,
};

use crate::draft::Note;
use crate::engine::Engine;
use crate::event::Actor;
use crate::record::{Allocation, Job, Node};
use crate::returning::LEAP;
use crate::seen::LiveNumbers;

/// Over the peak of the GPUs by the job's own shape: a script may compute in fewer bits, or less than its shape says.
const SLACK: f64 = 8.0;
/// Tokens per second and GPU where nobody knows the device's peak, or the shape.
const FASTEST: f64 = 1e8;
/// Larger numbers are not exact as JSON numbers, and no training counts so far.
const MOST_STEPS: u64 = 1 << 53;
/// Clocks and reports may be late by so much.
const LATE: Seconds = Seconds(60.0);
/// Between two words in the log on the reports of one job.
const TOLD_AGAIN: Seconds = Seconds(60.0);

/// Tokens per second that the GPUs of an allocation could see at most.
fn most(job: &Job, allocation: &Allocation, class: &NodeClass) -> TokensPerSecond {
    most_of(job, allocation.placement.gpus(), allocation.placement.nodes(), class)
}

fn most_of(job: &Job, gpus: GpuCount, nodes: NodeCount, class: &NodeClass) -> TokensPerSecond {
    let shape = job.spec.training().and_then(|training| match &training.work {
        Work::Model(shape) => Some(shape),
        Work::Curve { .. } => None,
    });
    let by_peak = |(shape, peak): (_, f64)| SLACK * peak / training_flops_per_token(shape);
    let known = shape.zip(peak_of_a_gpu(class, nodes)).map(by_peak);
    // An emulated device keeps a time of its own.
    let each = match known {
        Some(each) if class.emulated.is_none() => each,
        other => other.unwrap_or(0.0).max(FASTEST),
    };
    TokensPerSecond(each * f64::from(gpus.0))
}

/// FLOP/s, of a gang over two classes on average; `None` of a device that nobody knows.
fn peak_of_a_gpu(class: &NodeClass, nodes: NodeCount) -> Option<f64> {
    let peak = peak_flop_per_second(class).ok()?.0;
    let Some(ahead) = &class.ahead else { return Some(peak) };
    let more = peak_flop_per_second(&ahead.class).ok()?.0 - peak;
    Some(peak + more * f64::from(ahead.nodes.0) / f64::from(nodes.0))
}

/// What is wrong with samples that are said to have been seen by now.
fn too_many(job: &Job, live: &LiveNumbers, seen: Sequences, most: TokensPerSecond, held: Seconds) -> Option<String> {
    let fresh = job.tokens(Sequences(seen.0.saturating_sub(live.began_with.0))).0;
    let bound = most.0 * held.0.max(LATE.0);
    (fresh > bound).then(|| {
        format!("{seen} sequences seen are {fresh:.3e} tokens since it was granted its GPUs, which could have seen {bound:.3e} at most")
    })
}

/// What is wrong with the number of a step.
fn beyond_counting(step: u64) -> Option<String> {
    (step > MOST_STEPS).then(|| format!("step {step} is beyond 2^53, which no training reaches"))
}

/// What is wrong with the pace of a report.
fn too_fast(report: &StepReport, most: TokensPerSecond) -> Option<String> {
    let pace = (report.tokens / report.duration).0;
    let fine = (0.0..=most.0).contains(&pace);
    (!fine).then(|| format!("{pace:.3e} tokens per second are beyond its GPUs, whose most is {:.3e}", most.0))
}

/// Whether so many samples would be all that the job is to see.
fn is_target_met(job: &Job, samples: Sequences) -> bool {
    let target = job.spec.training().and_then(|training| training.target);
    target.is_some_and(|target| job.tokens(samples) >= target.tokens)
}

impl Engine {
    /// Whether a report of the job's newest generation may be believed; told where it may not.
    pub(super) fn believes(&mut self, node: NodeId, report: &StepReport) -> bool {
        let (key, samples) = ((report.job, report.generation), report.samples_seen);
        let unheard = self.facts.allocations.get(&key).is_some_and(|one| one.training_at.is_none())
            || self.seen.jobs.get(&key.0).is_some_and(|seen| seen.live.reported_at.is_none());
        let wrong = self.judged(key, |job, live, most, held| {
            let too_many = || too_many(job, live, samples, most, held);
            let impossible = beyond_counting(report.step).or_else(|| too_fast(report, most));
            impossible.or_else(|| too_many().filter(|_| !unheard || is_target_met(job, samples)))
        });
        let believed = self.tell_unless_believed(node, report.job, wrong);
        if let Some(seen) = self.seen.job_mut(key.0) {
            if believed && unheard {
                seen.live.began_with = seen.live.began_with.max(samples);
            }
            // Whatever it says, it lives.
            seen.live.reported_at = Some(self.facts.now);
        }
        believed
    }

    /// Likewise of the samples that a checkpoint is said to hold.
    pub(super) fn believes_saved(&mut self, node: NodeId, job: JobId, checkpoint: &CheckpointRef) -> bool {
        let samples = checkpoint.samples_seen;
        let wrong = self.judged((job, checkpoint.generation), |job, live, most, held| {
            beyond_counting(checkpoint.step).or_else(|| too_many(job, live, samples, most, held))
        });
        self.tell_unless_believed(node, job, wrong)
    }

    /// Returns what is wrong with a checkpoint that nobody offered, but that a node found on disk: the most GPUs that the
    /// job takes, of the fastest type, could not have got so far since the committed one, or no restore leaves room for
    /// its generation.
    pub(crate) fn objection_to_found(
        &self,
        job: &Job,
        committed: &CheckpointRef,
        found: &CheckpointRef,
    ) -> Option<String> {
        if found.generation.0 > job.generation.0.saturating_add(LEAP) {
            return Some(format!("the job cannot have come to generation {}", found.generation));
        }
        let gpus = job.spec.role().gpus.max;
        let of_node = |node: &Arc<Node>| most_of(job, gpus, NodeCount(1), &node.inventory.class()).0;
        let most = self.facts.nodes.values().map(of_node).fold(0.0, f64::max);
        let since = self.facts.now.since(job.checkpoint_at.unwrap_or(job.submitted_at));
        let fresh = job.tokens(Sequences(found.samples_seen.0 - committed.samples_seen.0)).0;
        let bound = most * since.0.max(LATE.0);
        beyond_counting(found.step).or_else(|| {
            (fresh > bound).then(|| {
                let seen = found.samples_seen;
                format!(
                    "{seen} sequences seen are {fresh:.3e} tokens since step {}, of which its GPUs could have seen {bound:.3e}",
                    committed.step
                )
            })
        })
    }

    /// What is wrong by what its GPUs can do and how long they have been held.
    fn judged(
        &self,
        key: (JobId, Generation),
        judge: impl FnOnce(&Job, &LiveNumbers, TokensPerSecond, Seconds) -> Option<String>,
    ) -> Option<String> {
        let (job, seen) = (self.facts.jobs.get(&key.0)?, self.seen.jobs.get(&key.0)?);
        let allocation = self.facts.allocations.get(&key)?;
        let most = most(job, allocation, &self.facts.class_of(&allocation.placement)?);
        judge(job, &seen.live, most, self.facts.now.since(allocation.granted_at))
    }

    fn tell_unless_believed(&mut self, node: NodeId, job: JobId, wrong: Option<String>) -> bool {
        let Some(wrong) = wrong else { return true };
        let now = self.facts.now;
        let Some(seen) = self.seen.job_mut(job) else { return false };
        if seen.disbelieved_at.is_none_or(|at| now.since(at).0 >= TOLD_AGAIN.0) {
            seen.disbelieved_at = Some(now);
            let message = format!("a report of {} is not taken: {wrong}", self.facts.job_name(job));
            self.facts.note(Note::new("job.report_refused", message).by(Actor::Node(node)).job(job).node(node));
        }
        false
    }
}
