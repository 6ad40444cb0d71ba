//! One node looked at closely: its GPUs with what has befallen them, and its health with how it came about. Read off the snapshot, the event log and the history.

use axum::extract::State;
use chrono::SecondsFormat;
use headway_api::v1;
use headway_engine::record::{Availability, Entered, EventRecord, NodePolicy, Reservation, Standing};
use headway_engine::view::{NodeView, View};
use headway_types::{Gpu, GpuHealth, NodeId, Seconds, Timestamp};

use crate::grpc::Measured;
use crate::http::auth::Principal;
use crate::http::conversions::{job_name, time};
use crate::http::extract::{Json, Path};
use crate::http::problem::Problem;
use crate::http::{HttpState, conversions, lookup};

const FAULTS: [&str; 2] = ["gpu.broken", "gpu.healed"];
const INCIDENTS: [&str; 14] = [
    "node.registered",
    "node.available",
    "node.unreachable",
    "node.lost",
    "node.refused",
    "node.condition",
    "node.leaving",
    "node.stays",
    "node.quarantined",
    "node.probation",
    "node.trusted",
    "node.left_out",
    "gpu.broken",
    "gpu.healed",
];
const INCIDENTS_AT_MOST: u32 = 100;
const FAULTS_READ: u32 = 500;
const FAULTS_AT_MOST: usize = 20;
const STATES_AT_MOST: usize = 100;
const LOOKED_BACK: Seconds = Seconds(30.0 * 86_400.0);

/// The GPUs of a node: what each does, who holds it, and what has befallen it.
#[utoipa::path(get, path = "/nodes/{node}/gpus", tag = "nodes", params(("node" = String, Path)),
    responses((status = 200, body = v1::NodeGpus), (status = 404, body = v1::Problem, content_type = "application/problem+json")))]
pub async fn node_gpus(
    State(state): State<HttpState>,
    _caller: Principal,
    Path(name): Path<String>,
) -> Result<Json<v1::NodeGpus>, Problem> {
    let id = lookup::node(&state.cluster, &name)?;
    let faults = events(&state, id, &FAULTS, FAULTS_READ).await?;
    let view = state.cluster.view();
    let measured = state.cluster.last_measured(id);
    Ok(Json(gpus(found(&view, id, &name)?, &view, &faults, measured.as_ref())))
}

/// Whether a node is in reach and trusted with work, why not, and how that came about: what was held against it, and its states over the last 30 days.
#[utoipa::path(get, path = "/nodes/{node}/health", tag = "nodes", params(("node" = String, Path)),
    responses((status = 200, body = v1::NodeHealth), (status = 404, body = v1::Problem, content_type = "application/problem+json")))]
pub async fn node_health(
    State(state): State<HttpState>,
    caller: Principal,
    Path(name): Path<String>,
) -> Result<Json<v1::NodeHealth>, Problem> {
    let id = lookup::node(&state.cluster, &name)?;
    let mut incidents = events(&state, id, &INCIDENTS, INCIDENTS_AT_MOST).await?;
    caller.keep_readable(&state.cluster, &mut incidents).await?;
    let now = state.cluster.now();
    let from = now - Seconds(LOOKED_BACK.0.min(state.cluster.retention().history.0));
    let mut entries = state.cluster.store().node_entries(&[id], from, now).await?;
    let history = entries.remove(&id.0).unwrap_or_default();
    let view = state.cluster.view();
    Ok(Json(health(found(&view, id, &name)?, &view, &incidents, history)))
}

fn found<'v>(view: &'v View, id: NodeId, name: &str) -> Result<&'v NodeView, Problem> {
    view.nodes.get(&id).map(AsRef::as_ref).ok_or_else(|| lookup::no_node(name))
}

/// The newest first.
async fn events(state: &HttpState, node: NodeId, verbs: &[&str], limit: u32) -> Result<Vec<EventRecord>, Problem> {
    Ok(state.cluster.store().node_events(node, verbs, limit).await?)
}

