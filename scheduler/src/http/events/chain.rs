//! What led to an event and what came of it: each event has at most one cause among those before it, told by what they name (job, node, plan). Pure.

use std::collections::{BTreeMap, BTreeSet};

use headway_engine::record::EventRecord;
use headway_types::JobId;

/// What a job's grant leads to, by the step before.
const STEPS: [(&str, &[&str]); 2] = [("job.started", GRANTS), ("job.training", &["job.started"])];
pub const GRANTS: &[&str] = &["job.granted", "job.moved", "job.returned"];
/// What makes a job wait for GPUs again, or for the first time.
const WAITS: &[&str] = &["job.stopping", "job.gang_broken", "job.submitted", "job.released", UNBLOCKED];
/// What a job did that another waited for.
const REACHED: &[&str] = &["job.succeeded", "job.failed", "job.cancelled", "job.started"];
/// Why a generation ends, where its end does not name a node or a plan.
const BREAKS: &[&str] = &[
    "job.gang_broken",
    "job.hung",
    "job.idle_gpus",
    "job.mistaken",
    "job.preempted",
    "job.cancel_requested",
    "job.held",
];
const ENDS: &[&str] = &["job.succeeded", "job.failed", "job.cancelled"];
/// What goes before the loss of a node.
const FAULTS: &[&str] = &["node.unreachable", "node.condition"];
const SILENCES: &[&str] =
    &["node.lost", "node.unreachable", "node.condition", "node.draining", "node.leaving", "node.quarantined"];
/// What else rounds are made for.
const CHANGES: &[&str] =
    &["node.available", "node.uncordoned", "node.trusted", "node.labelled", "job.changed", "policy.changed"];

pub const ADOPTED: &str = "plan.adopted";
/// All that the job waited for has come about.
pub const UNBLOCKED: &str = "job.unblocked";

/// The job whose doing this event says it follows from.
pub fn dependency(of: &EventRecord) -> Option<JobId> {
    of.detail.get("dependency")?.parse().ok()
}

/// Whether others may have waited for it.
pub fn is_waited_for(verb: &str) -> bool {
    REACHED.contains(&verb)
}

/// What rounds are made for.
pub fn asking() -> impl Iterator<Item = &'static str> {
    [WAITS, ENDS, SILENCES, CHANGES].into_iter().flatten().copied()
}

pub fn asks_for_a_round(verb: &str) -> bool {
    asking().any(|one| one == verb)
}

/// An event of a chain, and the number of the one before that it follows from.
#[derive(Clone, Debug, PartialEq)]
pub struct Link<'a> {
    pub event: &'a EventRecord,
    pub because_of: Option<u64>,
}

/// Of `events`, in the order of the log, those that led to the event with this number, itself, and those that follow from it.
pub fn chain(events: &[EventRecord], of: u64) -> Vec<Link<'_>> {
    let causes: BTreeMap<u64, u64> = (0..events.len())
        .filter_map(|place| Some((events[place].seq, cause(&events[place], &events[..place])?)))
        .collect();
    let mut linked: BTreeSet<u64> = std::iter::successors(Some(of), |seq| causes.get(seq).copied()).collect();
    // A cause comes before what it causes, so that one way through the log finds all.
    let mut follow = BTreeSet::from([of]);
    for event in events.iter().filter(|event| event.seq > of) {
        if causes.get(&event.seq).is_some_and(|cause| follow.contains(cause)) {
            follow.insert(event.seq);
        }
    }
    linked.append(&mut follow);
    let link = |event| Link { event, because_of: causes.get(&event.seq).copied() };
    events.iter().filter(|event| linked.contains(&event.seq)).map(link).collect()
}

