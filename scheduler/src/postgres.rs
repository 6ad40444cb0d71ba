//! A private Postgres from the machine's binaries, on a unix socket only: for `headway up` and for tests.
//!
//! The cluster lies below one directory that only its owner may enter, and nothing listens on TCP; so every local
//! connection is trusted. Postgres refuses to run as root, so root lends it to user `postgres` or `nobody`.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Gid, Pid, Uid, User, geteuid};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection};

/// `sun_path` holds 108 bytes with the final zero.
const SOCKET_PATH_BYTES: usize = 107;
const SOCKET_NAME: &str = ".s.PGSQL.5432";
/// Where Debian and its like keep the programs, a directory per version.
const DISTRIBUTION: &str = "/usr/lib/postgresql";
const ROLE: &str = "headway";
const DATABASE: &str = "headway";
const START_DEADLINE: Duration = Duration::from_secs(60);
const STOP_DEADLINE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(10);
/// How often it is looked whether it still runs.
const WATCH: Duration = Duration::from_millis(300);
/// Between attempts to start it again.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const LOG: &str = "postgres.log";
/// A longer log takes the place of the former one.
const LONGEST_LOG: u64 = 8 << 20;
/// The processes of a killed server may outlive it by moments, and no other starts on its data until they are gone.
const PREDECESSOR_DEADLINE: Duration = Duration::from_secs(10);

/// A running private cluster. Dropping it leaves it running; `stop` ends it.
#[derive(Debug)]
pub struct PrivatePostgres {
    root: PathBuf,
    bin: PathBuf,
    lent: Option<Lent>,
    /// Absent where a server of an earlier process was found running.
    child: Option<Child>,
}

/// Why there is no private Postgres.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    #[error(
        "no Postgres found: neither {}/*/bin nor PATH ({}) has {}; install {} (Debian: `apt-get install \
         postgresql`; Fedora: postgresql-server), or run `headway server` on a database of yours (--database-url)",
        distribution.display(), path.display(), programs.join(" and "), if programs.len() == 1 { "it" } else { "them" }
    )]
    NotInstalled { programs: &'static [&'static str], distribution: PathBuf, path: OsString },
    #[error("{path} is too long for a unix socket ({bytes} bytes, at most 107): choose a shorter data directory")]
    PathTooLong { path: PathBuf, bytes: usize },
    #[error("Postgres does not run as root, and neither user postgres nor nobody exists")]
    NoUser,
    #[error("user {user} cannot reach {path}: Postgres does not run as root, so choose a data directory outside it")]
    Unreachable { user: String, path: PathBuf },
    #[error("preparing {path}")]
    Prepare {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("running {program}")]
    Run {
        program: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("initdb failed: {0}")]
    Init(String),
    #[error("Postgres did not start: {0}")]
    Start(String),
    #[error("Postgres did not stop in time")]
    Stop,
    #[error("creating the database")]
    Database(#[source] sqlx::Error),
}

/// Whom Postgres runs as, where that is not the current user.
#[derive(Clone, Debug)]
struct Lent {
    name: String,
    uid: Uid,
    gid: Gid,
}

impl PrivatePostgres {
    /// Starts the cluster below `data_dir`, making it first if need be. A server that an earlier process left running
    /// there is taken over; whether a lock file is stale is for Postgres to say.
    pub async fn start(data_dir: &Path) -> Result<Self, PostgresError> {
        let root = std::path::absolute(data_dir).map_err(prepare(data_dir))?;
        let bytes = root.join(SOCKET_NAME).as_os_str().len();
        if bytes > SOCKET_PATH_BYTES {
            return Err(PostgresError::PathTooLong { path: root, bytes });
        }
        let bin = find_binaries(&["initdb", "postgres"])?;
        let lent = if geteuid().is_root() { Some(lend()?) } else { None };
        make_private(&root, lent.as_ref())?;
        let mut postgres = Self { root, bin, lent, child: None };
        if postgres.connect("postgres").await.is_err() {
            if !postgres.data().join("PG_VERSION").exists() {
                postgres.init()?;
            }
            postgres.child = Some(postgres.spawn()?);
            postgres.wait().await?;
        }
        postgres.create_database().await?;
        Ok(postgres)
    }

