//! What if, for the whole cluster: the newest round solved once more with something supposed. It changes nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use headway_api::{spec, v1};
use headway_planner::Force;
use headway_planner::PlanInput;
use headway_planner::counterfactual::{AskError, Question, Supposition};
use headway_types::spec::Priority;
use headway_types::{GpuCount, GpuType, JobId, JobSpec, NodeId};
use tokio::sync::Semaphore;

use super::auth::Principal;
use super::extract::Json;
use super::problem::Problem;
use super::{HttpState, conversions, goodput};
use crate::asking::Unanswered;

/// What is supposed otherwise at once; every job that would be submitted counts.
const MOST_SUPPOSED: usize = 1_000;
/// More nodes than this make no round that is still worth solving for an answer.
const MOST_NODES: u32 = 1_000;
/// Specifications are read for few at a time.
static READERS: Semaphore = Semaphore::const_new(2);

/// Solve the newest round once more with jobs, nodes, quotas or priorities that are not so, and say what would differ.
#[utoipa::path(post, path = "/plans/simulate", tag = "plans", request_body = v1::SimulationRequest,
    responses((status = 200, body = v1::Simulation), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn simulate(
    State(state): State<HttpState>,
    caller: Principal,
    Json(body): Json<v1::SimulationRequest>,
) -> Result<Json<v1::Simulation>, Problem> {
    let round = state.asking.round().ok_or_else(|| {
        Problem::unavailable("no round has been planned yet").hint("POST /api/v1/plans/rebalance asks for one")
    })?;
    check(&body)?;
    let view = state.cluster.view();
    let hides = |job: JobId| {
        let (hidden, live) = caller.out_of_sight(&view).zip(view.jobs.get(&job))?;
        hidden.hides(&live.job.spec.project, &live.job.owner).then(|| no_such_job(&body, job))
    };
    if let Some(unknown) = jobs_of(&body).find_map(|(_, job)| hides(job)) {
        return Err(unknown);
    }
    let (solved, user) = (Arc::clone(&round), caller.name().to_owned());
    let read = move || {
        let question = question(&body, &solved.input, &user);
        (body, question)
    };
    let (body, question) = goodput::off_the_reactor(&READERS, read).await?;
    let plan_id = round.plan.id.0;
    match state.asking.ask(caller.name(), round, question?).await {
        Ok(Ok(answer)) => Ok(Json(v1::Simulation { plan_id, outcome: conversions::counterfactual(&answer, &view) })),
        Ok(Err(AskError::Plan(error))) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "simulation failed");
            Err(Problem::invalid(error.to_string()))
        }
        Ok(Err(left_out @ AskError::LeftOut(_))) => Err(Problem::invalid(left_out.to_string())),
        Ok(Err(AskError::NoSuchJob(job))) => Err(no_such_job(&body, job)),
        Ok(Err(unknown)) => Err(Problem::not_found(unknown.to_string())),
        Err(many @ Unanswered::OfOne(_)) => {
            Err(Problem::too_many("too_many_questions", many.to_string(), Duration::from_secs(1))
                .hint("wait until some are answered"))
        }
        Err(later @ (Unanswered::InAll(_) | Unanswered::TooLong)) => {
            Err(Problem::unavailable(later.to_string()).hint("ask again, or suppose less at once"))
        }
        Err(Unanswered::BrokeDown) => Err(Problem::internal()),
    }
}

/// Whether a round with all of it is still worth solving for an answer.
fn check(body: &v1::SimulationRequest) -> Result<(), Problem> {
    let v1::SimulationRequest {
        jobs,
        jobs_gone,
        priorities,
        quotas,
        rows,
        nodes_back,
        nodes_gone,
        more_nodes,
        force: _,
    } = body;
    let counts = [jobs.len(), jobs_gone.len(), priorities.len(), quotas.len(), rows.len()];
    let of_nodes = [nodes_back.len(), nodes_gone.len(), more_nodes.len()];
    let supposed: usize = counts.iter().chain(&of_nodes).sum();
    if supposed > MOST_SUPPOSED {
        let detail = format!("{supposed} things are supposed, jobs counted; at most {MOST_SUPPOSED} at once");
        return Err(Problem::invalid(detail).hint("suppose less at once"));
    }
    let more = more_nodes.values().fold(0_u32, |sum, count| sum.saturating_add(*count));
    if more > MOST_NODES {
        return Err(Problem::invalid(format!("at most {MOST_NODES} more nodes in all")).field("more_nodes"));
    }
    Ok(())
}

