//! What webhooks are told of a job.

use headway_types::spec::NoticeKind;
use headway_types::{JobId, Timestamp};
use serde::{Deserialize, Serialize};

/// Which notice: that of an event, to one of the job's webhooks. The same however often it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NoticeId {
    /// Number of the event.
    pub event: u64,
    /// Place of the webhook in the specification.
    pub webhook: u32,
}

impl core::fmt::Display for NoticeId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}-{}", self.event, self.webhook)
    }
}

/// One notice, made with the event it tells of and stored with it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    pub id: NoticeId,
    pub at: Timestamp,
    pub kind: NoticeKind,
    pub verb: String,
    pub job: JobId,
    pub name: String,
    pub project: String,
    pub owner: String,
    /// One sentence that names no other job: whoever reads it may know of none.
    pub text: String,
    pub webhook: String,
    /// Name of the secret that it is signed with.
    #[serde(default)]
    pub secret: Option<String>,
}

/// Addresses of webhooks may hold secrets of their own.
impl core::fmt::Debug for Notice {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Notice")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .field("job", &self.job)
            .field("text", &self.text)
            .finish_non_exhaustive()
    }
}
