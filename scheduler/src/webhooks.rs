//! Webhooks: what is due in the outbox is sent while this server leads, and tried again until it has arrived or a day is over.
//!
//! A notice is written with its event (`store/deliveries.rs`), so that none is lost with a server that dies; one that dies between the call and the
//! note of it calls again, which a receiver tells by `Headway-Delivery`. Nothing here decides what is told: the engine has.

mod address;
mod messenger;
mod trial;

pub use address::{Network, NoNetwork};
pub use messenger::Messenger;
pub use trial::{Trials, Tried, notices};

use std::collections::BTreeMap;
use std::time::Duration;

use headway_engine::Event;
use headway_engine::record::{Notice, NoticeId};
use headway_types::{ProjectRole, Seconds, Timestamp};
use tokio::sync::mpsc;
use tokio::task::{self, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::driver::Input;
use crate::metrics::{self, NoticeOutcome};
use crate::secrets::may_use;
use crate::store::{BusyReceivers, DueNotice, Purse, StoreError, answered};

/// How often the outbox is looked into.
const EVERY: Duration = Duration::from_millis(500);
/// Calls under way at once, and of them to one host and for one owner: who has many, or whose receivers hang, holds up nobody else.
const AT_ONCE: usize = 32;
const TO_ONE_HOST: usize = 8;
const FOR_ONE_OWNER: usize = 4;
/// How often it is counted what waits.
const COUNTED: Duration = Duration::from_secs(15);
/// The first pause after a failure; each is twice the one before.
const FIRST_PAUSE: Seconds = Seconds(10.0);
const LONGEST_PAUSE: Seconds = Seconds(3_600.0);
/// After this a notice is given up.
const PATIENCE: Seconds = Seconds(86_400.0);
/// Until what was given up is told again, should the engine not have heard.
const TOLD_AGAIN: Seconds = Seconds(60.0);

/// Sends what is due until shutdown.
pub async fn run(cluster: Cluster, messenger: Messenger, inbox: mpsc::Sender<Input>, stop: CancellationToken) {
    let mut outbox =
        Outbox { cluster, messenger, inbox, calls: JoinSet::new(), under_way: BTreeMap::new(), more: false };
    let mut looks = tokio::time::interval(EVERY);
    let mut counts = tokio::time::interval(COUNTED);
    for timer in [&mut looks, &mut counts] {
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    }
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            Some(done) = outbox.calls.join_next_with_id() => {
                let call = match done {
                    Ok((call, ())) => call,
                    Err(died) => {
                        // Its notice is still due.
                        tracing::error!(error = &died as &dyn std::error::Error, "a call of a webhook died");
                        died.id()
                    }
                };
                outbox.under_way.remove(&call);
                if outbox.more {
                    looks.reset_immediately();
                }
            }
            _ = looks.tick() => if outbox.cluster.ready() { outbox.look().await },
            _ = counts.tick() => if outbox.cluster.ready() { outbox.count().await },
        }
    }
}

struct Outbox {
    cluster: Cluster,
    messenger: Messenger,
    inbox: mpsc::Sender<Input>,
    calls: JoinSet<()>,
    under_way: BTreeMap<task::Id, UnderWay>,
    /// The last look found something, or left somebody out: there may be more.
    more: bool,
}

/// A call, and whose place it takes.
struct UnderWay {
    notice: NoticeId,
    host: String,
    owner: String,
}

impl Outbox {
    /// Begins as many calls as there is room for.
    async fn look(&mut self) {
        let room = AT_ONCE.saturating_sub(self.under_way.len());
        if room == 0 {
            return;
        }
        let under_way: Vec<NoticeId> = self.under_way.values().map(|call| call.notice).collect();
        let (hosts, owners) = (self.busy(|call| &call.host, TO_ONE_HOST), self.busy(|call| &call.owner, FOR_ONE_OWNER));
        let busy = BusyReceivers { hosts: &hosts, owners: &owners, under_way: &under_way };
        let store = self.cluster.store();
        let due = match answered(store.due_notices(self.cluster.now(), busy, FOR_ONE_OWNER, room)).await {
            Ok(due) => due,
            Err(error) => {
                return tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the outbox of webhooks cannot be read"
                );
            }
        };
        self.more = !due.is_empty() || !hosts.is_empty() || !owners.is_empty();
        for due in due {
            let calls = |of: &dyn Fn(&UnderWay) -> bool| self.under_way.values().filter(|call| of(call)).count();
            if calls(&|call| call.host == due.host) >= TO_ONE_HOST
                || calls(&|call| call.owner == due.notice.owner) >= FOR_ONE_OWNER
            {
                continue;
            }
            let under_way = UnderWay { notice: due.notice.id, host: due.host.clone(), owner: due.notice.owner.clone() };
            let call =
                Call { cluster: self.cluster.clone(), messenger: self.messenger.clone(), inbox: self.inbox.clone() };
            let call = self.calls.spawn(async move { call.make(due).await });
            self.under_way.insert(call.id(), under_way);
        }
    }

    /// Hosts or owners that have as many calls as one may.
    fn busy(&self, of: impl Fn(&UnderWay) -> &str, most: usize) -> Vec<String> {
        let mut calls: BTreeMap<&str, usize> = BTreeMap::new();
        self.under_way.values().for_each(|call| *calls.entry(of(call)).or_default() += 1);
        calls.into_iter().filter(|(_, calls)| *calls >= most).map(|(one, _)| one.to_owned()).collect()
    }

    /// How much waits is a metric: who hears nothing would not know.
    async fn count(&self) {
        match answered(self.cluster.store().waiting_notices()).await {
            Ok(waiting) => metrics::notices_waiting(waiting),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "waiting notices cannot be counted");
            }
        }
    }
}

