//! Everything that can happen to a simulated cluster at a moment of virtual time.

use headway_engine::Request;
use headway_engine::event::Event;
use headway_node::{Exit, NodeEvent};
use headway_types::{AgentCommand, Fault, LaunchOrder, NodeId, NodeReport, PlanId, Seconds, Serial};

use crate::deed::{Comeback, Deed};
use crate::faults::FaultKind;
use crate::world::Key;

/// Something that happens at a moment of virtual time.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Submit(usize),
    /// A pending request is asked again.
    Ask(u64),
    AskFor(Box<Request>),
    CancelOwn(usize),
    WriteOff(NodeId),
    StartServer,
    Arrive {
        server: u64,
        event: Event,
    },
    Batch {
        server: u64,
    },
    EngineTick {
        server: u64,
    },
    PlanDone {
        server: u64,
        result: Result<Event, (PlanId, String)>,
    },
    Up {
        link: u64,
        report: NodeReport,
        late: bool,
    },
    Down {
        link: u64,
        serial: Serial,
        command: AgentCommand,
        late: bool,
    },
    Welcome {
        link: u64,
    },
    LinkLost {
        link: u64,
    },
    Pulse(usize),
    /// Something the node's shell tells its ledger; lost if the agent restarts before.
    Shell {
        node: usize,
        incarnation: u32,
        event: NodeEvent,
    },
    Born {
        node: usize,
        incarnation: u32,
        order: Box<LaunchOrder>,
    },
    StartAgent {
        node: usize,
        comeback: Comeback,
    },
    Train {
        key: Key,
    },
    /// The moment of a run with a hidden truth.
    Hidden {
        key: Key,
    },
    Mishap {
        node: usize,
        mishap: headway_emulation::Mishap,
    },
    Steps {
        key: Key,
        report: u64,
        steps: u32,
        duration: Seconds,
    },
    Finish {
        key: Key,
    },
    Abort {
        key: Key,
    },
    Die {
        node: usize,
        key: Key,
        rank: Option<u32>,
        exit: Exit,
        fault: Option<Fault>,
    },
    Heal {
        node: usize,
        gpu: usize,
    },
    Relieve {
        node: usize,
    },
    Fault(FaultKind),
    Deed(Deed),
    /// The host's clock is right again.
    CorrectClock,
    /// Sessions that have lost messages break.
    BreakAll,
    /// A repeated request may have undone what its asker had undone: someone looks after it.
    TidyUp,
}
