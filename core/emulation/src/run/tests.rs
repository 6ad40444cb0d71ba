#![allow(clippy::unwrap_used)]

use headway_types::example::{self, class, llama2_7b};
use headway_types::spec::Precision;
use headway_types::{CheckpointRef, GpuUuid, Layout, NodeId};
use uuid::Uuid;

use super::*;
use crate::noise::GradientNoise;

fn configuration(micro: u64, global: u64) -> Configuration {
    let layout = Layout { dp: 2, tp: 4, pp: 1, ..Layout::single() };
    Configuration { layout, micro_batch: Sequences(micro), global_batch: Sequences(global) }
}

fn order(resume: Option<CheckpointRef>) -> LaunchOrder {
    let gpus = (0..8).map(|index| GpuUuid(format!("GPU-{index}"))).collect();
    LaunchOrder {
        configuration: Some(configuration(1, 64)),
        reference_batch: Some(Sequences(64)),
        checkpoint_every: Seconds(600.0),
        resume,
        grace: Seconds(60.0),
        ..example::order(JobId(Uuid::from_u128(5)), 3, NodeId(Uuid::from_u128(1)), gpus)
    }
}

fn workload() -> Workload {
    let noise = GradientNoise::hidden(Seed(1), Sequences(64));
    Workload::Training(Training { shape: llama2_7b(), precision: Precision::Bf16, noise: noise.into() })
}

fn run_of(seed: u64, workload: Workload, resume: Option<CheckpointRef>, failures: f64) -> Run {
    let order = order(resume);
    let setting = Setting {
        seed: Seed(seed),
        job: Seed(seed).about(order.job.0.as_bytes()),
        nature: Nature { failures, ..Nature::GENTLE },
        order: &order,
        class: &class("H100-80G", 8),
        workload,
        progress: Progress::default(),
    };
    Run::new(&setting).unwrap()
}

/// A script that takes layouts in its processes, at this share of a restart.
fn live(share: f64) -> Run {
    let order = order(None);
    let nature = Nature { live_layouts: Some(share), start_spread: 0.0, ..Nature::GENTLE };
    let setting = Setting {
        seed: Seed(1),
        job: Seed(2),
        nature,
        order: &order,
        class: &class("H100-80G", 8),
        workload: workload(),
        progress: Progress::default(),
    };
    let mut run = Run::new(&setting).unwrap();
    run.handle(Timestamp(0), RunEvent::Begin);
    run
}

#[test]
fn another_layout_in_the_running_processes_takes_its_share_of_a_restart() {
    let other = || {
        let layout = Layout { dp: 1, tp: 8, pp: 1, ..Layout::single() };
        Configuration { layout, ..configuration(1, 64) }
    };
    let change = |run: &mut Run| {
        let (at, said) = until(run, is_steps);
        run.handle(at, RunEvent::Configure { revision: 2, configuration: other() });
        let (changed, _) = until(run, |said| matches!(said, Said::Phases { phases } if phases.contains_key(RESHARD)));
        (said, changed.since(at).0)
    };
    let (said, whole) = change(&mut live(1.0));
    let hello = Capabilities { batch: Flexibility::Live, layout: Flexibility::Live };
    assert_eq!(said[0], Said::Hello { capabilities: hello });
    let mut run = live(0.2);
    let (_, part) = change(&mut run);
    assert!(whole > 60.0 && (part / whole - 0.2).abs() < 0.05, "{part} of {whole}");
    let (_, said) = until(&mut run, is_steps);
    assert_eq!(steps_of(&said)[0].configuration, other());

    // A script that restarts for it keeps its layout.
    let mut rigid = training();
    let (at, _) = until(&mut rigid, is_steps);
    rigid.handle(at, RunEvent::Configure { revision: 2, configuration: other() });
    let (_, said) = until(&mut rigid, is_steps);
    assert_eq!(steps_of(&said)[0].configuration, configuration(1, 64));
}

fn training() -> Run {
    let mut run = run_of(1, workload(), None, 0.0);
    assert!(run.handle(Timestamp(0), RunEvent::Begin).is_empty());
    run
}

