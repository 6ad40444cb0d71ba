//! What a job is owed, or will be, and what bounds it: patience, floors, what others borrowed, deadline and budget.

use headway_types::{GpuCount, Reason, ReasonCode, Seconds};

use super::{Account, gpus, reason, span, tokens};
use crate::due::{self, is_due};
use crate::input::{Freedom, PlanJob};

impl Account<'_> {
    pub(super) fn entitled(&self, job: usize) -> Vec<Reason> {
        let claim = &self.options[job].job.claim;
        let sure = self.owed.sure.get(&job);
        let mut reasons = Vec::new();
        if claim.floor > GpuCount(0) {
            let detail = match sure {
                Some(_) => format!("it is sure of {}", gpus(claim.floor)),
                None => format!("its floor of {} cannot be met now", gpus(claim.floor)),
            };
            reasons.push(reason(ReasonCode::Floor, sure.is_some(), detail));
        }
        if self.owed.reclaiming.contains(&job) {
            let detail = "within the quota of its project, it gets back what others borrowed".into();
            reasons.push(reason(ReasonCode::Reclaim, true, detail));
        }
        reasons.extend(self.patience(job));
        reasons
    }

    fn patience(&self, job: usize) -> Option<Reason> {
        let of = self.options[job].job;
        let due_after = self.round.due_after.get(&of.job)?;
        let waited = of.claim.waited;
        if is_due(self.round, of) {
            let sure = self.owed.sure.contains_key(&job);
            let long = format!("it has waited {}", span(waited));
            let detail = match self.round.promised_to(job) {
                _ if sure => format!("{long}, so long that it goes before others"),
                Some(promise) => {
                    let after = span(promise.after);
                    format!("{long}: what it needs is kept for it as it comes free, by what is known in {after}")
                }
                None => format!("{long}, and {}", self.nothing_is_kept(of)),
            };
            return Some(reason(ReasonCode::Patient, sure, detail));
        }
        let waits = self.chosen(job).gpus == GpuCount(0) && self.options[job].obstacle.is_none();
        waits.then(|| {
            let left = Seconds((due_after.0 - waited.0).max(0.0));
            let detail = format!(
                "if it still waits in {}, others shrink for it where they can, and what comes free is kept for it",
                span(left)
            );
            reason(ReasonCode::Patient, false, detail)
        })
    }

    /// Why a job that is due is promised nothing.
    fn nothing_is_kept(&self, job: &PlanJob) -> String {
        let promised = self.round.promise.as_ref().map(|promise| self.options[promise.job].job);
        let time_due = |of: &PlanJob| due::time_due(self.round, of);
        match promised.filter(|to| (to.priority, time_due(to)) >= (job.priority, time_due(job))) {
            Some(to) if time_due(to) >= time_due(job) => {
                format!("what comes free is kept for {}, which has been due for longer", to.name)
            }
            Some(to) => format!("what comes free is kept for {}, of priority {}", to.name, to.priority.0),
            None => "nothing that comes free makes room for it".into(),
        }
    }

    /// Deadline and budget.
    pub(super) fn bounded(&self, job: usize) -> Vec<Reason> {
        let options = &self.options[job];
        let mut reasons = Vec::new();
        if let (true, Some(deadline), Some(remaining)) =
            (options.late, options.job.bounds.deadline, options.job.remaining)
        {
            let fastest = options.candidates.iter().map(|one| one.prediction.goodput.0).fold(0.0, f64::max);
            let left = span(deadline.since(self.round.input.now));
            let detail = if fastest > 0.0 {
                let needed = span(Seconds(remaining.0 / fastest));
                format!(
                    "its deadline is in {left}, and {} tokens take {needed} at the best it could get",
                    tokens(remaining.0)
                )
            } else {
                format!("its deadline is in {left}, and it cannot run before")
            };
            reasons.push(reason(ReasonCode::Deadline, false, detail));
        }
        if self.chosen(job).gpus == GpuCount(0) {
            reasons.extend(self.over_budget(job).map(|detail| reason(ReasonCode::Budget, true, detail)));
        }
        reasons
    }

    /// "more than 8 GPUs would use more than the 120 GPU hours it may still use".
    pub(super) fn over_budget(&self, job: usize) -> Option<String> {
        let options = &self.options[job];
        let budget = options.job.bounds.budget_left.filter(|_| options.job.freedom == Freedom::Free)?;
        options.job.remaining?;
        let offered = options.candidates.iter().map(|one| one.gpus).max()?;
        let largest = options.sizes.last().map(|(gpus, _)| *gpus)?;
        let hours = budget.0 / 3_600.0;
        let more =
            || format!("more than {} would use more than the {hours:.1} GPU hours it may still use", gpus(offered));
        (largest > offered).then(more)
    }
}
