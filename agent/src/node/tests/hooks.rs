//! Hooks and notices with real processes.

use headway_types::spec::{Hooks, Notice, NoticeSignal, NoticeTo};
use headway_types::{Blame, Fault};

use super::*;

fn hooks(prolog: Option<&str>, epilog: Option<&str>) -> Hooks {
    Hooks { prolog: prolog.map(str::to_owned), epilog: epilog.map(str::to_owned), timeout: Seconds(20.0) }
}

async fn not_started(agent: &Agent, order: &LaunchOrder) -> Fault {
    agent.command(AgentCommand::Prepare { order: Box::new(order.clone()) }).await;
    match agent.ended().await {
        GroupOutcome::NotStarted { fault } => fault,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn hooks_run_around_an_attempt_and_write_to_its_output() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    let mut order = agent.order(&dir, 1, "echo training; exit 7");
    order.run.hooks = hooks(
        Some("echo checking {job_name} at {master_port}"),
        Some("echo ended $HEADWAY_OUTCOME $HEADWAY_EXIT_CODE"),
    );
    agent.launch(&order).await;
    let outcome = agent.ended().await;
    assert!(matches!(outcome, GroupOutcome::Failed { exit_code: Some(7), .. }), "{outcome:?}");
    let output = std::fs::read_to_string(agent.files.log(order.job, order.generation, 0)).unwrap();
    let lines: Vec<&str> = output.lines().collect();
    assert!(lines[0].starts_with("--- headway: prolog on node ") && lines[1].starts_with("checking "), "{output}");
    assert!(lines[1].ends_with(" at 0"), "no port is held for it: {output}");
    assert!(lines[2].starts_with("--- headway: prolog exited with code 0 after "), "{output}");
    assert_eq!((lines[3], lines[5]), ("training", "ended failed 7"), "{output}");
}

#[tokio::test]
async fn a_prolog_that_fails_names_the_node_the_code_and_its_last_lines() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    let mut order = agent.order(&dir, 1, "true");
    order.run.hooks = hooks(Some("echo the store is gone >&2; exit 4"), None);
    let fault = not_started(&agent, &order).await;
    let name = &agent.inventory.now().name;
    assert_eq!(fault.message, format!("the prolog on node {name} exited with code 4: the store is gone"));
    assert_eq!((fault.blame, fault.mistake), (Blame::Job, false), "what a job's text can do is no word against a node");
    let mut missing = agent.order(&dir, 2, "true");
    missing.run.hooks = hooks(Some("/no/such/check.sh"), None);
    let fault = not_started(&agent, &missing).await;
    assert_eq!((fault.blame, fault.mistake), (Blame::Job, true), "another node may have it: {}", fault.message);
}

#[tokio::test]
async fn a_hook_that_takes_too_long_is_ended_with_all_it_has_started() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    let pid = dir.path().join("pid");
    let mut order = agent.order(&dir, 1, "true");
    let line = format!("sleep 600 & echo $! > {}; wait", pid.display());
    order.run.hooks = Hooks { timeout: Seconds(0.5), ..hooks(Some(&line), None) };
    let fault = not_started(&agent, &order).await;
    assert!(fault.blame == Blame::Job && fault.message.contains("was ended after"), "{fault:?}");
    let pid = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    assert!(!crate::process::tests::exists(pid));
}

#[tokio::test]
async fn a_stop_ends_a_prolog_before_the_group_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    let mut order = agent.order(&dir, 1, "true");
    let pid = dir.path().join("pid");
    order.run.hooks = hooks(Some(&format!("echo $$ > {0}.new; mv {0}.new {0}; sleep 600", pid.display())), None);
    agent.command(AgentCommand::Prepare { order: Box::new(order.clone()) }).await;
    let text = eventually(|| std::fs::read_to_string(&pid).ok()).await;
    agent.stop(&order, StopMode::Kill).await;
    assert_eq!(agent.ended().await, GroupOutcome::Stopped);
    assert!(!crate::process::tests::exists(text.trim().parse().unwrap()));
}

