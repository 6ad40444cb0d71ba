//! The warm interpreters of this node: which there are, when one is started, and when it ends. A launch that finds none
//! goes cold, whatever the reason: nothing ever waits for an import here, and no job is lost for want of one.

mod kind;
mod zygote;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as SyncMutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headway_types::{Bytes, ConditionKind};
use tokio::sync::Mutex;

pub(crate) use kind::Kind;
use zygote::Zygote;
pub(crate) use zygote::{Descriptors, Request, ZygoteError};

use crate::pressure::Readings;
use crate::site::Site;

/// How often the interpreters are looked after.
const EVERY: Duration = Duration::from_secs(5);
/// Pause before an interpreter that could not be started is tried again.
const BACK_OFF: Duration = Duration::from_secs(300);
/// What must be free for one more, as a share of the host's memory and in bytes, which is also the most one may take: one
/// takes up to a gibibyte.
const MEMORY_SHARE: f64 = 0.1;
const MEMORY: Bytes = Bytes(2 << 30);

/// The operator's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarmLimits {
    /// Most interpreters kept warm; none if 0.
    pub interpreters: usize,
    /// How long one is kept that no running group was or could have been started from.
    pub idle: Duration,
}

/// Why a launch goes cold that could have been warm.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cold {
    #[error("no interpreter is warm for it")]
    None,
    #[error("its interpreter is still importing")]
    Importing,
    #[error("its interpreter could not be started a while ago")]
    Failed,
    #[error("its interpreter failed: {0}")]
    Zygote(#[from] ZygoteError),
    #[error("making its process ready: {0}")]
    Io(#[from] std::io::Error),
}

#[derive(Clone)]
pub(crate) struct Warm(Arc<Inner>);

struct Inner {
    site: Arc<Site>,
    entries: SyncMutex<BTreeMap<Kind, Entry>>,
    /// Numbers the files of complaints.
    started: AtomicU64,
}

struct Entry {
    state: State,
    used: Instant,
    holders: usize,
}

enum State {
    /// Not there, but a group that it could serve is.
    Absent,
    Importing,
    Ready(Arc<Mutex<Zygote>>),
    /// Could not be started, at `used`.
    Failed,
}

/// A group runs that the kind could serve again when it moves: its interpreter is not idle.
pub(crate) struct Held {
    warm: Warm,
    kind: Kind,
}

impl Warm {
    pub(crate) fn new(site: Arc<Site>) -> Self {
        Self(Arc::new(Inner { site, entries: SyncMutex::default(), started: AtomicU64::new(0) }))
    }

    /// Has an interpreter of this kind warmed up in the background, if there is room for one and none is there.
    pub(crate) fn want(&self, kind: &Kind) {
        let limit = self.0.site.warm.interpreters;
        let mut entries = self.entries();
        let known = entries.get(kind);
        let there = known.is_some_and(|entry| match entry.state {
            State::Importing | State::Ready(_) => true,
            State::Failed => entry.used.elapsed() < BACK_OFF,
            State::Absent => false,
        });
        if limit == 0 || there {
            return;
        }
        if !self.has_memory() {
            return tracing::debug!("too little memory to keep an interpreter warm");
        }
        if entries.values().filter(|entry| entry.is_there()).count() >= limit && !give_up_one(&mut entries) {
            return tracing::debug!("as many interpreters are kept warm as may be");
        }
        let holders = entries.get(kind).map_or(0, |entry| entry.holders);
        entries.insert(kind.clone(), Entry { state: State::Importing, used: Instant::now(), holders });
        let (warm, kind) = (self.clone(), kind.clone());
        tokio::spawn(async move { warm.start(kind).await });
    }

    /// Has a worker forked that waits for the word to go. An interpreter that fails at it is given up.
    pub(crate) async fn fork(
        &self,
        kind: &Kind,
        request: &Request<'_>,
        descriptors: &Descriptors<'_>,
    ) -> Result<u32, Cold> {
        let zygote = match self.entries().get_mut(kind) {
            None => return Err(Cold::None),
            Some(entry) => match &entry.state {
                State::Absent => return Err(Cold::None),
                State::Importing => return Err(Cold::Importing),
                State::Failed => return Err(Cold::Failed),
                State::Ready(zygote) => {
                    entry.used = Instant::now();
                    Arc::clone(zygote)
                }
            },
        };
        let forked = zygote.lock().await.fork(request, descriptors).await;
        if forked.is_err() {
            self.set(kind, State::Absent);
        }
        Ok(forked?)
    }

    /// Keeps the kind's interpreter from counting as idle.
    pub(crate) fn hold(&self, kind: Kind) -> Held {
        let mut entries = self.entries();
        let entry = entries.entry(kind.clone()).or_insert_with(|| Entry::of(State::Absent));
        entry.holders += 1;
        Held { warm: self.clone(), kind }
    }

    /// Looks after the interpreters. Never ends by itself.
    pub(crate) async fn run(self) {
        let mut beats = tokio::time::interval(EVERY);
        loop {
            beats.tick().await;
            for kind in self.look() {
                self.want(&kind);
            }
        }
    }

    async fn start(&self, kind: Kind) {
        let site = &self.0.site;
        let began = Instant::now();
        let started = async {
            let prefix = site.users.prefix(kind.user.as_ref());
            let enclosure = site.cgroups.as_ref().map(|cgroups| cgroups.enclose(MEMORY)).transpose();
            let enclosure = enclosure.map_err(ZygoteError::Start)?;
            if let Some(enclosure) = &enclosure {
                site.confine_to(enclosure.path(), &[]).await.map_err(ZygoteError::Start)?;
            }
            let mut zygote = Zygote::start(&kind, &prefix, &self.complaints(), enclosure)?;
            zygote.ready().await?;
            Ok::<_, ZygoteError>(zygote)
        };
        match started.await {
            Ok(zygote) => {
                let took_s = began.elapsed().as_secs_f64();
                tracing::info!(interpreter = kind.interpreter, took_s, "an interpreter is warm");
                self.set(&kind, State::Ready(Arc::new(Mutex::new(zygote))));
            }
            Err(error) => {
                tracing::info!(interpreter = kind.interpreter, %error, "an interpreter cannot be kept warm");
                self.set(&kind, State::Failed);
            }
        }
    }

    /// Ends what is idle, or everything when the host runs short of memory; returns what has died but is still of use.
    pub(crate) fn look(&self) -> Vec<Kind> {
        let conditions = &self.0.site.inventory.now().conditions;
        let short = conditions.iter().any(|condition| condition.kind == ConditionKind::MemoryPressure);
        let idle = self.0.site.warm.idle;
        let mut dead = Vec::new();
        let mut entries = self.entries();
        for (kind, entry) in entries.iter_mut() {
            let State::Ready(zygote) = &entry.state else { continue };
            let gone = zygote.try_lock().is_ok_and(|mut zygote| zygote.is_gone());
            if gone {
                tracing::info!(interpreter = kind.interpreter, "a warm interpreter is gone");
                dead.extend((entry.holders > 0).then(|| kind.clone()));
            }
            if gone || short || (entry.holders == 0 && entry.used.elapsed() >= idle) {
                tracing::debug!(interpreter = kind.interpreter, short, "an interpreter is no longer kept warm");
                entry.state = State::Absent;
            }
        }
        entries.retain(|_, entry| {
            entry.holders > 0
                || match entry.state {
                    State::Absent => false,
                    State::Failed => entry.used.elapsed() < BACK_OFF,
                    State::Importing | State::Ready(_) => true,
                }
        });
        dead
    }

    fn set(&self, kind: &Kind, state: State) {
        let mut entries = self.entries();
        let entry = entries.entry(kind.clone()).or_insert_with(|| Entry::of(State::Absent));
        (entry.state, entry.used) = (state, Instant::now());
    }

    /// As many files as interpreters at a time, used in turn.
    fn complaints(&self) -> PathBuf {
        let files = 2 * self.0.site.warm.interpreters as u64;
        let number = self.0.started.fetch_add(1, Ordering::Relaxed) % files.max(1);
        self.0.site.files.complaints(number)
    }

    fn has_memory(&self) -> bool {
        let readings = Readings::take(self.0.site.files.root(), Vec::new());
        readings.memory.is_none_or(|memory| {
            let share = MEMORY_SHARE * memory.total.0 as f64;
            memory.free >= MEMORY && memory.free.0 as f64 >= share
        })
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<Kind, Entry>> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn of(state: State) -> Self {
        Self { state, used: Instant::now(), holders: 0 }
    }

    fn is_there(&self) -> bool {
        matches!(self.state, State::Importing | State::Ready(_))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(entry) = self.warm.entries().get_mut(&self.kind) {
            entry.holders = entry.holders.saturating_sub(1);
            entry.used = Instant::now();
        }
    }
}

/// Ends the interpreter that was idle longest; false if all are of use.
fn give_up_one(entries: &mut BTreeMap<Kind, Entry>) -> bool {
    let idle = entries.iter_mut().filter(|(_, entry)| entry.holders == 0 && matches!(entry.state, State::Ready(_)));
    let Some((_, entry)) = idle.min_by_key(|(_, entry)| entry.used) else { return false };
    entry.state = State::Absent;
    true
}

#[cfg(test)]
impl Warm {
    /// The process of an interpreter that is ready.
    pub(crate) fn process(&self, kind: &Kind) -> Option<u32> {
        match &self.entries().get(kind)?.state {
            State::Ready(zygote) => zygote.try_lock().ok()?.process(),
            _ => None,
        }
    }

    pub(crate) fn has_failed(&self, kind: &Kind) -> bool {
        self.entries().get(kind).is_some_and(|entry| matches!(entry.state, State::Failed))
    }
}
