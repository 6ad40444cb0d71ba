//! What sizes would bring a job, and what quotas say to it, as the planner tells.

use headway_api::v1;
use headway_goodput::Offer;
use headway_planner::{PlanJob, QuotaRoom, QuotaVerdict, SizeGain, SizePoint, Sizes};

pub fn validation(job: &PlanJob, sizes: Sizes, quota: Option<QuotaVerdict>) -> v1::JobValidation {
    v1::JobValidation {
        name: job.name.clone(),
        feasible: !sizes.feasible.is_empty(),
        points: curve_points(job, &sizes.points),
        reason: sizes.obstacle,
        closest: None,
        sizes: sizes.feasible.into_iter().map(|gpus| gpus.0).collect(),
        quota: quota.map(quota_verdict),
        waits_for: Vec::new(),
        starts_with_gpus: None,
        predicted_start: None,
        start_left_out: None,
    }
}

pub fn curve_points(job: &PlanJob, of: &[SizePoint]) -> Vec<v1::CurvePoint> {
    let now = job.current.as_ref().map(|current| current.placement.gpus());
    let told = |point: &SizePoint| {
        let empty = v1::CurvePoint {
            gpu_type: Some(point.gpu_type.0.clone()),
            gpus: point.gpus.0,
            nodes: point.nodes.0,
            configuration: None,
            throughput_tokens_per_second: 0.0,
            efficiency: 0.0,
            goodput_tokens_per_second: 0.0,
            credit_tokens_per_second: 0.0,
            step_time_seconds: None,
            speed_up: None,
            chosen: Some(point.gpus) == now,
            infeasible: None,
            goodput_low_tokens_per_second: None,
            goodput_high_tokens_per_second: None,
            runner_ups: Vec::new(),
        };
        match &point.gain {
            Err(why) => v1::CurvePoint { infeasible: Some(why.clone()), ..empty },
            Ok(_) if job.work.is_opaque() => v1::CurvePoint { efficiency: 1.0, ..empty },
            Ok(gain) => gained(gain, empty),
        }
    };
    of.iter().map(told).collect()
}

fn gained(gain: &SizeGain, empty: v1::CurvePoint) -> v1::CurvePoint {
    let (best, predicted) = (&gain.best, gain.best.prediction);
    v1::CurvePoint {
        configuration: best.configuration.as_ref().map(Into::into),
        throughput_tokens_per_second: predicted.throughput.0,
        efficiency: predicted.efficiency,
        goodput_tokens_per_second: predicted.goodput.0,
        credit_tokens_per_second: predicted.credit().0,
        step_time_seconds: best.configuration.map(|_| predicted.step_time.0),
        speed_up: Some(predicted.speed_up),
        goodput_low_tokens_per_second: gain.band.map(|(low, _)| low.0),
        goodput_high_tokens_per_second: gain.band.map(|(_, high)| high.0),
        runner_ups: gain.others.iter().filter_map(|other| runner_up(other, best)).collect(),
        ..empty
    }
}

fn runner_up(of: &Offer, best: &Offer) -> Option<v1::RunnerUp> {
    let (goodput, most) = (of.prediction.goodput.0, best.prediction.goodput.0);
    Some(v1::RunnerUp {
        configuration: of.configuration.as_ref()?.into(),
        goodput_tokens_per_second: goodput,
        relative_goodput: if most > 0.0 { goodput / most } else { 0.0 },
    })
}

fn quota_verdict(of: QuotaVerdict) -> v1::QuotaVerdict {
    let verdict = match of.room {
        QuotaRoom::Within => "within",
        QuotaRoom::Borrows => "borrows",
        QuotaRoom::ExceedsNow => "exceeds_now",
        QuotaRoom::Never => "never",
    };
    v1::QuotaVerdict {
        project: of.project,
        verdict: verdict.into(),
        quota_gpus: of.quota.0,
        borrow_gpus: of.borrow.0,
        gpus: of.held.0,
        needed_gpus: of.needed.0,
    }
}
