//! What a document means to the planner, and what comes back.

use headway_api::solve::{self as wire, Allocation, Held, Reply};
use headway_planner::{CurveCache, Freedom, PlanInput, PlanWork, plan, verify};
use headway_types::report::Flexibility;
use headway_types::{GpuCount, Seconds};
use serde_json::{Value, json};

use super::{NOW, Names};

fn document(nodes: Value, jobs: Value) -> Value {
    json!({"version": 1, "nodes": nodes, "jobs": jobs})
}

/// Two nodes of eight.
fn pair() -> Value {
    json!([{"gpu_type": "H100", "gpus_per_node": 8, "count": 2, "name": "n"}])
}

fn converted(document: &Value) -> Result<PlanInput, wire::SolveError> {
    super::input(wire::read(&document.to_string())?, &mut Names::default())
}

fn round(document: &Value) -> PlanInput {
    converted(document).expect("the document is a round")
}

fn solved(document: &Value) -> Reply {
    let input = round(document);
    let plan = plan(&input, &mut CurveCache::new()).expect("a round has a plan");
    verify(&input, &plan).expect("the plan holds");
    super::reply(None, &input, &plan)
}

fn refused(document: &Value) -> String {
    converted(document).expect_err("the document is wrong").to_string()
}

fn names(input: &PlanInput) -> Vec<&str> {
    input.nodes.iter().map(|node| node.name.as_str()).collect()
}

fn held(input: &PlanInput, job: usize) -> Vec<&str> {
    let current = input.jobs[job].current.as_ref().expect("it holds GPUs");
    current.placement.ranks().map(|(_, gpu)| gpu.0.as_str()).collect()
}

#[test]
fn nodes_are_named_by_group() {
    let groups = json!([
        {"gpu_type": "A", "gpus_per_node": 4},
        {"gpu_type": "A", "gpus_per_node": 4, "domain": "r1", "count": 2},
        {"gpu_type": "B", "gpus_per_node": 4, "name": "big"},
        {"gpu_type": "B", "gpus_per_node": 4, "names": ["x", "y"]},
    ]);
    let input = round(&document(groups, json!([])));
    assert_eq!(names(&input), ["A-0", "A-r1-0", "A-r1-1", "big-0", "x", "y"]);
    assert!(input.nodes.is_sorted_by_key(|node| node.node));
    assert_eq!(input.nodes[1].class.fabric.domain, "r1");
}

#[test]
fn a_broken_gpu_is_not_offered() {
    let groups = json!([{"gpu_type": "A", "gpus_per_node": 4, "name": "n", "broken": {"n-0": [1, 2]}}]);
    let input = round(&document(groups, json!([])));
    let gpus: Vec<&str> = input.nodes[0].gpus.iter().map(|gpu| gpu.0.as_str()).collect();
    assert_eq!(gpus, ["n-0/0", "n-0/3"]);
    assert_eq!(input.nodes[0].class.gpus_per_node, GpuCount(4));
}

#[test]
fn a_draining_node_offers_what_is_held_there() {
    let groups = json!([{"gpu_type": "A", "gpus_per_node": 4, "name": "n", "draining": ["n-0"]}]);
    let jobs = json!([{"name": "a", "gpus": 2, "allocation": {"nodes": {"n-0": 2}}}]);
    let input = round(&document(groups, jobs));
    assert_eq!(input.nodes[0].gpus.len(), 2);
    assert!(input.nodes[0].draining);
}

#[test]
fn counted_gpus_are_the_lowest_that_nobody_names() {
    let jobs = json!([
        {"name": "a", "gpus": 2, "allocation": {"nodes": {"n-0": 2}}},
        {"name": "b", "gpus": 2, "allocation": {"nodes": {"n-0": [0, 2]}}},
        {"name": "c", "gpus": 3, "allocation": {"nodes": {"n-0": 2, "n-1": 1}}},
    ]);
    let input = round(&document(pair(), jobs));
    assert_eq!(held(&input, 0), ["n-0/1", "n-0/3"]);
    assert_eq!(held(&input, 1), ["n-0/0", "n-0/2"]);
    assert_eq!(held(&input, 2), ["n-0/4", "n-0/5", "n-1/0"]);
}

#[test]
fn a_row_without_a_type_holds_for_every_type() {
    let groups = json!([{"gpu_type": "B", "gpus_per_node": 4}, {"gpu_type": "A", "gpus_per_node": 4}]);
    let jobs =
        json!([{"name": "a", "goodput": [{"gpus": 2, "goodput": 1}, {"gpus": 4, "goodput": 2, "gpu_type": "B"}]}]);
    let input = round(&document(groups, jobs));
    let PlanWork::Table(table) = &input.jobs[0].work else { panic!("a table") };
    let rows: Vec<(&str, u32)> = table.rows.iter().map(|row| (row.gpu_type.0.as_str(), row.gpus.0)).collect();
    assert_eq!(rows, [("A", 2), ("B", 2), ("B", 4)]);
    assert_eq!(input.jobs[0].range.sizes, [GpuCount(2), GpuCount(4)]);
}

