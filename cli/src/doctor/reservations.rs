//! Reservations that keep idle GPUs from jobs that wait, that nobody uses, or whose nodes are gone. Pure.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use headway_api::v1::{AvailabilityKind, Node, NodePolicyKind, Queue, Reservation};

use super::Finding;
use crate::output::{duration, gpus};

const CHECK: &str = "reservations";
/// How long before it begins a reservation is named.
const SOON: TimeDelta = TimeDelta::hours(24);
/// How long a reservation may hold GPUs before its members use one.
const UNUSED: TimeDelta = TimeDelta::hours(1);

/// Judges the reservations that are not over. `queue` has the moment, the jobs that wait, and what the newest plan keeps free.
pub fn judge_reservations(all: &[Reservation], nodes: &[Node], queue: &Queue) -> Vec<Finding> {
    let mut findings = Vec::new();
    for one in all {
        let is_here = |node: &&Node| one.nodes.contains(&node.name) && node.availability != AvailabilityKind::Lost;
        let here: Vec<&Node> = nodes.iter().filter(is_here).collect();
        findings.extend(judge_nodes(one, &here));
        // The nodes of a maintenance window are meant to be idle.
        if !one.maintenance {
            let gpus = ReservedGpus::new(one, &here, queue);
            findings.extend(if one.from <= queue.at { gpus.judge_active() } else { gpus.judge_upcoming() });
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, found_none(all.len())));
    }
    findings
}

fn found_none(count: usize) -> String {
    match count {
        0 => "there are none".to_owned(),
        1 => "the only one keeps no idle GPU from jobs that wait".to_owned(),
        many => format!("none of {many} keeps idle GPUs from jobs that wait"),
    }
}

/// Names reserved nodes that the cluster does not have, or has lost.
fn judge_nodes(one: &Reservation, here: &[&Node]) -> Option<Finding> {
    let is_gone = |name: &&String| here.iter().all(|node| node.name != **name);
    let gone: Vec<&str> = one.nodes.iter().filter(is_gone).map(String::as_str).collect();
    if gone.is_empty() {
        return None;
    }
    let (name, names) = (&one.name, gone.join(", "));
    let found = match gone.len() == one.nodes.len() {
        true => format!("{name} has no node left: {names} are lost or not there"),
        false => format!("{name} reserves nodes that are lost or not there: {names}"),
    };
    let advice = format!("reserve other nodes under another name, then `headway reservation delete {name}`");
    Some(Finding::warn(CHECK, found, advice))
}

/// One reservation with the GPUs of its nodes and the jobs that could use them.
struct ReservedGpus<'a> {
    reservation: &'a Reservation,
    at: DateTime<Utc>,
    /// Healthy GPUs of its nodes that no job holds, of types that jobs wait for.
    idle: u32,
    all: u32,
    /// Whether a job holds one of its GPUs.
    is_used: bool,
    /// Jobs that wait for GPUs of its types, in words; empty: there are none.
    waits: String,
    /// Whether the newest plan keeps GPUs idle for it.
    is_kept_free: bool,
}

impl<'a> ReservedGpus<'a> {
    fn new(reservation: &'a Reservation, here: &[&Node], queue: &Queue) -> Self {
        let wanted = |node: &&&Node| queue.totals.by_gpu_type.get(&node.gpu_type).is_some_and(|share| share.jobs > 0);
        let idle: usize = here.iter().filter(wanted).map(|node| idle_gpus(node)).sum();
        let mut waits = BTreeMap::new();
        for node in here.iter().filter(wanted) {
            let share = queue.totals.by_gpu_type[&node.gpu_type];
            let (jobs, verb) = if share.jobs == 1 { ("job", "waits") } else { ("jobs", "wait") };
            let words = format!("{} {jobs} {verb} for at least {} of {}", share.jobs, gpus(share.gpus), node.gpu_type);
            waits.insert(&node.gpu_type, words);
        }
        let kept = queue.room.iter().flatten().filter(|room| room.gpus_reserved > 0);
        let names: Vec<&String> = kept.flat_map(|room| &room.reservations).collect();
        Self {
            reservation,
            at: queue.at,
            idle: idle as u32,
            all: here.iter().map(|node| node.gpus.len() as u32).sum(),
            is_used: here.iter().flat_map(|node| &node.gpus).any(|gpu| gpu.job_id.is_some()),
            waits: Vec::from_iter(waits.into_values()).join(", "),
            is_kept_free: names.contains(&&reservation.name),
        }
    }

