//! A wire between two processes that can be told at run time to fail. It relays bytes and knows nothing of what they mean.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use crate::{soon, until};

/// No connection to it begins here, so that nothing takes its port while nobody listens.
const HOST: &str = "127.0.0.2";
/// What is read at once.
const CHUNK: usize = 16 * 1_024;
/// Between attempts to listen again, and how often what drips does.
const TICK: Duration = Duration::from_millis(20);

/// After so long the callee gives up a caller who has vanished, as the kernel would with keep-alives, which Postgres asks for and sockets of this
/// machine do not have.
const KEEPALIVE: Duration = Duration::from_secs(11);

/// What a wire does to what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Everything arrives so much later.
    Delay(Duration),
    /// Connections are taken, and nothing passes until it is over.
    Stall,
    /// Only what the caller says passes.
    OnlyThere,
    /// Only what the callee says passes.
    OnlyBack,
    /// All connections end at once, and so do new ones.
    Reset,
    /// The far end has vanished without a word from all connections that there are: they carry nothing again, ever. New ones are whole.
    HalfOpen,
    /// So many bytes a second each way.
    Drip(u32),
    /// Nobody listens.
    Refuse,
}

/// One of each kind, for drawing from.
pub const FAULTS: [Fault; 8] = [
    Fault::Delay(Duration::from_millis(300)),
    Fault::Stall,
    Fault::OnlyThere,
    Fault::OnlyBack,
    Fault::Reset,
    Fault::HalfOpen,
    Fault::Drip(2_000),
    Fault::Refuse,
];

