//! Who follows logs: so many at a time of one user, and so many of the jobs of one node, so that readers are in the way of nobody's node.

use std::time::Duration;

use headway_types::{Generation, JobId, NodeId};

use crate::cluster::Cluster;
use crate::http::problem::Problem;
use crate::metrics;
use crate::shares::{Place, Shares};

/// Logs that one user follows at once.
const OF_ONE_USER: usize = 32;
/// Followers that one node has at once. They ask it once a second at most while there is nothing new.
const OF_ONE_NODE: usize = 128;
/// When to try again: followers leave when they like.
const LATER: Duration = Duration::from_secs(10);

/// All of this server; cheap to clone.
#[derive(Clone)]
pub struct Followers {
    users: Shares,
    nodes: Shares,
}

/// A place among them, until it is dropped.
pub struct Follower {
    _places: Vec<Place>,
}

impl Default for Followers {
    fn default() -> Self {
        Self { users: Shares::new(usize::MAX, OF_ONE_USER), nodes: Shares::new(usize::MAX, OF_ONE_NODE) }
    }
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
        let own = self.users.enter(user);
        let own = own.map_err(|_| too_many(format!("{user} follows {OF_ONE_USER} logs, which is the most at once")))?;
        let mut places = vec![own];
        for node in nodes {
            places.push(self.nodes.enter(&node.to_string()).map_err(|_| {
                let name = name(node);
                too_many(format!("{OF_ONE_NODE} logs of node {name} are followed, which is the most at once"))
            })?);
        }
        Ok(Follower { _places: places })
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
        assert!(followers.users.are_free() && followers.nodes.are_free());
    }
}
