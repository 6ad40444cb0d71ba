//! What was found out about a job, on the wire.

use headway_api::v1;
use headway_engine::view::View;
use headway_forecast::{Method, Outlook};
use headway_planner::Force;
use headway_planner::counterfactual::{Answer, Question, Shift, Supposition};
use headway_planner::funnel::Stage;
use headway_types::{GpuCount, JobId, NodeId, Timestamp, Unmoved};

use super::{finite, job_name, node_name, snake_name, time};

pub fn unmoved(of: &Unmoved, view: &View) -> v1::Unmoved {
    v1::Unmoved {
        job_id: of.job.0,
        job_name: job_name(of.job, view),
        from_gpus: of.from_gpus.0,
        to_gpus: of.to_gpus.0,
        gain_pct: of.gain * 100.0,
        forgone: of.forgone,
        code: of.code.to_string(),
        detail: of.detail.clone(),
    }
}

pub fn stage(of: &Stage) -> v1::FunnelStage {
    v1::FunnelStage { name: of.name.clone(), left: of.left, of: snake_name(&of.of), detail: of.detail.clone() }
}

pub fn counterfactual(of: &Answer, view: &View) -> v1::Counterfactual {
    v1::Counterfactual {
        question: of.question.clone(),
        changes: changes(&of.asked, view),
        answer: of.answer.clone(),
        possible: of.possible,
        gpus: of.gpus.map(|gpus| gpus.0),
        losers: of.losers.iter().map(shift).collect(),
        winners: of.winners.iter().map(shift).collect(),
        objective_change_pct: of.objective_change.and_then(|share| finite(share * 100.0)),
        goodput_change_pct: of.goodput_change * 100.0,
        moves: of.moves,
        downtime_seconds: of.downtime.0,
    }
}

fn changes(of: &Question, view: &View) -> Vec<v1::SupposedChange> {
    of.suppose.iter().map(|one| supposed(one, view)).chain(of.force.as_ref().map(forced)).collect()
}

fn supposed(of: &Supposition, view: &View) -> v1::SupposedChange {
    use Supposition as S;
    use v1::SupposedChange as C;
    let of_kind = |kind: &str| C { kind: kind.into(), ..C::default() };
    let of_job = |kind, job: &JobId| C { job_id: Some(job.0), ..of_kind(kind) };
    let of_node = |kind, node: &NodeId| {
        let node_name = Some(node_name(*node, view));
        C { node_id: Some(node.0), node_name, ..of_kind(kind) }
    };
    let count = |gpus: &GpuCount| Some(gpus.0);
    match of {
        S::Priority { job, priority } => C { priority: Some(priority.0), ..of_job("priority", job) },
        S::Accepts { job, gpus } => C { gpus_min: count(gpus), ..of_job("gpus_min", job) },
        S::AcceptsType { job, gpu_type } => C { gpu_type: Some(gpu_type.0.clone()), ..of_job("gpu_type", job) },
        S::TimeLimit { job, limit } => {
            let ran = view.jobs.get(job).map_or(0.0, |shown| shown.job.ran.0);
            C { time_limit_seconds: Some(ran + limit.0), ..of_job("time_limit", job) }
        }
        S::Resized { job, min, max } => C { gpus_min: count(min), gpus_max: count(max), ..of_job("resize", job) },
        S::Quota { project, quota } => {
            C { project: Some(project.clone()), gpus: quota.as_ref().and_then(count), ..of_kind("quota") }
        }
        S::Row { row, at_most } => {
            C { row: Some(row.clone()), gpus: at_most.as_ref().and_then(count), ..of_kind("row") }
        }
        S::NodeBack { node } => of_node("node_back", node),
        S::NodeGone { node } => of_node("node_gone", node),
        S::NodesLike { node, count } => C { count: Some(*count), ..of_node("more_nodes", node) },
        // Its id is the question's alone.
        S::Job { .. } => of_kind("submit"),
        S::JobGone { job } => of_job("gone", job),
    }
}

fn forced(of: &Force) -> v1::SupposedChange {
    v1::SupposedChange {
        kind: "force".into(),
        job_id: Some(of.job.0),
        gpus: of.gpus.map(|gpus| gpus.0),
        gpu_type: of.gpu_type.as_ref().map(|of| of.0.clone()),
        ..v1::SupposedChange::default()
    }
}

fn shift(of: &Shift) -> v1::Shift {
    v1::Shift { job_id: of.job.0, job_name: of.name.clone(), from_gpus: of.from.0, to_gpus: of.to.0 }
}

pub fn predicted_start(of: &Outlook, method: Method, now: Timestamp) -> v1::PredictedStart {
    let (method, asked_at) = (snake_name(&method), time(now));
    match of {
        Outlook::Start(start) => v1::PredictedStart {
            asked_at,
            p10: Some(time(start.p10)),
            p50: start.p50.map(time),
            p90: start.p90.map(time),
            method,
            reason: None,
        },
        Outlook::Unknown { reason } => {
            v1::PredictedStart { asked_at, p10: None, p50: None, p90: None, method, reason: Some(reason.clone()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_supposed_is_told_as_data() {
        use crate::http::fixtures;
        let (view, job) = (fixtures::running(), fixtures::job().id);
        let told = |one: Supposition| serde_json::to_value(supposed(&one, &view)).unwrap_or_default();
        let accepts = told(Supposition::Accepts { job, gpus: GpuCount(4) });
        assert_eq!(accepts, serde_json::json!({"kind": "gpus_min", "job_id": job, "gpus_min": 4}));
        let none = told(Supposition::Quota { project: "nlp".into(), quota: None });
        assert_eq!(none, serde_json::json!({"kind": "quota", "project": "nlp"}));
        let node = fixtures::node_id();
        let back = supposed(&Supposition::NodeBack { node }, &view);
        assert_eq!((back.node_id, back.node_name), (Some(node.0), Some(node_name(node, &view))));
    }

    #[test]
    fn no_prediction_says_why() {
        let of = predicted_start(&Outlook::Unknown { reason: "it is too large".into() }, Method::Queue, Timestamp(0));
        assert_eq!((of.p10, of.method.as_str(), of.reason.as_deref()), (None, "queue", Some("it is too large")));
    }
}
