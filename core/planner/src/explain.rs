//! Why every job got what it got, in words and codes with numbers. It only reads the decision, never changes it.

use std::collections::BTreeMap;

use headway_types::plan::Alternative;
use headway_types::{GpuCount, GpuUuid, JobId, JobVerdict, Reason, ReasonCode};

use crate::candidate::{Candidate, Options};
use crate::curves;
use crate::decide::Decision;
use crate::guarantee::Guarantees;
use crate::input::Freedom;
use crate::obstacle::Obstacle;
use crate::round::Round;
use crate::rows::RowKind;

pub(crate) fn verdicts(
    round: &Round<'_>,
    options: &[Options<'_>],
    owed: &Guarantees,
    decision: &Decision,
) -> BTreeMap<JobId, JobVerdict> {
    let account = Account::new(round, options, owed, decision);
    (0..options.len()).map(|job| (options[job].job.job, account.verdict(job))).collect()
}

/// "8 GPUs", "1 GPU".
pub(crate) fn gpus(count: GpuCount) -> String {
    if count.0 == 1 { "1 GPU".into() } else { format!("{count} GPUs") }
}

/// "12 %"; one decimal below 10.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent.abs() < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// "850", "21k", "3.2M".
pub(crate) fn tokens(count: f64) -> String {
    match count {
        count if count >= 1e6 => format!("{:.1}M", count / 1e6),
        count if count >= 1e3 => format!("{:.0}k", count / 1e3),
        count => format!("{count:.0}"),
    }
}

struct Account<'a> {
    round: &'a Round<'a>,
    options: &'a [Options<'a>],
    owed: &'a Guarantees,
    decision: &'a Decision,
    /// GPUs left per class once the plan is reached.
    free: Vec<GpuCount>,
    /// Who holds which GPU before the plan.
    holders: BTreeMap<&'a GpuUuid, usize>,
}

