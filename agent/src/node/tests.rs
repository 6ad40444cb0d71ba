//! The node's loop with real processes: launch, failure, stop, restart of the agent, the worker socket.
#![allow(clippy::unwrap_used)]

mod warm;

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use headway_types::placement::NodeSlice;
use headway_types::spec::Command;
use headway_types::{
    AgentCommand, Blame, CheckpointRef, Condition, ConditionKind, GpuHealth, GpuUuid, GroupOutcome, GroupPhase,
    LaunchOrder, NodeId, Placement, Seconds, Sequences, StopMode,
};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use super::*;
use crate::cgroup::CgroupRoot;
use crate::config::AgentConfig;
use crate::connections::Connections;
use crate::files::{Files, Lock};
use crate::gpu;
use crate::inventory::Inventory;
use crate::logs::OutputLimits;
use crate::user::{RunAs, Users};
use crate::worker_socket;

pub(crate) mod fixture {
    use std::collections::BTreeMap;

    use headway_types::command::NodeAddress;
    use headway_types::placement::NodeSlice;
    use headway_types::spec::{Command, LrScaling, Run, RunPer};
    use headway_types::{BootId, Bytes, EmulatedDevice, GpuCount, GpuType, NodeId, NodeInventory, Placement};

    use super::*;
    use crate::cgroup::CgroupRoot;
    use crate::config::{AgentConfig, DeclaredGpus, GpuOffer};
    use crate::warm::WarmLimits;

    pub(crate) fn config(data_dir: &Path, gpus: u32) -> AgentConfig {
        AgentConfig {
            hardware: BTreeMap::new(),
            shm: None,
            local_disk: None,
            server_url: "http://127.0.0.1:1".into(),
            token: "t".into(),
            data_dir: data_dir.into(),
            name: "n".into(),
            address: "127.0.0.1".into(),
            gpus: GpuOffer::Declared(DeclaredGpus {
                gpu_type: GpuType("emulated".into()),
                count: GpuCount(gpus),
                memory: Bytes(1 << 30),
                emulated: Some(EmulatedDevice { flop_per_second: 1_000_000_000, link_bytes_per_second: 1_000_000_000 }),
            }),
            fabric: "f".into(),
            python: "python3".into(),
            headway_binary: "/usr/bin/headway".into(),
            run_as: RunAs::Agent,
            cgroups: CgroupRoot::Off,
            report_every: Duration::from_millis(200),
            output: OutputLimits { per_rank: Bytes(1 << 20), age: Duration::from_secs(3600), total: Bytes(1 << 30) },
            warm: WarmLimits { interpreters: 0, idle: Duration::from_secs(3600) },
            tls_ca: None,
        }
    }

    pub(crate) fn inventory(gpus: u32) -> NodeInventory {
        let node = NodeId(uuid::Uuid::from_u128(77));
        let config = config(Path::new("/d"), gpus);
        let (mut source, _waker) = gpu::open(&config.gpus, node).unwrap();
        config.inventory(node, BootId("b".into()), source.look()).unwrap()
    }

    /// One process per GPU of the node, running a shell line.
    pub(crate) fn order(inventory: &NodeInventory, generation: u64, line: &str) -> LaunchOrder {
        let gpus = inventory.gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
        LaunchOrder {
            job: JobId(uuid::Uuid::from_u128(5)),
            generation: Generation(generation),
            job_name: "job".into(),
            owner: "ada".into(),
            model: None,
            run: Run { per: RunPer::Gpu, command: Command::Shell(line.into()), workdir: None, env: BTreeMap::new() },
            placement: Placement::try_new(vec![NodeSlice { node: inventory.node, gpus }]).unwrap(),
            nodes: vec![NodeAddress { node: inventory.node, name: "n".into(), address: "127.0.0.1".into() }],
            configuration: None,
            lr_scale: 1.0,
            lr_scaling: LrScaling::None,
            reference_batch: None,
            checkpoint_dir: "/tmp".into(),
            checkpoint_every: Seconds(60.0),
            resume: None,
            grace: Seconds(5.0),
        }
    }
}

