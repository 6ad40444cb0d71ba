//! What a caller may do.

use crate::word::words;

words! {
    /// What a token may do. The order is that of rights over people's routes: each has those of the ones before it.
    pub enum TokenScope {
        /// Hold a node's session and nothing else.
        Agent,
        /// Read all, change nothing.
        Viewer,
        /// Submit jobs, act on one's own, read all.
        User,
        /// Everything.
        Admin,
    }
}
