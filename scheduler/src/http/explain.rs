//! Why a job is where it is: the engine's verdict on it, which is the newest plan's where no hold or back-off comes before
//! that, and what the verdict cannot know: how long is left, that the job waits for GPUs another job is giving up.

use std::collections::BTreeMap;

use axum::extract::State;
use headway_api::v1;
use headway_engine::record::{Job, JobState, PlanRecord, PolicyMode};
use headway_engine::view::{StepSilence, View};
use headway_types::{JobId, JobVerdict, Reason, ReasonCode, Timestamp};
use uuid::Uuid;

use super::auth::Principal;
use super::extract::{Json, Path};
use super::problem::Problem;
use super::{HttpState, conversions, lookup};
use crate::metrics;

/// Why a job waits, or has the size it has, with numbers; what would change it; when it starts.
#[utoipa::path(get, path = "/jobs/{id}/explain", tag = "jobs", params(("id" = Uuid, Path)),
    responses((status = 200, body = v1::Explanation), (status = 404, body = v1::Problem, content_type = "application/problem+json")))]
pub async fn explain_job(
    State(state): State<HttpState>,
    caller: Principal,
    Path(id): Path<Uuid>,
) -> Result<Json<v1::Explanation>, Problem> {
    let job = lookup::record(&state.cluster, JobId(id)).await?;
    let view = state.cluster.view();
    let verdict = view.verdict(job.id);
    let verdict = verdict.as_deref();
    let account = account(&view, &job, verdict, state.cluster.now());
    let decided = newest_plan(&view, job.id);
    let predicted = decided.and_then(|plan| plan.plan.assignments.get(&job.id)).map(|each| &each.predicted);
    let failing =
        matches!(job.state, JobState::Failed { .. }) || job.failures > 0 || job.failed_attempt_in_words().is_some();
    // Of what has ended nothing can change any more.
    let lives = view.jobs.contains_key(&job.id);
    let insight = if lives { state.asking.about(job.id).await } else { None };
    let insight = insight.as_ref();
    let outcomes = if lives { state.asking.outcomes(caller.name(), job.id).await } else { None };
    let outcomes = outcomes.as_deref();
    let left_out = (insight.is_some() && outcomes.is_none()).then(|| {
        metrics::answer_left_out("explanation");
        "What would change it, and when it starts, is still being worked out; ask again".to_owned()
    });
    Ok(Json(v1::Explanation {
        job_id: id,
        headline: account.headline,
        reasons: account.reasons.iter().map(Into::into).collect(),
        runner_up: verdict.and_then(|verdict| verdict.runner_up.as_ref()).map(Into::into),
        marginal_speed_up: verdict.and_then(|verdict| verdict.marginal_speed_up).filter(|gain| gain.is_finite()),
        prediction: predicted.map(Into::into),
        plan_id: decided.map(|plan| plan.plan.id.0),
        limits: insight.iter().flat_map(|each| &each.limits).map(Into::into).collect(),
        unmoved: insight.and_then(|each| each.unmoved.as_ref()).map(|each| conversions::unmoved(each, &view)),
        funnel: insight.iter().flat_map(|each| &each.funnel).map(conversions::stage).collect(),
        counterfactuals: outcomes
            .iter()
            .flat_map(|each| &each.answers)
            .map(|one| conversions::counterfactual(one, &view))
            .collect(),
        predicted_start: outcomes.and_then(|each| {
            Some(conversions::predicted_start(each.start.as_ref()?, each.method, state.cluster.now()))
        }),
        left_out,
        last_failure: job.last_failure.as_ref().filter(|_| failing).map(conversions::last_failure),
    }))
}

/// The plan whose account of a job is newest: a proposal that names it, else the target.
fn newest_plan(view: &View, job: JobId) -> Option<&PlanRecord> {
    let named = |plan: &&std::sync::Arc<PlanRecord>| plan.plan.report.jobs.contains_key(&job);
    let proposal = view.proposals.values().rfind(named);
    proposal.or(view.target.as_ref()).map(|plan| &**plan)
}

/// One sentence and what stands behind it, the most telling reason first.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    pub headline: String,
    pub reasons: Vec<Reason>,
}

