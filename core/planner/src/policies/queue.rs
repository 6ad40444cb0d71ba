//! Serving one job after another within the rows: who comes first takes what it prefers of what is left. What is owed
//! (floors, what jobs are sure of, what cannot be moved) is set aside beforehand and given up as soon as somebody
//! earlier in the order meets it.

use std::collections::BTreeSet;

use headway_solver::Use;

use crate::candidate::Options;
use crate::guarantee::Guarantees;

pub(super) struct Queue<'a, 'r> {
    pub options: &'r [Options<'a>],
    owed: &'r Guarantees,
    /// (job, candidate) pairs that found no room.
    forbidden: &'r BTreeSet<(usize, usize)>,
    /// First to last.
    order: Vec<usize>,
    rank: Vec<usize>,
    pub choice: Vec<usize>,
    pub used: Vec<i64>,
    /// Ranks of jobs that hold more than their least because that is owed.
    holders: BTreeSet<usize>,
}

impl<'a, 'r> Queue<'a, 'r> {
    /// Everybody at their least, but those that `keep` what they hold. `order` names every job once.
    pub fn new(
        options: &'r [Options<'a>],
        owed: &'r Guarantees,
        forbidden: &'r BTreeSet<(usize, usize)>,
        order: Vec<usize>,
        keep: impl Fn(usize) -> bool,
    ) -> Self {
        let mut rank = vec![0; options.len()];
        order.iter().enumerate().for_each(|(at, &job)| rank[job] = at);
        let choice = owed.start.clone();
        let mut used = vec![0; owed.capacity.len()];
        for (of, &at) in options.iter().zip(&choice) {
            of.candidates[at].uses.iter().for_each(|part| used[part.row as usize] += part.amount);
        }
        let holders = BTreeSet::new();
        let mut queue = Self { options, owed, forbidden, order, rank, choice, used, holders };
        for at in (0..queue.order.len()).rev() {
            let job = queue.order[at];
            if keep(job) && options[job].candidates[queue.choice[job]].stays {
                continue;
            }
            let least = queue.least(job);
            if queue.fits(job, least) {
                queue.set(job, least);
            } else {
                queue.holders.insert(at);
            }
        }
        queue
    }

    pub fn capacity(&self) -> &'r [i64] {
        &self.owed.capacity
    }

    /// The least a job may have: nothing, unless it is sure of more or may not be moved.
    fn least(&self, job: usize) -> usize {
        let candidates = &self.options[job].candidates;
        let allowed = (0..candidates.len()).filter(|&at| self.allows(job, at));
        allowed.min_by_key(|&at| (candidates[at].gpus, !candidates[at].stays, at)).unwrap_or(self.choice[job])
    }

    pub fn allows(&self, job: usize, candidate: usize) -> bool {
        self.owed.allow(self.options, job, candidate) && !self.forbidden.contains(&(job, candidate))
    }

    fn uses(&self, job: usize, candidate: usize) -> &'r [Use] {
        &self.options[job].candidates[candidate].uses
    }

    pub fn set(&mut self, job: usize, candidate: usize) {
        for part in self.uses(job, self.choice[job]) {
            self.used[part.row as usize] -= part.amount;
        }
        for part in self.uses(job, candidate) {
            self.used[part.row as usize] += part.amount;
        }
        self.choice[job] = candidate;
    }

    /// Whether every row that a change touches holds it.
    pub fn fits(&self, job: usize, candidate: usize) -> bool {
        let (now, then) = (self.uses(job, self.choice[job]), self.uses(job, candidate));
        now.iter().chain(then).all(|part| {
            let row = part.row as usize;
            let change = amount(then, part.row) - amount(now, part.row);
            change <= 0 || self.used[row] + change <= self.owed.capacity[row]
        })
    }

    /// Gives a job the first of these candidates that can be had without taking from anyone before it. Where none can,
    /// it keeps what it has. Tells whether one could.
    pub fn serve(&mut self, job: usize, preferred: impl IntoIterator<Item = usize>) -> bool {
        let served = preferred.into_iter().any(|at| self.allows(job, at) && self.take(job, at));
        self.holders.remove(&self.rank[job]);
        served
    }

    fn take(&mut self, job: usize, candidate: usize) -> bool {
        if self.fits(job, candidate) {
            self.set(job, candidate);
            return true;
        }
        // What is set aside behind it may no longer be needed, for this job meets what was owed.
        let later: Vec<usize> = self.holders.range(self.rank[job] + 1..).rev().copied().collect();
        if later.is_empty() {
            return false;
        }
        let (choice, used) = (self.choice.clone(), self.used.clone());
        self.set(job, candidate);
        let mut released = Vec::new();
        for at in later {
            let holder = self.order[at];
            let least = self.least(holder);
            if self.relieves(holder, least) {
                self.set(holder, least);
                released.push(at);
            }
            if self.within() {
                released.iter().for_each(|at| {
                    self.holders.remove(at);
                });
                return true;
            }
        }
        (self.choice, self.used) = (choice, used);
        false
    }

    /// Whether a change takes from a row that holds too much.
    fn relieves(&self, job: usize, candidate: usize) -> bool {
        let (now, then) = (self.uses(job, self.choice[job]), self.uses(job, candidate));
        now.iter().any(|part| {
            let row = part.row as usize;
            self.used[row] > self.owed.capacity[row] && amount(then, part.row) < part.amount
        })
    }

    fn within(&self) -> bool {
        self.used.iter().zip(&self.owed.capacity).all(|(used, capacity)| used <= capacity)
    }
}

pub(super) fn amount(uses: &[Use], row: u32) -> i64 {
    uses.iter().find(|part| part.row == row).map_or(0, |part| part.amount)
}