    /// Where to connect to one that runs below the directory; `None` where none does.
    pub async fn running(data_dir: &Path) -> Option<String> {
        let root = std::path::absolute(data_dir).ok()?;
        let options = PgConnectOptions::new_without_pgpass().socket(root).port(5432).username(ROLE).database(DATABASE);
        options.connect().await.ok().map(|_| options.to_url_lossy().to_string())
    }

    /// Keeps it running: one that has ended is started again, later each time while it does not come up. Never ends by
    /// itself; dropped, it leaves Postgres as it is.
    pub async fn keep(&mut self) -> Infallible {
        loop {
            tokio::time::sleep(WATCH).await;
            self.bound_log();
            if self.lives() {
                continue;
            }
            let log = self.root.join(LOG);
            tracing::error!(log = %log.display(), "Postgres has ended and is started again");
            let mut pause = WATCH;
            while let Err(error) = self.revive().await {
                let retry_in_s = pause.as_secs_f64();
                tracing::error!(error = &error as &dyn std::error::Error, retry_in_s, "Postgres does not start");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            tracing::warn!("Postgres runs again");
        }
    }

    fn lives(&mut self) -> bool {
        match &mut self.child {
            Some(child) => matches!(child.try_wait(), Ok(None)),
            None => self.pid().is_some_and(|pid| kill(pid, None).is_ok()),
        }
    }

    async fn revive(&mut self) -> Result<(), PostgresError> {
        // One that takes long to recover is waited for again.
        if !self.lives() {
            self.child = Some(self.spawn()?);
        }
        self.wait().await
    }

    /// Where to connect: the database `headway`.
    #[must_use]
    pub fn url(&self) -> String {
        self.options(DATABASE).to_url_lossy().to_string()
    }

    /// The directory it was started in.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.root
    }

    /// Fast shutdown: open transactions are rolled back, everything committed is kept.
    pub async fn stop(mut self) -> Result<(), PostgresError> {
        let Some(pid) = self.pid() else { return Ok(()) };
        // It may have ended by itself meanwhile.
        let _ = kill(pid, Signal::SIGINT);
        let deadline = Instant::now() + STOP_DEADLINE;
        loop {
            let gone = match &mut self.child {
                Some(child) => matches!(child.try_wait(), Ok(Some(_))),
                // Postgres removes its lock file last.
                None => self.pid() != Some(pid) || kill(pid, None).is_err(),
            };
            if gone {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(PostgresError::Stop);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    fn options(&self, database: &str) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass().socket(&self.root).port(5432).username(ROLE).database(database)
    }

    async fn connect(&self, database: &str) -> Result<sqlx::PgConnection, sqlx::Error> {
        self.options(database).connect().await
    }

    /// The server's process as its own lock file names it.
    fn pid(&self) -> Option<Pid> {
        let file = fs::read_to_string(self.data().join("postmaster.pid")).ok()?;
        file.lines().next()?.trim().parse().ok().map(Pid::from_raw)
    }

    fn init(&self) -> Result<(), PostgresError> {
        let program = self.bin.join("initdb");
        let mut command = Command::new(&program);
        command.arg("-D").arg(self.data()).args(["-U", ROLE, "--auth=trust", "-E", "UTF8", "--locale=C"]);
        let done = self.as_owner(command).output().map_err(|source| PostgresError::Run { program, source })?;
        if done.status.success() {
            return Ok(());
        }
        // A half-made cluster would be taken for a whole one at the next start.
        let _ = fs::remove_dir_all(self.data());
        Err(PostgresError::Init(String::from_utf8_lossy(&done.stderr).trim().to_owned()))
    }

    fn spawn(&self) -> Result<Child, PostgresError> {
        let program = self.bin.join("postgres");
        let log = self.root.join(LOG);
        self.bound_log();
        let output = fs::OpenOptions::new().create(true).append(true).open(&log).map_err(prepare(&log))?;
        let errors = output.try_clone().map_err(prepare(&log))?;
        let mut command = Command::new(&program);
        command.arg("-D").arg(self.data()).arg("-k").arg(&self.root);
        for setting in ["listen_addresses=", "fsync=on", "synchronous_commit=on", "max_connections=100"] {
            command.arg("-c").arg(setting);
        }
        // A process group of its own: an interrupt from the terminal is for Headway, which stops Postgres last.
        command.process_group(0).stdin(Stdio::null()).stdout(output).stderr(errors);
        self.as_owner(command).spawn().map_err(|source| PostgresError::Run { program, source })
    }

    fn bound_log(&self) {
        if let Err(error) = rotate(&self.root.join(LOG), LONGEST_LOG) {
            tracing::debug!(%error, "the log of Postgres is not rotated");
        }
    }

    fn as_owner(&self, mut command: Command) -> Command {
        command.current_dir(&self.root).env("LC_ALL", "C");
        if let Some(lent) = &self.lent {
            command.uid(lent.uid.as_raw()).gid(lent.gid.as_raw());
        }
        command
    }

    async fn wait(&mut self) -> Result<(), PostgresError> {
        let began = Instant::now();
        while let Err(error) = self.connect("postgres").await {
            let ended = self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(Some(_))));
            let last = if ended { self.last_words() } else { String::new() };
            if ended && began.elapsed() < PREDECESSOR_DEADLINE && awaits_predecessor(&last) {
                self.child = Some(self.spawn()?);
            } else if ended || began.elapsed() > START_DEADLINE {
                return Err(PostgresError::Start(if last.is_empty() { error.to_string() } else { last }));
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Why it ended, from its log.
    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.root.join(LOG)).unwrap_or_default();
        log.lines().rev().find(|line| line.contains("FATAL")).unwrap_or_default().to_owned()
    }

    async fn create_database(&self) -> Result<(), PostgresError> {
        let mut connection = self.connect("postgres").await.map_err(PostgresError::Database)?;
        let exists: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = 'headway')")
            .fetch_one(&mut connection)
            .await
            .map_err(PostgresError::Database)?;
        if !exists {
            sqlx::query("CREATE DATABASE headway").execute(&mut connection).await.map_err(PostgresError::Database)?;
        }
        connection.close().await.map_err(PostgresError::Database)
    }
}

