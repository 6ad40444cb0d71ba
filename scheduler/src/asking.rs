//! What people ask about the newest round: a job's funnel, what would change its lot, when it starts. The funnel is answered at once; what
//! takes rounds of its own is answered by one thread of its own that gives way to the loop, one question at a time. Answers are kept the longer
//! the more they cost, so that asking never holds up the loop and asking twice costs once. It decides nothing and changes nothing.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use headway_forecast::{Effort, Experience, Forecast, Method, Outlook, Start};
use headway_planner::counterfactual::{self, Answer, AskError, Question};
use headway_planner::funnel::{self, Stage};
use headway_planner::{CurveCache, Part, PlanInput, PlanJob, plan};
use headway_types::{JobId, Limit, Plan, PlanId, Timestamp, Unmoved};
use tokio::sync::{oneshot, watch};

use crate::planning::{LastRound, SolvedRound};
use crate::shares::{Full, Shares};

/// Between predictions that nobody asked for.
const LEAST_REST: Duration = Duration::from_secs(60);
/// And so many times as long as the last one took: they may cost two per cent of a processor.
const REST_PER_WORK: u32 = 50;
/// Questions that may wait for the thread, and of them of one user; whoever asks beyond it is told to ask again.
const ERRANDS: usize = 64;
const OF_ONE_USER: usize = 8;
/// What the goodput curves that a question lacks may take. What is made stays for the next.
const CURVE_BUDGET: Duration = Duration::from_secs(20);
/// The loop answers people and agents: it goes before whoever answers what would be.
const NICE: i32 = 10;
/// How long a question about a round of so many jobs is waited for, and one about a larger round, which takes that long at least.
const SMALL_ROUND: usize = 200;
const PATIENCE: Duration = Duration::from_secs(15);
const PATIENCE_OF_LARGE: Duration = Duration::from_millis(50);

/// Answers questions about the newest round; cheap to clone.
#[derive(Clone)]
pub struct Asking {
    round: LastRound,
    errands: SyncSender<Errand>,
    places: Shares,
    foretold: watch::Receiver<Arc<Foretold>>,
}

/// Why a question has no answer, whatever was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    #[error("{0} questions of yours wait for their answers already")]
    OfOne(usize),
    #[error("{0} questions wait for their answers already")]
    InAll(usize),
    #[error("the goodput curves that it takes are not ready within {} s", CURVE_BUDGET.as_secs())]
    TooLong,
    /// The log says why.
    #[error("answering broke down; the scheduler's log says why")]
    BrokeDown,
}

impl From<Full> for Unanswered {
    fn from(full: Full) -> Self {
        match full {
            Full::OfOne(most) => Self::OfOne(most),
            Full::InAll(most) => Self::InAll(most),
        }
    }
}

/// The newest forecast, for those who show many jobs and ask nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Foretold {
    pub made_at: Timestamp,
    /// Each with its place in the order of starts, the first is 1.
    pub starts: BTreeMap<JobId, (u32, Start)>,
}

impl Foretold {
    fn of(forecast: &Forecast, made_at: Timestamp) -> Self {
        let told = forecast.starts.iter().filter_map(|(job, outlook)| match outlook {
            Outlook::Start(start) => Some((*job, *start)),
            Outlook::Unknown { .. } => None,
        });
        let mut told: Vec<(JobId, Start)> = told.collect();
        // Later than was looked comes last.
        let moment = |at: Option<Timestamp>| at.unwrap_or(Timestamp(i64::MAX));
        told.sort_by_key(|(job, start)| (moment(start.p50), start.p10, moment(start.p90), *job));
        let placed = told.into_iter().zip(1..).map(|((job, start), place)| (job, (place, start)));
        Self { made_at, starts: placed.collect() }
    }
}

/// Something for the thread that asks.
type Errand = Box<dyn FnOnce(&mut Desk) + Send>;

