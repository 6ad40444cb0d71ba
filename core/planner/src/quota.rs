//! What quotas say to a job before it is submitted: whether its smallest size has room in its project and in all above.

use headway_types::GpuCount;

use crate::input::{PlanInput, PlanJob};
use crate::project::Tree;

/// A project's quota against what a job needs at least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaVerdict {
    pub project: String,
    pub room: QuotaRoom,
    pub quota: GpuCount,
    pub borrow: GpuCount,
    /// What the project's other jobs hold.
    pub held: GpuCount,
    pub needed: GpuCount,
}

/// The tightest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuotaRoom {
    /// Of right.
    Within,
    /// Beyond the quota, while nobody with a right to it waits.
    Borrows,
    /// Once others of the project end.
    ExceedsNow,
    /// Not as the quota is.
    Never,
}

/// The quota that leaves a job least, of those on the way up from its project; of equals the nearest.
#[must_use]
pub fn quota(input: &PlanInput, job: &PlanJob) -> Option<QuotaVerdict> {
    let tree = Tree::new(&input.projects);
    let verdict = |&at: &usize| {
        let of = &tree.projects[at];
        let (quota, borrow, needed) = (of.quota?, of.borrow, job.least());
        let counts = |other: &&PlanJob| {
            other.job != job.job && other.current.is_some() && tree.lineage_of(&other.claim.project).contains(&at)
        };
        let others = input.jobs.iter().filter(counts).filter_map(|other| other.current.as_ref());
        let held: GpuCount = others.map(|current| current.placement.gpus()).sum();
        let room = match held.0.saturating_add(needed.0) {
            _ if needed.0 > quota.0.saturating_add(borrow.0) => QuotaRoom::Never,
            then if then > quota.0.saturating_add(borrow.0) => QuotaRoom::ExceedsNow,
            then if then > quota.0 => QuotaRoom::Borrows,
            _ => QuotaRoom::Within,
        };
        Some(QuotaVerdict { project: of.name.clone(), room, quota, borrow, held, needed })
    };
    tree.lineage_of(&job.claim.project).iter().rev().filter_map(verdict).max_by_key(|verdict| verdict.room)
}