/// The newest of those before that explains it.
fn cause(of: &EventRecord, before: &[EventRecord]) -> Option<u64> {
    let newest =
        |fits: &dyn Fn(&EventRecord) -> bool| before.iter().rev().find(|event| fits(event)).map(|event| event.seq);
    let of_job = |verbs: &[&str]| {
        newest(&|event| of.job.is_some() && event.job == of.job && verbs.contains(&event.verb.as_str()))
    };
    let of_node = |verbs: &[&str]| {
        newest(&|event| of.node.is_some() && event.node == of.node && verbs.contains(&event.verb.as_str()))
    };
    let plan = || newest(&|event| of.plan.is_some() && event.plan == of.plan && event.verb == ADOPTED);
    let verb = of.verb.as_str();
    if let Some(other) = dependency(of) {
        return newest(&|event| event.job == Some(other) && is_waited_for(&event.verb));
    }
    if let Some((_, steps)) = STEPS.iter().find(|(step, _)| *step == verb) {
        return of_job(steps);
    }
    match verb {
        verb if GRANTS.contains(&verb) => {
            // Of a plan and of what made the job wait, the later is the nearer cause: most plans name many jobs.
            plan().max(of_job(WAITS))
        }
        "job.stopping" => {
            let broke =
                newest(&|event| event.job == of.job && event.at == of.at && BREAKS.contains(&event.verb.as_str()));
            of_node(SILENCES).or(broke).or_else(plan)
        }
        "job.preempted" => plan(),
        "job.gang_broken" => of_node(SILENCES),
        ADOPTED | "plan.proposed" => {
            let proposed = newest(&|event| event.plan == of.plan && event.verb == "plan.proposed");
            proposed.or_else(|| newest(&|event| asks_for_a_round(&event.verb)))
        }
        verb if ENDS.contains(&verb) => of_job(&["job.stopping", "job.gang_broken", "job.cancel_requested"]),
        "node.lost" | "node.unreachable" | "node.quarantined" => {
            let registered = newest(&|event| event.node == of.node && event.verb == "node.available").unwrap_or(0);
            let fault =
                newest(&|event| event.node == of.node && FAULTS.contains(&event.verb.as_str()) && event.verb != verb);
            fault.filter(|fault| *fault > registered)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use headway_engine::Actor;
    use headway_types::{IdSource, JobId, NodeId, PlanId, Timestamp};
    use proptest::prelude::*;

    use super::*;

    struct Ids {
        jobs: Vec<JobId>,
        nodes: Vec<NodeId>,
        plans: Vec<PlanId>,
    }

    fn ids() -> Ids {
        let mut source = IdSource::seeded(4);
        let at = Timestamp(0);
        Ids {
            jobs: (0..3).map(|_| source.job(at)).collect(),
            nodes: (0..2).map(|_| source.node(at)).collect(),
            plans: (0..2).map(|_| source.plan(at)).collect(),
        }
    }

    fn event(seq: u64, verb: &str) -> EventRecord {
        EventRecord {
            seq,
            at: Timestamp(seq as i64),
            actor: Actor::Scheduler,
            verb: verb.into(),
            job: None,
            node: None,
            plan: None,
            message: String::new(),
            detail: BTreeMap::new(),
        }
    }

    fn lost_node() -> Vec<EventRecord> {
        let ids = ids();
        let (job, node, plan) = (Some(ids.jobs[0]), Some(ids.nodes[0]), Some(ids.plans[0]));
        vec![
            EventRecord { job, ..event(1, "job.submitted") },
            EventRecord { job, ..event(2, "job.granted") },
            EventRecord { job, ..event(3, "job.started") },
            EventRecord { node, ..event(4, "node.condition") },
            EventRecord { node, ..event(5, "node.unreachable") },
            EventRecord { job: Some(ids.jobs[1]), ..event(6, "job.submitted") },
            EventRecord { node, ..event(7, "node.lost") },
            EventRecord { job, node, ..event(8, "job.stopping") },
            EventRecord { plan, ..event(9, "plan.adopted") },
            EventRecord { job, plan, ..event(10, "job.moved") },
            EventRecord { job, ..event(11, "job.started") },
            EventRecord { job, ..event(12, "job.training") },
        ]
    }

    fn numbers(links: &[Link]) -> Vec<u64> {
        links.iter().map(|link| link.event.seq).collect()
    }

    #[test]
    fn a_fault_leads_to_a_lost_node_a_stop_a_plan_and_a_start() {
        let events = lost_node();
        let whole = [4, 5, 7, 8, 9, 10, 11, 12];
        for seq in whole {
            assert_eq!(numbers(&chain(&events, seq)), whole, "asked of {seq}");
        }
        assert_eq!(numbers(&chain(&events, 3)), [1, 2, 3]);
        let causes: Vec<_> = chain(&events, 12).iter().map(|link| link.because_of).collect();
        assert_eq!(causes, [None, Some(4), Some(5), Some(7), Some(8), Some(9), Some(10), Some(11)]);
    }

    #[test]
    fn the_end_of_one_job_leads_to_the_start_of_another_that_waited_for_it() {
        let ids = ids();
        let (first, second) = (ids.jobs[0], ids.jobs[1]);
        let dependency = BTreeMap::from([("dependency".to_owned(), first.to_string())]);
        let of = |job, number, verb| EventRecord { job: Some(job), ..event(number, verb) };
        let events = vec![
            of(first, 1, "job.submitted"),
            of(second, 2, "job.submitted"),
            of(first, 3, "job.started"),
            of(first, 4, "job.succeeded"),
            EventRecord { detail: dependency, ..of(second, 5, UNBLOCKED) },
            of(second, 6, "job.granted"),
        ];
        let causes: Vec<_> = chain(&events, 6).iter().map(|link| (link.event.seq, link.because_of)).collect();
        assert_eq!(causes, [(4, None), (5, Some(4)), (6, Some(5))]);
    }

    proptest! {
        #[test]
        fn a_chain_has_what_was_asked_of_and_hangs_together(
            log in proptest::collection::vec((0usize..16, 0usize..4, 0usize..3, 0usize..3), 1..40),
            asked in 0usize..40,
        ) {
            let ids = ids();
            let verbs: Vec<&str> = [GRANTS, WAITS, ENDS, SILENCES, &["job.started", "job.training", "plan.adopted", "plan.proposed"]].concat();
            let events: Vec<EventRecord> = log.iter().zip(1..).map(|((verb, job, node, plan), seq)| EventRecord {
                job: ids.jobs.get(*job).copied(),
                node: ids.nodes.get(*node).copied(),
                plan: ids.plans.get(*plan).copied(),
                ..event(seq, verbs[*verb % verbs.len()])
            }).collect();
            let of = events[asked % events.len()].seq;
            let links = chain(&events, of);
            prop_assert!(numbers(&links).contains(&of));
            prop_assert!(links.is_sorted_by_key(|link| link.event.seq));
            for link in &links {
                prop_assert!(link.because_of.is_none_or(|cause| cause < link.event.seq));
                if link.event.seq != links[0].event.seq && link.event.seq <= of {
                    prop_assert!(link.because_of.is_some_and(|cause| numbers(&links).contains(&cause)), "what led here is told");
                }
            }
        }
    }
}
