//! The node's loop with real processes.
#![allow(clippy::unwrap_used)]

mod exec;
mod hooks;
mod isolation;
mod late_stops;
mod life;
mod lost_ledger;
mod printed;
mod secrets;
mod socket;
mod trouble;
mod warm;

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use headway_types::spec::Command;
use headway_types::{AgentCommand, GroupOutcome, GroupPhase, LaunchOrder, Seconds, StopMode};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::*;
use crate::cgroup::CgroupRoot;
use crate::config::AgentConfig;
use crate::connections::Connections;
use crate::exec::Execs;
use crate::files::{Files, Lock};
use crate::gpu;
use crate::inventory::Inventory;
use crate::logs::OutputLimits;
use crate::user::{LEAST_UID, RunAs, Users};
use crate::worker_socket;

pub(crate) mod fixture {
    use headway_types::spec::{Command, Run};
    use headway_types::{BootId, Bytes, EmulatedDevice, GpuCount, GpuType, NodeId, NodeInventory, example};

    use super::*;
    use crate::cgroup::CgroupRoot;
    use crate::config::{AgentConfig, DeclaredGpus, GpuOffer};
    use crate::warm::WarmLimits;

    pub(crate) fn config(data_dir: &Path, gpus: u32) -> AgentConfig {
        AgentConfig {
            hardware: BTreeMap::new(),
            shm: None,
            local_disk: None,
            server_urls: vec!["http://127.0.0.1:1".into()],
            access: crate::Access::Token { secret: "t".into(), tls_ca: None },
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
            labels: Default::default(),
            python: "python3".into(),
            headway_binary: "/usr/bin/headway".into(),
            run_as: RunAs::Agent,
            allow_others: true,
            least_uid: LEAST_UID,
            cgroups: CgroupRoot::Off,
            bound_memory: false,
            report_every: Duration::from_millis(200),
            output: OutputLimits { per_rank: Bytes(1 << 20), age: Duration::from_secs(3600), total: Bytes(1 << 30) },
            warm: WarmLimits { interpreters: 0, idle: Duration::from_secs(3600) },
        }
    }

    pub(crate) fn inventory(gpus: u32) -> NodeInventory {
        let node = NodeId(uuid::Uuid::from_u128(77));
        let config = config(Path::new("/d"), gpus);
        let (mut source, _waker) = gpu::open(&config.gpus, node).unwrap();
        config.inventory(node, BootId("b".into()), source.look()).unwrap()
    }

    /// A node whose GPUs nobody can be asked about.
    pub(crate) fn site(data_dir: &Path) -> Site {
        let (files, _lock) = Files::open(data_dir, false).unwrap();
        let users = Users::new(RunAs::Agent, true, LEAST_UID).unwrap();
        Site::new(&config(data_dir, 1), files, Inventory::new(inventory(1)), gpu::Gpus::unanswered(), users).unwrap()
    }

    /// One process per GPU of the node, running a shell line.
    pub(crate) fn order(inventory: &NodeInventory, generation: u64, line: &str) -> LaunchOrder {
        let gpus = inventory.gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
        let order = example::order(JobId(uuid::Uuid::from_u128(5)), generation, inventory.node, gpus);
        let run = Run { command: Command::Shell(line.into()), ..order.run };
        LaunchOrder { run, checkpoint_dir: "/tmp".into(), grace: Seconds(5.0), ..order }
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
    execs: Execs,
    tasks: Vec<JoinHandle<()>>,
}

impl Agent {
    fn start(dir: &Path, gpus: u32) -> Self {
        Self::start_with(dir, fixture::config(dir, gpus))
    }

