//! The goodput model: throughput × statistical efficiency of a job on any allocation, as far as its shape, its specification and
//! its reports tell.
//!
//! Read in this order: [`model`] (one job's knowledge), [`curve`] (allocation → best configuration, which `choice` finds among
//! the `layouts` and `batches` that are allowed), [`searches`] with `shortlist` (the same again after every report), [`step_time`] (the prior of
//! throughput), [`estimate`] with [`kernel`] and [`collective`] (how it is computed for any [`strategy`]), [`correction`] (what reports
//! teach of it), [`noise`] and [`efficiency`] (what a token is worth), [`memory`] with `fitting` and [`peaks`] (what fits, and
//! what reports teach of it), [`peers`] (what jobs alike teach each other), [`architecture`] and [`catalog`]
//! (models and hardware; `mix` and `recurrent`: layers of several kinds; [`summary`]: a model in one line), [`physics`] (fitted constants), [`band`] with [`caution`] (how far off it may be, of a job in `certainty`), [`infeasible`] (why not). Formulas and their sources are in
//! docs/goodput.md. A [`JobModel`] knows of other jobs only what it was taught; nothing here reads a clock, or keeps state outside [`JobModel`].

pub mod architecture;
pub mod band;
mod batches;
pub mod catalog;
pub mod caution;
mod certainty;
mod checks;
mod choice;
pub mod collective;
pub mod correction;
pub mod curve;
pub mod efficiency;
pub mod estimate;
#[cfg(test)]
mod examples;
mod fitting;
mod ground;
mod groups;
pub mod infeasible;
mod kernel;
#[cfg(test)]
mod kinds_tests;
mod known;
mod layer;
mod layouts;
pub mod memory;
mod mix;
mod mixed;
pub mod model;
pub mod noise;
pub mod peaks;
pub mod peers;
pub mod physics;
mod posterior;
mod rank;
pub mod ratio;
mod recurrent;
pub mod searches;
mod shortlist;
pub mod step_time;
pub mod strategy;
pub mod summary;
mod terms;
mod user_curve;
mod weigh;

pub use architecture::{parameters, training_flops_per_token};
pub use curve::{Curve, CurvePoint, Offer};
pub use ground::Contradiction;
pub use infeasible::Infeasible;
pub use mixed::{ahead_of, of_gang, slowest};
pub use model::{JobModel, Unlearned};
pub use peers::Lessons;
pub use searches::Searches;
pub use step_time::StepTime;
