//! Who answers for a gang that ends before its time, and what follows: the job's restart budget, a node's health, or
//! only another attempt. A job is never failed for what is not its fault.

mod missing;

use std::sync::Arc;

use headway_types::spec::NodeChoice;
use headway_types::{Blame, Generation, JobId, NodeId, Seconds, Timestamp};

use crate::draft::Note;
use crate::engine::Engine;
use crate::generation::MUST_NOT_RUN_TWICE;
use crate::health::{Counted, Incident};
use crate::outcome::Observation;
use crate::record::{Job, LastFailure, StopCause};
use crate::situation::breakdown::Breakdown;

/// A command that ends sooner than this after its launch never began to work.
const AT_ONCE: Seconds = Seconds(15.0);
/// Setbacks in a row on the only node there is, after which a further one counts against the job.
const PROOF: u32 = 3;

/// What a node says of something that a specification names and it lacks.
enum Mistake {
    None,
    /// It is the node that lacks it.
    OfNode,
    /// Unless another node has it.
    Likely {
        node: NodeId,
    },
    Certain,
}

/// Where a gang broke and how, for whoever asks for its last failure.
struct Origin {
    node: Option<String>,
    exit_code: Option<i32>,
}

impl Origin {
    fn failure(&self, at: Timestamp, generation: Generation, message: &str) -> LastFailure {
        LastFailure { at, generation, message: message.to_owned(), node: self.node.clone(), exit_code: self.exit_code }
    }

    fn onto(self, note: Note) -> Note {
        let note = self.node.into_iter().fold(note, |note, node| note.with("node", node));
        self.exit_code.into_iter().fold(note, |note, code| note.with("exit_code", code))
    }
}

impl Engine {
    /// Ends the generation for this cause and settles who answers for it.
    pub(crate) fn break_gang(&mut self, job: JobId, mut breakdown: Breakdown) {
        if breakdown.out_of_memory && self.learn_exhaustion(job) {
            // The risk was the planner's: it costs the job no restart.
            breakdown.blame = Blame::Infrastructure;
            breakdown.message.push_str("; it was unlikely to fit, and nothing else was possible");
        }
        if self.ran_steadily(job) {
            self.forgive(job);
        }
        let breakdown = self.resolve_missing_checkpoint(job, breakdown);
        let breakdown = match self.mistake(job, &breakdown) {
            Mistake::None => breakdown,
            Mistake::Likely { .. } if self.has_used_its_only_start(job) => breakdown,
            Mistake::Certain => return self.end_mistaken(job, breakdown),
            Mistake::Likely { node } => {
                self.facts.edit_job(job, |job| job.lacking = Some(node));
                self.facts.ask_round(format!("{} is to be tried on another node", self.facts.job_name(job)));
                let message = format!("{}; another node is tried before the job is given up", breakdown.message);
                Breakdown { message, blame: Blame::Infrastructure, ..breakdown }
            }
            Mistake::OfNode => Breakdown { blame: Blame::Node, ..breakdown },
        };
        let cause = StopCause::GangBroken { message: breakdown.message.clone() };
        let origin = self.origin(&breakdown);
        let (message, blame) = self.settle(job, breakdown);
        self.tell_breakdown(job, &message, blame, origin);
        self.stop(job, cause, &message);
    }

