//! What people read in situations they meet.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;

use headway_types::example::llama2_7b;
use headway_types::spec::{NodeResources, Priority, Work};
use headway_types::{
    Bytes, GpuCount, GpuSeconds, GpuType, ModelShape, NodeAccount, NodeSlice, Objective, Placement, Plan, Seconds,
    Tokens,
};

use crate::builder::{NOW, after, job, job_id, model_of, node, project, reservation, rigid, round};
use crate::curves::CurveCache;
use crate::ending::{Departure, next_departure};
use crate::input::{Freedom, PlanInput, PlanJob, PlanNode, PlanWork};
use crate::laws::sites::{labelled, of_project, row};
use crate::policy::PowerCap;
use crate::project::PlanProject;
use crate::site::Amount;
use crate::{plan, verify};

fn planned(input: &PlanInput) -> Plan {
    let plan = plan(input, &mut CurveCache::new()).unwrap();
    assert_eq!(verify(input, &plan), Ok(()));
    plan
}

/// The account of one job, as `headway why` would print its first lines.
fn account(input: &PlanInput, number: u32) -> String {
    let plan = planned(input);
    let verdict = &plan.report.jobs[&job_id(number)];
    let mut text = format!("{}\n", verdict.headline);
    for reason in &verdict.reasons {
        let mark = if reason.binding { "●" } else { "○" };
        writeln!(text, "  {mark} {:?}: {}", reason.code, reason.detail).unwrap();
    }
    for limit in &verdict.limits {
        let at = format!("needs {}, {} left, others lose {:.2}", limit.needed, limit.left, limit.price);
        writeln!(text, "  - {}: {at}", limit.of).unwrap();
    }
    for one in plan.report.unmoved.iter().filter(|one| one.job == job_id(number)) {
        let size = format!("{} GPUs instead of {}", one.to_gpus, one.from_gpus);
        writeln!(text, "  = {size} forgoes {:.2} ({:?}): {}", one.forgone, one.code, one.detail).unwrap();
    }
    text
}

/// The first job that gets nothing.
fn waiting(input: &PlanInput) -> u32 {
    let plan = planned(input);
    1 + input.jobs.iter().position(|job| !plan.assignments.contains_key(&job.job)).unwrap() as u32
}

fn real(number: u32, gpu_type: &str) -> PlanNode {
    let mut node = node(number, gpu_type, 8);
    node.class.emulated = None;
    node
}

fn llama_13b() -> Work {
    Work::Model(ModelShape { layers: 40, hidden: 5120, heads: 40, kv_heads: 40, ffn_hidden: 13_824, ..llama2_7b() })
}

/// Three jobs run on two nodes of four; a fourth comes.
fn busy() -> PlanInput {
    let start = round(vec![node(1, "alpha", 4), node(2, "alpha", 4)], vec![rigid(1, 4), rigid(2, 2), rigid(3, 2)]);
    after(&start, &planned(&start))
}

#[test]
fn a_model_too_large_for_memory_is_told_what_would_hold_it() {
    let mut large = job(1, 1, 4);
    let mut model = (*model_of(llama_13b())).clone();
    model.training.layouts.tp = vec![1, 2, 4, 8];
    model.training.layouts.pp = vec![1, 2, 4, 8];
    large.work = PlanWork::Model(model.into());
    large.range.types = vec![GpuType("A100-40G".into())];
    let mut nodes: Vec<PlanNode> = (1..=8).map(|number| real(number, "A100-40G")).collect();
    nodes.extend((9..=12).map(|number| real(number, "H100-80G")));
    insta::assert_snapshot!(account(&round(nodes, vec![large]), 1));
}

#[test]
fn free_gpus_that_a_job_cannot_use_are_none() {
    let mut large = job(2, 4, 4);
    let mut model = (*model_of(llama_13b())).clone();
    model.training.layouts.tp = vec![1, 2, 4, 8];
    large.work = PlanWork::Model(model.into());
    let mut holder = rigid(1, 8);
    holder.range.types = vec![GpuType("H100-80G".into())];
    holder.priority = Priority(75);
    insta::assert_snapshot!(account(&round(vec![real(1, "A100-40G"), real(2, "H100-80G")], vec![holder, large]), 2));
}

