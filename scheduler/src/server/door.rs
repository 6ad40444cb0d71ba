//! What stands between a socket and whoever serves it: the connection counts, ends when it has to go, and is waited for so long until it
//! speaks, and so long until it takes what is written, and no longer.

use std::future::Ready;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

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

/// A connection's stream.
pub struct Watched {
    stream: TcpStream,
    visitor: Visitor,
    over: Pin<Box<WaitForCancellationFutureOwned>>,
    silence: Pin<Box<Sleep>>,
    /// While its other end takes nothing.
    unread: Option<Pin<Box<Sleep>>>,
}

impl Watched {
    pub fn new(stream: TcpStream, connections: &Connections) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let visitor = connections.arrived(stream.peer_addr()?.ip());
        let over = Box::pin(visitor.over().cancelled_owned());
        let silence = Box::pin(tokio::time::sleep(visitor.patience().silence));
        Ok(Self { stream, visitor, over, silence, unread: None })
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

    /// What came of writing; an error where nothing has been taken for too long.
    fn taken<T>(&mut self, context: &mut Context<'_>, wrote: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.unread = None;
            return wrote;
        }
        let patience = self.visitor.patience().unread;
        let unread = self.unread.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        unread.as_mut().poll(context).map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "it reads nothing")))
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
        let wrote = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.taken(context, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stand(context)?;
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.taken(context, wrote)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::super::connections::{Limits, Patience};
    use super::*;

    const LONG: Duration = Duration::from_secs(3_600);

    /// Both ends of a connection.
    async fn connected(patience: Patience) -> (TcpStream, Watched) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (other, accepted) =
            tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), async { listener.accept().await });
        let connections = Connections::new("test", Limits { patience, ..Limits::of_people(1_000) });
        (other.unwrap(), Watched::new(accepted.unwrap().0, &connections).unwrap())
    }

    #[tokio::test]
    async fn a_connection_that_says_nothing_is_cut_after_its_time() {
        let patience = Patience { silence: Duration::from_millis(20), unread: LONG };
        let (mut other, mut watched) = connected(patience).await;
        let cut = watched.read_u8().await.unwrap_err();
        assert_eq!((cut.kind(), cut.to_string().as_str()), (io::ErrorKind::TimedOut, "it says nothing"));
        drop(watched);
        assert_eq!(other.read(&mut [0]).await.unwrap(), 0);
        // Once it has said something it may be silent.
        let (mut other, mut watched) = connected(patience).await;
        watched.visitor.speaks();
        assert!(tokio::time::timeout(patience.silence * 3, watched.read_u8()).await.is_err());
        other.write_u8(7).await.unwrap();
        assert_eq!(watched.read_u8().await.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_connection_that_reads_nothing_is_cut_after_its_time() {
        let patience = Patience { silence: LONG, unread: Duration::from_millis(20) };
        let (mut other, mut watched) = connected(patience).await;
        let endless = async {
            loop {
                if let Err(cut) = watched.write_all(&[0; 64 * 1024]).await {
                    return cut;
                }
            }
        };
        let cut = endless.await;
        assert_eq!((cut.kind(), cut.to_string().as_str()), (io::ErrorKind::TimedOut, "it reads nothing"));
        // What was written before is there to be read, and whoever reads is written to.
        other.read_exact(&mut vec![0; 64 * 1024]).await.unwrap();
    }
}
