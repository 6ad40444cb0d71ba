//! What a server runs beside each other, by name: the first part to end ends the others, and none keeps a server that was told to stop.

use std::collections::HashMap;
use std::time::Duration;

use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;

use super::ServerError;

/// Parts that run until `stop`.
pub(super) struct Parts {
    stop: CancellationToken,
    set: JoinSet<Result<(), ServerError>>,
    names: HashMap<Id, &'static str>,
}

impl Parts {
    pub fn new(stop: CancellationToken) -> Self {
        Self { stop, set: JoinSet::new(), names: HashMap::new() }
    }

    /// One that ends by the stop alone.
    pub fn run(&mut self, name: &'static str, part: impl Future<Output = ()> + Send + 'static) {
        self.serve(name, async move {
            part.await;
            Ok(())
        });
    }

    /// One that may fail.
    pub fn serve(&mut self, name: &'static str, part: impl Future<Output = Result<(), ServerError>> + Send + 'static) {
        let task = self.set.spawn(part);
        self.names.insert(task.id(), name);
    }

    /// Waits for all, and fails as the first that failed. Those that have not ended so long after the stop are told of by their names, and left.
    pub async fn end(mut self, patience: Duration) -> Result<(), ServerError> {
        let mut result = Ok(());
        let stop = self.stop.clone();
        let late = async {
            stop.cancelled().await;
            tokio::time::sleep(patience).await;
        };
        tokio::pin!(late);
        loop {
            let ended = tokio::select! {
                ended = self.set.join_next_with_id() => ended,
                () = &mut late => {
                    let mut left: Vec<&str> = self.names.into_values().collect();
                    left.sort_unstable();
                    tracing::warn!(parts = left.join(", "), "what does not end is left: the server stops");
                    return result;
                }
            };
            let Some(ended) = ended else { return result };
            self.stop.cancel();
            let (id, ended) = match ended {
                Ok((id, ended)) => (id, ended),
                Err(died) => (died.id(), Err(ServerError::Died(died))),
            };
            self.names.remove(&id);
            result = result.and(ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_millis(200);

    #[tokio::test]
    async fn a_part_that_does_not_end_keeps_no_server() {
        let stop = CancellationToken::new();
        let mut parts = Parts::new(stop.clone());
        parts.run("ends", stop.clone().cancelled_owned());
        parts.run("waits for ever", std::future::pending());
        stop.cancel();
        assert!(parts.end(PATIENCE).await.is_ok());
    }

    #[tokio::test]
    async fn one_that_fails_ends_the_others_and_is_told_of() {
        let stop = CancellationToken::new();
        let mut parts = Parts::new(stop.clone());
        parts.run("ends", stop.clone().cancelled_owned());
        parts.serve("fails", async { Err(ServerError::Http(std::io::ErrorKind::BrokenPipe.into())) });
        assert!(matches!(parts.end(PATIENCE).await, Err(ServerError::Http(_))));
        assert!(stop.is_cancelled());
    }
}