#[test]
fn ages_and_deadlines_stand_around_now() {
    let jobs = json!([{"name": "a", "gpus": 1, "age_seconds": 90, "deadline_seconds": 60}]);
    let input = round(&document(pair(), jobs));
    let job = &input.jobs[0];
    assert_eq!(NOW.since(job.submitted_at), Seconds(90.0));
    assert_eq!(job.bounds.deadline, Some(NOW + Seconds(60.0)));
    assert_eq!(job.claim.waited, Seconds(90.0));
}

#[test]
fn a_job_that_has_run_is_not_taken_to_have_waited_all_its_age() {
    let jobs = json!([
        {"name": "a", "gpus": 1, "age_seconds": 90, "attained_gpu_seconds": 10},
        {"name": "b", "gpus": 1, "age_seconds": 90, "attained_gpu_seconds": 10, "waited_seconds": 50},
    ]);
    let input = round(&document(pair(), jobs));
    assert_eq!(input.jobs[0].claim.waited, Seconds(0.0));
    assert_eq!(input.jobs[1].claim.waited, Seconds(50.0));
}

#[test]
fn a_whole_number_with_a_point_is_a_count() {
    let mut told = document(
        pair(),
        json!([
            {"name": "a", "gpus": {"min": 2.0, "max": 4.0, "sizes": [2.0, 4]}, "priority": 60.0, "restarts": 1.0,
             "goodput": [{"gpus": 2.0, "nodes": 1.0, "goodput": 1}, {"gpus": 4, "goodput": 2}]},
            {"name": "b", "gpus": 2.0, "allocation": {"nodes": {"n-0": 2.0}, "gpus": 2.0}},
        ]),
    );
    told["nodes"][0]["gpus_per_node"] = json!(8.0);
    told["version"] = json!(1.0);
    let input = round(&told);
    assert_eq!(input.jobs[0].range.sizes, [GpuCount(2), GpuCount(4)]);
    assert_eq!(input.jobs[1].current.as_ref().map(|current| current.placement.gpus()), Some(GpuCount(2)));
    let half = document(pair(), json!([{"name": "b", "gpus": 2.5}]));
    assert!(wire::read(&half.to_string()).is_err());
}

#[test]
fn who_does_not_say_when_its_gpus_changed_is_taken_to_have_just_started() {
    let holds = json!({"nodes": {"n-0": 2}});
    let jobs = json!([
        {"name": "a", "gpus": 2},
        {"name": "b", "gpus": 2, "allocation": holds},
        {"name": "c", "gpus": 2, "allocation": holds, "ran_seconds": 900},
        {"name": "d", "gpus": 2, "allocation": holds, "ran_seconds": 900, "since_move_seconds": 60},
    ]);
    let since: Vec<Option<f64>> =
        round(&document(pair(), jobs)).jobs.iter().map(|job| job.claim.since_move.map(|since| since.0)).collect();
    assert_eq!(since, [None, Some(0.0), Some(900.0), Some(60.0)]);
}

#[test]
fn a_held_shape_without_a_row_is_told_and_not_counted_in_silence() {
    let rows = json!([{"gpus": 4, "goodput": 3}]);
    let held = |goodput: Value| json!([{"name": "a", "goodput": rows, "allocation": {"nodes": {"n-0": 2}, "goodput": goodput}}]);
    let relaxed = |jobs| solved(&document(pair(), jobs)).relaxed;
    let told = relaxed(held(Value::Null));
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].rule, "the goodput table of a");
    assert!(told[0].reason.contains("no row for the 2 GPUs"), "{told:?}");
    assert!(relaxed(held(json!(1.5))).is_empty(), "the allocation says what it makes there");
}

#[test]
fn what_runs_says_which_row_it_runs_at() {
    let rows = json!([{"gpus": 4, "goodput": 3, "label": "x"}, {"gpus": 4, "goodput": 2, "label": "y"}]);
    let jobs = json!([{"name": "a", "goodput": rows, "allocation": {"nodes": {"n-0": 4}, "label": "y", "goodput": 9}}]);
    let input = round(&document(pair(), jobs));
    let current = input.jobs[0].current.as_ref().expect("it holds GPUs");
    assert_eq!((current.label.as_deref(), current.predicted.goodput.0), (Some("y"), 9.0));
}