#[tokio::test]
async fn the_prolog_of_a_group_that_was_stopped_before_does_not_begin() {
    let dir = tempfile::tempdir().unwrap();
    let site = fixture::site(dir.path());
    let mut order = fixture::order(&site.inventory.now(), 1, "true");
    order.run.hooks = hooks(Some("true"), None);
    let withdrawn = CancellationToken::new();
    withdrawn.cancel();
    let fault = crate::hooks::prolog(&order, &site, None, &withdrawn).await.unwrap_err();
    assert_eq!((fault.blame, &*fault.message), (Blame::Infrastructure, "the group was stopped before its prolog"));
    assert!(!site.files.group(order.job, order.generation).exists());
}

#[test]
fn an_epilog_whose_user_is_not_found_in_time_does_not_run_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    // The only thread that could look users up waits for something else.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    let (done, busy) = std::sync::mpsc::channel::<()>();
    runtime.spawn_blocking(move || busy.recv());
    runtime.block_on(async {
        let site = fixture::site(dir.path());
        let mut order = fixture::order(&site.inventory.now(), 1, "true");
        order.run.hooks = Hooks { timeout: Seconds(0.1), ..hooks(None, Some("echo ended")) };
        site.files.make_group(order.job, order.generation, None).unwrap();
        let log = site.files.log(order.job, order.generation, 0);
        std::fs::write(&log, "trained\n").unwrap();
        crate::hooks::epilog(&order, &site, &GroupOutcome::Succeeded).await;
        let output = std::fs::read_to_string(&log).unwrap();
        assert!(output.starts_with("trained\n--- headway: epilog did not run: looking up user "), "{output}");
    });
    drop(done);
}

#[tokio::test]
async fn an_agent_that_is_killed_in_a_hook_leaves_nothing_of_it_to_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    let pid = dir.path().join("pid");
    let note = format!("echo $$ >> {}", pid.display());
    let mut order = agent.order(&dir, 1, "true");
    // The second time it ends by itself.
    let line = format!("{note}; [ $(wc -l < {}) -gt 1 ] || sleep 600", pid.display());
    order.run.hooks = hooks(None, Some(&line));
    agent.launch(&order).await;
    let first = eventually(|| std::fs::read_to_string(&pid).ok().filter(|text| text.ends_with('\n'))).await;
    agent.die().await;
    let agent = Agent::start(dir.path(), 1);
    assert_eq!(agent.ended().await, GroupOutcome::Succeeded);
    assert!(!crate::process::tests::exists(first.trim().parse().unwrap()));
}

#[tokio::test]
async fn a_notice_reaches_those_who_handle_it_and_harms_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    // The command itself does not handle it; of its children one does.
    let child = "trap 'echo heard; exit 0' USR1; echo ready; while :; do sleep 0.1; done";
    let mut order = agent.order(&dir, 1, &format!("sleep 600 & sh -c \"{child}\"; echo done; kill $!"));
    order.notice = Some(Notice { signal: NoticeSignal::Usr1, before: Seconds(1.0), to: NoticeTo::Handlers });
    agent.launch(&order).await;
    agent.output(&order, 0, "ready").await;
    let (job, generation) = (order.job, order.generation);
    agent.command(AgentCommand::Notify { job, generation, number: 1 }).await;
    assert_eq!(agent.ended().await, GroupOutcome::Succeeded);
    let output = agent.output(&order, 0, "done").await;
    assert_eq!(output, "ready\nheard\ndone\n");
}

#[tokio::test]
async fn a_notice_to_the_command_spares_its_children() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(dir.path(), 1);
    let child = "trap 'echo child' USR1; while :; do sleep 0.1; done";
    let line = format!(
        "trap 'echo command; kill $c; exit 0' USR1; sh -c \"{child}\" & c=$!; sleep 1; echo ready; while :; do sleep 0.1; done"
    );
    let mut order = agent.order(&dir, 1, &line);
    order.notice = Some(Notice { signal: NoticeSignal::Usr1, before: Seconds(1.0), to: NoticeTo::Command });
    agent.launch(&order).await;
    agent.output(&order, 0, "ready").await;
    let (job, generation) = (order.job, order.generation);
    agent.command(AgentCommand::Notify { job, generation, number: 1 }).await;
    assert_eq!(agent.ended().await, GroupOutcome::Succeeded);
    assert_eq!(agent.output(&order, 0, "command").await, "ready\ncommand\n");
}
