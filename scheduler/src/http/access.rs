//! Permission: every request below `/api/v1` is authenticated and held to the table of rules before a handler, or a body, is looked at.
//! What a request names in its path (a job, a project) is found here; what it names in its body, and what of a list its reader may
//! see, is asked by the handler with the same rules.

mod redacted;
mod table;
mod veil;
mod veiled;
mod welcome;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, FromRequestParts, MatchedPath, RawPathParams, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use headway_api::v1;
use headway_engine::record::{Array, EventRecord, Job, Origin};
use headway_engine::view::View;
use headway_types::{ArrayId, JobId};
use utoipa::openapi::OpenApi;
use uuid::Uuid;

use super::auth::{Credential, Principal};
use super::extract::too_large;
use super::limits::{BODY_BYTES, REQUEST_ID_HERE};
use super::oidc::Stranger;
use super::openapi::operations;
use super::pace::LOGINS;
use super::problem::{Code, Problem};
use super::{HttpState, conversions, lookup, public};
use crate::audit;
use crate::cluster::Cluster;
use crate::server::{Visitor, network};
use crate::spans::Caller;
use crate::store::{OutOfSight, StoreError};
#[cfg(test)]
pub use table::ROUTES;
pub use table::{Act, Standing, act_of};
pub use veil::ANOTHER;
pub use veiled::Veils;
use welcome::Guest;
pub use welcome::Live;

/// How the verbs of events begin that say who is a member of a project.
const MEMBER_EVENTS: &str = "project.member_";

/// What each route does, by its path and method; `None`: nobody has said it, so nobody may.
pub struct Routes(BTreeMap<(String, Method), (String, Option<Act>)>);

impl Routes {
    pub fn of(document: &OpenApi) -> Self {
        let mut routes = BTreeMap::new();
        let mut document = document.clone();
        for (path, item) in &mut document.paths.paths {
            for (method, operation) in operations(item) {
                let id = operation.operation_id.clone().unwrap_or_default();
                let act = act_of(&id);
                routes.insert((path.clone(), method), (id, act));
            }
        }
        Self(routes)
    }

    /// The id of the operation that a request is.
    pub fn operation(&self, request: &Request) -> Option<&str> {
        self.find(request).map(|(id, _)| id.as_str())
    }

    /// `None`: it is no route of the interface.
    fn find(&self, request: &Request) -> Option<&(String, Option<Act>)> {
        let path = request.extensions().get::<MatchedPath>()?.as_str();
        let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
        self.0.get(&(path.to_owned(), method.clone()))
    }
}

/// Wraps all routes; whoever is let through is in the request for the handler.
pub async fn checked(
    State((state, routes)): State<(HttpState, Arc<Routes>)>,
    request: Request,
    next: Next,
) -> Response {
    let Some((operation, act)) = routes.find(&request) else { return public::answer(&state, request, next).await };
    if *act == Some(Act::LogIn) {
        return answer_stranger(&state, request, next).await;
    }
    let (mut parts, body) = request.into_parts();
    let address = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip());
    let brought = match Credential::of(&parts.method, &parts.headers, &state.cookies) {
        Ok(brought) => brought,
        Err(problem) => return problem.into_response(),
    };
    let caller = match state.authenticate(&brought, address).await {
        Ok(caller) => caller,
        Err(refused) => {
            state.note_no_person(&refused, operation, address);
            return (*refused.problem).into_response();
        }
    };
    if let Some(visitor) = parts.extensions.get::<Visitor>() {
        visitor.is_known();
    }
    let quota = state.cluster.view().policy.quota_of(caller.name());
    if let Err(problem) = state.paces.admit(caller.name(), quota, Instant::now()) {
        return problem.into_response();
    }
    let params = RawPathParams::from_request_parts(&mut parts, &()).await.ok();
    let origin = Origin {
        action: operation.clone(),
        user: caller.name().to_owned(),
        token: caller.token.id,
        address,
        request: REQUEST_ID_HERE.try_with(String::clone).unwrap_or_default(),
        subject: params.as_ref().and_then(|params| subject(parts.uri.path(), params)),
    };
    let kind = Caller(caller.scope());
    let answer = async {
        if let Err(problem) = permit(&state, &caller, *act, parts.uri.path(), params.as_ref()).await {
            state.note_refusal(&problem);
            return problem.into_response();
        }
        let guest = Guest {
            caller: caller.clone(),
            of_job: act.filter(|act| act.is_of_job()).zip(params.as_ref().and_then(job_of)),
        };
        parts.extensions.insert(caller.clone());
        let request = Request::from_parts(parts, body);
        let request = match state.arrivals.whole(request, caller.name()).await {
            Ok(request) => request,
            Err(problem) => return problem.into_response(),
        };
        // Of others no reply is veiled.
        let (request, written) = match caller.out_of_sight(&state.cluster.view()) {
            Some(_) => match what_is_written(request).await {
                Ok(known) => known,
                Err(problem) => return problem.into_response(),
            },
            None => (request, String::new()),
        };
        let response = next.run(request).await;
        // What only a handler could know: the project of a job, whose token it is.
        if response.status() == StatusCode::FORBIDDEN {
            state.note_refused(response.extensions().get().map_or("forbidden", |Code(code)| *code));
        }
        let response = veiled::veiled(response, state.veils.clone(), state.cluster.clone(), caller, written).await;
        welcome::as_long_as(response, state.clone(), brought, guest)
    };
    let mut response = audit::coming_from(origin, answer).await;
    response.extensions_mut().insert(kind);
    response
}

