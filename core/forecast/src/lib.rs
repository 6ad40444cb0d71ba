//! Roll-outs that inform people: what a static split would have given, when jobs will be done, and when those that wait
//! will start; and what the past teaches for that. All of it is predicted, never measured, and callers must show it so. Never on the decision path; reads no
//! clock and keeps nothing.

pub mod baseline;
mod calibration;
mod chance;
mod doubt;
pub mod experience;
pub mod finish;
mod future;
mod queue;
mod rollout;
pub mod start;

pub use baseline::{Baseline, Gain, SplitJob, Stock, gain, static_equal_split};
pub use experience::Experience;
pub use finish::{Finish, finishes};
pub use start::{Effort, Forecast, Method, Outlook, Start, starts};
