//! What people ask about the newest round: a job's funnel, what would change its lot, when it starts. Answered on a
//! blocking thread, one question at a time, and kept until the next plan, so that asking never holds up the loop and
//! asking twice costs once. It decides nothing and changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headway_forecast::{Effort, Experience, Forecast, Method, Outlook};
use headway_planner::counterfactual::{self, Answer, AskError, Question};
use headway_planner::funnel::{self, Stage};
use headway_planner::{CurveCache, PlanInput, PlanJob, plan};
use headway_types::{JobId, Limit, Plan, PlanId, Unmoved};
use tokio::sync::Mutex;

use crate::planning::{LastRound, SolvedRound};

/// Between predictions that nobody asked for.
const LEAST_REST: Duration = Duration::from_secs(60);
/// And so many times as long as the last one took: they may cost two per cent of a processor.
const REST_PER_WORK: u32 = 50;

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

/// A round with jobs in it that have not been submitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// As they were given.
    pub jobs: Vec<JobId>,
    pub plan: Plan,
    pub forecast: Forecast,
}

/// Answers to one plan, and what serves for the next as well: goodput curves, and what rounds so far have taught.
#[derive(Default)]
struct Desk {
    curves: CurveCache,
    experience: Experience,
    plan: Option<PlanId>,
    forecast: Option<Arc<Forecast>>,
    insights: BTreeMap<JobId, Arc<Insight>>,
}

impl Asking {
    /// Learns from the rounds to come as long as there are any. Needs a tokio runtime.
    pub fn new(round: LastRound) -> Self {
        let desk = Arc::default();
        tokio::spawn(learn(round.clone(), Arc::clone(&desk)));
        Self { round, desk }
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

    /// What a round would come to with these jobs in it; `None` where finding out broke down.
    pub async fn trial(&self, round: Arc<SolvedRound>, jobs: Vec<PlanJob>) -> Option<Trial> {
        let mut desk = Arc::clone(&self.desk).lock_owned().await;
        let work = tokio::task::spawn_blocking(move || {
            let ids = jobs.iter().map(|job| job.job).collect();
            let input = PlanInput::clone(&round.input).with(jobs);
            let plan = plan(&input, &mut desk.curves)
                .inspect_err(|error| tracing::warn!(error = error as &dyn std::error::Error, "trial round failed"));
            let plan = plan.ok()?;
            let Desk { curves, experience, .. } = &mut *desk;
            let forecast = headway_forecast::starts(&input, &plan, curves, &Effort::default(), experience);
            Some(Trial { jobs: ids, plan, forecast })
        });
        work.await.inspect_err(|error| tracing::error!(error = error as &dyn std::error::Error, "trial failed")).ok()?
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

/// Follows the rounds. Bands are only as good as the predictions they are held against, so that where something waits
/// and nobody asks, a prediction is made now and then all the same.
async fn learn(mut round: LastRound, desk: Arc<Mutex<Desk>>) {
    let mut rest_until = Instant::now();
    while round.changed().await.is_ok() {
        let Some(newest) = round.borrow_and_update().clone() else { continue };
        let mut desk = Arc::clone(&desk).lock_owned().await;
        let due = Instant::now() >= rest_until;
        let work = tokio::task::spawn_blocking(move || {
            desk.experience.observe(&newest.input, &newest.plan);
            let waits = newest.input.jobs.iter().any(|job| !newest.plan.assignments.contains_key(&job.job));
            let began = Instant::now();
            if due && waits {
                desk.turn_to(&newest);
                desk.forecast(&newest);
            }
            (due && waits).then(|| began.elapsed())
        });
        match work.await {
            Ok(Some(took)) => rest_until = Instant::now() + (REST_PER_WORK * took).max(LEAST_REST),
            Ok(None) => {}
            Err(error) => tracing::error!(error = &error as &dyn std::error::Error, "learning from a round failed"),
        }
    }
}

impl Desk {
    /// Forgets what was said about another plan.
    fn turn_to(&mut self, round: &SolvedRound) {
        if self.plan != Some(round.plan.id) {
            (self.plan, self.forecast) = (Some(round.plan.id), None);
            self.insights.clear();
        }
    }

    fn known(&mut self, round: &SolvedRound, job: JobId) -> Option<Arc<Insight>> {
        self.turn_to(round);
        self.insights.get(&job).cloned()
    }

    /// The forecast of a round, made once; what it says is remembered, to be compared with what comes.
    fn forecast(&mut self, round: &SolvedRound) -> Arc<Forecast> {
        let Self { curves, experience, forecast, .. } = self;
        let made = || {
            let forecast = headway_forecast::starts(&round.input, &round.plan, curves, &Effort::default(), experience);
            experience.predicted(round.input.now, &forecast);
            Arc::new(forecast)
        };
        Arc::clone(forecast.get_or_insert_with(made))
    }

    fn find_out(&mut self, round: &SolvedRound, job: JobId) -> Option<Arc<Insight>> {
        let forecast = self.forecast(round);
        let (input, plan, curves) = (&round.input, &round.plan, &mut self.curves);
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