/// The jobs that are supposed to be otherwise, with where they are named.
fn jobs_of(body: &v1::SimulationRequest) -> impl Iterator<Item = (&'static str, JobId)> {
    let gone = body.jobs_gone.iter().map(|job| ("jobs_gone", JobId(*job)));
    let otherwise = body.priorities.keys().map(|job| ("priorities", JobId(*job)));
    gone.chain(otherwise).chain(body.force.iter().map(|forced| ("force", JobId(forced.job_id))))
}

/// The same of one that is not there and of one that the caller may not know of.
fn no_such_job(body: &v1::SimulationRequest, job: JobId) -> Problem {
    let field = jobs_of(body).find(|(_, named)| *named == job).map_or("jobs", |(field, _)| field);
    Problem::not_found(format!("a job that {field} names is not in the newest round")).field(field)
}

fn question(body: &v1::SimulationRequest, input: &PlanInput, user: &str) -> Result<Question, Problem> {
    let invalid = |error: spec::SpecError| Problem::invalid(error.to_string()).field("jobs");
    let specs = body.jobs.iter().map(|value| spec::read_json(&value.0).map_err(invalid));
    let specs: Vec<JobSpec> = specs.collect::<Result<_, _>>()?;
    let submitted = input.submitted(specs.iter(), user).into_iter();
    let mut suppose: Vec<Supposition> = submitted.map(|job| Supposition::Job { job: Box::new(job) }).collect();
    suppose.extend(body.jobs_gone.iter().map(|job| Supposition::JobGone { job: JobId(*job) }));
    for (job, points) in &body.priorities {
        if *points > 100 {
            return Err(Problem::invalid("a priority is between 0 and 100").field("priorities"));
        }
        suppose.push(Supposition::Priority { job: JobId(*job), priority: Priority(*points) });
    }
    suppose.extend(
        body.quotas
            .iter()
            .map(|(project, quota)| Supposition::Quota { project: project.clone(), quota: quota.map(GpuCount) }),
    );
    let rows = body.rows.iter();
    suppose.extend(rows.map(|(row, at_most)| Supposition::Row { row: row.clone(), at_most: at_most.map(GpuCount) }));
    suppose.extend(body.nodes_back.iter().map(|node| Supposition::NodeBack { node: NodeId(*node) }));
    suppose.extend(body.nodes_gone.iter().map(|node| Supposition::NodeGone { node: NodeId(*node) }));
    let more = body.more_nodes.iter();
    suppose.extend(more.map(|(node, count)| Supposition::NodesLike { node: NodeId(*node), count: *count }));
    let force = body.force.as_ref().map(|forced| Force {
        job: JobId(forced.job_id),
        gpus: forced.gpus.map(GpuCount),
        gpu_type: forced.gpu_type.clone().map(GpuType),
    });
    if suppose.is_empty() && force.is_none() {
        return Err(Problem::invalid("nothing is supposed").hint("see SimulationRequest in /api/v1/openapi.json"));
    }
    Ok(Question { suppose, force })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_is_supposed_is_bounded_in_all() {
        let ids = |count: usize| (0..count).map(|id| Uuid::from_u128(id as u128));
        let job = || v1::JobSpecification(serde_json::Value::Null);
        let most = v1::SimulationRequest {
            jobs: (0..MOST_SUPPOSED - 2).map(|_| job()).collect(),
            more_nodes: ids(2).map(|node| (node, MOST_NODES / 2)).collect(),
            ..v1::SimulationRequest::default()
        };
        check(&most).unwrap();
        let mut nodes = most.clone();
        nodes.more_nodes.insert(Uuid::nil(), MOST_NODES / 2 + 1);
        let told = check(&nodes).unwrap_err();
        assert_eq!(told.detailed(), "at most 1000 more nodes in all");
        let jobs = v1::SimulationRequest { jobs: (0..29_000).map(|_| job()).collect(), ..most.clone() };
        let gone = v1::SimulationRequest { jobs_gone: ids(1).collect(), ..most };
        for many in [jobs, gone] {
            assert!(check(&many).unwrap_err().detailed().ends_with("at most 1000 at once"));
        }
    }
}
