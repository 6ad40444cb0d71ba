//! The GPUs of the node: who knows them (NVML, ROCm's sysfs, the operator), and a thread that keeps looking at their
//! health and puts every change into the offer. It grants nothing; a GPU that is gone stays in the offer as broken,
//! since the node's class must not change under a job.

mod drm;
mod fault;
mod model;
mod nvml;
mod rocm;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use headway_types::{Bytes, Condition, ConditionKind, Gpu, GpuHealth, GpuType, GpuUuid, NodeId};
use tokio::sync::oneshot;

use crate::AgentError;
use crate::activity::Uses;
use crate::config::{DeclaredGpus, GpuOffer};
use crate::inventory::Inventory;
use crate::observer::Observer;
use crate::readings::Readings;

/// How often health is looked at; an XID wakes earlier.
const EVERY: Duration = Duration::from_secs(2);
/// How long a driver may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Looks in a row that find a GPU slowed down before that is news, and that find none before it is over.
const SLOW_LOOKS: u32 = 3;

/// One GPU as it is now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Device {
    pub(crate) gpu: Gpu,
    pub(crate) gpu_type: GpuType,
    /// Why it runs slower than it could.
    pub(crate) slowed: Option<String>,
    /// Memory in use on it, by whomever; absent where its driver does not say.
    pub(crate) used: Option<Bytes>,
    /// Share of the last moments in which it computed; absent where its driver does not say.
    pub(crate) busy: Option<f64>,
    /// Likewise how hot it is, and what power it draws.
    pub(crate) celsius: Option<f64>,
    pub(crate) watts: Option<f64>,
    /// Processes that compute on it, whoever started them.
    pub(crate) processes: Vec<u32>,
    /// Device files a worker needs.
    pub(crate) files: Vec<PathBuf>,
    /// Device files that lead to this GPU alone, whether a worker needs them or not.
    pub(crate) own: Vec<PathBuf>,
}

/// Who knows the GPUs. `look` may take a while; it is called on the monitor's own thread.
pub(crate) trait Source: Send {
    fn look(&mut self) -> Vec<Device>;
}

/// What wakes the monitor.
pub(crate) enum Wake {
    /// A source has news.
    News,
    /// Somebody needs the newest state.
    Asked(oneshot::Sender<Vec<Device>>),
}

/// Finds the GPUs that the operator wants offered; the second half wakes the monitor.
pub(crate) fn open(offer: &GpuOffer, node: NodeId) -> Result<(Box<dyn Source>, Waker), AgentError> {
    let (sender, receiver) = channel();
    let source: Box<dyn Source> = match offer {
        GpuOffer::Declared(declared) => Box::new(Declared(declared.devices(node))),
        GpuOffer::Discovered { gpu_type } => {
            let nvidia = nvml::Nvidia::open(sender.clone()).map(|source| Box::new(source) as Box<dyn Source>);
            let found = nvidia.or_else(|nvml| {
                let amd = rocm::Amd::open(Path::new("/"));
                amd.map(|source| Box::new(source) as Box<dyn Source>).ok_or(nvml)
            });
            let source = found.map_err(|nvml| AgentError::Gpus {
                message: format!("none found (NVML: {nvml}; no ROCm devices); declare them with --gpus"),
            })?;
            match gpu_type {
                Some(gpu_type) => Box::new(Renamed(source, gpu_type.clone())),
                None => source,
            }
        }
    };
    Ok((source, Waker { sender, receiver }))
}

/// Both ends of the monitor's bell, until the monitor takes one.
pub(crate) struct Waker {
    sender: Sender<Wake>,
    receiver: Receiver<Wake>,
}

/// Asks the monitor. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Gpus(Sender<Wake>);

impl Gpus {
    /// The GPUs as they are now; `None` if whoever knows them does not answer.
    pub(crate) async fn look(&self) -> Option<Vec<Device>> {
        let (reply, answer) = oneshot::channel();
        let _gone = self.0.send(Wake::Asked(reply));
        tokio::time::timeout(PATIENCE, answer).await.ok()?.ok()
    }
}

#[cfg(test)]
impl Gpus {
    /// Whoever knows them never answers.
    pub(crate) fn unanswered() -> Self {
        let (asked, nobody) = channel();
        std::mem::forget(nobody);
        Self(asked)
    }
}

