//! The loop: gather events, let the engine decide, commit, and only then act.
//!
//! Nothing leaves this loop before the changes behind it are committed. While one batch commits the next may be
//! decided, never acted on. When a commit fails or its outcome is unknown, the engine's state and all that was decided
//! but not committed are dropped, and the state is read back from the store under a new term. The loop itself decides
//! nothing and waits for nothing but the store.

mod asker;
mod faults;
mod gather;
mod news;
mod pipeline;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use headway_engine::{Actor, Engine, EngineConfig, Event, Request, RequestId, View, doubt};
use headway_types::{NodeId, Term, Timestamp};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::archive::Archive;
use crate::clock::Clock;
use crate::cluster::{Cluster, Feed, Outlook};
use crate::config::Retention;
use crate::grpc::Sessions;
use crate::leader::{Hold, Leader, LeaderError};
use crate::observer::Observer;
use crate::planning::{LastRound, Planning};
use crate::secrets::Courier;
use crate::store::{Store, StoreError};
pub use asker::Asker;
use faults::Faults;
use gather::Gathering;
use news::{heard, seen};
use pipeline::{Decided, Pipeline};

/// Events that may wait for the loop; requests are refused as busy beyond it, agents' streams are held back.
const INBOX: usize = 4_096;
/// What a slow stream may lag behind before it has to read the log: some seconds of thousands of jobs that report.
const FEED: usize = 16_384;
/// Between attempts to lead again.
const RETRY: Duration = Duration::from_secs(1);
/// A term that lasted so long began well.
const STEADY: Duration = Duration::from_secs(10);
/// Between looks at a machine's clock that is not believed.
const LOOK: Duration = Duration::from_secs(30);
/// How old the snapshot may grow while only observations come in.
const VIEW_AGE: Duration = Duration::from_millis(100);

/// What reaches the loop.
#[derive(Debug)]
pub enum Input {
    Request { at: Instant, actor: Actor, body: Request, asker: Box<Asker> },
    Event { at: Instant, event: Event },
}

impl Input {
    /// Something that has just happened.
    pub fn event(event: Event) -> Self {
        Self::Event { at: Instant::now(), event }
    }

    /// Something that has just been asked for.
    pub fn request(actor: Actor, body: Request, asker: Asker) -> Self {
        Self::Request { at: Instant::now(), actor, body, asker: Box::new(asker) }
    }

    fn at(&self) -> Instant {
        match self {
            Self::Request { at, .. } | Self::Event { at, .. } => *at,
        }
    }
}

/// The loop before it runs.
pub struct Driver {
    inbox: mpsc::Receiver<Input>,
    /// For what the loop itself has to say.
    own: mpsc::Sender<Input>,
    view: watch::Sender<Arc<View>>,
    feed: broadcast::Sender<Arc<Feed>>,
    ready: watch::Sender<bool>,
    config: EngineConfig,
    leader: Leader,
    store: Store,
    sessions: Sessions,
    courier: Courier,
    clock: Clock,
    planning: Planning,
    last_round: LastRound,
    archive: Archive,
    observer: Observer,
    last_request: u64,
    /// Nodes that knew better than the store when the last term ended.
    awaited: BTreeSet<NodeId>,
    /// Requests the engine has, by their number. Dropping one tells its asker that the answer is lost.
    pending: BTreeMap<RequestId, Asker>,
}

/// Nothing can be committed.
struct Away {
    since: Timestamp,
    message: String,
}

