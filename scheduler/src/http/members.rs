//! Who is a member of a project, and with which role.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use headway_api::v1;
use headway_engine::event::Request;
use headway_engine::outcome::Reply;
use headway_engine::view::View;

use super::auth::Principal;
use super::extract::{self, Json, Path};
use super::problem::Problem;
use super::{HttpState, conversions, parameters, projects};
use crate::shown::Shown;

/// Members of a project, those of what it is part of included. A project without any is everybody's.
#[utoipa::path(get, path = "/projects/{project}/members", tag = "projects", params(("project" = String, Path)),
    responses((status = 200, body = v1::MemberList), (status = 404, body = v1::Problem, content_type = "application/problem+json")))]
pub async fn list_members(
    State(state): State<HttpState>,
    _caller: Principal,
    Path(name): Path<String>,
) -> Result<Json<v1::MemberList>, Problem> {
    let view = state.cluster.view();
    projects::find(&view, &name)?;
    let mut items = Vec::new();
    for project in view.project_line(&name) {
        let by_groups = state.cluster.store().members_by_groups(&project.name).await?;
        let named = project.access.members.iter().map(|(user, role)| {
            let member = conversions::member(user, *role, project);
            v1::Member { from_groups: by_groups.get(user) == Some(role), ..member }
        });
        items.extend(named);
    }
    Ok(Json(v1::MemberList { items }))
}

/// Give somebody a role in a project and in all that is part of it. With the first member it is its members' alone. With `If-Match`, only at this version of the project.
#[utoipa::path(put, path = "/projects/{project}/members/{user}", tag = "projects",
    params(("project" = String, Path), ("user" = String, Path), ("If-Match" = Option<String>, Header)), request_body = v1::MemberRequest,
    responses((status = 200, body = v1::Project), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn put_member(
    State(state): State<HttpState>,
    caller: Principal,
    Path((project, user)): Path<(String, String)>,
    headers: HeaderMap,
    Json(body): Json<v1::MemberRequest>,
) -> Result<Response, Problem> {
    if state.cluster.store().role_of(&user).await?.is_none() {
        return Err(Problem::not_found(format!("no user {user}"))
            .field("user")
            .hint("an admin makes users: headway user set, or headway token create --user"));
    }
    let expected = extract::if_match(&headers)?;
    let (by_hand_of, by_hand_in) = (user.clone(), project.clone());
    let request = Request::SetMember { project, user, role: Some(body.role), expected, groups: None };
    by_hand(&state, &caller, request, &by_hand_of, &by_hand_in).await
}

/// Take somebody's role in a project away; what the project is part of may lend one still. Without any member it is everybody's again.
#[utoipa::path(delete, path = "/projects/{project}/members/{user}", tag = "projects",
    params(("project" = String, Path), ("user" = String, Path), ("If-Match" = Option<String>, Header)),
    responses((status = 200, body = v1::Project), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn delete_member(
    State(state): State<HttpState>,
    caller: Principal,
    Path((project, user)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let expected = extract::if_match(&headers)?;
    let (by_hand_of, by_hand_in) = (user.clone(), project.clone());
    let request = Request::SetMember { project, user, role: None, expected, groups: None };
    by_hand(&state, &caller, request, &by_hand_of, &by_hand_in).await
}

/// Whatever groups gave there, it is a hand's now, and no login changes it.
async fn by_hand(
    state: &HttpState,
    caller: &Principal,
    request: Request,
    user: &str,
    project: &str,
) -> Result<Response, Problem> {
    let answer = state.answer(caller, request, shown).await?;
    if !parameters::is_dry_run() {
        state.cluster.store().forget_group_membership(user, project).await?;
    }
    Ok(answer)
}

/// Make a project private, so that only members see that its jobs exist, or not.
#[utoipa::path(patch, path = "/projects/{project}", tag = "projects",
    params(("project" = String, Path), ("If-Match" = Option<String>, Header)), request_body = v1::ProjectPatch,
    responses((status = 200, body = v1::Project), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn patch_project(
    State(state): State<HttpState>,
    caller: Principal,
    Path(project): Path<String>,
    headers: HeaderMap,
    Json(body): Json<v1::ProjectPatch>,
) -> Result<Response, Problem> {
    let expected = extract::if_match(&headers)?;
    let private = body.private.ok_or_else(|| Problem::invalid("nothing to change").field("private"))?;
    state.answer(&caller, Request::SetPrivate { project, private, expected }, shown).await
}

fn shown(reply: &Reply, view: &View) -> Option<Shown> {
    projects::shown_as(StatusCode::OK, reply, view)
}
