//! What a submission is refused for before anybody stores it: GPU types that mean nothing, priorities that the caller may not give, and jobs that the
//! cluster as built could never run. The planner is asked; whoever expects nodes says so and is let through.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use headway_engine::Refusal;
use headway_engine::record::UserLoad;
use headway_engine::view::View;
use headway_planner::{CurveCache, Misnamed, Never, PlanInput, QuotaRoom, name_gpu_types, never_while, quota};
use headway_types::spec::Priority;
use headway_types::{JobId, JobSpec, ReasonCode};
use tokio::sync::Semaphore;

use super::HttpState;
use super::access::Act;
use super::auth::Principal;
use super::goodput;
use super::problem::Problem;
use crate::metrics;

/// Submissions that are looked at at once.
static LOOKS: Semaphore = Semaphore::const_new(2);
/// What is not looked at within this is admitted all the same, and the reply says so: rounds find what becomes of it.
const LOOK_TIME: Duration = Duration::from_secs(3);
const EXPECT_NODES: &str = "with wait_for_nodes=true (headway submit --wait-for-nodes) it is submitted all the same and waits for nodes to come";

/// Writes GPU types in full; a name that means none, or several, is a problem.
pub fn name_types(view: &View, specs: &mut [JobSpec], wait_for_nodes: bool) -> Result<(), Problem> {
    let present: BTreeSet<&str> = view.nodes.values().map(|node| node.node.inventory.gpu_type.0.as_str()).collect();
    let several = specs.len() > 1;
    for (index, spec) in specs.iter_mut().enumerate() {
        name_gpu_types(&present, spec, wait_for_nodes).map_err(|misnamed| {
            let (code, hint) = match misnamed {
                Misnamed::Ambiguous { .. } => ("ambiguous_gpu_type", "name one of them"),
                Misnamed::Unknown { .. } => ("unknown_gpu_type", EXPECT_NODES),
            };
            let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, code, misnamed.to_string()).hint(hint);
            problem.field(field(several, index, "resources.gpus.type"))
        })?;
    }
    Ok(())
}

/// Refuses jobs for projects that the caller may not submit to.
pub fn check_projects(caller: &Principal, view: &View, specs: &[JobSpec]) -> Result<(), Problem> {
    let several = specs.len() > 1;
    specs.iter().enumerate().try_for_each(|(index, spec)| {
        caller
            .may_in(Act::Submit, view, &spec.project)
            .map_err(|problem| problem.field(field(several, index, "project")))
    })
}

/// Refuses what would be beyond the caller's quota now; the engine decides when it admits.
pub fn check_quota(caller: &Principal, view: &View, specs: &[JobSpec]) -> Result<(), Problem> {
    let (user, more) = (caller.name(), UserLoad::of_submission(specs));
    let admitted = view.policy.quota_of(user).admit(user, view.load_of(user), more);
    admitted.map_err(|over| Refusal::OverQuota(over).into())
}

/// Refuses jobs that ask for a higher priority than the caller may give.
pub fn check_priorities(caller: &Principal, specs: &[JobSpec]) -> Result<(), Problem> {
    let several = specs.len() > 1;
    specs.iter().enumerate().try_for_each(|(index, spec)| {
        check_priority(caller, spec.priority, &spec.name)
            .map_err(|problem| problem.field(field(several, index, "priority")))
    })
}

/// Refuses a priority that the caller may not give to the job of this name.
pub fn check_priority(caller: &Principal, asked: Priority, job: &str) -> Result<(), Problem> {
    let most = caller.highest_priority();
    if asked <= most {
        return Ok(());
    }
    let detail = format!("{job} asks for the priority {}; {} is the most that its owner may give", asked.0, most.0);
    let hint = format!(
        "ask for {} (high) or less, and have an admin raise the job: headway job update JOB --priority N",
        most.0
    );
    Err(Problem::new(StatusCode::FORBIDDEN, "priority_above_role", detail).field("priority").hint(hint))
}

/// How many of these jobs, from the first on, were looked at and could run here; or why none is admitted, if one of them never could.
pub async fn refusal(state: &HttpState, specs: &[JobSpec], user: &str) -> Result<usize, Problem> {
    let (view, asked, user) = (state.cluster.view(), specs.to_vec(), user.to_owned());
    let look = move || {
        let until = Instant::now() + LOOK_TIME;
        nevers(view.empty_round(), &asked, &user, || Instant::now() < until)
    };
    let (nevers, looked_at) = goodput::off_the_reactor(&LOOKS, look).await.unwrap_or_default();
    if let Some(problem) = told(specs, &nevers) {
        return Err(problem);
    }
    if looked_at < specs.len() {
        left_out(looked_at, specs.len());
    }
    Ok(looked_at)
}