/// An agent without a scheduler: commands go in, reports come out of the outbox.
struct Agent {
    inputs: mpsc::Sender<Input>,
    outbox: Arc<Outbox>,
    inventory: Inventory,
    files: Files,
    lock: Lock,
    launcher: Launcher,
    tasks: Vec<JoinHandle<()>>,
}

impl Agent {
    fn start(dir: &Path, gpus: u32) -> Self {
        Self::start_with(dir, fixture::config(dir, gpus))
    }

    fn start_with(dir: &Path, config: AgentConfig) -> Self {
        let users = Users::new(config.run_as.clone()).unwrap();
        let (files, lock) = Files::open(&dir.join("data"), users.are_others()).unwrap();
        let identity = crate::identity::Identity::load(&files).unwrap();
        let (mut source, waker) = gpu::open(&config.gpus, identity.node).unwrap();
        let offer = config.inventory(identity.node, identity.boot, source.look()).unwrap();
        let inventory = Inventory::new(offer);
        let outbox = Arc::new(Outbox::default());
        outbox.open();
        let observer = Observer::new(config.report_every, Arc::clone(&outbox));
        let gpus = gpu::monitor(source, waker, inventory.clone(), observer.clone(), files.faults()).unwrap();
        let (inputs, receiver) = mpsc::channel(64);
        let connections = Connections::default();
        let site = Arc::new(Site::new(&config, files.clone(), inventory.clone(), gpus, users).unwrap());
        let socket = worker_socket::listen(Arc::clone(&site), observer.clone(), inputs.clone(), connections.clone());
        let socket = socket.unwrap();
        let launcher = Launcher::new(Arc::clone(&site), inputs.clone(), connections);
        let node = Node::load(site, launcher.clone(), observer.clone(), Arc::clone(&outbox), inputs.clone()).unwrap();
        let tasks = vec![
            tokio::spawn(socket),
            tokio::spawn(observer.run()),
            tokio::spawn(async move { node.run(receiver).await.unwrap() }),
        ];
        Self { inputs, outbox, inventory, files, lock, launcher, tasks }
    }

    fn order(&self, dir: &TempDir, generation: u64, line: &str) -> LaunchOrder {
        let mut order = fixture::order(&self.inventory.now(), generation, line);
        order.checkpoint_dir = dir.path().join("checkpoints").display().to_string();
        order
    }

    async fn command(&self, command: AgentCommand) {
        self.inputs.send(Input::Event(NodeEvent::Command { term: Term(1), command })).await.unwrap();
    }

    async fn stop(&self, order: &LaunchOrder, mode: StopMode) {
        let (job, generation) = (order.job, order.generation);
        self.command(AgentCommand::Stop { job, generation, mode, grace: Seconds(5.0) }).await;
    }

    /// Both phases of a start, up to `Running` (or an end that came before anyone saw it run).
    async fn launch(&self, order: &LaunchOrder) {
        self.command(AgentCommand::Prepare { order: Box::new(order.clone()) }).await;
        let phase = self.phase(|phase| !matches!(phase, GroupPhase::Preparing)).await;
        let GroupPhase::Prepared { rendezvous_port: Some(rendezvous_port) } = phase else { panic!("{phase:?}") };
        let (job, generation) = (order.job, order.generation);
        self.command(AgentCommand::Launch { job, generation, rendezvous_port }).await;
    }

    async fn report(&self) -> NodeReport {
        tokio::time::timeout(Duration::from_secs(20), self.outbox.next()).await.expect("a report within the deadline")
    }

    async fn phase(&self, wanted: impl Fn(&GroupPhase) -> bool) -> GroupPhase {
        loop {
            if let NodeReport::Group { status } = self.report().await
                && wanted(&status.phase)
            {
                return status.phase;
            }
        }
    }

    async fn offer(&self, wanted: impl Fn(&NodeInventory) -> bool) {
        loop {
            if let NodeReport::Inventory { inventory } = self.report().await
                && wanted(&inventory)
            {
                return;
            }
        }
    }

