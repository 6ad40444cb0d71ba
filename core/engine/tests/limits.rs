//! Limits by which a job hears of its end, stalls, or has left its GPUs idle for too long.

use headway_engine::event::{JobChange, Request};
use headway_engine::record::{JobState, StopCause};
use headway_engine::{Refusal, Reply};
use headway_types::spec::{LeastUse, Limits, Notice, NoticeSignal, NoticeTo};
use headway_types::{
    AgentCommand, Fault, Generation, GroupOutcome, GroupPhase, JobId, JobSpec, NodeReport, Seconds, StopMode,
};

use crate::harness::{Cluster, rigid, spec, training};

fn limited(limits: Limits) -> JobSpec {
    JobSpec { limits: Limits { max_restarts: 1, ..limits }, ..rigid("one", 4) }
}

fn announced(time: f64, before: f64) -> JobSpec {
    let notice = Notice { signal: NoticeSignal::Usr1, before: Seconds(before), to: NoticeTo::Handlers };
    limited(Limits { time: Some(Seconds(time)), signal: Some(notice), ..Limits::default() })
}

fn notices(cluster: &Cluster) -> Vec<u32> {
    let numbers = cluster.commands.iter().filter_map(|(_, command)| match command {
        AgentCommand::Notify { number, .. } => Some(*number),
        _ => None,
    });
    numbers.collect()
}

/// The node has passed it on.
fn hear(cluster: &mut Cluster, job: JobId, notice: u32) {
    let mut status = cluster.status(job, cluster.jobs[&job].generation, GroupPhase::Running);
    status.notice = notice;
    cluster.report(0, NodeReport::Group { status });
}

fn active(cluster: &mut Cluster, job: JobId, seconds: f64, quiet: f64, busy: Option<f64>) {
    let (steps, generation) = ((seconds / 10.0) as u32, cluster.jobs[&job].generation);
    for step in 0..steps {
        cluster.pass_beating(10.0, &[0]);
        let quiet = Seconds(quiet * f64::from(step + 1));
        cluster.report(0, NodeReport::Activity { job, generation, quiet, busy });
        if !matches!(cluster.state(job), JobState::Running { .. }) {
            return;
        }
    }
    cluster.pass_beating(5.0, &[0]);
}

#[test]
fn a_job_hears_of_its_time_limit_once_and_again_when_that_has_changed() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(announced(600.0, 120.0));
    cluster.start(job);
    cluster.pass_beating(470.0, &[0]);
    assert!(notices(&cluster).is_empty());
    cluster.pass_beating(15.0, &[0]);
    // Repeated until the node says that it is done.
    assert!(!notices(&cluster).is_empty() && notices(&cluster).iter().all(|number| *number == 1));
    hear(&mut cluster, job, 1);
    let sent = notices(&cluster).len();
    cluster.pass_beating(20.0, &[0]);
    assert_eq!((notices(&cluster).len(), cluster.count("job.notified")), (sent, 1));
    let change = JobChange { time: Some(Seconds(1_200.0)), ..JobChange::default() };
    cluster.request(Request::Change { job, change, expected: None });
    cluster.pass_beating(600.0, &[0]);
    assert_eq!((notices(&cluster).last(), cluster.count("job.notified")), (Some(&2), 2));
    hear(&mut cluster, job, 2);
    cluster.pass_beating(150.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Stopping { cause: StopCause::TimeLimit, .. }));
}

#[test]
fn a_time_limit_leaves_room_for_its_signal_and_the_notice_says_what_is_left() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(announced(600.0, 120.0));
    cluster.start(job);
    cluster.pass_beating(400.0, &[0]);
    let limit = |cluster: &mut Cluster, seconds: f64| {
        let change = JobChange { time: Some(Seconds(seconds)), ..JobChange::default() };
        cluster.request(Request::Change { job, change, expected: None })
    };
    for seconds in [60.0, 120.0] {
        let reply = limit(&mut cluster, seconds);
        let Reply::Refused(Refusal::Invalid(why)) = reply else { panic!("{reply:?}") };
        assert_eq!(why, format!("its signal comes 120 s before the time limit, which would be {seconds} s"));
    }
    assert!(matches!(limit(&mut cluster, 430.0), Reply::Job(_)));
    cluster.pass_beating(5.0, &[0]);
    let told = cluster.messages.iter().find(|told| told.contains("is sent")).unwrap();
    // A few seconds have passed since its processes were up.
    let left: f64 = told.rsplit_once(" in ").unwrap().1.strip_suffix(" s").unwrap().parse().unwrap();
    assert!((20.0..=30.0).contains(&left), "{told}");
}

