//! Jobs as they are submitted, and what is said of them before they are.

use serde::{Deserialize, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};
use uuid::Uuid;

use super::job::{CurvePoint, Job};
use super::plan::PredictedStart;
use crate::spec::{BOUNDS, Bound, ELSEWHERE, Form};

/// Body of `POST /jobs`: one specification, or several that are accepted together or not at all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum JobSubmission {
    Batch { jobs: Vec<JobSpecification> },
    One(JobSpecification),
}

/// A job specification, `version: 1`. Read by `headway_api::spec`, which names every field that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobSpecification(pub serde_json::Value);

impl ToSchema for JobSpecification {}

impl PartialSchema for JobSpecification {
    /// What the reader bounds, from its own table; which keys there are docs/job-specification.md tells.
    fn schema() -> RefOr<Schema> {
        let told = "A job specification, `version: 1`. Read by `headway_api::spec`, which names every field that is wrong. Here its bounds are told; \
                    docs/job-specification.md says what its keys mean.";
        let rows: Vec<(Vec<&str>, &Bound)> = BOUNDS.iter().map(|row| (row.field.split('.').collect(), row)).collect();
        let object = bounded(&rows, 0).schema_type(Type::Object).max_properties(Some(ELSEWHERE.entries));
        RefOr::T(Schema::Object(object.description(Some(told)).build()))
    }
}

/// Whatever it is: if it is an object, with a property for each key that rows name at this depth.
fn bounded(rows: &[(Vec<&str>, &Bound)], depth: usize) -> ObjectBuilder {
    let mut object = ObjectBuilder::new().schema_type(SchemaType::AnyValue);
    for group in rows.chunk_by(|one, other| one.0[depth] == other.0[depth]) {
        let (of, below): (Vec<_>, Vec<_>) = group.iter().cloned().partition(|(path, _)| path.len() == depth + 1);
        let properties = || bounded(&below, depth + 1);
        let schema = match of.first() {
            Some((_, row)) => of_form(row, properties),
            None => Schema::Object(properties().build()),
        };
        object = object.property(group[0].0[depth], schema);
    }
    object
}

fn of_form(row: &Bound, properties: impl Fn() -> ObjectBuilder) -> Schema {
    let text = || ObjectBuilder::new().schema_type(Type::String).max_length(Some(row.text));
    // Numbers and truth values count as the words they are written as.
    let any = || ObjectBuilder::new().schema_type(SchemaType::AnyValue).max_length(Some(row.text));
    let map = || {
        let names = ObjectBuilder::new().schema_type(Type::String).max_length(Some(row.names));
        any().max_properties(Some(row.entries)).property_names(Some(names)).additional_properties(Some(any()))
    };
    let list =
        |items: RefOr<Schema>| Schema::Array(ArrayBuilder::new().items(items).max_items(Some(row.entries)).build());
    let words = || list(RefOr::T(Schema::Object(any().build())));
    let one_of = |first: Schema, second: Schema| Schema::OneOf(OneOfBuilder::new().item(first).item(second).build());
    match row.form {
        Form::Text => Schema::Object(text().build()),
        Form::List => words(),
        // What is no list may also be a number.
        Form::TextOrList => {
            let word = ObjectBuilder::new().schema_type(SchemaType::from_iter([Type::String, Type::Number]));
            one_of(Schema::Object(word.max_length(Some(row.text)).build()), words())
        }
        // A few may also be a word.
        Form::Map => Schema::Object(map().build()),
        Form::ListOrMap => one_of(Schema::Object(map().schema_type(Type::Object).build()), words()),
        Form::Mappings => {
            let one = || Schema::Object(properties().schema_type(Type::Object).build());
            one_of(one(), list(RefOr::T(one())))
        }
    }
}

/// In the order of the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Submitted {
    pub jobs: Vec<Job>,
    /// What is to be known of some of them, though they were submitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<SubmissionNote>,
}

/// Something to know of a job that was submitted all the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubmissionNote {
    pub job_id: Uuid,
    /// `not_checked`: whether the cluster could ever run it was not found out in time.
    pub code: String,
    pub detail: String,
}

/// Reply of `POST /jobs/validate` and of a dry run, in the order of the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Validation {
    pub jobs: Vec<JobValidation>,
}

/// What one well-formed specification would find on the present nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobValidation {
    pub name: String,
    /// Whether it can run at any size.
    pub feasible: bool,
    /// Sizes and what they would bring.
    pub points: Vec<CurvePoint>,
    /// Why it cannot run at all.
    pub reason: Option<String>,
    /// Of a job that can never run on the cluster as built: what comes closest to it that could.
    #[serde(default)]
    pub closest: Option<String>,
    /// GPU counts it could run at.
    #[serde(default)]
    pub sizes: Vec<u32>,
    /// What its project's quota, or that of a project above, says to its smallest size.
    #[serde(default)]
    pub quota: Option<QuotaVerdict>,
    /// Jobs that come before it and have not come so far: "waits for prep to succeed". When they do nobody predicts.
    #[serde(default)]
    pub waits_for: Vec<String>,
    /// GPUs it would start with at once, were it submitted now; `null`: it would wait, or `start_left_out` says why.
    #[serde(default)]
    pub starts_with_gpus: Option<u32>,
    /// When it would start, if it would wait.
    #[serde(default)]
    pub predicted_start: Option<PredictedStart>,
    /// Why nobody looked at when it would start; `null`: somebody did.
    #[serde(default)]
    pub start_left_out: Option<String>,
}

/// Whether a quota admits a job, by the tightest on its way up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuotaVerdict {
    pub project: String,
    /// `within`: of right; `borrows`: beyond the quota while nobody with a right to it waits; `exceeds_now`: once others of
    /// the project end; `never`: not as the quota is.
    pub verdict: String,
    pub quota_gpus: u32,
    pub borrow_gpus: u32,
    /// What the project holds now.
    pub gpus: u32,
    /// What the job needs at least.
    pub needed_gpus: u32,
}
