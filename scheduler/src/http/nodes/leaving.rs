//! What would come of a drain for those who are on the node: where each goes by the plan that a round would make without it, what that costs, and when the node would
//! be free. Pure.

use std::collections::BTreeMap;

use headway_api::v1;
use headway_engine::view::View;
use headway_planner::{PlanInput, PlanJob};
use headway_types::{JobId, NodeId, Plan, Seconds, Timestamp};

use crate::http::conversions::{job_name, node_name, time};

/// A drain that is only supposed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Leaving {
    pub node: NodeId,
    /// Until then who has nowhere else to go may stay.
    pub deadline: Option<Timestamp>,
}

/// By the round that was asked and its answer.
pub fn effect(of: Leaving, view: &View, input: &PlanInput, without: &Plan) -> Option<v1::DrainEffect> {
    let node = view.nodes.get(&of.node)?;
    let mut here: BTreeMap<JobId, u32> = BTreeMap::new();
    for (job, _) in node.held.values() {
        *here.entry(*job).or_default() += 1;
    }
    let jobs: Vec<v1::DrainedJob> = here.keys().map(|job| drained(of, *job, view, input, without)).collect();
    let stays = jobs.iter().any(|one| one.effect == "stays");
    let slowest = jobs.iter().map(|one| one.standstill_seconds.unwrap_or(0.0)).fold(0.0, f64::max);
    let all_known = jobs.iter().all(|one| one.standstill_seconds.is_some());
    let moved = all_known.then(|| view.at + Seconds(slowest));
    let free_at = if stays { moved.zip(of.deadline).map(|(moved, deadline)| moved.max(deadline)) } else { moved };
    Some(v1::DrainEffect {
        gpus: node.held.len() as u32,
        // A sum of nothing is minus zero.
        gpu_hours: jobs.iter().filter_map(|one| one.gpu_hours).fold(0.0, |sum, hours| sum + hours),
        free_at: free_at.map(time),
        jobs,
    })
}

fn drained(of: Leaving, job: JobId, view: &View, input: &PlanInput, without: &Plan) -> v1::DrainedJob {
    let held = view.jobs.get(&job).and_then(|live| live.allocation.as_ref());
    let from = held.map_or(0, |held| held.placement.gpus().0);
    let known = input.jobs.iter().find(|one| one.job == job);
    let to = without.assignments.get(&job);
    let to_gpus = to.map_or(0, |to| to.placement.gpus().0);
    let may_stay = of.deadline.is_some_and(|deadline| deadline > view.at);
    let effect = match (known, to_gpus) {
        // It was not there when the newest round was planned.
        (None, _) => "unknown",
        (Some(_), 0) if may_stay => "stays",
        (Some(_), 0) => "stops",
        (Some(_), fewer) if fewer < from => "shrinks",
        (Some(_), more) if more > from => "grows",
        (Some(_), _) => "moves",
    };
    let standstill = known.map(|known| standstill(known, without));
    v1::DrainedJob {
        job_id: job.0,
        job_name: job_name(job, view),
        effect: effect.into(),
        from_gpus: from,
        to_gpus,
        to_nodes: to.iter().flat_map(|to| to.placement.slices()).map(|slice| node_name(slice.node, view)).collect(),
        standstill_seconds: standstill.map(|time| time.0),
        gpu_hours: standstill.map(|time| f64::from(from) * time.0 / 3_600.0),
    }
}

/// What the move is expected to take, or of one that stops, its next start with what it would do again.
fn standstill(of: &PlanJob, without: &Plan) -> Seconds {
    let moved = without.report.moves.iter().find(|one| one.job == of.job && one.to_gpus.0 > 0);
    moved.map_or(of.downtime.restart + of.rework, |one| one.downtime)
}

#[cfg(test)]
mod tests {
    use headway_planner::PlanInput;
    use headway_types::PlanReport;

    use super::*;
    use crate::http::fixtures::{self, NOW};

    fn without(input: &PlanInput) -> Plan {
        let (id, parent) = (input.plan, None);
        Plan { id, parent, made_at: NOW, assignments: BTreeMap::new(), report: PlanReport::default() }
    }

    #[test]
    fn who_has_nowhere_to_go_stops_or_stays_until_the_deadline() {
        let view = fixtures::running();
        let (input, node) = (view.round(), fixtures::node_id());
        let plan = without(&input);
        let told = effect(Leaving { node, deadline: None }, &view, &input, &plan).expect("the node is known");
        let job = &told.jobs[0];
        assert_eq!((job.effect.as_str(), job.from_gpus, job.to_gpus, told.gpus), ("stops", 2, 0, 2));
        assert!(job.gpu_hours.is_some_and(|hours| hours > 0.0) && told.free_at > Some(time(NOW)), "{told:?}");
        let deadline = NOW + Seconds(7_200.0);
        let told = effect(Leaving { node, deadline: Some(deadline) }, &view, &input, &plan).expect("the node is known");
        assert_eq!((told.jobs[0].effect.as_str(), told.free_at), ("stays", Some(time(deadline))));
    }

    #[test]
    fn of_a_job_that_the_round_did_not_know_nothing_is_said() {
        let view = fixtures::running();
        let input = PlanInput { jobs: Vec::new(), ..view.round() };
        let leaving = Leaving { node: fixtures::node_id(), deadline: None };
        let told = effect(leaving, &view, &input, &without(&input)).expect("the node is known");
        assert_eq!((told.jobs[0].effect.as_str(), told.jobs[0].gpu_hours, told.free_at), ("unknown", None, None));
    }
}
