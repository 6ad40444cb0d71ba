//! A choice of one candidate per job that is kept feasible while jobs are made to give way to others. It looks for
//! something that fits, never for the best: that is the solver's part.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headway_types::GpuCount;
use headway_types::spec::Priority;

use crate::candidate::Options;
use crate::round::Round;

/// Whose GPUs may be taken.
#[derive(Clone, Debug)]
pub(crate) enum Victims {
    Nobody,
    Anyone,
    /// Jobs outside a project.
    Outside {
        project: usize,
    },
    /// Jobs of these projects.
    Members {
        projects: Vec<usize>,
    },
    /// Jobs up to this priority.
    UpTo {
        priority: Priority,
    },
    /// The same, but only these may be left with nothing.
    Peers {
        priority: Priority,
        stoppable: Option<Arc<BTreeSet<usize>>>,
    },
}

impl Victims {
    fn may_stop(&self, job: usize) -> bool {
        match self {
            Self::Peers { stoppable, .. } => stoppable.as_ref().is_some_and(|jobs| jobs.contains(&job)),
            _ => true,
        }
    }
}

pub(crate) struct Witness<'a, 'r> {
    round: &'r Round<'a>,
    options: &'r [Options<'a>],
    choice: Vec<usize>,
    /// What each change replaced, so that attempts can be taken back to where they began.
    journal: Vec<(usize, usize)>,
    pub used: Vec<i64>,
    /// Per row, the jobs whose choice takes some of it: only they can give it back.
    holders: Vec<BTreeSet<usize>>,
    pub capacity: Vec<i64>,
    /// What a job may not fall below any more.
    protected: BTreeMap<usize, GpuCount>,
}