/// Where a wire leads.
#[derive(Clone, Debug)]
pub enum End {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// Whole until told otherwise; dropped, it is cut.
pub struct Link {
    address: SocketAddr,
    state: watch::Sender<State>,
    /// Without end while it is dropped.
    _relay: Mutex<AbortOnDropHandle<()>>,
}

#[derive(Clone, Debug)]
struct State {
    to: End,
    fault: Option<Fault>,
    /// How often connections were forgotten or ended so far: those that began before carry nothing.
    forgotten: u64,
    reset: u64,
}

impl Link {
    pub async fn to(end: End) -> Self {
        let listener = TcpListener::bind((HOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (state, states) = watch::channel(State { to: end, fault: None, forgotten: 0, reset: 0 });
        let relay = AbortOnDropHandle::new(tokio::spawn(relay(listener, address, states)));
        Self { address, state, _relay: Mutex::new(relay) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Breaks it so, until it is mended.
    pub fn fail(&self, fault: Fault) {
        self.state.send_modify(|state| {
            state.forgotten += u64::from(fault == Fault::HalfOpen);
            state.reset += u64::from(matches!(fault, Fault::Reset | Fault::Refuse));
            state.fault = Some(fault);
        });
    }

    pub fn mend(&self) {
        self.state.send_modify(|state| state.fault = None);
    }

    /// Where new connections lead from now on.
    pub fn lead_to(&self, end: End) {
        self.state.send_modify(|state| state.to = end);
    }
}

async fn relay(listener: TcpListener, address: SocketAddr, mut states: watch::Receiver<State>) {
    let (mut listener, mut connections) = (Some(listener), JoinSet::new());
    loop {
        let refuses = states.borrow_and_update().fault == Some(Fault::Refuse);
        if refuses {
            listener = None;
            if states.changed().await.is_err() {
                return;
            }
            continue;
        }
        let Some(open) = &listener else {
            let bound = until("the wire's own port", soon(), || async { TcpListener::bind(address).await.ok() });
            listener = Some(bound.await);
            continue;
        };
        tokio::select! {
            changed = states.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            accepted = open.accept() => {
                let Ok((caller, _)) = accepted else { continue };
                connections.spawn(connection(caller, states.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(mut caller: TcpStream, states: watch::Receiver<State>) {
    caller.set_nodelay(true).ok();
    let born = states.borrow().clone();
    // Closed so, it ends with a reset.
    if !matches!(born.fault, Some(Fault::Reset | Fault::Refuse)) {
        let (mut reset, mut forgotten) = (states.clone(), states.clone());
        let vanished = async {
            if forgotten.wait_for(|state| state.forgotten != born.forgotten).await.is_ok() {
                tokio::time::sleep(KEEPALIVE).await;
            }
        };
        let ended = async {
            let _reset = reset.wait_for(|state| state.reset != born.reset).await.is_ok();
        };
        let whole = tokio::select! {
            whole = carry(&mut caller, &born, states) => Some(whole.is_ok()),
            () = ended => Some(false),
            () = vanished => None,
        };
        match whole {
            Some(true) => return,
            Some(false) => {}
            // The caller hears nothing of that.
            None => std::future::pending().await,
        }
    }
    caller.set_zero_linger().ok();
}

/// Until both sides have said all they had to say; one that breaks takes the other with it.
async fn carry(caller: &mut TcpStream, born: &State, states: watch::Receiver<State>) -> io::Result<()> {
    match &born.to {
        End::Tcp(address) => {
            let mut callee = TcpStream::connect(address).await?;
            callee.set_nodelay(true)?;
            both(caller.split(), callee.split(), born.forgotten, states).await
        }
        End::Unix(path) => {
            let mut callee = UnixStream::connect(path).await?;
            both(caller.split(), callee.split(), born.forgotten, states).await
        }
    }
}

async fn both(
    (caller_says, caller_hears): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
    (callee_says, callee_hears): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
    born: u64,
    states: watch::Receiver<State>,
) -> io::Result<()> {
    let there = pump(caller_says, callee_hears, Way::There, born, states.clone());
    let back = pump(callee_says, caller_hears, Way::Back, born, states);
    tokio::try_join!(there, back).map(|_| ())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    There,
    Back,
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    way: Way,
    born: u64,
    mut states: watch::Receiver<State>,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        passes(&mut states, way, born).await;
        let read = from.read(&mut chunk).await?;
        let came = Instant::now();
        let mut rest = &chunk[..read];
        loop {
            // It may have broken since.
            passes(&mut states, way, born).await;
            let fault = states.borrow_and_update().fault;
            let piece = match fault {
                Some(Fault::Delay(time)) => {
                    tokio::time::sleep_until((came + time).into()).await;
                    rest.len()
                }
                Some(Fault::Drip(a_second)) => {
                    tokio::time::sleep(TICK).await;
                    rest.len().min((a_second as f64 * TICK.as_secs_f64()).ceil() as usize)
                }
                _ => rest.len(),
            };
            to.write_all(&rest[..piece]).await?;
            rest = &rest[piece..];
            if rest.is_empty() {
                break;
            }
        }
        if read == 0 {
            return to.shutdown().await;
        }
    }
}

/// Waits until the wire carries something this way.
async fn passes(states: &mut watch::Receiver<State>, way: Way, born: u64) {
    let carries = |state: &State| {
        state.forgotten == born
            && match state.fault {
                Some(Fault::Stall) => false,
                Some(Fault::OnlyThere) => way == Way::There,
                Some(Fault::OnlyBack) => way == Way::Back,
                _ => true,
            }
    };
    if states.wait_for(carries).await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const SOON: Duration = Duration::from_secs(5);
    /// Long enough for a byte to pass that should not.
    const WHILE: Duration = Duration::from_millis(200);

    /// A wire to somebody who says everything back.
    async fn to_an_echo() -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut says, mut hears) = stream.split();
                    tokio::io::copy(&mut says, &mut hears).await
                });
            }
        });
        Link::to(End::Tcp(address)).await
    }

    /// What comes back of a word, unless nothing does.
    async fn echo(stream: &mut TcpStream, within: Duration) -> Option<io::Result<[u8; 4]>> {
        let mut heard = [0; 4];
        let said = async {
            stream.write_all(b"word").await?;
            stream.read_exact(&mut heard).await
        };
        let said = tokio::time::timeout(within, said).await.ok()?;
        Some(said.map(|_| heard))
    }

    async fn is_whole(stream: &mut TcpStream) -> bool {
        matches!(echo(stream, SOON).await, Some(Ok(heard)) if &heard == b"word")
    }

    #[tokio::test]
    async fn a_wire_fails_as_it_is_told_and_is_whole_again_when_mended() {
        let link = to_an_echo().await;
        let mut old = TcpStream::connect(link.address()).await.unwrap();
        assert!(is_whole(&mut old).await);
        for fault in [Fault::Stall, Fault::OnlyThere, Fault::OnlyBack] {
            link.fail(fault);
            assert!(echo(&mut old, WHILE).await.is_none(), "{fault:?}");
            let mut new = TcpStream::connect(link.address()).await.unwrap();
            assert!(echo(&mut new, WHILE).await.is_none(), "{fault:?}");
            link.mend();
            let mut late = [0; 4];
            tokio::time::timeout(SOON, old.read_exact(&mut late)).await.unwrap().unwrap();
            assert!(is_whole(&mut old).await, "what was kept back comes when it is over: {fault:?}");
        }
        for (fault, bounds) in [(Fault::Delay(WHILE), 2 * WHILE..SOON), (Fault::Drip(50), 2 * TICK..SOON)] {
            link.fail(fault);
            let began = Instant::now();
            assert!(is_whole(&mut old).await);
            assert!(bounds.contains(&began.elapsed()), "{fault:?}: {:?}", began.elapsed());
            link.mend();
        }
    }

    #[tokio::test]
    async fn a_reset_ends_what_there_is_and_half_open_connections_never_end() {
        let link = to_an_echo().await;
        let mut old = TcpStream::connect(link.address()).await.unwrap();
        assert!(is_whole(&mut old).await);
        link.fail(Fault::HalfOpen);
        assert!(echo(&mut old, WHILE).await.is_none());
        let mut new = TcpStream::connect(link.address()).await.unwrap();
        assert!(is_whole(&mut new).await, "new connections are whole");
        link.mend();
        assert!(echo(&mut old, WHILE).await.is_none(), "what is forgotten stays so");

        link.fail(Fault::Reset);
        let ended = tokio::time::timeout(SOON, new.read(&mut [0; 4])).await.unwrap();
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        link.fail(Fault::Refuse);
        let refused = async {
            while TcpStream::connect(link.address()).await.is_ok() {
                tokio::time::sleep(TICK).await;
            }
        };
        tokio::time::timeout(SOON, refused).await.unwrap();
        link.mend();
        let whole = async {
            loop {
                if let Ok(mut stream) = TcpStream::connect(link.address()).await
                    && is_whole(&mut stream).await
                {
                    return;
                }
            }
        };
        tokio::time::timeout(SOON, whole).await.unwrap();
    }
}
