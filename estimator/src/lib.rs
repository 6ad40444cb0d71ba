//! The goodput model asked beyond what scheduled jobs can be told: [`search`], the best of every strategy the model knows. Pure like the core, but no part of a decision: `headway estimate` and `calibration` ask it, a
//! scheduler never does.

pub mod search;
