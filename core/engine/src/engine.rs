//! The engine's memory: facts, what was seen, and rounds. What a batch does to it is in `batch.rs`.

use std::collections::BTreeMap;

use headway_types::{NodeId, Term, Timestamp};

use crate::config::EngineConfig;
use crate::event::SessionId;
use crate::facts::Facts;
use crate::record::{Availability, AvailabilityEvent};
use crate::rounds::Rounds;
use crate::seen::{Contact, Seen};
use crate::situation::Situation;
use crate::snapshot::Snapshot;
use crate::view::View;

/// The state machine. `restore` is its only beginning: a first start restores an empty snapshot.
#[derive(Clone, Debug)]
pub struct Engine {
    /// Rows, and what the batch in hand has done to them.
    pub(crate) facts: Facts,
    /// What agents have said in this term.
    pub(crate) seen: Seen,
    pub(crate) rounds: Rounds,
    pub(crate) view: View,
    /// The timer that the last outcome asked for.
    pub(crate) asked_wake: Option<Timestamp>,
}

impl Engine {
    /// Takes over from the store. Nothing is known of the nodes until they register, and none is declared
    /// unreachable before one full lease has passed.
    #[must_use]
    pub fn restore(config: EngineConfig, term: Term, seed: u64, now: Timestamp, snapshot: Snapshot) -> Engine {
        let restored = snapshot.restored;
        let mut engine = Self::of_rows(config, term, seed, now, snapshot);
        let nodes: Vec<NodeId> = engine.facts.nodes.keys().copied().collect();
        for id in nodes {
            engine.facts.observe_node(id, AvailabilityEvent::TakenOver);
        }
        if let Some(backup_of) = restored {
            engine.begin_return(backup_of);
        }
        engine.show_everything();
        engine
    }

    /// What readers may be shown while another scheduler leads: the rows, with nodes in contact that the leader has in contact. What only
    /// agents tell is absent.
    #[must_use]
    pub fn look(config: EngineConfig, term: Term, now: Timestamp, snapshot: Snapshot) -> View {
        let mut engine = Self::of_rows(config, term, 0, now, snapshot);
        for (id, seen) in &mut engine.seen.nodes {
            if engine.facts.nodes.get(id).is_some_and(|node| node.availability == Availability::Available) {
                seen.contact = Contact::Had { session: SessionId(0), connected: true, groups: BTreeMap::new() };
            }
        }
        engine.show_everything();
        engine.view
    }

    fn of_rows(config: EngineConfig, term: Term, seed: u64, now: Timestamp, mut snapshot: Snapshot) -> Engine {
        let learnt = (std::mem::take(&mut snapshot.models), std::mem::take(&mut snapshot.lessons));
        let facts = Facts::restore(config, term, seed, now, snapshot);
        let seen = Seen::new(now, facts.jobs.values(), facts.nodes.keys().copied(), learnt);
        let view = View::empty(now, term, facts.policy.clone());
        Engine { facts, seen, rounds: Rounds::default(), view, asked_wake: None }
    }

    pub(crate) fn situation(&self) -> Situation<'_> {
        Situation { facts: &self.facts, seen: &self.seen }
    }

    /// Transitions refused so far; each was also recorded as an event.
    #[must_use]
    pub fn illegal_transitions(&self) -> u64 {
        self.facts.illegal_transitions()
    }

    /// States met so far that the rest of the engine rules out; the first of each kind and subject was also recorded as an
    /// event.
    #[must_use]
    pub fn impossible_states(&self) -> u64 {
        self.facts.impossible_states()
    }

    /// The leadership under which this engine decides.
    #[must_use]
    pub fn term(&self) -> Term {
        self.facts.term
    }
}
