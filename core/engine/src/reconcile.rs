//! Reconcile: compares the target plan, the jobs' states and what nodes hold, and takes what leads from here to
//! there. It looks at everything, takes no hint of what changed, and asking twice changes nothing; a command is
//! repeated until its effect is seen.

use headway_goodput::JobModel;
use headway_types::report::Flexibility;
use headway_types::spec::LrScaling;
use headway_types::{
    AgentCommand, Assignment, Configuration, Generation, GroupPhase, JobId, NodeId, Seconds, StopMode, Tier,
};

use crate::draft::Note;
use crate::entry::Seen;
use crate::gang::Part;
use crate::grant::{checkpoint_policy, lr_scale};
use crate::input::capabilities;
use crate::record::{Allocation, JobState, LastChange, PolicyMode, StopCause, Wish};
use crate::state::Engine;

/// How long a script that takes layouts in memory may report the one before, once its node has the order.
const LAYOUT_PATIENCE: Seconds = Seconds(120.0);
/// AdaScale's factor follows the noise also while the batch stays; a script is told anew when it is off by this share, and
/// not sooner than this after the last time.
const RATE_MOVED: f64 = 0.05;
const RATE_EVERY: Seconds = Seconds(60.0);
/// What is left of a broken gang gets between SIGTERM and SIGKILL: time for last words, not for a checkpoint.
const BROKEN_GRACE: Seconds = Seconds(3.0);

impl Engine {
    pub(crate) fn reconcile(&mut self) {
        self.judge_gangs();
        if self.steer_running() {
            self.judge_gangs();
        }
        self.grant_targets();
        self.drive_gangs();
        self.clear_strays();
    }

    /// Running jobs that differ from the target are stopped or reconfigured; true if there were some.
    fn steer_running(&mut self) -> bool {
        let Some(target) = self.target.clone() else { return false };
        let mut steered = false;
        let running: Vec<(JobId, Generation)> = self
            .jobs
            .iter()
            .filter_map(|(id, entry)| match entry.job.state {
                JobState::Running { generation, .. } => Some((*id, generation)),
                _ => None,
            })
            .collect();
        for (job, generation) in running {
            let Some(allocation) = self.allocations.get(&(job, generation)).cloned() else { continue };
            let planned = target.plan.assignments.get(&job);
            // Without rounds nobody makes another plan for a job that must leave.
            let stranded = self.policy.mode == PolicyMode::Paused && self.must_leave(&allocation).is_some();
            if planned.is_some_and(|one| allocation.is_as_assigned(one)) && (!stranded || self.may_linger(&allocation))
            {
                continue;
            }
            steered = true;
            match planned {
                _ if stranded => self.preempt(job, &allocation),
                Some(assignment) if assignment.placement == allocation.placement => {
                    self.steer_configuration(job, &allocation, assignment);
                }
                Some(assignment) => {
                    let (from, to) = (allocation.placement.gpus(), assignment.placement.gpus());
                    let leaves = self.must_leave(&allocation);
                    let draining = leaves.is_some();
                    let planned = || self.reason_of(job);
                    let reason =
                        leaves.or_else(planned).unwrap_or_else(|| format!("it moves from {from} to {to} GPUs"));
                    self.reconfigure(job, &reason, draining);
                }
                None if self.may_linger(&allocation) => {}
                None => self.preempt(job, &allocation),
            }
        }
        steered
    }

    fn preempt(&mut self, job: JobId, allocation: &Allocation) {
        let leaves = self.must_leave(allocation);
        let draining = leaves.is_some();
        let planned = || self.reason_of(job);
        let reason = leaves.or_else(planned).unwrap_or_else(|| "others make more of its GPUs".into());
        let name = self.job_name(job);
        let gpus = allocation.placement.gpus();
        self.note(Note::new("job.preempted", format!("{name} gives up {}: {reason}", gpus.words())).job(job));
        let at = self.now;
        self.edit_job(job, |job| job.last_change = Some(LastChange { at, reason: reason.clone() }));
        self.stop(job, if draining { StopCause::Drain } else { StopCause::Preempt }, &reason);
    }

    fn reconfigure(&mut self, job: JobId, reason: &str, draining: bool) {
        let at = self.now;
        self.edit_job(job, |job| {
            job.last_change = Some(LastChange { at, reason: reason.into() });
            job.count_move(at);
        });
        self.stop(job, if draining { StopCause::Drain } else { StopCause::Rescale }, reason);
    }

