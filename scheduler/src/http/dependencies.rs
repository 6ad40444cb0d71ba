//! Jobs that come before others: what the store knows of those that a submission names, and both sides of a job's page. Whoever may not see a job
//! learns nothing of it here: to him it is as one that there is not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_api::{spec, v1};
use headway_engine::dependencies::{Other, Referent, Resolved, Unresolved, called, resolve, waits};
use headway_engine::event::Known;
use headway_engine::record::{Array, Awaited, Dependency, DependencyStanding, Job};
use headway_engine::view::View;
use headway_types::{ArrayId, JobId, JobSpec};

use super::access::{Act, Seen};
use super::auth::Principal;
use super::problem::Problem;
use super::{HttpState, admission, conversions, lookup};
use crate::store::{JobFilter, StoreError};

/// Jobs beyond a submission that it may name.
const NAMED_AT_MOST: usize = 1_000;
/// Of those that wait for a job and may be seen as many are shown.
const DEPENDENTS_AT_MOST: u32 = 100;

/// The jobs that a submission names.
#[derive(Default)]
pub struct Named {
    /// What the engine is told of them.
    pub known: Known,
    /// What each job of the submission waits for, in words: "waits for prep to succeed".
    pub waits_for: Vec<Vec<String>>,
}

/// The jobs that are named by the specifications, or what is wrong with that.
pub async fn named(state: &HttpState, caller: &Principal, specs: &[JobSpec]) -> Result<Named, Problem> {
    let named = specs.iter().flat_map(|spec| spec.after.iter().map(|one| (spec.project.clone(), one.job.clone())));
    let named: BTreeSet<(String, String)> = named.collect();
    if named.is_empty() {
        return Ok(Named { waits_for: vec![Vec::new(); specs.len()], ..Named::default() });
    }
    if named.len() > NAMED_AT_MOST {
        let detail = format!("the jobs wait for {} others; at most {NAMED_AT_MOST}", named.len());
        return Err(Problem::invalid(detail).field("after"));
    }
    let view = state.cluster.view();
    let named: Vec<(String, String)> = named.into_iter().collect();
    let names = newest_named(state, caller, &named).await?;
    // An id by itself does not say whether it is a job's or an array's.
    let of_jobs = names.values().filter_map(|of| match of {
        Awaited::Job(job) => Some(*job),
        Awaited::Array(_) => None,
    });
    let of_arrays = names.values().filter_map(|of| match of {
        Awaited::Array(array) => Some(*array),
        Awaited::Job(_) => None,
    });
    let ids = || named.iter().filter_map(|(_, text)| text.parse::<JobId>().ok());
    let mut known = Known {
        jobs: rows(state, &view, &ids().chain(of_jobs).collect()).await?,
        arrays: BTreeMap::new(),
        names: BTreeMap::new(),
    };
    let arrays: Vec<ArrayId> = ids().map(|id| ArrayId(id.0)).chain(of_arrays).collect();
    known.arrays = array_rows(state, &view, &arrays).await?;
    known.names = names;
    known.jobs.retain(|_, job| caller.sees(&view, &job.spec.project, &job.owner) != Seen::Nothing);
    known.arrays.retain(|_, array| caller.sees(&view, &array.project, &array.owner) != Seen::Nothing);
    let find = |of| match of {
        Awaited::Job(id) => known.jobs.get(&id).cloned().map(Other::Job),
        Awaited::Array(id) => known.arrays.get(&id).cloned().map(Other::Array),
    };
    match resolve(specs, &known, find, state.cluster.now()) {
        Ok(resolved) => {
            let of_job = |(spec, of_job): (&JobSpec, &Vec<_>)| open_in_words(specs, spec, of_job);
            let waits_for = specs.iter().zip(&resolved).map(of_job).collect();
            Ok(Named { known, waits_for })
        }
        Err(wrong) => Err(problem(state, caller, specs, &wrong).await?),
    }
}

