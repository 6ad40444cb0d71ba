//! What nodes tell of jobs that ask to be watched: when they last wrote, how much they use their GPUs, and what follows.

use std::collections::VecDeque;

use headway_types::spec::LeastUse;
use headway_types::{JobId, NodeId, Seconds, Timestamp};

use crate::draft::Note;
use crate::engine::Engine;
use crate::record::{Allocation, Availability, Job, JobState};
use crate::seen::JobSeen;
use crate::situation::Situation;

/// What one node tells of a generation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Activity {
    /// When its ranks there last wrote anything.
    wrote_at: Timestamp,
    /// Since when it is measured.
    since: Timestamp,
    /// How much its GPUs computed between this report and the one before, as far back as the job's window.
    uses: VecDeque<(Timestamp, f64)>,
    /// Of the `uses`.
    sum: f64,
}

/// How a job that must use its GPUs stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Use {
    Enough,
    /// It is warned, if it was not.
    Little {
        message: String,
        /// It was warned long enough ago.
        over: bool,
    },
}

impl Engine {
    pub(crate) fn active(&mut self, node: NodeId, id: JobId, quiet: Seconds, busy: Option<f64>) {
        let now = self.facts.now;
        let (Some(job), Some(seen)) = (self.facts.jobs.get(&id), self.seen.job_mut(id)) else {
            return self.facts.impossible("nothing is known of a job that is watched", Some(id), Some(node));
        };
        let wrote_at = now - quiet;
        let fresh = || Activity { wrote_at, since: now, uses: VecDeque::new(), sum: 0.0 };
        let activity = seen.activity.entry(node).or_insert_with(fresh);
        activity.wrote_at = wrote_at;
        let Some(least) = job.spec.limits.min_gpu_util else { return };
        match busy.filter(|busy| busy.is_finite()) {
            Some(busy) => {
                let busy = busy.clamp(0.0, 1.0);
                activity.uses.push_back((now, busy));
                activity.sum += busy;
                while let Some((_, old)) = activity.uses.pop_front_if(|(at, _)| now.since(*at).0 > least.window.0) {
                    activity.sum -= old;
                }
            }
            None if activity.uses.is_empty()
                && now.since(activity.since).0 > UNMEASURED.0
                && !std::mem::replace(&mut seen.unmeasured_told, true) =>
            {
                let name = job.spec.name.clone();
                let node_name = self.facts.node_name(node);
                let message = format!(
                    "whether {name} uses its GPUs enough (limits.min_gpu_util: {least}) cannot be judged: node {node_name} does not measure it"
                );
                self.facts.note(Note::new("job.gpu_use_unknown", message).job(id).node(node));
            }
            None => {}
        }
    }

    /// The job idles: said once, until it works again.
    pub(crate) fn warn_idle(&mut self, id: JobId, message: &str) {
        let now = self.facts.now;
        self.edit_live_allocation(id, |one| one.warned_at = Some(now));
        let text = format!("{}: {message}", self.facts.job_name(id));
        self.facts.note(Note::new("job.idle_gpus", text).job(id));
    }

    pub(crate) fn busy_again(&mut self, id: JobId) {
        self.edit_live_allocation(id, |one| one.warned_at = None);
        let text = format!("{} uses its GPUs again", self.facts.job_name(id));
        self.facts.note(Note::new("job.busy_gpus", text).job(id));
    }

    fn edit_live_allocation(&mut self, id: JobId, change: impl FnOnce(&mut Allocation)) {
        let key = self.facts.jobs.get(&id).map(|job| (id, job.generation));
        match key {
            Some(key) => self.facts.edit_allocation(key, change),
            None => self.facts.impossible("a job that is not kept uses GPUs", Some(id), None),
        }
    }
}

/// How long a node may take until its first measurement.
const UNMEASURED: Seconds = Seconds(60.0);

impl JobSeen {
    /// When the job last showed that it lives: by a step or by a word.
    pub(crate) fn last_sign(&self) -> Option<Timestamp> {
        let wrote = self.activity.values().map(|activity| activity.wrote_at);
        self.live.reported_at.into_iter().chain(wrote).max()
    }
}

impl Situation<'_> {
    /// When a running job will have stalled by its own word; `None` where that cannot be told now. A job that tells of its steps is judged
    /// by them, any other by what it writes.
    pub fn stalled_at(self, job: &Job, seen: &JobSeen, allocation: &Allocation) -> Option<Timestamp> {
        let patience = job.spec.limits.stall_after?;
        let JobState::Running { since, .. } = job.state else { return None };
        let near = |id: &NodeId| {
            let node = self.facts.nodes.get(id).filter(|_| self.seen.connected(*id));
            node.filter(|node| node.availability == Availability::Available)
        };
        if job.tells_steps(allocation) {
            let teller = near(&self.step_reporter(job, allocation))?;
            let from = since.max(self.seen.listening_since).max(teller.registered_at);
            return Some(seen.live.reported_at.map_or(from, |at| at.max(from)) + patience);
        }
        let nodes = || allocation.placement.slices().iter().map(|slice| slice.node);
        let wrote = nodes().map(|id| near(&id).and(seen.activity.get(&id)).map(|one| one.wrote_at));
        let last = wrote.collect::<Option<Vec<_>>>()?.into_iter().max()?;
        Some(last.max(since) + patience)
    }

    /// How much a running job uses its GPUs; `None` where it need not, or that is not known over its whole window.
    pub fn use_of(self, job: &Job, seen: &JobSeen, allocation: &Allocation) -> Option<Use> {
        let LeastUse { share, window } = job.spec.limits.min_gpu_util?;
        let now = self.facts.now;
        let (mut busy, mut gpus) = (0.0, 0.0);
        for slice in allocation.placement.slices() {
            let activity = seen.activity.get(&slice.node)?;
            let newest = activity.uses.back().filter(|(at, _)| now.since(*at).0 < UNMEASURED.0);
            newest.filter(|_| now.since(activity.since).0 >= window.0)?;
            let mean = activity.sum / activity.uses.len() as f64;
            let weight = slice.gpus.len() as f64;
            (busy, gpus) = (busy + weight * mean, gpus + weight);
        }
        let mean: f64 = busy / gpus;
        if mean >= share {
            return Some(Use::Enough);
        }
        let message = format!(
            "its GPUs computed {:.1} % of the last {}, and it must use {:.1} %",
            100.0 * mean,
            window.words(),
            100.0 * share
        );
        let over = allocation.warned_at.is_some_and(|at| now.since(at).0 >= window.0);
        Some(Use::Little { message, over })
    }
}
