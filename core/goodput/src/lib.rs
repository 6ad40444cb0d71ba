//! The goodput model.

use headway_types::spec::Training;
use serde::{Deserialize, Serialize};

/// What is known of one job's goodput: its specification, and what its reports have taught.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobModel {
    pub training: Training,
}
