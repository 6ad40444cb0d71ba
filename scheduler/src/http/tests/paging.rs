//! Limits and cursors of every list, through the real router. The lists come from the document, so a new one is held to the same.

use super::*;
use crate::http::cursor;

const ID: &str = "01890000-0000-7000-8000-000000000000";
/// The page of a log is counted in bytes.
const IN_BYTES: &str = "/jobs/{id}/logs";
/// Lists in one fixed order: their cursors are positions, which hold under any filter.
const IN_FIXED_ORDER: [&str; 9] = [
    "/arrays/{id}",
    "/audit",
    "/audit/verify",
    "/auth/tokens",
    "/events",
    "/jobs/{id}/events",
    "/nodes/{node}/events",
    "/plans",
    "/plans/history",
];

/// GETs with this query parameter, and what the document states of its values.
fn lists_with(parameter: &str) -> Vec<(String, Value)> {
    let mut lists = Vec::new();
    for (path, item) in documented::DOCUMENT["paths"].as_object().unwrap() {
        let parameters = item["get"]["parameters"].as_array().cloned().unwrap_or_default();
        let found = parameters.into_iter().find(|one| one["name"] == parameter && one["in"] == "query");
        let path = path.strip_prefix("/api/v1").unwrap_or(path).to_owned();
        lists.extend(found.map(|one| (path, one["schema"].clone())));
    }
    lists
}

/// A cluster with a node, an array of two jobs, and the paths of their lists.
struct Listed {
    served: Served,
    array: String,
    job: String,
}

impl Listed {
    async fn start() -> Self {
        let served = Served::start().await;
        served.add_node().await;
        let body = json!({"version": 1, "name": "sweep", "resources": {"gpus": 1}, "array": {"range": "0-1"},
            "run": {"command": ["true"]}});
        let reply = served.send_json(Method::POST, "root", "/jobs", &body).await;
        let array = reply.body["jobs"][0]["array"]["array_id"].as_str().unwrap().to_owned();
        Self { job: reply.id(), array, served }
    }

    /// The path of a list, with the id of what it is of.
    fn filled(&self, path: &str) -> String {
        let id = if path.starts_with("/arrays") { &self.array } else { &self.job };
        path.replace("{id}", id).replace("{node}", "node-1")
    }
}

#[tokio::test]
async fn a_limit_outside_its_bounds_is_refused_by_every_list() {
    let listed = Listed::start().await;
    let served = &listed.served;
    let lists = lists_with("limit");
    let paths: Vec<&str> = lists.iter().map(|(path, _)| path.as_str()).collect();
    for known in ["/audit", "/audit/verify", "/auth/tokens", "/arrays/{id}", "/jobs/{id}/deliveries", "/jobs"] {
        assert!(paths.contains(&known), "{known} is not in {paths:?}");
    }
    for (path, schema) in &lists {
        let greatest = schema["maximum"].as_u64().unwrap();
        let mut wrong = vec!["0".to_owned(), "-1".to_owned(), (greatest + 1).to_string()];
        if path != IN_BYTES {
            wrong.push("100000".to_owned());
        }
        let path = listed.filled(path);
        for limit in wrong {
            let refused = served.get("root", &format!("{path}?limit={limit}")).await;
            assert_eq!(refused.problem(StatusCode::BAD_REQUEST), "bad_request", "{path} {limit}");
            assert_eq!(refused.body["field"], "limit", "{path} {limit}");
            let bounds = format!("must be between 1 and {greatest}");
            assert!(refused.body["detail"].as_str().unwrap().contains(&bounds), "{path}: {}", refused.body);
        }
        for no_number in ["x", "", "1.5", "18446744073709551616"] {
            let refused = served.get("root", &format!("{path}?limit={no_number}")).await;
            assert_eq!(refused.problem(StatusCode::BAD_REQUEST), "bad_request", "{path} {no_number:?}");
        }
        for limit in [1, greatest] {
            let answer = served.get("root", &format!("{path}?limit={limit}")).await;
            assert_ne!(answer.status, StatusCode::BAD_REQUEST, "{path} {limit}: {}", answer.body);
        }
    }
}

#[tokio::test]
async fn a_cursor_of_another_list_is_refused_by_every_list() {
    let listed = Listed::start().await;
    let served = &listed.served;
    let lists = lists_with("cursor");
    let mut in_fixed_order = Vec::new();
    for (path, schema) in &lists {
        let is_position = schema.get("format").is_some();
        if is_position {
            in_fixed_order.push(path.as_str());
        }
        let path = listed.filled(path);
        let elsewhere = cursor::digest_list("/api/v1/elsewhere", &[]);
        let refused = served.get("root", &format!("{path}?limit=1&cursor={ID}~{elsewhere}")).await;
        assert_eq!(refused.problem(StatusCode::BAD_REQUEST), "bad_request", "{path}");
        if !is_position {
            let detail = refused.body["detail"].as_str().unwrap();
            assert!(detail.contains("another sort or filter"), "{path}: {}", refused.body);
            let invented = served.get("root", &format!("{path}?limit=1&cursor={ID}")).await;
            assert_eq!(invented.body["detail"], "this is no cursor of such a list", "{path}");
            // A cursor that the list without a filter gave.
            let own = cursor::digest_list(&format!("/api/v1{path}"), &[]);
            let refused = served.get("root", &format!("{path}?project=nlp&cursor={ID}~{own}")).await;
            assert!(refused.body["detail"].as_str().unwrap().contains("another sort or filter"), "{}", refused.body);
        }
    }
    assert_eq!(in_fixed_order, IN_FIXED_ORDER, "bind the cursors of a list that is sorted or ranked (http/cursor.rs)");
}
