//! Every reply of every test against the served document: its status is told there, and an error is a problem.

use std::sync::LazyLock;

use super::*;
use crate::http::openapi;

pub static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::to_value(openapi::complete(routes().into_openapi())).unwrap());

/// What is no operation of the interface has only the form of its errors to keep to.
pub fn check(method: &Method, path: &str, answer: &Answer) {
    let shown = format!("{method} {path} is {}: {}", answer.status, answer.body);
    if answer.status.is_client_error() || answer.status.is_server_error() {
        answer.problem(answer.status);
    }
    let Some(operation) = operation(method, path) else { return };
    let told = operation["responses"].as_object().unwrap();
    assert!(told.contains_key(answer.status.as_str()), "undocumented: {shown}");
    assert!(told.keys().all(|status| status.parse::<u16>().is_ok()), "a range says nothing: {shown}");
}

fn operation(method: &Method, path: &str) -> Option<&'static Value> {
    let paths = DOCUMENT["paths"].as_object().unwrap();
    // Of two that match the one with fewer placeholders is meant: /plans/current is no id.
    let meant = paths.iter().filter(|(template, _)| matches(template, path));
    let (_, item) = meant.min_by_key(|(template, _)| template.matches('{').count())?;
    let method = if *method == Method::HEAD { &Method::GET } else { method };
    item.get(method.as_str().to_lowercase())
}

fn matches(template: &str, path: &str) -> bool {
    let (template, path): (Vec<_>, Vec<_>) = (template.split('/').collect(), path.split('/').collect());
    let alike = |(wanted, given): (&&str, &&str)| wanted == given || wanted.starts_with('{');
    template.len() == path.len() && template.iter().zip(&path).all(alike)
}
