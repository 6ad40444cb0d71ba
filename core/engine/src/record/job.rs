//! A job's row.

use std::collections::{BTreeMap, BTreeSet};

use headway_types::spec::Target;
use headway_types::{
    Capabilities, CheckpointRef, Generation, GpuCount, GpuSeconds, GpuType, JobId, JobSpec, Layout, NodeId, Seconds,
    Sequences, StepReport, Timestamp, Tokens,
};
use serde::{Deserialize, Serialize};

use super::allocation::{Allocation, Displacer};
use super::array::Element;
use super::dependency::Dependency;
use super::fallback::Fallback;
use super::job_state::{JobState, StopCause, Wish};
use super::pin::{Pin, Resize};
use super::turn::Turn;
use crate::account::GpuTime;

/// How long a job that waits avoids the nodes that failed it.
pub(crate) const SUSPICION: Seconds = Seconds(60.0);

/// Moves beyond this age no longer count against `max_resizes_per_hour`.
pub(crate) const RESIZE_WINDOW: Seconds = Seconds(3_600.0);

/// Live changes of the batch within an hour. They are no moves of GPUs: by those a batch that follows its noise would keep its job from following
/// the cluster.
const BATCH_CHANGES_PER_HOUR: usize = 6;

/// Characters of a failure's cause that a sentence about a waiting job has.
const LONGEST_CAUSE: usize = 200;

/// A job: what was asked (spec), what was decided (state, generation), what was reached (checkpoint, progress).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub id: JobId,
    pub spec: JobSpec,
    pub owner: String,
    pub submitted_at: Timestamp,
    pub state: JobState,
    /// Highest generation issued; 0 before the first.
    pub generation: Generation,
    /// What the running script can do: declared by the SDK, else the specification's.
    pub capabilities: Option<Capabilities>,
    /// The one checkpoint the next generation resumes from.
    pub checkpoint: Option<CheckpointRef>,
    pub checkpoint_at: Option<Timestamp>,
    /// Reference tokens reached at the last committed checkpoint.
    pub progress: Tokens,
    /// Of that progress what the theory credits to batches below the reference, beyond the tokens seen.
    #[serde(default)]
    pub credit: Tokens,
    pub started_at: Option<Timestamp>,
    /// Loss at the last committed checkpoint, or at the end.
    pub loss: Option<f64>,
    /// Set while its loss is not a finite number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_finite_loss: Option<NotFiniteLoss>,
    /// Starts that ended in a failure of the job's own, since it last made progress.
    pub failures: u32,
    /// All such failures in the job's life.
    pub restarts: u32,
    /// Ends that were not the job's fault: nodes that broke or vanished, launches that did not come about.
    #[serde(default)]
    pub disruptions: u32,
    /// Times it gave up all its GPUs since others needed them more.
    #[serde(default)]
    pub preemptions: u32,
    /// What the GPU-time of the generations went into that it has left.
    #[serde(default)]
    pub spent: GpuTime,
    /// When others took GPUs of it, the newest last; of many the last few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub displaced: Vec<Displacement>,
    /// Ends that were not the job's fault in a row, since the job last made progress.
    #[serde(default)]
    pub setbacks: u32,
    /// Hangs in a row, likewise.
    #[serde(default)]
    pub hangs: u32,
    /// Nodes on which a generation failed by the node's fault, since the job last made progress: should it fail on
    /// another in the same way, the fault is its own.
    #[serde(default)]
    pub suspects: BTreeSet<NodeId>,
    /// A node that it is kept off for now, since it could not start there: one that lacks what the specification names, of a job that never ran
    /// (another is tried before the job is given up), or one of its suspects.
    #[serde(default)]
    pub lacking: Option<NodeId>,
    /// Time spent running under past generations; `limits.time` counts it.
    #[serde(default)]
    pub ran: Seconds,
    /// The long wait that its present run is for.
    #[serde(default)]
    pub turn: Turn,
    /// GPU-time of generations whose GPUs are all proven free.
    #[serde(default)]
    pub attained: GpuSeconds,
    /// Most GPUs of each type that it ever ran on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub most_gpus: BTreeMap<GpuType, GpuCount>,
    /// What the job's checkpoints were written in: a script that cannot reshard must start in it again.
    #[serde(default)]
    pub layout: Option<Layout>,
    /// Keeps it on the GPUs it has.
    #[serde(default)]
    pub pin: Option<Pin>,
    /// Its owner has asked for other sizes: until a round has looked at it or it leaves its GPUs, nothing bounds its next move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize: Option<Resize>,
    /// Downtime of a restart as measured: from the stop to the end, and from the grant of other GPUs to the first step on them.
    #[serde(default)]
    pub downtime: Option<Seconds>,
    /// Downtime of a change of layout in memory, as the script last told.
    #[serde(default)]
    pub layout_downtime: Option<Seconds>,
    /// All downtime that moves have cost so far; `elastic.max_overhead` bounds it.
    #[serde(default)]
    pub moved_for: Seconds,
    /// Moves and preemptions within the hour; `elastic.max_resizes_per_hour` bounds them.
    #[serde(default)]
    pub moved_at: Vec<Timestamp>,
    /// No start before this moment (back-off after a failure).
    pub not_before: Option<Timestamp>,
    /// Since when a user wants it to save, until a newer checkpoint is committed or the generation ends.
    #[serde(default)]
    pub save_wanted: Option<Timestamp>,
    /// Wanted by a user while the job holds GPUs: `Held` or `Cancelled` once it has stopped.
    pub wish: Option<Wish>,
    /// What it waits for, or has waited for, before it may start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Dependency>,
    /// Of an element of an array: which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element: Option<Element>,
    /// Times GPUs or layout changed while the job lived.
    pub reconfigurations: u32,
    /// Live batch changes.
    pub batch_changes: u32,
    /// Those within the hour, which are bounded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batch_changed_at: Vec<Timestamp>,
    /// How its processes last ended before their time.
    #[serde(default)]
    pub last_failure: Option<LastFailure>,
    /// The newest start from an earlier point than its committed checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_fallback: Option<Fallback>,
    /// What changed last and why, in words.
    pub last_change: Option<LastChange>,
    /// Rises with every stored change; the ETag.
    pub version: u64,
}