/// Whoever logs in has no token yet.
async fn answer_stranger(state: &HttpState, mut request: Request, next: Next) -> Response {
    let address = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip());
    if let Err(problem) = state.strangers.admit_address(address, LOGINS, Instant::now()) {
        return problem.into_response();
    }
    request.extensions_mut().insert(Stranger(address));
    match state.strangers_arrivals.whole(request, &network(address).to_string()).await {
        Ok(request) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// A request, and all that is written in its path, query and body, in small letters.
async fn what_is_written(request: Request) -> Result<(Request, String), Problem> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, BODY_BYTES).await.map_err(|_| too_large())?;
    let written = format!("{} {}", parts.uri, String::from_utf8_lossy(&body)).to_ascii_lowercase();
    Ok((Request::from_parts(parts, Body::from(body)), written))
}

/// What a path names, as the audit calls it: "job:<id>".
fn subject(path: &str, params: &RawPathParams) -> Option<String> {
    let (_, value) = params.iter().next()?;
    let noun = path.trim_start_matches("/api/v1/").split('/').find(|part| *part != "auth")?;
    Some(format!("{}:{value}", noun.trim_end_matches('s')))
}

/// The job that a path names.
fn job_of(params: &RawPathParams) -> Option<JobId> {
    let (_, id) = params.iter().find(|(name, _)| *name == "id")?;
    Uuid::parse_str(id).ok().map(JobId)
}

async fn permit(
    state: &HttpState,
    caller: &Principal,
    act: Option<Act>,
    path: &str,
    params: Option<&RawPathParams>,
) -> Result<(), Problem> {
    let Some(act) = act else {
        tracing::error!("no rule says who may do what this route does");
        return Err(Problem::forbidden("no rule says who may do this"));
    };
    let param = |name: &str| params?.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_owned());
    match act {
        Act::SeeJob | Act::ReadJob | Act::ReadEnvironment | Act::ChangeJob | Act::RunInJob => {
            // The handler says what is wrong with an id that is none.
            let id = param("id").and_then(|id| Uuid::parse_str(&id).ok());
            let Some(id) = id else { return caller.has_scope(act) };
            if path.starts_with("/api/v1/arrays/") {
                let array = lookup::array(&state.cluster, ArrayId(id)).await?;
                let permitted = caller.may_with_array(act, &state.cluster.view(), &array);
                if permitted.as_ref().is_err_and(is_hidden) && state.cluster.view().arrays.contains_key(&array.id) {
                    lookup::look_in_vain_for_array(&state.cluster).await?;
                }
                return permitted;
            }
            let job = lookup::record(&state.cluster, JobId(id)).await?;
            let permitted = caller.may_with_job(act, &state.cluster.view(), &job);
            if permitted.as_ref().is_err_and(is_hidden) && state.cluster.view().jobs.contains_key(&job.id) {
                lookup::look_in_vain_for_job(&state.cluster).await?;
            }
            permitted
        }
        Act::SeeMembers | Act::NameMembers => match param("project") {
            Some(project) => caller.may_in(act, &state.cluster.view(), &project),
            None => caller.has_scope(act),
        },
        // To which project, with what priority and whose token is in the body.
        // Likewise of a query.
        Act::Submit
        | Act::RaisePriority
        | Act::KeepTokens
        | Act::KeepTokensOfOthers
        | Act::KeepSecrets
        | Act::UseProjectSecrets
        | Act::KeepProjectSecrets => caller.has_scope(act),
        Act::Look
        | Act::LogIn
        | Act::Operate
        | Act::SetRules
        | Act::NamePeople
        | Act::ReadAudit
        | Act::KeepAuthorities => caller.may(act),
    }
}

/// Whether a refusal says that there is nothing. It must take as long as where there is nothing indeed, which only the
/// store knows.
fn is_hidden(refusal: &Problem) -> bool {
    refusal.status() == StatusCode::NOT_FOUND
}

/// What a list shows of a job to its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    Whole,
    /// That it exists.
    Outline,
    Nothing,
}

impl Principal {
    /// Where no project and no job is concerned.
    pub fn may(&self, act: Act) -> Result<(), Problem> {
        if act.rule().admits(Standing::of(self.scope())) { Ok(()) } else { Err(self.refused(act)) }
    }

    /// Whether the scope suffices, wherever it is.
    fn has_scope(&self, act: Act) -> Result<(), Problem> {
        if self.scope() >= act.rule().scope { Ok(()) } else { Err(self.refused(act)) }
    }

    pub fn may_in(&self, act: Act, view: &View, project: &str) -> Result<(), Problem> {
        if act.rule().admits(self.standing(view, project, None)) {
            return Ok(());
        }
        Err(self.refused(act).about(&format!("project {project}")))
    }

