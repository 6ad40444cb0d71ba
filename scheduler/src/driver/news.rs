//! Which changes and observations live pages hear of.

use headway_engine::{Change, Observation};

use crate::cluster::Feed;

/// What a live page hears of a change.
pub(super) fn heard(change: &Change) -> Option<Feed> {
    match change {
        Change::Event(event) => Some(Feed::Event(event.clone())),
        Change::Job(job) => Some(Feed::Job(job.id)),
        Change::Node(node) => Some(Feed::Node(node.inventory.node)),
        Change::NodeGone(node) => Some(Feed::Node(*node)),
        Change::Plan(record) => Some(Feed::Plan(record.plan.id)),
        Change::Allocation(_)
        | Change::Checkpoint(_)
        | Change::Target(_)
        | Change::Policy(_)
        | Change::Term(_)
        | Change::Returned
        | Change::Array(_)
        | Change::Project(_)
        | Change::ProjectGone(_)
        | Change::Reservation(_)
        | Change::ReservationGone(_)
        | Change::Idempotency(_)
        | Change::Deed(_)
        | Change::Transition(_)
        | Change::Realised(_)
        | Change::Notice(_)
        | Change::NoticeGivenUp { .. } => None,
    }
}

/// What it hears of what was only seen.
pub(super) fn seen(observation: &Observation) -> Option<Feed> {
    match observation {
        Observation::Steps { report, .. } => Some(Feed::Job(report.job)),
        Observation::Model { .. } | Observation::Lessons { .. } => None,
    }
}