impl Job {
    /// Counts one more move.
    pub(crate) fn count_move(&mut self, at: Timestamp) {
        self.reconfigurations += 1;
        self.count_disruption(at);
    }

    /// Counts a move or a preemption against what the job lets itself be disturbed: `elastic.max_resizes_per_hour`, and
    /// the hysteresis of its next one.
    pub(crate) fn count_disruption(&mut self, at: Timestamp) {
        self.moved_at.retain(|one| at.since(*one).0 < RESIZE_WINDOW.0);
        self.moved_at.push(at);
    }

    /// One more live change of the batch.
    pub(crate) fn count_batch_change(&mut self, at: Timestamp) {
        self.batch_changes += 1;
        self.batch_changed_at.retain(|one| at.since(*one).0 < RESIZE_WINDOW.0);
        self.batch_changed_at.push(at);
    }

    /// Why no further live change of its batch is made for now.
    pub(crate) fn batch_bound(&self, now: Timestamp) -> Option<String> {
        let changes = self.batch_changed_at.iter().filter(|at| now.since(**at).0 < RESIZE_WINDOW.0).count();
        (changes >= BATCH_CHANGES_PER_HOUR)
            .then(|| format!("its batch was changed {changes} times within the hour, as often as it may be"))
    }

    /// What the running script can do: its own word, else the specification's.
    #[must_use]
    pub fn able(&self) -> Capabilities {
        self.capabilities
            .or_else(|| self.spec.training().map(|training| training.reconfigure))
            .unwrap_or(Capabilities::UNKNOWN_SCRIPT)
    }

    /// A node it is not to be tried on for now: after so long a wait for another, that one again.
    pub(crate) fn keeps_off(&self, now: Timestamp) -> Option<NodeId> {
        let waits = !matches!(self.state, JobState::Queued { since } if now.since(since).0 > SUSPICION.0);
        self.lacking.filter(|_| waits)
    }

    /// Dependencies that are still open; those of a job that has ended matter no more.
    pub fn open_dependencies(&self) -> impl Iterator<Item = &Dependency> {
        let live = !self.after.is_empty() && !self.state.is_final();
        self.after.iter().filter(move |one| live && one.standing.is_open())
    }

