//! Who answers for a gang that ends before its time, and what follows: the job's restart budget, a node's health, or
//! only another attempt. A job is never failed for what is not its fault.

use std::sync::Arc;

use headway_types::{Blame, GroupOutcome, JobId, NodeId, Seconds};

use crate::draft::Note;
use crate::gang::Part;
use crate::health::Incident;
use crate::outcome::Observation;
use crate::record::StopCause;
use crate::state::Engine;

/// Why a gang is over before its time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Breakdown {
    pub message: String,
    pub blame: Blame,
    /// It ran out of device memory.
    pub out_of_memory: bool,
    /// Where it began, if one node can be named, and what that says about the node.
    pub place: Option<(NodeId, Incident)>,
}

/// Setbacks in a row on the only node there is, after which a further one counts against the job.
const PROOF: u32 = 3;

impl Engine {
    /// What broke the gang, if anything did. The gravest word of a node counts: a rank that dies takes the others down,
    /// and what they say then is consequence, not cause.
    pub(crate) fn breakdown(&self, job: JobId, parts: &[(NodeId, Part)]) -> Option<Breakdown> {
        let broken = |(node, part): &(NodeId, Part)| {
            let (message, blame, incident) = match part {
                Part::Ended(GroupOutcome::Failed { exit_code, fault }) => {
                    let code = exit_code.map_or(String::new(), |code| format!(" (exit code {code})"));
                    let message = format!("on node {}: {}{code}", self.node_name(*node), fault.message);
                    (message, fault.blame, Some(Incident::GroupFailed(job)))
                }
                Part::Ended(GroupOutcome::NotStarted { fault }) => {
                    let message = format!("not started on node {}: {}", self.node_name(*node), fault.message);
                    (message, fault.blame, Some(Incident::NotStarted(job)))
                }
                Part::Ended(GroupOutcome::Stopped) => {
                    let message = format!("stopped on node {} without being asked", self.node_name(*node));
                    (message, Blame::Infrastructure, None)
                }
                Part::Vanished => (
                    format!("node {} has no trace of it", self.node_name(*node)),
                    Blame::Node,
                    Some(Incident::Vanished),
                ),
                _ => return None,
            };
            let out_of_memory = matches!(part, Part::Ended(GroupOutcome::Failed { fault, .. }) if fault.out_of_memory);
            Some(Breakdown { message, blame, out_of_memory, place: incident.map(|incident| (*node, incident)) })
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

    /// Ends the generation for this cause and settles who answers for it.
    pub(crate) fn break_gang(&mut self, job: JobId, breakdown: Breakdown) {
        let cause = StopCause::GangBroken { message: breakdown.message.clone() };
        if breakdown.out_of_memory {
            self.learn_exhaustion(job);
        }
        if self.ran_steadily(job) {
            self.forgive(job);
        }
        let (message, blame) = self.settle(job, breakdown);
        self.tell_breakdown(job, &message, blame);
        self.stop(job, cause, &message);
    }

    /// What ran out of device memory, and all that needs as much, is not tried again on this GPU type.
    fn learn_exhaustion(&mut self, job: JobId) {
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        let Some(allocation) = self.allocations.get(&(job, entry.job.generation)) else { return };
        let node = self.nodes.get(&allocation.placement.first_node());
        let class = node.map(|entry| entry.node.inventory.class());
        // After a live change that is the new one: the one before had room.
        let at = allocation.configuration.or(entry.reported);
        if let (Some(model), Some(class), Some(at)) = (&mut entry.model, &class, &at) {
            Arc::make_mut(model).exhausted(class, at);
            self.draft.observations.push(Observation::Model { job, model: Arc::clone(model) });
            self.rounds.ask(format!("{} ran out of device memory", entry.job.spec.name));
        }
    }

    /// Jobs without checkpoints show their progress by running on.
    fn ran_steadily(&self, job: JobId) -> bool {
        let Some(entry) = self.jobs.get(&job) else { return false };
        let allocation = self.allocations.get(&(job, entry.job.generation));
        let launched = allocation.and_then(|allocation| allocation.launched_at);
        launched.is_some_and(|at| self.now.since(at).0 >= self.config.steady_after.0)
    }

    /// Counts the failure where it belongs; the message may gain a word about that.
    pub(crate) fn settle(&mut self, job: JobId, breakdown: Breakdown) -> (String, Blame) {
        let Breakdown { mut message, mut blame, place, .. } = breakdown;
        let suspects = self.jobs.get(&job).map(|entry| entry.job.suspects.clone()).unwrap_or_default();
        if let (Blame::Node, Some((node, incident))) = (blame, place) {
            let setbacks = self.jobs.get(&job).map_or(0, |entry| entry.job.setbacks);
            if suspects.iter().any(|other| *other != node) {
                blame = Blame::Job;
                message.push_str("; it failed alike on another node, so the fault is the job's own");
                self.clear_nodes(job);
            } else if setbacks >= PROOF && !self.has_room_beside(node, 1) {
                // There is no other node to try, so the job's word stands against the node's: neither wins for ever.
                blame = Blame::Job;
            } else {
                self.edit_job(job, |job| {
                    job.suspects.insert(node);
                });
                self.incident(node, incident, &message);
            }
        }
        let now = self.now;
        let base = self.config.backoff_base.0;
        let longest = self.config.backoff_max.0;
        self.edit_job(job, |job| {
            if blame == Blame::Job {
                job.failures += 1;
                job.restarts += 1;
            } else {
                job.setbacks += 1;
                job.disruptions += 1;
            }
            let attempts = (job.failures + job.setbacks).clamp(1, 30);
            let wait = (base * libm::exp2(f64::from(attempts - 1))).min(longest);
            job.not_before = Some(now + Seconds(wait));
        });
        (message, blame)
    }

    fn tell_breakdown(&mut self, job: JobId, message: &str, blame: Blame) {
        let Some(entry) = self.jobs.get(&job) else { return };
        let wait = entry.job.not_before.map_or(0.0, |at| at.since(self.now).0);
        let (name, failures) = (&entry.job.spec.name, entry.job.failures);
        let text = format!("{name} broke: {message}; the next start waits {wait:.0} s");
        let note = Note::new("job.gang_broken", text).job(job).with("failures", failures);
        self.note(note.with("blame", blame));
    }

    /// The job itself is at fault: what was held against nodes on its word is taken back.
    pub(crate) fn clear_nodes(&mut self, job: JobId) {
        let now = self.now;
        let suspects = self.jobs.get(&job).map(|entry| entry.job.suspects.clone()).unwrap_or_default();
        self.edit_job(job, |job| job.suspects.clear());
        for node in suspects {
            let mut cleared = false;
            self.edit_node(node, |node| cleared = node.health.clear_of(now, job));
            if cleared {
                let (name, job_name) = (self.node_name(node), self.job_name(job));
                let message = format!("node {name} is trusted again: {job_name} failed elsewhere too");
                self.note(Note::new("node.trusted", message).node(node).job(job));
                self.rounds.ask(format!("node {name} may be used again"));
            }
        }
    }

    /// The job has made progress: what went wrong before is behind it.
    pub(crate) fn forgive(&mut self, job: JobId) {
        let owes = |job: &crate::record::Job| {
            job.failures > 0 || job.setbacks > 0 || job.hangs > 0 || !job.suspects.is_empty()
        };
        if self.jobs.get(&job).is_some_and(|entry| owes(&entry.job)) {
            self.edit_job(job, |job| {
                job.failures = 0;
                job.setbacks = 0;
                job.hangs = 0;
                job.suspects.clear();
            });
        }
    }
}
