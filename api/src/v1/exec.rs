//! Commands beside a rank of a running job, and what they write.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// A command to run beside a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecCommand {
    /// Program and arguments, 256 words of 64 KiB in all at most; no shell reads them.
    #[schema(min_items = 1, max_items = 256)]
    pub command: Vec<String>,
    /// Global rank whose node, directory, variables and limits it gets.
    #[serde(default)]
    pub rank: u32,
    /// Seconds after which it is ended, 1 to 3600; 60 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 3600)]
    pub timeout_s: Option<u32>,
}

/// A line of the reply: one of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecLine {
    /// The first. A dry run has no other.
    Started(ExecStarted),
    /// What it wrote, in base64.
    #[schema(value_type = String)]
    Stdout(#[serde(with = "as_base64")] Vec<u8>),
    /// Likewise.
    #[schema(value_type = String)]
    Stderr(#[serde(with = "as_base64")] Vec<u8>),
    /// The last.
    Ended(ExecEnded),
    /// The last, where nobody knows how it ended: the node was lost, or the job has ended.
    Broken(ExecBroken),
}

/// Why it is not known how a command ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExecBroken {
    pub detail: String,
}

/// Where a command runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExecStarted {
    pub job_id: Uuid,
    pub generation: u64,
    pub rank: u32,
    pub node: String,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExecEnded {
    /// Null where a signal or its time ended it.
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub timed_out: bool,
}

mod as_base64 {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(from)?).map_err(de::Error::custom)
    }
}
