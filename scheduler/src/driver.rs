//! The loop: gather events, let the engine decide, commit, and only then act.
//!
//! Nothing leaves this loop before the changes behind it are committed. While one batch commits the next may be
//! decided, never acted on. When a commit fails or its outcome is unknown, the engine's state and all that was decided
//! but not committed are dropped, and the state is read back from the store under a new term. The loop itself decides
//! nothing and waits for nothing but the store.

mod asker;
mod faults;
mod gather;
mod inbox;
mod news;
mod pipeline;
mod standby;
mod term;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use headway_engine::{Actor, Cause, Engine, EngineConfig, Event, Request, RequestId, Snapshot, View, doubt};
use headway_types::{NodeId, Term, Timestamp};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::archive::Archive;
use crate::clock::Clock;
use crate::cluster::{Cluster, Feed, Outlook};
use crate::config::Retention;
use crate::grpc::Sessions;
use crate::leader::{Hold, Lead, Leader, LeaderError, Lease};
use crate::observer::Observer;
use crate::planning::{LastRound, Planning};
use crate::secrets::Courier;
use crate::store::{KnownServer, Store, StoreError, answered};
pub use asker::Asker;
pub use inbox::{Arrival, RegistrationSender};
use inbox::{Inbox, InboxSenders};
pub use standby::{Standing, StandsBy};

/// What a slow stream may lag behind before it has to read the log: some seconds of thousands of jobs that report.
const FEED: usize = 16_384;
/// Between attempts to lead again.
const RETRY: Duration = Duration::from_secs(1);
/// What is not stored by then when a server stops is given up: what was decided and not committed was promised to nobody.
const LAST_WRITES: Duration = Duration::from_secs(5);
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
    inbox: Inbox,
    /// For what the loop itself has to say.
    own: mpsc::Sender<Input>,
    view: watch::Sender<Arc<View>>,
    feed: broadcast::Sender<Arc<Feed>>,
    ready: watch::Sender<bool>,
    standing: watch::Sender<Option<Arc<StandsBy>>>,
    config: EngineConfig,
    leader: Leader,
    /// While it stands nobody else leads: nothing is decided or commanded without it.
    lease: Lease,
    store: Store,
    sessions: Sessions,
    courier: Courier,
    clock: Clock,
    planning: Planning,
    last_round: LastRound,
    archive: Archive,
    observer: Observer,
    last_request: u64,
    /// Requests the engine has, by their number. Dropping one tells its asker that the answer is lost.
    pending: BTreeMap<RequestId, Asker>,
    /// Nodes that knew better than the store when the last term ended.
    awaited: BTreeSet<NodeId>,
}

/// A term under which this server decides.
pub struct Leading {
    engine: Engine,
    hold: watch::Receiver<Hold>,
    /// Who led while this server stood by.
    former: Option<KnownServer>,
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
    /// `None`: another server leads, and this one stands by.
    pub leading: Option<Leading>,
    pub cluster: Cluster,
    /// Where agents' reports go.
    pub inbox: mpsc::Sender<Input>,
    /// Where the first message of an agent's session goes.
    pub registrations: RegistrationSender,
}

impl Driver {
    /// Takes the lead and loads the cluster. While another server leads it refuses, unless the leader stands by. `build`: what the binary was
    /// built from.
    pub async fn start(
        store: Store,
        mut leader: Leader,
        sessions: Sessions,
        clock: Clock,
        config: EngineConfig,
        retention: Retention,
        build: &str,
    ) -> Result<Started, StartError> {
        let lead = if leader.stands_by() {
            match leader.begin_at_once(&store).await {
                Err(LeaderError::AnotherLeads) => None,
                lead => Some(lead?),
            }
        } else {
            Some(leader.begin_term(&store).await?)
        };
        let leading = match lead {
            Some(lead) => {
                let mut leading = load_under(lead, &store, &config, &clock).await?;
                // Whoever starts again where it ran before takes nothing over.
                let elsewhere = |former: &KnownServer| former.server.url != leader.server().url;
                leading.former = leading.former.filter(|former| leader.stands_by() && elsewhere(former));
                Some(leading)
            }
            None => None,
        };
        let first = match &leading {
            Some(leading) => leading.engine.view(),
            None => Engine::look(config.clone(), Term(0), clock.now(), Snapshot::default()),
        };
        let (InboxSenders { requests, events: sender, registrations }, inbox) = Inbox::open();
        let (view, views) = watch::channel(Arc::new(first));
        let (standing, stands) = watch::channel(None);
        let (feed, _) = broadcast::channel(FEED);
        let (ready, readiness) = watch::channel(false);
        let planning = Planning::start(sender.clone()).map_err(StartError::Planning)?;
        let observer =
            Observer::start(store.clone(), clock.clone(), leader.lease(), config.idempotency_kept, retention);
        let last_round = planning.last_round();
        let rounds = planning.rounds();
        let (lease, round) = (leader.lease(), last_round.clone());
        let outlook = Outlook {
            view: views,
            feed: feed.clone(),
            ready: readiness,
            lease: lease.clone(),
            standing: stands,
            round,
            rounds,
        };
        let cluster = Cluster::new(requests, outlook, store.clone(), sessions.clone(), clock.clone(), retention);
        let archive = Archive::start(store.clone(), format!("{} ({build})", env!("CARGO_PKG_VERSION")));
        let driver = Driver {
            inbox,
            own: sender.clone(),
            view,
            feed,
            ready,
            standing,
            config,
            leader,
            lease,
            courier: Courier::new(store.clone(), sessions.clone(), clock.clone()),
            store,
            sessions,
            clock,
            planning,
            last_round,
            archive,
            observer,
            last_request: 0,
            pending: BTreeMap::new(),
            awaited: BTreeSet::new(),
        };
        if leading.is_none() {
            driver.lookout().begin().await?;
        }
        Ok(Started { driver, leading, cluster, inbox: sender, registrations })
    }

