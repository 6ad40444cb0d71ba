//! What a server shows while another leads: the rows as they were a moment ago, and who leads. It decides nothing, and of the cluster it changes
//! nothing; it only tells of itself.

use std::sync::Arc;
use std::time::Duration;

use headway_engine::{Engine, EngineConfig, View};
use headway_types::{Term, Timestamp};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::{Driver, Leading, RETRY, StartError, load_under};
use crate::clock::Clock;
use crate::leader::{Lead, Leader, LeaderError};
use crate::store::{KnownServer, Leadership, Server, Store, StoreError};

/// Between looks at who leads.
const EVERY: Duration = Duration::from_secs(1);
/// Between readings of all rows where something has changed, at least.
const READ_EVERY: Duration = Duration::from_secs(2);
/// How long a look may take: of a connection that nobody knows of any more nothing comes.
const LOOK_TIME: Duration = Duration::from_secs(60);
/// And so many times as long as the last reading took: it may cost five per cent of a processor.
const REST_PER_WORK: u32 = 20;

/// A server while another leads.
#[derive(Clone, Debug, PartialEq)]
pub struct StandsBy {
    /// As far as it is known.
    pub leader: Option<KnownServer>,
    /// Of what is shown here, by the cluster's clock.
    pub as_of: Timestamp,
    /// The same in wall time.
    read: Instant,
}

impl StandsBy {
    /// How old what is shown here is, in wall time.
    pub fn age(&self) -> Duration {
        self.read.elapsed()
    }

    /// Where people reach the leader.
    pub fn leader_url(&self) -> Option<&str> {
        self.leader.as_ref().map(|one| one.server.url.as_str())
    }
}

/// `None` while no other server is known to lead.
pub type Standing = watch::Receiver<Option<Arc<StandsBy>>>;

/// Shows the cluster while another server leads.
pub(super) struct Lookout {
    store: Store,
    config: EngineConfig,
    clock: Clock,
    server: Arc<Server>,
    view: watch::Sender<Arc<View>>,
    standing: watch::Sender<Option<Arc<StandsBy>>>,
}

/// Until when what was read serves: nothing newer is stored, or it has not been long.
struct Shown {
    term: Term,
    newest: Option<Timestamp>,
    as_of: Timestamp,
    /// The same in wall time.
    read: Instant,
    until: Instant,
}

impl Driver {
    /// Waits until this server leads; meanwhile readers are shown what the store says. `None` on shutdown or when it must be tried again.
    pub(super) async fn stand_by(&mut self, shutdown: &CancellationToken) -> Option<Leading> {
        let shown = AbortOnDropHandle::new(tokio::spawn(self.lookout().keep()));
        let lead = tokio::select! {
            () = shutdown.cancelled() => return None,
            // Whoever asked before it was known that another leads is told at once.
            () = self.inbox.drop_all() => return None,
            lead = led_no_more(&mut self.leader, &self.store) => lead,
        };
        // Nothing older is shown once this server leads.
        shown.abort();
        let _ended = shown.await;
        let attempt = match lead {
            Ok(lead) => load_under(lead, &self.store, &self.config, &self.clock).await,
            Err(error) => Err(error.into()),
        };
        match attempt {
            Ok(mut leading) => {
                leading.engine.wait_for(std::mem::take(&mut self.awaited));
                Some(leading)
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "cannot take over, trying again");
                tokio::time::sleep(RETRY).await;
                None
            }
        }
    }

    pub(super) fn lookout(&self) -> Lookout {
        Lookout {
            store: self.store.clone(),
            config: self.config.clone(),
            clock: self.clock.clone(),
            server: self.leader.server(),
            view: self.view.clone(),
            standing: self.standing.clone(),
        }
    }
}

/// Begins a term as soon as nobody else leads. What is shown meanwhile is read on, however long one reading takes.
async fn led_no_more(leader: &mut Leader, store: &Store) -> Result<Lead, LeaderError> {
    loop {
        match leader.begin_term(store).await {
            Err(LeaderError::AnotherLeads) => {}
            lead => return lead,
        }
    }
}

impl Lookout {
    /// Never ends.
    pub async fn keep(self) {
        let mut shown = None;
        loop {
            let looked = tokio::time::timeout(LOOK_TIME, self.look(shown.take())).await;
            match looked.unwrap_or(Err(StoreError::Unanswered)) {
                Ok(now) => shown = now,
                Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "the cluster cannot be shown"),
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    /// One look, which begins anew with all rows.
    pub async fn begin(&self) -> Result<(), StartError> {
        self.look(None).await.map(|_| ()).map_err(StartError::Load)
    }

    async fn look(&self, shown: Option<Shown>) -> Result<Option<Shown>, StoreError> {
        self.store.tell_of(&self.server).await?;
        let led = self.store.leadership().await?;
        // Nobody has begun a term since this server's own: it may be back in a moment.
        if led.leader.as_ref().is_some_and(|one| one.server.id == self.server.id) {
            return Ok(shown);
        }
        let shown = self.read(led.term, shown).await?;
        self.stand_by(led, &shown);
        Ok(Some(shown))
    }

    /// All rows, where something has changed and the last reading is long enough ago.
    async fn read(&self, term: Term, shown: Option<Shown>) -> Result<Shown, StoreError> {
        let (began, now) = (Instant::now(), self.clock.now());
        if let Some(shown) = shown.as_ref().filter(|shown| began < shown.until && shown.term == term) {
            return Ok(Shown { ..*shown });
        }
        let newest = self.store.newest_moment().await?;
        if let Some(newest) = newest {
            self.clock.advance_to(newest);
        }
        if let Some(shown) = shown.filter(|shown| shown.term == term && shown.newest == newest) {
            return Ok(Shown { as_of: now, read: began, until: began + READ_EVERY, ..shown });
        }
        // Nobody is answered by keys here.
        let snapshot = self.store.load(now).await?;
        let config = self.config.clone();
        let view = tokio::task::spawn_blocking(move || Engine::look(config, term, now, snapshot)).await;
        let view = view.unwrap_or_else(|died| std::panic::resume_unwind(died.into_panic()));
        self.view.send_replace(Arc::new(view));
        let rest = (began.elapsed() * REST_PER_WORK).max(READ_EVERY);
        Ok(Shown { term, newest, as_of: now, read: began, until: Instant::now() + rest })
    }

    fn stand_by(&self, led: Leadership, shown: &Shown) {
        let newly = self.standing.borrow().is_none();
        let leader = led.leader;
        if newly {
            let url = leader.as_ref().map(|one| one.server.url.as_str());
            tracing::info!(term = %led.term, leader = url, "standing by");
        }
        self.standing.send_replace(Some(Arc::new(StandsBy { leader, as_of: shown.as_of, read: shown.read })));
    }
}
