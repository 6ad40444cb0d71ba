//! Table `audit`: who did what to what, and what was refused. Rows are added, and never changed; the oldest are pruned.

use chrono::{DateTime, Utc};
use headway_engine::Actor;
use headway_engine::record::{Deed, Origin, Row};
use headway_types::{Term, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

use super::column::{document, moment, text, time};
use super::{Page, Store, StoreError};

/// One line of the audit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditEntry {
    #[serde(serialize_with = "rfc3339")]
    pub done_at: Timestamp,
    /// "user:ada".
    pub actor: String,
    pub token_id: Option<Uuid>,
    pub address: Option<String>,
    /// The id of the route's operation.
    pub action: String,
    /// "job:<id>", "project:nlp".
    pub subjects: Vec<String>,
    pub reason: Option<String>,
    /// What has changed, by path.
    pub before: Option<Value>,
    pub after: Option<Value>,
    pub request_id: Option<String>,
    pub result: AuditResult,
    /// Why it was refused.
    pub code: Option<String>,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::EnumString, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AuditResult {
    Done,
    Refused,
}

/// Which lines a reader wants; what is `None` is any.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AuditFilter {
    pub actor: Option<String>,
    pub action: Option<String>,
    pub subject: Option<String>,
    pub result: Option<AuditResult>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub limit: u32,
    /// The last line of the page before.
    pub before: Option<i64>,
}

/// A line with its number.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditLine {
    pub id: i64,
    pub entry: AuditEntry,
}

impl AuditEntry {
    /// What a request without the engine has done, or was refused.
    pub fn of(origin: &Origin, at: Timestamp, result: AuditResult) -> Self {
        Self {
            done_at: at,
            actor: format!("user:{}", origin.user),
            token_id: known(origin.token),
            address: origin.address.map(|address| address.to_string()),
            action: origin.action.clone(),
            subjects: origin.subject.iter().cloned().collect(),
            reason: None,
            before: None,
            after: None,
            request_id: Some(origin.request.clone()),
            result,
            code: None,
        }
    }

    /// What was refused to somebody who is no person known here.
    pub fn without_a_person(at: Timestamp, actor: String, action: &str) -> Self {
        Self {
            done_at: at,
            actor,
            token_id: None,
            address: None,
            action: action.to_owned(),
            subjects: Vec::new(),
            reason: None,
            before: None,
            after: None,
            request_id: None,
            result: AuditResult::Refused,
            code: None,
        }
    }

    /// So many refusals came faster than they could be written.
    pub fn lost(at: Timestamp, refusals: u64) -> Self {
        let (code, after) = (Some("not_kept".into()), Some(json!({"refusals": refusals})));
        Self { code, after, ..Self::without_a_person(at, Actor::Scheduler.told(), "keep_refusals") }
    }

    /// What was there since the backup is gone, the audit's rows among it: whoever reads it has to see that.
    pub(super) fn restored(now: Timestamp, backup_at: DateTime<Utc>, term: Term) -> Self {
        Self {
            subjects: vec!["cluster".into()],
            after: Some(json!({"backup_at": backup_at, "term_above": term.0})),
            result: AuditResult::Done,
            ..Self::without_a_person(now, Actor::Scheduler.told(), "restore")
        }
    }

    fn of_deed(deed: &Deed) -> Self {
        let origin = deed.origin.as_ref();
        let (before, after) = match (&deed.before, &deed.after) {
            (None, None) => (None, None),
            (before, after) => differences(before.as_ref().map(document_of), after.as_ref().map(document_of)),
        };
        Self {
            done_at: deed.at,
            actor: deed.actor.told(),
            token_id: origin.and_then(|origin| known(origin.token)),
            address: origin.and_then(|origin| origin.address).map(|address| address.to_string()),
            action: origin.map_or_else(|| "request".into(), |origin| origin.action.clone()),
            subjects: deed.subjects.clone(),
            reason: deed.reason.clone(),
            before,
            after,
            request_id: origin.map(|origin| origin.request.clone()),
            result: AuditResult::Done,
            code: None,
        }
    }
}

/// A row as it is stored.
pub(super) struct AuditRow {
    pub audit_id: i64,
    pub done_at: DateTime<Utc>,
    pub actor: String,
    pub token_id: Option<Uuid>,
    pub address: Option<String>,
    pub action: String,
    pub subjects: Vec<String>,
    pub reason: Option<String>,
    pub before: Option<Value>,
    pub after: Option<Value>,
    pub request_id: Option<String>,
    pub result: String,
    pub code: Option<String>,
}

impl From<AuditRow> for AuditLine {
    fn from(row: AuditRow) -> Self {
        let entry = AuditEntry {
            done_at: moment(row.done_at),
            actor: row.actor,
            token_id: row.token_id,
            address: row.address,
            action: row.action,
            subjects: row.subjects,
            reason: row.reason,
            before: row.before,
            after: row.after,
            request_id: row.request_id,
            result: row.result.parse().unwrap_or(AuditResult::Refused),
            code: row.code,
        };
        Self { id: row.audit_id, entry }
    }
}

/// Whoever logs in has no token yet.
fn known(token: Uuid) -> Option<Uuid> {
    Some(token).filter(|token| !token.is_nil())
}

impl Store {
    /// Adds lines that go with no other change.
    pub async fn add_to_audit(&self, entries: &[AuditEntry]) -> Result<(), StoreError> {
        let mut connection = self.pool.acquire().await.map_err(StoreError::during("writing the audit"))?;
        insert(&mut connection, entries).await.map_err(StoreError::during("writing the audit"))
    }

