//! Reservations: nodes set aside for some jobs over a span of time. Before it begins only what will have left starts
//! there, which is the planner's business; once it has begun, whoever is no member leaves as from a draining node.

use std::collections::BTreeSet;
use std::sync::Arc;

use headway_types::{JobId, NodeId, ReservationId, Timestamp};

use crate::admission::actor_name;
use crate::draft::Note;
use crate::event::{Actor, Ends, ReservationWish};
use crate::outcome::{Refusal, Reply};
use crate::projects::is_name;
use crate::record::{Job, Reservation, lineage};
use crate::state::Engine;

impl Engine {
    /// Makes a reservation. Asking again for the same one gives the one there is.
    pub(crate) fn reserve(&mut self, actor: &Actor, wish: ReservationWish) -> Result<Reply, Refusal> {
        if let Some(known) = self.reservations.values().find(|one| one.name == wish.name) {
            if is_same(known, &wish) {
                return Ok(Reply::Reservation(known.clone()));
            }
            return Err(Refusal::WrongState(format!("there is another reservation {}", wish.name)));
        }
        let from = wish.from.unwrap_or(self.now);
        let until = end(from, wish.ends);
        self.check_wish(&wish, from, until)?;
        let reservation = Arc::new(Reservation {
            id: self.ids.reservation(self.now),
            name: wish.name,
            nodes: wish.nodes,
            from,
            until,
            projects: wish.projects,
            users: wish.users,
            jobs: wish.jobs,
            by: actor_name(actor),
            made_at: self.now,
            began: false,
        });
        let id = reservation.id;
        self.reservations.insert(id, reservation.clone());
        self.draft.reservations.insert(id);
        let message = format!("{} is set aside for {}", self.nodes_in_words(&reservation.nodes), reservation.name);
        let note = Note::new("reservation.made", message).by(actor.clone()).with("reservation", &reservation.name);
        self.note(note);
        self.rounds.ask(format!("reservation {} was made", reservation.name));
        Ok(Reply::Reservation(reservation))
    }

    fn check_wish(&self, wish: &ReservationWish, from: Timestamp, until: Timestamp) -> Result<(), Refusal> {
        let invalid = |what: String| Err(Refusal::Invalid(format!("reservation {}: {what}", wish.name)));
        if !is_name(&wish.name) {
            return invalid("a name has letters, digits, '-', '_' or '.', a letter or digit first".into());
        }
        if until <= from || until <= self.now {
            return invalid("it must end after it begins, and not in the past".into());
        }
        if wish.nodes.is_empty() {
            return invalid("it must name at least one node".into());
        }
        if let Some(unknown) = wish.nodes.iter().find(|node| !self.nodes.contains_key(node)) {
            return Err(Refusal::NoSuchNode(*unknown));
        }
        if wish.projects.is_empty() && wish.users.is_empty() && wish.jobs.is_empty() {
            return invalid("it must say for whom: projects, users or jobs".into());
        }
        let clash = self
            .reservations
            .values()
            .find(|other| other.from < until && from < other.until && !other.nodes.is_disjoint(&wish.nodes));
        if let Some(other) = clash {
            let both: BTreeSet<NodeId> = other.nodes.intersection(&wish.nodes).copied().collect();
            let nodes = self.nodes_in_words(&both);
            return Err(Refusal::WrongState(format!("{nodes} is set aside for {} at that time", other.name)));
        }
        Ok(())
    }

    pub(crate) fn cancel_reservation(&mut self, actor: &Actor, id: ReservationId) -> Result<Reply, Refusal> {
        let gone = self.reservations.remove(&id).ok_or(Refusal::NoSuchReservation(id))?;
        self.draft.reservations.insert(id);
        let message = format!("reservation {} is cancelled", gone.name);
        self.note(
            Note::new("reservation.cancelled", message.clone()).by(actor.clone()).with("reservation", &gone.name),
        );
        self.rounds.ask(message);
        Ok(Reply::Reservation(gone))
    }

    /// Reservations begin and end by time.
    pub(crate) fn check_reservations(&mut self) {
        let due: Vec<Arc<Reservation>> =
            self.reservations.values().filter(|one| next_moment(one) <= self.now).cloned().collect();
        for one in due {
            let ends = one.until <= self.now;
            let (verb, what) = if ends { ("reservation.ended", "ends") } else { ("reservation.began", "begins") };
            if ends {
                self.reservations.remove(&one.id);
            } else if let Some(row) = self.reservations.get_mut(&one.id) {
                Arc::make_mut(row).began = true;
            }
            self.draft.reservations.insert(one.id);
            let message = format!("reservation {} of {} {what}", one.name, self.nodes_in_words(&one.nodes));
            self.note(Note::new(verb, message).with("reservation", &one.name));
            self.rounds.ask(format!("reservation {} {what}", one.name));
        }
    }

    /// The next moment at which a reservation begins or ends.
    pub(crate) fn next_reservation(&self) -> Option<Timestamp> {
        self.reservations.values().map(|one| next_moment(one)).min()
    }

    /// The reservation that keeps a job off a node now.
    pub(crate) fn shut_out(&self, job: &Job, node: NodeId) -> Option<&Reservation> {
        let here = |one: &&Arc<Reservation>| {
            one.nodes.contains(&node) && one.from <= self.now && self.now < one.until && !self.is_member(job, one)
        };
        self.reservations.values().find(here).map(|one| &**one)
    }

    fn is_member(&self, job: &Job, of: &Reservation) -> bool {
        let project = || {
            let own = std::iter::once(job.spec.project.as_str());
            own.chain(lineage(&self.projects, &job.spec.project)).any(|name| of.projects.contains(name))
        };
        of.jobs.contains(&job.id) || of.users.contains(&job.owner) || project()
    }

    /// What a round may know of them.
    pub(crate) fn reservations_for_round(&self) -> Vec<headway_planner::Reservation> {
        self.reservations.values().filter(|one| one.until > self.now).map(|one| one.for_round()).collect()
    }

    fn nodes_in_words(&self, nodes: &BTreeSet<NodeId>) -> String {
        let names: Vec<String> = nodes.iter().map(|id| self.node_name(*id)).collect();
        let word = if names.len() == 1 { "node" } else { "nodes" };
        format!("{word} {}", names.join(", "))
    }

    /// Whether a reservation keeps some queued job from what its target gives it.
    pub(crate) fn is_kept_off(&self, job: JobId, nodes: impl Iterator<Item = NodeId>) -> bool {
        let Some(entry) = self.jobs.get(&job) else { return false };
        !self.reservations.is_empty() && nodes.into_iter().any(|node| self.shut_out(&entry.job, node).is_some())
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

/// Whether a wish asks for what is there.
fn is_same(known: &Reservation, wish: &ReservationWish) -> bool {
    wish.from.is_none_or(|from| known.from == from)
        && known.until == end(known.from, wish.ends)
        && (&known.nodes, &known.projects, &known.users, &known.jobs)
            == (&wish.nodes, &wish.projects, &wish.users, &wish.jobs)
}