impl<'a, 'r> Witness<'a, 'r> {
    /// Everybody as it is.
    pub fn new(round: &'r Round<'a>, options: &'r [Options<'a>]) -> Self {
        let choice: Vec<usize> = options.iter().map(|job| job.incumbent).collect();
        let mut used = vec![0; round.rows.capacity.len()];
        let mut holders = vec![BTreeSet::new(); used.len()];
        for (job, &at) in choice.iter().enumerate() {
            for part in &options[job].candidates[at].uses {
                used[part.row as usize] += part.amount;
                holders[part.row as usize].insert(job);
            }
        }
        let journal = Vec::new();
        Self {
            round,
            options,
            choice,
            journal,
            used,
            holders,
            capacity: round.rows.capacity.clone(),
            protected: BTreeMap::new(),
        }
    }

    /// The choice and the capacities it keeps. Floors that it exceeds stay what they were.
    pub fn finish(self) -> (Vec<usize>, Vec<i64>) {
        let capacity = self.capacity.iter().zip(&self.used).map(|(capacity, used)| (*capacity).max(*used)).collect();
        (self.choice, capacity)
    }

    /// Index of the candidate that a job has now.
    pub fn chosen(&self, job: usize) -> usize {
        self.choice[job]
    }

    pub fn gpus(&self, job: usize) -> GpuCount {
        self.options[job].candidates[self.choice[job]].gpus
    }

    pub fn excess(&self, row: usize) -> i64 {
        self.used[row] - self.capacity[row]
    }

    pub fn protect(&mut self, job: usize, least: GpuCount) {
        let kept = self.protected.entry(job).or_insert(least);
        *kept = (*kept).max(least);
    }

    /// Nobody is protected any more.
    pub fn unprotect(&mut self) {
        self.protected.clear();
    }

    /// Gives a job a candidate, even if that overdraws rows.
    pub fn set_candidate(&mut self, job: usize, candidate: usize) {
        self.journal.push((job, self.choice[job]));
        let candidates = &self.options[job].candidates;
        for part in &candidates[self.choice[job]].uses {
            self.used[part.row as usize] -= part.amount;
            self.holders[part.row as usize].remove(&job);
        }
        for part in &candidates[candidate].uses {
            self.used[part.row as usize] += part.amount;
            self.holders[part.row as usize].insert(job);
        }
        self.choice[job] = candidate;
    }

    /// Change of a row if `job` took another candidate.
    fn delta(&self, job: usize, candidate: usize, row: usize) -> i64 {
        let amount = |at: usize| {
            let uses = &self.options[job].candidates[at].uses;
            uses.iter().find(|part| part.row as usize == row).map_or(0, |part| part.amount)
        };
        amount(candidate) - amount(self.choice[job])
    }

    /// Brings a row within its capacity at the expense of `victims`, where that is possible without overdrawing others.
    /// Changes nothing where it is not.
    pub fn shed(&mut self, row: usize, victims: &Victims) -> bool {
        let mark = self.journal.len();
        if self.shed_in_part(row, victims) {
            return true;
        }
        self.take_back(mark);
        // Where moves are few, the one change that does alone may be dearer for its size than those that do not suffice.
        let alone = self.cheapest_change(row, victims, self.excess(row));
        alone.is_some_and(|(job, at)| {
            self.set_candidate(job, at);
            true
        })
    }

    /// Brings a row as near to its capacity as it goes, cheapest loss per unit first; whether it is within it then.
    pub fn shed_in_part(&mut self, row: usize, victims: &Victims) -> bool {
        while self.excess(row) > 0 {
            let Some((job, at)) = self.cheapest_change(row, victims, 1) else { return false };
            self.set_candidate(job, at);
        }
        true
    }

    /// The change that loses least per unit it gives back, of those that give back at least so much.
    fn cheapest_change(&self, row: usize, victims: &Victims, least_relief: i64) -> Option<(usize, usize)> {
        let mut best: Option<((bool, f64), usize, usize)> = None;
        for job in self.holders[row].iter().copied().filter(|&job| self.may_give(job, victims)) {
            let now = self.options[job].candidates[self.choice[job]].value.0;
            for (at, candidate) in self.options[job].candidates.iter().enumerate() {
                let relief = (-self.delta(job, at, row)).min(self.excess(row));
                let kept = self.protected.get(&job).is_none_or(|least| candidate.gpus >= *least)
                    && (candidate.gpus > GpuCount(0) || victims.may_stop(job));
                if relief < least_relief || !kept || !self.harmless(job, at) {
                    continue;
                }
                // Jobs that keep their GPUs from others give way last.
                let cost = (self.is_settled(job), (now - candidate.value.0) as f64 / relief as f64);
                if best.is_none_or(|(least, ..)| cost < least) {
                    best = Some((cost, job, at));
                }
            }
        }
        best.map(|(_, job, at)| (job, at))
    }

    /// Whether a change overdraws no row more than it is, moves included.
    fn harmless(&self, job: usize, candidate: usize) -> bool {
        let uses = &self.options[job].candidates[candidate].uses;
        let lost = &self.options[job].candidates[self.choice[job]].uses;
        uses.iter().chain(lost).all(|part| {
            let row = part.row as usize;
            let delta = self.delta(job, candidate, row);
            delta <= 0 || self.used[row] + delta <= self.capacity[row]
        })
    }

    fn may_give(&self, job: usize, victims: &Victims) -> bool {
        let of = self.options[job].job;
        let lineage = || self.round.tree.lineage_of(&of.claim.project);
        match victims {
            Victims::Nobody => false,
            Victims::Anyone => true,
            Victims::Outside { project } => !lineage().contains(project),
            Victims::Members { projects } => lineage().iter().any(|project| projects.contains(project)),
            Victims::UpTo { .. } | Victims::Peers { .. } if self.is_settled(job) => false,
            Victims::UpTo { priority } | Victims::Peers { priority, .. } => of.priority <= *priority,
        }
    }

    fn is_settled(&self, job: usize) -> bool {
        self.options[job].keeps_its_place()
    }

    /// Whether some candidate is larger than what the job has.
    pub fn could_grow(&self, job: usize) -> bool {
        self.options[job].candidates.iter().any(|one| one.gpus > self.gpus(job))
    }

    /// The next larger size of a job.
    pub fn grow(&mut self, job: usize, victims: &Victims) -> bool {
        let now = self.gpus(job);
        let next = self.options[job].candidates.iter().map(|one| one.gpus).filter(|gpus| *gpus > now).min();
        next.is_some_and(|least| self.raise(job, least, victims))
    }

    /// The next larger size of a job at the expense of anyone, fellows in need included, where that brings a row that is
    /// beyond its capacity nearer to it.
    pub fn trade(&mut self, job: usize, row: usize) -> bool {
        let (mark, short) = (self.journal.len(), self.excess(row));
        if self.grow(job, &Victims::Anyone) && self.excess(row) < short {
            return true;
        }
        self.take_back(mark);
        false
    }

    /// Gives a job at least so much, taking from `victims` what that overdraws. Changes nothing where it fails.
    pub fn raise(&mut self, job: usize, least: GpuCount, victims: &Victims) -> bool {
        let candidates = &self.options[job].candidates;
        let mut order: Vec<usize> = (0..candidates.len()).filter(|&at| candidates[at].gpus >= least).collect();
        order.sort_by_key(|&at| (candidates[at].gpus, std::cmp::Reverse(candidates[at].value), at));
        // What fits without anybody giving way comes first, however small its value.
        let fitting = order.iter().copied().find(|&at| self.harmless(job, at));
        if let Some(at) = fitting {
            self.set_candidate(job, at);
            return true;
        }
        let overdrawn: Vec<bool> = (0..self.used.len()).map(|row| self.excess(row) > 0).collect();
        let held = self.protected.insert(job, least);
        let raised = order.into_iter().any(|at| {
            let mark = self.journal.len();
            self.set_candidate(job, at);
            let mut rows = (0..overdrawn.len()).filter(|&row| !overdrawn[row]);
            let shed = rows.clone().all(|row| self.shed_unless_floor(row, victims));
            let fits = shed && rows.all(|row| self.excess(row) <= 0);
            if !fits {
                self.take_back(mark);
            }
            fits
        });
        match held {
            Some(held) => self.protected.insert(job, held),
            None => self.protected.remove(&job),
        };
        raised
    }

    /// Returns the number of changes so far, to which attempts can be taken back.
    pub fn journal_length(&self) -> usize {
        self.journal.len()
    }

    /// Returns the jobs that were changed since the journal was this long.
    pub fn jobs_changed_since(&self, mark: usize) -> BTreeSet<usize> {
        self.journal[mark..].iter().map(|(job, _)| *job).collect()
    }

    /// Undoes every change since the journal was this long.
    pub fn take_back(&mut self, mark: usize) {
        for (job, before) in self.journal.split_off(mark).into_iter().rev() {
            self.set_candidate(job, before);
        }
        self.journal.truncate(mark);
    }

    /// A floor that taking breaks cannot be shed: it has to be respected from the start.
    fn shed_unless_floor(&mut self, row: usize, victims: &Victims) -> bool {
        self.excess(row) <= 0 || (self.capacity[row] >= 0 && self.shed(row, victims))
    }
}
