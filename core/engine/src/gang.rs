//! Gangs: what the nodes' reports together mean for a job. Level-triggered: it looks at the whole gang each time
//! and takes the one transition that fits, whatever led there.

use headway_types::{Generation, GpuCount, GroupOutcome, GroupPhase, JobId, NodeId, Seconds, Timestamp};

use crate::draft::Note;
use crate::job::JobEvent;
use crate::record::{Allocation, Availability, JobState, ReleaseProof, StopCause, Wish};
use crate::state::{Engine, JobEntry, Seen};

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
        let live: Vec<(JobId, Generation)> =
            self.jobs.iter().filter_map(|(id, entry)| Some((*id, entry.job.state.generation()?))).collect();
        for (job, generation) in live {
            let Some(allocation) = self.allocations.get(&(job, generation)).cloned() else {
                self.stop(job, StopCause::GangBroken { message: "its allocation is gone".into() }, "repair");
                self.end_generation(job, &[]);
                continue;
            };
            let parts = self.parts(&allocation);
            match self.jobs.get(&job).map(|entry| entry.job.state.clone()) {
                Some(JobState::Starting { since, .. }) => self.judge_starting(job, since, &parts),
                Some(JobState::Running { .. }) => self.judge_running(job, &parts),
                _ => {}
            }
            if matches!(self.jobs.get(&job).map(|entry| &entry.job.state), Some(JobState::Stopping { .. })) {
                self.judge_stopping(job, &allocation, &parts);
            }
        }
    }

    fn judge_starting(&mut self, job: JobId, since: Timestamp, parts: &[(NodeId, Part)]) {
        if self.gang_is_over(job, parts) {
            return;
        }
        if let Some((node, _)) = parts.iter().find(|(_, part)| *part == Part::Lost) {
            self.stop_for_lost_node(job, *node);
            return;
        }
        let up = |part: &Part| matches!(part, Part::Running | Part::Ended(GroupOutcome::Succeeded));
        if parts.iter().all(|(_, part)| up(part)) {
            self.launched(job);
            return;
        }
        let ready = parts.iter().all(|(_, part)| up(part) || *part == Part::Prepared);
        let now = self.now;
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        if ready && entry.prepared_at.is_none() {
            entry.prepared_at = Some(now);
        }
        let (from, limit, what) = match entry.prepared_at {
            Some(at) => (at, self.config.launch_deadline, "launch"),
            None => (since.max(self.restored_at), self.config.prepare_deadline, "prepare"),
        };
        if now.since(from).0 >= limit.0 {
            let late =
                parts.iter().find(|(_, part)| if ready { !up(part) } else { !up(part) && *part != Part::Prepared });
            let name = late.map_or_else(String::new, |(node, _)| self.node_name(*node));
            self.break_gang(job, format!("node {name} did not {what} within {} s", limit.0));
        }
    }

    fn launched(&mut self, job: JobId) {
        if !self.transition(job, JobEvent::Launched) {
            return;
        }
        let now = self.now;
        self.edit_job(job, |job| job.started_at = job.started_at.or(Some(now)));
        let Some(entry) = self.jobs.get(&job) else { return };
        let (name, generation) = (entry.job.spec.name.clone(), entry.job.generation);
        let gpus = self.allocations.get(&(job, generation)).map_or(GpuCount(0), |one| one.placement.gpus());
        let message = format!("{name} runs on {} under {generation}", gpus.words());
        self.note(Note::new("job.started", message).job(job).with("gpus", gpus).with("generation", generation));
    }

    fn judge_running(&mut self, job: JobId, parts: &[(NodeId, Part)]) {
        if self.gang_is_over(job, parts) {
            return;
        }
        let Some(entry) = self.jobs.get(&job) else { return };
        let fenced = is_fenced(&entry.job.spec);
        let limit = entry.job.spec.limits.time;
        let started = entry.job.started_at;
        for (node, part) in parts {
            let proven = self.is_released(job, *node);
            // Lost contact never stops training: without fenced checkpoints only a proof counts.
            if *part == Part::Lost && (fenced || proven) {
                self.stop_for_lost_node(job, *node);
                return;
            }
        }
        if let (Some(limit), Some(started)) = (limit, started)
            && self.now.since(started).0 >= limit.0
        {
            self.stop(job, StopCause::TimeLimit, &format!("its time limit of {:.0} s has passed", limit.0));
        }
    }

    /// Moments at which a job's state changes by time alone.
    pub(crate) fn job_deadlines(&self, entry: &JobEntry) -> Vec<Timestamp> {
        match &entry.job.state {
            JobState::Queued { .. } => entry.job.not_before.into_iter().filter(|at| *at > self.now).collect(),
            JobState::Starting { since, .. } => vec![match entry.prepared_at {
                Some(at) => at + self.config.launch_deadline,
                None => (*since).max(self.restored_at) + self.config.prepare_deadline,
            }],
            JobState::Running { .. } => {
                entry.job.spec.limits.time.zip(entry.job.started_at).map(|(limit, at)| at + limit).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    fn is_released(&self, job: JobId, node: NodeId) -> bool {
        let Some(entry) = self.jobs.get(&job) else { return false };
        self.allocations.get(&(job, entry.job.generation)).is_some_and(|one| one.released.contains_key(&node))
    }

    /// Ends that no one asked for, and the happy one. True if the job took a transition.
    fn gang_is_over(&mut self, job: JobId, parts: &[(NodeId, Part)]) -> bool {
        let succeeded = |part: &Part| *part == Part::Ended(GroupOutcome::Succeeded);
        if parts.iter().all(|(_, part)| succeeded(part)) {
            self.succeed(job, "all its processes exited 0");
            return true;
        }
        let broken = parts.iter().find_map(|(node, part)| {
            let name = self.node_name(*node);
            match part {
                Part::Ended(GroupOutcome::Failed { exit_code, fault }) => {
                    let code = exit_code.map_or(String::new(), |code| format!(" (exit code {code})"));
                    Some(format!("on node {name}: {}{code}", fault.message))
                }
                Part::Ended(GroupOutcome::NotStarted { fault }) => {
                    Some(format!("not started on node {name}: {}", fault.message))
                }
                Part::Ended(GroupOutcome::Stopped) => Some(format!("stopped on node {name} without being asked")),
                Part::Vanished => Some(format!("node {name} has no trace of it")),
                _ => None,
            }
        });
        if let Some(message) = broken {
            self.break_gang(job, message);
            return true;
        }
        false
    }

    fn break_gang(&mut self, job: JobId, message: String) {
        let failures = self.jobs.get(&job).map_or(0, |entry| entry.job.failures) + 1;
        let wait = (self.config.backoff_base.0 * libm::pow(2.0, f64::from(failures.min(30) - 1)))
            .min(self.config.backoff_max.0);
        let until = self.now + Seconds(wait);
        self.edit_job(job, |job| {
            job.failures = failures;
            job.restarts += 1;
            job.not_before = Some(until);
        });
        let text = format!("{} broke: {message}; the next start waits {wait:.0} s", self.job_name(job));
        self.note(Note::new("job.gang_broken", text).job(job).with("failures", failures));
        self.stop(job, StopCause::GangBroken { message: message.clone() }, &message);
    }

    fn stop_for_lost_node(&mut self, job: JobId, node: NodeId) {
        let reason = format!("node {} is lost", self.node_name(node));
        self.stop(job, StopCause::NodeLost { node }, &reason);
    }

    /// Sends a generation towards its end; the commands follow from the state.
    pub(crate) fn stop(&mut self, job: JobId, cause: StopCause, reason: &str) {
        let was_training = matches!(self.jobs.get(&job).map(|one| &one.job.state), Some(JobState::Running { .. }));
        let moves = matches!(cause, StopCause::Rescale);
        if self.jobs.get(&job).is_none_or(|entry| matches!(entry.job.state, JobState::Stopping { .. }))
            || !self.transition(job, JobEvent::Stop { cause })
        {
            return;
        }
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.stopped_at = (moves && was_training).then_some(self.now);
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
        let (wish, row) = (entry.job.wish.clone(), entry.job.clone());
        let orderly = !parts.is_empty()
            && parts.iter().all(|(_, one)| matches!(one, Part::Ended(GroupOutcome::Succeeded | GroupOutcome::Stopped)));
        let by_itself = orderly && parts.iter().all(|(_, one)| *one == Part::Ended(GroupOutcome::Succeeded));
        let target = row.spec.training().and_then(|training| training.target);
        let saved = target.is_some_and(|target| row.progress.0 >= target.0);
        if saved || (by_itself && wish.is_none()) || (orderly && cause == StopCause::TargetReached) {
            self.succeed(job, if saved { "it has reached its target" } else { "all its processes exited 0" });
            return;
        }
        let name = row.spec.name.clone();
        let failed = row.failures > row.spec.limits.max_restarts;
        let (event, note) = match (wish, cause) {
            (Some(Wish::Cancelled { by, reason }), _) => {
                let note = Note::new("job.cancelled", format!("{name} was cancelled by {by}"));
                (JobEvent::Cancel { by, reason }, Some(note))
            }
            (Some(Wish::Held { reason }), _) => (JobEvent::Hold { reason }, None),
            (None, StopCause::GangBroken { message }) if failed => {
                let message = format!("failed {} times; last: {message}", row.failures);
                let note = Note::new("job.failed", format!("{name} {message}"));
                (JobEvent::Fail { message }, Some(note))
            }
            (None, StopCause::TimeLimit) => {
                let message = "its time limit has passed".to_string();
                let note = Note::new("job.failed", format!("{name} failed: {message}"));
                (JobEvent::Fail { message }, Some(note))
            }
            (None, _) => (JobEvent::Requeue, None),
        };
        if self.transition(job, event) {
            self.edit_job(job, |job| job.wish = None);
            self.leave_generation(job);
            if let Some(note) = note {
                self.note(note.job(job));
            }
            self.rounds.ask(format!("job {name} has stopped"));
        }
    }

    fn succeed(&mut self, job: JobId, why: &str) {
        let name = self.job_name(job);
        if self.transition(job, JobEvent::Succeed) {
            self.leave_generation(job);
            self.note(Note::new("job.succeeded", format!("{name} succeeded: {why}")).job(job));
            self.rounds.ask(format!("job {name} ended"));
        }
    }

    /// What was seen of the ended generation says nothing about the next; progress goes back to the checkpoint.
    fn leave_generation(&mut self, job: JobId) {
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        entry.prepared_at = None;
        entry.reported = None;
        entry.save_wanted = None;
        entry.grace = None;
        entry.live.throughput = None;
        entry.live.goodput = None;
        entry.live.remaining = None;
    }
}

/// Whether generations write apart and only committed checkpoints count, so that an old one can do no harm.
pub(crate) fn is_fenced(spec: &headway_types::JobSpec) -> bool {
    spec.training().is_some_and(|training| training.checkpoint.fenced)
}