fn gpus(of: &NodeView, view: &View, faults: &[EventRecord], measured: Option<&Measured>) -> v1::NodeGpus {
    let inventory = &of.node.inventory;
    let mut gpus: Vec<&Gpu> = inventory.gpus.iter().collect();
    gpus.sort_by_key(|gpu| gpu.index);
    let context = view.idle_context();
    let detail = |gpu: &Gpu| {
        let holder = of.held.get(&gpu.uuid);
        let reading = measured.and_then(|all| all.gpus.iter().find(|one| one.gpu == gpu.uuid));
        let own = faults.iter().filter(|event| event.detail.get("gpu") == Some(&gpu.uuid.0));
        v1::GpuDetail {
            uuid: gpu.uuid.0.clone(),
            index: gpu.index,
            memory_bytes: gpu.memory.0,
            healthy: gpu.health == GpuHealth::Healthy,
            broken_cause: match &gpu.health {
                GpuHealth::Healthy => None,
                GpuHealth::Broken(cause) => Some(cause.clone()),
            },
            activity: <&str>::from(view.activity(of, gpu, &context)).into(),
            job_id: holder.map(|(job, _)| job.0),
            job_name: holder.map(|(job, _)| job_name(*job, view)),
            generation: holder.map(|(_, generation)| generation.0),
            measured_at: reading.and(measured).map(|all| time(all.at)),
            utilisation_pct: reading.and_then(|one| one.busy).map(|share| share * 100.0),
            temperature_celsius: reading.and_then(|one| one.celsius),
            power_watts: reading.and_then(|one| one.watts),
            memory_used_bytes: reading.and_then(|one| one.memory_used).map(|bytes| bytes.0),
            faults: own.take(FAULTS_AT_MOST).map(fault).collect(),
        }
    };
    v1::NodeGpus {
        at: time(view.at),
        node_id: inventory.node.0,
        node_name: inventory.name.clone(),
        gpu_type: inventory.gpu_type.0.clone(),
        reservation: conversions::active_reservation(inventory.node, view),
        gpus: gpus.into_iter().map(detail).collect(),
    }
}

fn fault(of: &EventRecord) -> v1::GpuFault {
    v1::GpuFault {
        at: time(of.at),
        seq: of.seq,
        healed: of.verb == "gpu.healed",
        xid: xid(&of.message),
        message: of.message.clone(),
    }
}

/// The driver's error number that a sentence names ("… is broken: XID 79: …").
fn xid(message: &str) -> Option<u64> {
    let (_, after) = message.split_once("XID ")?;
    let digits = after.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(after.len());
    after[..digits].parse().ok()
}

fn health(of: &NodeView, view: &View, incidents: &[EventRecord], history: Vec<(Timestamp, Entered)>) -> v1::NodeHealth {
    let inventory = &of.node.inventory;
    let shown = conversions::node(of, view);
    let left_out = view.verdicts.nodes_left_out.iter().find(|one| one.node == inventory.node);
    let left_out = left_out.map(|one| one.reason.clone());
    let reserved = view.active_reservation(inventory.node);
    let (standing_since, quarantines_in_a_row) = match of.node.health.standing {
        Standing::Good => (None, 0),
        Standing::Quarantined { since, times, .. } | Standing::Probation { since, times, .. } => (Some(since), times),
    };
    let states = history.into_iter().rev().take(STATES_AT_MOST).filter_map(state);
    let incident = |of: &EventRecord| v1::NodeIncident {
        at: time(of.at),
        seq: of.seq,
        verb: of.verb.clone(),
        xid: xid(&of.message),
        message: of.message.clone(),
    };
    v1::NodeHealth {
        at: time(view.at),
        node_id: inventory.node.0,
        node_name: inventory.name.clone(),
        takes_work: of.takes_work() && left_out.is_none() && reserved.is_none(),
        why_not: why_not(of, left_out.as_deref(), reserved),
        reservation: conversions::active_reservation(inventory.node, view),
        availability: shown.availability,
        availability_since: shown.availability_since,
        connected: of.connected,
        heard_at: of.heard_at.map(time),
        policy: shown.policy,
        standing: shown.standing,
        health_score: shown.health_score,
        standing_since: standing_since.map(time),
        standing_until: shown.standing_until,
        standing_reason: shown.standing_reason,
        quarantines_in_a_row,
        conditions: shown.conditions,
        remarks: shown.remarks,
        left_out,
        gpus_total: inventory.gpus.len() as u32,
        gpus_healthy: inventory.healthy().0,
        history: states.collect(),
        incidents: incidents.iter().map(incident).collect(),
    }
}

