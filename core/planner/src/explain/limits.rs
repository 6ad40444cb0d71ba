//! What stands between a job and another choice: rows that have not enough left for it, and rows that have a price.

use headway_types::ReasonCode;
use headway_types::plan::Limit;
use headway_types::spec::HostResource;

use super::Account;
use crate::candidate::Candidate;
use crate::rows::RowKind;

/// Bytes of hosts are counted in units of this many GiB.
const GIB_PER_UNIT: f64 = 1.0 / 64.0;
/// Less is rounding.
const LEAST_PRICE: f64 = 1e-6;

/// A row and what a change of choice does to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    pub row: usize,
    /// More than zero.
    pub more: i64,
    pub left: i64,
}

impl Demand {
    pub fn is_short(self) -> bool {
        self.more > self.left
    }
}

impl Account<'_> {
    /// What a job's other choice takes beyond the chosen, row by row.
    pub(super) fn demands(&self, job: usize, other: &Candidate) -> Vec<Demand> {
        let mut old = self.chosen(job).uses.iter().peekable();
        let mut demands = Vec::new();
        // Both ascend by row.
        for part in &other.uses {
            while old.next_if(|one| one.row < part.row).is_some() {}
            let had = old.next_if(|one| one.row == part.row).map_or(0, |one| one.amount);
            let (row, more) = (part.row as usize, part.amount - had);
            if more > 0 {
                demands.push(Demand { row, more, left: (self.owed.capacity[row] - self.used[row]).max(0) });
            }
        }
        demands
    }

    /// What others lose by it.
    pub(super) fn price(&self, demands: &[Demand]) -> f64 {
        demands.iter().map(|one| self.decision.prices[one.row] * one.more as f64).sum()
    }

    /// The cause a row without enough left stands for.
    pub(super) fn code(&self, row: usize) -> ReasonCode {
        match self.round.rows.kinds[row] {
            RowKind::Blocks { level: 0, .. } => ReasonCode::NotEnoughFree,
            RowKind::Blocks { .. } | RowKind::Halves { .. } => ReasonCode::Fragmented,
            RowKind::Domains { .. } => ReasonCode::FabricDomain,
            RowKind::Host { .. } => ReasonCode::HostResources,
            RowKind::Quota { .. } => ReasonCode::Quota,
            RowKind::User { .. } => ReasonCode::UserLimit,
            RowKind::Site { .. } | RowKind::Under { .. } => ReasonCode::SiteRow,
            RowKind::Power => ReasonCode::PowerCap,
            RowKind::Moves => ReasonCode::MoveBudget,
            RowKind::Promised { .. } => ReasonCode::Patient,
            RowKind::Floor { .. } => ReasonCode::BestForCluster,
        }
    }

    /// "the quota of project nlp leaves 4 GPUs of 64, and it takes 8".
    pub(super) fn shortage(&self, demand: Demand) -> String {
        let (of, capacity) = (self.round.rows.describe(demand.row), self.owed.capacity[demand.row]);
        let amount = |count: i64| match self.round.rows.kinds[demand.row] {
            RowKind::Power => format!("{:.1} kW", count as f64 / 1e3),
            RowKind::Host { of, .. } if of != HostResource::Cpus => format!("{:.0} GiB", count as f64 * GIB_PER_UNIT),
            _ => count.to_string(),
        };
        let (left, whole, more) = (amount(demand.left), amount(capacity), amount(demand.more));
        match self.round.rows.kinds[demand.row] {
            RowKind::Moves => format!("one round may move {whole} jobs, and others gain more by it"),
            RowKind::Quota { .. } | RowKind::Site { .. } => {
                format!("{of} leaves {left} of {whole} GPUs, and it takes {more}")
            }
            RowKind::User { .. } => format!("{of} is {whole} GPUs, of which {left} are left, and it takes {more}"),
            RowKind::Power => format!("{of} of {whole} leaves {left}, and it takes {more}"),
            _ => format!("{left} of {whole} {of} are left, and it takes {more}"),
        }
    }

    /// Everything between a job and another choice, GPUs and blocks of one class as one.
    pub(super) fn limits(&self, job: usize, other: &Candidate) -> Vec<Limit> {
        let demands = self.demands(job, other);
        let mut limits: Vec<(bool, Limit)> = Vec::new();
        for class in 0..self.round.cluster.classes.len() {
            let blocks: Vec<Demand> = demands.iter().copied().filter(|one| self.is_room(one.row, class)).collect();
            let short = blocks.iter().find(|one| one.is_short());
            if let Some(told) = short.or(blocks.first()) {
                limits.push((short.is_some(), self.limit(*told, self.price(&blocks))));
            }
        }
        let others =
            demands.iter().filter(|one| !(0..self.round.cluster.classes.len()).any(|of| self.is_room(one.row, of)));
        limits.extend(others.map(|one| (one.is_short(), self.limit(*one, self.price(&[*one])))));
        limits.retain(|(short, limit)| *short || limit.price >= LEAST_PRICE);
        limits.into_iter().map(|(_, limit)| limit).collect()
    }

    /// Whether a row counts GPUs, blocks or nodes of a class.
    fn is_room(&self, row: usize, class: usize) -> bool {
        match self.round.rows.kinds[row] {
            RowKind::Blocks { class: of, .. } | RowKind::Halves { class: of } | RowKind::Domains { class: of, .. } => {
                of == class
            }
            _ => false,
        }
    }

    fn limit(&self, demand: Demand, price: f64) -> Limit {
        let (unit, of) = match self.round.rows.kinds[demand.row] {
            RowKind::Host { of, .. } if of != HostResource::Cpus => {
                (GIB_PER_UNIT, format!("GiB of {}", self.round.rows.describe(demand.row)))
            }
            _ => (1.0, self.round.rows.describe(demand.row)),
        };
        Limit { of, needed: demand.more as f64 * unit, left: demand.left as f64 * unit, price }
    }
}
