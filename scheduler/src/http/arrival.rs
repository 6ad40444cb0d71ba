//! Bodies, which are read once their sender is known and let in, and not before: whole, in so much time, and so many at once of one
//! user. Nobody else's request waits for one that does not come, and those who have no token yet have places of their own.

use std::time::Duration;

use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;

use super::extract::too_large;
use super::limits::BODY_BYTES;
use super::problem::Problem;
use crate::metrics;
use crate::shares::{Full, Place, Shares};

/// Two mebibytes at 2 Mbit/s; over HTTP/2 a round trip must be below 150 ms for as much.
const BODY_TIME: Duration = Duration::from_secs(10);
const AT_ONCE: usize = 128;
const OF_ONE_USER: usize = 16;
/// What logs in comes with its head.
const STRANGERS_BODY_TIME: Duration = Duration::from_secs(3);
const STRANGERS_BODY_BYTES: usize = 16 * 1024;
const STRANGERS_AT_ONCE: usize = 64;
const OF_ONE_NETWORK: usize = 8;

/// Bodies under way of those who have a token, by user, or of those who have none, by network: neither takes the others' places.
#[derive(Clone)]
pub struct Arrivals {
    places: Shares,
    time: Duration,
    at_most: usize,
}

impl Arrivals {
    pub fn of_users() -> Self {
        Self { places: Shares::new(AT_ONCE, OF_ONE_USER), time: BODY_TIME, at_most: BODY_BYTES }
    }

    /// Of those who log in, and send little.
    pub fn of_strangers() -> Self {
        let places = Shares::new(STRANGERS_AT_ONCE, OF_ONE_NETWORK);
        Self { places, time: STRANGERS_BODY_TIME, at_most: STRANGERS_BODY_BYTES }
    }

    /// The request with all of its body.
    pub async fn whole(&self, request: Request, whose: &str) -> Result<Request, Problem> {
        let Self { time, at_most, .. } = *self;
        if request.body().is_end_stream() {
            return Ok(request);
        }
        if request.body().size_hint().lower() > at_most as u64 {
            return Err(too_large());
        }
        let _place = self.enter(whose)?;
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

    fn enter(&self, whose: &str) -> Result<Place, Problem> {
        self.places.enter(whose).map_err(|full| {
            let detail = match full {
                Full::OfOne(most) => format!("{most} bodies of yours are under way already"),
                Full::InAll(most) => format!("{most} bodies are under way already"),
            };
            metrics::body_refused("too_many");
            Problem::too_many("too_many_bodies", detail, Duration::from_secs(1)).hint("wait until some have come")
        })
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

    async fn refusal(arrivals: &Arrivals, request: Request) -> StatusCode {
        arrivals.whole(request, "ada").await.unwrap_err().into_response().status()
    }

    #[tokio::test]
    async fn a_body_that_does_not_come_is_waited_for_so_long_and_no_longer() {
        let arrivals = Arrivals { time: Duration::from_millis(20), ..Arrivals::of_users() };
        assert_eq!(refusal(&arrivals, never()).await, StatusCode::REQUEST_TIMEOUT);
        assert!(arrivals.places.are_free());
    }

    #[tokio::test]
    async fn a_body_that_is_too_long_is_refused_whether_it_says_so_or_not() {
        for (arrivals, most) in [(Arrivals::of_users(), BODY_BYTES), (Arrivals::of_strangers(), STRANGERS_BODY_BYTES)] {
            let long = Request::post("/jobs").body(Body::from(vec![0; most + 1])).unwrap();
            assert_eq!(refusal(&arrivals, long).await, StatusCode::PAYLOAD_TOO_LARGE);
            let piece = Bytes::from(vec![0; most / 2]);
            let stream = futures::stream::iter([0, 1, 2]).map(move |_| Ok::<_, std::io::Error>(piece.clone()));
            let long = Request::post("/jobs").body(Body::from_stream(stream)).unwrap();
            assert_eq!(refusal(&arrivals, long).await, StatusCode::PAYLOAD_TOO_LARGE);
        }
    }

    #[tokio::test]
    async fn one_user_holds_up_no_other() {
        let arrivals = Arrivals::of_users();
        let mine: Vec<_> = (0..OF_ONE_USER).map(|_| arrivals.enter("ada").unwrap()).collect();
        assert_eq!(refusal(&arrivals, never()).await, StatusCode::TOO_MANY_REQUESTS);
        assert!(arrivals.enter("bob").is_ok());
        drop(mine);
        assert!(arrivals.enter("ada").is_ok());
    }

    use futures::StreamExt as _;
}
