//! Query parameters, held to the table of routes: what a route does not have is refused before anything is done, so that nobody
//! takes a parameter for heeded that is not. `dry_run` and `reason` are read here for all routes; `HttpState` is where they count.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::{MatchedPath, Query, Request, State};
use axum::http::{Method, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::{OpenApi, RefOr};

use super::openapi::{DRY_RUN, REASON, operations};
use super::problem::Problem;

/// Names of query parameters by route and method, as the document tells them.
pub struct Table(BTreeMap<String, BTreeMap<String, BTreeSet<String>>>);

/// What a request says of itself, whatever it asks for.
#[derive(Debug, Default, PartialEq)]
struct Aside {
    dry_run: bool,
    reason: Option<String>,
}

tokio::task_local! {
    static ASIDE: Aside;
}

/// Whether the request under way is to be answered and not done.
pub fn is_dry_run() -> bool {
    ASIDE.try_with(|aside| aside.dry_run).unwrap_or(false)
}

/// Why the request under way is made, where it says so beside its body.
pub fn reason() -> Option<String> {
    ASIDE.try_with(|aside| aside.reason.clone()).ok().flatten()
}

impl Table {
    pub fn of(document: &OpenApi) -> Self {
        let mut table: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        let mut document = document.clone();
        for (path, item) in &mut document.paths.paths {
            for (method, operation) in operations(item) {
                table.entry(path.clone()).or_default().insert(method.as_str().to_owned(), names(operation));
            }
        }
        Self(table)
    }

    /// Refuses what the route does not have; what no route answers is told as that by whoever finds out.
    fn check(&self, path: &str, method: &Method, uri: &Uri) -> Result<Aside, Problem> {
        // What an identity provider adds to its answer is its business.
        if path.ends_with("/auth/oidc/callback") {
            return Ok(Aside::default());
        }
        let given = given(uri)?;
        let none = BTreeSet::new();
        let method = if method == Method::HEAD { &Method::GET } else { method };
        let known = match self.0.get(path) {
            Some(methods) => methods.get(method.as_str()).unwrap_or(&none),
            None => &none,
        };
        if let Some((name, _)) = given.iter().find(|(name, _)| !known.contains(name)) {
            return Err(unknown(name, method, known));
        }
        let values = |of: &str| -> Vec<&str> {
            given.iter().filter(|(name, _)| name == of).map(|(_, value)| value.as_str()).collect()
        };
        let dry_run = match values(DRY_RUN).as_slice() {
            [] | ["false"] => false,
            ["true"] => true,
            _ => return Err(Problem::bad_request("dry_run is given once, as true or false").field(DRY_RUN)),
        };
        let reason = match values(REASON).as_slice() {
            [] | [""] => None,
            [reason] => Some((*reason).to_owned()),
            _ => return Err(Problem::bad_request("a reason is given once").field(REASON)),
        };
        Ok(Aside { dry_run, reason })
    }
}

fn names(of: &Operation) -> BTreeSet<String> {
    let parameters = of.parameters.iter().flatten().filter_map(|one| match one {
        RefOr::T(one) => Some(one),
        RefOr::Ref(_) => None,
    });
    parameters.filter(|one| one.parameter_in == ParameterIn::Query).map(|one| one.name.clone()).collect()
}

fn given(uri: &Uri) -> Result<Vec<(String, String)>, Problem> {
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri).map(|Query(pairs)| pairs);
    pairs.map_err(|wrong| Problem::bad_request(wrong.body_text()))
}

fn unknown(name: &str, method: &Method, known: &BTreeSet<String>) -> Problem {
    let detail = match name {
        DRY_RUN if method != Method::GET => "this has no dry run".to_owned(),
        _ => format!("there is no parameter \"{name}\" here"),
    };
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let hint = if known.is_empty() { "there are none".into() } else { format!("parameters are {}", known.join(", ")) };
    Problem::unknown_parameter(detail).field(name).hint(hint)
}

/// Wraps all routes of the interface; pages have parameters of their own.
pub async fn checked(State(table): State<Arc<Table>>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let Some(path) = path.filter(|path| path.starts_with("/api/")) else { return next.run(request).await };
    match table.check(path, request.method(), request.uri()) {
        Ok(aside) => ASIDE.scope(aside, next.run(request)).await,
        Err(problem) => problem.into_response(),
    }
}
