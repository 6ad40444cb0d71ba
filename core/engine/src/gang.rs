//! Gangs: what the nodes' reports together mean for a job. Level-triggered: it looks at the whole gang each time
//! and takes the one transition that fits, whatever led there.

use headway_types::{Blame, Generation, GpuCount, GroupOutcome, GroupPhase, JobId, NodeId, Seconds, Timestamp};

use crate::blame::Breakdown;
use crate::draft::Note;
use crate::entry::{JobEntry, Seen};
use crate::health::Incident;
use crate::job::JobEvent;
use crate::record::{Allocation, AllocationPhase, Availability, Job, JobState, ReleaseProof, StopCause, Turn, Wish};
use crate::state::Engine;

/// One node's part of a gang, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The node has not spoken in this term, or its session is gone but its lease still holds.
    Unknown,
    /// The node's lease ran out, or an operator or a reboot wrote it off.
    Lost,
    /// The node is there and knows nothing of the group (yet).
    Absent,
    /// Proven free, but how the group ended is not known.
    Vanished,
    Preparing,
    Prepared,
    Running,
    Stopping,
    Ended(GroupOutcome),
}

impl Part {
    fn is_up(&self) -> bool {
        matches!(self, Part::Running | Part::Ended(GroupOutcome::Succeeded))
    }
}

impl Engine {
    /// The parts of a gang in rank order.
    pub(crate) fn parts(&self, allocation: &Allocation) -> Vec<(NodeId, Part)> {
        let slices = allocation.placement.slices();
        slices.iter().map(|slice| (slice.node, self.part(allocation, slice.node))).collect()
    }

    fn part(&self, allocation: &Allocation, node: NodeId) -> Part {
        let release = allocation.released.get(&node).map(|release| release.proof);
        let Some(entry) = self.nodes.get(&node) else { return Part::Lost };
        if matches!(release, Some(ReleaseProof::NewBoot | ReleaseProof::Operator)) {
            return Part::Lost;
        }
        match entry.group(allocation.job, allocation.generation).map(|group| &group.phase) {
            Some(GroupPhase::Ended { outcome }) => return Part::Ended(outcome.clone()),
            Some(_) if release.is_some() => return Part::Vanished,
            _ if matches!(entry.node.availability, Availability::Unreachable { .. } | Availability::Lost { .. }) => {
                return Part::Lost;
            }
            Some(GroupPhase::Preparing) => return Part::Preparing,
            Some(GroupPhase::Prepared { .. }) => return Part::Prepared,
            Some(GroupPhase::Running) => return Part::Running,
            Some(GroupPhase::Stopping) => return Part::Stopping,
            None => {}
        }
        match (&entry.seen, release) {
            (Seen::Unknown, _) => Part::Unknown,
            (Seen::Known { .. }, Some(_)) => Part::Vanished,
            (Seen::Known { .. }, None) => Part::Absent,
        }
    }

    /// Every job with a live generation takes the transition its gang calls for.
    pub(crate) fn judge_gangs(&mut self) {
        self.judge_waiting();
        let live: Vec<(JobId, Generation)> =
            self.jobs.iter().filter_map(|(id, entry)| Some((*id, entry.job.state.generation()?))).collect();
        for (job, generation) in live {
            let Some(allocation) = self.allocations.get(&(job, generation)).cloned() else {
                self.stop(job, StopCause::GangBroken { message: "its allocation is gone".into() }, "repair");
                self.end_generation(job, &[]);
                continue;
            };
            let parts = self.parts(&allocation);
            match self.jobs.get(&job).map(|entry| &entry.job.state) {
                Some(JobState::Starting { since, .. }) => {
                    let since = *since;
                    self.judge_starting(job, since, &allocation, &parts);
                }
                Some(JobState::Running { .. }) => self.judge_running(job, &allocation, &parts),
                _ => {}
            }
            if matches!(self.jobs.get(&job).map(|entry| &entry.job.state), Some(JobState::Stopping { .. })) {
                self.judge_stopping(job, &allocation, &parts);
            }
        }
    }

