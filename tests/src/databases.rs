//! Two Postgres of one cluster: the primary, and a replica that has all that the primary has confirmed. Whoever has to do with them reaches them by
//! wires, which lead to the primary; between the two lies another.

use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use headway_scheduler::postgres::PrivatePostgres;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::link::{End, Link};
use crate::wait::until;

const PATIENCE: Duration = Duration::from_secs(120);
const SOCKET: &str = ".s.PGSQL.5432";
/// So that a replica whose wire is cut without a word is missed for seconds. Postgres itself waits for a minute.
const SETTINGS: [&str; 4] = [
    "wal_sender_timeout = '3s'",
    "wal_receiver_timeout = '3s'",
    "wal_receiver_status_interval = '1s'",
    "wal_retrieve_retry_interval = '500ms'",
];

pub struct Databases {
    /// Directories, each of one Postgres or none.
    places: [PathBuf; 2],
    running: [Option<PrivatePostgres>; 2],
    primary: usize,
    /// From the replica to the primary.
    pub replication: Link,
}

impl Databases {
    /// A primary alone.
    pub async fn start(dir: &Path) -> Self {
        let places = [dir.join("pg"), dir.join("pg-2")];
        let first = PrivatePostgres::start(&places[0]).await.expect("a private Postgres");
        for setting in SETTINGS {
            ask(&places[0], &format!("ALTER SYSTEM SET {setting}")).await;
        }
        ask(&places[0], "SELECT pg_reload_conf()").await;
        let replication = Link::to(End::Unix(places[0].join(SOCKET))).await;
        Self { places, running: [Some(first), None], primary: 0, replication }
    }

    /// Where the primary listens.
    pub fn end(&self) -> End {
        End::Unix(self.primary_place().join(SOCKET))
    }

    pub fn primary_place(&self) -> &Path {
        &self.places[self.primary]
    }

    /// Makes a new replica, without which nothing is confirmed from then on.
    pub async fn replicate(&mut self) {
        let (primary, replica) = (self.places[self.primary].clone(), self.places[1 - self.primary].clone());
        let owner = std::fs::metadata(primary.join("data")).expect("a data directory");
        match std::fs::remove_dir_all(&replica) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{error}"),
            _ => std::fs::create_dir(&replica).expect("a new directory"),
        }
        std::os::unix::fs::chown(&replica, Some(owner.uid()), Some(owner.gid())).expect("lending it to Postgres");
        let address = self.replication.address();
        let mut copy = Command::new(program("pg_basebackup"));
        copy.args(["-U", "headway", "-X", "stream", "-c", "fast", "-R", "-h", &address.ip().to_string(), "-p"])
            .arg(address.port().to_string())
            .arg("-D")
            .arg(replica.join("data"))
            .current_dir(&replica)
            .uid(owner.uid())
            .gid(owner.gid())
            .stdin(Stdio::null());
        let copied =
            tokio::task::spawn_blocking(move || copy.output()).await.expect("no panic").expect("pg_basebackup");
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        let follower = PrivatePostgres::start(&replica).await.expect("a replica");
        self.running[1 - self.primary] = Some(follower);
        ask(&primary, "ALTER SYSTEM SET synchronous_standby_names = '*'").await;
        ask(&primary, "SELECT pg_reload_conf()").await;
        let synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        until("the replica to follow", PATIENCE, || async { (ask(&primary, synchronous).await == "1").then_some(()) })
            .await;
    }

    /// The machine of the primary is gone, with all that was not sent yet.
    pub async fn kill_primary(&mut self) {
        let postgres = self.running[self.primary].take().expect("the primary runs");
        let pids = processes(postgres.dir());
        // First whoever would start the others again.
        for pid in pids {
            kill(pid, Signal::SIGKILL).ok();
        }
        postgres.stop().await.expect("it is gone already");
        let _left_behind = std::fs::remove_file(self.primary_place().join(SOCKET));
    }

    /// SIGSTOP or SIGCONT of all of the primary.
    pub fn signal_primary(&self, signal: Signal) {
        for pid in processes(self.primary_place()) {
            kill(pid, signal).ok();
        }
    }

    /// Makes the replica the primary, which confirms by itself until it has a replica; wires to the primary are not moved.
    pub async fn promote(&mut self) {
        self.primary = 1 - self.primary;
        let place = self.primary_place().to_owned();
        assert_eq!(ask(&place, "SELECT pg_promote()").await, "t");
        self.replication.lead_to(self.end());
    }

    pub async fn stop(mut self) {
        for postgres in [1 - self.primary, self.primary] {
            if let Some(postgres) = self.running[postgres].take() {
                postgres.stop().await.expect("stopping Postgres");
            }
        }
    }
}

impl Drop for Databases {
    fn drop(&mut self) {
        for postgres in self.running.iter().flatten() {
            for pid in processes(postgres.dir()) {
                kill(pid, Signal::SIGKILL).ok();
            }
        }
    }
}

/// The one that started all others, and they.
fn processes(place: &Path) -> Vec<Pid> {
    let file = std::fs::read_to_string(place.join("data/postmaster.pid")).unwrap_or_default();
    let Some(first) = file.lines().next().and_then(|pid| pid.trim().parse::<i32>().ok()) else { return Vec::new() };
    let child = |pid: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse::<i32>().ok());
        parent == Some(first)
    };
    let all = std::fs::read_dir("/proc").expect("a proc file system").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_string_lossy().parse::<i32>().ok());
    [first].into_iter().chain(pids.filter(child)).map(Pid::from_raw).collect()
}

/// Where Debian and its like keep the newest, else wherever it is found.
pub fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.map(|entry| entry.path()).max_by_key(|path| version(path));
    newest.map_or_else(|| name.into(), |dir| dir.join("bin").join(name))
}

/// What a database answers, as text; nothing while it does not.
pub async fn ask(place: &Path, query: &str) -> String {
    let mut command = Command::new(program("psql"));
    command.args(["-U", "headway", "-d", "headway", "-AtqX", "-c", query, "-h"]).arg(place);
    let answer = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("psql");
    String::from_utf8_lossy(&answer.stdout).trim().to_owned()
}
