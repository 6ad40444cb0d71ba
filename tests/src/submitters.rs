//! Clients that submit one job after the other while servers die, and what became of all that was acknowledged to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use headway_api::client::{Client, ClientError};
use tokio::task::JoinHandle;

use crate::job::EmulatedJob;
use crate::wait::{soon, until};

/// Some clients at a time, each of which asks with one key until it is answered.
pub struct Submitters {
    clients: Vec<JoinHandle<BTreeMap<String, String>>>,
    names: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

/// How many acknowledged jobs there are, how many of them are gone, and how many are there more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    pub acknowledged: usize,
    pub lost: usize,
    pub doubled: usize,
}

impl Submitters {
    pub fn start(client: &Client, count: usize) -> Self {
        let (names, stop) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let one = || tokio::spawn(submit_until(client.clone(), Arc::clone(&names), Arc::clone(&stop)));
        Self { clients: (0..count).map(|_| one()).collect(), names, stop }
    }

    /// Waits for so many more submits.
    pub async fn go_on(&self, count: usize) {
        let moment = self.names.load(Ordering::Relaxed) + count;
        until("some submits", soon(), || async { (self.names.load(Ordering::Relaxed) >= moment).then_some(()) }).await;
    }

    /// Stops them, and compares what they were told with what there is.
    pub async fn tally(self, client: &Client) -> Tally {
        self.stop.store(true, Ordering::Relaxed);
        let mut acknowledged = BTreeMap::new();
        for one in self.clients {
            acknowledged.extend(one.await.expect("a submitter is answered in the end"));
        }
        let mut stored: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for job in client.all_jobs().await.expect("all jobs") {
            stored.entry(job.name).or_default().insert(job.id.to_string());
        }
        let lost = acknowledged.iter().filter(|(name, id)| !stored.get(*name).is_some_and(|ids| ids.contains(*id)));
        let lost = lost.count();
        let doubled = stored.values().filter(|ids| ids.len() > 1).count();
        Tally { acknowledged: acknowledged.len(), lost, doubled }
    }
}

/// Submits a job with a key of its name that asks for more than there is, so that nothing but the queue changes; says under which id.
pub async fn submit(client: &Client, name: &str) -> Result<String, ClientError> {
    let yaml = EmulatedJob { min_gpus: 64, max_gpus: 64, ..EmulatedJob::named(name) }.yaml();
    client.submit_yaml_for(&yaml, Some(&format!("key-{name}")), true).await.map(|done| done.jobs[0].id.to_string())
}

async fn submit_until(client: Client, names: Arc<AtomicUsize>, stop: Arc<AtomicBool>) -> BTreeMap<String, String> {
    let mut acknowledged = BTreeMap::new();
    while !stop.load(Ordering::Relaxed) {
        let name = format!("job-{}", names.fetch_add(1, Ordering::Relaxed));
        let id = until("a job to be acknowledged", soon(), || async { submit(&client, &name).await.ok() }).await;
        acknowledged.insert(name, id);
    }
    acknowledged
}