    fn judge_active(&self) -> Option<Finding> {
        let name = &self.reservation.name;
        let left = words(self.reservation.until - self.at);
        let held = self.at - self.reservation.from;
        let is_unused = !self.is_used && self.all > 0 && held >= UNUSED;
        let unused = format!("no job holds any of its {}, {} after it began", gpus(self.all), words(held));
        let kept = format!("{name} keeps {} idle for {left} more, and {}", gpus(self.idle), self.waits);
        let found = match (self.idle > 0, is_unused) {
            (false, false) => return None,
            (false, true) => format!("{name} lasts for {left} more, and {unused}"),
            (true, false) => kept,
            (true, true) => format!("{kept}; {unused}"),
        };
        let made_by = &self.reservation.made_by;
        let advice = format!("ask {made_by}; if nobody needs it, `headway reservation delete {name}`");
        Some(Finding::warn(CHECK, found, advice))
    }

    fn judge_upcoming(&self) -> Option<Finding> {
        let Reservation { name, from, until, cost, .. } = self.reservation;
        let keeps_idle = self.is_kept_free && self.idle > 0;
        if self.waits.is_empty() || !(keeps_idle || *from - self.at <= SOON) {
            return None;
        }
        let gpu_hours = cost.as_ref().map(|cost| format!(" ({:.1} GPU-hours)", cost.gpu_hours)).unwrap_or_default();
        let taken = gpus(cost.as_ref().map_or(self.all, |cost| cost.gpus));
        let (begins, lasts, waits) = (words(*from - self.at), words(*until - *from), &self.waits);
        let found = format!("{name} takes {taken} for {lasts}{gpu_hours} in {begins}, and {waits}");
        if !keeps_idle {
            return Some(Finding::ok(CHECK, found));
        }
        let found = format!("{found}; {} are kept idle for it already", gpus(self.idle));
        let advice = "a job that saves, or has a time limit (`headway submit --time`), may start there until then";
        Some(Finding::warn(CHECK, found, advice))
    }
}

/// GPUs of a node on which a job could start, if nobody had reserved it.
fn idle_gpus(node: &Node) -> usize {
    if node.availability != AvailabilityKind::Available || node.policy != NodePolicyKind::Schedulable {
        return 0;
    }
    node.gpus.iter().filter(|gpu| gpu.healthy && gpu.job_id.is_none()).count()
}