/// Why a job that exists could never run with this specification, or in no quota as they are; with what comes closest.
pub async fn never_at(state: &HttpState, spec: &JobSpec, user: &str) -> Option<Problem> {
    let (view, asked, user) = (state.cluster.view(), vec![spec.clone()], user.to_owned());
    let look = move || {
        let until = Instant::now() + LOOK_TIME;
        let round = view.empty_round();
        let beyond = beyond_quota(&round, &asked[0], &user);
        (beyond, nevers(round, &asked, &user, || Instant::now() < until))
    };
    let (beyond, (nevers, looked_at)) = goodput::off_the_reactor(&LOOKS, look).await.unwrap_or_default();
    if beyond.is_some() {
        return beyond;
    }
    if looked_at == 0 {
        left_out(0, 1);
    }
    let (_, never) = nevers.into_iter().next()?;
    let detail = format!("{} cannot run so on this cluster: {}", spec.name, never.detail);
    let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, code(never.code), detail).field("gpus");
    Some(match never.closest {
        Some(closest) => problem.hint(closest),
        None => problem,
    })
}

fn beyond_quota(round: &PlanInput, spec: &JobSpec, user: &str) -> Option<Problem> {
    let jobs = round.submitted(std::iter::once(spec), user);
    let verdict = quota(&round.clone().with(jobs.clone()), jobs.first()?)?;
    if verdict.room != QuotaRoom::Never {
        return None;
    }
    let most = verdict.quota.0.saturating_add(verdict.borrow.0);
    let detail = format!(
        "{} needs {}, and project {} may have {most} at most",
        spec.name,
        verdict.needed.words(),
        verdict.project
    );
    let sizes = &spec.role().gpus.sizes;
    let closest = sizes.iter().map(|size| size.0).filter(|size| *size <= most).max();
    let closest = if sizes.is_empty() { Some(most) } else { closest };
    let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "quota", detail).field("gpus");
    Some(match closest.filter(|closest| *closest > 0) {
        Some(closest) => problem.hint(format!("the closest size that its quota admits is {closest}")),
        None => problem.hint("no size of it is within the quota"),
    })
}

fn left_out(looked_at: usize, all: usize) {
    metrics::answer_left_out("admission");
    tracing::warn!(looked_at, all, "jobs were admitted without a look at whether they could ever run");
}

/// By the place of the job among them; and how many were looked at.
pub fn nevers(
    round: PlanInput,
    specs: &[JobSpec],
    user: &str,
    go_on: impl FnMut() -> bool,
) -> (Vec<(usize, Never)>, usize) {
    let jobs = round.submitted(specs.iter(), user);
    let ids: Vec<JobId> = jobs.iter().map(|job| job.job).collect();
    let (mut never, looked_at) = never_while(&round.with(jobs), &ids, &mut CurveCache::new(), go_on);
    let nevers = ids.iter().enumerate().filter_map(|(index, id)| Some((index, never.remove(id)?))).collect();
    (nevers, looked_at)
}

fn told(specs: &[JobSpec], nevers: &[(usize, Never)]) -> Option<Problem> {
    let (first, never) = nevers.first()?;
    let several = specs.len() > 1;
    let line = |(index, never): &(usize, Never)| {
        format!("{} cannot run on this cluster: {}", specs[*index].name, never.detail)
    };
    let detail = match nevers {
        [only] => line(only),
        all => {
            let lines: Vec<String> = all.iter().map(|one| format!("  jobs[{}]: {}", one.0, line(one))).collect();
            format!("{} of {} jobs can never run, so none was submitted:\n{}", all.len(), specs.len(), lines.join("\n"))
        }
    };
    let hint = never.closest.as_ref().map_or_else(|| EXPECT_NODES.to_owned(), |one| format!("{one}; {EXPECT_NODES}"));
    let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, code(never.code), detail).hint(hint);
    Some(problem.field(field(several, *first, never.field)))
}

/// As `explain` has it, but for sizes: that they are not there is no matter of what is free.
fn code(of: ReasonCode) -> &'static str {
    if of == ReasonCode::NotEnoughFree { "never_fits" } else { of.into() }
}

/// The path of a job's field, as the submission has it.
pub fn field(several: bool, index: usize, field: &str) -> String {
    if several { format!("jobs[{index}].{field}") } else { field.to_owned() }
}
