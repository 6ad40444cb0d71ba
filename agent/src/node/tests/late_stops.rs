//! Stops that meet the end of a job. What has ended well is a success, however long the agent cleans up after it.

use super::*;

/// Returns once the shell around the rank has written that its command ended with 0. The shell itself may still run.
async fn exit_written(agent: &Agent, order: &LaunchOrder) {
    let path = agent.files.exit_status(order.job, order.generation, 0);
    eventually(|| std::fs::read_to_string(&path).ok().filter(|text| text.trim() == "0")).await;
}

#[tokio::test]
async fn a_stop_right_after_the_end_leaves_it_a_success() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    let modes = [StopMode::Checkpoint, StopMode::Terminate, StopMode::Kill];
    for (generation, mode) in (1..=12).zip(modes.into_iter().cycle()) {
        // What it leaves behind has to be found and killed first.
        let order = agent.order(&dir, generation, "setsid sleep 60 & setsid sleep 60 & echo done");
        agent.launch(&order).await;
        exit_written(&agent, &order).await;
        agent.stop(&order, mode).await;
        assert_eq!(agent.ended().await, GroupOutcome::Succeeded, "{mode:?} in generation {generation}");
    }
}

#[tokio::test]
async fn a_stop_that_waits_for_a_launch_leaves_a_process_that_has_ended_alone() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    let order = agent.order(&dir, 1, "sleep 60");
    agent.launch(&order).await;
    agent.phase(|phase| *phase == GroupPhase::Running).await;
    let group = NodeEvent::Command {
        term: Term(1),
        serial: None,
        command: AgentCommand::Stop {
            job: order.job,
            generation: order.generation,
            mode: StopMode::Terminate,
            grace: Seconds(5.0),
        },
    };
    agent.inputs.send(Input::Event(group)).await.unwrap();
    assert_eq!(agent.ended().await, GroupOutcome::Stopped, "a process that runs is stopped, and at once");
}

#[tokio::test]
async fn a_status_that_the_job_has_written_itself_keeps_no_stop_away() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    let order = agent.order(&dir, 1, "printf '%-7s\\n' 0 >../g1/rank-0.exit; echo forged; sleep 60");
    agent.launch(&order).await;
    agent.output(&order, 0, "forged").await;
    exit_written(&agent, &order).await;
    agent.stop(&order, StopMode::Kill).await;
    assert_eq!(agent.ended().await, GroupOutcome::Stopped);
}

/// When the stop of a group comes that had ended before the agent wrote down that it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopMoment {
    BeforeTheAgentDied,
    BeforeTheNextFoundTheEnd,
}

#[tokio::test]
async fn a_stop_in_flight_undoes_no_success_that_the_agent_did_not_live_to_see() {
    use StopMoment::{BeforeTheAgentDied, BeforeTheNextFoundTheEnd};
    let ends = [([0, 0], GroupOutcome::Succeeded), ([0, 7], GroupOutcome::Stopped)];
    for moment in [BeforeTheAgentDied, BeforeTheNextFoundTheEnd] {
        for (codes, outcome) in &ends {
            let dir = tempfile::tempdir().unwrap();
            let agent = Agent::start(dir.path(), 2);
            let order = agent.order(&dir, 1, "true");
            agent.launch(&order).await;
            if moment == BeforeTheAgentDied {
                // The launch waits in the queue as well, so the stop comes before the processes do.
                agent.stop(&order, StopMode::Terminate).await;
            }
            agent.ended().await;
            let ledger = agent.files.ledger();
            let statuses = [0, 1].map(|rank| agent.files.exit_status(order.job, order.generation, rank));
            agent.die().await;
            for (status, code) in statuses.iter().zip(codes) {
                std::fs::write(status, format!("{code:<7}\n")).unwrap();
            }
            super::life::forget_the_start(&ledger);
            let agent = Agent::start(dir.path(), 2);
            if moment == BeforeTheNextFoundTheEnd {
                agent.stop(&order, StopMode::Terminate).await;
            }
            assert_eq!(agent.ended().await, *outcome, "{moment:?}, exit codes {codes:?}");
            agent.die().await;
        }
    }
}
