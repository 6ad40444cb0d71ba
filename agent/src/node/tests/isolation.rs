//! What keeps workers apart from their agent and from each other: cgroups and users.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

use headway_api::secret::Secret;
use headway_types::{Blame, CheckpointRef, NodeSlice, Placement, Sequences};
use sha2::Digest as _;

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
async fn where_memory_is_bounded_a_job_has_its_gpus_share_of_it() {
    let dir = tempfile::tempdir().unwrap();
    // No cgroup at all: what is written there shows.
    let cgroups = CgroupRoot::At(dir.path().join("cgroups"));
    let config = AgentConfig { cgroups, bound_memory: true, ..fixture::config(dir.path(), 4) };
    let agent = Agent::start_with(dir.path(), config);
    let offer = agent.inventory.now();
    let mut order = agent.order(&dir, 1, "true");
    let gpus = vec![offer.gpus[0].uuid.clone()];
    order.placement = Placement::try_new(vec![NodeSlice { node: offer.node, gpus }]).unwrap();
    let site = agent.launcher.site();
    site.confine(&order).await.unwrap();
    let group = dir.path().join(format!("cgroups/workers-{}/{}-g1", offer.node, order.job));
    let most: u64 = std::fs::read_to_string(group.join("memory.max")).unwrap().parse().unwrap();
    assert!(most.abs_diff(offer.memory.0 / 4 * 95 / 100) < 4096, "{most} of {}", offer.memory.0);
}

#[tokio::test]
async fn an_agent_that_runs_jobs_of_one_owner_alone_starts_nothing_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let config = AgentConfig { allow_others: false, ..fixture::config(dir.path(), 1) };
    let agent = Agent::start_with(dir.path(), config);
    let mut order = agent.order(&dir, 1, "echo ran");
    order.owner = "somebody-else".into();
    agent.command(AgentCommand::Prepare { order: Box::new(order.clone()) }).await;
    let outcome = agent.ended().await;
    let refused = |fault: &Fault| fault.blame == Blame::Infrastructure && fault.message.contains("--allow-others");
    assert!(matches!(&outcome, GroupOutcome::NotStarted { fault } if refused(fault)), "{outcome:?}");
    assert!(!dir.path().join("checkpoints").exists(), "nothing ran, not even the checks");

    let account = agent.inventory.now().account.clone().unwrap();
    let own = LaunchOrder { generation: Generation(2), owner: account.user, ..order };
    agent.launch(&own).await;
    assert_eq!(agent.ended().await, GroupOutcome::Succeeded);
}

#[tokio::test]
async fn workers_of_an_agent_of_root_are_their_owners() {
    let dir = tempfile::tempdir().unwrap();
    if let Err(error) = Users::new(RunAs::Owner, false, LEAST_UID) {
        assert!(matches!(error, crate::AgentError::RunAs { .. }), "{error}");
        return skip(&error.to_string());
    }
    let permit = |mode| std::fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
    permit(0o711);
    let shared = dir.path().join("checkpoints");
    std::fs::create_dir(&shared).unwrap();
    let agent = Agent::start_with(dir.path(), AgentConfig { run_as: RunAs::Owner, ..fixture::config(dir.path(), 1) });
    let line = "id -un; id -gn; echo $HOME $USER; touch mine && echo wrote; ls ../.. || echo secret $HEADWAY_SECRET.; sleep 60";
    let mut order = agent.order(&dir, 1, line);
    order.owner = "nobody".into();
    // A loader that obeys these writes a file as whoever it is.
    let seen = tempfile::tempdir().unwrap();
    let output = seen.path().join("by").display().to_string();
    order.run.env = [("LD_DEBUG".to_owned(), "files".to_owned()), ("LD_DEBUG_OUTPUT".to_owned(), output)].into();

    agent.command(AgentCommand::Prepare { order: Box::new(order.clone()) }).await;
    let outcome = agent.ended().await;
    let closed = |fault: &Fault| fault.blame == Blame::Node && fault.message.contains("cannot be written");
    assert!(matches!(&outcome, GroupOutcome::NotStarted { fault } if closed(fault)), "{outcome:?}");

    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    nix::unistd::chown(&shared, Some(nobody.uid), None).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(elsewhere.path(), Some(nobody.uid.as_raw()), None).unwrap();
    std::os::unix::fs::chown(seen.path(), Some(nobody.uid.as_raw()), None).unwrap();
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
    let by: Vec<u32> =
        std::fs::read_dir(seen.path()).unwrap().map(|of| of.unwrap().metadata().unwrap().uid()).collect();
    assert!(
        !by.is_empty() && by.iter().all(|uid| *uid == nobody.uid.as_raw()),
        "variables reach nobody but its user: {by:?}"
    );
    agent.stop(&order, StopMode::Kill).await;
    assert_eq!(agent.ended().await, GroupOutcome::Stopped);
}

