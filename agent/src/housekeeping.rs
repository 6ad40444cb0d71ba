//! Looks after the host every few seconds: keeps output within its limits and tells whether disk or memory run short.
//! It works on what the node's loop last wrote to the ledger and never waits for it: it must go on while that loop
//! waits for room on the disk.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use headway_node::{Ledger, Share};
use headway_types::{Bytes, Condition, ConditionKind, Generation, JobId, Seconds};

use crate::activity::Watched;
use crate::journal;
use crate::logs::{self, OutputLimits};
use crate::pressure::{Pressure, Readings, SharedDisks};
use crate::site::Site;

const EVERY: Duration = Duration::from_secs(2);
const PRUNE_EVERY: Duration = Duration::from_secs(600);
/// While the disk is nearly full.
const PRUNE_SOON: Duration = Duration::from_secs(30);

/// What housekeeping needs to know of the ledger.
#[derive(Clone, Debug, Default)]
pub(crate) struct Census {
    known: BTreeSet<(JobId, Generation)>,
    live: Vec<(JobId, Generation)>,
    checkpoints: BTreeSet<PathBuf>,
    /// The longest time that a group which is not over needs to come down: its grace and its epilog.
    pub(crate) coming_down: Seconds,
    /// Groups whose doings the scheduler wants to hear of.
    pub(crate) watched: Vec<Watched>,
}

impl Census {
    /// Whether the ledger has no group any more: each has ended, and the scheduler has recorded its end.
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub(crate) fn of(ledger: &Ledger) -> Self {
        let key = |group: &headway_node::Group| (group.job(), group.generation());
        let live = || ledger.groups().filter(|group| group.phase.may_have_processes());
        let stays = ledger.groups().filter(|group| !group.phase.is_ended());
        let times = stays.map(|group| (group.order.grace + group.order.run.hooks.after()).0);
        Self {
            coming_down: Seconds(times.fold(0.0, f64::max)),
            known: ledger.groups().map(key).collect(),
            live: live().map(key).collect(),
            checkpoints: live().map(|group| PathBuf::from(&group.order.checkpoint_dir)).collect(),
            watched: live().filter_map(|group| watched(ledger, group)).collect(),
        }
    }
}

fn watched(ledger: &Ledger, group: &headway_node::Group) -> Option<Watched> {
    let running = matches!(group.phase, headway_node::Phase::Running { .. }) && group.order.watched;
    let share = Share::of(&group.order, ledger.node()).filter(|_| running)?;
    Some(Watched { job: group.job(), generation: group.generation(), gpus: share.slice.gpus.clone() })
}

/// Never ends by itself.
pub(crate) async fn run(site: Arc<Site>) {
    let mut keeper = Keeper { site, pressure: Pressure::default(), shared: SharedDisks::default(), pruned: None };
    loop {
        keeper = match tokio::task::spawn_blocking(move || keeper.round()).await {
            Ok(keeper) => keeper,
            Err(error) => {
                tracing::error!(%error, "housekeeping broke off");
                return std::future::pending().await;
            }
        };
        tokio::time::sleep(EVERY).await;
    }
}

struct Keeper {
    site: Arc<Site>,
    pressure: Pressure,
    shared: SharedDisks,
    pruned: Option<Instant>,
}

impl Keeper {
    fn round(mut self) -> Self {
        let census = self.site.census.borrow().clone();
        for (job, generation) in &census.live {
            let group = self.site.files.group(*job, *generation);
            if let Err(error) = logs::trim(&group, self.site.output.per_rank) {
                tracing::debug!(group = %group.display(), %error, "cannot cut logs to size");
            }
            if let Err(error) = logs::note(&group, crate::clock::now().0 / 1_000) {
                tracing::debug!(group = %group.display(), %error, "cannot note when logs were written");
            }
        }
        let shared = self.shared.look(census.checkpoints.iter().cloned().collect());
        let conditions = self.pressure.update(&Readings::take(self.site.files.root(), shared));
        let full = self.pressure.own_disk_is_full();
        if !full && let Err(error) = self.site.files.reserve() {
            tracing::warn!(%error, "cannot set room aside for the ledger");
        }
        self.tell(conditions);
        // Until somebody has looked and removed it.
        let damaged = Vec::from_iter(journal::condition(&self.site.files));
        self.site.inventory.set_conditions(&[ConditionKind::LedgerDamaged], damaged);
        let pause = if full { PRUNE_SOON } else { PRUNE_EVERY };
        if self.pruned.is_none_or(|pruned| pruned.elapsed() >= pause) {
            self.pruned = Some(Instant::now());
            self.prune(full);
        }
        self
    }

    fn tell(&self, conditions: Vec<Condition>) {
        for condition in &conditions {
            if !self.site.inventory.now().conditions.contains(condition) {
                tracing::warn!(message = condition.message, "the host runs short");
            }
        }
        self.site.inventory.set_conditions(&Pressure::KINDS, conditions);
    }

    fn prune(&self, full: bool) {
        let mut limits: OutputLimits = self.site.output;
        if full {
            limits.total = Bytes(0);
        }
        // As it is now: looking at a file system that is slow may have taken long.
        let known = self.site.census.borrow().known.clone();
        match logs::prune(&self.site.files, &known, limits, SystemTime::now()) {
            Ok(0) => {}
            Ok(generations) => tracing::info!(generations, "removed output of forgotten groups"),
            Err(error) => tracing::warn!(%error, "cannot remove output of forgotten groups"),
        }
    }
}
