//! Why every job got what it got, in words and codes with numbers, and why those that stay were not moved. It only reads
//! the decision, never changes it, and is cheap enough for every round: each job looks at its own candidates and at sums
//! made once.
//!
//! Here is what all of it shares; `served`, `unserved` and `obstructed` tell a job's story, `batches` what its batch could be, `limits` names what is
//! scarce between a job and more, `line` who is served before whom, `givers` who could yield, `entitled` what jobs are owed, `unmoved` who stays.

mod batches;
mod entitled;
mod givers;
mod limits;
mod line;
mod obstructed;
mod served;
mod unmoved;
mod unserved;
mod words;

#[cfg(test)]
mod situations;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use headway_types::plan::{Alternative, Unmoved};
use headway_types::{GpuCount, GpuUuid, JobId, JobVerdict, Reason, ReasonCode};

use crate::candidate::{Candidate, Options};
use crate::decide::Decision;
use crate::free::{Free, Seeker};
use crate::guarantee::Guarantees;
use crate::round::Round;

use givers::Givers;
use line::InLine;
pub(crate) use obstructed::{host_amount, obstructed};
pub(crate) use words::{change, gpus, list, percent, relative, span, tokens};

/// Why every job got what it got, and which running jobs stay although another choice would serve them better.
pub(crate) fn explain(
    round: &Round<'_>,
    options: &[Options<'_>],
    owed: &Guarantees,
    decision: &Decision,
) -> (BTreeMap<JobId, JobVerdict>, Vec<Unmoved>) {
    let account = Account::new(round, options, owed, decision);
    let unmoved: Vec<Option<Unmoved>> = (0..options.len()).map(|job| account.unmoved(job)).collect();
    let verdict =
        |(job, unmoved): (usize, &Option<Unmoved>)| (options[job].job.job, account.verdict(job, unmoved.as_ref()));
    (unmoved.iter().enumerate().map(verdict).collect(), unmoved::greatest(unmoved))
}

struct Account<'a> {
    round: &'a Round<'a>,
    options: &'a [Options<'a>],
    owed: &'a Guarantees,
    decision: &'a Decision,
    /// Per row, by the plan.
    used: Vec<i64>,
    /// Which GPUs those hold that do not keep all they have.
    holders: BTreeMap<&'a GpuUuid, usize>,
    givers: Givers,
    /// Where jobs are served one after another.
    line: Option<InLine>,
    /// Who gets which GPU that another job holds, made when first asked for.
    takers: OnceCell<BTreeMap<&'a GpuUuid, usize>>,
    /// What the plan leaves free, made when first asked for.
    rest: OnceCell<Free<'a>>,
}

