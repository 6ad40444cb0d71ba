//! `pg_dump` and `pg_restore` as children. What opens the database goes by their environment: arguments are seen by everybody on the machine.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::PathBuf;
use std::process::Stdio;

use tokio::process::{Child, Command};

use crate::postgres::{PostgresError, find_dumpers};

/// Why one of Postgres' programs did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error(transparent)]
    NotInstalled(PostgresError),
    #[error("the database URL cannot be read")]
    Url,
    #[error("running {program}")]
    Run {
        program: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{name} failed: {said}")]
    Failed { name: &'static str, said: String },
}

/// One of them at work; ended when it is dropped.
pub(super) struct Program {
    name: &'static str,
    path: PathBuf,
    pub child: Child,
    complaints: File,
}

impl Program {
    /// `url`: as sqlx and libpq take it. `session`: the name by which Postgres knows its session.
    pub fn start(name: &'static str, session: &str, url: &str, arguments: &[String]) -> Result<Self, ProgramError> {
        let path = find_dumpers().map_err(ProgramError::NotInstalled)?.join(name);
        let failed = |source| ProgramError::Run { program: path.clone(), source };
        let complaints = tempfile::tempfile().map_err(failed)?;
        let child = Command::new(&path)
            .args(arguments)
            .envs(environment(url).ok_or(ProgramError::Url)?)
            .env("LC_ALL", "C")
            .env("PGAPPNAME", session)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(complaints.try_clone().map_err(failed)?)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        Ok(Self { name, path, child, complaints })
    }

    /// Waits for its end. What it complained of is told where it failed.
    pub async fn finish(mut self) -> Result<(), ProgramError> {
        drop((self.child.stdin.take(), self.child.stdout.take()));
        let status = self.child.wait().await.map_err(|source| ProgramError::Run { program: self.path, source })?;
        if status.success() {
            return Ok(());
        }
        let mut said = String::new();
        // A complaint that cannot be read leaves the status.
        let _ = self.complaints.rewind().and_then(|()| self.complaints.read_to_string(&mut said));
        let said = if said.trim().is_empty() { status.to_string() } else { said.trim().replace('\n', "; ") };
        Err(ProgramError::Failed { name: self.name, said })
    }
}

/// libpq's variables for a URL; `None` where it is none.
fn environment(url: &str) -> Option<BTreeMap<&'static str, String>> {
    let url = reqwest::Url::parse(url).ok().filter(|url| ["postgres", "postgresql"].contains(&url.scheme()))?;
    let mut variables = BTreeMap::new();
    let mut set = |name, value: String| {
        if !value.is_empty() {
            variables.insert(name, value);
        }
    };
    let host = url.host_str().unwrap_or_default();
    // libpq takes an address of IPv6 without the brackets that it has in a URL.
    set("PGHOST", decoded(host.trim_start_matches('[').trim_end_matches(']')));
    set("PGPORT", url.port().map(|port| port.to_string()).unwrap_or_default());
    set("PGUSER", decoded(url.username()));
    set("PGPASSWORD", decoded(url.password().unwrap_or_default()));
    set("PGDATABASE", decoded(url.path().trim_start_matches('/')));
    for (key, value) in url.query_pairs() {
        let name = match &*key {
            "host" => "PGHOST",
            "port" => "PGPORT",
            "user" => "PGUSER",
            "password" => "PGPASSWORD",
            "dbname" => "PGDATABASE",
            "sslmode" | "ssl-mode" => "PGSSLMODE",
            "sslrootcert" | "ssl-root-cert" | "ssl-ca" => "PGSSLROOTCERT",
            "sslcert" | "ssl-cert" => "PGSSLCERT",
            "sslkey" | "ssl-key" => "PGSSLKEY",
            _ => continue,
        };
        set(name, value.into_owned());
    }
    Some(variables)
}

/// The database that a URL names, as `pg_restore` wants it named.
pub(super) fn database(url: &str) -> Result<String, ProgramError> {
    environment(url).and_then(|mut variables| variables.remove("PGDATABASE")).ok_or(ProgramError::Url)
}

/// `%2F` is a slash.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let escaped = after
            .get(..2)
            .filter(|_| *first == b'%')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(url: &str) -> Vec<String> {
        let found = environment(url).into_iter().flatten();
        found.map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn a_url_is_what_the_programs_are_told_by_their_environment() {
        let url = "postgres://ada:p%40ss%2Fw@db.example:5433/head%20way?sslmode=verify-full&sslrootcert=/ca.pem&statement-cache-capacity=0";
        let expected = [
            "PGDATABASE=head way",
            "PGHOST=db.example",
            "PGPASSWORD=p@ss/w",
            "PGPORT=5433",
            "PGSSLMODE=verify-full",
            "PGSSLROOTCERT=/ca.pem",
            "PGUSER=ada",
        ];
        assert_eq!(variables(url), expected);
        let socket = "postgresql://headway@localhost/headway?host=%2Ftmp%2Fpg";
        assert_eq!(variables(socket), ["PGDATABASE=headway", "PGHOST=/tmp/pg", "PGUSER=headway"]);
        assert!(variables("postgres://ada@[::1]:5433/headway").contains(&"PGHOST=::1".to_owned()));
        assert!(environment("mysql://x").is_none() && environment("nonsense").is_none());
    }
}
