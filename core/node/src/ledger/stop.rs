//! How a group comes down: asked over the socket, then SIGTERM, then SIGKILL, each with its deadline.

use headway_types::spec::Notice;
use headway_types::{Generation, JobId, Seconds, StopMode, Timestamp};

use super::Ledger;
use crate::group::{Group, Member, Phase, StopCause, StopRequest, StopStage};
use crate::outcome::{NodeAction, NodeOutcome, Signal, WorkerOrder};

/// Share of the grace time a worker has for its own orderly stop before SIGTERM reminds it.
const REQUEST_SHARE: f64 = 0.75;
/// What the rest of a broken group gets between SIGTERM and SIGKILL: time for last words, not for a checkpoint.
const BROKEN_GRACE: Seconds = Seconds(3.0);
/// Pause between repeated SIGKILLs, should a process hang in the kernel.
const KILL_AGAIN: Seconds = Seconds(2.0);

impl Ledger {
    pub(super) fn stop(
        &mut self,
        now: Timestamp,
        job: JobId,
        generation: Generation,
        request: StopRequest,
        out: &mut NodeOutcome,
    ) {
        let Some(group) = self.group_mut(job, generation) else { return };
        match &mut group.phase {
            Phase::Waiting | Phase::Preparing | Phase::Prepared { .. } => {
                return self.withdraw(job, generation, out);
            }
            Phase::Launching { stop, .. } => {
                if stop.is_none_or(|known| known.mode < request.mode) {
                    *stop = Some(request);
                    out.persist = true;
                }
            }
            // What has ended well is not stopped: its end is reported once nothing of it is left. Its worker may have announced an early
            // end in a message that is still on its way: then the job has not succeeded, and this stop is the reason.
            Phase::Running { members, .. } => {
                let members = members.clone();
                if group.is_done(&members) {
                    out.persist |= !group.asked;
                    group.asked = true;
                    return self.report(job, generation, out);
                }
                begin(group, now, members, StopCause::Asked { mode: request.mode }, request, out);
            }
            Phase::Stopping { cause, stage, .. } => {
                let known = match cause {
                    StopCause::Asked { mode } => *mode,
                    StopCause::Broken { .. } => StopMode::Terminate,
                };
                if request.mode > known && !matches!(stage, StopStage::Killed { .. }) {
                    if let StopCause::Asked { mode } = cause {
                        *mode = request.mode;
                    }
                    let (job, generation) = (group.order.job, group.order.generation);
                    *stage = first_stage((job, generation), Hears::Nothing, now, request, out);
                    out.persist = true;
                }
            }
            // An epilog has its own time limit.
            Phase::Withdrawn | Phase::Epilog { .. } | Phase::Ended { .. } => {}
        }
        self.report(job, generation, out);
    }

    /// Kills every older generation of a job, since a newer one has been granted.
    pub(super) fn supersede(&mut self, now: Timestamp, job: JobId, generation: Generation, out: &mut NodeOutcome) {
        let older: Vec<Generation> = match self.groups.get(&job) {
            Some(groups) => groups
                .range(..generation)
                .filter(|(_, group)| !group.phase.is_ended())
                .map(|(generation, _)| *generation)
                .collect(),
            None => return,
        };
        for old in older {
            self.stop(now, job, old, StopRequest { mode: StopMode::Kill, grace: Seconds(0.0) }, out);
        }
    }

    pub(super) fn tick(&mut self, now: Timestamp, out: &mut NodeOutcome) {
        for group in self.groups.values_mut().flat_map(|groups| groups.values_mut()) {
            let (job, generation) = (group.order.job, group.order.generation);
            let Phase::Stopping { stage, .. } = &mut group.phase else { continue };
            if stage.due() > now {
                continue;
            }
            let (next, signal) = match *stage {
                StopStage::Requested { kill_at, .. } => (StopStage::Terminated { kill_at }, Signal::Terminate),
                StopStage::Terminated { .. } | StopStage::Killed { .. } => {
                    (StopStage::Killed { again_at: now + KILL_AGAIN }, Signal::Kill)
                }
            };
            *stage = next;
            out.persist = true;
            out.actions.push(NodeAction::Signal { job, generation, signal });
        }
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.groups()
            .filter_map(|group| match &group.phase {
                Phase::Stopping { stage, .. } => Some(stage.due()),
                _ => None,
            })
            .min()
    }
}

/// Takes a group with processes into `Stopping`.
pub(super) fn begin(
    group: &mut Group,
    now: Timestamp,
    members: Vec<Member>,
    cause: StopCause,
    request: StopRequest,
    out: &mut NodeOutcome,
) {
    let (job, generation) = (group.order.job, group.order.generation);
    let hears = match group.order.notice {
        _ if group.greeted => Hears::Socket,
        Some(notice) if group.notice == 0 => Hears::Signal(notice),
        _ => Hears::Nothing,
    };
    let stage = first_stage((job, generation), hears, now, request, out);
    group.phase = Phase::Stopping { members, cause, stage };
    out.persist = true;
}

/// Takes down what is left of a group of which one process has failed.
pub(super) fn begin_broken(
    group: &mut Group,
    now: Timestamp,
    members: Vec<Member>,
    cause: StopCause,
    out: &mut NodeOutcome,
) {
    let grace = if group.order.grace < BROKEN_GRACE { group.order.grace } else { BROKEN_GRACE };
    begin(group, now, members, cause, StopRequest { mode: StopMode::Terminate, grace }, out);
}

/// How a group can be asked to save before it is told to end.
enum Hears {
    /// A worker has connected.
    Socket,
    /// By the signal that the job names, which it has not heard yet.
    Signal(Notice),
    Nothing,
}

/// The first thing a stop does, by its mode. A group whose worker never connected and that names no signal cannot be asked: SIGTERM is
/// the same request to it.
fn first_stage(
    (job, generation): (JobId, Generation),
    hears: Hears,
    now: Timestamp,
    request: StopRequest,
    out: &mut NodeOutcome,
) -> StopStage {
    let kill_at = now + request.grace;
    let requested = StopStage::Requested { terminate_at: now + request.grace * REQUEST_SHARE, kill_at };
    let (stage, action) = match (request.mode, hears) {
        (StopMode::Checkpoint, Hears::Socket) => (
            requested,
            NodeAction::Send { job, generation, order: WorkerOrder::Stop { checkpoint: true, grace: request.grace } },
        ),
        (StopMode::Checkpoint, Hears::Signal(notice)) => {
            (requested, NodeAction::Signal { job, generation, signal: notice.into() })
        }
        (StopMode::Checkpoint | StopMode::Terminate, _) => {
            (StopStage::Terminated { kill_at }, NodeAction::Signal { job, generation, signal: Signal::Terminate })
        }
        (StopMode::Kill, _) => (
            StopStage::Killed { again_at: now + KILL_AGAIN },
            NodeAction::Signal { job, generation, signal: Signal::Kill },
        ),
    };
    out.actions.push(action);
    stage
}
