//! The planning thread: runs `headway_planner::plan` off the loop, one round at a time.
//!
//! A plan that panics, fails or takes too long comes back as `PlanFailed`, and the current plan stays. A round that was
//! given up cannot be stopped, so its thread is left to it and another takes the next round, up to a bound. The thread
//! keeps the cache of goodput curves between rounds; it decides nothing about what becomes of a plan.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use headway_engine::Event;
use headway_planner::{CurveCache, PlanInput, plan};
use headway_types::{Plan, PlanId};
use tokio::sync::{mpsc, watch};

use crate::driver::Input;

/// Rounds are bounded by the solver's own budget; one that takes longer than this is given up.
const ROUND_DEADLINE: Duration = Duration::from_secs(60);
/// Threads that may still sit over rounds that were given up. With more, no rounds are taken until one is done.
const MOST_ABANDONED: u32 = 3;

/// Takes rounds to plan; the threads end when this is dropped.
pub struct Planning {
    rounds: Sender<Arc<PlanInput>>,
    crew: Arc<Crew>,
}

/// A round and the plan made of it, adopted or not: what questions are asked about.
#[derive(Debug)]
pub struct SolvedRound {
    pub input: Arc<PlanInput>,
    pub plan: Plan,
}

/// The newest round that has a plan.
pub type LastRound = watch::Receiver<Option<Arc<SolvedRound>>>;

type Solver = Box<dyn Fn(&PlanInput, &mut CurveCache) -> Event + Send + Sync>;

/// What the threads share.
struct Crew {
    requests: Mutex<Receiver<Arc<PlanInput>>>,
    inbox: mpsc::Sender<Input>,
    work: Mutex<Work>,
    last: watch::Sender<Option<Arc<SolvedRound>>>,
    solver: Solver,
    deadline: Duration,
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
        Self::with(Box::new(solve), ROUND_DEADLINE, inbox)
    }

    fn with(solver: Solver, deadline: Duration, inbox: mpsc::Sender<Input>) -> std::io::Result<Self> {
        let (rounds, requests) = channel();
        let (requests, work, last) = (Mutex::new(requests), Mutex::default(), watch::Sender::default());
        let crew = Arc::new(Crew { requests, inbox, work, last, solver, deadline });
        crew.man()?;
        tokio::spawn(guard(Arc::clone(&crew)));
        Ok(Self { rounds, crew })
    }

    /// The newest round with its plan, from now on.
    pub fn last_round(&self) -> LastRound {
        self.crew.last.subscribe()
    }

    /// Asks for a plan; it comes back as an event.
    pub fn request(&self, input: Arc<PlanInput>) {
        if self.crew.work().unmanned {
            let failed = Event::PlanFailed { plan: input.plan, message: "the planner hangs".into() };
            let inbox = self.crew.inbox.clone();
            // Not here: the caller is the loop itself, and its inbox may be full. It has ended if this fails.
            tokio::spawn(async move { inbox.send(Input::event(failed)).await.ok() });
            return;
        }
        self.rounds.send(input).expect("the receiver lives as long as this handle");
    }
}

impl Crew {
    /// Starts a thread that takes rounds.
    fn man(self: &Arc<Self>) -> std::io::Result<()> {
        let crew = Arc::clone(self);
        thread::Builder::new().name("planning".into()).spawn(move || crew.run()).map(|_| ())
    }

    fn run(&self) {
        let mut cache = CurveCache::default();
        while let Some(input) = self.next() {
            let id = input.plan;
            let started = Instant::now();
            self.work().current = Some((id, started));
            let event = (self.solver)(&input, &mut cache);
            match self.finish(id) {
                Finish::InTime => {}
                Finish::GivenUp { replaced } => {
                    tracing::warn!(plan_id = %id, took = ?started.elapsed(), "round ended after it was given up");
                    if replaced {
                        return;
                    }
                    continue;
                }
            }
            tracing::debug!(plan_id = %id, jobs = input.jobs.len(), took = ?started.elapsed(), "round ended");
            if let Event::PlanReady { plan } = &event {
                if let Some(reason) = plan.report.solver.as_ref().and_then(|solver| solver.instead.as_deref()) {
                    tracing::warn!(plan_id = %id, reason, "round decided by headway's own solver instead of the policy's");
                }
                self.last.send_replace(Some(Arc::new(SolvedRound { input, plan: Plan::clone(plan) })));
            }
            if self.inbox.blocking_send(Input::event(event)).is_err() {
                return;
            }
        }
    }

