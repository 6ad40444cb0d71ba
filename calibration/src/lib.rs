//! Measurements of other people's runs against the goodput model: scoring it, and fitting its constants. A shell crate, since it reads
//! files; what it produces, `core/goodput/src/physics.toml`, is committed, so that nothing else needs the measurements.
//!
//! Read in this order: [`row`] (one line of a file), `wording` (what sources call things),
//! [`measurement`] (what the line says in the model's words, or why it is skipped), [`table`]
//! (whole files), [`score`] (how far the model is off), [`fit`] (constants from measurements), [`validate`] (fits scored on what they have
//! not seen), [`publish`] (the committed file). It never touches a running cluster.

pub mod deviation;
pub mod fit;
pub mod measurement;
pub mod prior;
pub mod publish;
pub mod row;
pub mod score;
pub mod table;
pub mod validate;
mod wording;
