//! `headway plan solve`, version 1: one round of planning as a document that other programs write, and the reply.
//!
//! For replays, what-if questions and simulators that want Headway to decide. Everything has a name its caller chose;
//! what is left out has a default, what is unknown or impossible is refused with its place. Wire types only: what
//! they mean to the planner is said where they are converted, in the command line. Additive within a version.

mod allocation;
mod count;
mod document;
mod error;
mod job;
mod policy;
mod reply;

#[cfg(test)]
mod tests;

use serde::de::DeserializeOwned;

pub use allocation::{Allocation, Held};
pub use document::{Document, NodeGroup, Project, Reservation};
pub use error::{Finding, SolveError};
pub use job::{GpuRequest, GpuRequestRange, HostNeeds, Job, Pin, PriorityWord, Reconfigure, Spread, Way, Ways};
pub use policy::Policy;
pub use reply::{Decided, Prediction, Reply, Step, Unmoved};

pub use crate::v1::{Objective, PowerCap, SiteRow, Solver};

/// The version this reader knows.
pub const VERSION: u32 = 1;

/// Reads one document.
pub fn read(text: &str) -> Result<Document, SolveError> {
    let document: Document = read_json(text)?;
    if document.version == VERSION {
        Ok(document)
    } else {
        let found = document.version;
        Err(SolveError::one("version", format!("this Headway reads version {VERSION}, not {found}"), None))
    }
}

/// Reads JSON of any shape, with the place of what is wrong. The place costs time, so it is looked for only in a text
/// that has proven wrong.
pub fn read_json<T: DeserializeOwned>(text: &str) -> Result<T, SolveError> {
    serde_json::from_str(text).map_err(|plain| {
        let mut reader = serde_json::Deserializer::from_str(text);
        match serde_path_to_error::deserialize::<_, T>(&mut reader) {
            Err(placed) => error::misread(&placed.path().to_string(), placed.inner(), text),
            // Only what follows the document can be wrong then.
            Ok(_) => error::misread("", &plain, text),
        }
    })
}
