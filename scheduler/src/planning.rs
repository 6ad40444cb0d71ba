//! The planning thread: makes a round's input, runs `headway_planner::plan` and checks the plan, off the loop, one round at a time.
//!
//! Goodput curves are made before the round, on all cores and for as long as their budget lasts; jobs whose curves are not ready then are
//! named in the input as deferred, so that the stored round is decided the same again. A plan that panics or fails comes back as
//! `PlanFailed`, one that takes too long as `PlanGivenUp`, and the current plan stays; the loop logs and counts what failed. A round that was
//! given up cannot be stopped, so its thread is left to it and another takes the next round, up to a bound, beyond which
//! rounds fail at once. The thread keeps the cache of goodput curves between rounds; it decides nothing about what becomes of a plan.

mod health;

use std::any::Any;
use std::collections::BTreeSet;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use headway_engine::Event;
use headway_planner::{CurveCache, Part, PlanInput, Verified, plan};
use headway_types::{JobId, Plan, PlanId};
use tokio::sync::{mpsc, watch};

use crate::driver::Input;
use crate::{metrics, spans};
pub use health::{Health, Rounds};

/// Rounds are bounded by the solver's own budget; one that takes longer than this is given up.
const ROUND_DEADLINE: Duration = Duration::from_secs(60);
/// Of that, what curves may take; what is made stays for the next round.
const CURVE_BUDGET: Duration = Duration::from_secs(15);
/// With fewer searches to make, threads are not worth their start.
const FEW_SEARCHES: usize = 256;
/// The loop answers people and agents: it goes before whoever plans for it.
const NICE: i32 = 5;
/// Threads that may still sit over rounds that were given up. With more, no rounds are taken until one is done.
const MOST_ABANDONED: u32 = 3;

/// Takes rounds to plan; the threads end when this is dropped.
pub struct Planning {
    rounds: Sender<Wanted>,
    crew: Arc<Crew>,
}

/// A round that is wanted. Its input is made where it is planned.
struct Wanted {
    plan: PlanId,
    input: Box<dyn FnOnce() -> PlanInput + Send>,
}

/// A round and the plan made of it, adopted or not: what questions are asked about.
#[derive(Debug)]
pub struct SolvedRound {
    pub input: Arc<PlanInput>,
    pub plan: Arc<Plan>,
}

/// The newest round that has a plan.
pub type LastRound = watch::Receiver<Option<Arc<SolvedRound>>>;

type Solver = Box<dyn Fn(&PlanInput, &mut CurveCache) -> Event + Send + Sync>;

/// What the threads share.
struct Crew {
    requests: Mutex<Receiver<Wanted>>,
    inbox: mpsc::Sender<Input>,
    work: Mutex<Work>,
    last: watch::Sender<Option<Arc<SolvedRound>>>,
    rounds: Arc<Rounds>,
    solver: Solver,
    deadline: Duration,
    curve_budget: Duration,
}

#[derive(Default)]
struct Work {
    /// The round under way, until its answer is sent or it is given up.
    current: Option<(PlanId, Instant)>,
    /// Threads whose round was given up and which have not come back.
    abandoned: u32,
    /// Set when all threads are abandoned: the first to come back goes on.
    unmanned: bool,
}

impl Planning {
    /// Starts the thread and its watchdog; answers go to the loop's inbox. Needs a tokio runtime.
    pub fn start(inbox: mpsc::Sender<Input>) -> std::io::Result<Self> {
        Self::with(Box::new(solve), ROUND_DEADLINE, CURVE_BUDGET, inbox)
    }

    fn with(
        solver: Solver,
        deadline: Duration,
        curve_budget: Duration,
        inbox: mpsc::Sender<Input>,
    ) -> std::io::Result<Self> {
        let (rounds, requests) = channel();
        let (requests, work, last) = (Mutex::new(requests), Mutex::default(), watch::Sender::default());
        let crew =
            Arc::new(Crew { requests, inbox, work, last, rounds: Arc::default(), solver, deadline, curve_budget });
        crew.man()?;
        tokio::spawn(guard(Arc::clone(&crew)));
        Ok(Self { rounds, crew })
    }

    /// The newest round with its plan, from now on.
    pub fn last_round(&self) -> LastRound {
        self.crew.last.subscribe()
    }

    /// How rounds go.
    pub fn rounds(&self) -> Arc<Rounds> {
        Arc::clone(&self.crew.rounds)
    }

