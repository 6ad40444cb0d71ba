//! Secrets outside the database: the keys that seal what is stored, and the courier that takes values to agents.

mod courier;
mod key_command;
mod keyring;

pub use courier::{Courier, may_use};
pub use keyring::{Keyring, KeyringError, OpenError, Sealed};
