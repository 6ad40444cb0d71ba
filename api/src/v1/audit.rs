//! The audit.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Something that was asked for, and done or refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditLine {
    /// Rises from line to line, with gaps.
    pub id: i64,
    pub at: DateTime<Utc>,
    /// "user:ada".
    pub actor: String,
    /// The token it came with.
    pub token_id: Option<Uuid>,
    /// The address it came from.
    pub address: Option<String>,
    /// The id of the operation: `cancel_job`.
    pub action: String,
    /// "job:ID", "project:NAME"; a submission has one for each job.
    pub subjects: Vec<String>,
    pub reason: Option<String>,
    /// What was changed, by path, as it was; null: there was nothing before.
    #[schema(value_type = Option<Object>)]
    pub before: Option<serde_json::Value>,
    /// As it is; null: it is gone, or several were made.
    #[schema(value_type = Option<Object>)]
    pub after: Option<serde_json::Value>,
    /// The `x-request-id` of the reply.
    pub request_id: Option<String>,
    /// `done` or `refused`.
    pub result: String,
    /// The code of the refusal.
    pub code: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditList {
    pub items: Vec<AuditLine>,
    /// Continues the list, where there is more.
    pub next_cursor: Option<String>,
}
