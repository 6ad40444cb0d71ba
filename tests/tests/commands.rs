//! Commands that change something, through the real binary on one small cluster: each is held against what the cluster says afterwards.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use headway_tests::{Cluster, soon, until};
use serde_json::{Value, json};

const NOT_FOUND: i32 = 3;
const CONFLICT: i32 = 5;

/// Every rank says who it is. Of the first attempt rank 0 fails once all have; the second ends well.
const TWICE: &str = r#"echo "rank $RANK of $WORLD_SIZE, attempt $HEADWAY_GENERATION"
[ "$HEADWAY_GENERATION" = 1 ] || exit 0
touch "$1/seen-$RANK"
[ "$RANK" = 0 ] || exec sleep 600
until [ -e "$1/seen-1" ] && [ -e "$1/seen-2" ] && [ -e "$1/seen-3" ]; do sleep 0.1; done
exit 3
"#;

#[tokio::test(flavor = "multi_thread")]
async fn commands_do_what_they_say() {
    let cluster = Cluster::start(2, 2).await;
    policies_are_set_by_name(&cluster);
    let directory = cluster.dir().display().to_string();
    let (script, yaml) = (cluster.dir().join("twice.sh"), cluster.dir().join("twice.yaml"));
    std::fs::write(&script, TWICE).unwrap();
    let run = format!("{{per: gpu, command: [sh, {}, {directory}]}}", script.display());
    let job = format!("version: 1\nname: twice\nresources: {{gpus: 4}}\nlimits: {{max_restarts: 1}}\nrun: {run}\n");
    std::fs::write(&yaml, job).unwrap();
    cluster.command(&["submit", yaml.to_str().unwrap()]);
    // While it waits for its second attempt.
    users_and_tokens_come_and_go(&cluster);
    projects_have_the_rules_they_are_given(&cluster);
    logs_are_of_the_rank_and_the_attempt_that_are_asked_for(&cluster).await;
    the_smallest_example_reaches_its_target(&cluster).await;
    an_array_is_acted_on_as_one(&cluster).await;
    jobs_wait_for_a_quota_and_go_where_they_are_told(&cluster).await;
    a_reservation_keeps_others_out(&cluster).await;
    usage_adds_up(&cluster);
    the_audit_has_it_all_and_tells_when_it_was_changed(&cluster).await;
    cluster.stop(&[]).await;
}

/// Waits until what a command tells is as wished, and returns it.
async fn told_when(cluster: &Cluster, arguments: &[&str], holds: impl Fn(&Value) -> bool) -> Value {
    let what = format!("headway {} to tell it", arguments.join(" "));
    until(&what, soon(), || async { Some(cluster.told(arguments)).filter(|told| holds(told)) }).await
}

async fn runs(cluster: &Cluster, job: &str, beyond: u64) -> Value {
    told_when(cluster, &["job", "get", job], |job| {
        job["state"] == "running" && job["generation"].as_u64() > Some(beyond)
    })
    .await
}

fn policies_are_set_by_name(cluster: &Cluster) {
    let before = cluster.told(&["policy", "get"]);
    let set = cluster.told(&["policy", "set", "min_gain=0.05", "round_pause_seconds=0.2", "patience_seconds=null"]);
    let now = cluster.told(&["policy", "show"]);
    assert_eq!(set, now);
    assert_eq!((&now["min_gain"], &now["round_pause_seconds"]), (&json!(0.05), &json!(0.2)));
    assert_eq!((&now["patience_seconds"], &now["mode"]), (&Value::Null, &before["mode"]), "what is not named stays");
    let shown = cluster.command(&["policy", "show"]);
    assert!(shown.lines().any(|line| line.starts_with("min_gain ") && line.ends_with(" 0.05")), "{shown}");
    let (_, told) = cluster.refused(&["policy", "set", "min_gian=0.5"]);
    assert!(told.contains("min_gian"), "{told}");
    assert_eq!(cluster.told(&["policy", "get"]), now, "nothing of it is set");
}

