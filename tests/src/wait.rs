//! Waiting for a condition with a deadline. Tests never sleep for a guess.

use std::time::{Duration, Instant};

/// Polls until `condition` yields a value; panics with `what` at the deadline.
pub async fn until<T, F, Fut>(what: &str, deadline: Duration, mut condition: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    let begin = Instant::now();
    let mut interval = tokio::time::interval(Duration::from_millis(50));
    loop {
        interval.tick().await;
        if let Some(value) = condition().await {
            return value;
        }
        assert!(begin.elapsed() < deadline, "waited {deadline:?} for {what}");
    }
}

/// Lets a fault last so long. Not a wait for something: for that there is `until`.
pub async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// The deadline of things that take a moment on an idle machine; generous, because test machines are not idle.
pub fn soon() -> Duration {
    Duration::from_secs(60)
}
