//! Jobs whose steps are read from what they print: they say nothing of themselves.

use headway_engine::StepSilence;
use headway_engine::record::{JobState, StopCause};
use headway_types::{
    AgentCommand, Configuration, Generation, GpuCount, GroupPhase, JobId, JobSpec, Layout, NodeReport, Seconds,
    Sequences, StepReport, Tokens, example,
};

use crate::harness::{Cluster, inventory, rigid, spec, training};

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
    cluster.steps(job, 128, None);
    cluster.pass_beating(590.0, &[0]);
    assert_eq!(cluster.count("job.progress_silent"), 0);
    cluster.pass_beating(6_610.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Stopping { cause: StopCause::Hung { .. }, .. }));
    assert_eq!(cluster.count("job.progress_silent"), 1);
}

/// The same job, once with steps that its script reports and once with steps that are read from its output.
fn both() -> [JobSpec; 2] {
    [spec("reported", 4, 4, Some(training(true))), tuned()]
}

#[test]
fn a_job_that_falls_silent_is_treated_alike_however_its_steps_are_known() {
    let told = both().map(|spec| {
        let name = spec.name.clone();
        let mut cluster = Cluster::new(&[4]);
        let job = cluster.submit(spec);
        cluster.start(job);
        if name == "reported" {
            cluster.declare(job);
        }
        cluster.steps(job, 64, None);
        cluster.pass_beating(720.0, &[0]);
        assert!(matches!(cluster.state(job), JobState::Running { .. }));
        let view = cluster.engine.view();
        let silence = view.jobs[&job].progress_silent(view.at);
        assert!(matches!(silence, Some(StepSilence::Ceased { .. })), "{silence:?}");
        let words: Vec<_> = cluster.messages.iter().filter(|told| told.contains("has made no step for")).collect();
        assert_eq!(words.len(), 1, "{:#?}", cluster.messages);
        let words = words[0].replace(&name, "it");
        // A step ends the silence, and another silence is another event.
        cluster.steps(job, 128, None);
        assert_eq!(cluster.engine.view().jobs[&job].progress_silent(cluster.engine.view().at), None);
        cluster.pass_beating(720.0, &[0]);
        assert_eq!(cluster.count("job.progress_silent"), 2);
        cluster.pass_beating(1_200.0, &[0]);
        assert!(matches!(cluster.state(job), JobState::Stopping { cause: StopCause::Hung { .. }, .. }));
        words
    });
    assert_eq!(told[0], told[1]);
}

/// Steps that are read from output are counted from one line to the next.
fn printed_line(cluster: &mut Cluster, job: JobId, number: u64, apart: Seconds) {
    let report = StepReport { duration: apart, steps: 10, ..cluster.report_of(job, 640 * number) };
    cluster.report(0, NodeReport::Steps { report: Box::new(report) });
}

#[test]
fn a_script_that_prints_a_line_an_epoch_is_not_taken_for_hanging_between_two() {
    for job in [tuned(), printing(rigid("no training section", 4))] {
        let has_training = job.training().is_some();
        let mut cluster = Cluster::new(&[4]);
        let job = cluster.submit(job);
        cluster.start(job);
        // The first line comes at once, before the first epoch.
        let report = StepReport { steps: 1, ..one_step(job) };
        cluster.report(0, NodeReport::Steps { report: Box::new(report) });
        cluster.pass_beating(2_700.0, &[0]);
        let told = cluster.count("job.progress_silent");
        assert_eq!(told, 1, "how far apart lines are is not known yet");
        if has_training {
            for number in 1..4 {
                printed_line(&mut cluster, job, number, Seconds(2_700.0));
                cluster.pass_beating(2_700.0, &[0]);
            }
            assert_eq!(cluster.count("job.progress_silent"), told, "now it is");
        }
        assert!(matches!(cluster.state(job), JobState::Running { .. }), "{:#?}", cluster.messages);
        cluster.pass_beating(5_500.0, &[0]);
        let hung = matches!(cluster.state(job), JobState::Stopping { cause: StopCause::Hung { .. }, .. });
        assert_eq!(hung, has_training, "{:?}", cluster.state(job));
    }
}

fn one_step(job: JobId) -> StepReport {
    let (layout, global_batch) = (Layout::data_parallel(GpuCount(4)), Sequences(64));
    StepReport {
        job,
        generation: Generation(1),
        step: 1,
        steps: 1,
        samples_seen: global_batch,
        tokens: Tokens(0.0),
        duration: Seconds(1.0),
        configuration: Configuration { layout, micro_batch: Sequences(16), global_batch },
        loss: None,
        noise: None,
        preconditioned: None,
        memory_peak: None,
    }
}