fn state((since, entered): (Timestamp, Entered)) -> Option<v1::NodeState> {
    let Entered::Node { availability, policy, standing, gpus, healthy, .. } = entered else { return None };
    Some(v1::NodeState { since: time(since), availability, policy, standing, gpus, gpus_healthy: healthy })
}

/// Each thing that keeps new work away.
fn why_not(of: &NodeView, left_out: Option<&str>, reserved: Option<&Reservation>) -> Vec<String> {
    let because = |what: String, reason: &Option<String>| match reason {
        Some(reason) => format!("{what}: {reason}"),
        None => what,
    };
    let reach = match of.node.availability {
        Availability::Available if of.connected => None,
        Availability::Available => Some("its agent's session does not stand".to_owned()),
        other => Some(format!("it is {}", other.kind())),
    };
    let policy = match &of.node.policy {
        NodePolicy::Schedulable => None,
        NodePolicy::Cordoned { by, reason, .. } => Some(because(format!("{by} has cordoned it"), reason)),
        NodePolicy::Draining { by, reason, .. } => Some(because(format!("{by} drains it"), reason)),
    };
    let standing = match &of.node.health.standing {
        Standing::Quarantined { reason, .. } => Some(format!("it is in quarantine: {reason}")),
        Standing::Good | Standing::Probation { .. } => None,
    };
    let inventory = &of.node.inventory;
    let ailing = inventory.conditions.iter().filter(|one| one.kind.keeps_work_away()).map(|one| one.message.clone());
    let left_out = left_out.map(|reason| format!("rounds leave it out: {reason}"));
    let leaving = inventory.leaving_reason.as_ref().map(|reason| format!("it leaves: {reason}"));
    let reserved = reserved.map(|one| {
        let until = time(one.until).to_rfc3339_opts(SecondsFormat::Secs, true);
        let others = if one.is_maintenance() { "no job starts here" } else { "only its members start here" };
        because(format!("it is reserved for {} until {until}, {others}", one.purpose()), &one.reason)
    });
    let closed = reach.into_iter().chain(policy).chain(leaving).chain(standing).chain(ailing);
    closed.chain(left_out).chain(reserved).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use headway_api::agent::GpuReading;
    use headway_engine::event::Actor;
    use headway_types::{AvailabilityKind, Bytes, NodePolicyKind, StandingKind};

    use super::*;
    use crate::http::fixtures::{self, NOW};

    fn event(seq: u64, verb: &str, message: &str) -> EventRecord {
        EventRecord {
            seq,
            at: NOW,
            actor: Actor::Scheduler,
            verb: verb.into(),
            job: None,
            node: Some(fixtures::node_id()),
            plan: None,
            message: message.into(),
            detail: BTreeMap::from([("gpu".into(), "GPU-0-3".into())]),
        }
    }

    #[test]
    fn a_gpu_says_who_holds_it_and_what_has_befallen_it() {
        let view = fixtures::running();
        let events = [event(9, "gpu.broken", "GPU 3 of node n is broken: XID 79: the GPU has fallen off the bus")];
        let reading = GpuReading {
            gpu: view.nodes[&fixtures::node_id()].node.inventory.gpus[0].uuid.clone(),
            busy: Some(0.5),
            celsius: Some(64.0),
            watts: None,
            memory_used: Some(Bytes(7)),
        };
        let measured = Measured { at: NOW, gpus: [reading].into() };
        let told = gpus(&view.nodes[&fixtures::node_id()], &view, &events, Some(&measured));
        let first = &told.gpus[0];
        assert_eq!(
            (first.utilisation_pct, first.temperature_celsius, first.power_watts),
            (Some(50.0), Some(64.0), None)
        );
        assert_eq!((first.measured_at, first.memory_used_bytes), (Some(time(NOW)), Some(7)));
        assert_eq!((told.gpus[3].measured_at, told.gpus[3].utilisation_pct), (None, None));
        assert_eq!((told.gpus[0].job_name.as_deref(), told.gpus[0].activity.as_str()), (Some("llama"), "training"));
        assert!(told.gpus[0].faults.is_empty());
        let broken = &told.gpus[3];
        assert_eq!((broken.healthy, broken.broken_cause.as_deref()), (false, Some("XID 79")));
        assert_eq!((broken.faults[0].xid, broken.faults[0].healed, broken.faults[0].seq), (Some(79), false, 9));
    }

    #[test]
    fn health_says_each_reason_why_nothing_new_starts() {
        let mut view = fixtures::running();
        let mut shown = NodeView::clone(&view.nodes[&fixtures::node_id()]);
        let well = health(&shown, &view, &[], Vec::new());
        assert!(well.takes_work && well.why_not.is_empty(), "{:?}", well.why_not);
        let node = Arc::make_mut(&mut shown.node);
        node.policy = NodePolicy::Cordoned { by: "opal".into(), reason: Some("fans".into()), since: NOW };
        let (until, reason) = (NOW + Seconds(600.0), "GPU 3: XID 79".to_owned());
        node.health.standing = Standing::Quarantined { since: NOW, until, reason, times: 2, accuser: None };
        view.nodes.insert(fixtures::node_id(), Arc::new(shown.clone()));
        let entered = Entered::Node {
            node: fixtures::node_id(),
            availability: AvailabilityKind::Available,
            policy: NodePolicyKind::Cordoned,
            standing: StandingKind::Quarantined,
            gpus: 4,
            healthy: 3,
        };
        let ill = health(&shown, &view, &[event(1, "node.quarantined", "n")], vec![(NOW, entered)]);
        assert_eq!(ill.why_not, ["opal has cordoned it: fans", "it is in quarantine: GPU 3: XID 79"]);
        assert_eq!(
            (ill.takes_work, ill.quarantines_in_a_row, ill.history.len(), ill.incidents.len()),
            (false, 2, 1, 1)
        );
    }

    #[test]
    fn a_reserved_node_takes_no_work_of_others_and_names_the_reservation() {
        let view = fixtures::reserved();
        let node = &view.nodes[&fixtures::node_id()];
        let told = gpus(node, &view, &[], None);
        let activities: Vec<&str> = told.gpus.iter().map(|gpu| gpu.activity.as_str()).collect();
        assert_eq!(activities, ["training", "training", "reserved", "broken"]);
        assert_eq!(told.reservation.map(|one| (one.name, one.active)), Some(("demo".into(), true)));
        let closed = health(node, &view, &[], Vec::new());
        let why = "it is reserved for demo until 2026-09-21T16:13:20Z, only its members start here: the board watches";
        assert_eq!((closed.takes_work, closed.why_not), (false, vec![why.to_owned()]));
        assert_eq!(closed.reservation.map(|one| one.name).as_deref(), Some("demo"));
    }

    #[test]
    fn numbers_of_the_driver_are_read_off_sentences() {
        assert_eq!(xid("GPU 1 of node a is broken: XID 48: double-bit ECC error"), Some(48));
        assert_eq!(xid("GPU 1: XID 79"), Some(79));
        assert_eq!((xid("the fan is broken"), xid("XID many")), (None, None));
    }
}