    /// Asks for this plan, from an input that is made when its turn has come; it comes back as an event.
    pub fn request(&self, plan: PlanId, input: impl FnOnce() -> PlanInput + Send + 'static) {
        if self.crew.work().unmanned {
            let message = "the planner hangs: no round that was given up has come back";
            self.crew.rounds.gave_none(message);
            let failed = Event::PlanFailed { plan, message: message.into() };
            let inbox = self.crew.inbox.clone();
            // Not here: the caller is the loop itself, and its inbox may be full. It has ended if this fails.
            tokio::spawn(async move { inbox.send(Input::event(failed)).await.ok() });
            return;
        }
        let wanted = Wanted { plan, input: Box::new(input) };
        self.rounds.send(wanted).expect("the receiver lives as long as this handle");
    }
}

impl Crew {
    /// Starts a thread that takes rounds.
    fn man(self: &Arc<Self>) -> std::io::Result<()> {
        let crew = Arc::clone(self);
        thread::Builder::new().name("planning".into()).spawn(move || crew.run()).map(|_| ())
    }

    fn run(&self) {
        // Where it is refused, the thread plans all the same.
        let _ = rustix::process::nice(NICE);
        let mut cache = CurveCache::default();
        let mut late = BTreeSet::new();
        // Readers see a plan until they are shown the next, and whoever lets go of a long one last pays for it: not the loop.
        let mut before = None;
        while let Some(Wanted { plan: id, input }) = self.next() {
            let started = Instant::now();
            self.work().current = Some((id, started));
            self.rounds.begun(started);
            let span = spans::round(id);
            let (input, event) = match catch_unwind(AssertUnwindSafe(input)) {
                Ok(input) => self.decide(Arc::new(input), &mut cache, &mut late),
                Err(panic) => (None, broken_down(id, &*panic)),
            };
            let finish = self.finish(id);
            let given_up = matches!(finish, Finish::GivenUp { .. });
            spans::round_ended(&span, input.as_deref(), &event, started.elapsed(), given_up);
            drop(span);
            match finish {
                Finish::InTime => self.ended(started.elapsed(), late.len(), &event),
                Finish::GivenUp { replaced } => {
                    tracing::warn!(plan_id = %id, took = ?started.elapsed(), "round ended after it was given up");
                    if replaced {
                        return;
                    }
                    continue;
                }
            }
            tracing::debug!(plan_id = %id, took = ?started.elapsed(), "round ended");
            if let (Event::PlanReady { plan }, Some(input)) = (&event, input) {
                let plan = Arc::clone(plan.plan());
                if let Some(reason) = plan.report.solver.as_ref().and_then(|solver| solver.instead.as_deref()) {
                    tracing::warn!(plan_id = %id, reason, "round decided by headway's own solver instead of the policy's");
                }
                drop(before.take());
                before = self
                    .last
                    .send_replace(Some(Arc::new(SolvedRound { input, plan })))
                    .map(|round| Arc::clone(&round.plan));
            }
            if self.inbox.blocking_send(Input::event(event)).is_err() {
                return;
            }
        }
    }

    fn ended(&self, took: Duration, deferred: usize, event: &Event) {
        metrics::round_ended(took);
        self.rounds.ended(took, deferred);
        if let Event::PlanFailed { message: why, .. } | Event::PlanRefused { violation: why, .. } = event {
            self.rounds.gave_none(why);
        }
    }

    /// One round, with the curves that could be made in time. A panic is a round that failed, and the thread takes the next.
    fn decide(
        &self,
        input: Arc<PlanInput>,
        cache: &mut CurveCache,
        late: &mut BTreeSet<JobId>,
    ) -> (Option<Arc<PlanInput>>, Event) {
        let made = catch_unwind(AssertUnwindSafe(|| make_ahead(&input, cache, self.curve_budget, late)));
        // Whatever broke down breaks down again in the round, which tells of it.
        *late = made.unwrap_or_else(|_| {
            *cache = CurveCache::default();
            BTreeSet::new()
        });
        metrics::jobs_deferred(late.len());
        let input = if late.is_empty() {
            input
        } else {
            let (id, jobs) = (input.plan, late.len());
            tracing::warn!(plan_id = %id, jobs, "curves were not ready in time, their jobs stay as they are");
            Arc::new(PlanInput { deferred: late.clone(), ..PlanInput::clone(&input) })
        };
        let event = catch_unwind(AssertUnwindSafe(|| (self.solver)(&input, cache))).unwrap_or_else(|panic| {
            // It may have left the cache half written.
            *cache = CurveCache::default();
            broken_down(input.plan, &*panic)
        });
        (Some(input), event)
    }