/// What is known at once beyond the plan's own account of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Insight {
    pub limits: Vec<Limit>,
    pub unmoved: Option<Unmoved>,
    pub funnel: Vec<Stage>,
}

/// What takes rounds of its own to find out.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcomes {
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

/// Answers so far, and what serves for the next as well: goodput curves, and what rounds so far have taught.
#[derive(Default)]
struct Desk {
    curves: CurveCache,
    experience: Experience,
    forecast: Option<Kept<Forecast>>,
    foretold: watch::Sender<Arc<Foretold>>,
    outcomes: BTreeMap<JobId, Kept<Outcomes>>,
}

/// An answer to one plan, which serves for a while after it.
struct Kept<T> {
    answer: Arc<T>,
    plan: PlanId,
    /// Whether the job had GPUs by that plan; what is said of those that wait tells nothing of those that run.
    runs: bool,
    until: Instant,
}

impl<T> Kept<T> {
    fn new(answer: T, plan: PlanId, runs: bool, took: Duration) -> Self {
        Self { answer: Arc::new(answer), plan, runs, until: Instant::now() + REST_PER_WORK * took }
    }

    fn serves(&self, plan: &Plan, runs: bool) -> bool {
        self.runs == runs && (self.plan == plan.id || Instant::now() < self.until)
    }
}

impl Asking {
    /// Learns from the rounds to come as long as there are any. Needs a tokio runtime.
    pub fn new(round: LastRound) -> Self {
        let (errands, todo) = sync_channel(ERRANDS);
        let desk = Desk::default();
        let foretold = desk.foretold.subscribe();
        if let Err(error) = thread::Builder::new().name("asking".into()).spawn(move || run(&todo, desk)) {
            tracing::error!(error = &error as &dyn std::error::Error, "nobody answers questions about rounds");
        }
        let places = Shares::new(ERRANDS, OF_ONE_USER);
        let asking = Self { round, errands, places, foretold };
        tokio::spawn(learn(asking.clone()));
        asking
    }

    /// The newest round that was planned.
    pub fn round(&self) -> Option<Arc<SolvedRound>> {
        self.round.borrow().clone()
    }

    /// What the newest forecast says of those that wait; nothing is predicted for it.
    pub fn foretold(&self) -> Arc<Foretold> {
        self.foretold.borrow().clone()
    }

    /// What forecasts say, as they are made.
    pub fn forecasts(&self) -> watch::Receiver<Arc<Foretold>> {
        self.foretold.clone()
    }

    /// One question of a user about a round.
    pub async fn ask(
        &self,
        user: &str,
        round: Arc<SolvedRound>,
        question: Question,
    ) -> Result<Result<Answer, AskError>, Unanswered> {
        let asked = self.ask_for_plan(user, round, question).await?;
        Ok(asked.map(|(answer, _)| answer))
    }

    /// The same, with the plan that the answer was read off, where a round was solved for it.
    pub async fn ask_for_plan(
        &self,
        user: &str,
        round: Arc<SolvedRound>,
        question: Question,
    ) -> Result<Result<(Answer, Option<Plan>), AskError>, Unanswered> {
        let work =
            move |desk: &mut Desk, go_on: &dyn Fn() -> bool| match counterfactual::supposed(&round.input, &question) {
                Err(unknown) => Some(Err(unknown)),
                Ok(supposed) if !desk.has_curves(&supposed, go_on) => None,
                Ok(_) => Some(counterfactual::ask_for_plan(&round.input, &round.plan, &mut desk.curves, &question)),
            };
        self.question(user, work).await?.ok_or(Unanswered::TooLong)
    }

    /// What a round would come to with these jobs in it.
    pub async fn trial(&self, user: &str, round: Arc<SolvedRound>, jobs: Vec<PlanJob>) -> Result<Trial, Unanswered> {
        self.question(user, move |desk, go_on| desk.trial(&round, jobs, go_on)).await?
    }

