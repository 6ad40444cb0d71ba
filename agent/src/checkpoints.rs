//! What the agent does below a job's checkpoint directory, always as the job's user. It checks what workers offer
//! (`verify.rs`), finds the newest checkpoint where the one to resume from is missing (`missing.rs`), and removes: the
//! directory itself where it is empty, and older checkpoints where the job says how many it keeps (`prune.rs`). Both
//! removals wait for the scheduler's word. No link is followed.
//!
//! The alternative for empty directories was the end of the job. An agent does not learn of the end of a job that was
//! waiting in the queue, so each generation cleans up behind itself, once the scheduler has recorded its end. Several
//! nodes may do so at once on one file system, and the next generation may start meanwhile: only empty directories of
//! generations up to the one that has ended are removed, by `rmdir` alone, and a start begins again where the
//! directory vanishes under it (`prepare.rs`).

mod find;
mod links;
mod missing;
mod prune;
mod verify;

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use headway_types::LaunchOrder;

use crate::site::Site;
use crate::user_program::run_script;
pub(crate) use missing::describe_missing;
pub(crate) use prune::{Pruner, prune};
pub(crate) use verify::verify;

/// How long a file system may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Removes the directory `$1` of a job if it holds nothing but empty directories, and none of a generation after
/// `$2`. Directories of later generations are never named here, so one that is made meanwhile stays, and with it the
/// job's directory.
const REMOVE_EMPTY: &str = r#"
[ -d "$1" ] && [ ! -L "$1" ] && cd -P -- "$1" || exit 0
[ -z "$(find . ! -type d -print -quit)" ] || exit 0
for each in g[0-9]*; do
    number=${each#g}
    case $number in *[!0-9]*) continue ;; esac
    [ "$number" -le "$2" ] || exit 0
done
for each in g[0-9]*; do
    number=${each#g}
    case $number in *[!0-9]*) continue ;; esac
    [ "$number" -le "$2" ] || continue
    find "./$each" -depth -type d -exec rmdir -- {} +
done
find . -mindepth 1 -depth -type d ! -path './g[0-9]*' -exec rmdir -- {} +
cd / && rmdir -- "$1"
exit 0
"#;

