//! Allocations, checkpoints, measurements and events on the wire.

use headway_api::v1;
use headway_engine::record::{Allocation, Checkpoint, EventRecord, Notice};
use headway_engine::view::View;

use super::{finite, slice, snake_name, time};
use crate::http::lookup::Names;
use crate::store::{Delivery, DeliveryState, SeriesPoint};
use crate::webhooks::Tried;

/// `view` lends the names of nodes.
pub fn allocation(of: &Allocation, view: &View) -> v1::AllocationRecord {
    let slices = of.placement.slices().iter().map(|each| {
        let release = of.released.get(&each.node);
        v1::SliceRecord {
            released_at: release.map(|release| time(release.at)),
            release_proof: release.map(|release| snake_name(&release.proof)),
            ..slice(each, view)
        }
    });
    v1::AllocationRecord {
        job_id: of.job.0,
        generation: of.generation.0,
        plan_id: of.plan.map(|plan| plan.0),
        gpus: of.placement.gpus().0,
        slices: slices.collect(),
        configuration: of.configuration.as_ref().map(Into::into),
        revision: of.revision,
        resumed_from_step: of.resumed_from.as_ref().map(|checkpoint| checkpoint.step),
        cause: of.cause.clone(),
        predicted_goodput_tokens_per_second: of.predicted_goodput,
        granted_at: time(of.granted_at),
        training_at: of.training_at.map(time),
        ended_at: of.ended_at.map(time),
    }
}

pub fn checkpoint(of: &Checkpoint) -> v1::Checkpoint {
    v1::Checkpoint {
        generation: of.checkpoint.generation.0,
        step: of.checkpoint.step,
        samples_seen: of.checkpoint.samples_seen.0,
        progress_tokens: of.progress.0,
        path: of.checkpoint.path.clone(),
        manifest_sha256: of.checkpoint.manifest_sha256.clone(),
        duration_seconds: of.duration.0,
        committed_at: time(of.committed_at),
    }
}

pub fn series_point(of: &SeriesPoint) -> v1::SeriesPoint {
    v1::SeriesPoint {
        at: time(of.at),
        generation: of.generation.0,
        step: of.step,
        samples_seen: of.samples_seen.0,
        throughput_tokens_per_second: finite(of.throughput().0).unwrap_or(0.0),
        goodput_tokens_per_second: finite(of.goodput().0),
        efficiency: finite(of.efficiency()),
        noise_scale_tokens: of.noise_scale,
        global_batch_sequences: of.configuration.global_batch.0,
        gpus: of.gpus,
        step_time_seconds: finite(of.step_time().0).unwrap_or(0.0),
        loss: of.loss.and_then(finite),
        configuration: (&of.configuration).into(),
    }
}

/// Of the address no more than scheme and host: the rest may be a secret.
pub fn delivery(of: Delivery) -> v1::Delivery {
    let waits = of.state == DeliveryState::Waiting;
    let notice = of.notice;
    v1::Delivery {
        id: notice.id.to_string(),
        kind: notice.kind.to_string(),
        event_seq: notice.id.event,
        at: time(notice.at),
        webhook: host_of(&notice.webhook),
        text: notice.text,
        state: <&str>::from(of.state).to_owned(),
        attempts: of.attempts,
        next_at: waits.then(|| time(of.next_at)),
        ended_at: of.ended_at.map(time),
        last_error: of.last_error,
    }
}

/// What came of a test.
pub fn tried(of: Tried) -> v1::TestedWebhook {
    v1::TestedWebhook {
        outcome: if of.result.is_ok() { "delivered" } else { "failed" }.into(),
        took_seconds: Some(of.took.as_secs_f64()),
        error: of.result.err(),
        ..untried(of.notice)
    }
}

/// What a test would tell.
pub fn untried(of: Notice) -> v1::TestedWebhook {
    v1::TestedWebhook {
        webhook: host_of(&of.webhook),
        signed_with: of.secret,
        text: of.text,
        outcome: "not_sent".into(),
        took_seconds: None,
        error: None,
    }
}

fn host_of(address: &str) -> String {
    reqwest::Url::parse(address).map_or_else(|_| String::new(), |url| url.origin().ascii_serialization())
}

pub fn event(of: &EventRecord, names: &Names) -> v1::EventRecord {
    v1::EventRecord {
        seq: of.seq,
        at: time(of.at),
        actor: of.actor.told(),
        verb: of.verb.clone(),
        job_id: of.job.map(|job| job.0),
        job_name: of.job.and_then(|job| names.jobs.get(&job).cloned()),
        node_id: of.node.map(|node| node.0),
        node_name: of.node.and_then(|node| names.nodes.get(&node).cloned()),
        plan_id: of.plan.map(|plan| plan.0),
        message: of.message.clone(),
        detail: of.detail.clone(),
    }
}
