//! What a caller may do.

use crate::word::words;

words! {
    /// What a token opens, and the most that a user's tokens do. The order is that of rights over people's routes: each has those of the ones before it.
    pub enum TokenScope {
        /// Hold a node's session and nothing else.
        Agent,
        /// Read all, change nothing.
        Viewer,
        /// Submit jobs, act on one's own, read all.
        User,
        /// Also act on everybody's jobs, on nodes, plans, reservations and the policy.
        Operator,
        /// Everything.
        Admin,
    }

    /// What a member of a project may do there. Each has the rights of the ones before it.
    pub enum ProjectRole {
        /// Read its jobs.
        Viewer,
        /// Also submit jobs.
        User,
        /// Also act on its jobs and name its members.
        Admin,
    }
}
