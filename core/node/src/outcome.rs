//! What leaves the ledger.

use std::num::NonZeroU32;

use headway_types::spec::{NoticeSignal, NoticeTo};
use headway_types::{
    CheckpointRef, Configuration, Generation, GroupOutcome, JobId, LaunchOrder, NodeReport, Seconds, Term, Timestamp,
};

use crate::event::Process;

/// The result of one event. The shell stores the ledger if `persist`, then acts, then reports.
#[must_use]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeOutcome {
    /// 1. The ledger changed and must reach the disk before anything else.
    pub persist: bool,
    /// 2. In this order.
    pub actions: Vec<NodeAction>,
    /// 3. For the scheduler, as far as it can be reached.
    pub reports: Vec<NodeReport>,
    /// Why a command was not obeyed; for the log.
    pub refusal: Option<Refusal>,
    /// The only timer: send `Tick` then.
    pub wake_at: Option<Timestamp>,
}

/// What the shell must do.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeAction {
    /// Run the checks, bind the rendezvous port on the first node; answer with `PrepareDone`.
    Prepare { order: Box<LaunchOrder> },
    /// Give up the checks and end the prolog, if it runs; the answer is that of `Prepare`.
    Withdraw { job: JobId, generation: Generation },
    /// Run the epilog (again, where an earlier shell had begun to) and answer with `EpilogDone` once nothing of it is left.
    Epilog { order: Box<LaunchOrder>, outcome: GroupOutcome },
    /// Start the processes; answer with `Spawned` or `SpawnFailed`.
    Spawn { order: Box<LaunchOrder>, rendezvous_port: u16 },
    /// Watch processes that an earlier shell started; answer each end with `Exited`.
    Adopt { order: Box<LaunchOrder>, processes: Vec<Process> },
    /// What was begun was cut short: kill whatever carries this generation, then answer with `SpawnFailed`, or with
    /// `EndedUnseen` where each of the ranks (those of a launch, none of a prolog) had left its exit status by itself.
    Sweep { job: JobId, generation: Generation, ranks: Vec<u32> },
    /// To the group's workers, as far as they listen. Not answered: `Hello` repeats what matters.
    Send { job: JobId, generation: Generation, order: WorkerOrder },
    /// To the processes of the group.
    Signal { job: JobId, generation: Generation, signal: Signal },
    /// The group is over: give back its port, close its sockets.
    Close { job: JobId, generation: Generation },
    /// This checkpoint of the group's job is committed: remove all complete ones before it but the newest, of which
    /// `keep` stay with it. Not answered.
    Prune { order: Box<LaunchOrder>, committed: CheckpointRef, keep: NonZeroU32 },
    /// The end of the group is recorded: remove the job's checkpoint directory if no generation up to this one has
    /// left a file in it. Not answered, and not repeated: what is left is empty.
    RemoveEmptyDirectories { order: Box<LaunchOrder> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Terminate,
    Kill,
    /// What the job asked for before its end; it harms nobody who does not handle it.
    Notice {
        signal: NoticeSignal,
        to: NoticeTo,
    },
}

/// From the ledger to a worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WorkerOrder {
    Configure { revision: u64, configuration: Configuration, lr_scale: f64 },
    Checkpoint,
    Stop { checkpoint: bool, grace: Seconds },
}

/// Why a command was refused. The group's status is reported all the same, so that the scheduler sees where it errs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("term {term} is over, the node follows {highest}")]
    OldTerm { term: Term, highest: Term },
    #[error("generation {generation} of job {job} is stale, the node has seen {highest}")]
    Stale { job: JobId, generation: Generation, highest: Generation },
    #[error("generation {generation} of job {job} was ordered before the node forgot which generations it has seen")]
    Late { job: JobId, generation: Generation },
    #[error("generation {generation} of job {job} came with another body")]
    OtherBody { job: JobId, generation: Generation },
    #[error("generation {generation} of job {job} is {phase}, which does not allow {command}")]
    WrongPhase { job: JobId, generation: Generation, phase: &'static str, command: &'static str },
    #[error("generation {generation} of job {job} is not known here")]
    Unknown { job: JobId, generation: Generation },
}
