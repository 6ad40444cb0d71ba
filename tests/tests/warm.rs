//! Moves under the real binaries with interpreters kept warm. The trainer's torch is the real one: skipped, and said so,
//! without an interpreter that has PyTorch (`HEADWAY_TEST_PYTHON`, set by `make test`).
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use headway_api::v1::JobStateKind as State;
use headway_tests::job::tiny_training;
use headway_tests::{Cluster, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(240);

/// An interpreter that finds this package without a job's help, so that every job of the node has the same one.
fn interpreter(dir: &TempDir) -> Option<String> {
    let python = std::env::var("HEADWAY_TEST_PYTHON").ok()?;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.join("worker/src");
    let path = dir.path().join("python");
    let script = format!("#!/bin/sh\nPYTHONPATH={} exec {python} \"$@\"\n", sources.display());
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    Some(path.display().to_string())
}

/// Lines of the agent's log that say this.
fn lines(cluster: &Cluster, words: &str) -> Vec<String> {
    let text = std::fs::read_to_string(cluster.log("node-1")).unwrap_or_default();
    text.lines().filter(|line| line.contains(words)).map(String::from).collect()
}

async fn warm(cluster: &Cluster, times: usize) {
    until("an interpreter to be warm", PATIENCE, || async {
        (lines(cluster, "an interpreter is warm").len() >= times).then_some(())
    })
    .await;
}

async fn in_state(cluster: &Cluster, job: &str, state: State) {
    until(&format!("{job} to be {state}"), PATIENCE, || async {
        let job = cluster.client.job(job).await.ok()?.job;
        assert_ne!(job.state, State::Failed, "{:?}", job.state_cause);
        (job.state == state && (state != State::Running || job.loss.is_some())).then_some(())
    })
    .await;
}

/// The zygote of the cluster's only agent.
fn zygote(cluster: &Cluster) -> Pid {
    let agent = cluster.agent_pid(0);
    let found = std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let parent: i32 = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        let command = std::fs::read_to_string(entry.path().join("cmdline")).ok()?;
        (parent == agent && command.contains("headway.zygote")).then_some(pid)
    });
    Pid::from_raw(found.expect("a zygote runs"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_moved_job_starts_warm_and_without_a_zygote_cold() {
    let dir = tempfile::tempdir().unwrap();
    let Some(python) = interpreter(&dir) else {
        eprintln!("skipped: HEADWAY_TEST_PYTHON names no interpreter with PyTorch");
        return;
    };
    let cluster = Cluster::start_with(1, 4, 1, python).await;
    warm(&cluster, 1).await;
    let client = &cluster.client;
    let submit = async |name: &str, gpus, priority, samples| {
        client.submit_yaml(&tiny_training(name, gpus, priority, samples), None).await.unwrap().jobs[0].id.to_string()
    };
    let first = submit("first", 1, 50, 1_000_000).await;
    in_state(&cluster, &first, State::Running).await;
    let second = submit("second", 2, 90, 600).await;
    in_state(&cluster, &second, State::Succeeded).await;
    in_state(&cluster, &first, State::Running).await;
    let (warmly, coldly) = (lines(&cluster, "started warm"), lines(&cluster, "started cold"));
    assert!(warmly.len() >= 3, "the first, the second, and the first again: {warmly:?}");
    assert!(coldly.is_empty(), "{coldly:?}");
    let events = client.job_events(&first, 200).await.unwrap();
    let mut starts = events.iter().filter(|event| event.verb == "job.start_measured");
    let start = starts.next().expect("its starts are in the log");
    let seconds = |phase: &str| start.detail[phase].parse::<f64>().unwrap();
    let warm_import = seconds("import_seconds");
    assert!(seconds("startup_seconds") >= 0.0 && seconds("first_step_seconds") > 0.0, "{}", start.message);

    kill(zygote(&cluster), Signal::SIGKILL).unwrap();
    let third = submit("third", 2, 90, 600).await;
    in_state(&cluster, &third, State::Succeeded).await;
    in_state(&cluster, &first, State::Running).await;
    assert!(!lines(&cluster, "started cold").is_empty(), "its interpreter was killed");
    let events = client.job_events(&third, 200).await.unwrap();
    let start = events.iter().find(|event| event.verb == "job.start_measured").expect("its start is in the log");
    let cold_import = start.detail["import_seconds"].parse::<f64>().unwrap();
    assert!(warm_import < cold_import, "torch was imported before: {warm_import} s, not {cold_import} s");
    warm(&cluster, 2).await;
    client.cancel(&first, None).await.unwrap();
    in_state(&cluster, &first, State::Cancelled).await;
    cluster.stop(&[]).await;
}
