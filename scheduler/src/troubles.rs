//! What is the matter with this process, beside the cluster: told where people look for what needs them. Whoever finds it says so, and says when it is over.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headway_engine::attention::{Item, Kind, Subject};
use headway_types::Timestamp;

/// In words: what is the matter, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub headline: String,
    pub next_step: String,
}

/// One of each kind at a time; clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Troubles(Arc<Mutex<BTreeMap<Kind, (Timestamp, Trouble)>>>);

impl Troubles {
    /// Whether it is news. `None`: it is over.
    pub fn tell(&self, kind: Kind, now: Timestamp, trouble: Option<Trouble>) -> bool {
        let mut known = self.known();
        match trouble {
            Some(trouble) => {
                let since = known.get(&kind).map_or(now, |(since, _)| *since);
                known.insert(kind, (since, trouble)).is_none()
            }
            None => known.remove(&kind).is_some(),
        }
    }

    pub fn items(&self) -> Vec<Item> {
        let item = |(kind, (since, trouble)): (&Kind, &(Timestamp, Trouble))| Item {
            kind: *kind,
            subject: Subject::Planning,
            since: Some(*since),
            at_stake: None,
            headline: trouble.headline.clone(),
            next_step: trouble.next_step.clone(),
        };
        self.known().iter().map(item).collect()
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Kind, (Timestamp, Trouble)>> {
        // The map is valid between any two of its operations, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_lasts_since_it_was_told_first_until_it_is_over() {
        let troubles = Troubles::default();
        let trouble = |headline: &str| Some(Trouble { headline: headline.into(), next_step: "wait".into() });
        assert!(troubles.tell(Kind::AuditUnsealed, Timestamp(1), trouble("one")));
        assert!(!troubles.tell(Kind::AuditUnsealed, Timestamp(2), trouble("two")));
        let items = troubles.items();
        assert_eq!((items.len(), &*items[0].headline, items[0].since), (1, "two", Some(Timestamp(1))));
        assert!(troubles.tell(Kind::AuditUnsealed, Timestamp(3), None));
        assert!(!troubles.tell(Kind::AuditUnsealed, Timestamp(3), None) && troubles.items().is_empty());
    }
}
