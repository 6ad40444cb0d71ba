//! The data directory of `headway up`: where it lies, who holds it, and the tokens kept in it.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use nix::fcntl::{Flock, FlockArg};

pub struct DataDirectory {
    root: PathBuf,
    /// Held for the life of the process: two `up` on one directory would run two schedulers on one Postgres.
    _lock: Flock<File>,
}

/// A bearer token and the file that holds it.
pub struct Token {
    pub secret: String,
    pub file: PathBuf,
}

impl DataDirectory {
    /// Opens or creates the directory and takes its lock.
    pub fn open(chosen: Option<PathBuf>) -> anyhow::Result<Self> {
        let root = match chosen {
            Some(path) => path,
            None => Self::default_root()?,
        };
        fs::create_dir_all(&root).with_context(|| format!("creating {}", root.display()))?;
        let root = root.canonicalize().with_context(|| format!("resolving {}", root.display()))?;
        if nix::unistd::geteuid().is_root() && root.starts_with("/root") {
            bail!(
                "{} lies below /root, where Postgres (which refuses to run as root) cannot reach it; choose another --data-dir",
                root.display()
            );
        }
        // Postgres runs as another user when we are root: it must be able to pass through.
        fs::set_permissions(&root, Permissions::from_mode(0o755))?;
        let file = File::create(root.join("lock")).context("creating the lock file")?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
            nix::errno::Errno::EWOULDBLOCK => anyhow::anyhow!(
                "another `headway up` or `headway server` runs on {}; stop that one, or give another --data-dir",
                root.display()
            ),
            other => anyhow::Error::new(other).context(format!("locking {}", root.display())),
        })?;
        for name in ["secrets", "logs", "checkpoints"] {
            fs::create_dir_all(root.join(name))?;
        }
        fs::set_permissions(root.join("secrets"), Permissions::from_mode(0o700))?;
        Ok(Self { root, _lock: lock })
    }

    /// Where it lies when nobody says.
    pub fn default_root() -> anyhow::Result<PathBuf> {
        if nix::unistd::geteuid().is_root() {
            return Ok("/var/lib/headway".into());
        }
        let base = std::env::var_os("XDG_DATA_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share")))
            .context("neither XDG_DATA_HOME nor HOME is set; give --data-dir")?;
        Ok(base.join("headway"))
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the logs of its processes are.
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// The named token, made at the first call and kept readable to its owner only.
    pub fn token(&self, name: &str) -> anyhow::Result<Token> {
        let file = self.token_file(name);
        match fs::read_to_string(&file) {
            Ok(secret) if !secret.trim().is_empty() => Ok(Token { secret: secret.trim().to_owned(), file }),
            _ => self.make_token(name),
        }
    }

    /// The file of the named token, where there is one.
    pub fn known_token_file(&self, name: &str) -> Option<PathBuf> {
        let file = self.token_file(name);
        fs::read_to_string(&file).is_ok_and(|secret| !secret.trim().is_empty()).then_some(file)
    }

    /// A new secret in place of the one that there may be.
    pub fn make_token(&self, name: &str) -> anyhow::Result<Token> {
        let file = self.token_file(name);
        let mut bytes = [0u8; 24];
        getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("drawing a token: {error}"))?;
        let secret = format!("hw_{}", hex::encode(bytes));
        write_private(&file, &secret)?;
        Ok(Token { secret, file })
    }

    /// The file with the keys that seal jobs' secrets, made at the first call. One that is there is never written again: without its keys
    /// what is sealed is lost.
    pub fn secrets_key(&self) -> anyhow::Result<PathBuf> {
        let file = self.root.join("secrets/secrets.key");
        if !file.try_exists().with_context(|| format!("looking for {}", file.display()))? {
            let mut key = [0u8; 32];
            getrandom::fill(&mut key).map_err(|error| anyhow::anyhow!("drawing a key: {error}"))?;
            write_private(&file, &format!("{}\n", hex::encode(key)))?;
        }
        Ok(file)
    }

    fn token_file(&self, name: &str) -> PathBuf {
        self.root.join(format!("secrets/{name}.token"))
    }
}

/// Readable to its owner only.
fn write_private(file: &Path, text: &str) -> anyhow::Result<()> {
    // Renamed into place: whoever reads it finds what there was or this, never a part.
    let new = file.with_extension("new");
    let mut handle = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)
        .with_context(|| format!("creating {}", new.display()))?;
    handle.write_all(text.as_bytes())?;
    handle.sync_all()?;
    fs::rename(&new, file).with_context(|| format!("writing {}", file.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_token_is_made_once_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(Some(dir.path().join("data"))).unwrap();
        let first = directory.token("admin").unwrap();
        assert_eq!(first.secret, directory.token("admin").unwrap().secret);
        assert_eq!(fs::metadata(&first.file).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_token_whose_file_is_gone_or_empty_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(Some(dir.path().join("data"))).unwrap();
        let first = directory.token("admin").unwrap();
        fs::remove_file(&first.file).unwrap();
        let second = directory.token("admin").unwrap();
        fs::write(&second.file, "\n").unwrap();
        let third = directory.token("admin").unwrap();
        assert!(third.secret.starts_with("hw_") && third.secret != second.secret && second.secret != first.secret);
        assert_eq!(fs::read_to_string(&third.file).unwrap(), third.secret);
        assert_eq!(fs::metadata(&third.file).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn the_key_of_secrets_is_made_once_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(Some(dir.path().join("data"))).unwrap();
        let file = directory.secrets_key().unwrap();
        let key = fs::read_to_string(&file).unwrap();
        assert_eq!(hex::decode(key.trim()).unwrap().len(), 32);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(directory.secrets_key().unwrap()).unwrap(), key);
    }

    #[test]
    fn a_data_directory_has_one_owner() {
        let dir = tempfile::tempdir().unwrap();
        let _held = DataDirectory::open(Some(dir.path().join("data"))).unwrap();
        assert!(DataDirectory::open(Some(dir.path().join("data"))).is_err());
    }
}
