//! Evidence: generated or traced workloads, decided by the production core in virtual time against a hidden truth, under several
//! policies side by side.
//!
//! What is measured is counted by the truth, never by the scheduler. A run is a pure function of workload, contender and seed, but for the CPU
//! time of its rounds; runs share nothing and go in parallel.
//!
//! Read [`workload`] (what comes), [`demo`] (the day of `headway up --demo`), [`recipe`] (what a job trains), [`contender`] (who decides, and what jobs allow), [`run`] (one run),
//! [`measure`] (what it came to), [`table`] (side by side); [`study`] (the questions of the report), [`report`] (their answers), [`single`] (what a job that follows its noise gains, on a page of its own),
//! [`gather`] (all of it).

pub mod cluster;
pub mod contender;
pub mod demo;
pub mod disruptions;
pub mod document;
pub mod gather;
pub mod measure;
pub mod plot;
pub mod recipe;
pub mod report;
pub mod run;
pub mod single;
pub mod study;
pub mod table;
mod watch;
pub mod workload;

pub use cluster::{Cluster, ClusterError};
pub use contender::{Contender, ContenderError};
pub use measure::{Measure, measures};
pub use run::{AT_WILL, Settings, Trial, TrialError, run_all};
pub use workload::{Kind, Named, Plenty, Workload};
