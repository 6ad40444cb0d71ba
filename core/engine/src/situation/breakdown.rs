//! What broke a gang, by the word of its nodes. What follows from it is settled in `blame.rs` of the crate.

use headway_types::{Blame, GroupOutcome, JobId, MissingCheckpoint, NodeId};

use super::Situation;
use super::gang::Part;
use crate::health::Incident;

/// Why a gang is over before its time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Breakdown {
    pub message: String,
    pub blame: Blame,
    /// Of the rank that failed, where one did.
    pub exit_code: Option<i32>,
    /// It ran out of device memory.
    pub out_of_memory: bool,
    /// What its specification names is not there, or cannot be run, as far as the node can tell.
    pub mistake: bool,
    /// The disk of the node is full.
    pub full_disk: bool,
    /// The checkpoint to resume from is not on disk, and what a node found instead.
    pub missing_checkpoint: Option<MissingCheckpoint>,
    /// Where it began, if one node can be named, and what that says about the node.
    pub place: Option<(NodeId, Incident)>,
}

impl Situation<'_> {
    /// What broke the gang, if anything did. The gravest word of a node counts: a rank that dies takes the others down,
    /// and what they say then is consequence, not cause.
    pub fn breakdown(self, job: JobId, parts: &[(NodeId, Part)]) -> Option<Breakdown> {
        let broken = |(node, part): &(NodeId, Part)| {
            let name = || self.facts.node_name(*node);
            let (message, blame, incident) = match part {
                Part::Ended(GroupOutcome::Failed { exit_code, fault }) => {
                    let untold = exit_code.filter(|code| !fault.message.contains(&format!("exited with code {code}")));
                    let code = untold.map_or(String::new(), |code| format!(" (exit code {code})"));
                    let message = format!("on node {}: {}{code}", name(), fault.message);
                    (message, fault.blame, Some(Incident::GroupFailed(job)))
                }
                Part::Ended(GroupOutcome::NotStarted { fault }) => {
                    let message = format!("not started on node {}: {}", name(), fault.message);
                    (message, fault.blame, Some(Incident::NotStarted(job)))
                }
                Part::Ended(GroupOutcome::Stopped) => {
                    let message = format!("stopped on node {} without being asked", name());
                    (message, Blame::Infrastructure, None)
                }
                Part::Vanished => {
                    (format!("node {} has no trace of it", name()), Blame::Node, Some(Incident::Vanished))
                }
                _ => return None,
            };
            let fault = match part {
                Part::Ended(GroupOutcome::Failed { fault, .. } | GroupOutcome::NotStarted { fault }) => Some(fault),
                _ => None,
            };
            let out_of_memory = fault.is_some_and(|fault| fault.out_of_memory);
            let mistake = fault.is_some_and(|fault| fault.mistake);
            let full_disk = fault.is_some_and(|fault| fault.full_disk);
            let missing_checkpoint = fault.and_then(|fault| fault.missing_checkpoint.clone());
            let exit_code = match part {
                Part::Ended(GroupOutcome::Failed { exit_code, .. }) => *exit_code,
                _ => None,
            };
            let place = incident.map(|incident| (*node, incident));
            Some(Breakdown { message, blame, out_of_memory, mistake, full_disk, missing_checkpoint, exit_code, place })
        };
        // Of the job's own failures, the one that says most: ranks beside one that ran out of memory fail too.
        let gravity = |one: &Breakdown| match one.blame {
            Blame::Node => 0,
            Blame::Job if one.out_of_memory => 1,
            Blame::Job => 2,
            Blame::Infrastructure => 3,
        };
        parts.iter().filter_map(broken).min_by_key(gravity)
    }
}
