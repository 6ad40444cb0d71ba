//! Secrets reach workers and nothing else on the node: as open files, or as variables where the job says so.

use std::path::PathBuf;

use headway_api::secret::Secret;
use headway_types::Blame;

use super::*;

/// Of this test alone: others run beside it.
fn value() -> String {
    format!("hunter22-of-{}", std::process::id())
}

fn secrets() -> Secrets {
    [("HF_TOKEN".to_owned(), Secret::new(value()))].into()
}

fn of_needing(mut order: LaunchOrder) -> LaunchOrder {
    order.run.secrets.insert("HF_TOKEN".into(), "team-hf".into());
    order.run.secret_files.insert("HF_TOKEN".into());
    order
}

/// Every file below a directory that holds the text.
fn holding(dir: &Path, text: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => holding(&path, text),
            false => {
                let bytes = std::fs::read(&path).unwrap_or_default();
                let holds = bytes.windows(text.len()).any(|window| window == text.as_bytes());
                holds.then_some(path).into_iter().collect()
            }
        })
        .collect()
}

/// Processes whose environment or arguments show the text.
fn showing(text: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let processes = processes.filter(|path| !path.ends_with(&own));
    let shown = |path: &PathBuf| {
        ["environ", "cmdline"].iter().any(|file| {
            let shown = std::fs::read(path.join(file)).unwrap_or_default();
            shown.windows(text.len()).any(|window| window == text.as_bytes())
        })
    };
    processes.filter(shown).map(|path| path.display().to_string()).collect()
}

/// Asks by the path, twice, below a program that hands on no descriptors, and by the descriptor; says how many letters each found, then stays.
const ASKS: &str = r#"
echo path $(cat "$HF_TOKEN_FILE" | wc -c) $(cat "$HF_TOKEN_FILE" | wc -c)
echo child $(python3 -c 'import subprocess; print(subprocess.run(["sh", "-c", "cat $HF_TOKEN_FILE"], close_fds=True, capture_output=True).stdout)' | wc -c)
echo descriptor $(eval "cat <&$HEADWAY_SECRET_HF_TOKEN_FD" | wc -c) $(cat /proc/self/fd/$HEADWAY_SECRET_HF_TOKEN_FD | wc -c)
echo variable ${HF_TOKEN-none}
sleep 60
"#;

#[tokio::test]
async fn a_worker_reads_its_secret_from_a_file_in_memory_and_nothing_else_on_the_node_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    let order = of_needing(agent.order(&dir, 1, ASKS));
    agent.launch_with(&order, secrets()).await;
    let said = agent.output(&order, 0, "variable").await;
    // Python shows bytes as b'…'.
    let (length, shown) = (value().len(), value().len() + "b''\n".len());
    let expected = format!("path {length} {length}\nchild {shown}\ndescriptor {length} {length}\nvariable none\n");
    assert_eq!(said, expected);
    assert_eq!(showing(&value()), Vec::<String>::new());
    assert_eq!(holding(dir.path(), &value()), Vec::<PathBuf>::new());

    let beside = super::exec::told(&agent, &order, "env; ls -l /proc/self/fd").await.stdout;
    assert!(beside.contains("HEADWAY_JOB_ID") && !beside.contains("HF_TOKEN"), "{beside}");
    agent.stop(&order, StopMode::Kill).await;
    assert_eq!(agent.ended().await, GroupOutcome::Stopped);
    assert_eq!(holding(dir.path(), &value()), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_job_that_asks_for_variables_gets_variables() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    let line = "echo ${#HF_TOKEN} letters, file ${HF_TOKEN_FILE-none}; ls /proc/self/fd | wc -w; sleep 60";
    let mut order = of_needing(agent.order(&dir, 1, line));
    order.run.secret_files.clear();
    agent.launch_with(&order, secrets()).await;
    agent.output(&order, 0, &format!("{} letters, file none\n", value().len())).await;
    assert_eq!(holding(dir.path(), &value()), Vec::<PathBuf>::new());
    agent.stop(&order, StopMode::Kill).await;
    assert_eq!(agent.ended().await, GroupOutcome::Stopped);
}

#[tokio::test]
async fn a_launch_without_a_secret_that_its_order_names_starts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    let order = of_needing(agent.order(&dir, 1, "echo up"));
    agent.launch(&order).await;
    let outcome = agent.ended().await;
    let names_it = |fault: &Fault| fault.blame == Blame::Job && fault.message.contains("headway secret set team-hf");
    assert!(matches!(&outcome, GroupOutcome::NotStarted { fault } if names_it(fault)), "{outcome:?}");
    assert!(!agent.files.log(order.job, order.generation, 0).exists());
}