#[test]
fn a_job_waits_behind_one_of_higher_priority() {
    let mut input = busy();
    input.jobs.iter_mut().for_each(|job| job.priority = Priority(75));
    let mut later = rigid(4, 4);
    later.claim.waited = Seconds(1_500.0);
    input.jobs.push(later);
    insta::assert_snapshot!(account(&input, 4));
}

#[test]
fn a_job_waits_for_its_projects_quota() {
    let mut input = busy();
    input.jobs.retain(|job| job.job != job_id(3));
    input.projects = vec![PlanProject { name: "nlp".into(), quota: Some(GpuCount(6)), ..PlanProject::default() }];
    input.jobs.push(rigid(4, 2));
    input.jobs.iter_mut().for_each(|job| job.claim.project = "nlp".into());
    insta::assert_snapshot!(account(&input, 4));
}

#[test]
fn a_row_of_the_site_is_named_with_its_price() {
    let mut input = busy();
    input.jobs.retain(|job| job.job != job_id(3));
    input.jobs.push(job(4, 1, 4));
    input.jobs.push(rigid(5, 2));
    input.jobs[2].priority = Priority(60);
    input.jobs.iter_mut().for_each(|job| job.claim.labels = [("team".to_owned(), "x".to_owned())].into());
    input.policy.rows = vec![row("team-x", 7, labelled("team", "x"))];
    let [runs, waits] = [4, 5].map(|number| account(&input, number));
    insta::assert_snapshot!(format!("{runs}\n{waits}"));
}

#[test]
fn a_row_of_a_node_is_named_to_whom_it_keeps_from_it() {
    let mut input = busy();
    input.jobs.retain(|job| job.job == job_id(1));
    let full = input.jobs[0].current.as_ref().unwrap().placement.first_node();
    let free = input.nodes.iter().find(|node| node.node != full).unwrap().name.clone();
    input.jobs[0].freedom = Freedom::Fixed { reason: "it is pinned".into() };
    input.jobs.push(rigid(4, 3));
    input.jobs.push(job(5, 1, 4));
    input.jobs[1..].iter_mut().for_each(|job| job.claim.project = "nlp".into());
    let amount = Amount { node: Some(free), ..of_project("nlp") };
    input.policy.rows = vec![row("guests", 3, amount)];
    insta::assert_snapshot!(format!("{}\n{}", account(&input, 4), account(&input, 5)));
}

#[test]
fn one_user_holds_all_a_user_may() {
    let mut input = busy();
    input.jobs.retain(|job| job.job != job_id(3));
    input.projects =
        vec![PlanProject { name: "nlp".into(), max_per_user: Some(GpuCount(6)), ..PlanProject::default() }];
    input.jobs.push(rigid(4, 2));
    input.jobs.iter_mut().for_each(|job| (job.claim.project, job.claim.user) = ("nlp".into(), "ada".into()));
    insta::assert_snapshot!(account(&input, 4));
}

#[test]
fn what_is_free_is_scattered() {
    let nodes = (1..=9).map(|number| node(number, "alpha", 4)).collect();
    let start = round(nodes, (1..=9).map(|number| rigid(number, 3)).collect());
    let mut input = after(&start, &planned(&start));
    input.jobs.push(rigid(10, 4));
    insta::assert_snapshot!(account(&input, 10));
}

#[test]
fn what_is_free_is_reserved() {
    let mut input = round(vec![node(1, "alpha", 4), node(2, "alpha", 4)], vec![rigid(1, 4), rigid(2, 4)]);
    input.reservations = vec![reservation("maintenance", &[2], NOW, NOW + Seconds(3_600.0))];
    insta::assert_snapshot!(account(&input, waiting(&input)));
}

/// A node of four GPUs that is reserved in so many hours.
fn reserved_in(hours: f64, jobs: Vec<PlanJob>) -> PlanInput {
    let from = NOW + Seconds(3_600.0 * hours);
    let reservations = vec![reservation("r9", &[1], from, from + Seconds(14_400.0))];
    PlanInput { reservations, ..round(vec![node(1, "alpha", 4)], jobs) }
}