    /// The next round; `None` once nobody can ask for one any more.
    fn next(&self) -> Option<Wanted> {
        self.requests.lock().expect("nothing panics while it waits for a round").recv().ok()
    }

    fn finish(&self, id: PlanId) -> Finish {
        let mut work = self.work();
        if work.current.take_if(|(plan, _)| *plan == id).is_some() {
            return Finish::InTime;
        }
        work.abandoned -= 1;
        let replaced = !std::mem::take(&mut work.unmanned);
        Finish::GivenUp { replaced }
    }

    /// Gives up the round under way if it takes too long, and puts another thread in its place.
    fn give_up_overdue(self: &Arc<Self>) -> Option<PlanId> {
        let mut work = self.work();
        let (plan, _) = work.current.take_if(|(_, started)| started.elapsed() > self.deadline)?;
        work.abandoned += 1;
        work.unmanned = work.abandoned > MOST_ABANDONED || self.man().is_err();
        let (abandoned, unmanned) = (work.abandoned, work.unmanned);
        metrics::round_given_up();
        metrics::round_ended(self.deadline);
        self.rounds.ended(self.deadline, 0);
        tracing::error!(plan_id = %plan, abandoned, unmanned, "round takes too long, the current plan stays");
        Some(plan)
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().expect("nothing panics while it holds the round")
    }
}

/// How a round ended.
enum Finish {
    InTime,
    /// `replaced`: another thread took over.
    GivenUp {
        replaced: bool,
    },
}

/// Makes the curves that a round lacks, on all cores; returns the jobs whose curves are not ready when the budget is spent. Those that were
/// late before come first.
fn make_ahead(input: &PlanInput, cache: &mut CurveCache, budget: Duration, late: &BTreeSet<JobId>) -> BTreeSet<JobId> {
    let began = Instant::now();
    let mut parts = cache.ahead(input);
    parts.sort_by_key(|part| !part.jobs.iter().any(|job| late.contains(job)));
    let lacking: usize = parts.iter().map(Part::lacks).sum();
    let threads = if lacking < FEW_SEARCHES { 1 } else { thread::available_parallelism().map_or(1, usize::from) };
    let parts: Vec<Mutex<Part>> = parts.into_iter().map(Mutex::new).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while began.elapsed() < budget
            && let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed))
        {
            part.lock().expect("each part is one thread's").make();
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| {
                let _ = rustix::process::nice(NICE);
                work();
            });
        }
        work();
    });
    let parts = parts.into_iter().map(|part| part.into_inner().expect("a panic has ended the scope"));
    let parts: Vec<Part> = parts.collect();
    let late = parts.iter().filter(|part| part.lacks() > 0).flat_map(|part| part.jobs.iter().copied()).collect();
    cache.take_back(parts);
    tracing::debug!(plan_id = %input.plan, searches = lacking, took = ?began.elapsed(), "curves made ahead");
    late
}

/// Plans, and checks the plan against the rules on a code path of its own.
fn solve(input: &PlanInput, cache: &mut CurveCache) -> Event {
    match plan(input, cache).map(|made| Verified::try_new(input, Arc::new(made))) {
        Ok(Ok(plan)) => Event::PlanReady { plan },
        Ok(Err(violation)) => Event::PlanRefused { plan: input.plan, violation: in_full(&violation) },
        Err(error) => Event::PlanFailed { plan: input.plan, message: in_full(&error) },
    }
}

/// With its causes: whoever is told logs it.
fn in_full(error: &(dyn Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |error| Error::source(*error));
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn broken_down(plan: PlanId, panic: &(dyn Any + Send)) -> Event {
    let message = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    Event::PlanFailed { plan, message: format!("the planner panicked: {message}") }
}

/// Gives up rounds that take too long; ends with the loop.
async fn guard(crew: Arc<Crew>) {
    let mut ticks = tokio::time::interval(crew.deadline / 60);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = crew.inbox.closed() => return,
        }
        if let Some(plan) = crew.give_up_overdue() {
            let message = format!("no plan after {} s", crew.deadline.as_secs_f64());
            crew.rounds.gave_none(&message);
            if crew.inbox.send(Input::event(Event::PlanGivenUp { plan, message })).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
