//! Replies that are written while they are read (the stream, logs that are followed) end when their reader's token or session does.

use std::time::Duration;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::Response;
use futures::StreamExt;
use headway_types::{JobId, TokenScope};

use super::Act;
use crate::http::auth::{Credential, Principal};
use crate::http::{HttpState, lookup};

/// What ends elsewhere, or by itself, is found out within this long; what ends here, at once.
const LOOK_AGAIN: Duration = Duration::from_secs(15);
/// Who loses a job (by a project that is closed, a membership that is taken) is shut out within this long.
const LOOK_AT_RULES: Duration = Duration::from_secs(1);

/// Who reads a reply, and what it is about.
pub struct Guest {
    pub caller: Principal,
    /// The job that the path names, and what is done with it.
    pub of_job: Option<(Act, JobId)>,
}

/// Marks a reply that is written while it is read, where its media does not tell.
#[derive(Clone, Copy)]
pub struct Live;

/// Any other reply goes out as it is.
pub fn as_long_as(response: Response, state: HttpState, brought: Credential, guest: Guest) -> Response {
    if !is_live(&response) {
        return response;
    }
    response.map(|body| {
        let over = Box::pin(async move {
            tokio::select! {
                () = over(&state, &brought, guest.caller.scope()) => {}
                () = shut_out(&state, &guest) => {}
            }
        });
        Body::from_stream(body.into_data_stream().take_until(over))
    })
}

/// Returns once the caller may not do with the job any longer what was begun.
async fn shut_out(state: &HttpState, guest: &Guest) {
    let Some((act, job)) = guest.of_job else { return std::future::pending().await };
    // What decides it never changes: whose the job is, and of which project.
    let record = loop {
        match lookup::record(&state.cluster, job).await {
            Ok(record) => break record,
            Err(problem) if problem.status() == StatusCode::NOT_FOUND => return,
            Err(_) => tokio::time::sleep(LOOK_AT_RULES).await,
        }
    };
    while guest.caller.may_with_job(act, &state.cluster.view(), &record).is_ok() {
        tokio::time::sleep(LOOK_AT_RULES).await;
    }
}

fn is_live(response: &Response) -> bool {
    let media = response.headers().get(header::CONTENT_TYPE);
    response.extensions().get::<Live>().is_some()
        || media.is_some_and(|media| media.as_bytes().starts_with(b"text/event-stream"))
}

/// Returns once the credential opens nothing, or something else than when the reply began.
async fn over(state: &HttpState, brought: &Credential, scope: TokenScope) {
    let mut cleared = state.tokens.cleared();
    // What ended while the reply was begun is found out at once.
    cleared.mark_changed();
    loop {
        tokio::select! {
            // The sender lives as long as the state.
            _ = cleared.changed() => {}
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
        match state.authenticate(brought, None).await {
            Ok(caller) if caller.scope() != scope => return,
            Err(refused) if refused.problem.status() == StatusCode::UNAUTHORIZED => return,
            // A store that does not answer says nothing about its readers.
            Ok(_) | Err(_) => {}
        }
    }
}
