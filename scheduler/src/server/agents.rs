//! The port for agents: connections are encrypted, and carry whom their certificate names. Who speaks in the clear is heard where tokens are
//! taken, from this machine alone.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use headway_api::agent::{REQUESTS_OF_NODES, REQUESTS_OF_STRANGERS};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::transport::server::Connected;

use super::connections::Connections;
use super::door::Watched;
use super::{ACCEPT_PAUSE, HANDSHAKE, KEEPALIVE, ServerError, UNREAD_BYTES, within_drain};
use crate::authority::{Authorities, Shown};
use crate::grpc::{Gateway, Peer};
use crate::metrics;

/// Connections that are through their handshake and wait to be served.
const ACCEPTED: usize = 64;
/// The first byte of TLS: a handshake.
const TLS_BEGINS: u8 = 22;

/// How connections are taken in.
#[derive(Clone)]
pub(super) struct Entrance {
    pub authorities: Authorities,
    /// Whether an agent of this machine may speak in the clear.
    pub plain: bool,
}

/// A connection, as requests are read from it.
enum Line {
    Plain(Watched),
    Tls { stream: Box<TlsStream<Watched>>, shown: Option<Arc<Shown>> },
}

impl Line {
    /// Whoever is on this machine is none.
    fn is_a_strangers(&self) -> bool {
        matches!(self, Self::Tls { shown: None, .. })
    }
}

pub(super) async fn serve(
    gateway: Gateway,
    listener: TcpListener,
    visitors: Connections,
    entrance: Entrance,
    stop: CancellationToken,
) -> Result<(), ServerError> {
    let registrar = gateway.registrar(entrance.authorities.clone());
    let answer = |mut server: Server, lines| {
        let server = server.add_service(gateway.clone().into_service()).add_service(registrar.clone().into_service());
        let serving = server.serve_with_incoming_shutdown(ReceiverStream::new(lines), stop.clone().cancelled_owned());
        within_drain(serving, &stop, ServerError::Agents)
    };
    let ((of_nodes, nodes), (of_strangers, strangers)) = (mpsc::channel(ACCEPTED), mpsc::channel(ACCEPTED));
    let serving =
        async { tokio::try_join!(answer(for_nodes(), nodes), answer(for_strangers(), strangers)).map(|((), ())| ()) };
    tokio::select! {
        served = serving => served,
        never = accept(listener, visitors, entrance, Halls { of_nodes, of_strangers }) => match never {},
    }
}

fn for_nodes() -> Server {
    Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .max_concurrent_streams(REQUESTS_OF_NODES)
}

/// For who has shown no certificate, and has one thing to ask: to join, or a session by a token.
fn for_strangers() -> Server {
    for_nodes()
        .max_concurrent_streams(REQUESTS_OF_STRANGERS)
        .http2_max_header_list_size(UNREAD_BYTES / 4)
        .initial_stream_window_size(UNREAD_BYTES / 2)
        .initial_connection_window_size(UNREAD_BYTES)
}

/// Where connections are served once they are through their handshake.
#[derive(Clone)]
struct Halls {
    of_nodes: mpsc::Sender<io::Result<Line>>,
    of_strangers: mpsc::Sender<io::Result<Line>>,
}

impl Halls {
    async fn take(&self, line: Line) {
        let hall = if line.is_a_strangers() { &self.of_strangers } else { &self.of_nodes };
        // The port is closed if it fails.
        drop(hall.send(Ok(line)).await);
    }
}

/// Nothing that goes wrong with one connection is an end of the port, and none waits for the handshake of another.
async fn accept(
    listener: TcpListener,
    visitors: Connections,
    entrance: Entrance,
    halls: Halls,
) -> std::convert::Infallible {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Ok(watched) = Watched::new(stream, &visitors) else { continue };
                let (entrance, halls, over) = (entrance.clone(), halls.clone(), watched.over());
                tokio::spawn(async move {
                    let entered = tokio::select! {
                        () = over.cancelled() => return,
                        entered = tokio::time::timeout(HANDSHAKE, entrance.enter(watched)) => entered,
                    };
                    match entered {
                        Ok(Ok(line)) => halls.take(line).await,
                        Ok(Err(error)) => not_taken_in(&error),
                        Err(_) => tracing::debug!("a connection of an agent did not shake hands in time"),
                    }
                });
            }
            Err(error) => {
                // Out of open files, most likely: soon some are closed.
                tracing::debug!(%error, "no connection was taken in");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Strangers are no news; a certificate that is not believed may be a node's whose authority was retired while it was away.
fn not_taken_in(error: &io::Error) {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    if let Some(rustls::Error::InvalidCertificate(_)) = inner {
        metrics::agent_refused();
        tracing::info!(%error, "a connection of an agent was not taken in: its certificate is not believed");
    } else {
        tracing::debug!(%error, "a connection of an agent was not taken in");
    }
}

impl Entrance {
    async fn enter(&self, stream: Watched) -> io::Result<Line> {
        let is_tls = begins_with_tls(&stream).await?;
        match self.authorities.tls() {
            Some(config) if is_tls => {
                let stream = TlsAcceptor::from(config).accept(stream).await?;
                let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
                let shown = match chain.first() {
                    None => None,
                    Some(certificate) => Some(Arc::new(Shown::of(certificate).ok_or_else(|| {
                        io::Error::new(io::ErrorKind::PermissionDenied, "its certificate names no node")
                    })?)),
                };
                Ok(Line::Tls { stream: Box::new(stream), shown })
            }
            _ if !is_tls && self.plain && stream.is_of_this_machine() => Ok(Line::Plain(stream)),
            _ => Err(io::Error::new(io::ErrorKind::PermissionDenied, "it speaks in the clear")),
        }
    }
}

/// Without taking anything away from whoever reads it.
async fn begins_with_tls(stream: &Watched) -> io::Result<bool> {
    let mut first = [0];
    let read = stream.peek(&mut first).await?;
    Ok(read == 1 && first[0] == TLS_BEGINS)
}

impl Connected for Line {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        match self {
            Self::Plain(stream) => Peer { visitor: stream.connect_info(), shown: None },
            Self::Tls { stream, shown } => Peer { visitor: stream.get_ref().0.connect_info(), shown: shown.clone() },
        }
    }
}

impl AsyncRead for Line {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, into),
            Self::Tls { stream, .. } => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls { stream, .. } => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls { stream, .. } => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls { stream, .. } => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests;
