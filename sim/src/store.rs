//! What has been committed: the simulated Postgres. It keeps rows whole, as the real store does, and hands a new
//! leader the same snapshot.

use std::collections::{BTreeMap, BTreeSet};

use headway_engine::record::{Allocation, IdempotencyRecord, Job, Node, PlanRecord, PlanState, PolicySettings};
use headway_engine::{Change, Observation, Snapshot};
use headway_goodput::JobModel;
use headway_types::{Generation, JobId, NodeId, PlanId, Sequences};

#[derive(Debug, Default)]
pub(crate) struct Store {
    pub jobs: BTreeMap<JobId, Job>,
    nodes: BTreeMap<NodeId, Node>,
    pub allocations: BTreeMap<(JobId, Generation), Allocation>,
    plans: BTreeMap<PlanId, PlanRecord>,
    target: Option<PlanId>,
    idempotency: BTreeMap<String, IdempotencyRecord>,
    policy: PolicySettings,
    models: BTreeMap<JobId, JobModel>,
    last_event_seq: u64,
    /// The event log as JSON lines.
    pub log: String,
}

impl Store {
    /// One transaction. An error names the rule a row breaks.
    pub fn commit(&mut self, changes: &[Change]) -> Result<(), String> {
        for change in changes {
            match change {
                Change::Job(job) => self.write_job(job)?,
                Change::Node(node) => {
                    self.nodes.insert(node.inventory.node, Node::clone(node));
                }
                Change::Allocation(allocation) => {
                    self.allocations.insert((allocation.job, allocation.generation), Allocation::clone(allocation));
                }
                Change::Checkpoint(_) | Change::Transition(_) => {}
                Change::Plan(plan) => {
                    self.plans.insert(plan.plan.id, PlanRecord::clone(plan));
                }
                Change::Target(plan) => self.target = Some(*plan),
                Change::Policy(policy) => self.policy = policy.clone(),
                Change::Idempotency(record) => {
                    self.idempotency.insert(record.key.key.clone(), record.clone());
                }
                Change::Event(event) => {
                    if event.seq != self.last_event_seq + 1 {
                        return Err(format!("event {} follows event {}", event.seq, self.last_event_seq));
                    }
                    self.last_event_seq = event.seq;
                    self.log.push_str(&serde_json::to_string(event).map_err(|error| error.to_string())?);
                    self.log.push('\n');
                }
            }
        }
        Ok(())
    }

    fn write_job(&mut self, job: &Job) -> Result<(), String> {
        if let Some(old) = self.jobs.get(&job.id) {
            if job.generation < old.generation || job.version <= old.version {
                return Err(format!("job {} went back: {} v{}", job.spec.name, job.generation, job.version));
            }
            if samples(job) < samples(old) || job.progress.0 < old.progress.0 {
                return Err(format!("job {} lost progress", job.spec.name));
            }
            let stale = job.checkpoint.as_ref().filter(|one| one.generation != job.generation);
            if stale.is_some() && job.checkpoint != old.checkpoint {
                return Err(format!("job {} under {} took a stale checkpoint", job.spec.name, job.generation));
            }
            if old.state.is_final() && job.state != old.state {
                return Err(format!("job {} rose from the dead: {} to {}", job.spec.name, old.state, job.state));
            }
        }
        self.jobs.insert(job.id, Job::clone(job));
        Ok(())
    }

    pub fn observe(&mut self, observations: &[Observation]) {
        for observation in observations {
            if let Observation::Model { job, model } = observation {
                self.models.insert(*job, JobModel::clone(model));
            }
        }
    }

    pub fn snapshot(&self) -> Snapshot {
        let named: BTreeSet<JobId> = self.idempotency.values().flat_map(|record| record.jobs.clone()).collect();
        let live = |id: &JobId| self.jobs.get(id).filter(|job| !job.state.is_final());
        Snapshot {
            jobs: self
                .jobs
                .values()
                .filter(|job| live(&job.id).is_some() || named.contains(&job.id))
                .cloned()
                .collect(),
            nodes: self.nodes.values().cloned().collect(),
            allocations: self
                .allocations
                .values()
                .filter(|one| one.holds() || live(&one.job).is_some_and(|job| job.generation == one.generation))
                .cloned()
                .collect(),
            target: self.target.and_then(|id| self.plans.get(&id).cloned()),
            proposals: self.plans.values().filter(|plan| plan.state == PlanState::Proposed).cloned().collect(),
            idempotency: self.idempotency.values().cloned().collect(),
            policy: self.policy.clone(),
            models: self
                .models
                .iter()
                .filter(|(id, _)| live(id).is_some())
                .map(|(id, one)| (*id, one.clone()))
                .collect(),
            last_event_seq: self.last_event_seq,
        }
    }
}

fn samples(job: &Job) -> Sequences {
    job.checkpoint.as_ref().map_or(Sequences(0), |checkpoint| checkpoint.samples_seen)
}