fn saving(number: u32) -> PlanJob {
    PlanJob { departure: Departure { saves: true, never: false, takes: Seconds(120.0) }, ..rigid(number, 4) }
}

#[test]
fn a_reservation_that_begins_later_is_named_with_what_would_help() {
    let opaque = account(&reserved_in(5.0, vec![rigid(1, 4)]), 1);
    let too_late = account(&reserved_in(0.1, vec![saving(1)]), 1);
    insta::assert_snapshot!(format!("{opaque}\n{too_late}"));
}

#[test]
fn a_job_that_must_not_run_twice_is_never_said_to_leave_for_a_reservation() {
    let once = |number| PlanJob { departure: Departure { never: true, ..saving(1).departure }, ..rigid(number, 4) };
    let waits = account(&reserved_in(5.0, vec![once(1)]), 1);
    assert!(waits.contains("it must not run twice, so it never leaves before its end"), "{waits}");
    let mut runs = reserved_in(5.0, vec![once(1)]);
    let slice = NodeSlice { node: runs.nodes[0].node, gpus: runs.nodes[0].gpus.clone() };
    runs.jobs[0].current = Some(crate::builder::bare(Placement::try_new(vec![slice]).unwrap()));
    let told = account(&runs, 1);
    assert!(told.contains("it must not run twice, so it stays there until it ends"), "{told}");
    assert!(!told.contains("it is stopped"), "{told}");
    assert_eq!(next_departure(&runs), None);
}

#[test]
fn reserved_nodes_beside_broken_ones_are_named() {
    let mut input = reserved_in(5.0, vec![rigid(1, 4)]);
    input.nodes.push(PlanNode { gpus: Vec::new(), ..node(2, "alpha", 4) });
    insta::assert_snapshot!(account(&input, 1));
}

#[test]
fn a_job_on_nodes_that_are_reserved_later_is_told_when_it_leaves() {
    let told = |job: PlanJob| {
        let input = reserved_in(5.0, Vec::new());
        let before = PlanInput { reservations: Vec::new(), jobs: vec![job], ..input.clone() };
        let running = after(&before, &planned(&before));
        account(&PlanInput { reservations: input.reservations, ..running }, 1)
    };
    let mut limited = rigid(1, 4);
    limited.bounds.time_left = Some(Seconds(3_600.0));
    let opaque = PlanJob { departure: Departure { saves: false, ..saving(1).departure }, ..rigid(1, 4) };
    let [saves, opaque, limited] = [saving(1), opaque, limited].map(told);
    insta::assert_snapshot!(format!("{saves}\n{opaque}\n{limited}"));
}

#[test]
fn the_power_cap_and_the_hosts_memory_are_named() {
    let mut input = round(vec![node(1, "alpha", 4), node(2, "alpha", 4)], vec![rigid(1, 4), rigid(2, 4)]);
    input.policy.power_cap = Some(PowerCap { watts: 3_000.0, busy: Default::default(), idle: 0.0 });
    let capped = account(&input, waiting(&input));
    input.policy.power_cap = None;
    for node in &mut input.nodes {
        node.host = NodeResources { cpus: Some(64), memory: Some(Bytes(256 << 30)), ..NodeResources::default() };
    }
    input.nodes[1].host.memory = Some(Bytes(16 << 30));
    input.jobs[1].needs.per_node.memory = Some(Bytes(64 << 30));
    input.jobs[0].needs = input.jobs[1].needs.clone();
    insta::assert_snapshot!(format!("{capped}\n{}", account(&input, waiting(&input))));
}

#[test]
fn a_job_that_waited_long_is_promised_room() {
    let mut input = busy();
    let mut late = rigid(4, 4);
    late.claim.waited = Seconds(9_000.0);
    input.jobs.push(late);
    let goes = account(&input, 4);
    insta::assert_snapshot!(format!("{goes}\n{}", account(&input, waiting(&input))));
}

