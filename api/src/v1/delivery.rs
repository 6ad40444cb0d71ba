//! What webhooks are told of a job, and what came of it.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One notice to one webhook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Delivery {
    /// As the header `Headway-Delivery` has it; the same in each attempt.
    pub id: String,
    /// started, failed, resized, finished, stalled, requeued.
    pub kind: String,
    /// The sentence that was, or is to be, told.
    pub text: String,
    /// Number of the event that it tells of.
    pub event_seq: u64,
    pub at: DateTime<Utc>,
    /// Scheme and host; the rest of the address may be a secret.
    pub webhook: String,
    /// waiting, delivered, given_up.
    pub state: String,
    pub attempts: u32,
    /// When it is tried next; null unless it waits.
    pub next_at: Option<DateTime<Utc>>,
    /// When it was delivered or given up.
    pub ended_at: Option<DateTime<Utc>>,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeliveryList {
    pub items: Vec<Delivery>,
}

/// What came of calling a job's webhooks to see whether they answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeliveryTest {
    /// In the order of the specification.
    pub items: Vec<TestedWebhook>,
}

/// One webhook that was called for a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TestedWebhook {
    /// Scheme and host; the rest of the address may be a secret.
    pub webhook: String,
    /// Name of the secret that it is signed with; null where it is not signed.
    pub signed_with: Option<String>,
    /// The sentence that it was told.
    pub text: String,
    /// delivered, failed, or not_sent (a dry run).
    pub outcome: String,
    pub took_seconds: Option<f64>,
    /// Why it failed.
    pub error: Option<String>,
}
