//! Warm starts with a real interpreter whose torch is a stand-in that imports in no time.

use headway_types::spec::Run;

use super::*;
use crate::warm::WarmLimits;

/// Says whether torch was there before it asked, then does as told by its argument.
const SCRIPT: &str = r#"
import os, subprocess, sys, time
print("up", "warm" if "torch" in sys.modules else "cold", os.environ["HEADWAY_GENERATION"], flush=True)
if sys.argv[1] == "hide":
    print("child", subprocess.Popen(["setsid", "sleep", "60"]).pid, flush=True)
if sys.argv[1] in ("hide", "wait"):
    time.sleep(60)
raise SystemExit(int(sys.argv[1]))
"#;

fn limits(idle: Duration) -> WarmLimits {
    WarmLimits { interpreters: 1, idle }
}

fn agent(dir: &TempDir) -> Agent {
    agent_with(dir, fixture::config(dir.path(), 1))
}

fn agent_with(dir: &TempDir, config: AgentConfig) -> Agent {
    let torch = dir.path().join("lib/torch");
    std::fs::create_dir_all(&torch).unwrap();
    std::fs::write(torch.join("__init__.py"), "from torch import cuda\n").unwrap();
    std::fs::write(torch.join("cuda.py"), "def is_initialized():\n    return False\n").unwrap();
    std::fs::write(torch.join("version.py"), "").unwrap();
    std::fs::write(dir.path().join("script.py"), SCRIPT).unwrap();
    Agent::start_with(dir.path(), AgentConfig { warm: limits(Duration::ZERO), ..config })
}

fn order(agent: &Agent, dir: &TempDir, generation: u64, what: &str) -> LaunchOrder {
    let script = dir.path().join("script.py").display().to_string();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("worker/src");
    let order = agent.order(dir, generation, "");
    let words = ["{python}", "-m", "headway.run", &script, what].map(String::from);
    let mut run = Run { command: Command::Argv(words.into()), ..order.run };
    let library = dir.path().join("lib");
    run.env.insert("PYTHONPATH".into(), format!("{}:{}", sources.display(), library.display()));
    LaunchOrder { run, ..order }
}

/// A worker of generation 1 that was started warm, and what it has printed up to a word.
async fn started_warm(agent: &Agent, dir: &TempDir, what: &str, word: &str) -> (LaunchOrder, String) {
    let order = order(agent, dir, 1, what);
    warm_up(agent, &order).await;
    agent.launch(&order).await;
    let output = agent.output(&order, 0, word).await;
    assert!(output.starts_with("up warm"), "{output}");
    (order, output)
}

/// Has the order's interpreter warmed up and waits for it.
async fn warm_up(agent: &Agent, order: &LaunchOrder) {
    agent.launcher.warm_up(order.clone());
    let kind = agent.launcher.kind(order).await.unwrap();
    eventually(|| agent.launcher.warm().process(&kind)).await;
}

#[tokio::test]
async fn a_worker_starts_warm_and_its_end_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let agent = agent(&dir);
    let first = order(&agent, &dir, 1, "0");
    agent.launch(&first).await;
    assert_eq!(agent.ended().await, GroupOutcome::Succeeded);
    assert_eq!(agent.output(&first, 0, "up").await, "up cold 1\n");
    warm_up(&agent, &first).await;
    for (generation, code) in [(2, 0), (3, 9)] {
        let next = order(&agent, &dir, generation, &code.to_string());
        agent.launch(&next).await;
        let message = format!("rank 0 exited with code {code}");
        let failed = GroupOutcome::Failed { exit_code: Some(code), fault: Fault::of_job(message) };
        assert_eq!(agent.ended().await, if code == 0 { GroupOutcome::Succeeded } else { failed });
        assert_eq!(agent.output(&next, 0, "up").await, format!("up warm {generation}\n"));
    }
}