/// Lets time pass until `wanted` was said; with everything said on the way, and when.
fn until(run: &mut Run, wanted: impl Fn(&Said) -> bool) -> (Timestamp, Vec<Said>) {
    let mut all = Vec::new();
    for _ in 0..100_000 {
        let due = run.due().expect("something is under way");
        let said = run.handle(due, RunEvent::Tick);
        let found = said.iter().any(&wanted);
        all.extend(said);
        if found {
            return (due, all);
        }
    }
    panic!("never said");
}

fn is_steps(said: &Said) -> bool {
    matches!(said, Said::Steps { .. })
}

fn steps_of(said: &[Said]) -> Vec<StepReport> {
    said.iter()
        .filter_map(|one| if let Said::Steps { report } = one { Some((**report).clone()) } else { None })
        .collect()
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let history = |seed| {
        let mut run = run_of(seed, workload(), None, 0.0);
        run.handle(Timestamp(0), RunEvent::Begin);
        until(&mut run, |said| matches!(said, Said::Saved { .. }))
    };
    assert_eq!(history(1), history(1));
    assert_ne!(history(1), history(2));
}

#[test]
fn a_gang_starts_greets_and_steps_with_a_report_every_ten_seconds() {
    let mut run = training();
    let (at, said) = until(&mut run, is_steps);
    assert!(matches!(said[0], Said::Hello { .. }));
    let Said::Phases { phases } = &said[1] else { panic!("{said:?}") };
    assert!((phases.values().map(|one| one.0).sum::<f64>() - at.since(Timestamp(0)).0).abs() < 1e-3);
    let (later, said) = until(&mut run, is_steps);
    let report = &steps_of(&said)[0];
    assert!((10.0..20.0).contains(&report.duration.0), "{report:?}");
    assert!((later.since(at).0 - report.duration.0).abs() < 1e-3);
    assert_eq!(report.samples_seen.0, 64 * report.step);
    assert!(report.noise.is_some() && report.loss.is_some());
}

#[test]
fn it_saves_when_due_and_when_asked() {
    let mut run = training();
    let saved = |said: &Said| matches!(said, Said::Saved { .. });
    let (at, said) = until(&mut run, saved);
    assert!((600.0..720.0).contains(&at.since(Timestamp(0)).0), "{at}");
    let Some(Said::Saved { step, samples_seen, duration }) = said.last() else { panic!("{said:?}") };
    assert_eq!(samples_seen.0, step * 64);
    assert!(duration.0 > 10.0);
    until(&mut run, is_steps);
    let now = at + Seconds(20.0);
    run.handle(now, RunEvent::Save);
    let (again, _) = until(&mut run, saved);
    assert!(again.since(now).0 < 120.0);
}

#[test]
fn a_stop_saves_the_step_under_way_and_exits() {
    let mut run = training();
    let (at, _) = until(&mut run, is_steps);
    run.handle(at + Seconds(0.1), RunEvent::Stop { checkpoint: true });
    assert_eq!(run.hearing(), Hearing::Orderly);
    let (_, said) = until(&mut run, |said| matches!(said, Said::Exited { .. }));
    let report = &steps_of(&said)[0];
    assert_eq!(report.steps, 1);
    assert!(matches!(&said[1], Said::Saved { step, .. } if *step == report.step));
    assert!(matches!(&said[2], Said::Stopped { step, .. } if *step == report.step));
    assert_eq!(said[3], Said::Exited { complete: false });
    assert_eq!(run.due(), None);
}

#[test]
fn a_failed_save_is_told_from_a_good_one() {
    let mut run = run_of(1, workload(), None, 1e6);
    run.handle(Timestamp(0), RunEvent::Begin);
    let (_, said) = until(&mut run, |said| matches!(said, Said::SaveFailed { .. }));
    assert!(!said.iter().any(|one| matches!(one, Said::Saved { .. })));
}

