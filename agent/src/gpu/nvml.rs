//! NVIDIA's GPUs through NVML, whose library is loaded at run time: a node without it is no error.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use headway_types::{Bytes, Gpu, GpuHealth, GpuUuid, xid};
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device as Handle, Nvml};

use super::{Device, Source, Wake, drm, model};

/// How long one wait for events takes; it only bounds how soon the thread notices an error of NVML itself.
const EVENT_WAIT_MS: u32 = 10_000;
/// Looks in a row that must fail before a GPU that the driver still knows counts as broken.
const FAILURES: u32 = 3;
/// What heat and power do to a GPU against its will. A software power cap is how a busy GPU runs.
const SLOWDOWNS: [(ThrottleReasons, &str); 4] = [
    (ThrottleReasons::HW_THERMAL_SLOWDOWN, "heat (hardware)"),
    (ThrottleReasons::SW_THERMAL_SLOWDOWN, "heat (driver)"),
    (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "the power brake"),
    (ThrottleReasons::HW_SLOWDOWN, "hardware protection"),
];

/// Fatal errors by GPU. They stay for the life of the agent: a GPU that was reset is taken back by restarting it.
type Broken = Arc<Mutex<BTreeMap<GpuUuid, String>>>;

pub(super) struct Nvidia {
    /// For the rest of the process: event sets borrow from it.
    nvml: &'static Nvml,
    /// What does not change, in index order.
    known: Vec<Device>,
    broken: Broken,
    /// Looks in a row that failed, by index.
    failures: BTreeMap<u32, u32>,
}

impl Nvidia {
    pub(super) fn open(wake: Sender<Wake>) -> Result<Self, NvmlError> {
        let nvml: &'static Nvml = Box::leak(Box::new(Nvml::init()?));
        let count = nvml.device_count()?;
        if count == 0 {
            return Err(NvmlError::NotFound);
        }
        let known = (0..count).map(|index| describe(&nvml.device_by_index(index)?, index)).collect::<Result<_, _>>()?;
        let source = Self { nvml, known, broken: Broken::default(), failures: BTreeMap::new() };
        source.watch(wake);
        Ok(source)
    }

    /// Collects XIDs on a thread of its own. Without events, `look` still sees what XIDs leave behind.
    fn watch(&self, wake: Sender<Wake>) {
        let (nvml, broken) = (self.nvml, Arc::clone(&self.broken));
        let run = move || {
            let mut events = nvml.create_event_set()?;
            for index in 0..nvml.device_count()? {
                let handle = nvml.device_by_index(index)?;
                events = handle.register_events(EventTypes::CRITICAL_XID_ERROR, events).map_err(|error| error.error)?;
            }
            loop {
                let event = match events.wait(EVENT_WAIT_MS) {
                    Ok(event) => event,
                    Err(NvmlError::Timeout) => continue,
                    Err(error) => return Err(error),
                };
                let Some(XidError::Value(number)) = event.event_data else { continue };
                let uuid = event.device.uuid().map(GpuUuid);
                tracing::warn!(xid = number, gpu = ?uuid, "the driver reports an error");
                if let (Ok(uuid), Some(cause)) = (uuid, xid::fatal(number)) {
                    broken.lock().unwrap_or_else(PoisonError::into_inner).insert(uuid, cause);
                    let _monitor_gone = wake.send(Wake::News);
                }
            }
        };
        let run = move || {
            let ended: Result<std::convert::Infallible, NvmlError> = run();
            tracing::warn!(error = ?ended.err(), "the driver's errors are not heard any more");
        };
        if let Err(error) = std::thread::Builder::new().name("xids".into()).spawn(run) {
            tracing::warn!(%error, "the driver's errors are not heard");
        }
    }

    fn now(&self, known: &Device) -> Result<Device, NvmlError> {
        let handle = self.nvml.device_by_index(known.gpu.index)?;
        let mut device = known.clone();
        // Not every GPU counts ECC errors.
        if let Ok(errors @ 1..) = handle.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile) {
            device.gpu.health = GpuHealth::Broken(format!("{errors} uncorrectable memory errors since the last reset"));
        }
        let reasons = handle.current_throttle_reasons().unwrap_or(ThrottleReasons::empty());
        device.slowed =
            SLOWDOWNS.iter().find(|(reason, _)| reasons.contains(*reason)).map(|(_, name)| (*name).to_owned());
        // Not every driver lists processes; every one that works tells the memory.
        device.used = Some(Bytes(handle.memory_info()?.used));
        device.busy = handle.utilization_rates().ok().map(|rates| f64::from(rates.gpu.min(100)) / 100.0);
        device.celsius = handle.temperature(TemperatureSensor::Gpu).ok().map(f64::from);
        device.watts = handle.power_usage().ok().map(|milliwatts| f64::from(milliwatts) / 1e3);
        let processes = handle.running_compute_processes().unwrap_or_default();
        device.processes = processes.into_iter().map(|process| process.pid).collect();
        Ok(device)
    }
}

impl Source for Nvidia {
    fn look(&mut self) -> Vec<Device> {
        let broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut failures = std::mem::take(&mut self.failures);
        let look = |known: &Device| {
            let failures = failures.entry(known.gpu.index).or_default();
            let mut device = match self.now(known) {
                Ok(device) => {
                    *failures = 0;
                    device
                }
                Err(error) => {
                    *failures += 1;
                    let mut device = known.clone();
                    if *failures >= FAILURES || matches!(error, NvmlError::GpuLost) {
                        device.gpu.health = GpuHealth::Broken(format!("NVML: {error}"));
                    }
                    device
                }
            };
            if let Some(cause) = broken.get(&known.gpu.uuid) {
                device.gpu.health = GpuHealth::Broken(cause.clone());
            }
            device
        };
        let devices = self.known.iter().map(look).collect();
        self.failures = failures;
        devices
    }
}

fn describe(handle: &Handle<'_>, index: u32) -> Result<Device, NvmlError> {
    let memory = Bytes(handle.memory_info()?.total);
    let file = PathBuf::from(format!("/dev/nvidia{}", handle.minor_number()?));
    let files = vec![file.clone(), PathBuf::from("/dev/nvidiactl"), PathBuf::from("/dev/nvidia-uvm")];
    // "00000000:3B:00.0" to NVML, "0000:3b:00.0" to the kernel.
    let address = handle.pci_info()?.bus_id.to_lowercase();
    let address = address.strip_prefix("0000").filter(|rest| rest.find(':') == Some(4)).unwrap_or(&address);
    let drawn = drm::files(Path::new("/"), &Path::new("/sys/bus/pci/devices").join(address));
    Ok(Device {
        gpu: Gpu { uuid: GpuUuid(handle.uuid()?), index, memory, health: GpuHealth::Healthy },
        gpu_type: model::of(&handle.name()?, memory),
        slowed: None,
        used: None,
        busy: None,
        celsius: None,
        watts: None,
        processes: Vec::new(),
        files,
        own: std::iter::once(file).chain(drawn).collect(),
    })
}
