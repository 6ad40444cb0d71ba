//! The machine of the database dies: its synchronous replica is promoted, and the schedulers go on there with all that was acknowledged.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{MetadataExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use headway_tests::complaint::Expected;
use headway_tests::submitters::{Submitters, submit};
use headway_tests::{Cluster, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PATIENCE: Duration = Duration::from_secs(60);
/// Submitters at a time.
const CLIENTS: usize = 4;
const SOCKET: &str = ".s.PGSQL.5432";
/// Nothing answers between the death of one database and the promotion of the other.
const EXPECTED: &[Expected] = &[
    Expected::error("headway_scheduler::driver", "commit failed"),
    Expected::warning("headway_scheduler::driver", "this server has taken over"),
    Expected::warning("headway_scheduler::driver", "the lead is lost"),
    Expected::warning("headway_scheduler::driver::standby", "cannot take over"),
    Expected::warning("headway_scheduler::driver::standby", "the cluster cannot be shown"),
    Expected::warning("headway_scheduler::leader", "Postgres does not answer"),
    Expected::warning("headway_scheduler::observer", ""),
    Expected::warning("sqlx::postgres::notice", "terminating connection"),
    Expected::warning("sqlx_core::pool::connection", "error occurred while testing the connection"),
    Expected::SLOW_STATEMENT,
    Expected::SLOW_CONNECTION,
];

/// A Postgres that repeats what another does.
struct Replica {
    process: Child,
    root: PathBuf,
}

impl Replica {
    /// Of the one below `primary`, which from now on confirms nothing that the replica has not written.
    async fn of(primary: &Path, root: PathBuf) -> Self {
        let owner = std::fs::metadata(primary.join("data")).unwrap();
        std::fs::create_dir(&root).unwrap();
        std::os::unix::fs::chown(&root, Some(owner.uid()), Some(owner.gid())).unwrap();
        let as_owner = |program: &str| {
            let mut command = Command::new(program_path(program));
            command.current_dir(&root).uid(owner.uid()).gid(owner.gid()).stdin(Stdio::null());
            command
        };
        let copied = as_owner("pg_basebackup")
            .args(["-U", "headway", "-X", "stream", "-c", "fast", "-R", "-h"])
            .arg(primary)
            .arg("-D")
            .arg(root.join("data"))
            .output()
            .unwrap();
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        let log = std::fs::File::create(root.join("replica.txt")).unwrap();
        let process = as_owner("postgres")
            .arg("-D")
            .arg(root.join("data"))
            .arg("-k")
            .arg(&root)
            .args(["-c", "listen_addresses="])
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        asked(primary, "ALTER SYSTEM SET synchronous_standby_names = '*'");
        asked(primary, "SELECT pg_reload_conf()");
        let synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        until("the replica to follow", PATIENCE, || async { (asked(primary, synchronous) == "1").then_some(()) }).await;
        Self { process, root }
    }

    /// Makes it the database that is written to, where the other one was.
    fn takes_the_place_of(&self, primary: &Path) {
        assert_eq!(asked(&self.root, "SELECT pg_promote()"), "t");
        let place = primary.join(SOCKET);
        // What a killed server leaves behind.
        let _ = std::fs::remove_file(&place);
        symlink(self.root.join(SOCKET), place).unwrap();
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        kill(Pid::from_raw(self.process.id().cast_signed()), Signal::SIGQUIT).ok();
        self.process.wait().ok();
    }
}

/// Where Debian and its like keep the newest, else wherever it is found.
fn program_path(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.map(|entry| entry.path()).max_by_key(|path| version(path));
    newest.map_or_else(|| name.into(), |dir| dir.join("bin").join(name))
}

/// What a database answers, as text; nothing while it does not.
fn asked(root: &Path, query: &str) -> String {
    let answer = Command::new(program_path("psql"))
        .args(["-U", "headway", "-d", "headway", "-AtqX", "-c", query, "-h"])
        .arg(root)
        .output()
        .unwrap();
    String::from_utf8(answer.stdout).unwrap().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_with_the_machine_of_the_database() {
    let cluster = Cluster::start_several(2, 0, 0).await;
    let primary = cluster.dir().join("pg");
    let replica = Replica::of(&primary, cluster.dir().join("replica")).await;
    let submitters = Submitters::start(&cluster.client, CLIENTS);
    submitters.go_on(100).await;
    let term = cluster.client.leadership().await.unwrap().term;

    // Without a checkpoint, and without a word to the replica.
    let pid = std::fs::read_to_string(primary.join("data/postmaster.pid")).unwrap();
    kill(Pid::from_raw(pid.lines().next().unwrap().trim().parse().unwrap()), Signal::SIGQUIT).unwrap();
    let died = Instant::now();
    until("the database to be gone", PATIENCE, || async { asked(&primary, "SELECT 1").is_empty().then_some(()) }).await;
    replica.takes_the_place_of(&primary);
    let promoted = Instant::now();
    until("a write to be acknowledged", PATIENCE, || async { submit(&cluster.client, "after").await.ok() }).await;
    println!("writes resumed {:?} after the promotion, {:?} after the death", promoted.elapsed(), died.elapsed());
    let tally = submitters.tally(&cluster.client).await;
    println!("{tally:?}");
    assert!(cluster.client.leadership().await.unwrap().term >= term, "a term is never begun twice");
    assert_eq!((tally.lost, tally.doubled), (0, 0));
    cluster.stop(EXPECTED).await;
}