#[test]
fn a_pinned_job_and_one_that_cannot_resize_say_so_to_the_planner() {
    let jobs = json!([
        {"name": "a", "gpus": 2, "pinned": "it is saving", "allocation": {"nodes": {"n-0": 2}}},
        {"name": "b", "goodput": {"2": 1, "4": 2}, "reconfigure": "never"},
    ]);
    let input = round(&document(pair(), jobs));
    assert_eq!(input.jobs[0].freedom, Freedom::Fixed { reason: "it is saving".into() });
    assert_eq!(input.jobs[1].capabilities.layout, Flexibility::Never);
}

#[test]
fn a_reservation_that_is_over_is_left_out() {
    let reservation = |from: i64, until: i64| json!({"name": "r", "nodes": ["n-1"], "from_seconds": from, "until_seconds": until, "jobs": ["a", "gone"]});
    let mut round_of = document(pair(), json!([{"name": "a", "gpus": 1}]));
    round_of["reservations"] = json!([reservation(-20, -10), reservation(-20, 10)]);
    let input = round(&round_of);
    assert_eq!(input.reservations.len(), 1);
    assert_eq!(input.reservations[0].jobs.len(), 1);
}

#[test]
fn handing_a_reply_back_changes_nothing() {
    let rows = json!({"2": 1.9, "4": 3.6, "8": 6.0});
    let mut jobs = json!([{"name": "a", "goodput": rows}, {"name": "b", "goodput": rows}, {"name": "c", "gpus": 2}]);
    let first = solved(&document(pair(), jobs.clone()));
    for (job, decided) in jobs.as_array_mut().expect("a list").iter_mut().zip(&first.jobs) {
        job["allocation"] = serde_json::to_value(&decided.allocation).expect("JSON");
    }
    let second = solved(&document(pair(), jobs));
    assert!(second.moves.is_empty(), "{:?}", second.moves);
    let allocations =
        |reply: &Reply| reply.jobs.iter().map(|job| job.allocation.clone()).collect::<Vec<Option<Allocation>>>();
    assert_eq!(allocations(&first), allocations(&second));
}

#[test]
fn a_reply_names_nodes_and_indices() {
    let reply = solved(&document(pair(), json!([{"name": "a", "gpus": 8}])));
    let allocation = reply.jobs[0].allocation.as_ref().expect("it starts");
    assert_eq!(allocation.nodes, [("n-0".into(), Held::Indices((0..8).collect()))]);
    assert_eq!((allocation.gpus, allocation.gpu_type.as_deref()), (Some(8), Some("H100")));
    assert_eq!(reply.moves[0].kind, "start");
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let job = |more: Value| {
        let mut job = json!({"name": "a", "goodput": {"2": 1, "4": 2}});
        for (key, value) in more.as_object().expect("a mapping") {
            job[key] = value.clone();
        }
        document(pair(), json!([job]))
    };
    let with = |key: &str, value: Value| {
        let mut document = document(pair(), json!([{"name": "a", "gpus": 2}]));
        document[key] = value;
        document
    };
    let training = json!({"model": "llama-3-8b", "reference_batch": "4Mi tokens"});
    let cases = [
        document(json!([{"gpu_type": "A", "gpus_per_node": 0}]), json!([])),
        document(json!([{"gpu_type": "A", "gpus_per_node": 8, "count": 1_000_000}]), json!([])),
        document(json!([{"gpu_type": "A", "gpus_per_node": 8}, {"gpu_type": "A", "gpus_per_node": 8}]), json!([])),
        document(
            json!([{"gpu_type": "A", "gpus_per_node": 8, "broken": {"A-0": [8], "A-1": [0]}, "draining": ["x"]}]),
            json!([]),
        ),
        document(json!([{"gpu_type": "", "gpus_per_node": 8, "count": 2, "names": ["", "y"]}]), json!([])),
        document(pair(), json!([{"name": "a", "gpus": 1}, {"name": "a", "gpus": 1}, {"name": "", "gpus": 0}])),
        document(pair(), json!([{"name": "a"}])),
        document(pair(), json!([{"name": "a", "gpus": {"min": 1, "max": 4}}])),
        document(pair(), json!([{"name": "a", "gpus": {"max": 4}, "training": {"model": "lama-3-8b"}}])),
        document(pair(), json!([{"name": "a", "training": training}])),
        document(pair(), json!([{"name": "a", "gpus": {}, "training": training, "reconfigure": "never"}])),
        document(
            pair(),
            json!([
                {"name": "a", "gpus": 2, "allocation": {"nodes": {"n-0": [0, 1]}}},
                {"name": "b", "gpus": 2, "allocation": {"nodes": {"n-0": [1, 9], "n-1": [2, 2]}}},
                {"name": "c", "gpus": 8, "allocation": {"nodes": {"n-0": 8}}},
            ]),
        ),
        job(json!({"goodput": []})),
        job(
            json!({"goodput": [{"gpus": 0, "goodput": 1}, {"gpus": 4, "nodes": 3, "goodput": 0}, {"gpus": 4, "goodput": 1, "watts_per_gpu": -1}]}),
        ),
        job(
            json!({"goodput": [{"gpus": 4, "goodput": 1}, {"gpus": 4, "goodput": 2}, {"gpus": 4, "goodput": 2, "label": "x"}]}),
        ),
        job(json!({"training": training})),
        job(json!({"gpus": 3})),
        job(json!({"gpus": {"min": 4, "max": 2}})),
        job(json!({"gpus": {"min": 5, "max": 7}})),
        job(
            json!({"pinned": true, "age_seconds": -1, "remaining": -1, "attained_gpu_seconds": 1e300, "budget_gpu_seconds": -5}),
        ),
        job(json!({"avoid": ["nowhere"], "allocation": {"nodes": {"gone": 2}}})),
        job(json!({"allocation": {"nodes": {}}})),
        job(json!({"allocation": {"nodes": {"n-0": 0}}})),
        job(json!({"allocation": {"nodes": {"n-0": 2}, "gpus": 3, "gpu_type": "A100"}})),
        job(
            json!({"allocation": {"nodes": {"n-0": 2}, "configuration": {"layout": {"dp": 0, "tp": 1, "pp": 1}, "micro_batch_sequences": 1, "global_batch_sequences": 0}}}),
        ),
        with("projects", json!([{"name": "p", "parent": "q"}, {"name": "p", "weight": 0}, {"name": "", "usage": -1}])),
        with("projects", json!([{"name": "p", "parent": "q"}, {"name": "q", "parent": "p"}])),
        with("reservations", json!([{"name": "r", "nodes": ["x"], "from_seconds": 5, "until_seconds": 5}])),
        with(
            "policy",
            json!({"power": 2, "epsilon": 0, "horizon_seconds": 0, "patience_seconds": -1, "node_budget": 0, "power_cap": {"watts": -1}}),
        ),
    ];
    let answers: Vec<String> = cases.iter().map(|case| format!("{case}\n{}\n", refused(case))).collect();
    insta::assert_snapshot!(answers.join("\n"));
}

