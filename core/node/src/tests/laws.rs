use std::collections::BTreeSet;

use headway_types::{AgentCommand, BootId, Fault, Generation, JobId, StopMode};
use proptest::prelude::*;

use super::*;
use crate::{Exit, NodeAction, NodeEvent};

/// The shell as the ledger sees it: processes that exist, checks and launches that are under way.
#[derive(Default)]
struct World {
    processes: BTreeSet<(JobId, Generation, u32)>,
    checks: Vec<LaunchOrder>,
    launches: Vec<LaunchOrder>,
}

impl World {
    fn act(&mut self, actions: Vec<NodeAction>) {
        for action in actions {
            match action {
                NodeAction::Prepare { order } => {
                    assert!(self.processes.iter().all(|p| p.0 != order.job), "prepared beside an older generation");
                    self.checks.push(*order);
                }
                NodeAction::Spawn { order, .. } => {
                    assert!(self.processes.iter().all(|p| p.0 != order.job), "two generations of one job");
                    assert!(self.launches.iter().all(|l| l.job != order.job), "two launches of one job");
                    self.launches.push(*order);
                }
                NodeAction::Sweep { job, generation, .. } => {
                    self.launches.retain(|l| (l.job, l.generation) != (job, generation));
                    self.processes.retain(|p| (p.0, p.1) != (job, generation));
                }
                _ => {}
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Prepare(u128, u64),
    Launch(u128, u64),
    Stop(u128, u64, StopMode),
    Forget(u128, u64),
    FinishCheck(bool),
    FinishLaunch(bool),
    Exit(usize, i32),
    Tick(i64),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let (job, generation) = (1..3u128, 1..5u64);
    let mode = prop_oneof![Just(StopMode::Checkpoint), Just(StopMode::Terminate), Just(StopMode::Kill)];
    prop_oneof![
        3 => (job.clone(), generation.clone()).prop_map(|(j, g)| Step::Prepare(j, g)),
        4 => (job.clone(), generation.clone()).prop_map(|(j, g)| Step::Launch(j, g)),
        1 => (job.clone(), generation.clone(), mode).prop_map(|(j, g, m)| Step::Stop(j, g, m)),
        1 => (job, generation).prop_map(|(j, g)| Step::Forget(j, g)),
        5 => any::<bool>().prop_map(Step::FinishCheck),
        5 => any::<bool>().prop_map(Step::FinishLaunch),
        3 => (0..4usize, 0..2i32).prop_map(|(i, c)| Step::Exit(i, c)),
        1 => (0..60i64).prop_map(Step::Tick),
        1 => Just(Step::Restart),
    ]
}

/// The event a step stands for, given what exists.
fn event(step: &Step, world: &mut World) -> Option<NodeEvent> {
    let names = |job: u128| if job == 1 { ["a", "b"] } else { ["c", "d"] };
    Some(match step {
        Step::Prepare(j, g) => prepare(&order(*j, *g, &names(*j))),
        Step::Launch(j, g) => launch(&order(*j, *g, &names(*j))),
        Step::Stop(j, g, mode) => stop(&order(*j, *g, &names(*j)), *mode),
        Step::Forget(j, g) => command(AgentCommand::Forget { job: job(*j), generation: Generation(*g) }),
        Step::FinishCheck(good) => {
            let order = world.checks.pop()?;
            let result = if *good { Ok(Some(PORT)) } else { Err(Fault::of_node("no")) };
            NodeEvent::PrepareDone { job: order.job, generation: order.generation, result }
        }
        Step::FinishLaunch(good) => {
            let order = world.launches.pop()?;
            let (job, generation) = (order.job, order.generation);
            if !good {
                return Some(NodeEvent::SpawnFailed { job, generation, fault: Fault::of_node("no") });
            }
            world.processes.extend((0..order.placement.gpus().0).map(|rank| (job, generation, rank)));
            spawned(&order)
        }
        Step::Exit(index, code) => {
            let (job, generation, rank) = *world.processes.iter().nth(*index)?;
            world.processes.remove(&(job, generation, rank));
            NodeEvent::Exited { job, generation, rank, exit: Exit::Code(*code), fault: None }
        }
        Step::Tick(_) => NodeEvent::Tick,
        Step::Restart => NodeEvent::Restarted { boot: BootId("boot-1".into()) },
    })
}

proptest! {
    #[test]
    fn two_generations_never_run_and_repeats_change_nothing(steps in prop::collection::vec(step(), 1..120)) {
        let (mut ledger, mut world, mut now) = (ledger(), World::default(), 0);
        for step in &steps {
            if let Step::Tick(seconds) = step { now += seconds; }
            if matches!(step, Step::Restart) { world.checks.clear(); }
            let Some(event) = event(step, &mut world) else { continue };
            let repeatable = matches!(event, NodeEvent::Command { .. });
            let outcome = ledger.handle(at(now), event.clone());
            world.act(outcome.actions);
            if matches!(step, Step::Restart) {
                // The sweep has killed what was being launched.
                for group in ledger.clone().groups().filter(|group| group.phase.name() == "launching") {
                    let (job, generation) = (group.job(), group.generation());
                    let failed = NodeEvent::SpawnFailed { job, generation, fault: Fault::of_infrastructure("swept") };
                    let outcome = ledger.handle(at(now), failed);
                    world.act(outcome.actions);
                }
            }
            for (job, generation, _) in &world.processes {
                let group = ledger.group(*job, *generation).expect("a live process is in the ledger");
                prop_assert!(group.phase.may_have_processes());
            }
            if repeatable {
                let before = ledger.clone();
                let again = ledger.handle(at(now), event);
                prop_assert!(again.actions.is_empty() && !again.persist);
                prop_assert_eq!(&ledger, &before);
            }
        }
    }
}