    /// What can be said at once of a job of the newest round; `None` where it is not part of one. Looks at that job alone.
    pub async fn about(&self, job: JobId) -> Option<Insight> {
        let round = self.round()?;
        round.input.jobs.binary_search_by_key(&job, |one| one.job).ok()?;
        let work = tokio::task::spawn_blocking(move || {
            let SolvedRound { input, plan } = &*round;
            Insight {
                limits: plan.report.jobs.get(&job).map(|verdict| verdict.limits.clone()).unwrap_or_default(),
                unmoved: plan.report.unmoved.iter().find(|one| one.job == job).cloned(),
                funnel: funnel::funnel(input, plan, &mut CurveCache::new(), job).unwrap_or_default(),
            }
        });
        work.await
            .inspect_err(
                |error| tracing::error!(job_id = %job, error = error as &dyn std::error::Error, "asking failed"),
            )
            .ok()
    }

    /// The rest of what there is to say of a job of the newest round; `None` where it is not part of one, or where it is not known within the
    /// time that a caller can wait: then it is worked out all the same, and whoever asks next finds it.
    pub async fn outcomes(&self, user: &str, job: JobId) -> Option<Arc<Outcomes>> {
        let jobs = self.round()?.input.jobs.len();
        let patience = if jobs <= SMALL_ROUND { PATIENCE } else { PATIENCE_OF_LARGE };
        // When its turn comes it is about the round that is the newest then: many that wait must not keep as many rounds in memory.
        let newest = self.round.clone();
        let place = self.places.enter(user).ok()?;
        let found = self.errand(move |desk| {
            let _place = place;
            let round = newest.borrow().clone()?;
            round.input.jobs.binary_search_by_key(&job, |one| one.job).ok()?;
            desk.outcomes(&round, job)
        });
        tokio::time::timeout(patience, found).await.ok()??
    }

    /// Work that is done for whoever waits for it: where nobody does any more when its turn has come, it is left. It is told whether to go on
    /// before it begins with more.
    async fn question<T: Send + 'static>(
        &self,
        user: &str,
        work: impl FnOnce(&mut Desk, &dyn Fn() -> bool) -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        let place = self.places.enter(user)?;
        let (reply, answer) = oneshot::channel();
        let errand: Errand = Box::new(move |desk| {
            // Taken until its turn is over, whether its asker waits or not.
            let _place = place;
            let began = Instant::now();
            let go_on = || !reply.is_closed() && began.elapsed() < CURVE_BUDGET;
            if go_on() {
                let done = work(desk, &go_on);
                drop(reply.send(done));
            }
        });
        self.errands.try_send(errand).map_err(|_| Unanswered::InAll(ERRANDS))?;
        answer.await.map_err(|_| Unanswered::BrokeDown)
    }

    async fn errand<T: Send + 'static>(&self, work: impl FnOnce(&mut Desk) -> T + Send + 'static) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        // The asker may have given up meanwhile.
        let errand: Errand = Box::new(move |desk| drop(reply.send(work(desk))));
        self.errands.try_send(errand).ok()?;
        answer.await.ok()
    }
}

fn run(todo: &Receiver<Errand>, mut desk: Desk) {
    // Where it is refused, the thread answers all the same.
    let _ = rustix::process::nice(NICE);
    while let Ok(errand) = todo.recv() {
        if catch_unwind(AssertUnwindSafe(|| errand(&mut desk))).is_err() {
            // What broke down may have left the cache half written. What it was is on the standard error output.
            tracing::error!("answering a question broke down");
            desk.curves = CurveCache::default();
        }
    }
}

/// Follows the rounds. Bands are only as good as the predictions they are held against, so that where something waits
/// and nobody asks, a prediction is made now and then all the same.
async fn learn(asking: Asking) {
    let mut round = asking.round.clone();
    let mut rest_until = Instant::now();
    while round.changed().await.is_ok() {
        let Some(newest) = round.borrow_and_update().clone() else { continue };
        let due = Instant::now() >= rest_until;
        match asking.errand(move |desk| desk.learn(&newest, due)).await {
            // Nothing was predicted.
            Some(None) => {}
            // What broke down rests too, lest it break down at every round.
            took => rest_until = Instant::now() + (REST_PER_WORK * took.flatten().unwrap_or_default()).max(LEAST_REST),
        }
    }
}

