//! Who leads, and how long it takes until somebody does again.

use std::time::{Duration, Instant};

use headway_api::client::{Client, ClientError};

use crate::submitters::submit;
use crate::until;

const PATIENCE: Duration = Duration::from_secs(120);

/// Which of two servers leads.
pub async fn leader(clients: &[Client; 2]) -> usize {
    until("a leader", PATIENCE, || async {
        for (at, client) in clients.iter().enumerate() {
            if matches!(client.ready().await, Ok(true)) {
                return Some(at);
            }
        }
        None
    })
    .await
}

/// How long it takes until a server acknowledges a write.
pub async fn writes_resume(client: &Client, name: &str) -> Duration {
    let began = Instant::now();
    until("a write to be acknowledged", PATIENCE, || async { submit(client, name).await.ok() }).await;
    began.elapsed()
}

/// Waits until a server answers that another leads.
pub async fn stands_by(client: &Client) {
    until("the server to stand by", PATIENCE, || async {
        match submit(client, "too-late").await {
            Err(ClientError::Problem(refused)) => (refused.code == "not_leading").then_some(()),
            Err(_) => None,
            Ok(_) => panic!("two servers lead"),
        }
    })
    .await;
}