impl<'a> Account<'a> {
    fn new(round: &'a Round<'a>, options: &'a [Options<'a>], owed: &'a Guarantees, decision: &'a Decision) -> Self {
        let mut used = vec![0; owed.capacity.len()];
        for (options, &at) in options.iter().zip(&decision.choice) {
            for part in &options.candidates[at].uses {
                used[part.row as usize] += part.amount;
            }
        }
        // Most jobs stay, and there are many GPUs.
        let leave = options.iter().zip(&decision.choice).enumerate();
        let holders = leave
            .filter(|(_, (options, at))| !options.candidates[**at].stays)
            .flat_map(|(job, (options, _))| {
                options.job.current.iter().flat_map(move |at| at.placement.ranks().map(move |(_, gpu)| (gpu, job)))
            })
            .collect();
        let givers = Givers::new(round, options, owed, decision);
        let line = round.approach.line(options).map(|line| InLine::new(line, options, &decision.choice));
        let (takers, rest) = (OnceCell::new(), OnceCell::new());
        Self { round, options, owed, decision, used, holders, givers, line, takers, rest }
    }

    fn chosen(&self, job: usize) -> &'a Candidate {
        &self.options[job].candidates[self.decision.choice[job]]
    }

    fn verdict(&self, job: usize, unmoved: Option<&Unmoved>) -> JobVerdict {
        let chosen = self.chosen(job);
        let next = self.options[job].sizes.iter().find(|(gpus, _)| *gpus > chosen.gpus);
        let (headline, mut reasons) = if chosen.gpus.0 > 0 { self.served(job, unmoved) } else { self.unserved(job) };
        reasons.extend(self.entitled(job));
        reasons.extend(self.bounded(job));
        JobVerdict {
            headline,
            gpus: chosen.gpus,
            runner_up: self.runner_up(job).map(|candidate| Alternative {
                gpus: candidate.gpus,
                configuration: candidate.configuration,
                speed_up: candidate.prediction.speed_up,
            }),
            marginal_speed_up: next.map(|(_, speed_up)| speed_up - chosen.prediction.speed_up),
            reasons,
            limits: self.preferred(job).map(|other| self.limits(job, other)).unwrap_or_default(),
        }
    }

    /// Value after paying the cluster's prices for what the candidate takes.
    fn net(&self, candidate: &Candidate) -> f64 {
        let paid: f64 =
            candidate.uses.iter().map(|part| self.decision.prices[part.row as usize] * part.amount as f64).sum();
        candidate.value.units() - paid
    }

    /// Of some candidates of a job the one with the greatest net value; of equals the first.
    fn best(&self, job: usize, suits: impl Fn(&Candidate) -> bool) -> Option<&'a Candidate> {
        let mut best: Option<(f64, &Candidate)> = None;
        for candidate in self.options[job].candidates.iter().filter(|candidate| suits(candidate)) {
            let net = self.net(candidate);
            if best.is_none_or(|(most, _)| net > most) {
                best = Some((net, candidate));
            }
        }
        best.map(|(_, candidate)| candidate)
    }

    fn runner_up(&self, job: usize) -> Option<&'a Candidate> {
        let chosen = self.chosen(job);
        let layout = |candidate: &Candidate| candidate.configuration.map(|at| at.layout);
        self.best(job, |other| other.gpus.0 > 0 && (other.gpus != chosen.gpus || layout(other) != layout(chosen)))
    }

    /// What the job itself would rather have, of that what costs others least.
    fn preferred(&self, job: usize) -> Option<&'a Candidate> {
        let chosen = self.chosen(job);
        self.best(job, |other| other.value > chosen.value && other.gpus > chosen.gpus)
    }

    /// Whether the plan leaves a place for the candidate. Kept nodes are none for a job that outlasts the promise.
    fn has_place(&self, job: usize, candidate: &Candidate, outlasts_promise: bool) -> bool {
        let seeker = Seeker { job: self.options[job].job, current: &[], outlasts_promise };
        candidate.shape.is_some_and(|shape| self.rest().find(shape, seeker).is_some())
    }

    /// What the plan leaves.
    fn rest(&self) -> &Free<'_> {
        self.rest.get_or_init(|| {
            let mut rest = Free::new(self.round.cluster);
            if let Some(promise) = &self.round.promise {
                rest.keep_nodes(&promise.nodes);
            }
            for (job, placement) in self.decision.placements.iter().enumerate() {
                if let Some(placement) = placement {
                    let slots = self.round.cluster.known_slots(placement);
                    rest.take(self.options[job].job, &slots, self.chosen(job).outlasts_promise);
                }
            }
            rest
        })
    }

    fn accepts(&self, job: usize, class: usize) -> bool {
        self.options[job].job.range.accepts(&self.round.cluster.classes[class].alike.gpu_type)
    }

    /// GPUs of a class that the plan leaves.
    fn free(&self, class: usize) -> GpuCount {
        let row = self.round.rows.gpus(class) as usize;
        GpuCount((self.owed.capacity[row] - self.used[row]).max(0) as u32)
    }

    /// Classes that accept and admit the job, and on which it can run; all that admit it where it can on none.
    fn classes_of(&self, job: usize) -> Vec<usize> {
        let options = &self.options[job];
        let able: BTreeSet<usize> = self.could_be_in(job).flat_map(|class| self.round.cluster.members(class)).collect();
        let admitted = self.round.admitted(options.job);
        admitted.filter(|class| able.is_empty() || able.contains(class)).collect()
    }

    /// Classes, and mixes of two, in which it could have GPUs; some more than once.
    fn could_be_in(&self, job: usize) -> impl Iterator<Item = usize> {
        self.options[job].candidates.iter().filter_map(|candidate| Some(candidate.shape?.class))
    }

    /// Left GPUs of that class of these that has most, or of both classes of a mix.
    fn most_free(&self, job: usize) -> GpuCount {
        let alone = self.classes_of(job).into_iter().map(|class| self.free(class).0);
        let mixes = self.could_be_in(job).filter(|class| self.round.cluster.is_mix(*class));
        let together = mixes.map(|mix| self.round.cluster.members(mix).map(|class| self.free(class).0).iter().sum());
        GpuCount(alone.chain(together).max().unwrap_or_default())
    }

    /// Who gets what a job gives up: the one that gets most of it.
    fn taker(&self, job: usize) -> Option<usize> {
        let takers = self.takers.get_or_init(|| {
            let placed = self.decision.placements.iter().enumerate();
            let ranks =
                placed.flat_map(|(job, at)| at.iter().flat_map(move |at| at.ranks().map(move |(_, gpu)| (gpu, job))));
            ranks.filter(|(gpu, job)| self.holders.get(gpu).is_some_and(|holder| holder != job)).collect()
        });
        let mut counts: BTreeMap<usize, u32> = BTreeMap::new();
        let held = self.options[job].job.current.iter().flat_map(|at| at.placement.ranks());
        for taker in held.filter_map(|(_, gpu)| takers.get(gpu)) {
            *counts.entry(*taker).or_default() += 1;
        }
        counts.into_iter().max_by_key(|&(taker, count)| (count, std::cmp::Reverse(taker))).map(|(taker, _)| taker)
    }

    /// GPUs the job is to get that another one still holds.
    fn being_freed(&self, job: usize) -> Vec<Reason> {
        let mut from: BTreeMap<usize, u32> = BTreeMap::new();
        if self.chosen(job).stays || self.holders.is_empty() {
            return Vec::new();
        }
        for (_, gpu) in self.decision.placements[job].iter().flat_map(|placement| placement.ranks()) {
            if let Some(&holder) = self.holders.get(gpu).filter(|holder| **holder != job) {
                *from.entry(holder).or_default() += 1;
            }
        }
        from.into_iter()
            .map(|(holder, count)| {
                let detail = format!("{} is giving up {}", self.options[holder].job.name, gpus(GpuCount(count)));
                reason(ReasonCode::GpusBeingFreed, true, detail)
            })
            .collect()
    }
}

fn reason(code: ReasonCode, binding: bool, detail: String) -> Reason {
    Reason { code, binding, detail }
}
