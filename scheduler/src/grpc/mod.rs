//! The port for agents: one bidirectional stream per node carries reports in and commands and log requests out.
//!
//! It translates and forwards. It never decides, and never holds up the loop: an agent that does not read its
//! commands is disconnected and told again when it comes back.

mod credentials;
mod gateway;
mod lookups;
mod peer;
mod registrar;
mod sessions;
mod turns;

pub use gateway::{Admission, Gateway};
pub use peer::Peer;
pub use registrar::Registrar;
pub use sessions::{Measured, SessionError, Sessions};

#[cfg(test)]
mod tests;