    /// Same GPUs, perhaps another configuration: live where the script can, by restart where it must.
    fn steer_configuration(&mut self, job: JobId, allocation: &Allocation, assignment: &Assignment) {
        let (Some(from), Some(to)) = (allocation.configuration, assignment.configuration) else { return };
        let Some(tier) = from.tier_to(&to) else { return };
        let Some(entry) = self.jobs.get(&job) else { return };
        let able = capabilities(&entry.job);
        let flexibility = if tier == Tier::Layout { able.layout } else { able.batch };
        let reason = self.reason_of(job).unwrap_or_else(|| format!("{from} becomes {to}"));
        match flexibility {
            Flexibility::Never => {}
            Flexibility::Live => self.change_live(job, allocation, from, to, &reason),
            Flexibility::Restart => self.reconfigure(job, &reason, false),
        }
    }

    fn change_live(
        &mut self,
        job: JobId,
        allocation: &Allocation,
        from: Configuration,
        to: Configuration,
        reason: &str,
    ) {
        let revision = allocation.revision + 1;
        let goodput = self
            .target
            .as_ref()
            .and_then(|target| target.plan.assignments.get(&job))
            .map_or(allocation.predicted_goodput, |one| one.predicted.goodput.0);
        let lr_scale = self.jobs.get(&job).map_or(1.0, |entry| lr_scale(entry, Some(to)));
        self.edit_allocation((job, allocation.generation), |one| {
            one.configuration = Some(to);
            one.revision = revision;
            one.lr_scale = lr_scale;
            one.predicted_goodput = goodput;
        });
        let at = self.now;
        let is_layout = from.tier_to(&to) == Some(Tier::Layout);
        self.edit_job(job, |job| {
            job.last_change = Some(LastChange { at, reason: reason.into() });
            if is_layout { job.count_move(at) } else { job.batch_changes += 1 }
        });
        let name = self.job_name(job);
        let (kind, message) = if is_layout {
            ("job.layout_changed", format!("{name} goes from {from} to {to} in memory: {reason}"))
        } else {
            let (batch, micro_batch) = (from.global_batch, from.micro_batch);
            let change =
                format!("batch {batch} to {} (micro-batch {micro_batch} to {})", to.global_batch, to.micro_batch);
            ("job.batch_changed", format!("{name} goes from {change}: {reason}"))
        };
        let note = Note::new(kind, message).job(job).with("from", from).with("to", to);
        self.note(note.with("revision", revision));
    }

    /// Renews the learning-rate factor of a running job if the noise has moved it since it was told.
    fn follow_noise(&mut self, job: JobId, generation: Generation) {
        let Some(entry) = self.jobs.get(&job) else { return };
        let follows = |model: &JobModel| model.training.lr_scaling == LrScaling::Adascale;
        let Some(model) = entry.model.as_deref().filter(|model| follows(model)) else { return };
        let lately = entry.rate_told_at.is_some_and(|at| self.now.since(at).0 < RATE_EVERY.0);
        // What was told stands while the noise is not known, and where only a restart could change it.
        if lately || model.noise_scale().is_none() || capabilities(&entry.job).batch != Flexibility::Live {
            return;
        }
        let Some(allocation) = self.allocations.get(&(job, generation)) else { return };
        let (from, to) = (allocation.lr_scale, lr_scale(entry, allocation.configuration));
        if (to / from - 1.0).abs() <= RATE_MOVED {
            return;
        }
        self.edit_allocation((job, generation), |one| {
            one.lr_scale = to;
            one.revision += 1;
        });
        if let Some(entry) = self.jobs.get_mut(&job) {
            entry.rate_told_at = Some(self.now);
        }
        let name = self.job_name(job);
        let message =
            format!("the learning rate of {name} goes from {from:.2} to {to:.2} times the recipe's: its noise moved");
        self.note(Note::new("job.learning_rate_changed", message).job(job).with("lr_scale", to));
    }

