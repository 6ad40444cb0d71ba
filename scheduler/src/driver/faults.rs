//! Faults of the scheduler's own, counted and logged: transitions that the engine's tables refuse, states that it rules out, rounds that
//! break down, jobs that are set aside for it, moves that led nowhere, jobs that fell silent, batches that ruined the step. They are in the event log as well; here they reach whoever watches the process.

use headway_engine::record::EventRecord;
use headway_engine::{Change, Engine, Outcome};

use crate::metrics;

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
            match event.verb.as_str() {
                "plan.failed" | "plan.refused" => metrics::round_failed(),
                "job.set_aside" => metrics::job_set_aside(),
                "job.returned" => {
                    metrics::move_returned();
                    continue;
                }
                "job.preempted" => {
                    metrics::job_preempted();
                    continue;
                }
                "job.progress_silent" => {
                    metrics::progress_silent();
                    continue;
                }
                verb if verb.starts_with("job.batch_") => {
                    metrics::batch_change(verb);
                    continue;
                }
                "job.report_refused" => {
                    metrics::report_refused();
                    continue;
                }
                verb if verb.starts_with("engine.") => {}
                _ => continue,
            }
            let EventRecord { verb, job, node, plan, message, .. } = event;
            tracing::error!(verb, job_id = ?job, node_id = ?node, plan_id = ?plan, "{message}");
        }
    }
}

#[cfg(test)]
mod tests {
    use headway_engine::{Actor, EngineConfig, Snapshot};
    use headway_types::Term;
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;
    use crate::support::START;

    #[test]
    fn rounds_that_break_down_and_jobs_that_are_set_aside_for_it_are_counted() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let counted = recorder.handle();
        let engine = Engine::restore(EngineConfig::default(), Term(1), 1, START, Snapshot::default());
        let event = |verb: &str| {
            Change::Event(EventRecord {
                seq: 1,
                at: START,
                actor: Actor::Scheduler,
                verb: verb.into(),
                job: None,
                node: None,
                plan: None,
                message: "no such row".into(),
                detail: Default::default(),
            })
        };
        let verbs =
            ["plan.failed", "plan.adopted", "plan.refused", "plan.given_up", "job.set_aside", "job.progress_silent"];
        let verbs = verbs.into_iter().chain(["job.batch_changed", "job.batch_contradicted", "job.batch_taken_back"]);
        let outcome = Outcome { changes: verbs.map(event).collect(), ..Outcome::default() };
        ::metrics::with_local_recorder(&recorder, || Faults::default().tell(&engine, &outcome));
        for expected in [
            "headway_rounds_failed_total 2",
            "headway_jobs_set_aside_total 1",
            "headway_jobs_progress_silent_total 1",
            "headway_batch_changes_total{outcome=\"changed\"} 1",
            "headway_batch_changes_total{outcome=\"taken_back\"} 1",
        ] {
            assert!(counted.render().contains(expected), "{}", counted.render());
        }
    }
}
