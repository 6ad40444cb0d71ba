//! Launch, failure, stop, and a restart of the agent.

use headway_types::placement::NodeSlice;
use headway_types::{Blame, CheckpointRef, GpuUuid, NodeId, Placement, Sequences};

use super::*;

#[tokio::test]
async fn a_group_runs_to_its_end_with_a_log_per_rank() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 2);
    let order = agent.order(&dir, 1, "echo rank $RANK of $WORLD_SIZE port {master_port}");
    agent.launch(&order).await;
    assert_eq!(agent.ended().await, GroupOutcome::Succeeded);
    assert!(agent.output(&order, 1, "port").await.starts_with("rank 1 of 2 port"));
    agent.output(&order, 0, "rank 0 of 2").await;
}

#[tokio::test]
async fn a_failing_rank_takes_the_others_down() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 2);
    let order = agent.order(&dir, 1, "if [ $RANK = 1 ]; then exit 7; fi; sleep 60");
    agent.launch(&order).await;
    let failed = GroupOutcome::Failed { exit_code: Some(7), fault: Fault::of_job("rank 1 exited with code 7") };
    assert_eq!(agent.ended().await, failed);
}

#[tokio::test]
async fn a_stop_reaches_the_command_and_its_children() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    let line = "trap 'echo saving; exit 0' TERM; setsid sleep 60 & echo child $!; wait";
    let order = agent.order(&dir, 1, line);
    agent.launch(&order).await;
    let output = agent.output(&order, 0, "child").await;
    let child: u32 = output.trim().strip_prefix("child ").unwrap().parse().unwrap();
    agent.stop(&order, StopMode::Terminate).await;
    assert_eq!(agent.ended().await, GroupOutcome::Stopped);
    agent.output(&order, 0, "saving").await;
    assert!(!process::tests::exists(child), "a child outlived its group");
}

#[tokio::test]
async fn a_restarted_agent_adopts_its_workers_and_learns_their_exit() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    let order = agent.order(&dir, 1, "echo pid $$; while [ ! -e ../../../go ]; do sleep 0.05; done; exit 5");
    agent.launch(&order).await;
    let before = agent.output(&order, 0, "pid").await;
    agent.phase(|phase| *phase == GroupPhase::Running).await;
    agent.die().await;

    let agent = Agent::start(dir.path(), 1);
    let (reply, answer) = oneshot::channel();
    agent.inputs.send(Input::Register(reply)).await.unwrap();
    let (NodeReport::Registered { groups, .. }, Term(1)) = answer.await.unwrap() else { panic!("not a registration") };
    assert_eq!(groups[0].phase, GroupPhase::Running);
    assert_eq!(agent.output(&order, 0, "pid").await, before);
    std::fs::write(dir.path().join("data/go"), "").unwrap();
    let failed = GroupOutcome::Failed { exit_code: Some(5), fault: Fault::of_job("rank 0 exited with code 5") };
    assert_eq!(agent.ended().await, failed);
}

/// As if the agent had died right after it had started a group: what it wrote down since is gone, but for a stop that came before.
pub(super) fn forget_the_start(ledger: &Path) {
    let text = std::fs::read_to_string(ledger).unwrap();
    let launching = text.rfind("\"launching\"").unwrap();
    let line = launching + text[launching..].find('\n').unwrap();
    std::fs::write(ledger, &text[..=line]).unwrap();
}

#[tokio::test]
async fn a_group_that_ended_before_its_start_was_written_down_is_not_run_again() {
    let failed = GroupOutcome::Failed { exit_code: Some(7), fault: Fault::of_job("rank 1 exited with code 7") };
    for (codes, outcome) in [([0, 0], GroupOutcome::Succeeded), ([0, 7], failed)] {
        let dir = tempfile::tempdir().unwrap();
        let agent = Agent::start(dir.path(), 2);
        let order = agent.order(&dir, 1, "true");
        agent.launch(&order).await;
        assert_eq!(agent.ended().await, GroupOutcome::Succeeded);
        let ledger = agent.files.ledger();
        let statuses = [0, 1].map(|rank| agent.files.exit_status(order.job, order.generation, rank));
        agent.die().await;
        assert!(statuses.iter().all(|status| std::fs::read_to_string(status).unwrap().trim() == "0"));
        for (status, code) in statuses.iter().zip(codes) {
            std::fs::write(status, format!("{code:<7}\n")).unwrap();
        }
        forget_the_start(&ledger);
        let agent = Agent::start(dir.path(), 2);
        assert_eq!(agent.ended().await, outcome);
        agent.die().await;
    }
}

#[tokio::test]
async fn a_group_that_had_not_ended_when_its_start_was_forgotten_did_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    let order = agent.order(&dir, 1, "echo pid $$; sleep 60");
    agent.launch(&order).await;
    let output = agent.output(&order, 0, "pid").await;
    let child: u32 = output.trim().strip_prefix("pid ").unwrap().parse().unwrap();
    agent.phase(|phase| *phase == GroupPhase::Running).await;
    let ledger = agent.files.ledger();
    agent.die().await;
    forget_the_start(&ledger);
    let agent = Agent::start(dir.path(), 1);
    let outcome = agent.ended().await;
    assert!(
        matches!(&outcome, GroupOutcome::NotStarted { fault } if fault.blame == Blame::Infrastructure),
        "{outcome:?}"
    );
    assert!(!process::tests::exists(child), "it would run beside the next");
}

