//! Nodes that jobs cannot use though nobody wanted that.

use std::collections::BTreeMap;

use headway_types::{GpuHealth, NodeId, Timestamp};

use super::{Finding, Kind, Subject, lasting, standing};
use crate::record::{Availability, Standing};
use crate::view::{NodeView, View};

pub(super) fn findings(view: &View) -> Vec<Finding<'_>> {
    let left_out: BTreeMap<NodeId, &str> =
        view.verdicts.nodes_left_out.iter().map(|one| (one.node, one.reason.as_str())).collect();
    let of = |node| gone(view, node).or_else(|| withheld(view, node, left_out.get(&node.node.inventory.node).copied()));
    view.nodes.values().filter_map(|node| of(node)).collect()
}

fn finding<'v>(
    node: &'v NodeView,
    kind: Kind,
    since: Option<Timestamp>,
    told: impl FnOnce() -> (String, String) + 'v,
) -> Finding<'v> {
    let inventory = &node.node.inventory;
    let subject = Subject::Node { id: inventory.node, name: inventory.name.clone() };
    Finding { kind, subject, since, at_stake: None, told: Box::new(told) }
}

/// Out of contact.
fn gone<'v>(view: &'v View, node: &'v NodeView) -> Option<Finding<'v>> {
    let (kind, since) = match node.node.availability {
        Availability::Lost { since } => (Kind::NodeLost, since),
        Availability::Unreachable { since } => (Kind::NodeUnreachable, since),
        Availability::Registering { .. } | Availability::Available => return None,
    };
    let inventory = &node.node.inventory;
    let (name, gpus) = (&inventory.name, inventory.healthy());
    let told = move || {
        let lasting = lasting(view, since);
        match kind {
            Kind::NodeLost => (
                format!("Node {name} with {} has been given up as lost {lasting}", gpus.words()),
                format!("Bring its agent back, or forget it: headway node delete {name}"),
            ),
            _ => (
                format!("Node {name} with {} is out of contact {lasting}", gpus.words()),
                format!("Bring its agent back; if nothing runs there any more: headway node lost {name}"),
            ),
        }
    };
    let at_stake = Some(standing(view, gpus, since));
    Some(Finding { at_stake, ..finding(node, kind, Some(since), told) })
}

/// In contact, and not used, or not in full.
fn withheld<'v>(view: &'v View, node: &'v NodeView, left_out: Option<&'v str>) -> Option<Finding<'v>> {
    let inventory = &node.node.inventory;
    let (name, gpus) = (&inventory.name, inventory.healthy());
    if let Standing::Quarantined { since, until, reason, .. } = &node.node.health.standing {
        let at_stake = Some(standing(view, gpus, *since));
        let told = move || {
            let left = until.since(view.at).words();
            let headline = format!("Node {name} with {} is in quarantine for another {left}: {reason}", gpus.words());
            (headline, format!("Find out what ails it; take it back at once: headway node uncordon {name}"))
        };
        return Some(Finding { at_stake, ..finding(node, Kind::NodeQuarantined, Some(*since), told) });
    }
    if let Some(reason) = left_out {
        let told = move || {
            let headline = format!("Rounds leave node {name} with {} out: {reason}", gpus.words());
            (headline, "Correct what its agent reports; headway node list -o wide shows it".into())
        };
        return Some(finding(node, Kind::NodeLeftOut, None, told));
    }
    if let Some(ailing) = inventory.conditions.iter().find(|one| one.kind.keeps_work_away()) {
        let told = move || {
            let headline = format!("Nothing new starts on node {name} with {}: {}", gpus.words(), ailing.message);
            (headline, format!("Make room on {name}; it takes work again by itself"))
        };
        return Some(finding(node, Kind::NodeAiling, None, told));
    }
    let broken: Vec<&str> = inventory
        .gpus
        .iter()
        .filter_map(|gpu| match &gpu.health {
            GpuHealth::Broken(why) => Some(why.as_str()),
            GpuHealth::Healthy => None,
        })
        .collect();
    let first = *broken.first()?;
    let told = move || {
        let are = if broken.len() == 1 { "1 GPU is".into() } else { format!("{} GPUs are", broken.len()) };
        let of = inventory.gpus.len();
        let headline = format!("{are} broken of {of} on node {name}: {first}");
        (headline, format!("Have it looked after: headway node drain {name}"))
    };
    Some(finding(node, Kind::GpusBroken, None, told))
}
