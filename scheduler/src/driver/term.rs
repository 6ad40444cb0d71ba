//! One term: gather, decide, commit, and only then act, for as long as the lease stands.

use std::sync::Arc;
use std::time::Duration;

use headway_engine::{Event, RequestId};
use headway_types::Term;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::faults::Faults;
use super::gather::Gathering;
use super::news::{heard, jobs_of_node, seen};
use super::pipeline::{Decided, Pipeline};
use super::{Driver, Input, LAST_WRITES, LOOK, Leading, VIEW_AGE, asker};
use crate::leader::Hold;
use crate::store::StoreError;

/// How long a commit is waited for that was under way while Postgres did not answer, once it does again: the connection that carries it may be one
/// that the other end knows nothing of, where the kernel would wait for a quarter of an hour.
const OVERDUE: Duration = Duration::from_secs(3);
/// A commit that takes so many times as long as a leader may be silent is given up with its term: whatever holds it up, the connection that carries
/// it forgotten, a lock on a table, a replica that confirms nothing, is told, and another server may try.
const ENDLESS: u32 = 10;

impl Driver {
    /// One term: decide, commit, act, until shutdown or a failed commit.
    pub(super) async fn lead(&mut self, leading: &mut Leading, shutdown: &CancellationToken) -> Result<(), StoreError> {
        let Leading { engine, hold, former: _ } = leading;
        // When the machine's clock is looked at again, while it is not believed.
        let mut look = self.clock.doubted().map(|_| Instant::now() + LOOK);
        // Since when Postgres has not answered, where nothing was to be committed meanwhile.
        let mut away = None;
        // The commit that was under way then, by its beginning, and how long it is waited for.
        let mut doubted: Option<(Instant, Instant)> = None;
        let mut pipeline = Pipeline::new(self.store.clone(), engine.term());
        let mut gathering = Gathering::new(self.clock.now());
        let mut faults = Faults::default();
        // Set while the published snapshot lacks observations the engine has.
        let mut view_due = None;
        loop {
            let committing = pipeline.committing_since();
            let endless = committing.map(|since| since + self.leader.session() * ENDLESS);
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return self.settle(pipeline).await,
                // Before all else that ends a term: whoever asked for what is stored is told so.
                committed = pipeline.committed() => {
                    let committed = committed?;
                    self.ready.send_if_modified(|ready| !std::mem::replace(ready, true));
                    let over = committed.ends_the_term();
                    self.act(pipeline.term(), committed);
                    if over {
                        tracing::warn!(term = %pipeline.term(), "nodes that follow newer terms are readmitted; another term begins");
                        return Ok(());
                    }
                    if let Some(next) = pipeline.advance() {
                        self.act(pipeline.term(), next);
                    }
                }
                // What is under way is refused by the store.
                Ok(()) = hold.changed() => {
                    let hold = *hold.borrow_and_update();
                    match (hold, away) {
                        (Hold::Lost, _) => return Err(StoreError::Fenced { term: engine.term() }),
                        (Hold::Away, None) => {
                            self.ready.send_replace(false);
                            away = Some(self.clock.now());
                        }
                        (Hold::Held, Some(since)) => {
                            away = None;
                            doubted = committing.map(|since| (since, Instant::now() + OVERDUE));
                            self.tell_away(since, "Postgres did not answer".into());
                        }
                        (Hold::Away, Some(_)) | (Hold::Held, None) => {}
                    }
                }
                () = until(doubted.map(|(_, due)| due)), if doubted.is_some() => {
                    if doubted.take().map(|(since, _)| since) == committing {
                        return Err(StoreError::Unanswered);
                    }
                }
                () = until(endless), if endless.is_some() => return Err(StoreError::Unanswered),
                () = until(look), if look.is_some() => {
                    let right = self.clock.is_right_again();
                    if right {
                        self.tell(Event::ClockBelieved);
                    }
                    look = (!right).then(|| Instant::now() + LOOK);
                }
                () = until(view_due), if committing.is_none() => {
                    self.view.send_replace(Arc::new(engine.view()));
                    view_due = None;
                }
                () = gathering.gather(&mut self.inbox, &self.clock, committing),
                    if pipeline.has_room() && away.is_none() && self.lease.stands() =>
                {
                    let since = gathering.oldest();
                    let events = gathering.take_batch().into_iter().map(|input| self.admit(input)).collect();
                    let mut outcome = engine.handle(self.clock.now(), events);
                    faults.tell(engine, &outcome);
                    asker::tell_origins(&mut outcome, &self.pending);
                    gathering.wake_at = outcome.wake_at;
                    let view = (!outcome.changes.is_empty()).then(|| Arc::new(engine.view()));
                    if let Some(view) = &view {
                        asker::keep_first_replies(&mut outcome, view, &mut self.pending);
                    }
                    view_due = match view {
                        Some(_) => None,
                        None => view_due.or_else(|| Some(Instant::now() + VIEW_AGE)),
                    };
                    let causes = asker::causes(&outcome, &self.pending);
                    if let Some(free) = pipeline.push(Decided { outcome, view, since, causes }) {
                        self.act(pipeline.term(), free);
                    }
                }
            }
        }
    }

    /// Commits and answers what has been decided, and ends; what takes too long is left as a killed server leaves it.
    async fn settle(&mut self, pipeline: Pipeline) -> Result<(), StoreError> {
        let settled = tokio::time::timeout(LAST_WRITES, self.commit_the_rest(pipeline)).await;
        settled.unwrap_or(Err(StoreError::Unanswered))
    }

    async fn commit_the_rest(&mut self, mut pipeline: Pipeline) -> Result<(), StoreError> {
        while pipeline.committing_since().is_some() {
            let committed = pipeline.committed().await?;
            self.act(pipeline.term(), committed);
            if let Some(next) = pipeline.advance() {
                self.act(pipeline.term(), next);
            }
        }
        Ok(())
    }

    /// Numbers a request and keeps its asker.
    fn admit(&mut self, input: Input) -> Event {
        match input {
            Input::Event { event, .. } => event,
            Input::Request { actor, body, mut asker, .. } => {
                self.last_request += 1;
                let request = RequestId(self.last_request);
                asker.heed_key(&body);
                self.pending.insert(request, *asker);
                Event::Request { request, actor, body }
            }
        }
    }

    /// Everything that may happen only after the commit.
    fn act(&mut self, term: Term, decided: Decided) {
        let Decided { outcome, view, since, causes: _ } = decided;
        // Whoever is answered finds in the snapshot what the answer says.
        if let Some(view) = view {
            self.view.send_replace(view);
        }
        for (request, reply) in outcome.replies {
            if let Some(asker) = self.pending.remove(&request) {
                asker.hear(reply);
            }
        }
        // Of one that was stopped in between another may have taken the lead: what is still wanted is commanded again.
        let commands = if self.lease.stands() { outcome.commands } else { Vec::new() };
        if !commands.is_empty() {
            crate::metrics::commands_sent(since.elapsed());
        }
        self.courier.send(term, &self.view.borrow(), commands);
        for (node, session, reason) in outcome.refused {
            crate::metrics::agent_refused();
            self.sessions.refuse(node, session, reason);
        }
        // Before the next round is asked for, which takes the place of the one these changes come from.
        self.archive.take(&outcome.changes, self.last_round.borrow().as_ref());
        if let Some(round) = outcome.plan_request {
            self.planning.request(round.plan(), move || round.input());
        }
        if self.feed.receiver_count() > 0 {
            let view = self.view.borrow().clone();
            let of_changes = outcome.changes.iter().filter_map(heard);
            let of_nodes = outcome.changes.iter().flat_map(|change| jobs_of_node(change, &view));
            for feed in of_changes.chain(of_nodes).chain(outcome.observations.iter().filter_map(seen)) {
                // Nobody may be listening any more.
                let _ = self.feed.send(Arc::new(feed));
            }
        }
        for observation in outcome.observations {
            self.observer.take(observation);
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