    /// Newest first.
    pub async fn audit(&self, filter: &AuditFilter) -> Result<Page<AuditLine, i64>, StoreError> {
        let rows = sqlx::query_as!(
            AuditRow,
            "SELECT audit_id, done_at, actor, token_id, address, action, subjects, reason, before, after, request_id, result, code
            FROM audit
            WHERE ($1::text IS NULL OR actor = $1) AND ($2::text IS NULL OR action = $2)
              AND ($3::text IS NULL OR subjects @> ARRAY[$3]) AND ($4::text IS NULL OR result = $4)
              AND ($5::timestamptz IS NULL OR done_at >= $5) AND ($6::timestamptz IS NULL OR done_at < $6)
              AND ($7::bigint IS NULL OR audit_id < $7)
            ORDER BY audit_id DESC LIMIT $8",
            filter.actor.as_deref().map(text),
            filter.action.as_deref().map(text),
            filter.subject.as_deref().map(text),
            filter.result.map(<&str>::from),
            filter.since.map(time),
            filter.until.map(time),
            filter.before,
            i64::from(filter.limit) + 1,
        )
        .fetch_all(&self.pool)
        .await
        .map_err(StoreError::during("reading the audit"))?;
        let lines = rows.into_iter().map(AuditLine::from);
        Ok(Page::of(lines.collect(), filter.limit, |line| line.id))
    }
}

/// Lines of the audit as the document that a statement reads them from.
pub(super) fn deeds_document(deeds: &[&Deed]) -> String {
    let entries: Vec<AuditEntry> = deeds.iter().map(|deed| AuditEntry::of_deed(deed)).collect();
    document(&entries)
}

/// With whatever else the connection's transaction does.
pub(super) async fn insert(connection: &mut PgConnection, entries: &[AuditEntry]) -> Result<(), sqlx::Error> {
    if entries.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "INSERT INTO audit (done_at, actor, token_id, address, action, subjects, reason, before, after, request_id, result, code)
        SELECT done_at, actor, token_id, address, action, ARRAY(SELECT jsonb_array_elements_text(subjects)), reason,
            nullif(before, 'null'), nullif(after, 'null'), request_id, result, code
        FROM jsonb_to_recordset($1::text::jsonb) AS new (done_at timestamptz, actor text, token_id uuid, address text, action text,
            subjects jsonb, reason text, before jsonb, after jsonb, request_id text, result text, code text)",
        document(&entries),
    )
    .execute(connection)
    .await?;
    Ok(())
}

fn rfc3339<S: serde::Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    time(*at).serialize(serializer)
}

/// A row as the audit compares it. A plan is told by its state: it never changes otherwise.
fn document_of(row: &Row) -> Value {
    let value = match row {
        Row::Array(array) => serde_json::to_value(&**array),
        Row::Job(job) => serde_json::to_value(&**job),
        Row::Node(node) => serde_json::to_value(&**node),
        Row::Plan(record) => serde_json::to_value(&record.state),
        Row::Policy(policy) => serde_json::to_value(policy),
        Row::Project(project) => serde_json::to_value(&**project),
        Row::Reservation(one) => serde_json::to_value(&**one),
    };
    value.unwrap_or_default()
}

/// The parts of two documents that differ, by path: "spec.priority". What is the same on both sides is in neither, so values that
/// nobody changes, like those of a job's environment, are never kept here.
fn differences(before: Option<Value>, after: Option<Value>) -> (Option<Value>, Option<Value>) {
    let (mut from, mut to) = (Map::new(), Map::new());
    compare("", before.as_ref().unwrap_or(&Value::Null), after.as_ref().unwrap_or(&Value::Null), &mut from, &mut to);
    (before.map(|_| Value::Object(from)), after.map(|_| Value::Object(to)))
}

fn compare(path: &str, before: &Value, after: &Value, from: &mut Map<String, Value>, to: &mut Map<String, Value>) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    let empty = Map::new();
    match (before, after) {
        (before, after) if before == after => {}
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (before, after)) in one.iter().zip(other).enumerate() {
                compare(&below(&index.to_string()), before, after, from, to);
            }
        }
        (Value::Object(_) | Value::Null, Value::Object(_) | Value::Null) => {
            let (before, after) = (before.as_object().unwrap_or(&empty), after.as_object().unwrap_or(&empty));
            let names: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            for name in names {
                let of = |side: &Map<String, Value>| side.get(name).cloned().unwrap_or_default();
                compare(&below(name), &of(before), &of(after), from, to);
            }
        }
        (before, after) => {
            from.extend((!before.is_null()).then(|| (path.to_owned(), before.clone())));
            to.extend((!after.is_null()).then(|| (path.to_owned(), after.clone())));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_differs_is_kept_by_its_path() {
        let before =
            json!({"name": "a", "roles": [{"env": {"KEY": "s3cret"}, "min": 1}], "pin": null, "gone": {"x": 1}});
        let after = json!({"name": "a", "roles": [{"env": {"KEY": "s3cret"}, "min": 2}], "pin": {"by": "ada"}});
        let (from, to) = differences(Some(before), Some(after.clone()));
        assert_eq!(from, Some(json!({"roles.0.min": 1, "gone.x": 1})));
        assert_eq!(to, Some(json!({"roles.0.min": 2, "pin.by": "ada"})));
        let (from, to) = differences(None, Some(json!({"name": "a"})));
        assert_eq!((from, to), (None, Some(json!({"name": "a"}))));
    }
}
