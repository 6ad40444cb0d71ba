//! Nodes on the wire.

use std::sync::Arc;

use headway_api::v1;
use headway_engine::record::{Availability, NodePolicy, Reservation, Standing};
use headway_engine::view::{NodeView, View};
use headway_goodput::catalog::{Device, device};
use headway_types::{Condition, Gpu, GpuHealth, NodeClass, NodeId, NodeInventory};

use super::{job_name, time};

/// A node and who holds its GPUs.
pub fn node(of: &NodeView, view: &View) -> v1::Node {
    let record = &of.node;
    let inventory = &record.inventory;
    let (by, reason, since, drain_deadline) = match &record.policy {
        NodePolicy::Schedulable => (None, None, None, None),
        NodePolicy::Cordoned { by, reason, since } => (Some(by), reason.as_ref(), Some(*since), None),
        NodePolicy::Draining { by, reason, since, deadline } => (Some(by), reason.as_ref(), Some(*since), *deadline),
    };
    let (standing_reason, standing_until) = match &record.health.standing {
        Standing::Good => (None, None),
        Standing::Quarantined { reason, until, .. } => (Some(reason.clone()), Some(*until)),
        Standing::Probation { until, .. } => (None, Some(*until)),
    };
    let seen_since = match record.availability {
        Availability::Available => None,
        Availability::Registering { since } | Availability::Unreachable { since } | Availability::Lost { since } => {
            Some(since)
        }
    };
    v1::Node {
        id: inventory.node.0,
        name: inventory.name.clone(),
        gpu_type: inventory.gpu_type.0.clone(),
        gpus: inventory.gpus.iter().map(|each| gpu(each, of, view)).collect(),
        hardware: hardware(&inventory.class()),
        emulated: inventory.emulated.is_some(),
        fabric_domain: inventory.fabric.domain.clone(),
        cpus: inventory.cpus,
        memory_bytes: inventory.memory.0,
        shm_bytes: inventory.shm.map(|bytes| bytes.0),
        local_disk_bytes: inventory.local_disk.map(|bytes| bytes.0),
        address: inventory.address.clone(),
        isolated: inventory.isolated,
        not_isolated_reason: inventory.not_isolated_reason.clone(),
        runs_as: inventory.account.as_ref().map(|account| account.user.clone()),
        takes_all_owners: inventory.account.as_ref().is_none_or(|account| account.takes_others),
        agent_version: inventory.agent_version.clone(),
        policy: record.policy.kind(),
        policy_by: by.cloned(),
        policy_reason: reason.cloned(),
        policy_since: since.map(time),
        drain_deadline: drain_deadline.map(time),
        health_score: record.health.score_at(view.at),
        standing: record.health.standing.kind(),
        standing_reason,
        standing_until: standing_until.map(time),
        conditions: conditions(inventory, true),
        leaving_reason: inventory.leaving_reason.clone(),
        connected: of.connected,
        remarks: conditions(inventory, false),
        availability: record.availability.kind(),
        availability_since: seen_since.map(time),
        labels: record.labels(),
        declared_labels: inventory.labels.clone(),
        reservations: reservations(of, view),
        registered_at: time(record.registered_at),
        version: record.version,
    }
}

fn reservations(of: &NodeView, view: &View) -> Vec<v1::NodeReservation> {
    let here = |one: &&Arc<Reservation>| one.nodes.contains(&of.node.inventory.node) && one.until > view.at;
    let mut found: Vec<&Arc<Reservation>> = view.reservations.values().filter(here).collect();
    found.sort_by_key(|one| (one.from, one.id));
    found.into_iter().map(|one| node_reservation(one, view)).collect()
}

/// The reservation that closes a node now to jobs that are no members.
pub fn active_reservation(node: NodeId, view: &View) -> Option<v1::NodeReservation> {
    view.active_reservation(node).map(|one| node_reservation(one, view))
}

fn node_reservation(of: &Reservation, view: &View) -> v1::NodeReservation {
    v1::NodeReservation {
        id: of.id.0,
        name: of.name.clone(),
        from: time(of.from),
        until: time(of.until),
        maintenance: of.is_maintenance(),
        active: of.is_active(view.at),
        reason: of.reason.clone(),
    }
}

fn conditions(inventory: &NodeInventory, keeping_work_away: bool) -> Vec<String> {
    let wanted = |one: &&Condition| one.kind.keeps_work_away() == keeping_work_away;
    inventory.conditions.iter().filter(wanted).map(|one| one.message.clone()).collect()
}

/// What a file says is shown as it says it; the formulas take measured rates otherwise (`Hardware::of`).
fn hardware(class: &NodeClass) -> Option<v1::NodeHardware> {
    let Ok(Device::Catalogued(hardware)) = device(class) else { return None };
    if let Some(stated) = &class.stated {
        return Some(v1::NodeHardware {
            source: if stated.measured { "measured" } else { "stated" }.into(),
            peak_flop_per_second: stated.peak_flops as f64,
            matmul_flop_per_second: stated.matmul_flops as f64,
            memory_bytes: stated.memory.0 as f64,
            memory_bytes_per_second: stated.memory_bytes_per_second as f64,
            link_bytes_per_second: stated.link_bytes_per_second as f64,
            network_bytes_per_second: stated.network_bytes_per_second as f64,
        });
    }
    Some(v1::NodeHardware {
        source: "built_in".into(),
        peak_flop_per_second: hardware.peak,
        matmul_flop_per_second: hardware.best_matmul,
        memory_bytes: hardware.memory,
        memory_bytes_per_second: hardware.memory_bandwidth,
        link_bytes_per_second: hardware.intra_node,
        network_bytes_per_second: hardware.inter_node,
    })
}

fn gpu(of: &Gpu, node: &NodeView, view: &View) -> v1::Gpu {
    let holder = node.held.get(&of.uuid);
    v1::Gpu {
        uuid: of.uuid.0.clone(),
        index: of.index,
        memory_bytes: of.memory.0,
        healthy: of.health == GpuHealth::Healthy,
        broken_cause: match &of.health {
            GpuHealth::Healthy => None,
            GpuHealth::Broken(cause) => Some(cause.clone()),
        },
        job_id: holder.map(|(job, _)| job.0),
        job_name: holder.map(|(job, _)| job_name(*job, view)),
        generation: holder.map(|(_, generation)| generation.0),
    }
}
