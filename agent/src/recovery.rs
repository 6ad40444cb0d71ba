//! Successes that a lost ledger does not tell of. Beside a group's output lies its order, from its launch until something
//! but its own work may end it: a stop (also one that begins with a notice), or a worker that leaves early. Where all ranks of the group wrote that they
//! exited 0, the group has succeeded, and its job must not run again.
//!
//! The exit statuses are files of the job's user, who can lie about that job only. What still runs is no success: it is
//! ended (`orphans.rs`), and the scheduler is told that the ledger has no trace of it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use headway_node::{Exit, Ledger, Share};
use headway_types::{Generation, JobId, LaunchOrder};

use crate::files::{Files, read_beginning, write_durably};

/// More than any exit status takes, in bytes.
const STATUS_LIMIT: u64 = 64;
/// More than any order takes, in bytes.
const ORDER_LIMIT: u64 = 16 << 20;

/// Notes that a group is about to be launched. Without the note its success is known from the ledger alone.
pub(crate) fn note_launch(files: &Files, order: &LaunchOrder) {
    let text = serde_json::to_vec(order).map_err(io::Error::other);
    let path = files.order(order.job, order.generation);
    if let Err(error) = text.and_then(|text| write_durably(&path, &text)) {
        tracing::warn!(job_id = %order.job, %error, "the order of a launch is not kept beside its output");
    }
}

/// Removes the note, before anything but the group's own work can end it, and once the scheduler has recorded its end.
pub(crate) fn forget_launch(files: &Files, job: JobId, generation: Generation) {
    let path = files.order(job, generation);
    match fs::remove_file(&path) {
        // After a loss of power it must not be back: a group that was stopped is no success.
        Ok(()) => sync_parent(&path),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "the order of a launch stays beside its output");
        }
        Err(_) => {}
    }
}

fn sync_parent(path: &Path) {
    let synced = path.parent().map_or(Ok(()), |parent| fs::File::open(parent)?.sync_all());
    if let Err(error) = synced {
        tracing::warn!(path = %path.display(), %error, "the removal of a launch's order is not on disk");
    }
}

/// Takes up the successes that a ledger does not know. Returns how many there are. To be called where a newer ledger was
/// lost.
pub(crate) fn recover_successes(files: &Files, ledger: &mut Ledger) -> usize {
    let mut recovered = 0;
    for order in list_groups(files).iter().filter_map(|group| read_order(group)) {
        let (job_id, generation, epilog) = (order.job, order.generation, order.run.hooks.epilog.is_some());
        if has_succeeded(files, ledger, &order) && ledger.recover_success(order) {
            tracing::info!(%job_id, %generation, "the ledger was lost; a group that it had known has succeeded");
            if epilog {
                tracing::warn!(%job_id, %generation, "its epilog is not run, since it may have run before");
            }
            recovered += 1;
        }
    }
    recovered
}

/// Returns what the shell around a rank wrote of its end; `None` where it wrote nothing, or not all of it.
pub(crate) fn read_exit(files: &Files, job: JobId, generation: Generation, rank: u32) -> Option<Exit> {
    let written = read_beginning(&files.exit_status(job, generation, rank), STATUS_LIMIT).ok();
    let complete = written.filter(|text| text.ends_with('\n'));
    complete.and_then(|text| text.trim().parse().ok()).map(Exit::Code)
}

fn has_succeeded(files: &Files, ledger: &Ledger, order: &LaunchOrder) -> bool {
    let exit = |rank| read_exit(files, order.job, order.generation, rank);
    let share = Share::of(order, ledger.node());
    share.is_some_and(|share| share.processes(order).all(|rank| exit(rank) == Some(Exit::Code(0))))
}

/// Returns the order beside the output of a group, where it is of this group.
fn read_order(group: &Path) -> Option<LaunchOrder> {
    let text = read_beginning(&group.join(Files::ORDER), ORDER_LIMIT).ok()?;
    let order: LaunchOrder = serde_json::from_str(&text).ok()?;
    group.ends_with(format!("{}/{}", order.job, order.generation)).then_some(order)
}

/// Returns the directories of all generations: those that belong to the agent. Beside them lies the working directory, in
/// which a job's user may put anything.
fn list_groups(files: &Files) -> Vec<PathBuf> {
    let is_generation = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.and_then(|name| name.strip_prefix('g')).is_some_and(|number| number.parse::<u64>().is_ok())
    };
    let groups = list_directories(&files.jobs()).into_iter().flat_map(|job| list_directories(&job));
    groups.filter(is_generation).collect()
}

/// Returns the directories in one, without those that links lead to.
fn list_directories(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.path()).collect()
}