/// Every path below a directory, and itself.
fn paths(of: &Path) -> Vec<PathBuf> {
    let below = std::fs::read_dir(of).into_iter().flatten().flatten().map(|entry| entry.path());
    let below = below.flat_map(|path| if path.is_dir() { paths(&path) } else { vec![path] });
    std::iter::once(of.to_owned()).chain(below).collect()
}

/// Tries every door to somebody else: what lies on the disk, what a process shows, the agent's socket with the other's own secret.
const TRY_DOORS: &str = r#"
import json, os, socket, sys
said = json.load(open(sys.argv[1]))
print("as", os.getuid())
for path in said["paths"]:
    for access, name in ((os.R_OK, "reads"), (os.W_OK, "writes")):
        if os.access(path, access):
            print("door:", name, path)
for name in ("environ", "fd", "fd/3", "cwd", "root", "maps", "mem"):
    path = f"/proc/{said['pid']}/{name}"
    try:
        print("door:", path, os.listdir(path) if name == "fd" else os.open(path, os.O_RDONLY))
    except OSError:
        pass
connection = socket.socket(socket.AF_UNIX)
connection.connect(said["socket"])
hello = {"type": "hello", "version": 1, "job": said["job"], "generation": 1, "secret": said["secret"], "rank": 0, "pid": os.getpid()}
connection.sendall(json.dumps(hello).encode() + b"\n")
print("hello:", connection.recv(4096).decode().strip())
print("tried", flush=True)
"#;

/// Two users, an agent that runs the jobs of both, and a checkpoint root as operators make it: everybody may make a directory in it.
struct TwoUsers {
    dir: TempDir,
    shared: PathBuf,
    agent: Agent,
    nobody: nix::unistd::User,
    daemon: nix::unistd::User,
}

impl TwoUsers {
    /// `None`, loudly, where this machine does not allow it.
    fn start() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let users = ["nobody", "daemon"].map(|name| nix::unistd::User::from_name(name).unwrap());
        let [nobody, daemon] = match (Users::new(RunAs::Owner, false, 1), users) {
            (Ok(_), [Some(nobody), Some(daemon)]) => [nobody, daemon],
            (Ok(_), _) => {
                skip("there are no users nobody and daemon (Debian: base-passwd)");
                return None;
            }
            (Err(error), _) => {
                skip(&error.to_string());
                return None;
            }
        };
        permit(dir.path(), 0o711);
        let shared = dir.path().join("checkpoints");
        std::fs::create_dir(&shared).unwrap();
        permit(&shared, 0o1777);
        let config = AgentConfig { run_as: RunAs::Owner, least_uid: 1, ..fixture::config(dir.path(), 2) };
        let agent = Agent::start_with(dir.path(), config);
        Some(Self { dir, shared, agent, nobody, daemon })
    }

    /// A job of its own on a GPU of its own.
    fn order(&self, number: u128, owner: &str, line: &str) -> LaunchOrder {
        let offer = self.agent.inventory.now();
        let job = JobId(uuid::Uuid::from_u128(40 + number));
        let gpus = vec![offer.gpus[(number % 2) as usize].uuid.clone()];
        let placement = Placement::try_new(vec![NodeSlice { node: offer.node, gpus }]).unwrap();
        let checkpoint_dir = self.shared.join(job.to_string()).display().to_string();
        LaunchOrder { job, owner: owner.into(), placement, checkpoint_dir, ..self.agent.order(&self.dir, 1, line) }
    }

    /// Runs a job to its end and returns its output.
    async fn run(&self, order: &LaunchOrder) -> (GroupOutcome, String) {
        self.agent.launch(order).await;
        let outcome = self.agent.ended().await;
        let output = std::fs::read_to_string(self.agent.files.log(order.job, order.generation, 0)).unwrap();
        (outcome, output)
    }

    /// What lies in the checkpoint root under other names than those of jobs, and whose it is.
    fn moved_aside(&self) -> Vec<u32> {
        let entries = std::fs::read_dir(&self.shared).unwrap().flatten();
        let foreign = entries.filter(|entry| entry.file_name().to_str().unwrap().starts_with(".foreign-"));
        foreign.map(|entry| entry.metadata().unwrap().uid()).collect()
    }
}

