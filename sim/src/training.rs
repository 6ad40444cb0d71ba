//! How gangs train: steps, reports, saves, and their end.

use headway_emulation::RunEvent;
use headway_node::{Exit, WorkerMessage};
use headway_types::{Fault, NodeReport, Seconds};

use crate::faults::Chance;
use crate::item::Item;
use crate::world::{Key, World};

/// A collective that hangs gives up by itself after this long, as NCCL's watchdog does.
const WATCHDOG: (f64, f64) = (600.0, 1_800.0);
/// Between two reports of rank times.
pub(crate) const RANKS_EVERY: Seconds = Seconds(30.0);

impl World<'_> {
    /// Start-up is over: the first steps begin, or the opaque command's work.
    pub fn train(&mut self, key: Key) {
        let now = self.clock.now;
        let Some(gang) = self.gangs.get_mut(&key) else { return };
        if gang.done || gang.trains {
            return;
        }
        if !gang.complete() || gang.hung {
            return self.hang(key);
        }
        gang.trains = true;
        gang.stood_still = Seconds(0.0);
        let truth = &self.scenario.jobs[gang.truth];
        if truth.spec.training().is_some() {
            let (steps, duration) = gang.next_report(truth, now);
            let report = gang.reports;
            self.clock.after(duration, Item::Steps { key, report, steps, duration });
        } else {
            let runs = truth.runs;
            self.clock.after(runs, Item::Finish { key });
        }
        self.touch_gang(key);
    }

    /// A worker polls at every step: what it is asked for does not wait for the end of a report.
    pub fn interrupt(&mut self, key: Key) {
        let now = self.clock.now;
        let Some(gang) = self.gangs.get_mut(&key).filter(|gang| gang.trains && !gang.done && !gang.hung) else {
            return;
        };
        let truth = &self.scenario.jobs[gang.truth];
        if truth.spec.training().is_none() || gang.stood_still.0 > 0.0 {
            return;
        }
        let (steps, duration, at) = gang.short_report(truth, now);
        gang.reports += 1;
        let report = gang.reports;
        self.clock.at(at, Item::Steps { key, report, steps, duration });
    }

    pub fn steps(&mut self, key: Key, report: u64, steps: u32, duration: Seconds) {
        let now = self.clock.now;
        let Some(gang) = self.gangs.get_mut(&key) else { return };
        if gang.done || gang.hung || gang.reports != report {
            return;
        }
        if !gang.complete() {
            return self.hang(key);
        }
        let stood_still = std::mem::take(&mut gang.stood_still);
        if stood_still.0 > 0.0 {
            gang.report_began = gang.report_began + stood_still;
            return self.clock.after(stood_still, Item::Steps { key, report, steps, duration });
        }
        let truth = &self.scenario.jobs[gang.truth];
        // Reported under the configuration it was trained with.
        let report = gang.advance(truth, steps, duration);
        let next = gang.next_report(truth, now);
        let reports = gang.reports;
        let stopping = gang.stop_wanted;
        let every = gang.order.checkpoint_every.0;
        let save = stopping || gang.save_wanted || now.since(gang.saved_at).0 >= every;
        let (first, step, samples_seen) = (gang.first_node(), gang.step, gang.samples);
        gang.done = stopping;
        let Some(first) = self.node_index(first) else { return };
        self.say(first, key, WorkerMessage::Step { report: Box::new(report) });
        self.tell_rank_times(key, Seconds(duration.0 / f64::from(steps)));
        if save {
            self.save(first, key);
        }
        if stopping {
            self.say(first, key, WorkerMessage::Stopped { step, samples_seen });
            return self.finish(key);
        }
        self.clock.after(next.1, Item::Steps { key, report: reports, steps: next.0, duration: next.1 });
    }

    /// Saves, unless that fails; what was saved may prove bad when it is loaded.
    fn save(&mut self, first: usize, key: Key) {
        let (fails, rots) = (self.chance(Chance::SaveFails), self.chance(Chance::CheckpointCorrupt));
        let now = self.clock.now;
        let Some(gang) = self.gangs.get_mut(&key) else { return };
        gang.saved_at = now;
        gang.save_wanted = false;
        if fails {
            return;
        }
        let checkpoint = gang.checkpoint();
        if rots {
            self.rotten.insert(checkpoint.path.clone());
        }
        self.say(first, key, WorkerMessage::Checkpoint { checkpoint, duration: Seconds(0.3) });
    }

    fn tell_rank_times(&mut self, key: Key, step: Seconds) {
        let now = self.clock.now;
        let Some(gang) = self.gangs.get_mut(&key) else { return };
        if now.since(gang.ranks_told_at).0 < RANKS_EVERY.0 {
            return;
        }
        gang.ranks_told_at = now;
        let drag = gang.drag(now);
        let (job, generation) = key;
        let slow = gang.slow.clone();
        let mut told: Vec<(usize, NodeReport)> = Vec::new();
        let members: Vec<(headway_types::NodeId, u32)> = gang.alive.iter().copied().collect();
        for (node, index) in self.nodes.iter().enumerate().map(|(index, node)| (node.inventory.node, index)) {
            let own = slow.get(&node).filter(|(_, until)| *until > now).map_or(1.0, |(factor, _)| *factor);
            let busy: std::collections::BTreeMap<u32, Seconds> = members
                .iter()
                .filter(|(member, _)| *member == node)
                .map(|(_, rank)| (*rank, Seconds(step.0 * own / drag)))
                .collect();
            if !busy.is_empty() && self.nodes[index].up {
                told.push((index, NodeReport::RankTimes { job, generation, busy }));
            }
        }
        for (node, report) in told {
            self.send_report(node, report);
        }
    }

    /// No step comes any more. A watchdog ends it in the end, should nobody else.
    pub fn hang(&mut self, key: Key) {
        let at = self.moment(WATCHDOG.0, WATCHDOG.1);
        let Some(gang) = self.gangs.get_mut(&key).filter(|gang| !gang.hung) else { return };
        gang.hung = true;
        self.run_event(key, RunEvent::Hang);
        self.clock.at(at, Item::Abort { key });
        self.touch_gang(key);
    }

    pub fn abort(&mut self, key: Key) {
        self.exit_all(key, Exit::Signal(6), None);
    }

    /// All processes of a gang exit 0 by themselves.
    pub fn finish(&mut self, key: Key) {
        let Some(gang) = self.gangs.get_mut(&key).filter(|gang| gang.complete() && !gang.hung) else {
            return self.hang(key);
        };
        let stood_still = std::mem::take(&mut gang.stood_still);
        if stood_still.0 > 0.0 {
            return self.clock.after(stood_still, Item::Finish { key });
        }
        gang.done = true;
        if self.scenario.jobs[gang.truth].spec.training().is_none() {
            gang.trained = self.scenario.jobs[gang.truth].runs.0 * f64::from(gang.order.placement.gpus().0);
        }
        self.exit_all(key, Exit::Code(0), None);
    }

    pub fn exit_all(&mut self, key: Key, exit: Exit, fault: Option<&Fault>) {
        let Some(gang) = self.gangs.get(&key) else { return };
        let members: Vec<(headway_types::NodeId, u32)> = gang.alive.iter().copied().collect();
        self.touch_gang(key);
        for (id, rank) in members {
            let at = self.moment(0.01, 0.5);
            if let Some(node) = self.node_index(id) {
                self.clock.at(at, Item::Die { node, key, rank: Some(rank), exit, fault: fault.cloned() });
            }
        }
    }

    /// Something about a gang has changed: the account of all its nodes follows.
    pub fn touch_gang(&mut self, key: Key) {
        let Some(gang) = self.gangs.get(&key) else { return };
        let members: Vec<headway_types::NodeId> =
            gang.order.placement.slices().iter().map(|slice| slice.node).collect();
        for id in members {
            if let Some(node) = self.node_index(id) {
                self.touched.insert(node);
            }
        }
    }
}
