//! What operators look at when something is wrong, of a real cluster: it finds what is there, and gives away nothing.
#![allow(clippy::unwrap_used)]

use headway_tests::Cluster;
use headway_tests::job::EmulatedJob;
use headway_tests::process::binary;

const HUSH: &str = "hush-7d1f0b";

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_well_passes_and_its_support_bundle_gives_nothing_away() {
    let mut cluster = Cluster::start(1, 2).await;
    let yaml = EmulatedJob { min_gpus: 1, max_gpus: 1, ..EmulatedJob::named("plain") }.yaml();
    let yaml = format!(
        "{yaml}    HIDDEN: {HUSH}-value\nnotify: {{webhook: \"https://192.0.2.1/{HUSH}-path?key={HUSH}-query\", on: [failed]}}\n"
    );
    cluster.client.submit_yaml(&yaml, None).await.unwrap();
    let url = cluster.database_url();
    let told = cluster.command(&["admin", "doctor", "--database-url", &url, "-o", "json"]);
    let report: serde_json::Value = serde_json::from_str(&told).unwrap();
    let checks: Vec<&str> =
        report["findings"].as_array().unwrap().iter().map(|one| one["check"].as_str().unwrap()).collect();
    for check in [
        "server",
        "server's clock",
        "ready",
        "version",
        "attention",
        "nodes",
        "GPUs",
        "counters",
        "database",
        "migrations",
        "leader",
    ] {
        assert!(checks.contains(&check), "{check}: {told}");
    }
    let quiet = cluster.command(&["admin", "migrate", "--database-url", &url, "--dry-run"]);
    assert!(quiet.contains("already"), "{quiet}");

    let file = cluster.dir().join("support.tgz");
    let file = file.to_str().unwrap();
    let told = cluster.command(&["admin", "support-bundle", file, "--database-url", &url]);
    for name in [
        "about.json",
        "doctor.json",
        "metrics.txt",
        "overview.json",
        "nodes.json",
        "queue.json",
        "rounds.json",
        "events.json",
    ] {
        assert!(told.contains(name) && !told.contains("could not be had"), "{name}: {told}");
    }
    let text = std::process::Command::new("tar").args(["xzOf", file]).output().unwrap();
    assert!(text.status.success());
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("plain") && text.contains("node-1") && text.contains("headway_cluster_jobs"));
    for secret in [HUSH, "hw_test_admin_token", "000000aa"] {
        assert!(
            !text.contains(secret),
            "{secret}: …{}",
            &text[text.find(secret).unwrap_or(0).saturating_sub(200)..][..400]
        );
    }

    cluster.kill_server();
    let doctor = std::process::Command::new(binary())
        .args(["admin", "doctor", "--database-url", &url, "--url", &cluster.url])
        .env("HEADWAY_TOKEN", "none")
        .env("XDG_CONFIG_HOME", cluster.dir().join("config"))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert_eq!(doctor.status.code(), Some(1), "{told}");
    assert!(told.contains("FAIL") && told.contains("server"), "{told}");
    cluster.start_server().await;
    cluster.stop(&[]).await;
}
