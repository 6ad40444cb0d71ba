//! What would come of it: two plans compared, in numbers and in words.

use std::collections::BTreeMap;

use headway_types::plan::MoveKind;
use headway_types::{GpuCount, JobId, Plan, Prediction, ReasonCode, Seconds};
use serde::{Deserialize, Serialize};

use super::question::Question;
use crate::explain::{change, gpus, list, relative, span};
use crate::input::PlanInput;
use crate::verify::Violation;

/// Smaller changes of the objective or of goodput are not told.
const LEAST_TOLD: f64 = 5e-4;

/// What would come of a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// "if it accepted 4 GPUs".
    pub question: String,
    /// The same as it was asked, for whoever wants to make it so.
    pub asked: Question,
    /// One sentence.
    pub answer: String,
    /// Whether what is forced can be, or what is supposed lets the job run.
    pub possible: bool,
    /// What the job asked about would have.
    pub gpus: Option<GpuCount>,
    /// Jobs that would have fewer GPUs, most lost first.
    pub losers: Vec<Shift>,
    /// Other jobs that would have more.
    pub winners: Vec<Shift>,
    /// Change of the objective as a share; `None` where what is supposed changes what plans are worth, or there was next to nothing.
    pub objective_change: Option<f64>,
    /// Change of aggregate goodput (the sum of speed-ups) as a share; 0 where there was next to nothing.
    pub goodput_change: f64,
    /// Moves beyond those of the plan as it is, and how long they would stand still together.
    pub moves: i64,
    pub downtime: Seconds,
}

/// A job's size in both plans.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shift {
    pub job: JobId,
    pub name: String,
    pub from: GpuCount,
    pub to: GpuCount,
}

impl Answer {
    pub(super) fn already(input: &PlanInput, plan: &Plan, question: &Question) -> Self {
        let size = question.about().and_then(|job| plan.assignments.get(&job)).map(|at| at.placement.gpus());
        Self {
            question: question.in_words(input),
            asked: question.clone(),
            answer: "that is so already".into(),
            possible: true,
            gpus: size,
            losers: Vec::new(),
            winners: Vec::new(),
            objective_change: Some(0.0),
            goodput_change: 0.0,
            moves: 0,
            downtime: Seconds(0.0),
        }
    }

    pub(super) fn of(
        input: &PlanInput,
        plan: &Plan,
        supposed: &PlanInput,
        other: &Plan,
        question: &Question,
        refused: Option<Violation>,
    ) -> Self {
        let about = question.about();
        let sizes = |plan: &Plan, job: JobId| plan.assignments.get(&job).map_or(GpuCount(0), |at| at.placement.gpus());
        let shifts = supposed.jobs.iter().filter(|job| Some(job.job) != about).map(|job| {
            let (from, to) = (sizes(plan, job.job), sizes(other, job.job));
            Shift { job: job.job, name: job.name.clone(), from, to }
        });
        let shifts: Vec<Shift> = shifts.filter(|shift| shift.from != shift.to).collect();
        let (mut losers, mut winners): (Vec<Shift>, Vec<Shift>) = shifts.into_iter().partition(|one| one.to < one.from);
        losers.sort_by_key(|one| (std::cmp::Reverse(one.from.saturating_sub(one.to)), one.job));
        winners.sort_by_key(|one| (std::cmp::Reverse(one.to.saturating_sub(one.from)), one.job));
        let comparable = !question.changes_values();
        let (before, after) = (plan.report.objective, other.report.objective);
        let downtime = |plan: &Plan| -> f64 { disruptions(plan).map(|one| one.downtime.0).sum() };
        let mut answer = Self {
            question: question.in_words(input),
            asked: question.clone(),
            answer: String::new(),
            possible: false,
            gpus: about.map(|job| sizes(other, job)),
            losers,
            winners,
            objective_change: relative(before, after).filter(|_| comparable),
            goodput_change: goodput_change(plan, other),
            moves: disruptions(other).count() as i64 - disruptions(plan).count() as i64,
            downtime: Seconds((downtime(other) - downtime(plan)).max(0.0)),
        };
        let obstacle = match refused {
            Some(violation) => Some(violation.to_string()),
            None => about.and_then(|job| why_not(supposed, other, question, job)),
        };
        answer.possible = obstacle.is_none();
        answer.answer = match obstacle {
            Some(why) => answer.impossible(question, &why),
            None => answer.consequences(about.map(|job| sizes(plan, job))),
        };
        answer
    }

