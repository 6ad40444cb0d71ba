//! Projects: their rules, for admins to set and for all to see.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use headway_api::v1;
use headway_engine::event::Request;
use headway_engine::outcome::Reply;
use headway_engine::record::Project;
use serde::Deserialize;

use super::auth::{AdminPrincipal, Principal};
use super::extract::{self, Json, Path, Query, etag};
use super::problem::Problem;
use super::{HttpState, conversions, mismatched};

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ProjectQuery {
    /// Check only; nothing is stored.
    #[serde(default)]
    dry_run: bool,
}

/// All projects that have rules. A project that only jobs name binds nothing and is not listed.
#[utoipa::path(get, path = "/projects", tag = "projects", responses((status = 200, body = v1::ProjectList)))]
pub async fn list_projects(State(state): State<HttpState>, _caller: Principal) -> Json<v1::ProjectList> {
    let view = state.cluster.view();
    let holdings = view.holdings();
    let items = view.projects.values().map(|project| conversions::project(project, &holdings));
    Json(v1::ProjectList { items: items.collect() })
}

/// One project. `ETag` is the version of its rules.
#[utoipa::path(get, path = "/projects/{project}", tag = "projects", params(("project" = String, Path)),
    responses((status = 200, body = v1::Project, headers(("ETag" = String))),
        (status = 404, body = v1::Problem, content_type = "application/problem+json")))]
pub async fn get_project(
    State(state): State<HttpState>,
    _caller: Principal,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let view = state.cluster.view();
    let project = view.projects.get(&name).ok_or_else(|| {
        Problem::not_found(format!("no project {name}")).hint("a project has rules once PUT has given it some")
    })?;
    Ok(shown(&state, project, StatusCode::OK))
}

/// Create a project, or replace its rules as a whole. `If-Match`: only at this version; `If-None-Match: *`: only if
/// there is none. Repeating it changes nothing.
#[utoipa::path(put, path = "/projects/{project}", tag = "projects",
    params(("project" = String, Path), ProjectQuery, ("If-Match" = Option<String>, Header), ("If-None-Match" = Option<String>, Header)),
    request_body = v1::ProjectRequest,
    responses((status = 200, body = v1::Project, headers(("ETag" = String))), (status = 201, description = "Created", body = v1::Project),
        (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn put_project(
    State(state): State<HttpState>,
    AdminPrincipal(caller): AdminPrincipal,
    Path(name): Path<String>,
    Query(query): Query<ProjectQuery>,
    headers: HeaderMap,
    Json(body): Json<v1::ProjectRequest>,
) -> Result<Response, Problem> {
    let expected = expected_version(&headers)?;
    let new = !state.cluster.view().projects.contains_key(&name);
    let rules = conversions::project_rules(body);
    let request = Request::PutProject { name, rules, expected, dry_run: query.dry_run };
    match state.ask(caller.actor(), request).await? {
        Reply::Project(project) => {
            let status = if new && !query.dry_run { StatusCode::CREATED } else { StatusCode::OK };
            Ok(shown(&state, &project, status))
        }
        other => Err(mismatched(&other)),
    }
}

/// Delete a project's rules. Its jobs go on, bound by nothing.
#[utoipa::path(delete, path = "/projects/{project}", tag = "projects",
    params(("project" = String, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 200, body = v1::Project), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn delete_project(
    State(state): State<HttpState>,
    AdminPrincipal(caller): AdminPrincipal,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let expected = expected_version(&headers)?;
    match state.ask(caller.actor(), Request::DeleteProject { name, expected }).await? {
        Reply::Project(project) => Ok(shown(&state, &project, StatusCode::OK)),
        other => Err(mismatched(&other)),
    }
}

fn shown(state: &HttpState, project: &Project, status: StatusCode) -> Response {
    let body = conversions::project(project, &state.cluster.view().holdings());
    (status, [(header::ETAG, etag(project.version))], Json(body)).into_response()
}

/// The version that must be there; 0 for none at all.
fn expected_version(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    match headers.get(header::IF_NONE_MATCH) {
        None => extract::if_match(headers),
        Some(any) if any == "*" && !headers.contains_key(header::IF_MATCH) => Ok(Some(0)),
        Some(_) => Err(Problem::bad_request("send If-Match or If-None-Match: *, not both").field("If-None-Match")),
    }
}
