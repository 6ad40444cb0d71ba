//! What was found out about a job, on the wire.

use headway_api::v1;
use headway_engine::view::View;
use headway_forecast::{Method, Outlook};
use headway_planner::counterfactual::{Answer, Shift};
use headway_planner::funnel::Stage;
use headway_types::{Timestamp, Unmoved};

use super::{finite, job_name, snake_name, time};

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

pub fn counterfactual(of: &Answer) -> v1::Counterfactual {
    v1::Counterfactual {
        question: of.question.clone(),
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
    fn no_prediction_says_why() {
        let of = predicted_start(&Outlook::Unknown { reason: "it is too large".into() }, Method::Queue, Timestamp(0));
        assert_eq!((of.p10, of.method.as_str(), of.reason.as_deref()), (None, "queue", Some("it is too large")));
    }
}
