//! From shapes to GPUs: the present placement where it can stay, the largest slices first, the fullest nodes first.
//! It decides about sizes only where a shape finds no room because what is free lies scattered: then others move out of
//! its way if that costs less than the job's next best, and else the job gets that.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use headway_types::{GpuCount, NodeSlice, Placement};

use crate::candidate::{Candidate, Options};
use crate::cluster::{Cluster, Shape, Slot};
use crate::free::{Free, Seeker};
use crate::input::Freedom;
use crate::make_room;
use crate::round::Round;
use crate::rows::RowKind;

/// Where everything goes.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    /// What was asked for, but the next best of a job that found no room for it.
    pub choice: Vec<usize>,
    pub placements: Vec<Option<Placement>>,
    /// The first job (by index) that found no room for its choice.
    pub no_room: Option<usize>,
}

/// A placement under way.
pub(crate) struct Placing<'a, 'r> {
    pub round: &'r Round<'a>,
    pub options: &'r [Options<'a>],
    /// What each row may hold.
    pub capacity: &'r [i64],
    pub free: Free<'r>,
    pub choice: Vec<usize>,
    pub used: Vec<i64>,
    /// What each job gets; empty while it is open or where it gets nothing.
    pub slots: Vec<Vec<Slot>>,
    /// Usable slots each job holds now.
    pub current: Vec<Vec<Slot>>,
}

