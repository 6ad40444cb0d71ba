//! Query parameters, held to the table of routes: what a route does not have is refused before anything is done, so that nobody
//! takes a parameter for heeded that is not. `dry_run` and `reason` are read here for all routes; `HttpState` is where they count.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{MatchedPath, Query, Request, State};
use axum::http::{Method, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use utoipa::Number;
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{OpenApi, RefOr};

use super::cursor;
use super::openapi::{DRY_RUN, REASON, operations};
use super::problem::Problem;

/// The query parameters of an operation by name, with the bounds of those that are whole numbers and have some.
type Parameters = BTreeMap<String, Option<(i64, i64)>>;

/// Query parameters by route and method, as the document tells them.
pub struct Table(BTreeMap<String, BTreeMap<String, Parameters>>);

/// What a request says of itself, whatever it asks for.
#[derive(Debug, Default, PartialEq)]
struct Aside {
    dry_run: bool,
    reason: Option<String>,
    /// Digest of the list that it asks for.
    list: String,
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

/// Digest of the list that the request under way asks for.
pub fn list_digest() -> String {
    ASIDE.try_with(|aside| aside.list.clone()).unwrap_or_default()
}

impl Table {
    pub fn of(document: &OpenApi) -> Self {
        let mut table: BTreeMap<String, BTreeMap<String, Parameters>> = BTreeMap::new();
        let mut document = document.clone();
        for (path, item) in &mut document.paths.paths {
            for (method, operation) in operations(item) {
                table.entry(path.clone()).or_default().insert(method.as_str().to_owned(), query_parameters(operation));
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
        let none = Parameters::new();
        let method = if method == Method::HEAD { &Method::GET } else { method };
        let known = match self.0.get(path) {
            Some(methods) => methods.get(method.as_str()).unwrap_or(&none),
            None => &none,
        };
        for (name, value) in &given {
            let bounds = known.get(name).ok_or_else(|| unknown(name, method, known))?;
            check_bounds(name, value, *bounds)?;
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
        let list = cursor::digest_list(uri.path(), &given);
        Ok(Aside { dry_run, reason, list })
    }
}

fn query_parameters(of: &Operation) -> Parameters {
    let mut found = Parameters::new();
    for parameter in of.parameters.iter().flatten() {
        if let RefOr::T(one) = parameter
            && one.parameter_in == ParameterIn::Query
        {
            found.insert(one.name.clone(), one.schema.as_ref().and_then(bounds));
        }
    }
    found
}

/// The least and the greatest value that the document states of a whole number.
fn bounds(schema: &RefOr<Schema>) -> Option<(i64, i64)> {
    let RefOr::T(Schema::Object(schema)) = schema else { return None };
    let whole = |number: &Number| match number {
        Number::Int(value) => i64::try_from(*value).ok(),
        Number::UInt(value) => i64::try_from(*value).ok(),
        Number::Float(_) => None,
    };
    Some((whole(schema.minimum.as_ref()?)?, whole(schema.maximum.as_ref()?)?))
}

/// A value outside of its bounds is refused by name. One that is no number is the handler's to refuse.
fn check_bounds(name: &str, value: &str, bounds: Option<(i64, i64)>) -> Result<(), Problem> {
    let (Some((least, greatest)), Ok(value)) = (bounds, value.parse::<i64>()) else { return Ok(()) };
    if (least..=greatest).contains(&value) {
        return Ok(());
    }
    let detail = format!("{name} is {value} and must be between {least} and {greatest}");
    let hint = match name {
        "tail" => "read more of the output page by page, with offset, or leave tail out to read all of it",
        _ => "read longer lists page by page, with cursor",
    };
    Err(Problem::bad_request(detail).field(name).hint(hint))
}

fn given(uri: &Uri) -> Result<Vec<(String, String)>, Problem> {
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri).map(|Query(pairs)| pairs);
    pairs.map_err(|wrong| Problem::bad_request(wrong.body_text()))
}

fn unknown(name: &str, method: &Method, known: &Parameters) -> Problem {
    let detail = match name {
        DRY_RUN if method != Method::GET => "this has no dry run".to_owned(),
        _ => format!("there is no parameter \"{name}\" here"),
    };
    let known: Vec<&str> = known.keys().map(String::as_str).collect();
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