    /// The commands each live generation's state calls for.
    fn drive_gangs(&mut self) {
        let live: Vec<(JobId, Generation)> =
            self.jobs.iter().filter_map(|(id, entry)| Some((*id, entry.job.state.generation()?))).collect();
        for (job, generation) in live {
            if matches!(self.jobs.get(&job).map(|entry| &entry.job.state), Some(JobState::Running { .. })) {
                self.follow_noise(job, generation);
            }
            let Some(allocation) = self.allocations.get(&(job, generation)).cloned() else { continue };
            match self.jobs.get(&job).map(|entry| &entry.job.state) {
                Some(JobState::Starting { .. }) => {
                    let parts = self.parts(&allocation);
                    self.drive_start(job, &allocation, &parts);
                }
                Some(JobState::Running { .. }) => self.drive_running(job, &allocation),
                Some(JobState::Stopping { cause, .. }) => {
                    let (cause, parts) = (cause.clone(), self.parts(&allocation));
                    self.drive_stop(job, &allocation, &cause, &parts);
                }
                _ => {}
            }
        }
    }

    fn drive_start(&mut self, job: JobId, allocation: &Allocation, parts: &[(NodeId, Part)]) {
        let generation = allocation.generation;
        let absent = parts.iter().filter(|(_, part)| *part == Part::Absent);
        for (node, _) in absent {
            let Some(entry) = self.jobs.get(&job) else { return };
            let order = Box::new(self.launch_order(entry, allocation));
            self.send(*node, AgentCommand::Prepare { order });
        }
        let ready = |part: &Part| matches!(part, Part::Prepared | Part::Running | Part::Ended(_));
        self.note_rendezvous(allocation);
        if !parts.iter().all(|(_, part)| ready(part)) {
            return;
        }
        let port = self.allocations.get(&(job, generation)).and_then(|one| one.rendezvous_port);
        let Some(port) = port else { return };
        for (node, _) in parts.iter().filter(|(_, part)| *part == Part::Prepared) {
            self.send(*node, AgentCommand::Launch { job, generation, rendezvous_port: port });
        }
    }

    /// The port rank 0's node has bound: a fact, since a running group no longer names it and a launch may be cut short
    /// by a change of leader.
    fn note_rendezvous(&mut self, allocation: &Allocation) {
        let key = (allocation.job, allocation.generation);
        let first = self.nodes.get(&allocation.placement.first_node());
        let group = first.and_then(|entry| entry.group(key.0, key.1));
        if let Some(GroupPhase::Prepared { rendezvous_port: Some(port) }) = group.map(|group| &group.phase)
            && allocation.rendezvous_port != Some(*port)
        {
            let port = *port;
            self.edit_allocation(key, |one| one.rendezvous_port = Some(port));
        }
    }

    fn drive_running(&mut self, job: JobId, allocation: &Allocation) {
        let generation = allocation.generation;
        let first = allocation.placement.first_node();
        let Some(entry) = self.jobs.get(&job) else { return };
        let save = entry.save_wanted.is_some();
        let heard = self.taken_revision(allocation);
        let differs = entry.reported.filter(|reported| allocation.configuration.is_some_and(|at| at != *reported));
        if let Some(configuration) = allocation.configuration
            && allocation.revision > 1
            && (differs.is_some() || heard < allocation.revision)
        {
            let reported = entry.former_layout_since.zip(entry.live.reported_at);
            let stays = reported.is_some_and(|(since, newest)| newest.since(since).0 > LAYOUT_PATIENCE.0);
            let promised = capabilities(&entry.job).layout == Flexibility::Live;
            if let Some(reported) = differs.filter(|_| stays && promised) {
                let reason = format!("its script did not change from {reported} to {configuration} while it ran");
                return self.reconfigure(job, &reason, false);
            }
            let (revision, lr_scale) = (allocation.revision, allocation.lr_scale);
            let command = AgentCommand::Configure { job, generation, revision, configuration, lr_scale };
            self.send(first, command);
        }
        if save {
            self.send(first, AgentCommand::Checkpoint { job, generation });
        }
    }

    /// The newest live change that the node of its first rank has taken.
    pub(crate) fn taken_revision(&self, allocation: &Allocation) -> u64 {
        let node = self.nodes.get(&allocation.placement.first_node());
        node.and_then(|node| node.group(allocation.job, allocation.generation)).map_or(0, |group| group.revision)
    }

