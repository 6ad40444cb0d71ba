//! Who is told what becomes of a job.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::word::words;

/// Webhooks of one job, at most.
pub const MOST_WEBHOOKS: usize = 5;

words! {
    /// What a webhook may want to hear of.
    pub enum NoticeKind {
        /// Its processes are up, for the first time or again.
        Started,
        /// It has failed for good.
        Failed,
        /// It goes on with other GPUs, perhaps as many as before.
        Resized,
        /// It has succeeded or was cancelled; also that it failed, where `failed` is not asked for.
        Finished,
        /// It hangs.
        Stalled,
        /// It waits for its turn again.
        Requeued,
    }
}

/// One webhook. The address may hold a secret of its own: it is shown only to who reads the job's environment.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notify {
    /// Absolute, http or https.
    pub webhook: String,
    pub on: BTreeSet<NoticeKind>,
    /// Name of the secret that notices are signed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

impl core::fmt::Debug for Notify {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Notify").field("on", &self.on).field("secret", &self.secret).finish_non_exhaustive()
    }
}
