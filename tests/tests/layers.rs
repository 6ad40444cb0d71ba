//! Imports go one way (docs/architecture.md). Read from the manifests, so that a forbidden edge fails here before
//! anyone can write the `use`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What each crate may import; the order is left to right.
const ALLOWED: &[(&str, &[&str])] = &[
    ("core/types", &[]),
    ("core/goodput", &["types"]),
    ("core/solver", &[]),
    ("core/planner", &["types", "goodput", "solver"]),
    ("core/engine", &["types", "goodput", "planner"]),
    ("core/node", &["types"]),
    ("core/forecast", &["types", "goodput", "planner", "engine"]),
    ("core/emulation", &["types", "goodput"]),
    ("fuzz", &[]),
    ("api", &["types", "fuzz"]),
    ("scheduler", &["types", "goodput", "planner", "engine", "forecast", "fuzz", "api"]),
    ("agent", &["types", "node", "emulation", "fuzz", "api"]),
    ("estimator", &["types", "goodput"]),
    ("calibration", &["types", "goodput"]),
    ("sim", &["types", "goodput", "solver", "planner", "engine", "node", "forecast", "emulation"]),
    ("evidence", &["types", "goodput", "planner", "engine", "emulation", "sim"]),
];

/// Crates that may import everything.
const FREE: &[&str] = &["cli", "tests"];

fn imports(root: &Path, member: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root.join(member).join("Cargo.toml")).expect("every member has a manifest");
    let manifest: BTreeMap<String, toml::Value> = toml::from_str(&text).expect("manifests are TOML");
    ["dependencies", "dev-dependencies", "build-dependencies"]
        .iter()
        .filter_map(|section| manifest.get(*section)?.as_table())
        .flat_map(|table| table.keys())
        .filter_map(|name| name.strip_prefix("headway-").map(str::to_owned))
        .collect()
}

#[test]
fn imports_go_one_way() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ stands in the workspace");
    for (member, allowed) in ALLOWED {
        let allowed: BTreeSet<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
        let forbidden: Vec<_> = imports(root, member).difference(&allowed).cloned().collect();
        assert!(forbidden.is_empty(), "{member} must not import {forbidden:?}");
    }
}

#[test]
fn every_member_has_its_place() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ stands in the workspace");
    let text = std::fs::read_to_string(root.join("Cargo.toml")).expect("the workspace has a manifest");
    let manifest: toml::Value = toml::from_str(&text).expect("the manifest is TOML");
    let members = manifest["workspace"]["members"].as_array().expect("members are listed");
    let known: BTreeSet<&str> = ALLOWED.iter().map(|(name, _)| *name).chain(FREE.iter().copied()).collect();
    for member in members {
        let name = member.as_str().expect("members are strings");
        assert!(known.contains(name), "{name} is not in the table of docs/architecture.md");
    }
}