pub fn account(view: &View, job: &Job, verdict: Option<&JobVerdict>, now: Timestamp) -> Account {
    let mut reasons = before_the_verdict(view, job);
    let mut headline = match (&job.state, reasons.first()) {
        (JobState::Queued { .. }, Some(first)) => first.detail.clone(),
        (JobState::Queued { .. }, None) => match verdict {
            Some(verdict) => format!("{}{}", verdict.headline, back_off_left(job, now)),
            None if view.policy.mode == PolicyMode::Paused => "waits: planning is paused by the policy".into(),
            None => "waits for the next planning round".into(),
        },
        (JobState::Running { .. } | JobState::Held { .. }, _) if job.wish.is_none() => {
            let headline = verdict.map_or_else(|| in_words(job, now), |verdict| verdict.headline.clone());
            match view.jobs.get(&job.id).and_then(|shown| shown.progress_silent(now)) {
                Some(StepSilence::NeverFound { field }) => {
                    format!("{headline}; no step is found in its output: compare {field}.regex with what it prints")
                }
                Some(StepSilence::Ceased { lasting, step }) => {
                    format!("{headline}; it has made no step for {}, since step {step}", lasting.words())
                }
                None => headline,
            }
        }
        _ => in_words(job, now),
    };
    reasons.extend(verdict.iter().flat_map(|verdict| verdict.reasons.iter().cloned()));
    reasons.extend(view.unsure(job.id));
    if let Some(failed) = job.failed_attempt_in_words() {
        headline = format!("{headline}; {failed}");
        reasons.push(Reason { code: ReasonCode::AttemptFailed, binding: false, detail: failed });
    }
    if let Some(lost) = view.jobs.get(&job.id).and_then(|shown| view.unreachable_nodes(shown)) {
        // That such a job cannot be moved now goes without saying.
        reasons.retain(|reason| reason.code != ReasonCode::Cooldown);
        let names = lost.names.join(", ");
        let silent = format!("{names} unreachable for {}", now.since(lost.since).words());
        let next = format!("if it does not come back: headway node lost {}", lost.names[0]);
        let detail = format!("{silent}; its processes may still run and its GPUs stay granted; {next}");
        reasons.insert(0, Reason { code: ReasonCode::NodeUnreachable, binding: true, detail });
        headline = format!("{} ({silent}): {headline}", job.state.kind());
    }
    Account { headline, reasons }
}

/// What keeps a job back that a plan has placed.
fn before_the_verdict(view: &View, job: &Job) -> Vec<Reason> {
    if !matches!(job.state, JobState::Queued { .. }) {
        return Vec::new();
    }
    let binding = |code, detail| Reason { code, binding: true, detail };
    let proposal = view.proposals.values().find(|plan| plan.plan.assignments.contains_key(&job.id));
    let freed = being_freed(view, job.id).map(|detail| binding(ReasonCode::GpusBeingFreed, detail));
    let proposed = proposal.map(|plan| {
        let detail = format!("a plan that starts it waits for approval: headway plan approve {}", plan.plan.id);
        binding(ReasonCode::PlanWaitsApproval, detail)
    });
    freed.into_iter().chain(proposed).collect()
}

fn back_off_left(job: &Job, now: Timestamp) -> String {
    let until = job.not_before.filter(|until| *until > now);
    until.map_or(String::new(), |until| format!("; the next attempt may start in {}", seconds(until.since(now).0)))
}

/// Whom a queued job waits for on the GPUs that the adopted plan gives it.
fn being_freed(view: &View, job: JobId) -> Option<String> {
    let assignment = view.target.as_ref()?.plan.assignments.get(&job)?;
    let mut holders: BTreeMap<JobId, u32> = BTreeMap::new();
    for (node, gpu) in assignment.placement.ranks() {
        if let Some((holder, _)) = view.nodes.get(&node).and_then(|node| node.held.get(gpu)) {
            *holders.entry(*holder).or_default() += 1;
        }
    }
    let names: Vec<String> = holders
        .iter()
        .map(|(holder, gpus)| {
            let name = view.jobs.get(holder).map_or_else(|| holder.to_string(), |live| live.job.spec.name.clone());
            format!("{gpus} from {name}")
        })
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "has {} assigned and waits for some to be freed: {}",
            assignment.placement.gpus().words(),
            names.join(", ")
        )
    })
}