    async fn ended(&self) -> GroupOutcome {
        let phase = self.phase(|phase| matches!(phase, GroupPhase::Ended { .. })).await;
        let GroupPhase::Ended { outcome } = phase else { unreachable!("asked for an end") };
        outcome
    }

    async fn output(&self, order: &LaunchOrder, rank: u32, wanted: &str) -> String {
        let path = self.files.log(order.job, order.generation, rank);
        eventually(|| std::fs::read_to_string(&path).ok().filter(|text| text.contains(wanted))).await
    }

    /// As a crash would: tasks are dropped where they stand.
    async fn die(self) {
        for task in &self.tasks {
            task.abort();
        }
        for task in self.tasks {
            let _aborted = task.await;
        }
        drop(self.lock);
    }
}

async fn eventually<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(Instant::now() < deadline, "not within the deadline");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

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
    let NodeReport::Registered { groups, .. } = answer.await.unwrap() else { panic!("not a registration") };
    assert_eq!(groups[0].phase, GroupPhase::Running);
    assert_eq!(agent.output(&order, 0, "pid").await, before);
    std::fs::write(dir.path().join("data/go"), "").unwrap();
    let failed = GroupOutcome::Failed { exit_code: Some(5), fault: Fault::of_job("rank 0 exited with code 5") };
    assert_eq!(agent.ended().await, failed);
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
        (|order, _| order.run.workdir = Some("/no/such/place".into()), Blame::Node, "/no/such/place is not visible"),
        (|order, here| order.run.workdir = Some(format!("{here}/typo")), Blame::Job, "typo cannot be entered"),
        (|order, _| order.run.command = Command::Argv(vec!["{nonsense}".into()]), Blame::Job, "nonsense"),
        (|order, _| order.checkpoint_dir = "/proc/none".into(), Blame::Node, "/proc/none/g4 cannot be written"),
        (|order, here| order.resume = Some(checkpoint(here)), Blame::Node, "is not visible on this node"),
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
async fn a_full_disk_holds_up_the_ledger_and_not_the_workers() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    agent.files.reserve().unwrap();
    let order = agent.order(&dir, 1, "while [ ! -e ../../../go ]; do sleep 0.05; done");
    agent.launch(&order).await;
    agent.phase(|phase| *phase == GroupPhase::Running).await;
    // Everything written there fails for want of room.
    let full = dir.path().join("data/ledger.tmp");
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    std::fs::write(dir.path().join("data/go"), "").unwrap();
    eventually(|| (!dir.path().join("data/reserve").exists()).then_some(())).await;
    let silent = tokio::time::timeout(Duration::from_millis(100), agent.outbox.next()).await;
    assert!(silent.is_err(), "reported what is not stored: {silent:?}");
    std::fs::remove_file(full).unwrap();
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
    let refused = |fault: &Fault| fault.blame == Blame::Node && fault.message.contains("1 MiB of 9 MiB");
    assert!(matches!(&outcome, GroupOutcome::NotStarted { fault } if refused(fault)), "{outcome:?}");
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

#[tokio::test]
async fn a_worker_is_heard_only_with_its_secret() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    let order = agent.order(&dir, 1, "echo secret $HEADWAY_SECRET; sleep 60");
    agent.launch(&order).await;
    agent.phase(|phase| *phase == GroupPhase::Running).await;
    let output = agent.output(&order, 0, "secret").await;
    let secret = output.trim().strip_prefix("secret ").unwrap();
    let hello = |secret: &str| {
        format!(
            "{{\"type\":\"hello\",\"version\":1,\"job\":\"{}\",\"generation\":1,\"secret\":\"{secret}\",\"rank\":0,\"pid\":1,\"capabilities\":{{\"batch\":\"live\",\"layout\":\"never\"}}}}\n",
            order.job
        )
    };
    for (secret, expected) in [("wrong", "refused"), (secret, "welcome")] {
        let mut stream = BufReader::new(UnixStream::connect(agent.files.socket()).await.unwrap());
        stream.write_all(hello(secret).as_bytes()).await.unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        assert!(line.contains(expected), "{line}");
        if expected == "welcome" {
            assert!(matches!(agent.report().await, NodeReport::Declared { .. }));
            agent.stop(&order, StopMode::Checkpoint).await;
            line.clear();
            stream.read_line(&mut line).await.unwrap();
            assert_eq!(line, "{\"type\":\"stop\",\"checkpoint\":true,\"grace_s\":5.0}\n");
        }
    }
    agent.stop(&order, StopMode::Kill).await;
    assert_eq!(agent.ended().await, GroupOutcome::Stopped);
}

