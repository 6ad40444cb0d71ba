//! The hidden truth that emulated workers follow: how long steps, starts and saves take, how noisy gradients are, and
//! what breaks. The scheduler sees of it only what real workers would report, and has to learn the rest.
//!
//! Pure and seeded: the same seed, times and events give the same reports. It never reads a clock, starts anything or
//! speaks a protocol; the emulated worker and the emulated fleet of the agent are its shells. Read [`run`] first (one
//! gang from its start to its end), then what it is made of: [`workload`] (what the gang works on), [`step`], [`noise`],
//! [`start`], [`checkpoint`], [`progress`]; [`nature`] says how far all of it lies from what a scheduler would expect, [`mishap`] what
//! happens to nodes. [`stated`] and [`linear`] are the plainer truths of workers on CPU slots and of simulated histories.

pub mod checkpoint;
pub mod hardware;
pub mod linear;
pub mod mishap;
pub mod nature;
pub mod noise;
pub mod progress;
mod random;
pub mod run;
pub mod start;
pub mod stated;
pub mod step;
pub mod workload;

pub use headway_goodput::of_gang;
pub use linear::Linear;
pub use mishap::{Mishap, MishapRates, Mishaps};
pub use nature::{Cliff, Nature};
pub use noise::{GradientNoise, NoiseCourse, NoiseTrack};
pub use progress::{Progress, Worth};
pub use random::{Random, Seed};
pub use run::{Hearing, Run, RunEvent, Said, Setting};
pub use stated::StatedTruth;
pub use workload::{Training, Workload};