    /// Whether what broke a gang is what its specification names. A job that has run was specified well: then it is the node that lacks
    /// something. Of a path that one node has not another is asked; a command that cannot be run ends the job at once.
    fn mistake(&self, id: JobId, breakdown: &Breakdown) -> Mistake {
        let (Some(job), Some((node, incident))) = (self.facts.jobs.get(&id), breakdown.place) else {
            return Mistake::None;
        };
        let has_other_node = || {
            job.lacking.is_none_or(|lacking| job.suspects.contains(&lacking))
                && self.situation().has_alike_beside(node, &job.spec.role().nodes)
        };
        // A node whose file system is not mounted finds nothing either.
        if breakdown.missing_checkpoint.is_some() {
            return if has_other_node() { Mistake::Likely { node } } else { Mistake::Certain };
        }
        if !breakdown.mistake {
            return Mistake::None;
        }
        let launched_at = self.facts.newest_allocation(job).and_then(|one| one.launched_at);
        let ran_before = job.started_at.is_some() && job.started_at != launched_at;
        let at_once = launched_at.is_none_or(|at| self.facts.now.since(at).0 < AT_ONCE.0);
        // Where nobody named a directory for checkpoints, the site's own is meant.
        let named = breakdown.blame == Blame::Job || job.spec.checkpoint_policy().dir.is_some();
        match incident {
            Incident::NotStarted(_) if ran_before || !named => Mistake::OfNode,
            Incident::NotStarted(_) if has_other_node() => Mistake::Likely { node },
            Incident::NotStarted(_) => Mistake::Certain,
            _ if !ran_before && at_once => Mistake::Certain,
            _ => Mistake::None,
        }
    }

    fn has_used_its_only_start(&self, id: JobId) -> bool {
        self.facts.jobs.get(&id).is_some_and(|job| self.facts.has_used_its_only_start(job))
    }

    /// Nobody but its owner can help the job: no node is blamed, and nothing is tried again.
    fn end_mistaken(&mut self, id: JobId, breakdown: Breakdown) {
        let origin = self.origin(&breakdown);
        let is_specified_wrong = breakdown.missing_checkpoint.is_none();
        let (message, at) = (breakdown.message, self.facts.now);
        self.facts.edit_job(id, |job| {
            job.failures += 1;
            job.lacking = None;
            job.last_failure = Some(origin.failure(at, job.generation, &message));
        });
        let what = if is_specified_wrong { "run as it is specified" } else { "go on" };
        let text = format!("{} cannot {what}: {message}", self.facts.job_name(id));
        self.facts.note(origin.onto(Note::new("job.mistaken", text).job(id).with("blame", Blame::Job)));
        self.stop(id, StopCause::Mistaken { message: message.clone() }, &message);
    }

    /// The processes live, but steps have ceased.
    pub(crate) fn hung(&mut self, job: JobId, message: String) {
        // Once may be the network's fault; a job that hangs again without any progress in between hangs by itself.
        let again = self.facts.jobs.get(&job).is_some_and(|job| job.hangs > 0);
        let blame = if again { Blame::Job } else { Blame::Infrastructure };
        let (message, blame) = self.settle(
            job,
            Breakdown {
                message,
                blame,
                out_of_memory: false,
                mistake: false,
                full_disk: false,
                missing_checkpoint: None,
                exit_code: None,
                place: None,
            },
        );
        self.facts.edit_job(job, |job| job.hangs += 1);
        let last_sign = self.seen.jobs.get(&job).and_then(|seen| seen.last_sign());
        if let Some(row) = self.facts.jobs.get(&job) {
            let key = (job, row.generation);
            self.facts.edit_allocation(key, |one| one.idle_since = last_sign);
        }
        let text = format!("{} hangs: {message}", self.facts.job_name(job));
        self.facts.note(Note::new("job.hung", text).job(job).with("blame", blame));
        self.stop(job, StopCause::Hung { message: message.clone() }, &message);
    }

    /// What ran out of device memory, and all that needs as much, is not tried again on this GPU type. Whether it had been unlikely to fit.
    fn learn_exhaustion(&mut self, id: JobId) -> bool {
        let job = self.facts.jobs.get(&id);
        let allocation = job.and_then(|job| self.facts.newest_allocation(job)).cloned();
        let (Some(allocation), Some(seen)) = (allocation, self.seen.job_mut(id)) else {
            self.facts.impossible("a gang broke that holds nothing", Some(id), None);
            return false;
        };
        let class = self.facts.class_of(&allocation.placement);
        // After a live change that is the new one: the one before had room.
        let at = allocation.configuration.or(seen.reported);
        let mut unlikely = false;
        if let (Some(model), Some(class), Some(at)) = (&mut seen.model, &class, &at) {
            unlikely = model.unlikely_to_fit(class, at).is_some();
            Arc::make_mut(model).exhausted(class, at);
            self.facts.draft.observations.push(Observation::Model { job: id, model: Arc::clone(model) });
            self.facts.ask_round(format!("{} ran out of device memory", self.facts.job_name(id)));
        }
        unlikely
    }