    /// Runs until shutdown; a lost term begins anew with what the store says, where another server leads once that has ended. `leading`: the
    /// term that has begun, if this server leads.
    pub async fn run(mut self, mut leading: Option<Leading>, shutdown: CancellationToken) {
        // Since when nothing could be committed.
        let mut away: Option<Away> = None;
        while !shutdown.is_cancelled() {
            let Some(mut term) = leading.take() else {
                leading = if self.leader.stands_by() {
                    self.stand_by(&shutdown).await
                } else {
                    self.lead_again(&shutdown).await
                };
                continue;
            };
            tracing::info!(term = %term.engine.term(), "term begins");
            self.view.send_replace(Arc::new(term.engine.view()));
            self.sessions.begin(term.engine.term());
            if let Some(former) = term.former.take() {
                // What kept this server from committing has kept nobody else.
                away = None;
                self.tell_of_takeover(former);
            }
            // Whoever could not commit is ready once it has: the first commit of the new term tells so, and proves it.
            self.ready.send_replace(away.is_none());
            self.standing.send_replace(None);
            if let Some(away) = &away {
                self.tell_away(away.since, away.message.clone());
            }
            if let Some(beyond) = self.clock.doubted() {
                self.tell(Event::ClockDoubted { beyond });
            }
            let began = Instant::now();
            let ended = self.lead(&mut term, &shutdown).await;
            self.awaited = term.engine.not_back();
            if *self.ready.borrow() {
                away = None;
            }
            self.ready.send_replace(false);
            self.sessions.close_all();
            self.pending.clear();
            if let Err(error) = ended {
                let lost = matches!(error, StoreError::Fenced { .. }) || !self.lease.stands();
                if self.leader.stands_by() && lost {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "the lead is lost, another server may have it");
                } else {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "commit failed, reloading under a new term"
                    );
                }
                let message = error.to_string();
                away.get_or_insert_with(|| Away { since: self.clock.now(), message });
                if began.elapsed() < STEADY && !shutdown.is_cancelled() {
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
        let last_writes = async { tokio::join!(self.archive.finish(), self.observer.finish()) };
        if tokio::time::timeout(LAST_WRITES, last_writes).await.is_err() {
            tracing::warn!("the last measurements and inputs of plans are lost: Postgres does not answer");
        }
        self.leader.resign().await;
    }

    /// Has the first commit after a while say that there was none; it makes the server ready again.
    fn tell_away(&self, since: Timestamp, message: String) {
        self.tell(Event::StoreAway { since, message });
    }

    fn tell_of_takeover(&self, former: KnownServer) {
        let (from, to) = (former.server.url, self.leader.server().url.clone());
        let cause = match former.silent {
            _ if former.stopped => Cause::Stopped,
            silent if self.leader.keeps_for(silent) => Cause::Ended,
            silent => Cause::Silent(silent),
        };
        tracing::warn!(from, ?cause, "this server has taken over");
        crate::metrics::took_over();
        self.tell(Event::TookOver { from, to, cause });
    }

    fn tell(&self, event: Event) {
        if let Err(error) = self.own.try_send(Input::event(event)) {
            tracing::warn!(%error, "the loop is too busy to hear itself");
        }
    }

    /// Begins another term from what is stored; `None` on shutdown or when it must be tried again.
    async fn lead_again(&mut self, shutdown: &CancellationToken) -> Option<Leading> {
        let attempt = async {
            let lead = self.leader.begin_term(&self.store).await?;
            load_under(lead, &self.store, &self.config, &self.clock).await
        };
        tokio::select! {
            () = shutdown.cancelled() => None,
            attempt = attempt => match attempt {
                Ok(mut leading) => {
                    leading.engine.wait_for(std::mem::take(&mut self.awaited));
                    Some(Leading { former: None, ..leading })
                }
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "cannot lead, trying again");
                    tokio::time::sleep(RETRY).await;
                    None
                }
            },
        }
    }
}

async fn load_under(lead: Lead, store: &Store, config: &EngineConfig, clock: &Clock) -> Result<Leading, StartError> {
    let Lead { term, hold, former } = lead;
    Ok(Leading { engine: load(store, config, term, clock).await?, hold, former })
}

async fn load(store: &Store, config: &EngineConfig, term: Term, clock: &Clock) -> Result<Engine, StartError> {
    let newest = answered(store.newest_moment()).await.map_err(StartError::Load)?;
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

#[cfg(test)]
mod tests;
