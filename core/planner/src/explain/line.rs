//! The words of policies that serve jobs one after another: who is before whom, and why. There are no prices, and nobody gains or loses.

use headway_types::{GpuCount, Reason, ReasonCode};

use super::{Account, gpus, reason};
use crate::candidate::{Candidate, Options};
use crate::policies::{Line, Running};

/// A line, and where each job stands in it.
pub(super) struct InLine {
    line: Line,
    /// By job: how many before it wait for GPUs too.
    waiting_before: Vec<usize>,
}

impl InLine {
    pub fn new(line: Line, options: &[Options<'_>], choice: &[usize]) -> Self {
        let mut waiting_before = vec![0; options.len()];
        let mut waiting = 0;
        for &job in &line.order {
            waiting_before[job] = waiting;
            let of = &options[job];
            waiting += usize::from(of.candidates[choice[job]].gpus == GpuCount(0) && of.obstacle.is_none());
        }
        Self { line, waiting_before }
    }

    /// "3 jobs that were submitted before it wait too".
    fn those_before(&self, job: usize) -> String {
        let (one, several) = self.line.ahead;
        match (self.waiting_before[job], self.line.running) {
            (0, Running::Stays) => "it is the first in line: whoever runs stays".into(),
            (0, Running::MayMove) => format!("those that hold the others come first: each {one}"),
            (1, _) => format!("1 job that {one} waits too"),
            (count, _) => format!("{count} jobs that {several} wait too"),
        }
    }

    /// Why what was a job's goes to another.
    pub fn why_it_comes_first(&self) -> String {
        format!("which {}", self.line.ahead.0)
    }
}

impl Account<'_> {
    /// Too few GPUs are left: the end of the headline, and why.
    pub(super) fn behind(&self, line: &InLine, job: usize, need: &Candidate, alone: bool) -> (String, Vec<Reason>) {
        let free = self.most_free(job);
        let are = if free.0 == 1 { "is" } else { "are" };
        let before = line.those_before(job);
        let reasons = vec![
            reason(ReasonCode::NotEnoughFree, alone, format!("needs {}, {free} {are} free", gpus(need.gpus))),
            reason(ReasonCode::InLine, alone, before.clone()),
        ];
        (format!("{free} {are} free and {before}"), reasons)
    }

    /// Enough is left, and yet it does not start.
    pub(super) fn held_back(&self, line: &InLine, job: usize) -> Reason {
        let detail = match line.line.running {
            Running::Stays => format!("it fits, and might delay whom it may not: {}", line.those_before(job)),
            Running::MayMove => format!("it fits, and {}", line.those_before(job)),
        };
        reason(ReasonCode::InLine, true, detail)
    }

    /// Why a job that is served gets no more.
    pub(super) fn no_more_in_line(&self, line: &InLine, job: usize, larger: GpuCount) -> Reason {
        let chosen = self.chosen(job);
        if line.line.running == Running::Stays {
            let detail = "jobs get the size they ask for, and keep it until they end".into();
            return reason(ReasonCode::InLine, true, detail);
        }
        let free = self.most_free(job);
        if free < larger.saturating_sub(chosen.gpus) {
            let detail = format!("those before it, each of which {}, leave {free}", line.line.ahead.0);
            return reason(ReasonCode::InLine, true, detail);
        }
        reason(
            ReasonCode::InLine,
            true,
            format!("{} would not serve it better by the order of this policy", gpus(larger)),
        )
    }
}
