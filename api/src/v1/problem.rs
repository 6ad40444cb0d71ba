//! Errors, as RFC 9457 problem+json.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What went wrong, for programs (`code`, `field`) and for people (`detail`, `hint`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    #[serde(rename = "type", default = "about_blank")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    /// Stable within v1.
    #[serde(default)]
    pub code: String,
    #[serde(default)]
    pub detail: String,
    /// The field of the request that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// With the code `not_leading`: where the server that leads is reached, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// Names the request in the scheduler's log; the same as the header `x-request-id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The trace that the request is part of, 32 hexadecimal digits: its caller's (W3C `traceparent`), or the scheduler's own where it
    /// exports spans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
}

fn about_blank() -> String {
    "about:blank".into()
}