#[test]
fn a_job_that_moved_lately_stays() {
    let start = round(vec![node(1, "alpha", 4)], vec![job(1, 1, 2), job(2, 1, 2)]);
    let mut input = after(&start, &planned(&start));
    input.jobs[0].range.max = GpuCount(3);
    input.jobs[0].priority = Priority(55);
    input.jobs[0].claim.since_move = Some(Seconds(60.0));
    let settling = account(&input, 1);
    // What nobody else wants it may have.
    input.jobs.pop();
    let idle = account(&input, 1);
    assert!(idle.starts_with("3 GPUs"), "{idle}");
    input.jobs[0].rework = Seconds(3_000.0);
    let costly = account(&input, 1);
    input.jobs[0].freedom = Freedom::Fixed { reason: "it has run 60 s of the 600 s before it may be moved".into() };
    insta::assert_snapshot!(format!("{settling}\n{costly}\n{}", account(&input, 1)));
}

#[test]
fn a_deadline_out_of_reach_and_a_budget_are_told() {
    let mut late = job(1, 1, 4);
    late.remaining = Some(Tokens(1e9));
    late.bounds.deadline = Some(NOW + Seconds(600.0));
    let deadline = account(&round(vec![node(1, "alpha", 4)], vec![late.clone()]), 1);
    late.bounds.deadline = None;
    late.bounds.budget_left = Some(GpuSeconds(36_000.0));
    insta::assert_snapshot!(format!("{deadline}\n{}", account(&round(vec![node(1, "alpha", 4)], vec![late]), 1)));
}

#[test]
fn a_round_that_may_move_no_more_says_so() {
    let start = round(vec![node(1, "alpha", 8)], vec![job(1, 1, 8), rigid(2, 4)]);
    let mut input = after(&start, &planned(&start));
    input.jobs.pop();
    input.policy.max_moves = Some(0);
    insta::assert_snapshot!(account(&input, 1));
}

#[test]
fn a_batch_alone_changes_the_objective() {
    let start = round(vec![node(1, "alpha", 2)], vec![job(1, 2, 2)]);
    let mut input = after(&start, &planned(&start));
    input.jobs[0].current.as_mut().unwrap().configuration.as_mut().unwrap().global_batch =
        headway_types::Sequences(128);
    let report = planned(&input).report;
    assert_eq!(report.moves.len(), 1);
    assert!(report.objective > report.objective_before, "{} {}", report.objective, report.objective_before);
}

#[test]
fn what_keeps_a_job_from_every_node_is_named() {
    let mut input = round(vec![node(1, "alpha", 4)], vec![rigid(1, 2)]);
    input.nodes[0].host.shm = Some(Bytes(32 << 30));
    input.jobs[0].needs.per_node.shm = Some(Bytes(64 << 30));
    // The host does not say, so it is not counted.
    input.jobs[0].needs.per_node.local_disk = Some(Bytes(1 << 40));
    let lacking = account(&input, 1);
    let never = "Cannot run on this cluster: it takes 64 GiB of shared memory on each node, more than the nodes it accepts have";
    assert!(lacking.starts_with(never), "{lacking}");
    // A node that has it is closed for now.
    input.nodes.push(PlanNode { draining: true, ..node(2, "alpha", 4) });
    let lacking = account(&input, 1);
    assert!(lacking.contains("it takes 64 GiB of shared memory on each node, more than nodes have"), "{lacking}");
    input.nodes.pop();
    input.nodes[0].host.shm = None;
    input.jobs[0].needs.avoid = [input.nodes[0].node].into();
    let avoided = account(&input, 1);
    assert!(avoided.contains("the nodes that could hold it are ones it must not use"), "{avoided}");
    assert!(!avoided.contains("alone"), "{avoided}");
    input.nodes[0].account = Some(NodeAccount { user: "ada".into(), takes_others: false });
    let closed = account(&input, 1);
    assert!(closed.contains("n1 runs jobs of ada alone"), "{closed}");
}

