//! What keeps workers apart from their agent and from each other: cgroups and users.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

use headway_api::secret::Secret;
use headway_types::{Blame, NodeSlice, Placement};

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
async fn workers_of_an_agent_of_root_are_their_owners() {
    let dir = tempfile::tempdir().unwrap();
    if let Err(error) = Users::new(RunAs::Owner, LEAST_UID) {
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

#[tokio::test]
async fn jobs_of_two_users_have_no_door_to_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let users = ["nobody", "daemon"].map(|name| nix::unistd::User::from_name(name).unwrap());
    let (Ok(_), [Some(nobody), Some(daemon)]) = (Users::new(RunAs::Owner, 1), users) else {
        return eprintln!("SKIPPED: this agent cannot run jobs as two users");
    };
    let permit = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    permit(dir.path(), 0o711);
    let shared = dir.path().join("checkpoints");
    std::fs::create_dir(&shared).unwrap();
    permit(&shared, 0o1777);
    let agent = Agent::start_with(
        dir.path(),
        AgentConfig { run_as: RunAs::Owner, least_uid: 1, ..fixture::config(dir.path(), 2) },
    );
    let offer = agent.inventory.now();
    let order = |number: u128, owner: &str, line: &str| {
        let (job, gpu) = (JobId(uuid::Uuid::from_u128(40 + number)), offer.gpus[number as usize].uuid.clone());
        let placement = Placement::try_new(vec![NodeSlice { node: offer.node, gpus: vec![gpu] }]).unwrap();
        let checkpoint_dir = shared.join(job.to_string()).display().to_string();
        LaunchOrder { job, owner: owner.into(), placement, checkpoint_dir, ..agent.order(&dir, 1, line) }
    };
    let mut theirs =
        order(0, "nobody", "cat $KEY_FILE >$HEADWAY_CHECKPOINT_DIR/g1/saved; touch mine; echo up; sleep 60");
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
    let closed: Vec<&PathBuf> = files().filter(|path| **path != shared).collect();
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
    let ours = order(1, "daemon", &line);
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