impl<'a> Account<'a> {
    fn new(round: &'a Round<'a>, options: &'a [Options<'a>], owed: &'a Guarantees, decision: &'a Decision) -> Self {
        let cluster = round.cluster;
        let mut free: Vec<GpuCount> = (0..cluster.classes.len()).map(|class| cluster.open(class)).collect();
        for (options, &at) in options.iter().zip(&decision.choice) {
            for part in &options.candidates[at].uses {
                if let RowKind::Blocks { class, level: 0 } = round.rows.kinds[part.row as usize] {
                    free[class] = free[class].saturating_sub(GpuCount(part.amount.max(0) as u32));
                }
            }
        }
        let holders = options
            .iter()
            .enumerate()
            .flat_map(|(job, options)| {
                options.job.current.iter().flat_map(move |at| at.placement.ranks().map(move |(_, gpu)| (gpu, job)))
            })
            .collect();
        Self { round, options, owed, decision, free, holders }
    }

    fn chosen(&self, job: usize) -> &'a Candidate {
        &self.options[job].candidates[self.decision.choice[job]]
    }

    fn verdict(&self, job: usize) -> JobVerdict {
        let chosen = self.chosen(job);
        let next = self.options[job].sizes.iter().find(|(gpus, _)| *gpus > chosen.gpus);
        let (headline, reasons) = if chosen.gpus.0 > 0 { self.served(job) } else { self.unserved(job) };
        JobVerdict {
            headline,
            gpus: chosen.gpus,
            runner_up: self.runner_up(job),
            marginal_speed_up: next.map(|(_, speed_up)| speed_up - chosen.prediction.speed_up),
            reasons,
        }
    }

    /// Value after paying the cluster's prices for what the candidate takes.
    fn net(&self, candidate: &Candidate) -> f64 {
        let paid: f64 =
            candidate.uses.iter().map(|part| self.decision.prices[part.row as usize] * part.amount as f64).sum();
        candidate.value.units() - paid
    }

    fn runner_up(&self, job: usize) -> Option<Alternative> {
        let chosen = self.chosen(job);
        let layout = |candidate: &Candidate| candidate.configuration.map(|at| at.layout);
        let mut best: Option<&Candidate> = None;
        for candidate in self.options[job].candidates.iter().filter(|candidate| candidate.gpus.0 > 0) {
            let other = candidate.gpus != chosen.gpus || layout(candidate) != layout(chosen);
            if other && best.is_none_or(|best| self.net(candidate) > self.net(best)) {
                best = Some(candidate);
            }
        }
        best.map(|candidate| Alternative {
            gpus: candidate.gpus,
            configuration: candidate.configuration,
            speed_up: candidate.prediction.speed_up,
        })
    }

    fn served(&self, job: usize) -> (String, Vec<Reason>) {
        let options = &self.options[job];
        let chosen = self.chosen(job);
        let mut reasons = self.being_freed(job);
        if let Freedom::Fixed { reason } = &options.job.freedom {
            let better = options.sizes.iter().any(|(_, speed_up)| *speed_up > chosen.prediction.speed_up);
            reasons.push(self::reason(ReasonCode::Cooldown, better, reason.clone()));
        }
        if options.model.is_none() {
            let detail = "no training section: the job is placed at its requested size, not tuned";
            reasons.push(reason(ReasonCode::ProfileMissing, false, detail.into()));
            return (format!("{}, as requested", gpus(chosen.gpus)), reasons);
        }
        if let Some(change) = options.batch_change.filter(|change| !change.taken && change.gain > 0.0) {
            let needed = percent(self.round.input.policy.min_batch_gain);
            let detail = format!(
                "a batch of {} would be {} more goodput; a change must gain {needed}",
                change.to.global_batch,
                percent(change.gain)
            );
            reasons.push(reason(ReasonCode::GainTooSmall, true, detail));
        }
        if options.model.as_ref().is_some_and(|model| curves::noise_scale(model).is_none()) {
            let detail = "no gradient noise scale reported yet: batches are weighed by what is assumed";
            reasons.push(reason(ReasonCode::ProfileMissing, false, detail.into()));
        }
        let configuration =
            chosen.configuration.map(|at| format!(" ({}, batch {})", at.layout, at.global_batch)).unwrap_or_default();
        let speed_up = chosen.prediction.speed_up;
        let head = format!("{}{configuration}: speed-up {speed_up:.2}", gpus(chosen.gpus));
        let next = options.sizes.iter().find(|(gpus, _)| *gpus > chosen.gpus);
        let tail = match next {
            Some(&(larger, then)) => {
                reasons.push(self.why_not_larger(job, larger, then));
                let gain = percent(then / speed_up.max(f64::MIN_POSITIVE) - 1.0);
                format!("{} would add {gain}", gpus(larger))
            }
            None if chosen.gpus == options.job.range.max => {
                let detail = format!("the job asks for at most {}", gpus(options.job.range.max));
                reasons.push(reason(ReasonCode::AtMaximum, true, detail));
                "the most it asks for".into()
            }
            None => {
                let detail = "no larger size it allows fits the cluster".to_owned();
                reasons.push(reason(ReasonCode::AtMaximum, true, detail));
                "the largest size that fits the cluster".into()
            }
        };
        (format!("{head}; {tail}"), reasons)
    }

    fn why_not_larger(&self, job: usize, larger: GpuCount, then: f64) -> Reason {
        let chosen = self.chosen(job);
        let more = larger.saturating_sub(chosen.gpus);
        let free = self.most_free(job);
        let speed_up = chosen.prediction.speed_up;
        if self.decision.fragmented.contains(&job) {
            let detail = format!("{} are free, but scattered so that {} find no room", gpus(free), gpus(larger));
            return reason(ReasonCode::Fragmented, true, detail);
        }
        if free >= more {
            let detail = format!(
                "{} are free, but going from speed-up {speed_up:.2} to {then:.2} would not pay for the restart",
                gpus(free)
            );
            return reason(ReasonCode::GainTooSmall, true, detail);
        }
        let price = self.prices_of(job) * f64::from(more.0);
        let detail = format!(
            "{} more would take the speed-up from {speed_up:.2} to {then:.2}, and other jobs lose {price:.2} of value by it",
            gpus(more)
        );
        reason(ReasonCode::BestForCluster, true, detail)
    }

    /// GPUs the job is to get that another one still holds.
    fn being_freed(&self, job: usize) -> Vec<Reason> {
        let mut from: BTreeMap<usize, u32> = BTreeMap::new();
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

    fn unserved(&self, job: usize) -> (String, Vec<Reason>) {
        let options = &self.options[job];
        if let Some(obstacle) = &options.obstacle {
            return self.obstructed(job, obstacle);
        }
        if let Freedom::Fixed { reason: why } = &options.job.freedom {
            return (format!("Waits: {why}"), vec![reason(ReasonCode::Cooldown, true, why.clone())]);
        }
        let placeable = || options.candidates.iter().filter(|candidate| candidate.shape.is_some());
        let Some(need) = placeable().map(|candidate| candidate.gpus).min() else {
            let detail = "its script cannot change its layout, and its GPUs are no longer usable".to_owned();
            return (format!("Waits: {detail}"), vec![reason(ReasonCode::NodesUnhealthy, true, detail)]);
        };
        let free = self.most_free(job);
        let gain = placeable().map(|candidate| candidate.value.0).max().unwrap_or_default() as f64 / 1e6;
        let head = match &options.job.current {
            Some(current) => format!("Gives up its {} and waits for {}", gpus(current.placement.gpus()), need),
            None => format!("Needs {}", gpus(need)),
        };
        if free >= need {
            let detail = format!("{} are free, but scattered over nodes so that {} find no room", gpus(free), need);
            return (format!("{head}; {detail}"), vec![reason(ReasonCode::Fragmented, true, detail)]);
        }
        let short = need.saturating_sub(free);
        let (taking, detail, code) = match self.cheapest_giver(job, short) {
            Some((giver, loss)) => {
                let other = &self.options[giver].job;
                let ahead = other.priority > options.job.priority;
                let code = if ahead { ReasonCode::PriorityBehind } else { ReasonCode::BestForCluster };
                let detail = format!(
                    "taking {} from {} (priority {}) would lose {loss:.2} and gain at most {gain:.2}",
                    gpus(short),
                    other.name,
                    other.priority.0
                );
                (format!("taking {short} from {} would lose more than it gains", other.name), detail, code)
            }
            None => {
                let detail = format!("no single job can be moved to give {}", gpus(short));
                (detail.clone(), detail, ReasonCode::BestForCluster)
            }
        };
        let enough = format!("needs {}, {} are free", gpus(need), free);
        let are = if free.0 == 1 { "is" } else { "are" };
        (
            format!("{head}; {free} {are} free and {taking}"),
            vec![reason(ReasonCode::NotEnoughFree, true, enough), reason(code, true, detail)],
        )
    }

    fn obstructed(&self, job: usize, obstacle: &Obstacle) -> (String, Vec<Reason>) {
        let wanted = &self.options[job].job.range;
        let least = if self.options[job].job.work.is_opaque() { wanted.max } else { wanted.min };
        let never = |code, detail: String| {
            let headline = format!("Cannot run on this cluster: {detail}");
            (headline, vec![reason(ReasonCode::Never, true, detail.clone()), reason(code, true, detail)])
        };
        match obstacle {
            Obstacle::WrongType => {
                let types: Vec<String> = wanted.types.iter().map(ToString::to_string).collect();
                never(ReasonCode::WrongGpuType, format!("it accepts only {}, and no node has that", types.join(", ")))
            }
            Obstacle::TooLarge { built } if self.round.cluster.classes.is_empty() => {
                let detail = format!("no node offers GPUs yet ({built} of {})", gpus(least));
                (format!("Waits: {detail}"), vec![reason(ReasonCode::NodesUnhealthy, true, detail)])
            }
            Obstacle::TooLarge { built } => never(
                ReasonCode::NotEnoughFree,
                format!("it needs {} of one node class, and the largest has {built}", gpus(least)),
            ),
            Obstacle::Infeasible(refusal) => {
                let code = if refusal.memory { ReasonCode::MemoryInfeasible } else { ReasonCode::WrongGpuType };
                never(code, refusal.detail.clone())
            }
            Obstacle::NotUsable { usable } => {
                let detail = format!("{usable} are usable now; the others are broken, closed or unreachable");
                let headline = format!("Needs {}; {detail}", gpus(least));
                (headline, vec![reason(ReasonCode::NodesUnhealthy, true, detail)])
            }
        }
    }

    fn accepted(&self, job: usize) -> impl Iterator<Item = usize> + '_ {
        let range = &self.options[job].job.range;
        (0..self.round.cluster.classes.len())
            .filter(move |&class| range.accepts(&self.round.cluster.classes[class].alike.gpu_type))
    }

    /// Free GPUs of the accepted class that has most.
    fn most_free(&self, job: usize) -> GpuCount {
        self.accepted(job).map(|class| self.free[class]).max().unwrap_or_default()
    }

    /// Price of a GPU in the cheapest accepted class.
    fn prices_of(&self, job: usize) -> f64 {
        let prices = self.accepted(job).map(|class| self.round.rows.price_per_gpu(class, &self.decision.prices));
        prices.fold(f64::INFINITY, f64::min)
    }

    /// The job that could give `short` GPUs of an accepted class at least loss, and that loss.
    fn cheapest_giver(&self, job: usize, short: GpuCount) -> Option<(usize, f64)> {
        let classes: Vec<usize> = self.accepted(job).collect();
        let taken = |candidate: &Candidate| -> i64 {
            let accepted = |part: &&headway_solver::Use| {
                let kind = &self.round.rows.kinds[part.row as usize];
                matches!(kind, RowKind::Blocks { class, level: 0 } if classes.contains(class))
            };
            candidate.uses.iter().filter(accepted).map(|part| part.amount).sum()
        };
        let mut best: Option<(i64, usize)> = None;
        for other in (0..self.options.len()).filter(|&other| other != job) {
            let chosen = self.chosen(other);
            for candidate in &self.options[other].candidates {
                if taken(candidate) + i64::from(short.0) <= taken(chosen) {
                    let loss = chosen.value.0 - candidate.value.0;
                    if best.is_none_or(|(least, _)| loss < least) {
                        best = Some((loss, other));
                    }
                }
            }
        }
        best.map(|(loss, other)| (other, loss as f64 / 1e6))
    }
}

fn reason(code: ReasonCode, binding: bool, detail: String) -> Reason {
    Reason { code, binding, detail }
}