fn permit(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Loads what lies newest below the checkpoint directory, as careless scripts do.
const CARELESS: &str = "echo saved >$HEADWAY_CHECKPOINT_DIR/g1/state; cat $HEADWAY_CHECKPOINT_DIR/*/state; id -un";

#[tokio::test]
async fn a_checkpoint_directory_that_another_user_made_first_is_replaced() {
    let Some(two) = TwoUsers::start() else { return };
    let planted = "mkdir -p $DIR/g1 && echo planted >$DIR/g1/state && chmod -R 0777 $DIR; true";
    let closed = "mkdir -m 0700 $DIR";
    let link = "mkdir -p $PWD/trap/g1 && chmod -R 0777 $PWD $PWD/trap && ln -s $PWD/trap $DIR";
    let file = "echo planted >$DIR";
    for (number, squat) in (0..).zip([planted, closed, link, file]) {
        let victim = two.order(2 * number, "nobody", CARELESS);
        let mut attack = two.order(2 * number + 1, "daemon", squat);
        attack.run.env.insert("DIR".into(), victim.checkpoint_dir.clone());
        assert_eq!(two.run(&attack).await.0, GroupOutcome::Succeeded, "{squat}");
        let at = Path::new(&victim.checkpoint_dir);
        assert_eq!(std::fs::symlink_metadata(at).unwrap().uid(), two.daemon.uid.as_raw(), "the attacker came first");

        let (outcome, output) = two.run(&victim).await;
        assert_eq!((outcome, &*output), (GroupOutcome::Succeeded, "saved\nnobody\n"), "{squat}");
        let own = std::fs::symlink_metadata(at).unwrap();
        assert!(own.is_dir() && own.uid() == two.nobody.uid.as_raw() && own.mode() & 0o7777 == 0o700, "{own:?}");
    }
    assert_eq!(two.moved_aside(), [two.daemon.uid.as_raw(); 4]);
}

#[tokio::test]
async fn a_foreign_checkpoint_directory_that_cannot_be_replaced_is_nobodys_fault() {
    let Some(two) = TwoUsers::start() else { return };
    // As on a file system where the node's root has no rights: nothing is renamed where the sticky bit is missing.
    permit(&two.shared, 0o777);
    let order = two.order(0, "nobody", CARELESS);
    let at = Path::new(&order.checkpoint_dir);
    std::fs::create_dir(at).unwrap();
    nix::unistd::chown(at, Some(two.daemon.uid), None).unwrap();
    two.agent.command(AgentCommand::Prepare { order: Box::new(order.clone()) }).await;
    let GroupOutcome::NotStarted { fault } = two.agent.ended().await else { panic!("it started") };
    assert_eq!((fault.blame, fault.mistake), (Blame::Infrastructure, false));
    let uid = format!("of uid {}", two.daemon.uid);
    for words in [&order.checkpoint_dir, &uid, "user nobody", "operator"] {
        assert!(fault.message.contains(words), "{}", fault.message);
    }
    assert!(two.moved_aside().is_empty());

    // A committed checkpoint is never moved out of the job's reach.
    permit(&two.shared, 0o1777);
    let mut resumes = LaunchOrder { generation: Generation(2), ..order.clone() };
    resumes.resume = Some(CheckpointRef {
        generation: Generation(1),
        path: at.join("g1/step-000000001").display().to_string(),
        step: 1,
        samples_seen: Sequences(1),
        manifest_sha256: "00".into(),
    });
    two.agent.command(AgentCommand::Prepare { order: Box::new(resumes) }).await;
    let GroupOutcome::NotStarted { fault } = two.agent.ended().await else { panic!("it started") };
    assert!(fault.blame == Blame::Infrastructure && fault.message.contains("resume from"), "{fault:?}");
    assert!(two.moved_aside().is_empty());
}

/// Saves two checkpoints.
const SAVES: &str = r#"for n in 1 2; do
    at=$HEADWAY_CHECKPOINT_DIR/g1/step-00000000$n
    mkdir $at && echo x >$at/model.pt
    printf '{{"job":"%s","generation":1,"step":%d,"samples_seen":%d,"files":[{{"name":"model.pt","bytes":2}}]}}' \
        $HEADWAY_JOB_ID $n $n >$at/manifest.json
done"#;

#[tokio::test]
async fn older_checkpoints_and_empty_directories_of_a_user_are_removed() {
    let Some(two) = TwoUsers::start() else { return };
    let order = two.order(0, "nobody", SAVES);
    assert_eq!(two.run(&order).await.0, GroupOutcome::Succeeded);
    let (job, generation, home) = (order.job, order.generation, Path::new(&order.checkpoint_dir).join("g1"));
    let manifest = std::fs::read(home.join("step-000000002/manifest.json")).unwrap();
    let committed = CheckpointRef {
        generation,
        path: home.join("step-000000002").display().to_string(),
        step: 2,
        samples_seen: Sequences(2),
        manifest_sha256: hex::encode(sha2::Sha256::digest(manifest)),
    };
    two.agent.command(AgentCommand::Prune { job, committed, keep: std::num::NonZeroU32::MIN }).await;
    eventually(|| (!home.join("step-000000001").exists()).then_some(())).await;
    assert!(home.join("step-000000002/model.pt").exists());

    // A saved file keeps the directory of its job, and a job that has saved nothing leaves none.
    two.agent.command(AgentCommand::Forget { job, generation }).await;
    let empty = two.order(2, "daemon", "mkdir $HEADWAY_CHECKPOINT_DIR/g1/.step-000000001");
    assert_eq!(two.run(&empty).await.0, GroupOutcome::Succeeded);
    assert!(Path::new(&empty.checkpoint_dir).is_dir());
    two.agent.command(AgentCommand::Forget { job: empty.job, generation }).await;
    eventually(|| (!Path::new(&empty.checkpoint_dir).exists()).then_some(())).await;
    assert!(home.join("step-000000002/model.pt").exists());
}

#[tokio::test]
async fn jobs_of_two_users_have_no_door_to_each_other() {
    let Some(two) = TwoUsers::start() else { return };
    let TwoUsers { dir, shared, agent, nobody, daemon } = &two;
    let offer = agent.inventory.now();
    let mut theirs =
        two.order(0, "nobody", "cat $KEY_FILE >$HEADWAY_CHECKPOINT_DIR/g1/saved; touch mine; echo up; sleep 60");
    theirs.run.secrets.insert("KEY".into(), "key".into());
    theirs.run.secret_files.insert("KEY".into());
    agent.launch_with(&theirs, [("KEY".to_owned(), Secret::new("hunter22"))].into()).await;
    let GroupPhase::Running = agent.phase(|phase| matches!(phase, GroupPhase::Running)).await else { unreachable!() };
    agent.output(&theirs, 0, "up").await;

    let mark = format!("{}/{}/", offer.node, theirs.job);
    let leader = std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        process::mark_of(pid).is_some_and(|found| found.starts_with(&mark)).then_some(pid)
    });
    let found = paths(dir.path());
    let files = || found.iter().filter(|path| !path.metadata().unwrap().file_type().is_socket());
    assert!(files().any(|path| path.ends_with("saved")) && files().any(|path| path.ends_with("ledger.json")));
    // The directory to pass through, and the one where everybody may make one of his own.
    let closed: Vec<&PathBuf> = files().filter(|path| *path != shared).collect();
    let said = serde_json::json!({
        "paths": closed, "pid": leader.unwrap(), "socket": agent.files.socket(), "job": theirs.job.to_string(),
        "secret": std::fs::read_to_string(agent.files.secret(theirs.job, theirs.generation)).unwrap(),
    });
    let (told, script) = (dir.path().join("told.json"), dir.path().join("doors.py"));
    std::fs::write(&told, said.to_string()).unwrap();
    std::fs::write(&script, TRY_DOORS).unwrap();
    permit(&told, 0o644);
    permit(&script, 0o644);
    let line = format!("/usr/bin/python3 {} {}", script.display(), told.display());
    let ours = two.order(1, "daemon", &line);
    agent.launch(&ours).await;
    assert_eq!(agent.ended().await, GroupOutcome::Succeeded);
    let output = std::fs::read_to_string(agent.files.log(ours.job, ours.generation, 0)).unwrap();
    assert!(output.starts_with(&format!("as {}\n", daemon.uid)) && output.ends_with("tried\n"), "{output}");
    assert!(!output.contains("door:"), "{output}");
    assert!(output.contains("refused") && output.contains("belongs to another user"), "{output}");
    assert_eq!(std::fs::metadata(shared.join(theirs.job.to_string())).unwrap().uid(), nobody.uid.as_raw());
    agent.stop(&theirs, StopMode::Kill).await;
    assert_eq!(agent.ended().await, GroupOutcome::Stopped);
}