    fn drive_stop(&mut self, job: JobId, allocation: &Allocation, cause: &StopCause, parts: &[(NodeId, Part)]) {
        let Some(entry) = self.jobs.get(&job) else { return };
        let policy = checkpoint_policy(&entry.job.spec);
        let wished = match &entry.job.wish {
            Some(Wish::Cancelled { grace, .. }) => *grace,
            _ => None,
        };
        let broken =
            matches!(cause, StopCause::GangBroken { .. } | StopCause::Hung { .. } | StopCause::NodeLost { .. });
        let usual = if broken && BROKEN_GRACE.0 < policy.grace.0 { BROKEN_GRACE } else { policy.grace };
        let grace = wished.unwrap_or(usual);
        let mode = match cause {
            // A gang that never trained has nothing to save or to say.
            StopCause::GangBroken { .. } if allocation.training_at.is_none() => StopMode::Kill,
            // A broken gang hangs in its collectives and cannot save.
            _ if broken => StopMode::Terminate,
            _ => StopMode::Checkpoint,
        };
        for (node, part) in parts {
            if !matches!(part, Part::Stopping | Part::Ended(_) | Part::Vanished)
                && !allocation.released.contains_key(node)
            {
                let command = AgentCommand::Stop { job, generation: allocation.generation, mode, grace };
                self.send(*node, command);
            }
        }
    }

    /// Groups that no live generation owns are stopped; ended ones whose end is recorded are forgotten.
    fn clear_strays(&mut self) {
        let mut commands = Vec::new();
        let mut forgotten = Vec::new();
        for (node, entry) in &self.nodes {
            let Seen::Known { groups, connected: true, .. } = &entry.seen else { continue };
            for ((job, generation), group) in groups {
                let (job, generation) = (*job, *generation);
                let holds = self.allocations.get(&(job, generation)).is_some_and(|one| one.holds_on(*node));
                let owner = self.jobs.get(&job);
                let owned = owner.is_some_and(|entry| entry.job.state.generation() == Some(generation));
                if matches!(group.phase, GroupPhase::Ended { .. }) {
                    // How a part ended counts until the whole of the newest generation is known to be over.
                    let wanted = self.is_newest(job, generation)
                        && self.allocations.get(&(job, generation)).is_some_and(|one| one.holds());
                    if !owned && !holds && !wanted {
                        commands.push((*node, AgentCommand::Forget { job, generation }));
                        forgotten.push((*node, (job, generation)));
                    }
                } else if !(owned && holds) {
                    // The newest generation of a queued job may still save what it did while out of sight.
                    let useful = self.is_newest(job, generation) && holds;
                    let mode = if useful { StopMode::Checkpoint } else { StopMode::Kill };
                    // One that reports its stop has heard it.
                    let heard = self.sent.contains_key(&(job, generation, *node, "stop", mode as u64));
                    if group.phase == GroupPhase::Stopping && heard {
                        continue;
                    }
                    let grace = owner.map(|entry| checkpoint_policy(&entry.job.spec)).unwrap_or_default().grace;
                    commands.push((*node, AgentCommand::Stop { job, generation, mode, grace }));
                }
            }
        }
        for (node, command) in commands {
            self.send(node, command);
        }
        // Not answered: an agent that missed it reports the group again, and is told again.
        for (node, key) in forgotten {
            if let Some(Seen::Known { groups, .. }) = self.nodes.get_mut(&node).map(|entry| &mut entry.seen) {
                groups.remove(&key);
            }
            self.forget_sent(key);
        }
    }

    /// Sends to a connected node unless the same command went out a moment ago.
    fn send(&mut self, node: NodeId, command: AgentCommand) {
        if !self.nodes.get(&node).is_some_and(|entry| entry.connected()) {
            return;
        }
        let (job, generation) = command.subject();
        let (kind, number) = match &command {
            AgentCommand::Prepare { .. } => ("prepare", 0),
            AgentCommand::Launch { .. } => ("launch", 0),
            AgentCommand::Stop { mode, .. } => ("stop", *mode as u64),
            AgentCommand::Configure { revision, .. } => ("configure", *revision),
            AgentCommand::Checkpoint { .. } => ("checkpoint", 0),
            AgentCommand::Forget { .. } => ("forget", 0),
        };
        let key = (job, generation, node, kind, number);
        let due = self.sent.get(&key).is_none_or(|at| self.now.since(*at).0 >= self.config.command_repeat.0);
        if due {
            self.sent.insert(key, self.now);
            self.draft.commands.push((node, command));
        }
        let sent_at = self.sent.get(&key).copied().unwrap_or(self.now);
        let again = sent_at + self.config.command_repeat;
        self.draft.repeat_at = Some(self.draft.repeat_at.map_or(again, |at| at.min(again)));
    }
}
