//! Faults of the scheduler's own, counted and logged: transitions that the engine's tables refuse, states that it rules out, rounds that
//! break down, moves that led nowhere. They are in the event log as well; here they reach whoever watches the process.

use headway_engine::{Change, Engine, Outcome};

use crate::metrics;

/// Events of rounds that ended at once without a plan.
const ROUND_FAILURES: [&str; 2] = ["plan.failed", "plan.refused"];

/// What this term's engine has counted so far.
#[derive(Debug, Default)]
pub(super) struct Faults {
    illegal_transitions: u64,
    impossible_states: u64,
}

impl Faults {
    /// After each batch.
    pub fn tell(&mut self, engine: &Engine, outcome: &Outcome) {
        let now =
            Self { illegal_transitions: engine.illegal_transitions(), impossible_states: engine.impossible_states() };
        metrics::engine_faults("illegal_transition", now.illegal_transitions - self.illegal_transitions);
        metrics::engine_faults("impossible_state", now.impossible_states - self.impossible_states);
        *self = now;
        for change in &outcome.changes {
            let Change::Event(event) = change else { continue };
            if ROUND_FAILURES.contains(&event.verb.as_str()) {
                metrics::round_failed();
                tracing::error!(verb = event.verb, plan_id = ?event.plan, "{}", event.message);
            } else if event.verb.starts_with("engine.") {
                tracing::error!(verb = event.verb, job_id = ?event.job, node_id = ?event.node, "{}", event.message);
            }
            if event.verb == "job.returned" {
                metrics::move_returned();
            }
        }
    }
}
