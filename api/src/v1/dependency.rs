//! Jobs that come before others.

use chrono::{DateTime, Utc};
use headway_types::JobStateKind;
use headway_types::spec::Condition;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A job, or an array with all its elements, that comes before another. Of one that the reader may not see only what was asked for and what came of it is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Dependency {
    /// `null`: an array, or a job that the reader may not see.
    pub job_id: Option<Uuid>,
    /// Instead of `job_id`, where it is an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array_id: Option<Uuid>,
    pub name: Option<String>,
    /// How far it is to have come: `success`, `failure` (failed or cancelled), `any` (ended) or `start`.
    #[schema(value_type = String)]
    pub on: Condition,
    /// `open`; `met`; `never`: it cannot be met any more, and the job that waited was cancelled. What is not open stays as it is.
    pub standing: String,
    /// Since when it is not open any more.
    pub settled_at: Option<DateTime<Utc>>,
    /// The state it is in now; `null` of an array.
    #[schema(value_type = Option<String>)]
    pub state: Option<JobStateKind>,
}

/// A job that another comes before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Dependent {
    pub job_id: Uuid,
    pub name: String,
    #[schema(value_type = String)]
    pub on: Condition,
    /// As in `Dependency`.
    pub standing: String,
    #[schema(value_type = String)]
    pub state: JobStateKind,
}
