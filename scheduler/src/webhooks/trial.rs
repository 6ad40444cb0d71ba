//! A call of a job's webhooks that somebody asks for, to see whether what will matter arrives: signed like every other, to the same addresses and no
//! others, and told to be a test. It is made once, now, and never again by itself; nothing of it is in the outbox.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::future::join_all;
use headway_engine::record::{Job, Notice, NoticeId};
use headway_types::Timestamp;

use super::messenger::{Messenger, TEST};
use super::tell;
use crate::cluster::Cluster;

/// Between two tests of one user: the scheduler is no means of calling others again and again.
const REST: Duration = Duration::from_secs(10);

/// Makes tests; cheap to clone.
#[derive(Clone)]
pub struct Trials {
    messenger: Messenger,
    /// When each user's last one began.
    recent: Arc<Mutex<BTreeMap<String, Instant>>>,
}

/// What came of one call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    pub notice: Notice,
    /// The error is for the job's owner.
    pub result: Result<(), String>,
    pub took: Duration,
}

impl Trials {
    #[must_use]
    pub fn new(messenger: Messenger) -> Self {
        Self { messenger, recent: Arc::default() }
    }

    /// Takes a user's turn; `Err`: how long until there is one.
    pub fn admit(&self, user: &str, now: Instant) -> Result<(), Duration> {
        // The map is valid between any two of its operations.
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.retain(|_, began| now.duration_since(*began) < REST);
        match recent.get(user) {
            Some(began) => Err(REST - now.duration_since(*began)),
            None => {
                recent.insert(user.to_owned(), now);
                Ok(())
            }
        }
    }

    /// Calls all of a job's webhooks at once.
    pub async fn call(&self, cluster: &Cluster, job: &Job) -> Vec<Tried> {
        let calls = notices(job, cluster.now()).into_iter().map(|notice| async {
            let began = Instant::now();
            let result = tell(cluster, &self.messenger, &notice).await;
            Tried { notice, result, took: began.elapsed() }
        });
        join_all(calls).await
    }
}

/// What a job's webhooks are told by a test. Its number is the moment, which no event has for its own.
pub fn notices(job: &Job, now: Timestamp) -> Vec<Notice> {
    let notice = |(to, webhook): (&headway_types::spec::Notify, u32)| {
        Some(Notice {
            id: NoticeId { event: now.0.unsigned_abs(), webhook },
            at: now,
            kind: *to.on.first()?,
            verb: TEST.into(),
            job: job.id,
            name: job.spec.name.clone(),
            project: job.spec.project.clone(),
            owner: job.owner.clone(),
            text: format!("{}: a test of its webhook, nothing has happened to it", job.spec.name),
            webhook: to.webhook.clone(),
            secret: to.secret.clone(),
        })
    };
    job.spec.notify.iter().zip(0..).filter_map(notice).collect()
}
