//! The bounds of whole-number parameters. The document states them, and `parameters` refuses a value outside of them by what the document states:
//! a value that is silently replaced by another one gives a page that its reader did not ask for.

use headway_api::agent::TAIL_LINES_AT_MOST;
use utoipa::Number;
use utoipa::openapi::RefOr;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::Schema;

use crate::http::{
    arrays, audit, deliveries, events, history, listing, logs, outcomes, plans, queue, timeline, tokens,
};

const LIMIT: &str = "limit";
/// The last lines of an output. None of them may be asked for, to read what follows.
const TAIL: &str = "tail";
/// Operation, parameter and its greatest value. The least one is 1, and 0 of a tail.
const GREATEST: [(&str, &str, u32); 17] = [
    ("list_jobs", LIMIT, listing::JOBS_AT_MOST),
    ("list_arrays", LIMIT, arrays::ARRAYS_AT_MOST),
    ("get_array", LIMIT, arrays::ELEMENTS_AT_MOST),
    ("queue", LIMIT, queue::JOBS_AT_MOST),
    ("list_plans", LIMIT, plans::PLANS_AT_MOST),
    ("plan_history", LIMIT, outcomes::HISTORY_AT_MOST),
    ("events", LIMIT, events::EVENTS_AT_MOST),
    ("job_events", LIMIT, events::EVENTS_AT_MOST),
    ("node_events", LIMIT, events::EVENTS_AT_MOST),
    ("timeline", LIMIT, timeline::LANES_AT_MOST),
    ("audit", LIMIT, audit::LINES_AT_MOST),
    ("verify_audit", LIMIT, audit::VERIFIED_AT_MOST),
    ("list_tokens", LIMIT, tokens::TOKENS_AT_MOST),
    ("deliveries", LIMIT, deliveries::MOST),
    ("logs", LIMIT, logs::PAGE_BYTES),
    ("logs", TAIL, TAIL_LINES_AT_MOST),
    ("series", "max_points", history::POINTS_AT_MOST),
];

/// Writes the bounds of an operation's parameters into the document.
pub fn add(operation: &mut Operation) {
    let id = operation.operation_id.clone().unwrap_or_default();
    for parameter in operation.parameters.iter_mut().flatten() {
        let RefOr::T(parameter) = parameter else { continue };
        let bound = GREATEST.iter().find(|(of, name, _)| *of == id && *name == parameter.name);
        let (Some((.., greatest)), Some(RefOr::T(Schema::Object(schema)))) = (bound, &mut parameter.schema) else {
            continue;
        };
        schema.minimum = Some(Number::UInt(if parameter.name == TAIL { 0 } else { 1 }));
        schema.maximum = Some(Number::UInt(*greatest as usize));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::http::openapi::{complete, routes};

    #[test]
    fn every_limit_of_a_page_has_bounds() {
        let document = serde_json::to_value(complete(routes().into_openapi())).unwrap();
        let mut found = 0;
        for (path, item) in document["paths"].as_object().unwrap() {
            let none = Vec::new();
            for parameter in item["get"]["parameters"].as_array().unwrap_or(&none) {
                if ["limit", "max_points"].contains(&parameter["name"].as_str().unwrap()) {
                    let schema = &parameter["schema"];
                    assert!(schema["minimum"] == 1 && schema["maximum"].is_u64(), "{path}: {parameter}");
                    found += 1;
                }
            }
        }
        assert!(found >= 16, "{found}");
        let logs = document["paths"]["/api/v1/jobs/{id}/logs"]["get"]["parameters"].as_array().unwrap();
        let tail = &logs.iter().find(|parameter| parameter["name"] == "tail").unwrap()["schema"];
        assert_eq!((&tail["minimum"], &tail["maximum"]), (&0.into(), &100_000.into()));
    }
}
