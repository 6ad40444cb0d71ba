//! Moves at every moment of their two generations.
#![allow(clippy::unwrap_used)]
use headway_types::{
    Configuration, Generation, GpuCount, GpuUuid, IdSource, JobId, Layout, NodeSlice, Placement, Sequences, Timestamp,
    Tokens,
};
use proptest::prelude::*;

use super::*;
use crate::record::Made;

fn at(seconds: f64) -> Timestamp {
    Timestamp(1_700_000_000_000_000) + Seconds(seconds)
}

fn job() -> JobId {
    IdSource::seeded(1).job(at(0.0))
}

fn batch(sequences: u64) -> Configuration {
    Configuration { layout: Layout::single(), micro_batch: Sequences(4), global_batch: Sequences(sequences) }
}

/// Granted GPUs of one node, under a configuration.
fn granted(seconds: f64, gpus: u32) -> Allocation {
    let gpus = (0..gpus).map(|index| GpuUuid(format!("GPU-{index}"))).collect();
    let placement = Placement::try_new(vec![NodeSlice { node: IdSource::seeded(2).node(at(0.0)), gpus }]).unwrap();
    let allocation = Allocation::new(job(), Generation(1), placement, at(seconds));
    Allocation { configuration: Some(batch(32)), ..allocation }
}

fn trains(seconds: f64, of: Allocation) -> Allocation {
    let launched = Allocation { prepared_at: Some(of.granted_at), launched_at: Some(at(seconds - 1.0)), ..of };
    Allocation { training_at: Some(at(seconds)), progress_from: Some(Tokens(0.0)), ..launched }
}

/// Its end was decided; by then it had made so much.
fn stops(seconds: f64, goodput: f64, of: Allocation) -> Allocation {
    let within = at(seconds).since(of.training_at.unwrap());
    let made = Some(Made { tokens: Tokens(goodput * within.0), within });
    Allocation { stopping_at: Some(at(seconds)), made, ..of }
}

fn ended(seconds: f64, of: Allocation) -> Allocation {
    Allocation { ended_at: Some(at(seconds)), ..of }
}

fn moved(kind: MoveKind, from: u32, to: u32) -> Move {
    Move {
        job: job(),
        kind,
        from_gpus: GpuCount(from),
        to_gpus: GpuCount(to),
        from_configuration: Some(batch(32)),
        to_configuration: Some(batch(32)),
        goodput_before: TokensPerSecond(100.0),
        goodput_after: TokensPerSecond(160.0),
        downtime: Seconds(5.0),
        pays_back_after: None,
        reason: "it grows".into(),
    }
}

fn grows() -> Move {
    moved(MoveKind::Reconfigure(Tier::Migration), 4, 8)
}

fn of(one: &Move, before: Option<&Allocation>, after: Option<&Allocation>, live: Option<Made>) -> MoveOutcome {
    MoveOutcome::of(one, Around { before, after, lives: true }, live)
}

fn made(goodput: f64, within: f64) -> Made {
    Made { tokens: Tokens(goodput * within), within: Seconds(within) }
}

#[test]
fn a_move_goes_from_waiting_to_done_and_tells_what_it_cost_and_brought() {
    let runs = trains(10.0, granted(0.0, 4));
    let told = of(&grows(), Some(&runs), None, Some(made(100.0, 90.0)));
    assert_eq!((told.state, told.goodput_before), (MoveState::Waiting, Some(TokensPerSecond(100.0))));
    let stopping = stops(100.0, 100.0, runs);
    assert_eq!(of(&grows(), Some(&stopping), None, None).state, MoveState::Stopping);
    let left = ended(103.0, stopping);
    assert_eq!(of(&grows(), Some(&left), None, None).state, MoveState::Waiting, "for its GPUs");
    let got = granted(110.0, 8);
    let told = of(&grows(), Some(&left), Some(&got), None);
    assert_eq!((told.state, told.downtime, told.goodput_after), (MoveState::Starting, None, None));
    let told = of(&grows(), Some(&left), Some(&trains(115.0, got)), Some(made(150.0, 60.0)));
    let expected = MoveOutcome {
        job: job(),
        state: MoveState::Done,
        downtime: Some(Seconds(8.0)),
        goodput_before: Some(TokensPerSecond(100.0)),
        goodput_after: Some(TokensPerSecond(150.0)),
        measured_for: Some(Seconds(60.0)),
    };
    assert_eq!(told, expected, "3 s to stop and 5 s to start; it waited for GPUs in between");
}

