//! Checkpoint roots in which only root can save. An agent that runs jobs as their owners checks the root of its cluster
//! when the scheduler names it, at the begin of a session, and any other when a job cannot save there. It warns then, and
//! again at each of its starts until the root is open. It never decides about a job: the checks before a launch do
//! (`prepare.rs`).

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use headway_types::LaunchOrder;
use nix::unistd::geteuid;

use crate::files::{Files, write_durably};

/// Roots that are remembered: a job may name any directory as its own.
const MOST: usize = 16;
const OTHERS_OR_GROUP_WRITE: u32 = 0o022;

/// The closed roots that this agent, or one before it, has met.
#[derive(Clone, Debug)]
pub(crate) struct ClosedRoots {
    path: PathBuf,
    known: Arc<Mutex<BTreeSet<PathBuf>>>,
    /// The cluster's own root, once a scheduler has named it.
    cluster_root: Arc<Mutex<Option<PathBuf>>>,
}

impl ClosedRoots {
    pub(crate) fn new(files: &Files) -> Self {
        let path = files.closed_roots();
        let known = fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
        Self { path, known: Arc::new(Mutex::new(known.unwrap_or_default())), cluster_root: Arc::default() }
    }

    /// Warns of each root that is still closed and forgets the others, without waiting for file systems.
    pub(crate) fn check(&self) {
        let roots = self.clone();
        run_beside(move || {
            roots.check_all();
        });
    }

    /// Warns of the cluster's own root, if only root can save there, without waiting for it. Each session names it: it is
    /// checked once, or sessions beside a dead file system would leave a thread each.
    pub(crate) fn report_cluster_root(&self, root: &str) {
        let (roots, root) = (self.clone(), PathBuf::from(root));
        let before = self.cluster_root.lock().unwrap_or_else(PoisonError::into_inner).replace(root.clone());
        if before.as_ref() == Some(&root) {
            return;
        }
        run_beside(move || {
            roots.report(&root);
        });
    }

    /// Warns of the root of an order whose owner could not save there, if only root can, without waiting for it.
    pub(crate) fn report_for(&self, order: &LaunchOrder) {
        let Some(root) = Path::new(&order.checkpoint_dir).parent().map(Path::to_owned) else { return };
        let roots = self.clone();
        run_beside(move || {
            roots.report(&root);
        });
    }

    /// Returns how many roots are closed.
    fn check_all(&self) -> usize {
        let before = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let closed: BTreeSet<PathBuf> = before.iter().filter(|root| is_closed(root)).cloned().collect();
        for root in &closed {
            warn_of_root(root);
        }
        if closed != before {
            self.replace(closed.clone());
        }
        closed.len()
    }

    /// Returns whether it is news that a root is closed. A relative path names none.
    fn report(&self, root: &Path) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if known.contains(root) || !root.is_absolute() || !is_closed(root) {
            return false;
        }
        warn_of_root(root);
        if known.len() >= MOST {
            known.pop_first();
        }
        known.insert(root.to_owned());
        self.replace(known);
        true
    }

    fn replace(&self, roots: BTreeSet<PathBuf>) {
        let stored = serde_json::to_vec(&roots).map_err(std::io::Error::other);
        if let Err(error) = stored.and_then(|text| write_durably(&self.path, &text)) {
            tracing::debug!(%error, "closed checkpoint roots are not remembered");
        }
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = roots;
    }
}

/// Runs this on a thread of its own, which an agent that goes down need not wait for.
fn run_beside(look: impl FnOnce() + Send + 'static) {
    if let Err(error) = std::thread::Builder::new().name("closed-roots".to_owned()).spawn(look) {
        tracing::debug!(%error, "checkpoint roots are not checked");
    }
}

/// Whether nobody but the agent's own user, which is root where jobs run as their owners, can write to a directory.
fn is_closed(root: &Path) -> bool {
    let found = fs::metadata(root).ok();
    found.is_some_and(|found| {
        found.uid() == geteuid().as_raw() && found.permissions().mode() & OTHERS_OR_GROUP_WRITE == 0
    })
}

fn warn_of_root(root: &Path) {
    tracing::warn!(
        root = %root.display(),
        "only root can save in this checkpoint root, so no job of another user can: if it is --checkpoint-root of the server, make \
         it mode 1777; else a job's training.checkpoint.dir is wrong"
    );
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs::Permissions;

    use super::*;

    #[test]
    fn a_closed_root_is_reported_once_and_again_at_each_start_until_it_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let (files, _lock) = Files::open(&dir.path().join("agent"), false).unwrap();
        let root = dir.path().join("checkpoints");
        let permit = |mode| fs::set_permissions(&root, Permissions::from_mode(mode)).unwrap();
        fs::create_dir(&root).unwrap();
        permit(0o755);
        let roots = ClosedRoots::new(&files);
        assert_eq!([(); 2].map(|()| roots.report(&root)), [true, false]);
        assert!(!roots.report(&dir.path().join("nowhere")));
        let next = ClosedRoots::new(&files);
        assert_eq!((next.check_all(), next.report(&root)), (1, false));
        for mode in [0o1777, 0o2775] {
            permit(mode);
            assert_eq!(ClosedRoots::new(&files).check_all(), 0, "{mode:o}");
        }
        permit(0o755);
        assert_eq!(ClosedRoots::new(&files).check_all(), 0, "it was forgotten when it was open");
    }

    #[test]
    fn no_job_fills_the_memory_of_closed_roots() {
        let dir = tempfile::tempdir().unwrap();
        let (files, _lock) = Files::open(&dir.path().join("agent"), false).unwrap();
        let roots = ClosedRoots::new(&files);
        let reported = (0..MOST + 4).filter(|number| {
            let root = dir.path().join(format!("root-{number}"));
            fs::create_dir(&root).unwrap();
            fs::set_permissions(&root, Permissions::from_mode(0o755)).unwrap();
            roots.report(&root)
        });
        assert_eq!(reported.count(), MOST + 4, "none is kept from being reported");
        assert_eq!(ClosedRoots::new(&files).check_all(), MOST);
    }
}
