//! What keeps workers apart from their agent and from each other: cgroups and users.

use std::os::unix::fs::MetadataExt;

use headway_types::Blame;

use super::*;

#[tokio::test]
async fn with_cgroups_nothing_survives_a_rank_not_even_what_hides() {
    let dir = tempfile::tempdir().unwrap();
    let Some(real) = crate::cgroup::tests::Real::make("node") else { return };
    let cgroups = CgroupRoot::At(real.0.clone());
    let agent = Agent::start_with(dir.path(), AgentConfig { cgroups, ..fixture::config(dir.path(), 1) });
    let order = agent.order(&dir, 1, "env -i setsid sleep 60 & echo hidden $!; [ ! $STAY ] || sleep 60");
    agent.launch(&order).await;
    assert_eq!(agent.ended().await, GroupOutcome::Succeeded);
    let output = agent.output(&order, 0, "hidden").await;
    let hidden: u32 = output.trim().strip_prefix("hidden ").unwrap().parse().unwrap();
    assert!(!process::tests::exists(hidden), "a process hid from its end");
    let mut order = agent.order(&dir, 2, "echo up; sleep 60");
    order.run.env.insert("STAY".into(), "1".into());
    agent.launch(&order).await;
    agent.output(&order, 0, "up").await;
    agent.stop(&order, StopMode::Kill).await;
    assert_eq!(agent.ended().await, GroupOutcome::Stopped);
    let workers = real.0.join(format!("workers-{}", order.placement.first_node()));
    assert!(std::fs::read_dir(workers).unwrap().all(|entry| !entry.unwrap().path().is_dir()));
}

#[tokio::test]
async fn workers_of_an_agent_of_root_are_their_owners() {
    let dir = tempfile::tempdir().unwrap();
    if let Err(error) = Users::new(RunAs::Owner) {
        assert!(matches!(error, crate::AgentError::RunAs { .. }), "{error}");
        return;
    }
    let permit = |mode| std::fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
    permit(0o711);
    let shared = dir.path().join("checkpoints");
    std::fs::create_dir(&shared).unwrap();
    let agent = Agent::start_with(dir.path(), AgentConfig { run_as: RunAs::Owner, ..fixture::config(dir.path(), 1) });
    let line = "id -un; id -gn; echo $HOME $USER; touch mine && echo wrote; ls ../.. || echo secret $HEADWAY_SECRET.; sleep 60";
    let mut order = agent.order(&dir, 1, line);
    order.owner = "nobody".into();

    agent.command(AgentCommand::Prepare { order: Box::new(order.clone()) }).await;
    let outcome = agent.ended().await;
    let closed = |fault: &Fault| fault.blame == Blame::Node && fault.message.contains("cannot be written");
    assert!(matches!(&outcome, GroupOutcome::NotStarted { fault } if closed(fault)), "{outcome:?}");

    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    nix::unistd::chown(&shared, Some(nobody.uid), None).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(elsewhere.path(), Some(nobody.uid.as_raw()), None).unwrap();
    permit(0o700);
    let mut unreachable = LaunchOrder { generation: Generation(2), ..order.clone() };
    unreachable.checkpoint_dir = elsewhere.path().display().to_string();
    agent.command(AgentCommand::Prepare { order: Box::new(unreachable) }).await;
    let outcome = agent.ended().await;
    let closed = |fault: &Fault| fault.blame == Blame::Node && fault.message.contains("pass through");
    assert!(matches!(&outcome, GroupOutcome::NotStarted { fault } if closed(fault)), "{outcome:?}");

    permit(0o711);
    order.generation = Generation(3);
    agent.launch(&order).await;
    let output = agent.output(&order, 0, "secret ").await;
    assert!(output.starts_with("nobody\n") && output.contains(" nobody\nwrote\n"), "{output}");
    for path in [agent.files.log(order.job, order.generation, 0), agent.files.work(order.job).join("mine")] {
        assert_eq!(std::fs::metadata(path).unwrap().uid(), nobody.uid.as_raw());
    }
    agent.stop(&order, StopMode::Kill).await;
    assert_eq!(agent.ended().await, GroupOutcome::Stopped);
}