#[test]
fn a_notice_outlives_the_scheduler() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(announced(600.0, 120.0));
    cluster.start(job);
    cluster.pass_beating(490.0, &[0]);
    assert_eq!(cluster.count("job.notified"), 1);
    cluster.restart();
    let status = cluster.status(job, Generation(1), GroupPhase::Running);
    cluster.register(crate::harness::inventory(0, 4), vec![status]);
    cluster.pass_beating(10.0, &[0]);
    assert_eq!((notices(&cluster).first(), cluster.count("job.notified")), (Some(&1), 1), "told again, not anew");
}

#[test]
fn a_job_that_writes_nothing_for_too_long_hangs_and_one_that_writes_does_not() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(limited(Limits { stall_after: Some(Seconds(300.0)), ..Limits::default() }));
    cluster.start(job);
    active(&mut cluster, job, 900.0, 0.0, None);
    assert!(matches!(cluster.state(job), JobState::Running { .. }));
    active(&mut cluster, job, 320.0, 10.0, None);
    let JobState::Stopping { cause: StopCause::Hung { message }, .. } = cluster.state(job) else {
        panic!("{:?}", cluster.state(job));
    };
    assert_eq!(message, "nothing written to its log for over 5 min (limits.stall_after)");
    let idle_since = cluster.allocation(job).idle_since.unwrap();
    assert!((300.0..330.0).contains(&cluster.now.since(idle_since).0), "idle since it last wrote");
    assert_eq!((cluster.jobs[&job].failures, cluster.jobs[&job].setbacks), (0, 1), "once may be the network's fault");
    cluster.end(job, &GroupOutcome::Stopped);
    cluster.pass_beating(60.0, &[0]);
    cluster.start(job);
    active(&mut cluster, job, 320.0, 10.0, None);
    assert_eq!(cluster.jobs[&job].failures, 1);
}

#[test]
fn a_node_out_of_reach_says_nothing_of_a_stall() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(limited(Limits { stall_after: Some(Seconds(300.0)), ..Limits::default() }));
    cluster.start(job);
    active(&mut cluster, job, 30.0, 0.0, None);
    cluster.disconnect(0);
    cluster.pass(900.0);
    assert!(matches!(cluster.state(job), JobState::Running { .. }));
}

#[test]
fn a_job_that_tells_of_its_steps_is_judged_by_them_and_by_its_own_word() {
    let mut cluster = Cluster::new(&[4]);
    let limits = Limits { stall_after: Some(Seconds(4_000.0)), ..Limits::default() };
    let job = cluster.submit(JobSpec { limits, ..spec("one", 4, 4, Some(training(true))) });
    cluster.start(job);
    cluster.declare(job);
    cluster.steps(job, 64, None);
    cluster.checkpoint(job, Generation(1), 64);
    // By its steps alone it would long have counted as hanging.
    cluster.pass_beating(3_900.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }));
    cluster.pass_beating(200.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Stopping { cause: StopCause::Hung { .. }, .. }));
    assert!(cluster.messages.iter().any(|told| told.contains("no step for over 67 min (limits.stall_after)")));
}

fn must_use(percent: f64, window: f64) -> JobSpec {
    let least = LeastUse { share: percent / 100.0, window: Seconds(window) };
    limited(Limits { min_gpu_util: Some(least), ..Limits::default() })
}

#[test]
fn a_job_that_idles_is_warned_then_saves_and_has_failed_with_the_figures() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(must_use(10.0, 600.0));
    cluster.start(job);
    active(&mut cluster, job, 590.0, 0.0, Some(0.02));
    assert_eq!(cluster.count("job.idle_gpus"), 0, "a window has not passed");
    active(&mut cluster, job, 40.0, 0.0, Some(0.02));
    assert_eq!(cluster.count("job.idle_gpus"), 1);
    active(&mut cluster, job, 700.0, 0.0, Some(0.02));
    assert!(matches!(cluster.state(job), JobState::Stopping { cause: StopCause::IdleGpus { .. }, .. }));
    assert_eq!(cluster.stops(job).last(), Some(&StopMode::Checkpoint), "it may save");
    cluster.end(job, &GroupOutcome::Stopped);
    let JobState::Failed { message, .. } = cluster.state(job) else { panic!("{:?}", cluster.state(job)) };
    assert_eq!(message, "its GPUs computed 2.0 % of the last 10 min, and it must use 10.0 %");
    assert_eq!(cluster.count("job.idle_gpus"), 1);
}

