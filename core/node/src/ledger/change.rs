//! What a shell has to write of a ledger after an event: what has changed, not what a node has ever heard.

use std::collections::BTreeMap;

use headway_types::{BootId, Generation, JobId, Term};
use serde::{Deserialize, Serialize};

use super::Ledger;
use super::fence::{Fence, Sent};
use crate::group::Group;

/// The difference between a ledger and what it has become: the few values that all jobs share, and each job that has
/// changed as a whole (`None`: it is gone). It is found by comparing, so that nothing can be changed and not be told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LedgerChange {
    boot: BootId,
    term: Term,
    forgotten: Option<Sent>,
    highest: BTreeMap<JobId, Option<Fence>>,
    groups: BTreeMap<JobId, Option<BTreeMap<Generation, Group>>>,
}

impl Ledger {
    /// What leads from `before` to this one. Both are of the same node.
    #[must_use]
    pub fn change_since(&self, before: &Self) -> LedgerChange {
        LedgerChange {
            boot: self.boot.clone(),
            term: self.term,
            forgotten: self.forgotten,
            highest: difference(&before.highest, &self.highest),
            groups: difference(&before.groups, &self.groups),
        }
    }

    /// Takes up a change: `before.apply(after.change_since(&before))` makes it `after`.
    pub fn apply(&mut self, change: LedgerChange) {
        self.boot = change.boot;
        self.term = change.term;
        self.forgotten = change.forgotten;
        take_in(&mut self.highest, change.highest);
        take_in(&mut self.groups, change.groups);
    }
}

fn difference<V: Clone + PartialEq>(
    before: &BTreeMap<JobId, V>,
    after: &BTreeMap<JobId, V>,
) -> BTreeMap<JobId, Option<V>> {
    let gone = before.keys().filter(|job| !after.contains_key(job)).map(|job| (*job, None));
    let changed = after.iter().filter(|(job, value)| before.get(job) != Some(value));
    gone.chain(changed.map(|(job, value)| (*job, Some(value.clone())))).collect()
}

fn take_in<V>(map: &mut BTreeMap<JobId, V>, changed: BTreeMap<JobId, Option<V>>) {
    for (job, value) in changed {
        match value {
            Some(value) => drop(map.insert(job, value)),
            None => drop(map.remove(&job)),
        }
    }
}
