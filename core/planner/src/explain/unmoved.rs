//! Running jobs that another size or layout would serve better, were moving free, and that stay: what is forgone and why.

use headway_types::plan::Unmoved;
use headway_types::{GpuCount, Reason, ReasonCode};

use super::{Account, gpus, percent, reason, relative, span};
use crate::candidate::Candidate;
use crate::input::Freedom;
use crate::rows::RowKind;
use crate::value::{self, Until};

/// The greatest losses are told, no more: a plan is stored every round.
const MOST_TOLD: usize = 100;
/// Less of the objective is not worth a line.
const LEAST: f64 = 1e-3;

/// What is told of a round.
pub(super) fn greatest(unmoved: Vec<Option<Unmoved>>) -> Vec<Unmoved> {
    let mut all: Vec<Unmoved> = unmoved.into_iter().flatten().collect();
    all.sort_by(|a, b| b.forgone.total_cmp(&a.forgone).then(a.job.cmp(&b.job)));
    all.truncate(MOST_TOLD);
    all
}

impl Account<'_> {
    pub(super) fn unmoved(&self, job: usize) -> Option<Unmoved> {
        let options = &self.options[job];
        let chosen = self.chosen(job);
        // Who serves in an order weighs no moves.
        if !chosen.stays || options.job.work.is_opaque() || self.line.is_some() {
            return None;
        }
        let (to, speed_up, forgone, why) = match &options.job.freedom {
            Freedom::Settled { reason: why } | Freedom::Fixed { reason: why } => {
                let (to, speed_up, forgone) = self.best_if_free(job)?;
                (to, speed_up, forgone, reason(ReasonCode::Cooldown, true, why.clone()))
            }
            Freedom::Free => {
                let (other, forgone) = self.best_if_moving_were_free(job)?;
                (other.gpus, other.prediction.speed_up, forgone, self.why_it_stays(job, other)?)
            }
        };
        (forgone >= LEAST).then(|| Unmoved {
            job: options.job.job,
            from_gpus: chosen.gpus,
            to_gpus: to,
            gain: relative(chosen.prediction.speed_up, speed_up).unwrap_or(0.0),
            forgone,
            code: why.code,
            detail: why.detail,
        })
    }

    fn worth(&self, job: usize, speed_up: f64) -> f64 {
        let (policy, of) = (&self.round.input.policy, self.options[job].job);
        let share_factor = self.round.tree.share_factor(&of.claim.project);
        let weight = value::weight(policy, of, share_factor, self.round.input.now) * self.options[job].scale;
        weight * value::utility(policy, speed_up)
    }

    /// The size a job that may not move would have, at the prices of its class.
    fn best_if_free(&self, job: usize) -> Option<(GpuCount, f64, f64)> {
        let (options, chosen) = (&self.options[job], self.chosen(job));
        let class = self.round.cluster.class_of_placement(&options.job.current.as_ref()?.placement)?;
        let price = self.round.rows.price_per_gpu(class, &self.decision.prices);
        let net = |gpus: GpuCount, speed_up: f64| self.worth(job, speed_up) - price * f64::from(gpus.0);
        let now = net(chosen.gpus, chosen.prediction.speed_up);
        let others = options.sizes.iter().filter(|(_, speed_up)| *speed_up > chosen.prediction.speed_up);
        others
            .map(|&(gpus, speed_up)| (gpus, speed_up, net(gpus, speed_up) - now))
            .max_by(|a, b| a.2.total_cmp(&b.2).then(b.0.cmp(&a.0)))
    }

    /// The choice that would be best without downtime and hysteresis, and what it would gain.
    fn best_if_moving_were_free(&self, job: usize) -> Option<(&Candidate, f64)> {
        let chosen = self.chosen(job);
        let net = |one: &Candidate| {
            let paid = one.value.units() - self.net(one);
            self.worth(job, one.prediction.speed_up) - paid
        };
        let now = net(chosen);
        let mut best: Option<(&Candidate, f64)> = None;
        let serves_better = |one: &&Candidate| {
            one.shape.is_some() && one.gpus != chosen.gpus && one.prediction.speed_up > chosen.prediction.speed_up
        };
        for other in self.options[job].candidates.iter().filter(serves_better) {
            let gain = net(other) - now;
            if best.is_none_or(|(_, most)| gain > most) {
                best = Some((other, gain));
            }
        }
        best
    }

    fn why_it_stays(&self, job: usize, other: &Candidate) -> Option<Reason> {
        let chosen = self.chosen(job);
        if self.net(other) > self.net(chosen) {
            let moves = self
                .demands(job, other)
                .into_iter()
                .find(|one| one.is_short() && matches!(self.round.rows.kinds[one.row], RowKind::Moves));
            return match moves {
                Some(short) => Some(reason(ReasonCode::MoveBudget, true, self.shortage(short))),
                None if self.decision.fragmented.contains(&job) => {
                    Some(reason(ReasonCode::Fragmented, true, self.scattered(job, other, ReasonCode::Fragmented)))
                }
                None => None,
            };
        }
        if self.net(other) + self.options[job].move_penalty > self.net(chosen) {
            return Some(reason(ReasonCode::Hysteresis, true, self.hysteresis(job, other)));
        }
        let rework = self.options[job].job.rework;
        let redone = if rework.0 > 0.0 { format!(", {} of it work done again", span(rework)) } else { String::new() };
        let detail = format!(
            "{} would stand still for {}{redone}, and that would not pay back {}",
            gpus(other.gpus),
            span(other.cost),
            self.in_its_window(job, other)
        );
        Some(reason(ReasonCode::GainTooSmall, true, detail))
    }

    /// "in the 8 min for which it keeps its GPUs on average: 5 moves in the 48 min it has run".
    fn in_its_window(&self, job: usize, other: &Candidate) -> String {
        let (of, input) = (self.options[job].job, self.round.input);
        let goodput = other.prediction.goodput;
        let (window, until) = value::window(&input.policy, of, input.now, other.cost, goodput);
        match (until, of.claim.restarts) {
            (Until::Horizon, _) => format!("within {}", span(window)),
            (Until::End, _) => format!("in the {} until it ends", span(window)),
            (Until::NextMove, 0) => format!("within {}: on no longer than it has run is counted", span(window)),
            (Until::NextMove, moves) => {
                let (times, run) = (if moves == 1 { "move" } else { "moves" }, value::has_run(of, input.now));
                let kept = span(window);
                format!(
                    "in the {kept} for which it keeps its GPUs on average: {moves} {times} in the {} it has run",
                    span(run)
                )
            }
        }
    }

    /// "its GPUs changed 4 min ago: a move must gain 12 % of its value now, and 8 GPUs gain 3.0 %".
    pub(super) fn hysteresis(&self, job: usize, other: &Candidate) -> String {
        let (claim, chosen) = (&self.options[job].job.claim, self.chosen(job));
        let (now, charge) = (chosen.value.units(), self.options[job].move_penalty);
        let more = self.net(other) + charge - self.net(chosen);
        let asked = relative(now, now + charge).map_or("more".to_owned(), percent);
        let gain = relative(now, now + more).map_or("less".to_owned(), percent);
        let since = claim.since_move.map_or(String::new(), |since| format!("its GPUs changed {} ago: ", span(since)));
        format!("{since}a move must gain {asked} of its value now, and {} would gain {}", gpus(other.gpus), gain)
    }
}