    /// Whether other jobs come before it: those that it names, or as many elements of its array as that allows at once.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.open_dependencies().next().is_some() || self.waits_for_its_array()
    }

    /// Whether it is in no round since its array has as many others in them as it allows.
    #[must_use]
    pub fn waits_for_its_array(&self) -> bool {
        !self.state.is_final() && self.element.as_ref().is_some_and(|element| element.waits)
    }

    /// Live, and neither held, nor ending for good, nor waiting after a failure or for other jobs.
    #[must_use]
    pub fn wants_gpus(&self, now: Timestamp) -> bool {
        let waits = self.not_before.is_some_and(|moment| moment > now);
        match &self.state {
            JobState::Queued { .. } => !waits && !self.is_blocked(),
            JobState::Starting { .. } | JobState::Running { .. } => true,
            JobState::Stopping { cause, .. } => {
                let comes_back = match cause {
                    StopCause::Rescale | StopCause::Preempt | StopCause::Drain | StopCause::Requeue => true,
                    StopCause::NodeLost { .. } | StopCause::GangBroken { .. } | StopCause::Hung { .. } => true,
                    StopCause::Cancel | StopCause::Hold | StopCause::TargetReached => false,
                    StopCause::TimeLimit | StopCause::BudgetSpent => false,
                    StopCause::IdleGpus { .. } | StopCause::Mistaken { .. } => false,
                };
                comes_back && !self.spec.limits.forbid_restart() && self.wish.is_none() && !waits
            }
            _ => false,
        }
    }

    /// Whether its script tells of its steps; one whose output is read, once some were found there in this generation.
    #[must_use]
    pub fn tells_steps(&self, allocation: &Allocation) -> bool {
        let tells = match self.spec.reads_steps_by() {
            Some(_) => allocation.training_at.is_some(),
            None => self.spec.training().is_some(),
        };
        tells && self.capabilities.is_some()
    }

    /// Whether its script speaks to the agent: it saves when it is asked to, and says so.
    #[must_use]
    pub fn speaks(&self) -> bool {
        self.capabilities.is_some() && self.spec.reads_steps_by().is_none()
    }

    /// Running time until `limits.time` stops the job; `None`: it has no such limit.
    #[must_use]
    pub fn time_left(&self, now: Timestamp) -> Option<Seconds> {
        let runs = match self.state {
            JobState::Running { since, .. } => now.since(since),
            _ => Seconds(0.0),
        };
        self.spec.limits.time.map(|limit| Seconds((limit.0 - self.ran.0 - runs.0).max(0.0)))
    }

    /// Whether it is known to go on where it was once it starts again: its specification says so, its script speaks to
    /// the agent, or a checkpoint is committed.
    #[must_use]
    pub fn can_resume(&self) -> bool {
        self.spec.promises_to_resume() || self.speaks() || self.checkpoint.is_some()
    }

    /// Tokens seen at the last committed checkpoint.
    #[must_use]
    pub fn seen(&self) -> Tokens {
        self.tokens(self.checkpoint.as_ref().map_or(Sequences(0), |checkpoint| checkpoint.samples_seen))
    }

    /// Tokens of so many of its sequences.
    #[must_use]
    pub fn tokens(&self, sequences: Sequences) -> Tokens {
        sequences.tokens(self.spec.training().map_or(0, |training| training.work.seq_len()))
    }

    /// When it is done, where that is not for its command to say.
    #[must_use]
    pub fn target(&self) -> Option<Target> {
        self.spec.training()?.target
    }

    /// The fewest GPUs it runs on: a job that nothing tunes has one size.
    #[must_use]
    pub fn least(&self) -> GpuCount {
        let range = &self.spec.role().gpus;
        if self.spec.training().is_some() { range.min } else { range.max }
    }

    /// Its turn as of now: waiting lengthens it, running uses it up.
    #[must_use]
    pub fn turn_at(&self, now: Timestamp) -> Turn {
        let turn = self.turn;
        match &self.state {
            // Whoever comes after others stands in no line yet.
            JobState::Queued { .. } if self.is_blocked() => turn,
            JobState::Queued { since } => Turn { waited: turn.waited + now.since(*since), ..turn },
            JobState::Running { since, .. } => Turn { ran: turn.ran + now.since(*since), ..turn },
            JobState::Stopping { cause: StopCause::Preempt | StopCause::Requeue, .. } => Turn::default(),
            _ => turn,
        }
    }

    /// Returns how its last attempt failed, while it waits for the next: "attempt 2 on node-1 failed: …".
    #[must_use]
    pub fn failed_attempt_in_words(&self) -> Option<String> {
        let waits = matches!(self.state, JobState::Queued { .. });
        let failure = self.last_failure.as_ref().filter(|one| waits && one.generation == self.generation)?;
        let node = failure.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
        let why = failure.message.lines().next().unwrap_or_default();
        let why: String = why.chars().take(LONGEST_CAUSE).collect();
        Some(format!("attempt {}{node} failed: {why}", failure.generation.0))
    }

    /// "12.5 GPU-hours"; nothing to say of a job without a budget.
    pub(crate) fn budget_in_words(&self) -> String {
        let hours = self.spec.limits.budget.map_or(0.0, |budget| budget.0 / 3_600.0);
        let told = if hours < 0.01 { format!("{hours:.4}") } else { format!("{hours:.2}") };
        format!("{} GPU-hours", told.trim_end_matches('0').trim_end_matches('.'))
    }

    /// "train has ended: it has succeeded"; of one that has not, what it is.
    #[must_use]
    pub fn ended_in_words(&self) -> String {
        let name = &self.spec.name;
        match &self.state {
            JobState::Succeeded { .. } => format!("{name} has ended: it has succeeded"),
            JobState::Failed { .. } => format!("{name} has ended: it has failed"),
            JobState::Cancelled { .. } => format!("{name} has ended: it was cancelled"),
            state => format!("{name} is {state}"),
        }
    }

    /// A job as it is submitted.
    #[must_use]
    pub fn new(id: JobId, spec: JobSpec, owner: String, now: Timestamp) -> Self {
        Self {
            id,
            spec,
            owner,
            submitted_at: now,
            state: JobState::Queued { since: now },
            generation: Generation(0),
            capabilities: None,
            checkpoint: None,
            checkpoint_at: None,
            progress: Tokens(0.0),
            credit: Tokens(0.0),
            started_at: None,
            loss: None,
            not_finite_loss: None,
            failures: 0,
            restarts: 0,
            disruptions: 0,
            preemptions: 0,
            spent: GpuTime::default(),
            displaced: Vec::new(),
            setbacks: 0,
            hangs: 0,
            suspects: BTreeSet::new(),
            lacking: None,
            ran: Seconds(0.0),
            turn: Turn::default(),
            attained: GpuSeconds(0.0),
            most_gpus: BTreeMap::new(),
            layout: None,
            pin: None,
            resize: None,
            downtime: None,
            layout_downtime: None,
            moved_for: Seconds(0.0),
            moved_at: Vec::new(),
            not_before: None,
            save_wanted: None,
            wish: None,
            after: Vec::new(),
            element: None,
            reconfigurations: 0,
            batch_changes: 0,
            batch_changed_at: Vec::new(),
            last_failure: None,
            last_fallback: None,
            last_change: None,
            version: 0,
        }
    }
}

/// A generation that ended since others took GPUs of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Displacement {
    pub at: Timestamp,
    pub generation: Generation,
    pub by: Vec<Displacer>,
    /// GPU-time of its steps that nothing had saved.
    pub lost: GpuSeconds,
}

/// Where a loss stopped being a finite number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotFiniteLoss {
    pub generation: Generation,
    pub step: u64,
}

impl NotFiniteLoss {
    /// Whether a report with a finite loss shows that the loss has recovered. A report is a sum over steps: one that
    /// began before the loss was lost has its loss from there.
    #[must_use]
    pub fn is_over(&self, report: &StepReport) -> bool {
        let begins_after = report.step.saturating_sub(u64::from(report.steps)) >= self.step;
        report.loss.is_some() && (report.generation > self.generation || begins_after)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastChange {
    pub at: Timestamp,
    pub reason: String,
}

/// An end of a generation that nobody wanted, whoever's fault it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastFailure {
    pub at: Timestamp,
    pub generation: Generation,
    /// Names the node, where one can be named.
    pub message: String,
    /// Name of the node where it began, where one is known.
    #[serde(default)]
    pub node: Option<String>,
    /// Of the rank that failed, where one did.
    pub exit_code: Option<i32>,
}
