//! Submissions: admission, and what is said of a job that cannot start as the cluster is now.

use std::sync::Arc;

use headway_types::spec::{After, MOST_DEPENDENCIES};
use headway_types::{GpuCount, JobId, JobSpec, Timestamp};

use crate::dependencies::{Referent, Resolved, resolve};
use crate::draft::Note;
use crate::engine::Engine;
use crate::event::{Actor, IdempotencyKey, Known};
use crate::outcome::{Refusal, Reply};
use crate::record::{Dependency, Job, lineage};
use crate::seen::JobSeen;

impl Engine {
    pub(super) fn submit(
        &mut self,
        actor: &Actor,
        specs: Vec<JobSpec>,
        idempotency: Option<IdempotencyKey>,
        known: &Known,
    ) -> Result<Reply, Refusal> {
        if let Some(key) = &idempotency
            && let Some(known) = self.known(key)?
        {
            return Ok(Reply::Replayed { jobs: known.into_iter().map(JobId).collect() });
        }
        if specs.is_empty() {
            return Err(Refusal::Invalid("a submission needs at least one job".into()));
        }
        specs.iter().try_for_each(|spec| check_spec(spec, self.facts.now))?;
        let after = self.dependencies(actor, &specs, known)?;
        let jobs = specs.into_iter().zip(after).map(|(spec, (id, after))| self.admit(actor, id, spec, after));
        let jobs: Vec<Arc<Job>> = jobs.collect();
        if let Some(key) = idempotency {
            self.remember(key, jobs.iter().map(|job| job.id.0).collect());
        }
        Ok(Reply::Submitted { jobs })
    }

    /// An id for each job, and what it waits for.
    fn dependencies(
        &mut self,
        actor: &Actor,
        specs: &[JobSpec],
        known: &Known,
    ) -> Result<Vec<(JobId, Vec<Dependency>)>, Refusal> {
        let now = self.facts.now;
        let resolved = resolve(specs, known, |id| self.facts.newest_of(id, known), now);
        let resolved = resolved.map_err(|wrong| Refusal::Invalid(wrong.to_string()))?;
        let ids: Vec<JobId> = specs.iter().map(|_| self.facts.ids.job(now)).collect();
        let dependency = |after: &After, to: Resolved| {
            let (job, spec, owner) = match &to.referent {
                Referent::Member(place) => (ids[*place], &specs[*place], actor.to_string()),
                Referent::Job(row) => (row.id, &row.spec, row.owner.clone()),
            };
            let (name, project) = (spec.name.clone(), spec.project.clone());
            Dependency { job, name, project, owner, on: after.on, standing: to.standing }
        };
        let of_each = specs.iter().zip(resolved).map(|(spec, of_job)| {
            spec.after.iter().zip(of_job).map(|(after, to)| dependency(after, to)).collect::<Vec<_>>()
        });
        Ok(ids.iter().copied().zip(of_each).collect())
    }

    fn admit(&mut self, actor: &Actor, id: JobId, spec: JobSpec, after: Vec<Dependency>) -> Arc<Job> {
        let job = Job { after, ..Job::new(id, spec, actor.to_string(), self.facts.now) };
        let (spec, range) = (&job.spec, &job.spec.role().gpus);
        let waits: String =
            job.open_dependencies().map(|one| format!("; it {}", one.in_words(&spec.project))).collect();
        let message = format!(
            "{} asks for {} to {} GPUs in project {}{waits}{}{}",
            spec.name,
            range.min,
            range.max,
            spec.project,
            self.too_large(range.min.0),
            self.beyond_quota(&spec.project, range.min)
        );
        let job = Arc::new(job);
        self.seen.jobs.insert(id, Arc::new(JobSeen::new(&job, None, &self.seen.lessons)));
        self.facts.add_job(job.clone());
        self.facts.note(Note::new("job.submitted", message).by(actor.clone()).job(id));
        if !job.is_blocked() {
            self.facts.ask_round_for_somebody(format!("job {} arrived", job.spec.name));
        }
        job
    }

    /// A job larger than the cluster is accepted, since nodes may come, but says so.
    fn too_large(&self, min: u32) -> String {
        let planned = self.facts.nodes.iter().filter(|(id, _)| !self.rounds.leaves_out(**id));
        let known: usize = planned.map(|(_, node)| node.inventory.gpus.len()).sum();
        if known > 0 && min as usize > known {
            format!("; it cannot start yet, as the cluster has only {known} GPUs")
        } else {
            String::new()
        }
    }

    /// Likewise a job that no quota admits as they are now.
    fn beyond_quota(&self, project: &str, min: GpuCount) -> String {
        let tightest = lineage(&self.facts.projects, project).into_iter().find_map(|name| {
            let rules = &self.facts.projects[name].rules;
            let most = GpuCount(rules.quota?.0.saturating_add(rules.borrow.0));
            (most < min).then(|| format!("; it cannot start, as project {name} may have {} at most", most.words()))
        });
        tightest.unwrap_or_default()
    }
}

/// What `api` cannot have let through, but a caller of the engine might.
fn check_spec(spec: &JobSpec, now: Timestamp) -> Result<(), Refusal> {
    let invalid = |what: &str| Err(Refusal::Invalid(format!("{}: {what}", spec.name)));
    let [role] = spec.roles.as_slice() else { return invalid("exactly one role is supported") };
    if spec.priority.0 > 100 {
        return invalid("priority must be 0 to 100");
    }
    let range = &role.gpus;
    if range.min.0 == 0 || range.min > range.max {
        return invalid("gpus.min must be at least 1 and at most gpus.max");
    }
    if !range.sizes.is_empty() && !range.sizes.iter().any(|size| range.allows(*size)) {
        return invalid("gpus.sizes names no size between gpus.min and gpus.max");
    }
    if spec.limits.deadline.is_some_and(|deadline| deadline <= now) {
        return invalid("its deadline has passed");
    }
    if spec.limits.budget.is_some_and(|budget| !(budget.0.is_finite() && budget.0 > 0.0)) {
        return invalid("budget must be more than no GPU-time");
    }
    if spec.elastic.min_share.is_some_and(|share| !(share > 0.0 && share <= 1.0)) {
        return invalid("min_share must be above 0 and at most 1");
    }
    if spec.after.len() > MOST_DEPENDENCIES {
        return invalid("it waits for too many jobs");
    }
    let Some(training) = &role.training else { return Ok(()) };
    let batch = training.batch;
    if batch.min.0 == 0 || batch.min > batch.max || training.reference_batch.0 == 0 {
        return invalid("batches must be at least 1 and batch.min at most batch.max");
    }
    if training.target.is_some_and(|target| !(target.tokens.0.is_finite() && target.tokens.0 > 0.0)) {
        return invalid("target must be a positive number of tokens");
    }
    Ok(())
}
