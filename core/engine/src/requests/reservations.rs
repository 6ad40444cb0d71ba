//! Reservations: nodes set aside for some jobs, or for nobody (maintenance), over a span of time. Before it begins,
//! other jobs start there only if they will have left by then, which the planner decides. Jobs that are no members leave
//! as from a draining node, so early that the nodes are free when the reservation begins (`situation/departure.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;

use headway_types::{NodeId, ReservationId, Timestamp};

use super::projects::is_name;
use crate::draft::Note;
use crate::engine::Engine;
use crate::event::{Actor, Ends, ReservationRequest};
use crate::facts::Facts;
use crate::outcome::{Refusal, Reply};
use crate::record::Reservation;

/// As many characters as the column takes, and as a reason in the web UI.
const LONGEST_REASON: usize = 500;

impl Engine {
    /// Makes a reservation. Asking again for the same one gives the one there is.
    pub(super) fn reserve(&mut self, actor: &Actor, asked: ReservationRequest) -> Result<Reply, Refusal> {
        if let Some(known) = self.facts.reservations.values().find(|one| one.name == asked.name) {
            if is_same(known, &asked) {
                return Ok(Reply::Reservation(known.clone()));
            }
            return Err(Refusal::WrongState(format!("there is another reservation {}", asked.name)));
        }
        let from = asked.from.unwrap_or(self.facts.now);
        let until = end(from, asked.ends);
        self.check_reservation(&asked, from, until)?;
        let reservation = Arc::new(Reservation {
            id: self.facts.ids.reservation(self.facts.now),
            name: asked.name,
            reason: asked.reason,
            nodes: asked.nodes,
            from,
            until,
            projects: asked.projects,
            users: asked.users,
            jobs: asked.jobs,
            by: actor.to_string(),
            made_at: self.facts.now,
            began: false,
        });
        let id = reservation.id;
        self.facts.reservations.insert(id, reservation.clone());
        self.facts.draft.reservations.insert(id);
        let why = reservation.reason.as_deref().map_or(String::new(), |reason| format!(": {reason}"));
        let (nodes, purpose) = (self.nodes_in_words(&reservation.nodes), reservation.purpose());
        let message = format!("{nodes} is set aside for {purpose}{why}");
        let note = Note::new("reservation.made", message).by(actor.clone()).with("reservation", &reservation.name);
        self.facts.note(note);
        self.facts.ask_round_for_somebody(format!("reservation {} was made", reservation.name));
        Ok(Reply::Reservation(reservation))
    }

    fn check_reservation(&self, asked: &ReservationRequest, from: Timestamp, until: Timestamp) -> Result<(), Refusal> {
        let invalid = |what: String| Err(Refusal::Invalid(format!("reservation {}: {what}", asked.name)));
        if !is_name(&asked.name) {
            return invalid("a name has letters, digits, '-', '_' or '.', a letter or digit first".into());
        }
        if asked.reason.as_ref().is_some_and(|reason| reason.chars().count() > LONGEST_REASON) {
            return invalid(format!("a reason has at most {LONGEST_REASON} characters"));
        }
        if until <= from || until <= self.facts.now {
            return invalid("it must end after it begins, and not in the past".into());
        }
        if asked.nodes.is_empty() {
            return invalid("it must name at least one node".into());
        }
        if let Some(unknown) = asked.nodes.iter().find(|node| !self.facts.nodes.contains_key(node)) {
            return Err(Refusal::NoSuchNode(*unknown));
        }
        let has_members = !(asked.projects.is_empty() && asked.users.is_empty() && asked.jobs.is_empty());
        if has_members == asked.maintenance {
            let what = match asked.maintenance {
                true => "maintenance is for nobody: leave out projects, users and jobs",
                false => "it must say for whom: projects, users or jobs; for nobody it is maintenance",
            };
            return invalid(what.into());
        }
        let clash = self
            .facts
            .reservations
            .values()
            .find(|other| other.from < until && from < other.until && !other.nodes.is_disjoint(&asked.nodes));
        if let Some(other) = clash {
            let both: BTreeSet<NodeId> = other.nodes.intersection(&asked.nodes).copied().collect();
            let nodes = self.nodes_in_words(&both);
            return Err(Refusal::WrongState(format!("{nodes} is set aside for {} at that time", other.purpose())));
        }
        Ok(())
    }

