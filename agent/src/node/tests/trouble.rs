//! A node in trouble: a full disk, a broken GPU.

use headway_types::{Blame, Condition, ConditionKind, GpuHealth};

use super::*;

#[tokio::test]
async fn a_full_disk_holds_up_the_ledger_and_not_the_workers() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    agent.files.reserve().unwrap();
    let order = agent.order(&dir, 1, "while [ ! -e ../../../go ]; do sleep 0.05; done");
    agent.launch(&order).await;
    agent.phase(|phase| *phase == GroupPhase::Running).await;
    // Everything written there fails for want of room, added to the ledger or in its place.
    let full = ["ledger.json", "ledger.tmp"].map(|name| dir.path().join("data").join(name));
    std::fs::remove_file(&full[0]).unwrap();
    full.iter().for_each(|path| std::os::unix::fs::symlink("/dev/full", path).unwrap());
    std::fs::write(dir.path().join("data/go"), "").unwrap();
    eventually(|| (!dir.path().join("data/reserve").exists()).then_some(())).await;
    let silent = tokio::time::timeout(Duration::from_millis(100), agent.outbox.next()).await;
    assert!(silent.is_err(), "reported what is not stored: {silent:?}");
    std::fs::remove_file(&full[1]).unwrap();
    assert_eq!(agent.ended().await, GroupOutcome::Succeeded);
}

#[tokio::test]
async fn nothing_new_starts_under_disk_pressure() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    let full = Condition { kind: ConditionKind::DiskPressure, message: "/d has 1 MiB of 9 MiB left".into() };
    agent.inventory.set_conditions(&[ConditionKind::DiskPressure], vec![full.clone()]);
    let NodeReport::Inventory { inventory } = agent.report().await else { panic!("a change was not reported") };
    assert_eq!(inventory.conditions, [full]);
    let order = agent.order(&dir, 1, "true");
    agent.command(AgentCommand::Prepare { order: Box::new(order) }).await;
    let outcome = agent.ended().await;
    let refused =
        |fault: &Fault| fault.full_disk && fault.blame == Blame::Node && fault.message.contains("1 MiB of 9 MiB");
    assert!(matches!(&outcome, GroupOutcome::NotStarted { fault } if refused(fault)), "{outcome:?}");
}

#[tokio::test]
async fn what_changes_between_registration_and_welcome_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 2);
    agent.outbox.close();
    let full = Condition { kind: ConditionKind::DiskPressure, message: "/d has 1 MiB of 9 MiB left".into() };
    let ailing = || agent.inventory.set_conditions(&[ConditionKind::DiskPressure], vec![full.clone()]);
    let well_again = || agent.inventory.set_conditions(&[ConditionKind::DiskPressure], Vec::new());
    for change in [&ailing as &dyn Fn(), &well_again] {
        let (registered, _term) = ask(&agent.inputs, Input::Register).await.unwrap();
        let NodeReport::Registered { inventory: registered, .. } = registered else { panic!("{registered:?}") };
        change();
        // The loop takes changes and questions in any order: after so many questions it has taken the change too, and lost it.
        for _ in 0..64 {
            let (job, generation) = (JobId(uuid::Uuid::from_u128(5)), Generation(1));
            ask(&agent.inputs, |reply| Input::IsOver { job, generation, reply }).await.unwrap();
        }
        assert_eq!(ask(&agent.inputs, |reply| Input::Opened(Term(1), reply)).await, Some(true));
        let NodeReport::Inventory { inventory } = agent.report().await else { panic!("a change was lost") };
        assert_eq!(*inventory, *agent.inventory.now());
        assert_ne!(inventory, registered);
        agent.outbox.close();
    }
    ask(&agent.inputs, Input::Register).await.unwrap();
    assert_eq!(ask(&agent.inputs, |reply| Input::Opened(Term(1), reply)).await, Some(true));
    let again = tokio::time::timeout(Duration::from_millis(100), agent.outbox.next()).await;
    assert!(again.is_err(), "what was registered is not repeated: {again:?}");
}

/// A small file system of its own, where one can be mounted; gone in the end.
struct Disk(std::path::PathBuf);

