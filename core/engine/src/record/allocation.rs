//! What a job holds under one generation, and the checkpoints it has committed.

use std::collections::BTreeMap;

use headway_types::{
    Assignment, CheckpointRef, Configuration, Generation, GpuCount, GpuType, JobId, NodeCount, NodeId, Placement,
    PlanId, Prediction, Seconds, Timestamp, Tokens, TokensPerSecond,
};
use serde::{Deserialize, Serialize};

use super::job_state::StopCause;
use super::plan::PlanRecord;
use super::realised::Expectation;

/// What a job holds or held under one generation. GPUs stay granted until every node has released its slice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Allocation {
    pub job: JobId,
    pub generation: Generation,
    pub plan: Option<PlanId>,
    pub placement: Placement,
    /// Current configuration; live changes raise `revision`.
    pub configuration: Option<Configuration>,
    pub revision: u64,
    /// What it ran in before the newest live change of its batch, unless it has gone back to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former_batch: Option<Configuration>,
    /// Learning-rate factor decided with the configuration: a repeated command must carry the same body.
    #[serde(default = "unscaled")]
    pub lr_scale: f64,
    pub resumed_from: Option<CheckpointRef>,
    /// The newest notice of its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<Noticed>,
    /// Why it was made, in words.
    pub cause: String,
    pub predicted_goodput: f64,
    /// The same with its band, while it is not over; absent where nothing is predicted, and of allocations of an earlier release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expectation: Option<Expectation>,
    /// Port the first node has bound for the gang, once it has said so.
    #[serde(default)]
    pub rendezvous_port: Option<u16>,
    pub granted_at: Timestamp,
    /// Every node of the gang was ready to launch.
    #[serde(default)]
    pub prepared_at: Option<Timestamp>,
    /// Every node of the gang ran.
    #[serde(default)]
    pub launched_at: Option<Timestamp>,
    /// First step report of this generation.
    pub training_at: Option<Timestamp>,
    /// Progress from which it trains.
    #[serde(default)]
    pub progress_from: Option<Tokens>,
    /// What it had made of it by its last report, once its end was decided or its job was done.
    #[serde(default)]
    pub made: Option<Made>,
    /// Newest committed checkpoint of this generation.
    #[serde(default)]
    pub saved_at: Option<Timestamp>,
    /// Its processes hang since; nobody knows of it before its end is decided for that.
    #[serde(default)]
    pub idle_since: Option<Timestamp>,
    /// It was warned that its GPUs idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warned_at: Option<Timestamp>,
    /// Its end was decided.
    #[serde(default)]
    pub stopping_at: Option<Timestamp>,
    /// Why it was decided; absent also where no end was: its processes ended by themselves.
    #[serde(default)]
    pub stopped_for: Option<StopCause>,
    /// Who gets its GPUs by the plan that ended it, whoever gets most first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub displaced_by: Vec<Displacer>,
    /// What its GPUs are; absent of allocations of an earlier release.
    #[serde(default)]
    pub gpu_type: Option<GpuType>,
    /// Whether the job was done with it: nothing it computed has to be computed again.
    #[serde(default)]
    pub complete: bool,
    /// Nodes that have proven that no process is left.
    pub released: BTreeMap<NodeId, Release>,
    pub ended_at: Option<Timestamp>,
}

/// A notice that was sent: which, and before which time limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noticed {
    pub number: u32,
    pub limit: Seconds,
}

fn unscaled() -> f64 {
    1.0
}

/// Progress made under one generation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Made {
    /// Reference tokens.
    pub tokens: Tokens,
    /// Since it trained.
    pub within: Seconds,
}

impl Made {
    /// Reference tokens per second, of a time in which there were any.
    #[must_use]
    pub fn goodput(&self) -> Option<TokensPerSecond> {
        (self.within.0 > 0.0 && self.tokens.0 > 0.0).then(|| self.tokens / self.within)
    }
}

/// Where an allocation stands; the moment it got there is a field of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AllocationPhase {
    /// Granted: its nodes check and bind.
    Preparing,
    /// Every node is ready: processes are being started.
    Launching,
    Running,
    /// It is to end.
    Stopping,
    /// Every slice is released.
    Ended,
}

impl AllocationPhase {
    /// The whole transition table.
    #[must_use]
    pub fn may_become(self, next: Self) -> bool {
        use AllocationPhase::{Ended, Launching, Preparing, Running, Stopping};
        matches!(
            (self, next),
            (Preparing, Launching | Running | Stopping | Ended)
                | (Launching, Running | Stopping | Ended)
                | (Running, Stopping | Ended)
                | (Stopping, Ended)
        )
    }
}

