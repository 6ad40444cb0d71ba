//! Roll-outs that inform people: what a static split would have given, and when jobs will be done. All of it is predicted, never
//! measured, and callers must show it so. Never on the decision path; reads no clock and keeps nothing.

pub mod baseline;
pub mod finish;

pub use baseline::{Baseline, Gain, SplitJob, Stock, gain, static_equal_split};
pub use finish::{Finish, finishes};
