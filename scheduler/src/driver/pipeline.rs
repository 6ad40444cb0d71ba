//! What has been decided and may not be acted on yet: at most one outcome that commits and one that waits for it.
//!
//! Outcomes leave in the order they were decided, each only once its changes are committed; only what is lossy anyway
//! (observations) may pass. Dropping the pipeline drops all that it holds.

use std::sync::Arc;

use headway_engine::{Change, Outcome, View};
use headway_types::Term;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::spans::{self, Cause};
use crate::store::{Store, StoreError};

/// An outcome with the snapshot that shows it; none where it changes no fact.
pub(super) struct Decided {
    pub outcome: Outcome,
    pub view: Option<Arc<View>>,
    /// When the first of its events came to be.
    pub since: Instant,
    /// Spans of the requests that it answers, where spans are made.
    pub causes: Vec<Cause>,
}

impl Decided {
    /// Nothing may be committed after it: the store takes another term for the newest.
    pub fn ends_the_term(&self) -> bool {
        self.outcome.changes.iter().any(|change| matches!(change, Change::Term(_)))
    }

    /// Nothing in it promises or commands anything.
    fn only_observes(&self) -> bool {
        let Outcome { changes, replies, commands, refused, plan_request, wake_at: _, observations: _ } = &self.outcome;
        changes.is_empty()
            && replies.is_empty()
            && commands.is_empty()
            && refused.is_empty()
            && plan_request.is_none()
            && self.view.is_none()
    }
}

pub(super) struct Pipeline {
    store: Store,
    term: Term,
    committing: Option<Committing>,
    /// Only while another commits.
    waiting: Option<Decided>,
}

struct Committing {
    /// Ends with it: a commit that nobody hears of any more keeps no connection from those who come after.
    task: AbortOnDropHandle<(Decided, Result<(), StoreError>)>,
    since: Instant,
}

impl Pipeline {
    pub fn new(store: Store, term: Term) -> Self {
        Self { store, term, committing: None, waiting: None }
    }

    /// Under which everything here is decided.
    pub fn term(&self) -> Term {
        self.term
    }

    /// Whether another outcome may be decided.
    pub fn has_room(&self) -> bool {
        self.waiting.is_none()
    }

    /// Since when a commit has been under way.
    pub fn committing_since(&self) -> Option<Instant> {
        self.committing.as_ref().map(|committing| committing.since)
    }

    /// Takes what has been decided next, and gives it back where it may be acted on at once.
    pub fn push(&mut self, decided: Decided) -> Option<Decided> {
        debug_assert!(self.has_room());
        if self.committing.is_none() {
            return self.begin(decided);
        }
        if decided.only_observes() {
            return Some(decided);
        }
        self.waiting = Some(decided);
        None
    }

    /// Waits for the commit under way; never comes back while there is none. Nothing is lost when this is dropped.
    pub async fn committed(&mut self) -> Result<Decided, StoreError> {
        let Some(committing) = &mut self.committing else { return std::future::pending().await };
        let joined = (&mut committing.task).await;
        self.committing = None;
        let (decided, result) = joined.unwrap_or_else(|died| std::panic::resume_unwind(died.into_panic()));
        result.map(|()| decided)
    }

    /// After `committed`: begins with the outcome that waited, and gives it back where it may be acted on at once.
    pub fn advance(&mut self) -> Option<Decided> {
        let next = self.waiting.take()?;
        self.begin(next)
    }

    fn begin(&mut self, mut decided: Decided) -> Option<Decided> {
        if decided.outcome.changes.is_empty() {
            return Some(decided);
        }
        let (store, term) = (self.store.clone(), self.term);
        let span = spans::commit(term, decided.outcome.changes.len(), std::mem::take(&mut decided.causes));
        // A task of its own: the loop decides the next outcome while Postgres answers.
        let task = tokio::spawn(async move {
            let result = store.commit(term, &decided.outcome.changes).await;
            spans::committed(&span, &result);
            (decided, result)
        });
        let task = AbortOnDropHandle::new(task);
        self.committing = Some(Committing { task, since: Instant::now() });
        None
    }
}
