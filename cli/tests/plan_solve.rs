//! `headway plan solve` as scripts use it: the real binary, its pipes and its exit codes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn headway(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headway"));
    command.args(["plan", "solve"]).args(arguments).env("NO_COLOR", "1");
    // No server: an address nobody answers at must not matter.
    command.env("HEADWAY_URL", "http://127.0.0.1:1");
    command
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/plan-solve").join(name)
}

fn fed(arguments: &[&str], input: &str) -> Output {
    let mut child = headway(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn lines(output: &Output) -> Vec<Value> {
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn round(number: u32, jobs: &Value) -> String {
    let nodes = json!([{"gpu_type": "H100", "gpus_per_node": 8, "name": "n"}]);
    json!({"version": 1, "round": number, "nodes": nodes, "jobs": jobs}).to_string()
}

#[test]
fn the_examples_are_solved_the_same_each_time() {
    for name in ["minimal.json", "round.json", "policies.json"] {
        let solve = || headway(&[]).arg(example(name)).output().expect("it runs");
        let (first, second) = (solve(), solve());
        assert!(first.status.success(), "{name}: {}", text(&first.stderr));
        assert_eq!(first.stdout, second.stdout);
        let reply: Value = serde_json::from_slice(&first.stdout).expect("JSON");
        assert_eq!(reply["version"], 1);
    }
}

#[test]
fn a_table_is_for_people() {
    let output = headway(&["-o", "table"]).arg(example("minimal.json")).output().expect("it runs");
    insta::assert_snapshot!(text(&output.stdout));
}

#[test]
fn exit_codes_tell_what_to_do() {
    let missing = headway(&["/nowhere/round.json"]).output().expect("it runs");
    assert_eq!(missing.status.code(), Some(3), "{}", text(&missing.stderr));
    let wrong = fed(&["-"], r#"{"version": 1, "nodes": [{"gpu_type": "H100"}]}"#);
    assert_eq!(wrong.status.code(), Some(2));
    assert_eq!(text(&wrong.stderr), "headway: nodes[0]: missing field `gpus_per_node`\n");
    assert_eq!(headway(&["--policy", "best", "-"]).output().expect("it runs").status.code(), Some(2));
}

#[test]
fn each_line_of_a_stream_is_answered_before_the_next_is_written() {
    let mut child = headway(&["--stream"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut input = child.stdin.take().expect("a pipe");
    let mut replies = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut jobs = json!([{"name": "a", "gpus": 2}]);
    for number in 1..=3 {
        writeln!(input, "{}", round(number, &jobs)).expect("it reads");
        let mut line = String::new();
        replies.read_line(&mut line).expect("it answers");
        let reply: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(reply["round"], number);
        assert_eq!(reply["moves"].as_array().map(Vec::len), Some(usize::from(number == 1)));
        jobs[0]["allocation"] = reply["jobs"][0]["allocation"].clone();
    }
    drop(input);
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn a_bad_line_is_answered_and_the_stream_goes_on() {
    let good = round(2, &json!([{"name": "a", "gpus": 2}]));
    let bad = round(1, &json!([{"name": "a", "gpus": 0}]));
    let output = fed(&["--stream"], &format!("{bad}\nnot JSON\n\n{good}\n{{}}"));
    assert!(output.status.success());
    let replies = lines(&output);
    assert_eq!(replies.len(), 4);
    assert_eq!(replies[0]["round"], 1);
    assert_eq!(replies[0]["error"]["findings"][0]["field"], "jobs[0].gpus");
    assert_eq!(replies[1]["error"]["code"], "document");
    assert_eq!(replies[2]["jobs"][0]["allocation"]["gpus"], 2);
    assert_eq!(replies[3]["error"]["findings"][0]["message"], "missing field `version`");
}

#[test]
fn a_policy_can_be_named_on_the_command_line() {
    let round = round(1, &json!([{"name": "a", "gpus": 2}]));
    let reply = &lines(&fed(&["--stream", "--policy", "static"], &round))[0];
    assert_eq!(reply["policy"], "static");
}

#[test]
fn a_solver_can_be_named_on_the_command_line_and_is_in_the_reply() {
    let round = round(1, &json!([{"name": "a", "gpus": 2}, {"name": "b", "goodput": {"2": 2.0, "4": 3.5, "8": 6.0}}]));
    let (ours, theirs) = (fed(&["--stream"], &round), fed(&["--stream", "--solver", "milp"], &round));
    let (ours, theirs) = (&lines(&ours)[0], &lines(&theirs)[0]);
    assert_eq!(ours.get("solver"), None);
    assert_ne!(theirs["solver"]["name"], "headway");
    assert!(theirs["solver"]["version"].is_string());
    assert_eq!(theirs["jobs"], ours["jobs"]);
    assert_eq!(headway(&["--solver", "best", "-"]).output().expect("it runs").status.code(), Some(2));
}

#[test]
fn who_asks_for_a_solver_that_cannot_take_the_round_gets_no_reply_but_the_reason() {
    let projects: Vec<Value> = (0..300).map(|number| json!({"name": format!("p{number}"), "quota": 8})).collect();
    let nodes = json!([{"gpu_type": "H100", "gpus_per_node": 8}]);
    let mut document = json!({"version": 1, "nodes": nodes, "projects": projects, "jobs": [{"name": "a", "gpus": 2}]});
    let refused = fed(&["--solver", "milp"], &document.to_string());
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0));
    assert!(text(&refused.stderr).contains("use solver: headway"), "{}", text(&refused.stderr));
    document["policy"] = json!({"solver": "milp"});
    let streamed = &lines(&fed(&["--stream"], &document.to_string()))[0];
    assert_eq!(streamed["error"]["code"], "planner");
    assert!(fed(&["--solver", "headway"], &document.to_string()).status.success());
}

#[test]
fn one_round_is_decided_by_every_policy_in_its_way() {
    let policies = ["goodput", "sia", "pollux", "least_attained", "shortest_remaining", "fifo_backfill", "static"];
    let given: Vec<String> = policies
        .iter()
        .map(|policy| {
            let output = headway(&["--policy", policy]).arg(example("policies.json")).output().expect("it runs");
            let reply: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            let jobs = reply["jobs"].as_array().expect("jobs");
            let gpus = jobs.iter().map(|job| format!("{} {}", job["name"], job["allocation"]["gpus"]));
            format!("{policy}: {}", gpus.collect::<Vec<_>>().join(", "))
        })
        .collect();
    insta::assert_snapshot!(given.join("\n"));
}

#[test]
fn a_stored_round_replays_to_its_stored_plan() {
    let stored = include_str!("stored_round.json");
    let output = fed(&["--stored", "-"], stored);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let plan: headway_types::Plan = serde_json::from_slice(&output.stdout).expect("a plan");
    let input: headway_planner::PlanInput = serde_json::from_str(stored).expect("a round");
    let again = headway_planner::plan(&input, &mut headway_planner::CurveCache::new()).expect("a plan");
    assert_eq!(plan, again);
}

#[test]
fn the_python_client_plays_its_simulation_through() {
    let output = Command::new("python3")
        .arg(example("client.py"))
        .args(["--headway", env!("CARGO_BIN_EXE_headway"), "--jobs", "12", "--seed", "3"])
        .output()
        .expect("python3 runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("12 jobs done"), "{}", text(&output.stdout));
}
