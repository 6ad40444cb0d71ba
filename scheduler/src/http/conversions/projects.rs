//! Projects and reservations on the wire.

use std::collections::BTreeMap;

use headway_api::v1;
use headway_engine::record::{Project, ProjectRules, Reservation};
use headway_engine::view::{Holding, View};
use headway_engine::{DepartingJob, DepartureKind, ReservationCost};
use headway_types::{GpuCount, ProjectRole};

use super::{node_name, time};

/// A project and what its jobs have.
pub fn project(of: &Project, holdings: &BTreeMap<String, Holding>) -> v1::Project {
    let holding = holdings.get(&of.name).copied().unwrap_or_default();
    let rules = &of.rules;
    v1::Project {
        name: of.name.clone(),
        rules: v1::ProjectRules {
            parent: rules.parent.clone(),
            quota_gpus: rules.quota.map(|quota| quota.0),
            borrow_gpus: rules.borrow.0,
            floor_gpus: rules.floor.0,
            weight: rules.weight,
            max_per_user_gpus: rules.max_per_user.map(|most| most.0),
        },
        private: of.access.private,
        members: u32::try_from(of.access.members.len()).unwrap_or(u32::MAX),
        gpus: holding.gpus.0,
        decayed_gpu_hours: holding.used.0 / 3_600.0,
        version: of.version,
    }
}

pub fn member(user: &str, role: ProjectRole, by: &Project) -> v1::Member {
    v1::Member { user: user.to_owned(), role, project: by.name.clone(), from_groups: false }
}

pub fn project_rules(of: v1::ProjectRequest) -> ProjectRules {
    ProjectRules {
        parent: of.parent,
        quota: of.quota_gpus.map(GpuCount),
        borrow: GpuCount(of.borrow_gpus),
        floor: GpuCount(of.floor_gpus),
        weight: of.weight,
        max_per_user: of.max_per_user_gpus.map(GpuCount),
    }
}

/// A reservation; `view` lends the names of nodes.
pub fn reservation(of: &Reservation, view: &View) -> v1::Reservation {
    v1::Reservation {
        id: of.id.0,
        name: of.name.clone(),
        reason: of.reason.clone(),
        nodes: of.nodes.iter().map(|node| node_name(*node, view)).collect(),
        from: time(of.from),
        until: time(of.until),
        projects: of.projects.iter().cloned().collect(),
        users: of.users.iter().cloned().collect(),
        jobs: of.jobs.iter().map(|job| job.0).collect(),
        maintenance: of.is_maintenance(),
        active: of.is_active(view.at),
        made_by: of.by.clone(),
        made_at: time(of.made_at),
        cost: None,
    }
}

/// A reservation with what it takes from others, where that is known.
pub fn reservation_with_cost(of: &Reservation, cost: Option<&ReservationCost>, view: &View) -> v1::Reservation {
    v1::Reservation { cost: cost.map(|cost| reservation_cost(of, cost)), ..reservation(of, view) }
}

fn reservation_cost(of: &Reservation, cost: &ReservationCost) -> v1::ReservationCost {
    let departing = |one: &DepartingJob| v1::DepartingJob {
        job_id: one.job.0,
        job_name: one.name.clone(),
        gpus: one.gpus.0,
        leaves_at: time(one.at),
        ending: match one.ending {
            DepartureKind::Limit => "limit",
            DepartureKind::Saves => "saves",
            DepartureKind::Unsaved => "unsaved",
            DepartureKind::Stays => "stays",
        }
        .into(),
    };
    v1::ReservationCost {
        gpus: cost.gpus.0,
        gpu_hours: (cost.gpus * of.until.since(of.from)).0 / 3_600.0,
        jobs: cost.jobs.iter().map(departing).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_survive_the_wire() {
        let rules = ProjectRules {
            parent: Some("research".into()),
            quota: Some(GpuCount(64)),
            borrow: GpuCount(16),
            floor: GpuCount(8),
            weight: 2.5,
            max_per_user: Some(GpuCount(4)),
        };
        let row = Project {
            name: "nlp".into(),
            rules: rules.clone(),
            access: headway_engine::record::ProjectAccess::default(),
            used: headway_types::GpuSeconds(0.0),
            used_at: headway_types::Timestamp(0),
            version: 3,
        };
        let shown = project(&row, &BTreeMap::new());
        assert_eq!(project_rules(shown.rules.into()), rules);
    }
}
