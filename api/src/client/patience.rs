//! Who is told that it asks too fast waits as it is told, and asks again: nothing was done.

use core::time::Duration;

use reqwest::{Response, header::RETRY_AFTER};
use tokio::time::Instant;

use super::{ClientError, header, problem};

/// For so long altogether a request waits until it may be asked.
const PATIENCE: Duration = Duration::from_secs(30);
/// What is over by itself. Wrong tokens do not become right by waiting.
const PASSING: [&str; 3] = ["too_many_requests", "too_many_bodies", "too_many_questions"];

/// The patience of one request.
pub(super) struct Patience(Instant);

impl Patience {
    pub fn new() -> Self {
        Self(Instant::now() + PATIENCE)
    }

    /// Why the request was refused; returns nothing once it has been waited for as long as was asked, if that is not too long.
    pub async fn refused(&self, response: Response) -> Option<ClientError> {
        let wait = header(response.headers(), RETRY_AFTER.as_str()).and_then(|text| text.parse::<u32>().ok());
        let error = problem(response).await;
        let passes = matches!(&error, ClientError::Problem(told) if PASSING.contains(&told.code.as_str()));
        let until = wait.map(|seconds| Instant::now() + Duration::from_secs(seconds.into()));
        match until.filter(|until| passes && *until <= self.0) {
            None => Some(error),
            Some(until) => {
                tokio::time::sleep_until(until).await;
                None
            }
        }
    }
}