/// Starts the monitor on a thread of its own. It ends when nobody can ask any more.
pub(crate) fn monitor(
    source: Box<dyn Source>,
    waker: Waker,
    inventory: Inventory,
    observer: Observer,
    (uses, readings): (Uses, Readings),
    faults: PathBuf,
) -> Result<Gpus, AgentError> {
    let Waker { sender, receiver } = waker;
    let mut monitor = Monitor { source, faults, inventory, observer, uses, readings, slow: BTreeMap::new() };
    let run = move || {
        loop {
            let wake = receiver.recv_timeout(EVERY);
            let devices = monitor.round();
            match wake {
                Ok(Wake::Asked(reply)) => drop(reply.send(devices)),
                Ok(Wake::News) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    };
    std::thread::Builder::new().name("gpus".into()).spawn(run).map_err(AgentError::io("starting the GPU monitor"))?;
    Ok(Gpus(sender))
}

struct Monitor {
    source: Box<dyn Source>,
    faults: PathBuf,
    inventory: Inventory,
    observer: Observer,
    uses: Uses,
    readings: Readings,
    slow: BTreeMap<u32, Slowness>,
}

/// Whether a GPU is shown as slowed down, and for how many looks in a row it was not as shown.
#[derive(Default)]
struct Slowness {
    shown: bool,
    contrary: u32,
}

impl Slowness {
    fn look(&mut self, slowed: bool) {
        self.contrary = if slowed == self.shown { 0 } else { self.contrary + 1 };
        if self.contrary == SLOW_LOOKS {
            *self = Self { shown: slowed, contrary: 0 };
        }
    }
}

impl Monitor {
    fn round(&mut self) -> Vec<Device> {
        let mut devices = self.source.look();
        for (index, cause) in fault::injected(&self.faults) {
            if let Some(device) = devices.iter_mut().find(|device| device.gpu.index == index) {
                device.gpu.health = GpuHealth::Broken(cause);
            }
        }
        self.inventory.change(|inventory| {
            for gpu in &mut inventory.gpus {
                let found = devices.iter().find(|device| device.gpu.uuid == gpu.uuid);
                let gone = || GpuHealth::Broken("it is not there any more".into());
                let health = found.map_or_else(gone, |device| device.gpu.health.clone());
                if health != gpu.health {
                    tracing::warn!(gpu = %gpu.uuid, index = gpu.index, ?health, "a GPU's health has changed");
                    gpu.health = health;
                }
            }
        });
        let used = devices.iter().filter_map(|device| Some((device.gpu.uuid.clone(), device.used?))).collect();
        self.observer.memory(&used);
        self.uses.take_in(&devices);
        self.readings.take_in(&devices);
        let conditions = self.throttled(&devices);
        self.inventory.set_conditions(&[ConditionKind::Throttled], conditions);
        devices
    }

    /// At most one condition, which names the GPUs that have been slow for a while.
    fn throttled(&mut self, devices: &[Device]) -> Vec<Condition> {
        let mut slow = Vec::new();
        for device in devices {
            let slowness = self.slow.entry(device.gpu.index).or_default();
            slowness.look(device.slowed.is_some());
            if slowness.shown {
                slow.push(format!("GPU {}", device.gpu.index));
            }
        }
        if slow.is_empty() {
            return Vec::new();
        }
        let causes: Vec<&str> = devices.iter().filter_map(|device| device.slowed.as_deref()).collect();
        let known = self.inventory.now().conditions.iter().find(|c| c.kind == ConditionKind::Throttled).cloned();
        let names = slow.join(", ");
        match known {
            // The causes of the moment would make every look news.
            Some(known) if known.message.starts_with(&format!("{names} ")) => vec![known],
            _ => vec![Condition {
                kind: ConditionKind::Throttled,
                message: format!("{names} slowed down by {}", causes.first().copied().unwrap_or("heat or power")),
            }],
        }
    }
}

/// GPUs as the operator states them, always well.
struct Declared(Vec<Device>);

impl Source for Declared {
    fn look(&mut self) -> Vec<Device> {
        self.0.clone()
    }
}

/// GPUs whose type the operator states.
struct Renamed(Box<dyn Source>, GpuType);

impl Source for Renamed {
    fn look(&mut self) -> Vec<Device> {
        let mut devices = self.0.look();
        for device in &mut devices {
            device.gpu_type = self.1.clone();
        }
        devices
    }
}

impl DeclaredGpus {
    pub(crate) fn devices(&self, node: NodeId) -> Vec<Device> {
        let kind = if self.emulated.is_some() { "EMU" } else { "DECLARED" };
        let device = |index| Device {
            gpu: Gpu {
                uuid: GpuUuid(format!("{kind}-{node}-{index}")),
                index,
                memory: self.memory,
                health: GpuHealth::Healthy,
            },
            gpu_type: self.gpu_type.clone(),
            slowed: None,
            used: None,
            busy: None,
            celsius: None,
            watts: None,
            processes: Vec::new(),
            files: Vec::new(),
            own: Vec::new(),
        };
        (0..self.count.0).map(device).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::{Arc, Mutex};

    use headway_types::NodeReport;

    use super::*;
    use crate::node::tests::fixture;
    use crate::outbox::Outbox;
    use crate::outbox::tests::step_report;

    /// GPUs that are as the test says.
    #[derive(Clone)]
    struct Fake(Arc<Mutex<Vec<Device>>>);

    impl Source for Fake {
        fn look(&mut self) -> Vec<Device> {
            self.0.lock().unwrap().clone()
        }
    }

    fn monitor_of(devices: u32) -> (Monitor, Fake) {
        let (monitor, fake, _) = watched(devices);
        (monitor, fake)
    }

    /// Also the observer that is told of memory, and its outbox.
    fn watched(devices: u32) -> (Monitor, Fake, (Observer, Arc<Outbox>)) {
        let inventory = fixture::inventory(devices);
        let device = |gpu: &Gpu| Device {
            gpu: gpu.clone(),
            gpu_type: inventory.gpu_type.clone(),
            slowed: None,
            used: None,
            busy: None,
            celsius: None,
            watts: None,
            processes: Vec::new(),
            files: Vec::new(),
            own: Vec::new(),
        };
        let fake = Fake(Arc::new(Mutex::new(inventory.gpus.iter().map(device).collect())));
        let inventory = Inventory::new(inventory);
        let faults = PathBuf::from("/no/faults");
        let outbox = Arc::new(Outbox::default());
        outbox.open();
        let observer = Observer::new(Duration::from_secs(60), Arc::clone(&outbox));
        let watch = (observer.clone(), outbox);
        (
            Monitor {
                source: Box::new(fake.clone()),
                faults,
                inventory,
                observer,
                uses: Uses::default(),
                readings: Readings::default(),
                slow: BTreeMap::new(),
            },
            fake,
            watch,
        )
    }

    #[test]
    fn a_gpu_that_is_gone_stays_in_the_offer_as_broken() {
        let (mut monitor, fake) = monitor_of(2);
        let gone = fake.0.lock().unwrap().pop().unwrap();
        monitor.round();
        let offer = monitor.inventory.now();
        assert_eq!((offer.gpus.len(), offer.healthy().0), (2, 1));
        fake.0.lock().unwrap().push(gone);
        monitor.round();
        assert_eq!(monitor.inventory.now().healthy().0, 2);
    }

    #[tokio::test]
    async fn memory_in_use_becomes_the_peak_of_a_group_whose_script_names_none() {
        let (mut monitor, fake, (observer, outbox)) = watched(2);
        let gpus: Vec<GpuUuid> = monitor.inventory.now().gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
        let first = step_report(1);
        observer.open(first.job, first.generation, &gpus[1..]);
        let used = |gibibytes: [u64; 2]| {
            for (device, used) in fake.0.lock().unwrap().iter_mut().zip(gibibytes) {
                device.used = Some(Bytes(used << 30));
            }
        };
        observer.steps(first.clone());
        used([70, 40]);
        monitor.round();
        used([70, 30]);
        monitor.round();
        observer.steps(step_report(2));
        observer.flush(first.job, first.generation);
        for peak in [None, Some(Bytes(40 << 30))] {
            let NodeReport::Steps { report } = outbox.next().await else { panic!("only steps were reported") };
            assert_eq!(report.memory_peak, peak);
        }
    }

    #[test]
    fn a_gpu_is_slowed_down_once_it_has_been_for_a_while_and_well_only_then_too() {
        let (mut monitor, fake) = monitor_of(2);
        let slow = |cause: Option<&str>| fake.0.lock().unwrap()[1].slowed = cause.map(str::to_owned);
        let mut rounds = |count: u32| {
            (0..count).for_each(|_| drop(monitor.round()));
            monitor.inventory.now().conditions.iter().map(|condition| condition.message.clone()).collect::<Vec<_>>()
        };
        slow(Some("heat (hardware)"));
        assert!(rounds(SLOW_LOOKS - 1).is_empty());
        let raised = vec!["GPU 1 slowed down by heat (hardware)".to_owned()];
        assert_eq!(rounds(1), raised);
        slow(Some("the power brake"));
        assert_eq!(rounds(1), raised, "the causes of the moment are no news");
        slow(None);
        assert_eq!(rounds(SLOW_LOOKS - 1), raised);
        assert!(rounds(1).is_empty());
        slow(Some("heat (hardware)"));
        assert!(rounds(SLOW_LOOKS - 1).is_empty());
    }
}
