//! The live shell of the scheduler: the loop around `core/engine`, its Postgres store, the port for agents and the
//! port for people.
//!
//! It never decides. It gathers events, commits what the engine decides, and only then answers and commands.

pub mod backup;
pub mod cluster;
pub mod config;
pub mod http;
pub mod metrics;
pub mod postgres;
pub mod server;
pub mod spans;
pub mod store;
pub mod tar;

mod archive;
mod asking;
mod audit;
mod authority;
mod baseline;
mod clock;
mod driver;
mod foretelling;
mod grpc;
mod kept;
mod leader;
mod observer;
mod oidc;
mod planning;
mod sampler;
mod secrets;
mod shares;
mod shown;
mod troubles;
mod web;
mod webhooks;
mod wrong_tokens;

pub use audit::{Anchor, AuditFileError, Broken, FileVerified, NoAnchor, verify_file};
pub use clock::Speed;
pub use config::{Advertised, InitialToken, NodeCertificates, Retention, SecretsKey, ServerConfig, TlsPaths};
pub use oidc::{OidcError, OidcSettings, probe as probe_oidc};
pub use postgres::PrivatePostgres;
pub use secrets::Keyring;
pub use server::{Bound, CertificateError, Certificates, ServerError, serve, serve_reporting};
pub use web::licenses;
pub use webhooks::{Network, NoNetwork};

#[cfg(test)]
extern crate self as headway_scheduler;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