    /// Jobs without checkpoints show their progress by running on.
    fn ran_steadily(&self, id: JobId) -> bool {
        let job = self.facts.jobs.get(&id);
        let launched = job.and_then(|job| self.facts.newest_allocation(job)).and_then(|one| one.launched_at);
        launched.is_some_and(|at| self.facts.now.since(at).0 >= self.facts.config.steady_after.0)
    }

    /// Counts the failure where it belongs; the message may gain a word about that.
    fn settle(&mut self, id: JobId, breakdown: Breakdown) -> (String, Blame) {
        let origin = self.origin(&breakdown);
        let Breakdown { mut message, mut blame, full_disk, place, .. } = breakdown;
        if let (Blame::Node, Some((node, incident)), Some(job)) = (blame, place, self.facts.jobs.get(&id)) {
            let spare = self.situation().has_room_beside(node, 1, &job.spec.role().nodes);
            // Disks that are full prove nothing about the job, however many they are.
            if !full_disk && job.suspects.iter().any(|other| *other != node) {
                blame = Blame::Job;
                message.push_str("; it failed alike on another node, so the fault is the job's own");
                self.clear_nodes(id);
            } else if !full_disk && job.setbacks >= PROOF && !spare {
                // There is no other node to try, so the job's word stands against the node's: neither wins for ever.
                blame = Blame::Job;
            } else {
                let again = !full_disk && self.suspect(id, node);
                let counted = self.count_against(node, incident, &message, spare);
                // A disk that is full once is full again, and it may be this node's alone.
                if full_disk || counted == Counted::SaidBefore || (again && counted == Counted::Noted) {
                    // Its own experiment: others go on using the node.
                    self.try_beside(id, node);
                }
            }
        } else if let Some((node, incident)) = place
            && (full_disk || (blame == Blame::Job && matches!(incident, Incident::NotStarted(_))))
        {
            // What keeps it from starting on one node it may not meet on another, whosever fault it is.
            self.try_beside(id, node);
        }
        let now = self.facts.now;
        let (base, longest) = (self.facts.config.backoff_base.0, self.facts.config.backoff_max.0);
        self.facts.edit_job(id, |job| {
            if blame == Blame::Job {
                job.failures += 1;
                job.restarts += 1;
            } else {
                job.setbacks += 1;
                job.disruptions += 1;
            }
            job.last_failure = Some(origin.failure(now, job.generation, &message));
            let attempts = (job.failures + job.setbacks).clamp(1, 30);
            let wait = (base * libm::exp2(f64::from(attempts - 1))).min(longest);
            job.not_before = Some(now + Seconds(wait));
        });
        (message, blame)
    }

    /// Keeps the job off this node for now, where another could have it.
    fn try_beside(&mut self, id: JobId, node: NodeId) {
        let Some(job) = self.facts.jobs.get(&id) else { return };
        if self.situation().has_alike_beside(node, &job.spec.role().nodes) {
            self.facts.edit_job(id, |job| job.lacking = Some(node));
            self.facts.ask_round(format!("{} is to be tried on another node", self.facts.job_name(id)));
        }
    }