/// Moves what a log holds to `<log>.1` where it is longer than this. The process that writes it keeps it open to append,
/// so the file stays and is emptied; lines that are written in between are lost.
fn rotate(log: &Path, longest: u64) -> std::io::Result<()> {
    match fs::metadata(log) {
        Ok(known) if known.len() > longest => {}
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    let mut former = log.as_os_str().to_owned();
    former.push(".1");
    fs::copy(log, former)?;
    fs::OpenOptions::new().write(true).open(log)?.set_len(0)
}

/// Reads a database URL. An address of IPv6 stands in brackets there (RFC 3986), and without them where one connects.
pub fn database_options(url: &str) -> Result<PgConnectOptions, sqlx::Error> {
    let options: PgConnectOptions = url.parse()?;
    let address = options.get_host().strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    Ok(match address.map(str::to_owned) {
        Some(address) => options.host(&address),
        None => options,
    })
}

/// Whether Postgres refused to start only because the one before it is not quite gone.
fn awaits_predecessor(message: &str) -> bool {
    message.contains("lock file \"postmaster.pid\" already exists") || message.contains("shared memory block")
}

/// Where the programs are that dump and load databases.
pub(crate) fn find_dumpers() -> Result<PathBuf, PostgresError> {
    find_binaries(&["pg_dump", "pg_restore"])
}

fn find_binaries(programs: &'static [&'static str]) -> Result<PathBuf, PostgresError> {
    find_among(programs, Path::new(DISTRIBUTION), &std::env::var_os("PATH").unwrap_or_default())
}

/// The newest distribution's directory, else wherever PATH has all the programs.
fn find_among(programs: &'static [&'static str], distribution: &Path, path: &OsStr) -> Result<PathBuf, PostgresError> {
    let whole = |dir: &PathBuf| programs.iter().all(|program| dir.join(program).is_file());
    let version = |dir: &PathBuf| {
        dir.parent().and_then(Path::file_name).and_then(|name| name.to_str()?.parse::<u32>().ok()).unwrap_or(0)
    };
    let installed = fs::read_dir(distribution)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .filter(whole)
        .max_by_key(version);
    let found = installed.or_else(|| std::env::split_paths(path).find(whole));
    found.ok_or_else(|| PostgresError::NotInstalled { programs, distribution: distribution.into(), path: path.into() })
}

