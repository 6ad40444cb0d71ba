//! Submissions: admission, and what is said of a job that cannot start as the cluster is now.

use std::sync::Arc;

use headway_types::spec::{After, ArraySpec, MOST_DEPENDENCIES};
use headway_types::{ArrayId, GpuCount, JobId, JobSpec, Timestamp};

use crate::dependencies::{Referent, Resolved, resolve};
use crate::draft::Note;
use crate::engine::Engine;
use crate::event::{Actor, IdempotencyKey, Known};
use crate::outcome::{Refusal, Reply};
use crate::record::{Array, Awaited, Dependency, Element, Job, Tally, UserLoad, lineage};
use crate::seen::JobSeen;

/// What a specification is admitted as.
struct Admission {
    id: Awaited,
    after: Vec<Dependency>,
}

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
        self.within_quota(&actor.to_string(), UserLoad::of_submission(&specs))?;
        let after = self.dependencies(actor, &specs, known)?;
        let mut jobs = Vec::new();
        for (spec, admission) in specs.into_iter().zip(after) {
            self.admit(actor, spec, admission, &mut jobs);
        }
        if let Some(key) = idempotency {
            self.remember(key, jobs.iter().map(|job| job.id.0).collect());
        }
        Ok(Reply::Submitted { jobs })
    }

    /// Whether a user may have so much more of unfinished jobs.
    pub(super) fn within_quota(&self, user: &str, more: UserLoad) -> Result<(), Refusal> {
        let quota = self.facts.policy.quota_of(user);
        quota.admit(user, self.facts.load_of(user), more).map_err(Refusal::OverQuota)
    }

    /// Ids for each job and array, and what it waits for.
    fn dependencies(&mut self, actor: &Actor, specs: &[JobSpec], known: &Known) -> Result<Vec<Admission>, Refusal> {
        let now = self.facts.now;
        let resolved = resolve(specs, known, |id| self.facts.newest_of(id, known), now);
        let resolved = resolved.map_err(|wrong| Refusal::Invalid(wrong.to_string()))?;
        let ids = &mut self.facts.ids;
        let id = |spec: &JobSpec| match spec.array {
            Some(_) => Awaited::Array(ids.array(now)),
            None => Awaited::Job(ids.job(now)),
        };
        let ids: Vec<Awaited> = specs.iter().map(id).collect();
        let dependency = |after: &After, to: Resolved| {
            let (of, name, project, owner) = match &to.referent {
                Referent::Member(place) => {
                    let spec = &specs[*place];
                    (ids[*place], spec.name.clone(), spec.project.clone(), actor.to_string())
                }
                Referent::Other(other) => {
                    (other.id(), other.name().to_owned(), other.project().to_owned(), other.owner().to_owned())
                }
            };
            Dependency { of, name, project, owner, on: after.on, standing: to.standing }
        };
        let of_each = specs.iter().zip(resolved).map(|(spec, of_job)| {
            spec.after.iter().zip(of_job).map(|(after, to)| dependency(after, to)).collect::<Vec<_>>()
        });
        Ok(ids.iter().zip(of_each).map(|(id, after)| Admission { id: *id, after }).collect())
    }

    fn admit(&mut self, actor: &Actor, spec: JobSpec, admission: Admission, jobs: &mut Vec<Arc<Job>>) {
        let Admission { id, after } = admission;
        match (id, &spec.array) {
            (Awaited::Array(id), Some(array)) => jobs.extend(self.admit_array(actor, id, &spec, array, &after)),
            (Awaited::Job(id), _) => {
                let lacks = self.lacks(&spec);
                let job = self.admit_job(actor, id, spec, after, None, &lacks);
                if !job.is_blocked() {
                    self.facts.ask_round_for_somebody(format!("job {} arrived", job.spec.name));
                }
                jobs.push(job);
            }
            (Awaited::Array(_), None) => {
                self.facts.impossible("an array without indices was to be admitted", None, None)
            }
        }
    }

    /// All elements, in the order of their indices. As many as may run at once are in the next round.
    fn admit_array(
        &mut self,
        actor: &Actor,
        id: ArrayId,
        spec: &JobSpec,
        array: &ArraySpec,
        after: &[Dependency],
    ) -> Vec<Arc<Job>> {
        let now = self.facts.now;
        let row = Array {
            id,
            name: spec.name.clone(),
            project: spec.project.clone(),
            owner: actor.to_string(),
            submitted_at: now,
            indices: array.indices.clone(),
            parallel: array.parallel,
            tally: Tally::default(),
            version: 0,
        };
        let (count, told) = (row.count(), row.in_words());
        let message = format!("{told}: {count} jobs in project {}", spec.project);
        self.facts.add_array(row);
        let open = after.iter().any(|one| one.standing.is_open());
        let lacks = self.lacks(spec);
        let mut jobs = Vec::with_capacity(count as usize);
        for (index, place) in array.indices.iter().zip(0_u32..) {
            let waits = array.parallel.is_some_and(|most| open || place >= most);
            let element = Element { array: id, index, place, count, waits };
            let job = self.facts.ids.job(now);
            jobs.push(self.admit_job(actor, job, spec.element(index), after.to_vec(), Some(element), &lacks));
        }
        // Whoever may not know of its jobs may not know of it: its events are those of its first.
        let note = Note::new("array.submitted", message).by(actor.clone()).with("array", id);
        self.facts.note(Note { job: jobs.first().map(|job| job.id), ..note });
        if jobs.iter().any(|job| !job.is_blocked()) {
            self.facts.ask_round_for_somebody(format!("array {told} arrived"));
        }
        jobs
    }

    fn admit_job(
        &mut self,
        actor: &Actor,
        id: JobId,
        spec: JobSpec,
        after: Vec<Dependency>,
        element: Option<Element>,
        lacks: &str,
    ) -> Arc<Job> {
        let job = Job { after, element, ..Job::new(id, spec, actor.to_string(), self.facts.now) };
        let (spec, range) = (&job.spec, &job.spec.role().gpus);
        let waits: String =
            job.open_dependencies().map(|one| format!("; it {}", one.in_words(&spec.project))).collect();
        let gpus = match range.min == range.max {
            true => range.max.words(),
            false => format!("{} to {}", range.min, range.max.words()),
        };
        let message = format!("{} asks for {gpus} in project {}{waits}{lacks}", spec.name, spec.project);
        let job = Arc::new(job);
        self.seen.jobs.insert(id, Arc::new(JobSeen::new(&job, None, &self.seen.lessons)));
        self.facts.add_job(job.clone());
        self.facts.note(Note::new("job.submitted", message).by(actor.clone()).job(id));
        job
    }

    /// Why such a job could not start if nothing changed.
    fn lacks(&self, spec: &JobSpec) -> String {
        let min = spec.role().gpus.min;
        format!("{}{}", self.too_large(min.0), self.beyond_quota(&spec.project, min))
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
