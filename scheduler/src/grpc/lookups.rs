//! Look-ups of agents' credentials: those that wait are answered together, by one query. At a restart of the server all
//! nodes come at once; one query each would keep all connections to the database busy, and people would wait behind them.

use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Mutex, oneshot};

use crate::store::{ANSWER_TIME, StoreError, within};

/// Keys of one query.
const MOST: usize = 500;

/// One kind of look-up; cheap to clone.
pub(super) struct Lookups<K, V> {
    waiting: Arc<StdMutex<Vec<Lookup<K, V>>>>,
    /// One query at a time.
    turn: Arc<Mutex<()>>,
    /// How long a query may take.
    time: Duration,
}

struct Lookup<K, V> {
    key: K,
    answer: oneshot::Sender<V>,
}

impl<K, V> Clone for Lookups<K, V> {
    fn clone(&self) -> Self {
        Self { waiting: Arc::clone(&self.waiting), turn: Arc::clone(&self.turn), time: self.time }
    }
}

impl<K, V> Default for Lookups<K, V> {
    fn default() -> Self {
        Self { waiting: Arc::default(), turn: Arc::default(), time: ANSWER_TIME }
    }
}

impl<K: Send + 'static, V: Send + 'static> Lookups<K, V> {
    /// Looks up a key with all others that wait. What is found was read after the call. `query` returns a value for each
    /// key, in their order.
    pub async fn look_up<Q, F>(&self, key: K, query: Q) -> Result<V, StoreError>
    where
        Q: Fn(Vec<K>) -> F,
        F: Future<Output = Result<Vec<V>, StoreError>> + Send + 'static,
    {
        let (answer, mut answered) = oneshot::channel();
        self.waiting().push(Lookup { key, answer });
        loop {
            let turn = Arc::clone(&self.turn).lock_owned().await;
            match answered.try_recv() {
                Ok(value) => return Ok(value),
                // The query that it was part of has failed.
                Err(TryRecvError::Closed) => return Err(StoreError::Unanswered),
                Err(TryRecvError::Empty) => {}
            }
            let (keys, answers): (Vec<K>, Vec<_>) =
                self.take_batch().into_iter().map(|lookup| (lookup.key, lookup.answer)).unzip();
            let asked = within(self.time, query(keys));
            // A task of its own, which keeps the turn: others wait for its answers, whatever becomes of this session.
            let batch = tokio::spawn(async move {
                let _turn = turn;
                match asked.await {
                    Ok(values) => {
                        for (value, answer) in values.into_iter().zip(answers) {
                            // A session that has gone away needs no answer.
                            let _ = answer.send(value);
                        }
                    }
                    // The answers are dropped, which tells all of this batch.
                    Err(error) => tracing::warn!(%error, "credentials of agents were not looked up"),
                }
            });
            // A session beyond the batch waits for its own turn, whatever became of this one.
            let _ended = batch.await;
        }
    }

    /// Takes those that have waited longest; nothing of those who have gone away.
    fn take_batch(&self) -> Vec<Lookup<K, V>> {
        let mut waiting = self.waiting();
        waiting.retain(|lookup| !lookup.answer.is_closed());
        let most = waiting.len().min(MOST);
        waiting.drain(..most).collect()
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Lookup<K, V>>> {
        // The list is valid between any two of its operations, so a panic elsewhere does not spoil it.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;
    use tokio::task::JoinHandle;

    use super::*;

    /// Lookups of doubles, by queries that each wait for a permit of the gate.
    struct Gated {
        lookups: Lookups<usize, usize>,
        queries: Arc<AtomicUsize>,
        gate: Arc<Semaphore>,
    }

    impl Gated {
        fn new() -> Self {
            Self { lookups: Lookups::default(), queries: Arc::default(), gate: Arc::new(Semaphore::new(0)) }
        }

        fn ask_for(&self, key: usize) -> JoinHandle<Result<usize, StoreError>> {
            let (lookups, queries, gate) = (self.lookups.clone(), Arc::clone(&self.queries), Arc::clone(&self.gate));
            let query = move |keys: Vec<usize>| {
                queries.fetch_add(1, Ordering::Relaxed);
                let gate = Arc::clone(&gate);
                async move {
                    gate.acquire().await.unwrap().forget();
                    Ok(keys.into_iter().map(|key| key * 2).collect())
                }
            };
            tokio::spawn(async move { lookups.look_up(key, query).await })
        }
    }

    #[tokio::test]
    async fn those_that_wait_are_answered_by_one_query_each_with_its_own() {
        let gated = Gated::new();
        let asked: Vec<_> = (0..1_200).map(|key| gated.ask_for(key)).collect();
        while gated.lookups.waiting().len() < 1_199 {
            tokio::task::yield_now().await;
        }
        // One goes alone before the others have come, and these take three queries.
        gated.gate.add_permits(100);
        for (key, asked) in asked.into_iter().enumerate() {
            assert_eq!(asked.await.unwrap().unwrap(), key * 2);
        }
        let queries = gated.queries.load(Ordering::Relaxed);
        assert!((2..=5).contains(&queries), "{queries}");
    }

    #[tokio::test]
    async fn who_goes_away_takes_no_answer_from_others_and_a_failed_query_is_told_to_all_of_it() {
        let lookups = Lookups::<usize, usize> { time: Duration::from_millis(50), ..Lookups::default() };
        let gone = lookups.clone();
        let never = tokio::spawn(async move { gone.look_up(1, |_| std::future::pending()).await });
        while lookups.turn.try_lock().is_ok() {
            tokio::task::yield_now().await;
        }
        let other = lookups.clone();
        let other = tokio::spawn(async move { other.look_up(2, |keys| async move { Ok(keys) }).await });
        tokio::task::yield_now().await;
        never.abort();
        assert_eq!(other.await.unwrap().unwrap(), 2);
        let failed = lookups.look_up(3, |_| async { Err(StoreError::Unanswered) }).await;
        assert!(matches!(failed, Err(StoreError::Unanswered)));
        assert_eq!(lookups.look_up(4, |keys| async move { Ok(keys) }).await.unwrap(), 4);
    }

    #[tokio::test]
    async fn others_of_a_batch_wait_for_its_query_when_the_session_that_asked_has_gone() {
        let gated = Gated::new();
        // The first two wait together for a turn; the first to have it asks for both, and goes.
        let held = Arc::clone(&gated.lookups.turn).lock_owned().await;
        let (asks, other) = (gated.ask_for(1), gated.ask_for(2));
        while gated.lookups.waiting().len() < 2 {
            tokio::task::yield_now().await;
        }
        drop(held);
        while gated.queries.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        asks.abort();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        gated.gate.add_permits(1);
        assert_eq!(other.await.unwrap().unwrap(), 4);
        assert_eq!(gated.queries.load(Ordering::Relaxed), 1, "nobody asks again for what is being asked");
    }
}
