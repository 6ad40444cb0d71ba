//! Jobs whose steps are read from what they print: they say nothing of themselves.

use headway_engine::record::{JobState, StopCause};
use headway_types::{AgentCommand, JobId, JobSpec, example};

use crate::harness::{Cluster, rigid, spec, training};

fn printing(mut spec: JobSpec) -> JobSpec {
    spec.roles[0].run.progress = Some(example::progress());
    spec
}

fn tuned() -> JobSpec {
    printing(spec("one", 4, 4, Some(training(true))))
}

fn ordered_length(cluster: &Cluster, job: JobId) -> Option<u32> {
    let order = cluster.commands.iter().find_map(|(_, command)| match command {
        AgentCommand::Prepare { order } if order.job == job => Some(order),
        _ => None,
    });
    order.unwrap().run.progress.clone().unwrap().sequence_length
}

#[test]
fn the_first_step_says_that_the_pattern_works_and_from_then_on_it_is_judged_by_its_steps() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(tuned());
    cluster.start(job);
    assert_eq!(ordered_length(&cluster, job), Some(training(true).work.seq_len()));
    cluster.pass_beating(400.0, &[0]);
    assert_eq!(cluster.jobs[&job].capabilities, None);
    cluster.steps(job, 64, None);
    assert_eq!(cluster.jobs[&job].capabilities, Some(training(true).reconfigure), "what the specification says");
    cluster.pass_beating(7_200.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Stopping { cause: StopCause::Hung { .. }, .. }));
    assert_eq!(cluster.count("job.progress_silent"), 0);
}

#[test]
fn a_pattern_that_finds_nothing_is_told_once_and_ends_no_job() {
    let mut cluster = Cluster::new(&[4, 4]);
    let jobs = [cluster.submit(tuned()), cluster.submit(printing(rigid("two", 4)))];
    jobs.iter().for_each(|job| cluster.start(*job));
    cluster.pass_beating(590.0, &[0, 1]);
    assert_eq!(cluster.count("job.progress_silent"), 0);
    cluster.pass_beating(7_200.0, &[0, 1]);
    assert_eq!(cluster.count("job.progress_silent"), 2);
    for (job, field) in jobs.iter().zip(["training.progress", "run.progress"]) {
        assert!(matches!(cluster.state(*job), JobState::Running { .. }));
        assert!(cluster.messages.iter().any(|told| told.contains(&format!("compare {field}.regex"))), "{field}");
    }
    let view = cluster.engine.view();
    assert!(view.jobs.values().all(|shown| shown.progress_silent(view.at).is_some()));
}
