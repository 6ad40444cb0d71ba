//! Promises only the whole world can be held to.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_engine::Change;
use headway_engine::record::{JobState, PlanState, ReleaseProof, lineage};
use headway_types::{GpuUuid, JobVerdict, LaunchOrder, Plan, ReasonCode};

use crate::scenario::Oversight;
use crate::world::{Key, World};

impl World<'_> {
    /// Before processes live: their GPUs are theirs alone, their generation is what was committed, and no other
    /// generation of a job lives that could do harm.
    pub fn check_birth(&self, node: usize, key: Key, order: &LaunchOrder, gpus: &[GpuUuid]) -> Result<(), String> {
        let (name, here) = (&order.job_name, self.nodes[node].name());
        let Some(row) = self.store.allocations.get(&key) else {
            return Err(format!("{name} {} was launched on {here} without a committed allocation", key.1));
        };
        if row.resumed_from != order.resume || row.placement != order.placement {
            return Err(format!("{name} {} was launched with another body than was committed", key.1));
        }
        for gpu in gpus {
            if let Some((other, _)) = self.nodes[node].alive.iter().find(|(_, group)| group.gpus.contains(gpu)) {
                return Err(format!("GPU {gpu} of {here} is used by {name} {} and by {other:?}", key.1));
            }
            if let Some(holder) = self.store.held.get(gpu).filter(|holder| **holder != key) {
                return Err(format!("GPU {gpu} of {here} is used by {name} {} and granted to {holder:?}", key.1));
            }
        }
        self.check_only_start(key, name)?;
        let fenced =
            self.store.jobs.get(&key.0).and_then(|job| job.spec.training()).is_some_and(|one| one.checkpoint.fenced);
        let other = self
            .gangs
            .range((key.0, headway_types::Generation(0))..=(key.0, headway_types::Generation(u64::MAX)))
            .find(|(other, gang)| **other != key && !gang.alive.is_empty() && !self.vouched.contains(*other));
        match other {
            Some((other, _)) if !fenced => {
                Err(format!("{name} runs twice: {} while {} lives, and it is not fenced", key.1, other.1))
            }
            _ => Ok(()),
        }
    }

    /// A job that must not run twice has had processes under no other generation.
    fn check_only_start(&self, key: Key, name: &str) -> Result<(), String> {
        let once = self.store.jobs.get(&key.0).is_some_and(|job| job.spec.limits.forbid_restart());
        match self.gangs.keys().find(|other| once && other.0 == key.0 && **other != key) {
            Some(other) => Err(format!("{name} must not run twice, and {} comes after {}", key.1, other.1)),
            None => Ok(()),
        }
    }

    /// After a commit: what was granted is really free, what was trusted was really written.
    pub fn after_commit(&mut self, changes: &[Change]) -> Result<(), String> {
        for change in changes {
            match change {
                Change::Allocation(row) => {
                    let key = (row.job, row.generation);
                    if row.released.values().any(|release| release.proof == ReleaseProof::Operator) {
                        self.vouched.insert(key);
                    }
                    for slice in row.placement.slices() {
                        let Some(node) = self.node_index(slice.node) else { continue };
                        self.touched.insert(node);
                        if row.released.contains_key(&slice.node) {
                            continue;
                        }
                        let mut users = self.nodes[node].alive.iter().filter(|(user, _)| **user != key);
                        if let Some((user, _)) =
                            users.find(|(_, group)| slice.gpus.iter().any(|gpu| group.gpus.contains(gpu)))
                        {
                            let name = self.nodes[node].name();
                            return Err(format!("GPUs of {name} are granted to {key:?} while {user:?} uses them"));
                        }
                    }
                }
                Change::Job(job) => {
                    let key = (job.id, job.generation);
                    self.touch_gang(key);
                    if let Some(checkpoint) = &job.checkpoint {
                        let writer = (job.id, checkpoint.generation);
                        let gang = self.gangs.get(&writer);
                        if gang.is_none_or(|gang| !gang.saves.contains_key(&checkpoint.samples_seen)) {
                            return Err(format!(
                                "job {} trusts {}, which it never wrote",
                                job.spec.name, checkpoint.path
                            ));
                        }
                        let samples = checkpoint.samples_seen;
                        self.bank(writer, Some(samples));
                    }
                    if matches!(job.state, JobState::Succeeded { .. }) {
                        self.bank(key, None);
                    }
                }
                Change::Node(row) => {
                    if let Some(node) = self.node_index(row.inventory.node) {
                        self.touched.insert(node);
                    }
                }
                Change::Plan(record) if record.state == PlanState::Adopted => self.check_quotas(&record.plan)?,
                Change::Event(event) => self.heard(event),
                _ => {}
            }
        }
        Ok(())
    }

    /// No target gives a project more than it may have, unless it says so.
    fn check_quotas(&self, plan: &Plan) -> Result<(), String> {
        let projects: BTreeMap<_, _> =
            self.store.projects.iter().map(|(name, row)| (name.clone(), Arc::new(row.clone()))).collect();
        let mut given: BTreeMap<&str, u32> = BTreeMap::new();
        for (job, assignment) in &plan.assignments {
            let Some(job) = self.store.jobs.get(job) else { continue };
            for name in lineage(&projects, &job.spec.project) {
                *given.entry(name).or_default() += assignment.placement.gpus().0;
            }
        }
        for (name, given) in given {
            let rules = &projects[name].rules;
            let Some(quota) = rules.quota else { continue };
            let told = plan.report.relaxed.iter().any(|one| one.rule.contains(name));
            if given > quota.0 + rules.borrow.0 && !told {
                return Err(format!("project {name} is given {given} GPUs and may have {}", quota.0 + rules.borrow.0));
            }
        }
        Ok(())
    }

    /// Every acknowledged job is there, every job was acknowledged once, and all have ended or say why not.
    pub fn check_end(&mut self) -> Result<BTreeMap<String, String>, String> {
        for (index, id) in &self.acknowledged {
            if !self.store.jobs.contains_key(id) {
                return Err(format!("acknowledged job {} is lost", self.scenario.jobs[*index].spec.name));
            }
        }
        if self.store.jobs.len() != self.scenario.jobs.len() {
            return Err(format!("{} jobs for {} submissions", self.store.jobs.len(), self.scenario.jobs.len()));
        }
        if self.scenario.cut || self.scenario.oversight == Oversight::Light {
            return Ok(BTreeMap::new());
        }
        let view = self.servers.values().next_back().map(|server| server.engine.view());
        let mut waiting = BTreeMap::new();
        for job in self.store.jobs.values().filter(|job| !job.state.is_final()) {
            let waits = matches!(job.state, JobState::Queued { .. } | JobState::Held { .. });
            let told = view.as_ref().and_then(|view| view.verdict(job.id));
            let told = told.as_deref();
            // Long after the last fault only a job that no node suits may wait, or one that waits for such a job.
            let for_good = |code| matches!(code, ReasonCode::Never | ReasonCode::Dependency | ReasonCode::ArrayLimit);
            let never = |verdict: &&JobVerdict| verdict.reasons.iter().any(|one| for_good(one.code));
            match told.filter(|verdict| waits && never(verdict)) {
                Some(verdict) => waiting.insert(job.spec.name.clone(), verdict.headline.clone()),
                None => {
                    let said = told.map_or("nothing", |verdict| verdict.headline.as_str());
                    return Err(format!("job {} is still {} and says: {said}", job.spec.name, job.state));
                }
            };
        }
        let leaks =
            |job: &headway_types::JobId| self.store.jobs.get(job).is_none_or(|job| job.state.generation().is_none());
        match self.store.allocations.values().find(|one| one.holds() && leaks(&one.job)) {
            Some(leak) => {
                let name = self.store.jobs.get(&leak.job).map_or("?", |job| job.spec.name.as_str());
                Err(format!("{name} {} still holds GPUs at the end", leak.generation))
            }
            None => Ok(waiting),
        }
    }
}
