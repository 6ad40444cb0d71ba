//! What stands between a socket and whoever serves it: the connection counts, ends when it has to go, and is not waited for longer than
//! this until it speaks.

use std::future::Ready;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Extension;
use axum::middleware::AddExtension;
use axum_server::accept::Accept;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;
use tower::Layer;

use super::connections::{Connections, Visitor};

/// From the opening of a connection to the head of its first request; of an agent's, to a session that is let in.
const SILENCE: Duration = Duration::from_secs(20);

/// A connection's stream.
pub struct Watched {
    stream: TcpStream,
    visitor: Visitor,
    over: Pin<Box<WaitForCancellationFutureOwned>>,
    silence: Pin<Box<Sleep>>,
}

impl Watched {
    pub fn new(stream: TcpStream, connections: &Connections) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let visitor = connections.arrived(stream.peer_addr()?.ip());
        let (over, silence) = (Box::pin(visitor.over().cancelled_owned()), Box::pin(tokio::time::sleep(SILENCE)));
        Ok(Self { stream, visitor, over, silence })
    }

    /// What has come, which stays to be read; waits for something.
    pub async fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.peek(into).await
    }

    /// Cancelled when it has to go.
    pub fn over(&self) -> CancellationToken {
        self.visitor.over()
    }

    pub fn is_of_this_machine(&self) -> bool {
        self.visitor.address().to_canonical().is_loopback()
    }

    /// An error once it has to go.
    fn stand(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.over.as_mut().poll(context).is_ready() {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "others need its place"));
        }
        if !self.visitor.has_spoken() && self.silence.as_mut().poll(context).is_ready() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it says nothing"));
        }
        Ok(())
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.stand(context)?;
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stand(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stand(context)?;
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Agents' requests tell who their visitor is.
impl Connected for Watched {
    type ConnectInfo = Visitor;

    fn connect_info(&self) -> Visitor {
        self.visitor.clone()
    }
}

/// The door for people: each request tells who its visitor is.
#[derive(Clone)]
pub struct Door(pub Connections);

impl<S> Accept<TcpStream, S> for Door {
    type Stream = Watched;
    type Service = AddExtension<S, Visitor>;
    type Future = Ready<io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        std::future::ready(Watched::new(stream, &self.0).map(|stream| {
            let service = Extension(stream.visitor.clone()).layer(service);
            (stream, service)
        }))
    }
}