/// Of each project and name the caller's newest, be it a job or an array.
async fn newest_named(
    state: &HttpState,
    caller: &Principal,
    named: &[(String, String)],
) -> Result<BTreeMap<(String, String), Awaited>, StoreError> {
    let store = state.cluster.store();
    let jobs = store.newest_named(caller.name(), named).await?;
    let arrays = store.newest_arrays_named(caller.name(), named).await?;
    let mut names: BTreeMap<(String, String), Awaited> =
        jobs.into_iter().map(|(name, job)| (name, Awaited::Job(job))).collect();
    for (name, array) in arrays {
        // Ids sort by when they were made.
        let newer = names.get(&name).is_none_or(|known| matches!(known, Awaited::Job(job) if job.0 < array.0));
        if newer {
            names.insert(name, Awaited::Array(array));
        }
    }
    Ok(names)
}

/// A job that exists and those that it depends on, with the arrays among them and its own, whoever may see them: what is judged is the engine's to tell.
pub async fn known_of(state: &HttpState, job: JobId) -> Result<Known, Problem> {
    let record = lookup::record(&state.cluster, job).await?;
    let view = state.cluster.view();
    let mut jobs = rows(state, &view, &jobs_before(&record)).await?;
    let arrays: Vec<ArrayId> =
        arrays_before(&record).chain(record.element.as_ref().map(|element| element.array)).collect();
    let arrays = array_rows(state, &view, &arrays).await?;
    jobs.insert(job, record);
    Ok(Known { jobs, arrays, names: BTreeMap::new() })
}

fn jobs_before(of: &Job) -> BTreeSet<JobId> {
    let job = |one: &Dependency| match one.of {
        Awaited::Job(job) => Some(job),
        Awaited::Array(_) => None,
    };
    of.after.iter().filter_map(job).collect()
}

fn arrays_before(of: &Job) -> impl Iterator<Item = ArrayId> {
    of.after.iter().filter_map(|one| match one.of {
        Awaited::Array(array) => Some(array),
        Awaited::Job(_) => None,
    })
}

/// Arrays at their newest: live ones from the snapshot, those that are over from the store.
async fn array_rows(
    state: &HttpState,
    view: &View,
    ids: &[ArrayId],
) -> Result<BTreeMap<ArrayId, Arc<Array>>, StoreError> {
    let live = ids.iter().filter_map(|id| Some((*id, Arc::clone(&view.arrays.get(id)?.array))));
    let mut rows: BTreeMap<ArrayId, Arc<Array>> = live.collect();
    let over: Vec<ArrayId> = ids.iter().copied().filter(|id| !rows.contains_key(id)).collect();
    let over = state.cluster.store().arrays_among(&over).await?;
    rows.extend(over.into_iter().map(|array| (array.id, Arc::new(array))));
    Ok(rows)
}

/// Jobs at their newest: live ones from the snapshot, ended ones from the store.
async fn rows(state: &HttpState, view: &View, ids: &BTreeSet<JobId>) -> Result<BTreeMap<JobId, Arc<Job>>, StoreError> {
    let live = |id: &JobId| Some((*id, Arc::clone(&view.jobs.get(id)?.job)));
    let mut rows: BTreeMap<JobId, Arc<Job>> = ids.iter().filter_map(live).collect();
    let ended: Vec<JobId> = ids.iter().filter(|id| !rows.contains_key(id)).copied().collect();
    if !ended.is_empty() {
        let filter = JobFilter { limit: ended.len() as u32, among: Some(ended), ..JobFilter::default() };
        let ended = state.cluster.store().jobs(&filter).await?.items;
        rows.extend(ended.into_iter().map(|job| (job.id, Arc::new(job))));
    }
    Ok(rows)
}

