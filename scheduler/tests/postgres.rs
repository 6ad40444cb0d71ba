//! The private Postgres that `headway up` runs.

use std::path::Path;

use headway_scheduler::postgres::{PostgresError, PrivatePostgres};
use headway_scheduler::store::Store;

async fn store(postgres: &PrivatePostgres) -> Store {
    Store::connect(postgres.url().parse().unwrap()).await.unwrap()
}

#[tokio::test]
async fn a_cluster_outlives_a_stop_and_a_lost_owner() {
    let dir = tempfile::tempdir().unwrap();
    // Whoever runs Postgres must be able to pass through.
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let root = dir.path().join("pg");

    let first = PrivatePostgres::start(&root).await.unwrap();
    let database = store(&first).await;
    database.migrate().await.unwrap();
    let term = database.begin_term().await.unwrap();
    database.close().await;
    first.stop().await.unwrap();

    // Forgotten without a stop, as when its process is killed: the next one takes it over.
    drop(PrivatePostgres::start(&root).await.unwrap());
    let third = PrivatePostgres::start(&root).await.unwrap();
    let database = store(&third).await;
    assert_eq!(database.begin_term().await.unwrap().0, term.0 + 1);
    database.close().await;
    third.stop().await.unwrap();
    assert!(!root.join("data/postmaster.pid").exists());
}

#[tokio::test]
async fn a_cluster_killed_at_a_stroke_comes_back_at_once() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let root = dir.path().join("pg");
    let first = PrivatePostgres::start(&root).await.unwrap();
    let database = store(&first).await;
    database.migrate().await.unwrap();
    let term = database.begin_term().await.unwrap();
    let lock_file = std::fs::read_to_string(root.join("data/postmaster.pid")).unwrap();
    let pid = nix::unistd::Pid::from_raw(lock_file.lines().next().unwrap().parse().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    nix::sys::wait::waitpid(pid, None).unwrap();
    drop(first);
    database.close().await;

    let second = PrivatePostgres::start(&root).await.unwrap();
    let database = store(&second).await;
    assert_eq!(database.begin_term().await.unwrap().0, term.0 + 1, "what was confirmed is there");
    database.close().await;
    second.stop().await.unwrap();
}

#[tokio::test]
async fn a_cluster_that_is_killed_is_started_again_while_it_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let root = dir.path().join("pg");
    let mut postgres = PrivatePostgres::start(&root).await.unwrap();
    let options: sqlx::postgres::PgConnectOptions = postgres.url().parse().unwrap();
    let pid = || {
        let lock_file = std::fs::read_to_string(root.join("data/postmaster.pid")).unwrap_or_default();
        lock_file.lines().next().and_then(|line| line.parse::<i32>().ok())
    };
    let killed = pid().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(killed), nix::sys::signal::Signal::SIGKILL).unwrap();
    let back = async {
        loop {
            let connected = sqlx::ConnectOptions::connect(&options).await;
            if pid().is_some_and(|pid| pid != killed) && connected.is_ok() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = back => {}
        never = postgres.keep() => match never {},
        () = tokio::time::sleep(std::time::Duration::from_secs(60)) => panic!("it did not come back"),
    }
    postgres.stop().await.unwrap();
}

#[tokio::test]
async fn a_directory_too_deep_for_a_socket_is_refused() {
    let deep = Path::new("/tmp").join("x".repeat(120));
    assert!(matches!(PrivatePostgres::start(&deep).await, Err(PostgresError::PathTooLong { bytes: 139, .. })));
    assert!(!deep.exists());
}
