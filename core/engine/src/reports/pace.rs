//! Stragglers: ranks that keep all others of their job waiting, by what the ranks themselves report. Each is held against those on nodes of its kind.

use std::collections::BTreeMap;

use headway_types::{Generation, JobId, NodeId, Seconds};

use crate::draft::Note;
use crate::engine::Engine;
use crate::health::Incident;
use crate::seen::Pace;

/// A rank this many times slower than the median rank is a straggler, if it stays so.
const SLOW: f64 = 1.5;
/// Reports in a row after which a slow rank counts against its node.
const SLOW_IN_A_ROW: u32 = 3;
/// So often found slow, a node is left by the job itself.
pub(crate) const STAYS_SLOW: u32 = 2;
/// A rank's word older than this says nothing about now.
const STALE: Seconds = Seconds(180.0);

impl Engine {
    /// Ranks of a node tell how long they worked per step, waiting for others left out.
    pub(crate) fn rank_times(
        &mut self,
        node: NodeId,
        job: JobId,
        generation: Generation,
        busy: BTreeMap<u32, Seconds>,
    ) {
        let now = self.facts.now;
        let Some(allocation) = self.facts.allocations.get(&(job, generation)).cloned() else { return };
        let homes: Vec<NodeId> = allocation.placement.ranks().map(|(node, _)| node).collect();
        let own = |rank: &u32| homes.get(*rank as usize) == Some(&node);
        // Nodes of another kind are faster or slower, and may be given more of a step.
        let Some(class) = self.facts.nodes.get(&node).map(|node| node.inventory.class()) else { return };
        let alike = |home: &NodeId| self.facts.nodes.get(home).is_some_and(|node| node.inventory.is_of(&class));
        let kin: Vec<u32> = (0..).zip(&homes).filter(|(_, home)| alike(home)).map(|(rank, _)| rank).collect();
        let Some(seen) = self.seen.job_mut(job) else {
            return self.facts.impossible("nothing is known of a job whose ranks speak", Some(job), Some(node));
        };
        for (rank, seconds) in busy.into_iter().filter(|(rank, seconds)| own(rank) && seconds.0.is_finite()) {
            let slow = seen.paces.get(&rank).map_or(0, |pace| pace.slow);
            seen.paces.insert(rank, Pace { busy: seconds, at: now, slow });
        }
        seen.paces.retain(|_, pace| now.since(pace.at).0 < STALE.0);
        let Some(median) = median(kin.iter().filter_map(|rank| seen.paces.get(rank))) else { return };
        let mut stragglers = Vec::new();
        for (rank, pace) in seen.paces.iter_mut().filter(|(rank, _)| own(rank)) {
            pace.slow = if pace.busy.0 > SLOW * median { pace.slow + 1 } else { 0 };
            if pace.slow >= SLOW_IN_A_ROW {
                pace.slow = 0;
                stragglers.push((*rank, pace.busy.0 / median));
            }
        }
        let Some((rank, ratio)) = stragglers.into_iter().max_by(|one, other| one.1.total_cmp(&other.1)) else { return };
        let found = seen.slow_nodes.entry(node).or_default();
        *found = found.saturating_add(1);
        match *found {
            1 => self.tell_straggler(node, job, rank, ratio),
            STAYS_SLOW => {
                let (name, node) = (self.facts.job_name(job), self.facts.node_name(node));
                self.facts.ask_round(format!("{name} may leave node {node}, which keeps it waiting"));
            }
            _ => {}
        }
    }

    /// A node counts once, however many of its ranks are slow and however long they stay so: all of it is one job's word. And a job whose
    /// ranks straggle wherever it runs is uneven by itself.
    fn tell_straggler(&mut self, node: NodeId, job: JobId, rank: u32, ratio: f64) {
        let (name, node_name) = (self.facts.job_name(job), self.facts.node_name(node));
        let message =
            format!("rank {rank} of {name} on node {node_name} takes {ratio:.1} times as long as the median rank");
        self.facts.note(Note::new("job.straggler", message).job(job).node(node).with("rank", rank));
        let elsewhere = self.facts.jobs.get(&job).is_some_and(|job| job.suspects.iter().any(|other| *other != node));
        if elsewhere {
            self.clear_nodes(job);
            return;
        }
        if !self.suspect(job, node) {
            self.incident(node, Incident::Straggled(job), &format!("its ranks keep {name} waiting"));
        }
    }
}

/// Of three ranks or more.
fn median<'p>(paces: impl Iterator<Item = &'p Pace>) -> Option<f64> {
    let mut busy: Vec<f64> = paces.map(|pace| pace.busy.0).collect();
    busy.sort_by(f64::total_cmp);
    busy.get(busy.len() / 2).copied().filter(|median| busy.len() >= 3 && *median > 0.0)
}