struct Call {
    cluster: Cluster,
    messenger: Messenger,
    inbox: mpsc::Sender<Input>,
}

impl Call {
    async fn make(self, due: DueNotice) {
        let notice = due.notice;
        let noted = match tell(&self.cluster, &self.messenger, &notice).await {
            Ok(()) => {
                metrics::notice(NoticeOutcome::Delivered);
                answered(self.cluster.store().notice_delivered(notice.id, self.cluster.now())).await
            }
            Err(error) => self.failed(&notice, due.attempts, &error).await,
        };
        if let Err(error) = noted {
            // It is sent again, under the same id.
            tracing::warn!(error = &error as &dyn std::error::Error, job_id = %notice.job, "what came of a notice is not stored");
        }
    }

    async fn failed(&self, notice: &Notice, attempts: u32, error: &str) -> Result<(), StoreError> {
        let now = self.cluster.now();
        let store = self.cluster.store();
        tracing::debug!(job_id = %notice.job, attempts, error, "a notice did not arrive");
        let Some(pause) = pause_after(attempts, now.since(notice.at)) else {
            metrics::notice(NoticeOutcome::GivenUp);
            answered(store.notice_failed(notice.id, error, now + TOLD_AGAIN)).await?;
            let message = format!(
                "a notice that {} was given up after {} attempts: {error}",
                in_words(notice),
                attempts.saturating_add(1)
            );
            let given_up = Event::NoticeGivenUp { notice: notice.id, job: notice.job, message };
            // A loop that goes down hears of it from the next.
            let _ = self.inbox.send(Input::event(given_up)).await;
            return Ok(());
        };
        metrics::notice(NoticeOutcome::Failed);
        answered(store.notice_failed(notice.id, error, now + pause)).await
    }
}

/// Tells one webhook, signed where it asks for that. The error is for the job's owner.
async fn tell(cluster: &Cluster, messenger: &Messenger, notice: &Notice) -> Result<(), String> {
    let key = match &notice.secret {
        None => None,
        Some(name) => {
            let found = answered(key(cluster, notice, name)).await.map_err(|error| {
                tracing::warn!(error = &error as &dyn std::error::Error, job_id = %notice.job, "a webhook's secret cannot be read");
                format!("the secret {name} cannot be read")
            })?;
            let missing = || format!("there is no secret {name} to sign it with: headway secret set {name}");
            Some(found.ok_or_else(missing)?)
        }
    };
    // Receivers compare it with the time of day, whatever speed the cluster's clock has.
    let at = chrono::Utc::now().timestamp();
    messenger.send(notice, key.as_ref(), at).await.map_err(|error| error.to_string())
}

async fn key(
    cluster: &Cluster,
    notice: &Notice,
    name: &str,
) -> Result<Option<headway_api::secret::Secret>, StoreError> {
    let store = cluster.store();
    let member = cluster.view().role_in(&notice.project, &notice.owner) >= Some(ProjectRole::User);
    let project = may_use(store, &notice.owner, member).await?.then_some(notice.project.as_str());
    let of = Purse { user: &notice.owner, project };
    Ok(store.use_secrets(of, &[name.to_owned()], cluster.now()).await?.remove(name))
}

/// `None`: no more. `age`: since the event.
fn pause_after(attempts: u32, age: Seconds) -> Option<Seconds> {
    let doubled = FIRST_PAUSE.0 * f64::from(2_u32.pow(attempts.min(16)));
    (age.0 < PATIENCE.0).then_some(Seconds(doubled.min(LONGEST_PAUSE.0)))
}

fn in_words(notice: &Notice) -> String {
    format!("{} ({})", notice.text, notice.verb)
}

/// RFC 3339.
fn moment(at: Timestamp) -> String {
    let at = chrono::DateTime::from_timestamp_micros(at.0).unwrap_or_default();
    at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}

#[cfg(test)]
mod tests;