impl Disk {
    fn mount(at: &Path, mib: u32) -> Option<Self> {
        std::fs::create_dir(at).unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "none"])
            .arg(at)
            .stderr(std::process::Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then(|| Self(at.into()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _gone_with_the_machine = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test]
async fn what_fails_beside_a_full_disk_is_the_nodes_fault_unless_the_job_has_filled_it() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mount(&dir.path().join("data"), 320) else { return };
    let agent = Agent::start(dir.path(), 1);
    let failed = async |generation: u64, line: &str| {
        agent.launch(&agent.order(&dir, generation, line)).await;
        match agent.ended().await {
            GroupOutcome::Failed { exit_code: Some(3), fault } => fault,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(failed(1, "exit 3").await.blame, Blame::Job);
    let others = disk.0.join("somebody-elses");
    std::fs::write(&others, vec![1_u8; 100 << 20]).unwrap();
    let fault = failed(2, "exit 3").await;
    assert!(fault.blame == Blame::Node && fault.message.contains("MiB of 320 MiB left"), "{fault:?}");
    let mut order = agent.order(&dir, 3, "true");
    order.run.hooks.prolog = Some("exit 4".into());
    agent.command(AgentCommand::Prepare { order: Box::new(order) }).await;
    let GroupOutcome::NotStarted { fault } = agent.ended().await else { panic!("it has started") };
    assert!(fault.blame == Blame::Node && fault.message.contains("MiB of 320 MiB left"), "{fault:?}");
    std::fs::remove_file(others).unwrap();
    let fault = failed(4, "head -c 100m /dev/zero >filler; exit 3").await;
    assert!(fault.blame == Blame::Job && fault.message.contains("its own files take"), "{fault:?}");
}

#[tokio::test]
async fn what_fails_beside_a_full_disk_that_its_order_names_names_that_disk() {
    let dir = tempfile::tempdir().unwrap();
    let Some(saves) = Disk::mount(&dir.path().join("saves"), 8) else { return };
    let Some(home) = Disk::mount(&dir.path().join("home"), 8) else { return };
    let agent = Agent::start(dir.path(), 1);
    let failed = async |generation: u64, line: String| {
        let mut order = agent.order(&dir, generation, &line);
        order.checkpoint_dir = saves.0.join("job").display().to_string();
        order.run.workdir = Some(home.0.display().to_string());
        agent.launch(&order).await;
        match agent.ended().await {
            GroupOutcome::Failed { exit_code: Some(3), fault } => fault,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(failed(1, "exit 3".into()).await.blame, Blame::Job);
    let filler = saves.0.join("filler");
    let fault = failed(2, format!("cat /dev/zero >{}; exit 3", filler.display())).await;
    assert!(fault.blame == Blame::Infrastructure && fault.full_disk, "{fault:?}");
    let named = format!("checkpoint directory {}/job has 0 MiB of 8 MiB left", saves.0.display());
    assert!(fault.message.contains(&named), "{fault:?}");
    std::fs::remove_file(filler).unwrap();
    let fault = failed(3, "cat /dev/zero >filler; exit 3".into()).await;
    assert!(fault.blame == Blame::Job && !fault.full_disk, "the job chose where it works: {fault:?}");
    let named = format!("working directory {} has 0 MiB of 8 MiB left", home.0.display());
    assert!(fault.message.contains(&named), "{fault:?}");
}

#[tokio::test]
async fn a_gpu_that_breaks_takes_the_blame_until_it_is_well_again() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 2);
    let order = agent.order(&dir, 1, "echo up; while [ ! -e ../../../go ]; do sleep 0.05; done; exit 1");
    agent.launch(&order).await;
    agent.phase(|phase| *phase == GroupPhase::Running).await;
    let faults = agent.files.faults();
    let broken = |inventory: &NodeInventory| inventory.gpus[1].health != GpuHealth::Healthy;
    std::fs::write(&faults, r#"{"gpus": {"1": "XID 79: the GPU has fallen off the bus"}}"#).unwrap();
    agent.offer(broken).await;
    std::fs::write(dir.path().join("data/go"), "").unwrap();
    let outcome = agent.ended().await;
    let blamed = |fault: &Fault| fault.blame == Blame::Node && fault.message.contains("XID 79");
    assert!(matches!(&outcome, GroupOutcome::Failed { exit_code: Some(1), fault } if blamed(fault)), "{outcome:?}");

    let again = agent.order(&dir, 2, "true");
    agent.command(AgentCommand::Prepare { order: Box::new(again) }).await;
    let outcome = agent.ended().await;
    assert!(matches!(&outcome, GroupOutcome::NotStarted { fault } if blamed(fault)), "{outcome:?}");
    std::fs::remove_file(faults).unwrap();
    agent.offer(|inventory| !broken(inventory)).await;
    agent.launch(&agent.order(&dir, 3, "true")).await;
    assert_eq!(agent.ended().await, GroupOutcome::Succeeded);
}