#[tokio::test]
async fn a_stop_reaches_all_that_a_warm_worker_started() {
    let dir = tempfile::tempdir().unwrap();
    let agent = agent(&dir);
    let (order, output) = started_warm(&agent, &dir, "hide", "child").await;
    let child: u32 = output.trim().rsplit(' ').next().unwrap().parse().unwrap();
    agent.stop(&order, StopMode::Kill).await;
    assert_eq!(agent.ended().await, GroupOutcome::Stopped);
    assert!(!process::tests::exists(child), "a child outlived its group");
}

#[tokio::test]
async fn a_warm_worker_is_in_its_cgroup_with_what_hides_and_its_interpreter_in_another() {
    let dir = tempfile::tempdir().unwrap();
    let Some(real) = crate::cgroup::tests::Real::make("warm") else { return };
    let cgroups = CgroupRoot::At(real.0.clone());
    let agent = agent_with(&dir, AgentConfig { cgroups, ..fixture::config(dir.path(), 1) });
    let (order, _) = started_warm(&agent, &dir, "hide", "child").await;
    let workers = real.0.join(format!("workers-{}", order.placement.first_node()));
    let (rank, enclosure) = (workers.join(format!("{}-g1/rank-0", order.job)), workers.join("warm-0"));
    let members = |path: &Path| std::fs::read_to_string(path.join("cgroup.procs")).unwrap();
    assert_eq!(members(&rank).lines().count(), 3, "supervisor, worker and child: {}", members(&rank));
    let kind = agent.launcher.kind(&order).await.unwrap();
    let zygote = agent.launcher.warm().process(&kind).unwrap();
    assert_eq!(members(&enclosure), format!("{zygote}\n"), "its interpreter has one of its own");
    agent.stop(&order, StopMode::Kill).await;
    assert_eq!(agent.ended().await, GroupOutcome::Stopped);
    assert!(!rank.exists());
    // Nobody needs it once the group is gone.
    eventually(|| {
        agent.launcher.warm().look();
        (!enclosure.exists()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_warm_worker_of_an_agent_of_root_is_its_owners() {
    let dir = tempfile::tempdir().unwrap();
    // An interpreter that everybody may use.
    let python = "/usr/bin/python3";
    if Users::new(RunAs::Owner, false, LEAST_UID).is_err() || !Path::new(python).exists() {
        return;
    }
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let config = AgentConfig { run_as: RunAs::Owner, python: python.into(), ..fixture::config(dir.path(), 1) };
    let agent = agent_with(&dir, config);
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    let shared = dir.path().join("checkpoints");
    std::fs::create_dir(&shared).unwrap();
    nix::unistd::chown(&shared, Some(nobody.uid), None).unwrap();
    // The package itself may lie where only this user can read.
    let package = dir.path().join("lib/headway");
    std::fs::create_dir(&package).unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("worker/src/headway");
    for file in std::fs::read_dir(sources).unwrap().flatten().filter(|file| file.path().is_file()) {
        std::fs::copy(file.path(), package.join(file.file_name())).unwrap();
    }
    std::fs::write(
        dir.path().join("script.py"),
        "import os, sys\nprint('torch' in sys.modules, os.getresuid(), os.getgroups())\n",
    )
    .unwrap();
    let mut order = order(&agent, &dir, 1, "0");
    order.owner = "nobody".into();
    order.run.env.insert("PYTHONPATH".into(), dir.path().join("lib").display().to_string());
    warm_up(&agent, &order).await;
    agent.launch(&order).await;
    assert_eq!(agent.ended().await, GroupOutcome::Succeeded);
    let (user, group) = (nobody.uid, nobody.gid);
    assert_eq!(agent.output(&order, 0, ")").await, format!("True ({user}, {user}, {user}) [{group}]\n"));
}

#[tokio::test]
async fn the_next_agent_adopts_a_warm_worker_and_finds_those_no_ledger_knows() {
    let dir = tempfile::tempdir().unwrap();
    let first = agent(&dir);
    let (order, _) = started_warm(&first, &dir, "wait", "up warm").await;
    let Some(worker) = process::marks(|_| true).unwrap().into_iter().find(|mark| mark.contains(&order.job.to_string()))
    else {
        panic!("a warm worker shows no mark")
    };
    assert!(worker.ends_with("/g1/0/"), "{worker}");
    first.die().await;
    let second = agent(&dir);
    second.stop(&order, StopMode::Terminate).await;
    assert_eq!(second.ended().await, GroupOutcome::Stopped);
}

#[tokio::test]
async fn without_its_zygote_a_launch_goes_cold_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let agent = agent(&dir);
    let (lasting, _) = started_warm(&agent, &dir, "wait", "up warm").await;
    let kind = agent.launcher.kind(&lasting).await.unwrap();
    let zygote = nix::unistd::Pid::from_raw(agent.launcher.warm().process(&kind).unwrap().cast_signed());
    nix::sys::signal::kill(zygote, nix::sys::signal::SIGKILL).unwrap();
    agent.stop(&lasting, StopMode::Terminate).await;
    assert_eq!(agent.ended().await, GroupOutcome::Stopped, "the worker outlived its zygote");
    let next = order(&agent, &dir, 2, "0");
    agent.launch(&next).await;
    assert_eq!(agent.ended().await, GroupOutcome::Succeeded);
    assert_eq!(agent.output(&next, 0, "up").await, "up cold 2\n");
}

#[tokio::test]
async fn an_interpreter_nobody_needs_ends_and_one_that_is_needed_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let agent = agent(&dir);
    let order = order(&agent, &dir, 1, "0");
    let kind = agent.launcher.kind(&order).await.unwrap();
    let warm = agent.launcher.warm();
    warm_up(&agent, &order).await;
    let held = warm.hold(kind.clone());
    assert!(warm.look().is_empty());
    assert!(warm.process(&kind).is_some());
    drop(held);
    let zygote = warm.process(&kind).unwrap();
    assert!(warm.look().is_empty());
    assert!(warm.process(&kind).is_none());
    eventually(|| (!process::tests::exists(zygote)).then_some(())).await;
}

#[tokio::test]
async fn one_that_died_while_it_was_needed_is_started_again() {
    let dir = tempfile::tempdir().unwrap();
    let agent = agent(&dir);
    let order = order(&agent, &dir, 1, "0");
    let kind = agent.launcher.kind(&order).await.unwrap();
    let warm = agent.launcher.warm();
    warm_up(&agent, &order).await;
    let _held = warm.hold(kind.clone());
    let zygote = nix::unistd::Pid::from_raw(warm.process(&kind).unwrap().cast_signed());
    nix::sys::signal::kill(zygote, nix::sys::signal::SIGKILL).unwrap();
    let dead = eventually(|| Some(warm.look()).filter(|dead| !dead.is_empty())).await;
    assert_eq!(dead, std::slice::from_ref(&kind));
    warm.want(&kind);
    eventually(|| warm.process(&kind)).await;
}

#[tokio::test]
async fn there_are_no_more_of_them_than_allowed_and_one_that_fails_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let agent = agent(&dir);
    let one = order(&agent, &dir, 1, "0");
    let kind = agent.launcher.kind(&one).await.unwrap();
    let mut other = kind.clone();
    other.variables.insert("MODE".into(), "2".into());
    let warm = agent.launcher.warm();
    warm_up(&agent, &one).await;
    let held = warm.hold(kind.clone());
    warm.want(&other);
    assert!(warm.process(&kind).is_some(), "one that is needed makes no room");
    drop(held);
    warm.want(&other);
    assert!(warm.process(&kind).is_none());
    eventually(|| warm.process(&other)).await;
    let mut broken = kind.clone();
    broken.variables.insert("PYTHONPATH".into(), "/nowhere".into());
    warm.want(&broken);
    eventually(|| warm.has_failed(&broken).then_some(())).await;
    warm.want(&broken);
    assert!(warm.has_failed(&broken), "not tried again at once");
}