    fn start_with(dir: &Path, config: AgentConfig) -> Self {
        let users = Users::new(config.run_as.clone(), config.allow_others, config.least_uid).unwrap();
        let (files, lock) = Files::open(&dir.join("data"), users.are_others()).unwrap();
        let identity = crate::identity::Identity::load(&files, None).unwrap();
        let (mut source, waker) = gpu::open(&config.gpus, identity.node).unwrap();
        let offer = config.inventory(identity.node, identity.boot, source.look()).unwrap();
        let inventory = Inventory::new(offer);
        let outbox = Arc::new(Outbox::default());
        outbox.open();
        let observer = Observer::new(config.report_every, Arc::clone(&outbox));
        let gpus = gpu::monitor(source, waker, inventory.clone(), observer.clone(), Default::default(), files.faults())
            .unwrap();
        let (inputs, receiver) = mpsc::channel(64);
        let connections = Connections::default();
        let site = Arc::new(Site::new(&config, files.clone(), inventory.clone(), gpus, users).unwrap());
        let socket = worker_socket::listen(Arc::clone(&site), observer.clone(), inputs.clone(), connections.clone());
        let socket = socket.unwrap();
        let launcher = Launcher::new(Arc::clone(&site), inputs.clone(), connections, observer.clone());
        let execs = Execs::new(Arc::clone(&site), inputs.clone());
        let node = Node::load(site, launcher.clone(), observer.clone(), Arc::clone(&outbox), inputs.clone()).unwrap();
        let tasks = vec![
            tokio::spawn(socket),
            tokio::spawn(observer.run()),
            tokio::spawn(async move { node.run(receiver).await.unwrap() }),
        ];
        Self { inputs, outbox, inventory, files, lock, launcher, execs, tasks }
    }

    fn order(&self, dir: &TempDir, generation: u64, line: &str) -> LaunchOrder {
        let mut order = fixture::order(&self.inventory.now(), generation, line);
        order.checkpoint_dir = dir.path().join("checkpoints").display().to_string();
        order
    }

    async fn command(&self, command: AgentCommand) {
        self.command_with(command, Secrets::new()).await;
    }

    async fn command_with(&self, command: AgentCommand, secrets: Secrets) {
        let event = NodeEvent::Command { term: Term(1), serial: None, command };
        self.inputs.send(Input::Command { event, secrets }).await.unwrap();
    }

    async fn stop(&self, order: &LaunchOrder, mode: StopMode) {
        let (job, generation) = (order.job, order.generation);
        self.command(AgentCommand::Stop { job, generation, mode, grace: Seconds(5.0) }).await;
    }

    /// Both phases of a start, up to `Running` (or an end that came before anyone saw it run).
    async fn launch(&self, order: &LaunchOrder) {
        self.launch_with(order, Secrets::new()).await;
    }

    async fn launch_with(&self, order: &LaunchOrder, secrets: Secrets) {
        self.command(AgentCommand::Prepare { order: Box::new(order.clone()) }).await;
        let phase = self.phase(|phase| !matches!(phase, GroupPhase::Preparing)).await;
        let GroupPhase::Prepared { rendezvous_port: Some(rendezvous_port) } = phase else { panic!("{phase:?}") };
        let (job, generation) = (order.job, order.generation);
        self.command_with(AgentCommand::Launch { job, generation, rendezvous_port }, secrets).await;
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

/// Leaves a test out, loudly, where this user cannot run it. Root can run it: there a missing part fails the test, since
/// what the test guards would go unseen.
fn skip(reason: &str) {
    assert!(!nix::unistd::geteuid().is_root(), "as root this test must run, and it cannot: {reason}");
    assert!(std::env::var_os("CI").is_none(), "on CI this test must run, and it cannot: {reason}; run it as root");
    let words = format!("SKIPPED: {reason}; run it as root");
    // Past the harness, which captures what a passing test writes, and past a runner that keeps its output to itself.
    let terminal = std::fs::OpenOptions::new().write(true).open("/dev/tty");
    let _without_terminal = terminal.and_then(|mut terminal| writeln!(terminal, "{words}"));
    let _nobody_reads = writeln!(std::io::stderr(), "{words}");
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
