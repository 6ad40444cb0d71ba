//! Who is at the other end of a connection on the port for agents.

use std::sync::Arc;

use crate::authority::Shown;
use crate::server::Visitor;

/// What requests of a connection carry.
#[derive(Clone)]
pub struct Peer {
    pub visitor: Visitor,
    /// Whom its certificate names; `None`: it has shown none.
    pub shown: Option<Arc<Shown>>,
}
