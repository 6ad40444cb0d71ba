//! Rebalancing as people go through it, all of it through the real binary: a proposal is made, looked at, refused under a wrong name,
//! approved, followed, measured, and taken back.
#![allow(clippy::unwrap_used)]

use headway_tests::job::EmulatedJob;
use headway_tests::{Cluster, soon, until};
use serde_json::{Value, json};

/// Exit code of what is refused since things are otherwise (409).
const CONFLICT: i32 = 5;

/// A job of these sizes whose batch is fixed: nothing but GPUs changes, and no target is replaced by one with another batch.
fn submit(cluster: &Cluster, name: &str, sizes: &str) {
    let job = EmulatedJob { min_gpus: 1, speed: 10.0, ..EmulatedJob::named(name) }.yaml();
    let changes = [
        ("gpus: {min: 1, max: 8}", format!("gpus: {{sizes: [{sizes}]}}")),
        ("reference_batch: 32 sequences", "reference_batch: 64 sequences".to_owned()),
        ("batch: {min: 8 sequences, max: 256 sequences}", "batch: {min: 64 sequences, max: 64 sequences}".to_owned()),
    ];
    let job = changes.iter().fold(job, |job, (from, to)| {
        assert!(job.contains(from), "{from}: {job}");
        job.replace(from, to)
    });
    let file = cluster.dir().join(format!("{name}.yaml"));
    std::fs::write(&file, job).unwrap();
    cluster.command(&["submit", file.to_str().unwrap()]);
}

/// Waits until a job trains on so many GPUs, and returns it.
async fn trains(cluster: &Cluster, name: &str, gpus: u32, samples: u64) -> Value {
    until(&format!("{name} to train on {gpus} GPUs"), soon(), || async {
        let job = cluster.told(&["job", "get", name]);
        let trains = job["state"] == "running" && job["gpus"] == gpus && job["goodput_tokens_per_second"].is_number();
        (trains && job["samples_seen"].as_u64() >= Some(samples)).then_some(job)
    })
    .await
}

/// What a plan moves, as "one 8 -> 4".
fn moves(plan: &Value) -> Vec<String> {
    let told = |one: &Value| format!("{} {} -> {}", text(one, "job_name"), one["from_gpus"], one["to_gpus"]);
    let mut moves: Vec<String> = plan["moves"].as_array().unwrap().iter().map(told).collect();
    moves.sort();
    moves
}

fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of[field].as_str().unwrap_or_else(|| panic!("{field}: {of}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_rebalanced_when_somebody_approves_and_put_back() {
    let cluster = Cluster::start(2, 4).await;
    cluster.command(&["policy", "set", "mode=advisory", "round_pause_seconds=0.2"]);
    submit(&cluster, "one", "4, 8");
    trains(&cluster, "one", 8, 1_000).await;
    submit(&cluster, "two", "2, 4");

    let made_by_itself = a_proposal_comes_by_itself(&cluster).await;
    let paused = cluster.command(&["plan", "pause", "--reason", "somebody decides"]);
    assert_eq!(paused, "the mode of planning is paused\n");
    let (code, told) = cluster.refused(&["plan", "pause"]);
    assert!(code == CONFLICT && told.contains("planning is paused already"), "{told}");

    let first = only_what_was_looked_at_is_approved(&cluster, &made_by_itself);
    what_it_brought_is_in_the_history(&cluster, &first).await;
    let second = a_rebalancing_leaves_out_whom_it_is_told_to(&cluster).await;
    a_rejected_proposal_moves_nobody(&cluster);
    what_was_moved_is_taken_back(&cluster, &second).await;

    assert_eq!(cluster.command(&["plan", "resume"]), "the mode of planning is advisory\n");
    assert_eq!(cluster.told(&["policy", "show"])["mode"], "advisory");
    let events = cluster.command(&["events"]);
    assert!(events.contains("until planning is resumed: somebody decides"), "{events}");
    cluster.stop(&[]).await;
}

/// The newcomer gets nothing before somebody has approved what makes room for it.
async fn a_proposal_comes_by_itself(cluster: &Cluster) -> String {
    let id = until("a proposal that makes room", soon(), || async {
        let plans = cluster.told(&["plan", "list"]);
        let waits = |plan: &&Value| plan["state"] == "proposed" && plan["moves"].as_u64() > Some(0);
        Some(text(plans.as_array().unwrap().iter().find(waits)?, "id").to_owned())
    })
    .await;
    let shown = cluster.told(&["plan", "show", &id]);
    assert_eq!(moves(&shown), ["one 8 -> 4", "two 0 -> 4"], "{shown}");
    assert!(shown["moves"][0]["outcome"].is_null() && text(&shown, "hash").len() == 64, "{shown}");
    let told = cluster.command(&["plan", "show", &id]);
    assert!(told.contains("(proposed), made because") && told.contains("waits for approval until"), "{told}");
    assert_eq!(cluster.told(&["job", "get", "two"])["state"], "queued");
    id
}

/// A newer proposal takes the place of the first; neither that one nor another hash is approved.
fn only_what_was_looked_at_is_approved(cluster: &Cluster, stale: &str) -> String {
    let proposal = cluster.told(&["plan", "rebalance", "--propose", "--reason", "make room"]);
    let (id, hash) = (text(&proposal, "id"), text(&proposal, "hash"));
    assert_eq!(moves(&proposal), ["one 8 -> 4", "two 0 -> 4"], "{proposal}");
    let (code, told) = cluster.refused(&["plan", "approve", stale]);
    assert!(code == CONFLICT && told.contains("is stale and no longer waits for approval"), "{told}");
    assert!(told.contains(&format!("plan {id} waits for approval")), "{told}");
    let (code, told) = cluster.refused(&["plan", "approve", id, "--hash", &"0".repeat(64)]);
    assert!(code == CONFLICT && told.contains("is not the plan that was looked at"), "{told}");

    let diff = cluster.told(&["plan", "diff", id]);
    let changes = diff["changes"].as_array().unwrap();
    let change = |name: &str| changes.iter().find(|one| one["job_name"] == name).unwrap();
    assert_eq!((&diff["to_id"], changes.len()), (&json!(id), 2), "{diff}");
    assert_eq!((&change("one")["to_gpus"], &change("two")["from_nodes"]), (&json!(4), &json!([])), "{diff}");
    let told = cluster.command(&["plan", "diff", id]);
    assert!(told.contains("objective") && told.contains("8 -> 4") && told.contains("none -> node-"), "{told}");

    let adopted = cluster.told(&["plan", "approve", id, "--hash", hash]);
    assert_eq!((&adopted["state"], &adopted["hash"]), (&json!("adopted"), &json!(hash)));
    id.to_owned()
}

/// Moves are followed until they are done; what the plan was to gain stands beside what it gained, here as over REST.
async fn what_it_brought_is_in_the_history(cluster: &Cluster, id: &str) {
    let known = ["waiting", "stopping", "starting", "done"];
    until("all moves to be done, and to be measured for a while", soon(), || async {
        let shown = cluster.told(&["plan", "show", id]);
        let outcomes: Vec<&Value> = shown["moves"].as_array().unwrap().iter().map(|one| &one["outcome"]).collect();
        assert!(outcomes.iter().all(|came| known.contains(&text(came, "state"))), "{shown}");
        let measured = |came: &&Value| came["state"] == "done" && came["measured_seconds"].as_f64() >= Some(4.0);
        outcomes.iter().all(measured).then_some(())
    })
    .await;
    let told = cluster.command(&["plan", "show", id]);
    let of_one = told.lines().skip_while(|line| !line.starts_with("MOVE OF")).find(|line| line.starts_with("one "));
    assert!(of_one.is_some_and(|line| line.contains("done")), "{told}");
    trains(cluster, "one", 4, 1_000).await;
    trains(cluster, "two", 4, 1).await;

    let history = cluster.told(&["plan", "history"]);
    let past = history.as_array().unwrap().iter().find(|past| past["id"] == id).unwrap();
    let counts = ["starts", "moves", "done", "under_way", "overtaken"].map(|of| past[of].as_u64().unwrap());
    assert_eq!((counts, &past["adopted_by"]), ([1, 1, 1, 0, 0], &json!("user:admin")), "{past}");
    let gain = |of: &str| past[of].as_f64().filter(|gain| gain.is_finite()).unwrap_or_else(|| panic!("{of}: {past}"));
    let (predicted, realised) = (gain("predicted_gain_pct"), gain("realised_gain_pct"));
    assert!((-75.0..0.0).contains(&predicted), "half its GPUs cost it some goodput: {past}");
    assert!((realised - predicted).abs() < 40.0, "{past}");
    assert!(gain("realised_lost_gpu_hours") > 0.0 && gain("predicted_lost_gpu_hours") > 0.0, "{past}");
    let rest = cluster.client.plan_history(None, Some(50)).await.unwrap();
    let rest = rest.items.iter().find(|past| past.id.to_string() == id).unwrap();
    assert_eq!((rest.predicted_gain_pct, rest.done), (Some(predicted), 1));
    assert!(rest.realised_gain_pct.is_some_and(f64::is_finite), "{rest:?}");
    let row = cluster.command(&["plan", "history", "--limit", "1"]);
    assert!(row.contains("1 of 1") && row.contains(" %"), "{row}");
}

/// A size that somebody forces, carried out at once and followed to its end; who is left out keeps its generation, whatever is forced.
async fn a_rebalancing_leaves_out_whom_it_is_told_to(cluster: &Cluster) -> String {
    let before = cluster.told(&["job", "get", "one"]);
    let forced = ["plan", "rebalance", "--force", "two=2", "--exclude", "one"];
    let told = cluster.command(&[&forced, ["--yes", "--wait", "--timeout", "60"].as_slice()].concat());
    assert!(told.contains("is adopted\n") && told.contains("two (4 -> 2 GPUs): done, stood still for "), "{told}");
    trains(cluster, "two", 2, 1).await;
    let after = cluster.told(&["job", "get", "one"]);
    assert_eq!((&after["generation"], &after["gpus"]), (&before["generation"], &json!(4)), "it never noticed");
    let plan = cluster.told(&["plan", "show"]);
    assert_eq!((moves(&plan), &plan["terms"]["exclude"]), (vec!["two 4 -> 2".to_owned()], &json!([before["id"]])));

    let (code, told) = cluster.refused(&["plan", "rebalance", "--force", "one=8", "--exclude", "two", "--propose"]);
    assert!(code == CONFLICT && told.contains("there is no such plan: one cannot have 8 GPUs"), "{told}");
    text(&plan, "id").to_owned()
}

fn a_rejected_proposal_moves_nobody(cluster: &Cluster) {
    let proposal = cluster.told(&["plan", "rebalance", "--force", "two=4", "--propose"]);
    let id = text(&proposal, "id");
    assert_eq!(moves(&proposal), ["two 2 -> 4"], "{proposal}");
    let rejected = cluster.told(&["plan", "reject", id, "--reason", "not today"]);
    assert_eq!((&rejected["state"], &rejected["state_reason"]), (&json!("rejected"), &json!("not today")));
    let (code, told) = cluster.refused(&["plan", "approve", id]);
    assert!(code == CONFLICT && told.contains("is rejected and no longer waits for approval"), "{told}");
    let gpus = ["one", "two"].map(|name| cluster.told(&["job", "get", name])["gpus"].clone());
    assert_eq!(gpus, [json!(4), json!(2)]);
}

async fn what_was_moved_is_taken_back(cluster: &Cluster, id: &str) {
    let back = cluster.told(&["plan", "rollback", id, "--propose", "--reason", "too slow"]);
    assert_eq!((&back["terms"]["undoes"], moves(&back)), (&json!(id), vec!["two 2 -> 4".to_owned()]), "{back}");
    assert!(text(&back, "trigger").ends_with(&format!("asked to take back what plan {id} moved: too slow")), "{back}");
    let adopted = cluster.told(&["plan", "approve", text(&back, "id"), "--hash", text(&back, "hash")]);
    assert_eq!(adopted["state"], "adopted");
    trains(cluster, "two", 4, 1).await;
}
