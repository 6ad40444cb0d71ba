//! Which changes and observations live pages hear of.

use std::collections::BTreeSet;

use headway_engine::view::View;
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

/// Feeds of the jobs that hold GPUs of a changed node: what is shown of a job says whether its nodes are in contact.
pub(super) fn jobs_of_node(change: &Change, view: &View) -> Vec<Feed> {
    let Change::Node(node) = change else { return Vec::new() };
    let seen = view.nodes.get(&node.inventory.node);
    let jobs: BTreeSet<_> = seen.into_iter().flat_map(|seen| seen.held.values()).map(|(job, _)| *job).collect();
    jobs.into_iter().map(Feed::Job).collect()
}

/// What it hears of what was only seen.
pub(super) fn seen(observation: &Observation) -> Option<Feed> {
    match observation {
        Observation::Steps { report, .. } => Some(Feed::Job(report.job)),
        Observation::Model { .. } | Observation::Lessons { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::http::fixtures;

    #[test]
    fn the_jobs_of_a_node_are_heard_of_with_the_node() {
        let view = fixtures::running();
        let node = Arc::new((*view.nodes[&fixtures::node_id()].node).clone());
        let change = Change::Node(node);
        assert_eq!(heard(&change), Some(Feed::Node(fixtures::node_id())));
        assert_eq!(jobs_of_node(&change, &view), [Feed::Job(fixtures::job_id())]);
        assert_eq!(jobs_of_node(&Change::Returned, &view), []);
    }
}