    /// A node goes for good: the names of the reservations that go on without it, and of those that had no other.
    pub(super) fn leave_reservations(&mut self, actor: &Actor, node: NodeId, name: &str) -> (Vec<String>, Vec<String>) {
        let (mut smaller, mut cancelled) = (Vec::new(), Vec::new());
        for one in self.facts.reservations.values_mut().filter(|one| one.nodes.contains(&node)) {
            self.facts.draft.reservations.insert(one.id);
            if one.nodes.len() == 1 {
                cancelled.push((one.id, one.name.clone()));
            } else {
                Arc::make_mut(one).nodes.remove(&node);
                smaller.push(one.name.clone());
            }
        }
        for (id, reservation) in &cancelled {
            self.facts.reservations.remove(id);
            let message = format!("reservation {reservation} is cancelled: its last node {name} was deleted");
            let note = Note::new("reservation.cancelled", message).by(actor.clone()).node(node);
            self.facts.note(note.with("reservation", reservation));
        }
        for reservation in &smaller {
            let message = format!("reservation {reservation} goes on without node {name}, which was deleted");
            let note = Note::new("reservation.shrunk", message).by(actor.clone()).node(node);
            self.facts.note(note.with("reservation", reservation));
        }
        (smaller, cancelled.into_iter().map(|(_, name)| name).collect())
    }

    pub(super) fn cancel_reservation(&mut self, actor: &Actor, id: ReservationId) -> Result<Reply, Refusal> {
        let gone = self.facts.reservations.remove(&id).ok_or(Refusal::NoSuchReservation(id))?;
        self.facts.draft.reservations.insert(id);
        let message = format!("reservation {} is cancelled", gone.name);
        self.facts.note(
            Note::new("reservation.cancelled", message.clone()).by(actor.clone()).with("reservation", &gone.name),
        );
        self.facts.ask_round_for_somebody(message);
        Ok(Reply::Reservation(gone))
    }

    /// Reservations begin and end by time.
    pub(crate) fn check_reservations(&mut self) {
        let due: Vec<Arc<Reservation>> =
            self.facts.reservations.values().filter(|one| next_moment(one) <= self.facts.now).cloned().collect();
        for one in due {
            let ends = one.until <= self.facts.now;
            let (verb, what) = if ends { ("reservation.ended", "ends") } else { ("reservation.began", "begins") };
            if ends {
                self.facts.reservations.remove(&one.id);
            } else if let Some(row) = self.facts.reservations.get_mut(&one.id) {
                Arc::make_mut(row).began = true;
            }
            self.facts.draft.reservations.insert(one.id);
            let message = format!("reservation {} of {} {what}", one.name, self.nodes_in_words(&one.nodes));
            self.facts.note(Note::new(verb, message).with("reservation", &one.name));
            self.facts.ask_round_for_somebody(format!("reservation {} {what}", one.name));
        }
    }

    /// Asks for a round when a job has to leave for a reservation: it decides where the job goes.
    pub(crate) fn check_departures(&mut self) {
        let leaving = self.situation().leaving_for_reservations();
        for id in self.rounds.newly_departing(&leaving) {
            let message = format!("{} has to leave: {}", self.facts.job_name(id), leaving[&id]);
            self.facts.ask_round_for_somebody(message);
        }
    }

    fn nodes_in_words(&self, nodes: &BTreeSet<NodeId>) -> String {
        let names: Vec<String> = nodes.iter().map(|id| self.facts.node_name(*id)).collect();
        let word = if names.len() == 1 { "node" } else { "nodes" };
        format!("{word} {}", names.join(", "))
    }
}

impl Facts {
    /// The next moment at which a reservation begins or ends.
    pub fn next_reservation(&self) -> Option<Timestamp> {
        self.reservations.values().map(|one| next_moment(one)).min()
    }
}

fn next_moment(one: &Reservation) -> Timestamp {
    if one.began { one.until } else { one.from }
}

fn end(from: Timestamp, ends: Ends) -> Timestamp {
    match ends {
        Ends::At(at) => at,
        Ends::After(time) => from + time,
    }
}

/// Whether what is asked for is there already.
fn is_same(known: &Reservation, asked: &ReservationRequest) -> bool {
    asked.from.is_none_or(|from| known.from == from)
        && (asked.reason.is_none() || asked.reason == known.reason)
        && known.until == end(known.from, asked.ends)
        && known.is_maintenance() == asked.maintenance
        && (&known.nodes, &known.projects, &known.users, &known.jobs)
            == (&asked.nodes, &asked.projects, &asked.users, &asked.jobs)
}