#[test]
fn what_was_done_stays_so_when_the_generation_ends() {
    let left = ended(103.0, stops(100.0, 100.0, trains(10.0, granted(0.0, 4))));
    let got = ended(400.0, stops(315.0, 150.0, trains(115.0, granted(110.0, 8))));
    let told = of(&grows(), Some(&left), Some(&got), None);
    assert_eq!((told.state, told.goodput_after), (MoveState::Done, Some(TokensPerSecond(150.0))));
    // A job that is not modelled tells of no step.
    let start = moved(MoveKind::Start, 0, 8);
    let script = Allocation { configuration: None, launched_at: Some(at(112.0)), ..granted(110.0, 8) };
    for script in [script.clone(), ended(400.0, script)] {
        let told = of(&start, None, Some(&script), None);
        assert_eq!((told.state, told.downtime), (MoveState::Done, Some(Seconds(2.0))), "{:?}", script.phase());
    }
}

#[test]
fn what_came_to_nothing_or_to_something_else_was_overtaken_and_tells_no_number() {
    let left = ended(103.0, stops(100.0, 100.0, trains(10.0, granted(0.0, 4))));
    let never_trained = ended(120.0, Allocation { stopping_at: Some(at(118.0)), ..granted(110.0, 8) });
    let other_size = trains(115.0, granted(110.0, 6));
    for after in [&never_trained, &other_size] {
        let told = of(&grows(), Some(&left), Some(after), Some(made(150.0, 60.0)));
        let numbers = (told.downtime, told.goodput_after, told.measured_for);
        assert_eq!((told.state, numbers), (MoveState::Overtaken, (None, None, None)));
    }
    let around = Around { before: Some(&left), after: None, lives: false };
    assert_eq!(MoveOutcome::of(&grows(), around, None).state, MoveState::Overtaken, "it was cancelled meanwhile");
}

#[test]
fn a_start_counts_from_its_grant_whatever_the_job_had_before() {
    let earlier = ended(50.0, stops(20.0, 100.0, trains(10.0, granted(0.0, 4))));
    let told = of(
        &moved(MoveKind::Start, 0, 8),
        Some(&earlier),
        Some(&trains(115.0, granted(110.0, 8))),
        Some(made(9.0, 3.0)),
    );
    assert_eq!((told.state, told.downtime, told.goodput_before), (MoveState::Done, Some(Seconds(5.0)), None));
    assert_eq!(told.goodput_after, Some(TokensPerSecond(9.0)));
}

#[test]
fn a_change_in_place_tells_nothing_of_the_generation_that_another_plan_granted_later() {
    let left = ended(303.0, stops(300.0, 100.0, trains(10.0, granted(0.0, 4))));
    let changed = Allocation { configuration: Some(batch(64)), ..left };
    let later = trains(315.0, granted(310.0, 8));
    for tier in [Tier::Batch, Tier::MicroBatch, Tier::Layout] {
        let one = Move { to_configuration: Some(batch(64)), ..moved(MoveKind::Reconfigure(tier), 4, 4) };
        for after in [None, Some(&later)] {
            let told = of(&one, Some(&changed), after, Some(made(150.0, 60.0)));
            let numbers = (told.downtime, told.goodput_after, told.measured_for);
            assert_eq!((told.state, numbers), (MoveState::Done, (None, None, None)), "{tier:?}");
        }
    }
    let not_yet = trains(10.0, granted(0.0, 4));
    let one = Move { to_configuration: Some(batch(64)), ..moved(MoveKind::Reconfigure(Tier::Batch), 4, 4) };
    assert_eq!(of(&one, Some(&not_yet), None, None).state, MoveState::Waiting);
    assert_eq!(of(&one, Some(&ended(20.0, not_yet)), None, None).state, MoveState::Overtaken);
}

#[test]
fn a_preempted_job_has_stopped_and_one_that_was_done_before_was_never_preempted() {
    let (one, runs) = (moved(MoveKind::Preempt, 4, 0), trains(10.0, granted(0.0, 4)));
    assert_eq!(of(&one, Some(&runs), None, None).state, MoveState::Waiting);
    let stopping = stops(100.0, 100.0, runs.clone());
    assert_eq!(of(&one, Some(&stopping), None, None).state, MoveState::Stopping);
    let (left, again) = (ended(103.0, stopping), trains(515.0, granted(510.0, 4)));
    for after in [None, Some(&again)] {
        let told = of(&one, Some(&left), after, Some(made(80.0, 60.0)));
        assert_eq!((told.state, told.goodput_before), (MoveState::Done, Some(TokensPerSecond(100.0))));
        assert_eq!((told.downtime, told.goodput_after, told.measured_for), (None, None, None), "it got nothing");
    }
    assert_eq!(of(&one, Some(&ended(99.0, runs)), None, None).state, MoveState::Overtaken);
}

