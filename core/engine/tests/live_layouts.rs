//! Layouts that scripts take in memory.

use std::collections::BTreeMap;

use headway_engine::record::{JobState, StopCause};
use headway_types::report::Flexibility;
use headway_types::{AgentCommand, Generation, GroupPhase, JobId, NodeReport, Seconds};

use crate::harness::{Cluster, inventory, spec, training};

/// A job that runs in a pipeline where data parallelism is better, and has just been told so.
fn told_another() -> (Cluster, JobId) {
    let mut cluster = Cluster::new(&[4]);
    let mut agile = training(true);
    agile.reconfigure.layout = Flexibility::Live;
    let job = cluster.submit(spec("agile", 4, 4, Some(agile)));
    cluster.start(job);
    let configuration = &mut cluster.allocations.get_mut(&(job, Generation(1))).unwrap().configuration;
    let layout = &mut configuration.as_mut().unwrap().layout;
    assert_eq!((layout.dp, layout.pp), (4, 1));
    (layout.dp, layout.pp) = (1, 4);
    cluster.restart();
    cluster.register(inventory(0, 4), vec![cluster.status(job, Generation(1), GroupPhase::Running)]);
    cluster.pass_beating(70.0, &[0]);
    assert_eq!(cluster.count("job.layout_changed"), 1, "{:#?}", cluster.messages);
    (cluster, job)
}

#[test]
fn a_script_that_changes_its_layout_in_memory_is_told_the_new_one_and_not_stopped() {
    let (mut cluster, job) = told_another();
    let at = cluster.allocation(job).configuration.unwrap();
    assert_eq!(at.layout.dp, 4);
    let told = cluster.commands.iter().rev().find_map(|(_, command)| match command {
        AgentCommand::Configure { configuration, lr_scale, .. } => Some((*configuration, *lr_scale)),
        _ => None,
    });
    assert_eq!(told, Some((at, (at.global_batch.0 as f64 / 16.0).sqrt())), "with the learning rate for its batch");
    assert_eq!((cluster.jobs[&job].generation, cluster.jobs[&job].reconfigurations), (Generation(1), 1));
    assert!(cluster.stops(job).is_empty());
    let phases = [("reshard_staging".to_owned(), Seconds(0.5)), ("reshard_exchange".to_owned(), Seconds(1.0))].into();
    for _ in 0..2 {
        let phases = BTreeMap::clone(&phases);
        cluster.report(0, NodeReport::StartPhases { job, generation: Generation(1), phases });
    }
    assert_eq!(cluster.jobs[&job].layout_downtime, Some(Seconds(1.5)));
    assert_eq!(cluster.count("job.reshard_measured"), 1, "{:#?}", cluster.messages);
}

#[test]
fn a_script_that_does_not_follow_is_restarted_in_the_new_layout() {
    let (mut cluster, job) = told_another();
    let mut former = cluster.report_of(job, 16);
    (former.configuration.layout.dp, former.configuration.layout.pp) = (1, 4);
    let mut trains = |cluster: &mut Cluster, seconds: u64| {
        for _ in 0..seconds / 5 {
            former.samples_seen.0 += 16;
            cluster.report(0, NodeReport::Steps { report: Box::new(former.clone()) });
            cluster.pass_beating(5.0, &[0]);
        }
        matches!(cluster.state(job), JobState::Running { .. })
    };
    assert!(trains(&mut cluster, 300), "its node has not said that it has the order");
    let status = cluster.status(job, Generation(1), GroupPhase::Running);
    cluster.report(0, NodeReport::Group { status });
    assert!(trains(&mut cluster, 100), "it is given time");
    cluster.pass_beating(300.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }), "silence says nothing of its layout");
    assert!(!trains(&mut cluster, 60));
    assert!(
        matches!(cluster.state(job), JobState::Stopping { cause: StopCause::Rescale, .. }),
        "{:#?}",
        cluster.messages
    );
    assert_eq!(cluster.allocation(job).configuration.unwrap().layout.dp, 4);
}
