//! Which projects a job counts for: its own and all above. A project that the round does not know binds nobody; a circle
//! counts each of its projects once.

use std::collections::BTreeMap;

use crate::project::PlanProject;

pub(super) struct Lineages<'a> {
    by_name: BTreeMap<&'a str, Vec<&'a PlanProject>>,
}

impl<'a> Lineages<'a> {
    pub fn new(projects: &'a [PlanProject]) -> Self {
        let known: BTreeMap<&str, &PlanProject> = projects.iter().map(|one| (one.name.as_str(), one)).collect();
        let above = |one: &'a PlanProject| {
            let mut lineage: Vec<&PlanProject> = Vec::new();
            let mut next = Some(one);
            while let Some(project) = next.filter(|project| lineage.iter().all(|seen| seen.name != project.name)) {
                lineage.push(project);
                next = project.parent.as_deref().and_then(|parent| known.get(parent).copied());
            }
            lineage
        };
        Self { by_name: projects.iter().map(|one| (one.name.as_str(), above(one))).collect() }
    }

    /// The project itself first.
    pub fn of(&self, project: &str) -> &[&'a PlanProject] {
        self.by_name.get(project).map_or(&[], Vec::as_slice)
    }
}
