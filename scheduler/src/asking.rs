//! What people ask about the newest round: a job's funnel, what would change its lot, when it starts. Answered on a
//! blocking thread, one question at a time, and kept until the next plan, so that asking never holds up the loop and
//! asking twice costs once. It decides nothing and changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use headway_forecast::{Effort, Forecast, Method, Outlook};
use headway_planner::CurveCache;
use headway_planner::counterfactual::{self, Answer, AskError, Question};
use headway_planner::funnel::{self, Stage};
use headway_types::{JobId, Limit, PlanId, Unmoved};
use tokio::sync::Mutex;

use crate::planning::{LastRound, SolvedRound};

/// Answers questions about the newest round; cheap to clone.
#[derive(Clone)]
pub struct Asking {
    round: LastRound,
    desk: Arc<Mutex<Desk>>,
}

/// What is known beyond the plan's own account of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Insight {
    pub plan: PlanId,
    pub limits: Vec<Limit>,
    pub unmoved: Option<Unmoved>,
    pub funnel: Vec<Stage>,
    pub answers: Vec<Answer>,
    /// Of a job that waits.
    pub start: Option<Outlook>,
    pub method: Method,
}

/// Answers to one plan, and goodput curves that serve for the next as well.
#[derive(Default)]
struct Desk {
    curves: CurveCache,
    plan: Option<PlanId>,
    forecast: Option<Arc<Forecast>>,
    insights: BTreeMap<JobId, Arc<Insight>>,
}

impl Asking {
    pub fn new(round: LastRound) -> Self {
        Self { round, desk: Arc::default() }
    }

    /// The newest round that was planned.
    pub fn round(&self) -> Option<Arc<SolvedRound>> {
        self.round.borrow().clone()
    }

    /// One question about a round; `None` where answering it broke down.
    pub async fn ask(&self, round: Arc<SolvedRound>, question: Question) -> Option<Result<Answer, AskError>> {
        let mut desk = Arc::clone(&self.desk).lock_owned().await;
        let work = tokio::task::spawn_blocking(move || {
            counterfactual::ask(&round.input, &round.plan, &mut desk.curves, &question)
        });
        work.await.inspect_err(|error| tracing::error!(error = error as &dyn std::error::Error, "asking failed")).ok()
    }

    /// Everything about a job of the newest round; `None` where it is not part of one.
    pub async fn about(&self, job: JobId) -> Option<Arc<Insight>> {
        let round = self.round()?;
        round.input.jobs.binary_search_by_key(&job, |one| one.job).ok()?;
        let mut desk = Arc::clone(&self.desk).lock_owned().await;
        if let Some(known) = desk.known(&round, job) {
            return Some(known);
        }
        // A caller that gives up leaves the work to be done all the same: whoever asks next finds the answer.
        let work = tokio::task::spawn_blocking(move || desk.find_out(&round, job));
        work.await
            .inspect_err(
                |error| tracing::error!(job_id = %job, error = error as &dyn std::error::Error, "asking failed"),
            )
            .ok()?
    }
}

impl Desk {
    fn known(&mut self, round: &SolvedRound, job: JobId) -> Option<Arc<Insight>> {
        if self.plan != Some(round.plan.id) {
            (self.plan, self.forecast) = (Some(round.plan.id), None);
            self.insights.clear();
        }
        self.insights.get(&job).cloned()
    }

    fn find_out(&mut self, round: &SolvedRound, job: JobId) -> Option<Arc<Insight>> {
        let (input, plan, curves) = (&round.input, &round.plan, &mut self.curves);
        let forecast = self
            .forecast
            .get_or_insert_with(|| Arc::new(headway_forecast::starts(input, plan, curves, &Effort::default())));
        let verdict = plan.report.jobs.get(&job);
        let answers = counterfactual::usual(input, plan, curves, job)
            .inspect_err(|error| tracing::warn!(job_id = %job, error = error as &dyn std::error::Error, "no answers"))
            .unwrap_or_default();
        let insight = Arc::new(Insight {
            plan: plan.id,
            limits: verdict.map(|verdict| verdict.limits.clone()).unwrap_or_default(),
            unmoved: plan.report.unmoved.iter().find(|one| one.job == job).cloned(),
            funnel: funnel::funnel(input, plan, curves, job).unwrap_or_default(),
            answers,
            start: forecast.starts.get(&job).cloned(),
            method: forecast.method,
        });
        self.insights.insert(job, Arc::clone(&insight));
        Some(insight)
    }
}
