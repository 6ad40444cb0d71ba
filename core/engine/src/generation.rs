//! The life of one generation, from the grant to its end: what each step means for the rows, and what the log says. The
//! only place that issues generations.

pub(crate) mod live;
mod told;

use std::sync::Arc;

use headway_types::{Assignment, Generation, GpuType, GroupOutcome, JobId, NodeId, PlanId, Seconds};

use crate::draft::Note;
use crate::engine::Engine;
use crate::job::JobEvent;
use crate::record::{Allocation, AllocationPhase, Job, JobState, LastChange, StopCause, Turn, Wish};
use crate::seen::{Destination, Moving};
use crate::situation::gang::Part;

/// Why a job is not started again.
pub(crate) const MUST_NOT_RUN_TWICE: &str = "it must not run twice (limits.restartable: false)";

impl Engine {
    /// Runs the transition table of a job; false where it refuses. The live numbers go with the job; what it reached last
    /// stays in its row.
    #[must_use]
    pub(crate) fn transition(&mut self, id: JobId, event: JobEvent) -> bool {
        let done = self.facts.transition(id, event);
        let over = self.facts.jobs.get(&id).is_some_and(|job| job.state.is_final());
        let reached = self.seen.jobs.get(&id).and_then(|seen| seen.live.loss);
        if let Some(loss) = reached.filter(|_| done && over) {
            self.facts.edit_job(id, |job| job.loss = Some(loss));
        }
        done
    }

    pub(crate) fn grant(&mut self, id: JobId, assignment: &Assignment) {
        let (Some(job), Some(seen)) = (self.facts.jobs.get(&id).cloned(), self.seen.jobs.get(&id)) else {
            return self.facts.impossible("a job that is not kept was to be granted GPUs", Some(id), None);
        };
        let (name, generation) = (&job.spec.name, job.generation.next());
        let waited = match job.state {
            JobState::Queued { since } => self.facts.now.since(since),
            _ => Seconds(0.0),
        };
        let restarts = job.generation > Generation(0);
        let before = self.facts.newest_allocation(&job).map(|one| one.placement.clone());
        let shape = self.facts.shape_of(&assignment.placement, assignment.configuration);
        let returns = matches!(&seen.moving, Some(Moving::Stopped { leaves: Some(left), .. }) if *left == shape);
        let goes_on = matches!(&seen.moving, Some(Moving::Stopped { to, .. }) if to.leads_to(assignment));
        let lr_scale = seen.lr_scale(assignment.configuration);
        let launched_before = self.facts.newest_allocation(&job).is_some_and(|one| one.prepared_at.is_some());
        if job.spec.limits.forbid_restart() && launched_before {
            return self.facts.impossible("a job that must not run twice was to be started again", Some(id), None);
        }
        if !self.transition(id, JobEvent::Grant { generation }) {
            return;
        }
        let at = self.facts.now;
        let gpus = assignment.placement.gpus();
        // What another plan says of it that came while it stopped is not why it was stopped.
        let stopped_for = job.last_change.as_ref().filter(|_| goes_on).map(|change| change.reason.clone());
        let cause = stopped_for.or_else(|| self.facts.reason_of(id));
        let cause = cause.unwrap_or_else(|| format!("{name} starts on {}", gpus.words()));
        let plan = self.facts.target.as_ref().map(|target| target.plan.id);
        let expectation = self.expectation(id, assignment, 1);
        let allocation = Allocation {
            plan,
            expectation,
            configuration: assignment.configuration,
            lr_scale,
            resumed_from: job.checkpoint.clone(),
            cause: cause.clone(),
            predicted_goodput: assignment.predicted.goodput.0,
            gpu_type: GpuType::joined(self.facts.gpus_by_type(&assignment.placement).into_keys()),
            ..Allocation::new(id, generation, assignment.placement.clone(), at)
        };
        self.take_gpus(allocation);
        // What a former generation said late says nothing about this one.
        self.leave_generation(id);
        self.facts.edit_job(id, |job| {
            job.generation = generation;
            job.not_before = None;
            job.turn.waited += waited;
            if restarts {
                job.last_change = Some(LastChange { at, reason: cause.clone() });
            }
        });
        let from = job.checkpoint.as_ref().map_or("from the beginning".into(), |one| format!("from step {}", one.step));
        let (verb, message) = match before {
            Some(_) if returns => (
                "job.returned",
                format!("{name} was stopped for another shape and starts again as it was, {from}: {cause}"),
            ),
            Some(before) if before == assignment.placement => {
                ("job.granted", format!("{name} starts again on its {}, {from}", gpus.words()))
            }
            Some(before) => {
                ("job.moved", format!("{name} goes from {} to {}, {from}: {cause}", before.gpus(), gpus.words()))
            }
            None => ("job.granted", format!("{name} gets {}, {from}: {cause}", gpus.words())),
        };
        let note = Note { plan, ..Note::new(verb, message) };
        let mut note = note.job(id).with("gpus", gpus).with("generation", generation);
        if let Some(configuration) = assignment.configuration {
            note = note.with("configuration", configuration);
        }
        self.facts.note(note);
    }