fn users_and_tokens_come_and_go(cluster: &Cluster) {
    cluster.command(&["user", "create", "ada", "--role", "viewer"]);
    assert_eq!(cluster.told(&["user", "show", "ada"])["role"], "viewer");
    let (code, told) = cluster.refused(&["user", "create", "ada"]);
    assert!(code == CONFLICT && told.contains("there is a user ada"), "{told}");
    cluster.command(&["user", "set", "ada", "--role", "user"]);
    cluster.command(&["user", "quota", "ada", "--jobs", "5"]);
    let ada = cluster.told(&["user", "show", "ada"]);
    assert_eq!((&ada["role"], &ada["quota"]["unfinished_jobs"]), (&json!("user"), &json!(5)), "{ada}");

    let made = cluster.told(&["token", "create", "ci", "--user", "ada", "--scope", "viewer", "--ttl", "1h", "--yes"]);
    assert!(made["secret"].as_str().unwrap().starts_with("hw_"), "{made}");
    let list = cluster.told(&["token", "list", "--user", "ada"]);
    let [token] = list.as_array().unwrap().as_slice() else { panic!("{list}") };
    assert_eq!((&token["name"], &token["scope"]), (&json!("ci"), &json!("viewer")));
    assert!(token["expires_at"].is_string() && !list.to_string().contains("hw_"), "{list}");
    cluster.command(&["token", "revoke", "ci"]);
    assert_eq!(cluster.told(&["token", "list", "--user", "ada"]), json!([]));
}

fn projects_have_the_rules_they_are_given(cluster: &Cluster) {
    cluster.command(&["project", "create", "lab", "--quota", "8", "--weight", "2"]);
    cluster.command(&["project", "set", "lab", "--quota", "1", "--borrow", "0"]);
    let lab = cluster.told(&["project", "get", "lab"]);
    assert_eq!((&lab["quota_gpus"], &lab["weight"]), (&json!(1), &json!(2.0)), "what is not named stays: {lab}");
    cluster.command(&["project", "create", "scratch", "--parent", "lab", "--floor", "1"]);
    assert_eq!(cluster.command(&["project", "list", "-o", "name"]), "lab\nscratch\n");
    assert_eq!(cluster.told(&["project", "get", "scratch"])["parent"], "lab");
    cluster.command(&["project", "delete", "scratch"]);
    assert_eq!(cluster.refused(&["project", "get", "scratch"]).0, NOT_FOUND);

    cluster.command(&["project", "member", "add", "lab", "ada", "--role", "admin"]);
    let members = cluster.told(&["project", "member", "list", "lab"]);
    assert_eq!((&members[0]["user"], &members[0]["role"]), (&json!("ada"), &json!("admin")), "{members}");
    let told = cluster.command(&["project", "member", "remove", "lab", "ada"]);
    assert_eq!(told, "ada is no member of project lab itself; it names no members\n");
}

