//! What the reader takes, and how it refuses.

use serde_json::json;

use super::*;

fn refused(text: &str) -> String {
    read(text).expect_err("the document is wrong").to_string()
}

fn job(value: serde_json::Value) -> Job {
    let text = json!({"version": 1, "nodes": [], "jobs": [value]}).to_string();
    read(&text).expect("a document").jobs.remove(0)
}

#[test]
fn a_few_lines_are_a_round() {
    let document = read(
        r#"{"version": 1, "nodes": [{"gpu_type": "H100", "gpus_per_node": 8}], "jobs": [{"name": "a", "gpus": 8}]}"#,
    );
    let document = document.expect("a round");
    assert_eq!(document.jobs[0].gpus, Some(GpuRequest::Exactly(8)));
    assert_eq!(document.policy, Policy::default());
}

#[test]
fn goodput_is_a_list_of_rows_or_a_mapping_of_sizes() {
    let rows =
        job(json!({"name": "a", "goodput": [{"gpus": 4, "goodput": 1.5}, {"gpus": 8, "goodput": 2, "label": "x"}]}));
    let points = job(json!({"name": "a", "goodput": {"4": 1.5, "8": 2}}));
    let sizes =
        |job: Job| job.goodput.expect("goodput").0.iter().map(|way| (way.gpus, way.goodput)).collect::<Vec<_>>();
    assert_eq!(sizes(rows), [(4, 1.5), (8, 2.0)]);
    assert_eq!(sizes(points), [(4, 1.5), (8, 2.0)]);
}

#[test]
fn gpus_are_a_number_or_a_range() {
    assert_eq!(job(json!({"name": "a", "gpus": 8})).gpus, Some(GpuRequest::Exactly(8)));
    let range = GpuRequestRange { min: Some(2), max: Some(8), sizes: Vec::new() };
    assert_eq!(job(json!({"name": "a", "gpus": {"min": 2, "max": 8}})).gpus, Some(GpuRequest::Range(range)));
}

#[test]
fn an_allocation_keeps_the_order_of_its_nodes() {
    let text = r#"{"version":1,"nodes":[],"jobs":[{"name":"a","gpus":3,"allocation":{"nodes":{"z":[0,1],"b":1}}}]}"#;
    let allocation = read(text).expect("a document").jobs.remove(0).allocation.expect("an allocation");
    assert_eq!(allocation.nodes, [("z".into(), Held::Indices(vec![0, 1])), ("b".into(), Held::Count(1))]);
}

#[test]
fn an_allocation_reads_back_as_it_was_written() {
    let written = Allocation {
        nodes: vec![("z".into(), Held::Indices(vec![3, 1])), ("a".into(), Held::Count(2))],
        gpu_type: Some("H100".into()),
        gpus: Some(4),
        label: Some("tp2".into()),
        configuration: None,
        goodput: Some(1.25),
    };
    let text = serde_json::to_string(&written).expect("JSON");
    assert_eq!(read_json::<Allocation>(&text), Ok(written));
}

#[test]
fn null_patience_is_not_absent_patience() {
    let policy = |text: &str| read_json::<Policy>(text).expect("a policy").patience_seconds;
    assert_eq!(policy("{}"), None);
    assert_eq!(policy(r#"{"patience_seconds": null}"#), Some(None));
    assert_eq!(policy(r#"{"patience_seconds": 60}"#), Some(Some(60.0)));
}

#[test]
fn what_is_wrong_is_said_with_its_place_and_a_way_out() {
    let cases = [
        "",
        "[]",
        "{}",
        r#"{"version": 2, "nodes": []}"#,
        r#"{"version": 1, "nodes": [], "nodes": []}"#,
        r#"{"version": 1, "nodes": []} trailing"#,
        r#"{"version": 1, "nodes": [{"gpu_type": "H100", "gpus_per_node": 8, "cont": 2}]}"#,
        r#"{"version": 1, "nodes": [{"gpu_type": "H100", "gpus_per_node": -8}]}"#,
        r#"{"version": 1, "nodes": [{"gpu_type": "H100", "gpus_per_node": 4294967296}]}"#,
        r#"{"version": 1, "nodes": [], "jobs": [{"gpus": 8}]}"#,
        r#"{"version": 1, "nodes": [], "jobs": [{"name": "a", "gpus": 2.5}]}"#,
        r#"{"version": 1, "nodes": [], "jobs": [{"name": "a", "gpus": {"mim": 2}}]}"#,
        r#"{"version": 1, "nodes": [], "jobs": [{"name": "a", "priority": 101}]}"#,
        r#"{"version": 1, "nodes": [], "jobs": [{"name": "a", "priority": "urgent"}]}"#,
        r#"{"version": 1, "nodes": [], "jobs": [{"name": "a", "pinned": 1}]}"#,
        r#"{"version": 1, "nodes": [], "jobs": [{"name": "a", "goodput": 3}]}"#,
        r#"{"version": 1, "nodes": [], "jobs": [{"name": "a", "goodput": {"x": 1}}]}"#,
        r#"{"version": 1, "nodes": [], "jobs": [{"name": "a", "goodput": [{"gpus": 4, "goodput": NaN}]}]}"#,
        r#"{"version": 1, "nodes": [], "jobs": [{"name": "a", "goodput": [{"gpus": 4, "goodput": -Infinity}]}]}"#,
        r#"{"version": 1, "nodes": [], "jobs": [{"name": "a", "goodput": [{"gpus": 4, "goodput": 1e999}]}]}"#,
        r#"{"version": 1, "nodes": [], "jobs": [{"name": "a", "allocation": {"nodes": {"x": "all"}}}]}"#,
        r#"{"version": 1, "nodes": [], "policy": {"objective": "best"}}"#,
    ];
    let answers: Vec<String> = cases.iter().map(|text| format!("{text}\n  -> {}", refused(text))).collect();
    insta::assert_snapshot!(answers.join("\n"));
}

mod any_text {
    use proptest::prelude::*;

    const GOOD: &str = include_str!("../../../examples/plan-solve/round.json");

    proptest! {
        #[test]
        fn is_read_or_refused(text in ".{0,200}") {
            super::read(&text).ok();
        }

        #[test]
        fn near_a_good_one_is_read_or_refused(at in 0..GOOD.len(), other in any::<char>(), cut in any::<bool>()) {
            let mut text: String = GOOD.chars().take(at).collect();
            text.push(other);
            if !cut {
                text.extend(GOOD.chars().skip(at + 1));
            }
            super::read(&text).ok();
        }
    }
}