    /// A job that waits may be done: the last thing it ran on a node out of reach may have ended well meanwhile. It must
    /// not run again.
    fn judge_waiting(&mut self) {
        let waiting = self.jobs.iter().filter(|(_, entry)| {
            let state = &entry.job.state;
            matches!(state, JobState::Queued { .. } | JobState::Held { .. }) && entry.job.generation > Generation(0)
        });
        let done: Vec<JobId> = waiting
            .filter(|(id, entry)| {
                self.allocations.get(&(**id, entry.job.generation)).is_some_and(|allocation| {
                    let parts = self.parts(allocation);
                    parts.iter().all(|(_, part)| *part == Part::Ended(GroupOutcome::Succeeded))
                })
            })
            .map(|(id, _)| *id)
            .collect();
        for job in done {
            self.succeed(job, "all its processes exited 0 while its node was out of reach");
        }
    }

    fn judge_starting(&mut self, job: JobId, since: Timestamp, allocation: &Allocation, parts: &[(NodeId, Part)]) {
        if self.gang_is_over(job, parts) {
            return;
        }
        if let Some((node, _)) = parts.iter().find(|(_, part)| *part == Part::Lost) {
            self.stop_for_lost_node(job, *node);
            return;
        }
        if parts.iter().all(|(_, part)| part.is_up()) {
            self.launched(job);
            return;
        }
        let ready = |part: &Part| part.is_up() || *part == Part::Prepared;
        if parts.iter().all(|(_, part)| ready(part)) {
            self.advance((job, allocation.generation), AllocationPhase::Launching);
        }
        let deadline = self.start_deadline(since, allocation.prepared_at);
        if self.now < deadline {
            return;
        }
        let (late, what) = match allocation.prepared_at {
            Some(_) => (parts.iter().find(|(_, part)| !part.is_up()), "launch"),
            None => (parts.iter().find(|(_, part)| !ready(part)), "prepare"),
        };
        let Some((node, _)) = late else { return };
        let message = format!("node {} did not {what} in time", self.node_name(*node));
        let place = Some((*node, Incident::NotStarted(job)));
        self.break_gang(job, Breakdown { message, blame: Blame::Node, out_of_memory: false, place });
    }

    /// Until when a gang must have prepared or, once it has, launched. A new term gives it the full time again, since
    /// nobody drove it meanwhile.
    fn start_deadline(&self, since: Timestamp, prepared_at: Option<Timestamp>) -> Timestamp {
        match prepared_at {
            Some(at) => at.max(self.listening_since) + self.config.launch_deadline,
            None => since.max(self.listening_since) + self.config.prepare_deadline,
        }
    }

    fn launched(&mut self, job: JobId) {
        if !self.transition(job, JobEvent::Launched) {
            return;
        }
        let now = self.now;
        let Some(entry) = self.jobs.get(&job) else { return };
        let running = self.allocations.get(&(job, entry.job.generation)).and_then(|one| one.configuration);
        // A script that does not speak to the agent may save at any time from now on, and nobody hears of it.
        let bound = running.filter(|_| entry.job.capabilities.is_none()).map(|at| at.layout);
        self.edit_job(job, |job| {
            job.started_at = job.started_at.or(Some(now));
            job.layout = bound.or(job.layout);
        });
        let Some(entry) = self.jobs.get(&job) else { return };
        let (name, generation) = (entry.job.spec.name.clone(), entry.job.generation);
        self.advance((job, generation), AllocationPhase::Running);
        self.forget_sent((job, generation));
        let gpus = self.allocations.get(&(job, generation)).map_or(GpuCount(0), |one| one.placement.gpus());
        let message = format!("{name} runs on {} under {generation}", gpus.words());
        self.note(Note::new("job.started", message).job(job).with("gpus", gpus).with("generation", generation));
    }

