//! A wire between a store and Postgres that counts answers and can be slow.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Lasts as long as the test's runtime.
pub struct Wire {
    /// How a store connects through it.
    pub options: PgConnectOptions,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Times that Postgres said that it is ready for the next question.
    answers: AtomicU64,
    /// Of each direction, in microseconds.
    delay: AtomicU64,
}

impl Wire {
    pub async fn to(postgres: &PgConnectOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = PgConnectOptions::new_without_pgpass()
            .host("127.0.0.1")
            .port(listener.local_addr().unwrap().port())
            .ssl_mode(PgSslMode::Disable)
            .username(postgres.get_username())
            .database(postgres.get_database().unwrap());
        let state = Arc::<State>::default();
        let (accepting, postgres) = (Arc::clone(&state), postgres.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                client.set_nodelay(true).unwrap();
                tokio::spawn(carry(client, postgres.clone(), Arc::clone(&accepting)));
            }
        });
        Self { options, state }
    }

    pub fn answers(&self) -> u64 {
        self.state.answers.load(Ordering::Relaxed)
    }

    /// From now on each question and its answer take so long together.
    pub fn slow_down(&self, round_trip: Duration) {
        self.state.delay.store(u64::try_from(round_trip.as_micros()).unwrap() / 2, Ordering::Relaxed);
    }
}

async fn carry(client: TcpStream, postgres: PgConnectOptions, state: Arc<State>) {
    let (from_client, to_client) = client.into_split();
    match postgres.get_socket() {
        Some(directory) => {
            let socket: PathBuf = directory.join(format!(".s.PGSQL.{}", postgres.get_port()));
            let (from, to) = UnixStream::connect(socket).await.unwrap().into_split();
            tokio::join!(pass(from_client, to, &state, false), pass(from, to_client, &state, true));
        }
        None => {
            let server = TcpStream::connect((postgres.get_host(), postgres.get_port())).await.unwrap();
            let (from, to) = server.into_split();
            tokio::join!(pass(from_client, to, &state, false), pass(from, to_client, &state, true));
        }
    }
}

/// One direction. What is sent later is never held up by waiting for what was sent before.
async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, state: &State, of_postgres: bool) {
    let (sent, mut due) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let read = async move {
        let mut messages = Messages::default();
        let mut piece = vec![0; 1 << 16];
        while let Ok(length @ 1..) = from.read(&mut piece).await {
            if of_postgres {
                state.answers.fetch_add(messages.ready_in(&piece[..length]), Ordering::Relaxed);
            }
            let delay = Duration::from_micros(state.delay.load(Ordering::Relaxed));
            if sent.send((Instant::now() + delay, piece[..length].to_vec())).is_err() {
                return;
            }
        }
    };
    let write = async move {
        while let Some((at, piece)) = due.recv().await {
            tokio::time::sleep_until(at).await;
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
        // The other end may be gone.
        let _ = to.shutdown().await;
    };
    tokio::join!(read, write);
}

/// What has been read of Postgres' messages: a letter, a length that counts itself, a body.
#[derive(Default)]
struct Messages {
    head: Vec<u8>,
    body: usize,
}

impl Messages {
    /// Counts `ReadyForQuery`.
    fn ready_in(&mut self, mut bytes: &[u8]) -> u64 {
        let mut ready = 0;
        while !bytes.is_empty() {
            let skipped = self.body.min(bytes.len());
            (self.body, bytes) = (self.body - skipped, &bytes[skipped..]);
            let Some((first, rest)) = bytes.split_first() else { break };
            self.head.push(*first);
            bytes = rest;
            if let [letter, length @ ..] = self.head.as_slice()
                && let Ok(length) = <[u8; 4]>::try_from(length)
            {
                ready += u64::from(*letter == b'Z');
                self.body = u32::from_be_bytes(length) as usize - 4;
                self.head.clear();
            }
        }
        ready
    }
}
