//! What enters the ledger.

use std::collections::BTreeMap;

use headway_types::{
    AgentCommand, BootId, Capabilities, CheckpointRef, Fault, Generation, JobId, Seconds, Sequences, Serial,
    StepReport, Term,
};
use serde::{Deserialize, Serialize};

/// One fact for the ledger to digest.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeEvent {
    /// The scheduler of `term` wants something. `serial`: none where it does not count its commands.
    Command { term: Term, serial: Option<Serial>, command: AgentCommand },
    /// A session was welcomed; what a lost session may have swallowed is reported again.
    SessionOpened { term: Term },
    /// The shell has started over with this ledger, on this boot.
    Restarted { boot: BootId },
    /// The checks are done: the rendezvous port on the first node, or why the group cannot start here.
    PrepareDone { job: JobId, generation: Generation, result: Result<Option<u16>, Fault> },
    /// All processes of the group are up.
    Spawned { job: JobId, generation: Generation, processes: Vec<Process> },
    /// The launch failed and no process of it is left.
    SpawnFailed { job: JobId, generation: Generation, fault: Fault },
    /// All processes of a launch that was cut short had ended before the shell came back, and nothing of them is left: how each rank did.
    EndedUnseen { job: JobId, generation: Generation, exits: BTreeMap<u32, Exit> },
    /// A process has ended by itself. What it had started may still run: `Exited` follows once all of it is gone. Nothing may have
    /// signalled the process before, and a stop must come after this: a stop that finds every process ended with 0 has come too late.
    Left { job: JobId, generation: Generation, rank: u32, exit: Exit },
    /// A process is gone, with everything it had started. `fault`: what the shell knows of its cause beyond the exit
    /// status (a GPU that broke, the host that ran out of memory).
    Exited { job: JobId, generation: Generation, rank: u32, exit: Exit, fault: Option<Fault> },
    /// The epilog is over, however it went, and nothing of it is left.
    EpilogDone { job: JobId, generation: Generation },
    /// A worker spoke on its socket; the shell has checked its secret.
    Worker { job: JobId, generation: Generation, message: WorkerMessage },
    /// The time asked for by `NodeOutcome::wake_at`, or any later moment.
    Tick,
}

/// A process as the kernel knows it: a pid counts only together with its start time, since pids are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Process {
    /// Global rank (with one process per node, that of the node's first GPU).
    pub rank: u32,
    pub pid: u32,
    /// Clock ticks from boot to the process's start.
    pub started: u64,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    Code(i32),
    Signal(i32),
    /// It ended while nobody was watching and left no status.
    Unknown,
}

/// What a worker says, once its identity is checked.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkerMessage {
    /// A worker connected (again).
    Hello {
        rank: u32,
        capabilities: Option<Capabilities>,
    },
    Step {
        report: Box<StepReport>,
    },
    Checkpoint {
        checkpoint: CheckpointRef,
        duration: Seconds,
    },
    Phases {
        phases: BTreeMap<String, Seconds>,
    },
    /// The loss is no finite number (`None`), or far above what is usual for it.
    LossAnomaly {
        step: u64,
        loss: Option<f64>,
        usual: Option<f64>,
    },
    /// It will exit before its work is done, as asked.
    Stopped {
        step: u64,
        samples_seen: Sequences,
    },
}