#[test]
fn a_row_of_the_caller_binds_and_is_named_with_its_price() {
    let labelled = json!({"team": "x"});
    let job = |name: &str| json!({"name": name, "gpus": {"min": 1, "max": 8}, "labels": labelled, "goodput": {"1": 1, "2": 1.9, "4": 3.5}});
    let mut round_of = document(pair(), json!([job("a"), job("b")]));
    let gpus =
        |reply: &Reply| -> Vec<u32> { reply.jobs.iter().filter_map(|job| job.allocation.as_ref()?.gpus).collect() };
    assert_eq!(gpus(&solved(&round_of)), [4, 4]);
    round_of["policy"] = json!({"rows": [{"name": "team-x", "amount": {"label": "team=x"}, "at_most": 4}]});
    let reply = solved(&round_of);
    assert_eq!(gpus(&reply), [2, 2]);
    assert!(reply.scarce.iter().any(|one| one.of == "the row team-x" && one.price > 0.0), "{:?}", reply.scarce);
    let limits = &reply.jobs[0].limits;
    assert!(limits.iter().any(|limit| limit.of == "the row team-x" && limit.price > 0.0), "{limits:?}");
}

#[test]
fn a_row_of_what_the_document_does_not_have_is_refused() {
    let mut round_of = document(pair(), json!([{"name": "a", "gpus": 1, "project": "nlp"}]));
    let mut told = |amount: Value| {
        round_of["policy"] = json!({"rows": [{"name": "few", "amount": amount, "at_most": 0}]});
        converted(&round_of).map_or_else(|wrong| wrong.to_string(), |_| "fine".into())
    };
    assert_eq!(told(json!({"gpu_type": "H100", "project": "nlp", "node": "n-0"})), "fine");
    assert!(told(json!({"gpu_type": "A100"})).contains("policy.rows[0].amount.gpu_type: no node has GPUs of type"));
    assert!(told(json!({"project": "nlq"})).contains("no project is called \"nlq\", and no job is of it"));
    assert!(told(json!({"node": "n-7"})).contains("no node is called \"n-7\""));
    assert!(told(json!({})).contains("at least one of gpu_type, project, label and node"));
}

#[test]
fn a_job_of_no_listed_project_is_refused() {
    let mut round_of = document(pair(), json!([{"name": "a", "gpus": 1, "project": "nlq"}]));
    assert!(converted(&round_of).is_ok(), "without projects the word is only a word");
    round_of["projects"] = json!([{"name": "nlp"}]);
    assert!(refused(&round_of).contains("no project is called \"nlq\""));
}