    fn impossible(&self, question: &Question, why: &str) -> String {
        if question.force.is_some() { format!("cannot be: {why}") } else { format!("it would still wait: {why}") }
    }

    /// "starts now at 4 GPUs, displaces a and b: objective −3.1 %, cluster goodput −2.0 %".
    fn consequences(&self, before: Option<GpuCount>) -> String {
        let mut parts = Vec::new();
        match (before, self.gpus) {
            (Some(GpuCount(0)), Some(now)) => parts.push(format!("starts now at {}", gpus(now))),
            (Some(from), Some(to)) if from != to => parts.push(format!("goes from {from} to {}", gpus(to))),
            (Some(_), Some(same)) => parts.push(format!("stays at {}", gpus(same))),
            _ => {}
        }
        let told = |verb: &str, which: &dyn Fn(&&Shift) -> bool, from: &[Shift], sizes: bool| {
            let names: Vec<String> = from
                .iter()
                .filter(which)
                .map(|one| if sizes { format!("{} ({} → {})", one.name, one.from, one.to) } else { one.name.clone() })
                .collect();
            (!names.is_empty()).then(|| format!("{verb} {}", list(&names)))
        };
        parts.extend(told("displaces", &|one| one.to == GpuCount(0), &self.losers, false));
        parts.extend(told("shrinks", &|one| one.to > GpuCount(0), &self.losers, true));
        parts.extend(told("starts", &|one| one.from == GpuCount(0), &self.winners, false));
        parts.extend(told("grows", &|one| one.from > GpuCount(0), &self.winners, true));
        if parts.is_empty() {
            parts.push("changes no job's size".into());
        }
        let mut text = parts.join(", ");
        let mut numbers = Vec::new();
        if let Some(objective) = self.objective_change.filter(|share| share.abs() >= LEAST_TOLD) {
            numbers.push(format!("objective {}", change(objective)));
        }
        if self.goodput_change.abs() >= LEAST_TOLD {
            numbers.push(format!("cluster goodput {}", change(self.goodput_change)));
        }
        if self.moves > 0 && self.downtime.0 >= 1.0 {
            let moves = if self.moves == 1 { "1 move".into() } else { format!("{} moves", self.moves) };
            numbers.push(format!("{moves} more, {} of standstill", span(self.downtime)));
        }
        if !numbers.is_empty() {
            text = format!("{text}: {}", numbers.join(", "));
        }
        text
    }
}

/// Why the job asked about does not get what is asked.
fn why_not(supposed: &PlanInput, other: &Plan, question: &Question, job: JobId) -> Option<String> {
    if other.assignments.contains_key(&job) {
        return None;
    }
    let verdict = other.report.jobs.get(&job)?;
    let name = supposed.jobs.iter().find(|one| one.job == job).map(|one| format!("job {}", one.name));
    let relaxed = other.report.relaxed.iter().find(|one| name.as_ref().is_some_and(|name| one.rule.ends_with(name)));
    let binding = verdict.reasons.iter().find(|one| one.binding && one.code != ReasonCode::Floor);
    match (question.force.is_some(), relaxed, binding) {
        (true, _, Some(reason)) => Some(reason.detail.clone()),
        (true, Some(relaxed), None) => Some(relaxed.reason.clone()),
        _ => Some(verdict.headline.clone()),
    }
}

/// Moves that make a running job stand still.
fn disruptions(plan: &Plan) -> impl Iterator<Item = &headway_types::Move> {
    plan.report.moves.iter().filter(|one| match one.kind {
        MoveKind::Start => false,
        MoveKind::Preempt => true,
        MoveKind::Reconfigure(tier) => !tier.is_live(),
    })
}

/// By jobs' speed-ups. A job that runs in both plans is measured by one reference, though what is supposed may have
/// changed its fair share.
fn goodput_change(plan: &Plan, other: &Plan) -> f64 {
    let before: BTreeMap<JobId, &Prediction> = plan.assignments.iter().map(|(job, at)| (*job, &at.predicted)).collect();
    let after = other.assignments.iter().map(|(job, at)| {
        let then = &at.predicted;
        match before.get(job).filter(|now| now.goodput.0 > 0.0 && then.goodput.0 > 0.0) {
            Some(now) => now.speed_up * then.goodput.0 / now.goodput.0,
            None => then.speed_up,
        }
    });
    let (before, after): (f64, f64) = (before.values().map(|now| now.speed_up).sum(), after.sum());
    relative(before, after).unwrap_or(0.0)
}