#[test]
fn a_new_batch_counts_from_the_next_step_and_old_revisions_do_not() {
    let mut run = training();
    let (at, _) = until(&mut run, is_steps);
    run.handle(at, RunEvent::Configure { revision: 2, configuration: configuration(2, 128) });
    run.handle(at, RunEvent::Configure { revision: 1, configuration: configuration(1, 32) });
    let (_, first) = until(&mut run, is_steps);
    let (_, second) = until(&mut run, is_steps);
    assert_eq!(steps_of(&first)[0].configuration, configuration(1, 64));
    assert_eq!(steps_of(&second)[0].configuration, configuration(2, 128));
}

#[test]
fn a_resumed_gang_goes_on_where_the_checkpoint_was() {
    let checkpoint = CheckpointRef {
        generation: Generation(2),
        path: "/c/g2/step".into(),
        step: 100,
        samples_seen: Sequences(6400),
        manifest_sha256: String::new(),
    };
    let mut run = run_of(1, workload(), Some(checkpoint), 0.0);
    run.handle(Timestamp(0), RunEvent::Begin);
    let (_, said) = until(&mut run, is_steps);
    assert_eq!((steps_of(&said)[0].step, steps_of(&said)[0].samples_seen), (101, Sequences(6464)));
    assert!(said.iter().any(|one| matches!(one, Said::Phases { phases } if phases["load"].0 > 5.0)));
}

#[test]
fn a_straggler_slows_the_gang_for_a_while_and_shows_in_its_own_time() {
    let mut run = training();
    let (at, _) = until(&mut run, is_steps);
    let plain = run.busy(at, 3).unwrap().0;
    run.handle(at, RunEvent::Straggle { rank: 3, factor: 2.0, lasts: Seconds(300.0) });
    let mean = |said: &[Said]| steps_of(said).last().map(|one| one.duration.0 / f64::from(one.steps)).unwrap();
    until(&mut run, is_steps);
    let (now, slow) = until(&mut run, is_steps);
    assert!((1.8..2.2).contains(&(run.busy(now, 3).unwrap().0 / plain)));
    assert!((0.9..1.1).contains(&(run.busy(now, 4).unwrap().0 / plain)));
    let (_, later) = until(&mut run, |said| matches!(said, Said::Saved { .. }));
    assert!(mean(&slow) > 1.7 * mean(&later));
}

#[test]
fn a_hung_gang_is_deaf_and_a_broken_one_is_not() {
    let mut run = training();
    until(&mut run, is_steps);
    let mut broken = run.clone();
    run.handle(Timestamp(0), RunEvent::Hang);
    run.handle(Timestamp(0), RunEvent::Stop { checkpoint: true });
    assert_eq!((run.due(), run.hearing()), (None, Hearing::Deaf));
    broken.handle(Timestamp(0), RunEvent::Break);
    assert_eq!((broken.due(), broken.hearing()), (None, Hearing::Broken));
}

#[test]
fn an_opaque_script_says_nothing_and_ends_by_itself() {
    let mut run = run_of(1, Workload::Opaque { duration: Seconds(100.0) }, None, 0.0);
    run.handle(Timestamp(0), RunEvent::Begin);
    let (at, said) = until(&mut run, |said| matches!(said, Said::Exited { .. }));
    assert_eq!(said, vec![Said::Exited { complete: true }]);
    assert!((100.0..140.0).contains(&at.since(Timestamp(0)).0));
}

#[test]
fn a_gang_that_needs_more_memory_than_its_gpus_have_dies_of_it_and_others_report_their_peak() {
    let mut run = training();
    let (_, said) = until(&mut run, is_steps);
    let peak = steps_of(&said)[0].memory_peak.unwrap();
    assert!((20 << 30..80 << 30).contains(&peak.0), "{peak}");
    run.handle(Timestamp(0), RunEvent::Configure { revision: 1, configuration: configuration(32, 64) });
    let (_, said) = until(&mut run, |said| *said == Said::OutOfMemory);
    assert!(!steps_of(&said).iter().any(|report| report.configuration.micro_batch == Sequences(32)));
    assert_eq!(run.due(), None);
}
