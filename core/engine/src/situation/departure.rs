//! When jobs have to begin to leave nodes that others have reserved, so that the nodes are free when the reservation
//! begins, and which jobs may start there. The rules are the planner's (`headway_planner::leaves_at`, `may_start_unsaved`);
//! here is what the engine knows of a job for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_planner::{Departure, leaves_at, may_start_unsaved};
use headway_types::{JobId, NodeId, Seconds, Timestamp};

use super::Situation;
use crate::record::{Job, Reservation};
use crate::seen::JobSeen;

/// From the moment at which a job should leave until it is asked to: a round decides where it goes instead.
const DECIDING: Seconds = Seconds(30.0);
/// A save may take so many times as long as the newest one.
const SAVES_LONGER: f64 = 3.0;
/// Until the running step is over, and for processes to end.
const WINDING_UP: Seconds = Seconds(30.0);

impl Job {
    /// How the job leaves its GPUs: what it has shown, else what its specification promises.
    pub(crate) fn departure(&self, seen: Option<&JobSeen>) -> Departure {
        let promised = Departure::of_spec(&self.spec);
        let speaks = self.speaks() && !promised.never;
        let saves = speaks || (self.started_at.is_none() && promised.saves);
        // After its grace time a job is killed, so it never takes longer.
        let save = seen.and_then(|seen| seen.save_time).filter(|_| saves);
        let grace = self.spec.checkpoint_policy().grace.0;
        let saved = save.map_or(grace, |save| grace.min(SAVES_LONGER * save.0 + WINDING_UP.0));
        let epilog = self.spec.role().run.hooks.after();
        Departure { saves, never: promised.never, takes: DECIDING + Seconds(saved) + epilog }
    }
}

impl<'a> Situation<'a> {
    /// The reservation that keeps a job off a node now: it has begun, or the job could not leave before it begins.
    pub(super) fn shut_out(self, job: &Job, node: NodeId) -> Option<&'a Reservation> {
        let now = self.facts.now;
        self.reserved_by_others(job, node).find(|one| self.leaves_at(job, one).is_some_and(|at| at <= now))
    }

    /// Returns whether a reservation of a node by others forbids the job to start there now. A plan is minutes old when its
    /// grants come, so a job that does not save is held to the whole rule of a start again: where its limit no longer fits
    /// it would be killed, or hold the node beyond the begin of the reservation.
    pub(super) fn may_not_start_on(self, job: &Job, node: NodeId) -> bool {
        if self.facts.reservations.is_empty() {
            return false;
        }
        let now = self.facts.now;
        let departure = self.departure(job);
        let left = job.time_left(now);
        let start_cost = job.downtime.unwrap_or(self.facts.config.restart_prior);
        let forbids = |one: &Reservation| match departure.saves {
            true => self.leaves_at(job, one).is_some_and(|at| at <= now),
            false => !may_start_unsaved(left, start_cost, now, one.from),
        };
        self.reserved_by_others(job, node).any(forbids)
    }

    /// The next moment at which a running job has to begin to leave nodes for a reservation.
    pub fn next_departure(self) -> Option<Timestamp> {
        let moments = self.jobs_on_reserved_nodes().filter_map(|job| {
            let slices = self.facts.live_allocation(job)?.placement.slices().iter();
            let reservations = slices.flat_map(|slice| self.reserved_by_others(job, slice.node));
            reservations.filter_map(|one| self.leaves_at(job, one)).filter(|at| *at > self.facts.now).min()
        });
        moments.min()
    }

    /// Returns the running jobs that have to leave for a reservation, with the reason.
    pub fn leaving_for_reservations(self) -> BTreeMap<JobId, String> {
        let leaves = |job: &Arc<Job>| {
            let mut slices = self.facts.live_allocation(job)?.placement.slices().iter();
            let why = slices.find_map(|slice| self.reserved_words(job, slice.node))?;
            Some((job.id, why))
        };
        self.jobs_on_reserved_nodes().filter_map(leaves).collect()
    }

    /// Returns the live jobs that hold GPUs of reserved nodes. Every batch asks for them, so this looks at the holders of
    /// those nodes and not at all live jobs.
    fn jobs_on_reserved_nodes(self) -> impl Iterator<Item = &'a Arc<Job>> {
        let facts = self.facts;
        let nodes: BTreeSet<NodeId> = facts.reservations.values().flat_map(|one| one.nodes.iter().copied()).collect();
        let holders = nodes.into_iter().filter_map(move |node| facts.holding.get(&node)).flatten();
        let jobs: BTreeSet<JobId> = holders.map(|(job, _)| *job).collect();
        let live = jobs.into_iter().filter_map(move |job| facts.jobs.get(&job));
        live.filter(|job| job.state.generation().is_some())
    }

    /// Why a job cannot stay on a node that is reserved for others.
    pub(super) fn reserved_words(self, job: &Job, node: NodeId) -> Option<String> {
        let (by, now) = (self.shut_out(job, node)?, self.facts.now);
        let name = self.facts.node_name(node);
        let begins = match by.from > now {
            true => format!(", which begins in {}", by.from.since(now).words()),
            false => String::new(),
        };
        Some(format!("node {name} is reserved for {}{begins}", by.purpose()))
    }

    fn reserved_by_others(self, job: &Job, node: NodeId) -> impl Iterator<Item = &'a Reservation> {
        let now = self.facts.now;
        let all = self.facts.reservations.values().map(|one| &**one);
        let here = all.filter(move |one| one.nodes.contains(&node) && now < one.until);
        here.filter(move |one| !self.is_member(job, one))
    }

    fn leaves_at(self, job: &Job, reservation: &Reservation) -> Option<Timestamp> {
        let now = self.facts.now;
        leaves_at(self.departure(job), job.time_left(now), now, reservation.from)
    }

    fn departure(self, job: &Job) -> Departure {
        job.departure(self.seen.jobs.get(&job.id).map(|seen| &**seen))
    }
}