    /// From now on these GPUs are taken, whatever else happens, until each node has proven them free.
    fn take_gpus(&mut self, allocation: Allocation) {
        let key = (allocation.job, allocation.generation);
        let facts = &mut self.facts;
        for slice in allocation.placement.slices() {
            facts.holding.entry(slice.node).or_default().insert(key);
            facts.draft.shown_nodes.insert(slice.node);
        }
        facts.allocations.insert(key, Arc::new(allocation));
        facts.draft.allocations.insert(key);
        facts.draft.entered.allocations.insert(key);
    }

    pub(crate) fn prepared(&mut self, key: (JobId, Generation)) {
        self.facts.advance(key, AllocationPhase::Launching);
    }

    pub(crate) fn launched(&mut self, id: JobId) {
        if !self.transition(id, JobEvent::Launched) {
            return;
        }
        let Some((job, allocation)) = self.newest(id) else {
            return self.facts.impossible("a job runs without an allocation", Some(id), None);
        };
        let (now, key) = (self.facts.now, (id, allocation.generation));
        // A script that does not speak to the agent may save at any time from now on, and nobody hears of it.
        let bound = allocation.configuration.filter(|_| !job.speaks()).map(|at| at.layout);
        let gpus_by_type = self.facts.gpus_by_type(&allocation.placement);
        self.facts.edit_job(id, |job| {
            job.started_at = job.started_at.or(Some(now));
            job.lacking = None;
            job.layout = bound.or(job.layout);
            for (gpu_type, gpus) in gpus_by_type {
                let most = job.most_gpus.entry(gpu_type).or_default();
                *most = gpus.max(*most);
            }
        });
        self.facts.advance(key, AllocationPhase::Running);
        self.seen.forget_sent(key);
        let gpus = allocation.placement.gpus();
        if job.resize.is_some() {
            self.facts.ask_round_for_somebody(format!("{} may be moved as its owner asked", job.spec.name));
        }
        let message = format!("{} runs on {} under {}", job.spec.name, gpus.words(), key.1);
        self.facts.note(Note::new("job.started", message).job(id).with("gpus", gpus).with("generation", key.1));
    }

    /// A job's row with its newest allocation, as they are now.
    fn newest(&self, id: JobId) -> Option<(Arc<Job>, Arc<Allocation>)> {
        let job = self.facts.jobs.get(&id)?;
        Some((job.clone(), self.facts.newest_allocation(job)?.clone()))
    }

    pub(crate) fn preempt(&mut self, id: JobId, reason: &str, must_leave: bool) {
        let Some((job, allocation)) = self.newest(id) else {
            return self.facts.impossible("a job without an allocation was to give up GPUs", Some(id), None);
        };
        let gpus = allocation.placement.gpus().words();
        let note = Note::new("job.preempted", format!("{} gives up {gpus}: {reason}", job.spec.name));
        self.facts.note(note.job(id));
        let at = self.facts.now;
        self.facts.edit_job(id, |job| {
            job.last_change = Some(LastChange { at, reason: reason.into() });
            job.preemptions += u32::from(!must_leave);
            job.count_disruption(at);
        });
        self.stop(id, if must_leave { StopCause::Drain } else { StopCause::Preempt }, reason);
    }

    pub(crate) fn move_job(&mut self, id: JobId, reason: &str, must_leave: bool) {
        let at = self.facts.now;
        self.facts.edit_job(id, |job| {
            job.last_change = Some(LastChange { at, reason: reason.into() });
            job.count_move(at);
        });
        self.stop(id, if must_leave { StopCause::Drain } else { StopCause::Rescale }, reason);
    }

