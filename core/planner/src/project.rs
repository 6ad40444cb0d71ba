//! Projects of a round: a tree with quotas, floors and weights. Their rows are in `rows`, their rights in `guarantee`.

use headway_types::GpuCount;
use serde::{Deserialize, Serialize};

/// How strongly over- and underuse of its share change a project's weight, and how far at most.
const SHARE_EXPONENT: f64 = 0.5;
const MOST_TURN: f64 = 2.0;

/// One project. What its jobs and its sub-projects hold counts together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanProject {
    pub name: String,
    /// The project it is part of.
    pub parent: Option<String>,
    /// GPUs it may use of right; `None`: no limit.
    pub quota: Option<GpuCount>,
    /// GPUs beyond the quota it may use while nobody with a right to them waits.
    pub borrow: GpuCount,
    /// GPUs its jobs are sure of while they ask for them.
    pub floor: GpuCount,
    /// Share of the cluster it should have relative to its siblings.
    pub weight: f64,
    /// GPU-time it has used, decayed, in any unit that is the same for all projects.
    pub usage: f64,
    /// Most GPUs one of its users may hold.
    pub max_per_user: Option<GpuCount>,
}

impl Default for PlanProject {
    fn default() -> Self {
        Self {
            name: String::new(),
            parent: None,
            quota: None,
            borrow: GpuCount(0),
            floor: GpuCount(0),
            weight: 1.0,
            usage: 0.0,
            max_per_user: None,
        }
    }
}

/// The projects of a round as a tree. A parent that is not there is none; a circle is cut where it closes.
pub struct Tree<'a> {
    pub(crate) projects: &'a [PlanProject],
    /// Every project's ancestors, itself first.
    lineages: Vec<Vec<usize>>,
    /// Fair-share factor of every project's jobs.
    share_factors: Vec<f64>,
}

impl<'a> Tree<'a> {
    /// `projects` ascend by name.
    #[must_use]
    pub fn new(projects: &'a [PlanProject]) -> Self {
        let parent = |index: usize| {
            let name: &Option<String> = &projects[index].parent;
            name.as_ref().and_then(|name| find(projects, name))
        };
        let lineages: Vec<Vec<usize>> = (0..projects.len())
            .map(|project| {
                let mut lineage = vec![project];
                while let Some(next) = parent(lineage[lineage.len() - 1]).filter(|next| !lineage.contains(next)) {
                    lineage.push(next);
                }
                lineage
            })
            .collect();
        let own: Vec<f64> = (0..projects.len()).map(|project| share_factor(projects, &lineages, project)).collect();
        let share_factors = lineages
            .iter()
            .map(|lineage| lineage.iter().map(|&at| own[at]).product::<f64>().clamp(1.0 / MOST_TURN, MOST_TURN))
            .collect();
        Self { projects, lineages, share_factors }
    }

    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        find(self.projects, name)
    }

    /// Indices of a project and those it is part of, itself first; nothing for one the round does not know.
    #[must_use]
    pub fn lineage_of(&self, name: &str) -> &[usize] {
        self.find(name).map_or(&[], |project| &self.lineages[project])
    }

    /// A project's name and those of its ancestors. A name the round does not know stands for itself alone.
    pub(crate) fn lineage<'n>(&'n self, name: &'n str) -> impl Iterator<Item = &'n str> {
        let unknown = self.find(name).is_none().then_some(name);
        unknown.into_iter().chain(self.lineage_of(name).iter().map(|&at| self.projects[at].name.as_str()))
    }

    /// What fair share makes of the weight of a project's jobs: above 1 where it has used less than its share.
    pub(crate) fn share_factor(&self, name: &str) -> f64 {
        self.find(name).map_or(1.0, |project| self.share_factors[project])
    }
}

fn find(projects: &[PlanProject], name: &str) -> Option<usize> {
    projects.binary_search_by(|project| project.name.as_str().cmp(name)).ok()
}

/// Entitled over used share among siblings, to a mild power. Nothing used by anyone changes nothing.
fn share_factor(projects: &[PlanProject], lineages: &[Vec<usize>], project: usize) -> f64 {
    let parent = lineages[project].get(1);
    let siblings = || (0..projects.len()).filter(move |&at| lineages[at].get(1) == parent);
    let weights: f64 = siblings().map(|at| projects[at].weight.max(0.0)).sum();
    let used: f64 = siblings().map(|at| projects[at].usage.max(0.0)).sum();
    if weights <= 0.0 || used <= 0.0 {
        return 1.0;
    }
    let entitled = projects[project].weight.max(0.0) / weights;
    let share = projects[project].usage.max(0.0) / used;
    // A share of nothing counts as a hundredth, so that newcomers are preferred but not without bound.
    libm::pow(entitled / share.max(0.01), SHARE_EXPONENT).clamp(1.0 / MOST_TURN, MOST_TURN)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn project(name: &str, parent: Option<&str>, usage: f64) -> PlanProject {
        PlanProject { name: name.into(), parent: parent.map(Into::into), usage, ..PlanProject::default() }
    }

    #[test]
    fn a_job_counts_for_its_project_and_all_above() {
        let projects = [project("a", None, 0.0), project("b", Some("a"), 0.0), project("c", Some("b"), 0.0)];
        let tree = Tree::new(&projects);
        assert_eq!(tree.lineage("c").collect::<Vec<_>>(), ["c", "b", "a"]);
        assert_eq!(tree.lineage("x").collect::<Vec<_>>(), ["x"]);
        assert!(tree.lineage_of("x").is_empty());
    }

    #[test]
    fn a_circle_of_projects_ends_where_it_closes() {
        let projects = [project("a", Some("b"), 0.0), project("b", Some("a"), 0.0)];
        assert_eq!(Tree::new(&projects).lineage("a").collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn who_used_less_than_its_share_weighs_more() {
        let projects = [project("a", None, 9.0), project("b", None, 1.0)];
        let tree = Tree::new(&projects);
        assert!(
            tree.share_factor("b") > 1.5 && tree.share_factor("a") < 1.0,
            "{} {}",
            tree.share_factor("a"),
            tree.share_factor("b")
        );
        assert_eq!(Tree::new(&[project("a", None, 0.0), project("b", None, 0.0)]).share_factor("a"), 1.0);
    }
}
