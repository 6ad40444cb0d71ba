//! Wire contracts: the agent protocol, the REST v1 types, the reader of job specifications, rounds to be
//! solved for others, and the typed client.
//!
//! Wire types are not domain types; the border between the two is explicit and tested. This crate holds no domain
//! logic and imports nothing of the project but `headway-types`.

pub mod agent;
pub mod client;
pub mod log_text;
pub mod login;
pub mod progress;
pub mod secret;
pub mod solve;
pub mod spec;
pub mod v1;
pub mod yaml;
