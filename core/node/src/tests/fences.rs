use std::collections::BTreeMap;

use headway_types::{AgentCommand, Serial, StopMode};
use proptest::prelude::*;

use super::*;
use crate::{NodeAction, Refusal};

fn counted(serial: u64, command: AgentCommand) -> NodeEvent {
    NodeEvent::Command { term: TERM, serial: Some(Serial(serial)), command }
}

fn ordered(order: &LaunchOrder) -> AgentCommand {
    AgentCommand::Prepare { order: Box::new(order.clone()) }
}

fn halt(order: &LaunchOrder) -> AgentCommand {
    let (job, generation) = (order.job, order.generation);
    AgentCommand::Stop { job, generation, mode: StopMode::Kill, grace: Seconds(0.0) }
}

fn forget(order: &LaunchOrder) -> AgentCommand {
    AgentCommand::Forget { job: order.job, generation: order.generation }
}

/// A ledger in which so many jobs came and went, and the serial of the last command.
fn after(jobs: u128) -> (Ledger, u64) {
    let (mut ledger, mut serial) = (ledger(), 0);
    for number in 1..=jobs {
        let order = order(number, 1, &["a"]);
        for command in [ordered(&order), halt(&order), forget(&order)] {
            serial += 1;
            let _ = ledger.handle(at(0), counted(serial, command));
        }
    }
    (ledger, serial)
}

#[test]
fn a_ledger_does_not_grow_with_every_job_it_ever_had() {
    let size = |jobs| serde_json::to_string(&after(jobs).0).unwrap().len();
    let (full, later) = (size(1_100), size(3_000));
    assert!(later < full + 1_000, "{full} bytes after 1,100 jobs, {later} after 3,000");
}

#[test]
fn what_was_forgotten_is_not_revived_by_a_late_command() {
    let (mut ledger, last) = after(3_000);
    let first = order(1, 1, &["a"]);
    for (serial, command) in [(1, ordered(&first)), (1, forget(&first)), (2, halt(&first))] {
        let before = ledger.clone();
        let outcome = ledger.handle(at(0), counted(serial, command));
        assert!(matches!(outcome.refusal, Some(Refusal::Late { .. })), "{:?}", outcome.refusal);
        assert!(outcome.actions.is_empty() && outcome.reports.is_empty() && !outcome.persist);
        assert_eq!(ledger, before);
    }
    // A job that comes back here comes under a new generation, by a new command.
    let outcome = ledger.handle(at(0), counted(last + 1, ordered(&order(1, 2, &["a"]))));
    assert!(matches!(&outcome.actions[..], [NodeAction::Prepare { order }] if order.generation == Generation(2)));
}

#[test]
fn fences_of_commands_that_are_not_counted_stand_until_the_next_term() {
    let mut ledger = ledger();
    for number in 1..=1_100 {
        let _ = ledger.handle(at(0), stop(&order(number, 1, &["a"]), StopMode::Kill));
    }
    let late = ledger.handle(at(0), prepare(&order(1, 1, &["a"])));
    assert!(matches!(late.refusal, Some(Refusal::Stale { .. })), "{:?}", late.refusal);
    let next = Term(TERM.0 + 1);
    let _ = ledger.handle(at(0), NodeEvent::SessionOpened { term: next });
    let late = ledger.handle(at(0), prepare(&order(1, 1, &["a"])));
    assert!(matches!(late.refusal, Some(Refusal::OldTerm { .. })), "{:?}", late.refusal);
    let command = ordered(&order(1, 2, &["a"]));
    let taken = ledger.handle(at(0), NodeEvent::Command { term: next, serial: Some(Serial(1)), command });
    assert_eq!(taken.refusal, None);
}

#[test]
fn changes_lead_from_each_ledger_to_the_next() {
    let order = order(1, 1, &["a", "b"]);
    let mut ledger = ledger();
    let mut stored = ledger.clone();
    let events = [
        prepare(&order),
        prepared(&order),
        launch(&order),
        spawned(&order),
        stop(&order, StopMode::Kill),
        command(forget(&order)),
    ];
    for event in events {
        let _ = ledger.handle(at(0), event);
        let text = serde_json::to_string(&ledger.change_since(&stored)).unwrap();
        stored.apply(serde_json::from_str(&text).unwrap());
        assert_eq!(stored, ledger);
    }
}

/// The engine as far as fences go: which generation each job has, and whether it lives. It orders no generation again
/// once it has told the node to stop it.
#[derive(Default)]
struct Orders {
    jobs: BTreeMap<u128, (u64, bool)>,
    sent: Vec<AgentCommand>,
}

impl Orders {
    /// What the engine may say next of a job, as a state of its own leads to it.
    fn next(&mut self, number: u128, repeat: bool) {
        let (generation, lives) = self.jobs.entry(number).or_insert((0, false));
        let commands = match (*lives, repeat) {
            (true, true) => vec![ordered(&order(number, *generation, &["a"]))],
            (true, false) => {
                *lives = false;
                vec![halt(&order(number, *generation, &["a"])), forget(&order(number, *generation, &["a"]))]
            }
            (false, _) => {
                (*generation, *lives) = (*generation + 1, true);
                vec![ordered(&order(number, *generation, &["a"]))]
            }
        };
        self.sent.extend(commands);
    }
}

proptest! {
    /// Fences are forgotten at once, and any command that was ever sent may arrive at any time, also again: no generation
    /// is prepared twice, nor one after a newer one, nor one that the node was told to stop or to forget.
    #[test]
    fn no_late_command_revives_a_generation_however_soon_its_fence_is_forgotten(
        steps in prop::collection::vec((1..6u128, any::<bool>(), prop::collection::vec(any::<prop::sample::Index>(), 0..4)), 1..80),
        kept in 0..3usize,
    ) {
        let (mut ledger, mut orders) = (ledger(), Orders::default());
        let (mut prepared, mut over) = (BTreeMap::new(), BTreeMap::new());
        for (number, repeat, arrivals) in steps {
            orders.next(number, repeat);
            for index in arrivals.into_iter().map(|one| one.index(orders.sent.len())) {
                let command = orders.sent[index].clone();
                let (job, generation) = command.subject();
                let outcome = ledger.handle(at(0), counted(index as u64 + 1, command.clone()));
                ledger.forget_fences(kept);
                for action in outcome.actions {
                    if let NodeAction::Prepare { order } = action {
                        let newest = prepared.insert(order.job, order.generation);
                        prop_assert!(newest < Some(order.generation), "{newest:?}, then {}", order.generation);
                        let ended = over.get(&order.job).copied().unwrap_or_default();
                        prop_assert!(order.generation > ended, "{} was over", order.generation);
                    }
                }
                if matches!(command, AgentCommand::Stop { .. }) && outcome.refusal.is_none() {
                    let ended = over.entry(job).or_default();
                    *ended = generation.max(*ended);
                }
            }
        }
    }
}