impl Allocation {
    /// GPUs as they are granted: nothing has happened on them yet.
    #[must_use]
    pub fn new(job: JobId, generation: Generation, placement: Placement, now: Timestamp) -> Self {
        Self {
            job,
            generation,
            plan: None,
            placement,
            configuration: None,
            revision: 1,
            former_batch: None,
            lr_scale: unscaled(),
            notice: None,
            resumed_from: None,
            cause: String::new(),
            predicted_goodput: 0.0,
            expectation: None,
            rendezvous_port: None,
            granted_at: now,
            prepared_at: None,
            launched_at: None,
            training_at: None,
            progress_from: None,
            made: None,
            saved_at: None,
            idle_since: None,
            warned_at: None,
            stopping_at: None,
            stopped_for: None,
            displaced_by: Vec::new(),
            gpu_type: None,
            complete: false,
            released: BTreeMap::new(),
            ended_at: None,
        }
    }

    #[must_use]
    pub fn phase(&self) -> AllocationPhase {
        if self.ended_at.is_some() {
            AllocationPhase::Ended
        } else if self.stopping_at.is_some() {
            AllocationPhase::Stopping
        } else if self.launched_at.is_some() {
            AllocationPhase::Running
        } else if self.prepared_at.is_some() {
            AllocationPhase::Launching
        } else {
            AllocationPhase::Preparing
        }
    }

    /// The only way from phase to phase; false where the table refuses.
    #[must_use]
    pub fn enter(&mut self, next: AllocationPhase, now: Timestamp) -> bool {
        if !self.phase().may_become(next) {
            return false;
        }
        match next {
            AllocationPhase::Preparing => {}
            AllocationPhase::Launching => self.prepared_at = Some(now),
            AllocationPhase::Running => self.launched_at = Some(now),
            AllocationPhase::Stopping => self.stopping_at = Some(now),
            AllocationPhase::Ended => self.ended_at = Some(now),
        }
        true
    }

    /// What has come of it by a report that tells of so much progress.
    #[must_use]
    pub fn made_by(&self, progress: Tokens, at: Timestamp) -> Option<Made> {
        let (began, from) = self.training_at.zip(self.progress_from)?;
        Some(Made { tokens: Tokens((progress.0 - from.0).max(0.0)), within: at.since(began) })
    }

    /// Whether it already is what a plan assigns.
    #[must_use]
    pub fn is_as_assigned(&self, assignment: &Assignment) -> bool {
        self.configuration == assignment.configuration && self.placement == assignment.placement
    }

    /// What it gives, and what the plan that gave it promised.
    pub(crate) fn assignment(&self, target: Option<&PlanRecord>) -> Assignment {
        let planned = target
            .and_then(|target| target.plan.assignments.get(&self.job))
            .filter(|one| one.placement == self.placement && one.configuration == self.configuration);
        let predicted = planned.map_or(
            Prediction {
                step_time: Seconds(0.0),
                throughput: TokensPerSecond(0.0),
                efficiency: 1.0,
                goodput: TokensPerSecond(self.predicted_goodput),
                speed_up: 1.0,
            },
            |one| one.predicted,
        );
        let (placement, configuration) = (self.placement.clone(), self.configuration);
        Assignment { placement, configuration, predicted, label: None }
    }

    /// Whether any node still holds GPUs for it.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.placement.slices().iter().any(|slice| !self.released.contains_key(&slice.node))
    }

    /// Whether this node has a slice of it that is not released.
    #[must_use]
    pub fn holds_on(&self, node: NodeId) -> bool {
        !self.released.contains_key(&node) && self.placement.slices().iter().any(|slice| slice.node == node)
    }

    /// GPUs that are not released.
    #[must_use]
    pub fn held_gpus(&self) -> GpuCount {
        let held = self.placement.slices().iter().filter(|slice| !self.released.contains_key(&slice.node));
        GpuCount(held.map(|slice| slice.gpus.len() as u32).sum())
    }
}

/// A job that gets GPUs which another gives up, as it was called then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Displacer {
    pub job: JobId,
    pub name: String,
    pub owner: String,
    pub gpus: GpuCount,
}

/// What a job runs as, whichever GPUs of a type it has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shape {
    pub gpus: BTreeMap<GpuType, GpuCount>,
    pub nodes: NodeCount,
    pub configuration: Option<Configuration>,
}

/// How a node's GPUs were proven free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    pub at: Timestamp,
    pub proof: ReleaseProof,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseProof {
    /// The agent reported the processes gone.
    Reported,
    /// The agent registered without a trace of this generation in its ledger.
    NotInLedger,
    /// The node came back with another boot id.
    NewBoot,
    /// An operator confirmed `node lost`.
    Operator,
}

/// A committed checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub job: JobId,
    pub checkpoint: CheckpointRef,
    pub duration: Seconds,
    pub committed_at: Timestamp,
    pub progress: Tokens,
}

#[cfg(test)]
mod tests {
    use super::*;
    use AllocationPhase::{Ended, Launching, Preparing, Running, Stopping};

    #[test]
    fn an_allocation_never_goes_back() {
        let all = [Preparing, Launching, Running, Stopping, Ended];
        for (from, earlier) in all.iter().enumerate() {
            for (to, later) in all.iter().enumerate() {
                assert!(!earlier.may_become(*later) || from < to, "{earlier:?} to {later:?}");
            }
        }
        assert!(!Stopping.may_become(Running) && !Ended.may_become(Stopping));
    }
}
