//! What is open to everybody without a token: the page's files, the reference, licences, metrics, whether the server is well, and that
//! there is nothing else. Addresses are paced, and who does not read what he asked for is not kept.

use std::net::SocketAddr;
use std::time::Instant;

use axum::body::{Body, HttpBody as _};
use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use tokio_util::task::AbortOnDropHandle;

use super::HttpState;
use super::pace::PAGES;
use crate::server::Visitor;

/// Whoever spreads the load asks these of all servers, for all behind him.
const UNPACED: [&str; 2] = ["/healthz", "/readyz"];
/// What is written of a reply at once.
const PIECE: usize = 16 * 1024;

pub async fn answer(state: &HttpState, request: Request, next: Next) -> Response {
    let address = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip());
    if !UNPACED.contains(&request.uri().path())
        && let Err(problem) = state.pages.admit_address(address, PAGES, Instant::now())
    {
        return problem.into_response();
    }
    let visitor = request.extensions().get::<Visitor>().cloned();
    in_pieces(next.run(request).await, visitor)
}

/// The reply, of which no piece is made before the one before was taken. A stranger who takes none for too long has to go: a connection
/// that is written to without being read fills memory for as long as it likes.
fn in_pieces(response: Response, visitor: Option<Visitor>) -> Response {
    let bytes = response.body().size_hint().exact();
    if bytes.is_some_and(|bytes| bytes <= PIECE as u64) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    head.headers.extend(bytes.map(|bytes| (header::CONTENT_LENGTH, HeaderValue::from(bytes))));
    let pieces = async_stream::stream! {
        let mut body = body.into_data_stream();
        let mut _patience = visitor.as_ref().map(patience);
        while let Some(more) = body.next().await {
            let mut more = match more {
                Ok(more) => more,
                Err(error) => {
                    yield Err(error);
                    break;
                }
            };
            while !more.is_empty() {
                let piece = more.split_to(PIECE.min(more.len()));
                _patience = visitor.as_ref().map(patience);
                yield Ok(piece);
            }
        }
    };
    Response::from_parts(head, Body::from_stream(pieces))
}

/// Ends a stranger's connection, unless it is dropped before.
fn patience(with: &Visitor) -> AbortOnDropHandle<()> {
    let with = with.clone();
    AbortOnDropHandle::new(tokio::spawn(async move {
        tokio::time::sleep(with.patience().unread).await;
        if with.is_stranger() {
            with.over().cancel();
        }
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use axum::body::to_bytes;

    use super::*;
    use crate::server::{Connections, Limits, Patience};

    fn visitor(unread: Duration) -> Visitor {
        let limits = Limits::of_people(1_000);
        let limits = Limits { patience: Patience { unread, ..limits.patience }, ..limits };
        Connections::new("test", limits).arrived([10, 0, 0, 1].into())
    }

    #[tokio::test]
    async fn a_reply_in_pieces_is_the_reply() {
        let text: Vec<u8> = (0..100_000_u32).map(|byte| byte as u8).collect();
        let reply = in_pieces(text.clone().into_response(), Some(visitor(Duration::from_secs(60))));
        assert_eq!(reply.headers()["content-length"], "100000");
        let (mut told, mut pieces) = (Vec::new(), reply.into_body().into_data_stream());
        while let Some(piece) = pieces.next().await {
            let piece = piece.unwrap();
            assert!(piece.len() <= PIECE);
            told.extend(piece);
        }
        assert!(told == text);
    }

    #[tokio::test]
    async fn a_stranger_who_does_not_read_has_to_go_and_who_reads_or_is_known_stays() {
        let unread = Duration::from_millis(20);
        let [stranger, reader, known] = std::array::from_fn(|_| visitor(unread));
        known.is_known();
        let reply = |to: &Visitor| in_pieces(vec![0_u8; 100_000].into_response(), Some(to.clone())).into_body();
        let (mut half, whole, mut kept) =
            (reply(&stranger).into_data_stream(), reply(&reader), reply(&known).into_data_stream());
        to_bytes(whole, 1 << 20).await.unwrap();
        half.next().await.unwrap().unwrap();
        kept.next().await.unwrap().unwrap();
        tokio::time::timeout(Duration::from_secs(20), stranger.over().cancelled()).await.unwrap();
        assert!(tokio::time::timeout(unread * 3, known.over().cancelled()).await.is_err());
        assert!(!reader.over().is_cancelled());
    }
}
