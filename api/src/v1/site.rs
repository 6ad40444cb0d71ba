//! Rows that a site states: rules of its own on who may hold how many GPUs of what.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A rule of the site's own: of the GPUs that `amount` names, jobs hold at most so many together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a mapping of a row")]
pub struct SiteRow {
    /// Unique among the rows; explanations name the row by it.
    pub name: String,
    pub amount: Amount,
    /// GPUs; 0: none.
    pub at_most: u32,
}

/// Which GPUs a row counts: those of which everything holds that is named, and something must be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "a mapping of what a row counts")]
pub struct Amount {
    /// GPUs of this type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
    /// GPUs held by jobs of this project or of one below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// GPUs held by jobs with this label: `key=value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub label: Option<JobLabel>,
    /// GPUs of the node of this name or id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

impl Amount {
    /// "project nlp, node n1".
    #[must_use]
    pub fn in_words(&self) -> String {
        let label = self.label.clone().map(String::from);
        let named = [("type", &self.gpu_type), ("project", &self.project), ("label", &label), ("node", &self.node)];
        let named = named.into_iter().filter_map(|(what, name)| Some(format!("{what} {}", name.as_ref()?)));
        named.collect::<Vec<_>>().join(", ")
    }
}

/// A label and the value it must have, `key=value` on the wire. The key ends at the first `=`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobLabel {
    pub key: String,
    pub value: String,
}

impl TryFrom<String> for JobLabel {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok(Self { key: key.to_owned(), value: value.to_owned() }),
            _ => Err(format!("the label \"{}\" is no key=value", text.escape_debug())),
        }
    }
}

impl From<JobLabel> for String {
    fn from(label: JobLabel) -> Self {
        format!("{}={}", label.key, label.value)
    }
}