fn in_words(job: &Job, now: Timestamp) -> String {
    let because = |reason: &Option<String>| reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
    match (&job.state, &job.wish) {
        (JobState::Stopping { .. } | JobState::Running { .. } | JobState::Starting { .. }, Some(wish)) => {
            conversions::wish_in_words(wish)
        }
        (JobState::Queued { .. }, _) => "waits".into(),
        (JobState::Held { reason, .. }, _) => format!("is held{}", because(reason)),
        (JobState::Starting { generation, since }, _) => {
            format!("starts generation {} since {}", generation.0, seconds(now.since(*since).0))
        }
        (JobState::Running { .. }, _) => "runs".into(),
        (JobState::Stopping { cause, .. }, _) => format!("stops: {}", conversions::stop_in_words(cause)),
        (JobState::Succeeded { .. }, _) => "succeeded".into(),
        (JobState::Failed { message, .. }, _) => format!("failed: {message}"),
        (JobState::Cancelled { by, reason, .. }, _) => format!("cancelled by {by}{}", because(reason)),
    }
}

fn seconds(value: f64) -> String {
    format!("{value:.0} s")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use headway_engine::record::{Availability, LastFailure, Node};
    use headway_types::{Generation, Seconds};

    use super::*;
    use crate::http::fixtures::{self, NOW};

    fn verdict(headline: &str) -> JobVerdict {
        JobVerdict {
            headline: headline.into(),
            reasons: vec![Reason {
                code: ReasonCode::NotEnoughFree,
                binding: true,
                detail: "needs 8 GPUs, 3 are free".into(),
            }],
            ..JobVerdict::default()
        }
    }

    #[test]
    fn a_waiting_job_has_its_plans_headline() {
        let account = account(&fixtures::running(), &fixtures::job(), Some(&verdict("needs 8 GPUs")), NOW);
        assert_eq!(account.headline, "needs 8 GPUs");
        assert_eq!(account.reasons[0].code, ReasonCode::NotEnoughFree);
    }

    #[test]
    fn a_waiting_job_says_how_its_last_attempt_failed() {
        let failure = LastFailure {
            at: NOW,
            generation: Generation(1),
            message: "there is no working directory /nope".into(),
            node: Some("node-1".into()),
            exit_code: None,
        };
        let job = Job { generation: Generation(1), last_failure: Some(failure), ..fixtures::job() };
        let told = account(&fixtures::running(), &job, Some(&verdict("needs 8 GPUs")), NOW);
        let failed = "attempt 1 on node-1 failed: there is no working directory /nope";
        assert_eq!(told.headline, format!("needs 8 GPUs; {failed}"));
        assert!(told.reasons.iter().any(|one| one.code == ReasonCode::AttemptFailed && one.detail == failed));
        // A later attempt that ended well has no failure to speak of.
        let moved = Job { generation: Generation(2), ..job };
        assert_eq!(account(&fixtures::running(), &moved, None, NOW).headline, "waits for the next planning round");
    }

    #[test]
    fn a_job_on_a_silent_node_is_not_well() {
        let mut view = fixtures::running();
        let mut shown = (*view.nodes[&fixtures::node_id()]).clone();
        shown.node = Arc::new(Node { availability: Availability::Unreachable { since: NOW }, ..(*shown.node).clone() });
        view.nodes.insert(fixtures::node_id(), Arc::new(shown));
        let job = Arc::clone(&view.jobs[&fixtures::job_id()].job);
        let mut verdict = verdict("2 GPUs, as requested");
        verdict.reasons[0].code = ReasonCode::Cooldown;
        let told = account(&view, &job, Some(&verdict), NOW + Seconds(44.0));
        assert_eq!(told.headline, "running (node-0 unreachable for 44 s): 2 GPUs, as requested");
        assert_eq!(told.reasons.iter().map(|one| one.code).collect::<Vec<_>>(), [ReasonCode::NodeUnreachable]);
        assert!(told.reasons[0].detail.ends_with("headway node lost node-0"), "{}", told.reasons[0].detail);
    }

    #[test]
    fn a_job_no_plan_has_seen_waits_for_one() {
        let account = account(&fixtures::running(), &fixtures::job(), None, NOW);
        assert_eq!(account.headline, "waits for the next planning round");
    }

    #[test]
    fn a_back_off_says_how_long_is_left_and_is_told_once() {
        let job = Job { failures: 2, not_before: Some(NOW + Seconds(30.0)), ..fixtures::job() };
        let verdict = verdict("waits a while after 2 failed attempts in a row");
        let account = account(&fixtures::running(), &job, Some(&verdict), NOW);
        let headline = "waits a while after 2 failed attempts in a row; the next attempt may start in 30 s";
        assert_eq!(account.headline, headline);
        assert_eq!(account.reasons.len(), 1);
    }
}