#[test]
fn policies_that_serve_in_an_order_say_who_comes_first() {
    let mut text = String::new();
    for objective in
        [Objective::FifoBackfill, Objective::Static, Objective::LeastAttained, Objective::ShortestRemaining]
    {
        let mut input = busy();
        input.policy.objective = objective;
        // The first gives way to whoever has had less, or ends sooner; the others wait, two of them alike.
        for job in &mut input.jobs {
            (job.claim.attained, job.remaining) = (GpuSeconds(1e6), Some(Tokens(1e9)));
        }
        let mut elastic = job(4, 2, 4);
        elastic.remaining = Some(Tokens(1e4));
        input.jobs.extend([elastic, rigid(5, 8), rigid(6, 8)]);
        for (at, job) in input.jobs.iter_mut().enumerate() {
            job.submitted_at = NOW - Seconds(900.0 - 60.0 * at as f64);
        }
        writeln!(text, "{objective}").unwrap();
        for number in [1, 4, 6] {
            writeln!(text, "job {number}: {}", account(&input, number)).unwrap();
        }
    }
    insta::assert_snapshot!(text);
}

#[test]
fn an_order_is_not_blamed_for_what_a_quota_does() {
    // Four of sixteen GPUs are all its project may hold.
    let mut input = round(vec![node(1, "alpha", 8), node(2, "alpha", 8)], vec![job(1, 1, 8)]);
    input.policy.objective = Objective::LeastAttained;
    input.projects = vec![PlanProject { quota: Some(GpuCount(4)), ..project("nlp", None) }];
    input.jobs[0].claim.project = "nlp".into();
    let told = account(&input, 1);
    assert!(told.contains("● Quota: 8 GPUs: the quota of project nlp"), "{told}");
}

#[test]
fn who_may_not_be_moved_now_does_not_come_first() {
    let start = round(vec![node(1, "alpha", 8)], vec![rigid(1, 8)]);
    let mut input = after(&start, &planned(&start));
    input.policy.objective = Objective::ShortestRemaining;
    input.jobs[0].bounds.time_left = Some(Seconds(1e5));
    let mut short = rigid(2, 8);
    short.bounds.time_left = Some(Seconds(600.0));
    input.jobs.push(short);
    input.jobs[0].freedom = Freedom::Fixed { reason: "it has run 60 s of the 600 s before it may be moved".into() };
    let told = account(&input, 2);
    assert!(told.contains("1 job after it in line may not be moved now"), "{told}");
}

#[test]
fn what_a_smaller_quota_takes_goes_to_nobody_by_the_order() {
    let start = round(vec![node(1, "alpha", 4)], vec![rigid(1, 4)]);
    let mut input = after(&start, &planned(&start));
    input.policy.objective = Objective::FifoBackfill;
    input.projects = vec![PlanProject { quota: Some(GpuCount(0)), ..project("nlp", None) }];
    input.jobs[0].claim.project = "nlp".into();
    let mut later = rigid(2, 4);
    later.submitted_at = NOW - Seconds(1.0);
    input.jobs[0].submitted_at = NOW - Seconds(100.0);
    input.jobs.push(later);
    let told = account(&input, 1);
    assert!(told.contains("they go to job-2") && !told.contains("submitted before"), "{told}");
}

#[test]
fn a_job_that_no_end_makes_room_for_is_told_so() {
    let start = round(vec![node(1, "alpha", 8)], vec![rigid(1, 8)]);
    let mut input = after(&start, &planned(&start));
    let mut never = rigid(2, 8);
    (never.claim.waited, never.claim.project) = (Seconds(2e5), "nlp".into());
    input.projects = vec![PlanProject { quota: Some(GpuCount(4)), ..project("nlp", None) }];
    let mut next = rigid(3, 8);
    next.claim.waited = Seconds(1e5);
    let mut last = rigid(4, 8);
    last.claim.waited = Seconds(9e4);
    input.jobs.extend([never, next, last]);
    let of = |number| account(&input, number);
    assert!(of(2).contains("nothing that comes free makes room for it"), "{}", of(2));
    assert!(of(3).contains("kept for it as it comes free"), "{}", of(3));
    assert!(of(4).contains("what comes free is kept for job-3, which has been due for longer"), "{}", of(4));
}
