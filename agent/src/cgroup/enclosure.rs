//! The cgroup of a warm interpreter. It runs as a user and may be one of the user's choosing, outside every job, so that
//! nothing else would bound what it takes or end what it starts. Workers that it forks are moved out before they run.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use headway_types::Bytes;

use super::{Cgroups, children, end, joining, kill, remove};

const NAME: &str = "warm-";
/// An interpreter has one thread, and forks one worker at a time; its imports may run a program or two.
const PROCESSES: u32 = 64;

/// Killed when dropped, with all that is still inside.
#[derive(Debug)]
pub(crate) struct Enclosure(PathBuf);

impl Cgroups {
    /// Ends what interpreters of a former agent have left: they end with it, what they started may not.
    pub(super) fn clear_enclosures(&self) {
        let left = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(NAME));
        for path in children(&self.workers).into_iter().filter(left) {
            kill(&path);
            let _still_populated = remove(&path);
        }
    }

    /// Makes one that takes no more than this memory.
    pub(crate) fn enclose(&self, most: Bytes) -> io::Result<Enclosure> {
        for number in 0_u64.. {
            let path = self.workers.join(format!("{NAME}{number}"));
            match fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    self.bound(&path, "memory.max", most.0);
                    self.bound(&path, "pids.max", u64::from(PROCESSES));
                    return Ok(Enclosure(path));
                }
            }
        }
        unreachable!("some number is free")
    }

    /// A bound that cannot be had keeps nobody from being quick; where no controller is there, that has been told at start.
    fn bound(&self, path: &Path, file: &str, most: u64) {
        match fs::write(path.join(file), most.to_string()) {
            Err(error) if self.bounded => {
                tracing::warn!(path = %path.display(), file, %error, "an interpreter is not bounded");
            }
            _ => {}
        }
    }
}

impl Enclosure {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The words that make a command start inside it.
    pub(crate) fn words(&self) -> Vec<String> {
        joining(&self.0)
    }
}

impl Drop for Enclosure {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.0);
        kill(&path);
        // Without a runtime the agent is going down, and the next one removes it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { end(&path).await });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::tests::open;
    use super::*;

    #[test]
    fn each_has_its_own_bounds_and_a_former_agents_are_killed() {
        let dir = tempfile::tempdir().unwrap();
        let node = headway_types::NodeId(uuid::Uuid::from_u128(4));
        let cgroups = open(dir.path(), node);
        let (one, other) = (cgroups.enclose(Bytes(1 << 31)).unwrap(), cgroups.enclose(Bytes(1 << 31)).unwrap());
        assert_ne!(one.0, other.0);
        for (file, most) in [("memory.max", "2147483648"), ("pids.max", "64")] {
            assert_eq!(fs::read_to_string(one.0.join(file)).unwrap(), most);
        }
        let words = one.words();
        let status = std::process::Command::new(&words[0]).args(&words[1..]).arg("true").status().unwrap();
        assert!(status.success() && fs::read_to_string(one.0.join("cgroup.procs")).unwrap() == "0\n");

        open(dir.path(), node);
        for left in [&one, &other] {
            assert_eq!(fs::read_to_string(left.0.join("cgroup.kill")).unwrap(), "1");
        }
    }

    #[test]
    fn what_a_former_agent_has_left_goes_with_the_next() {
        let Some(real) = super::super::tests::Real::make("left") else { return };
        let node = headway_types::NodeId(uuid::Uuid::from_u128(4));
        open(&real.0, node);
        let left = real.0.join(format!("workers-{node}/warm-7"));
        fs::create_dir(&left).unwrap();
        open(&real.0, node);
        assert!(!left.exists());
    }
}