/// Why the loop could not begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Leader(#[from] LeaderError),
    #[error("loading the cluster")]
    Load(#[source] StoreError),
    #[error("starting the planning thread")]
    Planning(#[source] std::io::Error),
    #[error("reading entropy")]
    Entropy(#[source] getrandom::Error),
}

/// The loop, ready to run, with the ends that others hold.
pub struct Started {
    pub driver: Driver,
    pub engine: Engine,
    pub cluster: Cluster,
    /// Where agents' reports go.
    pub inbox: mpsc::Sender<Input>,
}

impl Driver {
    /// Takes the lead and loads the cluster. Refuses while another server leads. `build`: what the binary was built from.
    pub async fn start(
        store: Store,
        mut leader: Leader,
        sessions: Sessions,
        clock: Clock,
        config: EngineConfig,
        retention: Retention,
        build: &str,
    ) -> Result<Started, StartError> {
        let term = leader.begin_term(&store).await?;
        let engine = load(&store, &config, term, &clock).await?;
        let (sender, inbox) = mpsc::channel(INBOX);
        let (view, views) = watch::channel(Arc::new(engine.view()));
        let (feed, _) = broadcast::channel(FEED);
        let (ready, readiness) = watch::channel(false);
        let planning = Planning::start(sender.clone()).map_err(StartError::Planning)?;
        let observer = Observer::start(store.clone(), clock.clone(), config.idempotency_kept, retention);
        let last_round = planning.last_round();
        let rounds = planning.rounds();
        let outlook = Outlook { view: views, feed: feed.clone(), ready: readiness, round: last_round.clone(), rounds };
        let cluster = Cluster::new(sender.clone(), outlook, store.clone(), sessions.clone(), clock.clone(), retention);
        let archive = Archive::start(store.clone(), format!("{} ({build})", env!("CARGO_PKG_VERSION")));
        let driver = Driver {
            inbox,
            own: sender.clone(),
            view,
            feed,
            ready,
            config,
            leader,
            courier: Courier::new(store.clone(), sessions.clone(), clock.clone()),
            store,
            sessions,
            clock,
            planning,
            last_round,
            archive,
            observer,
            last_request: 0,
            awaited: BTreeSet::new(),
            pending: BTreeMap::new(),
        };
        Ok(Started { driver, engine, cluster, inbox: sender })
    }

    /// Runs until shutdown; a lost term begins anew with what the store says.
    pub async fn run(mut self, engine: Engine, shutdown: CancellationToken) {
        let mut engine = Some(engine);
        // Since when nothing could be committed.
        let mut away: Option<Away> = None;
        while !shutdown.is_cancelled() {
            let Some(mut leading) = engine.take() else {
                engine = self.lead_again(&shutdown).await;
                continue;
            };
            tracing::info!(term = %leading.term(), "term begins");
            self.view.send_replace(Arc::new(leading.view()));
            self.sessions.begin(leading.term());
            // Whoever could not commit is ready once it has: the first commit of the new term tells so, and proves it.
            self.ready.send_replace(away.is_none());
            if let Some(away) = &away {
                self.tell_away(away.since, away.message.clone());
            }
            if let Some(beyond) = self.clock.doubted() {
                self.tell(Event::ClockDoubted { beyond });
            }
            let began = Instant::now();
            let ended = self.lead(&mut leading, &shutdown).await;
            self.awaited = leading.not_back();
            if *self.ready.borrow() {
                away = None;
            }
            self.ready.send_replace(false);
            self.sessions.close_all();
            self.pending.clear();
            if let Err(error) = ended {
                tracing::error!(error = &error as &dyn std::error::Error, "commit failed, reloading under a new term");
                let message = error.to_string();
                away.get_or_insert_with(|| Away { since: self.clock.now(), message });
                if began.elapsed() < STEADY {
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
        self.archive.finish().await;
        self.observer.finish().await;
    }

    /// Has the first commit after a while say that there was none; it makes the server ready again.
    fn tell_away(&self, since: Timestamp, message: String) {
        self.tell(Event::StoreAway { since, message });
    }

    fn tell(&self, event: Event) {
        if let Err(error) = self.own.try_send(Input::event(event)) {
            tracing::warn!(%error, "the loop is too busy to hear itself");
        }
    }

    /// Begins another term from what is stored; `None` on shutdown or when it must be tried again.
    async fn lead_again(&mut self, shutdown: &CancellationToken) -> Option<Engine> {
        let attempt = async {
            let term = self.leader.begin_term(&self.store).await?;
            let mut engine = load(&self.store, &self.config, term, &self.clock).await?;
            engine.wait_for(self.awaited.clone());
            Ok::<_, StartError>(engine)
        };
        tokio::select! {
            () = shutdown.cancelled() => None,
            attempt = attempt => match attempt {
                Ok(engine) => Some(engine),
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "cannot lead, trying again");
                    tokio::time::sleep(RETRY).await;
                    None
                }
            },
        }
    }

    /// One term: decide, commit, act, until shutdown or a failed commit.
    async fn lead(&mut self, engine: &mut Engine, shutdown: &CancellationToken) -> Result<(), StoreError> {
        let mut hold = self.leader.told();
        // When the machine's clock is looked at again, while it is not believed.
        let mut look = self.clock.doubted().map(|_| Instant::now() + LOOK);
        // Since when Postgres has not answered, where nothing was to be committed meanwhile.
        let mut away = None;
        let mut pipeline = Pipeline::new(self.store.clone(), engine.term());
        let mut gathering = Gathering::new(self.clock.now());
        let mut faults = Faults::default();
        // Set while the published snapshot lacks observations the engine has.
        let mut view_due = None;
        loop {
            let committing = pipeline.committing_since();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return self.settle(pipeline).await,
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
                // What was under way when the lead was lost is refused by the store; what was not has been heard of above.
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
                            self.tell_away(since, "Postgres did not answer".into());
                        }
                        (Hold::Away, Some(_)) | (Hold::Held, None) => {}
                    }
                }
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
                gathered = gathering.gather(&mut self.inbox, &self.clock, committing), if pipeline.has_room() => {
                    if !gathered {
                        return self.settle(pipeline).await;
                    }
                    let since = gathering.oldest();
                    let events = gathering.batch().map(|input| self.admit(input)).collect();
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

    /// Commits and answers what has been decided, and ends.
    async fn settle(&mut self, mut pipeline: Pipeline) -> Result<(), StoreError> {
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
        if !outcome.commands.is_empty() {
            crate::metrics::commands_sent(since.elapsed());
        }
        self.courier.send(term, &self.view.borrow(), outcome.commands);
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
            outcome.changes.iter().filter_map(heard).chain(outcome.observations.iter().filter_map(seen)).for_each(
                |feed| {
                    // Nobody may be listening any more.
                    let _ = self.feed.send(Arc::new(feed));
                },
            );
        }
        for observation in outcome.observations {
            self.observer.take(observation);
        }
    }
}

async fn load(store: &Store, config: &EngineConfig, term: Term, clock: &Clock) -> Result<Engine, StartError> {
    let newest = store.newest_moment().await.map_err(StartError::Load)?;
    if let Some(newest) = newest {
        clock.advance_to(newest);
    }
    let snapshot = store.load(clock.now() - config.idempotency_kept).await.map_err(StartError::Load)?;
    let doubted = newest.filter(|_| !clock.is_trusted()).and_then(|newest| {
        let beyond = doubt(newest, clock.now(), &snapshot)?;
        clock.hold_at(newest);
        Some(beyond)
    });
    if let Some(beyond) = doubted {
        tracing::error!(
            ahead_days = beyond.0 / 86_400.0,
            "the machine's clock is far ahead of what is stored and is not believed"
        );
    }
    let now = clock.now();
    let seed = getrandom::u64().map_err(StartError::Entropy)?;
    tracing::info!(%term, jobs = snapshot.jobs.len(), nodes = snapshot.nodes.len(), "cluster loaded");
    Ok(Engine::restore(config.clone(), term, seed, now, snapshot))
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
