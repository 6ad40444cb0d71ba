//! What somebody asks of a rebalancing: whether it can be asked, whom it spares, and whether a plan meets it.

use headway_planner::Force;
use headway_types::spec::GpuRange;
use headway_types::{Assignment, GpuType, Plan};

use crate::engine::Engine;
use crate::event::{Actor, Rebalancing};
use crate::outcome::Refusal;
use crate::record::{Allocation, Job, lineage};
use crate::situation::Situation;

impl Rebalancing {
    /// "ada asked for it: new fans".
    pub(super) fn in_words(&self, by: &Actor) -> String {
        let what = match self.undoes {
            Some(plan) => format!("{by} asked to take back what plan {plan} moved"),
            None => format!("{by} asked for it"),
        };
        self.reason.as_ref().map_or_else(|| what.clone(), |reason| format!("{what}: {reason}"))
    }
}

impl Engine {
    /// # Errors
    /// What is asked of jobs that are not there, may not be moved by anybody, or take no such size.
    pub(super) fn check_terms(&self, terms: &Rebalancing) -> Result<(), Refusal> {
        for id in terms.exclude.iter().chain(&terms.scope.jobs) {
            self.facts.jobs.get(id).filter(|job| !job.state.is_final()).ok_or(Refusal::NoSuchJob(*id))?;
        }
        if let Some(id) = terms.scope.nodes.iter().find(|id| !self.facts.nodes.contains_key(*id)) {
            return Err(Refusal::NoSuchNode(*id));
        }
        if let Some(name) = terms.scope.projects.iter().find(|name| !self.is_a_project(name)) {
            return Err(Refusal::NoSuchProject(name.clone()));
        }
        terms.force.iter().try_for_each(|force| self.check_force(terms, force))
    }

    /// One that has rules of its own, or jobs.
    fn is_a_project(&self, name: &str) -> bool {
        self.facts.projects.contains_key(name) || self.facts.jobs.values().any(|job| job.spec.project == *name)
    }

    fn check_force(&self, terms: &Rebalancing, force: &Force) -> Result<(), Refusal> {
        let job = self.facts.jobs.get(&force.job).filter(|job| !job.state.is_final());
        let job = job.ok_or(Refusal::NoSuchJob(force.job))?;
        let name = &job.spec.name;
        if terms.exclude.contains(&force.job) {
            return Err(Refusal::Invalid(format!("{name} is both forced and excluded")));
        }
        if let Some(pin) = &job.pin {
            return Err(Refusal::WrongState(format!("{name} is {pin}; unpin it first")));
        }
        if let Some(held) = self.facts.live_allocation(job).filter(|_| job.spec.limits.forbid_restart()) {
            let gpus = held.placement.gpus().words();
            return Err(Refusal::WrongState(format!(
                "{name} must not run twice (limits.restartable: false), so it keeps its {gpus} until it ends"
            )));
        }
        if !job.wants_gpus(self.facts.now) {
            return Err(Refusal::WrongState(format!("{name} is {} and wants no GPUs now", job.state)));
        }
        let range = &job.spec.role().gpus;
        if let Some(gpus) = force.gpus.filter(|gpus| !range.allows(*gpus)) {
            return Err(Refusal::Invalid(format!("{name} does not take {gpus} GPUs; it takes {}", words(range))));
        }
        match &force.gpu_type {
            Some(of) if !of.each().all(|one| range.accepts(&one)) => {
                Err(Refusal::Invalid(format!("{name} does not take GPUs of type {of}")))
            }
            _ => Ok(()),
        }
    }

    /// What of that which is forced the plan does not give.
    pub(super) fn unmet(&self, terms: &Rebalancing, plan: &Plan) -> Option<String> {
        let given = |force: &&Force, has: &Assignment| {
            let of_type = || GpuType::joined(self.facts.gpus_by_type(&has.placement).into_keys());
            let is_of_type = force.gpu_type.is_none() || force.gpu_type == of_type();
            force.gpus.is_none_or(|gpus| gpus == has.placement.gpus()) && is_of_type
        };
        let live = |force: &&Force| self.facts.jobs.get(&force.job).is_some_and(|job| job.wants_gpus(self.facts.now));
        let unmet = terms.force.iter().filter(live);
        let unmet = unmet.filter(|one| !plan.assignments.get(&one.job).is_some_and(|has| given(one, has)));
        let mut told = unmet.map(|one| {
            let name = self.facts.job_name(one.job);
            let of_type = one.gpu_type.as_ref().map_or(String::new(), |of| format!(" of {of}"));
            let what = one.gpus.map_or_else(|| format!("GPUs{of_type}"), |gpus| format!("{}{of_type}", gpus.words()));
            let rule = format!("the floor of job {name}");
            let because = plan.report.relaxed.iter().find(|relaxed| relaxed.rule == rule);
            let because = because.map_or(String::new(), |relaxed| format!(" ({})", relaxed.reason));
            format!("{name} cannot have {what}{because}")
        });
        told.next()
    }
}

/// "2 to 8 GPUs", "1, 2 or 4 GPUs".
fn words(range: &GpuRange) -> String {
    match range.sizes.split_last() {
        None if range.min == range.max => range.min.words(),
        None => format!("{} to {}", range.min, range.max.words()),
        Some((last, [])) => last.words(),
        Some((last, others)) => {
            let others: Vec<String> = others.iter().map(ToString::to_string).collect();
            format!("{} or {}", others.join(", "), last.words())
        }
    }
}

impl Situation<'_> {
    /// Why a rebalancing leaves a running job as it is.
    pub(super) fn spared(self, terms: &Rebalancing, job: &Job, allocation: &Allocation) -> Option<&'static str> {
        if terms.exclude.contains(&job.id) {
            return Some("it is excluded from this rebalancing");
        }
        let forced = terms.force.iter().any(|one| one.job == job.id);
        let scope = &terms.scope;
        let on_nodes = || allocation.placement.slices().iter().any(|slice| scope.nodes.contains(&slice.node));
        let of_projects = || {
            let above = lineage(&self.facts.projects, &job.spec.project);
            above.into_iter().any(|name| scope.projects.contains(name)) || scope.projects.contains(&job.spec.project)
        };
        let within = (scope.jobs.is_empty() || scope.jobs.contains(&job.id))
            && (scope.nodes.is_empty() || on_nodes())
            && (scope.projects.is_empty() || of_projects());
        (!within && !forced).then_some("it is outside the scope of this rebalancing")
    }
}