fn lend() -> Result<Lent, PostgresError> {
    let user = ["postgres", "nobody"].into_iter().find_map(|name| User::from_name(name).ok().flatten());
    user.map(|user| Lent { name: user.name, uid: user.uid, gid: user.gid }).ok_or(PostgresError::NoUser)
}

/// Makes the directory, for its owner alone, and checks that the owner can get there.
fn make_private(root: &Path, lent: Option<&Lent>) -> Result<(), PostgresError> {
    fs::create_dir_all(root).map_err(prepare(root))?;
    fs::set_permissions(root, fs::Permissions::from_mode(0o700)).map_err(prepare(root))?;
    let Some(lent) = lent else { return Ok(()) };
    chown(root, Some(lent.uid.as_raw()), Some(lent.gid.as_raw())).map_err(prepare(root))?;
    let mut probe = Command::new("/bin/sh");
    probe.args(["-c", "cd \"$0\" && exec test -w ."]).arg(root).current_dir("/");
    probe.uid(lent.uid.as_raw()).gid(lent.gid.as_raw()).stdout(Stdio::null()).stderr(Stdio::null());
    match probe.status() {
        Ok(status) if status.success() => Ok(()),
        _ => Err(PostgresError::Unreachable { user: lent.name.clone(), path: root.to_owned() }),
    }
}

fn prepare(path: &Path) -> impl FnOnce(std::io::Error) -> PostgresError {
    let path = path.to_owned();
    move |source| PostgresError::Prepare { path, source }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const BOTH: &[&str] = &["initdb", "postgres"];

    #[test]
    fn a_long_log_is_kept_once_and_written_on() {
        use std::io::Write as _;
        let dir = tempfile::tempdir().unwrap();
        let (log, former) = (dir.path().join("log"), dir.path().join("log.1"));
        rotate(&log, 10).unwrap();
        assert!(!former.exists(), "there is no log yet");
        let mut writer = fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        for round in 0..3 {
            writer.write_all(b"0123456789").unwrap();
            rotate(&log, 10).unwrap();
            assert_eq!(fs::read(&log).unwrap(), b"0123456789", "{round}");
            writer.write_all(b"A").unwrap();
            rotate(&log, 10).unwrap();
            assert_eq!((fs::read(&log).unwrap(), fs::read(&former).unwrap()), (vec![], b"0123456789A".to_vec()));
        }
    }

    #[test]
    fn an_address_of_ipv6_stands_in_brackets() {
        let host = |url: &str| database_options(url).unwrap().get_host().to_owned();
        assert_eq!(host("postgres://ada@[::1]:5433/headway"), "::1");
        assert_eq!(host("postgres://ada@[2001:db8::7]/headway"), "2001:db8::7");
        assert_eq!(host("postgres://ada@db.example/headway"), "db.example");
        assert_eq!(host("postgres://ada@192.0.2.1:5433/headway"), "192.0.2.1");
    }

    #[test]
    fn without_postgres_one_is_told_where_it_was_looked_for_and_what_to_install() {
        let dir = tempfile::tempdir().unwrap();
        let none = dir.path().join("none");
        let error = find_among(BOTH, &none, OsStr::new("/no/bin:/nor/here")).unwrap_err().to_string();
        for words in [
            "none/*/bin nor PATH (/no/bin:/nor/here) has initdb and postgres",
            "apt-get install postgresql",
            "--database-url",
        ] {
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn the_newest_of_the_distribution_goes_before_path() {
        let dir = tempfile::tempdir().unwrap();
        let bin = |name: &str| dir.path().join(name).join("bin");
        for name in ["9", "15", "own"] {
            fs::create_dir_all(bin(name)).unwrap();
            for program in ["initdb", "postgres"] {
                fs::write(bin(name).join(program), "").unwrap();
            }
        }
        assert_eq!(find_among(BOTH, dir.path(), bin("own").as_os_str()).unwrap(), bin("15"));
        assert_eq!(find_among(BOTH, &dir.path().join("none"), bin("own").as_os_str()).unwrap(), bin("own"));
    }
}