    pub(crate) fn stop_for_lost_node(&mut self, job: JobId, node: NodeId) {
        let reason = format!("node {} is lost", self.facts.node_name(node));
        self.facts.edit_job(job, |job| job.disruptions += 1);
        self.stop(job, StopCause::NodeLost { node }, &reason);
    }

    /// The node that is lost, or the plan that has other uses for the GPUs.
    fn whence(&self, cause: &StopCause) -> (Option<NodeId>, Option<PlanId>) {
        match cause {
            StopCause::NodeLost { node } => (Some(*node), None),
            StopCause::Rescale | StopCause::Preempt => (None, self.facts.target.as_ref().map(|target| target.plan.id)),
            _ => (None, None),
        }
    }

    /// Sends a generation towards its end; the commands follow from the state. One that stops already goes on stopping for
    /// the cause it has.
    pub(crate) fn stop(&mut self, id: JobId, cause: StopCause, reason: &str) {
        let (node, plan) = self.whence(&cause);
        let (Some(job), Some(seen)) = (self.facts.jobs.get(&id), self.seen.job_mut(id)) else {
            return self.facts.impossible("a job that is not kept was to stop", Some(id), None);
        };
        let running_since = match job.state {
            JobState::Stopping { .. } => return,
            JobState::Running { since, .. } => Some(since),
            _ => None,
        };
        let (now, key) = (self.facts.now, (id, job.generation));
        let moves = matches!(cause, StopCause::Rescale) && running_since.is_some();
        let leaves = if moves { self.facts.leaves(job) } else { None };
        let to = Destination::of(self.facts.target.as_ref().and_then(|target| target.plan.assignments.get(&id)));
        if !self.facts.transition(id, JobEvent::Stop { cause: cause.clone() }) {
            return;
        }
        seen.moving = moves.then_some(Moving::Stopping { since: now, leaves, to });
        self.write_down_what_it_made(key);
        self.settle_expectation(key);
        self.facts.advance(key, AllocationPhase::Stopping);
        self.facts.tell_why_it_ends(key, cause);
        let ran = running_since.map_or(Seconds(0.0), |since| now.since(since));
        self.facts.edit_job(id, |job| {
            job.ran += ran;
            job.turn.ran += ran;
        });
        let text = format!("{} is being stopped: {reason}", self.facts.job_name(id));
        self.facts.note(Note { node, plan, ..Note::new("job.stopping", text).job(id) });
    }

    /// The generation is over: where does the job go? Wishes of users come first.
    pub(crate) fn end_generation(&mut self, id: JobId, parts: &[(NodeId, Part)]) {
        let Some(row) = self.facts.jobs.get(&id).cloned() else {
            return self.facts.impossible("a generation of a job that is not kept has ended", Some(id), None);
        };
        let JobState::Stopping { cause, .. } = row.state.clone() else {
            return self.facts.impossible("a generation that does not stop has ended", Some(id), None);
        };
        let orderly = !parts.is_empty()
            && parts.iter().all(|(_, one)| matches!(one, Part::Ended(GroupOutcome::Succeeded | GroupOutcome::Stopped)));
        let by_itself = orderly && parts.iter().all(|(_, part)| part.has_succeeded());
        let saved = row.target().is_some_and(|target| target.is_reached(row.seen(), row.progress));
        // A hold or a cancellation that came after the end has come too late: the work is done, and jobs that wait for it may start.
        if saved || by_itself || (orderly && cause == StopCause::TargetReached) {
            let why = if saved { reached(&row) } else { "all its processes exited 0".into() };
            self.succeed(id, &why);
            return;
        }
        let gives_up_turn = matches!(cause, StopCause::Preempt | StopCause::Requeue);
        let (event, note) = self.after_stop(&row, cause);
        if self.transition(id, event) {
            self.facts.count_spent((id, row.generation));
            self.facts.edit_job(id, |job| {
                job.wish = None;
                if gives_up_turn || job.turn.is_over() {
                    job.turn = Turn::default();
                }
            });
            self.leave_generation(id);
            if self.seen.old_generations.remove(&id) {
                self.leap(id);
            }
            if let Some(note) = note {
                self.facts.note(note.job(id));
            }
            self.facts.ask_round(format!("job {} has stopped", row.spec.name));
        }
    }

