//! What a request waits for before it is sent again: a pace that it was told to keep, and a scheduler whose store is away for a moment.

use core::time::Duration;

use reqwest::{Response, header::RETRY_AFTER};
use tokio::time::Instant;

use super::servers::{PAUSE, Servers, TAKEOVER};
use super::{ClientError, header, problem};

/// For so long altogether a request waits until it may be asked.
const PATIENCE: Duration = Duration::from_secs(30);
/// What is over by itself. Wrong tokens do not become right by waiting.
const PASSING: [&str; 3] = ["too_many_requests", "too_many_bodies", "too_many_questions"];

/// The scheduler cannot do it at the moment, as while its database restarts.
const AWAY: &str = "unavailable";

/// The patience of one request.
pub(super) struct Patience {
    /// Until then it keeps to a pace.
    pace: Instant,
    /// Until then it waits for a scheduler that is away; `None`: it is not sent again.
    outage: Option<Instant>,
}

/// Whether a server could not do anything at the moment.
pub(super) fn is_away(error: &ClientError) -> bool {
    matches!(error, ClientError::Problem(told) if told.code == AWAY)
}

impl Patience {
    pub fn new(may_wait: bool) -> Self {
        let now = Instant::now();
        Self { pace: now + PATIENCE, outage: may_wait.then(|| now + TAKEOVER) }
    }

    /// Why the request was refused; returns nothing once it has been waited for as long as was asked, if that is not too long.
    pub async fn refused(&self, response: Response, servers: &Servers) -> Option<ClientError> {
        let wait = header(response.headers(), RETRY_AFTER.as_str()).and_then(|text| text.parse::<u32>().ok());
        let error = problem(response).await;
        let asked = wait.map(|seconds| Duration::from_secs(seconds.into()));
        if let Some(until) = self.outage.filter(|_| is_away(&error) && servers.is_waited_for()) {
            let again = Instant::now() + asked.unwrap_or(PAUSE);
            if again > until {
                servers.set_given_up(true);
                return Some(error);
            }
            tokio::time::sleep_until(again).await;
            return None;
        }
        let passes = matches!(&error, ClientError::Problem(told) if PASSING.contains(&told.code.as_str()));
        let until = asked.map(|wait| Instant::now() + wait);
        match until.filter(|until| passes && *until <= self.pace) {
            None => Some(error),
            Some(until) => {
                tokio::time::sleep_until(until).await;
                None
            }
        }
    }
}