fn words(time: TimeDelta) -> String {
    duration(time.num_seconds() as f64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    /// Nodes h1 to h4 with two GPUs each. A job holds one GPU of h2, h4 is lost.
    fn nodes() -> Vec<Node> {
        let known: Vec<Value> = serde_json::from_str(include_str!("../../tests/nodes.json")).unwrap();
        let node = |number: u32| {
            let mut node = known[0].clone();
            node["name"] = json!(format!("h{number}"));
            node["gpu_type"] = json!("H100-80G");
            node["policy"] = json!("schedulable");
            node["availability"] = json!(if number == 4 { "lost" } else { "available" });
            let mut gpus = node["gpus"].as_array().unwrap()[..2].to_vec();
            for (index, gpu) in gpus.iter_mut().enumerate() {
                gpu["healthy"] = json!(true);
                if number != 2 || index > 0 {
                    gpu["job_id"] = Value::Null;
                }
            }
            node["gpus"] = json!(gpus);
            serde_json::from_value(node).unwrap()
        };
        (1..=4).map(node).collect()
    }

    /// The queue at 14:00.
    fn queue(jobs: u64, gpus: u64, kept_for: &[&str]) -> Queue {
        let mut queue: Value = serde_json::from_str(include_str!("../../tests/queue.json")).unwrap();
        queue["at"] = json!("2026-03-01T14:00:00Z");
        queue["totals"]["by_gpu_type"] = json!({"H100-80G": {"jobs": jobs, "gpus": gpus}});
        queue["room"] = json!([{"gpu_type": "H100-80G", "gpus_free": 0, "largest": 0,
            "gpus_reserved": kept_for.len(), "reservations": kept_for}]);
        serde_json::from_value(queue).unwrap()
    }

    fn reservation(name: &str, nodes: &[&str], from: &str, until: &str) -> Reservation {
        let at = |time: &str| format!("2026-03-{time}:00Z");
        serde_json::from_value(json!({
            "id": "018bcfe5-0001-7000-8000-000000000001", "name": name, "active": false, "nodes": nodes,
            "from": at(from), "until": at(until), "projects": ["nlp"], "users": [], "jobs": [],
            "made_by": "opal", "made_at": "2026-02-28T08:00:00Z",
        }))
        .unwrap()
    }

    fn told(all: &[Reservation], queue: &Queue) -> String {
        let findings = judge_reservations(all, &nodes(), queue);
        let line = |one: &Finding| {
            let advice = one.advice.as_ref().map(|advice| format!("\n    {advice}")).unwrap_or_default();
            format!("{} {}{advice}", one.level.word(), one.found)
        };
        findings.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn idle_gpus_that_a_reservation_keeps_are_told_while_jobs_wait() {
        let all = [
            reservation("in-use", &["h1", "h2"], "01T08:00", "01T19:30"),
            reservation("forgotten", &["h1", "h3"], "01T08:00", "02T14:00"),
            reservation("fresh", &["h3"], "01T13:30", "01T15:00"),
        ];
        insta::assert_snapshot!(told(&all, &queue(3, 24, &[])), @"
        warn in-use keeps 3 GPUs idle for 5h30m more, and 3 jobs wait for at least 24 GPUs of H100-80G
            ask opal; if nobody needs it, `headway reservation delete in-use`
        warn forgotten keeps 4 GPUs idle for 1d00h more, and 3 jobs wait for at least 24 GPUs of H100-80G; no job holds any of its 4 GPUs, 6h00m after it began
            ask opal; if nobody needs it, `headway reservation delete forgotten`
        warn fresh keeps 2 GPUs idle for 1h00m more, and 3 jobs wait for at least 24 GPUs of H100-80G
            ask opal; if nobody needs it, `headway reservation delete fresh`
        ");
    }

    #[test]
    fn a_reservation_that_no_job_uses_is_told_also_while_nobody_waits() {
        let all = [
            reservation("in-use", &["h1", "h2"], "01T08:00", "01T19:30"),
            reservation("forgotten", &["h1", "h3"], "01T08:00", "02T14:00"),
            reservation("fresh", &["h3"], "01T13:30", "01T15:00"),
        ];
        insta::assert_snapshot!(told(&all, &queue(0, 0, &[])), @"
        warn forgotten lasts for 1d00h more, and no job holds any of its 4 GPUs, 6h00m after it began
            ask opal; if nobody needs it, `headway reservation delete forgotten`
        ");
    }

    #[test]
    fn a_reservation_that_begins_soon_tells_what_it_takes() {
        let mut keeps = reservation("keeps", &["h1"], "01T16:00", "01T20:00");
        keeps.cost = serde_json::from_value(json!({"gpus": 2, "gpu_hours": 8.0, "jobs": []})).unwrap();
        let all = [
            keeps,
            reservation("tomorrow", &["h3"], "02T10:00", "02T12:00"),
            reservation("far-off", &["h3"], "05T10:00", "05T12:00"),
        ];
        insta::assert_snapshot!(told(&all, &queue(1, 1, &["keeps"])), @"
        warn keeps takes 2 GPUs for 4h00m (8.0 GPU-hours) in 2h00m, and 1 job waits for at least 1 GPU of H100-80G; 2 GPUs are kept idle for it already
            a job that saves, or has a time limit (`headway submit --time`), may start there until then
        ok tomorrow takes 2 GPUs for 2h00m in 20h00m, and 1 job waits for at least 1 GPU of H100-80G
        ");
        assert_eq!(told(&all, &queue(0, 0, &["keeps"])), "ok none of 3 keeps idle GPUs from jobs that wait");
    }

    #[test]
    fn a_reservation_whose_nodes_are_gone_is_told_and_maintenance_may_be_idle() {
        let maintenance = reservation("psu-swap", &["h1", "h4"], "01T08:00", "01T19:30");
        let all = [
            Reservation { maintenance: true, projects: Vec::new(), ..maintenance },
            reservation("orphan", &["h4", "h9"], "02T10:00", "02T12:00"),
        ];
        insta::assert_snapshot!(told(&all, &queue(3, 24, &[])), @"
        warn psu-swap reserves nodes that are lost or not there: h4
            reserve other nodes under another name, then `headway reservation delete psu-swap`
        warn orphan has no node left: h4, h9 are lost or not there
            reserve other nodes under another name, then `headway reservation delete orphan`
        ");
        assert_eq!(told(&[], &queue(3, 24, &[])), "ok there are none");
    }
}
