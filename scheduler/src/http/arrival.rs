//! Bodies, which are read once their sender is known and let in, and not before: whole, in so much time, and so many at once of one
//! user. Nobody else's request waits for one that does not come.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;

use super::extract::too_large;
use super::limits::BODY_BYTES;
use super::problem::Problem;
use crate::metrics;

/// Two mebibytes at 2 Mbit/s; over HTTP/2 a round trip must be below 150 ms for as much.
const BODY_TIME: Duration = Duration::from_secs(10);
const STRANGERS_BODY_BYTES: usize = 16 * 1024;
const AT_ONCE: usize = 128;
const OF_ONE_USER: usize = 16;

/// Bodies under way, by user.
#[derive(Clone, Default)]
pub struct Arrivals(Arc<Mutex<BTreeMap<String, usize>>>);

/// One body under way; its place is free once this is dropped.
struct Place<'a> {
    of: &'a Arrivals,
    user: &'a str,
}

impl Arrivals {
    /// The request with all of its body.
    pub async fn whole(&self, request: Request, user: &str) -> Result<Request, Problem> {
        self.whole_within(request, user, BODY_TIME, BODY_BYTES).await
    }

    /// Likewise of somebody without a token, who sends little.
    pub async fn whole_of_stranger(&self, request: Request, address: &str) -> Result<Request, Problem> {
        self.whole_within(request, address, BODY_TIME, STRANGERS_BODY_BYTES).await
    }

    async fn whole_within(
        &self,
        request: Request,
        user: &str,
        time: Duration,
        at_most: usize,
    ) -> Result<Request, Problem> {
        if request.body().is_end_stream() {
            return Ok(request);
        }
        if request.body().size_hint().lower() > at_most as u64 {
            return Err(too_large());
        }
        let _place = self.enter(user)?;
        let (head, body) = request.into_parts();
        match tokio::time::timeout(time, to_bytes(body, at_most)).await {
            Ok(Ok(body)) => Ok(Request::from_parts(head, Body::from(body))),
            Ok(Err(error)) if is_too_long(&error) => Err(too_large()),
            Ok(Err(_)) => {
                metrics::body_refused("broken_off");
                Err(Problem::bad_request("the body broke off"))
            }
            Err(_) => {
                metrics::body_refused("late");
                let detail = format!("the body did not come within {} s", time.as_secs());
                Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "body_late", detail)
                    .hint("send it again, faster or smaller"))
            }
        }
    }

    fn enter<'a>(&'a self, user: &'a str) -> Result<Place<'a>, Problem> {
        let mut under_way = self.under_way();
        let own = under_way.get(user).copied().unwrap_or(0);
        let refused = if own >= OF_ONE_USER {
            Some(format!("{OF_ONE_USER} bodies of yours are under way already"))
        } else {
            (under_way.values().sum::<usize>() >= AT_ONCE).then(|| format!("{AT_ONCE} bodies are under way already"))
        };
        if let Some(detail) = refused {
            metrics::body_refused("too_many");
            return Err(
                Problem::too_many("too_many_bodies", detail, Duration::from_secs(1)).hint("wait until some have come")
            );
        }
        *under_way.entry(user.to_owned()).or_default() += 1;
        Ok(Place { of: self, user })
    }

    fn under_way(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        // The map is valid between any two of its operations, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut under_way = self.of.under_way();
        if let Some(count) = under_way.get_mut(self.user) {
            *count -= 1;
            if *count == 0 {
                under_way.remove(self.user);
            }
        }
    }
}

fn is_too_long(error: &axum::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use axum::response::IntoResponse as _;
    use bytes::Bytes;

    use super::*;

    fn never() -> Request {
        let first = futures::stream::once(async { Ok::<_, std::io::Error>(Bytes::from_static(b"{")) });
        let body = Body::from_stream(futures::StreamExt::chain(first, futures::stream::pending()));
        Request::post("/jobs").body(body).unwrap()
    }

    async fn refusal(arrivals: &Arrivals, request: Request, time: Duration) -> StatusCode {
        arrivals.whole_within(request, "ada", time, BODY_BYTES).await.unwrap_err().into_response().status()
    }

    #[tokio::test]
    async fn a_body_that_does_not_come_is_waited_for_so_long_and_no_longer() {
        let arrivals = Arrivals::default();
        assert_eq!(refusal(&arrivals, never(), Duration::from_millis(20)).await, StatusCode::REQUEST_TIMEOUT);
        assert!(arrivals.under_way().is_empty());
    }

    #[tokio::test]
    async fn a_body_that_is_too_long_is_refused_whether_it_says_so_or_not() {
        let arrivals = Arrivals::default();
        let long = Request::post("/jobs").body(Body::from(vec![0; BODY_BYTES + 1])).unwrap();
        assert_eq!(refusal(&arrivals, long, BODY_TIME).await, StatusCode::PAYLOAD_TOO_LARGE);
        let piece = Ok::<_, std::io::Error>(Bytes::from(vec![0; 1 << 20]));
        let stream =
            futures::stream::iter([0, 1, 2]).map(move |_| Ok::<_, std::io::Error>(piece.as_ref().unwrap().clone()));
        let long = Request::post("/jobs").body(Body::from_stream(stream)).unwrap();
        assert_eq!(refusal(&arrivals, long, BODY_TIME).await, StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[tokio::test]
    async fn one_user_holds_up_no_other() {
        let arrivals = Arrivals::default();
        let mine: Vec<_> = (0..OF_ONE_USER).map(|_| arrivals.enter("ada").unwrap()).collect();
        assert_eq!(refusal(&arrivals, never(), BODY_TIME).await, StatusCode::TOO_MANY_REQUESTS);
        assert!(arrivals.enter("bob").is_ok());
        drop(mine);
        assert!(arrivals.enter("ada").is_ok());
    }

    use futures::StreamExt as _;
}