#[test]
fn a_job_that_works_again_is_warned_anew_later() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(must_use(10.0, 600.0));
    cluster.start(job);
    active(&mut cluster, job, 640.0, 0.0, Some(0.0));
    active(&mut cluster, job, 300.0, 0.0, Some(0.9));
    assert_eq!((cluster.count("job.idle_gpus"), cluster.count("job.busy_gpus")), (1, 1));
    active(&mut cluster, job, 1_100.0, 0.0, Some(0.0));
    assert!(matches!(cluster.state(job), JobState::Running { .. }), "the time of the first warning does not count");
    assert_eq!(cluster.count("job.idle_gpus"), 2);
}

#[test]
fn where_no_device_measures_its_use_that_is_said_once() {
    let mut cluster = Cluster::new(&[4]);
    let job = cluster.submit(must_use(10.0, 600.0));
    cluster.start(job);
    active(&mut cluster, job, 1_500.0, 0.0, None);
    assert_eq!((cluster.count("job.gpu_use_unknown"), cluster.count("job.idle_gpus")), (1, 0));
    assert!(matches!(cluster.state(job), JobState::Running { .. }));
}

#[test]
fn a_prolog_has_its_time_before_a_node_is_late() {
    let mut cluster = Cluster::new(&[4]);
    let mut slow = rigid("slow", 4);
    slow.roles[0].run.hooks.prolog = Some("./check.sh".into());
    let job = cluster.submit(slow);
    cluster.group(0, job, GroupPhase::Preparing);
    cluster.pass_beating(295.0, &[0]);
    assert!(matches!(cluster.state(job), JobState::Starting { .. }));
    cluster.pass_beating(300.0, &[0]);
    assert!(!matches!(cluster.state(job), JobState::Starting { .. }));
}

/// Two nodes of four GPUs each and a job on both, with an epilog that may take five minutes.
fn with_epilog(trains: bool) -> (Cluster, JobId) {
    let mut cluster = Cluster::new(&[4, 4]);
    let mut job = spec("gang", 8, 8, trains.then(|| training(true)));
    job.roles[0].run.hooks.epilog = Some("./save.sh".into());
    let job = cluster.submit(job);
    (cluster, job)
}

#[test]
fn what_does_not_come_down_while_it_starts_is_given_up_and_nobody_stays_awake_for_it() {
    let (mut cluster, job) = with_epilog(false);
    for (node, rendezvous_port) in [(0, Some(29_500)), (1, None)] {
        cluster.group(node, job, GroupPhase::Prepared { rendezvous_port });
    }
    cluster.group(0, job, GroupPhase::Stopping);
    for _ in 0..80 {
        cluster.pass_beating(5.0, &[0, 1]);
        assert!(matches!(cluster.state(job), JobState::Starting { .. }), "its epilog may still run");
        assert!(cluster.wake_at.unwrap().since(cluster.now).0 > 0.5, "awake at {:?}", cluster.wake_at);
    }
    cluster.pass_beating(300.0, &[0, 1]);
    assert!(!matches!(cluster.state(job), JobState::Starting { generation: Generation(1), .. }));
    assert_eq!(cluster.count("job.gang_broken"), 1);
}

#[test]
fn a_node_in_its_epilog_says_how_it_ended_before_the_others_hang() {
    let (mut cluster, job) = with_epilog(true);
    cluster.start(job);
    cluster.declare(job);
    cluster.steps(job, 64, None);
    cluster.checkpoint(job, Generation(1), 64);
    cluster.group(0, job, GroupPhase::Stopping);
    cluster.pass_beating(400.0, &[0, 1]);
    assert!(matches!(cluster.state(job), JobState::Running { .. }), "{:?}", cluster.state(job));
    let outcome = GroupOutcome::Failed { exit_code: Some(3), fault: Fault::of_job("rank 0 exited with 3") };
    let status = cluster.status(job, Generation(1), GroupPhase::Ended { outcome });
    cluster.report(0, NodeReport::Group { status });
    assert_eq!((cluster.count("job.hung"), cluster.count("job.gang_broken")), (0, 1));
}
