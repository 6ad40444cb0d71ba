//! What the node offers, as it is now. Everybody reads the newest; a change wakes the node's loop, which reports it.

use std::sync::Arc;

use headway_types::{Condition, ConditionKind, NodeInventory};
use tokio::sync::watch;

#[derive(Clone, Debug)]
pub(crate) struct Inventory(watch::Sender<Arc<NodeInventory>>);

impl Inventory {
    pub(crate) fn new(inventory: NodeInventory) -> Self {
        Self(watch::Sender::new(Arc::new(inventory)))
    }

    pub(crate) fn now(&self) -> Arc<NodeInventory> {
        Arc::clone(&self.0.borrow())
    }

    /// Sees the changes from here on.
    pub(crate) fn changes(&self) -> watch::Receiver<Arc<NodeInventory>> {
        self.0.subscribe()
    }

    /// Replaces the conditions of these kinds.
    pub(crate) fn set_conditions(&self, kinds: &[ConditionKind], conditions: Vec<Condition>) {
        self.change(|inventory| {
            inventory.conditions.retain(|condition| !kinds.contains(&condition.kind));
            inventory.conditions.extend(conditions);
            inventory.conditions.sort();
        });
    }

    /// Wakes nobody if `change` leaves everything as it was.
    pub(crate) fn change(&self, change: impl FnOnce(&mut NodeInventory)) {
        self.0.send_if_modified(|current| {
            let mut next = current.as_ref().clone();
            change(&mut next);
            let changed = next != **current;
            if changed {
                *current = Arc::new(next);
            }
            changed
        });
    }
}
