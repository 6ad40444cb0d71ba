//! Where workers' observations go: summed up by the node's core, then into the outbox. They do not pass through the
//! node's loop, so that neither waits for the other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use headway_node::Observations;
use headway_types::{Bytes, Generation, GpuUuid, JobId, Seconds, StepReport};
use tokio::sync::Notify;

use crate::clock::{now, sleep_until};
use crate::outbox::Outbox;

#[derive(Clone)]
pub(crate) struct Observer(Arc<Inner>);

struct Inner {
    observations: Mutex<Observations>,
    outbox: Arc<Outbox>,
    /// Something may be due earlier than it was.
    changed: Notify,
}

impl Observer {
    pub(crate) fn new(every: Duration, outbox: Arc<Outbox>) -> Self {
        let observations = Mutex::new(Observations::new(Seconds(every.as_secs_f64())));
        Self(Arc::new(Inner { observations, outbox, changed: Notify::new() }))
    }

    /// Sends on what becomes due. Never ends by itself.
    pub(crate) async fn run(self) {
        loop {
            let next_due = self.lock().next_due();
            tokio::select! {
                () = sleep_until(next_due) => {
                    let due = self.lock().due(now());
                    due.into_iter().for_each(|report| self.0.outbox.push(report));
                }
                () = self.0.changed.notified() => {}
            }
        }
    }

    pub(crate) fn open(&self, job: JobId, generation: Generation, gpus: &[GpuUuid]) {
        self.lock().open(job, generation, gpus);
    }

    pub(crate) fn memory(&self, used: &BTreeMap<GpuUuid, Bytes>) {
        self.lock().memory(used);
    }

    pub(crate) fn steps(&self, report: StepReport) {
        let out = self.lock().steps(now(), report);
        out.into_iter().for_each(|report| self.0.outbox.push(report));
        self.0.changed.notify_one();
    }

    pub(crate) fn busy(&self, job: JobId, generation: Generation, rank: u32, steps: u32, busy: Seconds) {
        self.lock().busy(now(), job, generation, rank, steps, busy);
        self.0.changed.notify_one();
    }

    /// Ahead of a fact about the group's steps.
    pub(crate) fn flush(&self, job: JobId, generation: Generation) {
        let out = self.lock().flush(job, generation);
        out.into_iter().for_each(|report| self.0.outbox.push(report));
    }

    /// The group is over; who still speaks for it is not heard.
    pub(crate) fn close(&self, job: JobId, generation: Generation) {
        let out = self.lock().close(job, generation);
        out.into_iter().for_each(|report| self.0.outbox.push(report));
    }

    fn lock(&self) -> MutexGuard<'_, Observations> {
        self.0.observations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
