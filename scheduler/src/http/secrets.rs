//! Secrets: set, listed without their values, deleted; and whether those that a submission names are there.

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use headway_api::spec::is_secret_name;
use headway_api::v1;
use headway_types::{JobSpec, ProjectRole};
use serde::Deserialize;

use super::access::Act;
use super::admission::field;
use super::auth::Principal;
use super::extract::{Json, Path, Query};
use super::problem::Problem;
use super::{HttpState, conversions, parameters, projects};
use crate::secrets::may_use;
use crate::store::{SecretChange, SecretId, SecretOwner, SecretRow, StoreError};

/// A variable of an environment may be four times as long.
const LONGEST_VALUE: usize = 32 * 1024;

#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct SecretsQuery {
    /// Of this project; absent: the caller's own.
    pub project: Option<String>,
}

/// Set a secret of one's own or, of who is an admin there, of a project. What there was under this name is gone. The value is in no reply, no log and no event.
#[utoipa::path(put, path = "/secrets/{secret}", tag = "auth", params(("secret" = String, Path), SecretsQuery), request_body = v1::SecretRequest,
    responses((status = 200, description = "Replaced", body = v1::Secret), (status = 201, description = "Set", body = v1::Secret),
        (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn put_secret(
    State(state): State<HttpState>,
    caller: Principal,
    Path(name): Path<String>,
    Query(query): Query<SecretsQuery>,
    Json(v1::SecretRequest { value }): Json<v1::SecretRequest>,
) -> Result<Response, Problem> {
    let owner = owner_of(&state, &caller, query.project, Act::KeepProjectSecrets)?;
    if !is_secret_name(&name) {
        let detail =
            "a secret's name has 1 to 128 ASCII letters, digits, '-', '_' or '.', and begins with a letter or digit";
        return Err(Problem::invalid(detail).field("secret"));
    }
    if value.expose().is_empty() || value.expose().len() > LONGEST_VALUE || value.expose().contains('\0') {
        return Err(Problem::invalid("a secret's value has 1 to 32768 bytes and no NUL").field("value"));
    }
    let store = state.cluster.store();
    if !store.keeps_secrets() {
        return Err(no_key());
    }
    let (id, now) = (SecretId { owner, name }, state.cluster.now());
    if parameters::is_dry_run() {
        let known = find(&state, &id).await?;
        let row =
            SecretRow { set_at: now, set_by: caller.name().into(), used_at: known.and_then(|one| one.used_at), id };
        return Ok(Json(conversions::secret(row)).into_response());
    }
    let status = match store.set_secret(&id, &value, caller.name(), now, state.deed()).await? {
        SecretChange::Set => StatusCode::CREATED,
        SecretChange::Replaced => StatusCode::OK,
        SecretChange::TooMany => {
            let detail = format!("{} has as many secrets as there may be", id.owner.name());
            return Err(Problem::new(StatusCode::CONFLICT, "too_many_secrets", detail)
                .hint("delete some: headway secret list, headway secret delete NAME"));
        }
    };
    tracing::info!(secret = id.name, owner = id.owner.name(), by = caller.name(), "secret set");
    let row = find(&state, &id).await?.ok_or_else(|| none(&id))?;
    Ok((status, Json(conversions::secret(row))).into_response())
}

/// What the caller's own secrets, or those of a project, are called, and when they were set and used. Never their values.
#[utoipa::path(get, path = "/secrets", tag = "auth", params(SecretsQuery), 
    responses((status = 200, body = v1::SecretList), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn list_secrets(
    State(state): State<HttpState>,
    caller: Principal,
    Query(query): Query<SecretsQuery>,
) -> Result<Json<v1::SecretList>, Problem> {
    let owner = owner_of(&state, &caller, query.project, Act::UseProjectSecrets)?;
    let rows = rows_of(&state, &owner).await?;
    Ok(Json(v1::SecretList { items: rows.into_iter().map(conversions::secret).collect() }))
}

/// Delete a secret of one's own or, of who is an admin there, of a project. Jobs that name it and wait fail when they are started, and say so; those that run keep what they have.
#[utoipa::path(delete, path = "/secrets/{secret}", tag = "auth", params(("secret" = String, Path), SecretsQuery),
    responses((status = 204), (status = "4XX", body = v1::Problem, content_type = "application/problem+json")))]
pub async fn delete_secret(
    State(state): State<HttpState>,
    caller: Principal,
    Path(name): Path<String>,
    Query(query): Query<SecretsQuery>,
) -> Result<StatusCode, Problem> {
    let id = SecretId { owner: owner_of(&state, &caller, query.project, Act::KeepProjectSecrets)?, name };
    if parameters::is_dry_run() {
        return find(&state, &id).await?.map(|_| StatusCode::NO_CONTENT).ok_or_else(|| none(&id));
    }
    if !state.cluster.store().delete_secret(&id, state.deed()).await? {
        return Err(none(&id));
    }
    tracing::info!(secret = id.name, owner = id.owner.name(), by = caller.name(), "secret deleted");
    Ok(StatusCode::NO_CONTENT)
}

/// Whose secrets are meant, if the caller may do this with them.
fn owner_of(state: &HttpState, caller: &Principal, project: Option<String>, act: Act) -> Result<SecretOwner, Problem> {
    let Some(project) = project else { return Ok(SecretOwner::User(caller.name().to_owned())) };
    let view = state.cluster.view();
    projects::find(&view, &project)?;
    caller.may_in(act, &view, &project)?;
    Ok(SecretOwner::Project(project))
}

async fn rows_of(state: &HttpState, owner: &SecretOwner) -> Result<Vec<SecretRow>, StoreError> {
    let (user, projects) = match owner {
        SecretOwner::User(user) => (Some(user.as_str()), Vec::new()),
        SecretOwner::Project(project) => (None, vec![project.clone()]),
    };
    state.cluster.store().secrets_of(user, &projects).await
}

async fn find(state: &HttpState, id: &SecretId) -> Result<Option<SecretRow>, StoreError> {
    Ok(rows_of(state, &id.owner).await?.into_iter().find(|row| row.id == *id))
}

fn none(id: &SecretId) -> Problem {
    Problem::not_found(format!("{} has no secret {}", id.owner.name(), id.name))
        .hint("headway secret list shows yours, headway secret list --project P those of a project")
}

fn no_key() -> Problem {
    Problem::new(StatusCode::CONFLICT, "no_secrets_key", "this server has no key to seal secrets with").hint(
        "an admin makes one and restarts the server: openssl rand -hex 32 > FILE; chmod 600 FILE; headway server --secrets-key-file FILE",
    )
}

/// Refuses jobs that name secrets which neither their owner has nor, for its members, their project.
pub async fn check_named(state: &HttpState, caller: &Principal, specs: &[JobSpec]) -> Result<(), Problem> {
    let named = |spec: &JobSpec| {
        let run = spec.role().run.secrets.iter();
        let run = run.map(|(variable, name)| (format!("run.secrets.{variable}"), name.clone()));
        let notify = spec.notify.iter().enumerate();
        let notify = notify.filter_map(|(at, one)| Some((format!("notify[{at}].secret"), one.secret.clone()?)));
        run.chain(notify).collect::<Vec<_>>()
    };
    let mut known: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (index, spec) in specs.iter().enumerate() {
        let named = named(spec);
        if named.is_empty() {
            continue;
        }
        if !known.contains_key(spec.project.as_str()) {
            known.insert(&spec.project, usable(state, caller.name(), &spec.project).await?);
        }
        let missing = named.into_iter().find(|(_, name)| !known[spec.project.as_str()].contains(name));
        if let Some((place, name)) = missing {
            let user = caller.name();
            let detail =
                format!("{user} has no secret {name}, nor has project {} one that {user} may use", spec.project);
            let hint = format!(
                "set your own: headway secret set {name}; an admin of the project sets one for its members: headway secret set {name} --project {}",
                spec.project
            );
            let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "unknown_secret", detail).hint(hint);
            return Err(problem.field(field(specs.len() > 1, index, &place)));
        }
    }
    Ok(())
}

/// Names of the secrets that a user's jobs in a project may be given.
async fn usable(state: &HttpState, user: &str, project: &str) -> Result<BTreeSet<String>, StoreError> {
    let store = state.cluster.store();
    let member = state.cluster.view().role_in(project, user) >= Some(ProjectRole::User);
    let projects = if may_use(store, user, member).await? { vec![project.to_owned()] } else { Vec::new() };
    let rows = store.secrets_of(Some(user), &projects).await?;
    Ok(rows.into_iter().map(|row| row.id.name).collect())
}
