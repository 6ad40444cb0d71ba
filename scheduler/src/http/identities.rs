//! Who a user is at the identity provider, said by an admin.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use headway_api::v1;

use super::auth::Principal;
use super::extract::{Json, Path};
use super::problem::Problem;
use super::{HttpState, oidc};
use crate::store::{Linked, Person};

const LONGEST_SUBJECT: usize = 255;

/// Say who a user is at the identity provider, so that this person logs in as the user. The role stays as it is, or follows the person's groups from the next login on.
#[utoipa::path(put, path = "/users/{user}/identity", tag = "auth", params(("user" = String, Path)), request_body = v1::IdentityRequest,
    responses((status = 200, body = v1::Identity), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn link_user(
    State(state): State<HttpState>,
    caller: Principal,
    Path(user): Path<String>,
    Json(body): Json<v1::IdentityRequest>,
) -> Result<Json<v1::Identity>, Problem> {
    let is_text = |text: &str, longest| (1..=longest).contains(&text.len()) && !text.chars().any(char::is_control);
    if !is_text(&body.subject, LONGEST_SUBJECT) {
        return Err(Problem::invalid("a subject has 1 to 255 characters").field("subject"));
    }
    let own = state.oidc.as_ref().map(|provider| provider.settings().issuer.clone());
    let issuer = body.issuer.or(own).filter(|issuer| is_text(issuer, 1_024)).ok_or_else(|| {
        Problem::invalid("whose subject it is: this server has no identity provider of its own").field("issuer")
    })?;
    let person = Person { issuer, subject: body.subject };
    let from_groups = body.role_from == v1::RoleSource::Groups;
    let store = state.cluster.store();
    let role = match store.link(&user, &person, from_groups, state.cluster.now(), state.deed()).await? {
        Linked::Done(role) => role,
        Linked::NoSuchUser => return Err(Problem::not_found(format!("no user {user}"))),
        Linked::Taken(other) => {
            let detail = format!("{} of {} is the user {other} already", person.subject, person.issuer);
            return Err(Problem::new(StatusCode::CONFLICT, "identity_taken", detail)
                .hint(format!("first: headway user unlink {other}")));
        }
        Linked::IsAnother(there) => {
            let detail = format!("{user} is {} of {} already", there.subject, there.issuer);
            return Err(Problem::new(StatusCode::CONFLICT, "identity_taken", detail)
                .hint(format!("first: headway user unlink {user}")));
        }
    };
    tracing::info!(user, by = caller.name(), "user is linked to somebody at the identity provider");
    let Person { issuer, subject } = person;
    Ok(Json(v1::Identity { user, issuer, subject, role, role_from: body.role_from }))
}

/// Say that a user is nobody at the identity provider any more: what logins have opened ends at once, with what groups gave in projects. The role stays, by hand.
#[utoipa::path(delete, path = "/users/{user}/identity", tag = "auth", params(("user" = String, Path)),
    responses((status = 204), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn unlink_user(
    State(state): State<HttpState>,
    caller: Principal,
    Path(user): Path<String>,
) -> Result<StatusCode, Problem> {
    let store = state.cluster.store();
    // One that did not come to its end before goes on.
    let unlinked = store.unlink(&user, state.cluster.now(), state.deed()).await?;
    if !unlinked && store.group_memberships(&user).await?.is_empty() {
        return Err(Problem::not_found(format!("{user} is nobody at an identity provider")));
    }
    state.tokens_changed();
    oidc::settle(&state, &user, &BTreeMap::new(), &format!("unlinked by {}", caller.name())).await?;
    tracing::info!(user, by = caller.name(), "user is nobody at the identity provider any more");
    Ok(StatusCode::NO_CONTENT)
}
