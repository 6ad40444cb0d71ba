//! Users: who there is, and the most that the tokens of each open.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use headway_api::v1;
use headway_engine::view::View;
use headway_types::TokenScope;

use super::auth::Principal;
use super::extract::{Json, Path};
use super::problem::Problem;
use super::{HttpState, conversions};
use crate::store::{RoleChange, User};

const LONGEST_NAME: usize = 128;

/// All users.
#[utoipa::path(get, path = "/users", tag = "auth", responses((status = 200, body = v1::UserList)))]
pub async fn list_users(State(state): State<HttpState>, caller: Principal) -> Result<Json<v1::UserList>, Problem> {
    let users = state.cluster.store().users(state.cluster.now()).await?;
    let view = state.cluster.view();
    Ok(Json(v1::UserList { items: users.iter().map(|user| shown(&caller, &view, user)).collect() }))
}

/// One user.
#[utoipa::path(get, path = "/users/{user}", tag = "auth", params(("user" = String, Path)),
    responses((status = 200, body = v1::User), (status = 404, body = v1::Problem, content_type = "application/problem+json")))]
pub async fn get_user(
    State(state): State<HttpState>,
    caller: Principal,
    Path(name): Path<String>,
) -> Result<Json<v1::User>, Problem> {
    find(&state, &caller, &name).await.map(Json)
}

/// Give a user a role, the most that tokens of this user open; who is not there is made. The last admin stays one (409, `last_admin`).
#[utoipa::path(put, path = "/users/{user}", tag = "auth", params(("user" = String, Path)), request_body = v1::UserRequest,
    responses((status = 200, body = v1::User), (status = 201, description = "Created", body = v1::User),
        (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn put_user(
    State(state): State<HttpState>,
    caller: Principal,
    Path(name): Path<String>,
    Json(body): Json<v1::UserRequest>,
) -> Result<Response, Problem> {
    if body.role == TokenScope::Agent {
        return Err(Problem::invalid("a user's role is viewer, user, operator or admin").field("role"));
    }
    let store = state.cluster.store();
    if store.role_of(&name).await?.is_none() {
        check_name(&name, "user")?;
    }
    let status = match store.set_role(&name, body.role, state.cluster.now(), state.deed()).await? {
        RoleChange::Done => StatusCode::OK,
        RoleChange::Created => StatusCode::CREATED,
        RoleChange::LastAdmin => {
            let detail = format!("{name} has the only admin token: the cluster would be left without an admin");
            return Err(Problem::new(StatusCode::CONFLICT, "last_admin", detail)
                .hint("make another admin first: POST /api/v1/auth/tokens with a user and the scope admin"));
        }
    };
    state.tokens_changed();
    tracing::info!(user = name, by = caller.name(), role = %body.role, "user has a role");
    Ok((status, Json(find(&state, &caller, &name).await?)).into_response())
}

async fn find(state: &HttpState, caller: &Principal, name: &str) -> Result<v1::User, Problem> {
    let users = state.cluster.store().users(state.cluster.now()).await?;
    let user = users.iter().find(|user| user.name == name);
    let view = state.cluster.view();
    user.map(|user| shown(caller, &view, user))
        .ok_or_else(|| Problem::not_found(format!("no user {name}")).hint("see `headway user list`"))
}

/// How many jobs somebody has tells of jobs that not everybody may know of.
fn shown(caller: &Principal, view: &View, user: &User) -> v1::User {
    let tells = caller.name() == user.name || caller.out_of_sight(view).is_none();
    conversions::user(user, view.policy.quota_of(&user.name), tells.then(|| view.load_of(&user.name)))
}

/// A new name is safe in paths and on command lines, and is nobody's that the log names.
pub fn check_name(name: &str, field: &str) -> Result<(), Problem> {
    let begins_well = name.chars().next().is_some_and(|first| first.is_ascii_alphanumeric());
    let reads_well = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@' | '+'));
    if begins_well && reads_well && name.len() <= LONGEST_NAME && name != "scheduler" {
        return Ok(());
    }
    let what = "a user's name has 1 to 128 ASCII letters, digits, '-', '_', '.', '+' or '@', a letter or digit first, and is not \"scheduler\"";
    Err(Problem::invalid(what).field(field))
}
