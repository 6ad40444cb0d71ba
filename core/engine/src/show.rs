//! Shows readers what a batch has touched.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_types::{ArrayId, JobId, NodeId};

use crate::draft::Draft;
use crate::engine::Engine;
use crate::record::JobState;
use crate::view::{ArrayView, JobView, NodeView, View};

impl Engine {
    /// The snapshot as of the newest batch. Cheap: entries are shared, not copied.
    #[must_use]
    pub fn view(&self) -> View {
        self.view.clone()
    }

    pub(crate) fn show_everything(&mut self) {
        let jobs: Vec<JobId> = self.facts.jobs.keys().copied().collect();
        let nodes: Vec<NodeId> = self.facts.nodes.keys().copied().collect();
        jobs.into_iter().for_each(|id| self.show_job(id));
        nodes.into_iter().for_each(|id| self.show_node(id));
        self.show_plans();
        self.show_rules();
        let arrays: Vec<ArrayId> = self.facts.arrays.ids().collect();
        arrays.into_iter().for_each(|id| self.show_array(id));
        self.view.loads = self.facts.owners.all().clone();
    }

    /// Renews what a batch touched.
    pub(crate) fn show(&mut self, draft: &Draft) {
        let touched = draft.allocations.iter().map(|(job, _)| *job);
        let jobs: BTreeSet<JobId> = draft.jobs.union(&draft.shown_jobs).copied().chain(touched).collect();
        let nodes: BTreeSet<NodeId> = draft.nodes.union(&draft.shown_nodes).copied().collect();
        jobs.into_iter().for_each(|id| self.show_job(id));
        nodes.into_iter().for_each(|id| self.show_node(id));
        if !draft.plans.is_empty() || draft.policy {
            self.show_plans();
        }
        if !draft.projects.is_empty() || !draft.reservations.is_empty() {
            self.show_rules();
        }
        let arrays = draft.arrays.union(&draft.shown_arrays);
        arrays.copied().for_each(|id| self.show_array(id));
        self.view.loads = self.facts.owners.all().clone();
        self.view.verdicts = self.rounds.verdicts().clone();
        self.view.lessons = Arc::clone(&self.seen.lessons);
        self.view.trouble = self.rounds.trouble().cloned();
        self.view.round_since = self.rounds.under_way_since();
        self.view.ahead = Arc::clone(&self.seen.ahead);
        self.view.doubt = self.seen.doubt;
        self.view.returning = self.returning();
        self.view.took_over.clone_from(&self.seen.took_over);
        self.view.at = self.facts.now;
    }

    fn show_job(&mut self, id: JobId) {
        let live = self.facts.jobs.get(&id).filter(|job| !job.state.is_final());
        let (Some(job), Some(seen)) = (live, self.seen.jobs.get(&id)) else {
            self.view.jobs.remove(&id);
            return;
        };
        let running = |generation| matches!(job.state, JobState::Running { generation: one, .. } if one == generation);
        let silence = seen.silence_told.filter(|silence| running(silence.generation));
        let shown = JobView {
            job: job.clone(),
            allocation: self.facts.newest_allocation(job).filter(|one| one.holds()).cloned(),
            model: seen.model.clone(),
            live: seen.live.clone(),
            departure: job.departure(Some(seen)),
            silent_since: silence.map(|silence| silence.since),
        };
        self.view.jobs.insert(id, Arc::new(shown));
    }

    fn show_array(&mut self, id: ArrayId) {
        let Some(kept) = self.facts.arrays.get(id) else {
            self.view.arrays.remove(&id);
            return;
        };
        let runs =
            |(_, job): &&(u32, JobId)| self.facts.jobs.get(job).is_some_and(|job| job.state.generation().is_some());
        let mut live = BTreeMap::new();
        for (_, job) in [&kept.waiting, &kept.admitted, &kept.aside].into_iter().flatten() {
            if let Some(job) = self.facts.jobs.get(job) {
                *live.entry(job.state.kind()).or_default() += 1;
            }
        }
        let shown = ArrayView {
            array: Arc::clone(&kept.row),
            live,
            running: kept.admitted.iter().filter(runs).count() as u32,
            admitted: kept.admitted.len() as u32,
            waiting: kept.waiting.len() as u32,
        };
        self.view.arrays.insert(id, Arc::new(shown));
    }

    fn show_node(&mut self, id: NodeId) {
        let (Some(node), Some(seen)) = (self.facts.nodes.get(&id), self.seen.nodes.get(&id)) else {
            self.view.nodes.remove(&id);
            return;
        };
        let held = self.situation().held_on(id);
        let shown = NodeView { node: node.clone(), heard_at: seen.heard_at, connected: seen.connected(), held };
        self.view.nodes.insert(id, Arc::new(shown));
    }

    fn show_plans(&mut self) {
        self.view.target = self.facts.target.clone();
        self.view.proposals = self.facts.proposals.iter().map(|(id, record)| (*id, record.clone())).collect();
        self.view.policy = self.facts.policy.clone();
    }

    fn show_rules(&mut self) {
        let facts = &self.facts;
        self.view.projects = facts.projects.iter().map(|(name, row)| (name.clone(), row.clone())).collect();
        self.view.reservations = facts.reservations.iter().map(|(id, row)| (*id, row.clone())).collect();
    }
}
