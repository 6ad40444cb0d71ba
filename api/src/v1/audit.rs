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

/// A line with its place in the chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SealedAuditLine {
    #[serde(flatten)]
    pub line: AuditLine,
    /// From 1, without gaps.
    pub position: u64,
    /// The hash of the line at the position before; of the first 64 zeros.
    pub previous_hash: String,
    /// SHA-256 of this line, its position and `previous_hash` (docs/people.md, "The chain").
    pub hash: String,
}

/// Where the chain ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditHead {
    /// "ID:HASH" of the line that was sealed last, to be kept elsewhere; null: none is.
    pub anchor: Option<String>,
    /// Lines that are sealed.
    pub sealed: u64,
    pub sealed_at: Option<DateTime<Utc>>,
    /// "ID:HASH" of the newest line that was pruned, which the first line that is left follows; null: none was.
    #[serde(default)]
    pub begins_after: Option<String>,
    /// Lines that wait to be sealed.
    pub unsealed: u64,
    /// How long the oldest of them has waited.
    pub lag_seconds: f64,
    /// What keeps lines from being changed: `role` (the server may only add to them) or `triggers` (its role owns them, and could drop these).
    pub kept_by: String,
}

/// The first line that is not as it was sealed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditBroken {
    pub id: i64,
    /// `changed`, `missing`, `out_of_order`, `unsealed`, or of an anchor `unknown`: no such line is kept, and lines of its age may have been pruned.
    pub what: String,
    pub detail: String,
}

/// What verifying some lines has found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditVerification {
    /// Lines that are as they were sealed.
    pub lines: u64,
    /// "ID:HASH" of the last of them.
    pub last: Option<String>,
    pub broken: Option<AuditBroken>,
    /// Goes on with the next lines, where there are more and none is broken.
    pub next_cursor: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditList {
    pub items: Vec<AuditLine>,
    /// Continues the list, where there is more.
    pub next_cursor: Option<String>,
}