#[tokio::test]
async fn an_agent_with_an_empty_ledger_starts_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    agent.launch(&agent.order(&dir, 1, "true")).await;
    assert_eq!(agent.ended().await, GroupOutcome::Succeeded);
    let ledger = agent.files.ledger();
    agent.die().await;
    std::fs::write(ledger, "").unwrap();
    let agent = Agent::start(dir.path(), 1);
    let conditions = agent.inventory.now().conditions.clone();
    assert!(conditions.iter().any(|one| one.kind == headway_types::ConditionKind::LedgerDamaged), "{conditions:?}");
    agent.launch(&agent.order(&dir, 2, "true")).await;
    assert_eq!(agent.ended().await, GroupOutcome::Succeeded);
}

#[tokio::test]
async fn an_adopted_group_can_be_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    let order = agent.order(&dir, 1, "echo up; sleep 60");
    agent.launch(&order).await;
    agent.phase(|phase| *phase == GroupPhase::Running).await;
    agent.die().await;
    let agent = Agent::start(dir.path(), 1);
    agent.stop(&order, StopMode::Kill).await;
    assert_eq!(agent.ended().await, GroupOutcome::Stopped);
}

#[tokio::test]
async fn a_start_that_cannot_be_says_whose_fault_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    let here = dir.path().display().to_string();
    type Spoil = fn(&mut LaunchOrder, &str);
    let cases: [(Spoil, Blame, &str); 7] = [
        (|order, _| order.run.workdir = Some("/no/such/place".into()), Blame::Job, "directory /no/such/place"),
        (|order, here| order.run.workdir = Some(format!("{here}/typo")), Blame::Job, "there is no working directory"),
        (|order, _| order.run.command = Command::Argv(vec!["{nonsense}".into()]), Blame::Job, "nonsense"),
        (|order, _| order.checkpoint_dir = "/proc/none".into(), Blame::Node, "/proc/none/g4 cannot be written"),
        (|order, here| order.resume = Some(checkpoint(here)), Blame::Node, "/none is missing"),
        (|order, _| order.placement = place(order, GpuUuid("gone".into())), Blame::Node, "has no GPU gone"),
        (|order, _| order.placement = elsewhere(order), Blame::Infrastructure, "does not name"),
    ];
    for (number, (spoil, blame, message)) in cases.into_iter().enumerate() {
        let mut order = agent.order(&dir, number as u64 + 1, "true");
        spoil(&mut order, &here);
        agent.command(AgentCommand::Prepare { order: Box::new(order) }).await;
        let outcome = agent.ended().await;
        let GroupOutcome::NotStarted { fault } = outcome else { panic!("{outcome:?}") };
        assert_eq!(fault.blame, blame, "{}", fault.message);
        assert!(fault.message.contains(message), "{}", fault.message);
    }
}

#[tokio::test]
async fn a_node_that_leaves_starts_nothing_new_and_blames_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    agent.inventory.change(|offer| offer.leaving_reason = Some("its agent got SIGTERM".into()));
    agent.command(AgentCommand::Prepare { order: Box::new(agent.order(&dir, 1, "true")) }).await;
    let GroupOutcome::NotStarted { fault } = agent.ended().await else { panic!("it started") };
    assert_eq!((fault.blame, fault.mistake), (Blame::Infrastructure, false));
    assert!(fault.message.contains("leaves: its agent got SIGTERM"), "{}", fault.message);
}

fn checkpoint(here: &str) -> CheckpointRef {
    let path = format!("{here}/none");
    CheckpointRef { generation: Generation(1), path, step: 1, samples_seen: Sequences(1), manifest_sha256: "".into() }
}

fn place(order: &LaunchOrder, gpu: GpuUuid) -> Placement {
    Placement::try_new(vec![NodeSlice { node: order.placement.first_node(), gpus: vec![gpu] }]).unwrap()
}

fn elsewhere(order: &LaunchOrder) -> Placement {
    let gpus = order.placement.slices()[0].gpus.clone();
    Placement::try_new(vec![NodeSlice { node: NodeId(uuid::Uuid::from_u128(1)), gpus }]).unwrap()
}

#[tokio::test]
async fn paths_that_a_specification_names_and_nobody_has_are_the_jobs_own_mistake() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    let not_started = async |order: LaunchOrder| {
        agent.command(AgentCommand::Prepare { order: Box::new(order) }).await;
        let GroupOutcome::NotStarted { fault } = agent.ended().await else { panic!("it was started") };
        fault
    };
    let mut mistyped = agent.order(&dir, 1, "true");
    mistyped.run.workdir = Some("/hom/ada/proj".into());
    let fault = not_started(mistyped).await;
    assert!(fault.mistake && fault.message.contains("/hom/ada/proj"), "{fault:?}");
    assert!(fault.message.contains("run.workdir"), "what to do: {fault:?}");
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let mut mistyped = agent.order(&dir, 2, "true");
    mistyped.checkpoint_dir = format!("{}/below", file.display());
    let fault = not_started(mistyped).await;
    assert!(fault.mistake && fault.message.contains("file/below"), "{fault:?}");
    assert!(fault.message.contains("training.checkpoint.dir"), "what to do: {fault:?}");
    agent.die().await;
}

#[tokio::test]
async fn a_command_that_is_not_there_is_the_jobs_own_mistake() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    agent.launch(&agent.order(&dir, 1, "exec ./trian.sh")).await;
    let GroupOutcome::Failed { exit_code: Some(127), fault } = agent.ended().await else { panic!("it ran") };
    assert!(fault.mistake && fault.message.contains("not found"), "{fault:?}");
    agent.die().await;
}
