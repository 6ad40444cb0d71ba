//! What groups that are watched do: when their ranks last wrote something, and how much they use their GPUs. It looks at files and at
//! what the GPU monitor has seen, and never waits for the node's loop.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use headway_types::{Generation, GpuUuid, JobId, NodeReport, Seconds};

use crate::gpu::Device;
use crate::outbox::Outbox;
use crate::site::Site;

const EVERY: Duration = Duration::from_secs(10);

/// How much each GPU was used since somebody last asked, whoever used it.
#[derive(Clone, Default)]
pub(crate) struct Uses(Arc<Mutex<BTreeMap<GpuUuid, Mean>>>);

/// How much each GPU was used between one look and the next.
struct Used(BTreeMap<GpuUuid, Mean>);

#[derive(Clone, Copy, Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Uses {
    pub(crate) fn take_in(&self, devices: &[Device]) {
        let mut uses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (device, busy) in devices.iter().filter_map(|device| Some((device, device.busy?))) {
            let mean = uses.entry(device.gpu.uuid.clone()).or_default();
            (mean.sum, mean.count) = (mean.sum + busy, mean.count + 1.0);
        }
    }

    /// Of all GPUs at once, watched or not: what a group finds was not there before the look that came before it.
    fn take(&self) -> Used {
        Used(std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Used {
    /// The mean over these GPUs; `None` where one of them does not say.
    fn of(&self, gpus: &[GpuUuid]) -> Option<f64> {
        let means: Vec<Mean> = gpus.iter().map(|gpu| self.0.get(gpu).copied()).collect::<Option<_>>()?;
        let total: f64 = means.iter().map(|mean| mean.sum / mean.count).sum();
        (!means.is_empty()).then(|| total / means.len() as f64)
    }
}

/// A group that is watched, with its GPUs of this node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Watched {
    pub(crate) job: JobId,
    pub(crate) generation: Generation,
    pub(crate) gpus: Vec<GpuUuid>,
}

/// Never ends by itself.
pub(crate) async fn run(site: Arc<Site>, uses: Uses, outbox: Arc<Outbox>) {
    let mut outputs = Outputs::default();
    loop {
        let (watched, used) = (site.census.borrow().watched.clone(), uses.take());
        outputs.0.retain(|key, _| watched.iter().any(|one| (one.job, one.generation) == *key));
        for Watched { job, generation, gpus } in watched {
            let written = written(&site.files.group(job, generation));
            let quiet = outputs.quiet((job, generation), written, Instant::now());
            let busy = used.of(&gpus);
            outbox.push(NodeReport::Activity { job, generation, quiet: Seconds(quiet.as_secs_f64()), busy });
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// What each group had written, and since when it has been no more.
#[derive(Default)]
struct Outputs(BTreeMap<(JobId, Generation), (u64, Instant)>);

impl Outputs {
    /// What is seen for the first time counts as just written: an agent that starts afresh knows no better.
    fn quiet(&mut self, key: (JobId, Generation), written: u64, now: Instant) -> Duration {
        let known = self.0.entry(key).or_insert((written, now));
        if known.0 != written {
            *known = (written, now);
        }
        now.duration_since(known.1)
    }
}

/// Bytes that ranks of a group have written in all; what was cut off at the front counts too.
fn written(group: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(group) else { return 0 };
    let logs = entries.flatten().filter(|entry| entry.path().extension().is_some_and(|ending| ending == "log"));
    logs.filter_map(|entry| entry.metadata().ok()).map(|of| of.len()).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_group_is_quiet_since_it_last_wrote() {
        let (mut outputs, start) = (Outputs::default(), Instant::now());
        let key = (JobId(uuid::Uuid::from_u128(1)), Generation(1));
        let at = |seconds| start + Duration::from_secs(seconds);
        let quiet: Vec<u64> = [(10, 0), (10, 20), (11, 30), (11, 75)]
            .map(|(written, seconds)| outputs.quiet(key, written, at(seconds)).as_secs())
            .to_vec();
        assert_eq!(quiet, [0, 20, 0, 45]);
    }

    #[test]
    fn all_that_ranks_wrote_counts_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("rank-0.log"), "abc").unwrap();
        std::fs::write(dir.path().join("rank-8.log"), "de").unwrap();
        std::fs::write(dir.path().join("secret"), "0123456789").unwrap();
        assert_eq!(written(dir.path()), 5);
        assert_eq!(written(&dir.path().join("gone")), 0);
    }

    #[test]
    fn use_is_the_mean_over_gpus_that_say() {
        let device = |index: u32, busy| {
            let inventory = crate::node::tests::fixture::inventory(3);
            Device {
                gpu: inventory.gpus[index as usize].clone(),
                gpu_type: inventory.gpu_type,
                slowed: None,
                used: None,
                busy,
                celsius: None,
                watts: None,
                processes: Vec::new(),
                files: Vec::new(),
                own: Vec::new(),
            }
        };
        let uses = Uses::default();
        uses.take_in(&[device(0, Some(1.0)), device(1, Some(0.0)), device(2, None)]);
        uses.take_in(&[device(0, Some(0.0)), device(1, Some(0.0)), device(2, None)]);
        let gpus: Vec<GpuUuid> = (0..3).map(|index| device(index, None).gpu.uuid).collect();
        let used = uses.take();
        assert_eq!((used.of(&gpus[..2]), used.of(&gpus[2..])), (Some(0.25), None));
        assert_eq!(uses.take().of(&gpus[..2]), None, "nothing was seen since");
    }

    #[test]
    fn a_group_does_not_answer_for_what_was_before_it() {
        let (inventory, uses) = (crate::node::tests::fixture::inventory(1), Uses::default());
        let gpu = &inventory.gpus[0];
        let device = |busy| Device {
            gpu: gpu.clone(),
            gpu_type: inventory.gpu_type.clone(),
            slowed: None,
            used: None,
            busy: Some(busy),
            celsius: None,
            watts: None,
            processes: Vec::new(),
            files: Vec::new(),
            own: Vec::new(),
        };
        uses.take_in(&[device(0.0)]);
        // A look at which nobody is watched.
        uses.take();
        uses.take_in(&[device(1.0)]);
        assert_eq!(uses.take().of(std::slice::from_ref(&gpu.uuid)), Some(1.0));
    }
}
