//! A failure beside a full disk. Output, exit statuses, working directories and the ledger lie on one file system; when it has no room left,
//! what fails fails for that, unless the job's own files are what fills it. The job's checkpoints, and the working directory that it names,
//! may lie on others: of these the failure names the one that is full.

use std::path::Path;
use std::time::Duration;

use headway_node::Share;
use headway_types::{Bytes, Fault, LaunchOrder};
use tokio::sync::oneshot;

use crate::files::Files;
use crate::pressure::{Room, room};
use crate::site::Site;

/// Of the whole file system: who holds more in its working directory has filled it.
const MOST_OF_ONE: f64 = 0.25;
/// Files that are weighed in a working directory. Who makes more of them holds the disk by their number.
const MOST_FILES: usize = 100_000;
/// How long a shared file system may take to answer: a dead one never does.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whose fault a failure is that has just happened, where it may be that of a full disk.
pub(crate) async fn full_disk(site: &Site, order: &LaunchOrder) -> Option<Fault> {
    let Some(room) = room(site.files.root()).filter(Room::is_used_up) else {
        return full_elsewhere(order.clone()).await;
    };
    let ranks = Share::of(order, site.inventory.now().node).map_or(1, |share| share.processes(order).len());
    let (files, order, limit) = (site.files.clone(), order.clone(), site.output.per_rank);
    // A walk of its files may take a while.
    let own = tokio::task::spawn_blocking(move || own(&files, &order, limit, ranks)).await.ok()?;
    Some(judge(&room, &own, site.files.root()))
}

/// The same of the disks that the order names, without waiting for one that does not answer.
async fn full_elsewhere(order: LaunchOrder) -> Option<Fault> {
    let (sender, found) = oneshot::channel();
    // Of its own: an agent that goes down waits for the threads of its runtime.
    let thread = std::thread::Builder::new().name("full-disk".to_owned());
    thread.spawn(move || drop(sender.send(full_by_order(&order)))).ok()?;
    tokio::time::timeout(PATIENCE, found).await.ok()?.ok()?
}

/// Checkpoints lie where all nodes and jobs save, so a full disk there speaks against none of them (`prepare.rs`). The working directory is
/// the job's own choice.
fn full_by_order(order: &LaunchOrder) -> Option<Fault> {
    let is_full = |path: &Path| room(path).filter(Room::is_full).map(|room| room.words(path));
    if let Some(has) = is_full(Path::new(&order.checkpoint_dir)) {
        return Some(Fault { full_disk: true, ..Fault::of_infrastructure(format!("checkpoint directory {has}")) });
    }
    let has = is_full(Path::new(order.run.workdir.as_ref()?))?;
    Some(Fault::of_job(format!("working directory {has}")))
}

/// What a job has on the disk.
#[derive(Clone, Copy, Debug, Default)]
struct Own {
    work: Bytes,
    /// Of its ranks' output, beyond what is kept of it.
    output_beyond: Bytes,
    /// It has more files than anybody counts.
    countless: bool,
}

fn own(files: &Files, order: &LaunchOrder, limit: Bytes, ranks: usize) -> Own {
    let mut left = MOST_FILES;
    let output = weigh(&files.group(order.job, order.generation), &mut left);
    let work = weigh(&files.work(order.job), &mut left);
    let kept = limit.0.saturating_mul(ranks as u64);
    Own { work, output_beyond: Bytes(output.0.saturating_sub(kept)), countless: left == 0 }
}

fn judge(room: &Room, own: &Own, root: &Path) -> Fault {
    let has = room.words(root);
    if own.countless {
        return Fault::of_job(format!("{has}, where the job has more than {MOST_FILES} files"));
    }
    let held = Bytes(own.work.0 + own.output_beyond.0);
    if own.output_beyond.0 > 0 || held.0 as f64 > MOST_OF_ONE * room.space.total.0 as f64 {
        return Fault::of_job(format!("{has}, of which its own files take {} MiB", held.0 >> 20));
    }
    Fault::of_full_disk(has)
}

/// What the files below a directory take, as far as so many of them may be looked at. Links are not followed.
fn weigh(directory: &Path, left: &mut usize) -> Bytes {
    use std::os::unix::fs::MetadataExt;
    let (mut bytes, mut directories) = (0, vec![directory.to_owned()]);
    while let Some(directory) = directories.pop() {
        // What goes meanwhile, or cannot be read, is not counted.
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if *left == 0 {
                return Bytes(bytes);
            }
            *left -= 1;
            let Ok(metadata) = entry.metadata() else { continue };
            bytes += metadata.blocks() * 512;
            if metadata.is_dir() {
                directories.push(entry.path());
            }
        }
    }
    Bytes(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use headway_types::Blame;

    use super::*;
    use crate::pressure::Space;

    const MIB: u64 = 1 << 20;

    fn full() -> Room {
        Room { space: Space { free: Bytes(0), total: Bytes(1000 * MIB) }, files: Some(7), read_only: false }
    }

    #[test]
    fn who_has_filled_a_disk_answers_for_it() {
        let blamed = |own: Own| judge(&full(), &own, Path::new("/d")).blame;
        assert_eq!(blamed(Own::default()), Blame::Node);
        assert_eq!(blamed(Own { work: Bytes(200 * MIB), ..Own::default() }), Blame::Node);
        assert_eq!(blamed(Own { work: Bytes(300 * MIB), ..Own::default() }), Blame::Job);
        assert_eq!(blamed(Own { output_beyond: Bytes(1), ..Own::default() }), Blame::Job);
        assert_eq!(blamed(Own { countless: true, ..Own::default() }), Blame::Job);
        assert_eq!(judge(&full(), &Own::default(), Path::new("/d")).message, "/d has 0 MiB of 1000 MiB left");
        let files = Room { files: Some(0), ..full() };
        assert_eq!(judge(&files, &Own::default(), Path::new("/d")).message, "/d has no room for another file");
    }

    #[test]
    fn what_a_directory_takes_is_weighed_as_far_as_files_may_be_counted() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("deep")).unwrap();
        for name in ["one", "deep/two"] {
            std::fs::write(dir.path().join(name), vec![1_u8; 1 << 20]).unwrap();
        }
        std::os::unix::fs::symlink("/", dir.path().join("deep/all")).unwrap();
        let mut left = 10;
        assert!((2 * MIB..3 * MIB).contains(&weigh(dir.path(), &mut left).0));
        assert_eq!(left, 6);
        let mut left = 2;
        weigh(dir.path(), &mut left);
        assert_eq!(left, 0);
    }
}