    fn tell_breakdown(&mut self, id: JobId, message: &str, blame: Blame, origin: Origin) {
        let Some(job) = self.facts.jobs.get(&id) else {
            return self.facts.impossible("a gang of a job that is not kept broke", Some(id), None);
        };
        let most = job.spec.limits.max_restarts;
        let next = match job.failures > most {
            _ if self.facts.has_used_its_only_start(job) => MUST_NOT_RUN_TWICE.to_owned(),
            true if most == 0 => "it asked for no restart".to_owned(),
            true => format!("its {most} restarts are used up"),
            false => {
                format!("the next start waits {:.0} s", job.not_before.map_or(0.0, |at| at.since(self.facts.now).0))
            }
        };
        let (name, failures) = (&job.spec.name, job.failures);
        let text = format!("{name} broke: {message}; {next}");
        let note = Note::new("job.gang_broken", text).job(id).with("failures", failures);
        self.facts.note(origin.onto(note.with("blame", blame)));
    }

    fn origin(&self, breakdown: &Breakdown) -> Origin {
        let node = breakdown.place.map(|(node, _)| self.facts.node_name(node));
        Origin { node, exit_code: breakdown.exit_code }
    }

    /// The job itself is at fault: what was held against nodes on its word is taken back.
    pub(crate) fn clear_nodes(&mut self, id: JobId) {
        let now = self.facts.now;
        let mut suspects = std::collections::BTreeSet::new();
        self.facts.edit_job(id, |job| suspects = std::mem::take(&mut job.suspects));
        let owner = self.facts.jobs.get(&id).map_or_else(String::new, |job| job.owner.clone());
        for node in suspects {
            let mut cleared = false;
            if self.facts.nodes.contains_key(&node) {
                self.facts.edit_node(node, |node| cleared = node.health.clear_of(now, id, &owner));
            }
            if cleared {
                let (name, job_name) = (self.facts.node_name(node), self.facts.job_name(id));
                let message = format!("node {name} is trusted again: {job_name} failed elsewhere too");
                self.facts.note(Note::new("node.trusted", message).node(node).job(id));
                self.facts.ask_round(format!("node {name} may be used again"));
            }
        }
    }

    /// The job has made progress: what went wrong before is behind it.
    pub(crate) fn forgive(&mut self, id: JobId) {
        let owes = |job: &Job| job.failures > 0 || job.setbacks > 0 || job.hangs > 0 || !job.suspects.is_empty();
        if self.facts.jobs.get(&id).is_some_and(|job| owes(job)) {
            self.facts.edit_job(id, |job| {
                job.failures = 0;
                job.setbacks = 0;
                job.hangs = 0;
                job.suspects.clear();
            });
        }
    }

    /// Notes that a generation of the job failed by this node's fault; true if that is known.
    pub(crate) fn suspect(&mut self, job: JobId, node: NodeId) -> bool {
        let mut known = false;
        self.facts.edit_job(job, |job| known = !job.suspects.insert(node));
        known
    }

    /// Counts something that speaks against a node.
    pub(crate) fn incident(&mut self, id: NodeId, incident: Incident, reason: &str) -> Counted {
        let spare = self.situation().has_room_beside(id, 1, &NodeChoice::default());
        self.count_against(id, incident, reason, spare)
    }

    /// Likewise, where it is known whether there is a `spare` node for whoever speaks against it.
    fn count_against(&mut self, id: NodeId, incident: Incident, reason: &str, spare: bool) -> Counted {
        let now = self.facts.now;
        let owner = incident.accuser().and_then(|job| self.facts.jobs.get(&job)).map(|job| job.owner.clone());
        let (mut counted, mut length) = (Counted::Noted, 0.0);
        self.facts.edit_node(id, |node| {
            counted = node.health.count(now, incident, owner.as_deref().unwrap_or_default(), reason, spare);
            length = node.health.due().map_or(0.0, |at| at.since(now).0);
        });
        if counted == Counted::Quarantined {
            let name = self.facts.node_name(id);
            let message = format!("node {name} gets nothing new for {:.0} min: {reason}", length / 60.0);
            self.facts.note(Note::new("node.quarantined", message).node(id).with("blame", Blame::Node));
            self.facts.ask_round(format!("node {name} is quarantined"));
        }
        counted
    }
}