    fn judge_running(&mut self, job: JobId, allocation: &Allocation, parts: &[(NodeId, Part)]) {
        if self.gang_is_over(job, parts) {
            return;
        }
        let Some(entry) = self.jobs.get(&job) else { return };
        let fenced = is_fenced(&entry.job.spec);
        let lost = parts.iter().find(|(node, part)| {
            // Lost contact never stops training: without fenced checkpoints only a proof counts.
            *part == Part::Lost && (fenced || allocation.released.contains_key(node))
        });
        if let Some((node, _)) = lost {
            self.stop_for_lost_node(job, *node);
            return;
        }
        if self.time_limit_at(entry).is_some_and(|at| at <= self.now) {
            let limit = entry.job.spec.limits.time.unwrap_or_default().0;
            self.stop(job, StopCause::TimeLimit, &format!("its time limit of {limit:.0} s has passed"));
            return;
        }
        if self.budget_spent_at(entry).is_some_and(|at| at <= self.now) {
            let what = budget_in_words(&entry.job);
            self.stop(job, StopCause::BudgetSpent, &format!("its budget of {what} is spent"));
            return;
        }
        self.judge_pace(job, allocation);
    }

    /// When a running job will have used up its time; queueing does not count.
    fn time_limit_at(&self, entry: &JobEntry) -> Option<Timestamp> {
        let JobState::Running { since, .. } = entry.job.state else { return None };
        let left = entry.job.spec.limits.time?.0 - entry.job.ran.0;
        Some(since + Seconds(left.max(0.0)))
    }

    /// The moment at which a job's state changes by time alone. Hangs are found by the periodic reconcile.
    pub(crate) fn job_deadline(&self, entry: &JobEntry) -> Option<Timestamp> {
        match &entry.job.state {
            JobState::Queued { .. } => entry.job.not_before.filter(|at| *at > self.now),
            JobState::Starting { since, generation } => {
                let prepared = self.allocations.get(&(entry.job.id, *generation)).and_then(|one| one.prepared_at);
                Some(self.start_deadline(*since, prepared))
            }
            JobState::Running { .. } => self.time_limit_at(entry).into_iter().chain(self.budget_spent_at(entry)).min(),
            _ => None,
        }
    }

    /// Ends that no one asked for, and the happy one. True if the job took a transition.
    fn gang_is_over(&mut self, job: JobId, parts: &[(NodeId, Part)]) -> bool {
        if parts.iter().all(|(_, part)| *part == Part::Ended(GroupOutcome::Succeeded)) {
            self.succeed(job, "all its processes exited 0");
            return true;
        }
        match self.breakdown(job, parts) {
            Some(breakdown) => {
                self.break_gang(job, breakdown);
                true
            }
            None => false,
        }
    }

    fn stop_for_lost_node(&mut self, job: JobId, node: NodeId) {
        let reason = format!("node {} is lost", self.node_name(node));
        self.edit_job(job, |job| job.disruptions += 1);
        self.stop(job, StopCause::NodeLost { node }, &reason);
    }

