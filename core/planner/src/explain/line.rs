//! The words of policies that serve jobs one after another: who is before whom, and why. There are no prices, and nobody gains or loses.

use headway_types::{GpuCount, Reason, ReasonCode};

use super::{Account, gpus, reason};
use crate::candidate::{Candidate, Options};
use crate::input::Freedom;
use crate::policies::{Line, Running};

/// A line, and where each job stands in it.
pub(super) struct InLine {
    line: Line,
    /// By job: its place, how many before it wait for GPUs too, and how many after it hold some and may not be moved.
    places: Vec<Place>,
}

#[derive(Clone, Copy, Default)]
struct Place {
    rank: usize,
    waiting_before: usize,
    fixed_after: usize,
}

impl InLine {
    pub fn new(line: Line, options: &[Options<'_>], choice: &[usize]) -> Self {
        let mut places = vec![Place::default(); options.len()];
        let mut waiting = 0;
        for (rank, &job) in line.order.iter().enumerate() {
            places[job] = Place { rank, waiting_before: waiting, fixed_after: 0 };
            let of = &options[job];
            waiting += usize::from(of.candidates[choice[job]].gpus == GpuCount(0) && of.obstacle.is_none());
        }
        let mut fixed = 0;
        for &job in line.order.iter().rev() {
            places[job].fixed_after = fixed;
            let of = options[job].job;
            fixed += usize::from(of.current.is_some() && matches!(of.freedom, Freedom::Fixed { .. }));
        }
        Self { line, places }
    }

    /// "3 jobs that were submitted before it wait too".
    fn those_before(&self, job: usize) -> String {
        let (one, several) = self.line.ahead;
        let Place { waiting_before, fixed_after, .. } = self.places[job];
        match (waiting_before, fixed_after, self.line.running) {
            (0, _, Running::Stays) => "it is the first in line: whoever runs stays".into(),
            (0, 0, Running::MayMove) => format!("those that hold the others come first: each {one}"),
            (0, 1, Running::MayMove) => "1 job after it in line may not be moved now".into(),
            (0, count, Running::MayMove) => format!("{count} jobs after it in line may not be moved now"),
            (1, ..) => format!("1 job that {one} waits too"),
            (count, ..) => format!("{count} jobs that {several} wait too"),
        }
    }

    /// Whether jobs get the size they ask for, and keep it.
    pub fn keeps_sizes(&self) -> bool {
        self.line.running == Running::Stays
    }

    /// Why what was a job's goes to another, where that is for the order.
    pub fn why_it_comes_first(&self, taker: usize, job: usize) -> Option<String> {
        let before = self.places[taker].rank < self.places[job].rank;
        before.then(|| format!("which {}", self.line.ahead.0))
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
        if line.keeps_sizes() {
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
