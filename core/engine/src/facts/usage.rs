//! What projects have used: GPU-time whose weight halves with every half-life (`docs/decisions/0007-fair-share.md`).
//! A row holds what was used until a moment; what allocations have used since then is added whenever it is asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_types::{GpuSeconds, Seconds, Timestamp};

use super::Facts;
use crate::record::{Allocation, Project, lineage};

/// Decayed GPU-time per project, that of its sub-projects included. `held` names each allocation's project.
pub(crate) fn usages<'a>(
    projects: &BTreeMap<String, Arc<Project>>,
    held: impl Iterator<Item = (&'a str, &'a Allocation)>,
    half_life: Seconds,
    now: Timestamp,
) -> BTreeMap<String, GpuSeconds> {
    let decayed = |project: &Project| project.used * remainder(now.since(project.used_at), half_life);
    let mut usages: BTreeMap<String, GpuSeconds> =
        projects.iter().map(|(name, project)| (name.clone(), decayed(project))).collect();
    for (project, allocation) in held {
        for name in lineage(projects, project) {
            let since = projects[name].used_at.max(allocation.granted_at);
            *usages.entry(name.to_owned()).or_default() += held_since(allocation, since, half_life, now);
        }
    }
    usages
}

/// Decayed GPU-time of an allocation from a moment on: ∫ g·2^(−(now−s)/h) ds for each of its nodes.
fn held_since(allocation: &Allocation, since: Timestamp, half_life: Seconds, now: Timestamp) -> GpuSeconds {
    let of_slice = |slice: &headway_types::NodeSlice| {
        let until = allocation.released.get(&slice.node).map_or(now, |release| release.at.min(now)).max(since);
        let left = |at: Timestamp| remainder(now.since(at), half_life);
        slice.gpus.len() as f64 * half_life.0 / core::f64::consts::LN_2 * (left(until) - left(since))
    };
    GpuSeconds(allocation.placement.slices().iter().map(of_slice).sum())
}

/// What is left of use after this long: 2^(−age/h).
fn remainder(age: Seconds, half_life: Seconds) -> f64 {
    libm::exp2(-age.0 / half_life.0)
}

impl Facts {
    /// What every project has used as of now.
    pub fn usages(&self) -> BTreeMap<String, GpuSeconds> {
        let held = self.allocations.iter().filter_map(|((job, _), allocation)| {
            let job = self.jobs.get(job)?;
            Some((job.spec.project.as_str(), &**allocation))
        });
        usages(&self.projects, held, self.policy.usage_half_life, self.now)
    }

    /// Before allocations are forgotten, what they have used goes into the rows of their projects.
    pub fn settle_released(&mut self) {
        let touched = self.draft.allocations.iter();
        let over = touched.filter(|key| self.allocations.get(key).is_some_and(|one| !one.holds()));
        let projects: BTreeSet<&str> =
            over.filter_map(|(job, _)| self.jobs.get(job)).map(|job| job.spec.project.as_str()).collect();
        let settled: BTreeSet<String> =
            projects.into_iter().flat_map(|name| lineage(&self.projects, name)).map(str::to_owned).collect();
        if !settled.is_empty() {
            self.settle(|name| settled.contains(name));
        }
    }

    /// Brings all rows up to now: from here on the rules may change without touching the past.
    pub fn settle_all(&mut self) {
        self.settle(|_| true);
    }

    fn settle(&mut self, which: impl Fn(&str) -> bool) {
        for (name, used) in self.usages().into_iter().filter(|(name, _)| which(name)) {
            let Some(project) = self.projects.get_mut(&name) else { continue };
            let project = Arc::make_mut(project);
            (project.used, project.used_at) = (used, self.now);
            self.draft.projects.insert(name);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_types::{Generation, GpuUuid, IdSource, NodeSlice, Placement};

    use super::*;
    use crate::record::{ProjectAccess, ProjectRules, Release, ReleaseProof};

    const WEEK: Seconds = Seconds(604_800.0);

    fn at(seconds: f64) -> Timestamp {
        Timestamp(1_000_000_000_000_000) + Seconds(seconds)
    }

    fn project(name: &str, parent: Option<&str>) -> (String, Arc<Project>) {
        let rules = ProjectRules { parent: parent.map(Into::into), ..ProjectRules::default() };
        let row = Project {
            name: name.into(),
            rules,
            access: ProjectAccess::default(),
            used: GpuSeconds(0.0),
            used_at: at(0.0),
            version: 1,
        };
        (name.into(), Arc::new(row))
    }

    /// Two GPUs of one node from the beginning on.
    fn allocation() -> Allocation {
        let mut ids = IdSource::seeded(3);
        let gpus = vec![GpuUuid("a".into()), GpuUuid("b".into())];
        let placement = Placement::try_new(vec![NodeSlice { node: ids.node(at(0.0)), gpus }]).unwrap();
        Allocation::new(ids.job(at(0.0)), Generation(1), placement, at(0.0))
    }

    fn used(projects: &BTreeMap<String, Arc<Project>>, held: &Allocation, now: f64) -> f64 {
        usages(projects, std::iter::once(("b", held)), WEEK, at(now))["a"].0
    }

    #[test]
    fn use_counts_half_after_a_half_life_and_for_all_above() {
        let projects: BTreeMap<_, _> = [project("a", None), project("b", Some("a"))].into();
        let mut held = allocation();
        let node = held.placement.first_node();
        assert!((used(&projects, &held, 60.0) - 120.0).abs() < 0.01);
        held.released.insert(node, Release { at: at(60.0), proof: ReleaseProof::Reported });
        let later = used(&projects, &held, 60.0 + WEEK.0);
        assert!((later - 60.0).abs() < 0.01, "{later}");
    }

    #[test]
    fn settling_in_between_changes_nothing() {
        let mut projects: BTreeMap<_, _> = [project("a", None), project("b", Some("a"))].into();
        let held = allocation();
        let straight = used(&projects, &held, 1_000_000.0);
        for moment in [10.0, 400_000.0, 400_000.0, 900_000.0] {
            let now = usages(&projects, std::iter::once(("b", &held)), WEEK, at(moment));
            for (name, used) in now {
                let row = Arc::make_mut(projects.get_mut(&name).unwrap());
                (row.used, row.used_at) = (used, at(moment));
            }
        }
        let settled = used(&projects, &held, 1_000_000.0);
        assert!((settled / straight - 1.0).abs() < 1e-9, "{settled} {straight}");
    }

    #[test]
    fn a_circle_of_projects_counts_once() {
        let projects: BTreeMap<_, _> = [project("a", Some("b")), project("b", Some("a"))].into();
        assert!((used(&projects, &allocation(), 60.0) - 120.0).abs() < 0.01);
    }
}
