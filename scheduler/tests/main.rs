//! The scheduler on a real Postgres. One binary: linking each file for itself took longer than running them all.
#![allow(clippy::unwrap_used)]

mod arrays;
mod backup;
mod clocks;
mod commits;
mod dependencies;
mod goodput;
mod postgres;
mod retention;
mod series;
mod server;
mod store;
mod support;
mod transitions;
mod usage;