async fn problem(
    state: &HttpState,
    caller: &Principal,
    specs: &[JobSpec],
    wrong: &Unresolved,
) -> Result<Problem, StoreError> {
    let (job, after) = wrong.place();
    let field = after.map_or_else(|| "after".to_owned(), |after| format!("after[{after}].job"));
    let problem = Problem::invalid(wrong.to_string()).field(admission::field(specs.len() > 1, job, &field));
    Ok(problem.hint(match wrong {
        Unresolved::Circle { .. } => "let one of them wait for none of the others".to_owned(),
        Unresolved::Ambiguous { .. } => "give each its own name".to_owned(),
        Unresolved::Never { .. } => {
            "submit that one again, or wait for another end of it: on: success, failure or any".to_owned()
        }
        Unresolved::Unknown { text, project, .. } => {
            let mut names = state.cluster.store().names_of(caller.name(), project).await?;
            names.extend(specs.iter().filter(|spec| spec.project == *project).map(|spec| spec.name.clone()));
            match spec::nearest(text, names.iter().map(String::as_str)) {
                Some(near) => format!("did you mean {near}?"),
                None => "name a job or an array of your own by its name, or any by its whole id (headway ps -o json)"
                    .to_owned(),
            }
        }
    }))
}

fn open_in_words(specs: &[JobSpec], spec: &JobSpec, resolved: &[Resolved]) -> Vec<String> {
    let called = |to: &Resolved| match &to.referent {
        Referent::Member(place) => specs[*place].name.clone(),
        Referent::Other(other) => called(other.id(), other.name(), other.project(), &spec.project),
    };
    let open = spec.after.iter().zip(resolved).filter(|(_, to)| to.standing.is_open());
    open.map(|(after, to)| waits(after.on, &called(to))).collect()
}

/// Both sides of a job's page: who comes before it, and before whom it comes.
pub async fn of_job(
    state: &HttpState,
    caller: &Principal,
    job: &Job,
) -> Result<(Vec<v1::Dependency>, Vec<v1::Dependent>), StoreError> {
    let view = state.cluster.view();
    let before = rows(state, &view, &jobs_before(job)).await?;
    let after = job.after.iter().map(|one| {
        let seen = caller.sees(&view, &one.project, &one.owner) != Seen::Nothing;
        let row = match one.of {
            Awaited::Job(id) => before.get(&id),
            Awaited::Array(_) => None,
        };
        dependency(one, row.map(AsRef::as_ref), seen)
    });
    Ok((after.collect(), dependents(state, caller, Awaited::Job(job.id)).await?))
}

/// Who waits for a job or an array, as far as the reader may see them.
pub async fn dependents(state: &HttpState, caller: &Principal, of: Awaited) -> Result<Vec<v1::Dependent>, StoreError> {
    let view = state.cluster.view();
    let out_of_sight = caller.out_of_sight(&view);
    let waiting = state.cluster.store().dependents(of, out_of_sight.as_ref(), DEPENDENTS_AT_MOST).await?;
    let seen = waiting.iter().filter(|one| caller.may_with_job(Act::SeeJob, &view, one).is_ok());
    let dependents = seen.flat_map(|one| {
        let newest = view.jobs.get(&one.id).map_or(one, |live| &live.job);
        newest.after.iter().filter(|each| each.of == of).map(|each| v1::Dependent {
            job_id: newest.id.0,
            name: newest.spec.name.clone(),
            on: each.on,
            standing: standing(each.standing).into(),
            state: newest.state.kind(),
        })
    });
    Ok(dependents.collect())
}

fn dependency(of: &Dependency, row: Option<&Job>, seen: bool) -> v1::Dependency {
    let settled_at = match of.standing {
        DependencyStanding::Open => None,
        DependencyStanding::Met { at } | DependencyStanding::Never { at } => Some(conversions::time(at)),
    };
    let (job, array) = match of.of {
        Awaited::Job(job) => (Some(job.0), None),
        Awaited::Array(array) => (None, Some(array.0)),
    };
    v1::Dependency {
        job_id: job.filter(|_| seen),
        array_id: array.filter(|_| seen),
        name: seen.then(|| of.name.clone()),
        on: of.on,
        standing: standing(of.standing).into(),
        settled_at,
        state: row.filter(|_| seen).map(|row| row.state.kind()),
    }
}

fn standing(of: DependencyStanding) -> &'static str {
    match of {
        DependencyStanding::Open => "open",
        DependencyStanding::Met { .. } => "met",
        DependencyStanding::Never { .. } => "never",
    }
}
