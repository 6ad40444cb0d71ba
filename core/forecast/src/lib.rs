//! Roll-outs that inform people: what a static split would have given, and when those that wait will start; and what the
//! past teaches for that. All of it is predicted, never measured, and callers must show it so. Never on the decision
//! path; reads no clock and keeps nothing.

mod baseline;
mod calibration;
mod chance;
mod doubt;
pub mod experience;
mod future;
mod queue;
mod rollout;
pub mod start;

pub use baseline::{Baselines, RULES, static_split};
pub use experience::Experience;
pub use start::{Effort, Forecast, Method, Outlook, Start, starts};
