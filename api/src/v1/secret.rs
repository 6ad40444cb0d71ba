//! Secrets: values that jobs are given by name. No reply has one.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::secret;

/// Whose a secret is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SecretScope {
    /// One user's, for the user's jobs.
    User,
    /// A project's, for jobs of its members.
    Project,
}

/// What is told of a secret; never its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Secret {
    pub name: String,
    pub scope: SecretScope,
    /// The user or the project.
    pub owner: String,
    pub set_at: DateTime<Utc>,
    /// The user who set its value.
    pub set_by: String,
    /// When a job was last given it, to the minute; null: never.
    pub used_at: Option<DateTime<Utc>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SecretList {
    pub items: Vec<Secret>,
}

/// A value to be kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretRequest {
    /// 1 to 32768 bytes without NUL; it is kept as it is, a final newline included.
    #[schema(value_type = String, format = Password, write_only)]
    pub value: secret::Secret,
}