/// Places every job's chosen candidate. `evicted` jobs must not simply get back what they hold.
pub(crate) fn place(
    round: &Round<'_>,
    options: &[Options<'_>],
    capacity: &[i64],
    choice: &[usize],
    evicted: &BTreeSet<usize>,
) -> Placed {
    let mut placing = Placing::new(round, options, capacity, choice);
    let mut open = Vec::new();
    for (job, of) in options.iter().enumerate() {
        let candidate = placing.candidate(job);
        let keeps = !evicted.contains(&job) && placing.keeps_shape(job, candidate);
        if let Some(current) = of.job.current.as_ref().filter(|_| candidate.stays || keeps) {
            placing.hold_placement(job, &current.placement);
        } else {
            open.extend(candidate.shape.map(|shape| (job, shape)));
        }
    }
    let no_room = placing.place_open(open, evicted);
    if no_room.is_some() || !evicted.is_empty() {
        placing.restore();
    }
    if no_room.is_some() {
        placing.backfill();
    }
    let placements = (0..options.len()).map(|job| placing.placement(job)).collect();
    Placed { choice: placing.choice, placements, no_room }
}

impl<'a, 'r> Placing<'a, 'r> {
    /// Places every job where it is now.
    pub fn from_present(round: &'r Round<'a>, options: &'r [Options<'a>]) -> Self {
        let choice: Vec<usize> = options.iter().map(|of| of.incumbent).collect();
        let mut placing = Self::new(round, options, &round.rows.capacity, &choice);
        for (job, of) in options.iter().enumerate() {
            if let Some(current) = of.job.current.as_ref().filter(|_| placing.candidate(job).stays) {
                placing.hold_placement(job, &current.placement);
            }
        }
        placing
    }

    fn new(round: &'r Round<'a>, options: &'r [Options<'a>], capacity: &'r [i64], choice: &[usize]) -> Self {
        let current = options
            .iter()
            .map(|entry| {
                let current = entry.job.current.as_ref();
                current.and_then(|current| round.cluster.slots(&current.placement)).unwrap_or_default()
            })
            .collect();
        let mut used = vec![0; capacity.len()];
        for (entry, &at) in options.iter().zip(choice) {
            for part in &entry.candidates[at].uses {
                used[part.row as usize] += part.amount;
            }
        }
        let (mut free, slots) = (Free::new(round.cluster), vec![Vec::new(); options.len()]);
        if let Some(promise) = &round.promise {
            free.keep_nodes(&promise.nodes);
        }
        Self { round, options, capacity, free, choice: choice.to_vec(), used, slots, current }
    }

    pub fn candidate(&self, job: usize) -> &'r Candidate {
        &self.options[job].candidates[self.choice[job]]
    }

    /// Returns the seeker of one of a job's candidates.
    pub fn seeker(&self, job: usize, candidate: &Candidate) -> Seeker<'_> {
        Seeker { job: self.options[job].job, current: &self.current[job], outlasts_promise: candidate.outlasts_promise }
    }

    /// Returns slots for a job's candidate; `None` also if it has no shape.
    pub fn find(&self, job: usize, candidate: &Candidate) -> Option<Vec<Slot>> {
        self.free.find(candidate.shape?, self.seeker(job, candidate))
    }

    /// Gives slots to a job under its present choice.
    pub fn put(&mut self, job: usize, slots: Vec<Slot>) {
        self.free.take(self.options[job].job, &slots, self.candidate(job).outlasts_promise);
        self.slots[job] = slots;
    }

    /// Takes its slots from a job, which must still have the choice under which it got them.
    pub fn lift(&mut self, job: usize) -> Vec<Slot> {
        let slots = std::mem::take(&mut self.slots[job]);
        self.free.give_back(self.options[job].job, &slots, self.candidate(job).outlasts_promise);
        slots
    }

    /// Lets a job keep its placement, unusable GPUs included.
    fn hold_placement(&mut self, job: usize, placement: &Placement) {
        let slots = self.round.cluster.known_slots(placement);
        self.free.take_unusable(self.options[job].job, placement, &slots);
        self.put(job, slots);
    }

    /// Gives jobs other candidates if all of them find room. Changes nothing if not.
    pub fn change_candidates(&mut self, to: &[(usize, usize)]) -> bool {
        let mut before = Vec::new();
        for &(job, at) in to {
            before.push((job, self.choice[job], self.lift(job)));
            self.choose(job, at);
        }
        let mut order: Vec<usize> = to.iter().map(|(job, _)| *job).collect();
        order.sort_by_key(|&job| self.placing_order(job));
        if order.into_iter().all(|job| self.place_choice(job)) {
            return true;
        }
        for &(job, _) in to {
            self.lift(job);
        }
        for (job, at, slots) in before {
            self.choose(job, at);
            self.put(job, slots);
        }
        false
    }

    /// Places a job's choice if there is room for it.
    fn place_choice(&mut self, job: usize) -> bool {
        let candidate = self.candidate(job);
        if candidate.gpus == GpuCount(0) {
            return true;
        }
        let held = candidate.stays && self.free.all(self.seeker(job, candidate));
        let slots = if held { Some(self.current[job].clone()) } else { self.find(job, candidate) };
        let has_room = slots.is_some();
        if let Some(slots) = slots {
            self.put(job, slots);
        }
        has_room
    }

    /// Large slices come first: the rest is then small enough for the small ones.
    fn placing_order(&self, job: usize) -> impl Ord + use<> {
        let slices = self.candidate(job).shape.map(|shape| (shape.per_node(), shape.nodes));
        (Reverse(slices), self.options[job].job.job)
    }

    pub fn choose(&mut self, job: usize, candidate: usize) {
        for part in &self.candidate(job).uses {
            self.used[part.row as usize] -= part.amount;
        }
        self.choice[job] = candidate;
        for part in &self.candidate(job).uses {
            self.used[part.row as usize] += part.amount;
        }
    }

    /// Whether giving a job another candidate keeps every row within what it holds, or no further beyond.
    pub fn affordable(&self, job: usize, candidate: usize) -> bool {
        let (now, then) = (&self.candidate(job).uses, &self.options[job].candidates[candidate].uses);
        let amount =
            |uses: &[headway_solver::Use], row| uses.iter().find(|part| part.row == row).map_or(0, |p| p.amount);
        now.iter().chain(then).all(|part| {
            let delta = amount(then, part.row) - amount(now, part.row);
            delta <= 0 || self.used[part.row as usize] + delta <= self.capacity[part.row as usize]
        })
    }

    /// Moves beyond those chosen that the round still allows.
    pub fn moves_left(&self) -> i64 {
        let row = self.round.rows.row(&RowKind::Moves).map(|row| row as usize);
        row.map_or(i64::MAX, |row| self.capacity[row] - self.used[row])
    }

    /// Places jobs whose choice is open. Jobs that give way to others come last, or they would go back to where they were.
    /// Returns the first job without room.
    fn place_open(&mut self, mut open: Vec<(usize, Shape)>, evicted: &BTreeSet<usize>) -> Option<usize> {
        open.sort_by_key(|&(job, _)| (evicted.contains(&job), self.placing_order(job)));
        let mut no_room = None;
        for (job, shape) in open {
            if let Some(slots) = self.find(job, self.candidate(job)) {
                self.put(job, slots);
            } else if !make_room::for_job(self, job, shape) {
                no_room.get_or_insert(job);
                let (at, slots) = self.next_best(job);
                self.choose(job, at);
                self.put(job, slots);
            }
        }
        no_room
    }

    /// The most valuable candidate that has room in what is left, and where; having nothing always has.
    pub fn next_best(&self, job: usize) -> (usize, Vec<Slot>) {
        let candidates = &self.options[job].candidates;
        let mut order: Vec<usize> = (0..candidates.len()).collect();
        order.sort_by_key(|&at| (Reverse(candidates[at].value), at));
        let fits = order.into_iter().find_map(|at| {
            let candidate = &candidates[at];
            let afforded = at == self.choice[job] || self.affordable(job, at);
            match candidate.shape {
                Some(_) => afforded.then(|| self.find(job, candidate)).flatten().map(|slots| (at, slots)),
                None if candidate.stays => {
                    let held = &self.current[job];
                    (afforded && self.free.all(self.seeker(job, candidate))).then(|| (at, held.clone()))
                }
                None => Some((at, Vec::new())),
            }
        });
        fits.expect("a job that may move may also have nothing")
    }

    /// Who gave way for nothing gets back what it has: all of it is still free, and keeping it is worth more.
    fn restore(&mut self) {
        for job in 0..self.options.len() {
            let of = &self.options[job];
            let (now, before) = (self.candidate(job), &of.candidates[of.incumbent]);
            if !before.stays || now.gpus >= before.gpus || now.value >= before.value {
                continue;
            }
            let (taken, held) = (self.lift(job), self.current[job].clone());
            if self.free.all(self.seeker(job, before)) && self.affordable(job, of.incumbent) {
                self.choose(job, of.incumbent);
                self.put(job, held);
            } else {
                self.put(job, taken);
            }
        }
    }

    /// What a job without room left over may serve those that wait.
    fn backfill(&mut self) {
        for job in 0..self.options.len() {
            let free_to_gain = !matches!(self.options[job].job.freedom, Freedom::Fixed { .. });
            if free_to_gain && self.slots[job].is_empty() && self.candidate(job).gpus.0 == 0 {
                let (at, slots) = self.next_best(job);
                self.choose(job, at);
                self.put(job, slots);
            }
        }
    }

    /// Whether a move keeps class, size and spread (a layout change), on GPUs that still may be used for it.
    fn keeps_shape(&self, job: usize, candidate: &Candidate) -> bool {
        let (Some(shape), Some(current)) = (candidate.shape, self.options[job].job.current.as_ref()) else {
            return false;
        };
        let (cluster, placement) = (self.round.cluster, &current.placement);
        let suits = |slot: &Slot| self.free.has_room(self.seeker(job, candidate), slot.node, 0);
        cluster.has_shape(placement, shape)
            && !self.current[job].is_empty()
            // What stays there has to be counted first.
            && self.round.cluster.site.dividing_rows_of(self.options[job].job).is_empty()
            && self.current[job].iter().all(suits)
            && (shape.reach == crate::cluster::Reach::Class || cluster.domains_of(placement) == 1)
            && !cluster.touches_draining(placement)
    }

    fn placement(&self, job: usize) -> Option<Placement> {
        if self.candidate(job).stays {
            return self.options[job].job.current.as_ref().map(|current| current.placement.clone());
        }
        let cluster = self.round.cluster;
        let held = self.options[job].job.current.as_ref().filter(|_| self.slots[job] == self.current[job]);
        let kept = held.filter(|current| !self.slots[job].is_empty() && cluster.is_in_rank_order(&current.placement));
        if let Some(current) = kept {
            return Some(current.placement.clone());
        }
        placement(cluster, &self.slots[job])
    }
}

/// Slots in rank order; `None` where there are none.
fn placement(cluster: &Cluster<'_>, slots: &[Slot]) -> Option<Placement> {
    let mut slots = slots.to_vec();
    cluster.sort_by_rank(&mut slots);
    let mut slices: Vec<NodeSlice> = Vec::new();
    for slot in slots {
        let node = &cluster.nodes[slot.node];
        let gpu = node.gpus[slot.position].clone();
        match slices.last_mut() {
            Some(last) if last.node == node.node => last.gpus.push(gpu),
            _ => slices.push(NodeSlice { node: node.node, gpus: vec![gpu] }),
        }
    }
    Placement::try_new(slices).ok()
}
