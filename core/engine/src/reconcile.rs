//! Reconcile: what leads from what is towards what is wanted. Each pass is a function that looks at the whole situation,
//! takes no hint of what changed, and returns steps; the steps of one pass are taken before the next pass looks. Asking
//! twice changes nothing; a command is repeated until its effect is seen.

mod drive;
mod grant;
mod judge;
mod launch;
mod steer;
mod strays;

use headway_types::{AgentCommand, Assignment, Configuration, Generation, JobId, NodeId};

use crate::engine::Engine;
use crate::generation::live::Purpose;
use crate::record::StopCause;
use crate::situation::Situation;
use crate::situation::breakdown::Breakdown;
use crate::situation::gang::Part;

/// One step. What it means for the rows is in `generation.rs` and `blame.rs`.
#[derive(Clone, Debug)]
enum Step {
    /// Every node of the gang is ready: its processes are to be started.
    Prepared {
        job: JobId,
        generation: Generation,
    },
    /// Rank 0's node has bound this port.
    Rendezvous {
        job: JobId,
        generation: Generation,
        port: u16,
    },
    /// Every node of the gang runs.
    Launched {
        job: JobId,
    },
    Succeeded {
        job: JobId,
        why: &'static str,
    },
    Broken {
        job: JobId,
        breakdown: Breakdown,
    },
    Hung {
        job: JobId,
        message: String,
    },
    LostNode {
        job: JobId,
        node: NodeId,
    },
    Stop {
        job: JobId,
        cause: StopCause,
        reason: String,
    },
    /// Nothing of the generation is left.
    Ended {
        job: JobId,
        parts: Vec<(NodeId, Part)>,
    },
    /// A live generation has no row that says what it holds.
    Orphaned {
        job: JobId,
    },
    /// Its GPUs go to others, or it must leave and has nowhere to go.
    Preempt {
        job: JobId,
        reason: String,
        must_leave: bool,
    },
    /// It starts again elsewhere, or as something else.
    Move {
        job: JobId,
        reason: String,
        must_leave: bool,
    },
    ChangeLive {
        job: JobId,
        from: Configuration,
        assignment: Assignment,
        reason: String,
    },
    /// Its first steps contradicted what was expected of the change.
    TakeBack {
        job: JobId,
        from: Configuration,
        assignment: Assignment,
        reason: String,
    },
    /// The noise has moved the learning-rate factor of a running job.
    ChangeRate {
        job: JobId,
        generation: Generation,
        lr_scale: f64,
    },
    /// It uses its GPUs less than it must, and is told so first.
    WarnIdle {
        job: JobId,
        message: String,
    },
    BusyAgain {
        job: JobId,
    },
    /// No step was found in what it prints, and it is told so.
    Silent {
        job: JobId,
    },
    /// The time limit is near, and the job wants to hear of it.
    Notify {
        job: JobId,
        generation: Generation,
    },
    Grant {
        job: JobId,
        assignment: Assignment,
    },
    Send {
        node: NodeId,
        command: AgentCommand,
    },
    /// The node was told to forget the group, and so does the engine. That is not answered: an agent that missed it reports
    /// the group again, and is told again.
    Forget {
        node: NodeId,
        job: JobId,
        generation: Generation,
    },
}

impl Engine {
    pub(crate) fn reconcile(&mut self) {
        self.pass(judge::gangs);
        let steered = [self.pass(steer::starting_jobs), self.pass(steer::running_jobs)];
        if steered.contains(&true) {
            self.pass(judge::gangs);
        }
        self.pass(grant::queued_jobs);
        self.pass(drive::gangs);
        self.pass(strays::groups);
    }

    /// Takes the steps that a look at the situation calls for; true if there were some.
    fn pass(&mut self, steps: fn(Situation<'_>) -> Vec<Step>) -> bool {
        let steps = steps(self.situation());
        let some = !steps.is_empty();
        steps.into_iter().for_each(|step| self.take(step));
        some
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Prepared { job, generation } => self.prepared((job, generation)),
            Step::Rendezvous { job, generation, port } => {
                self.facts.edit_allocation((job, generation), |one| one.rendezvous_port = Some(port));
            }
            Step::Launched { job } => self.launched(job),
            Step::Succeeded { job, why } => self.succeed(job, why),
            Step::Broken { job, breakdown } => self.break_gang(job, breakdown),
            Step::Hung { job, message } => self.hung(job, message),
            Step::LostNode { job, node } => self.stop_for_lost_node(job, node),
            Step::Stop { job, cause, reason } => self.stop(job, cause, &reason),
            Step::Ended { job, parts } => self.end_generation(job, &parts),
            Step::Orphaned { job } => {
                self.facts.impossible("a live generation has no allocation", Some(job), None);
                self.stop(job, StopCause::GangBroken { message: "its allocation is gone".into() }, "repair");
                self.end_generation(job, &[]);
            }
            Step::Preempt { job, reason, must_leave } => self.preempt(job, &reason, must_leave),
            Step::Move { job, reason, must_leave } => self.move_job(job, &reason, must_leave),
            Step::ChangeLive { job, from, assignment, reason } => {
                self.change_live(job, from, &assignment, &reason, Purpose::Target);
            }
            Step::TakeBack { job, from, assignment, reason } => {
                self.change_live(job, from, &assignment, &reason, Purpose::Back);
            }
            Step::ChangeRate { job, generation, lr_scale } => self.change_rate((job, generation), lr_scale),
            Step::WarnIdle { job, message } => self.warn_idle(job, &message),
            Step::BusyAgain { job } => self.busy_again(job),
            Step::Silent { job } => self.progress_silent(job),
            Step::Notify { job, generation } => self.notify((job, generation)),
            Step::Grant { job, assignment } => self.grant(job, &assignment),
            Step::Send { node, command } => self.send(node, command),
            Step::Forget { node, job, generation } => {
                if let Some(groups) = self.seen.groups_mut(node) {
                    groups.remove(&(job, generation));
                }
                self.seen.forget_sent((job, generation));
            }
        }
    }

    /// Sends to a connected node unless the same command went out a moment ago.
    fn send(&mut self, node: NodeId, command: AgentCommand) {
        if !self.seen.connected(node) {
            return;
        }
        let repeat = self.facts.config.command_repeat;
        let (due, sent_at) = self.seen.send(self.facts.now, repeat, node, &command);
        let draft = &mut self.facts.draft;
        if due {
            draft.commands.push((node, command));
        }
        let again = sent_at + repeat;
        draft.repeat_at = Some(draft.repeat_at.map_or(again, |at| at.min(again)));
    }
}
