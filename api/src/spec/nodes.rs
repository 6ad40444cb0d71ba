//! `resources.nodes`: nodes a job takes, by name and by label, and those it does not.

use std::collections::{BTreeMap, BTreeSet};

use headway_types::spec::{MOST_NODE_LABELS, NodeChoice, NodeSelector, check_node_label};
use serde_json::{Value, json};

use super::section::{Section, one_or_many, text};

const EXAMPLE: &str =
    "as in nodes: {include: [node-1, node-2]}, nodes: {exclude: [node-7]} or nodes: {labels: {disk: nvme}}";

/// Reads `nodes` of the resources. A name that is no node's (yet) is no error here: the cluster is asked later.
pub(super) fn read(resources: &Section<'_>) -> NodeChoice {
    let mut choice = NodeChoice::default();
    let Some(value) = resources.get("nodes") else { return choice };
    let path = resources.field("nodes");
    let known = ["include", "exclude", "labels"];
    let Some(section) = Section::open(&path, value, &known, &[], resources.findings()) else { return choice };
    if !known.iter().any(|key| section.has(key)) {
        resources.wrong_hint("nodes", "must include, exclude or label", EXAMPLE);
    }
    choice.exclude = names(&section, "exclude");
    choice.only = NodeSelector { include: names(&section, "include"), labels: labels(&section) };
    if section.get("include").is_some_and(|value| value.as_array().is_some_and(Vec::is_empty)) {
        section.wrong_hint("include", "names no node, so the job could never run", "name some, or take it out");
    }
    let mut both = choice.only.include.intersection(&choice.exclude);
    if let Some(name) = both.next() {
        section.wrong("include", format!("\"{name}\" is also in exclude"));
    }
    choice
}

/// As it is read; `None`: it chooses nothing.
pub(super) fn to_json(choice: &NodeChoice) -> Option<Value> {
    let mut nodes = json!({});
    if !choice.only.include.is_empty() {
        nodes["include"] = json!(choice.only.include);
    }
    if !choice.exclude.is_empty() {
        nodes["exclude"] = json!(choice.exclude);
    }
    if !choice.only.labels.is_empty() {
        nodes["labels"] = json!(choice.only.labels);
    }
    nodes.as_object().is_some_and(|nodes| !nodes.is_empty()).then_some(nodes)
}

fn names(section: &Section<'_>, key: &str) -> BTreeSet<String> {
    let Some(value) = section.get(key) else { return BTreeSet::new() };
    let field = section.field(key);
    one_or_many(value).iter().filter_map(|one| text(one, &field, section.findings())).collect()
}

fn labels(section: &Section<'_>) -> BTreeMap<String, String> {
    let labels = section.words("labels", "write a value, as in labels: {disk: nvme}").unwrap_or_default();
    if labels.len() > MOST_NODE_LABELS {
        section.wrong("labels", format!("a node has {MOST_NODE_LABELS} labels at most, not {}", labels.len()));
    }
    for (name, value) in &labels {
        if let Err(why) = check_node_label(name, value) {
            section.wrong(&format!("labels.{name}"), why);
        }
    }
    labels.into_iter().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::spec::{read_yaml, to_json};

    fn with(nodes: &str) -> String {
        format!("version: 1\nname: a\nresources: {{gpus: 1, nodes: {nodes}}}\nrun: {{command: x}}\n")
    }

    #[test]
    fn nodes_are_chosen_by_name_and_label() {
        let spec = read_yaml(&with("{include: [n1, n2], exclude: n3, labels: {disk: nvme, gen: '4'}}")).unwrap();
        let nodes = &spec.role().nodes;
        assert_eq!(nodes.only.in_words(), "n1 or n2, labelled disk=nvme, gen=4");
        assert!(nodes.exclude.contains("n3"));
        let written = to_json(&spec);
        assert_eq!(crate::spec::read_json(&written).unwrap(), spec, "{written}");
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        let wrong = [
            "{}",
            "{include: []}",
            "{include: [n1], exclude: [n1]}",
            "{labels: {disk: ''}}",
            "{labels: [nvme]}",
            "{label: {a: b}}",
        ];
        let told: Vec<String> = wrong.iter().map(|one| read_yaml(&with(one)).unwrap_err().to_string()).collect();
        insta::assert_snapshot!(told.join("\n"));
    }
}
