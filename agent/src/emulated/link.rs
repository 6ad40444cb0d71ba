//! The emulated worker's end of the agent's socket. A lost socket does not stop training: it reconnects, and what was
//! said meanwhile waits.

use std::time::Duration;

use headway_types::Configuration;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Settings;

const RECONNECT: Duration = Duration::from_millis(200);
/// How long last words may take to be delivered.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// From the agent.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Order {
    Welcome,
    Configure {
        revision: u64,
        configuration: Configuration,
    },
    Checkpoint,
    Stop {
        checkpoint: bool,
    },
    Refused,
    #[serde(other)]
    Unknown,
}

pub(super) struct Link {
    words: mpsc::UnboundedSender<String>,
    orders: mpsc::UnboundedReceiver<Order>,
    task: Option<JoinHandle<()>>,
}

impl Link {
    /// Without a socket in the environment, words go nowhere.
    pub(super) fn open(settings: &Settings) -> Self {
        let (words, said) = mpsc::unbounded_channel();
        let (heard, orders) = mpsc::unbounded_channel();
        let task = settings.socket.clone().map(|(path, secret)| {
            let hello = json!({
                "type": "hello",
                "version": 1,
                "job": settings.job,
                "generation": settings.generation,
                "secret": secret,
                "rank": 0,
                "pid": std::process::id(),
                "capabilities": {"batch": "live", "layout": "restart"},
            });
            tokio::spawn(talk(path, format!("{hello}\n"), said, heard))
        });
        Self { words, orders, task }
    }

    pub(super) fn say(&self, words: Value) {
        let _without_agent = self.words.send(format!("{words}\n"));
    }

    /// The next order; never, once nobody can give one.
    pub(super) async fn order(&mut self) -> Order {
        match self.orders.recv().await {
            Some(order) => order,
            None => std::future::pending().await,
        }
    }

    /// Delivers what was said, as far as the agent listens.
    pub(super) async fn close(self) {
        drop(self.words);
        if let Some(task) = self.task {
            let _undelivered = tokio::time::timeout(LAST_WORDS, task).await;
        }
    }
}

/// Keeps a connection until everything is said.
async fn talk(
    path: std::path::PathBuf,
    hello: String,
    mut said: mpsc::UnboundedReceiver<String>,
    heard: mpsc::UnboundedSender<Order>,
) {
    let mut unsent: Option<String> = None;
    loop {
        if let Ok(stream) = UnixStream::connect(&path).await
            && converse(stream, &hello, &mut unsent, &mut said, &heard).await
        {
            return;
        }
        tokio::time::sleep(RECONNECT).await;
    }
}

/// One connection; true once everything is said.
async fn converse(
    stream: UnixStream,
    hello: &str,
    unsent: &mut Option<String>,
    said: &mut mpsc::UnboundedReceiver<String>,
    heard: &mpsc::UnboundedSender<Order>,
) -> bool {
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    if writer.write_all(hello.as_bytes()).await.is_err() {
        return false;
    }
    match lines.next_line().await {
        Ok(Some(line)) if matches!(serde_json::from_str(&line), Ok(Order::Welcome)) => {}
        _ => return false,
    }
    loop {
        if let Some(words) = unsent {
            if writer.write_all(words.as_bytes()).await.is_err() {
                return false;
            }
            *unsent = None;
        }
        tokio::select! {
            words = said.recv() => match words {
                Some(words) => *unsent = Some(words),
                None => return writer.shutdown().await.is_ok(),
            },
            line = lines.next_line() => match line {
                Ok(Some(line)) => drop(heard.send(serde_json::from_str(&line).unwrap_or(Order::Unknown))),
                Ok(None) | Err(_) => return false,
            },
        }
    }
}