#[tokio::test]
async fn ranks_are_heard_and_a_newer_workers_words_are_not_in_the_way() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 2);
    let order = agent.order(&dir, 1, "echo secret $HEADWAY_SECRET.; sleep 60");
    agent.launch(&order).await;
    agent.phase(|phase| *phase == GroupPhase::Running).await;
    let output = agent.output(&order, 0, ".").await;
    let secret = output.trim().trim_end_matches('.').strip_prefix("secret ").unwrap().to_owned();
    for rank in 0..2 {
        let mut stream = BufReader::new(UnixStream::connect(agent.files.socket()).await.unwrap());
        let lines = format!(
            "{{\"type\":\"hello\",\"version\":1,\"job\":\"{}\",\"generation\":1,\"secret\":\"{secret}\",\"rank\":{rank},\"pid\":1}}\n\
             {{\"type\":\"telepathy\"}}\n{{\"type\":\"busy\",\"steps\":2,\"busy_s\":{}}}\n",
            order.job,
            rank + 1
        );
        stream.write_all(lines.as_bytes()).await.unwrap();
        stream.read_line(&mut String::new()).await.unwrap();
    }
    let mut heard = std::collections::BTreeMap::new();
    while heard.len() < 2 {
        if let NodeReport::RankTimes { busy, .. } = agent.report().await {
            heard.extend(busy);
        }
    }
    assert_eq!(heard, [(0, Seconds(0.5)), (1, Seconds(1.0))].into());
    agent.stop(&order, StopMode::Kill).await;
    assert_eq!(agent.ended().await, GroupOutcome::Stopped);
}

#[tokio::test]
async fn an_emulated_worker_trains_saves_takes_changes_and_stops() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 2);
    let order = agent.order(&dir, 1, "echo secret $HEADWAY_SECRET.; sleep 60");
    agent.launch(&order).await;
    agent.phase(|phase| *phase == GroupPhase::Running).await;
    let output = agent.output(&order, 0, ".").await;
    let secret = output.trim().trim_end_matches('.').strip_prefix("secret ").unwrap().to_owned();
    let socket = agent.files.socket().display().to_string();
    let (job, generation) = (order.job, order.generation);
    let checkpoints = order.checkpoint_dir.clone();
    let worker = tokio::spawn(crate::emulated::tests::train_until_stopped(job, socket, secret, checkpoints));

    let mut configuration = loop {
        if let NodeReport::Steps { report } = agent.report().await {
            assert!(report.noise.is_some() && report.samples_seen.0 == report.step * 8);
            break report.configuration;
        }
    };
    configuration.global_batch = headway_types::Sequences(16);
    agent.command(AgentCommand::Configure { job, generation, revision: 1, configuration, lr_scale: 1.4 }).await;
    loop {
        if let NodeReport::Steps { report } = agent.report().await
            && report.configuration == configuration
        {
            break;
        }
    }
    agent.stop(&order, StopMode::Checkpoint).await;
    loop {
        if let NodeReport::CheckpointWritten { checkpoint, .. } = agent.report().await {
            assert!(Path::new(&checkpoint.path).join("manifest.json").exists());
            break;
        }
    }
    worker.await.unwrap().unwrap();
    agent.stop(&order, StopMode::Kill).await;
    assert_eq!(agent.ended().await, GroupOutcome::Stopped);
}