    /// Where a stopped job goes, and what the log says of it.
    fn after_stop(&self, row: &Job, cause: StopCause) -> (JobEvent, Option<Note>) {
        let name = &row.spec.name;
        let exhausted = row.failures > row.spec.limits.max_restarts;
        // After a restore nothing tells how far the generations came that the store does not know.
        let only_start = self.facts.has_used_its_only_start(row)
            || (row.spec.limits.forbid_restart() && self.seen.old_generations.contains(&row.id));
        let failed = |message: String| {
            let note = Note::new("job.failed", format!("{name} failed: {message}"));
            (JobEvent::Fail { message }, Some(note))
        };
        match (row.wish.clone(), cause) {
            (Some(Wish::Cancelled { by, reason, .. }), _) => {
                let note = Note::new("job.cancelled", format!("{name} was cancelled by {by}"));
                (JobEvent::Cancel { by, reason }, Some(note))
            }
            (Some(Wish::Held { reason }), _) if !only_start => (JobEvent::Hold { reason }, None),
            (_, StopCause::GangBroken { message } | StopCause::Hung { message }) if exhausted => {
                if row.failures <= 1 {
                    return failed(message);
                }
                let message = format!("failed {} times; last: {message}", row.failures);
                let note = Note::new("job.failed", format!("{name} {message}"));
                (JobEvent::Fail { message }, Some(note))
            }
            (_, StopCause::Mistaken { message } | StopCause::IdleGpus { message }) => failed(message),
            (_, StopCause::TimeLimit) => failed("its time limit has passed".into()),
            (_, cause) if cause == StopCause::BudgetSpent || self.budget_is_spent(row) => {
                failed(format!("its budget of {} is spent", row.budget_in_words()))
            }
            (_, cause) if only_start => failed(format!("{}, and {MUST_NOT_RUN_TWICE}", self.why_it_ended(cause))),
            (_, _) => (JobEvent::Requeue, None),
        }
    }

    /// Why a generation ended that cannot be followed by another.
    fn why_it_ended(&self, cause: StopCause) -> String {
        match cause {
            StopCause::GangBroken { message } | StopCause::Hung { message } => message,
            StopCause::NodeLost { node } => format!("node {} is lost", self.facts.node_name(node)),
            _ => "it was stopped".to_owned(),
        }
    }

    pub(crate) fn budget_is_spent(&self, job: &Job) -> bool {
        job.spec.limits.budget.is_some_and(|budget| self.facts.attained(job) >= budget)
    }

    pub(crate) fn succeed(&mut self, id: JobId, why: &str) {
        let (name, generation) = match self.facts.jobs.get(&id) {
            Some(job) => (job.spec.name.clone(), job.generation),
            None => return self.facts.impossible("a job that is not kept has succeeded", Some(id), None),
        };
        if self.transition(id, JobEvent::Succeed) {
            self.write_down_what_it_made((id, generation));
            self.settle_expectation((id, generation));
            self.facts.edit_allocation((id, generation), |allocation| allocation.complete = true);
            self.facts.count_spent((id, generation));
            self.leave_generation(id);
            self.facts.note(Note::new("job.succeeded", format!("{name} succeeded: {why}")).job(id));
            self.facts.ask_round(format!("job {name} ended"));
        }
    }

    /// What was seen of the ended generation says nothing about the next; progress goes back to the checkpoint.
    fn leave_generation(&mut self, id: JobId) {
        let (Some(job), Some(seen)) = (self.facts.jobs.get(&id), self.seen.job_mut(id)) else {
            return self.facts.impossible("a job that is not kept left its generation", Some(id), None);
        };
        seen.leave_generation(job, self.facts.now);
        if job.save_wanted.is_some() || job.resize.is_some() {
            self.facts.edit_job(id, |job| (job.save_wanted, job.resize) = (None, None));
        }
    }
}

/// That it has done what its target counts, and how much of that only theory says.
fn reached(job: &Job) -> String {
    let target = job.target().map_or(0.0, |target| target.tokens.0);
    let share = 100.0 * job.credit.0 / target.max(1.0);
    let credited = format!(", {share:.0} % of it credited to batches below the reference and unconfirmed");
    format!("it has reached its target{}", if share >= 0.5 { credited.as_str() } else { "" })
}