    /// The next round; `None` once nobody can ask for one any more.
    fn next(&self) -> Option<Arc<PlanInput>> {
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

fn solve(input: &PlanInput, cache: &mut CurveCache) -> Event {
    match catch_unwind(AssertUnwindSafe(|| plan(input, cache))) {
        Ok(Ok(plan)) => Event::PlanReady { plan: Box::new(plan) },
        Ok(Err(error)) => {
            tracing::error!(plan_id = %input.plan, error = &error as &dyn std::error::Error, "round failed");
            Event::PlanFailed { plan: input.plan, message: error.to_string() }
        }
        Err(panic) => {
            // The panic may have left the cache half written.
            *cache = CurveCache::default();
            let message = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "no message".to_owned());
            tracing::error!(plan_id = %input.plan, %message, "planner panicked");
            Event::PlanFailed { plan: input.plan, message: format!("the planner panicked: {message}") }
        }
    }
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
            if crew.inbox.send(Input::event(Event::PlanFailed { plan, message })).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_planner::Policy;
    use headway_types::{IdSource, Timestamp};

    use super::*;

    fn round(ids: &mut IdSource) -> Arc<PlanInput> {
        Arc::new(PlanInput {
            plan: ids.plan(Timestamp(0)),
            parent: None,
            now: Timestamp(0),
            trigger: "test".into(),
            policy: Policy::default(),
            nodes: vec![],
            jobs: vec![],
            projects: vec![],
            reservations: vec![],
        })
    }

    async fn answer(inbox: &mut mpsc::Receiver<Input>) -> (PlanId, String) {
        let event = tokio::time::timeout(Duration::from_secs(10), inbox.recv()).await.unwrap().unwrap();
        let Input::Event { event: Event::PlanFailed { plan, message }, .. } = event else {
            panic!("unexpected {event:?}")
        };
        (plan, message)
    }

    #[tokio::test]
    async fn a_planner_that_hangs_again_and_again_is_replaced_until_too_many_hang() {
        let (release, hanging) = channel::<()>();
        let hanging = Mutex::new(hanging);
        let solver = move |input: &PlanInput, _: &mut CurveCache| {
            if input.trigger == "hang" {
                // Only one of them waits for the word at a time; the others wait for it to be done.
                let _ = hanging.lock().unwrap().recv();
            }
            Event::PlanFailed { plan: input.plan, message: "solved".into() }
        };
        let (inbox, mut answers) = mpsc::channel(16);
        let planning = Planning::with(Box::new(solver), Duration::from_millis(120), inbox).unwrap();
        let mut ids = IdSource::seeded(1);
        for _ in 0..=MOST_ABANDONED {
            let healthy = round(&mut ids);
            let id = healthy.plan;
            planning.request(healthy);
            assert_eq!(answer(&mut answers).await, (id, "solved".into()));
            let stuck = Arc::new(PlanInput { trigger: "hang".into(), ..Arc::unwrap_or_clone(round(&mut ids)) });
            let id = stuck.plan;
            planning.request(stuck);
            let (failed, message) = answer(&mut answers).await;
            assert_eq!(failed, id);
            assert!(message.starts_with("no plan after"), "{message}");
        }
        planning.request(round(&mut ids));
        assert_eq!(answer(&mut answers).await.1, "the planner hangs");

        release.send(()).unwrap();
        let solved = async {
            loop {
                planning.request(round(&mut ids));
                if answer(&mut answers).await.1 == "solved" {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(10), solved).await.unwrap();
    }
}
