//! Plans and verdicts on the wire.

use std::collections::BTreeSet;

use headway_api::v1;
use headway_engine::event::{Actor, Rebalancing};
use headway_engine::record::{MoveOutcome, PlanRecord, PlanState, PlanSummary};
use headway_engine::view::View;
use headway_types::plan::{LeftOut, NodeLeftOut};
use headway_types::{Assignment, JobId, JobVerdict, Move, Plan};
use sha2::{Digest as _, Sha256};

use super::{finite, job_name, slice, time, unmoved};

pub fn plan_summary(of: &PlanSummary) -> v1::PlanSummary {
    v1::PlanSummary {
        id: of.id.0,
        parent_id: of.parent.map(|parent| parent.0),
        state: of.state.kind(),
        state_reason: state_reason(&of.state),
        made_at: time(of.made_at),
        decided_at: of.decided_at.map(time),
        decided_by: of.decided_by.as_ref().map(Actor::told),
        trigger: of.trigger.clone(),
        objective_before: of.objective_before,
        objective: of.objective,
        bound: of.bound,
        gap: of.gap,
        moves: of.moves,
        forced: of.forced,
    }
}

/// Which verdicts a plan is told with: where few jobs move they are about half of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdicts {
    All,
    /// Of jobs that it moves.
    Moves,
    /// Of jobs that it gives nothing.
    Waiting,
    None,
}

/// `view` lends the names of jobs and nodes.
pub fn plan(of: &PlanRecord, view: &View, verdicts: Verdicts) -> v1::Plan {
    let report = &of.plan.report;
    let moved = moved(of);
    let told = |job: &JobId, each: &JobVerdict| match verdicts {
        Verdicts::All => true,
        Verdicts::Moves => moved.contains(job),
        Verdicts::Waiting => each.gpus.0 == 0,
        Verdicts::None => false,
    };
    let summary = plan_summary(&of.summary());
    v1::Plan {
        id: summary.id,
        parent_id: summary.parent_id,
        state: summary.state,
        state_reason: summary.state_reason,
        made_at: summary.made_at,
        decided_at: summary.decided_at,
        decided_by: summary.decided_by,
        hash: plan_hash(&of.plan),
        valid_until: (of.state == PlanState::Proposed).then(|| time(of.plan.made_at + view.policy.proposals_last)),
        terms: of.terms.as_deref().map(terms),
        trigger: summary.trigger,
        objective_before: summary.objective_before,
        objective: summary.objective,
        goodput_change_pct: Move::goodput_change(&report.moves).map(|share| 100.0 * share),
        forced: summary.forced,
        bound: summary.bound,
        gap: summary.gap,
        candidates: report.candidates,
        solver: report.solver.as_ref().map(Into::into),
        shadow_prices: report.shadow_prices.iter().map(|(gpu, price)| (gpu.0.clone(), *price)).collect(),
        scarce: report.scarce.iter().map(Into::into).collect(),
        relaxed: report.relaxed.iter().map(Into::into).collect(),
        left_out: report.left_out.iter().map(|each| left_out(each, view)).collect(),
        nodes_left_out: report.nodes_left_out.iter().map(node_left_out).collect(),
        unmoved: report.unmoved.iter().map(|each| unmoved(each, view)).collect(),
        assignments: of.plan.assignments.iter().map(|(job, each)| assignment(*job, each, view)).collect(),
        moves: report.moves.iter().map(|each| one_move(each, view)).collect(),
        verdicts: report
            .jobs
            .iter()
            .filter(|(job, each)| told(job, each))
            .map(|(job, each)| verdict(*job, each, view))
            .collect(),
        jobs_left_waiting: left_waiting(of).len() as u32,
    }
}

fn moved(of: &PlanRecord) -> BTreeSet<JobId> {
    of.plan.report.moves.iter().map(|each| each.job).collect()
}

/// Jobs that a plan looked at and gives nothing.
pub fn left_waiting(of: &PlanRecord) -> BTreeSet<JobId> {
    let moved = moved(of);
    let waits = |(job, each): &(&JobId, &JobVerdict)| each.gpus.0 == 0 && !moved.contains(job);
    of.plan.report.jobs.iter().filter(waits).map(|(job, _)| *job).collect()
}

/// Why it was rejected.
fn state_reason(of: &PlanState) -> Option<String> {
    match of {
        PlanState::Rejected { reason } => reason.clone(),
        _ => None,
    }
}

fn node_left_out(of: &NodeLeftOut) -> v1::NodeLeftOut {
    v1::NodeLeftOut { node_id: of.node.0, node_name: of.name.clone(), reason: of.reason.clone() }
}

fn left_out(of: &LeftOut, view: &View) -> v1::LeftOut {
    v1::LeftOut { job_id: of.job.0, job_name: job_name(of.job, view), reason: of.reason.clone() }
}

fn assignment(job: JobId, of: &Assignment, view: &View) -> v1::Assignment {
    v1::Assignment {
        job_id: job.0,
        job_name: job_name(job, view),
        gpus: of.placement.gpus().0,
        slices: of.placement.slices().iter().map(|each| slice(each, view)).collect(),
        configuration: of.configuration.as_ref().map(Into::into),
        predicted: (&of.predicted).into(),
    }
}

