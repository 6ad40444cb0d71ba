//! The data directory: which file lies where, and how one is written so that a crash leaves the old or the new.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use headway_types::{Generation, JobId};
use rustix::fs::{FallocateFlags, fallocate};

use crate::AgentError;
use crate::user::{UnixUser, give};

/// Longest path a unix socket address holds on Linux, without its closing zero.
const SOCKET_PATH_LIMIT: usize = 107;
/// Room for several ledgers of thousands of groups.
const RESERVE: u64 = 4 << 20;
/// Holds the id of the node.
pub(crate) const NODE_ID: &str = "node_id";

/// The paths below a data directory.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    root: PathBuf,
    /// Permissions of the directories: for this user alone, or for others to pass through.
    mode: u32,
}

/// Whoever holds it is the only agent of the data directory.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Files {
    /// Creates and locks the directory, so that two agents never share one. `for_others`: workers of other users must
    /// be able to pass through it, though not to look around.
    pub(crate) fn open(root: &Path, for_others: bool) -> Result<(Self, Lock), AgentError> {
        let creating = || format!("creating {}", root.display());
        let mode = if for_others { 0o711 } else { 0o700 };
        create_dir(root, mode).map_err(AgentError::io(creating()))?;
        let root = fs::canonicalize(root).map_err(AgentError::io(format!("resolving {}", root.display())))?;
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(root.join("lock"));
        let lock = lock.map_err(AgentError::io("creating the lock file"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(AgentError::Locked(root)),
            Err(TryLockError::Error(source)) => return Err(AgentError::io("locking the data directory")(source)),
        }
        let files = Self { root, mode };
        let path = files.socket();
        let length = path.as_os_str().len();
        if length > SOCKET_PATH_LIMIT {
            return Err(AgentError::SocketPath { path, length, limit: SOCKET_PATH_LIMIT });
        }
        Ok((files, Lock { _file: lock }))
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.root.join("s")
    }

    pub(crate) fn node_id(&self) -> PathBuf {
        self.root.join(NODE_ID)
    }

    /// Faults on demand, see `gpu/fault.rs`.
    pub(crate) fn faults(&self) -> PathBuf {
        self.root.join("faults.json")
    }

    /// What a warm interpreter says on its standard error.
    pub(crate) fn complaints(&self, number: u64) -> PathBuf {
        self.root.join(format!("warm-{number}.log"))
    }

    pub(crate) fn ledger(&self) -> PathBuf {
        self.root.join("ledger.json")
    }

    /// The generation before it.
    pub(crate) fn former_ledger(&self) -> PathBuf {
        self.root.join("ledger.former.json")
    }

    /// Checkpoint roots in which only root can save (`closed_roots.rs`).
    pub(crate) fn closed_roots(&self) -> PathBuf {
        self.root.join("closed_roots.json")
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn jobs(&self) -> PathBuf {
        self.root.join("jobs")
    }

    pub(crate) fn job(&self, job: JobId) -> PathBuf {
        self.jobs().join(job.to_string())
    }

    /// Where workers of the job start that name no directory of their own; theirs to write to.
    pub(crate) fn work(&self, job: JobId) -> PathBuf {
        self.job(job).join("work")
    }

    /// Logs, exit statuses and the secret of one generation. The files belong to the job's user, the directory does
    /// not: nobody else can put a link in their place for the agent to follow.
    pub(crate) fn group(&self, job: JobId, generation: Generation) -> PathBuf {
        self.job(job).join(generation.to_string())
    }

    pub(crate) fn log(&self, job: JobId, generation: Generation, rank: u32) -> PathBuf {
        self.group(job, generation).join(format!("rank-{rank}.log"))
    }

    /// Where a rank's exit status lands, also while no agent watches.
    pub(crate) fn exit_status(&self, job: JobId, generation: Generation, rank: u32) -> PathBuf {
        self.group(job, generation).join(format!("rank-{rank}.exit"))
    }

    /// The name of the file that holds the order of a launch (`recovery.rs`).
    pub(crate) const ORDER: &'static str = "order.json";

    pub(crate) fn order(&self, job: JobId, generation: Generation) -> PathBuf {
        self.group(job, generation).join(Self::ORDER)
    }

    pub(crate) fn secret(&self, job: JobId, generation: Generation) -> PathBuf {
        self.group(job, generation).join("secret")
    }

    /// Makes the directories of a generation; the working directory goes to the job's user.
    pub(crate) fn make_group(
        &self,
        job: JobId,
        generation: Generation,
        user: Option<&UnixUser>,
    ) -> std::io::Result<()> {
        create_dir(&self.job(job), self.mode)?;
        create_dir(&self.group(job, generation), self.mode)?;
        let work = self.work(job);
        create_dir(&work, 0o700)?;
        give(&work, user)
    }

    /// An empty directory, made if it is not there, for what is mounted where nobody else sees it.
    pub(crate) fn mount(&self) -> std::io::Result<PathBuf> {
        let path = self.root.join("mount");
        create_dir(&path, 0o700)?;
        Ok(path)
    }

    fn reserved(&self) -> PathBuf {
        self.root.join("reserve")
    }

    /// Makes room for the ledger, once.
    pub(crate) fn give_up_reserve(&self) {
        let _was_gone = fs::remove_file(self.reserved());
    }

    /// Sets room aside for a ledger that must be stored on a full disk, unless that was done before.
    pub(crate) fn reserve(&self) -> std::io::Result<()> {
        let path = self.reserved();
        let file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(()),
            Err(error) => return Err(error),
        };
        let reserved = match fallocate(&file, FallocateFlags::empty(), 0, RESERVE) {
            // A file system that cannot set room aside may still have it.
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            result => result,
        };
        reserved.map_err(|error| {
            let _full_anyway = fs::remove_file(&path);
            error.into()
        })
    }
}

pub(crate) fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Creates a directory and its parents; one that was there gets the permissions too.
fn create_dir(path: &Path, mode: u32) -> std::io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(mode).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// The beginning of a small text file whose writer is not to be trusted with the agent's memory.
pub(crate) fn read_beginning(path: &Path, limit: u64) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(limit).read_to_string(&mut text)?;
    Ok(text)
}

/// The last `limit` bytes of a file as text; what is no text in it is marked as such.
pub(crate) fn read_end(path: &Path, limit: u64) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(limit)))?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Replaces a file as a whole: temporary name, sync, rename, sync of the directory.
pub(crate) fn write_durably(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let temporary = path.with_extension("tmp");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn two_agents_never_share_a_data_directory() {
        let dir = tempfile::tempdir().unwrap();
        let first = Files::open(dir.path(), false).unwrap();
        assert!(matches!(Files::open(dir.path(), false), Err(AgentError::Locked(_))));
        drop(first);
        assert!(Files::open(dir.path(), false).is_ok());
    }

    #[test]
    fn no_more_than_the_beginning_of_a_file_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "abcdef").unwrap();
        assert_eq!(read_beginning(&path, 4).unwrap(), "abcd");
        assert_eq!(read_beginning(&path, 9).unwrap(), "abcdef");
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused_with_its_length() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("x".repeat(120));
        assert!(matches!(Files::open(&deep, false), Err(AgentError::SocketPath { limit: 107, .. })));
    }
}
