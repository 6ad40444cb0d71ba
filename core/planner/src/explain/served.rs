//! The story of a job that gets GPUs: what it gets, what one step up would bring, and why it does not get that.

use headway_types::plan::Unmoved;
use headway_types::{GpuCount, Reason, ReasonCode};

use super::{Account, gpus, percent, reason, relative, span};
use crate::candidate::Candidate;
use crate::ending::{ends_before, leaves_at};
use crate::input::Freedom;
use crate::obstacle::Closed;

impl Account<'_> {
    pub(super) fn served(&self, job: usize, unmoved: Option<&Unmoved>) -> (String, Vec<Reason>) {
        let options = &self.options[job];
        let chosen = self.chosen(job);
        let mut reasons = self.being_freed(job);
        reasons.extend(self.leaves_for_a_reservation(job));
        if let Some(why) = options.job.freedom.reason() {
            let better = options.sizes.iter().any(|(_, speed_up)| *speed_up > chosen.prediction.speed_up);
            reasons.push(reason(ReasonCode::Cooldown, better, why.to_owned()));
        }
        if options.job.work.is_opaque() {
            let detail = "no training section: the job is placed at its requested size, not tuned";
            reasons.push(reason(ReasonCode::ProfileMissing, false, detail.into()));
            return (format!("{}, as requested", gpus(chosen.gpus)), reasons);
        }
        reasons.extend(self.about_batch(job));
        let configuration =
            chosen.configuration.map(|at| format!(" ({}, batch {})", at.layout, at.global_batch)).unwrap_or_default();
        let speed_up = chosen.prediction.speed_up;
        let head = format!("{}{configuration}: speed-up {speed_up:.2}", gpus(chosen.gpus));
        let next = options.sizes.iter().find(|(gpus, _)| *gpus > chosen.gpus);
        let tail = match next {
            Some(&(larger, then)) => {
                reasons.push(self.why_not_larger(job, larger, then, unmoved));
                let gain = relative(speed_up, then).map_or("more".to_owned(), percent);
                format!("{} would add {gain}", gpus(larger))
            }
            None => {
                let most = options.job.range.max;
                let (detail, tail) = match chosen.gpus == most {
                    true => (format!("the job asks for at most {}", gpus(most)), "the most it asks for"),
                    false => {
                        ("no larger size it allows fits the cluster".into(), "the largest size that fits the cluster")
                    }
                };
                reasons.push(reason(ReasonCode::AtMaximum, true, detail));
                tail.into()
            }
        };
        (format!("{head}; {tail}"), reasons)
    }

    /// The next reservation of its nodes by others, and how the job will have left by then.
    fn leaves_for_a_reservation(&self, job: usize) -> Option<Reason> {
        let (round, of) = (self.round, self.options[job].job);
        let placement = self.decision.placements[job].as_ref()?;
        let nodes = placement.slices().iter().filter_map(|slice| round.cluster.index_of(slice.node));
        let ends = nodes.filter_map(|node| Some((node, round.end_of(of, round.cluster.class_of(node))?)));
        let (node, next) = ends.min_by_key(|(_, one)| one.from)?;
        let now = round.input.now;
        let how = if ends_before(of.bounds.time_left, now, next.from) {
            "its time limit ends it before".to_owned()
        } else {
            match leaves_at(of.departure, of.bounds.time_left, now, next.from) {
                None => "it must not run twice, so it stays there until it ends".to_owned(),
                Some(at) if of.departure.saves => format!("it saves and leaves in {}", span(at.since(now))),
                Some(at) => {
                    format!("if it still runs in {}, it is stopped, perhaps without saving", span(at.since(now)))
                }
            }
        };
        let (name, closed) = (&round.cluster.nodes[node].name, Closed::new(next).in_words(now));
        Some(reason(ReasonCode::Reserved, false, format!("node {name} is reserved: {closed}; {how}")))
    }

    fn why_not_larger(&self, job: usize, larger: GpuCount, then: f64, unmoved: Option<&Unmoved>) -> Reason {
        let chosen = self.chosen(job);
        let speed_up = chosen.prediction.speed_up;
        // What the round's account says of it is said here too.
        let free = self.options[job].job.freedom == Freedom::Free;
        let line = self.line.as_ref().filter(|_| free);
        if let Some(told) = unmoved.filter(|_| free && line.is_none()) {
            return reason(told.code, true, told.detail.clone());
        }
        if let Some((gpus, each)) = self.options[job].spared.filter(|(gpus, _)| *gpus == larger) {
            return reason(ReasonCode::GainTooSmall, true, self.spared(gpus, each));
        }
        let Some(other) = self.best(job, |one| one.gpus == larger && one.shape.is_some()) else {
            return match (&self.options[job].job.freedom, self.over_budget(job)) {
                (Freedom::Settled { .. } | Freedom::Fixed { .. }, _) => {
                    let detail = format!("{} would be speed-up {then:.2}, and it may not move now", gpus(larger));
                    reason(ReasonCode::Cooldown, false, detail)
                }
                (Freedom::Free, Some(detail)) => reason(ReasonCode::Budget, true, detail),
                (Freedom::Free, None) => match line.filter(|line| line.keeps_sizes()) {
                    Some(line) => self.no_more_in_line(line, job, larger),
                    None => reason(ReasonCode::Cooldown, true, "its script cannot change its layout".into()),
                },
            };
        };
        let demands = self.demands(job, other);
        let mut short = demands.iter().filter(|one| one.is_short());
        if let Some(rule) = short.clone().find(|one| {
            !matches!(self.code(one.row), ReasonCode::NotEnoughFree | ReasonCode::Fragmented | ReasonCode::FabricDomain)
        }) {
            return reason(self.code(rule.row), true, format!("{}: {}", gpus(larger), self.shortage(*rule)));
        }
        if let Some(line) = line {
            return self.no_more_in_line(line, job, larger);
        }
        match short.next().map(|one| self.code(one.row)) {
            Some(ReasonCode::NotEnoughFree) => {
                let more = gpus(larger.saturating_sub(chosen.gpus));
                let price = self.price(&demands);
                let detail = format!(
                    "{more} more would take the speed-up from {speed_up:.2} to {then:.2}, and other jobs lose {price:.2} of value by it"
                );
                reason(ReasonCode::BestForCluster, true, detail)
            }
            Some(code) => reason(code, true, self.scattered(job, other, code)),
            None if self.decision.fragmented.contains(&job) => match self.closed_by_rows(job, other) {
                Some(detail) => reason(ReasonCode::SiteRow, true, format!("{}: {detail}", gpus(larger))),
                None => reason(ReasonCode::Fragmented, true, self.scattered(job, other, ReasonCode::Fragmented)),
            },
            None => self.not_worth_it(job, other),
        }
    }

    /// "16 GPUs would bring it 12 % per further GPU of what its best GPU does; less than 20 % is left to others".
    fn spared(&self, larger: GpuCount, each: f64) -> String {
        format!(
            "{} would bring it {} per further GPU of what its most productive GPU does, and what brings less than {} is left to others",
            gpus(larger),
            percent(each),
            percent(self.round.input.policy.min_return)
        )
    }

    /// There is room for more, and it is not taken.
    fn not_worth_it(&self, job: usize, other: &Candidate) -> Reason {
        let chosen = self.chosen(job);
        let (from, to) = (chosen.prediction.speed_up, other.prediction.speed_up);
        let free = gpus(self.most_free(job));
        if chosen.stays && self.net(other) + self.options[job].move_penalty > self.net(chosen) {
            return reason(
                ReasonCode::Hysteresis,
                true,
                format!("{free} are free, but {}", self.hysteresis(job, other)),
            );
        }
        let detail = if chosen.stays {
            format!("{free} are free, but going from speed-up {from:.2} to {to:.2} would not pay for the restart")
        } else {
            format!(
                "{free} are free, but {} are worth no more to it: speed-up {to:.2} instead of {from:.2}",
                gpus(other.gpus)
            )
        };
        reason(ReasonCode::GainTooSmall, true, detail)
    }
}
