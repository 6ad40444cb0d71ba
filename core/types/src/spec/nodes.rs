//! Which nodes a job takes.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::word::words;

/// Which nodes a job takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeChoice {
    /// Names of nodes it must not start on.
    pub exclude: BTreeSet<String>,
    /// Of the others it starts on these only.
    #[serde(skip_serializing_if = "NodeSelector::is_any")]
    pub only: NodeSelector,
    pub topology: Topology,
}

impl NodeChoice {
    /// Whether it may start on a node of this name and these labels.
    #[must_use]
    pub fn takes(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        !self.exclude.contains(name) && self.only.takes(name, labels)
    }
}

words! {
    /// How a job of several nodes takes racks (fabric domains).
    #[derive(Default)]
    pub enum Topology {
        /// One where that costs little.
        #[default]
        PreferRack,
        /// Only within one.
        RequireRack,
    }
}

/// Nodes of these names, where any are named, that carry all of these labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeSelector {
    pub include: BTreeSet<String>,
    pub labels: BTreeMap<String, String>,
}

impl NodeSelector {
    /// Whether it bounds nothing.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.include.is_empty() && self.labels.is_empty()
    }

    /// Whether a node of this name and these labels is among those meant.
    #[must_use]
    pub fn takes(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        (self.include.is_empty() || self.include.contains(name))
            && self.labels.iter().all(|(name, value)| labels.get(name) == Some(value))
    }

    /// "node-1 or node-2, labelled disk=nvme"; long lists are cut.
    #[must_use]
    pub fn in_words(&self) -> String {
        const MOST: usize = 4;
        let mut names: Vec<&str> = self.include.iter().take(MOST).map(String::as_str).collect();
        let more = self.include.len().saturating_sub(MOST);
        let others = format!("{more} others");
        if more > 0 {
            names.push(&others);
        }
        let labels: Vec<String> = self.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        match (names.is_empty(), labels.is_empty()) {
            (true, true) => "any node".into(),
            (false, true) => names.join(" or "),
            (true, false) => format!("nodes labelled {}", labels.join(", ")),
            (false, false) => format!("{}, labelled {}", names.join(" or "), labels.join(", ")),
        }
    }
}

/// Most labels that a node carries.
pub const MOST_NODE_LABELS: usize = 64;
const LONGEST: usize = 63;

/// Whether these may be name and value of a node's label; if not, why.
pub fn check_node_label(name: &str, value: &str) -> Result<(), String> {
    let plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/'));
    let begins = |text: &str| text.chars().next().is_some_and(|first| first.is_ascii_alphanumeric());
    let bounds = format!("of 1 to {LONGEST} letters, digits, '-', '_', '.' or '/', beginning with a letter or digit");
    for (what, text) in [("a name", name), ("a value", value)] {
        if !begins(text) || !plain(text) || text.len() > LONGEST {
            return Err(format!(
                "\"{}\" is no label's: {what} is {bounds}",
                text.chars().take(LONGEST).collect::<String>()
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(names: &[&str], labels: &[(&str, &str)]) -> NodeSelector {
        NodeSelector {
            include: names.iter().map(|name| (*name).to_owned()).collect(),
            labels: labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        }
    }

    #[test]
    fn a_selector_takes_named_nodes_that_carry_all_labels() {
        let labels = selector(&[], &[("disk", "nvme"), ("rack", "a")]).labels;
        for (of, taken) in [
            (selector(&[], &[]), true),
            (selector(&["n1"], &[]), true),
            (selector(&["n2"], &[]), false),
            (selector(&[], &[("disk", "nvme")]), true),
            (selector(&[], &[("disk", "ssd")]), false),
            (selector(&[], &[("gpu", "x")]), false),
            (selector(&["n1", "n2"], &[("rack", "a"), ("disk", "nvme")]), true),
        ] {
            assert_eq!(of.takes("n1", &labels), taken, "{of:?}");
        }
    }

    #[test]
    fn a_selector_in_words_is_never_long() {
        let many: Vec<String> = (1..=9).map(|number| format!("n{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(selector(&many, &[]).in_words(), "n1 or n2 or n3 or n4 or 5 others");
        assert_eq!(selector(&["n1"], &[("disk", "nvme")]).in_words(), "n1, labelled disk=nvme");
        assert_eq!(selector(&[], &[("disk", "nvme")]).in_words(), "nodes labelled disk=nvme");
    }

    #[test]
    fn a_choice_of_an_earlier_release_takes_all_but_what_it_excludes() {
        let read: NodeChoice =
            serde_json::from_str(r#"{"exclude":["n1"],"topology":"prefer_rack"}"#).unwrap_or_default();
        assert!(read.only.is_any() && read.exclude.contains("n1"));
    }

    #[test]
    fn labels_are_short_and_plain() {
        assert!(check_node_label("example.org/disk", "nvme-2").is_ok());
        let long = "x".repeat(64);
        for (name, value) in [("", "a"), ("a", ""), ("a b", "c"), ("a", "b=c"), ("-a", "b"), (&long, "a"), ("a", "ü")]
        {
            assert!(check_node_label(name, value).is_err(), "{name} {value}");
        }
    }
}
