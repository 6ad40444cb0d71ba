//! Projects: their rules, for admins to set and for all to see.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use headway_api::v1;
use headway_engine::event::Request;
use headway_engine::outcome::Reply;
use headway_engine::record::Project;
use headway_engine::view::View;

use super::auth::Principal;
use super::extract::{self, Json, Path, etag};
use super::problem::Problem;
use super::{HttpState, conversions};
use crate::shown::Shown;

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
    let project = find(&view, &name)?;
    let tag = [(header::ETAG, etag(project.version))];
    Ok((tag, Json(conversions::project(project, &view.holdings()))).into_response())
}

/// Create a project, or replace its rules as a whole. `If-Match`: only at this version; `If-None-Match: *`: only if
/// there is none. Repeating it changes nothing.
#[utoipa::path(put, path = "/projects/{project}", tag = "projects",
    params(("project" = String, Path), ("If-Match" = Option<String>, Header), ("If-None-Match" = Option<String>, Header)),
    request_body = v1::ProjectRequest,
    responses((status = 200, body = v1::Project, headers(("ETag" = String))), (status = 201, description = "Created", body = v1::Project),
        (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn put_project(
    State(state): State<HttpState>,
    caller: Principal,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(body): Json<v1::ProjectRequest>,
) -> Result<Response, Problem> {
    let expected = expected_version(&headers)?;
    let new = !state.cluster.view().projects.contains_key(&name);
    let rules = conversions::project_rules(body);
    state.answer(&caller, Request::PutProject { name, rules, expected }, if new { shown_new } else { shown }).await
}

/// Delete a project's rules. Its jobs go on, bound by nothing.
#[utoipa::path(delete, path = "/projects/{project}", tag = "projects",
    params(("project" = String, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 200, body = v1::Project), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn delete_project(
    State(state): State<HttpState>,
    caller: Principal,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let expected = expected_version(&headers)?;
    state.answer(&caller, Request::DeleteProject { name, expected }, shown).await
}

pub fn find<'a>(view: &'a View, name: &str) -> Result<&'a Project, Problem> {
    view.projects.get(name).map(AsRef::as_ref).ok_or_else(|| {
        Problem::not_found(format!("no project {name}"))
            .hint("a project has rules once it was given some: headway project create NAME")
    })
}

fn shown(reply: &Reply, view: &View) -> Option<Shown> {
    shown_as(StatusCode::OK, reply, view)
}

fn shown_new(reply: &Reply, view: &View) -> Option<Shown> {
    shown_as(StatusCode::CREATED, reply, view)
}

pub fn shown_as(status: StatusCode, reply: &Reply, view: &View) -> Option<Shown> {
    let Reply::Project(project) = reply else { return None };
    let body = conversions::project(project, &view.holdings());
    Some(Shown::new(status, &body).with(header::ETAG, etag(project.version)))
}

/// The version that must be there; 0 for none at all.
fn expected_version(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    match headers.get(header::IF_NONE_MATCH) {
        None => extract::if_match(headers),
        Some(any) if any == "*" && !headers.contains_key(header::IF_MATCH) => Ok(Some(0)),
        Some(_) => Err(Problem::bad_request("send If-Match or If-None-Match: *, not both").field("If-None-Match")),
    }
}