#[tokio::test]
async fn a_job_its_hooks_and_what_runs_beside_it_open_its_own_gpus_alone() {
    let dir = tempfile::tempdir().unwrap();
    let Some(real) = crate::cgroup::tests::Real::make("gpus") else {
        return eprintln!("SKIPPED: not isolated: no cgroup (version 2) may be made here");
    };
    let mut config = AgentConfig { cgroups: CgroupRoot::At(real.0.clone()), ..fixture::config(dir.path(), 2) };
    if let crate::config::GpuOffer::Declared(gpus) = &mut config.gpus {
        gpus.emulated = None;
    }
    let agent = Agent::start_with(dir.path(), config);
    let offer = agent.inventory.now();
    assert!(!offer.isolated, "nothing is said before it was tried");
    // Of a driver that is not there: opening fails in one way where it is allowed, in another where it is not.
    let files = ["6", "7"].map(|minor| dir.path().join(format!("nvidia{minor}")));
    for (file, minor) in files.iter().zip(["6", "7"]) {
        let made = std::process::Command::new("mknod").arg(file).args(["c", "195", minor]).status();
        if !made.is_ok_and(|status| status.success()) {
            return eprintln!("SKIPPED: not isolated: no device file may be made here");
        }
    }
    let own = offer.gpus.iter().map(|gpu| gpu.uuid.clone()).zip(files.iter().map(|file| vec![file.clone()]));
    agent.launcher.site().isolate(own.collect()).await;
    let told = agent.inventory.now();
    assert_eq!(told.isolated, told.not_isolated_reason.is_none());
    if let Some(reason) = &told.not_isolated_reason {
        return eprintln!("SKIPPED: not isolated: {reason}");
    }

    let [first, second] = files.each_ref().map(|file| file.display());
    let tries = format!("for file in {first} {second}; do true <$file; done 2>&1");
    let mut order = agent.order(&dir, 1, &format!("{tries}; echo up; sleep 60"));
    order.run.hooks.prolog = Some(format!("{tries}; true"));
    let gpus = vec![offer.gpus[1].uuid.clone()];
    order.placement = Placement::try_new(vec![NodeSlice { node: offer.node, gpus }]).unwrap();
    agent.launch(&order).await;
    let output = agent.output(&order, 0, "up").await;
    let beside = super::exec::told(&agent, &order, &tries).await.stdout;
    for (said, times) in [(output, 2), (beside, 1)] {
        let count = |words: &str, file: &Path| {
            said.lines().filter(|line| line.contains(words) && line.contains(file.to_str().unwrap())).count()
        };
        let counted = (count("Operation not permitted", &files[0]), count("No such device", &files[1]));
        assert_eq!(counted, (times, times), "{said}");
    }
    agent.stop(&order, StopMode::Kill).await;
    assert_eq!(agent.ended().await, GroupOutcome::Stopped);
}
