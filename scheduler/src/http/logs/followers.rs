//! Who follows logs: so many at a time of one user, and so many of the jobs of one node, so that readers are in the way of nobody's node.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headway_types::{Generation, JobId, NodeId};

use crate::cluster::Cluster;
use crate::http::problem::Problem;
use crate::metrics;

/// Logs that one user follows at once.
const OF_ONE_USER: u32 = 32;
/// Followers that one node has at once. They ask it once a second at most while there is nothing new.
const OF_ONE_NODE: u32 = 128;
/// When to try again: followers leave when they like.
const LATER: Duration = Duration::from_secs(10);

/// All of this server; cheap to clone.
#[derive(Clone, Default)]
pub struct Followers(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    users: BTreeMap<String, u32>,
    nodes: BTreeMap<NodeId, u32>,
}

/// A place among them, until it is dropped.
pub struct Follower {
    followers: Followers,
    user: String,
    nodes: Vec<NodeId>,
}

impl Followers {
    /// Takes a follower of a job's newest attempt, or of this one, unless there are too many. One that waits for a start is its user's alone.
    pub fn admit(
        &self,
        user: &str,
        cluster: &Cluster,
        (job, generation): (JobId, Option<Generation>),
    ) -> Result<Follower, Problem> {
        let view = cluster.view();
        let running = view.jobs.get(&job).and_then(|live| live.allocation.as_ref());
        let read = running.filter(|one| generation.is_none_or(|asked| asked == one.generation));
        let slices = read.map_or(&[][..], |one| one.placement.slices());
        let nodes: Vec<NodeId> = slices.iter().map(|slice| slice.node).collect();
        let name = |node: NodeId| {
            view.nodes.get(&node).map_or_else(|| node.to_string(), |one| one.node.inventory.name.clone())
        };
        self.take(user, nodes, name)
    }

    fn take(&self, user: &str, nodes: Vec<NodeId>, name: impl Fn(NodeId) -> String) -> Result<Follower, Problem> {
        let mut counts = self.counts();
        if counts.users.get(user).is_some_and(|count| *count >= OF_ONE_USER) {
            return Err(too_many(format!("{user} follows {OF_ONE_USER} logs, which is the most at once")));
        }
        let full = nodes.iter().find(|node| counts.nodes.get(node).is_some_and(|count| *count >= OF_ONE_NODE));
        if let Some(node) = full {
            let name = name(*node);
            return Err(too_many(format!("{OF_ONE_NODE} logs of node {name} are followed, which is the most at once")));
        }
        *counts.users.entry(user.to_owned()).or_default() += 1;
        nodes.iter().for_each(|node| *counts.nodes.entry(*node).or_default() += 1);
        Ok(Follower { followers: self.clone(), user: user.to_owned(), nodes })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        // Counts are valid between any two operations.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut counts = self.followers.counts();
        give_back(&mut counts.users, &self.user);
        self.nodes.iter().for_each(|node| give_back(&mut counts.nodes, node));
    }
}

fn give_back<K: Ord>(counts: &mut BTreeMap<K, u32>, key: &K) {
    match counts.get_mut(key) {
        Some(count) if *count > 1 => *count -= 1,
        _ => drop(counts.remove(key)),
    }
}

fn too_many(detail: String) -> Problem {
    metrics::quota_refused("followers");
    Problem::too_many("too_many_followers", detail, LATER)
        .hint("end some of them (`headway logs --follow`), or read without --follow")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use headway_types::{IdSource, Timestamp};

    use super::*;

    #[test]
    fn a_user_and_a_node_have_so_many_followers_and_what_is_given_back_can_be_had_again() {
        let followers = Followers::default();
        let mut ids = IdSource::seeded(1);
        let (one, other) = (ids.node(Timestamp(0)), ids.node(Timestamp(0)));
        let take = |user: &str, nodes: &[NodeId]| followers.take(user, nodes.to_vec(), |_| "gpu-1".into());
        let mut held: Vec<Follower> = (0..OF_ONE_USER).map(|_| take("eve", &[one]).unwrap()).collect();
        let refused = take("eve", &[other]).err().unwrap();
        assert_eq!((refused.code(), refused.status().as_u16()), ("too_many_followers", 429));
        assert!(refused.detailed().contains("eve follows 32 logs"), "{}", refused.detailed());
        for user in ["ada", "bob", "cyd"] {
            held.extend((0..OF_ONE_USER).map(|_| take(user, &[one]).unwrap()));
        }
        let refused = take("dan", &[other, one]).err().unwrap();
        assert!(refused.detailed().contains("node gpu-1"), "{}", refused.detailed());
        assert!(take("dan", &[other]).is_ok(), "of another node he may");
        held.pop();
        assert!(take("dan", &[one]).is_ok());
        held.clear();
        let counts = followers.counts();
        assert!(counts.users.is_empty() && counts.nodes.is_empty());
    }
}