fn one_move(of: &Move, view: &View) -> v1::Move {
    v1::Move {
        job_id: of.job.0,
        job_name: job_name(of.job, view),
        kind: of.kind.name().into(),
        from_gpus: of.from_gpus.0,
        to_gpus: of.to_gpus.0,
        from_configuration: of.from_configuration.as_ref().map(Into::into),
        to_configuration: of.to_configuration.as_ref().map(Into::into),
        goodput_before_tokens_per_second: of.goodput_before.0,
        goodput_after_tokens_per_second: of.goodput_after.0,
        downtime_seconds: of.downtime.0,
        pays_back_after_seconds: of.pays_back_after.and_then(|after| finite(after.0)),
        reason: of.reason.clone(),
        outcome: None,
    }
}

fn terms(of: &Rebalancing) -> v1::PlanTerms {
    let ids = |jobs: &BTreeSet<JobId>| jobs.iter().map(|job| job.0).collect();
    let force = of.force.iter().map(|one| v1::ForcedJob {
        job_id: one.job.0,
        gpus: one.gpus.map(|gpus| gpus.0),
        gpu_type: one.gpu_type.as_ref().map(ToString::to_string),
    });
    v1::PlanTerms {
        min_gain_pct: of.min_gain.map(|gain| gain * 100.0),
        max_moves: of.max_moves,
        scope: v1::PlanScope {
            projects: of.scope.projects.iter().cloned().collect(),
            nodes: of.scope.nodes.iter().map(|node| node.0).collect(),
            jobs: ids(&of.scope.jobs),
        },
        exclude: ids(&of.exclude),
        force: force.collect(),
        undoes: of.undoes.map(|plan| plan.0),
        reason: of.reason.clone(),
    }
}

pub fn outcome(of: &MoveOutcome) -> v1::MoveOutcome {
    v1::MoveOutcome {
        state: of.state.to_string(),
        downtime_seconds: of.downtime.map(|downtime| downtime.0),
        goodput_before_tokens_per_second: of.goodput_before.and_then(|goodput| finite(goodput.0)),
        goodput_after_tokens_per_second: of.goodput_after.and_then(|goodput| finite(goodput.0)),
        measured_seconds: of.measured_for.map(|time| time.0),
    }
}

/// Of the target it was made from and what it gives to whom: the same plan has the same.
pub fn plan_hash(of: &Plan) -> String {
    let mut hash = Sha256::new();
    hash.update(of.id.0.as_bytes());
    hash.update(serde_json::to_vec(&(of.parent, &of.assignments)).unwrap_or_default());
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn verdict(job: JobId, of: &JobVerdict, view: &View) -> v1::Verdict {
    v1::Verdict {
        job_id: job.0,
        job_name: job_name(job, view),
        headline: of.headline.clone(),
        gpus: of.gpus.0,
        runner_up: of.runner_up.as_ref().map(Into::into),
        marginal_speed_up: of.marginal_speed_up.and_then(finite),
        reasons: of.reasons.iter().map(Into::into).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::http::fixtures;

    /// Of a round in which few jobs move, as rounds are. Measured: 200 jobs on 208 GPUs, with all their verdicts and with those of three.
    #[test]
    fn a_plan_without_the_verdicts_of_whom_it_does_not_move_is_much_smaller() {
        use headway_planner::{CurveCache, builder};
        let nodes = (1..=26).map(|number| builder::node(number, "H100-80G", 8)).collect();
        let input = builder::round(nodes, (1..=200).map(|number| builder::job(number, 1, 8)).collect());
        let mut made = headway_planner::plan(&input, &mut CurveCache::new()).expect("a round of examples");
        made.report.moves.truncate(3);
        let record = PlanRecord {
            plan: Arc::new(made),
            state: PlanState::Proposed,
            decided_at: None,
            decided_by: None,
            adopted: None,
            terms: None,
        };
        let bytes = |told: &v1::Plan| serde_json::to_vec(told).map_or(0, |text| text.len());
        let told = [Verdicts::All, Verdicts::Moves, Verdicts::Waiting, Verdicts::None];
        let [all, moves, waiting, none] = told.map(|each| plan(&record, &fixtures::running(), each));
        assert_eq!([&all, &moves, &none].map(|told| told.verdicts.len()), [200, 3, 0]);
        let moved: BTreeSet<_> = moves.moves.iter().map(|each| each.job_id).collect();
        assert!(moves.verdicts.iter().all(|each| moved.contains(&each.job_id)));
        let nothing: Vec<_> = all.verdicts.iter().filter(|each| each.gpus == 0).cloned().collect();
        assert_eq!(waiting.verdicts, nothing);
        let left = nothing.iter().filter(|each| !moved.contains(&each.job_id)).count();
        assert!([&all, &moves, &none].iter().all(|told| told.jobs_left_waiting as usize == left));
        println!("{} and {} bytes", bytes(&all), bytes(&moves));
        assert!(bytes(&moves) * 3 < bytes(&all) * 2, "{} of {} bytes", bytes(&moves), bytes(&all));
    }

    #[test]
    fn a_rejected_plan_keeps_its_reason() {
        let why = state_reason(&PlanState::Rejected { reason: Some("not now".into()) });
        assert_eq!(why.as_deref(), Some("not now"));
    }
}
