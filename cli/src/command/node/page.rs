//! `headway node describe`: one node whole.

use headway_api::v1::{Node, NodeReservation};

use crate::output::moment;

/// A page for people.
pub fn text(node: &Node) -> String {
    let mut lines = vec![format!("{} ({})", node.name, node.id)];
    let mut line = |name: &str, value: Option<String>| {
        lines.extend(value.map(|value| format!("  {name:<12} {value}")));
    };
    let since =
        |at: Option<chrono::DateTime<chrono::Utc>>| at.map(|at| format!(" since {}", moment(at))).unwrap_or_default();
    let why = |why: &Option<String>| why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let by = |by: &Option<String>| by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    line("availability", Some(format!("{}{}", node.availability, since(node.availability_since))));
    let policy =
        format!("{}{}{}{}", node.policy, by(&node.policy_by), since(node.policy_since), why(&node.policy_reason));
    line("policy", Some(policy));
    line("leaves", node.leaving_reason.clone());
    line("standing", Some(format!("{}, health {:.2}{}", node.standing, node.health_score, why(&node.standing_reason))));
    let troubles: Vec<&str> = node.conditions.iter().chain(&node.remarks).map(String::as_str).collect();
    line("trouble", (!troubles.is_empty()).then(|| troubles.join("; ")));
    for one in &node.reservations {
        line("reserved", Some(reserved(one)));
    }
    let healthy = node.gpus.iter().filter(|gpu| gpu.healthy).count();
    line("GPUs", Some(format!("{healthy} of {} healthy, {}", node.gpus.len(), node.gpu_type)));
    let isolated = match (node.isolated, &node.not_isolated_reason) {
        (true, _) => "isolated: jobs open no GPU that they were not granted".to_owned(),
        (false, Some(reason)) => format!("not isolated: {reason}"),
        (false, None) => "not isolated".to_owned(),
    };
    line("isolation", Some(isolated));
    line("runs as", node.runs_as.as_ref().map(|user| account(user, node.takes_all_owners)));
    line("fabric", Some(node.fabric_domain.clone()));
    let gib = |bytes: u64| format!("{:.0} GiB", bytes as f64 / (1u64 << 30) as f64);
    let shm = node.shm_bytes.map(|bytes| format!(", {} shared", gib(bytes))).unwrap_or_default();
    let disk = node.local_disk_bytes.map(|bytes| format!(", {} disk", gib(bytes))).unwrap_or_default();
    line("host", Some(format!("{} CPUs, {}{shm}{disk}", node.cpus, gib(node.memory_bytes))));
    line("address", Some(node.address.clone()));
    line("agent", Some(node.agent_version.clone()));
    line("registered", Some(moment(node.registered_at)));
    line("labels", (!node.labels.is_empty()).then(|| labels(node)));
    lines.push("GPUs".into());
    let idle = match node.reservations.iter().find(|one| one.active) {
        Some(one) if one.maintenance => format!("closed for the maintenance {}", one.name),
        Some(one) => format!("free for members of {}", one.name),
        None => "free".to_owned(),
    };
    for gpu in &node.gpus {
        let held = gpu.job_name.as_ref().map_or_else(|| idle.clone(), |name| format!("held by {name}"));
        let state = gpu.broken_cause.as_ref().map_or(held, |cause| format!("broken: {cause}"));
        lines.push(format!("  {:>3} {state}", gpu.index));
    }
    lines.join("\n")
}

/// "for r9 from 2026-03-01T12:00:00Z until 2026-03-01T16:00:00Z".
pub fn reserved(one: &NodeReservation) -> String {
    let purpose = if one.maintenance { format!("the maintenance {}", one.name) } else { one.name.clone() };
    let from = if one.active { String::new() } else { format!(" from {}", moment(one.from)) };
    let why = one.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    format!("for {purpose}{from} until {}{why}", moment(one.until))
}

/// "ada, for jobs of ada alone".
fn account(user: &str, takes_all_owners: bool) -> String {
    if takes_all_owners {
        return format!("{user}, for jobs of all owners: each of them can read what {user} can read");
    }
    format!("{user}, for jobs of {user} alone; restart its agent with --allow-others to take jobs of all owners")
}

/// "disk=nvme, rack=a"; what operators say and its agent does not is marked.
fn labels(node: &Node) -> String {
    let told = node.labels.iter().map(|(name, value)| {
        let own = node.declared_labels.get(name) == Some(value);
        format!("{name}={value}{}", if own { "" } else { " (by an operator)" })
    });
    told.collect::<Vec<_>>().join(", ")
}