async fn logs_are_of_the_rank_and_the_attempt_that_are_asked_for(cluster: &Cluster) {
    let job = told_when(cluster, &["job", "get", "twice"], |job| job["state"] == "succeeded").await;
    assert_eq!((&job["generation"], &job["restarts"]), (&json!(2), &json!(1)), "{job}");
    // A shell says of its command that it was terminated.
    let said = |line: &&str| !line.ends_with("Terminated");
    let logs = |arguments: &[&str]| {
        let told = cluster.command(&[&["logs", "twice"], arguments].concat());
        told.split_inclusive('\n').filter(|line| said(&line.trim_end())).collect::<String>()
    };
    assert_eq!(logs(&[]), "rank 0 of 4, attempt 2\n");
    assert_eq!(logs(&["--rank", "3"]), "rank 3 of 4, attempt 2\n", "on the other node");
    assert_eq!(logs(&["--rank", "1", "--previous"]), "rank 1 of 4, attempt 1\n");
    assert_eq!(logs(&["--rank", "3", "--attempt", "1"]), "rank 3 of 4, attempt 1\n");
    let lines = |arguments: &[&str]| {
        let told = logs(arguments);
        let mut lines: Vec<String> = told.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let of = |ranks: &[u32], attempt: u32| {
        let line = |rank: &u32| format!("[rank {rank}] rank {rank} of 4, attempt {attempt}");
        ranks.iter().map(line).collect::<Vec<_>>()
    };
    assert_eq!(lines(&["--rank", "all"]), of(&[0, 1, 2, 3], 2));
    assert_eq!(lines(&["--rank", "0,2-3", "--previous", "--since", "1h"]), of(&[0, 2, 3], 1));
    assert_eq!(logs(&["--rank", "1", "--since", "2126-01-01T00:00:00Z"]), "", "nothing is as young as that");
    let timed = logs(&["--rank", "1", "--timestamps"]);
    let (moment, line) = timed.trim_end().split_once(' ').unwrap();
    assert!(moment.ends_with('Z') && line == "rank 1 of 4, attempt 2", "{timed}");
    let (code, told) = cluster.refused(&["logs", "twice", "--previous=2"]);
    assert!(code == NOT_FOUND && told.contains("the job has had 2 attempts"), "{told}");
    assert_eq!(cluster.refused(&["logs", "twice", "--rank", "4"]).0, NOT_FOUND);
}

/// As the quick start has it, but for the clock of its workers.
async fn the_smallest_example_reaches_its_target(cluster: &Cluster) {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/examples/tiny.yaml");
    cluster.command(&["submit", example.to_str().unwrap(), "--env", "HEADWAY_EMULATED_SPEED=40"]);
    let job = told_when(cluster, &["job", "get", "tiny"], |job| job["state"] == "succeeded").await;
    assert!(job["progress_tokens"].as_f64() >= Some(200_000.0), "{job}");
    assert_eq!((&job["project"], &job["labels"]["purpose"]), (&json!("examples"), &json!("first-steps")));
}

async fn an_array_is_acted_on_as_one(cluster: &Cluster) {
    cluster.command(&["submit", "--gpus", "1", "--array", "0-3%1", "--name", "sweep", "--", "sleep", "600"]);
    let get = ["array", "get", "sweep"];
    let count = |array: &Value, state: &str| array["by_state"][state].as_u64().unwrap_or(0);
    let one = told_when(cluster, &get, |array| count(array, "running") == 1).await;
    assert_eq!((&one["count"], &one["parallel"], count(&one, "queued")), (&json!(4), &json!(1), 3), "{one}");
    assert_eq!(cluster.told(&["job", "get", "sweep[3]"])["state"], "queued");

    cluster.command(&["array", "update", "sweep", "--parallel", "2"]);
    told_when(cluster, &get, |array| array["parallel"] == 2 && count(array, "running") == 2).await;
    let told = cluster.command(&["array", "hold", "sweep", "--reason", "a demo"]);
    assert_eq!(told, "array sweep: 4 of 4 elements are held\n");
    told_when(cluster, &get, |array| count(array, "held") == 4).await;
    cluster.command(&["array", "release", "sweep"]);
    told_when(cluster, &get, |array| count(array, "running") == 2 && count(array, "queued") == 2).await;
    cluster.command(&["array", "cancel", "sweep"]);
    told_when(cluster, &get, |array| count(array, "cancelled") == 4).await;
    assert_eq!(cluster.told(&["array", "list"]), json!([]), "nothing of it lives");
    assert_eq!(cluster.told(&["array", "list", "--all"])[0]["name"], "sweep");
}

async fn jobs_wait_for_a_quota_and_go_where_they_are_told(cluster: &Cluster) {
    for name in ["first", "second"] {
        cluster.command(&["submit", "--gpus", "1", "--project", "lab", "--name", name, "--", "sleep", "600"]);
        if name == "first" {
            cluster.command(&["job", "wait", name, "--for", "running"]);
        }
    }
    let waits = |queue: &Value| queue[0]["name"] == "second" && queue[0]["waiting"]["code"] == "quota";
    told_when(cluster, &["queue", "list"], waits).await;
    assert_eq!(cluster.told(&["queue", "list", "--code", "quota", "--project", "lab"]).as_array().unwrap().len(), 1);
    assert_eq!(cluster.told(&["queue", "list", "--user", "nobody"]), json!([]));
    let told = cluster.command(&["queue", "get", "second"]);
    assert!(told.starts_with("second: place 1 of 1\n") && told.contains("the quota of project lab"), "{told}");
    assert_eq!(cluster.told(&["project", "get", "lab"])["gpus"], 1);
    cluster.command(&["project", "set", "lab", "--quota", "none"]);
    cluster.command(&["job", "wait", "second", "--for", "running"]);
    told_when(cluster, &["queue", "list"], |queue| *queue == json!([])).await;

    cluster.command(&["job", "update", "first", "--priority", "70", "--label", "team=x"]);
    let first = cluster.told(&["job", "get", "first"]);
    assert_eq!((&first["priority"], &first["labels"]), (&json!(70), &json!({"team": "x"})), "{first}");
    cluster.command(&["job", "hold", "first", "--reason", "a demo"]);
    let held = told_when(cluster, &["job", "get", "first"], |job| job["state"] == "held").await;
    assert_eq!((&held["state_cause"], &held["gpus"]), (&json!("a demo"), &json!(0)), "{held}");
    let (code, told) = cluster.refused(&["queue", "get", "first"]);
    assert!(code == CONFLICT && told.contains("headway job release first"), "{told}");
    cluster.command(&["job", "release", "first"]);
    runs(cluster, "first", 1).await;

    cluster.command(&["job", "requeue", "second", "--reason", "new code"]);
    runs(cluster, "second", 1).await;
    let events = cluster.command(&["job", "events", "second"]);
    assert!(events.contains("puts second back into the queue: new code"), "{events}");
    cluster.command(&["job", "resize", "second", "2"]);
    let second =
        told_when(cluster, &["job", "get", "second"], |job| job["gpus"] == 2 && job["state"] == "running").await;
    assert_eq!((&second["gpus_min"], &second["gpus_max"]), (&json!(2), &json!(2)));
    cluster.command(&["cancel", "first", "second"]);
}

async fn a_reservation_keeps_others_out(cluster: &Cluster) {
    let nodes = ["--node", "node-1", "--node", "node-2"];
    cluster.command(&[&["reservation", "create", "night", "--for", "1h", "--user", "ada"], nodes.as_slice()].concat());
    let all = cluster.told(&["reservation", "list"]);
    assert_eq!((&all[0]["name"], &all[0]["nodes"]), (&json!("night"), &json!(["node-1", "node-2"])), "{all}");
    assert_eq!((&all[0]["users"], &all[0]["active"]), (&json!(["ada"]), &json!(true)), "{all}");
    cluster.command(&["submit", "--gpus", "1", "--name", "barred", "--", "sleep", "600"]);
    let waits = |queue: &Value| queue[0]["name"] == "barred" && queue[0]["waiting"]["code"] == "reserved";
    told_when(cluster, &["queue", "list"], waits).await;
    assert_eq!(cluster.command(&["reservation", "delete", "night"]), "reservation night is gone\n");
    assert_eq!(cluster.told(&["reservation", "list"]), json!([]));
    runs(cluster, "barred", 0).await;
    cluster.command(&["cancel", "barred"]);
}

fn usage_adds_up(cluster: &Cluster) {
    let report = cluster.told(&["usage", "report", "--by", "project"]);
    let hours = |row: &Value| row["gpu_hours"].as_f64().unwrap();
    let (rows, total) = (report["items"].as_array().unwrap(), report["total_gpu_hours"].as_f64().unwrap());
    assert!(total > 0.0 && (rows.iter().map(hours).sum::<f64>() - total).abs() < 1e-9, "{report}");
    let projects: Vec<&str> = rows.iter().map(|row| row["project"].as_str().unwrap()).collect();
    assert!(["default", "examples", "lab"].iter().all(|project| projects.contains(project)), "{projects:?}");
    let table = cluster.command(&["usage", "report", "--by", "user,project", "-o", "csv"]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!((lines[0], lines.len()), ("user,project,gpu_hours,share,jobs", 1 + rows.len()), "{table}");
    assert!(lines[1..].iter().all(|line| line.starts_with("admin,") && line.split(',').count() == 5), "{table}");
}

async fn the_audit_has_it_all_and_tells_when_it_was_changed(cluster: &Cluster) {
    let of_lab = cluster.told(&["audit", "list", "--subject", "project:lab", "--action", "put_project"]);
    let newest = &of_lab[0];
    assert_eq!((&newest["actor"], &newest["result"]), (&json!("user:admin"), &json!("done")), "{of_lab}");
    assert_eq!(of_lab.as_array().unwrap().len(), 3, "it was created, and changed twice: {of_lab}");
    let table = cluster.command(&["audit", "list", "--subject", "project:lab", "--limit", "1"]);
    assert!(table.contains("put_project") && table.contains("rules.quota 1 -> -"), "{table}");

    let head = told_when(cluster, &["audit", "head"], |head| head["unsealed"] == 0).await;
    let anchor = head["anchor"].as_str().unwrap();
    let told = cluster.told(&["audit", "verify", "--head", anchor]);
    assert_eq!((&told["broken"], told["rows"].as_u64() >= head["sealed"].as_u64()), (&Value::Null, true), "{told}");
    let file = cluster.dir().join("audit.jsonl");
    let path = file.to_str().unwrap();
    let lines = cluster.command(&["audit", "export"]);
    std::fs::write(&file, &lines).unwrap();
    let told = cluster.command(&["audit", "verify", path]);
    assert!(told.starts_with(&format!("{} rows are as they were sealed", lines.lines().count())), "{told}");
    assert!(lines.contains("project:lab"), "{lines}");
    std::fs::write(&file, lines.replace("project:lab", "project:lob")).unwrap();
    let (code, told) = cluster.refused(&["audit", "verify", path]);
    assert!(code == 1 && told.contains("is changed"), "{told}");
    let table = cluster.command(&["audit", "export", "-o", "csv"]);
    assert_eq!(table.lines().count(), 1 + lines.lines().count(), "a header and the same rows");
}
