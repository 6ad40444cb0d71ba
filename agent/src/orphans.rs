//! Workers of this node that the ledger does not know, because it was lost or left behind: found and killed before the
//! node offers its GPUs, since the scheduler takes a ledger without a group for proof that the group is gone.

use std::collections::BTreeSet;
use std::path::Path;

use headway_node::Ledger;
use headway_types::{Generation, JobId, NodeId};

use crate::environment::mark;
use crate::process;
use crate::site::Site;

/// Kills every process that carries this node's mark, was given this data directory's socket or is in this agent's
/// cgroups, and belongs to no live group of the ledger. Returns once none is left, with the number of launches ended.
pub(crate) async fn end(ledger: &Ledger, site: &Site) -> usize {
    let marked = end_marked(ledger, &site.files.socket()).await;
    let Some(cgroups) = &site.cgroups else { return marked };
    let lives = |job, generation| ledger.group(job, generation).is_some_and(|group| group.phase.may_have_processes());
    let others = cgroups.end_others(lives).await;
    for launch in &others {
        tracing::warn!(launch, "removed a cgroup that the ledger does not know");
    }
    marked.max(others.len())
}

async fn end_marked(ledger: &Ledger, socket: &Path) -> usize {
    let known: BTreeSet<String> = ledger
        .groups()
        .filter(|group| group.phase.may_have_processes())
        .map(|group| mark(ledger.node(), group.job(), group.generation()))
        .collect();
    let orphans = loop {
        let (known, node, socket) = (known.clone(), ledger.node(), socket.to_owned());
        let found = tokio::task::spawn_blocking(move || find(&known, node, &socket)).await;
        match found.map_err(std::io::Error::other).flatten() {
            Ok(orphans) => break orphans,
            Err(error) => {
                tracing::warn!(%error, "cannot tell whether workers of an earlier agent are left");
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            }
        }
    };
    for launch in &orphans {
        tracing::warn!(launch, "killing workers that the ledger does not know");
        process::sweep(launch.clone(), None).await;
    }
    orphans.len()
}

/// Marks of launches, each as the prefix that all its ranks share. The socket is what an agent that lost its whole
/// directory, and with it its id, still has in common with its workers.
fn find(known: &BTreeSet<String>, node: NodeId, socket: &Path) -> std::io::Result<BTreeSet<String>> {
    let ours = (format!("{}={node}/", process::MARK), format!("HEADWAY_SOCKET={}", socket.display()));
    let marks = process::marks(|variables| variables.iter().any(|one| one.starts_with(&ours.0) || *one == ours.1))?;
    Ok(marks.iter().filter_map(|mark| launch_of(mark)).filter(|launch| !known.contains(launch)).collect())
}

/// `<node>/<job>/g<generation>/<rank>/` without its rank; `None` for what no agent writes.
fn launch_of(text: &str) -> Option<String> {
    let mut parts = text.split('/');
    let node: NodeId = parts.next()?.parse().ok()?;
    let job: JobId = parts.next()?.parse().ok()?;
    let generation = parts.next()?.strip_prefix('g')?.parse().ok()?;
    Some(mark(node, job, Generation(generation)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use headway_types::BootId;

    use super::*;

    fn id(n: u128) -> uuid::Uuid {
        uuid::Uuid::from_u128(n)
    }

    #[tokio::test]
    async fn what_the_ledger_does_not_know_is_killed_and_others_workers_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let [node, lost, other] = [(); 3].map(|()| NodeId(uuid::Uuid::now_v7()));
        let start = |node: NodeId, socket: &Path| {
            let mark = format!("{}0/", mark(node, JobId(id(1)), Generation(4)));
            let mut command = std::process::Command::new("sleep");
            command.arg("60").env(process::MARK, mark).env("HEADWAY_SOCKET", socket);
            command.spawn().unwrap()
        };
        let mut marked = start(node, Path::new("/elsewhere/s"));
        let mut of_a_lost_disk = start(lost, &socket);
        let mut strangers = start(other, Path::new("/elsewhere/s"));
        // A fork shows its parent's environment until it has become `sleep`.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while find(&BTreeSet::new(), node, &socket).unwrap().len() < 2 && std::time::Instant::now() < deadline {
            tokio::task::yield_now().await;
        }
        assert_eq!(end_marked(&Ledger::new(node, BootId("b".into())), &socket).await, 2);
        assert!(!marked.wait().unwrap().success());
        assert!(!of_a_lost_disk.wait().unwrap().success());
        assert!(strangers.try_wait().unwrap().is_none());
        strangers.kill().unwrap();
        strangers.wait().unwrap();
    }
}