#[test]
fn a_generation_that_made_nothing_has_no_goodput() {
    let left = ended(103.0, stops(100.0, 0.0, trains(10.0, granted(0.0, 4))));
    let told = of(&grows(), Some(&left), Some(&trains(115.0, granted(110.0, 8))), Some(made(10.0, 0.0)));
    assert_eq!((told.goodput_before, told.goodput_after, told.measured_for), (None, None, Some(Seconds(0.0))));
}

/// An allocation's whole life, each moment some seconds after the one before; it may end at any of them.
#[derive(Clone, Debug)]
struct Life {
    gpus: u32,
    modelled: bool,
    steps: [f64; 6],
    reaches: usize,
    is_stopped: bool,
}

impl Life {
    /// What is stored of it so long after the beginning of all.
    fn by(&self, granted_after: f64, now: f64) -> Option<Allocation> {
        let mut moment = granted_after;
        let mut moments = [None; 6];
        for (index, step) in self.steps.iter().enumerate() {
            moment += step;
            let happens = index < self.reaches || index >= 4;
            moments[index] = Some(moment).filter(|it| happens && *it <= now).map(at);
        }
        let [prepared_at, launched_at, training_at, _, stopping_at, ended_at] = moments;
        let training_at = training_at.filter(|_| self.modelled);
        let stopping_at = stopping_at.filter(|_| self.is_stopped);
        let (made, progress_from) = match (training_at, stopping_at.or(ended_at)) {
            (Some(began), Some(end)) => (Some(made(100.0, end.since(began).0)), Some(Tokens(0.0))),
            (began, _) => (None, began.map(|_| Tokens(0.0))),
        };
        let fresh = granted(granted_after, self.gpus);
        let configuration = fresh.configuration.filter(|_| self.modelled);
        let life = Allocation { prepared_at, launched_at, training_at, progress_from, configuration, ..fresh };
        (granted_after <= now).then_some(Allocation { stopping_at, ended_at, made, ..life })
    }

    fn ends(&self) -> f64 {
        self.steps.iter().sum()
    }
}

fn life() -> impl Strategy<Value = Life> {
    let steps = prop::array::uniform6(0.0..50.0_f64);
    (1..9_u32, any::<bool>(), steps, 0..4_usize, any::<bool>())
        .prop_map(|(gpus, modelled, steps, reaches, is_stopped)| Life { gpus, modelled, steps, reaches, is_stopped })
}

fn a_move() -> impl Strategy<Value = Move> {
    let kinds = [MoveKind::Start, MoveKind::Preempt, MoveKind::Reconfigure(Tier::Migration)];
    (prop::sample::select(kinds.to_vec()), 1..9_u32, 1..9_u32).prop_map(|(kind, from, to)| match kind {
        MoveKind::Start => moved(kind, 0, to),
        MoveKind::Preempt => moved(kind, from, 0),
        MoveKind::Reconfigure(_) => moved(kind, from, to),
    })
}

proptest! {
    /// Whatever happens to the two generations around a move, and whenever one looks.
    #[test]
    fn a_move_that_is_done_stays_done_and_its_numbers_are_numbers(
        one in a_move(),
        before in life(),
        after in life(),
        waits in 0.0..100.0_f64,
        rate in 0.0..1e9_f64,
    ) {
        let (mut done, granted_after) = (false, before.ends() + waits);
        for look in 0..60 {
            let now = 12.0 * f64::from(look);
            let (before, after) = (before.by(0.0, now), after.by(granted_after, now));
            let around = Around { before: before.as_ref(), after: after.as_ref(), lives: true };
            let told = MoveOutcome::of(&one, around, Some(made(rate, now)));
            prop_assert!(!done || told.state == MoveState::Done, "{told:?} after it was done");
            done = told.state == MoveState::Done;
            let numbers = [
                told.downtime.map(|time| time.0),
                told.goodput_before.map(|rate| rate.0),
                told.goodput_after.map(|rate| rate.0),
                told.measured_for.map(|time| time.0),
            ];
            prop_assert!(numbers.iter().flatten().all(|number| number.is_finite() && *number >= 0.0), "{told:?}");
            if !done {
                prop_assert_eq!((told.downtime, told.goodput_after, told.measured_for), (None, None, None));
            }
        }
    }
}