    /// Sends a generation towards its end; the commands follow from the state.
    pub(crate) fn stop(&mut self, job: JobId, cause: StopCause, reason: &str) {
        let Some(entry) = self.jobs.get(&job) else { return };
        let running_since = match entry.job.state {
            JobState::Stopping { .. } => return,
            JobState::Running { since, .. } => Some(since),
            _ => None,
        };
        let generation = entry.job.generation;
        let moves = matches!(cause, StopCause::Rescale);
        if !self.transition(job, JobEvent::Stop { cause }) {
            return;
        }
        let now = self.now;
        self.advance((job, generation), AllocationPhase::Stopping);
        let ran = running_since.map_or(Seconds(0.0), |since| now.since(since));
        self.edit_job(job, |job| {
            job.ran += ran;
            job.turn.ran += ran;
        });
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.moving_since = (moves && running_since.is_some()).then_some(now);
        }
        let text = format!("{} is being stopped: {reason}", self.job_name(job));
        self.note(Note::new("job.stopping", text).job(job));
    }

    fn judge_stopping(&mut self, job: JobId, allocation: &Allocation, parts: &[(NodeId, Part)]) {
        let fenced = self.jobs.get(&job).is_some_and(|entry| is_fenced(&entry.job.spec));
        let over =
            parts.iter().all(|(node, part)| allocation.released.contains_key(node) || (fenced && *part == Part::Lost));
        if over {
            self.end_generation(job, parts);
        }
    }

    /// The generation is over: where does the job go? Wishes of users come first.
    fn end_generation(&mut self, job: JobId, parts: &[(NodeId, Part)]) {
        let Some(entry) = self.jobs.get(&job) else { return };
        let JobState::Stopping { cause, .. } = entry.job.state.clone() else { return };
        let row = entry.job.clone();
        let orderly = !parts.is_empty()
            && parts.iter().all(|(_, one)| matches!(one, Part::Ended(GroupOutcome::Succeeded | GroupOutcome::Stopped)));
        let by_itself = orderly && parts.iter().all(|(_, one)| *one == Part::Ended(GroupOutcome::Succeeded));
        let target = row.spec.training().and_then(|training| training.target);
        let saved = target.is_some_and(|target| row.progress.0 >= target.0);
        if saved || (by_itself && row.wish.is_none()) || (orderly && cause == StopCause::TargetReached) {
            self.succeed(job, if saved { "it has reached its target" } else { "all its processes exited 0" });
            return;
        }
        let preempted = cause == StopCause::Preempt;
        let (event, note) = self.after_stop(&row, cause);
        if self.transition(job, event) {
            self.edit_job(job, |job| {
                job.wish = None;
                if preempted || job.turn.is_over() {
                    job.turn = Turn::default();
                }
            });
            self.leave_generation(job);
            if let Some(note) = note {
                self.note(note.job(job));
            }
            self.rounds.ask(format!("job {} has stopped", row.spec.name));
        }
    }

    /// Where a stopped job goes, and what the log says of it.
    fn after_stop(&self, row: &Job, cause: StopCause) -> (JobEvent, Option<Note>) {
        let name = &row.spec.name;
        let exhausted = row.failures > row.spec.limits.max_restarts;
        match (row.wish.clone(), cause) {
            (Some(Wish::Cancelled { by, reason, .. }), _) => {
                let note = Note::new("job.cancelled", format!("{name} was cancelled by {by}"));
                (JobEvent::Cancel { by, reason }, Some(note))
            }
            (Some(Wish::Held { reason }), _) => (JobEvent::Hold { reason }, None),
            (None, StopCause::GangBroken { message } | StopCause::Hung { message }) if exhausted => {
                let message = format!("failed {} times; last: {message}", row.failures);
                let note = Note::new("job.failed", format!("{name} {message}"));
                (JobEvent::Fail { message }, Some(note))
            }
            (None, StopCause::TimeLimit) => {
                let message = "its time limit has passed".to_string();
                let note = Note::new("job.failed", format!("{name} failed: {message}"));
                (JobEvent::Fail { message }, Some(note))
            }
            (None, cause) if cause == StopCause::BudgetSpent || self.budget_is_spent(row) => {
                let message = format!("its budget of {} is spent", budget_in_words(row));
                let note = Note::new("job.failed", format!("{name} failed: {message}"));
                (JobEvent::Fail { message }, Some(note))
            }
            (None, _) => (JobEvent::Requeue, None),
        }
    }

    fn budget_is_spent(&self, job: &Job) -> bool {
        job.spec.limits.budget.is_some_and(|budget| self.attained(job) >= budget)
    }

    fn succeed(&mut self, job: JobId, why: &str) {
        let name = self.job_name(job);
        let generation = self.jobs.get(&job).map(|entry| entry.job.generation).unwrap_or_default();
        if self.transition(job, JobEvent::Succeed) {
            self.edit_allocation((job, generation), |allocation| allocation.complete = true);
            self.leave_generation(job);
            self.note(Note::new("job.succeeded", format!("{name} succeeded: {why}")).job(job));
            self.rounds.ask(format!("job {name} ended"));
        }
    }

    /// What was seen of the ended generation says nothing about the next; progress goes back to the checkpoint.
    fn leave_generation(&mut self, job: JobId) {
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.leave_generation();
        }
    }
}

/// Whether generations write apart and only committed checkpoints count, so that an old one can do no harm.
pub(crate) fn is_fenced(spec: &headway_types::JobSpec) -> bool {
    spec.training().is_some_and(|training| training.checkpoint.fenced)
}

/// "12.5 GPU-hours"; nothing to say of a job without a budget.
fn budget_in_words(job: &Job) -> String {
    let hours = job.spec.limits.budget.map_or(0.0, |budget| budget.0 / 3_600.0);
    format!("{hours} GPU-hours")
}
