//! The engine from outside, told by hand what happens. One binary: linking each file for itself took longer than running them all.
#![allow(clippy::unwrap_used)]

mod arrays;
mod attention;
mod batches;
mod budgets;
mod decided;
mod deletion;
mod dependencies;
mod displaced;
mod expectations;
mod fairness;
mod given_up;
mod harness;
mod limits;
mod live_layouts;
mod members;
mod mistakes;
mod notices;
mod offers;
mod peers;
mod places;
mod poison;
mod printed;
mod proposals;
mod quotas;
mod rebalancing;
mod requests;
mod requeue;
mod resize;
mod restarts;
mod returning;
mod scenarios;
mod terms;
mod trust;
mod under_way;
mod unsure;
