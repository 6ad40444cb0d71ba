//! What happens to a simulated cluster from outside: one thing, with everything about it decided. Faults drawn from a
//! seed become deeds; scripts of stories are deeds to begin with.

use headway_engine::Request;
use headway_types::spec::Priority;
use headway_types::{ConditionKind, GpuCount, Seconds};

/// A deed and its moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Act {
    pub when: Moment,
    pub deed: Deed,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Moment {
    At(Seconds),
    /// With the commit of the n-th event of this verb (counted from 1), before anything is sent.
    Commits {
        verb: &'static str,
        nth: u32,
    },
    /// This long after that commit.
    After {
        verb: &'static str,
        nth: u32,
        wait: Seconds,
    },
}

/// Nodes are named by their place in the scenario.
#[derive(Clone, Debug, PartialEq)]
pub enum Deed {
    CrashScheduler {
        when: Crash,
        back_after: Seconds,
    },
    /// With `successor_after`, another scheduler takes the lead while this one stands still.
    PauseScheduler {
        lasts: Seconds,
        successor_after: Option<Seconds>,
    },
    /// The clock jumps ahead, and is corrected after a while if `corrected_after` says so.
    JumpClock {
        by: Seconds,
        corrected_after: Option<Seconds>,
    },
    FreezeClock {
        lasts: Seconds,
    },
    StopAgent {
        node: usize,
        comeback: Comeback,
        back_after: Seconds,
    },
    PauseAgent {
        node: usize,
        lasts: Seconds,
    },
    Disconnect {
        node: usize,
    },
    Cut {
        node: usize,
        way: Way,
        lasts: Seconds,
    },
    /// The first process of the first group on the node exits with code 1.
    KillWorker {
        node: usize,
    },
    PauseWorkers {
        node: usize,
        lasts: Seconds,
    },
    HangWorkers {
        node: usize,
    },
    SlowWorkers {
        node: usize,
        factor: f64,
        lasts: Seconds,
    },
    BreakGpu {
        node: usize,
        gpu: usize,
        lasts: Seconds,
    },
    Trouble {
        node: usize,
        kind: ConditionKind,
        lasts: Seconds,
    },
    /// Every preparation and launch fails there meanwhile.
    Spoil {
        node: usize,
        lasts: Seconds,
    },
    OfferStaleCheckpoint {
        node: usize,
    },
    ReportFalsely {
        node: usize,
    },
    Operate(Operation),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    Now,
    /// The next outcome with changes is decided and lost.
    BeforeCommit,
    /// The next outcome with changes is committed and never acted on.
    AfterCommit,
}

/// How an agent comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comeback {
    /// With its ledger; workers went on.
    Restarted,
    /// With its ledger, on a new boot; nothing is left of the workers.
    Rebooted,
    /// Without its ledger; it kills the orphans before it registers.
    DiskLost,
    /// As `DiskLost`, under another node id.
    Reinstalled,
}

/// Which direction is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Reports,
    Commands,
    Both,
}

/// What a person asks for. Repeated until the scheduler has answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    Drain {
        node: usize,
        undone_after: Seconds,
    },
    Cordon {
        node: usize,
        undone_after: Seconds,
    },
    Hold {
        job: usize,
        undone_after: Seconds,
    },
    Cancel {
        job: usize,
    },
    Save {
        job: usize,
    },
    Prioritise {
        job: usize,
        priority: Priority,
    },
    Resize {
        job: usize,
        min: GpuCount,
        max: GpuCount,
    },
    /// Only an unreachable node is marked.
    MarkLost {
        node: usize,
    },
    /// Only a node that is out of contact is deleted.
    DeleteNode {
        node: usize,
    },
    Rebalance,
    /// A request as it is.
    Plain(Box<Request>),
}

impl std::fmt::Display for Deed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Deed::CrashScheduler { when: Crash::Now, .. } => write!(f, "the scheduler is killed"),
            Deed::CrashScheduler { when: Crash::BeforeCommit, .. } => {
                write!(f, "the scheduler will die between its next decision and the commit")
            }
            Deed::CrashScheduler { when: Crash::AfterCommit, .. } => {
                write!(f, "the scheduler dies between commit and send")
            }
            Deed::PauseScheduler { lasts, successor_after: None } => {
                write!(f, "the scheduler stands still for {:.0} s", lasts.0)
            }
            Deed::PauseScheduler { lasts, successor_after: Some(after) } => {
                write!(f, "the leader stands still for {:.0} s, another takes over after {:.0} s", lasts.0, after.0)
            }
            Deed::JumpClock { by, .. } => write!(f, "the scheduler's clock jumps ahead by {:.0} s", by.0),
            Deed::FreezeClock { lasts } => write!(f, "the scheduler's clock stands for {:.0} s", lasts.0),
            Deed::StopAgent { node, comeback, back_after } => {
                let how = match comeback {
                    Comeback::Restarted => "is killed; it comes back",
                    Comeback::Rebooted => "goes down with its node; both come back",
                    Comeback::DiskLost => "dies and loses its disk; it comes back without a ledger",
                    Comeback::Reinstalled => "dies; the node comes back under another id",
                };
                write!(f, "the agent of node-{node} {how} after {:.0} s", back_after.0)
            }
            Deed::PauseAgent { node, lasts } => {
                write!(f, "the agent of node-{node} stands still for {:.0} s", lasts.0)
            }
            Deed::Disconnect { node } => write!(f, "the session of node-{node} breaks"),
            Deed::Cut { node, way, lasts } => {
                let what = match way {
                    Way::Reports => "no report leaves",
                    Way::Commands => "no command reaches",
                    Way::Both => "nothing leaves or reaches",
                };
                write!(f, "{what} node-{node} for {:.0} s", lasts.0)
            }
            Deed::KillWorker { node } => write!(f, "a worker on node-{node} exits with code 1"),
            Deed::PauseWorkers { node, lasts } => write!(f, "workers on node-{node} stand still for {:.0} s", lasts.0),
            Deed::HangWorkers { node } => write!(f, "the workers of node-{node} hang"),
            Deed::SlowWorkers { node, factor, lasts } => {
                write!(f, "workers on node-{node} are {factor:.1} times slower for {:.0} s", lasts.0)
            }
            Deed::BreakGpu { node, gpu, lasts } => {
                write!(f, "GPU {gpu} of node-{node} breaks and heals after {:.0} s", lasts.0)
            }
            Deed::Trouble { node, kind, lasts } => write!(f, "node-{node} has {kind:?} for {:.0} s", lasts.0),
            Deed::Spoil { node, lasts } => write!(f, "nothing can start on node-{node} for {:.0} s", lasts.0),
            Deed::OfferStaleCheckpoint { node } => write!(f, "node-{node} offers a checkpoint of an old generation"),
            Deed::ReportFalsely { node } => write!(f, "node-{node} reports a group running that has ended"),
            Deed::Operate(operation) => match operation {
                Operation::Plain(body) => write!(f, "a person asks: {body:?}"),
                other => write!(f, "a person asks: {other:?}"),
            },
        }
    }
}
