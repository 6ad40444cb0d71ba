//! Secrets reach workers' environments and nothing else on the node.

use std::path::PathBuf;

use headway_api::secret::Secret;
use headway_types::Blame;

use super::*;

const VALUE: &str = "hunter22-of-the-team";

fn secrets() -> Secrets {
    [("HF_TOKEN".to_owned(), Secret::new(VALUE))].into()
}

fn of_needing(mut order: LaunchOrder) -> LaunchOrder {
    order.run.secrets.insert("HF_TOKEN".into(), "team-hf".into());
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

#[tokio::test]
async fn a_worker_has_its_secret_and_no_file_of_the_agent_does() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    let order = of_needing(agent.order(&dir, 1, "echo ${#HF_TOKEN} letters; sleep 60"));
    agent.launch_with(&order, secrets()).await;
    agent.output(&order, 0, &format!("{} letters", VALUE.len())).await;
    assert_eq!(holding(dir.path(), VALUE), Vec::<PathBuf>::new());
    agent.stop(&order, StopMode::Kill).await;
    assert_eq!(agent.ended().await, GroupOutcome::Stopped);
    assert_eq!(holding(dir.path(), VALUE), Vec::<PathBuf>::new());
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
