//! The first job of somebody who has just read the README: three commands through the real binary, on a plain `headway up`.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use headway_tests::cluster::{free_port, open_to_postgres};
use headway_tests::process::{Process, binary};
use headway_tests::{soon, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A person's terminal: a directory to work in, and what `up` left for it.
struct Terminal {
    config: PathBuf,
    directory: PathBuf,
}

impl Terminal {
    fn output(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(binary());
        command.args(arguments).current_dir(&self.directory).env("XDG_CONFIG_HOME", &self.config).env("NO_COLOR", "1");
        for variable in ["HEADWAY_URL", "HEADWAY_TOKEN", "HEADWAY_TOKEN_FILE", "HEADWAY_CONTEXT"] {
            command.env_remove(variable);
        }
        command.output().unwrap()
    }

    /// What a command that succeeds writes.
    fn says(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    fn script(&self, name: &str, text: &str) {
        let file = self.directory.join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// A plain `up` as soon as it says that it is up, and a terminal beside it.
async fn up(scratch: &Path) -> (Process, Terminal) {
    rustls::crypto::ring::default_provider().install_default().ok();
    open_to_postgres(scratch);
    let [people, agents] = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
    let (data, log) = (scratch.join("data").display().to_string(), scratch.join("up.log"));
    let arguments = ["up", "--data-dir", &data, "--listen", &people, "--agent-listen", &agents];
    let mut process = Process::start(&arguments.map(String::from), &log).unwrap();
    until("headway to be up", soon(), || {
        let ended = process.ended();
        let said = fs::read_to_string(&log).unwrap_or_default();
        assert!(ended.is_none(), "headway up ended: {said}");
        async move { said.contains("Headway is up").then_some(()) }
    })
    .await;
    let directory = scratch.join("proj");
    fs::create_dir(&directory).unwrap();
    (process, Terminal { config: log.with_extension("config"), directory })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_job_takes_three_commands() {
    let scratch = tempfile::Builder::new().prefix("hw").tempdir_in("/tmp").unwrap();
    let (process, terminal) = up(scratch.path()).await;

    // That it is up means that jobs can start.
    let nodes = terminal.says(&["node", "list", "-o", "json"]);
    let nodes: serde_json::Value = serde_json::from_str(&nodes).unwrap();
    let available = |node: &serde_json::Value| node["availability"] == "available";
    assert!(nodes.as_array().unwrap().len() == 2 && nodes.as_array().unwrap().iter().all(available), "{nodes}");

    terminal.script("train.sh", "#!/bin/sh\necho \"training on $WORLD_SIZE GPU in $PWD: $1\"\n");
    let said = terminal.says(&["submit", "--gpus", "1", "--", "./train.sh", "it's \"$HOME\""]);
    assert!(said.starts_with("job train submitted ("), "{said}");
    assert!(said.contains("next: headway logs -f train"), "{said}");
    let here = terminal.directory.canonicalize().unwrap().display().to_string();
    let wrote = terminal.says(&["logs", "-f"]);
    assert_eq!(wrote, format!("training on 1 GPU in {here}: it's \"$HOME\"\n"));
    assert_eq!(terminal.says(&["job", "wait", "train"]), "job train succeeded\n");

    a_slurm_script_runs_as_it_is(&terminal);
    an_untouched_script_shows_its_steps(&terminal);
    a_failure_is_told_with_its_exit_code_and_last_lines(&terminal);
    waiting_ends_in_time(&terminal);
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn up_stops_within_five_seconds_while_an_agent_has_no_session() {
    let scratch = tempfile::Builder::new().prefix("hw").tempdir_in("/tmp").unwrap();
    let (mut process, terminal) = up(scratch.path()).await;
    terminal.says(&["submit", "--gpus", "4", "--name", "long", "--", "sleep", "600"]);
    terminal.says(&["job", "wait", "long", "--for", "running"]);
    let agents = agents_below(&scratch.path().join("data"));
    assert_eq!(agents.len(), 2, "{agents:?}");
    let began = Instant::now();
    process.signal(Signal::SIGTERM);
    // From now on none of them is started again, and their nodes stay available until their leases are over.
    for agent in agents {
        kill(agent, Signal::SIGKILL).unwrap();
    }
    until("the end of headway up", soon(), || {
        let ended = process.ended();
        async move { ended }
    })
    .await;
    let took = began.elapsed();
    let said = fs::read_to_string(scratch.path().join("up.log")).unwrap();
    assert!(took < Duration::from_secs(5), "it took {took:?}: {said}");
    assert!(said.contains("headway: stopped"), "{said}");
}

/// The agents of an `up`, by the data directories that they were given.
fn agents_below(data: &Path) -> Vec<Pid> {
    let node = format!("{}/node-", data.display());
    let is_agent = |entry: &fs::DirEntry| {
        let line = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&str> = line.split('\0').collect();
        words.get(1) == Some(&"agent") && words.iter().any(|word| word.starts_with(&node))
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        is_agent(&entry).then(|| Pid::from_raw(pid))
    });
    pids.collect()
}

fn a_slurm_script_runs_as_it_is(terminal: &Terminal) {
    let script = "#!/bin/bash\n#SBATCH --job-name=from-slurm --gpus-per-node=2\n#SBATCH --cpus-per-task=1\n#SBATCH -t 10\n\
                  f() { echo \"$SLURM_JOB_NAME ${SLURM_NNODES} $SLURM_NTASKS $SLURM_PROCID $SLURM_LOCALID $1\"; }\n\
                  f \"$SLURM_GPUS_ON_NODE $SLURM_CPUS_PER_TASK $SLURM_NODEID\"\n";
    terminal.script("job.sh", script);
    terminal.says(&["submit", "--from-sbatch", "job.sh"]);
    assert_eq!(terminal.says(&["logs", "-f", "from-slurm"]), "from-slurm 1 1 0 0 2 1 0\n");
}

fn an_untouched_script_shows_its_steps(terminal: &Terminal) {
    let script = "#!/bin/sh\nfor step in 10 11 12; do echo \"step $step loss 3.$step\"; sleep 0.7; done\n";
    terminal.script("steps.sh", script);
    let wrong = terminal.output(&["submit", "--gpus", "1", "--progress", "loss", "--", "./steps.sh"]);
    let told = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(
        !wrong.status.success() && told.contains("run.progress.regex") && told.contains("has no group for the step"),
        "{told}"
    );
    let pattern = r"step (?P<step>\d+) loss (?P<loss>\S+)";
    terminal.says(&["submit", "--gpus", "1", "--progress", pattern, "--", "./steps.sh"]);
    assert_eq!(terminal.says(&["job", "wait", "steps"]), "job steps succeeded\n");
    let job: serde_json::Value = serde_json::from_str(&terminal.says(&["job", "get", "steps", "-o", "json"])).unwrap();
    let events = terminal.says(&["events", "--job", "steps"]);
    assert!(events.contains("steps trains under"), "{events}");
    assert_eq!(job["loss"], serde_json::json!(3.12), "{job}");
}

fn a_failure_is_told_with_its_exit_code_and_last_lines(terminal: &Terminal) {
    terminal.script("job.sh", "#!/bin/bash\n#SBATCH --gpus=1 -J fails\necho the last words\nexit 7\n");
    terminal.says(&["submit", "--from-sbatch", "job.sh"]);
    let waited = terminal.output(&["job", "wait", "fails"]);
    assert_eq!(waited.status.code(), Some(7), "{}", String::from_utf8_lossy(&waited.stdout));
    let why = terminal.says(&["why", "fails"]);
    assert!(why.contains("exit code 7") && why.contains("    the last words\n"), "{why}");
}

fn waiting_ends_in_time(terminal: &Terminal) {
    terminal.says(&["submit", "--gpus", "1", "--name", "long", "--", "sleep", "600"]);
    let waited = terminal.output(&["job", "wait", "long", "--timeout", "1s"]);
    assert_eq!(waited.status.code(), Some(124), "{}", String::from_utf8_lossy(&waited.stderr));
    terminal.says(&["job", "wait", "long", "--for", "running"]);
    a_command_runs_beside_it(terminal);
    terminal.says(&["cancel", "long"]);
    let waited = terminal.output(&["job", "wait", "long"]);
    assert_eq!(waited.status.code(), Some(1));
}

fn a_command_runs_beside_it(terminal: &Terminal) {
    let exec = |arguments: &[&str]| terminal.output(&[&["job", "exec", "long"], arguments].concat());
    let ran = exec(&["--", "sh", "-c", "echo $RANK of $WORLD_SIZE; echo aside >&2; printf '\\377'; exit 5"]);
    assert_eq!((ran.stdout.as_slice(), ran.status.code()), (&b"0 of 1\n\xff"[..], Some(5)));
    assert_eq!(ran.stderr, b"aside\n");
    let late = exec(&["--timeout", "1s", "--", "sleep", "60"]);
    assert_eq!(late.status.code(), Some(124), "{}", String::from_utf8_lossy(&late.stderr));
    let missing = exec(&["--rank", "7", "--", "true"]);
    assert_eq!(missing.status.code(), Some(3), "{}", String::from_utf8_lossy(&missing.stderr));
}