    /// Who may not even see that a job exists is told that there is none.
    pub fn may_with_job(&self, act: Act, view: &View, job: &Job) -> Result<(), Problem> {
        let who = self.standing(view, &job.spec.project, Some(&job.owner));
        if act.rule().admits(who) {
            return Ok(());
        }
        if !Act::SeeJob.rule().admits(who) {
            return Err(lookup::no_job(job.id));
        }
        Err(self.refused(act).about(&format!("the job belongs to {} in project {}", job.owner, job.spec.project)))
    }

    /// Likewise with an array, which is its owner's as its elements are.
    pub fn may_with_array(&self, act: Act, view: &View, array: &Array) -> Result<(), Problem> {
        let who = self.standing(view, &array.project, Some(&array.owner));
        if act.rule().admits(who) {
            return Ok(());
        }
        if !Act::SeeJob.rule().admits(who) {
            return Err(lookup::no_array(array.id));
        }
        Err(self.refused(act).about(&format!("the array belongs to {} in project {}", array.owner, array.project)))
    }

    pub fn sees(&self, view: &View, project: &str, owner: &str) -> Seen {
        let who = self.standing(view, project, Some(owner));
        match (Act::ReadJob.rule().admits(who), Act::SeeJob.rule().admits(who)) {
            (true, _) => Seen::Whole,
            (false, true) => Seen::Outline,
            (false, false) => Seen::Nothing,
        }
    }

    /// A job as this reader sees it.
    pub fn sight(&self, view: &View, job: v1::Job) -> Option<v1::Job> {
        match self.sees(view, &job.project, &job.owner) {
            Seen::Whole => Some(job),
            Seen::Outline => Some(conversions::outline(job)),
            Seen::Nothing => None,
        }
    }

    /// What this reader may not even know of; `None`: nothing is kept from him, whatever there is.
    pub fn out_of_sight(&self, view: &View) -> Option<OutOfSight> {
        let any_private = || view.projects.values().any(|project| project.access.private);
        if Act::SeeJob.rule().anywhere <= self.scope() || !any_private() {
            return None;
        }
        let hidden = |project: &&String| self.sees(view, project, "") == Seen::Nothing;
        let projects: BTreeSet<String> = view.projects.keys().filter(hidden).cloned().collect();
        (!projects.is_empty()).then(|| OutOfSight { projects, but_of: self.name().to_owned() })
    }

    /// What this reader may not read, known or not; `None`: nothing.
    pub fn out_of_reading(&self, view: &View) -> Option<OutOfSight> {
        let unread = |project: &&String| self.sees(view, project, "") != Seen::Whole;
        let projects: BTreeSet<String> = view.projects.keys().filter(unread).cloned().collect();
        (!projects.is_empty()).then(|| OutOfSight { projects, but_of: self.name().to_owned() })
    }

    /// Whether lists hide nothing from this reader, whatever is in them.
    pub fn sees_all(&self, view: &View) -> bool {
        view.projects.keys().all(|project| self.sees(view, project, "") == Seen::Whole)
    }

    /// Leaves out the events of jobs that are not this reader's to read, and of members whom it may not see.
    pub async fn keep_readable(&self, cluster: &Cluster, events: &mut Vec<EventRecord>) -> Result<(), StoreError> {
        let view = cluster.view();
        events.retain(|event| !event.verb.starts_with(MEMBER_EVENTS) || self.may_see_members_of(&view, event));
        if self.sees_all(&view) {
            return Ok(());
        }
        let whose = lookup::whose(cluster, events.iter().filter_map(|event| event.job)).await?;
        let readable = |job: &JobId| {
            whose.get(job).is_some_and(|(project, owner)| self.sees(&view, project, owner) == Seen::Whole)
        };
        events.retain(|event| event.job.as_ref().is_none_or(readable));
        Ok(())
    }

    /// Whether this reader may know who became or ceased to be a member. Of a project that is gone nobody can tell any
    /// more whether it was private.
    fn may_see_members_of(&self, view: &View, event: &EventRecord) -> bool {
        let project = event.detail.get("project").filter(|project| view.projects.contains_key(*project));
        match project {
            Some(project) => self.may_in(Act::SeeMembers, view, project).is_ok(),
            None => self.scope() >= Act::SeeMembers.rule().anywhere,
        }
    }

    fn standing(&self, view: &View, project: &str, owner: Option<&str>) -> Standing {
        Standing {
            scope: self.scope(),
            owner: owner == Some(self.name()),
            role: view.role_in(project, self.name()),
            openness: view.openness(project),
        }
    }

    fn refused(&self, act: Act) -> Problem {
        let rule = act.rule();
        let problem = if self.scope() < rule.scope {
            Problem::forbidden(format!("this needs a token with the scope {}", rule.scope))
        } else {
            Problem::forbidden(format!("{} may not {}", self.name(), act.in_words()))
        };
        problem.hint(format!(
            "this is for {}; your token \"{}\" of user {} has the scope {}",
            rule.in_words(),
            self.token.name,
            self.name(),
            self.scope()
        ))
    }
}
