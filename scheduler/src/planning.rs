//! The planning thread: runs `headway_planner::plan` off the loop, one round at a time.
//!
//! A plan that panics, fails or takes too long comes back as `PlanFailed`, and the current plan stays. The thread
//! keeps the cache of goodput curves between rounds; it decides nothing about what becomes of a plan.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use headway_engine::Event;
use headway_planner::{CurveCache, PlanInput, plan};
use headway_types::PlanId;
use tokio::sync::mpsc;

use crate::driver::Input;

/// Rounds are bounded by the solver's own budget; one that takes longer than this is given up.
const ROUND_DEADLINE: Duration = Duration::from_secs(60);
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Takes rounds to plan; the thread ends when this is dropped.
pub struct Planning {
    rounds: Sender<Box<PlanInput>>,
}

/// The round under way, until its answer is sent or it is given up.
type Current = Arc<Mutex<Option<(PlanId, Instant)>>>;

impl Planning {
    /// Starts the thread and its watchdog; answers go to the loop's inbox. Needs a tokio runtime.
    pub fn start(inbox: mpsc::Sender<Input>) -> std::io::Result<Self> {
        let (rounds, requests) = channel();
        let current = Current::default();
        let watched = Arc::clone(&current);
        let answers = inbox.clone();
        thread::Builder::new().name("planning".into()).spawn(move || run(&requests, &answers, &current))?;
        tokio::spawn(watch(watched, inbox));
        Ok(Self { rounds })
    }

    /// Asks for a plan; it comes back as an event.
    pub fn request(&self, input: Box<PlanInput>) {
        self.rounds.send(input).expect("the planning thread catches panics and lives as long as this handle");
    }
}

fn run(requests: &Receiver<Box<PlanInput>>, inbox: &mpsc::Sender<Input>, current: &Current) {
    let mut cache = CurveCache::default();
    while let Ok(input) = requests.recv() {
        let id = input.plan;
        let started = Instant::now();
        set(current, Some((id, started)));
        let event = solve(&input, &mut cache);
        if !finish(current, id) {
            tracing::warn!(plan_id = %id, took = ?started.elapsed(), "round ended after it was given up");
            continue;
        }
        tracing::debug!(plan_id = %id, jobs = input.jobs.len(), took = ?started.elapsed(), "round ended");
        if inbox.blocking_send(Input::Event(event)).is_err() {
            return;
        }
    }
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
async fn watch(current: Current, inbox: mpsc::Sender<Input>) {
    let mut ticks = tokio::time::interval(WATCH_EVERY);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = inbox.closed() => return,
        }
        let overdue = current
            .lock()
            .expect("nothing panics while it holds the round")
            .take_if(|(_, started)| started.elapsed() > ROUND_DEADLINE);
        if let Some((plan, _)) = overdue {
            tracing::error!(plan_id = %plan, "round takes too long, the current plan stays");
            let message = format!("no plan after {} s", ROUND_DEADLINE.as_secs());
            if inbox.send(Input::Event(Event::PlanFailed { plan, message })).await.is_err() {
                return;
            }
        }
    }
}

fn set(current: &Current, round: Option<(PlanId, Instant)>) {
    *current.lock().expect("nothing panics while it holds the round") = round;
}

/// True unless the round was given up.
fn finish(current: &Current, id: PlanId) -> bool {
    let mut round = current.lock().expect("nothing panics while it holds the round");
    round.take_if(|(plan, _)| *plan == id).is_some()
}
