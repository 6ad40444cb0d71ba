//! A backup outlives the machine that it is of: restored, the cluster goes on from it by itself.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use headway_api::client::ClientError;
use headway_api::v1::JobStateKind as State;
use headway_scheduler::PrivatePostgres;
use headway_tests::job::EmulatedJob;
use headway_tests::{Cluster, Expected, until};

const PATIENCE: Duration = Duration::from_secs(60);

async fn submit(cluster: &Cluster, name: &str) -> String {
    let yaml = EmulatedJob { min_gpus: 2, max_gpus: 2, ..EmulatedJob::named(name) }.yaml();
    cluster.client.submit_yaml(&yaml, None).await.unwrap().jobs[0].id.to_string()
}

async fn trains(cluster: &Cluster, id: &str) {
    until("the job to train", PATIENCE, || async {
        let job = cluster.client.job(id).await.ok()?.job;
        (job.state == State::Running && job.samples_seen > Some(0)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_lost_its_database_goes_on_from_the_backup_by_itself() {
    let mut cluster = Cluster::start(3, 2).await;
    let running = [submit(&cluster, "first").await, submit(&cluster, "second").await, submit(&cluster, "third").await];
    for id in &running {
        trains(&cluster, id).await;
    }
    let waiting = submit(&cluster, "waiting").await;
    let kept = cluster.client.job(&running[0]).await.unwrap().job;
    let file = cluster.dir().join("cluster.backup");
    let told = cluster.command(&[
        "admin",
        "backup",
        file.to_str().unwrap(),
        "--database-url",
        &cluster.database_url(),
        "-o",
        "json",
    ]);
    let manifest: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&manifest["rows"]["jobs"], &manifest["live_jobs"]), (&4.into(), &4.into()));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    // What the backup does not know of: two jobs end, the one that waited and a later one run in their place, terms go up.
    for id in &running[1..] {
        cluster.client.cancel(id, None).await.unwrap();
    }
    trains(&cluster, &waiting).await;
    let late = submit(&cluster, "late").await;
    trains(&cluster, &late).await;
    for _ in 0..2 {
        cluster.kill_server();
        cluster.start_server().await;
    }
    cluster.wait_for_nodes(3).await;

    cluster.lose_the_database().await;
    let url = cluster.database_url();
    let told = cluster.command(&["admin", "restore", file.to_str().unwrap(), "--database-url", &url]);
    assert!(
        told.contains("4 jobs (4 not ended), 3 nodes") && told.contains("they need no `headway admin readmit`"),
        "{told}"
    );
    let began = Instant::now();
    cluster.start_server().await;
    cluster.wait_for_nodes(3).await;
    println!("agents were back after {:.1} s", began.elapsed().as_secs_f64());
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());

    // Told to stop, and its GPUs are granted to nobody before they have.
    until("the late job to be gone", PATIENCE, || async {
        cluster.check_use();
        cluster.workers_of(&late).is_empty().then_some(())
    })
    .await;
    assert!(matches!(cluster.client.job(&late).await, Err(ClientError::Problem(problem)) if problem.status == 404));
    let others = [&running[1], &running[2], &waiting];
    until("two of the other three to train again", PATIENCE, || async {
        cluster.check_use();
        let mut train = 0;
        for id in others {
            let job = cluster.client.job(id).await.ok()?.job;
            assert!(
                !matches!(job.state, State::Failed | State::Cancelled | State::Succeeded),
                "{}: {:?}",
                job.name,
                job.state
            );
            train += u32::from(job.state == State::Running && !cluster.workers_of(id).is_empty());
        }
        (train == 2).then_some(())
    })
    .await;
    println!("all GPUs are used again after {:.1} s", began.elapsed().as_secs_f64());
    let after = cluster.client.job(&running[0]).await.unwrap().job;
    assert_eq!((after.generation, after.restarts), (kept.generation, kept.restarts), "its workers never noticed");
    let told: Vec<String> = cluster.client.events(200).await.unwrap().into_iter().map(|event| event.verb).collect();
    for verb in ["cluster.restored", "cluster.returned"] {
        assert_eq!(told.iter().filter(|one| *one == verb).count(), 1, "{verb}: {told:?}");
    }
    // Connections broke when Postgres stopped, and workers were killed.
    cluster.stop(&[Expected::warning("headway_agent::worker_socket", "a worker's line cannot be read")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_is_backed_up_whether_it_runs_or_not_and_replaced_only_on_demand_and_never_deleted() {
    let dir = tempfile::Builder::new().prefix("hw").tempdir_in("/tmp").unwrap();
    headway_tests::cluster::open_to_postgres(dir.path());
    let path = |name: &str| dir.path().join(name).display().to_string();
    let run = |arguments: &[&str]| {
        let output = std::process::Command::new(headway_tests::process::binary())
            .args(arguments)
            .env_remove("DATABASE_URL")
            .env("XDG_CONFIG_HOME", dir.path().join("config"))
            .output()
            .unwrap();
        let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (output.status.code().unwrap(), out, err)
    };
    let (code, _, told) = run(&["admin", "backup", &path("one"), "--data-dir", &path("none")]);
    assert_eq!(code, 3, "{told}");

    let postgres = PrivatePostgres::start(&dir.path().join("a/postgres")).await.unwrap();
    let (code, _, told) = run(&["admin", "backup", &path("one"), "--data-dir", &path("a")]);
    assert!(code == 3 && told.contains("no cluster of Headway"), "{code} {told}");
    let store = headway_scheduler::store::Store::connect(postgres.url().parse().unwrap()).await.unwrap();
    store.migrate().await.unwrap();
    let term = store.begin_term().await.unwrap();
    store.close().await;
    let (code, out, told) = run(&["admin", "backup", &path("one"), "--data-dir", &path("a")]);
    assert!(code == 0 && out.contains("It does not hold"), "{told}");
    let (code, _, told) = run(&["admin", "backup", &path("one"), "--data-dir", &path("a")]);
    assert!(code == 5 && told.contains("never written over"), "{code} {told}");
    postgres.stop().await.unwrap();
    let (code, _, told) = run(&["admin", "backup", &path("two"), "--data-dir", &path("a")]);
    assert_eq!(code, 0, "{told}");

    let (code, out, told) = run(&["admin", "restore", &path("two"), "--dry-run"]);
    assert!(code == 0 && out.contains("is whole and would be restored"), "{told}");
    assert!(!dir.path().join("b").exists());
    let (code, out, told) = run(&["admin", "restore", &path("two"), "--data-dir", &path("b")]);
    assert!(code == 0 && out.contains("Next:"), "{told}");
    let (code, _, told) = run(&["admin", "restore", &path("two"), "--data-dir", &path("b")]);
    assert!(code == 5 && told.contains("not empty") && told.contains("--replace"), "{code} {told}");
    let (code, out, told) =
        run(&["admin", "restore", &path("two"), "--data-dir", &path("b"), "--replace", "-o", "json"]);
    assert_eq!(code, 0, "{told}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    let aside = report["moved_aside"].as_str().unwrap();
    assert!(std::path::Path::new(aside).join("data/PG_VERSION").exists(), "{aside}");
    assert!(report["term"].as_u64().unwrap() >= term.0 + 1_000);

    let mut damaged = std::fs::read(path("two")).unwrap();
    damaged[2_000] ^= 1;
    std::fs::write(path("three"), damaged).unwrap();
    let (code, _, told) = run(&["admin", "restore", &path("three"), "--data-dir", &path("b"), "--replace"]);
    assert!(code == 1 && told.contains("is damaged"), "{code} {told}");
    let asides = std::fs::read_dir(dir.path().join("b")).unwrap().flatten();
    let asides = asides.filter(|entry| entry.file_name().to_string_lossy().starts_with("postgres.before-")).count();
    assert_eq!(asides, 1, "a file that is no good moves nothing aside");
}
