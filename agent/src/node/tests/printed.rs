//! Steps read from what an untouched script prints.

use headway_types::spec::{PrintedProgress, PrintingRank};
use headway_types::{Sequences, StepReport};

use super::*;

fn printing(order: LaunchOrder, rank: PrintingRank) -> LaunchOrder {
    let progress = PrintedProgress {
        regex: r"step (?P<step>\d+) loss (?P<loss>\S+) in (?P<seconds>\S+) s".into(),
        rank,
        samples_per_step: Some(Sequences(8)),
        tokens_per_step: None,
        sequence_length: Some(64),
    };
    LaunchOrder { run: headway_types::spec::Run { progress: Some(progress), ..order.run }, ..order }
}

async fn steps(agent: &Agent) -> StepReport {
    loop {
        if let NodeReport::Steps { report } = agent.report().await {
            return *report;
        }
    }
}

/// A rank that prints a step, waits for the word and prints another as its last.
fn script(dir: &TempDir, rank: u32) -> String {
    let go = dir.path().join("go").display().to_string();
    format!(
        "[ $RANK = {rank} ] || exit 0; echo step 12 loss 3.4 in 0.5 s; while [ ! -e {go} ]; do sleep 0.05; done; printf 'step 15 loss 3.1 in 0.5 s'"
    )
}

#[tokio::test]
async fn a_shell_script_tells_its_steps_up_to_its_last_word() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 2);
    let order = printing(agent.order(&dir, 1, &script(&dir, 1)), PrintingRank::Last);
    agent.launch(&order).await;
    let first = steps(&agent).await;
    assert_eq!((first.step, first.steps, first.samples_seen, first.duration), (12, 1, Sequences(96), Seconds(0.5)));
    std::fs::write(dir.path().join("go"), "").unwrap();
    let told = steps(&agent).await;
    assert_eq!((told.step, told.steps, told.samples_seen, told.loss), (15, 3, Sequences(120), Some(3.1)));
    assert_eq!(told.duration, Seconds(1.5));
    assert_eq!(agent.ended().await, GroupOutcome::Succeeded);
}

/// What `case nan.py` prints: a loss that is lost at step 41 and stays so.
#[tokio::test]
async fn a_printed_loss_that_is_lost_is_reported_and_named_where_the_job_fails() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 2);
    let line = r#"[ $RANK = 0 ] || exit 0; i=0; while [ $i -lt 60 ]; do
        if [ $i -gt 40 ]; then loss=nan; else loss=2.$((60 - i)); fi
        echo "step $i loss $loss in 0.1 s"; i=$((i + 1)); done; exit 3"#;
    let order = printing(agent.order(&dir, 1, line), PrintingRank::First);
    agent.launch(&order).await;
    let (step, loss) = loop {
        if let NodeReport::LossAnomaly { step, loss, .. } = agent.report().await {
            break (step, loss);
        }
    };
    assert_eq!((step, loss), (41, None));
    let outcome = format!("{:?}", agent.ended().await);
    assert!(outcome.contains("its loss was no finite number at step 41"), "{outcome}");
}
