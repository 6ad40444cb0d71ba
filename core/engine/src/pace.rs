//! Whether running jobs make headway: hangs (processes live, no step comes) and stragglers (one rank keeps all others
//! waiting). Both are judged from what workers report; a silent connection is no hang.

use std::collections::BTreeMap;

use headway_types::{Blame, Generation, JobId, NodeId, Seconds, Timestamp};

use crate::blame::Breakdown;
use crate::draft::Note;
use crate::entry::{JobEntry, Pace};
use crate::health::Incident;
use crate::record::{Allocation, Availability, JobState, StopCause};
use crate::state::Engine;

/// A rank this many times slower than the median rank is a straggler, if it stays so.
const SLOW: f64 = 1.5;
/// Reports in a row after which a slow rank counts against its node.
const SLOW_IN_A_ROW: u32 = 3;
/// A rank's word older than this says nothing about now.
const STALE: Seconds = Seconds(180.0);

impl Engine {
    /// Stops a job whose steps have ceased.
    pub(crate) fn judge_pace(&mut self, job: JobId, allocation: &Allocation) {
        let Some(entry) = self.jobs.get(&job) else { return };
        let Some(at) = self.hung_at(entry, allocation).filter(|at| *at <= self.now) else { return };
        let quiet = self.config.hang_floor.0.max(self.now.since(at).0);
        let message = match allocation.training_at {
            Some(_) => format!("no step for over {quiet:.0} s although all its processes live"),
            None => "no first step came although all its processes live".to_owned(),
        };
        // Once may be the network's fault; a job that hangs again without any progress in between hangs by itself.
        let blame = if entry.job.hangs > 0 { Blame::Job } else { Blame::Infrastructure };
        let breakdown = Breakdown { message: message.clone(), blame, out_of_memory: false, place: None };
        let (message, blame) = self.settle(job, breakdown);
        self.edit_job(job, |job| job.hangs += 1);
        let name = self.job_name(job);
        self.note(Note::new("job.hung", format!("{name} hangs: {message}")).job(job).with("blame", blame));
        self.stop(job, StopCause::Hung { message: message.clone() }, &message);
    }

    /// When a running job will count as hung; `None` for jobs that do not tell of their steps, and while the node that
    /// tells is out of reach.
    fn hung_at(&self, entry: &JobEntry, allocation: &Allocation) -> Option<Timestamp> {
        let JobState::Running { since, .. } = entry.job.state else { return None };
        if entry.job.spec.training().is_none() || entry.job.capabilities.is_none() {
            return None;
        }
        let teller = self.nodes.get(&allocation.placement.first_node()).filter(|one| one.connected())?;
        if teller.node.availability != Availability::Available {
            return None;
        }
        let quiet_from = since.max(self.listening_since).max(teller.node.registered_at);
        let known = entry.step_time.filter(|_| allocation.training_at.is_some()).zip(entry.save_time);
        let Some((step, save)) = known else {
            // How long a first step or a first save takes is not known yet.
            let last = entry.live.reported_at.unwrap_or(quiet_from);
            return Some(quiet_from.max(last) + self.config.first_step_deadline);
        };
        let patience = self.config.hang_floor.0.max(self.config.hang_steps * step.0) + 2.0 * save.0;
        Some(quiet_from.max(entry.live.reported_at.unwrap_or(quiet_from)) + Seconds(patience))
    }

    /// Ranks of a node tell how long they worked per step, waiting for others left out.
    pub(crate) fn rank_times(
        &mut self,
        node: NodeId,
        job: JobId,
        generation: Generation,
        busy: BTreeMap<u32, Seconds>,
    ) {
        let now = self.now;
        let Some(allocation) = self.allocations.get(&(job, generation)).cloned() else { return };
        let homes: Vec<NodeId> = allocation.placement.ranks().map(|(node, _)| node).collect();
        let own = |rank: &u32| homes.get(*rank as usize) == Some(&node);
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        for (rank, seconds) in busy.into_iter().filter(|(rank, seconds)| own(rank) && seconds.0.is_finite()) {
            let slow = entry.paces.get(&rank).map_or(0, |pace| pace.slow);
            entry.paces.insert(rank, Pace { busy: seconds, at: now, slow });
        }
        entry.paces.retain(|_, pace| now.since(pace.at).0 < STALE.0);
        let Some(median) = median(&entry.paces).filter(|_| entry.paces.len() >= 3) else { return };
        let mut stragglers = Vec::new();
        for (rank, pace) in entry.paces.iter_mut().filter(|(rank, _)| own(rank)) {
            pace.slow = if pace.busy.0 > SLOW * median { pace.slow + 1 } else { 0 };
            if pace.slow >= SLOW_IN_A_ROW {
                pace.slow = 0;
                stragglers.push((*rank, pace.busy.0 / median));
            }
        }
        let Some((rank, ratio)) = stragglers.into_iter().max_by(|one, other| one.1.total_cmp(&other.1)) else { return };
        entry.slow_nodes.insert(node);
        self.tell_straggler(node, job, rank, ratio);
    }

    /// A node counts once, however many of its ranks are slow; and a job whose ranks straggle wherever it runs is uneven
    /// by itself.
    fn tell_straggler(&mut self, node: NodeId, job: JobId, rank: u32, ratio: f64) {
        let (name, node_name) = (self.job_name(job), self.node_name(node));
        let message =
            format!("rank {rank} of {name} on node {node_name} takes {ratio:.1} times as long as the median rank");
        self.note(Note::new("job.straggler", message).job(job).node(node).with("rank", rank));
        let elsewhere = self.jobs.get(&job).is_some_and(|entry| entry.job.suspects.iter().any(|other| *other != node));
        if elsewhere {
            self.clear_nodes(job);
            return;
        }
        self.edit_job(job, |job| {
            job.suspects.insert(node);
        });
        self.incident(node, Incident::Straggled(job), &format!("its ranks keep {name} waiting"));
    }
}

fn median(paces: &BTreeMap<u32, Pace>) -> Option<f64> {
    let mut busy: Vec<f64> = paces.values().map(|pace| pace.busy.0).collect();
    busy.sort_by(f64::total_cmp);
    busy.get(busy.len() / 2).copied().filter(|median| *median > 0.0)
}
