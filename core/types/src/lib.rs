//! The vocabulary of Headway: ids, units, job specification, hardware, configuration, placement, plan,
//! report, and the messages between engine and node.
//!
//! This crate holds values and their arithmetic, nothing else. It never reads a clock, a socket, a file, the
//! environment or entropy, and imports no other crate of the project. Everything stands to the right of it.

pub mod access;
pub mod blame;
pub mod checkpoint;
pub mod command;
pub mod configuration;
#[cfg(feature = "examples")]
pub mod example;
pub mod execution;
pub mod hardware;
pub mod id;
pub mod model;
pub mod offer;
pub mod placement;
pub mod plan;
pub mod policy;
pub mod preset;
pub mod quantile;
pub mod random;
pub mod report;
pub mod shares;
pub mod spec;
pub mod state;
pub mod time;
pub mod unit;
mod word;
pub mod xid;

pub use access::{ProjectRole, TokenScope};
pub use blame::{Blame, Fault};
pub use checkpoint::{CheckpointRef, MissingCheckpoint};
pub use command::{AgentCommand, ArrayPlace, GroupOutcome, GroupPhase, LaunchOrder, NodeReport, StopMode};
pub use configuration::{Configuration, Layout, Tier};
pub use execution::{Execution, Offload, Recompute, Schedule, Sharding};
pub use hardware::{
    Ahead, Condition, ConditionKind, EmulatedDevice, Fabric, Gpu, GpuHealth, GpuType, NodeAccount, NodeClass,
    NodeInventory, StatedDevice,
};
pub use id::{ArrayId, BootId, Generation, GpuUuid, IdSource, JobId, NodeId, PlanId, ReservationId, Serial, Term};
pub use model::{
    AttentionWindow, Experts, Latent, LayerKinds, ModelShape, ModelShapeError, RecurrentKind, RecurrentLayers,
};
pub use placement::{NodeSlice, Placement, PlacementError};
pub use plan::{Assignment, JobVerdict, Limit, Move, Plan, PlanReport, Prediction, Reason, ReasonCode, Unmoved};
pub use policy::{Objective, PolicyMode, Solver};
pub use report::{Capabilities, NoiseSample, StepReport};
pub use shares::Shares;
pub use spec::JobSpec;
pub use state::{AvailabilityKind, JobStateKind, NodePolicyKind, PlanStateKind, StandingKind};
pub use time::Timestamp;
pub use unit::{
    Bytes, FlopPerSecond, Flops, GpuCount, GpuSeconds, NodeCount, Seconds, Sequences, Tokens, TokensPerSecond,
};