#[test]
fn the_time_to_stall_is_counted_from_the_last_step_however_steps_are_known() {
    let rigid_one = printing(rigid("no training section", 4));
    for mut spec in both().into_iter().chain([rigid_one]) {
        spec.limits.stall_after = Some(Seconds(120.0));
        let name = spec.name.clone();
        let mut cluster = Cluster::new(&[4]);
        let job = cluster.submit(spec);
        cluster.start(job);
        if name == "reported" {
            cluster.declare(job);
        }
        let report = one_step(job);
        cluster.report(0, NodeReport::Steps { report: Box::new(report) });
        cluster.pass_beating(115.0, &[0]);
        assert!(matches!(cluster.state(job), JobState::Running { .. }), "{name}");
        cluster.pass_beating(10.0, &[0]);
        assert!(matches!(cluster.state(job), JobState::Stopping { cause: StopCause::Hung { .. }, .. }), "{name}");
        assert!(cluster.messages.iter().any(|told| told.contains("no step for over 2 min")), "{:#?}", cluster.messages);
    }
}

#[test]
fn a_loss_is_lost_until_a_report_that_began_later_has_a_finite_one() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(tuned());
    cluster.start(job);
    cluster.steps(job, 64, None);
    let generation = Generation(1);
    let anomaly = |step, loss| NodeReport::LossAnomaly { job, generation, step, loss, usual: Some(2.5) };
    cluster.report(0, anomaly(16, Some(9.0)));
    cluster.report(0, anomaly(17, None));
    cluster.report(0, anomaly(18, None));
    assert_eq!((cluster.count("job.loss_spike"), cluster.count("job.loss_not_finite")), (1, 1));
    let lost = |cluster: &Cluster| cluster.jobs[&job].not_finite_loss.map(|lost| lost.step);
    assert_eq!(lost(&cluster), Some(17));
    let report = |cluster: &Cluster, step, steps, loss| {
        let report = cluster.report_of(job, 64 * step);
        NodeReport::Steps { report: Box::new(StepReport { step, steps, loss, ..report }) }
    };
    // A sum over steps 11 to 20 has a loss from before step 17, the next has none.
    for (step, loss) in [(20, Some(2.5)), (30, None)] {
        let next = report(&cluster, step, 10, loss);
        cluster.report(0, next);
        assert_eq!(lost(&cluster), Some(17), "after the report up to step {step}");
    }
    let next = report(&cluster, 40, 10, Some(2.4));
    cluster.report(0, next);
    assert_eq!(lost(&cluster), None);
}

fn silence(cluster: &Cluster, job: JobId) -> Option<StepSilence> {
    let view = cluster.engine.view();
    view.jobs[&job].progress_silent(view.at)
}

#[test]
fn a_job_is_shown_as_silent_when_an_event_says_so_and_not_before() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(tuned());
    cluster.start(job);
    // A step takes a minute, so twenty minutes without one are nothing unusual.
    let report = StepReport { duration: Seconds(60.0), ..cluster.report_of(job, 64) };
    cluster.report(0, NodeReport::Steps { report: Box::new(report) });
    cluster.pass_beating(1_190.0, &[0]);
    assert_eq!((silence(&cluster, job), cluster.count("job.progress_silent")), (None, 0));
    cluster.disconnect(0);
    cluster.pass(20.0);
    assert_eq!((silence(&cluster, job), cluster.count("job.progress_silent")), (None, 0), "its node is out of reach");
    cluster.register(inventory(0, 4), vec![cluster.status(job, cluster.jobs[&job].generation, GroupPhase::Running)]);
    cluster.pass_beating(100.0, &[0]);
    assert_eq!(cluster.count("job.progress_silent"), 1, "{:#?}", cluster.messages);
    let Some(StepSilence::Ceased { lasting, .. }) = silence(&cluster, job) else {
        panic!("{:?}", silence(&cluster, job))
    };
    assert!(lasting.0 > 1_200.0, "{lasting:?}");
}

#[test]
fn a_printing_job_that_hangs_while_the_leader_changes_is_still_found() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(tuned());
    cluster.start(job);
    cluster.steps(job, 64, None);
    cluster.steps(job, 128, None);
    cluster.pass_beating(60.0, &[0]);
    cluster.restart();
    cluster.register(inventory(0, 4), vec![cluster.status(job, cluster.jobs[&job].generation, GroupPhase::Running)]);
    cluster.pass_beating(5_000.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }), "its lines may be far apart");
    cluster.pass_beating(600.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Stopping { cause: StopCause::Hung { .. }, .. }));
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
