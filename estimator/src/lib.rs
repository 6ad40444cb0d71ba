//! The goodput model asked beyond what scheduled jobs can be told: [`preset`] (models by name), [`search`] (the best of
//! every strategy the model knows) and [`caution`] (what of an estimate no measurement confirms). Pure like the core, but
//! no part of a decision: `headway estimate` and `calibration` ask it, a scheduler never does.

pub mod caution;
pub mod preset;
pub mod search;