/// Removes the checkpoint directory of a job whose generation has ended, if no generation has left a file in it.
pub(crate) async fn remove_empty(order: &LaunchOrder, site: &Site) {
    let directory = Path::new(&order.checkpoint_dir);
    // An order that names another directory was not made by Headway.
    if !directory.ends_with(order.job.to_string()) {
        return;
    }
    let user = match site.user_of_started(&order.owner).await {
        Ok(user) => user,
        Err(fault) => {
            let why = fault.message;
            return tracing::debug!(job_id = %order.job, why, "an empty checkpoint directory may stay");
        }
    };
    let (prefix, generation) = (site.users.prefix(user.as_ref()), order.generation.0.to_string());
    let arguments = [directory.as_os_str(), OsStr::new(&generation)];
    // Messages of the script are about directories that others have removed or filled meanwhile.
    if let Err(why) = run_script(&prefix, REMOVE_EMPTY, &arguments, &[], PATIENCE).await {
        tracing::debug!(job_id = %order.job, %why, "an empty checkpoint directory may stay");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use headway_types::{CheckpointRef, Generation, JobId, Sequences};
    use serde_json::json;
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::node::tests::fixture;

    /// The order of a job's generation 2, and the job's checkpoint directory.
    pub(super) struct Scratch {
        pub site: Site,
        pub order: LaunchOrder,
        pub job: PathBuf,
        _dir: tempfile::TempDir,
    }

    impl Scratch {
        /// A complete checkpoint with two files, one of them below a directory.
        pub fn save(&self, generation: u64, samples: u64) -> CheckpointRef {
            self.save_as(self.order.job, generation, samples)
        }

        pub fn save_as(&self, job: JobId, generation: u64, samples: u64) -> CheckpointRef {
            let path = self.job.join(format!("g{generation}/step-{samples:09}"));
            fs::create_dir_all(path.join("parts")).unwrap();
            for name in ["model.pt", "parts/a b.pt"] {
                fs::write(path.join(name), "x").unwrap();
            }
            let files = json!([{"name": "model.pt", "bytes": 1, "sha256": ""}, {"name": "parts/a b.pt", "bytes": 1, "sha256": ""}]);
            let text =
                json!({"job": job, "generation": generation, "step": samples, "samples_seen": samples, "files": files});
            fs::write(path.join("manifest.json"), text.to_string()).unwrap();
            CheckpointRef {
                generation: Generation(generation),
                path: path.display().to_string(),
                step: samples,
                samples_seen: Sequences(samples),
                manifest_sha256: hex::encode(Sha256::digest(text.to_string())),
            }
        }
    }

    pub(super) fn make_scratch() -> Scratch {
        let dir = tempfile::tempdir().unwrap();
        let site = fixture::site(&dir.path().join("agent"));
        let order = fixture::order(&site.inventory.now(), 2, "true");
        let job = dir.path().join("ck pt").join(order.job.to_string());
        fs::create_dir_all(&job).unwrap();
        let order = LaunchOrder { checkpoint_dir: job.display().to_string(), ..order };
        Scratch { site, order, job, _dir: dir }
    }

    /// A job whose generation 2 has just ended.
    fn scratch() -> Scratch {
        let scratch = make_scratch();
        fs::create_dir_all(scratch.job.join("g2")).unwrap();
        scratch
    }

    #[tokio::test]
    async fn a_directory_with_nothing_but_empty_directories_is_removed() {
        let Scratch { site, order, job, _dir } = scratch();
        for each in ["g1/step-000000001/deep", ".hidden", "own/two words", "g2/.step-000000003"] {
            fs::create_dir_all(job.join(each)).unwrap();
        }
        remove_empty(&order, &site).await;
        assert!(!job.exists());
        assert!(job.parent().unwrap().is_dir(), "the root is not the job's");
        // Another node of the gang was first.
        remove_empty(&order, &site).await;
    }

    #[tokio::test]
    async fn a_file_a_link_or_a_later_generation_keeps_all_of_it() {
        let Scratch { site, order, job, _dir } = scratch();
        let elsewhere = job.parent().unwrap().join("elsewhere");
        fs::create_dir_all(elsewhere.join("empty")).unwrap();
        fs::create_dir_all(job.join("g1/empty")).unwrap();
        for (name, make) in [
            ("g1/file", (|path: &Path| fs::write(path, "x").unwrap()) as fn(&Path)),
            ("g2/link", |path| symlink("../../elsewhere", path).unwrap()),
            ("g10", |path| fs::create_dir(path).unwrap()),
        ] {
            make(&job.join(name));
            remove_empty(&order, &site).await;
            assert!(job.join("g1/empty").is_dir() && job.join("g2").is_dir(), "{name}");
            assert!(elsewhere.join("empty").is_dir(), "{name}");
            match name {
                "g10" => fs::remove_dir(job.join(name)).unwrap(),
                _ => fs::remove_file(job.join(name)).unwrap(),
            }
        }
        remove_empty(&order, &site).await;
        assert!(!job.exists());
        // A link in the place of the directory is not followed.
        symlink(&elsewhere, &job).unwrap();
        remove_empty(&order, &site).await;
        assert!(elsewhere.join("empty").is_dir() && job.is_symlink());
    }

    #[tokio::test]
    async fn a_directory_that_is_not_called_by_the_job_is_left_alone() {
        let Scratch { site, order, job, _dir } = scratch();
        let root = job.parent().unwrap().to_owned();
        let order = LaunchOrder { checkpoint_dir: root.display().to_string(), generation: Generation(9), ..order };
        remove_empty(&order, &site).await;
        assert!(job.join("g2").is_dir());
    }
}
