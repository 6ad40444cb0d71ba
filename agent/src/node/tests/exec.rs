//! Commands beside a rank, with real processes.

use headway_api::agent::{ExecEnded, ExecPiece, ExecRequest, ExecStart};
use uuid::Uuid;

use super::*;

/// Beside rank 0 of generation 1, with all it wrote when it is over.
pub(super) struct Told {
    pub(super) stdout: String,
    stderr: String,
    ended: ExecEnded,
}

fn start(order: &LaunchOrder, line: &str, timeout: f64) -> ExecRequest {
    let command = ["sh", "-c", line].map(String::from).into();
    let (job, generation) = (order.job, order.generation);
    let start = ExecStart { job, generation, rank: 0, command, timeout: Seconds(timeout) };
    ExecRequest { request_id: 1, exec: Uuid::now_v7(), start: Some(start) }
}

async fn rest(agent: &Agent, exec: Uuid, mut piece: ExecPiece) -> Told {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    loop {
        assert_eq!(piece.error, None);
        assert!(piece.stdout.len() <= 64 * 1024 && piece.stderr.len() <= 64 * 1024);
        stdout.append(&mut piece.stdout);
        stderr.append(&mut piece.stderr);
        if let Some(ended) = piece.ended {
            let text = |bytes| String::from_utf8(bytes).unwrap();
            return Told { stdout: text(stdout), stderr: text(stderr), ended };
        }
        piece = agent.execs.answer(ExecRequest { request_id: 2, exec, start: None }).await;
    }
}

pub(super) async fn told(agent: &Agent, order: &LaunchOrder, line: &str) -> Told {
    let request = start(order, line, 20.0);
    let exec = request.exec;
    let first = agent.execs.answer(request).await;
    rest(agent, exec, first).await
}

async fn running(dir: &TempDir) -> (Agent, LaunchOrder) {
    let agent = Agent::start(dir.path(), 1);
    let mut order = agent.order(dir, 1, "sleep 600");
    order.run.workdir = Some(dir.path().display().to_string());
    agent.launch(&order).await;
    agent.phase(|phase| matches!(phase, GroupPhase::Running)).await;
    (agent, order)
}

#[tokio::test]
async fn a_command_finds_what_its_rank_found_and_its_output_and_end_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let (agent, order) = running(&dir).await;
    let line = "echo rank $RANK of $WORLD_SIZE in $PWD; echo ${HEADWAY_SECRET-none} >&2; exit 5";
    let said = told(&agent, &order, line).await;
    let here = dir.path().canonicalize().unwrap();
    assert_eq!(said.stdout, format!("rank 0 of 1 in {}\n", here.display()));
    assert_eq!((said.stderr.as_str(), said.ended.exit_code), ("none\n", Some(5)), "it speaks to nobody");

    let much = told(&agent, &order, "yes 0123456 | head -c 4000000; sleep 600 &").await;
    assert_eq!((much.stdout.len(), much.ended.exit_code), (4_000_000, Some(0)), "what it leaves behind is ended");
    assert_eq!(told(&agent, &order, "kill -TERM $$").await.ended.signal, Some(15));
    agent.stop(&order, StopMode::Kill).await;
    agent.ended().await;
}

#[tokio::test]
async fn a_command_ends_with_its_time_and_with_its_job() {
    let dir = tempfile::tempdir().unwrap();
    let (agent, order) = running(&dir).await;
    let short = start(&order, "trap '' TERM; sleep 600", 0.2);
    let exec = short.exec;
    let first = agent.execs.answer(short).await;
    assert!(rest(&agent, exec, first).await.ended.timed_out);

    let long = start(&order, "echo here; sleep 600", 600.0);
    let exec = long.exec;
    let first = agent.execs.answer(long).await;
    assert_eq!(first.stdout, b"here\n");
    agent.stop(&order, StopMode::Kill).await;
    agent.ended().await;
    let ended = rest(&agent, exec, first).await.ended;
    assert_eq!((ended.signal, ended.timed_out), (Some(9), false));
    let late = agent.execs.answer(start(&order, "true", 1.0)).await;
    assert_eq!(late.error.as_deref(), Some("generation g1 of the job does not run on this node"));
    let over = agent.execs.answer(ExecRequest { request_id: 3, exec, start: None }).await;
    assert!(over.error.is_some(), "the end was told once");
}

#[tokio::test]
async fn a_node_runs_so_many_commands_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (agent, order) = running(&dir).await;
    for _ in 0..8 {
        assert_eq!(agent.execs.answer(start(&order, "echo; sleep 600", 600.0)).await.error, None);
    }
    let ninth = agent.execs.answer(start(&order, "true", 1.0)).await;
    assert_eq!(ninth.error.as_deref(), Some("8 commands run on this node already; wait until one has ended"));
    agent.stop(&order, StopMode::Kill).await;
    agent.ended().await;
}
