//! What operations reply beside the present: of a past moment (`at`), and rows with some of their fields (`fields`). A reply is one of these.

use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{AnyOfBuilder, ArrayBuilder, Components, Schema};
use utoipa::openapi::{Ref, RefOr};

/// By operation, what it replies with otherwise.
const OTHERWISE: [(&str, &[&str]); 5] = [
    ("list_jobs", &[PARTS, "PastJobList"]),
    ("get_job", &["PastJob"]),
    ("list_nodes", &["PastNodeList"]),
    ("get_node", &["PastNode"]),
    ("overview", &["PastOverview"]),
];
const PARTS: &str = "JobPartList";
const PART: &str = "JobPart";

pub fn tell(operation: &mut Operation) {
    let id = operation.operation_id.as_deref().unwrap_or_default();
    let Some((_, others)) = OTHERWISE.iter().find(|(of, _)| *of == id) else { return };
    let Some(RefOr::T(reply)) = operation.responses.responses.get_mut("200") else { return };
    let Some(RefOr::T(content)) = reply.content.get_mut("application/json") else { return };
    let Some(present) = content.schema.take() else { return };
    let others = others.iter().map(|name| Ref::from_schema_name(*name));
    let any = others.fold(AnyOfBuilder::new().item(present), AnyOfBuilder::item);
    content.schema = Some(any.into());
}

/// A job, and a list of jobs, that need not have all fields: those that were asked for.
pub fn add_parts(components: &mut Components) {
    let (Some(job), Some(list)) = (components.schemas.get("Job").cloned(), components.schemas.get("JobList").cloned())
    else {
        return;
    };
    if let (RefOr::T(Schema::Object(mut part)), RefOr::T(Schema::Object(mut parts))) = (job, list) {
        part.required.clear();
        part.description = Some("The fields of a `Job` that `fields` names, and its `id`.".into());
        parts.description = Some("A `JobList` of rows that hold what `fields` names.".into());
        let of_parts = ArrayBuilder::new().items(Ref::from_schema_name(PART)).build();
        parts.properties.insert("items".into(), RefOr::T(Schema::Array(of_parts)));
        components.schemas.insert(PART.into(), RefOr::T(Schema::Object(part)));
        components.schemas.insert(PARTS.into(), RefOr::T(Schema::Object(parts)));
    }
}
