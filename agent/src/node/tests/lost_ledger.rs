//! A ledger that was lost. What had succeeded is known by what lies beside its output; of the rest there is no trace.

use headway_types::command::GroupStatus;
use headway_types::spec::{Notice, NoticeSignal, NoticeTo};

use super::*;

/// Ends an agent, removes its ledger, and returns the next agent with the groups that it registers.
async fn restart_without_ledger(agent: Agent, dir: &TempDir) -> (Agent, Vec<GroupStatus>) {
    let ledgers = [agent.files.ledger(), agent.files.former_ledger()];
    agent.die().await;
    for ledger in ledgers {
        let _was_never_written = std::fs::remove_file(ledger);
    }
    let agent = Agent::start(dir.path(), 2);
    let (reply, answer) = oneshot::channel();
    agent.inputs.send(Input::Register(reply)).await.unwrap();
    let (NodeReport::Registered { groups, .. }, _) = answer.await.unwrap() else { panic!("not a registration") };
    (agent, groups)
}

#[tokio::test]
async fn a_success_is_known_until_its_end_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(dir.path(), 2);
    let order = agent.order(&dir, 1, "true");
    agent.launch(&order).await;
    assert_eq!(agent.ended().await, GroupOutcome::Succeeded);
    // Twice: what was recovered is in the ledger, and beside the output still.
    for _ in 0..2 {
        let (next, groups) = restart_without_ledger(agent, &dir).await;
        let [status] = groups.try_into().unwrap();
        assert_eq!((status.job, status.generation), (order.job, order.generation));
        assert_eq!(status.phase, GroupPhase::Ended { outcome: GroupOutcome::Succeeded });
        agent = next;
    }
    let note = agent.files.order(order.job, order.generation);
    agent.command(AgentCommand::Forget { job: order.job, generation: order.generation }).await;
    eventually(|| (!note.exists()).then_some(())).await;
    let (_agent, groups) = restart_without_ledger(agent, &dir).await;
    assert_eq!(groups, []);
}

#[tokio::test]
async fn what_saved_and_left_at_the_notice_of_a_stop_is_no_success() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 2);
    let mut order = agent.order(&dir, 1, "trap 'exit 0' USR1; echo up; while :; do sleep 0.05; done");
    order.notice = Some(Notice { signal: NoticeSignal::Usr1, before: Seconds(1.0), to: NoticeTo::Command });
    agent.launch(&order).await;
    for rank in [0, 1] {
        agent.output(&order, rank, "up").await;
    }
    agent.phase(|phase| *phase == GroupPhase::Running).await;
    agent.stop(&order, StopMode::Checkpoint).await;
    assert_eq!(agent.ended().await, GroupOutcome::Stopped);
    let (_agent, groups) = restart_without_ledger(agent, &dir).await;
    assert_eq!(groups, []);
}

#[tokio::test]
async fn what_a_user_puts_beside_the_output_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 2);
    let order = agent.order(&dir, 1, "true");
    agent.launch(&order).await;
    assert_eq!(agent.ended().await, GroupOutcome::Succeeded);
    let work = agent.files.order(order.job, order.generation).ancestors().nth(2).unwrap().join("work");
    std::fs::create_dir_all(&work).unwrap();
    nix::unistd::mkfifo(&work.join("order.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (_agent, groups) = restart_without_ledger(agent, &dir).await;
    assert_eq!(groups.len(), 1, "the success is known, and nothing waits for the pipe");
}

#[tokio::test]
async fn what_was_stopped_or_failed_is_no_success() {
    let dir = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(dir.path(), 2);
    let failing = agent.order(&dir, 1, "exit $((RANK * 7))");
    agent.launch(&failing).await;
    assert!(matches!(agent.ended().await, GroupOutcome::Failed { .. }));
    let (next, groups) = restart_without_ledger(agent, &dir).await;
    assert_eq!(groups, []);
    agent = next;

    let stopped = agent.order(&dir, 2, "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done");
    agent.launch(&stopped).await;
    for rank in [0, 1] {
        agent.output(&stopped, rank, "up").await;
    }
    agent.phase(|phase| *phase == GroupPhase::Running).await;
    agent.stop(&stopped, StopMode::Terminate).await;
    assert_eq!(agent.ended().await, GroupOutcome::Stopped);
    for rank in [0, 1] {
        let status = agent.files.exit_status(stopped.job, stopped.generation, rank);
        assert_eq!(std::fs::read_to_string(status).unwrap().trim(), "0", "it saved and left");
    }
    let (_agent, groups) = restart_without_ledger(agent, &dir).await;
    assert_eq!(groups, []);
}