impl Desk {
    /// How long a prediction took, if it was due and somebody waits.
    fn learn(&mut self, round: &SolvedRound, due: bool) -> Option<Duration> {
        self.experience.observe(&round.input, &round.plan);
        self.outcomes.retain(|_, kept| kept.plan == round.plan.id || Instant::now() < kept.until);
        let waits = round.input.jobs.iter().any(|job| !round.plan.assignments.contains_key(&job.job));
        (due && waits).then(|| {
            let began = Instant::now();
            self.forecast(round);
            began.elapsed()
        })
    }

    /// Makes the curves that a round lacks; whether all could be.
    fn has_curves(&mut self, input: &PlanInput, go_on: &dyn Fn() -> bool) -> bool {
        let mut parts = self.curves.ahead(input);
        parts.iter_mut().take_while(|_| go_on()).for_each(Part::make);
        let all = parts.iter().all(|part| part.lacks() == 0);
        self.curves.take_back(parts);
        all
    }

    fn trial(
        &mut self,
        round: &SolvedRound,
        jobs: Vec<PlanJob>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Trial, Unanswered> {
        let ids = jobs.iter().map(|job| job.job).collect();
        let input = PlanInput::clone(&round.input).with(jobs);
        if !self.has_curves(&input, go_on) {
            return Err(Unanswered::TooLong);
        }
        let plan = plan(&input, &mut self.curves)
            .inspect_err(|error| tracing::warn!(error = error as &dyn std::error::Error, "trial round failed"));
        let plan = plan.map_err(|_| Unanswered::BrokeDown)?;
        let forecast = headway_forecast::starts(&input, &plan, &mut self.curves, &Effort::default(), &self.experience);
        Ok(Trial { jobs: ids, plan, forecast })
    }

    /// The forecast of a round, or one lately made; what it says is remembered, to be compared with what comes.
    fn forecast(&mut self, round: &SolvedRound) -> Arc<Forecast> {
        if let Some(kept) = self.forecast.as_ref().filter(|kept| kept.serves(&round.plan, false)) {
            return Arc::clone(&kept.answer);
        }
        let Self { curves, experience, .. } = self;
        let began = Instant::now();
        let forecast = headway_forecast::starts(&round.input, &round.plan, curves, &Effort::default(), experience);
        experience.predicted(round.input.now, &forecast);
        self.foretold.send_replace(Arc::new(Foretold::of(&forecast, round.input.now)));
        let kept = self.forecast.insert(Kept::new(forecast, round.plan.id, false, began.elapsed()));
        Arc::clone(&kept.answer)
    }

    fn outcomes(&mut self, round: &SolvedRound, job: JobId) -> Option<Arc<Outcomes>> {
        let runs = round.plan.assignments.contains_key(&job);
        if let Some(kept) = self.outcomes.get(&job).filter(|kept| kept.serves(&round.plan, runs)) {
            return Some(Arc::clone(&kept.answer));
        }
        let began = Instant::now();
        let forecast = self.forecast(round);
        let answers = counterfactual::usual(&round.input, &round.plan, &mut self.curves, job)
            .inspect_err(|error| tracing::warn!(job_id = %job, error = error as &dyn std::error::Error, "no answers"))
            .unwrap_or_default();
        let start = forecast.starts.get(&job).filter(|_| !runs).cloned();
        let outcomes = Outcomes { answers, start, method: forecast.method };
        let kept = Kept::new(outcomes, round.plan.id, runs, began.elapsed());
        let answer = Arc::clone(&kept.answer);
        self.outcomes.insert(job, kept);
        Some(answer)
    }
}

#[cfg(test)]
mod tests;
